package proxies

import (
	"bufio"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"leasehold/internal/peer"
	"leasehold/internal/test/testlog"
	"leasehold/internal/test/testproxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	user     = "customer-7"
	password = "hunter2-secret"
)

func write(t *testing.T, dir, name, content string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "password", password+"\n", 0o600)
	set, err := Load(write(t, dir, "good.yaml", `
plain: {server: http://proxy.example:3128}
default-port: {server: "https://proxy.example/"}
socks:
  server: socks5://[2001:db8::1]:1080
  username: customer-7
  password: hunter2-secret
from-file: {server: http://proxy.example:8080, username: customer-7, password_file: password}
`, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]struct {
		server string
		relay  bool
	}{
		"plain": {"http://proxy.example:3128", false}, "default-port": {"https://proxy.example:443", false},
		"socks": {"socks5://[2001:db8::1]:1080", true}, "from-file": {"http://proxy.example:8080", true},
	} {
		p := set.Find(id)
		if p == nil || p.Server() != want.server || p.NeedsRelay() != want.relay || want.relay && p.credentials.Load().password != password {
			t.Errorf("%s: %+v", id, p)
		}
		if shown := fmt.Sprintf("%v %+v %#v %s %q %x %+v", p, p, p, p.credentials.Load().password, p.credentials.Load().password, p.credentials.Load().password, p.credentials.Load()); strings.Contains(shown, password) || strings.Contains(shown, fmt.Sprintf("%x", password)) {
			t.Errorf("%s shows its password: %s", id, shown)
		}
	}
	if got := set.IDs(); len(got) != 4 || !slices.IsSorted(got) || set.Find("none") != nil {
		t.Errorf("ids: %q", got)
	}
	if none, err := Load(write(t, dir, "empty.yaml", "", 0o600)); err != nil || len(none.IDs()) != 0 {
		t.Errorf("an empty file: %v", err)
	}
	var none *Set
	if none.Find("x") != nil || none.IDs() != nil {
		t.Error("the nil set has proxies")
	}
}

func TestLoadRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		content string
		mode    os.FileMode
		want    string
	}{
		"not yaml":           {"a: [" + password, 0o600, "want ids"},
		"unknown field":      {"a: {server: http://h:1, passwrod: " + password + "}", 0o600, "passwrod"},
		"wrong type":         {"a: {server: http://h:1, password: [" + password + "]}", 0o600, "want ids"},
		"no server":          {"a: {username: u}", 0o600, "server: want"},
		"scheme":             {"a: {server: socks4://h:1}", 0o600, "socks4"},
		"credentials in url": {"a: {server: http://u:" + password + "@h:1}", 0o600, "username and password, not in the URL"},
		"bad url":            {"a: {server: 'http://u:" + password + "@h:x'}", 0o600, "server: want"},
		"path":               {"a: {server: http://h:1/x}", 0o600, "nothing behind"},
		"a list of servers":  {"a: {server: 'http://h,direct://:1'}", 0o600, "server: want"},
		"port":               {"a: {server: http://h:70000}", 0o600, "server: want"},
		"only a user":        {"a: {server: http://h:1, username: u}", 0o600, "go together"},
		"only a password":    {"a: {server: http://h:1, password: " + password + "}", 0o600, "go together"},
		"a colon":            {"a: {server: http://h:1, username: 'u:v', password: " + password + "}", 0o600, "colon"},
		"too long":           {"a: {server: http://h:1, username: u, password: " + strings.Repeat(password, 20) + "}", 0o600, "255"},
		"both":               {"a: {server: http://h:1, username: u, password: x, password_file: x}", 0o600, "want one"},
		"no password file":   {"a: {server: http://h:1, username: u, password_file: nowhere}", 0o600, "password_file"},
		"ca of http":         {"a: {server: http://h:1, ca_file: x}", 0o600, "https"},
		"ca without any":     {"a: {server: https://h:1, ca_file: self}", 0o600, "PEM"},
		"open to all":        {"a: {server: http://h:1, username: u, password: " + password + "}", 0o644, "chmod o-rwx"},
	} {
		dir := t.TempDir()
		write(t, dir, "self", "nothing", 0o600)
		path := write(t, dir, "proxies.yaml", tt.content, tt.mode)
		_, err := Load(path)
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want %q and the file", name, err, tt.want)
		} else if strings.Contains(err.Error(), password) {
			t.Errorf("%s: the password is in the error: %v", name, err)
		}
	}
	if _, err := Load(filepath.Join(t.TempDir(), "nowhere")); err == nil {
		t.Error("a missing file is read")
	}
}

// load reads a configuration with one proxy, and returns that.
func load(t *testing.T, server string, more ...string) *Proxy {
	t.Helper()
	set, err := Load(write(t, t.TempDir(), "proxies.yaml", fmt.Sprintf("p: {server: '%s'%s}", server, strings.Join(more, "")), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	return set.Find("p")
}

func withPassword(password string) string {
	return fmt.Sprintf(", username: %s, password: '%s'", user, password)
}

// anyBrowser takes every process of the browser's user for the browser.
func anyBrowser(peer.Socket, string) (bool, error) { return true, nil }

func open(t *testing.T, p *Proxy, log io.Writer) *Relay {
	t.Helper()
	r, err := Open(p, t.TempDir(), anyBrowser, zerolog.New(log))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// client makes an HTTP client that uses the relay as its proxy.
func client(t *testing.T, r *Relay, site *httptest.Server) *http.Client {
	t.Helper()
	relay, err := url.Parse(r.URL())
	if err != nil {
		t.Fatal(err)
	}
	tr := site.Client().Transport.(*http.Transport).Clone()
	tr.Proxy, tr.DisableCompression = http.ProxyURL(relay), true
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: time.Minute}
}

func site(t *testing.T, start func(http.Handler) *httptest.Server) *httptest.Server {
	t.Helper()
	s := start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"Proxy-Authorization", "Proxy-Connection", "X-Forwarded-For", "Via"} {
			if r.Header.Get(name) != "" {
				t.Errorf("the site sees %s: %s", name, r.Header.Get(name))
			}
		}
		w.Header()["Content-Type"] = nil
		_, _ = fmt.Fprintf(w, "%s %s %s", r.Host, r.URL, r.Header.Get("Accept-Encoding"))
	}))
	t.Cleanup(s.Close)
	return s
}

// servers start a proxy that wants credentials, one of each kind.
var servers = map[string]func(t testing.TB, site, user, password string) *testproxy.Proxy{
	"http": testproxy.HTTP, "https": testproxy.HTTPS, "socks5": testproxy.SOCKS5,
}

// configured reads a configuration with the test's proxy, and returns that.
func configured(t *testing.T, p *testproxy.Proxy, password string) *Proxy {
	t.Helper()
	more := withPassword(password)
	if p.Server != nil && p.Server.Certificate() != nil {
		ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Server.Certificate().Raw})
		more += ", ca_file: '" + write(t, t.TempDir(), "ca.pem", string(ca), 0o600) + "'"
	}
	return load(t, p.URL, more)
}

func TestRelay(t *testing.T) {
	for kind, start := range servers {
		t.Run(kind, func(t *testing.T) {
			plain, encrypted := site(t, httptest.NewServer), site(t, httptest.NewTLSServer)
			for scheme, s := range map[string]*httptest.Server{"http": plain, "https": encrypted} {
				upstream := start(t, s.Listener.Addr().String(), user, password)
				p := configured(t, upstream, password)
				if err := p.Check(t.Context()); err != nil {
					t.Fatal(err)
				}
				var log testlog.Buffer // the goroutines of a closed tunnel may still write to it
				c := client(t, open(t, p, &log), s)
				// Only the proxy resolves this name to the site. It is the one in the site's
				// certificate.
				req, err := http.NewRequestWithContext(t.Context(), "GET", scheme+"://example.com/a?b=c", nil)
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Accept-Encoding", "zstd")
				resp, err := c.Do(req)
				if err != nil {
					t.Fatalf("%s: %v\n%s", scheme, err, log.String())
				}
				body, err := io.ReadAll(resp.Body)
				if err != nil || resp.Body.Close() != nil || string(body) != "example.com /a?b=c zstd" || resp.StatusCode != 200 {
					t.Errorf("%s: %s %q %v", scheme, resp.Status, body, err)
				}
				if got := resp.Header["Content-Type"]; got != nil {
					t.Errorf("%s: the site has no Content-Type, the relay says %q", scheme, got)
				}
				if got := upstream.Targets(); len(got) != 1 || !strings.HasPrefix(got[0], "example.com") {
					t.Errorf("%s: the proxy was asked for %q", scheme, got)
				}
			}
		})
	}
}

func TestRelayRefused(t *testing.T) {
	for kind, start := range servers {
		t.Run(kind, func(t *testing.T) {
			plain := site(t, httptest.NewServer)
			upstream := start(t, plain.Listener.Addr().String(), user, "another")
			var log testlog.Buffer // the goroutines of a closed tunnel may still write to it
			r := open(t, configured(t, upstream, password), &log)
			c := client(t, r, plain)
			resp, err := c.Get("http://example.com/")
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			if err != nil || resp.Body.Close() != nil {
				t.Fatalf("reading the answer: %v, or closing it failed", err)
			}
			// It must not be 407: Chrome would ask its user for credentials.
			if resp.StatusCode != 502 || resp.Header.Get("Proxy-Authenticate") != "" {
				t.Errorf("plain: %s %q", resp.Status, body)
			}
			if resp, err := c.Get("https://example.com/"); err == nil || strings.Contains(err.Error(), "407") {
				t.Errorf("tunnel: %v %v", resp, err)
			}
			if upstream.Refused() == 0 || len(upstream.Targets()) != 0 {
				t.Errorf("refused %d, admitted %q", upstream.Refused(), upstream.Targets())
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
			if n := strings.Count(log.String(), "refuses the credentials"); n != 1 {
				t.Errorf("said %d times: %s", n, log.String())
			}
			if all := log.String() + string(body); strings.Contains(all, password) || strings.Contains(all, "Basic ") {
				t.Errorf("credentials are shown: %s", all)
			}
		})
	}
}

func TestRelayWithoutItsServer(t *testing.T) {
	for kind, start := range servers {
		plain := site(t, httptest.NewServer)
		upstream := start(t, plain.Listener.Addr().String(), user, password)
		p := configured(t, upstream, password)
		var log testlog.Buffer
		r := open(t, p, &log)
		c := client(t, r, plain)
		upstream.Stop()
		if err := p.Check(t.Context()); err == nil || !strings.Contains(err.Error(), upstream.URL) || !strings.Contains(err.Error(), "does not answer") {
			t.Errorf("%s: %v", kind, err)
		}
		resp, err := c.Get("http://" + plain.Listener.Addr().String() + "/")
		if err != nil {
			t.Fatal(err)
		}
		said, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != 502 || resp.Body.Close() != nil {
			t.Errorf("%s: with its server away the relay answers %s (%v): nothing may go around it", kind, resp.Status, err)
		}
		// A page of the same site can read that, and no worker is told where the proxy is.
		tunnel := connect(t, r, plain.Listener.Addr().String())
		_, server, _ := strings.Cut(upstream.URL, "://")
		for what, said := range map[string]string{"a request": string(said), "a tunnel": tunnel} {
			if said == "" || strings.Contains(said, server) {
				t.Errorf("%s: %s is answered %q", kind, what, said)
			}
		}
		if n := strings.Count(log.String(), "connection through the proxy failed"); n != 2 || !strings.Contains(log.String(), server) {
			t.Errorf("%s: the log says %s", kind, log.String())
		}
	}
}

// connect asks a relay for a tunnel that it cannot open, and returns what it says.
func connect(t *testing.T, r *Relay, target string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(r.URL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	end, _ := ctx.Deadline()
	if err := c.SetDeadline(end); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", target); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	said, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 502 || resp.Body.Close() != nil {
		t.Errorf("the tunnel: %s %q %v", resp.Status, said, err)
	}
	return string(said)
}

// TestCloseEndsConnections closes the relay while a tunnel is open and a request is being
// answered.
func TestCloseEndsConnections(t *testing.T) {
	for kind, start := range servers {
		echo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "x")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}))
		upstream := start(t, echo.Listener.Addr().String(), user, password)
		r := open(t, configured(t, upstream, password), io.Discard)
		tunnel, err := net.Dial("tcp", strings.TrimPrefix(r.URL(), "http://"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(tunnel, "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		answer := make([]byte, len("HTTP/1.1 200"))
		if _, err := io.ReadFull(tunnel, answer); err != nil || string(answer) != "HTTP/1.1 200" {
			t.Fatalf("%s: %q %v", kind, answer, err)
		}
		resp, err := client(t, r, echo).Get("http://b.example/")
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Close(); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		if rest, err := io.ReadAll(tunnel); err == nil && len(rest) > 1024 {
			t.Errorf("%s: the tunnel goes on: %q", kind, rest)
		}
		if _, err := io.ReadAll(resp.Body); err == nil {
			t.Errorf("%s: the request ended as if it were whole", kind)
		}
		if c, err := net.Dial("tcp", strings.TrimPrefix(r.URL(), "http://")); err == nil {
			t.Errorf("%s: the relay still listens: %v", kind, c.Close())
		}
		_, _ = resp.Body.Close(), tunnel.Close()
		upstream.Stop()
		echo.CloseClientConnections()
		echo.Close()
	}
	var none *Relay
	if err := none.Close(); err != nil {
		t.Error(err)
	}
}

func TestRelayAddressIsTheProfilesOwn(t *testing.T) {
	p := load(t, "http://127.0.0.1:9", withPassword(password))
	dir, other := t.TempDir(), t.TempDir()
	first, err := Open(p, dir, anyBrowser, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	at := first.URL()
	second, err := Open(p, dir, anyBrowser, zerolog.Nop())
	if err != nil || second.URL() == at {
		t.Fatalf("while it is taken: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Reopen(p, at, dir, anyBrowser, zerolog.Nop())
	if err != nil || again.URL() != at {
		t.Fatalf("reopened: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	for _, server := range []string{"", "http://127.0.0.1:80", "socks5" + strings.TrimPrefix(at, "http"), "http://" + relayAddress(other, 0)} {
		if _, err := Reopen(p, server, dir, anyBrowser, zerolog.Nop()); err == nil {
			t.Errorf("%q is reopened for %s", server, dir)
		}
	}
	again, err = Open(p, dir, anyBrowser, zerolog.Nop())
	if err != nil || again.URL() != at || again.Close() != nil {
		t.Errorf("the next start has another address: %v", err)
	}
}

func TestSum(t *testing.T) {
	a := load(t, "http://h:1", withPassword(password))
	for _, tt := range []struct {
		other *Proxy
		same  bool
	}{
		{load(t, "http://h:1", withPassword("changed")), true},
		{load(t, "http://h:2", withPassword(password)), false},
		{load(t, "https://h:1", withPassword(password)), false},
		{load(t, "http://h:1"), false},
	} {
		if (a.Sum() == tt.other.Sum()) != tt.same {
			t.Errorf("%s and %s", a, tt.other)
		}
	}
}

func TestCheckIsBounded(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections, and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := load(t, "https://"+l.Addr().String()).Check(ctx); err == nil {
		t.Error("a silent https proxy is good")
	}
}
