package queue

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"leasehold/internal/id"
	"leasehold/lease"
)

const (
	// maxOwn is how many requests may wait at one launcher.
	maxOwn = 1000
	// followTime is how long a free profile is kept for the request that comes first, for
	// example one that was sent on from another launcher and is on its way.
	followTime = 15 * time.Second
	// storeTime is how long HandOn waits for such a request to be stored.
	storeTime = 500 * time.Millisecond
	// rememberTime is how long a request that gave up may come back to its place.
	rememberTime = time.Minute
	// maxRemembered bounds how many of these there are.
	maxRemembered = 1000
)

// Options configure a Queue.
type Options struct {
	LauncherID string
	// Store has the waiters of all launchers; nil: only this launcher's are known.
	Store lease.WaiterStore
	// Epoch is the epoch of this launcher's presence; false: there is none.
	Epoch func() (epoch uint64, ok bool)
	// Lives tells whether the presence of another launcher still lasts; known is false if it
	// was never seen.
	Lives func(launcherID string, epoch uint64) (lives, known bool)
	// Belief is how long a waiter counts if its launcher was not seen.
	Belief time.Duration
	// Profiles are the records of all profiles, as far as they are known.
	Profiles func() []lease.Record
	// Changed is called when it may have become somebody else's turn.
	Changed func()

	Log     zerolog.Logger
	Metrics prometheus.Registerer
}

// Queue has the requests that wait, on this host and on others. Its methods are safe for
// concurrent use.
type Queue struct {
	o       Options
	metrics metrics
	kick    chan struct{} // has an element if there is something to store

	mu sync.Mutex
	// own are this launcher's tickets that are in the queue, by id.
	own map[string]*Ticket
	// entries is how many requests of this launcher have begun to wait.
	entries uint64
	// epoch is the latest epoch of this launcher's presence; zero: it had none yet.
	epoch uint64
	// others are the waiters of other launchers; left are waiters of this one that have yet to
	// be removed from the store; both by id.
	others map[string]sighted
	left   map[string]lease.Waiter
	// past are requests that gave up, by id.
	past map[string]gaveUp
	// shared says that the store now shows the waiters of other launchers.
	shared bool
	// stalled is since when a free profile has been kept for a waiter.
	stalled map[stall]time.Time
	// missing has the waiters that were known before the watch began again, and have not been shown
	// since. It is true for those that the store had by then. A waiter of this launcher's own that is
	// stored meanwhile may be shown later than everything else.
	missing map[string]bool
}

// sighted is the waiter of another launcher.
type sighted struct {
	lease.WaiterEntry
	since time.Time // when it was seen, by this host's clock
}

// stall is a waiter that comes first for a profile which has a certain token.
type stall struct {
	waiter, profile string
	token           lease.Token
}

type gaveUp struct {
	waiter lease.Waiter
	number uint64
	at     time.Time
}

// New returns a queue, whose Run is still to be called.
func New(o Options) *Queue {
	q := &Queue{
		o: o, kick: make(chan struct{}, 1), own: map[string]*Ticket{}, others: map[string]sighted{}, left: map[string]lease.Waiter{}, past: map[string]gaveUp{}, stalled: map[stall]time.Time{},
	}
	q.metrics = newMetrics(q, o.Metrics)
	return q
}

// Ticket is one request of this launcher, which may be in the queue. Its methods are safe for
// concurrent use.
type Ticket struct {
	q *Queue

	// The queue's mutex guards these.
	waiter   lease.Waiter
	revision uint64
	// number counts the requests of this launcher as they begin to wait; zero: it has not.
	number uint64
	// entered is since when it has been in the queue; zero: it is not in it.
	entered time.Time
	// dirty says that the store does not have its present state. stored is closed when it has.
	dirty  bool
	stored chan struct{}
	// until is when it leaves by itself, after it was sent on to another launcher; zero: it was
	// not sent on.
	until time.Time
	// before is the waiter at another launcher whose place it takes over; empty: there is none.
	before lease.Waiter
}

// Ticket returns the ticket of a request, which is not in the queue yet. turn names an earlier
// request whose place it takes over, if that request asked for the same in the name of the same
// principal.
func (q *Queue) Ticket(want lease.Waiter, turn string) *Ticket {
	want.ID, want.LauncherID, want.Since = id.Secret()[:32], q.o.LauncherID, time.Now().UTC()
	t := &Ticket{q: q, waiter: want, stored: make(chan struct{})}
	if turn == "" {
		return t
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if before, number, ok := q.find(turn); ok && isSame(before, want) {
		t.before, t.number = before, number
		t.waiter.Round, t.waiter.Arrival, t.waiter.Since = before.Round, before.Arrival, before.Since
	}
	return t
}

// find returns the waiter with this turn, as it is in the queue, and its number if it is this
// launcher's. The caller holds q.mu.
func (q *Queue) find(turn string) (w lease.Waiter, number uint64, ok bool) {
	if t := q.own[turn]; t != nil && !t.until.IsZero() {
		w := t.waiter
		w.Arrival = rankOf(&w, t.revision).Arrival
		return w, t.number, w.Arrival != NotStored
	}
	if s, ok := q.others[turn]; ok {
		w := s.Waiter
		w.Arrival = rankOf(&w, s.Revision).Arrival
		return w, 0, true
	}
	p, ok := q.past[turn]
	return p.waiter, p.number, ok && time.Since(p.at) < rememberTime
}

// isSame tells whether two requests ask for the same, in the same name. The first one may have
// been sent on for only one of the profiles that it asked for.
func isSame(a, b lease.Waiter) bool {
	if a.Principal != b.Principal || a.ProfileID != b.ProfileID && b.ProfileID != "" || a.AccountID != b.AccountID || len(a.Labels) != len(b.Labels) {
		return false
	}
	for name, value := range a.Labels {
		if other, ok := b.Labels[name]; !ok || other != value {
			return false
		}
	}
	return true
}

// ID names the request, so that it can come back or go on elsewhere.
func (t *Ticket) ID() string { return t.waiter.ID }

// Rank decides when it is the request's turn.
func (t *Ticket) Rank() Rank {
	t.q.mu.Lock()
	defer t.q.mu.Unlock()
	return t.rank()
}

// rank is Rank. The caller holds the queue's mutex.
func (t *Ticket) rank() Rank {
	r := rankOf(&t.waiter, t.revision)
	r.Number = cmp.Or(t.number, NotStored)
	return r
}

// hasPlace tells whether its place is known, because it waits, or takes over that of an earlier
// request. The caller holds the queue's mutex.
func (t *Ticket) hasPlace() bool { return t.waiter.Arrival != 0 || t.number != 0 }

// Entrant says who asks.
func (t *Ticket) Entrant() Entrant { return entrantOf(&t.waiter) }

func entrantOf(w *lease.Waiter) Entrant {
	return Entrant{Principal: w.Principal, Worker: w.WorkerID, Priority: w.Priority, Round: w.Round}
}

// Enter puts the request into the queue, if it is not in it. It returns false if too many wait.
func (t *Ticket) Enter() bool {
	q := t.q
	q.mu.Lock()
	in := !t.entered.IsZero()
	q.mu.Unlock()
	if in {
		return true
	}
	var records []lease.Record
	if t.waiter.ProfileID == "" || q.anyWaits() {
		records = q.o.Profiles()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.own) >= maxOwn {
		return false
	}
	if !t.hasPlace() {
		t.waiter.Round = q.round(t, records)
	}
	if t.number == 0 {
		q.entries++
		t.number = q.entries
	}
	t.entered, t.dirty = time.Now(), true
	q.own[t.waiter.ID] = t
	q.store()
	return true
}

// round is the round that a ticket would get among the waiters that could be given one of the
// profiles that it could be given. The caller holds q.mu.
func (q *Queue) round(t *Ticket, records []lease.Record) uint64 {
	wanted := []lease.Record{{ProfileID: t.waiter.ProfileID}}
	if i := slices.IndexFunc(records, func(r lease.Record) bool { return r.ProfileID == t.waiter.ProfileID }); i >= 0 {
		wanted = records[i : i+1]
	} else if t.waiter.ProfileID == "" {
		wanted = slices.DeleteFunc(slices.Clone(records), func(r lease.Record) bool { return !Wants(&t.waiter, &r) })
	}
	var others []Entrant
	for _, m := range q.members() {
		if m.waiter.ID != t.waiter.ID && m.waiter.ID != t.before.ID && shares(m.waiter, wanted) {
			others = append(others, entrantOf(m.waiter))
		}
	}
	return Round(t.Entrant(), others)
}

// anyWaits tells whether any waiting request names no profile.
func (q *Queue) anyWaits() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, m := range q.members() {
		if m.waiter.ProfileID == "" {
			return true
		}
	}
	return false
}

// The values of Leave: how the waiting ended.
const (
	Granted   = "granted"
	TimedOut  = "timeout"
	Refused   = "refused"
	Gone      = "gone"      // the client left
	Elsewhere = "elsewhere" // another launcher has the profile
)

// Leave removes the request from the queue. Only the first call has an effect.
func (t *Ticket) Leave(how string) {
	q := t.q
	q.mu.Lock()
	defer q.mu.Unlock()
	q.forget(t.before)
	t.before = lease.Waiter{}
	if t.entered.IsZero() || !t.until.IsZero() {
		return
	}
	q.metrics.waited.WithLabelValues(how).Observe(time.Since(t.entered).Seconds())
	if how == TimedOut {
		w := t.waiter
		w.Arrival = cmp.Or(w.Arrival, t.revision)
		q.remember(w, t.number)
	}
	q.takeOut(t)
}

// HandOn keeps the request's place for one profile for a moment, because its client is sent on
// to the launcher that has the profile. It returns the turn that the client has to show there.
func (t *Ticket) HandOn(profile string) (turn string) {
	q := t.q
	q.mu.Lock()
	t.waiter.ProfileID, t.dirty = profile, true
	if t.revision != 0 {
		t.stored = make(chan struct{})
	}
	stored, shared := t.stored, q.shared
	q.store()
	q.mu.Unlock()
	if t.Enter() && shared { // without a place it is a new request there
		select {
		case <-stored:
		case <-time.After(storeTime):
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.forget(t.before)
	t.before = lease.Waiter{}
	if !t.entered.IsZero() && t.until.IsZero() {
		q.metrics.waited.WithLabelValues(Elsewhere).Observe(time.Since(t.entered).Seconds())
		t.until = time.Now().Add(followTime)
	}
	return t.waiter.ID
}

// takeOut removes a ticket. The caller holds q.mu.
func (q *Queue) takeOut(t *Ticket) {
	t.entered, t.until = time.Time{}, time.Time{}
	delete(q.own, t.waiter.ID)
	q.left[t.waiter.ID] = t.waiter
	q.store()
	q.o.Changed()
}

// forget removes a waiter whose place another one has taken over. The caller holds q.mu.
func (q *Queue) forget(w lease.Waiter) {
	if w.ID == "" {
		return
	}
	delete(q.past, w.ID)
	if t := q.own[w.ID]; t != nil {
		q.takeOut(t)
	} else if _, ok := q.others[w.ID]; ok {
		delete(q.others, w.ID)
		q.left[w.ID] = w
		q.store()
	}
}

// remember keeps the place of a request that gave up. The caller holds q.mu.
func (q *Queue) remember(w lease.Waiter, number uint64) {
	if len(q.past) >= maxRemembered {
		for id, p := range q.past {
			if time.Since(p.at) >= rememberTime {
				delete(q.past, id)
			}
		}
	}
	if len(q.past) < maxRemembered {
		q.past[w.ID] = gaveUp{w, number, time.Now()}
	}
}

// store arranges that what has changed is stored.
func (q *Queue) store() {
	select {
	case q.kick <- struct{}{}:
	default:
	}
}

// members are all waiters whose launchers live. The caller holds q.mu.
func (q *Queue) members() []member {
	all := make([]member, 0, len(q.own)+len(q.others))
	for _, t := range q.own {
		all = append(all, member{&t.waiter, t.rank()})
	}
	for _, s := range q.others {
		if q.lives(s) {
			w := s.Waiter
			all = append(all, member{&w, rankOf(&w, s.Revision)})
		}
	}
	return all
}

// lives tells whether the waiter of another launcher counts. The store alone may still show
// waiters of a launcher that is gone.
func (q *Queue) lives(s sighted) bool {
	lives, known := q.o.Lives(s.Waiter.LauncherID, s.Waiter.Epoch)
	if known {
		return lives
	}
	return time.Since(s.since) < q.o.Belief
}

// Ahead tells how many waiters get the profile of a record before the ticket's request, which
// need not be in the queue, and how many others wait for it. free says that the profile could
// be had now: then a waiter that does not take it, although it is kept for it, no longer counts
// after a while, so that no launcher that is slow, or whose clock is wrong, keeps it from
// others. One that wants a profile to itself which others have cannot take it, and counts for
// as long as it waits.
func (q *Queue) Ahead(t *Ticket, r lease.Record, free bool) (ahead, others int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.own) == 0 && len(q.others) == 0 {
		return 0, 0
	}
	own, byAge := t.rank(), ByAge(uint64(r.Token)+1)
	if !t.hasPlace() { // it would enter the queue now
		own.Round = q.round(t, []lease.Record{r})
	}
	for _, m := range q.members() {
		if m.waiter.ID == t.waiter.ID || m.waiter.ID == t.before.ID || !mayHave(m.waiter, &r) {
			continue
		}
		others++
		if Compare(m.rank, own, byAge) > 0 {
			continue
		}
		waits := r.State == lease.Held && !m.waiter.Shares
		if !free || waits || !q.isStalled(stall{m.waiter.ID, r.ProfileID, r.Token}) {
			ahead++
		}
	}
	return ahead, others
}

// isStalled tells whether a profile has been kept for a waiter for too long. The caller holds
// q.mu.
func (q *Queue) isStalled(s stall) bool {
	since, ok := q.stalled[s]
	if !ok {
		q.stalled[s] = time.Now()
	}
	return ok && time.Since(since) >= followTime
}

// Wanted tells whether any request waits that could get the profile of a record.
func (q *Queue) Wanted(r lease.Record) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, m := range q.members() {
		if mayHave(m.waiter, &r) {
			return true
		}
	}
	return false
}

// Shown is a waiter as people see it.
type Shown struct {
	lease.Waiter
	// Ahead is the number of waiters that come before it, for the profile for which there are
	// the fewest.
	Ahead int
	// Profiles are the profiles that it could be given.
	Profiles []string
	// Arrived is the arrival of its rank.
	Arrived uint64
}

// Show lists all waiters, in the order of their arrival.
func (q *Queue) Show() []Shown {
	records := q.o.Profiles()
	q.mu.Lock()
	members := q.members()
	for i := range members { // tickets of this launcher may change meanwhile
		w := *members[i].waiter
		members[i].waiter = &w
	}
	q.mu.Unlock()
	return show(members, records)
}

// Run stores this launcher's waiters and follows those of others, until ctx ends. Then it
// removes this launcher's waiters.
func (q *Queue) Run(ctx context.Context) {
	if q.o.Store == nil {
		q.tick(ctx, func() { q.drop() })
		return
	}
	var watching sync.WaitGroup
	watching.Go(func() { q.watch(ctx) })
	q.tick(ctx, func() {
		q.drop()
		q.write(ctx)
	})
	watching.Wait()
	q.clear()
}
