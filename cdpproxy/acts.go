package cdpproxy

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode"

	"leasehold/internal/boottime"
)

// passive are the commands by which a client cannot make a page do anything but
// load (but Page.addScriptToEvaluateOnNewDocument, which the usual clients use on
// every page, and whose scripts can: docs/recovery.md names that); of passiveDomains all are, save what is in active. What is in none of them
// acts: what is not known is not taken for harmless.
var (
	passiveDomains = map[string]bool{
		"Accessibility": true, "Browser": true, "Emulation": true, "Inspector": true, "Lease": true, "Log": true, "Network": true,
		"Performance": true, "Security": true, "SystemInfo": true, "Target": true, "Tracing": true,
	}
	active  = map[string]bool{"Network.replayXHR": true}
	passive = map[string]bool{
		"Page.addScriptToEvaluateOnNewDocument": true, "Page.bringToFront": true, "Page.captureScreenshot": true, "Page.createIsolatedWorld": true,
		"Page.enable": true, "Page.getFrameTree": true, "Page.getLayoutMetrics": true, "Page.getNavigationHistory": true, "Page.navigate": true,
		"Page.setInterceptFileChooserDialog": true, "Page.setLifecycleEventsEnabled": true,
		"Runtime.addBinding": true, "Runtime.enable": true, "Runtime.getProperties": true, "Runtime.releaseObject": true,
		"Runtime.releaseObjectGroup": true, "Runtime.runIfWaitingForDebugger": true,
		"Fetch.enable": true, "Fetch.disable": true, "Fetch.continueRequest": true,
	}
	evaluates = []byte("Runtime.evaluate")
	inputs    = []byte("Input.")
)

func acts(method []byte) bool {
	if bytes.Equal(method, evaluates) || bytes.HasPrefix(method, inputs) { // the usual ones, at little cost
		return true
	}
	domain, _, _ := bytes.Cut(method, []byte("."))
	return !passive[string(method)] && (!passiveDomains[string(domain)] || active[string(method)])
}

// runsScript tells whether a navigation is none, but a script.
func runsScript(method, params []byte) bool {
	if string(method) != "Page.navigate" {
		return false
	}
	var p struct {
		URL string `json:"url"`
	}
	if json.Unmarshal(params, &p) != nil {
		return true
	}
	// Browsers read a scheme without these, and in any case.
	scheme := strings.Map(func(r rune) rune {
		if r <= ' ' {
			return -1
		}
		return unicode.ToLower(r)
	}, p.URL)
	return strings.HasPrefix(scheme, "javascript:")
}

// types tells whether a command enters text into a page.
func types(method []byte) bool {
	return bytes.HasPrefix(method, inputs) && (bytes.HasSuffix(method, []byte(".insertText")) || bytes.HasSuffix(method, []byte(".dispatchKeyEvent")) || bytes.HasSuffix(method, []byte(".imeSetComposition")))
}

// noteActs notes when clients acted on pages, and typed into them. Connections may
// come out of order: a later time stays.
func (m *Mux) noteActivity(at boottime.Instant, sent ...stagedCommand) {
	for i := range sent {
		if !acts(sent[i].method) && !runsScript(sent[i].method, sent[i].params) {
			continue
		}
		m.mu.Lock()
		m.lastActed.Store(max(m.lastActed.Load(), int64(at)))
		target := m.clientTargets[string(sent[i].sessionID)]
		noteTime(&m.actedAt, target, at)
		if types(sent[i].method) {
			noteTime(&m.typedAt, target, at)
		}
		m.mu.Unlock()
	}
}

// maxNoted bounds what is noted of targets and documents. When it is full all of it is
// forgotten, and what was done on some target is then taken for done on each.
const maxNoted = 4096

// note notes when something was done on a target; "" is one that cannot be told.
func noteTime(m *map[string]boottime.Instant, target string, at boottime.Instant) {
	if *m == nil || len(*m) >= maxNoted {
		full := *m != nil
		*m = map[string]boottime.Instant{}
		if full {
			target = ""
		}
	}
	(*m)[target] = max((*m)[target], at)
}

// How Chrome's answers to Target.createTarget and Page.navigate begin, after their
// id. No page has a say in that.
var (
	madeAnswer      = []byte(`,"result":{"targetId":"`)
	navigatedAnswer = []byte(`,"result":{"frameId":"`)
)

// noteOpened notes of an answer which page a command made, or which document it went
// to.
func (m *Mux) noteOpened(msg []byte) {
	head := msg[:min(len(msg), maxAnswerHead)]
	made := bytes.Contains(head, madeAnswer)
	if !made && !bytes.Contains(head, navigatedAnswer) {
		return
	}
	var r struct {
		Result struct {
			TargetID string `json:"targetId"`
			LoaderID string `json:"loaderId"`
		} `json:"result"`
	}
	if json.Unmarshal(msg, &r) != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.made == nil || len(m.made) >= maxNoted {
		m.made = map[string]bool{}
	}
	if m.navigated == nil || len(m.navigated) >= maxNoted {
		m.navigated = map[string]bool{}
	}
	if made {
		m.made[r.Result.TargetID] = true
	} else if r.Result.LoaderID != "" {
		m.navigated[r.Result.LoaderID] = true
	}
}

// maxAnswerHead is up to where the beginning of an answer's result ends, its id
// included.
const maxAnswerHead = 48

// Made tells whether a page was made by a command of a client's, or of the launcher's.
func (m *Mux) Made(target string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.made[target]
}

// Navigated tells whether a document, by its loader's id, is what a command went to by
// its URL.
func (m *Mux) Navigated(loader string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.navigated[loader]
}

// Forget forgets what clients did on pages that are gone.
func (m *Mux) Forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.typedAt, m.actedAt, m.made, m.navigated = nil, nil, nil, nil
}

// Acted is when a client last sent a command by which it could have made a page do
// something: input, script, anything but loading and looking. Zero is never.
func (m *Mux) Acted() boottime.Instant { return boottime.Instant(m.lastActed.Load()) }

// Typed is when a client last entered text into a page, or into one that cannot be
// told. Zero is never.
func (m *Mux) Typed(target string) boottime.Instant {
	m.mu.Lock()
	defer m.mu.Unlock()
	return max(m.typedAt[target], m.typedAt[""])
}

// ActedOn is when a client last did something on a target, or on one that cannot be
// told. Zero is never.
func (m *Mux) ActedOn(target string) boottime.Instant {
	m.mu.Lock()
	defer m.mu.Unlock()
	return max(m.actedAt[target], m.actedAt[""])
}
