package view

import (
	"slices"
	"strings"
	"time"

	"leasehold/cdpproxy"
	"leasehold/evidence/capture"
)

// This file shows what the worker does, as far as the names of its commands tell. Nothing of
// their parameters is known here: no text, no key, no position.

// action is one thing that the worker did, or the same thing several times in a row.
type action struct {
	// Number identifies the action; it rises.
	Number uint64    `json:"number"`
	At     time.Time `json:"at"` // time of the last one
	// Does describes it in a word; Method is its last command.
	Does   string `json:"does"`
	Method string `json:"method"`
	// Target is the page or frame on which it was done; empty for the browser.
	Target string `json:"target"`
	Times  int    `json:"times"`
	// changed is the number of the change, of all changes of actions, that changed this one
	// last.
	changed uint64
}

// deeds are the commands that are shown, by method or by domain, and a word for what they do.
// All others only look at pages, or prepare something.
var deeds = map[string]string{
	"Input.dispatchMouseEvent":           "mouse",
	"Input.emulateTouchFromMouseEvent":   "touch",
	"Input.dispatchTouchEvent":           "touch",
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

// deedOf is a word for what a command does; empty: it is not shown.
func deedOf(method string) string {
	if does, ok := deeds[method]; ok {
		return does
	}
	if strings.HasPrefix(method, "Input.") {
		return "input"
	}
	return ""
}

// maxActions is the most actions that a watch remembers.
const maxActions = 64

// actionLog has the last actions. The zero value is empty.
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

// after returns the actions that changed after the given change, and the number of forgotten
// ones with numbers above last, the highest number that the viewer was sent.
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

// usedTab is the page that the worker used last: the page of its last command, or one that was
// opened since. before is the result until now, opened are the new pages, and pages are all
// pages, the one with the latest event first.
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
