package cdpproxy

import (
	"bytes"
	"testing"
)

// TestACommandInFlightAtTheEndDoesNotHideAPausedRequest: the browser may refuse to
// continue a paused request, for a header that it does not take, after the connection
// has ended. The request is still paused then, and Fence has to fail it: to close the
// session would send it.
func TestACommandInFlightAtTheEndDoesNotHideAPausedRequest(t *testing.T) {
	b := newOffline(t)
	c := b.conn()
	c.session.paused = map[pausedRequest]pause{}
	c.session.requestPaused(pausedRequest{"S", "r1"}, false)
	if browser := b.read(); len(browser) != 0 {
		t.Fatalf("the browser got %q", browser)
	}
	c.handleInput(clientFrame(0x81, `{"id":1,"method":"Fetch.continueRequest","params":{"requestId":"r1"}}`), false)
	c.offloading.Wait()
	if browser := b.read(); !bytes.Contains(browser, []byte("Fetch.continueRequest")) {
		t.Fatalf("the browser got %q", browser)
	}
	c.Cut(CloseFenced, "token 1 superseded by 2")
	b.mux.route([]byte(`{"id":1,"error":{"code":-32602,"message":"Invalid header"},"sessionId":"S"}`))
	c.session.Fence()
	if browser := b.read(); !bytes.Contains(browser, []byte(`"method":"Fetch.failRequest","params":{"errorReason":"Aborted","requestId":"r1"}`)) {
		t.Errorf("the browser got %q, which does not fail the request", browser)
	}
}
