package cdpproxy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"leasehold/cdpproxy"
	"leasehold/internal/test/testchrome"
	"leasehold/internal/test/testkey"
	"leasehold/launcher/chrome"
)

// TestTheNextMuxInheritsWhatIsOpen: what a client of an earlier launcher had open stays
// as it was, the requests that it had paused are failed, and no other client can use its
// sessions.
func TestTheNextMuxInheritsWhatIsOpen(t *testing.T) {
	var posts atomic.Int32
	web := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			posts.Add(1)
		}
	}))
	defer web.Close()
	path := filepath.Join(t.TempDir(), "ledger")
	pipeLog, err := cdpproxy.CreatePipeLog(path, testkey.Key)
	if err != nil {
		t.Fatal(err)
	}
	b := testchrome.Start(t, testchrome.Options(t))
	mux := func(b *chrome.Browser, pipeLog *cdpproxy.PipeLog) *cdpproxy.Mux {
		t.Helper()
		commands, events, err := b.TakePipe()
		if err != nil {
			t.Fatal(err)
		}
		m, err := cdpproxy.New(cdpproxy.Pipe{Commands: commands, Events: events, PipeLog: pipeLog}, noEffect, func(cdpproxy.Traffic) {})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	first := mux(b, pipeLog)
	a := connect(t, first, open(), &handler{})
	var made struct{ BrowserContextID, TargetID, SessionID string }
	result := func(m message) {
		t.Helper()
		if m.Error != nil {
			t.Fatalf("the browser answered with an error: %v", m.Error)
		}
		if err := json.Unmarshal(m.Result, &made); err != nil {
			t.Fatal(err)
		}
	}
	result(a.call("Target.createBrowserContext", "", map[string]any{"disposeOnDetach": true}))
	result(a.call("Target.createTarget", "", map[string]any{"url": web.URL, "browserContextId": made.BrowserContextID}))
	result(a.call("Target.attachToTarget", "", map[string]any{"targetId": made.TargetID, "flatten": true}))
	a.awaitLoad(web.URL, made.SessionID)
	a.call("Fetch.enable", made.SessionID, map[string]any{"patterns": []any{map[string]any{"urlPattern": "*/pay*"}}})
	a.send("Runtime.evaluate", made.SessionID, map[string]any{"expression": "window.state = 'as it was'; fetch('/pay', {method: 'POST', body: 'x'}).catch(e => { window.failed = String(e) }); 1"})
	for {
		m, err := a.next()
		if err != nil {
			t.Fatal(err)
		}
		if m.Method == "Fetch.requestPaused" {
			break
		}
	}
	first.Stop()
	<-first.Done()
	if err := pipeLog.Close(); err != nil {
		t.Fatal(err)
	}

	again, err := chrome.Adopt(b.Identity(), chrome.AdoptOptions{ProfileDir: b.ProfileDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := again.Detach(); err != nil {
			t.Error(err)
		}
	}()
	if pipeLog, err = cdpproxy.OpenPipeLog(path, testkey.Key); err != nil {
		t.Fatal(err)
	}
	second := mux(again, pipeLog)
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), testchrome.Patience)
		defer cancel()
		_ = second.Call(ctx, "Browser.close", nil, nil) // the answer may be lost with the pipe
		<-second.Done()
		if n := posts.Load(); n != 0 {
			t.Errorf("%d POSTs were sent that the vanished client had paused", n)
		}
	}()
	left := second.Inherited()
	if len(left) != 1 || len(left[1]) != 1 {
		t.Fatalf("left: %v", left)
	}
	left[1][0].Fence()

	c := connect(t, second, open(), &handler{})
	// The new client may not use the sessions of the vanished one.
	if m := c.call("Runtime.evaluate", made.SessionID, map[string]any{"expression": "1"}); m.Error == nil || !strings.Contains(m.Error.Message, "not found") {
		t.Errorf("a session of a vanished client answered %s, %v", m.Result, m.Error)
	}
	result(c.call("Target.attachToTarget", "", map[string]any{"targetId": made.TargetID, "flatten": true}))
	evaluate := func(expression string) string {
		t.Helper()
		var r struct{ Result struct{ Value any } }
		m := c.call("Runtime.evaluate", made.SessionID, map[string]any{"expression": expression, "awaitPromise": true})
		if err := json.Unmarshal(m.Result, &r); err != nil {
			t.Fatalf("%s: %v, %v", expression, err, m.Error)
		}
		return fmt.Sprint(r.Result.Value)
	}
	if got := evaluate("window.state"); got != "as it was" {
		t.Errorf("the page's state is %q", got)
	}
	if got := evaluate("new Promise(done => { const look = () => window.failed ? done(window.failed) : setTimeout(look, 10); look() })"); !strings.Contains(got, "Failed to fetch") {
		t.Errorf("the paused request ended with %q", got)
	}
	left[1][0].Free()
	if got := evaluate("window.state"); got != "as it was" {
		t.Errorf("once the client is back, the page's state is %q", got)
	}
}

// TestWhoComesBackIsNotHeldUpByWhatTheVanishedClientHeard: it intercepted the requests of every page, on
// the browser's own session, which stays open when the client is back by another one.
func TestWhoComesBackIsNotHeldUpByWhatTheVanishedClientHeard(t *testing.T) {
	s := script(t)
	c := connect(t, s.mux, open(), &handler{}) // B1
	c.call("Fetch.enable", "", nil)
	c.call("Tracing.start", "", nil)
	c.call("Security.setIgnoreCertificateErrors", "", map[string]any{"ignore": true})
	_ = c.net.Close()
	<-c.end
	left := c.conn.ClientSession()
	left.Fence()
	left.Free()
	connect(t, s.mux, open(), &handler{}).call("Browser.getVersion", "", nil)
	ends := map[string]bool{}
	for deadline := time.Now().Add(testchrome.Patience); !ends["Fetch.disable"] || !ends["Tracing.end"] || !ends["Security.disable"]; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("on the session of the vanished client only %v came: every request of the next one fails, or accepts every certificate", ends)
		}
		for _, cmd := range s.heard() {
			ends[cmd.Method] = ends[cmd.Method] || cmd.SessionID == "B1"
		}
	}
	shut(t, s.mux, false)() // nobody hears what is private
}
