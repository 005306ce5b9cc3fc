package cdpproxy

import (
	"sync"
	"sync/atomic"
	"time"

	"leasehold/internal/boottime"
)

// Command is a command that a client sent and that passed the fence. It contains nothing of the
// command's parameters.
type Command struct {
	// Passed is when it passed the fence. Commands of several sessions are put in order by it.
	Passed boottime.Instant
	// At is the same by the wall clock. It is only nearly exact: the two clocks are not read at once.
	At time.Time
	// Session is the CDP session of the command, and Target is the id of the target to which
	// that session was attached. Both are empty for the connection's browser session.
	Session, Target string
	Method          string
}

// commandLogLength is how many commands a log has.
const commandLogLength = 256

// commandLog has the last commands of a connection. It is written on the data path, so it takes
// no lock there, reads no clock and allocates nothing: add is called with the connection's
// mutex held anyway, and stamp gets the time that the fence has read.
type commandLog struct {
	ring    []loggedCommand // grows to commandLogLength, and is a ring from then on
	added   int             // commands that were ever added
	drained int             // of those, how many drain has seen

	mu      sync.Mutex
	targets map[string]string // by CDP session, also of sessions that have ended
}

// loggedCommand truncates what is too long for it.
type loggedCommand struct {
	// at is zero until the command has passed the fence. It is accessed atomically.
	at                    int64
	sessionLen, methodLen uint8
	session               [32]byte // as long as Chrome's session ids are
	method                [54]byte
}

// add adds a command that is about to be sent. The connection's mutex is held.
func (l *commandLog) add(sessionID, method []byte) {
	if len(l.ring) < commandLogLength {
		l.ring = append(l.ring, loggedCommand{})
	}
	c := &l.ring[l.added%commandLogLength]
	atomic.StoreInt64(&c.at, 0)
	c.sessionLen = uint8(copy(c.session[:], sessionID))
	c.methodLen = uint8(copy(c.method[:], method))
	l.added++
}

// stamp sets when the last n commands that were added passed the fence. Only the
// goroutine that adds may call it.
func (l *commandLog) stamp(n int, at boottime.Instant) {
	for i := max(0, l.added-min(n, commandLogLength)); i < l.added; i++ {
		atomic.StoreInt64(&l.ring[i%commandLogLength].at, int64(at))
	}
}

// maxTargets is the most sessions whose targets a log knows. Beyond that it forgets all of them
// and begins again.
const maxTargets = 2048

func (l *commandLog) setTarget(sessionID, target string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.targets == nil || len(l.targets) >= maxTargets {
		l.targets = map[string]string{}
	}
	l.targets[sessionID] = target
}

// drain returns the commands that were added since the last drain and passed the fence,
// oldest first, and how many were overwritten by later ones. The caller holds the
// connection's mutex, unless the connection is gone.
func (l *commandLog) drain() (commands []Command, missed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	from := max(l.drained, l.added-commandLogLength)
	missed = from - l.drained
	l.drained = l.added
	commands, _ = l.read(from)
	return commands, missed
}

// read returns the commands from a number on that passed the fence, oldest first, and the
// number after the last of them: later ones may still be on their way. The caller holds l.mu,
// and what drain requires.
func (l *commandLog) read(from int) (commands []Command, next int) {
	now, wall := boottime.Now(), time.Now()
	next = from
	for i := from; i < l.added; i++ {
		c := &l.ring[i%commandLogLength]
		at := boottime.Instant(atomic.LoadInt64(&c.at))
		if at == 0 {
			continue
		}
		next = i + 1
		sessionID := string(c.session[:c.sessionLen])
		commands = append(commands, Command{
			Passed: at, At: wall.Add(at.Sub(now)), Session: sessionID, Target: l.targets[sessionID], Method: string(c.method[:c.methodLen]),
		})
	}
	return commands, next
}

// after returns the commands that were added after the first n and passed the fence, and the
// number with which the next call goes on. A negative n asks only for that number. The caller
// holds what drain requires.
func (l *commandLog) after(n int) (commands []Command, next int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n < 0 {
		return nil, l.added
	}
	return l.read(max(n, l.added-commandLogLength))
}

// Commands returns the commands that the session's client has sent since the last call of
// Commands, oldest first, and how many were lost.
func (s *ClientSession) Commands() (commands []Command, missed int) {
	s.readLog(func() []Command {
		commands, missed = s.log.drain()
		return commands
	})
	return commands, missed
}

// readLog calls read, which returns commands of the session's log, while the log may be read.
// On the socket of a page, messages name no session: they get that of the page.
func (s *ClientSession) readLog(read func() []Command) {
	s.mu.Lock()
	conn, page := s.conn, s.defaultID
	s.mu.Unlock()
	if conn != nil {
		conn.mu.Lock()
		defer conn.mu.Unlock()
	}
	commands := read()
	if page == s.id || page == "" {
		return
	}
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	for i := range commands {
		if commands[i].Session == "" {
			commands[i].Session, commands[i].Target = page, s.log.targets[page]
		}
	}
}
