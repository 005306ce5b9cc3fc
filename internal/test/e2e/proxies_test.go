package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"leasehold/internal/test/testproxy"
)

const proxyUser, proxyPassword = "customer-basic", "hunter2-proxy-secret"

// startProxied starts a sidecar with a proxy in front of one site. launcher/proxies plays each protocol.
func startProxied(t *testing.T) (*sidecar, *site, *testproxy.Proxy) {
	t.Helper()
	web := newSite(t)
	proxy := testproxy.HTTP(t, strings.TrimPrefix(web.URL, "http://"), proxyUser, proxyPassword)
	path := filepath.Join(t.TempDir(), "proxies.yaml")
	write(t, path, fmt.Appendf(nil, "basic:\n  server: %s\n  username: %s\n  password: %s\n", proxy.URL, proxyUser, proxyPassword))
	return start(t, "--proxies", path), web, proxy
}

// gather makes WebRTC gather its candidates, and returns them.
const gather = `new Promise(done => {
	const found = [], pc = new RTCPeerConnection({iceServers: [{urls: 'stun:192.0.2.7:3478'}]});
	pc.onicecandidate = e => e.candidate ? e.candidate.candidate && found.push(e.candidate.candidate) : done(found.join());
	pc.createDataChannel('x');
	pc.createOffer().then(o => pc.setLocalDescription(o));
})`

// goesByItsProxy: nothing of a session's pages goes around the proxy of its profile, and the proxy's
// credentials are nowhere. The site's name cannot be resolved on this host.
func (s *sidecar) goesByItsProxy(t *testing.T, c *socket, web *site, proxy *testproxy.Proxy) {
	t.Helper()
	page, _ := c.visit(t, "http://shop.invalid/cart")
	if title := c.evaluate(t, page, "document.title"); !strings.Contains(title, "cart") {
		t.Errorf("the page is %s", title)
	}
	// A loopback address in a page goes to the proxy, too, and not to this host.
	c.visit(t, web.URL+"/local")
	asked := proxy.Targets()
	for _, host := range []string{"shop.invalid", strings.TrimPrefix(web.URL, "http://")} {
		if !slices.ContainsFunc(asked, func(target string) bool { return strings.HasPrefix(target, host) }) {
			t.Errorf("%s went around the proxy, which was asked for %q", host, asked)
		}
	}
	if found := c.evaluate(t, page, gather); found != `""` {
		t.Errorf("WebRTC found ways around the proxy: %s", found)
	}
	if proxy.Refused() > 0 {
		t.Errorf("%d requests came without the credentials", proxy.Refused())
	}
	s.noCredentials(t)
}

// noCredentials checks that the password is in no file, answer or command line of the
// sidecar.
func (s *sidecar) noCredentials(t *testing.T) {
	t.Helper()
	secrets := [][]byte{[]byte(proxyPassword), []byte(proxyUser), []byte(base64.StdEncoding.EncodeToString([]byte(proxyUser + ":" + proxyPassword)))}
	look := func(where string, b []byte) {
		for _, secret := range secrets {
			if bytes.Contains(b, secret) {
				t.Errorf("%s has %q", where, secret)
			}
		}
	}
	looked := 0
	err := filepath.WalkDir(s.Dir, func(path string, d fs.DirEntry, err error) error {
		if b, readErr := os.ReadFile(path); err == nil && d.Type().IsRegular() && readErr == nil {
			looked++
			look(path, b)
		}
		return nil // a file that was removed meanwhile is skipped
	})
	if err != nil || looked < 20 {
		t.Errorf("looked at %d files: %v", looked, err)
	}
	for _, pattern := range []string{"/proc/[0-9]*/cmdline", "/proc/[0-9]*/environ"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range found {
			if b, err := os.ReadFile(path); err == nil {
				look(path, b)
			}
		}
	}
	var records json.RawMessage
	for _, path := range []string{"/v1/profiles", "/v1/sessions", "/v1/profiles/bank/history", "/v1/profiles/bank/evidence"} {
		if code := s.call(t, "GET", path, nil, &records); code != 200 {
			t.Errorf("%s: %d", path, code)
		}
		look(path, records)
	}
}
