package chaos

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"leasehold/internal/boottime"
	"leasehold/lease"
)

// change is a profile's way to another home: under which token, to whom, and when it was known.
type change struct {
	token    lease.Token
	to       string
	known    Entry
	byPerson bool
	move     *lease.Move // nil: only an event told of it
}

// changes are the changes of a profile's home, by token, as events and records tell of them.
func changes(entries []Entry) []change {
	byToken := map[lease.Token]change{}
	for _, e := range entries {
		switch {
		case e.Kind == Published && e.Event.Event == lease.EventMoved:
			if _, known := byToken[e.Event.Token]; !known {
				byToken[e.Event.Token] = change{e.Event.Token, e.Event.Home, e, e.Event.Person != "", nil}
			}
		case e.Kind == Moved:
			known := e
			if before, ok := byToken[e.Token]; ok {
				known = before.known
			}
			byToken[e.Token] = change{e.Token, e.Home, known, e.Move.Person != "", e.Move}
		}
	}
	all := make([]change, 0, len(byToken))
	for _, c := range byToken {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b change) int { return cmp.Compare(a.token, b.token) })
	return all
}

// before is the last change under a token up to this one.
func before(all []change, token lease.Token) (change, bool) {
	for _, c := range slices.Backward(all) {
		if c.token <= token {
			return c, true
		}
	}
	return change{}, false
}

// contested are the tokens of the profile's reviews in which a person said which launcher is
// its home: what follows from moves under lower ones is not known any more.
func contested(entries []Entry) []lease.Token {
	var all []lease.Token
	for _, e := range entries {
		if e.Kind == Published && e.Event.Reason == lease.ReasonContested {
			all = append(all, e.Event.Token)
		}
	}
	return all
}

// anyWithin tells whether one of the tokens is above a and not above b.
func anyWithin(tokens []lease.Token, a, b lease.Token) bool {
	return slices.ContainsFunc(tokens, func(t lease.Token) bool { return t > a && t <= b })
}

// checkHomes checks that a profile is used only where its home is, that what was left is not
// opened, that two hosts do not have it at the same time, and that it moves by itself only with
// all that was done.
func (c *checker) checkHomes(profile string, entries []Entry) {
	all, disputed := changes(entries), contested(entries)
	away := map[lease.Token]bool{}
	for _, e := range only(entries, Requested) {
		last, moved := before(all, e.Token)
		if moved && e.Home != "" && e.Home != last.to && !anyWithin(disputed, last.token, e.Token) && !away[e.Token] {
			away[e.Token] = true
			c.add(NotAtHome, profile, fmt.Sprintf("token %d is used at %s, and %s is the home since token %d", e.Token, e.Home, last.to, last.token), last.known, e)
		}
	}
	for _, e := range only(entries, Opened) {
		c.checkOpened(profile, all, disputed, e)
	}
	for _, e := range only(entries, Doubled) {
		// A person who says that a home is gone which is only frozen, or cut off, can make it so.
		last, moved := change{}, false
		for _, m := range all {
			if m.known.At < e.At {
				last, moved = m, true
			}
		}
		if !moved || !last.byPerson {
			c.add(TwoPlaces, profile, e.Text, e)
		}
	}
	for _, m := range all {
		if m.move == nil || m.byPerson {
			continue
		}
		if m.move.Directory != lease.DirectorySnapshot {
			c.add(MovedPast, profile, fmt.Sprintf("to %s under token %d, by itself, and its directory is %s", m.to, m.token, m.move.Directory), m.known)
		}
		for _, e := range entries {
			token := e.Token
			if e.Kind == Published && e.Event.Event == lease.EventGranted {
				token = e.Event.Token
			} else if e.Kind != Granted {
				continue
			}
			if token > m.move.SnapshotToken && token < m.token {
				c.add(MovedPast, profile, fmt.Sprintf("to %s under token %d with a snapshot of token %d, and token %d was granted in between", m.to, m.token, m.move.SnapshotToken, token), e, m.known)
				break
			}
		}
	}
}

// checkOpened checks that the directory of a browser that was started is at the profile's home.
func (c *checker) checkOpened(profile string, all []change, disputed []lease.Token, opened Entry) {
	var last change
	for _, m := range all {
		if m.known.At < opened.Since && m.token > last.token {
			last = m
		}
	}
	if last.to == "" || owns(opened.Home, last.to) {
		return
	}
	for _, m := range all { // it may have come there since, which was known later
		if m.token > last.token && owns(opened.Home, m.to) {
			return
		}
	}
	if anyWithin(disputed, last.token, ^lease.Token(0)) {
		return
	}
	c.add(LeftOpened, profile, fmt.Sprintf("%s, and %s is the home since token %d", opened.Text, last.to, last.token), last.known, opened)
}

// owns tells whether a directory on the disk is that of the launcher.
func owns(disk, launcher string) bool {
	return disk == launcher || disk == sharedDisk && slices.Contains([]string{leftHost, rightHost}, launcher)
}

// checkKept checks that what a session that ended in order had is there in each later one, save
// what a person gave up.
func (c *checker) checkKept(profile string, entries []Entry) {
	all, disputed, inOrder := changes(entries), contested(entries), c.keptInOrder(entries)
	for _, e := range only(entries, Found) {
		want := lastKept(inOrder, all, disputed, e, e.Token)
		if found := min(e.Cookie, e.Stored); found < want.token {
			c.add(Older, profile, fmt.Sprintf("token %d finds what tokens %d (cookie) and %d (local storage) left, and token %d ended in order", e.Token, e.Cookie, e.Stored, want.token), want.shown, e)
		}
	}
}

// kept is what a session that ended in order left in the profile.
type kept struct {
	token lease.Token
	shown Entry
}

// keptInOrder are what sessions left that ended in order.
func (c *checker) keptInOrder(entries []Entry) []kept {
	// An answered release alone does not say that the session ended in order: its browser may
	// have been killed on the way.
	wrote := map[string]Entry{} // by session
	var inOrder []kept
	for _, e := range entries {
		switch {
		case e.Kind == Wrote:
			wrote[e.Session] = e
		case e.Kind == Published && e.Event.Event == lease.EventReleased:
			if w := wrote[e.Event.SessionID]; w.Token != 0 && (w.Worker == visitorName || !c.diskFull(w.At, e.At)) {
				inOrder = append(inOrder, kept{w.Token, w})
			}
		}
	}
	return inOrder
}

// lastKept is what was left last under a token below one, of what has to be there in what was found.
func lastKept(inOrder []kept, all []change, disputed []lease.Token, found Entry, below lease.Token) (want kept) {
	for _, k := range inOrder {
		if k.token < below && k.token > want.token && k.shown.At < found.At && !anyWithin(disputed, k.token, found.Token) && !givenUp(all, k.token, found.Token) {
			want = k
		}
	}
	return want
}

// givenUp tells whether a person gave up what was done under a token, before a later one.
func givenUp(all []change, token, later lease.Token) bool {
	return slices.ContainsFunc(all, func(m change) bool {
		if m.token <= token || m.token > later || !m.byPerson {
			return false
		}
		return m.move == nil || m.move.Directory != lease.DirectorySnapshot || m.move.SnapshotToken < token
	})
}

// diskFull tells whether some launcher's disk was full at any time between two instants: a
// browser loses what it cannot write, and that is noticed only at its end. A disk that is full from
// before a session's end to after it is in the sessions of the harness's own.
func (c *checker) diskFull(from, to boottime.Instant) bool {
	since := boottime.Instant(0)
	for _, e := range c.faults {
		switch {
		case e.Text != FullLauncher && e.Text != FullAtEnd && e.Text != NoInodes:
		case e.Kind == Fault:
			since = e.At
		case since != 0:
			if since < to && e.At.Add(diskFullFor) > from {
				return true
			}
			since = 0
		}
	}
	return since != 0 && since < to
}

// diskFullFor is for how long after a disk was full a browser may still not have written what it
// has in memory.
const diskFullFor = 30 * time.Second

// checkTurns checks that no session was granted while another one had the profile, where all
// events between them were seen.
func (c *checker) checkTurns(profile string, epoch int, begin time.Time, events []Entry) {
	var holder Entry
	for i, e := range events {
		if i > 0 && (e.Event.Sequence != events[i-1].Event.Sequence+1 || epoch > 0 && !events[i-1].Made.After(begin)) {
			holder = Entry{}
		}
		switch e.Event.Event {
		case lease.EventGranted:
			if holder.Event != nil && holder.Event.SessionID != e.Event.SessionID {
				c.add(GrantedTwice, profile, fmt.Sprintf("session %s under token %d, and session %s has not ended", e.Event.SessionID, e.Event.Token, holder.Event.SessionID), holder, e)
			}
			holder = e
			if c.served[e.Event.TaskID] == nil {
				c.served[e.Event.TaskID] = map[string]Entry{}
			}
			c.served[e.Event.TaskID][e.Event.SessionID] = e
		case lease.EventReleased, lease.EventExpired:
			holder = Entry{}
		}
	}
}

// checkServed checks that no request was given two sessions. Who asks again, since a task is to
// be resumed or another launcher is to be asked, may be given one for each time.
func (c *checker) checkServed() {
	for _, task := range sortedKeys(c.served) {
		if n := c.asked[task]; n > 0 && len(c.served[task]) > n {
			var shown []Entry
			for _, session := range sortedKeys(c.served[task]) {
				shown = append(shown, c.served[task][session])
			}
			c.add(ServedTwice, shown[0].Profile, fmt.Sprintf("task %s asked %d times and was granted %d sessions", task, n, len(shown)), shown...)
		}
	}
}
