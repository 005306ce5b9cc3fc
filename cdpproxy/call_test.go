package cdpproxy_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"leasehold/cdpproxy"
	"leasehold/internal/boottime"
	"leasehold/internal/test/testchrome"
	"leasehold/lease"
)

// observe opens an observer on the scripted browser.
func observe(t *testing.T, s *scripted) *cdpproxy.Observer {
	t.Helper()
	o, err := s.mux.Observe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.heard()
	return o
}

// TestAFencedCallIsRefusedAtTheWrite: the fence shuts after the caller's own check
// and before the call. The browser receives nothing, while a plain call would have
// been sent.
func TestAFencedCallIsRefusedAtTheWrite(t *testing.T) {
	s := script(t)
	o := observe(t, s)
	superseded := &lease.FencedError{Profile: "p", Token: 1, Current: 2}
	var now boottime.Instant
	for _, tt := range []struct {
		name  string
		shut  func(*lease.Fence)
		cause error
	}{
		{"shut", func(f *lease.Fence) { f.Shut(superseded) }, superseded},
		{"past its deadline", func(*lease.Fence) { now = 10 }, lease.ErrExpired},
	} {
		t.Run(tt.name, func(t *testing.T) {
			now = 0
			// Its deadline lies two nanoseconds, the margin, before the end of the lease.
			f := lease.Begin(lease.PresenceEntry{}, 0, lease.Timing{TTL: 12}, func() boottime.Instant { return now }).Fence(1)
			if err := o.CallFenced(t.Context(), f, "", "Target.createTarget", nil, nil); err != nil {
				t.Fatalf("while the fence is open: %v", err)
			}
			if heard := s.heard(); len(heard) != 1 || heard[0].Method != "Target.createTarget" || heard[0].SessionID != "B1" {
				t.Fatalf("while the fence is open, the browser received %+v", heard)
			}
			if err := f.Check(); err != nil {
				t.Fatal(err)
			}
			tt.shut(f)
			if err := o.CallFenced(t.Context(), f, "", "Target.createTarget", nil, nil); !errors.Is(err, tt.cause) {
				t.Errorf("the fenced call returned %v, want %v", err, tt.cause)
			}
			if heard := s.heard(); len(heard) != 0 {
				t.Errorf("the browser received %+v", heard)
			}
			if err := o.Call(t.Context(), "", "Target.createTarget", nil, nil); err != nil {
				t.Errorf("the plain call: %v", err)
			}
			if heard := s.heard(); len(heard) != 1 {
				t.Errorf("of the plain call the browser received %+v", heard)
			}
		})
	}
}

// TestTheLimitOfWritesIsForThoseThatWait: a browser that reads is not given up, however late it is
// asked for something.
func TestTheLimitOfWritesIsForThoseThatWait(t *testing.T) {
	s := script(t)
	o := observe(t, s)
	s.mux.LimitWrites(time.Nanosecond)
	time.Sleep(time.Millisecond) // the limit has passed
	if err := o.Call(t.Context(), "", "Target.createTarget", nil, nil); err != nil {
		t.Errorf("after the limit, to a browser that reads: %v", err)
	}
}

// TestAFencedCallThatWaitsForThePipe is refused when the fence shuts while another
// message is being written.
func TestAFencedCallThatWaitsForThePipe(t *testing.T) {
	s := script(t)
	o, c := observe(t, s), connect(t, s.mux, open(), &handler{})
	c.works()
	c.send("DOM.disable", "", nil)
	c.send("DOM.getDocument", "", map[string]string{"a": strings.Repeat("x", 4<<20)})
	for deadline := time.Now().Add(testchrome.Patience); s.unread() < 32<<10; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the large command did not reach the pipe")
		}
	}
	f, superseded := open(), &lease.FencedError{Profile: "p", Token: 1, Current: 2}
	result := make(chan error, 1)
	go func() { result <- o.CallFenced(t.Context(), f, "", "Target.createTarget", nil, nil) }()
	select {
	case err := <-result:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	f.Shut(superseded)
	s.mux.LimitWrites(time.Nanosecond) // the large command is given up
	if err := <-result; !errors.Is(err, superseded) {
		t.Errorf("the call returned %v, want %v", err, superseded)
	}
}

// TestAPostIsDoneOnce: of two commands with one id, to which a page has not replied, Chrome does one again
// when the page goes to a site that another process shows.
func TestAPostIsDoneOnce(t *testing.T) {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<title>page</title>"))
	}))
	t.Cleanup(site.Close)
	o, err := browser(t).Observe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	call := func(session, method string, params, result any) {
		t.Helper()
		if err := o.Call(t.Context(), session, method, params, result); err != nil {
			t.Fatal(err)
		}
	}
	var tab struct{ TargetID, SessionID string }
	call("", "Target.createTarget", map[string]string{"url": site.URL}, &tab)
	call("", "Target.attachToTarget", map[string]any{"targetId": tab.TargetID, "flatten": true}, &tab)
	evaluated := func(expression string) (value string) {
		t.Helper()
		for end := time.Now().Add(testchrome.Patience); value == "" && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			var r struct{ Result struct{ Value string } }
			call(tab.SessionID, "Runtime.evaluate", map[string]any{"expression": expression}, &r)
			value = r.Result.Value
		}
		return value
	}
	evaluated(`document.title`) // it is loaded
	for range 10 {
		o.Post(tab.SessionID, "Runtime.evaluate", map[string]any{"expression": "window.posted = (window.posted || 0) + 1"})
	}
	if got := evaluated(`String(window.posted)`); got != "10" {
		t.Errorf("of ten posts, %s were done", got)
	}
	call(tab.SessionID, "Page.navigate", map[string]string{"url": strings.Replace(site.URL, "127.0.0.1", "localhost", 1)}, nil)
	evaluated(`location.hostname === 'localhost' && document.title`)
	if got := evaluated(`String(window.posted)`); got != "undefined" {
		t.Errorf("on the next site, %s were done again", got)
	}
}
