package monitor

import (
	"context"
	"encoding/json"
	"sync"
	"testing"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/internal/test/testchrome"
	"leasehold/launcher/recovery/findings"
)

// watched is a real Chromium that a monitor watches, and a worker that drives it. The
// worker is an observer, so that nothing that it does counts as acting on a page.
type watched struct {
	*testing.T
	monitor *Monitor
	worker  *cdpproxy.Observer

	mu      sync.Mutex
	entries []checkpoint.Entry
}

const eventLifecycle = "Page.lifecycleEvent"

func watch(t *testing.T) *watched {
	t.Helper()
	chromium := testchrome.Start(t, testchrome.Options(t))
	commands, events, err := chromium.TakePipe()
	if err != nil {
		t.Fatal(err)
	}
	w := &watched{T: t}
	w.monitor = New(func(e checkpoint.Entry) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.entries = append(w.entries, e)
	})
	mux, err := cdpproxy.New(cdpproxy.Pipe{Commands: commands, Events: events}, findings.CommandEffect, w.monitor.Traffic)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.monitor.Attach(t.Context(), mux); err != nil {
		t.Fatal(err)
	}
	var watching sync.WaitGroup
	watching.Go(func() { w.monitor.Watch(context.Background()) })
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testchrome.Patience)
		defer cancel()
		_ = mux.Call(ctx, "Browser.close", nil, nil) // the reply may be lost with the pipe
		watching.Wait()
		<-mux.Done()
	})
	if w.worker, err = mux.Observe(t.Context(), eventLifecycle); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *watched) call(session, method string, params, result any) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), testchrome.Patience)
	defer cancel()
	if err := w.worker.Call(ctx, session, method, params, result); err != nil {
		w.Fatalf("%s: %v", method, err)
	}
}

// loaded waits until a page has loaded the document of a loader that fits.
func (w *watched) loaded(session string, fits func(loader string) bool) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), testchrome.Patience)
	defer cancel()
	for {
		events, err := w.worker.Next(ctx)
		if err != nil {
			w.Fatalf("the page does not load: %v", err)
		}
		for _, e := range events {
			var reached struct{ LoaderID, Name string }
			if err := json.Unmarshal(e.Params, &reached); err != nil {
				w.Fatal(err)
			}
			if e.Session == session && reached.Name == "load" && fits(reached.LoaderID) {
				return
			}
		}
	}
}

// open opens a page at a URL, and returns the worker's session on it.
func (w *watched) open(url string) (session string) {
	w.Helper()
	var r struct{ TargetID, SessionID string }
	w.call("", "Target.createTarget", map[string]any{"url": "about:blank"}, &r)
	w.call("", "Target.attachToTarget", map[string]any{"targetId": r.TargetID, "flatten": true}, &r)
	w.call(r.SessionID, "Page.enable", nil, nil)
	w.call(r.SessionID, "Page.setLifecycleEventsEnabled", map[string]any{"enabled": true}, nil)
	w.visit(r.SessionID, url)
	return r.SessionID
}

// visit has a page load a URL. The blank document before it may be loaded only now, on a busy
// machine.
func (w *watched) visit(session, url string) {
	w.Helper()
	var began struct{ LoaderID string }
	w.call(session, "Page.navigate", map[string]any{"url": url}, &began)
	w.loaded(session, func(loader string) bool { return loader == began.LoaderID })
}

// run runs a script in a page, and waits for its promise.
func (w *watched) run(session, script string) {
	w.Helper()
	var r struct{ ExceptionDetails *struct{ Text string } }
	w.call(session, "Runtime.evaluate", map[string]any{"expression": script, "awaitPromise": true}, &r)
	if r.ExceptionDetails != nil {
		w.Fatalf("%s: %s", script, r.ExceptionDetails.Text)
	}
}

// restart begins with an empty journal.
func (w *watched) restart() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.entries = nil
}

// until waits until there is an entry that fits, and returns everything reported so far.
func (w *watched) until(fits func(checkpoint.Entry) bool) []checkpoint.Entry {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), testchrome.Patience)
	defer cancel()
	for {
		changed := w.monitor.outbox.progress.next()
		w.mu.Lock()
		now := append([]checkpoint.Entry(nil), w.entries...)
		w.mu.Unlock()
		for _, e := range now {
			if fits(e) {
				return now
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			w.Fatalf("nothing of the kind in\n%s", checkpoint.Encode(now))
		}
	}
}
