package cdpproxy

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"

	"leasehold/lease"
)

// Ledger is a file that says what is open on a browser's pipe, for the launcher
// after this one: Chrome lists its targets, but not the sessions that were
// opened, nor the requests that are paused on them. It survives the launcher, not
// the host. Its methods may be called concurrently; a nil Ledger keeps nothing.
type Ledger struct {
	path string

	mu   sync.Mutex
	file *os.File // nil: closed, or broken
	// size is that of the file, limit from which on it is written anew.
	size, limit int

	inherited []inheritedSession // what OpenLedger found
}

// left is a browser session that a launcher before opened and did not close.
type inheritedSession struct {
	id       string
	token    lease.Token // of the client's lease; 0: the launcher's own
	children []string
	paused   map[pausedRequest]bool
}

// largestLedger is the size, in bytes, from which on a ledger is written anew
// without what is over.
const largestLedger = 1 << 20

// CreateLedger begins an empty ledger, mode 0600.
func CreateLedger(path string) (*Ledger, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("ledger of the browser's sessions: %w", err)
	}
	return &Ledger{path: path, file: file, limit: largestLedger}, nil
}

// OpenLedger goes on with the ledger of a launcher before.
func OpenLedger(path string) (*Ledger, error) {
	b, err := os.ReadFile(path)
	var file *os.File
	if err == nil {
		file, err = os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("ledger of the browser's sessions: %w", err)
	}
	l := &Ledger{path: path, file: file, inherited: replay(b)}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.compact(b)
	return l, nil
}

// Close leaves the file to the next launcher.
func (l *Ledger) Close() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	return err
}

// Remove removes the file: the browser is gone.
func (l *Ledger) Remove() error {
	if l == nil {
		return nil
	}
	err := os.Remove(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(l.Close(), err)
}

// The lines of a ledger: a word, and the ids that it is about.
const (
	lineOpened   = "open"   // session, token
	lineClosed   = "close"  // session
	lineAttached = "attach" // session, child
	lineDetached = "detach" // child
	linePaused   = "pause"  // child, request, "auth" or "plain"
	lineSettled  = "settle" // child, request
)

// note writes a line. A ledger that cannot be written, or that would say something
// else than it was told, is removed: better none than a wrong one.
func (l *Ledger) append(words ...string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return
	}
	line := strings.Join(words, " ") + "\n"
	if len(strings.Fields(line)) != len(words) {
		l.giveUp()
		return
	}
	n, err := l.file.WriteString(line)
	if l.size += n; err != nil {
		l.giveUp()
		return
	}
	if l.size > l.limit {
		b, err := os.ReadFile(l.path)
		if err != nil {
			l.giveUp()
			return
		}
		l.compact(b)
	}
}

func (l *Ledger) giveUp() {
	_ = errors.Join(os.Remove(l.path), l.file.Close()) // there is nothing more to be done
	l.file = nil
}

// compact replaces the file by one that says the same in fewer lines.
func (l *Ledger) compact(b []byte) {
	var short bytes.Buffer
	for _, p := range replay(b) {
		fmt.Fprintln(&short, lineOpened, p.id, p.token)
		for _, child := range p.children {
			fmt.Fprintln(&short, lineAttached, p.id, child)
		}
		for r, auth := range p.paused {
			fmt.Fprintln(&short, linePaused, r.sessionID, r.requestID, kindOfPause(auth))
		}
	}
	next := l.path + ".new"
	file, err := os.OpenFile(next, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	if err == nil {
		if _, err = file.Write(short.Bytes()); err == nil {
			err = os.Rename(next, l.path)
		}
		if err != nil {
			_ = errors.Join(file.Close(), os.Remove(next)) // the old one is given up, too
		}
	}
	if err != nil {
		l.giveUp()
		return
	}
	_ = l.file.Close() // it is the old one
	l.file, l.size, l.limit = file, short.Len(), max(largestLedger, 2*short.Len())
}

func kindOfPause(auth bool) string {
	if auth {
		return "auth"
	}
	return "plain"
}

// replay reads the lines of a ledger. The last one counts if it is whole.
func replay(b []byte) []inheritedSession {
	var peers []*inheritedSession
	of := map[string]*inheritedSession{} // by session, children too
	for line := range bytes.Lines(b) {
		words := strings.Fields(string(line))
		if len(words) < 2 || line[len(line)-1] != '\n' {
			continue
		}
		p := of[words[1]]
		switch word := words[0]; {
		case word == lineOpened && len(words) == 3:
			token, err := strconv.ParseUint(words[2], 10, 64)
			if err != nil {
				continue
			}
			p = &inheritedSession{id: words[1], token: lease.Token(token), paused: map[pausedRequest]bool{}}
			peers, of[p.id] = append(peers, p), p
		case p == nil:
		case word == lineClosed:
			for session, owner := range of {
				if owner == p {
					delete(of, session)
				}
			}
		case word == lineAttached && len(words) == 3:
			of[words[2]] = p
		case word == lineDetached:
			delete(of, words[1])
			for r := range p.paused {
				if r.sessionID == words[1] {
					delete(p.paused, r)
				}
			}
		case word == linePaused && len(words) == 4:
			p.paused[pausedRequest{words[1], words[2]}] = words[3] == kindOfPause(true)
		case word == lineSettled && len(words) == 3:
			delete(p.paused, pausedRequest{words[1], words[2]})
		}
	}
	var open []inheritedSession
	for _, p := range peers {
		if of[p.id] != p {
			continue
		}
		for session, owner := range of {
			if owner == p && session != p.id {
				p.children = append(p.children, session)
			}
		}
		open = append(open, *p)
	}
	return open
}
