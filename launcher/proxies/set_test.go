package proxies

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"leasehold/internal/test/nofiles"
	"leasehold/internal/test/testlog"
	"leasehold/internal/test/testproxy"
)

// follow follows the set's files until the test ends.
func follow(t *testing.T, s *Set, log io.Writer) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Follow(ctx, zerolog.New(log))
	}()
	t.Cleanup(func() { cancel(); <-done })
}

// TestWhatChangesInTheFile writes one version of the file after another. Each has to be read
// after two looks, without a word of a password.
func TestWhatChangesInTheFile(t *testing.T) {
	const (
		first  = "a: {server: http://h:1, username: u, password: first-secret}\nb: {server: http://h:2}\n"
		second = "a: {server: http://h:1, username: u, password: second-secret}\nb: {server: http://h:2}\n"
	)
	for name, tt := range map[string]struct {
		content  string // of the new version; empty: the file is removed
		mode     os.FileMode
		password string // of a, afterwards
		ids      string
		upToDate bool
		says     string
	}{
		"the same":         {content: first, password: "first-secret", ids: "a b", upToDate: true},
		"a password":       {content: second, password: "second-secret", ids: "a b", upToDate: true, says: `"changed":["a: credentials"]`},
		"one more":         {content: first + "c: {server: http://h:3}\n", password: "first-secret", ids: "a b c", upToDate: true, says: `"changed":["c: new"]`},
		"one less":         {content: strings.SplitAfter(first, "\n")[0], password: "first-secret", ids: "a", upToDate: true, says: `"changed":["b: gone"]`},
		"another server":   {content: strings.Replace(second, "h:2", "other:2", 1), password: "second-secret", ids: "a b", says: `"proxies":["b"]`},
		"another user":     {content: strings.Replace(second, "username: u", "username: v", 1), password: "first-secret", ids: "a b", says: `"proxies":["a"]`},
		"damaged":          {content: "a: {server: http://h:1, username: u, password: [second-secret", password: "first-secret", ids: "a b", says: "cannot be used"},
		"an unknown field": {content: "a: {server: http://h:1, pasword: second-secret}", password: "first-secret", ids: "a b", says: "pasword"},
		"no password":      {content: "a: {server: http://h:1, username: u}\n", password: "first-secret", ids: "a b", says: "go together"},
		"open to all":      {content: second, mode: 0o644, password: "first-secret", ids: "a b", says: "chmod o-rwx"},
		"removed":          {password: "first-secret", ids: "a b", says: "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log testlog.Buffer
				dir := t.TempDir()
				path := write(t, dir, "proxies.yaml", first, 0o600)
				s, err := Load(path)
				if err != nil {
					t.Fatal(err)
				}
				before := s.Find("a")
				follow(t, s, &log)
				time.Sleep(5 * lookEvery)
				if !s.UpToDate() || log.String() != "" {
					t.Fatalf("before any change: up to date %v, %s", s.UpToDate(), &log)
				}
				if tt.content == "" {
					err = os.Remove(path)
				} else {
					write(t, dir, "proxies.yaml", tt.content, max(tt.mode, 0o600))
				}
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(3 * lookEvery)
				if got := string(before.credentials.Load().password); got != tt.password {
					t.Errorf("a browser that is open has %s, want %s", got, tt.password)
				}
				if now := s.Find("a"); now != before {
					t.Errorf("the next browser gets %v, want the same proxy", now)
				}
				if got := strings.Join(s.IDs(), " "); got != tt.ids || s.UpToDate() != tt.upToDate {
					t.Errorf("ids %s, up to date %v; want %s, %v", got, s.UpToDate(), tt.ids, tt.upToDate)
				}
				time.Sleep(10 * lookEvery)
				said := log.String()
				if !strings.Contains(said, tt.says) || tt.says == "" && said != "" || strings.Contains(said, "secret") || strings.Count(said, "\n") > 2 {
					t.Errorf("said %q, want %q, once, and no password", said, tt.says)
				}
				write(t, dir, "proxies.yaml", first, 0o600)
				time.Sleep(3 * lookEvery)
				if !s.UpToDate() || strings.Join(s.IDs(), " ") != "a b" || s.Find("a") != before || s.Find("b").Server() != "http://h:2" || before.credentials.Load().password != "first-secret" {
					t.Errorf("with the first version again: %v %v %v", s.UpToDate(), s.IDs(), s.Find("b"))
				}
			})
		})
	}
}

// TestAFileThatCouldNotBeOpenedIsReadLater: without another edit.
func TestAFileThatCouldNotBeOpenedIsReadLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log testlog.Buffer
		dir := t.TempDir()
		s, err := Load(write(t, dir, "proxies.yaml", "a: {server: http://h:1}\n", 0o600))
		if err != nil {
			t.Fatal(err)
		}
		follow(t, s, &log)
		write(t, dir, "proxies.yaml", "b: {server: http://h:2}\n", 0o600)
		nofiles.During(t, func() {
			time.Sleep(5 * lookEvery)
		})
		if s.Find("a") == nil || s.UpToDate() {
			t.Error("a file that cannot be opened takes proxies out, or is in use")
		}
		time.Sleep(2 * lookEvery)
		if s.Find("a") != nil || s.Find("b") == nil || !s.UpToDate() {
			t.Errorf("a proxy that was taken out stays, since the file could not be opened once: %v", s.IDs())
		}
		if n := strings.Count(log.String(), "cannot be used"); n != 1 {
			t.Errorf("logged %d times, want once:\n%s", n, &log)
		}
	})
}

// An id that was taken out of the file does not come back as another server.
func TestAnIDIsNoOtherServerAfterAGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s, err := Load(write(t, dir, "proxies.yaml", "a: {server: http://h:1}\n", 0o600))
		if err != nil {
			t.Fatal(err)
		}
		follow(t, s, io.Discard)
		write(t, dir, "proxies.yaml", "{}", 0o600)
		time.Sleep(3 * lookEvery)
		if s.Find("a") != nil || !s.UpToDate() {
			t.Errorf("an id that is gone: %v", s.Find("a"))
		}
		write(t, dir, "proxies.yaml", "a: {server: http://other:1}\n", 0o600)
		time.Sleep(3 * lookEvery)
		if p := s.Find("a"); p == nil || p.Server() != "http://h:1" || s.UpToDate() {
			t.Errorf("it came back as %v", p)
		}
	})
}

// A file that is being written is read when it is whole.
func TestAFileThatIsBeingWrittenIsNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log testlog.Buffer
		dir, content := t.TempDir(), "a: {server: http://h:1}\nb: {server: http://h:2}\n"
		s, err := Load(write(t, dir, "proxies.yaml", content, 0o600))
		if err != nil {
			t.Fatal(err)
		}
		follow(t, s, &log)
		time.Sleep(lookEvery / 2) // between the looks
		for n := range len(content) {
			write(t, dir, "proxies.yaml", content[:n], 0o600)
			time.Sleep(lookEvery)
			if len(s.IDs()) != 2 {
				t.Fatalf("after %d bytes: %v", n, s.IDs())
			}
		}
		write(t, dir, "proxies.yaml", content, 0o600)
		time.Sleep(3 * lookEvery)
		if len(s.IDs()) != 2 || log.String() != "" {
			t.Errorf("%v %s", s.IDs(), &log)
		}
	})
}

// TestARelayTakesTheNewPassword: the password of a proxy of each kind changes at the proxy,
// then in the file. The same relay works again, and says once for each password that it was
// refused.
func TestARelayTakesTheNewPassword(t *testing.T) {
	for kind, start := range servers {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			web := site(t, httptest.NewServer)
			encrypted := site(t, httptest.NewTLSServer)
			dir := t.TempDir()
			plain, secure := start(t, web.Listener.Addr().String(), user, password), start(t, encrypted.Listener.Addr().String(), user, password)
			put := func(password string) {
				t.Helper()
				write(t, dir, "password", password+"\n", 0o600)
				var file strings.Builder
				for id, p := range map[string]*testproxy.Proxy{"plain": plain, "secure": secure} {
					more := ""
					if p.Server != nil && p.Server.Certificate() != nil {
						write(t, dir, id+".pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Server.Certificate().Raw})), 0o600)
						more = ", ca_file: " + id + ".pem"
					}
					fmt.Fprintf(&file, "%s: {server: '%s', username: %s, password_file: password%s}\n", id, p.URL, user, more)
				}
				write(t, dir, "proxies.yaml", file.String(), 0o600)
			}
			put(password)
			s, err := Load(filepath.Join(dir, "proxies.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			var log testlog.Buffer // the goroutines of a closed tunnel may still write to it
			http, https := client(t, open(t, s.Find("plain"), &log), web), client(t, open(t, s.Find("secure"), &log), encrypted)
			works := func() error {
				resp, err := http.Get("http://example.com/")
				if err != nil {
					return err
				}
				if resp.Body.Close() != nil || resp.StatusCode != 200 {
					return fmt.Errorf("plain: %s", resp.Status)
				}
				https.CloseIdleConnections() // so that the next one is another tunnel
				if resp, err = https.Get("https://example.com/"); err != nil {
					return err
				}
				return resp.Body.Close()
			}
			if err := works(); err != nil {
				t.Fatal(err)
			}
			follow(t, s, &log)
			for n, changed := range []string{"second-secret", "third-secret"} {
				plain.SetPassword(changed)
				secure.SetPassword(changed)
				// The connection of a plain request to an HTTP proxy is kept, and this test's
				// proxy asks at each request.
				if err := works(); err == nil && kind != "socks5" {
					t.Errorf("the proxy takes %s, and the old password works", changed)
				}
				write(t, dir, "password", changed+"\n", 0o600)
				var err error
				for patience := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
					if err = works(); err == nil || time.Now().After(patience) {
						break
					}
				}
				if err != nil {
					t.Fatalf("with password %d in the file: %v\n%s", n, err, &log)
				}
			}
			if said := log.String(); strings.Contains(said, "secret") || strings.Count(said, "refuses the credentials") > 6 { // twice each, and once more for a request that was on its way
				t.Errorf("said %s", said)
			}
		})
	}
}
