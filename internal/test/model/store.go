package model

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"leasehold/lease"
)

// server is the store: two buckets that count revisions together. When the store goes back,
// the count goes back with it.
type server struct {
	seq uint64
	// boot changes when the server restarts. Connections end then, and what is on its
	// way in them is lost.
	boot uint64
	// created changes when the store is made anew.
	created   uint64
	away      bool
	records   bucket[lease.Record]
	presences bucket[lease.Presence]
}

// bucket has the last versions of each key, the newest last.
type bucket[T any] map[string][]version[T]

type version[T any] struct {
	revision uint64
	nonce    string
	value    T
	at       int64
}

const history = 64

func (b bucket[T]) last(key string) version[T] {
	if all := b[key]; len(all) > 0 {
		return all[len(all)-1]
	}
	return version[T]{}
}

// stale returns what a read may return: mostly the last version, and sometimes an older one,
// as a server that was cut off some seconds ago has it.
func (b bucket[T]) stale(w *World, key string) version[T] {
	all := b[key]
	if len(all) == 0 || !w.chance(w.o.StaleReads) {
		return b.last(key)
	}
	since := w.now - int64(w.upTo(15*time.Second))
	i := len(all) - 1
	for i > 0 && all[i].at > since {
		i--
	}
	return all[i]
}

// back drops what was written after seq, and calls dropped with the nonces of that.
func (b bucket[T]) back(seq uint64, dropped func(nonce string)) {
	for _, key := range keys(b) {
		all := b[key]
		for len(all) > 0 && all[len(all)-1].revision > seq {
			dropped(all[len(all)-1].nonce)
			all = all[:len(all)-1]
		}
		if len(all) == 0 {
			delete(b, key)
		} else {
			b[key] = all
		}
	}
}

func keys[T any](m map[string]T) []string {
	all := make([]string, 0, len(m))
	for k := range m {
		all = append(all, k)
	}
	slices.Sort(all)
	return all
}

// goBack sets the store back by a number of writes, or empties it.
func (w *World) goBack(writes uint64, wiped bool) {
	s := &w.server
	if wiped {
		s.seq, s.created = 0, s.created+1
	} else {
		s.seq -= min(writes, s.seq)
	}
	w.check.losses++
	w.check.forgot = w.now
	clear(w.check.closed) // epochs may be counted again, too
	dropped := func(nonce string) { w.check.applied[nonce] = forgotten }
	s.records.back(s.seq, dropped)
	s.presences.back(s.seq, dropped)
	w.restart()
}

// restart ends all connections.
func (w *World) restart() { w.server.boot++ }

// tryTime limits one request.
const tryTime = 2 * time.Second

// ask sends a request and waits for its answer. The server calls at when the request
// arrives, which may be after everybody has stopped waiting, and may happen twice. ok is
// false if no answer came; the request may have arrived all the same.
func ask[T any](t *task, within time.Duration, at func() T) (answer T, ok bool) {
	w, p := t.p.w, t.p
	if p.boot != w.server.boot && !w.server.away && !p.host.cutOff {
		p.reconnect()
	}
	boot, wait := p.boot, t.await()
	arrive := func() {
		if w.server.away || p.host.cutOff || w.server.boot != boot {
			return
		}
		result := at()
		if w.chance(w.loss(p.host)) {
			w.counts["answers lost"]++
			return
		}
		w.after(w.delay(p.host), func() {
			if !p.host.cutOff && w.server.boot == boot && t.waits == wait && !ok {
				answer, ok = result, true
				t.wake(wait)
			}
		})
	}
	if w.chance(w.loss(p.host)) {
		w.counts["requests lost"]++
	} else {
		w.after(w.delay(p.host), arrive)
	}
	if w.chance(w.o.Late) {
		w.counts["late deliveries"]++
		w.after(within+w.upTo(40*time.Second), arrive)
	}
	w.after(within, func() { t.wake(wait) })
	t.wait()
	if !ok && p.boot != w.server.boot && !w.server.away && !p.host.cutOff {
		p.reconnect()
	}
	return answer, ok
}

// loss is the probability that a message from or to the host is lost.
func (w *World) loss(h *host) float64 {
	if w.now < h.storm {
		return 0.3
	}
	return w.o.Loss
}

// delay returns how long a message from or to the host takes.
func (w *World) delay(h *host) time.Duration {
	switch {
	case w.now < h.storm:
		return w.upTo(4 * time.Second)
	case w.o.Sharp:
		return w.upTo(2 * time.Millisecond)
	}
	return w.upTo(20 * time.Millisecond)
}

// client is the lease.Store of one task of a launcher. Its calls take virtual time.
type client struct {
	lease.Store // nil, so that any other method panics
	t           *task
	// until is when its calls end, as by the launcher's contexts.
	until int64
	// writer is who writes: the id of the launcher, or Person.
	writer string
}

func (c client) w() *World { return c.t.p.w }

// timeout is how long the next request may take.
func (c client) timeout() time.Duration {
	return min(tryTime, time.Duration(c.until-c.w().now))
}

// read asks until there is an answer, or the client's time ends.
func read[T any](c client, at func() T) (T, error) {
	for {
		if v, ok := ask(c.t, c.timeout(), at); ok {
			return v, nil
		}
		if c.w().now >= c.until {
			var none T
			return none, lease.ErrUnavailable
		}
		c.t.sleep(min(100*time.Millisecond, time.Duration(c.until-c.w().now)))
	}
}

func (c client) Get(_ context.Context, profile string) (lease.Entry, error) {
	v, err := read(c, func() version[lease.Record] { return c.w().server.records.stale(c.w(), profile) })
	switch {
	case err != nil:
		return lease.Entry{}, err
	case v.revision == 0:
		return lease.Entry{}, lease.ErrNotFound
	}
	return entryOf(v), nil
}

func entryOf(v version[lease.Record]) lease.Entry {
	return lease.Entry{Record: v.value.Clone(), Revision: v.revision}
}

func presenceOf(v version[lease.Presence]) lease.PresenceEntry {
	return lease.PresenceEntry{Presence: v.value, Revision: v.revision}
}

func (c client) List(context.Context) ([]lease.Entry, error) {
	return read(c, func() (all []lease.Entry) {
		for _, key := range keys(c.w().server.records) {
			all = append(all, entryOf(c.w().server.records.stale(c.w(), key)))
		}
		return all
	})
}

func (c client) Presence(_ context.Context, launcher string) (lease.PresenceEntry, error) {
	return read(c, func() lease.PresenceEntry { return presenceOf(c.w().server.presences.stale(c.w(), launcher)) })
}

func (c client) Presences(context.Context) ([]lease.PresenceEntry, error) {
	return read(c, func() (all []lease.PresenceEntry) {
		for _, key := range keys(c.w().server.presences) {
			all = append(all, presenceOf(c.w().server.presences.stale(c.w(), key)))
		}
		return all
	})
}

func (c client) Swap(_ context.Context, prev lease.Entry, next lease.Record) (lease.Entry, error) {
	next = next.Clone()
	stored, current, err := swap(c, c.w().server.records, next.ProfileID, prev.Revision, func(nonce string) lease.Record {
		next.Nonce = nonce
		return next
	}, c.w().check.record)
	switch {
	case errors.Is(err, errMoved) && current.revision == 0:
		return lease.Entry{}, &lease.MovedError{Profile: next.ProfileID}
	case errors.Is(err, errMoved):
		e := entryOf(current)
		return lease.Entry{}, &lease.MovedError{Profile: next.ProfileID, Current: &e}
	case err != nil:
		return lease.Entry{}, err
	}
	return lease.Entry{Record: next, Revision: stored}, nil
}

func (c client) SwapPresence(_ context.Context, prev lease.PresenceEntry, next lease.Presence) (lease.PresenceEntry, error) {
	stored, current, err := swap(c, c.w().server.presences, next.LauncherID, prev.Revision, func(nonce string) lease.Presence {
		next.Nonce = nonce
		return next
	}, c.w().check.presence)
	switch {
	case errors.Is(err, errMoved):
		e := presenceOf(current)
		return lease.PresenceEntry{}, &lease.PresenceMovedError{Launcher: next.LauncherID, Current: &e}
	case err != nil:
		return lease.PresenceEntry{}, err
	}
	return lease.PresenceEntry{Presence: next, Revision: stored}, nil
}

var errMoved = errors.New("moved")

// written is the answer to one try of a swap.
type written[T any] struct {
	stored  bool
	current version[T]
}

// swap stores a value over the expected revision by the rule of lease/natskv: it sends the
// same bytes until there is an answer, and recognises them by a nonce. checked is called
// with what is stored and returns it as it stands then. errMoved comes with the current
// version.
func swap[T any](c client, b bucket[T], key string, expected uint64, value func(nonce string) T, checked func(writer string, prev, next version[T]) T) (stored uint64, current version[T], err error) {
	w := c.w()
	w.nonces++
	nonce := fmt.Sprintf("n%d", w.nonces)
	v := value(nonce)
	op := w.check.begin(key, expected, nonce)
	defer func() { w.check.end(op, stored, err) }()
	ambiguous := false
	for {
		answer, ok := ask(c.t, c.timeout(), func() written[T] {
			prev := b.last(key)
			if prev.revision != expected && !w.mutant("act on a read without compare-and-swap") {
				return written[T]{current: prev}
			}
			w.server.seq++
			next := version[T]{revision: w.server.seq, nonce: nonce, value: v, at: w.now}
			next.value = checked(c.writer, prev, next)
			w.check.stored(op, next.revision)
			b[key] = append(b[key], next)
			if all := b[key]; len(all) > history {
				b[key] = slices.Clone(all[len(all)-history:])
			}
			return written[T]{stored: true, current: next}
		})
		switch {
		case ok && answer.stored:
			return answer.current.revision, version[T]{}, nil
		case ok && !ambiguous, ok && w.mutant("no nonce: a refusal after a time-out is a loss"):
			return 0, answer.current, errMoved
		case ok:
			// An earlier try of this write may be what changed the revision.
			own, known := ask(c.t, c.timeout(), func() version[T] { return after(b, key, expected) })
			switch {
			case known && own.nonce == nonce:
				w.counts["unanswered writes that were stored"]++
				return own.revision, version[T]{}, nil
			case known && own.revision != 0:
				w.counts["unanswered writes that were not stored"]++
				return 0, answer.current, errMoved
			}
		case w.mutant("no nonce: a time-out is a success"):
			return expected + 1, version[T]{}, nil
		default:
			ambiguous = true
		}
		if w.now >= c.until {
			w.counts["writes that nobody knows of"]++
			return 0, version[T]{}, lease.ErrUnavailable
		}
		c.t.sleep(min(50*time.Millisecond, time.Duration(c.until-w.now)))
	}
}

// after returns the write that followed the revision of the key.
func after[T any](b bucket[T], key string, revision uint64) version[T] {
	for _, v := range b[key] {
		if v.revision > revision {
			return v
		}
	}
	return version[T]{}
}
