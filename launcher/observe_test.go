package launcher

import (
	"encoding/json"
	"fmt"
	"testing"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/internal/boottime"
)

// What a page's own session and the browser's tell of the same navigation is one
// entry, whichever comes first, and also where the page's own never comes.
func TestWhereAPageWentIsNotedOnce(t *testing.T) {
	type told struct {
		url   string
		early bool
		want  bool
	}
	for _, c := range []struct {
		name  string
		tells []told
	}{
		{"the page first", []told{{"/a", false, true}, {"/a", true, false}, {"/b", false, true}, {"/b", true, false}}},
		{"the browser first", []told{{"/a", true, true}, {"/a", false, false}, {"/b", true, true}, {"/b", false, false}}},
		{"the browser only", []told{{"", true, false}, {"about:blank", true, false}, {"/a", true, true}, {"/a", true, false}}},
		{"a reload", []told{{"/a", false, true}, {"/a", true, false}, {"/a", false, true}}},
		{"a reload after the browser was first", []told{{"/a", true, true}, {"/a", true, false}, {"/a", false, false}, {"/a", false, true}}},
		{"back again", []told{{"/a", false, true}, {"/b", false, true}, {"/a", false, true}}},
		{"to an empty page", []told{{"/a", false, true}, {"about:blank", false, true}, {"/a", true, true}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			pg := &page{}
			for i, told := range c.tells {
				entry := pg.went(told.url, told.early)
				if (entry != nil) != told.want || entry != nil && entry.URL != told.url {
					t.Errorf("%d: %+v gave %+v", i, told, entry)
				}
			}
		})
	}
}

// TestFormsIntoOtherTabs: what is posted there no session tells of.
func TestFormsIntoOtherTabs(t *testing.T) {
	for _, tt := range []struct {
		session, reason, disposition string
		want                         int // requests
	}{
		{"S", "formSubmissionPost", "currentTab", 0},
		{"S", "formSubmissionPost", "newTab", 1},
		{"S", "formSubmissionPost", "newWindow", 1},
		{"S", "formSubmissionPost", "prophecy", 1},
		{"S", "formSubmissionGet", "newTab", 0},
		{"S", "anchorClick", "newTab", 0},
		{"S2", "formSubmissionPost", "newTab", 1}, // of a frame
	} {
		var got []checkpoint.Entry
		e := newEyes(func(entry checkpoint.Entry) { got = append(got, entry) })
		e.pages["T"], e.targets["S"], e.targets["S2"], e.frames["F"] = &page{}, "T", "F", "T"
		e.pages["T"].TargetID = "T"
		e.see(cdpproxy.Event{Session: tt.session, Method: "Page.frameRequestedNavigation",
			Params: fmt.Appendf(nil, `{"frameId":"T","reason":%q,"url":"http://a/buy","disposition":%q}`, tt.reason, tt.disposition)})
		requests := 0
		for _, entry := range got {
			if entry.Target != "T" {
				t.Errorf("%+v: of %s", tt, entry.Target)
			}
			if entry.Kind == checkpoint.KindRequest && entry.Method == "POST" && entry.URL == "http://a/buy" {
				requests++
			}
		}
		if requests != tt.want {
			t.Errorf("%+v: %d requests", tt, requests)
		}
	}
}

// TestFramesOfOtherProcesses: they are frames of their page, and the page stays where
// it is.
func TestFramesOfOtherProcesses(t *testing.T) {
	var got []checkpoint.Entry
	e := newEyes(func(entry checkpoint.Entry) { got = append(got, entry) })
	e.pages["T"], e.targets["S"], e.targets["S2"], e.frames["F"] = &page{}, "T", "F", "T"
	e.pages["T"].TargetID, e.pages["T"].URL = "T", "http://shop/"
	for _, frame := range []string{`{"id":"F","url":"http://pay/"}`, `{"id":"G","parentId":"F","url":"http://pay/checkout"}`} {
		e.see(cdpproxy.Event{Session: "S2", Method: "Page.frameNavigated", Params: []byte(`{"frame":` + frame + `}`)})
	}
	e.see(cdpproxy.Event{Session: "S2", Method: "Page.navigatedWithinDocument", Params: []byte(`{"frameId":"G","url":"http://pay/#paid"}`)})
	for i, url := range []string{"http://pay/", "http://pay/checkout", "http://pay/#paid"} {
		if len(got) != 3 || got[i].Kind != checkpoint.KindFrame || got[i].URL != url || got[i].Text != "http://shop/" {
			t.Fatalf("%+v", got)
		}
	}
	if e.pages["T"].URL != "http://shop/" {
		t.Errorf("the page went to %s", e.pages["T"].URL)
	}
}

// TestPollingBeginsByItself: only what a page sent before anybody acted makes requests
// polling; of those after, what comes of a gesture is none.
func TestPollingBeginsByItself(t *testing.T) {
	type sent struct{ acted, gesture, want bool }
	alone, after, clicked := sent{want: true}, sent{acted: true}, sent{acted: true, gesture: true}
	still := sent{acted: true, want: true}
	for name, script := range map[string][]sent{
		"polls":                     {alone, alone, alone, alone},
		"polls, then read":          {alone, alone, alone, still, still},
		"polls, then clicked":       {alone, alone, alone, clicked, still},
		"one, then clicked":         {alone, clicked, clicked, after},
		"two, then acted":           {alone, alone, after, after},
		"acted first":               {after, after, after, after},
		"a gesture of who knows":    {{gesture: true}, {}, {}, {}},
		"a gesture among the first": {alone, {gesture: true}, {}, {}},
	} {
		var got []checkpoint.Entry
		e := newEyes(func(entry checkpoint.Entry) { got = append(got, entry) })
		told(t, e.documents, "page S T\nmade T\nstarts S T L by\ngoes S T L\n")
		for i, s := range script {
			id := fmt.Sprint("r", i)
			acted := boottime.Instant(0)
			if s.acted {
				acted = 1000
			}
			params := fmt.Appendf(nil, `{"requestId":%q,"loaderId":"L","frameId":"T","type":"Fetch","hasUserGesture":%t,"request":{"url":"http://a/","method":"POST","postData":"x","hasPostData":true}}`, id, s.gesture)
			e.hear(cdpproxy.Event{Method: "Network.requestWillBeSent", Params: params})
			e.sentBy(cdpproxy.Traffic{Method: "Network.requestWillBeSent", Params: json.RawMessage(params), Acted: acted})
			e.hear(cdpproxy.Event{Method: "Network.responseReceived", Params: fmt.Appendf(nil, `{"requestId":%q,"response":{"status":200}}`, id)})
			if got[i].Unprompted != s.want {
				t.Errorf("%s: %d: %+v", name, i, got[i])
			}
			if !got[i].Unprompted && got[i].Repeat > 0 {
				t.Errorf("%s: %d counts towards polling: %+v", name, i, got[i])
			}
		}
	}
}
