package chaos

import (
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
	return s.add(Entry{Kind: Requested, Token: token, ViaCDP: true})
}

func (s *script) event(name string, token lease.Token, sequence uint64, session string) *script {
	s.seq++
	return s.add(Entry{Kind: Published, Epoch: s.epoch, StreamSeq: s.seq, Wall: s.begin(), Made: s.wall.Add(time.Second), Event: &lease.Event{
		Event: name, ProfileID: "p", Token: token, Sequence: sequence, SessionID: session,
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
		{"what is judged on the spot", newScript().add(Entry{Kind: Broken, Text: TwoBrowsers + ": pids 4 and 7"}).entries, []string{TwoBrowsers}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, v := range Check(tt.history) {
				if len(v.Related) == 0 {
					t.Errorf("%s shows nothing", v.Kind)
				}
				if !slices.Contains(got, v.Kind) {
					got = append(got, v.Kind)
				}
			}
			slices.Sort(got)
			slices.Sort(tt.want)
			if !slices.Equal(got, tt.want) {
				t.Errorf("found %q, want %q", got, tt.want)
			}
		})
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
	} {
		if got := h.made(lease.Event{At: h.begun.Add(tt.at)}, read).Sub(h.begun); got != tt.want {
			t.Errorf("at %v: made at %v, want %v", tt.at, got, tt.want)
		}
	}
}
