package export

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/chromedp/cdproto/har"

	"leasehold"
	"leasehold/checkpoint"
	"leasehold/evidence"
	"leasehold/evidence/recorder"
)

// HAR 1.2, http://www.softwareishard.com/blog/har-12-spec/. Names that begin with an underscore
// are extensions, which readers ignore.
type (
	harFile struct {
		Log harLog `json:"log"`
	}
	harLog struct {
		har.Log
		Entries []harEntry `json:"entries"`
	}
	harEntry struct {
		har.Entry
		Response harResponse `json:"response"`
		// Type is Chrome's type of the request, in lower case as Chrome's own HAR has it.
		Type string `json:"_resourceType,omitempty"`
		// Token is the lease token under which the request was sent.
		Token uint64 `json:"_leaseToken"`
	}
	harResponse struct {
		har.Response
		Failed       string `json:"_error,omitempty"`
		TransferSize *int64 `json:"_transferSize,omitempty"`
	}
)

const (
	harVersion = "1.2"
	// unknownVersion stands for the version of HTTP, which is not recorded.
	unknownVersion = "unknown"
	// unknownMimeType is how Chrome's own HAR names a type that it does not know.
	unknownMimeType = "x-unknown"
)

// exchange is one request and its outcome, from either of the two places that recorded it.
type exchange struct {
	at          time.Time
	token       uint64
	method, url string
	kind        string // Chrome's type
	status      int    // 0: no answer
	failed      string
	bytes       int64         // that came over the network; -1: not recorded
	wait        time.Duration // from the request to its answer; -1: not recorded
	note        string
}

func writeHAR(ctx context.Context, b *bundle, w io.Writer) error {
	recorded, err := b.partOf(ctx, evidence.KindNetwork)
	if err != nil {
		return err
	}
	journal, err := b.partOf(ctx, evidence.KindJournal)
	if err != nil {
		return err
	}
	network := parseNetwork(recorded)
	if recorded == nil {
		network.missing = b.missing(evidence.KindNetwork)
	}
	out := harOf(network, checkpoint.Parse(journal))
	out.Log.Comment = b.verdict() + ". " + b.chain() + ". " + out.Log.Comment
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	return e.Encode(out)
}

type networkPart struct {
	Total   int                     `json:"total"`
	Dropped int                     `json:"dropped"`
	Entries []recorder.RequestEntry `json:"entries"`
	missing string                  // why there is none; "" where there is one
}

// parseNetwork reads the part with the requests. If it is not such a part, there are no
// entries.
func parseNetwork(content []byte) (p networkPart) {
	if content == nil {
		return p
	}
	if err := json.Unmarshal(content, &p); err != nil {
		return networkPart{missing: "it is not JSON"}
	}
	return p
}

// harOf makes a HAR from what the monitor recorded and from the journal. The monitor has all
// kinds of requests, with their bytes, but only the latest ones; the journal has the unsafe
// requests of the whole session. So what the monitor no longer had is taken from the journal.
func harOf(network networkPart, journal []checkpoint.Entry) harFile {
	var all []exchange
	for _, e := range network.Entries {
		all = append(all, exchange{
			at: e.At, token: e.LeaseToken, method: e.Method, url: e.URL, kind: e.Type, status: e.Status, failed: e.Failed, bytes: e.Bytes, wait: -1,
		})
	}
	since, known := network.unsafeSince()
	fromJournal := 0
	for _, x := range journalExchanges(journal) {
		if x.kind == websocketType || !known || x.at.Before(since) {
			all = append(all, x)
			fromJournal++
		}
	}
	slices.SortStableFunc(all, func(a, b exchange) int { return a.at.Compare(b.at) })
	f := harFile{Log: harLog{
		Log:     har.Log{Version: harVersion, Creator: &har.Creator{Name: "leasehold", Version: leasehold.Version}},
		Entries: []harEntry{},
	}}
	without := 0
	for _, x := range all {
		if e, ok := x.entry(); ok {
			f.Log.Entries = append(f.Log.Entries, e)
		} else {
			without++
		}
	}
	f.Log.Comment = network.comment(fromJournal, without)
	return f
}

// unsafeSince tells since when the monitor's list has every unsafe request; it is not known if
// the list has none of them, and left some out.
func (p networkPart) unsafeSince() (since time.Time, known bool) {
	if p.missing != "" {
		return since, false
	}
	if p.Dropped == 0 {
		return since, true
	}
	for _, e := range p.Entries {
		if !isSafe(e.Method) {
			return e.At, true
		}
	}
	return since, false
}

// isSafe tells whether an entry may be left out where only writes count. It has no initiator, so
// a page's own OPTIONS is not told from a preflight here: the journal has it.
func isSafe(method string) bool { return method == "GET" || method == "HEAD" || method == "OPTIONS" }

func (p networkPart) comment(fromJournal, without int) string {
	text := "Not recorded, and so not here: headers, cookies, bodies, versions of HTTP, and most times. Values in URLs are REDACTED, and were never kept."
	if p.missing != "" {
		text += " The bundle has no list of all requests (" + p.missing + "): only those that may have changed something are here, from the journal."
	} else if p.Dropped > 0 {
		text += fmt.Sprintf(" Of %d requests the last are here; %d older ones were not kept.", p.Total, p.Dropped)
	}
	if p.missing == "" && fromJournal > 0 {
		text += fmt.Sprintf(" %d are from the journal.", fromJournal)
	}
	if without > 0 {
		text += fmt.Sprintf(" %d without a URL that HAR could have were left out.", without)
	}
	return text
}

// websocketType is Chrome's name for the type of websockets in HAR.
const websocketType = "websocket"

func journalExchanges(journal []checkpoint.Entry) []exchange {
	answers := map[string]checkpoint.Entry{}
	for _, e := range journal {
		if e.Kind == checkpoint.KindAnswer && e.Request != "" {
			answers[e.Request] = e
		}
	}
	var all []exchange
	for _, e := range journal {
		x := exchange{at: e.At, token: e.Token, method: e.Method, url: e.URL, kind: e.Type, bytes: -1, wait: -1, note: "from the journal"}
		if !e.First.IsZero() {
			x.at = e.First
		}
		if e.Count > 1 {
			x.note += fmt.Sprintf("; one of %d equal ones, the last of them at %s", e.Count, harTime(e.At))
		}
		switch e.Kind {
		case checkpoint.KindRequest:
			if e.Method == checkpoint.Unseen {
				continue // of these nothing is known
			}
			if e.Method == checkpoint.Websocket {
				x.method, x.kind, x.note = "GET", websocketType, x.note+"; messages were sent on this websocket, and none was kept"
			}
			if a, ok := answers[e.Request]; ok && e.Request != "" {
				x.status, x.failed = a.Status, a.Failed
				if wait := a.At.Sub(x.at); wait >= 0 && e.Count <= 1 {
					x.wait = wait
				}
			}
		case checkpoint.KindBlocked:
			x.failed, x.note = "blocked", x.note+"; the session was read-only: it was not sent"
		case checkpoint.KindWithheld:
			x.failed, x.note = "withheld", x.note+"; the page wanted to send it after its worker was lost: it was not sent"
		default:
			continue
		}
		all = append(all, x)
	}
	return all
}

// entry is the exchange in HAR; false if HAR cannot represent its URL.
func (x exchange) entry() (harEntry, bool) {
	u, err := url.Parse(x.url)
	if err != nil || u.Scheme == "" || x.method == "" {
		return harEntry{}, false
	}
	u.User = nil
	e := harEntry{
		Token: x.token, Type: strings.ToLower(x.kind),
		Entry: har.Entry{
			StartedDateTime: harTime(x.at), Cache: &har.Cache{}, Timings: &har.Timings{Comment: "not recorded"}, Comment: x.note,
			Request: &har.Request{
				Method: x.method, URL: u.String(), HTTPVersion: unknownVersion, Cookies: []*har.Cookie{}, Headers: []*har.NameValuePair{},
				QueryString: queryOf(u), HeadersSize: -1, BodySize: -1,
			},
		},
		Response: harResponse{Failed: x.failed, Response: har.Response{
			Status: max(0, int64(x.status)), HTTPVersion: unknownVersion, Cookies: []*har.Cookie{}, Headers: []*har.NameValuePair{},
			Content: &har.Content{MimeType: unknownMimeType, Comment: "not recorded"}, HeadersSize: -1, BodySize: -1,
		}},
	}
	if x.bytes >= 0 {
		e.Response.TransferSize = &x.bytes
	}
	if x.wait >= 0 {
		e.Time = float64(x.wait) / float64(time.Millisecond)
		e.Timings = &har.Timings{Wait: e.Time, Comment: "from the request to the beginning of its answer"}
	}
	switch {
	case x.failed != "":
		e.Response.Comment = "failed: " + x.failed
	case x.status == 0:
		e.Response.Comment = "no answer was recorded"
	}
	return e, true
}

func queryOf(u *url.URL) []*har.NameValuePair {
	pairs := []*har.NameValuePair{}
	for pair := range strings.SplitSeq(u.RawQuery, "&") {
		if pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		pairs = append(pairs, &har.NameValuePair{Name: unescape(name), Value: unescape(value)})
	}
	return pairs
}

func unescape(s string) string {
	if u, err := url.QueryUnescape(s); err == nil {
		return strings.ToValidUTF8(u, "�")
	}
	return s
}

// harTime is a time in ISO 8601, within the years that it can represent.
func harTime(t time.Time) string {
	t = t.UTC()
	if y := t.Year(); y < 1 || y > 9999 {
		t = time.Time{}
	}
	return t.Format("2006-01-02T15:04:05.000Z")
}
