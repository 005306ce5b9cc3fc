package bubble

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"leasehold/launcher/api"
	"leasehold/lease"
)

// The promises about ephemeral sessions.
const (
	readerApart  = "an ephemeral session is on a copy of its own"
	readerNewest = "an ephemeral session has what ended in order before its snapshot, and nothing else"
	readersGone  = "of an ephemeral session nothing is left"
	readerStill  = "nothing is sent beside an account that has to stand still"
)

// spoilt is what each of them writes where the others find what the account has.
const spoilt = 1 << 40

// copies is the directory of a host where they are.
func (h *host) copies() string { return filepath.Join(h.data, "readers") }

// asksToRead asks a launcher for ephemeral sessions of the profile that roams.
func (w *world) asksToRead(p *process) {
	if p == nil {
		return
	}
	for range 1 + w.below(3) {
		readOnly := w.dice(2)
		q := request{
			manifest: api.Manifest{ProfileID: roams, WorkerID: "w", TaskID: fmt.Sprint("task-", w.below(3)), Ephemeral: true, ReadOnly: &readOnly},
			worksFor: w.between(2*time.Second, 40*time.Second), connects: !w.dice(3), drops: w.dice(4), lost: w.dice(3), stubborn: w.dice(6),
		}
		if w.dice(3) {
			q.manifest.ProfileID, q.manifest.Labels = "", lease.Labels{poolLabel: "*"}
		}
		w.asks.Go(func() {
			if err := p.ask(q); err != nil {
				w.note("%s: %s is not to be read: %v", p.host.id, roams, err)
			}
		})
	}
}

// begins forgets what a profile had: it begins with something else.
func (t *truth) begins() { t.inOrder, t.orderly = 0, nil }

// reads notes a browser that is started on a copy, in which it changes what the account has.
func (c *checker) reads(b *fakeChrome) {
	c.w.count("browsers of ephemeral sessions")
	if filepath.Base(b.path) != b.session {
		c.w.broken(readerApart, "the browser of session %s is on %s", b.session, b.path)
	}
	_ = os.WriteFile(filepath.Join(b.path, keptFile), strconv.AppendInt(nil, spoilt, 10), 0o600)
}

// reading checks an ephemeral session that was granted.
func (c *checker) reading(p *process, s api.Session) {
	c.w.count("ephemeral sessions")
	if r := c.w.recordOf(s.ProfileID); r.SessionID == s.SessionID {
		c.w.broken(readerApart, "session %s has the lease of %s", s.SessionID, s.ProfileID)
	}
	if s.Token == 0 || s.ProfileID != roams {
		c.w.broken(readerNewest, "session %s at %s is of %q, token %d", s.SessionID, p.host.id, s.ProfileID, s.Token)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var want lease.Token
	for _, kept := range c.of(s.ProfileID).orderly {
		if kept <= s.Token {
			want = max(want, kept)
		}
	}
	for _, b := range c.w.browsersOn(filepath.Join(p.host.copies(), s.SessionID)) {
		b.mu.Lock()
		b.token, b.writes = s.Token, !s.ReadOnly
		b.mu.Unlock()
		if !c.w.full && (b.found < want || b.found > s.Token) {
			c.w.broken(readerNewest, "session %s of a snapshot of token %d has what token %d left, want that of %d", s.SessionID, s.Token, b.found, want)
		}
	}
}

// mustStandStill tells whether nobody may act in the account of a profile in this state.
func mustStandStill(s lease.State) bool {
	switch s {
	case lease.SuspectedStale, lease.Quarantined, lease.Inspected, lease.ManualReview, lease.ResumePending:
		return true
	}
	return false
}

// writers are the browsers of ephemeral sessions whose pages may send what they want, and whose
// launcher lives.
func (w *world) writers() (all []*fakeChrome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.chromes {
		c.mu.Lock()
		if c.writes && c.by.as == "" && !c.by.dead.Load() {
			all = append(all, c)
		}
		c.mu.Unlock()
	}
	return all
}

// writesOn finds those that are left although the account has to stand still for so long that
// their launcher has to know.
func (c *checker) writesOn() {
	state := c.w.recordOf(roams).State
	c.mu.Lock()
	defer c.mu.Unlock()
	since := c.w.now() - c.of(roams).since
	for _, b := range c.w.writers() {
		if mustStandStill(state) && since > restating && c.couldSay(b.host.id) {
			c.w.broken(readerStill, "session %s on %s may write, and %s has been %s for %v", b.session, b.host.id, roams, state, since)
		}
	}
}

// readersLeft is what is left of ephemeral sessions, which all have ended.
func (w *world) readersLeft() (left []string) {
	w.mu.Lock()
	for _, c := range w.chromes {
		if c.reader {
			left = append(left, fmt.Sprintf("%v is on the copy %s", c, c.path))
		}
	}
	w.mu.Unlock()
	for _, h := range w.hosts {
		entries, err := os.ReadDir(h.copies())
		if err != nil {
			w.broken("the world", "%v", err)
		}
		for _, e := range entries {
			if e.Name()[0] != '.' { // the guard's directory, and that of unpacked snapshots
				left = append(left, fmt.Sprintf("the copy %s is on %s", e.Name(), h.id))
			}
		}
	}
	return left
}
