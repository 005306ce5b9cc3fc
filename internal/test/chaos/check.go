package chaos

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"leasehold/internal/boottime"
	"leasehold/lease"
)

// The kinds of violations.
const (
	TwoBrowsers    = "two browsers on one directory"
	TwoPlaces      = "two browsers of one profile in two places"
	LeftOpened     = "directory opened that was left"
	NotAtHome      = "token used away from the profile's home"
	MovedPast      = "moved by itself past a session"
	Older          = "older state than an earlier session left"
	GrantedTwice   = "granted while another session had it"
	ServedTwice    = "one request served twice"
	WaiterLost     = "waiter not served"
	WaiterLeft     = "waiter left in the queue"
	Interleaved    = "tokens interleaved at the witness"
	TokenReused    = "one token for two sessions"
	TokenFell      = "token not above an earlier grant's"
	LateRequest    = "request below a granted token"
	StaleAccepted  = "write below a granted token accepted"
	EventDuplicate = "event twice on the stream"
	EventOrder     = "events out of order"
	EventGap       = "gap in the events"
	EventMissing   = "grant without its event"
	EventMissed    = "event not delivered to the subscriber"
	EndMissing     = "grant without exactly one end"
	NoEvidence     = "recovery state without evidence"
	Undecided      = "profile not decided"
	ReaderWrote    = "reader changed the profile"
	ReaderInLease  = "reader in the profile's lease"
	ReaderUnsafe   = "unsafe request of a reader"
	ReaderAhead    = "reader of another state than its snapshot's"
	ReaderAfter    = "reader at work after its end"
	ReaderLeft     = "reader left behind"
	SecondWriter   = "second launcher of an id at work"
	SplitGrant     = "granted while the servers are not one store"
	AheadRemoved   = "removed by a clock that is ahead"
	ReadyInVain    = "ready without room for a session"
	NotReady       = "launcher not ready after healing"
	NotDrained     = "launcher did not drain"
	Leaked         = "browser left behind"
	Crashed        = "panic or data race"
	Harness        = "harness"
)

// Violations are all kinds, in the order of the table.
var Violations = []string{
	TwoBrowsers, Interleaved, TokenReused, TokenFell, LateRequest, StaleAccepted, EventDuplicate, EventOrder, EventGap,
	EventMissing, EventMissed, EndMissing, TwoPlaces, LeftOpened, NotAtHome, MovedPast, Older, GrantedTwice, ServedTwice, WaiterLost, WaiterLeft,
	ReaderWrote, ReaderInLease, ReaderUnsafe, ReaderAhead, ReaderAfter, ReaderLeft,
	SecondWriter, SplitGrant, AheadRemoved, ReadyInVain, NoEvidence, Undecided, NotReady, NotDrained, Leaked, Crashed, Harness,
}

// Violation is one promise that was broken.
type Violation struct {
	Kind    string
	Profile string
	Text    string
	// Related are the entries that show the violation, and those around them.
	Related []Entry
}

// Check returns every violation that the history shows.
func Check(history []Entry) []Violation {
	c := checker{profiles: map[string][]Entry{}, read: map[position]bool{}, asked: map[string]int{}, served: map[string]map[string]Entry{}}
	for _, e := range history {
		switch e.Kind {
		case Published:
			c.read[position{e.Epoch, e.StreamSeq}] = true
		case Epoch:
			c.epoch = e
		case Settled:
			c.settled = true
		case Asked:
			if e.Text != byPriority {
				c.asked[e.Task]++
			}
		case Fault, Healed:
			c.faults = append(c.faults, e)
		case Broken:
			kind, text, _ := strings.Cut(e.Text, ": ")
			c.add(kind, e.Profile, text, e)
			continue
		}
		if e.Profile != "" {
			c.profiles[e.Profile] = append(c.profiles[e.Profile], e)
		}
	}
	for _, profile := range sortedKeys(c.profiles) {
		entries := c.profiles[profile]
		c.checkGrants(profile, entries)
		c.checkRequests(profile, entries)
		c.checkAccepted(profile, entries)
		c.checkEvents(profile, entries)
		c.checkHomes(profile, entries)
		c.checkKept(profile, entries)
		c.checkReaders(profile, entries)
	}
	c.checkServed()
	c.checkSecond(history)
	c.checkSplit(history)
	return c.found
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// position is the position of an event on the stream of an epoch.
type position struct {
	epoch int
	seq   uint64
}

type checker struct {
	profiles map[string][]Entry
	read     map[position]bool
	epoch    Entry // the last epoch's entry
	settled  bool
	faults   []Entry
	// asked counts the requests of each task, and served has its sessions.
	asked  map[string]int
	served map[string]map[string]Entry
	found  []Violation
}

// A violation comes with the profile's history within aroundTime before and after it,
// up to aroundEntries entries.
const (
	aroundTime    = 4 * time.Second
	aroundEntries = 40
)

func (c *checker) add(kind, profile, text string, shows ...Entry) {
	v := Violation{Kind: kind, Profile: profile, Text: text, Related: shows}
	if n := len(shows); n > 0 {
		at := shows[n-1].At
		for _, e := range c.profiles[profile] {
			near := e.At > at.Add(-aroundTime) && e.At < at.Add(aroundTime)
			if near && e.Kind != Requested && e.Kind != ReaderRequest && len(v.Related) < aroundEntries {
				v.Related = append(v.Related, e)
			}
		}
	}
	c.found = append(c.found, v)
}

func only(entries []Entry, kind Kind) []Entry {
	var found []Entry
	for _, e := range entries {
		if e.Kind == kind {
			found = append(found, e)
		}
	}
	return found
}

// checkGrants checks that a token belongs to one session, and that a request made after
// a grant was acknowledged gets a higher token.
func (c *checker) checkGrants(profile string, entries []Entry) {
	grants := only(entries, Granted)
	slices.SortStableFunc(grants, func(a, b Entry) int { return cmp.Compare(a.Since, b.Since) })
	sessions := map[lease.Token]Entry{}
	for i, g := range grants {
		if other, ok := sessions[g.Token]; ok && other.Session != g.Session {
			c.add(TokenReused, profile, fmt.Sprintf("token %d: sessions %s and %s", g.Token, other.Session, g.Session), other, g)
		}
		sessions[g.Token] = g
		for _, before := range grants[:i] {
			if before.At < g.Since && before.Session != g.Session && before.Token >= g.Token {
				c.add(TokenFell, profile, fmt.Sprintf("token %d was granted to who asked after token %d was acknowledged", g.Token, before.Token), before, g)
				break
			}
		}
	}
}

// ceiling finds the highest token that was acknowledged before an instant.
type ceiling struct {
	grants []Entry // in the order of At, with rising tokens
}

func ceilingOf(entries []Entry) ceiling {
	grants := only(entries, Granted)
	slices.SortStableFunc(grants, func(a, b Entry) int { return cmp.Compare(a.At, b.At) })
	for i := 1; i < len(grants); i++ {
		if grants[i].Token < grants[i-1].Token {
			// The higher token stays the ceiling from the later instant on.
			at := grants[i].At
			grants[i] = grants[i-1]
			grants[i].At = at
		}
	}
	return ceiling{grants}
}

func (c ceiling) before(at boottime.Instant) (Entry, bool) {
	i, _ := slices.BinarySearchFunc(c.grants, at, func(e Entry, at boottime.Instant) int { return cmp.Compare(e.At, at) })
	if i == 0 {
		return Entry{}, false
	}
	return c.grants[i-1], true
}

// checkRequests checks that once a grant is acknowledged, no request with a lower token
// reaches the witness, and that tokens do not alternate there. It reports each token
// once.
func (c *checker) checkRequests(profile string, entries []Entry) {
	top := ceilingOf(entries)
	late, crossed := map[lease.Token]bool{}, map[lease.Token]bool{}
	var highest Entry
	for _, e := range only(entries, Requested) {
		if g, ok := top.before(e.At); ok && g.Token > e.Token && !late[e.Token] {
			late[e.Token] = true
			c.add(LateRequest, profile, fmt.Sprintf("token %d, %v after token %d was acknowledged (by a command: %v)", e.Token, e.At.Sub(g.At), g.Token, e.ViaCDP), g, e)
		}
		if e.Token < highest.Token && !crossed[e.Token] {
			crossed[e.Token] = true
			c.add(Interleaved, profile, fmt.Sprintf("token %d, %v after token %d", e.Token, e.At.Sub(highest.At), highest.Token), highest, e)
		}
		if e.Token >= highest.Token {
			highest = e
		}
	}
}

// checkAccepted checks that no write was accepted that was sent after a higher token
// had been acknowledged.
func (c *checker) checkAccepted(profile string, entries []Entry) {
	top := ceilingOf(entries)
	for _, e := range slices.Concat(only(entries, Accepted), only(entries, Released)) {
		if g, ok := top.before(e.Since); ok && g.Token > e.Token {
			c.add(StaleAccepted, profile, fmt.Sprintf("%s with token %d, sent %v after token %d was acknowledged", e.Text, e.Token, e.Since.Sub(g.At), g.Token), g, e)
		}
	}
}

// checkEvents checks the events of one profile on the stream, epoch by epoch.
func (c *checker) checkEvents(profile string, entries []Entry) {
	epochs := map[int][]Entry{}
	walls := map[int]time.Time{}
	for _, e := range entries {
		switch {
		case e.Kind == Missed:
			c.add(EventMissed, profile, fmt.Sprintf("%s, token %d, sequence %d", e.Event.Event, e.Event.Token, e.Event.Sequence), e)
		case e.Kind == Published && e.Event.Sequence > 0:
			epochs[e.Epoch] = append(epochs[e.Epoch], e)
			walls[e.Epoch] = e.Wall
		}
	}
	var last []Entry
	for epoch, events := range epochs {
		slices.SortStableFunc(events, func(a, b Entry) int { return cmp.Compare(a.StreamSeq, b.StreamSeq) })
		// A message that is read again after a cut is the same event.
		events = slices.CompactFunc(events, func(a, b Entry) bool { return a.StreamSeq == b.StreamSeq })
		c.checkOrder(profile, epoch, walls[epoch], events)
		c.checkTurns(profile, epoch, walls[epoch], events)
		if epoch == c.epoch.Epoch {
			last = events
		}
	}
	if c.settled {
		c.checkEnds(profile, entries, last)
	}
}

// checkOrder checks that the token never falls, and that the sequence rises by one. In
// an epoch after a set-back of the store, only gaps between events that were made since
// then count. Earlier ones are lost with the store if every launcher that remembered them
// has ended.
func (c *checker) checkOrder(profile string, epoch int, begin time.Time, events []Entry) {
	at := func(e Entry) string {
		return fmt.Sprintf("%s %d.%d", e.Event.Event, e.Event.Token, e.Event.Sequence)
	}
	if len(events) > 0 && epoch == 0 && events[0].Event.Sequence != 1 {
		c.add(EventGap, profile, "the first is "+at(events[0]), events[0])
	}
	for i := 1; i < len(events); i++ {
		a, b := events[i-1], events[i]
		switch {
		case a.Event.Token == b.Event.Token && a.Event.Sequence == b.Event.Sequence:
			c.add(EventDuplicate, profile, at(b), a, b)
		case b.Event.Token < a.Event.Token, b.Event.Token == a.Event.Token && b.Event.Sequence < a.Event.Sequence:
			c.add(EventOrder, profile, at(b)+" after "+at(a), a, b)
		case b.Event.Sequence != a.Event.Sequence+1 && (epoch == 0 || a.Made.After(begin) && b.Made.After(begin)) && c.readAll(epoch, a, b):
			c.add(EventGap, profile, at(b)+" after "+at(a), a, b)
		}
	}
}

// readAll tells whether the subscriber read every message between two events. Messages
// that are on their way to it when an epoch ends are gone.
func (c *checker) readAll(epoch int, a, b Entry) bool {
	for seq := a.StreamSeq + 1; seq < b.StreamSeq; seq++ {
		if !c.read[position{epoch, seq}] {
			return false
		}
	}
	return true
}

// checkEnds checks that in the last epoch, whose stream was read to its end, each
// acknowledged grant has its event, and each grant ended once.
func (c *checker) checkEnds(profile string, entries, events []Entry) {
	granted := map[string]Entry{}
	ends := map[string][]Entry{}
	for _, e := range events {
		switch e.Event.Event {
		case lease.EventGranted:
			granted[e.Event.SessionID] = e
		case lease.EventReleased, lease.EventExpired:
			ends[e.Event.SessionID] = append(ends[e.Event.SessionID], e)
		}
	}
	for _, g := range only(entries, Granted) {
		if _, ok := granted[g.Session]; !ok && g.Since > c.epoch.At {
			c.add(EventMissing, profile, fmt.Sprintf("session %s, token %d", g.Session, g.Token), g)
		}
	}
	for _, session := range sortedKeys(granted) {
		g := granted[session]
		if n := len(ends[session]); n != 1 && (c.epoch.Epoch == 0 || g.Made.After(c.epoch.Wall)) {
			c.add(EndMissing, profile, fmt.Sprintf("session %s, token %d: ended %d times", session, g.Event.Token, n), append(ends[session], g)...)
		}
	}
}
