package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"leasehold/cdpproxy"
	"leasehold/evidence"
	"leasehold/launcher/api"
	"leasehold/launcher/browser"
	"leasehold/launcher/proxies"
	"leasehold/launcher/sessionfile"
	"leasehold/launcher/slots"
	"leasehold/launcher/witness"
	"leasehold/lease"
)

// A session gets its browser in one of three ways. A grant treats them alike, except for the
// two steps of a Start.

// Start is how a session gets its browser.
type Start interface {
	// Prepare comes before the lease is granted. It writes the session's file, so that the next
	// launcher knows what to recover, whatever happens next. If the session is not granted
	// then, it is forgotten.
	Prepare(ctx context.Context, s *Session) error
	// Open comes when the lease is granted and renewed. It puts the lease's record with its
	// token beside the profile, synced, and returns when the browser can serve the session. The
	// caller checks the fence after it.
	Open(ctx context.Context, s *Session) error
}

// UnfitError says that a warm browser does not fit the task, or is not as it was left.
type UnfitError struct {
	Why    string // slots.Warm...
	Detail string
}

func (e *UnfitError) Error() string {
	return "the warm browser cannot be used: " + e.Why + " " + e.Detail
}

// Unmade forgets a session that was not granted.
func (s *Session) Unmade() {
	if err := s.recording.close(); err != nil {
		s.log.Warn().Err(err).Msg("journal not closed")
	}
	if err := errors.Join(s.h.o.Files.Remove(s.id), s.files.remove()); err != nil {
		s.log.Warn().Err(err).Msg("session file not removed")
	}
}

// Unanswered keeps a session if the store did not answer whether its lease was granted: a
// launcher that sees the record later recovers a session that touched nothing.
func (s *Session) Unanswered() error {
	f := s.file.change(func(f *sessionfile.File) { f.Reason, f.JournalSum = api.ReasonUnanswered, s.recording.sum() })
	return errors.Join(s.h.Remember(f), s.recording.close())
}

// NeverGranted forgets a session that was kept as unanswered: the store knows by now that it does
// not have its lease.
func (s *Session) NeverGranted() {
	if err := s.h.forget(s.file.get()); err != nil {
		s.log.Warn().Err(err).Msg("session file not removed")
		return
	}
	s.log.Info().Msg("lease not granted: the store did not answer, and does not have it")
}

// Granted says that the store has the session's lease.
func (s *Session) Granted() {
	s.log.Info().Str("worker", s.manifest.WorkerID).Str("task", s.manifest.TaskID).Str("principal", s.manifest.Opener.Name).Msg("lease granted")
}

func notRecorded(err error) error {
	if err == nil {
		return nil
	}
	return api.Refuse(api.CodeBrowserStartFailed, "the session cannot be recorded, so it is not begun: %v", err)
}

// headless tells whether the manifest's task wants a browser without windows.
func (h *Registry) headless(m api.Manifest) bool {
	if m.Headless != nil {
		return *m.Headless
	}
	return h.o.Headless
}

// fitOf is what the manifest's task requires of a browser on the record's profile.
func (h *Registry) fitOf(m api.Manifest, r lease.Record, proxy *proxies.Proxy) slots.Fit {
	return slots.FitOf(m, r, proxy, h.headless(m), h.o.Driver.MemoryLimit(r.BrowserMemory))
}

// Cold starts a browser.
type Cold struct{}

// Prepare writes the session's file, synced, and the checkpoint from which its task resumes.
func (Cold) Prepare(_ context.Context, s *Session) error {
	return notRecorded(errors.Join(s.files.open(), s.recording.resume(), s.file.save()))
}

// Open starts the browser.
func (Cold) Open(ctx context.Context, s *Session) error {
	lock := s.slot.Lock()
	if err := errors.Join(lock.RaiseFloor(s.granted), s.recording.begin()); err != nil {
		return err
	}
	begun := time.Now()
	// The deadline may have passed while the disk was slow.
	if err := s.Fence().Check(); err != nil {
		return err
	}
	fit := s.h.fitOf(s.manifest, s.granted, s.slot.Proxy())
	if err := s.startBrowser(ctx, &fit); err != nil {
		return err
	}
	s.log.Info().Int("pid", s.browser.PID()).Dur("took", time.Since(begun)).Msg("browser started")
	return nil
}

// startBrowser starts the session's browser in its directory. fit describes the tasks for which
// it may be left open; nil if there are none.
func (s *Session) startBrowser(ctx context.Context, fit *slots.Fit) (err error) {
	if s.browser, err = s.opening.start(ctx, s, fit); err != nil {
		return err
	}
	return errors.Join(s.opening.emptyJar(), s.opening.jar.DropNoted(s.owner()), s.port.open())
}

// opening is what all ways to get a browser share: it starts one, and puts into it what the
// pages of the session need.
type opening struct {
	*terms
	slot     *slots.Slot
	files    *hostFiles
	jar      sessionfile.Jar // has the session cookies
	dir      sessionfile.Dir
	driver   *browser.Driver
	archive  *evidence.Archive
	headless bool
	work     *sync.WaitGroup
	noting   sync.WaitGroup // of the account's state at the grant
	cookies  cookiesAt
}

// cookiesAt is where the account's cookies are, while its session begins, that a browser which crashes would take
// with it.
type cookiesAt int

const (
	inJar     cookiesAt = iota // those that the jar has, which may be none
	inBoth                     // in the jar, and in the warm browser of which it has them
	inBrowser                  // in the browser alone
)

// emptyJar drops the cookies that are kept, since the browser has them: if it crashes while the session uses it, such
// old cookies would be worse than none.
func (o *opening) emptyJar() error {
	kept, err := o.jar.Kept(o.owner())
	if o.cookies = inJar; kept != nil || err != nil {
		o.cookies = inBrowser
	}
	return o.jar.Drop(o.owner())
}

func newOpening(h *Registry, t *terms, slot *slots.Slot, files *hostFiles, jar sessionfile.Jar) *opening {
	return &opening{
		terms: t, slot: slot, files: files, jar: jar, dir: h.o.Files, driver: h.o.Driver, archive: h.o.Archive, headless: h.headless(t.manifest),
		work: h.work,
	}
}

func (o *opening) start(ctx context.Context, run slots.Run, fit *slots.Fit) (*browser.Browser, error) {
	proxy, socket, err := o.slot.OpenProxy(o.path, o.log)
	if err != nil {
		return nil, err
	}
	o.slot.Starting(run)
	b, err := o.driver.Start(ctx, browser.Start{
		SessionID: o.id, Token: o.token, Lock: o.slot.Lock(), Path: o.path, Headless: o.headless, Proxy: proxy, ProxySocket: socket, ReadOnly: o.rules().ReadOnly,
		Args: o.manifest.ChromeArgs, Memory: o.granted.BrowserMemory, Appearance: o.granted.Appearance, ReadWrite: o.files.ownDirs(), Sink: o.slot.Note, Prepare: o.prepare, Log: o.log,
	})
	o.slot.Opened(b, o.id, fit)
	return b, err
}

// prepare begins to set up a new browser for the session's pages, before anything is loaded, and returns a function
// that waits until it is set up. The account's cookies are asked for at once: Chrome reads them from the disk while it
// opens the first tab.
func (o *opening) prepare(ctx context.Context, b *browser.Browser) (prepared func() error) {
	lent, asked, err := o.lend(b.Monitor().Observer())
	var set error
	var setting sync.WaitGroup
	setting.Go(func() { set = errors.Join(o.files.takeDownloads(ctx, b), o.enforce(ctx, b)) })
	return func() error {
		var cookies json.RawMessage
		var unread error
		if asked != nil {
			defer asked.Forget()
			unread = asked.Wait(ctx, &cookies)
		}
		if lent != nil {
			defer lent.Forget()
			err = errors.Join(err, lent.Wait(ctx, nil))
		}
		setting.Wait()
		if err = errors.Join(err, set); err != nil {
			return err
		}
		if asked == nil {
			b.Monitor().Attribute(o.token, o.granted.HarmlessRequests)
		} else {
			o.noteStateOf(b, cookies, unread)
		}
		return nil
	}
}

// lend sends a new browser the session cookies that are kept, and asks for all cookies that it has then. Each call is
// nil if there is nothing to lend, and if nothing about the account's state is reported.
func (o *opening) lend(browser *cdpproxy.Observer) (lent, asked *cdpproxy.SentCall, err error) {
	if o.manifest.SessionCookies == api.CookiesDrop {
		err = o.jar.Drop(o.owner())
	} else if cookies, unread := o.jar.Kept(o.owner()); unread != nil {
		err = unread
	} else if cookies != nil { // the files stay: a browser that does not start does not take them with it
		lent, err = browser.Send("", "Storage.setCookies", cookies)
	}
	if err == nil && !o.ephemeral {
		asked, err = browser.Send("", "Storage.getCookies", nil)
	}
	return lent, asked, err
}

// Join uses the browser that other runs of the profile have open.
type Join struct{ Begun time.Time }

// Prepare writes the session's file, synced.
func (Join) Prepare(_ context.Context, s *Session) error {
	if wants, has := s.rules().ReadOnly, s.browser.Monitor().Guard().Rules().ReadOnly; wants != has {
		return api.Invalid("read_only", "the profile's browser, which others use, has read_only=%t: a task that wants another has to wait until they end", has)
	}
	return notRecorded(errors.Join(s.files.open(), s.file.save()))
}

// Open joins the others.
func (j Join) Open(ctx context.Context, s *Session) error {
	err := errors.Join(s.slot.Lock().RaiseFloor(s.granted), s.recording.begin(), s.Fence().Check())
	if err == nil {
		err = s.enforceToo(ctx, s.browser)
	}
	if err == nil {
		err = s.port.open()
	}
	if err != nil {
		return err
	}
	s.opening.noteState(ctx, s.browser)
	s.log.Info().Dur("took", time.Since(j.Begun)).Msg("joined the browser of the profile")
	return nil
}

// Warm uses the browser that the profile's last session left open. Steps are done at the same
// time if possible, because the worker waits for them.
type Warm struct {
	record lease.Record // before the grant
	proxy  *proxies.Proxy
	begun  time.Time
	idle   time.Duration // for how long the browser was warm

	cookies chan cookiesAtGrant // one place
}

// cookiesAtGrant is the account's state at the grant, or why it is not known.
type cookiesAtGrant struct {
	cookies json.RawMessage
	err     error
}

// NewWarm returns the start of a session whose profile has the record and the proxy.
func NewWarm(record lease.Record, proxy *proxies.Proxy) *Warm {
	return &Warm{record: record, proxy: proxy, begun: time.Now(), cookies: make(chan cookiesAtGrant, 1)}
}

// Prepare begins the session's file while the browser shows that it is fit, and which state the
// account is in; that state stays the same as long as the browser is quiet. It returns an
// *UnfitError if the browser has to be closed.
func (w *Warm) Prepare(ctx context.Context, s *Session) error {
	r := w.record
	if wanted := s.h.fitOf(s.manifest, r, w.proxy); wanted != *s.slot.Fit() || s.manifest.SessionCookies == api.CookiesDrop ||
		r.KeepWarm != nil && !*r.KeepWarm || r.State != lease.Available {
		return &UnfitError{Why: slots.WarmMismatch}
	}
	looking, cancel := s.h.o.Patience(context.WithoutCancel(ctx), s.h.o.QuietTimeout)
	defer cancel()
	var unfit, opened error
	var before sync.WaitGroup
	before.Go(func() {
		if unfit = s.browser.Monitor().Tabs().Quiet(looking); unfit != nil && errors.Is(unfit, looking.Err()) {
			unfit = context.Cause(looking)
		}
	})
	before.Go(func() { opened = s.recording.begin() })
	s.h.work.Go(func() { // it may go on after Prepare
		asking, cancel := s.h.o.Patience(context.WithoutCancel(ctx), askTimeout)
		defer cancel()
		cookies, err := s.browser.Cookies(asking)
		w.cookies <- cookiesAtGrant{cookies, err}
	})
	persisted := errors.Join(s.files.open(), s.h.o.Files.Begin(s.file.get()))
	before.Wait()
	if unfit != nil {
		return &UnfitError{Why: whyUnfit(unfit), Detail: unfit.Error()}
	}
	if err := errors.Join(persisted, opened); err != nil {
		return notRecorded(err)
	}
	if what := s.slot.Disturbed(); what != "" {
		return &UnfitError{Why: slots.WarmDisturbed, Detail: what}
	}
	w.idle = w.begun.Sub(s.slot.WarmSince())
	return nil
}

// whyUnfit is the reason to close a browser that is not as it was left.
func whyUnfit(err error) string {
	switch {
	case errors.Is(err, cdpproxy.ErrBrowserGone):
		return slots.WarmGone
	case errors.Is(err, context.DeadlineExceeded):
		return slots.WarmHung
	}
	return slots.WarmDisturbed
}

// Open takes the warm browser for the session. The session is not served before all of it is on
// disk.
func (w *Warm) Open(ctx context.Context, s *Session) error {
	s.slot.Starting(s)
	s.opening.cookies = inBoth
	var err error
	if what := s.slot.HandOver(); what != "" {
		err = fmt.Errorf("something happened in the warm browser during the grant (%s): ask again, for another browser", what)
	}
	var synced, taken error
	var rest sync.WaitGroup
	rest.Go(func() { taken = s.files.takeDownloads(ctx, s.browser) })
	rest.Go(func() { synced = s.h.o.Files.Sync(s.id) })
	rest.Go(func() {
		at := <-w.cookies
		s.opening.noteStateOf(s.browser, at.cookies, at.err)
	})
	err = errors.Join(err, s.enforce(ctx, s.browser))
	rest.Wait()
	if err = errors.Join(err, synced, taken); err == nil {
		err = stillThere(s.browser)
	}
	// The cookies are kept until the browser has shown that it lives. This comes before the floor, which tells the next
	// launcher that it was done.
	if err == nil {
		err = s.opening.emptyJar()
	}
	if err == nil {
		err = s.slot.Lock().RaiseFloor(s.granted)
	}
	if err == nil {
		err = s.port.open() // it writes the file again
	}
	if err != nil {
		return err
	}
	s.h.metrics.handovers.Observe(time.Since(w.begun).Seconds())
	s.log.Info().Int("pid", s.browser.PID()).Dur("idle", w.idle).Dur("took", time.Since(w.begun)).Msg("session has the warm browser")
	return nil
}

// stillThere returns an error if the browser has ended, has to be given up, or has lost cookies that the jar has.
func stillThere(b *browser.Browser) error {
	why := "it does not answer any more"
	select {
	case <-b.Exited():
		why = "its process ended: " + b.ExitStatus()
	case <-b.Mux().Done():
	case <-b.Failed():
		why = b.Failure().Detail
	default:
		if !b.NetworkEnded() {
			return nil
		}
		why = slots.LostNetwork
	}
	return fmt.Errorf("the warm browser cannot be used any more (%s): ask again, for another browser", why)
}

// dedicatedPort is a port for this session alone, if it asked for one.
type dedicatedPort struct {
	*terms
	life  *life
	file  *kept
	serve func(sessionID, addr string) (url string, closer func(), err error)
	ctx   context.Context
	work  *sync.WaitGroup
	url   *string // nil: there is none
}

func newDedicatedPort(h *Registry, t *terms, l *life, f *kept) *dedicatedPort {
	return &dedicatedPort{terms: t, life: l, file: f, serve: h.o.Dedicated, ctx: h.ctx, work: h.work}
}

// open opens the port, if the session asked for one, until the session is over.
func (p *dedicatedPort) open() error {
	if !p.manifest.DedicatedPort {
		return nil
	}
	url, closer, err := p.serve(p.id, p.file.get().Dedicated)
	if err != nil {
		return err
	}
	p.url = &url
	p.work.Go(func() {
		select {
		case <-p.life.done:
		case <-p.ctx.Done(): // it may never have begun to serve
		}
		closer()
	})
	p.file.change(func(f *sessionfile.File) { _, f.Dedicated, _ = strings.Cut(url, "://") })
	return p.file.save()
}

// noteState keeps digests of the account's state at the grant, for the bundle. From now on
// events in the browser are recorded for this session. It takes as long as the browser, which on a
// busy host is slow: without that state nobody can tell later that the session changed nothing.
func (o *opening) noteState(ctx context.Context, b *browser.Browser) {
	cookies, err := b.Cookies(ctx)
	o.noteStateOf(b, cookies, err)
}

// noteStateOf is noteState with the result of Storage.getCookies, or the reason why there is none. The session does not
// wait until all of it is noted; its end does.
func (o *opening) noteStateOf(b *browser.Browser, cookies json.RawMessage, problem error) {
	b.Monitor().Attribute(o.token, o.granted.HarmlessRequests)
	learn := b.Monitor().Cookies().Learn(cookies, problem)
	o.noting.Add(1)
	o.work.Go(func() {
		defer o.noting.Done()
		learn()
		o.saveDigests(cookies, problem)
	})
}

func (o *opening) saveDigests(cookies json.RawMessage, problem error) {
	content, err := witness.Digests(o.archive, o.profile, cookies, problem)
	if err == nil {
		err = o.dir.SaveDigests(o.id, content)
	}
	if err != nil {
		o.log.Warn().Err(err).Msg("no digests of the account's state: whether it changes cannot be told")
	}
}
