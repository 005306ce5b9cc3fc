package monitor

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/chromedp/cdproto/network"
)

// netLog is how far Chrome's NetLog is read. Its methods may be called concurrently.
type netLog struct {
	ended chan struct{} // closed when it is not read any more

	mu    sync.Mutex
	haste int           // how many cannot wait for it
	hurry chan struct{} // closed while somebody cannot
	marks map[string]chan struct{}
}

func newNetLog() *netLog {
	return &netLog{ended: make(chan struct{}), hurry: make(chan struct{}), marks: map[string]chan struct{}{}}
}

// hasten has the log read without pauses, until slow is called.
func (l *netLog) hasten() (slow func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.haste++; l.haste == 1 {
		close(l.hurry)
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.haste--; l.haste == 0 {
			l.hurry = make(chan struct{})
		}
	}
}

func (l *netLog) hurried() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hurry
}

// await returns a channel that is closed when a line with the mark is read. The caller calls forget
// in the end.
func (l *netLog) await(mark string) (seen <-chan struct{}, forget func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := make(chan struct{})
	l.marks[mark] = c
	return c, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.marks, mark)
	}
}

// read takes in that a line, and everything before it, is read.
func (l *netLog) read(line []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for mark, seen := range l.marks {
		if bytes.Contains(line, []byte(mark)) {
			close(seen)
			delete(l.marks, mark)
		}
	}
}

// readPause is how long the launcher waits for more, before it reads again: Chrome writes a few lines
// at a time, and each read wakes a thread. The pipe has room for what comes meanwhile.
const readPause = 50 * time.Millisecond

// patientReader reads a pipe in larger pieces, unless somebody cannot wait.
type patientReader struct {
	from io.Reader
	log  *netLog
	full bool // the last read filled its space
}

func (r *patientReader) Read(p []byte) (n int, err error) {
	if !r.full {
		select {
		case <-time.After(readPause):
		case <-r.log.hurried():
		}
	}
	n, err = r.from.Read(p)
	r.full = n == len(p)
	return n, err
}

// markURL is the beginning of a URL that Chrome asks for without sending anything: port 1 is one that
// it refuses, before it looks for a host that does not exist, or for a proxy.
const markURL = "http://leasehold.invalid:1/"

// AwaitLogged returns when everything is read that the network service did before the call. It writes
// its log some 15 events at a time. So Chrome is told to load a URL that it refuses, which makes twice
// as many events: once a line about that is read, so is everything before it. Chrome loads it for a
// page, but asks neither the page nor whoever intercepts its requests, and tells nobody: the page may
// be stopped, busy or crashed.
func (m *Monitor) AwaitLogged(ctx context.Context) error {
	defer m.netLog.hasten()()
	mark := markURL + rand.Text()
	seen, forget := m.netLog.await(mark)
	defer forget()
	err := errors.New("no page is open")
	for _, p := range m.Pages() {
		if err = m.chrome.Call(ctx, p.SessionID, network.CommandLoadNetworkResource, map[string]any{
			"frameId": p.TargetID, "url": mark, "options": map[string]bool{"disableCache": true, "includeCredentials": false},
		}, nil); err == nil || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("the browser's log of its network cannot be marked: %w", err)
	}
	select {
	case <-seen:
		return nil
	case <-m.netLog.ended:
		return errors.New("the browser's log of its network is not read any more")
	case <-ctx.Done():
		return fmt.Errorf("a mark does not come in the browser's log of its network: %w", context.Cause(ctx))
	}
}

// HurryNetLog has the NetLog read without pauses from now on: somebody waits for its end.
func (m *Monitor) HurryNetLog() { m.netLog.hasten() }
