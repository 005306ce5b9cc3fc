package launcher

import (
	"context"
	"time"

	"leasehold/internal/boottime"
	"leasehold/launcher/api"
	"leasehold/lease"
)

// view is what the launcher sees in the store: hints, for what to look into. It
// belongs to tend.
type view struct {
	records  map[string]lease.Entry
	complete bool // every record is among them
	observer *lease.Observer
}

// tend watches the store until the launcher ends: it tells sessions what becomes
// of their leases, recovers what no session here is behind, and takes the leases
// of launchers that went silent further.
func (l *Launcher) tend() {
	sights := make(chan lease.Sight)
	l.work.Go(func() {
		if err := l.o.Store.Watch(l.ctx, func(s lease.Sight) {
			select {
			case sights <- s:
			case <-l.ctx.Done():
			}
		}); err != nil {
			l.o.Log.Error().Err(err).Msg("the lease store cannot be watched: leases that are lost are not seen")
		}
	})
	v := &view{records: map[string]lease.Entry{}, observer: lease.NewObserver(l.o.ID, l.o.HomeTimeout)}
	every := time.NewTicker(max(l.o.Timing.Renewal(), 250*time.Millisecond))
	defer every.Stop()
	for {
		select {
		case s := <-sights:
			l.see(v, s)
		case <-every.C:
			l.patrol(v)
		case <-l.ctx.Done():
			return
		}
	}
}

// see takes in one sight.
func (l *Launcher) see(v *view, s lease.Sight) {
	switch {
	case s.Fresh:
		if s.Stepped {
			l.o.Log.Warn().Msg("the lease store was lost or went back: holders say again what they hold")
		}
		// A restart may have lost just the renewal that nobody saw.
		v.observer.Start(boottime.Now())
		clear(v.records)
		v.complete = false
		l.presence.unsettled()
	case s.Complete:
		v.complete = true
		l.patrol(v)
		l.settlePending(v)
	default:
		v.records[s.Entry.Record.ProfileID] = s.Entry
		l.look(s.Entry.Record)
		l.slots.Wake()
	}
}

// look tells the sessions on a profile what the store shows of it, and looks
// after a profile of this host that has none.
func (l *Launcher) look(r lease.Record) {
	if told := l.slots.Tell(r); told || r.Home != "" && r.Home != l.o.ID {
		return
	}
	forgotten, err := l.recoverer.Forgot(r)
	if err != nil {
		l.o.Log.Error().Err(err).Str("profile", r.ProfileID).Msg("token floor cannot be read")
		return
	}
	if forgotten || r.Home == l.o.ID && (r.Unfinished() || l.leftOpen(r.ProfileID) && l.slots.WarmSince(r.ProfileID).IsZero()) {
		l.adopt(r)
	}
}

// leftOpen tells whether a browser was started on the profile and not closed by a
// launcher.
func (l *Launcher) leftOpen(profile string) bool {
	_, ok, err := l.o.Root.Running(profile)
	return ok && err == nil
}

// restate goes through the profiles of this host that the store does not know:
// it lost them, or they never had a lease.
func (l *Launcher) restate(v *view) {
	ids, err := l.o.Root.List()
	if err != nil {
		l.o.Log.Error().Err(err).Msg("profiles cannot be listed")
		return
	}
	for _, profile := range ids {
		if _, known := v.records[profile]; !known {
			l.look(lease.Record{ProfileID: profile})
		}
	}
}

// patrol looks at everything that needs time, or could not be done before.
func (l *Launcher) patrol(v *view) {
	if v.complete {
		l.restate(v)
	}
	ctx, cancel := context.WithTimeout(l.ctx, storeTimeout)
	defer cancel()
	all, err := l.o.Store.Presences(ctx)
	if err != nil {
		if l.ctx.Err() == nil {
			l.o.Log.Warn().Err(err).Msg("launchers cannot be listed")
		}
		return
	}
	v.observer.Presences(all, boottime.Now())
	l.learn(all)
	for _, e := range v.records {
		switch r := e.Record; r.Home {
		case l.o.ID, "":
			if (r.Unfinished() || l.leftOpen(r.ProfileID)) && !l.slots.Serves(r) {
				l.look(r)
			}
		default:
			l.observe(ctx, e, v.observer.Lease(e, boottime.Now()))
		}
	}
}

// learn keeps the addresses of the other launchers, for workers at the wrong one.
func (l *Launcher) learn(all []lease.PresenceEntry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.others)
	for _, p := range all {
		l.others[p.Presence.LauncherID] = p.Presence
	}
}

// observe takes one step with a lease of another launcher.
func (l *Launcher) observe(ctx context.Context, e lease.Entry, step lease.Step) {
	r := e.Record
	log := l.o.Log.With().Str("profile", r.ProfileID).Uint64("token", uint64(r.Token)).Str("home", r.Home).Logger()
	if step.Close != nil {
		if _, err := l.o.Store.SwapPresence(ctx, step.Prev, *step.Close); err != nil {
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
		next, err = r.Abandon([]string{"its home did not come back to inspect it"}, l.nothingLeft(r), time.Now())
	default:
		return
	}
	if err == nil {
		_, err = l.o.Store.Swap(ctx, e, next)
	}
	if err != nil {
		log.Info().Err(err).Msg("a silent lease was not taken further")
		return
	}
	log.Warn().Str("state", string(next.State)).Msg("a lease of another launcher went silent")
}

// nothingLeft is the bundle of a profile whose home is gone: it names the pictures
// that the session had stored, and says that nothing else could be had.
func (l *Launcher) nothingLeft(r lease.Record) lease.Sealed {
	log := l.o.Log.With().Str("profile", r.ProfileID).Logger()
	m := l.recoverer.Manifest(r, time.Now().UTC())
	m.LeaseToken, m.LastHeartbeatAt, m.DetectedStaleAt = uint64(r.Token), r.HeartbeatAt, r.SuspectedAt
	m.LastKnownStep, m.LastKnownURL, m.RecoveryReason = r.LastKnownStep, r.LastKnownURL, r.Reason
	b, err := l.o.Archive.New(m)
	if err != nil {
		log.Error().Err(err).Msg("evidence cannot be written")
		return lease.Sealed{}
	}
	for _, part := range []struct{ name, kind string }{
		{"screenshot-1.jpg", "screenshot"}, {"journal.jsonl", "journal"}, {"processes.json", "processes"}, {"lock.json", "lock"},
	} {
		b.AddMissing(part.name, part.kind, "the host of launcher "+r.Home+" did not come back")
	}
	ctx, cancel := context.WithTimeout(l.ctx, storeTimeout)
	defer cancel()
	pictures, err := l.o.Archive.Pictures(ctx, r.ProfileID, r.Sessions()...)
	if err != nil {
		log.Warn().Err(err).Msg("the pictures of a session whose home is gone cannot be had")
		b.AddMissing("pictures", "pictures", err.Error())
	}
	b.SetPictures(pictures)
	return l.recoverer.Seal(b, log)
}

// elsewhere refuses a profile whose home is another launcher, and says where that
// is.
func (l *Launcher) elsewhere(r lease.Record) *api.Problem {
	l.mu.Lock()
	home := l.others[r.Home]
	l.mu.Unlock()
	p := api.Refuse(api.CodeWrongHome, "profile %s lives on the host of launcher %s", r.ProfileID, r.Home).With("home_launcher", r.Home)
	switch {
	case home.LauncherID == "" || home.Closed:
		p.Detail += ", which is not there now"
	case home.AdvertiseURL != "":
		p.Detail += ": " + home.AdvertiseURL
		p = p.With("location", home.AdvertiseURL)
	}
	return p
}
