package session

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"leasehold/lease"
)

// gatherTime is the least time between two events about the same thing.
const gatherTime = time.Minute

// maxAskers is how many askers of a profile have their own events at a time. Those of all
// others are gathered together, so that made-up names do not make more events.
const maxAskers = 32

// about is the key by which events are gathered.
type about struct {
	event, profile string
	subject        string // the id of the profile or of the session
	asker          string // "" stands for all that are too many
}

// gathered is what is known of the events with one key.
type gathered struct {
	told time.Time // when the last event about it was published
	more uint64    // how many came since
	last lease.Event
}

// gathering decides which events are published, and when: the first at once, and later ones as
// one event a minute, with their count. It is a pure rule; the caller passes the time.
type gathering struct {
	things map[about]*gathered
	askers map[about]int // how many a profile has, by its about without an asker
}

func newGathering() *gathering {
	return &gathering{things: map[about]*gathered{}, askers: map[about]int{}}
}

// add takes in an event. It tells whether the event is to be published now.
func (g *gathering) add(what about, e lease.Event, now time.Time) bool {
	all := what
	all.asker = ""
	if g.things[what] == nil && what.asker != "" && g.askers[all] >= maxAskers {
		what = all
	}
	thing := g.things[what]
	if thing == nil {
		g.things[what] = &gathered{told: now}
		if what.asker != "" {
			g.askers[all]++
		}
		return true
	}
	thing.more++
	thing.last = e
	return false
}

// due returns the events that are to be published now, each with the count of those that it
// stands for, and forgets what was quiet for a minute. next is when to call again; zero if not
// before something was added. With all, events that are not due are returned, too.
func (g *gathering) due(now time.Time, all bool) (events []lease.Event, next time.Time) {
	for what, thing := range g.things {
		at := thing.told.Add(gatherTime)
		switch {
		case !all && now.Before(at):
		case thing.more == 0:
			g.forget(what)
			continue
		default:
			e := thing.last
			e.Count = thing.more
			events = append(events, e)
			thing.told, thing.more = now, 0
			at = now.Add(gatherTime)
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	slices.SortFunc(events, func(a, b lease.Event) int {
		return strings.Compare(a.ProfileID+"\x00"+a.BlockedWorkerID, b.ProfileID+"\x00"+b.BlockedWorkerID)
	})
	return events, next
}

func (g *gathering) forget(what about) {
	delete(g.things, what)
	if what.asker == "" {
		return
	}
	what.asker = ""
	if g.askers[what]--; g.askers[what] <= 0 {
		delete(g.askers, what)
	}
}

// gatherer publishes events through a gathering. Its method run publishes those that become
// due.
type gatherer struct {
	publish func(context.Context, lease.Event)
	wake    chan struct{}

	mu    sync.Mutex
	rules *gathering
}

func newGatherer(publish func(context.Context, lease.Event)) *gatherer {
	return &gatherer{publish: publish, wake: make(chan struct{}, 1), rules: newGathering()}
}

// add publishes an event, or keeps it for the next one. It tells which of the two.
func (g *gatherer) add(ctx context.Context, what about, e lease.Event) (published bool) {
	g.mu.Lock()
	now := g.rules.add(what, e, time.Now())
	g.mu.Unlock()
	if now {
		g.publish(ctx, e)
	}
	select {
	case g.wake <- struct{}{}:
	default:
	}
	return now
}

// run publishes gathered events until ctx ends, and then those that are left.
func (g *gatherer) run(ctx context.Context) {
	for {
		next := g.flush(ctx, false)
		var timer <-chan time.Time
		if !next.IsZero() {
			timer = time.After(time.Until(next))
		}
		select {
		case <-ctx.Done():
			g.flush(context.WithoutCancel(ctx), true)
			return
		case <-timer:
		case <-g.wake:
		}
	}
}

func (g *gatherer) flush(ctx context.Context, all bool) (next time.Time) {
	g.mu.Lock()
	events, next := g.rules.due(time.Now(), all)
	g.mu.Unlock()
	for _, e := range events {
		g.publish(ctx, e)
	}
	return next
}
