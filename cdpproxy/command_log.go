package cdpproxy

import (
	"sync"
	"sync/atomic"
	"time"

	"leasehold/internal/boottime"
)

// Command is one that a client sent and that passed the fence. There is nothing in
// it of the command's parameters.
type Command struct {
	At time.Time
	// Session is the CDP session, Target what that was attached to; both are
	// empty for the browser's own.
	Session, Target string
	Method          string
}

// trailLength is how many commands a trail remembers.
const commandLogLength = 256

// trail remembers the last commands of a peer's connection. It is written on the
// data path, so it takes no lock, reads no clock and allocates nothing there: add
// is called with the connection's mutex held anyway, and stamp is given the time
// that the fence read.
type commandLog struct {
	ring  []loggedCommand // grows to trailLength, and is a ring from then on
	added int             // ever; taken is how many of those were taken
	taken int

	mu      sync.Mutex
	targets map[string]string // by session, also of those that are detached
}

type loggedCommand struct {
	// at is zero until the command went out. It is accessed atomically.
	at                    int64
	sessionLen, methodLen uint8
	session               [32]byte // as long as Chrome's are
	method                [54]byte
}

// add notes a command that is about to be sent. The connection's mutex is held.
func (t *commandLog) add(session, method []byte) {
	if len(t.ring) < commandLogLength {
		t.ring = append(t.ring, loggedCommand{})
	}
	s := &t.ring[t.added%commandLogLength]
	atomic.StoreInt64(&s.at, 0)
	s.sessionLen = uint8(copy(s.session[:], session))
	s.methodLen = uint8(copy(s.method[:], method))
	t.added++
}

// stamp says when the last n that were added went out. Whoever adds calls it.
func (t *commandLog) stamp(n int, at boottime.Instant) {
	for i := max(0, t.added-min(n, commandLogLength)); i < t.added; i++ {
		atomic.StoreInt64(&t.ring[i%commandLogLength].at, int64(at))
	}
}

// maxTargets bounds how many sessions a trail knows the targets of.
const maxTargets = 2048

func (t *commandLog) setTarget(session, target string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.targets == nil || len(t.targets) >= maxTargets {
		t.targets = map[string]string{}
	}
	t.targets[session] = target
}

// take returns what was added since the last take and went out, oldest first, and
// how many more there were. The connection's mutex is held, or it is gone.
func (t *commandLog) drain() (commands []Command, missed int) {
	now, wall := boottime.Now(), time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	from := max(t.taken, t.added-commandLogLength)
	missed = from - t.taken
	for i := from; i < t.added; i++ {
		s := &t.ring[i%commandLogLength]
		at := boottime.Instant(atomic.LoadInt64(&s.at))
		if at == 0 {
			continue
		}
		session := string(s.session[:s.sessionLen])
		commands = append(commands, Command{
			At: wall.Add(at.Sub(now)), Session: session, Target: t.targets[session], Method: string(s.method[:s.methodLen]),
		})
	}
	t.taken = t.added
	return commands, missed
}

// Commands returns what the peer's client sent since Commands was last called,
// oldest first, and how many came before those that are remembered.
func (p *Peer) Commands() (commands []Command, missed int) {
	p.mu.Lock()
	conn, base := p.conn, p.defaultID
	if base == p.id {
		base = ""
	}
	p.mu.Unlock()
	if conn != nil {
		conn.mu.Lock()
		defer conn.mu.Unlock()
	}
	commands, missed = p.log.drain()
	if base == "" {
		return commands, missed
	}
	p.log.mu.Lock()
	defer p.log.mu.Unlock()
	for i := range commands { // a page's own socket names no session
		if commands[i].Session == "" {
			commands[i].Session, commands[i].Target = base, p.log.targets[base]
		}
	}
	return commands, missed
}
