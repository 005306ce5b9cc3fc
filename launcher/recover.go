package launcher

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/evidence"
	"leasehold/internal/durable"
	"leasehold/launcher/api"
	"leasehold/launcher/chrome"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/recovery"
	"leasehold/lease"
)

// recoveryCase is one profile on its way from a lost worker to a decision. The
// evidence is stored already. The launcher's part of the lock is ours; Chrome's
// part may be with some process that is not.
type recoveryCase struct {
	l       *Launcher
	file    caseFile
	profile string
	path    string
	lock    *profiledir.Lock
	log     zerolog.Logger
	entries func() []checkpoint.Entry
	// lost are further runs of the profile that were lost.
	lost []lostRun
	// seen brings a record up to what the journal knows.
	seen func(lease.Record) lease.Record
	// close ends the browser, if it is still there.
	close func() (chrome.CloseMethod, error)
}

// run makes the transitions, each one compare-and-swap, and returns how the
// session ended. Where the store cannot be reached the browser is closed all the
// same, and the reconciler goes on from there.
func (c *recoveryCase) run() (string, error) {
	err := c.quarantine()
	if errors.Is(err, errNotOurs) {
		// Somebody else's token: the browser goes, the record is theirs.
		_, closeErr := c.close()
		return "fenced: " + err.Error(), closeErr
	}
	if c.file.Evidence.EvidenceID == "" {
		return "", errors.Join(err, errNoEvidence)
	}
	rung, closeErr := c.close()
	c.file.Rung = string(rung)
	if err != nil {
		return "", errors.Join(err, closeErr)
	}
	return c.judge(closeErr)
}

// errNoEvidence says that nothing is sealed: the browser stays open, fenced, with
// what it shows, and the profile quarantined, until something can be.
var errNoEvidence = errors.New("no evidence can be stored: the profile waits, quarantined and its browser open; is the disk full?")

var errNotOurs = errors.New("the lease has another token by now")

// swap makes one transition of the case. The record is the case's as long as its
// token is the session's, or the one that our quarantine raised.
func (c *recoveryCase) swap(fn func(lease.Record) (lease.Record, error)) (lease.Record, error) {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	entry, err := lease.Change(ctx, c.l.o.Store, c.profile, func(e lease.Entry) (lease.Record, error) {
		if e.Record.SessionID != c.file.SessionID {
			return e.Record, fmt.Errorf("%w: session %s has the profile", errNotOurs, e.Record.SessionID)
		}
		return fn(e.Record)
	})
	if err == nil {
		c.log.Info().Str("state", string(entry.Record.State)).Str("reason", entry.Record.Reason).Msg("recovery")
	}
	return entry.Record, err
}

// errAlready says that a transition was made before, by an earlier try or
// another launcher.
var errAlready = errors.New("already made")

// quarantine fences the old token for good: held, suspected_stale, quarantined.
func (c *recoveryCase) quarantine() error {
	_, err := c.swap(func(r lease.Record) (lease.Record, error) {
		if r.State != lease.Held {
			return r, errAlready
		}
		return c.seen(r).Suspect(c.file.Reason, c.file.Evidence, time.Now())
	})
	if err != nil && !errors.Is(err, errAlready) {
		return err
	}
	floor, err := c.l.o.Root.Floor(c.profile)
	if err != nil {
		return err
	}
	_, err = c.swap(func(r lease.Record) (lease.Record, error) {
		if r.State != lease.SuspectedStale {
			return r, errAlready
		}
		return r.Quarantine(floor, time.Now())
	})
	if err != nil && !errors.Is(err, errAlready) {
		return err
	}
	return nil
}

// judge gathers the facts, decides, and says so.
func (c *recoveryCase) judge(closeProblem error) (string, error) {
	r, err := c.swap(func(r lease.Record) (lease.Record, error) {
		if r.State == lease.Inspected {
			return r, errAlready
		}
		return r.Inspect(c.file.Evidence, time.Now())
	})
	if err != nil && !errors.Is(err, errAlready) {
		return "", err
	}
	if err := c.lock.Keep(r); err != nil {
		return "", err
	}
	found := c.inspect(r, closeProblem)
	decision := recovery.Decide(found, c.l.o.ReviewWhen...)
	if err := c.l.saveInspection(c.profile, found, decision); err != nil {
		c.log.Error().Err(err).Msg("inspection not kept")
	}
	verdict := lease.Verdict{Decision: decision.Outcome, Reasons: decision.Reasons, Version: recovery.Version, Cooldown: c.l.o.Cooldown}
	if decision.Outcome == recovery.Resume {
		sum := checkpoint.Summarize(c.journal())
		verdict.ResumeFrom, verdict.Checkpoint = cmp.Or(sum.SafeStep, sum.LastSafe.Name), sum.LastSafe.Name
	}
	r, err = c.swap(func(r lease.Record) (lease.Record, error) { return r.Settle(verdict, time.Now()) })
	if err == nil {
		err = c.lock.Keep(r)
	}
	if err != nil {
		return "", err
	}
	c.l.metrics.recoveries.WithLabelValues(decision.Outcome).Inc()
	c.log.Info().Str("decision", decision.Outcome).Strs("reasons", decision.Reasons).Str("state", string(r.State)).Msg("recovery decided")
	return fmt.Sprintf("lost (%s), recovered: %s", c.file.Reason, decision.Outcome), nil
}

// inspect answers every question of an inspection, once the browser is closed.
func (c *recoveryCase) inspect(r lease.Record, closeProblem error) recovery.Inspection {
	facts := recovery.Inspection{
		{Name: recovery.LeaseExpired, Answer: recovery.Is(c.file.Reason == reasonLeaseLost || c.file.Reason == reasonObserved), How: "the session ended with " + c.file.Reason},
		{Name: recovery.ChangedBySwap, Answer: recovery.Yes, How: "each state was stored over the revision before it"},
		{Name: recovery.TokenAdvanced, Answer: recovery.Is(r.Token > c.file.Token), How: fmt.Sprintf("token %d, the worker had %d", r.Token, c.file.Token)},
		{Name: recovery.WorkerSilent, Answer: recovery.Yes, How: "its connections are ended and its capability is dead"},
		{Name: recovery.LateHeartbeat, Answer: recovery.Is(c.l.wroteLate(c.file.SessionID)), How: "writes with the old token, which are refused"},
	}
	dir, err := c.l.o.Root.Inspect(c.profile)
	users, usersErr := profiledir.Processes(c.path)
	switch {
	case usersErr != nil:
		facts = append(facts, recovery.Fact{Name: recovery.BrowserGone, Answer: recovery.Unknown, How: usersErr.Error()})
	case closeProblem != nil:
		facts = append(facts, recovery.Fact{Name: recovery.BrowserGone, Answer: recovery.Is(len(users) == 0), How: closeProblem.Error()})
	default:
		facts = append(facts, recovery.Fact{Name: recovery.BrowserGone, Answer: recovery.Is(len(users) == 0),
			How: fmt.Sprintf("%d processes name the directory; it ended by %s", len(users), orUnknown(c.file.Rung))})
	}
	facts = append(facts, unlocked(c.lock.Retake(), dir.Singleton))
	if err != nil {
		facts = append(facts, recovery.Fact{Name: recovery.DirectoryPresent, Answer: recovery.Unknown, How: err.Error()})
	} else {
		facts = append(facts,
			recovery.Fact{Name: recovery.ClosedCleanly, Answer: recovery.Answer(dir.ClosedCleanly.Answer), How: dir.ClosedCleanly.How},
			recovery.Fact{Name: recovery.DirectoryPresent, Answer: recovery.Answer(dir.DirectoryPresent.Answer), How: dir.DirectoryPresent.How},
			local(dir.NetworkFilesystem),
			recovery.Fact{Name: recovery.SessionState, Answer: recovery.Answer(dir.SessionStatePresent.Answer), How: dir.SessionStatePresent.How},
		)
	}
	facts = append(facts, recovery.InspectTask(checkpoint.Summarize(c.journal()), c.task(r))...)
	seen := recovery.Fact{Name: recovery.TrafficSeen, Answer: recovery.Yes, How: "the launcher watched every page from the grant to the close"}
	if c.unseen() {
		seen.Answer, seen.How = recovery.Unknown, "nobody watched while the launcher was away"
	}
	return append(facts, seen,
		c.stateChanged(c.journal()),
		recovery.Fact{Name: recovery.EvidenceStored, Answer: recovery.Is(c.file.Evidence.EvidenceID != ""), How: "evidence " + orUnknown(c.file.Evidence.EvidenceID)},
		recovery.Fact{Name: recovery.ScreenshotKnown, Answer: recovery.Is(c.l.hasScreenshot(c.file.Evidence.EvidenceID)), How: "evidence " + orUnknown(c.file.Evidence.EvidenceID)},
		c.proxyUnchanged(r),
		reviewFlag(r),
	)
}

// reviewFlag: what a person did by hand, no table can judge.
func reviewFlag(r lease.Record) recovery.Fact {
	if r.ByHand != nil {
		return recovery.Fact{Name: recovery.ReviewFlag, Answer: recovery.Yes, How: fmt.Sprintf("%s used the profile by hand", r.ByHand.Holder)}
	}
	return recovery.Fact{Name: recovery.ReviewFlag, Answer: recovery.No, How: "no review is pending on the record"}
}

// local tells whether the kernel's lock and the floor prove what they do on this
// host's own disk.
func local(network profiledir.Fact) recovery.Fact {
	f := recovery.Fact{Name: recovery.DirectoryLocal, Answer: recovery.Unknown, How: network.How}
	switch network.Answer {
	case profiledir.No:
		f.Answer = recovery.Yes
	case profiledir.Yes:
		f.Answer = recovery.No
		f.How += ": locks of other hosts may not show here"
	}
	return f
}

// journal is that of every run that the case is about: those of several in the order
// of time, as far as each one's own order, which no clock that was set can change,
// lets it be.
func (c *recoveryCase) journal() []checkpoint.Entry {
	left := [][]checkpoint.Entry{c.entries()}
	for _, run := range c.lost {
		left = append(left, run.entries)
	}
	var all []checkpoint.Entry
	for {
		next := -1
		for i, entries := range left {
			if len(entries) > 0 && (next < 0 || entries[0].At.Before(left[next][0].At)) {
				next = i
			}
		}
		if next < 0 {
			return all
		}
		all, left[next] = append(all, left[next][0]), left[next][1:]
	}
}

func (c *recoveryCase) unseen() bool {
	return c.file.Unseen || slices.ContainsFunc(c.lost, func(run lostRun) bool { return run.file.Unseen })
}

// task is what is known of the tasks that the case is about. Several cannot be
// resumed: the profile goes on with one.
func (c *recoveryCase) task(r lease.Record) recovery.Task {
	t := taskOf(c.file.Manifest, r)
	t.Resumable = t.Resumable && len(c.lost) == 0
	for _, run := range c.lost {
		other := taskOf(run.file.Manifest, lease.Record{})
		t.ExpectedDomains = slices.Concat(t.ExpectedDomains, other.ExpectedDomains)
		t.SensitiveURLs = slices.Concat(t.SensitiveURLs, other.SensitiveURLs)
		t.SensitiveWords = slices.Concat(t.SensitiveWords, other.SensitiveWords)
	}
	if len(t.ExpectedDomains) == 0 {
		t.ExpectedDomains = r.ExpectedDomains
	}
	return t
}

// unlocked tells whether anybody could still be on the directory: the kernel's
// lock first, then Chrome's own, which a kill leaves behind.
func unlocked(kernel error, own profiledir.Singleton) recovery.Fact {
	f := recovery.Fact{Name: recovery.DirectoryUnlocked, Answer: recovery.Yes, How: "the kernel's lock is the launcher's own"}
	switch {
	case kernel != nil:
		f.Answer, f.How = recovery.No, kernel.Error()
	case own.Present.Answer == profiledir.No:
	case own.OwnerAlive.Answer == profiledir.No:
		f.How += "; Chrome's SingletonLock is left over: " + own.OwnerAlive.How
	default:
		f.Answer, f.How = recovery.Unknown, "Chrome's SingletonLock is there: "+own.OwnerAlive.How
	}
	return f
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

func (l *Launcher) hasScreenshot(evidenceID string) bool {
	if evidenceID == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	b, err := l.o.Archive.Manifest(ctx, evidenceID)
	if err != nil {
		return false
	}
	var m evidence.Manifest
	return json.Unmarshal(b, &m) == nil && (m.LastScreenshot != "" || slices.ContainsFunc(m.Pictures, func(p evidence.Picture) bool { return p.Missing == "" }))
}

// The inspection of a profile's last recovery is kept beside the sessions.
func (l *Launcher) inspectionPath(profile string) string {
	return filepath.Join(l.o.DataDir, "inspections", lease.Key(profile)+".json")
}

func (l *Launcher) saveInspection(profile string, found recovery.Inspection, d recovery.Decision) error {
	i := api.Inspection{Facts: []api.Fact{}, Decision: d.Outcome, Reasons: d.Reasons, DecisionVersion: recovery.Version}
	for _, f := range found {
		i.Facts = append(i.Facts, api.Fact{Name: f.Name, Answer: string(f.Answer), How: f.How})
	}
	b, err := json.Marshal(i)
	if err != nil {
		return fmt.Errorf("inspection: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(l.inspectionPath(profile)), 0o700); err != nil {
		return fmt.Errorf("inspection: %w", err)
	}
	if err := durable.Replace(l.inspectionPath(profile), b); err != nil {
		return fmt.Errorf("inspection: %w", err)
	}
	return nil
}

// Inspection returns what the profile's last recovery found.
func (l *Launcher) Inspection(ctx context.Context, profileID string) (api.Inspection, error) {
	if _, err := l.Profile(ctx, profileID); err != nil {
		return api.Inspection{}, err
	}
	b, err := os.ReadFile(l.inspectionPath(profileID))
	if errors.Is(err, fs.ErrNotExist) {
		return api.Inspection{Facts: []api.Fact{}, Reasons: []string{}}, nil
	}
	var i api.Inspection
	if err == nil {
		err = json.Unmarshal(b, &i)
	}
	if err != nil {
		return i, fmt.Errorf("inspection of %s: %w", profileID, err)
	}
	return i, nil
}

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
	o := l.occupy(r.ProfileID)
	if o == nil {
		return
	}
	l.mu.Lock()
	if !unfinished(r) { // who wants it may have it in a moment
		o.cooling = make(chan struct{})
	}
	l.mu.Unlock()
	l.work.Go(func() {
		resumed := false
		defer func() {
			if !resumed {
				l.vacate(r.ProfileID)
				return
			}
			l.mu.Lock()
			o.settle()
			l.mu.Unlock()
		}()
		log := l.o.Log.With().Str("profile", r.ProfileID).Uint64("token", uint64(r.Token)).Str("session", r.SessionID).Logger()
		// What was seen may be older than the end of a session that was here.
		now, err := l.o.Store.Get(l.ctx, r.ProfileID)
		if err != nil && !errors.Is(err, lease.ErrNotFound) {
			return
		}
		now.Record.ProfileID = r.ProfileID
		forgotten, err := l.forgot(now.Record)
		if err == nil && forgotten {
			if path, missing := l.o.Root.Path(r.ProfileID); missing == nil && l.presence.sharedReady(path) != nil {
				return // whoever holds it may not have said so yet
			}
			now.Record, err = l.heal(l.ctx, r.ProfileID)
		}
		if err == nil && o.idle != nil && (forgotten || unfinished(now.Record)) {
			l.cool(o, warmWanted, "")
		}
		switch {
		case err != nil, o.idle != nil: // it is warm, as it should be
		case unfinished(now.Record):
			resumed, err = l.recoverLeft(o, now.Record, log)
		case l.leftOpen(r.ProfileID):
			err = l.closeLeft(now.Record, log)
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
func (l *Launcher) recoverLeft(o *openProfile, r lease.Record, log zerolog.Logger) (resumed bool, err error) {
	run := lease.Run{SessionID: r.SessionID, Token: r.Token, OwnerWorkerID: r.OwnerWorkerID, TaskID: r.TaskID}
	left, err := l.leftRun(r, run)
	if err != nil {
		return false, err
	}
	f, entries := left.file, left.entries
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
	lock, browser, err := l.seize(r, path, seen.record, log)
	if err != nil {
		return false, err
	}
	if l.resume(o, r, path, lock, browser, seen, log) {
		return true, nil
	}
	seen.pass(func(checkpoint.Entry) {})
	l.settle(r.SessionID)
	l.dropNoted(f, log)
	// Nobody watched the browser since its launcher died.
	if browser != nil || f.Rung == "" && f.Reason != reasonUnanswered {
		f.Unseen = true
	}
	if f.Evidence.EvidenceID == "" {
		c := captureCase{
			l: l, record: r, path: path, token: f.Token, reason: f.Reason, seen: f.SeenAt, now: time.Now().UTC(), entries: entries, live: browser,
		}
		bundle := c.take(log)
		bundle.SetPictures(picturesIn(entries))
		f.Evidence = l.save(bundle, log)
		// Another try goes on from here, with this bundle.
		if err := l.remember(f); err != nil {
			log.Error().Err(err).Msg("session file not written")
		}
	}
	c := &recoveryCase{
		l: l, file: f, profile: r.ProfileID, path: path, lock: lock, log: log,
		entries: func() []checkpoint.Entry { return entries }, lost: lost,
		seen: func(r lease.Record) lease.Record { return latest(r, entries) },
	}
	c.close = func() (chrome.CloseMethod, error) {
		if browser == nil {
			return chrome.CloseMethod(f.Rung), nil
		}
		rung, err := browser.close(l, r.ProfileID, l.keeping(f.Manifest), log)
		// The browser had its part of the lock; with it gone, that is ours.
		return rung, errors.Join(err, lock.Retake())
	}
	var how string
	if f.InOrder && r.State == lease.Held && r.Token == f.Token && len(lost) == 0 && browser == nil && lock.Retake() == nil {
		// Only the release itself could not be stored.
		how = "released: " + f.Reason
		if r, err = c.swap(func(r lease.Record) (lease.Record, error) {
			return r.Release(f.Reason, f.Outcome, f.Evidence, time.Now())
		}); err == nil {
			err = lock.Keep(r)
		}
	} else {
		how, err = c.run()
	}
	if errors.Is(err, errNoEvidence) {
		if browser != nil {
			err = errors.Join(err, browser.letGo())
		}
		return false, errors.Join(err, lock.Unlock())
	}
	err = errors.Join(err, lock.ClearRunning(), lock.Unlock())
	if err != nil {
		return false, err
	}
	for _, run := range lost {
		if run.file.Ended == "" {
			run.file.Ended = how
			err = errors.Join(err, l.remember(run.file))
		}
	}
	f.Ended = how
	return false, errors.Join(err, l.remember(f))
}

// closeLeft closes a browser whose profile was decided about while its host was
// away. What it shows goes into a bundle first, which the record then names.
func (l *Launcher) closeLeft(r lease.Record, log zerolog.Logger) error {
	path, err := l.o.Root.Path(r.ProfileID)
	if err != nil {
		return err
	}
	lock, browser, err := l.seize(r, path, func(checkpoint.Entry) {}, log)
	if err != nil {
		return err
	}
	_, kept, err := l.o.Root.Kept(r.ProfileID)
	if err != nil {
		if browser != nil {
			err = errors.Join(err, browser.letGo())
		}
		return errors.Join(err, lock.Unlock())
	}
	if browser != nil && leftWarm(kept) && kept.Token == r.Token {
		return l.closeLeftWarm(r, browser, lock, log)
	}
	if browser != nil {
		c := captureCase{
			l: l, record: r, path: path, token: r.Token, reason: reasonLauncherRestart, seen: r.HeartbeatAt, now: time.Now().UTC(), live: browser,
		}
		sealed := l.save(c.take(log), log)
		if sealed.EvidenceID == "" {
			return errors.Join(errors.New("no evidence of a browser that outlived its lease: it stays open"), browser.letGo(), lock.Unlock())
		}
		if _, err := browser.close(l, r.ProfileID, l.jar.export, log); err != nil {
			return errors.Join(err, lock.Unlock())
		}
		ctx, cancel := context.WithTimeout(l.ctx, storeTimeout)
		defer cancel()
		_, err = lease.Change(ctx, l.o.Store, r.ProfileID, func(e lease.Entry) (lease.Record, error) {
			next := e.Record
			next.EvidenceID, next.EvidenceSHA256 = sealed.EvidenceID, sealed.SHA256
			return next, nil
		})
	}
	return errors.Join(err, lock.ClearRunning(), lock.Unlock())
}

// leftRuns are the runs of the profile besides its latest.
func (l *Launcher) leftRuns(r lease.Record) ([]lostRun, error) {
	var left []lostRun
	for _, run := range slices.Concat(r.LostRuns, r.Runs) {
		if run.SessionID == r.SessionID || slices.ContainsFunc(left, func(o lostRun) bool { return o.file.SessionID == run.SessionID }) {
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
func (l *Launcher) leftRun(r lease.Record, run lease.Run) (lostRun, error) {
	l.mu.Lock()
	f, known := l.ended[run.SessionID]
	l.mu.Unlock()
	// The guard of the launcher before may have come between.
	if disk, err := l.cases.one(run.SessionID); err == nil && known && f.Reason == "" {
		f = disk
	}
	if !known {
		f = caseFile{SessionID: run.SessionID, Token: run.Token, Unseen: true, SeenAt: r.HeartbeatAt}
		f.Manifest = api.Manifest{ProfileID: r.ProfileID, WorkerID: run.OwnerWorkerID, TaskID: run.TaskID}
	}
	if f.Reason == "" {
		f.Reason, f.Unseen = reasonLauncherRestart, true
	}
	entries, err := checkpoint.Read(l.cases.journal(run.SessionID))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return lostRun{f, entries}, err
}

// seizeWait is how long a browser that ends by itself may keep its lock.
const seizeWait = 5 * time.Second

// seize takes the profile's lock, and with it the browser of the launcher before,
// if that still lives. The lock stays incomplete where some other process has
// Chrome's part of it.
func (l *Launcher) seize(r lease.Record, path string, record func(checkpoint.Entry), log zerolog.Logger) (*profiledir.Lock, *live, error) {
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
		if b := l.takeOver(running, path, record, log); b != nil {
			l.countPlace(r.ProfileID)
			l.reopenRelay(r, running.PID, path, log)
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

// takeOver adopts a browser whose launcher died, or is nil where it is gone. One
// that cannot be driven can still be closed.
func (l *Launcher) takeOver(running profiledir.Running, path string, record func(checkpoint.Entry), log zerolog.Logger) *live {
	identity := chrome.Identity{PID: running.PID, StartTime: running.StartTime, BootID: running.BootID}
	options := chrome.AdoptOptions{ProfileDir: path, TempDir: running.TempDir, OutputFile: running.OutputFile, Group: running.Group}
	browser, err := chrome.Adopt(identity, options)
	var other *chrome.NotSameError
	if errors.As(err, &other) {
		log.Warn().Err(err).Msg("the browser of the launcher before is gone")
		return nil
	}
	if err != nil {
		log.Warn().Err(err).Msg("the browser's pipe cannot be had: it is closed by signals")
		if browser, err = chrome.Attach(identity, options); err != nil {
			log.Warn().Err(err).Msg("the browser cannot be taken over")
			return nil
		}
		return &live{browser: browser, dumps: running.Dumps, stop: func() {}}
	}
	log.Info().Int("pid", running.PID).Msg("found the browser of the launcher before")
	for _, w := range browser.Warnings() {
		log.Warn().Msg(w)
	}
	var ledger *cdpproxy.Ledger
	if running.Ledger != "" {
		if ledger, err = cdpproxy.OpenLedger(running.Ledger); err != nil {
			log.Warn().Err(err).Msg("what is open on the browser's pipe is not known")
		}
	}
	ctx, cancel := context.WithTimeout(l.ctx, startTimeout)
	defer cancel()
	b, err := l.drive(ctx, browser, ledger, running.Dumps, record)
	if err != nil {
		log.Warn().Err(err).Msg("the browser cannot be driven: it is closed without its picture")
	}
	return b
}
