package cdpproxy_test

import (
	"slices"
	"strings"
	"testing"

	"leasehold/lease"
)

// TestTheObserverLeavesAServiceWorkerThatEnds, since Chrome keeps one to which somebody is
// attached. It stays while a client is attached, and comes back to one that a client kept. It leaves none whose close
// did not reach the browser.
func TestTheObserverLeavesAServiceWorkerThatEnds(t *testing.T) {
	s := script(t)
	o, err := s.mux.Observe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h, fence := &handler{}, open()
	c := connect(t, s.mux, open(), h)
	late := connect(t, s.mux, fence, &handler{})
	attached := func(session, kind, on string) {
		s.say(`{"method":"Target.attachedToTarget","params":{"sessionId":"%s","targetInfo":{"targetId":"%s-T","type":"%s"},"waitingForDebugger":false},"sessionId":"%s"}`, session, kind, kind, on)
	}
	const worker, leave, ends = "service_worker", "Target.detachFromTarget", `{"method":"Target.targetDestroyed","params":{"targetId":"service_worker-T"},"sessionId":"B1"}`
	attached("O-page", "page", "B1")
	attached("O-1", worker, "B1")
	c.call("Runtime.enable", "", nil) // its answer comes behind the events
	left := func(session string) {
		t.Helper()
		if got := s.await(leave); got.SessionID != "B1" || !strings.Contains(string(got.Params), `"`+session+`"`) {
			t.Fatalf("%+v, want the end of %s", got, session)
		}
	}
	stays := func() {
		t.Helper()
		s.await("Browser.getVersion")
		c.call("Runtime.enable", "", nil) // its answer comes behind that of the question
		o.Post("O-page", "Marker.set", nil)
		if got := s.until("Marker.set"); slices.ContainsFunc(got, func(a asked) bool { return a.Method == leave }) {
			t.Fatalf("the observer left: %+v", got)
		}
	}

	fence.Shut(lease.ErrExpired)
	if m := late.call("Target.closeTarget", "", map[string]any{"targetId": "service_worker-T"}); m.Error == nil {
		t.Error("a client closes what it may no longer reach")
	}
	late.call("Runtime.enable", "", nil) // it is answered when the one before it is done with
	o.Post("O-page", "Marker.set", nil)
	if got := s.until("Marker.set"); slices.ContainsFunc(got, func(a asked) bool { return a.Method == "Browser.getVersion" || a.Method == leave }) {
		t.Fatalf("the observer left a worker that was not closed: %+v", got)
	}
	c.call("Target.closeTarget", "", map[string]any{"targetId": "page-T"}) // this one ends by itself
	c.call("Target.closeTarget", "", map[string]any{"targetId": "service_worker-T"})
	left("O-1")
	s.say(`{"method":"Target.detachedFromTarget","params":{"sessionId":"O-1"},"sessionId":"B1"}`)
	s.say(ends)

	attached("O-2", worker, "B1")
	attached("C-2", worker, "B2")
	c.call("Runtime.enable", "", nil)
	o.Leave("service_worker-T")
	stays()
	s.say(`{"method":"Target.detachedFromTarget","params":{"sessionId":"C-2"},"sessionId":"B2"}`)
	left("O-2")

	attached("C-3", worker, "B2")
	if got := s.await("Target.attachToTarget"); got.SessionID != "B1" || !strings.Contains(string(got.Params), `"service_worker-T"`) {
		t.Fatalf("%+v, want the observer back", got)
	}
	attached("O-3", worker, "B1")
	attached("C-page", "page", "B2")
	c.call("Runtime.enable", "", nil)
	c.call("Page.close", "C-page", nil)
	if want := []string{"page-T", worker + "-T", "page-T"}; !slices.Equal(h.closedTargets(), want) {
		t.Errorf("the client closed %q, want %q", h.closedTargets(), want)
	}
	s.say(`{"method":"Target.detachedFromTarget","params":{"sessionId":"C-3"},"sessionId":"B2"}`)
	left("O-3")
}
