package proxies

import (
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"leasehold/internal/test/otheruser"
)

// While the browser runs and no launcher does, no other user can listen where it sends its
// requests, and the next launcher can.
func TestTheRelaysAddressIsKeptForTheNextLauncher(t *testing.T) {
	p := load(t, "http://127.0.0.1:9", withPassword(password))
	dir := t.TempDir()
	r, err := Open(p, dir, anyBrowser, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(r.URL())
	if err != nil {
		t.Fatal(err)
	}
	inherited, err := unix.FcntlInt(r.Reserved().Fd(), unix.F_DUPFD_CLOEXEC, 0) // as the browser has it
	if err != nil {
		t.Fatal(err)
	}
	browser := os.NewFile(uintptr(inherited), "the browser's")
	ask := func() {
		t.Helper()
		c, err := net.Dial("tcp", at.Host)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Error(err)
		}
		if b, err := io.ReadAll(io.LimitReader(c, 9)); err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 ") {
			t.Errorf("answered %q, %v", b, err)
		}
	}
	ask() // so that a closed connection is left
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	for _, options := range [][]int{{}, {unix.SO_REUSEADDR}, {unix.SO_REUSEPORT}, {unix.SO_REUSEADDR, unix.SO_REUSEPORT}} {
		for _, address := range []string{at.Host, "0.0.0.0:" + at.Port(), "[::]:" + at.Port(), "[::ffff:" + at.Hostname() + "]:" + at.Port()} {
			l, err := otheruser.Listen(otheruser.UID, address, options...)
			if !errors.Is(err, syscall.EADDRINUSE) {
				t.Errorf("another user listens at %s, with options %v: %v", address, options, err)
			}
			if err == nil {
				_ = l.Close()
			}
		}
	}
	again, err := Reopen(p, r.URL(), dir, anyBrowser, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	ask()
	if err := errors.Join(again.Close(), browser.Close()); err != nil {
		t.Fatal(err)
	}
	l, err := otheruser.Listen(otheruser.UID, at.Host)
	if err != nil {
		t.Fatalf("kept when the browser has ended: %v", err)
	}
	_ = l.Close()
}
