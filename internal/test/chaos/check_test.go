package chaos

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"leasehold/internal/boottime"
	"leasehold/lease"
)

// script builds a history. Each entry is a second after the one before.
type script struct {
	now     boottime.Instant
	home    string // that requests come from
	task    string // of the grants
	seq     uint64
	epoch   int
	wall    time.Time
	entries []Entry
}

func newScript() *script {
	return &script{now: boottime.Instant(time.Hour), wall: time.Date(2026, 6, 18, 9, 0, 0, 0, time.UTC)}
}

func (s *script) add(e Entry) *script {
	s.now, s.wall = s.now.Add(time.Second), s.wall.Add(time.Second)
	e.At, e.Profile = s.now, "p"
	s.entries = append(s.entries, e)
	return s
}

// grant adds a grant that was asked for half a second before it was acknowledged.
func (s *script) grant(token lease.Token, session string) *script {
	return s.add(Entry{Kind: Granted, Token: token, Session: session, Since: s.now.Add(time.Second / 2)})
}

func (s *script) request(token lease.Token) *script {
	return s.add(Entry{Kind: Requested, Token: token, ViaCDP: true, Home: s.home})
}

// at has the requests that follow come from a host, and of has the grants be those of a task.
func (s *script) at(host string) *script {
	s.home = host
	return s
}

func (s *script) of(task string) *script {
	s.task = task
	return s
}

// moved adds a move to another home, with a snapshot, and its event where it has a sequence.
func (s *script) moved(token lease.Token, sequence uint64, to, from string, snapshot lease.Token, person string) *script {
	if sequence > 0 {
		s.event(lease.EventMoved, token, sequence, "")
		e := s.entries[len(s.entries)-1].Event
		e.Home, e.OldHome, e.Person = to, from, person
	}
	return s.add(Entry{Kind: Moved, Token: token, Home: to, Move: &lease.Move{From: from, Token: token, Directory: lease.DirectorySnapshot, SnapshotToken: snapshot, Person: person}})
}

// contested adds that a person has to say which launcher is the home.
func (s *script) contested(token lease.Token, sequence uint64) *script {
	s.event("quarantined", token, sequence, "")
	s.entries[len(s.entries)-1].Event.Reason = lease.ReasonContested
	return s
}

// opened adds a browser on the disk of a host that was just started, and started one that was
// seen only after something else happened.
func (s *script) opened(host string) *script { return s.started(host, func(*script) {}) }

func (s *script) started(host string, meanwhile func(*script)) *script {
	since := s.now.Add(time.Second / 2)
	meanwhile(s)
	return s.add(Entry{Kind: Opened, Since: since, Home: host, Text: "/" + host})
}

// kept adds a session that finds what another one left, leaves its own token, and ends in order.
func (s *script) kept(token, found lease.Token) *script {
	session := fmt.Sprint("s", token)
	return s.add(Entry{Kind: Found, Token: token, Session: session, Cookie: found, Stored: found}).
		add(Entry{Kind: Wrote, Token: token, Session: session}).event(lease.EventReleased, token, 0, session)
}

func (s *script) event(name string, token lease.Token, sequence uint64, session string) *script {
	s.seq++
	return s.add(Entry{Kind: Published, Epoch: s.epoch, StreamSeq: s.seq, Wall: s.begin(), Made: s.wall.Add(time.Second), Event: &lease.Event{
		Event: name, ProfileID: "p", Token: token, Sequence: sequence, SessionID: session, TaskID: s.task,
	}})
}

// old adds an event from before the store was set back.
func (s *script) old(token lease.Token, sequence uint64, session string) *script {
	s.event("available", token, sequence, session)
	s.entries[len(s.entries)-1].Made = s.begin().Add(-time.Minute)
	return s
}

func (s *script) begin() time.Time {
	for i := len(s.entries) - 1; i >= 0; i-- {
		if s.entries[i].Kind == Epoch {
			return s.entries[i].Wall
		}
	}
	return time.Time{}
}

func (s *script) wipe() *script {
	s.epoch, s.seq = s.epoch+1, 0
	return s.add(Entry{Kind: Epoch, Epoch: s.epoch, Wall: s.wall.Add(time.Second)})
}

// session adds a whole session in which all goes well.
func (s *script) session(token lease.Token, sequence uint64, id string) *script {
	return s.grant(token, id).event(lease.EventGranted, token, sequence, id).request(token).
		event(lease.EventReleased, token, sequence+1, id)
}

// second adds that a launcher is started with the id of another one, and renewed that this one lives.
func (s *script) second(kind string) *script { return s.add(Entry{Kind: Fault, Text: kind}) }
func (s *script) renewed() *script           { return s.add(Entry{Kind: Renewed}) }

// split adds that a launcher is started with servers that are not one store.
func (s *script) split(launcher string) *script {
	return s.add(Entry{Kind: Fault, Text: SplitStore, Launcher: launcher, Wall: s.wall})
}

func (s *script) settled() []Entry { return s.add(Entry{Kind: Settled}).entries }

// TestCheckFindsEachViolation feeds Check with histories that are made up.
func TestCheckFindsEachViolation(t *testing.T) {
	for _, tt := range []struct {
		name    string
		history []Entry
		want    []string
	}{
		{"all is well", newScript().session(1, 1, "a").session(2, 3, "b").settled(), nil},
		{"a session that was lost", newScript().
			grant(1, "a").event(lease.EventGranted, 1, 1, "a").event("suspected_stale", 1, 2, "a").event("quarantined", 2, 3, "a").
			event(lease.EventExpired, 2, 4, "a").session(3, 5, "b").settled(), nil},
		{"a wiped store that starts again above the floor", newScript().session(1, 1, "a").wipe().session(2, 1, "b").settled(), nil},
		{"what was lost by a roll-back is published again", newScript().session(1, 1, "a").event(lease.EventGranted, 2, 3, "b").wipe().
			event(lease.EventGranted, 1, 1, "a").event("quarantined", 2, 2, "a").old(2, 4, "b").event(lease.EventExpired, 3, 6, "a").settled(), nil},
		{"an event that was on its way when the store was wiped", func() []Entry {
			s := newScript().session(1, 1, "a")
			s.seq++
			return s.session(2, 4, "b").wipe().session(3, 1, "c").settled()
		}(), nil},
		{"an answer that its worker read late", newScript().
			add(Entry{Kind: Granted, Token: 2, Session: "b", Since: 1}).add(Entry{Kind: Granted, Token: 1, Session: "a", Since: 1}).entries, nil},
		{"an event that is delivered again", func() []Entry {
			s := newScript().session(1, 1, "a")
			again := s.entries[1]
			return s.add(again).settled()
		}(), nil},

		{"two holders of one token", newScript().grant(5, "a").grant(5, "b").entries, []string{TokenReused, TokenFell}},
		{"a token that falls", newScript().grant(5, "a").grant(4, "b").entries, []string{TokenFell}},
		{"a token that falls over a wipe", newScript().session(5, 1, "a").wipe().session(1, 1, "b").settled(), []string{TokenFell, LateRequest, Interleaved}},
		{"a late write", newScript().grant(1, "a").request(1).grant(2, "b").request(1).entries, []string{LateRequest}},
		{"two holders at work", newScript().request(1).request(2).request(1).request(2).entries, []string{Interleaved}},
		{"a stale write that is accepted", newScript().grant(1, "a").grant(2, "b").
			add(Entry{Kind: Accepted, Token: 1, Text: "checkpoint", Since: boottime.Instant(2 * time.Hour)}).entries, []string{StaleAccepted}},
		{"a stale release that is accepted", newScript().grant(1, "a").grant(2, "b").
			add(Entry{Kind: Released, Token: 1, Text: "release", Since: boottime.Instant(2 * time.Hour)}).entries, []string{StaleAccepted}},

		{"an event twice", newScript().session(1, 1, "a").event(lease.EventReleased, 1, 2, "a").settled(), []string{EventDuplicate, EndMissing}},
		{"events out of order", newScript().event("quarantined", 2, 2, "a").event("suspected_stale", 1, 1, "a").entries, []string{EventGap, EventOrder}},
		{"a gap", newScript().session(1, 1, "a").session(2, 4, "b").settled(), []string{EventGap}},
		{"a gap after a wipe", newScript().wipe().session(1, 8, "a").session(2, 11, "b").settled(), []string{EventGap}},
		{"a gap behind a record that was recalled", newScript().wipe().add(Entry{}).event("quarantined", 4, 2, "").event("quarantined", 5, 9, "a").entries, []string{EventGap}},
		{"a first event that is not the first", newScript().session(1, 2, "a").settled(), []string{EventGap}},
		{"a grant without its event", newScript().session(1, 1, "a").grant(2, "b").settled(), []string{EventMissing}},
		{"a grant that never ends", newScript().event(lease.EventGranted, 1, 1, "a").settled(), []string{EndMissing}},
		{"a grant that ends twice", newScript().session(1, 1, "a").event(lease.EventExpired, 2, 3, "a").settled(), []string{EndMissing}},
		{"an event that never came", newScript().add(Entry{Kind: Missed, Event: &lease.Event{Event: "inspected"}}).entries, []string{EventMissed}},
		{"a profile that moves and comes back", newScript().session(1, 1, "a").
			moved(2, 3, "b", "a", 1, "").at("b").session(3, 4, "b").moved(4, 6, "a", "b", 3, "").at("a").opened("a").session(5, 7, "c").settled(), nil},
		{"a token that is used where the profile was", newScript().session(1, 1, "a").moved(2, 3, "b", "a", 1, "").at("a").session(3, 4, "b").settled(), []string{NotAtHome}},
		{"a home that a person chose in a contest", newScript().session(1, 1, "a").moved(2, 3, "b", "a", 1, "").contested(3, 4).at("a").opened("a").session(4, 5, "b").settled(), nil},
		{"a directory that was left is opened", newScript().session(1, 1, "a").moved(2, 3, "b", "a", 1, "").opened("a").settled(), []string{LeftOpened}},
		{"a browser that was started before the move", newScript().started("a", func(s *script) { s.moved(1, 1, "b", "a", 0, "person") }).settled(), nil},
		{"a directory in the folder of two launchers", newScript().moved(1, 1, leftHost, "a", 0, "person").opened(sharedDisk).settled(), nil},
		{"two browsers in two places", newScript().add(Entry{Kind: Doubled, Text: "pid 1 on a and pid 2 on b"}).entries, []string{TwoPlaces}},
		{"two browsers where a person said that the home is gone", newScript().moved(1, 1, "b", "a", 0, "person").add(Entry{Kind: Doubled, Text: "pid 1 on a and pid 2 on b"}).settled(), nil},
		{"a move by itself with an older snapshot", newScript().session(1, 1, "a").session(2, 3, "b").moved(3, 5, "b", "a", 1, "").settled(), []string{MovedPast}},
		{"a move by a person with an older snapshot", newScript().session(1, 1, "a").session(2, 3, "b").moved(3, 5, "b", "a", 1, "person").settled(), nil},
		{"what ended in order is found again", newScript().kept(1, 0).kept(2, 1).moved(3, 0, "b", "a", 2, "").kept(4, 2).entries, nil},
		{"an older state", newScript().kept(1, 0).kept(2, 1).kept(3, 1).entries, []string{Older}},
		{"an older state at the new home", newScript().kept(1, 0).kept(2, 1).moved(3, 0, "b", "a", 2, "").kept(4, 1).entries, []string{Older}},
		{"an older state that a person chose", newScript().kept(1, 0).kept(2, 1).moved(3, 0, "b", "a", 1, "person").kept(4, 1).entries, nil},
		{"an older state than the person chose", newScript().kept(1, 0).kept(2, 1).moved(3, 0, "b", "a", 1, "person").kept(4, 0).entries, []string{Older}},
		{"what a session without an end left need not be found", newScript().kept(1, 0).add(Entry{Kind: Wrote, Token: 2, Session: "s2"}).kept(3, 1).entries, nil},
		{"a release that was answered, and whose browser was killed", newScript().kept(1, 0).add(Entry{Kind: Wrote, Token: 2, Session: "s2"}).
			add(Entry{Kind: Released, Token: 2, Session: "s2", Since: boottime.Instant(2 * time.Hour)}).kept(3, 1).entries, nil},
		{"a state that a full disk lost", newScript().kept(1, 0).add(Entry{Kind: Fault, Text: FullLauncher}).kept(2, 1).add(Entry{Kind: Healed, Text: FullLauncher}).kept(3, 1).entries, nil},
		{"granted to two", newScript().grant(1, "a").event(lease.EventGranted, 1, 1, "a").grant(2, "b").event(lease.EventGranted, 2, 2, "b").
			event(lease.EventReleased, 2, 3, "a").event(lease.EventReleased, 2, 4, "b").settled(), []string{GrantedTwice}},
		{"a request that is served twice", newScript().add(Entry{Kind: Asked, Task: "t", Text: byProfile}).of("t").session(1, 1, "a").session(2, 3, "b").settled(), []string{ServedTwice}},
		{"a task that asks twice", newScript().add(Entry{Kind: Asked, Task: "t", Text: byProfile}).add(Entry{Kind: Asked, Task: "t", Text: byTurn}).
			of("t").session(1, 1, "a").session(2, 3, "b").settled(), nil},

		{"a second launcher that waits", newScript().second(SameID).renewed().settled(), nil},
		{"a second launcher whose first one is silent", newScript().second(CopiedDir).renewed().renewed().add(Entry{}).add(Entry{}).
			add(Entry{Kind: SecondOpened}).renewed().add(Entry{Kind: SecondWrote}).settled(), nil},
		{"a second launcher that does not wait", newScript().second(SameID).renewed().add(Entry{Kind: SecondOpened}).settled(), []string{SecondWriter}},
		{"a second launcher that has not even begun", newScript().second(CopiedDir).renewed().add(Entry{Kind: SecondWrote}).settled(), []string{SecondWriter}},
		{"a launcher that comes back to one store", newScript().session(1, 1, "a").split("h").add(Entry{Kind: SplitEnded, Wall: newScript().wall.Add(time.Hour)}).opened("h").settled(), nil},
		{"a browser where the servers are not one store", newScript().split("h").opened("h").settled(), []string{SplitGrant}},
		{"a grant where the servers are not one store", newScript().split("").event(lease.EventGranted, 1, 1, "a").event(lease.EventReleased, 1, 2, "a").settled(), []string{SplitGrant}},
		{"a state that a full disk lost, and whose session ended in order", newScript().add(Entry{Kind: Fault, Text: FullAtEnd}).
			add(Entry{Kind: Wrote, Token: 2, Session: "s2", Worker: visitorName}).event(lease.EventReleased, 2, 0, "s2").
			add(Entry{Kind: Healed, Text: FullAtEnd}).kept(3, 1).entries, []string{Older}},
		{"what is judged on the spot", newScript().add(Entry{Kind: Broken, Text: TwoBrowsers + ": pids 4 and 7"}).entries, []string{TwoBrowsers}},
	} {
		t.Run(tt.name, func(t *testing.T) { judged(t, tt.history, tt.want...) })
	}
}

// judged checks which kinds of violations a history shows.
func judged(t *testing.T, history []Entry, want ...string) {
	t.Helper()
	var got []string
	for _, v := range Check(history) {
		if len(v.Related) == 0 {
			t.Errorf("%s shows nothing", v.Kind)
		}
		if !slices.Contains(got, v.Kind) {
			got = append(got, v.Kind)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}

// TestAnEventIsNotMadeAfterItWasRead: one that says so was made while the test run had set the
// wall clock ahead.
func TestAnEventIsNotMadeAfterItWasRead(t *testing.T) {
	h, err := NewHistory(filepath.Join(t.TempDir(), "history"))
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	read := h.since.Add(10 * time.Minute)
	for _, tt := range []struct{ at, want time.Duration }{
		{9 * time.Minute, 9 * time.Minute},
		{10 * time.Minute, 10 * time.Minute},
		{9*time.Minute + wallJump, 9 * time.Minute},
		{10*time.Minute + wallJump, 10 * time.Minute},
		{9*time.Minute + clockAhead, 9 * time.Minute},
	} {
		if got := h.made(lease.Event{At: h.begun.Add(tt.at)}, read).Sub(h.begun); got != tt.want {
			t.Errorf("at %v: made at %v, want %v", tt.at, got, tt.want)
		}
	}
}
