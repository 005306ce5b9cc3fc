package monitor

import (
	"encoding/json"
	"testing"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/evidence/capture"
)

// TestFramesEndWithTheirDocument: only a navigation that the page's own session reports
// says that the page's frames are gone. It says so even if the browser's session
// reported the URL before.
func TestFramesEndWithTheirDocument(t *testing.T) {
	const (
		changed = "Target.targetInfoChanged"
		within  = "Page.navigatedWithinDocument"
		commit  = "Page.frameNavigated"
		at      = "https://shop.example"
	)
	type event struct{ method, url string }
	frame := event{commit, at + "/checkout/card"}
	for _, c := range []struct {
		name   string
		events []event
		open   bool // whether the frame is open in the end
	}{
		{"it opens", []event{frame}, true},
		{"pushState", []event{frame, {within, at + "/pay/2"}}, true},
		{"pushState, reported by the browser first", []event{frame, {changed, at + "/pay/2"}, {within, at + "/pay/2"}}, true},
		{"pushState, reported by the browser last", []event{frame, {within, at + "/pay/2"}, {changed, at + "/pay/2"}}, true},
		{"the browser alone", []event{frame, {changed, at + "/done"}}, true},
		{"a navigation", []event{frame, {commit, at + "/done"}}, false},
		{"a navigation, reported by the browser first", []event{frame, {changed, at + "/done"}, {commit, at + "/done"}}, false},
		{"a reload", []event{frame, {commit, at + "/pay"}}, false},
		{"and it opens again", []event{frame, {changed, at + "/done"}, {commit, at + "/done"}, frame}, true},
	} {
		open := false
		m := direct(func(e checkpoint.Entry) {
			switch {
			case e.Kind == checkpoint.KindFrame:
				open = true
			case e.Kind == checkpoint.KindURL && e.Committed:
				open = false
			}
		})
		m.pages.targets["s"] = "page"
		m.pages.open["page"] = &page{reported: at + "/pay", Page: capture.Page{TargetID: "page", SessionID: "s", URL: at + "/pay"}}
		for _, one := range c.events {
			params := map[string]any{"url": one.url, "frameId": "page"}
			switch {
			case one == frame:
				params["frame"] = map[string]string{"id": "card", "parentId": "page", "url": one.url}
			case one.method == commit:
				params["frame"] = map[string]string{"id": "page", "url": one.url}
			case one.method == changed:
				params["targetInfo"] = map[string]string{"targetId": "page", "type": "page", "url": one.url}
			}
			raw, err := json.Marshal(params)
			if err != nil {
				t.Fatal(err)
			}
			m.process(cdpproxy.Event{Method: one.method, Session: "s", Params: raw})
		}
		if open != c.open {
			t.Errorf("%s: the frame is open: %v", c.name, open)
		}
	}
}
