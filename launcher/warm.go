package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"leasehold/cdpproxy"
	"leasehold/evidence/redact"
	"leasehold/internal/id"
	"leasehold/launcher/api"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/proxies"
	"leasehold/lease"
)

// A browser is warm while no session has it: released in order, with its evidence
// stored, all that the session had open closed, and one empty tab left that keeps
// the session cookies. The launcher keeps the kernel's lock, the lease is free. The
// next task's grant takes it under a new token; everybody else who wants the
// profile closes it first.

// Bounds of what is done to a warm browser.
const (
	// clearTimeout bounds how long a session's pages may take to go.
	clearTimeout = 5 * time.Second
	// clearPoll is the time between two looks at what is still open.
	clearPoll = 5 * time.Millisecond
	// peersAfter is when the session's own connections are given up for pages
	// that do not go, which they may hold.
	peersAfter = time.Second
	// quietTimeout bounds how long a warm browser may take to show, before a
	// grant, that it is as it was left.
	quietTimeout = 2 * time.Second
	// pulseEvery is how often a warm browser is asked whether it still answers,
	// pulseTimeout how long it has for that.
	pulseEvery   = 10 * time.Second
	pulseTimeout = 10 * time.Second
	// memoryEvery is how often the host's memory is looked at.
	memoryEvery = 2 * time.Second
)

// Why a warm browser was closed, as metrics and logs have it.
const (
	warmIdle     = "idle"
	warmSurplus  = "limit"
	warmPlace    = "place_needed"
	warmMemory   = "memory"
	warmMismatch = "mismatch"
	warmGone     = "browser_gone"
	warmHung     = "hung"
	warmStirred  = "stirred"
	warmSetting  = "setting"
	warmWanted   = "profile_wanted"
	warmShutdown = "shutdown"
)

// idle is what is known of a browser while it is warm.
type idle struct {
	profile, path string
	session       string // the last one, for the log
	since         time.Time
	// taken is closed when somebody takes the browser, to use or to close it.
	taken chan struct{}
	// stirred has room for what was seen in the browser, where nothing should be.
	stirred chan string
}

func newIdle(profile, path, session string, since time.Time) *idle {
	return &idle{profile: profile, path: path, session: session, since: since, taken: make(chan struct{}), stirred: make(chan string, 1)}
}

// stir says that something happened in the browser.
func (i *idle) stir(what string) {
	select {
	case i.stirred <- what:
	default:
	}
}

// stirredBy is what was seen in the browser, or is empty.
func (i *idle) stirredBy() string {
	select {
	case what := <-i.stirred:
		return what
	default:
		return ""
	}
}

// watch waits until somebody takes the browser, and returns "" then, or the reason
// to close it, with details.
func (i *idle) watch(bound time.Duration, gone <-chan struct{}, pulse func() error) (why, detail string) {
	end := time.NewTimer(time.Until(i.since.Add(bound)))
	defer end.Stop()
	every := time.NewTicker(pulseEvery)
	defer every.Stop()
	for {
		select {
		case <-i.taken:
			return "", ""
		case <-end.C:
			return warmIdle, ""
		case <-gone:
			return warmGone, ""
		case what := <-i.stirred:
			select {
			case <-i.taken: // who took it wants to know
				i.stir(what)
				return "", ""
			default:
			}
			return warmStirred, what
		case <-every.C:
			if err := pulse(); err != nil {
				return warmHung, err.Error()
			}
		}
	}
}

// fit is what a browser was started with, as far as a task may want another.
type fit struct {
	headless bool
	args     string
	proxy    string // its sum; empty: none
	account  string
	memory   uint64 // its limit
}

// fitOf is what the manifest's task wants of a browser on the record's profile.
func (l *Launcher) fitOf(m api.Manifest, r lease.Record, server *proxies.Proxy) fit {
	f := fit{headless: l.headless(m), args: strings.Join(m.ChromeArgs, "\x00"), account: r.AccountID, memory: memoryLimit(l.o.BrowserMemory, r.BrowserMemory)}
	if f.account == "" {
		f.account = m.AccountID
	}
	if server != nil {
		f.proxy = server.ID() + " " + server.Sum()
	}
	return f
}

func (l *Launcher) headless(m api.Manifest) bool {
	if m.Headless != nil {
		return *m.Headless
	}
	return l.o.Headless
}

// warmth are the facts that say whether a browser stays open after a release.
type warmth struct {
	profile, manifest *bool // keep_warm of each; nil: it says nothing
	idle              time.Duration
	limit             int
	cookies           string // api.Cookies...
	started           bool   // by this launcher, so that it is known with what
	shared            string // why another host could open the directory; empty: it could not
	short             string // of memory, why
	draining          bool
}

// cold says why the browser is closed, or is empty: it stays open.
func (w warmth) cold() string {
	asked := w.profile
	if asked == nil || *asked {
		// A task may narrow what the profile says, and decides where that says
		// nothing.
		if w.manifest != nil {
			asked = w.manifest
		}
	}
	switch {
	case asked == nil || !*asked:
		return "keep_warm is not set"
	case w.idle <= 0 || w.limit <= 0:
		return "this launcher keeps no browser warm (--keep-warm-idle, --keep-warm-max)"
	case w.cookies == api.CookiesDrop:
		return "its session cookies are to be dropped"
	case w.draining:
		return "the launcher is shutting down"
	case !w.started:
		return "a launcher before started it"
	case w.shared != "":
		return "the profile's directory may be open on another host: " + w.shared
	case w.short != "":
		return w.short
	}
	return ""
}

// staysWarm leaves the browser of a session that ends in order open, as the next
// task may have it, or tells that it is to be closed. The evidence is stored, the
// fence shut.
func (s *session) staysWarm() bool {
	ctx, cancel := context.WithTimeout(context.Background(), clearTimeout)
	defer cancel()
	w := warmth{
		manifest: s.manifest.KeepWarm, profile: s.granted.KeepWarm, idle: s.l.o.KeepWarmIdle, limit: s.l.o.KeepWarmMax,
		cookies: s.manifest.SessionCookies, started: s.open.fit != nil,
	}
	if now, err := s.l.o.Store.Get(ctx, s.profile); err == nil {
		w.profile = now.Record.KeepWarm // it may have been changed meanwhile
	}
	if network := profiledir.NetworkFilesystem(s.path); network.Answer != profiledir.No {
		w.shared = network.How
	}
	if m, err := readMemory(); err == nil {
		w.short = m.short(s.l.o.KeepWarmMinMemory)
	}
	s.l.mu.Lock()
	w.draining = s.l.draining
	s.l.mu.Unlock()
	if why := w.cold(); why != "" {
		s.log.Debug().Str("why", why).Msg("the browser does not stay warm")
		return false
	}
	begun := time.Now()
	err := s.clear(ctx)
	if err == nil {
		// A browser that crashes while nobody uses it may not cost a login.
		err = s.l.jar.hold(ctx, s.open.live.eyes.observer, s.profile)
	}
	if err != nil {
		s.log.Warn().AnErr("problem", errors.Join(err, s.l.jar.drop(s.profile))).Msg("the browser cannot be handed on: it is closed")
		return false
	}
	s.open.live.bound(0)
	s.log.Info().Int("pid", s.open.live.browser.PID()).Dur("took", time.Since(begun)).Msg("browser stays open for the next task")
	return true
}

// clear closes everything that the session has open in the browser but one empty
// tab, which it opens first: with the last one Chrome would drop the session
// cookies. The worker's connections go last: what they intercepted is failed for
// as long as there is a page that could ask for it.
func (s *session) clear(ctx context.Context) error {
	e := s.open.live.eyes
	e.documents.ending.Store(true) // until forget
	var kept struct {
		TargetID string `json:"targetId"`
	}
	if err := e.observer.Call(ctx, "", "Target.createTarget", map[string]any{"url": "about:blank", "background": true}, &kept); err != nil {
		return err
	}
	for s.connected() {
		if err := nap(ctx); err != nil {
			return fmt.Errorf("connections do not end: %w", err)
		}
	}
	early, cancel := context.WithTimeout(ctx, peersAfter)
	defer cancel()
	if err := e.closeOthers(early, kept.TargetID); err != nil && ctx.Err() != nil {
		return err
	}
	s.dropPeers()
	if err := e.disposeContexts(ctx); err != nil {
		return err
	}
	if err := e.closeOthers(ctx, kept.TargetID); err != nil {
		return err
	}
	if err := e.caughtUp(ctx, kept.TargetID); err != nil {
		return err
	}
	if e.mux.Dropped() > 0 {
		return errors.New("the browser did not take all that watches its pages")
	}
	e.forget()
	return os.Truncate(s.l.cases.output(s.open.started), 0) // it is in the evidence
}

// connected tells whether a connection's end is still to be told.
func (s *session) connected() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns) > 0
}

// nap is the pause between two looks, or the context's error.
func nap(ctx context.Context) error {
	select {
	case <-time.After(clearPoll):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// others lists what is open in the browser besides the tab that is kept, and
// tells whether that is there, empty. The browser's own surfaces do not count.
func (e *eyes) others(ctx context.Context, kept string) (others []targetInfo, there bool, err error) {
	var r struct {
		TargetInfos []targetInfo `json:"targetInfos"`
	}
	if err := e.observer.Call(ctx, "", "Target.getTargets", nil, &r); err != nil {
		return nil, false, err
	}
	for _, t := range r.TargetInfos {
		switch {
		case t.TargetID == kept:
			there = t.URL == "about:blank"
		case t.Type != "browser" && t.Type != "tab" && t.Type != "browser_ui":
			others = append(others, t)
		}
	}
	return others, there, nil
}

// String is for the log: without what a URL may hold of secrets.
func (t targetInfo) String() string {
	return fmt.Sprintf("a %s at %s", t.Type, shownURL(t.URL))
}

// shownURL is a URL as it may stand in a log.
func shownURL(url string) string { return clip(redact.URL(url)) }

// closeOthers closes everything but the tab that is kept, and waits until it is
// gone. No page is asked whether it wants to be left.
func (e *eyes) closeOthers(ctx context.Context, kept string) error {
	asked := map[string]bool{}
	for {
		others, _, err := e.others(ctx, kept)
		if err != nil || len(others) == 0 {
			return err
		}
		for _, t := range others {
			// Frames and dedicated workers go with their pages.
			if !asked[t.TargetID] && t.Type != "iframe" && t.Type != "worker" {
				e.observer.Post("", "Target.closeTarget", map[string]string{"targetId": t.TargetID})
			}
			asked[t.TargetID] = true
		}
		if err := nap(ctx); err != nil {
			return fmt.Errorf("%s does not close: %w", others[0], err)
		}
	}
}

// disposeContexts ends every browser context but the profile's own.
func (e *eyes) disposeContexts(ctx context.Context) error {
	var r struct {
		Contexts []string `json:"browserContextIds"`
	}
	if err := e.observer.Call(ctx, "", "Target.getBrowserContexts", nil, &r); err != nil {
		return err
	}
	for _, c := range r.Contexts {
		// One may be going already, with the connection that made it.
		_ = e.observer.Call(ctx, "", "Target.disposeBrowserContext", map[string]string{"browserContextId": c}, nil)
	}
	for len(r.Contexts) > 0 {
		if err := nap(ctx); err != nil {
			return fmt.Errorf("a browser context stays: %w", err)
		}
		r.Contexts = nil
		if err := e.observer.Call(ctx, "", "Target.getBrowserContexts", nil, &r); err != nil {
			return err
		}
	}
	return nil
}

// caughtUp waits until the eyes are on the tab that is kept and on nothing else,
// and everything that they were told of the pages is recorded.
func (e *eyes) caughtUp(ctx context.Context, kept string) error {
	for {
		e.mu.Lock()
		ready := len(e.pages) == 1 && e.pages[kept] != nil
		if ready {
			e.kept = kept
		}
		e.mu.Unlock()
		// What was told comes after what was recorded: else one may be under way.
		recorded := e.recorded.Load()
		if told := e.told.Load(); ready && told == recorded {
			return nil
		}
		if err := nap(ctx); err != nil {
			return fmt.Errorf("the pages' ends were not all seen: %w", err)
		}
	}
}

// forget lets go of what the eyes know of a session that is over.
func (e *eyes) forget() {
	e.network.Forget()
	e.console.Forget()
	e.documents.forget()
	e.mux.Forget()
	e.posts.forget()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closes = 0
	clear(e.sent)
	clear(e.sockets)
	clear(e.groups)
}

// quiet tells whether the browser is as clear left it.
func (e *eyes) quiet(ctx context.Context) error {
	e.mu.Lock()
	kept := e.kept
	e.mu.Unlock()
	others, there, err := e.others(ctx, kept)
	switch {
	case err != nil:
		return err
	case len(others) > 0:
		return fmt.Errorf("%s was opened", others[0])
	case !there:
		return errors.New("its tab is not as it was left")
	}
	return nil
}

// park makes the browser of a session that is over a warm one, and gives the
// profile up.
func (l *Launcher) park(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := s.open
	if !o.placed.IsZero() {
		l.places.observe(time.Since(o.placed))
	}
	o.sessions, o.first, o.warm = nil, nil, false
	o.idle = newIdle(s.profile, s.path, s.id, time.Now())
	l.rest(o)
	if len(l.warm) > l.o.KeepWarmMax {
		l.closeLater(l.longestIdle(), warmSurplus, "")
	}
}

// rest counts an occupied profile among the warm ones. The caller holds l.mu.
func (l *Launcher) rest(o *openProfile) {
	i := o.idle
	delete(l.profiles, i.profile)
	l.warm[i.profile] = o
	o.placed = i.since
	l.wake()
	b := o.live
	l.work.Go(func() {
		gone := make(chan struct{})
		l.work.Go(func() {
			select {
			case <-b.browser.Exited():
				close(gone)
			case <-b.mux.Done():
				close(gone)
			case <-b.vitals.sick:
				i.stir(b.vitals.ill.told)
			case <-i.taken:
			}
		})
		why, detail := i.watch(l.o.KeepWarmIdle, gone, func() error {
			ctx, cancel := context.WithTimeout(context.Background(), pulseTimeout)
			defer cancel()
			return b.mux.Call(ctx, "Browser.getVersion", nil, nil)
		})
		if why == "" {
			return
		}
		l.mu.Lock()
		ours := o.idle == i && l.warm[i.profile] == o
		if ours {
			l.closeLater(o, why, detail)
		}
		l.mu.Unlock()
	})
}

// take occupies a warm profile. The caller holds l.mu.
func (l *Launcher) take(o *openProfile) {
	delete(l.warm, o.idle.profile)
	l.profiles[o.idle.profile] = o
	close(o.idle.taken)
}

// takeToClose is take by somebody who closes the browser and vacates the profile
// then, which others wait for. The caller holds l.mu.
func (l *Launcher) takeToClose(o *openProfile) {
	l.take(o)
	o.cooling = make(chan struct{})
}

// settle lets those who wait for the end of a warm browser look again. The caller
// holds the launcher's mutex.
func (o *openProfile) settle() {
	if o.cooling != nil {
		close(o.cooling)
		o.cooling = nil
	}
}

// closeLater takes a warm browser and closes it by and by. The caller holds l.mu.
func (l *Launcher) closeLater(o *openProfile, why, detail string) {
	profile := o.idle.profile
	l.takeToClose(o)
	l.work.Go(func() {
		l.cool(o, why, detail)
		l.vacate(profile)
	})
}

// longestIdle is the warm browser that has waited longest, or nil. The caller
// holds l.mu.
func (l *Launcher) longestIdle() *openProfile {
	var longest *openProfile
	for _, o := range l.warm {
		if longest == nil || o.idle.since.Before(longest.idle.since) {
			longest = o
		}
	}
	return longest
}

// cool closes the warm browser of an occupied profile in order, and gives up the
// lock. Its evidence is that of its last session.
func (l *Launcher) cool(o *openProfile, why, detail string) {
	i := o.idle
	log := l.o.Log.With().Str("profile", i.profile).Str("session", i.session).Str("why", why).Logger()
	event := log.Info()
	if detail != "" {
		event = log.Warn().Str("detail", detail)
	}
	event.Dur("idle", time.Since(i.since)).Int("pid", o.live.browser.PID()).Msg("warm browser is closed")
	if err := errors.Join(l.closeWarm(o.live, o.lock, i.profile, log), o.lock.Unlock()); err != nil {
		log.Error().Err(err).Msg("warm browser not closed cleanly")
	}
	l.metrics.warmCloses.WithLabelValues(why).Inc()
	l.closeRelay(i.profile)
	l.mu.Lock()
	defer l.mu.Unlock()
	o.idle, o.live, o.lock, o.fit, o.server, o.proxy, o.relay, o.started, o.closing = nil, nil, nil, nil, nil, nil, nil, "", false
}

// occupyCold is occupy for one who wants no browser on the profile: a warm one is
// closed first.
func (l *Launcher) occupyCold(profile string) *openProfile {
	o := l.occupyNext(context.Background(), profile)
	if o != nil && o.idle != nil {
		l.cool(o, warmWanted, "")
	}
	return o
}

// occupyNext is occupy, after the end of a warm browser that is being closed.
func (l *Launcher) occupyNext(ctx context.Context, profile string) *openProfile {
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	for {
		if o := l.occupy(profile); o != nil {
			return o
		}
		l.mu.Lock()
		var cooling chan struct{}
		if o := l.profiles[profile]; o != nil && !l.draining {
			cooling = o.cooling
		}
		l.mu.Unlock()
		if cooling == nil {
			return nil
		}
		select {
		case <-cooling:
		case <-ctx.Done():
			return nil
		}
	}
}

// coolProfile closes the profile's warm browser, if it has one.
func (l *Launcher) coolProfile(profile, why string) {
	l.mu.Lock()
	o := l.warm[profile]
	if o != nil {
		l.takeToClose(o)
	}
	l.mu.Unlock()
	if o != nil {
		l.cool(o, why, "")
		l.vacate(profile)
	}
}

// warmSince is since when the profile's browser is warm; zero: it is not.
func (l *Launcher) warmSince(profile string) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if o := l.warm[profile]; o != nil {
		return o.idle.since.UTC()
	}
	return time.Time{}
}

// makeRoom closes the longest idle browser for a request that has to wait for a
// place, and gives it that place. It is false where that would not help.
func (l *Launcher) makeRoom(o *openProfile, t *ticket) bool {
	l.mu.Lock()
	victim := l.longestIdle()
	if victim == nil || !l.places.free(t, len(l.taken(time.Now()))-len(l.warm)) {
		l.mu.Unlock()
		return false
	}
	profile := victim.idle.profile
	l.takeToClose(victim)
	l.mu.Unlock()
	l.cool(victim, warmPlace, "")
	l.mu.Lock()
	victim.placed, o.placed = time.Time{}, time.Now()
	l.mu.Unlock()
	l.vacate(profile)
	return true
}

// watchMemory closes warm browsers, the longest idle first, while the host is
// short of memory.
func (l *Launcher) watchMemory() {
	every := time.NewTicker(memoryEvery)
	defer every.Stop()
	told := false
	for {
		select {
		case <-every.C:
		case <-l.ctx.Done():
			return
		}
		l.mu.Lock()
		none := len(l.warm) == 0
		l.mu.Unlock()
		if none {
			continue
		}
		m, err := readMemory()
		if err != nil {
			if !told {
				told = true
				l.o.Log.Error().Err(err).Msg("memory is not watched: warm browsers stay")
			}
			continue
		}
		why := m.short(l.o.KeepWarmMinMemory)
		l.mu.Lock()
		if o := l.longestIdle(); o != nil && why != "" {
			l.closeLater(o, warmMemory, why)
		}
		l.mu.Unlock()
	}
}

// handOver gives the warm browser of an occupied profile to the manifest's task.
// Without a session and an error, it was not one for the task, or not fit any
// more, and is closed.
func (l *Launcher) handOver(ctx context.Context, m api.Manifest, entry lease.Entry, path string, o *openProfile, k *lease.Keeper, server *proxies.Proxy) (*session, error) {
	begun := time.Now()
	if wanted := l.fitOf(m, entry.Record, server); wanted != *o.fit || m.SessionCookies == api.CookiesDrop || forbids(entry.Record.KeepWarm) || entry.Record.State != lease.Available {
		l.cool(o, warmMismatch, "")
		return nil, nil
	}
	// The session before may not have let go of it, and nobody joins meanwhile.
	o.gate <- struct{}{}
	defer func() { <-o.gate }()
	floor, err := l.o.Root.Floor(m.ProfileID)
	if err != nil {
		return nil, err
	}
	next, err := entry.Record.Grant(l.request(m, id.New("ses"), k, floor), time.Now())
	if err != nil {
		return nil, l.notGranted(err, entry.Record, m)
	}
	s := newSession(l, m, next, path, o, id.Secret())
	// While the session's files are begun, the browser shows that it is fit, and
	// what state the account is in: as long as it is quiet, that stays so.
	var unfit, opened, unknown error
	var cookies json.RawMessage
	var before, asked sync.WaitGroup
	defer asked.Wait()
	looking, cancelLook := context.WithTimeout(context.WithoutCancel(ctx), quietTimeout)
	defer cancelLook()
	before.Go(func() { unfit = o.live.eyes.quiet(looking) })
	before.Go(func() { opened = s.openJournal() })
	asked.Go(func() { cookies, unknown = o.live.cookies(looking) })
	persisted := l.cases.begin(s.file)
	before.Wait()
	persisted = errors.Join(persisted, opened)
	if unfit != nil {
		s.unmade()
		l.cool(o, whyUnfit(unfit), unfit.Error())
		return nil, nil
	}
	if persisted != nil {
		s.unmade()
		return nil, notRecorded(persisted)
	}
	was := o.idle
	select {
	case <-o.live.vitals.sick:
		was.stir(o.live.vitals.ill.told)
	default:
	}
	if what := was.stirredBy(); what != "" {
		s.unmade()
		l.cool(o, warmStirred, what)
		return nil, nil
	}
	// Where it is not granted, the browser stays warm as it is.
	if err := l.storeGrant(ctx, s, entry, next); err != nil {
		return nil, errors.Join(err, s.journal.Close())
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
	defer cancel()
	s.hold(k)
	l.mu.Lock()
	o.placed = time.Now()
	o.idle, o.first, o.closing, o.lost = nil, s, false, nil
	l.mu.Unlock()
	err = nil
	if what := was.stirredBy(); what != "" {
		err = fmt.Errorf("something happened in the warm browser during the grant (%s): ask again, for another browser", what)
	}
	// Before the floor: it tells the next launcher that this was done.
	err = errors.Join(err, l.jar.drop(s.profile))
	// Nobody is served before all of this is on disk; it goes there side by side.
	var rest sync.WaitGroup
	rest.Go(func() { persisted = l.cases.sync(s.id) })
	rest.Go(func() {
		asked.Wait()
		s.observedWith(cookies, unknown)
	})
	err = errors.Join(err, o.lock.Keep(next))
	rest.Wait()
	if err = errors.Join(err, persisted); err == nil {
		err = s.openDedicated() // it writes the file again
	}
	if p := l.presence.sharedReady(path); p != nil { // the store may have been lost meanwhile
		err = errors.Join(err, p)
	}
	if err = errors.Join(err, s.holding.Fence().Check()); err != nil {
		return nil, s.startFailed(ctx, err)
	}
	l.metrics.handovers.Observe(time.Since(begun).Seconds())
	s.log.Info().Int("pid", o.live.browser.PID()).Dur("idle", begun.Sub(was.since)).Dur("took", time.Since(begun)).Msg("took over the warm browser")
	s.begin()
	l.enter(s)
	return s, nil
}

// forbids tells whether a profile's keep_warm says no.
func forbids(keepWarm *bool) bool { return keepWarm != nil && !*keepWarm }

// whyUnfit is the reason to close a browser that is not as it was left.
func whyUnfit(err error) string {
	switch {
	case errors.Is(err, cdpproxy.ErrBrowserGone):
		return warmGone
	case errors.Is(err, context.DeadlineExceeded):
		return warmHung
	}
	return warmStirred
}

// unmade forgets a session that was not granted.
func (s *session) unmade() {
	if s.journal != nil {
		if err := s.journal.Close(); err != nil {
			s.log.Warn().Err(err).Msg("journal not closed")
		}
	}
	s.forget()
}

// leftWarm tells whether the browser that was left on a profile is a warm one, of
// a launcher that ended: what this host kept of the profile last is a release, and
// that comes after the evidence, and after all but an empty tab was closed.
func leftWarm(kept lease.Record) bool {
	return kept.State == lease.Available && kept.EvidenceID != "" && len(kept.Runs) == 0
}

// closeLeftWarm closes the warm browser of a launcher that ended. Its evidence is
// that of the release.
func (l *Launcher) closeLeftWarm(r lease.Record, b *live, lock *profiledir.Lock, log zerolog.Logger) error {
	log.Info().Msg("a launcher left a warm browser: it is closed")
	return errors.Join(l.closeWarm(b, lock, r.ProfileID, log), lock.Unlock())
}

// closeWarm closes a browser that no session has. Only one that says that it ended
// cleanly has kept all that it keeps.
func (l *Launcher) closeWarm(b *live, lock *profiledir.Lock, profile string, log zerolog.Logger) error {
	if _, err := b.close(l, profile, l.jar.renew, log); err != nil {
		return err
	}
	err := lock.ClearRunning()
	dir, unknown := l.o.Root.Inspect(profile)
	if err == nil && unknown == nil && dir.ClosedCleanly.Answer == profiledir.Yes {
		err = l.jar.settled(profile)
	}
	return err
}

// startedFor notes which session's files are the browser's.
func (l *Launcher) startedFor(o *openProfile, sessionID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	o.started = sessionID
}

// warmMetrics are read when they are asked for.
func (l *Launcher) warmMetrics() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "leasehold_browsers_warm", Help: "Browsers that wait, without a session, for the next task of their profile."}, func() float64 {
		l.mu.Lock()
		defer l.mu.Unlock()
		return float64(len(l.warm))
	})
}
