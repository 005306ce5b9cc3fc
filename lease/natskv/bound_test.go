package natskv

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"leasehold/lease"
)

// bounded opens a store whose event stream has room for 64 KiB.
func bounded(t *testing.T, own bool) *Store {
	t.Helper()
	return openWith(t, inProcess(t, start(t, t.TempDir())), Options{Log: zerolog.Nop(), LauncherID: "test", EventBytes: 64 << 10, OwnServer: own})
}

// On a full stream the oldest events leave: no transition is refused, each one is published,
// in order, also of profiles whose earlier events are gone.
func TestFullEventStream(t *testing.T) {
	s := bounded(t, true)
	first, second := none("p"), none("q")
	fill := func() {
		t.Helper()
		for i := range 200 {
			if err := s.Announce(patient(t), lease.Event{Event: lease.EventConflict, ProfileID: "noise", Token: 1, At: t0, Reason: strings.Repeat("x", 500), TaskID: fmt.Sprint(i)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	first = swapped(t, s, first, granted(t, first, "one"))
	flushed(t, s)
	fill()
	if events, err := s.History(patient(t), "p"); err != nil || len(events) != 0 {
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
	if events, err := s.History(patient(t), "q"); err != nil || len(events) != 1 || events[0].Sequence != 1 {
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
	events, err := s.History(patient(t), "p")
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
			before.Close() // the server races where a consumer is made of a stream that is being changed
			config := eventsConfig(c.have)
			config.Replicas = 1
			if _, err := before.events.js.UpdateStream(t.Context(), config); err != nil {
				t.Fatal(err)
			}
			s := openWith(t, nc, Options{Log: zerolog.Nop(), LauncherID: "test", EventBytes: 2 << 20, OwnServer: c.own, tryTime: time.Minute})
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

// Nothing leaves the event stream, or the subscribers' copy of it, for its age: one step of the
// server's clock would remove everything. On somebody else's server an age stays, and so does any that cannot
// be changed; the log and the survey say so.
func TestNoEventLeavesForItsAge(t *testing.T) {
	for name, tt := range map[string]struct {
		own, forbidden bool
		have, want     time.Duration
	}{
		"new, own server":                 {true, false, 0, 0},
		"another, own server":             {true, false, time.Hour, 0},
		"another, other server":           {false, false, time.Hour, time.Hour},
		"another, and it may not be told": {true, true, time.Hour, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			p := startProxy(t, start(t, t.TempDir()))
			nc := dialPlain(t, p.url())
			before := open(t, nc)
			before.Close() // the server races where a consumer is made of a stream that is being changed
			config := eventsConfig(0)
			config.Replicas, config.MaxAge = 1, tt.have
			if _, err := before.events.js.UpdateStream(t.Context(), config); err != nil {
				t.Fatal(err)
			}
			o := Options{LauncherID: "test", OwnServer: tt.own, tryTime: time.Minute} // a change that is answered later is none
			if tt.forbidden {
				o.tryTime = time.Second
				p.set(func(p *proxy) { p.loseRequest = times(-1, "$JS.API.STREAM.UPDATE.") })
			}
			var log bytes.Buffer
			o.Log = zerolog.New(&log)
			s := openWith(t, nc, o)
			s.Close()
			stream, err := s.events.js.Stream(t.Context(), Stream)
			if err != nil || stream.CachedInfo().Config.MaxAge != tt.want {
				t.Fatalf("max_age %v, %v, want %v", stream.CachedInfo().Config.MaxAge, err, tt.want)
			}
			surveyed := slices.ContainsFunc(Survey(patient(t), nc), func(f Finding) bool { return f.Check == "age" })
			if says := strings.Contains(log.String(), "max_age"); says != (tt.want != 0) || surveyed != says {
				t.Errorf("the log says it: %v, the survey: %v: %s", says, surveyed, log.String())
			}
		})
	}
}

// A server whose clock is not this host's is found out.
func TestTheSurveyComparesClocks(t *testing.T) {
	now := time.Now()
	for off, want := range map[time.Duration]Grade{0: Fine, time.Minute: Fine, 365 * 24 * time.Hour: Unsafe, -time.Hour: Unsafe} {
		found := clocks(&jetstream.StreamInfo{Config: leasesConfig(), TimeStamp: now.Add(off)}, now)
		if len(found) != 1 || found[0].Check != "clock" || found[0].Grade != want {
			t.Errorf("%v: %+v, want %s", off, found, want)
		}
	}
}

// What fences the holders of a shared profile is stored, however many they are and whatever their
// page chose as its URL, also in a bucket with the least size, which is left as it is. Events
// that the record has no room for are published all the same.
func TestManyRunsAreFencedInASmallBucket(t *testing.T) {
	nc := inProcess(t, start(t, t.TempDir()))
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	old := leasesConfig()
	old.MaxMsgSize = minValue
	if _, err := js.CreateStream(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	s := open(t, nc)
	flushed(t, s)
	held := none("p")
	held.Record.MaxActiveRuns = lease.MaxRuns
	for i := range lease.MaxRuns {
		r, err := held.Record.Grant(lease.Request{
			SessionID: fmt.Sprint("s", i), WorkerID: strings.Repeat("w", 200), TaskID: strings.Repeat("t", 200), LauncherID: "home", PresenceEpoch: 1, TTL: time.Minute,
		}, t0)
		if err != nil {
			t.Fatal(err)
		}
		r.LastKnownURL = "https://site.example/?" + strings.Repeat("&", 2000)
		held = swapped(t, s, held, r)
		flushed(t, s)
	}
	suspected, err := held.Record.Suspect("heartbeat_timeout", lease.Sealed{EvidenceID: "ev"}, t0)
	if err != nil {
		t.Fatal(err)
	}
	held = swapped(t, s, held, suspected)
	flushed(t, s)
	fenced, err := held.Record.Quarantine(0, t0)
	if err != nil {
		t.Fatal(err)
	}
	held = swapped(t, s, held, fenced)
	if n := len(held.Record.Outbox); n >= lease.MaxRuns+1 || len(held.Record.LostRuns) != lease.MaxRuns {
		t.Errorf("%d events and %d runs are in the record: want less than %d events, and all runs", n, len(held.Record.LostRuns), lease.MaxRuns+1)
	}
	flushed(t, s)
	events, err := s.History(patient(t), "p")
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range events {
		if e.Sequence != uint64(i+1) {
			t.Fatalf("event %d has the number %d", i, e.Sequence)
		}
	}
	if want := 2*lease.MaxRuns + 2; len(events) != want {
		t.Errorf("%d events are published, want %d", len(events), want)
	}
	if info, err := js.Stream(t.Context(), old.Name); err != nil || info.CachedInfo().Config.MaxMsgSize != minValue {
		t.Errorf("the bucket's max_msg_size: %v, %v", info, err)
	}
}

// An event stream that takes nothing stops no transition.
func TestAStreamThatTakesNothingHoldsUpNothing(t *testing.T) {
	t.Parallel()
	srv := start(t, t.TempDir())
	p := startProxy(t, srv)
	s := open(t, dialPlain(t, p.url()))
	flushed(t, s)
	p.set(func(p *proxy) { p.loseRequest = times(-1, "leasehold.") })
	held := none("p")
	const rounds = 60 // more than an outbox has room for
	for i := range rounds {
		r := granted(t, held, fmt.Sprint(i, strings.Repeat("t", 200)))
		r.LastKnownURL = strings.Repeat("&", 2000)
		held = swapped(t, s, held, r)
		released, err := held.Record.Release("released", "", lease.Sealed{}, t0)
		if err != nil {
			t.Fatal(err)
		}
		held = swapped(t, s, held, released)
	}
	p.set(func(p *proxy) { p.loseRequest = times(0, "") })
	flushed(t, s)
	events, err := s.History(patient(t), "p")
	if err != nil || len(events) != 2*rounds || events[2*rounds-1].Sequence != 2*rounds {
		t.Errorf("%d events are published later, want %d: %v", len(events), 2*rounds, err)
	}
}
