package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
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

// TestAPasswordChangesUnderABrowser: the browser stays open, fails while the proxy knows another
// password than the file, and works when the file has it. A damaged file and another server
// change nothing, and show.
func TestAPasswordChangesUnderABrowser(t *testing.T) {
	t.Parallel()
	web := newSite(t)
	proxy := testproxy.SOCKS5(t, strings.TrimPrefix(web.URL, "http://"), "customer-1", proxyPassword)
	path := filepath.Join(t.TempDir(), "proxies.yaml")
	put := func(content string) {
		t.Helper()
		if err := errors.Join(os.WriteFile(path+".new", []byte(content), 0o600), os.Rename(path+".new", path)); err != nil {
			t.Fatal(err)
		}
	}
	entry := func(server, password string) string {
		return fmt.Sprintf("p:\n  server: %s\n  username: customer-1\n  password: %s\n", server, password)
	}
	put(entry(proxy.URL, proxyPassword))
	s := start(t, "--proxies", path)
	inUse := func(want string) {
		t.Helper()
		eventually(t, "the metric says "+want, func() error {
			if got := s.metric(t, "leasehold_proxies_up_to_date"); got != want {
				return fmt.Errorf("it is %s", got)
			}
			return nil
		})
	}
	c := clients.Start(t, clients.Playwright, s.oneShot("acct-basic", "worker=w&task=1&proxy=p"), clients.Interactive)
	c.Expect(t, "connect")
	c.Do(t, act("goto", "url", "http://shop.invalid/one"))
	pids := s.browsers(t)

	const changed = proxyPassword + "-2"
	proxy.SetPassword(changed)
	if status := string(c.Do(t, act("goto", "url", "http://refused.invalid/"))); status != "502" || proxy.Refused() == 0 {
		t.Errorf("with the old password: %s, the proxy refused %d", status, proxy.Refused())
	}
	put(entry(proxy.URL, changed))
	eventually(t, "the browser goes out with the new password", func() error {
		if status := string(c.Do(t, act("goto", "url", "http://again.invalid/two"))); status != "200" {
			return fmt.Errorf("it gets %s", status)
		}
		return nil
	})

	put("p: [" + changed)
	inUse("0")
	put(entry(proxy.URL, changed))
	inUse("1")
	put(entry("socks5://127.0.0.1:1", changed))
	inUse("0")
	if status := string(c.Do(t, act("goto", "url", "http://still.invalid/three"))); status != "200" {
		t.Errorf("with another server in the file: %s", status)
	}
	put(entry(proxy.URL, changed))
	inUse("1")
	if now := s.browsers(t); !slices.Equal(now, pids) {
		t.Errorf("browsers %v, before %v", now, pids)
	}
	c.Do(t, act("disconnect"))
	s.until(t, "acct-basic", lease.Available)
	s.noCredentials(t, map[string]*testproxy.Proxy{"1": proxy})
}

// gather makes WebRTC gather its candidates, and returns them.
const gather = `new Promise(done => {
	const found = [], pc = new RTCPeerConnection({iceServers: [{urls: 'stun:192.0.2.7:3478'}]});
	pc.onicecandidate = e => e.candidate ? e.candidate.candidate && found.push(e.candidate.candidate) : done(found.join());
	pc.createDataChannel('x');
	pc.createOffer().then(o => pc.setLocalDescription(o));
})`

// TestProxies drives real browsers through each kind of proxy. The site's name cannot
// be resolved on this host.
func TestProxies(t *testing.T) {
	t.Parallel()
	s, web, known := startProxied(t)
	for _, id := range []string{"basic", "tls", "socks", "open", "socks0"} {
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
			// A task that names no proxy gets the profile's own.
			again := clients.Start(t, clients.Playwright, s.oneShot("acct-"+id, "worker=w&task=2&wait=30s"), clients.Interactive)
			again.Expect(t, "connect")
			before := len(known[id].Targets())
			again.Do(t, act("goto", "url", "http://other.invalid/"))
			if len(known[id].Targets()) == before {
				t.Error("the second session does not use the profile's proxy")
			}
			again.Do(t, act("disconnect"))
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

func TestProxyRefusals(t *testing.T) {
	t.Parallel()
	s, _, _ := startProxied(t)
	ask := func(body map[string]any, status int, code, says string) {
		t.Helper()
		var problem map[string]any
		got := s.call(t, "POST", "/v1/sessions", body, &problem)
		if got != status || problem["code"] != code || !strings.Contains(fmt.Sprint(problem["detail"]), says) {
			t.Errorf("%v: %d %v, want %d %s with %q", body, got, problem, status, code, says)
		}
	}
	ask(map[string]any{"profile_id": "down", "proxy_id": "down", "create": true}, 502, "browser_start_failed", "does not answer")
	if code := s.call(t, "GET", "/v1/profiles/down", nil, nil); code != 404 {
		t.Errorf("after a grant that was refused, its profile: %d", code)
	}
	ask(map[string]any{"profile_id": "down", "proxy_id": "nowhere", "create": true}, 400, "invalid_request", `no proxy "nowhere"`)

	var r lease.Record
	if code := s.call(t, "PUT", "/v1/profiles/mapped", map[string]any{"proxy_id": "basic", "account_id": "a"}, &r); code != 200 || r.ProxyID != "basic" {
		t.Fatalf("PUT: %d %+v", code, r)
	}
	ask(map[string]any{"profile_id": "mapped", "proxy_id": "socks"}, 409, "proxy_mapping_changed", "mapped to proxy basic")
	ask(map[string]any{"profile_id": "mapped", "account_id": "b"}, 409, "account_mismatch", "account a")
	var problem map[string]any
	for _, tt := range []struct {
		profile, proxy, code string
	}{{"mapped", "socks", "proxy_mapping_changed"}, {"mapped", "", "proxy_mapping_changed"}, {"new", "nowhere", "invalid_request"}} {
		if s.call(t, "PUT", "/v1/profiles/"+tt.profile, map[string]any{"proxy_id": tt.proxy}, &problem); problem["code"] != tt.code {
			t.Errorf("PUT %s to %q: %v", tt.proxy, tt.profile, problem)
		}
	}

	// A task cannot move a profile behind a proxy that was used without one.
	c := clients.Start(t, clients.Playwright, s.oneShot("direct", "worker=w&task=1"), clients.Interactive)
	c.Expect(t, "connect")
	if code := s.call(t, "PUT", "/v1/profiles/direct", map[string]any{"proxy_id": "basic", "lease_token": 1}, &problem); code != 409 || problem["code"] != "profile_lock_conflict" {
		t.Errorf("PUT while it is used: %d %v", code, problem)
	}
	c.Do(t, act("disconnect"))
	s.until(t, "direct", lease.Available)
	ask(map[string]any{"profile_id": "direct", "proxy_id": "basic", "wait": "20s"}, 409, "proxy_mapping_changed", "PUT /v1/profiles/direct")
	if code := s.call(t, "PUT", "/v1/profiles/direct", map[string]any{"proxy_id": "basic"}, &r); code != 200 || r.ProxyID != "basic" {
		t.Errorf("a person's PUT: %d %+v", code, r)
	}
}

// TestProxyInRecovery: behind a proxy, a worker is lost, and later the launcher.
func TestProxyInRecovery(t *testing.T) {
	t.Parallel()
	s, _, known := startProxied(t)
	inspected := func() string {
		t.Helper()
		var i struct {
			Facts []struct{ Name, Answer, How string }
		}
		s.call(t, "GET", "/v1/profiles/acct-basic/inspection", nil, &i)
		for _, f := range i.Facts {
			if f.Name == "proxy_mapping_unchanged" {
				return f.Answer + ": " + f.How
			}
		}
		return "not inspected"
	}
	server, err := url.Parse(known["basic"].URL)
	if err != nil {
		t.Fatal(err)
	}
	c := clients.Start(t, clients.Playwright, s.oneShot("acct-basic", "worker=w&task=1&proxy=basic"), clients.Interactive)
	c.Expect(t, "connect")
	c.Do(t, act("goto", "url", "http://shop.invalid/"))
	c.Kill()
	s.until(t, "acct-basic", lease.Available)
	if got := inspected(); !strings.HasPrefix(got, "yes: ") || !strings.Contains(got, server.Host) {
		t.Errorf("the inspection says %s", got)
	}

	c = clients.Start(t, clients.Playwright, s.oneShot("acct-basic", "worker=w&task=2&wait=30s"), clients.Interactive)
	c.Expect(t, "connect")
	c.Do(t, act("goto", "url", "http://shop.invalid/"))
	if running := s.browsers(t); len(running) != 1 {
		t.Fatalf("browsers %v", running)
	}
	s.kill(t)
	s.launch(t)
	if r := s.until(t, "acct-basic", lease.ManualReview, lease.Available); r.ProxyID != "basic" {
		t.Errorf("recovery changed the proxy to %q", r.ProxyID)
	}
	if got := inspected(); !strings.HasPrefix(got, "yes: ") {
		t.Errorf("after the launcher's crash the inspection says %s", got)
	}
	log, err := os.ReadFile(s.stderr.Name())
	if err != nil {
		t.Fatal(err)
	}
	// The relay has the address that the browser was started with.
	var relays []string
	for line := range strings.Lines(string(log)) {
		var l struct{ Message, Relay string }
		if json.Unmarshal([]byte(line), &l) == nil && l.Message == "relay opened" {
			relays = append(relays, l.Relay)
		}
	}
	if len(relays) != 3 || relays[1] != relays[0] || relays[2] != relays[0] {
		t.Errorf("relays were opened at %v", relays)
	}
	s.noCredentials(t, known)
}
