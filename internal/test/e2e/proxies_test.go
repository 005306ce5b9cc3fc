package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"leasehold/internal/test/clients"
	"leasehold/internal/test/testproxy"
	"leasehold/lease"
)

const proxyPassword = "hunter2-proxy-secret"

// startProxied starts a sidecar with a proxy of each kind in front of one site.
func startProxied(t *testing.T) (*sidecar, *site, map[string]*testproxy.Proxy) {
	t.Helper()
	web := newSite(t)
	at := strings.TrimPrefix(web.URL, "http://")
	known := map[string]*testproxy.Proxy{
		"basic":  testproxy.HTTP(t, at, "customer-basic", proxyPassword),
		"socks":  testproxy.SOCKS5(t, at, "customer-socks", proxyPassword),
		"open":   testproxy.HTTP(t, at, "", ""),
		"socks0": testproxy.SOCKS5(t, at, "", ""),
		"tls":    testproxy.HTTPS(t, at, "customer-tls", proxyPassword),
		"down":   testproxy.HTTP(t, at, "customer-down", proxyPassword),
	}
	known["down"].Stop()
	var file strings.Builder
	for id, p := range known {
		fmt.Fprintf(&file, "%s:\n  server: %s\n", id, p.URL)
		if id != "open" && id != "socks0" {
			fmt.Fprintf(&file, "  username: customer-%s\n  password: %s\n", id, proxyPassword)
		}
		if id == "tls" {
			fmt.Fprintln(&file, "  ca_file: ca.pem")
		}
	}
	path := filepath.Join(t.TempDir(), "proxies.yaml")
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: known["tls"].Server.Certificate().Raw})
	if err := os.WriteFile(filepath.Join(filepath.Dir(path), "ca.pem"), ca, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(file.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return start(t, "--proxies", path), web, known
}

// gather makes WebRTC gather its candidates, and returns them.
const gather = `new Promise(done => {
	const found = [], pc = new RTCPeerConnection({iceServers: [{urls: 'stun:192.0.2.7:3478'}]});
	pc.onicecandidate = e => e.candidate ? e.candidate.candidate && found.push(e.candidate.candidate) : done(found.join());
	pc.createDataChannel('x');
	pc.createOffer().then(o => pc.setLocalDescription(o));
})`

// TestProxies drives real browsers through a proxy of each protocol. The site's name cannot
// be resolved on this host.
func TestProxies(t *testing.T) {
	t.Parallel()
	s, web, known := startProxied(t)
	for _, id := range []string{"basic", "socks"} {
		t.Run(id, func(t *testing.T) {
			c := clients.Start(t, clients.Playwright, s.oneShot("acct-"+id, "worker=w&task=1&proxy="+id), clients.Interactive)
			c.Expect(t, "connect")
			c.Do(t, act("goto", "url", "http://shop.invalid/cart"))
			if title := string(c.Do(t, act("evaluate", "expression", "document.title"))); !strings.Contains(title, "cart") {
				t.Errorf("the page is %s", title)
			}
			// A loopback address in a page goes to the proxy, too, and not to this
			// host.
			c.Do(t, act("goto", "url", web.URL+"/local"))
			asked := known[id].Targets()
			for _, host := range []string{"shop.invalid", strings.TrimPrefix(web.URL, "http://")} {
				if !slices.ContainsFunc(asked, func(target string) bool { return strings.HasPrefix(target, host) }) {
					t.Errorf("%s went around the proxy, which was asked for %q", host, asked)
				}
			}
			if found := string(c.Do(t, act("evaluate", "expression", gather))); found != `""` {
				t.Errorf("WebRTC found ways around the proxy: %s", found)
			}
			if r := s.record(t, "acct-"+id); r.ProxyID != id {
				t.Errorf("the record has proxy %q", r.ProxyID)
			}
			c.Do(t, act("disconnect"))
			s.until(t, "acct-"+id, lease.Available)
			if known[id].Refused() > 0 {
				t.Errorf("%d requests came without the credentials", known[id].Refused())
			}
		})
	}
	s.noCredentials(t, known)
}

// noCredentials checks that the password is in no file, answer or command line of the
// sidecar.
func (s *sidecar) noCredentials(t *testing.T, known map[string]*testproxy.Proxy) {
	t.Helper()
	secrets := [][]byte{[]byte(proxyPassword)}
	for id := range known {
		basic := base64.StdEncoding.EncodeToString([]byte("customer-" + id + ":" + proxyPassword))
		secrets = append(secrets, []byte(basic), []byte("customer-"+id))
	}
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
	for _, path := range []string{"/v1/profiles", "/v1/sessions", "/v1/profiles/acct-basic/history", "/v1/profiles/acct-basic/evidence", "/v1/profiles/acct-basic/inspection"} {
		if code := s.call(t, "GET", path, nil, &records); code != 200 {
			t.Errorf("%s: %d", path, code)
		}
		look(path, records)
	}
}
