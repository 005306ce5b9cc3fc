package cdpproxy_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"leasehold/cdpproxy"
)

// scripted is a browser's end of a pipe, in this process: it opens browser
// sessions and answers what the test tells it to.
type scripted struct {
	t    *testing.T
	mux  *cdpproxy.Mux
	in   *os.File
	out  *os.File
	deaf chan struct{} // closed at the end; Test.deaf waits for it
	// commands is the launcher's end.
	commands *os.File

	mu   sync.Mutex
	got  []asked
	last int // of the sessions
}

type asked struct {
	ID        int64           `json:"id"`
	Method    string          `json:"method"`
	Params    json.RawMessage `json:"params"`
	SessionID string          `json:"sessionId"`
}

// script starts a scripted browser and a Mux on it, until the test ends.
func script(t *testing.T) *scripted {
	t.Helper()
	s := &scripted{t: t, deaf: make(chan struct{})}
	commands, events := pipes(t), pipes(t)
	s.in, s.out = os.NewFile(uintptr(commands[0]), "commands"), os.NewFile(uintptr(events[1]), "events")
	ours := os.NewFile(uintptr(commands[1]), "our commands")
	s.commands = ours
	var err error
	if s.mux, err = cdpproxy.New(cdpproxy.Pipe{Events: events[0], Commands: ours}, func(cdpproxy.Traffic) {}); err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(s.serve)
	t.Cleanup(func() {
		close(s.deaf)
		_ = ours.Close()
		serving.Wait()
		_ = s.out.Close()
		<-s.mux.Done()
		_ = s.in.Close()
	})
	return s
}

// pipes makes a pipe without blocking ends.
func pipes(t *testing.T) [2]int {
	t.Helper()
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	return p
}

func (s *scripted) serve() {
	r := bufio.NewReader(s.in)
	for {
		msg, err := r.ReadBytes(0)
		if err != nil {
			return
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
			session := fmt.Sprintf("B%d", s.last)
			s.mu.Unlock()
			s.say(`{"id":%d,"result":{"sessionId":"%s"}}`, c.ID, session)
		case "Target.attachToTarget":
			s.say(`{"method":"Target.attachedToTarget","params":{"sessionId":"%s-page","targetInfo":{},"waitingForDebugger":false},"sessionId":"%s"}`, c.SessionID, c.SessionID)
			s.say(`{"id":%d,"result":{"sessionId":"%s-page"},"sessionId":"%s"}`, c.ID, c.SessionID, c.SessionID)
		case "Test.never":
		case "Test.deaf":
			<-s.deaf
		default:
			s.say(`{"id":%d,"result":{"of":%q},"sessionId":"%s"}`, c.ID, c.Method, c.SessionID)
		}
	}
}

// say sends one message to the launcher.
func (s *scripted) say(format string, args ...any) { s.sayAll(fmt.Sprintf(format, args...)) }

func (s *scripted) sayAll(msg string) {
	if _, err := s.out.WriteString(msg + "\x00"); err != nil {
		s.t.Errorf("the browser could not write: %v", err)
	}
}

// heard returns what the browser was sent since the last time, but for what opens
// sessions.
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

// unread is how many bytes of commands wait in the pipe.
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
