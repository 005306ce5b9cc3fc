package monitor

import (
	"fmt"
	"testing"

	"leasehold/cdpproxy"
)

// TestRepetitionsCountAfterSuccess: a request counts as a repetition after an equal one
// was answered with success. Attempts until then do not count.
func TestRepetitionsCountAfterSuccess(t *testing.T) {
	o := newOutcomes()
	sent := func(id, method string) {
		o.observe(cdpproxy.Event{Method: "Network.requestWillBeSent", Params: fmt.Appendf(nil, `{"requestId":%q,"request":{"url":"http://a/","method":%q}}`, id, method)})
	}
	answered := func(id string, status int) {
		o.observe(cdpproxy.Event{Method: "Network.responseReceived", Params: fmt.Appendf(nil, `{"requestId":%q,"response":{"status":%d}}`, id, status)})
	}
	var polls, tries group
	for i, want := range []int{1, 2, 3, 4} {
		id := fmt.Sprint("p", i)
		sent(id, "POST")
		if got := polls.repetition(id, o); got != want {
			t.Errorf("poll %d counts as %d, want %d", i, got, want)
		}
		answered(id, 200)
	}
	for i, status := range []int{503, 0, 409, 302, 200} {
		id := fmt.Sprint("t", i)
		sent(id, "POST")
		if got := tries.repetition(id, o); got != 1 {
			t.Errorf("try %d counts as %d", i, got)
		}
		answered(id, status)
	}
	sent("g", "GET")
	answered("g", 200)
	if _, known := o.of("g"); known {
		t.Error("a GET is remembered")
	}
	o.observe(cdpproxy.Event{Method: "Network.webSocketCreated", Params: []byte(`{"requestId":"s","url":"ws://a/"}`)})
	if o.socketURL("s") != "ws://a/" || o.socketURL("x") != "" {
		t.Errorf("sockets %q %q", o.socketURL("s"), o.socketURL("x"))
	}
}
