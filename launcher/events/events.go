// Package events passes the event stream on to followers over HTTP. One reader of the store
// serves them all: what it read last stays in memory, and each follower goes through it at its
// own pace, by its place. Nothing is queued for a follower, so a slow one costs no memory. A
// follower that is behind the events in memory reads the store, page by page.
//
// The stream is read while somebody follows, and for a while after that.
package events

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"leasehold/launcher/api"
	"leasehold/lease"
)

const (
	// maxFollowers is how many may follow at a time; maxPerName, how many of them may be one
	// principal's.
	maxFollowers, maxPerName = 256, 64
	// maxKept and maxKeptBytes bound the events in memory.
	maxKept, maxKeptBytes = 4096, 4 << 20
	// maxBatch is how many events a follower gets at once.
	maxBatch = 256
	// maxReads is how many pages of the store are read at a time.
	maxReads = 2
	// retryPause is the pause after a failed read of the store.
	retryPause = 500 * time.Millisecond
	// linger is how long the stream is still read after the last follower has left.
	linger = time.Minute
	// lastLook is how long the stream is still read at the end, for the latest events.
	lastLook = 300 * time.Millisecond
)

// Source is where the events are; lease/natskv has one.
type Source interface {
	// EventsAfter reads some events after a place.
	EventsAfter(ctx context.Context, after lease.Place) (lease.EventPage, error)
	// FollowEvents reads on until ctx ends, or until something may be missing.
	FollowEvents(ctx context.Context, after lease.Place, see func(lease.EventPage)) error
}

// Hub reads the stream for its followers.
type Hub struct {
	source Source
	log    zerolog.Logger
	reads  chan struct{} // holds one element for each page that is being read

	mu        sync.Mutex
	followers map[string]int // by name
	total     int
	// kept are the latest events, which come after the place before. The stream was read up to
	// the place through. Both places are lease.PlaceNow until something is read.
	kept            []lease.Published
	keptBytes       int
	before, through lease.Place
	// resets counts how often the stream was lost, or went back.
	resets uint64
	// away is since when the store cannot be read; zero while it can be read, or nobody tries.
	away  time.Time
	ended bool
	// changed is closed and replaced whenever one of the above has changed.
	changed chan struct{}
}

// New returns a hub that reads while Run runs. Without a source nobody can follow.
func New(source Source, log zerolog.Logger) *Hub {
	return &Hub{
		source: source, log: log, reads: make(chan struct{}, maxReads), followers: map[string]int{},
		before: lease.PlaceNow, through: lease.PlaceNow, changed: make(chan struct{}),
	}
}

// Run reads the stream while it has followers, until ctx ends. Then it gives every follower the
// latest events, and ends it.
func (h *Hub) Run(ctx context.Context) {
	defer h.end()
	for h.wanted(ctx) {
		reading, stop := context.WithCancel(context.WithoutCancel(ctx))
		var over sync.WaitGroup
		over.Go(func() {
			defer stop()
			if h.whileFollowed(ctx); ctx.Err() != nil {
				time.Sleep(lastLook)
			}
		})
		for reading.Err() == nil {
			began := false
			err := h.source.FollowEvents(reading, h.readThrough(), func(page lease.EventPage) {
				began = true
				h.take(page)
			})
			if reading.Err() != nil {
				break
			}
			if !began { // otherwise the reader was cut off, and begins again
				h.lost(err)
			}
			select {
			case <-time.After(retryPause):
			case <-reading.Done():
			}
		}
		over.Wait()
		if ctx.Err() == nil {
			h.forget()
		}
	}
}

// forget drops what was read, because what comes until somebody follows again is not read.
func (h *Hub) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kept, h.keptBytes, h.before, h.through, h.away = nil, 0, lease.PlaceNow, lease.PlaceNow, time.Time{}
}

// wanted waits for the first follower. It returns false if ctx ends before.
func (h *Hub) wanted(ctx context.Context) bool {
	for ctx.Err() == nil {
		h.mu.Lock()
		total, changed := h.total, h.changed
		h.mu.Unlock()
		if total > 0 {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	return false
}

// whileFollowed returns when there has been no follower for a while, or when ctx ends.
func (h *Hub) whileFollowed(ctx context.Context) {
	for {
		h.mu.Lock()
		total, changed := h.total, h.changed
		h.mu.Unlock()
		var over <-chan time.Time
		if total == 0 {
			over = time.After(linger)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		case <-over:
			return
		}
	}
}

func (h *Hub) readThrough() lease.Place {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.through
}

func (h *Hub) take(page lease.EventPage) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.before == lease.PlaceNow || page.Lost != lease.NothingLost {
		h.kept, h.keptBytes, h.before = nil, 0, page.Through
		if len(page.Events) > 0 { // followers at another place read these events from the store
			h.before = lease.Place{Sequence: page.Events[0].Place.Sequence - 1}
		}
		h.resets++
	}
	if h.through != page.Through || !h.away.IsZero() {
		h.wake()
	}
	h.through, h.away = page.Through, time.Time{}
	h.kept = append(h.kept, page.Events...)
	for _, e := range page.Events {
		h.keptBytes += len(e.Data)
	}
	drop := 0
	for ; len(h.kept)-drop > maxKept || h.keptBytes > maxKeptBytes && drop < len(h.kept); drop++ {
		h.keptBytes -= len(h.kept[drop].Data)
		h.before = h.kept[drop].Place
	}
	if drop > 0 { // a copy, so that the dropped events are freed while followers keep theirs
		h.kept = slices.Clone(h.kept[drop:])
	}
}

// lost notes that the stream cannot be read now.
func (h *Hub) lost(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.away.IsZero() {
		h.away = time.Now()
		h.log.Warn().Err(err).Msg("events cannot be read: those who follow them wait")
		h.wake()
	}
}

func (h *Hub) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	h.wake()
}

// wake tells everybody who waits that something has changed. The caller holds mu.
func (h *Hub) wake() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// Follow begins to follow for a principal: after a place, or from now on if that is
// lease.PlaceNow. The Follower has to be closed. Follow is refused while the hub ends, or if
// there are too many followers.
func (h *Hub) Follow(name string, after lease.Place) (*Follower, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.source == nil:
		return nil, api.Refuse(api.CodeNotFound, "this launcher keeps no events")
	case h.ended:
		return nil, api.Refuse(api.CodeShuttingDown, "the launcher is shutting down: ask the next one, with the Last-Event-ID")
	case h.total >= maxFollowers, h.followers[name] >= maxPerName:
		p := api.Refuse(api.CodeTooManyStreams, "%d event streams are open, %d of them yours: want at most %d, and %d of one principal", h.total, h.followers[name], maxFollowers, maxPerName)
		p.RetryAfter = 10
		return nil, p
	}
	h.total++
	h.followers[name]++
	h.wake()
	return &Follower{hub: h, name: name, at: after}, nil
}

// Follower is one follower of the stream. Its methods are for one goroutine.
type Follower struct {
	hub  *Hub
	name string
	// at is the place up to which the follower has read.
	at lease.Place
	// known is the count of the hub's resets at which the stream was known to contain at; zero:
	// it is not known yet whether it contains it.
	known uint64
	// told is what the follower was last told about the store: since when it cannot be read.
	told   time.Time
	closed bool
}

// Close ends following.
func (f *Follower) Close() {
	h := f.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if f.closed {
		return
	}
	f.closed = true
	h.total--
	if h.followers[f.name]--; h.followers[f.name] == 0 {
		delete(h.followers, f.name)
	}
	h.wake()
}

// Next waits for the next batch: events, or news about the stream itself. Its only error is
// that of ctx.
func (f *Follower) Next(ctx context.Context) (api.EventBatch, error) {
	for {
		batch, changed, behind := f.look()
		if batch != nil {
			return *batch, nil
		}
		if behind {
			batch, err := f.read(ctx)
			if err != nil {
				return api.EventBatch{}, err
			}
			if batch != nil {
				return *batch, nil
			}
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return api.EventBatch{}, ctx.Err()
		}
	}
}

// look returns what is in memory for the follower; behind says that it has to read the store.
// If there is nothing, changed is closed when that may have changed.
func (f *Follower) look() (batch *api.EventBatch, changed <-chan struct{}, behind bool) {
	h := f.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	rest := h.after(f.at, f.known == h.resets)
	switch {
	case h.ended && (rest < 0 || rest == len(h.kept)):
		return &api.EventBatch{Through: f.at, Ended: true}, nil, false
	case f.told != h.away:
		f.told = h.away
		return &api.EventBatch{Through: f.at, Store: &api.StoreNews{Away: h.away}}, nil, false
	case h.through == lease.PlaceNow, f.at == lease.PlaceNow && !h.away.IsZero():
		return nil, h.changed, false
	case f.at == lease.PlaceNow:
		f.at, f.known = h.through, h.resets
		return &api.EventBatch{Through: f.at}, nil, false
	case isSame(f.at, h.through), f.known == h.resets && f.at.Sequence > h.through.Sequence:
		return nil, h.changed, false
	case rest < 0 && !h.away.IsZero():
		return nil, h.changed, false
	case rest < 0:
		return nil, nil, true
	}
	b := api.EventBatch{Through: h.through, Events: h.kept[rest:]}
	if len(b.Events) > maxBatch {
		b.Events = b.Events[:maxBatch]
		b.Through = b.Events[maxBatch-1].Place
	}
	f.at, f.known = b.Through, h.resets
	return &b, nil, false
}

// isSame tells whether two places are the same, as far as is known.
func isSame(a, b lease.Place) bool {
	return a.Sequence == b.Sequence && (a.Check == b.Check || b.Check == 0)
}

// after returns the index in kept of the first event after a place; -1 if it is not known,
// because the place is older, or belongs to another stream. known says that it belongs to this
// one. The caller holds mu.
func (h *Hub) after(at lease.Place, known bool) int {
	if at == h.before || known && isSame(at, h.before) {
		return 0
	}
	i, found := slices.BinarySearchFunc(h.kept, at.Sequence, func(e lease.Published, seq uint64) int {
		switch {
		case e.Place.Sequence < seq:
			return -1
		case e.Place.Sequence > seq:
			return 1
		}
		return 0
	})
	if found && h.kept[i].Place == at {
		return i + 1
	}
	return -1
}

// read reads one page of the store for the follower. It returns nil if that brought nothing or
// failed; then it has waited for a while.
func (f *Follower) read(ctx context.Context) (*api.EventBatch, error) {
	h := f.hub
	select {
	case h.reads <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	h.mu.Lock()
	resets := h.resets
	h.mu.Unlock()
	page, err := h.source.EventsAfter(ctx, f.at)
	<-h.reads
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err == nil && (page.Through != f.at || page.Lost != lease.NothingLost) {
		f.at, f.known = page.Through, resets
		return &api.EventBatch{Through: page.Through, Events: page.Events, Lost: page.Lost}, nil
	}
	if err != nil && !errors.Is(err, lease.ErrUnavailable) {
		h.log.Warn().Err(err).Msg("events cannot be read")
	}
	select {
	case <-time.After(retryPause):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return nil, nil
}
