package bubble

import (
	"context"
	"errors"
	"time"

	"leasehold/checkpoint"
	"leasehold/evidence"
	"leasehold/internal/id"
	"leasehold/launcher/api"
	"leasehold/launcher/browser"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/recovery"
	"leasehold/launcher/session"
	"leasehold/launcher/sessionfile"
	"leasehold/launcher/slots"
	"leasehold/lease"
)

// request is what somebody asks for.
type request struct {
	manifest api.Manifest
	worksFor time.Duration
	lost     bool // the worker does not end in order
	fails    bool // the browser does not start
	dies     bool // the launcher is killed between the start of the browser and its note
}

// visit is the stand-in for a session: the run of a slot that its worker uses.
type visit struct {
	p       *process
	q       request
	granted lease.Record
	path    string
	slot    *slots.Slot
	session *session.Session // for its file, until the grant
	chrome  *fakeChrome
	browser *browser.Browser
	holding *lease.Holding
	journal *checkpoint.Journal
}

func (v *visit) Token() lease.Token     { return v.granted.Token }
func (v *visit) Note(checkpoint.Entry)  {}
func (v *visit) Observe(r lease.Record) { v.holding.Observe(r) }

var errRefused = errors.New("refused")

// ask is the stand-in for launcher.grants: the steps of its try, open and grant, in short.
func (p *process) ask(ctx context.Context, q request) error {
	m := q.manifest
	entry, err := p.store.Get(ctx, m.ProfileID)
	if errors.Is(err, lease.ErrNotFound) {
		entry, err = lease.Entry{Record: lease.Record{ProfileID: m.ProfileID}}, nil
	}
	if err == nil {
		entry, err = p.healed(ctx, entry)
	}
	if err != nil {
		return err
	}
	r := entry.Record
	if k := p.recoverer.Remembers(r.ProfileID); k.Judge(r) == lease.Contradicts || k.Judge(r) == lease.Forgets && k.Home != p.host.id {
		p.w.count("refused: it is remembered elsewhere")
		return errRefused
	}
	joins := r.State == lease.Held && r.LauncherID == p.host.id && r.MaxActiveRuns > 1 && r.Shut(m.Exclusive()) == ""
	switch {
	case r.Home != "" && r.Home != p.host.id:
		p.w.count("refused: its home is elsewhere")
		return errRefused
	case joins:
	case r.State == lease.ManualReview && m.ByHand != nil:
		m.ByHand.TokenSeen = r.Token
	case !r.State.Free(), time.Now().Before(r.AvailableAfter), r.State == lease.ResumePending && r.TaskID != m.TaskID:
		return errRefused
	}
	path, err := p.root.Path(r.ProfileID)
	if errors.Is(err, profiledir.ErrNoProfile) {
		if !m.Create {
			p.w.count("refused: no directory")
			return errRefused
		}
		path, err = p.root.Place(r.ProfileID)
	}
	if err == nil && r.State == "" {
		entry.Number, err = p.presence.MakeReady(ctx)
	}
	if err != nil {
		return err
	}
	if joins {
		return p.join(ctx, q, entry, path)
	}
	slot := p.table.OccupyNext(ctx, r.ProfileID)
	if slot == nil {
		return errRefused
	}
	if err := p.open(ctx, q, entry, path, slot); err != nil {
		slot.Vacate()
		return err
	}
	return nil
}

func (p *process) healed(ctx context.Context, e lease.Entry) (lease.Entry, error) {
	r := e.Record
	if r.Home != "" && r.Home != p.host.id {
		return e, nil
	}
	forgotten, home, err := p.recoverer.Forgot(r)
	if home != "" {
		p.w.count("refused: it is remembered elsewhere")
		return e, errRefused
	}
	if err != nil {
		return e, err
	}
	if !forgotten {
		return e, nil
	}
	slot := p.table.OccupyCold(r.ProfileID)
	if slot == nil {
		return e, errRefused
	}
	defer slot.Vacate()
	if _, err := p.recoverer.Heal(ctx, r.ProfileID); err != nil {
		return e, err
	}
	return p.store.Get(ctx, r.ProfileID)
}

// open grants an occupied profile that no browser is on.
func (p *process) open(ctx context.Context, q request, entry lease.Entry, path string, slot *slots.Slot) error {
	m := q.manifest
	lock, err := p.root.Lock(m.ProfileID)
	if err != nil {
		return err
	}
	if _, err := p.root.Path(m.ProfileID); errors.Is(err, profiledir.ErrNoProfile) {
		if r := entry.Record; r.State == "" { // as makeProfile: with an account, the record comes first
			r.State, r.Home, r.AccountID, r.MaxActiveRuns = lease.Available, p.host.id, m.AccountID, p.w.sharedBy(m.ProfileID)
			if r.Token, err = p.root.Floor(m.ProfileID); err == nil {
				entry, err = p.store.Swap(ctx, entry, r)
			}
			if err != nil {
				return errors.Join(err, lock.Unlock())
			}
		}
		if _, err := p.root.Create(m.ProfileID); err != nil {
			return errors.Join(err, lock.Unlock())
		}
	}
	slot.Locked(lock)
	v, err := p.grant(ctx, q, entry, path, slot)
	if err != nil {
		if v == nil {
			return errors.Join(err, lock.Unlock())
		}
		p.w.count("grants abandoned")
		v.holding.Fence().Shut(err)
		return errors.Join(err, v.ends(recovery.Release, api.ReasonStartFailed, true), lock.Unlock())
	}
	return nil
}

// join grants one more run on a profile whose browser is open here.
func (p *process) join(ctx context.Context, q request, entry lease.Entry, path string) error {
	slot := p.table.Find(q.manifest.ProfileID)
	if slot == nil || !slot.TryLockRuns(time.Second) {
		return errRefused
	}
	defer slot.UnlockRuns()
	if !slot.Joinable() {
		return errRefused
	}
	v, err := p.grant(ctx, q, entry, path, slot)
	if err != nil && v != nil {
		v.holding.Fence().Shut(err)
		err = errors.Join(err, v.ends(recovery.EndRun, api.ReasonStartFailed, true))
	}
	return err
}

// chromeOn is the browser of the profile's slot.
func (v *visit) chromeOn() *fakeChrome {
	v.p.w.mu.Lock()
	defer v.p.w.mu.Unlock()
	return v.p.w.chromes[v.slot.Browser().PID()]
}

// grant has the numbers of the steps of launcher/grant.go. With a visit and an error, the
// lease was granted.
func (p *process) grant(ctx context.Context, q request, entry lease.Entry, path string, slot *slots.Slot) (*visit, error) {
	m := q.manifest
	k, err := p.presence.Current() // 1
	if err != nil {
		return nil, err
	}
	floor, err := p.root.Floor(m.ProfileID) // 2
	if err == nil && floor < entry.Record.Token {
		err = slot.Lock().RaiseFloor(entry.Record)
	}
	if err != nil {
		return nil, err
	}
	next, err := entry.Record.Grant(p.sessions.Request(m, id.New("ses"), k, floor), time.Now()) // 3
	if err != nil {
		return nil, err
	}
	joined := slot.Browser() != nil
	v := &visit{p: p, q: q, granted: next, path: path, slot: slot, session: p.sessions.New(m, next, path, slot, id.Secret())}
	if err := (session.Cold{}).Prepare(ctx, v.session); err != nil { // 4
		v.session.Unmade()
		return nil, err
	}
	_, err = p.store.Swap(ctx, entry, next) // 5
	var moved *lease.MovedError
	switch {
	case errors.As(err, &moved):
		v.session.Unmade()
		return nil, err
	case err != nil:
		p.w.count("grants without an answer")
		return nil, errors.Join(err, v.session.Unanswered())
	}
	v.session.Granted()
	v.holding = lease.Hold(p.ctx, next, next.Token, p.store, k) // 6
	if err = slot.Lock().RaiseFloor(next); err == nil {         // 7
		err = v.holding.Fence().Check()
	}
	if err == nil {
		v.journal, err = checkpoint.Open(p.files.Journal(next.SessionID))
	}
	if err != nil {
		return v, err
	}
	p.w.check.granted(p, next, joined)
	if joined {
		v.chrome, v.browser = v.chromeOn(), slot.Browser()
	} else if v.chrome, err = p.startChrome(q, slot.Lock(), path, next); err == nil {
		v.browser = p.driver.Undriven(&handle{v.chrome, p}, next.SessionID)
		slot.Opened(v.browser, next.SessionID, nil)
	}
	if err == nil && v.chrome == nil {
		err = errors.New("the browser is gone")
	}
	if err = errors.Join(err, v.holding.Fence().Check()); err != nil { // 8
		return v, err
	}
	slot.Enter(v) // 9
	p.work.Go(v.serve)
	return v, nil
}

// startChrome starts the browser and notes it, in two steps.
func (p *process) startChrome(q request, lock *profiledir.Lock, path string, r lease.Record) (*fakeChrome, error) {
	if q.fails {
		return nil, errors.New("the browser does not start")
	}
	c, err := p.spawn(lock, path, r.SessionID, r.Token)
	if err != nil {
		return nil, err
	}
	if q.dies {
		p.w.count("launchers killed between start and note")
		p.die()
	}
	p.step()
	err = lock.SetRunning(profiledir.Running{PID: c.pid, SessionID: r.SessionID, Token: r.Token, OutputFile: p.files.Output(r.SessionID), Dumps: p.files.Dumps(r.SessionID)})
	c.noted.Store(err == nil)
	return c, err
}

// entry writes into the visit's journal. A full disk may refuse it.
func (v *visit) entry(e checkpoint.Entry) {
	e.At, e.Token = time.Now().UTC(), uint64(v.Token())
	if _, err := v.journal.Append(e); err != nil {
		v.p.log.Warn().Err(err).Msg("journal")
	}
}

// serve is the worker at work, until it ends.
func (v *visit) serve() {
	v.entry(checkpoint.Entry{Kind: checkpoint.KindStart, Name: v.q.manifest.TaskID})
	v.entry(checkpoint.Entry{Kind: checkpoint.KindURL, URL: "https://shop.example/cart"})
	v.entry(checkpoint.Entry{Kind: checkpoint.KindStep, Name: "list"})
	if v.q.manifest.Resumable {
		v.entry(checkpoint.Entry{Kind: checkpoint.KindCheckpoint, Name: "listed", Safe: true})
	}
	over := time.After(v.q.worksFor)
	every := time.NewTicker(700 * time.Millisecond)
	defer every.Stop()
	goal, reason := recovery.Release, api.ReasonReleased
	for serving := true; serving; {
		select {
		case <-v.p.ctx.Done():
			return
		case <-every.C:
			v.p.step()
			if v.holding.Fence().Check() == nil {
				v.p.w.check.write(v)
				v.holding.Report(lease.Progress{LastKnownStep: "list"})
			}
			continue
		case <-v.holding.Context().Done():
			goal, reason = recovery.Recover, api.ReasonLeaseLost
			v.p.w.count("leases lost")
		case <-v.chrome.exited:
			goal, reason = recovery.Recover, api.ReasonBrowserCrashed
		case <-over:
			if v.q.lost {
				goal, reason = recovery.Recover, api.ReasonConnectionLost
			}
		}
		serving = false
	}
	v.entry(checkpoint.Entry{Kind: checkpoint.KindCookie, Cookie: &checkpoint.CookieChange{What: checkpoint.CookiesRead}})
	v.slot.LockRuns()
	last := v.slot.Leave(v)
	if !last {
		defer v.slot.UnlockRuns()
	}
	v.holding.Fence().Shut(errors.New(reason))
	inOrder := goal == recovery.Release
	if !last {
		goal = recovery.EndRun
	}
	if err := v.endRun(goal, reason, inOrder); err != nil {
		v.p.log.Error().Err(err).Str("profile", v.granted.ProfileID).Msg("the visit's end is not complete: it is tried again")
	}
	if last {
		v.slot.End()
		v.slot.UnlockRuns()
	}
}

// ends ends a visit that did not begin.
func (v *visit) ends(goal recovery.Goal, reason string, inOrder bool) error {
	_, err := v.run(goal, reason, inOrder, v.browser == nil || goal == recovery.EndRun)
	return err
}

// endRun ends a visit as session.Session does.
func (v *visit) endRun(goal recovery.Goal, reason string, inOrder bool) error {
	f, err := v.run(goal, reason, inOrder, false)
	if f.Ended == "lost" {
		v.slot.Lose(sessionfile.LostRun{File: f, Journal: v.journal.Entries()})
	}
	if goal != recovery.EndRun {
		err = errors.Join(err, v.slot.Lock().Unlock())
	}
	return errors.Join(err, v.journal.Close())
}

// run hands the end to the real Recoverer, with the case of session.ending.
func (v *visit) run(goal recovery.Goal, reason string, inOrder, neverServed bool) (sessionfile.File, error) {
	p, r := v.p, v.granted
	f, err := p.files.Read(r.SessionID)
	if err != nil {
		f = sessionfile.File{SessionID: r.SessionID, Token: r.Token, Manifest: v.q.manifest, Unseen: true}
	}
	f.Reason = reason
	if inOrder && !neverServed {
		f.Outcome = "succeeded"
	}
	if err := p.files.Save(f); err != nil {
		p.log.Error().Err(err).Msg("session file not written")
	}
	entries := []checkpoint.Entry{}
	if v.journal != nil {
		entries = v.journal.Entries()
	}
	if neverServed && v.browser == nil {
		f.CloseMethod = "already_exited"
	}
	ended, err := p.recoverer.Run(recovery.Case{
		Goal: goal, File: f, Profile: r.ProfileID, Path: v.path, Lock: v.slot.Lock(), Browser: v.browser, Keep: session.Keeping(p.jar, v.q.manifest),
		Journal: func() []checkpoint.Entry { return entries }, Lost: v.slot.Lost(), InOrder: inOrder, NeverServed: neverServed, Log: p.log,
		Latest: func(r lease.Record) lease.Record { return recovery.Latest(r, entries) },
		Bundle: func() *evidence.Bundle {
			return p.recoverer.Capture(recovery.Capture{Record: r, Path: v.path, Token: r.Token, Reason: reason, Outcome: f.Outcome, SeenAt: time.Now(), Journal: entries, Browser: v.browser}, p.log)
		},
		Sealed:       p.files.Save,
		StopRenewing: v.holding.Stop,
	})
	f = ended.File
	f.Ended, f.JournalSum = ended.How, checkpoint.Sum(entries)
	if ended.Lost {
		p.w.count("runs lost beside others")
		lost := f
		lost.Ended = ""
		err = errors.Join(err, p.sessions.Remember(lost))
		f.Ended = "lost"
		return f, err
	}
	if err != nil {
		f.Ended = "ended, and its recovery goes on: " + reason
	}
	return f, errors.Join(err, p.sessions.Remember(f))
}
