package monitor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/checkpoint/ledger"
)

// TestANavigationIsReportedOnce: a page's own session and the browser's session both
// report a navigation. That gives one entry, whichever comes first, and also if the
// page's own never comes.
func TestANavigationIsReportedOnce(t *testing.T) {
	type report struct {
		url   string
		early bool
		want  bool
	}
	for _, c := range []struct {
		name    string
		reports []report
	}{
		{"the page first", []report{{"/a", false, true}, {"/a", true, false}, {"/b", false, true}, {"/b", true, false}}},
		{"the browser first", []report{{"/a", true, true}, {"/a", false, false}, {"/b", true, true}, {"/b", false, false}}},
		{"the browser only", []report{{"", true, false}, {"about:blank", true, false}, {"/a", true, true}, {"/a", true, false}}},
		{"a reload", []report{{"/a", false, true}, {"/a", true, false}, {"/a", false, true}}},
		{"a reload after the browser was first", []report{{"/a", true, true}, {"/a", true, false}, {"/a", false, false}, {"/a", false, true}}},
		{"back again", []report{{"/a", false, true}, {"/b", false, true}, {"/a", false, true}}},
		{"to an empty page", []report{{"/a", false, true}, {"about:blank", false, true}, {"/a", true, true}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			pg := &page{}
			for i, r := range c.reports {
				entry := pg.navigated(r.url, r.early)
				if (entry != nil) != r.want || entry != nil && entry.URL != r.url {
					t.Errorf("%d: %+v gave %+v", i, r, entry)
				}
			}
		})
	}
}

// TestFormsIntoOtherTabs: no session gets an event about the request of a form that is
// posted into another tab, so the monitor reports the request from the form alone.
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
		m := direct(func(entry checkpoint.Entry) { got = append(got, entry) })
		m.pages.open["T"], m.pages.targets["S"], m.pages.targets["S2"], m.pages.frames["F"] = &page{}, "T", "F", "T"
		m.pages.open["T"].TargetID = "T"
		m.process(cdpproxy.Event{Session: tt.session, Method: "Page.frameRequestedNavigation",
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

// TestFramesOfOtherProcesses: a navigation there is reported as one of a frame of the
// page, and does not change the page's URL.
func TestFramesOfOtherProcesses(t *testing.T) {
	var got []checkpoint.Entry
	m := direct(func(entry checkpoint.Entry) { got = append(got, entry) })
	m.pages.open["T"], m.pages.targets["S"], m.pages.targets["S2"], m.pages.frames["F"] = &page{}, "T", "F", "T"
	m.pages.open["T"].TargetID, m.pages.open["T"].URL = "T", "http://shop/"
	for _, frame := range []string{`{"id":"F","url":"http://pay/"}`, `{"id":"G","parentId":"F","url":"http://pay/checkout"}`} {
		m.process(cdpproxy.Event{Session: "S2", Method: "Page.frameNavigated", Params: []byte(`{"frame":` + frame + `}`)})
	}
	m.process(cdpproxy.Event{Session: "S2", Method: "Page.navigatedWithinDocument", Params: []byte(`{"frameId":"G","url":"http://pay/#paid"}`)})
	for i, url := range []string{"http://pay/", "http://pay/checkout", "http://pay/#paid"} {
		if len(got) != 3 || got[i].Kind != checkpoint.KindFrame || got[i].URL != url || got[i].Text != "http://shop/" {
			t.Fatalf("%+v", got)
		}
	}
	if m.pages.open["T"].URL != "http://shop/" {
		t.Errorf("the page went to %s", m.pages.open["T"].URL)
	}
}

// TestARequestThatIsChangedBeforeItIsReported: the page's process may report a request only after a
// worker that had paused it has changed it. Either way only what is sent counts as sent.
func TestARequestThatIsChangedBeforeItIsReported(t *testing.T) {
	change := &cdpproxy.RewrittenRequest{RequestID: "r", FrameID: "T", Type: "Fetch", Method: "POST", URL: "http://a/search"}
	change.Unsent.Method, change.Unsent.URL = "POST", "http://a/send"
	was := cdpproxy.Traffic{Method: ledger.Sent, Params: []byte(`{"requestId":"r","loaderId":"L","frameId":"T","type":"Fetch","request":{"url":"http://a/send","method":"POST"}}`)}
	for name, order := range map[string][]cdpproxy.Traffic{"before": {was, {Rewritten: change}}, "after": {{Rewritten: change}, was}} {
		var sent []string
		m := direct(func(e checkpoint.Entry) {
			switch {
			case e.Kind == checkpoint.KindRequest:
				sent = append(sent, e.URL)
			case e.Kind == checkpoint.KindAnswer && e.Blocked:
				sent = slices.DeleteFunc(sent, func(url string) bool { return url == e.URL })
			}
		})
		for _, traffic := range order {
			m.Traffic(traffic)
			m.processHeard(heard{traffic: traffic})
		}
		if want := []string{"http://a/search"}; !slices.Equal(sent, want) {
			t.Errorf("reported %s it is changed: %q count as sent, want %q", name, sent, want)
		}
	}
}

// TestTargetsAreNamedWithoutSecrets: errors and logs name a target by its URL, without
// the secrets in it.
func TestTargetsAreNamedWithoutSecrets(t *testing.T) {
	text := describe("page", "https://ann:hunter2@shop.example/callback?code=4%2F0AX4XfWh&state=s3cr3tstate#access_token=ya29.topsecret")
	if !strings.Contains(text, "a page at ") || !strings.Contains(text, "shop.example/callback") {
		t.Errorf("%q does not name the page", text)
	}
	for _, secret := range []string{"hunter2", "0AX4XfWh", "s3cr3tstate", "topsecret"} {
		if strings.Contains(text, secret) {
			t.Errorf("%q has %s in it", text, secret)
		}
	}
}

// TestAwaitSeesEveryChange: await does not miss a change between the check of the
// condition and the wait, and it ends with the context.
func TestAwaitSeesEveryChange(t *testing.T) {
	var b broadcast
	var reached atomic.Bool
	err := b.await(t.Context(), func() bool {
		if !reached.Load() {
			reached.Store(true) // a change right after the check that fails
			b.signal()
			return false
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.await(ctx, func() bool { return false }); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestTooMuchTrafficIsReported: requests that do not fit into the backlog are reported
// as one unsafe request, at most once a second.
func TestTooMuchTrafficIsReported(t *testing.T) {
	m := New(nil)
	for range trafficBacklog + 10 { // nobody processes it
		m.Traffic(cdpproxy.Traffic{Method: ledger.Sent})
	}
	if got := m.outbox.waiting; len(got) != 1 || got[0].Method != "MANY" || got[0].Kind != checkpoint.KindRequest {
		t.Errorf("%+v", got)
	}
	if n := m.backlog.pending.Load(); n != trafficBacklog {
		t.Errorf("%d pending, want %d", n, trafficBacklog)
	}
}
