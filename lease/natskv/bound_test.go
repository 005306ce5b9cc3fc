package natskv

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"leasehold/lease"
)

// bounded opens a store whose event stream has room for 64 KiB.
func bounded(t *testing.T, own bool) *Store {
	t.Helper()
	s, err := Open(t.Context(), inProcess(t, start(t, t.TempDir())), Options{Log: zerolog.Nop(), LauncherID: "test", EventBytes: 64 << 10, OwnServer: own})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// On a full stream the oldest events leave: no transition is refused, each one is published,
// in order, also of profiles whose earlier events are gone.
func TestFullEventStream(t *testing.T) {
	s := bounded(t, true)
	first, second := none("p"), none("q")
	fill := func() {
		t.Helper()
		for i := range 200 {
			if err := s.Announce(t.Context(), lease.Event{Event: lease.EventConflict, ProfileID: "noise", Token: 1, At: t0, Reason: strings.Repeat("x", 500), TaskID: fmt.Sprint(i)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	first = swapped(t, s, first, granted(t, first, "one"))
	flushed(t, s)
	fill()
	if events, err := s.History(t.Context(), "p"); err != nil || len(events) != 0 {
		t.Fatalf("%d events of p are left, %v: the stream was not full", len(events), err)
	}
	for round := range 3 {
		released, err := first.Record.Release("released", "", lease.Sealed{EvidenceID: "ev"}, t0)
		if err != nil {
			t.Fatal(err)
		}
		first = swapped(t, s, first, released)
		first = swapped(t, s, first, granted(t, first, fmt.Sprint("again ", round)))
		fill()
	}
	swapped(t, s, second, granted(t, second, "other"))
	flushed(t, s)
	info, err := s.events.js.Stream(t.Context(), Stream)
	if err != nil {
		t.Fatal(err)
	}
	if state := info.CachedInfo().State; state.Bytes > 64<<10 || state.FirstSeq < 600 {
		t.Errorf("the stream has %d bytes, from message %d on", state.Bytes, state.FirstSeq)
	}
	if events, err := s.History(t.Context(), "q"); err != nil || len(events) != 1 || events[0].Sequence != 1 {
		t.Errorf("the other profile: %+v, %v", events, err)
	}
	// The last transitions of p came before the last noise, so they may be gone; the next
	// one is published behind them.
	released, err := first.Record.Release("released", "", lease.Sealed{EvidenceID: "ev"}, t0)
	if err != nil {
		t.Fatal(err)
	}
	first = swapped(t, s, first, released)
	flushed(t, s)
	events, err := s.History(t.Context(), "p")
	if err != nil || len(events) == 0 {
		t.Fatalf("%+v, %v", events, err)
	}
	if last := events[len(events)-1]; last.Event != lease.EventReleased || last.Sequence != 8 || events[0].Sequence == 1 {
		t.Errorf("%+v", events)
	}
}

// A stream that exists gets the bound, unless somebody else's server has another one.
func TestBoundOfAnExistingStream(t *testing.T) {
	for _, c := range []struct {
		name       string
		own        bool
		have, want int64
	}{
		{"none, own server", true, -1, 2 << 20}, {"none, other server", false, -1, 2 << 20},
		{"another, own server", true, 1 << 20, 2 << 20}, {"another, other server", false, 1 << 20, 1 << 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			nc := inProcess(t, start(t, t.TempDir()))
			before := open(t, nc)
			config := eventsConfig(c.have)
			config.Replicas = 1
			if _, err := before.events.js.UpdateStream(t.Context(), config); err != nil {
				t.Fatal(err)
			}
			s, err := Open(t.Context(), nc, Options{Log: zerolog.Nop(), LauncherID: "test", EventBytes: 2 << 20, OwnServer: c.own})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			stream, err := s.events.js.Stream(t.Context(), Stream)
			if err != nil {
				t.Fatal(err)
			}
			if got := stream.CachedInfo().Config; got.MaxBytes != c.want || got.Discard != jetstream.DiscardOld {
				t.Errorf("max_bytes %d, discard %s; want %d", got.MaxBytes, got.Discard, c.want)
			}
		})
	}
}
