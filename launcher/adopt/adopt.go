// Package adopt looks after what an earlier launcher has left on this host: sessions that go
// on, profiles that have to be recovered, and browsers that have to be closed. Its Guard is the
// process beside the sidecar that does this if no launcher comes back.
package adopt

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"leasehold/checkpoint"
	"leasehold/evidence"
	"leasehold/internal/signed"
	"leasehold/launcher/accountcheck"
	"leasehold/launcher/api"
	"leasehold/launcher/browser"
	"leasehold/launcher/chrome"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/proxies"
	"leasehold/launcher/recovery"
	"leasehold/launcher/session"
	"leasehold/launcher/sessionfile"
	"leasehold/launcher/slots"
	"leasehold/launcher/witness"
	"leasehold/lease"
)

// Presence is this launcher's presence, under which leases are granted.
type Presence interface {
	// Current is the keeper under which a session may be resumed now.
	Current() (*lease.Keeper, error)
	// Continues tells whether a lease of an earlier launcher's epoch has not expired.
	Continues(epoch uint64) bool
}

// Options are what an Adopter works with.
type Options struct {
	Store     lease.Store
	Root      *profiledir.Root
	Files     sessionfile.Dir
	Jar       sessionfile.Jar
	Proxies   *proxies.Set // nil: none are configured
	Slots     *slots.Table
	Driver    *browser.Driver
	Recoverer *recovery.Recoverer
	Sessions  *session.Registry
	Presence  Presence

	Log     zerolog.Logger
	Metrics prometheus.Registerer
}

// Adopter looks after profiles of this host that no session here uses.
type Adopter struct {
	o         Options
	ctx       context.Context
	work      *sync.WaitGroup
	retries   retries
	adoptions prometheus.Counter
}

// New returns an adopter whose goroutines run until ctx ends, counted in work.
func New(ctx context.Context, work *sync.WaitGroup, o Options) *Adopter {
	a := &Adopter{
		o: o, ctx: ctx, work: work,
		adoptions: prometheus.NewCounter(prometheus.CounterOpts{Name: "leasehold_adoptions_total", Help: "Sessions of the launcher before that went on in this one."}),
	}
	o.Metrics.MustRegister(a.adoptions)
	return a
}

// Adopt looks after a profile of this host that no session here uses: its launcher was killed,
// its end could not be stored, or the store has forgotten it. It does so in the background,
// unless the profile is occupied, or it failed a moment ago.
func (a *Adopter) Adopt(r lease.Record) {
	if !a.retries.due(r, time.Now()) {
		return
	}
	slot := a.o.Slots.OccupyPassing(r.ProfileID)
	if slot == nil {
		return
	}
	a.work.Go(func() {
		log := a.o.Log.With().Str("profile", r.ProfileID).Uint64("token", uint64(r.Token)).Str("session", r.SessionID).Logger()
		resumed, err := a.adopt(slot, r.ProfileID, log)
		if err == nil {
			a.o.Sessions.KnownWhere(func(f sessionfile.File) bool { return f.Manifest.ProfileID == r.ProfileID })
		}
		if !errors.Is(err, errLater) && a.ctx.Err() == nil {
			a.retries.ended(r, err, time.Now())
			if err != nil {
				log.Error().Err(err).Msg("recovery is not complete: it is tried again, after pauses of up to half a minute")
			}
		}
		if !resumed {
			slot.Vacate()
		}
	})
}

// errLater says that nothing can be done yet. It is not a failure.
var errLater = errors.New("later")

// adopt looks after an occupied profile. resumed says that its session goes on.
func (a *Adopter) adopt(slot *slots.Slot, profile string, log zerolog.Logger) (resumed bool, err error) {
	// The record that was seen may be older than the end of a session here.
	now, err := a.o.Store.Get(a.ctx, profile)
	if err != nil && !errors.Is(err, lease.ErrNotFound) {
		return false, errLater
	}
	r := now.Record
	r.ProfileID = profile
	if a.o.Recoverer.Elsewhere(r) { // its home was contested: what is left here has no lease
		slot.CloseWarm(slots.WarmWanted, "")
		if _, open, err := a.o.Root.Left(profile); err == nil && open {
			return false, a.closeLeft(slot, r, log)
		}
		return false, nil
	}
	forgotten, _, err := a.o.Recoverer.Forgot(r)
	if err != nil {
		return false, err
	}
	if forgotten {
		r, err = a.o.Recoverer.Heal(a.ctx, profile)
		if problem := (*api.Problem)(nil); errors.As(err, &problem) {
			return false, errLater // its holder may not have had time to say so yet
		}
		if err != nil {
			return false, err
		}
	}
	if forgotten || r.Unfinished() {
		slot.CloseWarm(slots.WarmWanted, "")
	}
	switch {
	case slot.IsWarm(): // this is as it should be
	case r.Unfinished():
		slot.Recovers()
		return a.recoverLeft(slot, r, log)
	default:
		if _, open, err := a.o.Root.Left(profile); err == nil && open {
			return false, a.closeLeft(slot, r, log)
		}
		if r.State == lease.ManualReview { // others had it decided while this host was away
			return false, a.o.Recoverer.Name(profile, a.o.Sessions.Sealed(r), log)
		}
	}
	return false, nil
}

// recoverLeft recovers a profile from what is on disk, and from its browser if that still runs;
// or it resumes the session, if that is possible.
func (a *Adopter) recoverLeft(slot *slots.Slot, r lease.Record, log zerolog.Logger) (resumed bool, err error) {
	run := lease.Run{SessionID: r.SessionID, Token: r.Token, OwnerWorkerID: r.OwnerWorkerID, TaskID: r.TaskID, Principal: r.Principal}
	own, err := a.leftRun(r, run)
	if err != nil {
		return false, err
	}
	f, entries := own.File, own.Journal
	ended := f.Ended
	if lease.PersonDecides(r.Reason) && f.Reason != r.Reason {
		f.Reason, f.InOrder = r.Reason, false
		if r.Reason != lease.ReasonRolledBack || f.NotStored == "" { // else its browser's own end is the reason
			// The bundle that was sealed at the end of the session says nothing about this.
			f.Evidence = lease.Sealed{}
		}
	}
	lost, err := a.leftRuns(r)
	if err != nil {
		return false, err
	}
	path, err := a.o.Root.Path(r.ProfileID)
	if err != nil && !errors.Is(err, profiledir.ErrNoProfile) {
		return false, err
	}
	if err := a.resumable(r); err != nil && errors.Is(err, errNotYet) {
		return false, err
	}
	seen := &entryBuffer{}
	lock, left, err := a.adoptBrowser(slot, r, path, seen.add, log)
	if err != nil {
		return false, err
	}
	if left != nil && slices.ContainsFunc(lost, func(o sessionfile.LostRun) bool { return o.File.Evidence.EvidenceID == "" }) {
		// The bundle that was sealed at the end of this run says nothing about what the others
		// did after it.
		f.Evidence, f.InOrder = lease.Sealed{}, false
	}
	if a.resume(slot, r, path, lock, left, seen, log) {
		return true, nil
	}
	seen.passTo(func(checkpoint.Entry) {})
	a.o.Sessions.Known(r.SessionID)
	if o := own.File; o.ByHand != nil && left == nil && o.Reason == api.ReasonLauncherRestart && o.Evidence.EvidenceID == "" && lock.Retake() == nil {
		a.o.Sessions.QuitInOrder(o.Manifest, log) // else an end had begun, and whoever closed the browser kept what that had
	}
	a.o.Sessions.DropNotedCookies(f, log)
	// Nobody watched the browser since its launcher died.
	if left != nil || f.CloseMethod == "" && f.Reason != api.ReasonUnanswered {
		f.Unseen = true
	}
	c := recovery.Case{
		File: f, Profile: r.ProfileID, Path: path, Lock: lock, Browser: witness.Of(left), Keep: session.Keeping(a.o.Jar, f.Manifest),
		Journal: func() []checkpoint.Entry { return entries }, Lost: lost, Log: log,
		Latest: func(r lease.Record) lease.Record { return recovery.Latest(r, entries) },
		Bundle: func() *evidence.Bundle {
			bundle := a.o.Recoverer.Capture(recovery.Capture{
				Record: r, Path: path, Token: f.Token, Reason: f.Reason, SeenAt: f.SeenAt, Journal: entries, Browser: witness.Of(left), Final: true,
			}, log)
			bundle.SetPictures(session.PicturesIn(entries))
			return bundle
		},
		Sealed: func(sealed sessionfile.File) error { // another attempt goes on from here, with this bundle
			if f.Evidence.EvidenceID == "" {
				if err := a.o.Sessions.Remember(sealed); err != nil {
					log.Error().Err(err).Msg("session file not written")
				}
			}
			return nil
		},
	}
	if f.InOrder && r.State == lease.Held && r.Token == f.Token && len(lost) == 0 && left == nil && lock.Retake() == nil {
		c.Goal = recovery.Release // only the release itself could not be stored
	}
	recovered, err := a.o.Recoverer.Run(c)
	if errors.Is(err, recovery.ErrNoEvidence) {
		return false, errors.Join(err, lock.Unlock())
	}
	if err != nil { // another attempt goes on from here, and finds no browser that says what became of its cookies
		err = errors.Join(err, a.o.Sessions.Remember(recovered.File))
	}
	cleared := lock.ClearRunning()
	if errors.Is(cleared, profiledir.ErrLocked) { // what was decided stands
		log.Warn().Err(cleared).Msg("some process has the profile's lock still: it is closed once it can be found")
		cleared = nil
	}
	if err = errors.Join(err, cleared, lock.Unlock()); err != nil {
		return false, err
	}
	how := recovered.How
	f = recovered.File
	for _, run := range lost {
		if run.File.Ended == "" {
			run.File.Ended = how
			err = errors.Join(err, a.o.Sessions.Remember(run.File))
		}
	}
	f.Ended = cmp.Or(ended, how) // a session that had ended before keeps its earlier end
	if f.JournalSum == "" {      // its launcher was killed before its end
		f.JournalSum = checkpoint.Sum(entries)
	}
	return false, errors.Join(err, a.o.Sessions.Remember(f))
}

// closeLeft closes a browser whose profile was decided about while its host was away. First a
// bundle of what it shows is sealed, which the record then names. If a person has still to decide, that
// is done, too, for each session of which nothing was sealed, such as those of a host that lost its power.
func (a *Adopter) closeLeft(slot *slots.Slot, r lease.Record, log zerolog.Logger) error {
	path, err := a.o.Root.Path(r.ProfileID)
	if err != nil {
		return err
	}
	lock, left, err := a.adoptBrowser(slot, r, path, func(checkpoint.Entry) {}, log)
	if err != nil {
		return err
	}
	if running, is, err := a.o.Root.Running(r.ProfileID); err == nil && is && accountcheck.IsCheck(running.SessionID) {
		return a.closeLeftCheck(running, left, lock, log)
	}
	_, kept, err := a.o.Root.Kept(r.ProfileID)
	if err != nil {
		if left != nil {
			err = errors.Join(err, left.Detach())
		}
		return errors.Join(err, lock.Unlock())
	}
	undecided := r.State == lease.ManualReview
	if a.o.Recoverer.Elsewhere(r) { // its bundles have a chain of their own
		r, undecided = kept, false
	}
	if leftWarm(kept) && kept.Token == r.Token {
		return a.closeLeftWarm(r.ProfileID, left, lock, log)
	}
	for _, sessionID := range r.Sessions() {
		f, known, _ := a.o.Sessions.Left(sessionID) // a file that cannot be read now does not keep the journal here
		if left == nil && (!undecided || !known || f.Evidence.EvidenceID != "") {
			continue
		}
		if err := a.closeRun(r, sessionID, path, lock, left, log); err != nil {
			return errors.Join(err, lock.Unlock())
		}
		left = nil // the bundles of further runs have only what is on disk
	}
	return errors.Join(lock.ClearRunning(), lock.Unlock())
}

// closeRun seals a bundle of one session of the record, closes the browser, unless b is nil, and names the bundle.
func (a *Adopter) closeRun(r lease.Record, sessionID, path string, lock *profiledir.Lock, b *browser.Browser, log zerolog.Logger) error {
	run, err := a.leftRun(r, lease.Run{SessionID: sessionID, Token: r.Token, OwnerWorkerID: r.OwnerWorkerID, TaskID: r.TaskID, Principal: r.Principal})
	if err != nil {
		log.Warn().Err(err).Msg("the journal cannot be read")
	}
	if sessionID != r.SessionID {
		r = ofRun(r, run.File)
	}
	note := func(of sessionfile.File) { // another try, and a person, go by what the session's file says
		f, known, err := a.o.Sessions.Left(sessionID)
		if !known || err != nil {
			return
		}
		f.Evidence, f.NotStored, f.CookiesLost = of.Evidence, of.NotStored, of.CookiesLost
		if err := a.o.Sessions.Remember(f); err != nil {
			log.Error().Err(err).Msg("session file not written")
		}
	}
	ended, err := a.o.Recoverer.Run(recovery.Case{
		Goal: recovery.CloseOnly, Profile: r.ProfileID, Path: path, Lock: lock, Browser: witness.Of(b), Keep: a.o.Jar.Keep, Log: log,
		Bundle: func() *evidence.Bundle {
			bundle := a.o.Recoverer.Capture(recovery.Capture{
				Record: r, Path: path, Token: run.File.Token, Reason: run.File.Reason, SeenAt: r.HeartbeatAt, Journal: run.Journal, Browser: witness.Of(b), Final: true,
			}, log)
			bundle.SetPictures(session.PicturesIn(run.Journal))
			return bundle
		},
		Sealed: func(sealed sessionfile.File) error { note(sealed); return nil },
	})
	if ended.File.NotStored != "" {
		note(ended.File)
	}
	return err
}

// leftRuns are the runs of the profile other than its latest one.
func (a *Adopter) leftRuns(r lease.Record) ([]sessionfile.LostRun, error) {
	var left []sessionfile.LostRun
	for _, run := range slices.Concat(r.LostRuns, r.Runs) {
		if run.SessionID == r.SessionID || slices.ContainsFunc(left, func(o sessionfile.LostRun) bool { return o.File.SessionID == run.SessionID }) {
			continue
		}
		one, err := a.leftRun(r, run)
		if err != nil {
			return nil, err
		}
		left = append(left, one)
	}
	return left, nil
}

// leftRun is what is on disk about a run that has no session any more.
func (a *Adopter) leftRun(r lease.Record, run lease.Run) (sessionfile.LostRun, error) {
	f, known, err := a.o.Sessions.Left(run.SessionID)
	forged := errors.Is(err, signed.ErrNotAuthentic)
	if !known {
		f = sessionfile.File{SessionID: run.SessionID, Token: run.Token, Unseen: true, SeenAt: r.HeartbeatAt}
		f.Manifest = api.Manifest{ProfileID: r.ProfileID, WorkerID: run.OwnerWorkerID, TaskID: run.TaskID}
		if run.Token == r.Token && r.State != lease.Held && r.State != lease.SuspectedStale {
			f.Token-- // the record's own token is that of the quarantine, which is above the session's
		}
	}
	if f.Reason == "" {
		f.Reason, f.Unseen = api.ReasonLauncherRestart, true
	}
	if forged {
		f.Reason, f.Unseen = lease.ReasonNotAuthentic, true
	}
	entries, err := checkpoint.Read(a.o.Files.Journal(run.SessionID))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if !f.EndedWith(entries) { // it did not end there, or somebody has changed it
		f.Unseen = true
	}
	return sessionfile.LostRun{File: f, Journal: entries}, err
}

// lockWait is how long a browser that ends by itself may keep its lock.
const lockWait = 5 * time.Second

// adoptBrowser takes the profile's lock and, with it, the earlier launcher's browser, if that
// still runs. The lock stays incomplete while another process has Chrome's part of it.
func (a *Adopter) adoptBrowser(slot *slots.Slot, r lease.Record, path string, record func(checkpoint.Entry), log zerolog.Logger) (*profiledir.Lock, *browser.Browser, error) {
	lock, adopted, err := a.o.Root.Take(r.ProfileID)
	if err != nil || !adopted {
		return lock, nil, err
	}
	running, ok, err := a.o.Root.Left(r.ProfileID)
	if ok && running.OutputFile == "" { // it was found without a note
		log.Warn().Int("pid", running.PID).Msg("a browser that no launcher had noted has the profile's lock")
		running.OutputFile, running.Dumps = a.o.Files.Output(running.SessionID), a.o.Files.Dumps(running.SessionID)
	}
	switch {
	case err != nil:
		log.Warn().Err(err).Msg("nothing is known of the browser that has the lock")
	case ok:
		if b := a.o.Driver.Adopt(running, path, r.Appearance, record, log); b != nil {
			if slot != nil { // the guard has no slot
				slot.Place()
				a.reopenRelay(slot, r, running, path, log)
			}
			return lock, b, nil
		}
	}
	for deadline := time.Now().Add(lockWait); time.Now().Before(deadline); {
		if lock.Retake() == nil {
			break
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-a.ctx.Done():
			return nil, nil, errors.Join(a.ctx.Err(), lock.Unlock())
		}
	}
	return lock, nil, nil
}

// reopenRelay opens a browser's way to its proxy again: never to another one, which its pages would show
// themselves at. It stays offline then, and so does that of a session check, which is only closed.
func (a *Adopter) reopenRelay(slot *slots.Slot, r lease.Record, running profiledir.Running, path string, log zerolog.Logger) {
	if r.ProxyID == "" || accountcheck.IsCheck(running.SessionID) {
		return
	}
	p, err := a.proxyOf(r)
	if err != nil {
		log.Warn().Err(err).Msg("the browser of the launcher before does not get its proxy back: it is offline")
		return
	}
	slot.ReopenRelay(p, r.ProxyID, running.PID, path, log)
}

// leftWarm tells whether the browser that was left on a profile is a warm one, of a launcher
// that has ended: the last record that this host kept of the profile is a release, which comes
// after the evidence, and after everything but an empty tab was closed.
func leftWarm(kept lease.Record) bool {
	return kept.State == lease.Available && kept.EvidenceID != "" && len(kept.Runs) == 0
}

// closeLeftWarm closes the warm browser of a launcher that has ended, or could not close it; b is nil if
// the browser has ended, too. Its evidence is that of the release; if it has to be closed by force, or
// because of what it did by itself, more is taken before. Without that it stays as it is, to be tried again.
func (a *Adopter) closeLeftWarm(profile string, b *browser.Browser, lock *profiledir.Lock, log zerolog.Logger) error {
	running, _, err := a.o.Root.Running(profile)
	if err == nil && running.Owed != "" {
		err = a.o.Recoverer.Preserve(profile, running.Owed, "its launcher could not store evidence of that", witness.Of(b))
	}
	if damaged := (*profiledir.DamagedError)(nil); err != nil && !errors.As(err, &damaged) {
		if b != nil {
			err = errors.Join(err, b.Detach())
		}
		return errors.Join(err, lock.Unlock())
	}
	if b == nil {
		return errors.Join(lock.ClearRunning(), lock.Unlock())
	}
	log.Info().Msg("a launcher left a warm browser: it is closed")
	preserve := func() error {
		return a.o.Recoverer.Preserve(profile, api.ReasonLauncherRestart, "it does not close when it is asked to", witness.Of(b))
	}
	return errors.Join(slots.CloseWarm(b, lock, a.o.Root, a.o.Jar, running.Owed, preserve, log), lock.Unlock())
}

// closeLeftCheck closes the browser of a session check whose launcher was killed; b is nil if it has ended
// since, or cannot be found. The jar has the cookies; that browser may not have all of them.
func (a *Adopter) closeLeftCheck(running profiledir.Running, b *browser.Browser, lock *profiledir.Lock, log zerolog.Logger) error {
	if b == nil {
		if err := lock.Retake(); err != nil { // some process has the profile
			return errors.Join(err, lock.Unlock())
		}
		log.Info().Msg("a launcher was killed during a session check, and its browser is gone")
		err := accountcheck.EndedInOrder(a.o.Root, lock.Profile(), "")
		if unsaid := lock.DisbelieveLost(err); unsaid != nil { // its note stays, and the next try says it
			return errors.Join(err, unsaid, lock.Unlock())
		}
		return errors.Join(err, lock.ClearRunning(), a.o.Files.Remove(running.SessionID), lock.Unlock())
	}
	log.Info().Msg("a launcher was killed during a session check: its browser is closed")
	method, err := slots.CloseUnused(b, lock, a.o.Root, nil, func() error {
		return a.o.Recoverer.Preserve(lock.Profile(), api.ReasonLauncherRestart, "the browser of a session check does not close when it is asked to", witness.Of(b))
	}, func(method chrome.CloseMethod) error {
		return accountcheck.EndedInOrder(a.o.Root, lock.Profile(), method)
	}, log)
	if method == "" { // it may still run
		return errors.Join(err, lock.Unlock())
	}
	return errors.Join(err, a.o.Files.Remove(running.SessionID), lock.Unlock())
}
