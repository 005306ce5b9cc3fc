// Package cluster is about this launcher among others on the same lease store: its presence,
// what it sees of their leases, and where profiles have their home.
//
// One write every TTL/6 renews the presence, and with it all leases of this launcher. When a
// presence has not changed for longer than its holder may go without a renewal, another launcher
// closes it, by compare-and-swap; from then on it cannot be renewed, and any launcher may suspect
// and quarantine its leases. A lease under this launcher's id is its own only if its epoch is one of
// its data directory. If the epoch is higher, another launcher has the id, or the directory is an
// old copy: the launcher waits until that presence is silent (sameid.go).
//
// A store that forgets is contradicted (remember.go, and package roster). Half a grant delay after
// it lost something, a launcher recalls the profiles of other homes that it remembers, into
// quarantine. A store is young for one grant delay after it was created, went back, or was found to
// lack something: meanwhile no profile is created in it (young.go). The embedded store is never
// young, since its launcher is the only one.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"leasehold/evidence"
	"leasehold/internal/boottime"
	"leasehold/launcher/api"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/recovery"
	"leasehold/launcher/roster"
	"leasehold/launcher/session"
	"leasehold/launcher/sessionfile"
	"leasehold/launcher/slots"
	"leasehold/lease"
)

// PatrolOptions are what a Patrol works with.
type PatrolOptions struct {
	LauncherID string
	Timing     lease.Timing
	// HomeTimeout is how long a quarantined profile waits for its home before it goes
	// to a person.
	HomeTimeout time.Duration
	Store       lease.Store
	Root        *profiledir.Root
	Archive     *evidence.Archive
	Slots       *slots.Table
	Recoverer   *recovery.Recoverer
	// Roster is what this launcher remembers of profiles; nil: nothing.
	Roster   *roster.Roster
	Sessions *session.Registry
	Presence *Presence
	// Adopt looks after a profile of this host that no session here uses.
	Adopt func(lease.Record)
	Clock boottime.Clock // nil: the host's
	Log   zerolog.Logger
	// Metrics gets the number of profiles by state.
	Metrics prometheus.Registerer
}

// Patrol watches the lease store. It tells sessions what happens to their leases, has profiles
// of this host that no session uses looked after, and takes steps with the leases of launchers
// that went silent.
type Patrol struct {
	o      PatrolOptions
	ctx    context.Context
	work   *sync.WaitGroup
	census *census

	// restating is true while this launcher restates what the store has forgotten or
	// contradicts.
	restating atomic.Bool
	settle    func(lease.Record) bool // nil: it is not called

	mu     sync.Mutex
	others map[string]sighting // the launchers that the store knows, by id
	silent map[string]bool     // the launchers of which nothing was heard for longer than the observer waits
}

// NewPatrol returns a patrol whose Run lasts until ctx ends; its goroutines are counted
// in work.
func NewPatrol(ctx context.Context, work *sync.WaitGroup, o PatrolOptions) *Patrol {
	if o.Clock == nil {
		o.Clock = boottime.Now
	}
	p := &Patrol{o: o, ctx: ctx, work: work, census: newCensus(o.LauncherID), others: map[string]sighting{}}
	o.Metrics.MustRegister(p.census)
	return p
}

// SettleBy has settle bring a profile's directory here in line with its home, before anything else is
// done with it; settle tells whether it has begun. It is called once, before Run.
func (p *Patrol) SettleBy(settle func(lease.Record) bool) { p.settle = settle }

// view is what the patrol sees in the store: hints about what to look into. Only Run uses it.
type view struct {
	records  map[string]seen // by profile
	complete bool            // every record is among them
	observer *lease.Observer
	rounds   int // number of looks around
	// sealed are the bundles of profiles whose record does not name them yet, because the store
	// did not accept it, or that are not sealed yet.
	sealed map[string]leftBehind // by profile
	// noPictures is why the evidence store did not show pictures last, and askAgain is when it is asked again.
	noPictures error
	askAgain   boottime.Instant
}

// leftBehind is the bundle of a profile whose home did not come back.
type leftBehind struct {
	token lease.Token
	since boottime.Instant // when it was to be sealed first
	// sealing gets the bundle, which is empty if it cannot be sealed; nil: it is not being sealed.
	sealing <-chan lease.Sealed
	bundle  lease.Sealed
}

// thoroughly is the number of looks around, of which one checks the files of every profile.
const thoroughly = 12

// seen is a record as the store last showed it.
type seen struct {
	lease.Entry
	// again says that the profile has to be looked at in each round: see Patrol.look.
	again bool
	// contradicted says that this launcher remembers another home.
	contradicted bool
}

// Run patrols until the context ends.
func (p *Patrol) Run() {
	sights := make(chan lease.Sight)
	p.work.Go(func() {
		if err := p.o.Store.Watch(p.ctx, func(s lease.Sight) {
			select {
			case sights <- s:
			case <-p.ctx.Done():
			}
		}); err != nil {
			p.o.Log.Error().Err(err).Msg("the lease store cannot be watched: leases that are lost are not seen")
		}
	})
	if p.o.Roster != nil {
		p.work.Go(func() { p.o.Roster.Run(p.ctx) })
	}
	v := &view{records: map[string]seen{}, observer: lease.NewObserver(p.o.LauncherID, p.o.HomeTimeout), sealed: map[string]leftBehind{}}
	every := time.NewTicker(max(p.o.Timing.Renewal(), 250*time.Millisecond))
	defer every.Stop()
	for {
		select {
		case s := <-sights:
			p.see(v, s)
		case <-every.C:
			p.lookAround(v)
		case <-p.ctx.Done():
			return
		}
	}
}

// see takes in one sight of the store.
func (p *Patrol) see(v *view, s lease.Sight) {
	switch {
	case s.Fresh:
		if s.Stepped {
			p.o.Log.Warn().Msg("the lease store was lost or went back: holders say again what they hold")
		}
		// A restart of the store may have lost the one renewal that nobody saw.
		v.observer.Start(p.o.Clock())
		clear(v.records)
		v.complete = false
		p.census.begin()
		p.o.Presence.StoreReset()
		p.o.Presence.StoreSeen(s)
	case s.Complete:
		v.complete = true
		p.census.end()
		p.compare(v)
		p.lookAround(v)
		p.o.Sessions.KnownWhere(func(f sessionfile.File) bool { // nobody has to adopt these
			e, ok := v.records[f.Manifest.ProfileID]
			return p.o.Slots.Find(f.Manifest.ProfileID) == nil && (!ok || e.Record.SessionID != f.SessionID || !e.Record.Unfinished())
		})
		if err := p.o.Sessions.ForgetUngranted(func(profile string) lease.Record { return v.records[profile].Record }); err != nil {
			p.o.Log.Warn().Err(err).Msg("files of sessions that were not granted are not removed")
		}
	default:
		p.takeIn(v, s.Entry)
	}
}

// look tells the sessions on a profile what the store shows of it, and looks after a profile of
// this host that has no session. again says that this has to be done in the next round, too: the
// store knows less of such a profile than this host does, what this host keeps about it cannot
// be trusted, or this launcher may not act yet.
func (p *Patrol) look(r lease.Record) (again bool) {
	if told := p.o.Slots.Tell(r); told {
		return false
	}
	if p.o.Presence.MayAct(r) != nil {
		return true
	}
	if p.o.Root.There() != nil { // the watch of the host's room says so
		return true
	}
	if p.settle != nil && p.settle(r) {
		return false
	}
	if r.Home != "" && r.Home != p.o.LauncherID {
		if p.leftOpen(r.ProfileID) && p.o.Recoverer.WasHome(r.ProfileID) { // the home was contested since then
			p.o.Adopt(r)
		}
		return false
	}
	again, _, err := p.o.Recoverer.Forgot(r)
	if err != nil {
		p.o.Log.Error().Err(err).Str("profile", r.ProfileID).Msg("what is kept of the profile cannot be read")
		return false
	}
	again = again || p.unnamed(r)
	if again || r.Home == p.o.LauncherID && (r.Unfinished() || p.leftOpen(r.ProfileID) && p.o.Slots.WarmSince(r.ProfileID).IsZero()) {
		p.o.Adopt(r)
	}
	return again
}

// unnamed tells whether a person decides about a profile of this host without the bundle that was sealed here:
// others had it decided while this host was away.
func (p *Patrol) unnamed(r lease.Record) bool {
	return r.State == lease.ManualReview && r.Home == p.o.LauncherID && p.o.Recoverer.Unnamed(r, p.o.Sessions.Sealed(r))
}

// storeTimeout bounds each round over the store.
const storeTimeout = 10 * time.Second

// leftOpen tells whether a browser was started on the profile, and no launcher has closed it.
func (p *Patrol) leftOpen(profile string) bool {
	_, ok, err := p.o.Root.Running(profile)
	return ok && err == nil
}

// lookAtUnknown goes through the profiles of this host that the store does not know: either the
// store lost them, or they never had a lease.
func (p *Patrol) lookAtUnknown(v *view) {
	ids, err := p.o.Root.List()
	if err != nil {
		p.o.Log.Error().Err(err).Msg("profiles cannot be listed")
		return
	}
	for _, profile := range ids {
		if e, known := v.records[profile]; !known || e.Record.State == "" { // it has no record, or the record was deleted
			p.look(lease.Record{ProfileID: profile})
		}
	}
}

// lookAround looks at everything that depends on time, or could not be done before.
func (p *Patrol) lookAround(v *view) {
	if v.complete {
		p.lookAtUnknown(v)
		p.restate(p.due(v))
	}
	v.rounds++
	all := v.rounds%thoroughly == 0
	ctx, cancel := context.WithTimeout(p.ctx, storeTimeout)
	defer cancel()
	presences, err := p.o.Store.Presences(ctx)
	if err != nil {
		if p.ctx.Err() == nil {
			p.o.Log.Warn().Err(err).Msg("launchers cannot be listed")
		}
		return
	}
	v.observer.Presences(presences, p.o.Clock())
	p.learn(presences)
	p.listen(v)
	for _, e := range v.records {
		switch r := e.Record; r.Home {
		case p.o.LauncherID, "":
			if (all || r.Unfinished() || r.MoveRequest != nil || e.again || p.leftOpen(r.ProfileID)) && !p.o.Slots.Serves(r) {
				e.again = p.look(r)
				v.records[r.ProfileID] = e
			}
		default:
			if all || e.again || p.leftOpen(r.ProfileID) {
				e.again = p.look(r)
				v.records[r.ProfileID] = e
			}
			p.observe(ctx, v, e.Entry, v.observer.Lease(e.Entry, p.o.Clock()))
		}
	}
}

// observe takes one step with a lease of another launcher.
func (p *Patrol) observe(ctx context.Context, v *view, e lease.Entry, step lease.Step) {
	r := e.Record
	if p.o.Presence.MayAct(r) != nil {
		return
	}
	log := p.o.Log.With().Str("profile", r.ProfileID).Uint64("token", uint64(r.Token)).Str("home", r.Home).Logger()
	if step.Close != nil {
		if _, err := p.o.Store.SwapPresence(ctx, step.Prev, *step.Close); err != nil {
			log.Info().Err(err).Msg("a silent launcher's presence was not closed")
			return
		}
		log.Warn().Uint64("epoch", step.Close.Epoch).Msg("a launcher went silent: its presence is closed")
		return
	}
	var next lease.Record
	var err error
	switch step.Fact {
	case lease.Suspected:
		next, err = r.Suspect(api.ReasonObserved, lease.Sealed{}, time.Now())
	case lease.Fenced:
		next, err = r.Quarantine(0, time.Now())
	case lease.Abandoned:
		next, err = p.abandon(ctx, v, e)
	default:
		return
	}
	if err == nil {
		_, err = p.o.Store.Swap(ctx, e, next)
	}
	if err != nil {
		log.Info().Err(err).Msg("a silent lease was not taken further")
		return
	}
	if next.State == lease.ManualReview { // the record names the bundle now
		delete(v.sealed, r.ProfileID)
	}
	log.Warn().Str("state", string(next.State)).Msg("a lease of another launcher went silent")
}

var (
	errNoBundle = errors.New("no bundle can be sealed: the profile waits in quarantine; is the disk full?")
	errSealing  = errors.New("its bundle is being sealed and stored: the profile waits in quarantine")
)

// abandon gives a profile whose home is gone to a person, with a bundle. To avoid a second
// bundle about the same loss, which no record would name, the store is asked first whether the
// record is still the one in view, and a sealed bundle is kept until the store accepts a record
// that names it. The patrol does not wait for the bundle, since an evidence store may hang.
func (p *Patrol) abandon(ctx context.Context, v *view, e lease.Entry) (lease.Record, error) {
	r := e.Record
	now, err := p.o.Store.Get(ctx, r.ProfileID)
	if err != nil {
		return lease.Record{}, err
	}
	if now.Revision != e.Revision {
		return lease.Record{}, &lease.MovedError{Profile: r.ProfileID, Current: &now}
	}
	left, ok := v.sealed[r.ProfileID]
	if !ok || left.token != r.Token {
		left = leftBehind{token: r.Token, since: p.o.Clock()}
		v.sealed[r.ProfileID] = left
	}
	if left.bundle.EvidenceID == "" && left.sealing == nil {
		pictures, err := p.pictures(v, r)
		if err != nil && p.o.Clock().Sub(left.since) < picturesWait {
			return lease.Record{}, fmt.Errorf("the profile waits in quarantine for the pictures of its session: %w", err)
		}
		sealed := make(chan lease.Sealed, 1)
		p.work.Go(func() { sealed <- p.nothingLeft(r, pictures, err) })
		left.sealing = sealed
	}
	if left.sealing != nil {
		select {
		case left.bundle = <-left.sealing:
			left.sealing = nil
		default:
		}
	}
	v.sealed[r.ProfileID] = left
	switch {
	case left.sealing != nil:
		return lease.Record{}, errSealing
	case left.bundle.EvidenceID == "": // any launcher that can seal a bundle goes on
		return lease.Record{}, errNoBundle
	}
	return r.Abandon([]string{"its home did not come back to inspect it"}, left.bundle, time.Now())
}

// How long a profile waits for the pictures of its session, which may be all that there is of it, and how soon an
// evidence store is asked again that did not show them.
const (
	picturesWait  = 15 * time.Minute
	picturesAgain = time.Minute
)

// pictures are those that the session had stored. Every profile waits until a store that did not show them is asked
// again, since the patrol waits for each answer.
func (p *Patrol) pictures(v *view, r lease.Record) ([]evidence.Picture, error) {
	if v.noPictures != nil && p.o.Clock() < v.askAgain {
		return nil, v.noPictures
	}
	ctx, cancel := context.WithTimeout(p.ctx, storeTimeout)
	defer cancel()
	pictures, err := p.o.Archive.Pictures(ctx, r.ProfileID, r.Sessions()...)
	if v.noPictures = err; err != nil {
		v.askAgain = p.o.Clock().Add(picturesAgain)
		p.o.Log.Warn().Err(err).Str("profile", r.ProfileID).Msg("the pictures of a session whose home is gone cannot be had")
	}
	return pictures, err
}

// nothingLeft is the bundle of a profile whose home is gone: it names the pictures that the
// session had stored, or says why they cannot be had, and says that nothing else could be captured.
func (p *Patrol) nothingLeft(r lease.Record, pictures []evidence.Picture, noPictures error) lease.Sealed {
	log := p.o.Log.With().Str("profile", r.ProfileID).Logger()
	m := p.o.Recoverer.Manifest(r, time.Now().UTC())
	m.LeaseToken, m.LastHeartbeatAt, m.DetectedStaleAt = uint64(r.Token), r.HeartbeatAt, r.SuspectedAt
	m.LastKnownStep, m.LastKnownURL, m.RecoveryReason = r.LastKnownStep, r.LastKnownURL, r.Reason
	b, err := p.o.Archive.New(m)
	if err != nil {
		log.Error().Err(err).Msg("evidence cannot be written")
		return lease.Sealed{}
	}
	for _, part := range []struct{ name, kind string }{
		{"screenshot-1.jpg", "screenshot"}, {"journal.jsonl", "journal"}, {"processes.json", "processes"}, {"lock.json", "lock"},
	} {
		b.AddMissing(part.name, part.kind, "the host of launcher "+r.Home+" did not come back")
	}
	if noPictures != nil {
		b.AddMissing(evidence.PicturesPart, "pictures", noPictures.Error())
	}
	b.SetPictures(pictures)
	return p.o.Recoverer.Seal(b, log)
}

// Other is another launcher, as the store last showed it; the zero value if it is not known.
func (p *Patrol) Other(launcherID string) lease.Presence {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.others[launcherID].Presence
}

// listen notes which homes have gone silent. Their profiles are counted by the first launcher of those
// that are there.
func (p *Patrol) listen(v *view) {
	now, silent := p.o.Clock(), map[string]bool{}
	for _, e := range v.records {
		if home := e.Record.Home; home != "" && home != p.o.LauncherID {
			if _, asked := silent[home]; !asked {
				silent[home] = v.observer.Silent(home, p.o.Timing.TTL, now)
			}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = silent
	for id, other := range p.others {
		if id < p.o.LauncherID && !other.Closed && !v.observer.Silent(id, p.o.Timing.TTL, now) {
			silent = nil
			break
		}
	}
	p.census.standIn(silent)
}

// Silent tells whether a launcher counts as gone: by this host's clock, nothing was heard of it
// for longer than it may go without a renewal. It returns the presence that has not changed
// since then and, for people, that time.
func (p *Patrol) Silent(launcherID string) (last lease.PresenceEntry, since time.Time, silent bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.others[launcherID]
	if s.changed.IsZero() { // the store lost its presence
		s.changed = time.Now().Add(-p.o.Timing.ObserverWait())
	}
	return lease.PresenceEntry{Presence: s.Presence, Revision: s.revision}, s.changed, p.silent[launcherID]
}

// Home refuses a profile whose home is another launcher, and says where that launcher is.
func (p *Patrol) Home(r lease.Record) *api.Problem {
	home := p.Other(r.Home)
	return api.WrongHome(r.ProfileID, r.Home, home.AdvertiseURL, home.LauncherID != "" && !home.Closed)
}
