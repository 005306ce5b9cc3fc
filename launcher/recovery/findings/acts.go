package findings

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode"
)

// A passive command is one by which a client can make a page do nothing but load. The passive
// commands are passiveCommands, and all commands of passiveDomains except activeCommands. Every
// other command counts as acting, because an unknown command must not be taken for harmless.
//
// Page.addScriptToEvaluateOnNewDocument counts as passive although its scripts can act, because
// the usual clients send it for every page. docs/recovery.md says so.
var (
	passiveDomains = set(
		"Accessibility", "Browser", "Emulation", "Inspector", "Lease", "Log", "Network", "Performance", "Security", "SystemInfo", "Target", "Tracing",
	)
	activeCommands  = set("Network.replayXHR")
	passiveCommands = set(
		"Page.addScriptToEvaluateOnNewDocument", "Page.bringToFront", "Page.captureScreenshot", "Page.createIsolatedWorld",
		"Page.enable", "Page.getFrameTree", "Page.getLayoutMetrics", "Page.getNavigationHistory", "Page.navigate",
		"Page.setFontFamilies", "Page.setInterceptFileChooserDialog", "Page.setLifecycleEventsEnabled",
		"Runtime.addBinding", "Runtime.enable", "Runtime.getProperties", "Runtime.releaseObject",
		"Runtime.releaseObjectGroup", "Runtime.runIfWaitingForDebugger",
		"Fetch.enable", "Fetch.disable", "Fetch.continueRequest",
	)
)

var (
	evaluateCommand = []byte("Runtime.evaluate")
	inputDomain     = []byte("Input.")
)

// CommandEffect tells what a client's CDP command can do to the page that it is sent
// to. acts says that it can make the page do something, by input or by script; a
// command that only loads or reads a page does not act. types says that it enters text.
//
// It is called for every command on its way to the browser, so it allocates nothing for
// the usual ones. It does not keep the slices.
func CommandEffect(method, params []byte) (acts, types bool) {
	switch { // the most frequent ones come first
	case bytes.HasPrefix(method, inputDomain):
		return true, entersText(method)
	case bytes.Equal(method, evaluateCommand):
		return true, false
	}
	domain, _, _ := bytes.Cut(method, []byte("."))
	passive := passiveCommands[string(method)] || passiveDomains[string(domain)] && !activeCommands[string(method)]
	return !passive || navigatesToScript(method, params), false
}

// entersText tells whether a command of the Input domain enters text into a page.
func entersText(method []byte) bool {
	switch string(method) {
	case "Input.insertText", "Input.dispatchKeyEvent", "Input.imeSetComposition":
		return true
	}
	return false
}

// navigatesToScript tells whether a command is a navigation that runs a script in the
// current page instead of loading another page.
func navigatesToScript(method, params []byte) bool {
	if string(method) != "Page.navigate" {
		return false
	}
	var p struct {
		URL string `json:"url"`
	}
	if json.Unmarshal(params, &p) != nil {
		return true
	}
	// Browsers ignore white space and control characters in a scheme, and its case.
	scheme := strings.Map(func(r rune) rune {
		if r <= ' ' {
			return -1
		}
		return unicode.ToLower(r)
	}, p.URL)
	return strings.HasPrefix(scheme, "javascript:")
}
