package differ

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// numbered are the members whose values are chosen anew by each browser. A value becomes
// its kind and the number of its first appearance, so that the same value is seen to be
// the same. A name may have its parent's before it, where it means another thing elsewhere.
// Targets, frames, loaders, sessions, contexts and downloads are known by their form: see
// randomID.
var numbered = map[string]string{
	"requestId":                "request", // counted in a process, over all pages
	"networkId":                "request",
	"networkRequestId":         "request",
	"interceptionId":           "request",
	"redirectedRequestId":      "request",
	"objectId":                 "object", // has the isolate's number in it
	"scriptId":                 "script", // counted in an isolate, also for other pages
	"script_id":                "script",
	"executionContextId":       "world", // the same
	"contextId":                "world",
	"context.id":               "world",
	"uniqueId":                 "unique world", // random
	"executionContextUniqueId": "unique world",
	"uniqueContextId":          "unique world",
	"exceptionId":              "exception",    // counted in an isolate
	"debuggerId":               "debugger",     // random
	"backendNodeId":            "backend node", // counted in a process
	"backendDOMNodeId":         "backend node",
	"backendNodeIds":           "backend node",
	"nodeId":                   "node", // of accessibility: the same as the backend's
	"childIds":                 "node",
	"parentId":                 "node",
	"styleSheetId":             "style sheet", // counted in a process
	"callFrameId":              "call frame",  // has the isolate's number in it
	"breakpointId":             "breakpoint",  // has the script's number in it
	"animationId":              "animation",
	"stream":                   "stream", // counted in the browser
	"handle":                   "stream",
	"windowId":                 "window",
	"registrationId":           "worker registration", // counted in the profile
	"versionId":                "worker version",
	"runningStatus.versionId":  "worker version",
	"currentEntry.id":          "history entry",
	"entries.id":               "history entry",
	"processId":                "process",
	"sourceId":                 "source",
	"identifier":               "identifier", // of scripts for new documents: counted in a browser
	"streamHandle":             "stream",
	"storageId":                "storage",
	"cookiePartitionKey":       "cookie partition",
	"ordinal":                  "ordinal",
	"heapSnapshotObjectId":     "heap object",
	"loaderId":                 "loader",
	"issueId":                  "issue",
	"eventId":                  "event",
	"ruleSetId":                "rule set", // counted in a process
	"ruleSetIds":               "rule set",
	"ruleSet.id":               "rule set",
	"connectionId":             "connection", // of the network's pool
}

// dropped are the members whose values are times, sizes that depend on time, or of the
// machine, and so differ from play to play.
var dropped = []string{
	"timestamp", "wallTime", "ts", "requestTime", "responseTime", "startTime", "endTime", "timing", "time", "deltaTime",
	"usedSize", "totalSize", "embedderHeapUsedSize", "backingStorageSize", "date", "Date", "creationTime", "expires",
	"connectionReused", "encodedDataLength", "navigationStart", "installedTime",
	"serviceWorkerResponseSource", "workerStart", "renderTime", "loadTime", "quota", "usage", "elapsedTime", "monotonicTime",
	"currentTime", "queryTimeMs", "lastScriptModified", "scriptResponseTime", "jsHeapUsedSize", "pid", "threadId",
}

// randomID is the form of the ids of targets, sessions, frames, loaders, browser
// contexts, tokens and downloads. They also stand in URLs and in texts.
var randomID = regexp.MustCompile(`[0-9A-F]{32}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// plainer replaces what differs from play to play in the messages of one play.
type plainer struct {
	labels map[string]string         // values that the script has named, with the name
	hosts  *strings.Replacer         // the browser's own address and directories
	seen   map[string]map[string]int // by kind and value: number of the first appearance
	masks  []string
	adds   []Exception
	added  map[string]int
	// counting is off for messages without an order: a number would depend on it.
	counting bool
}

// newPlainer begins with the names of a play. Only a name for a random id is used in
// place of its value: true or 1 may stand anywhere.
func newPlainer(p *Play, s *Script) *plainer {
	pl := &plainer{labels: map[string]string{}, seen: map[string]map[string]int{}, masks: s.masks, added: map[string]int{}, counting: true}
	for _, e := range Exceptions {
		if e.added != nil && matches(e.Scripts, s.Name) {
			pl.adds = append(pl.adds, e)
		}
	}
	_, path, _ := strings.Cut(p.socket, p.host)
	pl.hosts = strings.NewReplacer(path, "<browser>", p.values["downloads"], "<downloads>", p.host, "<port>")
	for _, name := range slices.Sorted(maps.Keys(p.values)) {
		if value := p.values[name]; randomID.FindString(value) == value && value != "" && pl.labels[value] == "" {
			pl.labels[value] = "$" + name
		}
	}
	return pl
}

// plain returns a message as it is compared.
func (p *plainer) plain(raw []byte) string {
	raw = bytes.TrimRight(raw, " \r\n")
	for _, e := range p.adds {
		raw = e.added.ReplaceAllFunc(raw, func([]byte) []byte {
			p.added[e.Name]++
			return nil
		})
	}
	w := &walker{in: raw, p: p}
	if !w.value("", "") || w.at != len(raw) {
		return p.text(string(raw)) // it is no JSON
	}
	return w.out.String()
}

// text replaces addresses, and ids that are known by their form.
func (p *plainer) text(s string) string {
	return randomID.ReplaceAllStringFunc(p.hosts.Replace(s), func(id string) string { return p.number("id", id) })
}

// number returns what stands for a value.
func (p *plainer) number(kind, value string) string {
	if label := p.labels[value]; label != "" {
		return label
	}
	if !p.counting {
		return "<" + kind + ">"
	}
	if p.seen[kind] == nil {
		p.seen[kind] = map[string]int{}
	}
	n := p.seen[kind][value]
	if n == 0 {
		n = len(p.seen[kind]) + 1
		p.seen[kind][value] = n
	}
	return fmt.Sprintf("<%s %d>", kind, n)
}

// walker copies a JSON text, and replaces values on the way. All else stays as it is,
// byte for byte.
type walker struct {
	in  []byte
	at  int
	out strings.Builder
	p   *plainer
}

func (w *walker) copy(n int) {
	w.out.Write(w.in[w.at : w.at+n])
	w.at += n
}

func (w *walker) space() {
	for w.at < len(w.in) && strings.IndexByte(" \t\r\n", w.in[w.at]) >= 0 {
		w.copy(1)
	}
}

// value copies one value, which is the member name of the member parent. The values of an
// array have the array's name.
func (w *walker) value(parent, name string) bool {
	w.space()
	if w.at >= len(w.in) {
		return false
	}
	if name != "" && (slices.Contains(dropped, name) || slices.Contains(w.p.masks, name) || slices.Contains(w.p.masks, parent+"."+name)) {
		end := skip(w.in, w.at)
		if end < 0 {
			return false
		}
		w.at = end
		w.out.WriteString("<" + name + ">")
		return true
	}
	switch w.in[w.at] {
	case '{':
		return w.members('}', func() bool {
			start := w.at + 1
			end := skip(w.in, w.at)
			if end < 0 || w.in[w.at] != '"' {
				return false
			}
			inner := string(w.in[start : end-1])
			w.out.WriteString(w.p.text(string(w.in[w.at:end]))) // names of objects may be ids
			w.at = end
			w.space()
			if w.at >= len(w.in) || w.in[w.at] != ':' {
				return false
			}
			w.copy(1)
			return w.value(name, inner)
		})
	case '[':
		return w.members(']', func() bool { return w.value(parent, name) })
	}
	end := skip(w.in, w.at)
	if end < 0 {
		return false
	}
	w.out.WriteString(w.scalar(parent, name, string(w.in[w.at:end])))
	w.at = end
	return true
}

// members copies what stands between brackets.
func (w *walker) members(closing byte, one func() bool) bool {
	w.copy(1)
	w.space()
	if w.at < len(w.in) && w.in[w.at] == closing {
		w.copy(1)
		return true
	}
	for {
		w.space()
		if w.at >= len(w.in) || !one() {
			return false
		}
		w.space()
		switch {
		case w.at >= len(w.in):
			return false
		case w.in[w.at] == closing:
			w.copy(1)
			return true
		case w.in[w.at] != ',':
			return false
		}
		w.copy(1)
	}
}

func (w *walker) scalar(parent, name, text string) string {
	kind := numbered[name]
	if k := numbered[parent+"."+name]; k != "" {
		kind = k
	}
	if kind == "" || text == "null" || text == `""` || randomID.MatchString(text) {
		return w.p.text(text)
	}
	if unquoted, err := strconv.Unquote(text); err == nil {
		return `"` + w.p.number(kind, unquoted) + `"`
	}
	return w.p.number(kind, text)
}

// skip returns where the value ends that begins at i, or -1. It looks for the end of
// strings and at brackets only.
func skip(in []byte, i int) int {
	depth := 0
	for ; i < len(in); i++ {
		switch in[i] {
		case '"':
			for i++; i < len(in) && in[i] != '"'; i++ {
				if in[i] == '\\' {
					i++
				}
			}
			if i >= len(in) {
				return -1
			}
			if depth == 0 {
				return i + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',', ' ', '\n', '\r', '\t', ':':
			if depth == 0 {
				return i
			}
		}
	}
	if depth > 0 {
		return -1
	}
	return i
}
