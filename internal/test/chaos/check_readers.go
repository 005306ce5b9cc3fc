package chaos

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// readersDir is where a launcher has the copies of its readers, in its data directory.
const readersDir = "readers"

// readerTime is how long a request of a reader that has ended may be on its way to the witness, on
// a busy host.
const readerTime = 5 * time.Second

// checkReaders checks that readers leave the profile and its lease alone, that they see what
// their snapshot has, and that they send nothing once they are over.
func (c *checker) checkReaders(profile string, entries []Entry) {
	sessions, workers, ended := map[string]Entry{}, map[string]Entry{}, map[string]Entry{}
	for _, e := range entries {
		switch e.Kind {
		case Reader:
			sessions[e.Session], workers[e.Worker] = e, e
		case ReaderEnded:
			ended[e.Session] = e
		}
	}
	reported := map[string]bool{}
	once := func(kind, session, text string, shows ...Entry) {
		if !reported[kind+session] {
			reported[kind+session] = true
			c.add(kind, profile, text, shows...)
		}
	}
	for _, e := range entries {
		switch {
		case e.Kind == Published:
			for _, worker := range []string{e.Event.OwnerWorkerID, e.Event.BlockedWorkerID, e.Event.CurrentWorkerID} {
				if r, is := workers[worker]; is {
					once(ReaderInLease, worker, fmt.Sprintf("the event %s names worker %s, who only reads", e.Event.Event, worker), r, e)
				}
			}
			if r, is := sessions[e.Event.SessionID]; is {
				once(ReaderInLease, r.Session, fmt.Sprintf("the event %s is about session %s, which is a reader's", e.Event.Event, r.Session), r, e)
			}
		case e.Kind == Refused:
			if r, is := workers[e.Holder]; is {
				once(ReaderInLease, e.Holder, fmt.Sprintf("task %s is refused since %s has the profile, who only reads", e.Task, e.Holder), r, e)
			}
		case e.Kind == Found && max(e.Cookie, e.Stored) >= readerMark:
			once(ReaderWrote, e.Session, fmt.Sprintf("token %d finds what a reader wrote: %d (cookie) and %d (local storage)", e.Token, e.Cookie, e.Stored), e)
		case e.Kind == ReaderRequest && e.Text != "GET":
			once(ReaderUnsafe, e.Session, fmt.Sprintf("session %s sent %s", e.Session, e.Text), e)
		case e.Kind == ReaderRequest:
			if end, over := ended[e.Session]; over && e.At > end.At.Add(readerTime) {
				once(ReaderAfter, e.Session, fmt.Sprintf("session %s sends %v after its release was answered", e.Session, e.At.Sub(end.At)), end, e)
			}
		}
	}
	c.checkRead(profile, entries)
}

// checkRead checks that a reader finds what the session left, after which its snapshot was made.
func (c *checker) checkRead(profile string, entries []Entry) {
	all, disputed, inOrder := changes(entries), contested(entries), c.keptInOrder(entries)
	for _, e := range only(entries, ReaderFound) {
		if max(e.Cookie, e.Stored) > e.Token {
			c.add(ReaderAhead, profile, fmt.Sprintf("a reader of a snapshot of token %d finds what tokens %d (cookie) and %d (local storage) left", e.Token, e.Cookie, e.Stored), e)
		}
		if want := lastKept(inOrder, all, disputed, e, e.Token+1); min(e.Cookie, e.Stored) < want.token {
			c.add(Older, profile, fmt.Sprintf("a reader of a snapshot of token %d finds what tokens %d (cookie) and %d (local storage) left, and token %d ended in order", e.Token, e.Cookie, e.Stored, want.token), want.shown, e)
		}
	}
}

// readersLeave waits until nothing is left of readers, once no worker has one any more, and
// reports what stays.
func (h *harness) readersLeave(ctx context.Context) {
	if h.snapshots == nil {
		return
	}
	var left []string
	for deadline := time.Now().Add(decideTime); time.Now().Before(deadline); sleep(ctx, 200*time.Millisecond) {
		if left = h.readersLeft(); len(left) == 0 {
			return
		}
	}
	h.broken(ReaderLeft, "", "%s", strings.Join(left, ", "))
}

// readersLeft are the copies of readers that are on the hosts' disks, and their browsers.
func (h *harness) readersLeft() (left []string) {
	for _, host := range h.hosts {
		copies, err := filepath.Glob(filepath.Join(host.data.path, "d", readersDir, "ses_*"))
		if err != nil {
			return []string{err.Error()}
		}
		left = append(left, copies...)
	}
	all, err := browserProcesses(h.dir)
	if err != nil {
		return []string{err.Error()}
	}
	for _, p := range all {
		if p.main && ofReader(p) && !slices.Contains(left, p.dir) {
			left = append(left, fmt.Sprintf("pid %d on %s", p.PID, p.dir))
		}
	}
	return left
}

// ofReader tells whether a browser is on the copy of a reader.
func ofReader(p browserProcess) bool { return filepath.Base(filepath.Dir(p.dir)) == readersDir }
