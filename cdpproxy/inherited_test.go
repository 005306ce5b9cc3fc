package cdpproxy

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"leasehold/cdpproxy/methods"
	"leasehold/internal/test/testchrome"
	"leasehold/internal/test/testkey"

	"golang.org/x/sys/unix"
)

// inherited is a Mux that has found a browser session "A" of an earlier launcher's client, with
// a session "A-page" under it. The test has the browser's end of the pipe.
func inherited(t *testing.T, more ...[]string) (m *Mux, commands *bufio.Reader, events *os.File) {
	t.Helper()
	l, err := CreatePipeLog(filepath.Join(t.TempDir(), "ledger"), testkey.Key)
	if err != nil {
		t.Fatal(err)
	}
	l.append(lineOpened, "A", "7")
	l.append(lineAttached, "A", "A-page")
	for _, line := range more {
		l.append(line...)
	}
	return inheritedBy(t, l)
}

// inheritedBy is a Mux that has found the pipe log of an earlier launcher.
func inheritedBy(t *testing.T, l *PipeLog) (m *Mux, commands *bufio.Reader, events *os.File) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := OpenPipeLog(l.path, testkey.Key)
	if err != nil {
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

// TestTheNextLauncherClosesPrivatePages, and those that they opened, and clears the cache by a page that
// stays, also if the session that opened them was closed before them: nobody may send anything before. What
// fails keeps the browser shut. What is done is not done again by the launcher after that.
func TestTheNextLauncherClosesPrivatePages(t *testing.T) {
	m, commands, events := inherited(t, []string{lineOpened, "O", "0"}, []string{linePrivate, "O", "T"}, []string{lineClosed, "O"})
	answers := func(id int64, infos string) {
		t.Helper()
		if _, err := fmt.Fprintf(events, `{"id":%d,"result":{"targetInfos":[%s]}}`+"\x00", id, infos); err != nil {
			t.Fatal(err)
		}
	}
	listed := "" // what is open
	// next waits for a command. Whether a list is asked for once more before that depends on the time.
	next := func(method string) (id int64, params string) {
		t.Helper()
		for {
			msg, err := commands.ReadBytes(0)
			if err != nil {
				t.Fatalf("the browser did not get %s: %v", method, err)
			}
			var c struct {
				ID     int64           `json:"id"`
				Method string          `json:"method"`
				Params json.RawMessage `json:"params"`
			}
			if err := json.Unmarshal(msg[:len(msg)-1], &c); err != nil {
				t.Fatal(err)
			}
			if c.Method == method {
				return c.ID, string(c.Params)
			}
			if c.Method == "Target.getTargets" {
				answers(c.ID, listed)
			}
		}
	}
	lists := func(infos string) {
		t.Helper()
		id, _ := next("Target.getTargets")
		listed = infos
		answers(id, infos)
	}
	const own, page, popup = `{"targetId":"W","type":"page"}`, `{"targetId":"T","type":"page"}`, `{"targetId":"P","type":"page","openerId":"T"}`
	closed := make(chan error, 1)
	go func() {
		forget, err := m.ClosePrivate(t.Context())
		if err == nil {
			err = forget(t.Context())
		}
		closed <- err
	}()
	lists(own + "," + page + "," + popup)
	for _, want := range []string{`"T"`, `"P"`} {
		if _, params := next("Target.closeTarget"); !strings.Contains(params, want) {
			t.Errorf("closed %s, want %s", params, want)
		}
	}
	lists(own + "," + popup)
	lists(own)
	// clears answers what clears the cache, and the last of that with an error if there is one.
	clears := func(err string) {
		t.Helper()
		for _, step := range []struct{ method, params, event, answer string }{
			{"Target.attachToBrowserTarget", "", "", `"result":{"sessionId":"O2"}`},
			{"Target.attachToTarget", `"W"`, `{"method":"Target.attachedToTarget","params":{"sessionId":"W2","targetInfo":` + own + `,"waitingForDebugger":false},"sessionId":"O2"}` + "\x00", `"result":{"sessionId":"W2"},"sessionId":"O2"`},
			{"Network.clearBrowserCache", "", "", cmp.Or(err, `"result":{}`) + `,"sessionId":"W2"`},
			{"Target.detachFromTarget", `"O2"`, "", `"result":{}`},
		} {
			id, params := next(step.method)
			if !strings.Contains(params, step.params) {
				t.Errorf("%s %s, want %s", step.method, params, step.params)
			}
			if _, err := fmt.Fprintf(events, "%s{\"id\":%d,%s}\x00", step.event, id, step.answer); err != nil {
				t.Fatal(err)
			}
		}
	}
	clears("")
	if m.KeptPrivate() == nil {
		t.Error("clients may go on before it is known that all are gone")
	}
	lists(own)
	if err := <-closed; err != nil || m.KeptPrivate() != nil {
		t.Error("in the end", err)
	}
	log, err := os.ReadFile(m.pipeLog.path)
	if err != nil {
		t.Fatal(err)
	}
	lines, _ := unsigned(log, chainOf(m.pipeLog.path, testkey.Key))
	if left := replay(lines).private; len(left) > 0 {
		t.Errorf("the next launcher is told of %v, which are closed", left)
	}
	open, err := m.KeepPrivate(methods.RefuseSignIn())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { closed <- open(ctx, true) }()
	lists(own + "," + popup)
	next("Target.closeTarget")
	cancel()
	if err := <-closed; !errors.Is(err, context.Canceled) || m.KeptPrivate() == nil {
		t.Errorf("the popup lives, and clients may go on: %v", err)
	}
	go func() { closed <- open(t.Context(), true) }()
	lists(own)
	clears(`"error":{"code":-32000,"message":"no cache"}`)
	if err := <-closed; err == nil || !strings.Contains(err.Error(), "no cache") || m.KeptPrivate() == nil {
		t.Errorf("the cache is as it was, and clients may go on: %v", err)
	}
}

// TestAPipeLogThatDoesNotTellWhichPagesAreClosed is one of a launcher before version 2 of the format. Its private
// pages went before their opener's session, so nothing is to be closed, and the browser is asked nothing.
func TestAPipeLogThatDoesNotTellWhichPagesAreClosed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	l := &PipeLog{path: path, key: testkey.Key, file: file, chain: chainOf(path, testkey.Key), limit: largestPipeLog}
	for _, line := range [][]string{{lineOpened, "O", "0"}, {linePrivate, "O", "T"}, {lineClosed, "O"}} {
		l.append(line...)
	}
	m, _, _ := inheritedBy(t, l)
	nobodyAnswers, cancel := context.WithCancel(t.Context())
	cancel()
	forget, err := m.ClosePrivate(nobodyAnswers)
	if err == nil {
		err = forget(nobodyAnswers)
	}
	if err != nil || m.KeptPrivate() != nil {
		t.Errorf("the browser is asked: %v", err)
	}
}
