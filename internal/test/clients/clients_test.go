package clients_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"leasehold/internal/test/clients"
	"leasehold/launcher/chrome"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// chromium runs a real browser on a port of its own, so that the clients are tested
// without a sidecar.
func chromium(t *testing.T) (address string) {
	t.Helper()
	binary, err := chrome.Find("")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.Command(binary, "--headless", "--no-sandbox", "--no-first-run", "--remote-debugging-port=0",
		"--user-data-dir="+dir, "about:blank")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("chromium: %v", err)
	}
	t.Cleanup(func() {
		// An interrupt lets it finish its files before the folder is removed.
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Errorf("chromium: %v", err)
		}
		_, _ = io.Copy(io.Discard, stderr)
		_ = cmd.Wait()
	})
	var printed strings.Builder
	buffer := make([]byte, 4096)
	for {
		n, err := stderr.Read(buffer)
		printed.Write(buffer[:n])
		if _, after, ok := strings.Cut(printed.String(), "DevTools listening on ws://"); ok && strings.Contains(after, "/") {
			address, _, _ = strings.Cut(after, "/")
			return address
		}
		if err != nil {
			t.Fatalf("chromium ended: %s", printed.String())
		}
	}
}

// pages serves a page with a button that changes its title.
func pages(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, `<title>one</title><button onclick="document.title='two'">go</button>`)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestBrowserClients(t *testing.T) {
	address, site := chromium(t), pages(t)
	for _, one := range []struct {
		name, script string
		args         []string
	}{
		{"playwright", clients.Playwright, nil},
		{"puppeteer 25", clients.Puppeteer, nil},
		{"puppeteer 24", clients.Puppeteer, []string{"puppeteer-core-24"}},
	} {
		t.Run(one.name, func(t *testing.T) {
			picture := filepath.Join(t.TempDir(), "page.png")
			args := append([]string{"http://" + address, clients.Interactive}, one.args...)
			c := clients.Start(t, one.script, args...)
			c.Expect(t, "connect")
			c.Do(t, clients.Action{"action": "newContext"})
			if status := string(c.Do(t, clients.Action{"action": "goto", "url": site})); status != "200" {
				t.Errorf("goto: status %s, want 200", status)
			}
			c.Do(t, clients.Action{"action": "setCookie", "cookie": map[string]any{
				"name": "who", "value": "worker", "domain": "127.0.0.1", "path": "/"}})
			var cookies []struct{ Name, Value string }
			if err := json.Unmarshal(c.Do(t, clients.Action{"action": "getCookies"}), &cookies); err != nil {
				t.Fatal(err)
			}
			if len(cookies) != 1 || cookies[0].Name != "who" || cookies[0].Value != "worker" {
				t.Errorf("cookies: %v, want who=worker", cookies)
			}
			c.Do(t, clients.Action{"action": "click", "selector": "button"})
			if title := string(c.Do(t, clients.Action{"action": "evaluate", "expression": "document.title"})); title != `"two"` {
				t.Errorf("title %s after the click, want two", title)
			}
			c.Do(t, clients.Action{"action": "screenshot", "path": picture})
			if b, err := os.ReadFile(picture); err != nil || !strings.HasPrefix(string(b), "\x89PNG") {
				t.Errorf("screenshot: %v, want a PNG", err)
			}
			for _, on := range []string{"page", "browser"} {
				var v struct{ Product string }
				raw := c.Do(t, clients.Action{"action": "cdp", "method": "Browser.getVersion", "on": on})
				if err := json.Unmarshal(raw, &v); err != nil || v.Product == "" {
					t.Errorf("Browser.getVersion on the %s: %s", on, raw)
				}
			}
			// A method that Chrome does not know gives the client's own error.
			c.Send(t, clients.Action{"action": "cdp", "method": "Lease.getLease"})
			if line, err := c.Next(); err != nil || line.OK || !strings.Contains(line.Error, "Lease.getLease") {
				t.Errorf("Lease.getLease on bare Chrome: %+v, %v", line, err)
			}
			c.Do(t, clients.Action{"action": "disconnect"})
			if err := c.Wait(); err != nil {
				t.Errorf("exit: %v: %s", err, c.Stderr())
			}
		})
	}
	t.Run("chrome-remote-interface", func(t *testing.T) {
		c := clients.Start(t, clients.CRI, address, clients.Actions(
			clients.Action{"action": "goto", "url": site},
			clients.Action{"action": "evaluate", "expression": "document.title"},
			clients.Action{"action": "disconnect"}))
		c.Expect(t, "connect")
		c.Expect(t, "goto")
		if title := string(c.Expect(t, "evaluate")); title != `"one"` {
			t.Errorf("title %s, want one", title)
		}
		c.Expect(t, "disconnect")
		if err := c.Wait(); err != nil {
			t.Errorf("exit: %v: %s", err, c.Stderr())
		}
	})
	t.Run("a killed worker", func(t *testing.T) {
		c := clients.Start(t, clients.Playwright, "http://"+address, clients.Actions(
			clients.Action{"action": "url"}, clients.Action{"action": "waitForever"}))
		c.Expect(t, "connect")
		c.Expect(t, "url")
		c.Kill()
		if line, err := c.Next(); !errors.Is(err, io.EOF) {
			t.Errorf("after the kill: %+v, %v; want the end", line, err)
		}
		if err := c.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Errorf("exit: %v, want killed", err)
		}
	})
}

func TestConnectRefused(t *testing.T) {
	// A port on which nobody listens, since it was free a moment ago.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, script := range []string{clients.Playwright, clients.Puppeteer} {
		c := clients.Start(t, script, "http://"+address, "[]")
		line, err := c.Next()
		if err != nil || line.OK || line.Action != "connect" || line.Error == "" {
			t.Errorf("%s: %+v, %v; want a connect that failed", script, line, err)
		}
		if err := c.Wait(); err == nil || !strings.Contains(err.Error(), "exit status 1") {
			t.Errorf("%s: exit %v, want status 1", script, err)
		}
	}
}

func TestNATSClient(t *testing.T) {
	ns, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	defer ns.WaitForShutdown()
	defer ns.Shutdown()
	conn, err := nats.Connect(ns.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c := clients.Start(t, clients.NATS, ns.ClientURL(), "leasehold.>")
	c.Expect(t, "connect")
	m := nats.NewMsg("leasehold.recovery.p.quarantined")
	m.Header.Set("Leasehold-Token", "43")
	m.Data = []byte(`{"event":"quarantined"}`)
	if err := conn.PublishMsg(m); err != nil {
		t.Fatal(err)
	}
	want := `{"subject":"leasehold.recovery.p.quarantined","headers":{"Leasehold-Token":"43"},"data":{"event":"quarantined"}}`
	if got := string(c.Expect(t, "event")); got != want {
		t.Errorf("event:\n got %s\nwant %s", got, want)
	}
}
