package proxies

import (
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"leasehold/internal/peer"
	"leasehold/internal/test/otheruser"
	"leasehold/internal/test/testlog"
)

// TestTheRelayServesItsBrowserOnly: another user of the host gets not a byte through it,
// and cannot fill the log. Nor does another browser of the same user.
func TestTheRelayServesItsBrowserOnly(t *testing.T) {
	upstream, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	reached := make(chan string, 10)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := upstream.Accept()
			if err != nil {
				return
			}
			b := make([]byte, 1000)
			n, _ := c.Read(b)
			reached <- string(b[:n])
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = upstream.Close(); <-done })
	log := &testlog.Buffer{}
	p := &Proxy{id: "p", scheme: schemeHTTP, address: upstream.Addr().String(), username: user, relayed: true}
	p.credentials.Store(newCredentials(password, nil, nil))
	var browser atomic.Value // the relay of the browser that asks
	r, err := Open(p, t.TempDir(), func(_ peer.Socket, server string) (bool, error) { return browser.Load() == server, nil }, zerolog.New(log))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	askAt := func(r *Relay, uid uint32) error {
		at, err := url.Parse(r.URL())
		if err != nil {
			t.Fatal(err)
		}
		c, err := otheruser.Dial(uid, at.Host)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, "CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n"); err != nil {
			return err
		}
		_, err = c.Read(make([]byte, 1))
		return err
	}
	ask := func(uid uint32) error { return askAt(r, uid) }
	for range 5 {
		if err := ask(otheruser.UID); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
			t.Errorf("another user: %v, want that the connection is closed", err)
		}
	}
	if len(reached) > 0 {
		t.Errorf("another user reached the proxy: %s", <-reached)
	}
	if n := strings.Count(log.String(), "it is not this profile's browser"); n != 1 || !strings.Contains(log.String(), "uid 54321") {
		t.Errorf("logged %d times, want once, with the user:\n%s", n, log)
	}
	browser.Store("http://127.0.0.1:1")
	if err := ask(uint32(os.Geteuid())); err == nil || len(reached) > 0 {
		t.Errorf("another browser of its user: %v, %d reached the proxy", err, len(reached))
	}
	browser.Store(r.URL())
	if err := ask(uint32(os.Geteuid())); err != nil {
		t.Errorf("its own user: %v", err)
	}
	if got := <-reached; !strings.Contains(got, "Proxy-Authorization") {
		t.Errorf("the proxy got %q, want the credentials", got)
	}
	// A browser user's browser is served, since the profile is that user's, and the launcher's
	// own user is not.
	dir := t.TempDir()
	if err := os.Chown(dir, otheruser.UID, otheruser.UID); err != nil {
		t.Fatal(err)
	}
	theirs, err := Open(p, dir, anyBrowser, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := theirs.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := askAt(theirs, otheruser.UID); err != nil {
		t.Errorf("the browser user: %v", err)
	}
	if err := askAt(theirs, uint32(os.Geteuid())); err == nil {
		t.Error("the launcher's user is served on the relay of a browser user")
	}
}
