package events

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"pgregory.net/rapid"

	"leasehold/launcher/api"
	"leasehold/lease"
)

// source is a stream in memory, which can be away, lose its oldest, and be made anew.
type source struct {
	mu      sync.Mutex
	events  []lease.Published
	first   uint64 // the sequence of the first one that is kept
	last    uint64
	away    bool
	round   int
	changed chan struct{}
	reads   int // pages that were read for followers
}

func newSource() *source { return &source{first: 1, changed: make(chan struct{})} }

func (s *source) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

// publish puts an event on the stream that is the n-th of all.
func (s *source) publish(n int) {
	s.change(func() {
		s.last++
		e := lease.Event{Event: lease.EventGranted, ProfileID: "p", TaskID: fmt.Sprint(n)}
		data := fmt.Appendf(nil, "%d %d", s.round, n)
		s.events = append(s.events, lease.Published{Event: e, Data: data, Place: lease.PlaceOf(s.last, data)})
	})
}

func (s *source) page(after lease.Place, most int) (lease.EventPage, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return lease.EventPage{}, false
	}
	if after == lease.PlaceNow {
		after = lease.Place{Sequence: s.last}
		if n := len(s.events); n > 0 {
			after = s.events[n-1].Place
		}
		return lease.EventPage{Through: after}, true
	}
	page := lease.EventPage{Through: after}
	switch i := slices.IndexFunc(s.events, func(e lease.Published) bool { return e.Place.Sequence == after.Sequence }); {
	case i >= 0 && after.Check != 0 && s.events[i].Place != after, after.Sequence > s.last:
		page = lease.EventPage{Through: lease.Place{Sequence: s.first - 1}, Lost: lease.LostStream}
	case i >= 0:
		page.Through = s.events[i].Place
	case after.Sequence+1 < s.first:
		page = lease.EventPage{Through: lease.Place{Sequence: s.first - 1}, Lost: lease.LostOldest}
	}
	for _, e := range s.events {
		if e.Place.Sequence > page.Through.Sequence && len(page.Events) < most {
			page.Events = append(page.Events, e)
			page.Through = e.Place
		}
	}
	return page, true
}

func (s *source) EventsAfter(_ context.Context, after lease.Place) (lease.EventPage, error) {
	page, ok := s.page(after, 7)
	if !ok {
		return page, lease.ErrUnavailable
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	return page, nil
}

func (s *source) FollowEvents(ctx context.Context, after lease.Place, see func(lease.EventPage)) error {
	first := true
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		page, ok := s.page(after, 5)
		if !ok || page.Lost != "" && !first {
			return lease.ErrUnavailable
		}
		if first || page.Through != after {
			see(page)
			first, after = false, page.Through
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// bubble runs a test in its own time, with a hub on a source.
func bubble(t *testing.T, test func(t *testing.T, s *source, h *Hub, stop func())) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource()
		h := New(s, zerolog.Nop())
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); h.Run(ctx) }()
		test(t, s, h, func() { cancel(); <-done })
		cancel()
		<-done
	})
}

func follow(t *testing.T, h *Hub, after lease.Place) *Follower {
	t.Helper()
	f, err := h.Follow("somebody", after)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

// drain collects what comes until nothing more does for a while: the tasks of events, and in
// words what the stream says of itself.
func drain(t *testing.T, f *Follower) (got []string) {
	t.Helper()
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		b, err := f.Next(ctx)
		cancel()
		if err != nil {
			return got
		}
		if b.Lost != "" {
			got = append(got, string(b.Lost))
		}
		if b.Store != nil {
			got = append(got, fmt.Sprintf("away: %v", !b.Store.Away.IsZero()))
		}
		for _, e := range b.Events {
			got = append(got, e.TaskID)
		}
		if b.Ended {
			return append(got, "ended")
		}
	}
}

func want(t *testing.T, what string, got []string, texts string) {
	t.Helper()
	if now := strings.Join(got, " "); now != texts {
		t.Errorf("%s: %q, want %q", what, now, texts)
	}
}

// TestFollowersGetEveryEventFromTheirPlace, by one reader: from now on, from a place in
// memory, and from one that only the store has.
func TestFollowersGetEveryEventFromTheirPlace(t *testing.T) {
	bubble(t, func(t *testing.T, s *source, h *Hub, stop func()) {
		for i := range 20 {
			s.publish(i)
		}
		now := follow(t, h, lease.PlaceNow)
		want(t, "before anything", drain(t, now), "")
		s.publish(20)
		s.publish(21)
		want(t, "from now on", drain(t, now), "20 21")
		back := follow(t, h, s.events[20].Place)
		want(t, "from memory", drain(t, back), "21")
		if s.reads != 0 {
			t.Errorf("%d pages were read of the store, want none", s.reads)
		}
		old := follow(t, h, s.events[14].Place)
		want(t, "from the store", drain(t, old), "15 16 17 18 19 20 21")
		bare := follow(t, h, lease.Place{Sequence: 19})
		want(t, "from a place without a check", drain(t, bare), "19 20 21")
		end := follow(t, h, lease.Place{Sequence: 22})
		want(t, "from the end", drain(t, end), "")
		reads := s.reads
		s.publish(22)
		for _, f := range []*Follower{now, back, old, bare, end} {
			want(t, "all of them", drain(t, f), "22")
		}
		if s.reads != reads {
			t.Error("what is in memory was read of the store")
		}
	})
}

// TestFollowersHearOfLossesAndAbsence: the store is away and comes back, loses its oldest
// events, and is made anew.
func TestFollowersHearOfLossesAndAbsence(t *testing.T) {
	bubble(t, func(t *testing.T, s *source, h *Hub, stop func()) {
		f := follow(t, h, lease.PlaceNow)
		drain(t, f)
		s.publish(1)
		want(t, "at first", drain(t, f), "1")
		old := s.events[0].Place
		s.change(func() { s.away = true })
		want(t, "away", drain(t, f), "away: true")
		late := follow(t, h, old)
		want(t, "who comes meanwhile", drain(t, late), "away: true")
		s.publish(2)
		s.change(func() { s.away = false })
		want(t, "back", drain(t, f), "away: false 2")
		want(t, "back, for who came meanwhile", drain(t, late), "away: false 2")

		for i := range 10 {
			s.publish(3 + i)
		}
		s.change(func() { s.events, s.first = s.events[8:], 9 })
		behind := follow(t, h, lease.Place{Sequence: 2, Check: 99})
		want(t, "the oldest have left", drain(t, behind), "left 9 10 11 12")
		drain(t, f)

		s.change(func() { s.events, s.first, s.last, s.round = nil, 1, 0, 1 })
		s.publish(100)
		want(t, "made anew", drain(t, f), "stream_reset 100")
		want(t, "made anew, for another one", drain(t, behind), "stream_reset 100")
		want(t, "a place of the old stream", drain(t, follow(t, h, old)), "stream_reset 100")
		want(t, "a place that never was", drain(t, follow(t, h, lease.Place{Sequence: 4711, Check: 1})), "stream_reset 100")
	})
}

// TestTheEndOfTheLauncherEndsFollowing, after what was published last.
func TestTheEndOfTheLauncherEndsFollowing(t *testing.T) {
	bubble(t, func(t *testing.T, s *source, h *Hub, stop func()) {
		f := follow(t, h, lease.PlaceNow)
		drain(t, f)
		time.AfterFunc(100*time.Millisecond, func() { s.publish(1) })
		stop()
		want(t, "at the end", drain(t, f), "1 ended")
		if _, err := h.Follow("late", lease.PlaceNow); err == nil {
			t.Error("somebody may follow a hub that has ended")
		}
	})
}

// TestTheNumberOfFollowersIsBounded, of all and of each principal; the places of those who
// leave are given again.
func TestTheNumberOfFollowersIsBounded(t *testing.T) {
	h := New(newSource(), zerolog.Nop())
	var all []*Follower
	for i := range maxFollowers / maxPerName {
		for range maxPerName {
			f, err := h.Follow(fmt.Sprint(i), lease.PlaceNow)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, f)
		}
		if _, err := h.Follow(fmt.Sprint(i), lease.PlaceNow); err == nil {
			t.Error("one principal has more than its part")
		}
	}
	_, err := h.Follow("another", lease.PlaceNow)
	if p, ok := err.(*api.Problem); !ok || p.Code != api.CodeTooManyStreams || p.RetryAfter == 0 {
		t.Errorf("one more: %v", err)
	}
	all[0].Close()
	all[0].Close()
	if _, err := h.Follow("another", lease.PlaceNow); err != nil {
		t.Errorf("a place that was given back: %v", err)
	}
	if _, err := h.Follow("another", lease.PlaceNow); err == nil {
		t.Error("a place was given back twice")
	}
	if _, err := New(nil, zerolog.Nop()).Follow("x", lease.PlaceNow); err == nil {
		t.Error("there is nothing to follow")
	}
}

// TestNothingIsMissedAndNothingComesTwice, however followers come, go, and are slow, as long
// as the stream is one.
func TestNothingIsMissedAndNothingComesTwice(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		bubble(t, func(t *testing.T, s *source, h *Hub, stop func()) {
			n, at, got := 0, lease.Place{}, []string{}
			f, err := h.Follow("x", at)
			if err != nil {
				rt.Fatal(err)
			}
			for range rapid.IntRange(1, 30).Draw(rt, "steps") {
				switch rapid.SampledFrom([]string{"publish", "publish", "read", "reconnect", "away", "pause"}).Draw(rt, "step") {
				case "publish":
					for range rapid.IntRange(1, 12).Draw(rt, "n") {
						n++
						s.publish(n)
					}
				case "read":
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					if b, err := f.Next(ctx); err == nil {
						at = b.Through
						for _, e := range b.Events {
							got = append(got, e.TaskID)
						}
					}
					cancel()
				case "reconnect":
					f.Close()
					if f, err = h.Follow("x", at); err != nil {
						rt.Fatal(err)
					}
				case "away":
					s.change(func() { s.away = true })
					time.Sleep(time.Duration(rapid.IntRange(0, 3).Draw(rt, "seconds")) * time.Second)
					s.change(func() { s.away = false })
				case "pause": // the reader stops when nobody follows
					f.Close()
					time.Sleep(time.Duration(rapid.IntRange(0, 90).Draw(rt, "seconds")) * time.Second)
					if f, err = h.Follow("x", at); err != nil {
						rt.Fatal(err)
					}
				}
			}
			for _, text := range drain(t, f) {
				if !strings.HasPrefix(text, "away") {
					got = append(got, text)
				}
			}
			f.Close()
			for i, text := range got {
				if text != fmt.Sprint(i+1) {
					rt.Fatalf("got %v, want 1 to %d", got, n)
				}
			}
			if len(got) != n {
				rt.Fatalf("got %d events, want %d", len(got), n)
			}
		})
	})
}
