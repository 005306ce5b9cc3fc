package model

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"leasehold/lease"
)

// The rules that are checked, with the number of the promise that each belongs to.
const (
	OneChrome     = "P1 one Chrome per directory"
	TokensGrow    = "P2 granted tokens only grow"
	StaleWrites   = "P3 a stale holder writes nothing"
	StopsFirst    = "P3 a holder stops before anybody else acts"
	EvidenceFirst = "P4 evidence first"
	Inspected     = "P5 nobody opens what was not inspected"
	NothingLost   = "P7 each transition is one event, without gaps"
	EveryRunEnds  = "P7 each granted run ends by one event"
	TheTable      = "the table of transitions, and who states what"
	HonestSwap    = "a swap says what it did"
)

// checker checks the rules. It sees the whole world at once, which no launcher can.
type checker struct {
	w       *World
	table   []lease.Transition // all transitions that the rules allow
	applied map[string]fate    // what became of writes, by nonce
	forgot  int64              // when the store forgot last
	losses  int                // how often the store forgot
	sealed  map[string]bool    // the bundles that are stored
	truths  map[string]*truth  // by profile
	closed  map[string]uint64  // by launcher: its last epoch that others closed
	swaps   []*Swap
}

// truth is what really happened to a profile.
type truth struct {
	highest lease.Token // the highest token that was granted
	// generation is the token of the last grant that opened the profile, as opposed to
	// one that joined others.
	generation lease.Token
	done       map[lease.Token]bool // runs of this generation that ended
	// uninspected says that a browser was on the directory since it was last found to
	// be in order.
	uninspected bool
	stream      []lease.Event // the last events
	last        uint64        // the sequence of the last event
	most        uint64        // the highest of all sequences
	losses      int           // checker.losses when the last event was published
	// open has the runs that were granted, and over those that have ended since. The
	// value is checker.losses at the grant.
	open, over map[lease.Token]int
}

func newChecker(w *World) checker {
	return checker{
		w: w, table: lease.Table(), applied: map[string]fate{}, forgot: -1e18, sealed: map[string]bool{}, truths: map[string]*truth{}, closed: map[string]uint64{},
	}
}

func (c *checker) of(profile string) *truth {
	t := c.truths[profile]
	if t == nil {
		t = &truth{done: map[lease.Token]bool{}, open: map[lease.Token]int{}, over: map[lease.Token]int{}}
		c.truths[profile] = t
	}
	return t
}

// started checks the start of a browser.
func (c *checker) started(b *chrome) {
	c.w.counts["browsers started"]++
	t := c.of(b.d.profile)
	if n := len(b.d.chrome); n > 1 {
		c.w.broken(OneChrome, "%d browsers on %s: token %d on %s, token %d on %s", n, b.d.profile,
			b.d.chrome[0].token, b.d.chrome[0].host.id, b.token, b.host.id)
	}
	if t.uninspected {
		c.w.broken(Inspected, "token %d opens %s, and nobody inspected it since a browser was on it", b.token, b.d.profile)
	}
	t.uninspected = true
}

// granted checks a token that was granted to a launcher, which has written it to its disk.
func (c *checker) granted(d *directory, token lease.Token, joined bool) {
	c.w.counts["grants"]++
	t := c.of(d.profile)
	if token <= t.highest {
		c.w.broken(TokensGrow, "token %d of %s is granted after %d", token, d.profile, t.highest)
	}
	t.highest = token
	if !joined {
		t.generation = token
		clear(t.done)
	}
}

// ended remembers that a run ended.
func (c *checker) ended(d *directory, token lease.Token) { c.of(d.profile).done[token] = true }

// write checks a message that reached a browser.
func (c *checker) write(b *chrome, token lease.Token) {
	c.w.counts["writes"]++
	t := c.of(b.d.profile)
	switch {
	case token < t.generation || t.done[token]:
		c.w.broken(StaleWrites, "a write under token %d reaches a browser of %s after token %d was granted", token, b.d.profile, t.highest)
	case b.epoch <= c.closed[b.host.id]:
		c.w.broken(StaleWrites, "a write under token %d reaches a browser of %s after others closed epoch %d of %s", token, b.d.profile, b.epoch, b.host.id)
	}
}

// stopped checks that the launcher's stay with that epoch, and those before, hold nothing any
// more.
func (c *checker) stopped(launcher string, epoch uint64, what string) {
	w := c.w
	for _, h := range w.hosts {
		if h.id != launcher || h.p == nil || h.p.stay == nil || h.p.stay.Epoch() > epoch {
			continue
		}
		if left := h.p.stay.Deadline().Sub(h.p.clock()); left > 0 {
			w.broken(StopsFirst, "%s, and epoch %d of %s has %v left by its own clock", what, epoch, launcher, left)
		}
	}
	if !w.o.Shared {
		return
	}
	for _, profile := range keys(w.dirs) {
		for _, b := range w.dirs[profile].chrome {
			if b.host.id == launcher && b.epoch <= epoch {
				w.broken(StopsFirst, "%s, and a browser of epoch %d of %s is on %s, which other hosts can open", what, b.epoch, launcher, profile)
			}
		}
	}
}

// presence checks a presence that is stored, and returns it.
func (c *checker) presence(writer string, prev, next version[lease.Presence]) lease.Presence {
	c.w.counts["presences written"]++
	p, n := prev.value, next.value
	c.w.sharp(n.LauncherID, next.revision)
	if n.Closed && !p.Closed && writer != n.LauncherID {
		c.w.counts["presences closed by others"]++
		c.closed[n.LauncherID] = max(c.closed[n.LauncherID], n.Epoch)
		c.stopped(n.LauncherID, n.Epoch, fmt.Sprintf("%s closes the presence of %s", writer, n.LauncherID))
	}
	return n
}

// record checks a record that is stored. It publishes its events, and returns the record
// without them.
func (c *checker) record(writer string, prev, next version[lease.Record]) lease.Record {
	c.w.counts["records written"]++
	p, n := prev.value, next.value
	published := c.publish(n)
	t := c.of(n.ProfileID)
	rewritten := published == 0 && n.State == lease.Held && n.Token > p.Token && writer == n.LauncherID
	if rewritten {
		c.w.counts["leases written again"]++
	}
	if n.Token < p.Token && !c.recounting() {
		c.w.broken(TokensGrow, "%s stores token %d of %s over %d", writer, n.Token, n.ProfileID, p.Token)
	}
	// Does the write have events? They are on the stream by now, perhaps since a try
	// from before the store went back.
	events := slices.ContainsFunc(n.Outbox, func(e lease.Event) bool { return e.Sequence > p.Sequence })
	switch {
	case rewritten:
	case !events:
		if !c.recounting() && (p.State != n.State || p.Token != n.Token || len(p.Runs) != len(n.Runs)) {
			c.w.broken(NothingLost, "%s of %s, token %d, became %s, token %d, without an event", p.State, n.ProfileID, p.Token, n.State, n.Token)
		}
	case !slices.ContainsFunc(c.table, func(row lease.Transition) bool {
		return row.From == p.State && row.To == n.State && May(row.By, writer, p, n)
	}):
		c.w.broken(TheTable, "%s makes %s of %s (%s)", writer, n.State, cmp.Or(p.State, "nothing"), n.ProfileID)
	}
	if events && !rewritten {
		c.w.counts["transitions"]++
		c.moved(writer, t, p, n)
	}
	n.Outbox = nil
	return n
}

// May tells whether the writer, who replaced p by n, is such an actor. A writer is the id of
// a launcher, or Person.
func May(by lease.Actor, writer string, p, n lease.Record) bool {
	switch by {
	case lease.Holder:
		return writer == p.LauncherID
	case lease.Home:
		return writer == n.Home && (p.Home == "" || p.Home == writer)
	case lease.AnyLauncher:
		return writer != Person
	default:
		return writer == Person
	}
}

// moved checks a transition from p to n.
func (c *checker) moved(writer string, t *truth, p, n lease.Record) {
	if n.State == lease.Quarantined && p.State != lease.Quarantined {
		if n.Token <= p.Token {
			c.w.broken(StaleWrites, "quarantine of %s leaves token %d valid", n.ProfileID, p.Token)
		}
		if writer != p.LauncherID && p.LauncherID != "" {
			c.stopped(p.LauncherID, p.PresenceEpoch, fmt.Sprintf("%s fences %s", writer, n.ProfileID))
		}
	}
	decided := n.Token == p.Token && (n.State == lease.Available || n.State == lease.ResumePending)
	examined := n.State == lease.Inspected && p.State == lease.Quarantined
	abandoned := n.State == lease.ManualReview && p.State == lease.Quarantined && n.Token == p.Token
	if (decided && p.State != lease.ManualReview || examined || abandoned) && !c.sealed[n.EvidenceID] {
		c.w.broken(EvidenceFirst, "%s of %s became %s, and its bundle %q is not stored", p.State, n.ProfileID, n.State, n.EvidenceID)
	}
	if decided || n.State == lease.ManualReview && p.State == lease.Inspected {
		if want := bundleOf(n.ProfileID, n.SessionID); n.EvidenceID != want && p.State != lease.ManualReview {
			c.w.broken(EvidenceFirst, "%s of %s became %s with bundle %q, want %q", p.State, n.ProfileID, n.State, n.EvidenceID, want)
		}
	}
	if decided {
		t.uninspected = false
	}
}

// inspected checks the inspection of a directory.
func (c *checker) inspected(p *process, d *directory) {
	c.w.counts["inspections"]++
	if home := c.w.server.records.last(d.profile).value.Home; home != "" && home != p.host.id {
		c.w.broken(TheTable, "%s inspects %s, whose home is %s", p.host.id, d.profile, home)
	}
	if len(d.chrome) > 0 {
		c.w.broken(OneChrome, "%s inspects %s under a browser of %s", p.host.id, d.profile, d.chrome[0].host.id)
	}
}

func bundleOf(profile, session string) string { return "ev-" + profile + "-" + session }

// seal stores the bundle of the session.
func (c *checker) seal(profile, session string) lease.Sealed {
	id := bundleOf(profile, session)
	c.sealed[id] = !c.w.mutant("no bundle stored")
	return lease.Sealed{EvidenceID: id}
}

// publish publishes the events of the record that are not on the stream yet, and returns how
// many those were.
func (c *checker) publish(r lease.Record) (published int) {
	t := c.of(r.ProfileID)
	for _, e := range r.Outbox {
		if slices.ContainsFunc(t.stream, func(old lease.Event) bool {
			return old.Sequence == e.Sequence && old.Event == e.Event && old.Token == e.Token && old.RunToken == e.RunToken && old.At.Equal(e.At)
		}) {
			continue
		}
		published++
		// After the store forgot, sequences count from an old record, until somebody
		// who remembers the newer one writes it.
		forgot := c.losses > t.losses || t.last < t.most
		if e.Sequence != t.last+1 && !forgot {
			c.w.broken(NothingLost, "event %s of %s has sequence %d after %d", e.Event, r.ProfileID, e.Sequence, t.last)
		}
		c.w.counts["events"]++
		t.stream = append(t.stream, e)
		if len(t.stream) > 64 {
			t.stream = slices.Clone(t.stream[32:])
		}
		t.last, t.most, t.losses = e.Sequence, max(t.most, e.Sequence), c.losses
		c.runs(t, e)
	}
	return published
}

// runs checks that each run that was granted ends once.
func (c *checker) runs(t *truth, e lease.Event) {
	run := cmp.Or(e.RunToken, e.Token)
	switch e.Event {
	case lease.EventGranted:
		if e.Reason != "reasserted" {
			t.open[run] = c.losses
		}
	case lease.EventReleased, lease.EventExpired:
		// If the store forgot since the grant, the end may be published again.
		granted, open := t.open[run]
		if !open {
			var over bool
			if granted, over = t.over[run]; !over || granted == c.losses {
				c.w.broken(EveryRunEnds, "run %d of %s is %s, and was not open", run, e.ProfileID, e.Event)
			}
		}
		delete(t.open, run)
		t.over[run] = granted
	case string(lease.Available), string(lease.ResumePending), string(lease.Inspected):
		for run, losses := range t.open {
			if losses == c.losses {
				c.w.broken(EveryRunEnds, "%s is %s, and run %d of it never ended", e.ProfileID, e.Event, run)
			}
		}
	}
}

// Swap is one compare-and-swap as its writer saw it.
type Swap struct {
	Key string
	// Expected is the revision that it was to replace. Wrote is its own revision; zero
	// if it was never stored.
	Expected, Wrote uint64
	Call, Return    int64 // when it began and ended, in virtual nanoseconds
	Outcome         Outcome

	nonce string
}

// Outcome is what a writer learnt about its write.
type Outcome int

// The outcomes.
const (
	Unknown Outcome = iota
	Stored
	Moved
)

// fate is what happened to a write.
type fate int

const (
	unseen    fate = iota // it did not reach the store
	stands                // it was stored
	forgotten             // it was stored, and the store went back
	refused               // its writer learnt that it was not stored
)

// recounting tells whether the store went back not long ago. Then it gives revisions a second
// time, and an older write may expect one of them. The floor guards against the consequences.
func (c *checker) recounting() bool { return c.w.now-c.forgot < int64(2*time.Minute) }

// stored checks a write that is stored.
func (c *checker) stored(op *Swap, revision uint64) {
	if !c.w.o.Keep && c.applied[op.nonce] == refused && !c.recounting() {
		c.w.broken(HonestSwap, "a write of %s is stored after its writer was told that it was not", op.Key)
	}
	c.applied[op.nonce], op.Wrote = stands, revision
}

// begin returns a Swap that begins now.
func (c *checker) begin(key string, expected uint64, nonce string) *Swap {
	op := &Swap{Key: key, Expected: expected, nonce: nonce, Call: c.w.now}
	if c.w.o.Keep {
		c.swaps = append(c.swaps, op)
	}
	return op
}

// end compares what a writer believes about its swap with what happened.
func (c *checker) end(s *Swap, stored uint64, err error) {
	s.Return = c.w.now
	c.w.counts["swaps"]++
	switch {
	case err == nil && stored != 0:
		s.Outcome = Stored
		if !c.w.o.Keep && c.applied[s.nonce] == unseen {
			c.w.broken(HonestSwap, "a write of %s over revision %d was not stored, and its writer is told that it was", s.Key, s.Expected)
		}
	case errors.Is(err, errMoved):
		s.Outcome = Moved
		if !c.w.o.Keep && c.applied[s.nonce] == stands {
			c.w.broken(HonestSwap, "a write of %s over revision %d was stored, and its writer is told that it was not", s.Key, s.Expected)
		}
		c.applied[s.nonce] = refused
	}
}
