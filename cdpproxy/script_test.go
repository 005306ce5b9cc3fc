package cdpproxy_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"leasehold/cdpproxy"
)

// scripted is the browser's end of a pipe, in this process. It opens browser sessions,
// answers commands, and sends what the test says.
type scripted struct {
	t    *testing.T
	mux  *cdpproxy.Mux
	in   *os.File
	out  *os.File
	deaf chan struct{} // closed at the end: after DOM.disable nothing is read before that
	// slow, if it is not nil, holds up the next browser session: it says so, and waits for an answer.
	slow chan struct{}

	mu   sync.Mutex
	got  []asked
	last int // number of the last session
	// later are the commands behind the one that await returned last.
	later []asked
}

type asked struct {
	ID        int64           `json:"id"`
	Method    string          `json:"method"`
	Params    json.RawMessage `json:"params"`
	SessionID string          `json:"sessionId"`
}

// script starts a scripted browser and a Mux for it. Both end with the test.
func script(t *testing.T) *scripted {
	t.Helper()
	s := &scripted{t: t, deaf: make(chan struct{})}
	commands, events := pipes(t), pipes(t)
	s.in, s.out = os.NewFile(uintptr(commands[0]), "commands"), os.NewFile(uintptr(events[1]), "events")
	var err error
	if s.mux, err = cdpproxy.New(cdpproxy.Pipe{Commands: commands[1], Events: events[0]}, noEffect, func(cdpproxy.Traffic) {}); err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(s.serve)
	t.Cleanup(func() {
		close(s.deaf)
		s.mux.Stop()
		serving.Wait()
		<-s.mux.Done()
		_ = s.out.Close()
		_ = s.in.Close()
	})
	return s
}

// noEffect is a cdpproxy.Effect by which no command acts.
func noEffect(_, _ []byte) (acts, types bool) { return false, false }

// pipes makes a pipe with non-blocking ends.
func pipes(t *testing.T) [2]int {
	t.Helper()
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	return p
}

// serve answers every command but Debugger.pause and Page.captureScreenshot.
func (s *scripted) serve() {
	r := bufio.NewReader(s.in)
	for {
		msg, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		if bytes.HasSuffix(msg, []byte("!\x00")) {
			continue // it was given up: to Chrome it is no message
		}
		var c asked
		if err := json.Unmarshal(msg[:len(msg)-1], &c); err != nil {
			s.t.Errorf("the browser got what is no JSON: %.200q", msg)
			return
		}
		s.mu.Lock()
		s.got = append(s.got, c)
		s.mu.Unlock()
		switch c.Method {
		case "Target.attachToBrowserTarget":
			s.mu.Lock()
			s.last++
			session, slow := fmt.Sprintf("B%d", s.last), s.slow
			s.slow = nil
			s.mu.Unlock()
			if slow != nil {
				slow <- struct{}{}
				<-slow
			}
			s.say(`{"id":%d,"result":{"sessionId":"%s"}}`, c.ID, session)
		case "Target.attachToTarget":
			s.say(`{"method":"Target.attachedToTarget","params":{"sessionId":"%s-page","targetInfo":{},"waitingForDebugger":false},"sessionId":"%s"}`, c.SessionID, c.SessionID)
			s.say(`{"id":%d,"result":{"sessionId":"%s-page"},"sessionId":"%s"}`, c.ID, c.SessionID, c.SessionID)
		case "Target.getBrowserContexts":
			s.say(`{"id":%d,"result":{"browserContextIds":["C"],"defaultBrowserContextId":"own"}}`, c.ID)
		case "Debugger.pause", "Page.captureScreenshot":
		case "DOM.disable":
			<-s.deaf
		default:
			s.say(`{"id":%d,"result":{"of":%q},"sessionId":"%s"}`, c.ID, c.Method, c.SessionID)
		}
	}
}

// say writes one message for the launcher.
func (s *scripted) say(format string, args ...any) { s.sayAll(fmt.Sprintf(format, args...)) }

// sayAll is say without a format.
func (s *scripted) sayAll(msg string) {
	if _, err := s.out.WriteString(msg + "\x00"); err != nil {
		s.t.Errorf("the browser could not write: %v", err)
	}
}

// heard returns the commands that the browser got since the last call, except those that
// open browser sessions.
func (s *scripted) heard() []asked {
	s.mu.Lock()
	defer s.mu.Unlock()
	var got []asked
	for _, c := range s.got {
		if c.Method != "Target.attachToBrowserTarget" {
			got = append(got, c)
		}
	}
	s.got = nil
	return got
}

// unread returns how many bytes of commands wait in the pipe.
func (s *scripted) unread() int {
	conn, err := s.in.SyscallConn()
	if err != nil {
		s.t.Fatal(err)
	}
	n := 0
	if err := conn.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ) }); err != nil {
		s.t.Fatal(err)
	}
	return n
}
