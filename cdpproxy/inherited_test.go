package cdpproxy

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"leasehold/internal/test/testchrome"
	"leasehold/internal/test/testkey"

	"golang.org/x/sys/unix"
)

// inherited is a Mux that has found a browser session "A" of an earlier launcher's client, with
// a session "A-page" under it. The test has the browser's end of the pipe.
func inherited(t *testing.T) (m *Mux, commands *bufio.Reader, events *os.File) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ledger")
	l, err := CreatePipeLog(path, testkey.Key)
	if err != nil {
		t.Fatal(err)
	}
	l.append(lineOpened, "A", "7")
	l.append(lineAttached, "A", "A-page")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if l, err = OpenPipeLog(path, testkey.Key); err != nil {
		t.Fatal(err)
	}
	var to, from [2]int
	if err := errors.Join(unix.Pipe2(to[:], unix.O_CLOEXEC|unix.O_NONBLOCK), unix.Pipe2(from[:], unix.O_CLOEXEC|unix.O_NONBLOCK)); err != nil {
		t.Fatal(err)
	}
	heard, said := os.NewFile(uintptr(to[0]), "commands"), os.NewFile(uintptr(from[1]), "events")
	if m, err = New(Pipe{Commands: to[1], Events: from[0], PipeLog: l}, testEffect, func(Traffic) {}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		m.Stop()
		<-m.Done()
		if err := errors.Join(heard.Close(), said.Close(), l.Close()); err != nil {
			t.Error(err)
		}
	})
	if err := heard.SetReadDeadline(time.Now().Add(testchrome.Patience)); err != nil {
		t.Fatal(err)
	}
	return m, bufio.NewReader(heard), said
}

// TestWhatWasOpenedUnderAnInheritedSessionIsItsOwn: a request that pauses on a page of a client
// that vanished with the launcher before is failed, as one is that had paused by then, and the
// page is let go of for the client's return.
func TestWhatWasOpenedUnderAnInheritedSessionIsItsOwn(t *testing.T) {
	m, commands, events := inherited(t)
	left := m.Inherited()[7]
	if len(left) != 1 {
		t.Fatalf("left: %v", left)
	}
	hears := func(what ...string) {
		t.Helper()
		for {
			command, err := commands.ReadString(0)
			if err != nil {
				t.Fatalf("the browser did not hear %q: %v", what, err)
			}
			missing := 0
			for _, part := range what {
				if !strings.Contains(command, part) {
					missing++
				}
			}
			if missing == 0 {
				return
			}
		}
	}
	left[0].Fence()
	if _, err := events.WriteString(`{"method":"Fetch.requestPaused","params":{"requestId":"late"},"sessionId":"A-page"}` + "\x00"); err != nil {
		t.Fatal(err)
	}
	hears("Fetch.failRequest", `"requestId":"late"`, `"sessionId":"A-page"`)
	left[0].Free()
	hears("Target.detachFromTarget", `"params":{"sessionId":"A-page"}`, `"sessionId":"A"`)
}
