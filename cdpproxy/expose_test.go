package cdpproxy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"leasehold/cdpproxy"
	"leasehold/internal/test/testchrome"
)

// TestAnExposedPageIsNoWayRound: the script of an empty tab may speak CDP, as WebDriver BiDi through
// chromedriver does, and gets no further than the client that has exposed it.
func TestAnExposedPageIsNoWayRound(t *testing.T) {
	m, f, h := browser(t), open(), &handler{}
	c := connect(t, m, f, h)
	target, session := c.page("about:blank")
	if got := c.call("Target.exposeDevToolsProtocol", "", map[string]any{"targetId": target, "bindingName": "cdp"}); string(got.Result) != "{}" {
		t.Fatalf("%s %v", got.Result, got.Error)
	}
	looking, done := context.WithTimeout(t.Context(), testchrome.Patience)
	defer done()
	o, err := m.Observe(looking)
	if err != nil {
		t.Fatal(err)
	}
	var seen struct{ SessionID string }
	if err := o.Call(looking, "", "Target.attachToTarget", map[string]any{"targetId": target, "flatten": true}, &seen); err != nil {
		t.Fatal(err)
	}
	last := 0
	// says has the page send a command, and returns what it is told for an answer.
	says := func(method string, params any) string {
		t.Helper()
		last++
		msg, _ := json.Marshal(map[string]any{"id": last, "method": method, "params": params})
		script := fmt.Sprintf("new Promise((done) => { cdp.onmessage = (m) => JSON.parse(m).id === %d && done(m); cdp.send(%q) })", last, msg)
		var r struct{ Result struct{ Value string } }
		if err := o.Call(looking, seen.SessionID, "Runtime.evaluate", map[string]any{"expression": script, "awaitPromise": true}, &r); err != nil {
			t.Fatalf("%s: %v", method, err)
		}
		return r.Result.Value
	}
	for _, tt := range []struct {
		method string
		params any
		want   string
	}{
		{"Browser.getVersion", nil, `"product":"`},
		{"Target.createTarget", map[string]any{"url": "about:blank#ü\"</script>\u2028"}, `"targetId":"`},
		{"Target.createTarget", map[string]any{"url": "file:///etc/passwd"}, "leasehold refuses Target.createTarget"},
		{"Browser.crash", nil, "leasehold refuses Browser.crash"},
		{"Nope.nope", nil, "'Nope.nope' wasn't found"},
		{"Lease.getLease", nil, `"asked":"Lease.getLease"`},
	} {
		if got := says(tt.method, tt.params); !strings.Contains(got, tt.want) {
			t.Errorf("%s: the page is told %s, want %s", tt.method, got, tt.want)
		}
	}

	web, _ := c.page("data:text/html,a page")
	c.call("Runtime.evaluate", session, map[string]any{"expression": "open('about:blank'), 1", "userGesture": true})
	opened := ""
	for end := time.Now().Add(testchrome.Patience); opened == ""; {
		var list struct {
			TargetInfos []struct{ TargetID, URL, OpenerID string }
		}
		if err := json.Unmarshal(c.call("Target.getTargets", "", nil).Result, &list); err != nil || time.Now().After(end) {
			t.Fatalf("%+v, %v", list, err)
		}
		for _, one := range list.TargetInfos {
			if one.OpenerID != "" && one.URL == "about:blank" {
				opened = one.TargetID
			}
		}
	}
	h.deniedSince()
	for name, id := range map[string]string{"a page of the web": web, "a tab that a page opened": opened, "none": ""} {
		if got := c.call("Target.exposeDevToolsProtocol", "", map[string]any{"targetId": id}); got.Error == nil || !strings.Contains(got.Error.Message, "only an empty tab") {
			t.Errorf("%s: %+v, want a refusal with what is allowed", name, got)
		}
	}
	if got := h.deniedSince(); len(got) != 3 {
		t.Errorf("the handler was told of %q", got)
	}
	if got := c.call("Target.exposeDevToolsProtocol", "", map[string]any{"targetId": "nobody"}); got.Error == nil || !strings.Contains(got.Error.Message, "No target") {
		t.Errorf("a target that is not there: %+v", got)
	}

	f.Shut(errors.New("token 1 superseded by 2"))
	if got := says("Browser.getVersion", nil); !strings.Contains(got, "token 1 superseded by 2") || h.refused.Load() != 1 {
		t.Errorf("behind the fence the page is told %s, the handler of %d refusals", got, h.refused.Load())
	}
	c.call("Target.exposeDevToolsProtocol", "", map[string]any{"targetId": target})
	if n := h.refused.Load(); n != 2 {
		t.Errorf("the handler was told of %d refusals", n)
	}
}

// TestAnExposedPageEndsWithItsDocument, also if that crashes, and with the connection of the client that has exposed it:
// what is left of that would not let the test's goroutines end.
func TestAnExposedPageEndsWithItsDocument(t *testing.T) {
	m := browser(t)
	c := connect(t, m, open(), &handler{})
	target, session := c.page("about:blank")
	other, _ := c.page("about:blank")
	third, _ := c.page("about:blank")
	for _, id := range []string{target, other, third} {
		if got := c.call("Target.exposeDevToolsProtocol", "", map[string]any{"targetId": id}); got.Error != nil {
			t.Fatalf("%s is not exposed: %v", id, got.Error)
		}
	}
	exposed := c.conn.Exposed()
	c.call("Page.navigate", session, map[string]any{"url": "data:text/html,another document"})
	o, err := m.Observe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var seen struct{ SessionID string }
	if err := o.Call(t.Context(), "", "Target.attachToTarget", map[string]any{"targetId": third, "flatten": true}, &seen); err != nil {
		t.Fatal(err)
	}
	crashing, crashed := context.WithCancel(t.Context())
	go func() { _ = o.Call(crashing, seen.SessionID, "Page.crash", nil, nil) }() // which may get no answer
	defer crashed()
	for what, one := range map[string]*cdpproxy.Conn{"gone": exposed[0], "crashed": exposed[2]} {
		for end := time.Now().Add(testchrome.Patience); !one.Ended(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the document has %s, and its connection goes on", what)
			}
		}
	}
	if exposed[1].Ended() {
		t.Error("the other document is there, and its connection has ended")
	}
}
