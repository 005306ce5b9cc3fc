package e2e

import (
	"net/http"
	"strings"
	"testing"
)

// TestPagesDoNotReachTheSidecar: a page runs as the sidecar's user, which the API serves as an
// admin. Neither the pages of a worker nor what they load connect to it, by whatever name.
func TestPagesDoNotReachTheSidecar(t *testing.T) {
	t.Parallel()
	s := start(t)
	c := dial(t, s.socket("p", "worker=w&task=t"))
	page, _ := c.visit(t, newSite(t).URL+"/")
	_, port, _ := strings.Cut(strings.TrimPrefix(s.URL, "http://"), ":")
	for _, host := range []string{"127.0.0.1", "localhost", "shop.localhost", "0.0.0.0", "127.1", "2130706433", "[::ffff:127.0.0.1]"} {
		var r struct{ ErrorText string }
		if c.call(t, page, "Page.navigate", map[string]any{"url": "http://" + host + ":" + port + "/v1/profiles"}, &r); r.ErrorText != "net::ERR_NAME_NOT_RESOLVED" {
			t.Errorf("%s: %q", host, r.ErrorText)
		}
	}
	page, _ = c.visit(t, newSite(t).URL+"/")
	for what, expression := range map[string]string{
		"fetch":     `fetch('http://127.0.0.1:` + port + `/v1/profiles', {mode: 'no-cors'}).then(() => 'reached', () => '')`,
		"websocket": `new Promise((done) => { const w = new WebSocket('ws://127.0.0.1:` + port + `/devtools/browser/q?create=true'); w.onopen = () => done('reached'); w.onerror = () => done('') })`,
	} {
		if got := c.evaluate(t, page, expression); got != `""` {
			t.Errorf("%s: %s", what, got)
		}
	}
	// Everybody else does.
	if resp, err := http.Get(s.URL + "/v1/profiles"); err != nil || resp.StatusCode != http.StatusOK || resp.Body.Close() != nil {
		t.Errorf("the API itself: %v, %v", resp, err)
	}
}
