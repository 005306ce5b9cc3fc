package cdpproxy

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode"

	"leasehold/internal/boottime"
)

// passive are the commands by which a client cannot make a page do anything but
// load; of passiveDomains all are, save what is in active. What is in none of them
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

// noteActs notes when clients acted on pages, and typed into them.
func (m *Mux) noteActs(at boottime.Instant, sent ...staged) {
	acted := false
	for i := range sent {
		if acts(sent[i].method) || runsScript(sent[i].method, sent[i].params) {
			acted = true
		}
		if types(sent[i].method) {
			m.mu.Lock()
			if m.typed == nil {
				m.typed = map[string]boottime.Instant{}
			}
			m.typed[m.attached[string(sent[i].session)]] = at
			m.mu.Unlock()
		}
	}
	if acted {
		m.acted.Store(int64(at))
	}
}

// Acted is when a client last sent a command by which it could have made a page do
// something: input, script, anything but loading and looking. Zero is never.
func (m *Mux) Acted() boottime.Instant { return boottime.Instant(m.acted.Load()) }

// Typed is when a client last entered text into a page, or into one that cannot be
// told. Zero is never.
func (m *Mux) Typed(target string) boottime.Instant {
	m.mu.Lock()
	defer m.mu.Unlock()
	return max(m.typed[target], m.typed[""])
}
