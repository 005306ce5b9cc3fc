package cdpproxy

import (
	"bytes"

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

// noteActs notes when clients acted on pages.
func (m *Mux) noteActs(at boottime.Instant, sent ...staged) {
	for i := range sent {
		if acts(sent[i].method) {
			m.acted.Store(int64(at))
			return
		}
	}
}

// Acted is when a client last sent a command by which it could have made a page do
// something: input, script, anything but loading and looking. Zero is never.
func (m *Mux) Acted() boottime.Instant { return boottime.Instant(m.acted.Load()) }
