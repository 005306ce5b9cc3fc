package view

import (
	"slices"
	"strings"
	"time"

	"leasehold/cdpproxy"
	"leasehold/evidence/capture"
)

// What the worker does, as far as its commands' names tell. Nothing of their parameters is
// known here: no text, no key, no place.

// action is one thing that the worker did, or several equal ones in a row.
type action struct {
	// Number tells actions apart; it rises.
	Number uint64    `json:"number"`
	At     time.Time `json:"at"` // of the last one
	// Does says in a word what it is, and Method which command did it last.
	Does   string `json:"does"`
	Method string `json:"method"`
	// Target is the page, or the frame, that it was done to; empty for the browser.
	Target string `json:"target"`
	Times  int    `json:"times"`
	// changed rises with each change of any action.
	changed uint64
}

// deeds are the commands that are shown, by method or by domain, and in a word what they do.
// All others only look at pages, or prepare something.
var deeds = map[string]string{
	"Input.dispatchMouseEvent":           "mouse",
	"Input.emulateTouchFromMouse":        "touch",
	"Input.dispatchTouchEvent":           "touch",
	"Input.synthesizeTapGesture":         "touch",
	"Input.synthesizePinchGesture":       "touch",
	"Input.synthesizeScrollGesture":      "scroll",
	"Input.dispatchKeyEvent":             "key",
	"Input.insertText":                   "text",
	"Input.imeSetComposition":            "text",
	"Input.dispatchDragEvent":            "drag",
	"DOM.focus":                          "focus",
	"DOM.scrollIntoViewIfNeeded":         "scroll",
	"DOM.setFileInputFiles":              "files",
	"Page.navigate":                      "navigate",
	"Page.navigateToHistoryEntry":        "history",
	"Page.reload":                        "reload",
	"Page.stopLoading":                   "stop",
	"Page.setDocumentContent":            "content",
	"Page.handleJavaScriptDialog":        "dialog",
	"Page.captureScreenshot":             "screenshot",
	"Page.printToPDF":                    "print",
	"Page.bringToFront":                  "front",
	"Page.close":                         "close",
	"Target.activateTarget":              "front",
	"Target.closeTarget":                 "close",
	"Target.createTarget":                "open",
	"Runtime.evaluate":                   "script",
	"Runtime.callFunctionOn":             "script",
	"Runtime.runScript":                  "script",
	"Fetch.continueRequest":              "request",
	"Fetch.fulfillRequest":               "request",
	"Fetch.failRequest":                  "request",
	"Storage.setCookies":                 "cookies",
	"Network.setCookies":                 "cookies",
	"Network.setCookie":                  "cookies",
	"Network.deleteCookies":              "cookies",
	"Emulation.setDeviceMetricsOverride": "size",
}

// deedOf says in a word what a command does; empty: it is not shown.
func deedOf(method string) string {
	if does, ok := deeds[method]; ok {
		return does
	}
	if strings.HasPrefix(method, "Input.") {
		return "input"
	}
	return ""
}

// maxActions is how many actions a watch remembers.
const maxActions = 64

// actionLog has the last actions. The zero value has none.
type actionLog struct {
	list    []action
	numbers uint64
	changes uint64
}

// add takes in what the worker sent, oldest first, and tells whether any of it is shown.
func (l *actionLog) add(commands []cdpproxy.Command) (changed bool) {
	for _, c := range commands {
		does := deedOf(c.Method)
		if does == "" {
			continue
		}
		changed = true
		l.changes++
		if n := len(l.list); n > 0 && l.list[n-1].Does == does && l.list[n-1].Target == c.Target {
			last := &l.list[n-1]
			last.At, last.Method, last.Times, last.changed = c.At.UTC(), c.Method, last.Times+1, l.changes
			continue
		}
		if len(l.list) == maxActions {
			l.list = slices.Delete(l.list, 0, 1)
		}
		l.numbers++
		l.list = append(l.list, action{Number: l.numbers, At: c.At.UTC(), Does: does, Method: c.Method, Target: c.Target, Times: 1, changed: l.changes})
	}
	return changed
}

// after returns the actions that changed after a change, and how many were forgotten whose
// numbers are above last, the highest that the viewer was sent.
func (l *actionLog) after(change, last uint64) (actions []action, missed uint64) {
	for _, a := range l.list {
		if a.changed > change {
			actions = append(actions, a)
		}
	}
	if len(actions) > 0 && actions[0].Number > last+1 {
		missed = actions[0].Number - last - 1
	}
	return actions, missed
}

// usedTab is the page that the worker used last: the one of its last command, or one that was
// opened since. before is what it was until now, opened are the pages that are new, and pages
// are all of them, the one with the latest event first.
func usedTab(before string, opened []string, commands []cdpproxy.Command, pages []capture.Page) string {
	open := func(target string) bool {
		return slices.ContainsFunc(pages, func(p capture.Page) bool { return p.TargetID == target })
	}
	if n := len(opened); n > 0 {
		return opened[n-1]
	}
	for _, c := range slices.Backward(commands) {
		if open(c.Target) {
			return c.Target
		}
	}
	switch {
	case open(before):
		return before
	case len(pages) > 0:
		return pages[0].TargetID
	}
	return ""
}
