package session

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"leasehold/lease"
)

func refusal(profile, asker string) (about, lease.Event) {
	return about{lease.EventConflict, profile, "owner", asker}, lease.Event{Event: lease.EventConflict, ProfileID: profile, BlockedWorkerID: asker}
}

// A worker that asks a hundred times a second makes an event a minute, and each refusal is
// counted.
func TestGathersRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []lease.Event
		var at []time.Duration
		begun := time.Now()
		g := newGatherer(func(_ context.Context, e lease.Event) {
			told, at = append(told, e), append(at, time.Since(begun))
		})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); g.run(ctx) }()
		what, e := refusal("p", "w")
		for range 15_000 { // two and a half minutes
			g.add(ctx, what, e)
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		if len(told) != 3 || !slices.Equal(at, []time.Duration{0, time.Minute, 2 * time.Minute}) {
			t.Errorf("events %+v at %v", told, at)
		}
		stop()
		<-done
		var sum uint64
		for _, e := range told {
			sum += max(1, e.Count)
		}
		if sum != 15_000 || told[0].Count != 0 || len(told) != 4 {
			t.Errorf("%d refusals are told in %d events: %+v", sum, len(told), told)
		}
	})
}

// After a quiet minute the next refusal is told at once, and the rule remembers nothing.
func TestForgetsWhatIsQuiet(t *testing.T) {
	g, now := newGathering(), time.Unix(0, 0)
	what, e := refusal("p", "w")
	if !g.add(what, e, now) || g.add(what, e, now) {
		t.Fatal("the first of two is told at once, and it alone")
	}
	events, next := g.due(now.Add(59*time.Second), false)
	if len(events) != 0 || next != now.Add(time.Minute) {
		t.Errorf("%v, next %v", events, next)
	}
	events, next = g.due(now.Add(time.Minute), false)
	if len(events) != 1 || events[0].Count != 1 || next != now.Add(2*time.Minute) {
		t.Errorf("%v, next %v", events, next)
	}
	if events, next = g.due(now.Add(2*time.Minute), false); len(events) != 0 || !next.IsZero() || len(g.things) != 0 || len(g.askers) != 0 {
		t.Errorf("%v, next %v, %v", events, next, g.things)
	}
	if !g.add(what, e, now.Add(2*time.Minute)) {
		t.Error("a refusal after a quiet minute waits")
	}
}

// Whoever asks, how often and under whatever names: each refusal is counted once, what is
// remembered is bounded, and so are a profile's events in a minute.
func TestGatheringIsBounded(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		g, now := newGathering(), time.Unix(0, 0)
		added, told := map[string]uint64{}, map[string]uint64{}
		minute := map[string]int{}
		count := func(events []lease.Event) {
			for _, e := range events {
				told[e.ProfileID] += max(1, e.Count)
				minute[fmt.Sprint(e.ProfileID, now.Unix()/60)]++
			}
		}
		for range rapid.IntRange(0, 300).Draw(rt, "n") {
			profile := rapid.SampledFrom([]string{"p", "q"}).Draw(rt, "profile")
			what, e := refusal(profile, fmt.Sprint("w", rapid.IntRange(0, 100).Draw(rt, "asker")))
			if added[profile]++; g.add(what, e, now) {
				count([]lease.Event{e})
			}
			now = now.Add(time.Duration(rapid.IntRange(0, 5000).Draw(rt, "ms")) * time.Millisecond)
			if rapid.Bool().Draw(rt, "due") {
				events, _ := g.due(now, false)
				count(events)
			}
		}
		if len(g.things) > 2*(maxAskers+1) {
			rt.Fatalf("%d things are remembered", len(g.things))
		}
		events, _ := g.due(now, true)
		for _, e := range events {
			told[e.ProfileID] += max(1, e.Count)
		}
		for profile, n := range added {
			if told[profile] != n {
				rt.Fatalf("of %d refusals of %s %d are told", n, profile, told[profile])
			}
		}
		for when, n := range minute {
			if n > 2*(maxAskers+1) {
				rt.Fatalf("%d events in the minute %s", n, when)
			}
		}
	})
}
