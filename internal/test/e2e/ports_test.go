package e2e

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"leasehold/launcher/chrome"
)

// TestABrowserIsNotItsUser: a browser runs as the sidecar's user, whom the API serves as an admin,
// whose sessions have ports of their own, and whose proxies have relays. Neither what a worker
// makes its browser do nor what its pages load reaches one of these, or the embedded NATS, by
// whatever name. Everybody else of that user does. What its profile has a proxy for goes there.
func TestABrowserIsNotItsUser(t *testing.T) {
	t.Parallel()
	s, web, proxy := startProxied(t)
	bank := s.open(t, "bank", map[string]any{"dedicated_port": true, "proxy_id": "basic", "heartbeat": "explicit"})
	defer s.beat(t, "bank")()
	s.goesByItsProxy(t, dial(t, bank.CDPURL), web, proxy)
	relay, err := chrome.ProxyAt(s.browsers(t)[0])
	if err != nil || relay == "" {
		t.Fatalf("the relay: %q, %v", relay, err)
	}
	c := dial(t, s.socket("shop", "worker=w&task=t"))
	page, _ := c.visit(t, web.URL+"/")
	const greeted = "net::ERR_INVALID_HTTP_RESPONSE" // NATS speaks first
	for what, to := range map[string]string{
		"the embedded NATS": strings.Replace(s.NATS, "nats:", "http:", 1) + "/", "the API": s.URL + "/v1/profiles", "the port of another session": bank.Dedicated + "/json/list", "the relay of another profile": relay + "/",
	} {
		at, err := url.Parse(to)
		if err != nil {
			t.Fatal(err)
		}
		names := []string{at.Hostname()}
		if names[0] == "127.0.0.1" {
			names = append(names, "localhost", "[::ffff:127.0.0.1]") // the kernel tells the process, whatever its name
		}
		for _, host := range names {
			var r struct{ ErrorText string }
			if c.call(t, page, "Page.navigate", map[string]any{"url": "http://" + host + ":" + at.Port() + at.Path}, &r); !strings.HasPrefix(r.ErrorText, "net::ERR_") || r.ErrorText == greeted {
				t.Errorf("%s by %s: %q", what, host, r.ErrorText)
			}
		}
		page, _ = c.visit(t, web.URL+"/")
		for by, expression := range map[string]string{
			"fetch":     `fetch('%s', {mode: 'no-cors'}).then(() => 'reached', () => '')`,
			"websocket": `new Promise((done) => { const w = new WebSocket('%s'); w.onopen = () => done('reached'); w.onerror = () => done('') })`,
		} {
			if got := c.evaluate(t, page, fmt.Sprintf(expression, to)); got != `""` {
				t.Errorf("%s by %s: %s", what, by, got)
			}
		}
	}
	for _, to := range []string{s.URL + "/v1/profiles", bank.Dedicated + "/json/list"} {
		if resp, err := http.Get(to); err != nil || resp.StatusCode != http.StatusOK || resp.Body.Close() != nil {
			t.Errorf("%s itself: %v, %v", to, resp, err)
		}
	}
}
