package cdpproxy

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"leasehold/internal/signed"
	"leasehold/lease"
)

// PipeLog is a file that says what is open on a browser's pipe. It is kept for the next
// launcher: Chrome lists its targets, but neither the sessions that were opened nor the
// requests that are paused on them. It outlives the launcher, but not the host. Each line is
// signed together with everything before it, so somebody else could only remove the last lines.
// Its methods may be called concurrently; those of a nil PipeLog do nothing.
type PipeLog struct {
	path      string
	key       *signed.Key
	inherited onPipe // set by OpenPipeLog
	broken    bool   // set by OpenPipeLog

	mu          sync.Mutex
	file        *os.File // nil: closed, or given up
	chain       *signed.Chain
	size, limit int // of the file, in bytes: above limit it is compacted
}

// onPipe is what a pipe log says.
type onPipe struct {
	sessions []inheritedSession
	private  []privatePage // also those whose opener's session is closed: the page outlives it
}

// privatePage is a page that nobody but the launcher may see.
type privatePage struct{ opener, target string }

// inheritedSession is a browser session that an earlier launcher opened and did not
// close.
type inheritedSession struct {
	id       string
	token    lease.Token            // of the client's lease; 0: the launcher's own
	children []string               // CDP sessions that were opened under it
	paused   map[pausedRequest]bool // true: the request waits for credentials
}

// largestPipeLog is the size, in bytes, above which a pipe log is compacted.
const largestPipeLog = 1 << 20

// CreatePipeLog creates an empty pipe log, or empties the one at path. Its lines are signed with
// the key. Its mode is 0600.
func CreatePipeLog(path string, key *signed.Key) (*PipeLog, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("pipe log of the browser's sessions: %w", err)
	}
	l := &PipeLog{path: path, key: key, file: file, chain: chainOf(path, key), limit: largestPipeLog}
	l.append(lineFormat, formatTellsGone)
	return l, nil
}

// chainOf begins the signatures of the pipe log at path, which also cover its name.
func chainOf(path string, key *signed.Key) *signed.Chain {
	return key.Chain(signed.PipeLog, filepath.Base(path))
}

// OpenPipeLog reads the pipe log of an earlier launcher, and continues it. It reads as far as the
// lines have valid signatures: see Whole.
func OpenPipeLog(path string, key *signed.Key) (*PipeLog, error) {
	b, err := os.ReadFile(path)
	var file *os.File
	if err == nil {
		file, err = os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("pipe log of the browser's sessions: %w", err)
	}
	lines, whole := unsigned(b, chainOf(path, key))
	l := &PipeLog{path: path, key: key, file: file, inherited: replay(lines), broken: !whole}
	l.mu.Lock()
	defer l.mu.Unlock()
	if whole {
		l.compact(lines)
	} else {
		l.giveUp() // if it were rewritten, it would look whole to the next launcher
	}
	return l, nil
}

// Whole tells whether every line of the pipe log has a valid signature. If not, the browser
// sessions before the first invalid line were open at some time; it is not known who has them
// now.
func (l *PipeLog) Whole() bool { return !l.broken }

// unsigned returns the lines before the first one without a valid signature, and whether those
// are all. The signatures are removed. A last line without its newline is incomplete, and does
// not count.
func unsigned(b []byte, chain *signed.Chain) (lines []byte, whole bool) {
	for line := range bytes.Lines(b) {
		said, ended := bytes.CutSuffix(line, []byte("\n"))
		if !ended {
			break
		}
		at := bytes.LastIndexByte(said, ' ')
		if at < 0 || string(said[at+1:]) != chain.Next(string(said[:at])) {
			return lines, false
		}
		lines = append(append(lines, said[:at]...), '\n')
	}
	return lines, true
}

// Close closes the file, and leaves it to the next launcher.
func (l *PipeLog) Close() error {
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

// Remove closes and removes the file. It is called when the browser is gone.
func (l *PipeLog) Remove() error {
	if l == nil {
		return nil
	}
	err := os.Remove(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(l.Close(), err)
}

// A line of a pipe log consists of one of these words, what it is about, and its signature.
const (
	lineFormat   = "format"  // version; a pipe log without this line is of version 1
	lineOpened   = "open"    // session, token
	lineClosed   = "close"   // session
	lineAttached = "attach"  // session, child
	lineDetached = "detach"  // child
	linePaused   = "pause"   // child, request, "auth" or "plain"
	lineSettled  = "settle"  // child, request
	linePrivate  = "private" // session, target of a page that nobody else may see
	lineGone     = "gone"    // target of such a page: it is closed, and the cache has nothing of it
)

// formatTellsGone is the version of the format since which a private page counts as open until its lineGone. Before
// that, it counts as closed with the session of its opener.
const formatTellsGone = "2"

// append adds a line. If the pipe log cannot be written, or a word would be read back
// differently, the pipe log is given up: no pipe log is better than a wrong one.
func (l *PipeLog) append(words ...string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return
	}
	line := strings.Join(words, " ")
	if len(strings.Fields(line)) != len(words) {
		l.giveUp()
		return
	}
	n, err := l.file.WriteString(line + " " + l.chain.Next(line) + "\n")
	if l.size += n; err != nil {
		l.giveUp()
		return
	}
	if l.size > l.limit {
		b, err := os.ReadFile(l.path)
		lines, whole := unsigned(b, chainOf(l.path, l.key))
		if err != nil || !whole {
			l.giveUp()
			return
		}
		l.compact(lines)
	}
}

// giveUp removes the file, and writes no more. The caller holds l.mu.
func (l *PipeLog) giveUp() {
	_ = errors.Join(os.Remove(l.path), l.file.Close()) // nothing more can be done about an error
	l.file = nil
}

// compact replaces the file, whose lines without their signatures are b, by one that says the
// same without what is over. The caller holds l.mu.
func (l *PipeLog) compact(b []byte) {
	var short bytes.Buffer
	chain := chainOf(l.path, l.key)
	write := func(words ...string) {
		line := strings.Join(words, " ")
		fmt.Fprintln(&short, line, chain.Next(line))
	}
	write(lineFormat, formatTellsGone)
	said := replay(b)
	for _, s := range said.sessions {
		write(lineOpened, s.id, strconv.FormatUint(uint64(s.token), 10))
		for _, child := range s.children {
			write(lineAttached, s.id, child)
		}
		for r, auth := range s.paused {
			write(linePaused, r.sessionID, r.requestID, kindOfPause(auth))
		}
	}
	for _, page := range said.private {
		write(linePrivate, page.opener, page.target)
	}
	next := l.path + ".new"
	file, err := os.OpenFile(next, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	if err == nil {
		if _, err = file.Write(short.Bytes()); err == nil {
			err = os.Rename(next, l.path)
		}
		if err != nil {
			_ = errors.Join(file.Close(), os.Remove(next)) // the old file is given up as well
		}
	}
	if err != nil {
		l.giveUp()
		return
	}
	_ = l.file.Close() // of the old file
	l.file, l.chain, l.size, l.limit = file, chain, short.Len(), max(largestPipeLog, 2*short.Len())
}

// kindOfPause is the last word of a linePaused.
func kindOfPause(auth bool) string {
	if auth {
		return "auth"
	}
	return "plain"
}

// replay reads the lines of a pipe log without their signatures, and returns the browser sessions
// that are open, and the private pages. A last line without its newline does not count.
func replay(b []byte) (said onPipe) {
	var sessions []*inheritedSession
	tellsGone := false
	owners := map[string]*inheritedSession{} // by CDP session, children too
	for line := range bytes.Lines(b) {
		words := strings.Fields(string(line))
		if len(words) < 2 || line[len(line)-1] != '\n' {
			continue
		}
		s := owners[words[1]]
		switch word := words[0]; {
		case word == lineFormat:
			tellsGone = words[1] == formatTellsGone
		case word == lineOpened && len(words) == 3:
			token, err := strconv.ParseUint(words[2], 10, 64)
			if err != nil {
				continue
			}
			s = &inheritedSession{id: words[1], token: lease.Token(token), paused: map[pausedRequest]bool{}}
			sessions, owners[s.id] = append(sessions, s), s
		case word == linePrivate && len(words) == 3:
			said.private = append(said.private, privatePage{words[1], words[2]})
		case word == lineGone && len(words) == 2:
			said.private = slices.DeleteFunc(said.private, func(p privatePage) bool { return p.target == words[1] })
		case s == nil:
		case word == lineClosed:
			for sessionID, owner := range owners {
				if owner == s {
					delete(owners, sessionID)
				}
			}
			if !tellsGone {
				said.private = slices.DeleteFunc(said.private, func(p privatePage) bool { return p.opener == s.id })
			}
		case word == lineAttached && len(words) == 3:
			owners[words[2]] = s
		case word == lineDetached:
			delete(owners, words[1])
			for r := range s.paused {
				if r.sessionID == words[1] {
					delete(s.paused, r)
				}
			}
		case word == linePaused && len(words) == 4:
			s.paused[pausedRequest{words[1], words[2]}] = words[3] == kindOfPause(true)
		case word == lineSettled && len(words) == 3:
			delete(s.paused, pausedRequest{words[1], words[2]})
		}
	}
	for _, s := range sessions {
		if owners[s.id] != s {
			continue
		}
		for sessionID, owner := range owners {
			if owner == s && sessionID != s.id {
				s.children = append(s.children, sessionID)
			}
		}
		said.sessions = append(said.sessions, *s)
	}
	return said
}
