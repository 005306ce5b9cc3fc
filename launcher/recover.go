package launcher

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"leasehold/checkpoint"
	"leasehold/evidence"
	"leasehold/launcher/api"
	"leasehold/launcher/browser"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/recovery"
	"leasehold/launcher/sessionfile"
	"leasehold/launcher/slots"
	"leasehold/lease"
)

// uploads carries evidence to the store again and again, until the launcher ends.
func (l *Launcher) uploads() {
	every := time.NewTicker(max(l.o.Timing.Renewal(), time.Second))
	defer every.Stop()
	for {
		l.upload()
		select {
		case <-every.C:
		case <-l.ctx.Done():
			return
		}
	}
}

// uploadTimeout bounds one round over the spool. Nothing waits for it: it is long
// enough for a large bundle and a slow store.
const uploadTimeout = 5 * time.Minute

// upload carries evidence that waits in the spool to the store.
func (l *Launcher) upload() {
	ctx, cancel := context.WithTimeout(l.ctx, uploadTimeout)
	defer cancel()
	if err := l.o.Archive.Flush(ctx); err != nil && l.ctx.Err() == nil {
		l.o.Log.Warn().Err(err).Msg("evidence waits in the spool")
	}
}

// adopt recovers a profile of this host that no session here is behind: its
// launcher was killed, its end could not be stored, or the store forgot it.
func (l *Launcher) adopt(r lease.Record) {
	o := l.slots.Occupy(r.ProfileID)
	if o == nil {
		return
	}
	if r.Unfinished() {
		o.Recovers()
	} else { // who wants it may have it in a moment
		o.Cools()
	}
	l.work.Go(func() {
		resumed := false
		defer func() {
			if !resumed {
				o.Vacate()
			}
		}()
		log := l.o.Log.With().Str("profile", r.ProfileID).Uint64("token", uint64(r.Token)).Str("session", r.SessionID).Logger()
		// What was seen may be older than the end of a session that was here.
		now, err := l.o.Store.Get(l.ctx, r.ProfileID)
		if err != nil && !errors.Is(err, lease.ErrNotFound) {
			return
		}
		now.Record.ProfileID = r.ProfileID
		forgotten, err := l.recoverer.Forgot(now.Record)
		if err == nil && forgotten {
			if path, missing := l.o.Root.Path(r.ProfileID); missing == nil && l.presence.sharedReady(path) != nil {
				return // whoever holds it may not have said so yet
			}
			now.Record, err = l.recoverer.Heal(l.ctx, r.ProfileID)
		}
		if err == nil && (forgotten || now.Record.Unfinished()) {
			o.Cool(slots.WarmWanted, "")
		}
		switch {
		case err != nil, o.IsWarm(): // it is warm, as it should be
		case now.Record.Unfinished():
			resumed, err = l.recoverLeft(o, now.Record, log)
		case l.leftOpen(r.ProfileID):
			err = l.closeLeft(o, now.Record, log)
		}
		if err == nil {
			l.settleProfile(r.ProfileID)
		} else if l.ctx.Err() == nil {
			log.Error().Err(err).Msg("recovery is not complete: it is tried again")
		}
	})
}

// recoverLeft recovers a profile from what is on disk, and from the browser if
// that still lives; or it goes on with the session, where that can be.
func (l *Launcher) recoverLeft(o *slots.Slot, r lease.Record, log zerolog.Logger) (resumed bool, err error) {
	run := lease.Run{SessionID: r.SessionID, Token: r.Token, OwnerWorkerID: r.OwnerWorkerID, TaskID: r.TaskID}
	own, err := l.leftRun(r, run)
	if err != nil {
		return false, err
	}
	f, entries := own.File, own.Journal
	lost, err := l.leftRuns(r)
	if err != nil {
		return false, err
	}
	path, err := l.o.Root.Path(r.ProfileID)
	if err != nil && !errors.Is(err, profiledir.ErrNoProfile) {
		return false, err
	}
	if err := l.resumable(r); err != nil && errors.Is(err, errNotYet) {
		return false, err
	}
	seen := &sightings{}
	lock, left, err := l.seize(o, r, path, seen.record, log)
	if err != nil {
		return false, err
	}
	if l.resume(o, r, path, lock, left, seen, log) {
		return true, nil
	}
	seen.pass(func(checkpoint.Entry) {})
	l.settle(r.SessionID)
	l.dropNoted(f, log)
	// Nobody watched the browser since its launcher died.
	if left != nil || f.CloseMethod == "" && f.Reason != api.ReasonUnanswered {
		f.Unseen = true
	}
	c := recovery.Case{
		File: f, Profile: r.ProfileID, Path: path, Lock: lock, Browser: left, Keep: l.keeping(f.Manifest),
		Journal: func() []checkpoint.Entry { return entries }, Lost: lost, Log: log,
		Latest: func(r lease.Record) lease.Record { return recovery.Latest(r, entries) },
		Bundle: func() *evidence.Bundle {
			bundle := l.recoverer.Capture(recovery.Capture{
				Record: r, Path: path, Token: f.Token, Reason: f.Reason, SeenAt: f.SeenAt, Journal: entries, Browser: left,
			}, log)
			bundle.SetPictures(picturesIn(entries))
			return bundle
		},
		Sealed: func(sealed sessionfile.File) error { // another try goes on from here, with this bundle
			if f.Evidence.EvidenceID == "" {
				if err := l.remember(sealed); err != nil {
					log.Error().Err(err).Msg("session file not written")
				}
			}
			return nil
		},
	}
	if f.InOrder && r.State == lease.Held && r.Token == f.Token && len(lost) == 0 && left == nil && lock.Retake() == nil {
		c.Goal = recovery.Release // only the release itself could not be stored
	}
	ended, err := l.recoverer.Run(c)
	if errors.Is(err, recovery.ErrNoEvidence) {
		return false, errors.Join(err, lock.Unlock())
	}
	err = errors.Join(err, lock.ClearRunning(), lock.Unlock())
	if err != nil {
		return false, err
	}
	how := ended.How
	f = ended.File
	for _, run := range lost {
		if run.File.Ended == "" {
			run.File.Ended = how
			err = errors.Join(err, l.remember(run.File))
		}
	}
	f.Ended = how
	return false, errors.Join(err, l.remember(f))
}

// closeLeft closes a browser whose profile was decided about while its host was
// away. What it shows goes into a bundle first, which the record then names.
func (l *Launcher) closeLeft(o *slots.Slot, r lease.Record, log zerolog.Logger) error {
	path, err := l.o.Root.Path(r.ProfileID)
	if err != nil {
		return err
	}
	lock, left, err := l.seize(o, r, path, func(checkpoint.Entry) {}, log)
	if err != nil {
		return err
	}
	_, kept, err := l.o.Root.Kept(r.ProfileID)
	if err != nil {
		if left != nil {
			err = errors.Join(err, left.Detach())
		}
		return errors.Join(err, lock.Unlock())
	}
	if left != nil && leftWarm(kept) && kept.Token == r.Token {
		return l.closeLeftWarm(r, left, lock, log)
	}
	if left != nil {
		_, err = l.recoverer.Run(recovery.Case{
			Goal: recovery.CloseOnly, Profile: r.ProfileID, Path: path, Lock: lock, Browser: left, Keep: l.jar.Keep, Log: log,
			Bundle: func() *evidence.Bundle {
				return l.recoverer.Capture(recovery.Capture{
					Record: r, Path: path, Token: r.Token, Reason: api.ReasonLauncherRestart, SeenAt: r.HeartbeatAt, Browser: left,
				}, log)
			},
		})
		if err != nil {
			return errors.Join(err, lock.Unlock())
		}
	}
	return errors.Join(lock.ClearRunning(), lock.Unlock())
}

// leftRuns are the runs of the profile besides its latest.
func (l *Launcher) leftRuns(r lease.Record) ([]sessionfile.LostRun, error) {
	var left []sessionfile.LostRun
	for _, run := range slices.Concat(r.LostRuns, r.Runs) {
		if run.SessionID == r.SessionID || slices.ContainsFunc(left, func(o sessionfile.LostRun) bool { return o.File.SessionID == run.SessionID }) {
			continue
		}
		one, err := l.leftRun(r, run)
		if err != nil {
			return nil, err
		}
		left = append(left, one)
	}
	return left, nil
}

// leftRun is what is on disk of a run that no session is behind any more.
func (l *Launcher) leftRun(r lease.Record, run lease.Run) (sessionfile.LostRun, error) {
	l.mu.Lock()
	f, known := l.ended[run.SessionID]
	l.mu.Unlock()
	// The guard of the launcher before may have come between.
	if disk, err := l.cases.Read(run.SessionID); err == nil && known && f.Reason == "" {
		f = disk
	}
	if !known {
		f = sessionfile.File{SessionID: run.SessionID, Token: run.Token, Unseen: true, SeenAt: r.HeartbeatAt}
		f.Manifest = api.Manifest{ProfileID: r.ProfileID, WorkerID: run.OwnerWorkerID, TaskID: run.TaskID}
	}
	if f.Reason == "" {
		f.Reason, f.Unseen = api.ReasonLauncherRestart, true
	}
	entries, err := checkpoint.Read(l.cases.Journal(run.SessionID))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return sessionfile.LostRun{File: f, Journal: entries}, err
}

// seizeWait is how long a browser that ends by itself may keep its lock.
const seizeWait = 5 * time.Second

// seize takes the profile's lock, and with it the browser of the launcher before,
// if that still lives. The lock stays incomplete where some other process has
// Chrome's part of it.
func (l *Launcher) seize(o *slots.Slot, r lease.Record, path string, record func(checkpoint.Entry), log zerolog.Logger) (*profiledir.Lock, *browser.Browser, error) {
	lock, err := l.o.Root.Lock(r.ProfileID)
	if !errors.Is(err, profiledir.ErrLocked) {
		return lock, nil, err
	}
	if lock, err = l.o.Root.Adopt(r.ProfileID); err != nil {
		return nil, nil, err
	}
	running, ok, err := l.o.Root.Running(r.ProfileID)
	switch {
	case err != nil:
		log.Warn().Err(err).Msg("nothing is known of the browser that has the lock")
	case ok:
		if b := l.driver.TakeOver(running, path, record, log); b != nil {
			if o != nil { // the guard has none
				o.Place()
				o.ReopenRelay(l.o.Proxies.Find(r.ProxyID), r.ProxyID, running.PID, path, log)
			}
			return lock, b, nil
		}
	}
	for deadline := time.Now().Add(seizeWait); time.Now().Before(deadline); {
		if lock.Retake() == nil {
			break
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-l.ctx.Done():
			return nil, nil, errors.Join(l.ctx.Err(), lock.Unlock())
		}
	}
	return lock, nil, nil
}
