package browser

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/rs/zerolog"

	"leasehold/evidence/capture"
	"leasehold/internal/boottime"
	"leasehold/launcher/chrome"
	"leasehold/launcher/monitor"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/recovery/table"
	"leasehold/launcher/sessionfile"
)

// From the loss of its worker on, a browser stands still: its network service is stopped by a
// signal, so nothing leaves it, whatever its pages do. If the worker comes back the network
// service goes on, with everything that its pages wanted to send. If not, the pages are ended
// first, by killing the processes in which they run: then no page can send anything, not even
// while it is closed. If something still waits in the network service, that is killed as well,
// and Chrome starts another one, into which the cookies are put back. So what waited is never
// sent. If it is known that nothing waits the network service goes on, and nothing is lost.

// Bounds of the steps.
const (
	// cookiesWithin bounds how long a browser may take to show its cookies while its pages
	// go on. On a busy host it needs longer: its pages are stopped meanwhile.
	cookiesWithin = 75 * time.Millisecond
	// cookiesAtMost is after how long it is stopped without them.
	cookiesAtMost = 10 * time.Second
	// arriveTimeout bounds how long the network service may take to do what stopped pages
	// have sent it, and to say what it did, in time that the host gives (see capture.Patience).
	arriveTimeout = time.Second
	// stopTimeout bounds how long the network service may take to be found and stopped, in time that the
	// host gives (see capture.Patience).
	stopTimeout = 2 * time.Second
	// replaceTimeout is how long Chrome may take to start another network service.
	replaceTimeout = 5 * time.Second
	// askAgain is how long a question to a network service that just ended may take
	// before it is asked anew: Chrome may have lost it.
	askAgain = 500 * time.Millisecond
	// picturesTimeout is how long pages that owe a picture may take to close.
	picturesTimeout = 4 * time.Second
	// endTimeout bounds all that EndPages does, and one try of OpenLater.
	endTimeout = 10 * time.Second
	// freedWithin is how long pages that were freed may take to say that no script of theirs runs any more, in
	// time that the host gives (see capture.Patience), before they are freed again.
	freedWithin = 100 * time.Millisecond
	// freeTimeout is for how long they are freed again and again, in such time, too.
	freeTimeout = 2 * time.Second
	// openAgain is the pause before a browser that the launcher kept to itself is opened to its clients anew.
	openAgain = time.Second
	// lookAgain is the pause between two looks for a process.
	lookAgain = 2 * time.Millisecond
)

// stillness is how a browser stands still. One with nothing but a turn is that of a browser that does not.
type stillness struct {
	// mu is held over each of the steps, which wait for the browser.
	mu      turn
	network NetworkService // which is stopped; nil: none is
	known   NetworkService // that runs, found beforehand; nil: it has to be looked for
	ends    chan struct{}  // closed when known has ended, and the browser goes on; nil: nobody watches it
	robbed  bool           // known ended, and the browser went on: see NetworkEnded
	since   boottime.Instant
	begun   boottime.Instant         // when that was asked for
	found   bool                     // an earlier launcher had stopped it
	cookies sessionfile.StillCookies // as they were before
	unread  error                    // why they are not known, or nil
	unseen  error                    // why what was sent right before is not known, or nil
	waiting bool                     // pages wait for it, and were not freed
	freed   bool                     // pages that waited for it were freed: it is another one
	ended   bool                     // the pages are ended
	gone    bool                     // the browser is let go of
	// forget has the cache forget an earlier launcher's private pages, so that clients may go on; nil: that is done.
	forget func(ctx context.Context) error

	asked   bool
	problem error  // why it did not stand still, or nil
	gap     string // when it did not, in words; empty: it did throughout
	lost    string // why its cookies may not be whole; empty: they are
	cured   int    // cookies that were put back

	method chrome.CloseMethod // by which the browser ended; empty: it has not
	noted  profiledir.Fact    // what it has noted in the profile about its end
}

// turn is a lock for steps that last. Who waits for it can give up.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

func (t turn) Lock()   { t <- struct{}{} }
func (t turn) Unlock() { <-t }

// within is Lock until ctx ends.
func (t turn) within(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// StandStill stops everything that the browser would send, and returns when nothing leaves it
// any more. A browser that already stands still goes on doing so. A step that fails is logged,
// and is a fact of the inspection (see StillFacts).
func (b *Browser) StandStill(log zerolog.Logger) {
	s := &b.still
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.network != nil || s.ended || !b.Driven() || b.process.ExitStatus() != "" {
		return
	}
	s.asked, s.begun, s.problem = true, boottime.Now(), nil
	within := cmp.Or(b.driver.o.CookiesWithin, cookiesWithin)
	soon := time.NewTimer(within)
	defer soon.Stop()
	cookies := b.readCookies(within, cookiesAtMost)
	n, err := b.takeKnown(), error(nil)
	if n == nil {
		ctx, cancel := capture.Patience(context.Background(), stopTimeout)
		n, err = b.findNetwork(ctx, 0)
		cancel()
	}
	if err == nil {
		var r cookiesRead
		read := false
		select {
		case r = <-cookies:
			read = true
		case <-soon.C:
		}
		held := b.process.StopRenderers()
		defer func() {
			if err := errors.Join(held, b.process.ContinueRenderers()); err != nil {
				log.Warn().Err(err).Msg("the pages were not stopped while the browser was")
			}
		}()
		if !read {
			r = <-cookies
		}
		if r.cookies.Missing != "" && held == nil {
			b.readArrived(n, &r)
		}
		r.cookies.Network = n.PID()
		if s.lost == "" || s.cookies.Jar == nil { // else those from before could not be put back yet
			s.cookies, s.unread = r.cookies, r.err
		}
		s.unseen = r.err
		if r.err == nil { // else the browser does not answer
			s.unseen = b.awaitLogged()
		}
		ctx, cancel := capture.Patience(context.Background(), stopTimeout)
		defer cancel()
		err = b.stopNetwork(ctx, n)
	}
	if err != nil {
		s.problem = err
		log.Error().Err(err).Msg("the browser does not stand still: its pages may go on sending")
	} else {
		log.Info().Int("pid", n.PID()).Dur("took", s.since.Sub(s.begun)).AnErr("cookies", s.unread).Str("missing", s.cookies.Missing).AnErr("unseen", s.unseen).Msg("the browser stands still: nothing leaves it")
	}
	if s.network != nil && s.unread == nil {
		if err := b.driver.o.Files.SaveStillCookies(b.session, s.cookies); err != nil {
			log.Warn().Err(err).Msg("cookies may be lost if this launcher is killed now")
		}
	}
}

// learnNetwork finds the network service, so that nothing has to be looked for at a loss.
func (b *Browser) learnNetwork() {
	s := &b.still
	s.mu.Lock()
	defer s.mu.Unlock()
	b.findKnown()
}

// findKnown finds the network service, unless it is known and lives. b.still.mu is held.
func (b *Browser) findKnown() {
	s := &b.still
	if s.network != nil || s.asked || s.gone {
		return
	}
	if s.known = b.takeKnown(); s.known != nil {
		return
	}
	if n, err := b.process.NetworkService(); err == nil { // else StandStill looks for it
		s.known, s.ends, s.robbed = n, nil, false
	}
}

// WatchNetwork is called before the cookies are read of a browser that is to have them while no session uses it. From
// then on NetworkEnds and NetworkEnded tell whether it lost some.
func (b *Browser) WatchNetwork() {
	s := &b.still
	s.mu.Lock()
	defer s.mu.Unlock()
	b.findKnown()
	if s.known == nil || s.ends != nil {
		return
	}
	n, ends := s.known, make(chan struct{})
	s.ends = ends
	b.driver.work.Go(func() {
		if !n.AwaitEnd() {
			return
		}
		ctx, cancel := capture.Patience(context.Background(), replaceTimeout)
		defer cancel()
		next, err := b.findNetwork(ctx, n.PID())
		if err == nil {
			_ = next.Close() // only the descriptor
		} else if b.ends(ctx, err) { // it ended with its browser
			return
		}
		close(ends)
	})
}

// NetworkEnds returns a channel that is closed when the network service that WatchNetwork found has ended, and the
// browser goes on with another one. It is nil, and so never closed, where none was found.
func (b *Browser) NetworkEnds() <-chan struct{} {
	b.still.mu.Lock()
	defer b.still.mu.Unlock()
	return b.still.ends
}

// NetworkEnded tells whether the network service that was known has ended, and the browser went on: the next one has
// only the cookies that were on the disk, so none of those that Chrome drops when it closes.
func (b *Browser) NetworkEnded() bool {
	if !b.Driven() {
		return false
	}
	s := &b.still
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known != nil && b.process.ExitStatus() == "" && s.known.Ended() {
		s.robbed = true
	}
	return s.robbed
}

// takeKnown returns the network service that was found beforehand, if it still lives.
// b.still.mu is held.
func (b *Browser) takeKnown() NetworkService {
	n := b.still.known
	b.still.known = nil
	if n == nil || !n.Ended() {
		return n
	}
	_ = n.Close() // only the descriptor
	return nil
}

type cookiesRead struct {
	cookies sessionfile.StillCookies
	err     error
}

// readCookies reads the cookies, and returns a channel that gets them, or an error after
// atMost. A cookie that a page set has to arrive within the time within; otherwise it is
// reported as missing.
func (b *Browser) readCookies(within, atMost time.Duration) <-chan cookiesRead {
	done := make(chan cookiesRead, 1)
	b.driver.work.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), atMost)
		defer cancel()
		arriving, stop := context.WithTimeout(ctx, within)
		defer stop()
		var r cookiesRead
		if err := b.monitor.Cookies().AwaitStored(arriving); err != nil {
			r.cookies.Missing = err.Error()
		}
		r.cookies.Jar, r.err = b.askCookies(ctx)
		done <- r
	})
	return done
}

// readArrived reads the cookies again once the network service has done everything that the
// pages, which are stopped, had sent it. If it does not come to rest, r stays as it is.
func (b *Browser) readArrived(n NetworkService, r *cookiesRead) {
	ctx, cancel := capture.Patience(context.Background(), arriveTimeout)
	defer cancel()
	if n.AwaitRest(ctx) != nil {
		return
	}
	if jar, err := b.askCookies(ctx); err == nil {
		*r = cookiesRead{cookies: sessionfile.StillCookies{Jar: jar}}
	}
}

// awaitLogged returns when everything is known that the network service sent before the pages were
// stopped. Some of that may be in its memory alone, and would be lost if it was killed.
func (b *Browser) awaitLogged() error {
	if b.netLog == nil { // that is reported already
		return nil
	}
	ctx, cancel := capture.Patience(context.Background(), arriveTimeout)
	defer cancel()
	return b.monitor.AwaitLogged(ctx)
}

// findNetwork waits for the browser to have a network service other than the process not.
func (b *Browser) findNetwork(ctx context.Context, not int) (NetworkService, error) {
	for {
		n, err := b.process.NetworkService()
		switch {
		case err == nil && n.PID() != not:
			return n, nil
		case err == nil:
			err = errors.Join(chrome.ErrNoNetworkService, n.Close())
		case !errors.Is(err, chrome.ErrNoNetworkService) || errors.Is(err, chrome.ErrNoZygote):
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-b.process.Exited():
			return nil, err
		case <-time.After(lookAgain):
		}
	}
}

// stopNetwork stops a network service and watches over it. One that was told to stop, and of which it is not
// known whether it has, is not told to go on: what its pages want to send would leave it. It counts as
// stopped, and the error says why that is not certain. b.still.mu is held.
func (b *Browser) stopNetwork(ctx context.Context, n NetworkService) error {
	err := n.Stop(ctx)
	if err != nil && !errors.Is(err, chrome.ErrStopping) {
		return errors.Join(err, n.Close())
	}
	b.stopped(n)
	if err != nil {
		b.monitor.Still().MayHaveSent(err.Error())
	}
	return err
}

// stopped takes in that a network service is stopped. b.still.mu is held.
func (b *Browser) stopped(n NetworkService) {
	s := &b.still
	s.since = boottime.Now()
	b.monitor.Still().Begins(boottime.Monotonic())
	b.watchStopped(n)
}

// watchStopped takes in that the network service that is stopped is n. b.still.mu is held.
func (b *Browser) watchStopped(n NetworkService) {
	b.still.network = n
	b.driver.work.Go(func() {
		if n.AwaitEnd() {
			b.networkEnded(n)
		}
	})
}

// networkEnded is called when a stopped network service has ended, for instance because the
// kernel killed it for its memory. Chrome starts another one at once, which is stopped as well. The pages
// are stopped until then; what the browser itself sent by it before, or for them, is not known.
func (b *Browser) networkEnded(n NetworkService) {
	s := &b.still
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.network != n || s.ended || b.goneStill() {
		return
	}
	s.network = nil
	s.gap = "the network service ended while it was stopped, and another one was there for a moment"
	held := b.process.StopRenderers() // pages send nothing through the next one before it is stopped
	b.monitor.Still().MayHaveSent(s.gap)
	ctx, cancel := capture.Patience(context.Background(), replaceTimeout+stopTimeout)
	defer cancel()
	next, err := b.findNetwork(ctx, n.PID())
	switch {
	case err == nil:
		err = b.stopNetwork(ctx, next)
	case errors.Is(err, chrome.ErrNoNetworkService) && b.ends(ctx, err): // nothing sends what was withheld
		b.endStill()
		err = nil
	}
	if s.network == nil && !s.ended { // the next one runs: what pages want to send is sent, once it has the cookies
		b.monitor.Still().Moves()
		b.putBack(context.Background())
	}
	if moved := b.process.ContinueRenderers(); !s.ended {
		err = errors.Join(err, held, moved)
	}
	if err = errors.Join(err, n.Close()); err != nil {
		s.problem = err
	}
}

// ends tells whether the browser, whose network service is not found because of err, has ended. One that
// starts no processes any more is about to.
func (b *Browser) ends(ctx context.Context, err error) bool {
	if errors.Is(err, chrome.ErrNoZygote) {
		select {
		case <-b.process.Exited():
		case <-ctx.Done():
		}
	}
	return b.process.ExitStatus() != ""
}

// goneStill tells whether the browser has ended. If it stood still until then, that is taken in. b.still.mu is held.
func (b *Browser) goneStill() bool {
	if b.process.ExitStatus() == "" {
		return false
	}
	if b.still.network != nil && !b.still.ended {
		b.endStill()
	}
	return true
}

// endedStill is goneStill for who does not hold b.still.mu.
func (b *Browser) endedStill() {
	b.still.mu.Lock()
	defer b.still.mu.Unlock()
	b.goneStill()
}

// noteEnd takes in how the browser ended.
func (b *Browser) noteEnd(profile string, method chrome.CloseMethod) {
	if b.process.ExitStatus() == "" {
		return
	}
	dir, err := b.driver.o.Root.Inspect(profile)
	if err != nil {
		dir.ClosedCleanly = profiledir.Fact{Answer: profiledir.Unknown, How: err.Error()}
	}
	b.still.mu.Lock()
	defer b.still.mu.Unlock()
	b.still.method, b.still.noted = method, dir.ClosedCleanly
}

// endStill takes in that what was withheld is never sent. b.still.mu is held.
func (b *Browser) endStill() {
	b.still.ended = true
	b.monitor.Still().PagesEnd()
}

// adoptStill finds out whether an earlier launcher left the browser standing still.
func (b *Browser) adoptStill(log zerolog.Logger) {
	s := &b.still
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { // once nothing leaves the browser, if it is to stand still
		if err := b.process.ContinueRenderers(); err != nil {
			log.Warn().Err(err).Msg("pages that the launcher before had stopped may not go on")
		}
	}()
	n, err := b.process.NetworkService()
	if err != nil {
		return // StandStill says so, if it comes to that
	}
	cookies, unread := b.driver.o.Files.ReadStillCookies(b.session)
	switch stopped, _ := n.Stopped(); {
	case stopped:
		b.stopped(n)
	case errors.Is(unread, fs.ErrNotExist): // it was not to stand still
		_ = n.Close() // only the descriptor
		return
	default:
		s.gap = "the launcher before was killed while it replaced the network service, or let it go on"
		ctx, cancel := capture.Patience(context.Background(), stopTimeout)
		defer cancel()
		if s.problem = b.stopNetwork(ctx, n); s.network == nil {
			return
		}
	}
	s.asked, s.found, s.begun = true, true, boottime.Now()
	s.cookies, s.unread = cookies, unread
	if errors.Is(s.unread, fs.ErrNotExist) {
		s.unread = errors.New("the launcher before could not read them")
	}
	log.Warn().Int("pid", n.PID()).AnErr("cookies", s.unread).Msg("the launcher before left the browser standing still: it goes on so until its worker is back")
}

// forgetPrivate has the cache forget the pages that an earlier launcher kept to itself, so that clients may go on. A
// network service that is stopped does not answer.
func (b *Browser) forgetPrivate(ctx context.Context, log zerolog.Logger) {
	forget := b.still.forget
	if b.still.forget = nil; forget == nil {
		return
	}
	if err := forget(ctx); err != nil {
		b.OpenLater(err, forget, log)
	}
}

// OpenLater is for a browser that the launcher kept to itself, when open, which lets clients go on, has failed with
// err: it is tried again until it succeeds, or the browser has ended or is let go of.
func (b *Browser) OpenLater(err error, open func(ctx context.Context) error, log zerolog.Logger) {
	log.Error().Err(err).Msg("what the launcher kept to itself may still be in the browser, which stays shut to clients: that is tried again until it is gone")
	b.driver.work.Go(func() {
		for {
			select {
			case <-b.driver.ctx.Done():
				return
			case <-b.mux.Done():
				return
			case <-time.After(openAgain):
			}
			if b.Still() { // its cache does not answer
				continue
			}
			ctx, cancel := context.WithTimeout(b.driver.ctx, endTimeout)
			err := open(ctx)
			cancel()
			if err == nil {
				log.Info().Msg("what the launcher kept to itself is gone from the browser: its clients may go on")
				return
			}
		}
	})
}

// PagesWait notes that pages of a browser that stands still wait for its network service, and show
// nothing meanwhile: FreePages has to free them once the worker is known not to come back.
func (b *Browser) PagesWait() {
	b.still.mu.Lock()
	defer b.still.mu.Unlock()
	b.still.waiting = true
}

// TakePagesWait tells whether PagesWait was called since it was asked last.
func (b *Browser) TakePagesWait() bool {
	s := &b.still
	s.mu.Lock()
	defer s.mu.Unlock()
	waiting := s.waiting
	s.waiting = false
	return waiting
}

// FreePages frees the pages of a browser that stands still from waiting for its network service. A
// script that reads document.cookie, or sends a request and waits for its answer, stops its page until
// that answers. So the network service is killed with all that waits in it, and the next one is
// stopped before a page can send anything to it. No page runs a script from then on, since it might
// wait again. It is for a worker that does not come back; EndPages puts the cookies back.
func (b *Browser) FreePages(ctx context.Context) error {
	s := &b.still
	if err := s.mu.within(ctx); err != nil {
		return fmt.Errorf("another step with the browser's network service has not ended: %w", err)
	}
	defer s.mu.Unlock()
	switch {
	case s.freed:
		return nil
	case s.network == nil || s.ended:
		return errors.New("the browser does not stand still")
	}
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	freeing, done := capture.Patience(ctx, freeTimeout)
	defer done()
	for {
		if err := b.freeOnce(ctx, s.network); err != nil {
			return err
		}
		answering, done := capture.Patience(freeing, freedWithin)
		stopped := b.monitor.ScriptsStopped(answering)
		done()
		if stopped || freeing.Err() != nil {
			return nil
		}
	}
}

// freeOnce frees the pages from n. A page may begin to wait for the next one before it has heard that its
// scripts are to stop. b.still.mu is held.
func (b *Browser) freeOnce(ctx context.Context, n NetworkService) error {
	err := b.process.StopRenderers()
	if err == nil {
		b.monitor.StopScripts()
		err = b.monitor.Guard().Enforce(ctx, monitor.Rules{Ended: true}) // also what the browser sends by itself
	}
	if err == nil {
		err = b.exchangeNetwork(ctx, n)
	}
	return errors.Join(err, b.process.ContinueRenderers())
}

// exchangeNetwork kills the stopped network service, and stops the one that Chrome starts in its
// place. b.still.mu is held, and the pages are stopped.
func (b *Browser) exchangeNetwork(ctx context.Context, n NetworkService) error {
	s := &b.still
	s.network = nil // its end is no surprise
	if err := b.killNetwork(ctx, n); err != nil {
		b.watchStopped(n)
		return err
	}
	s.freed = true
	next, err := b.findNetwork(ctx, n.PID())
	if err == nil {
		if err = next.Stop(ctx); err == nil || errors.Is(err, chrome.ErrStopping) { // as in stopNetwork
			b.watchStopped(next)
		} else {
			err = errors.Join(err, next.Close())
		}
	}
	if err != nil {
		s.problem = err
	}
	if s.network == nil {
		s.lost = "the network service was killed, and the cookies were not put back: " + err.Error()
	}
	return errors.Join(err, n.Close())
}

// Still tells whether the browser stands still.
func (b *Browser) Still() bool {
	b.still.mu.Lock()
	defer b.still.mu.Unlock()
	return b.still.network != nil
}

// AskedStill tells whether the browser was asked to stand still since it went on last, be it that it does or
// that it could not.
func (b *Browser) AskedStill() bool {
	b.still.mu.Lock()
	defer b.still.mu.Unlock()
	return b.still.asked
}

// stillCookies are those of a browser that stands still, which cannot be asked for them.
func (b *Browser) stillCookies() (cookies json.RawMessage, err error, still bool) {
	b.still.mu.Lock()
	defer b.still.mu.Unlock()
	return b.still.cookies.Jar, b.still.unread, b.still.network != nil
}

// GoOn lets a browser that was to stand still go on, as its worker is back: what its pages wanted
// to send is sent now. If the network service that had the cookies has ended, what waits in the next one would be
// sent without them. It is never sent, and the pages go on once the cookies are put back.
func (b *Browser) GoOn(log zerolog.Logger) {
	s := &b.still
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.asked || s.ended || b.goneStill() {
		return
	}
	b.monitor.Still().Moves()
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	var err error
	if n := s.network; n != nil { // else it moves already
		s.network = nil
		if had := s.cookies.Network; had != 0 && had != n.PID() {
			err = b.process.StopRenderers()
			err = errors.Join(err, b.replaceNetwork(ctx, n), b.process.ContinueRenderers())
		} else {
			err = n.Continue()
		}
		err = errors.Join(err, n.Close())
	}
	err = errors.Join(err, b.driver.o.Files.DropStillCookies(b.session))
	b.forgetPrivate(ctx, log)
	if s.lost != "" {
		log.Error().Str("why", s.lost).Msg("cookies of the last half minute may be lost: a person decides at the end of the session")
	}
	log.Info().Err(err).Dur("stood_for", boottime.Now().Sub(s.begun)).Msg("the browser goes on")
	s.found, s.cookies, s.asked, s.gap, s.waiting = false, sessionfile.StillCookies{}, false, "", false
}

// EndPages ends every page of a browser whose worker was lost, without letting any of them send
// anything more. Requests that were withheld are reported. From then on everything that the
// browser sends by itself is failed; see monitor.Rules for the page that may be let pass.
// EndPages does nothing if StandStill was never called, or the pages are already ended.
func (b *Browser) EndPages(ctx context.Context, log zerolog.Logger) error {
	s := &b.still
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.asked || s.ended || !b.Driven() || b.goneStill() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	begun := time.Now()
	b.monitor.GETs().GiveUp()
	b.monitor.Closing()
	if b.adopted || b.mux.OwesPictures() { // the browser would crash with a renderer that owes one
		closing, done := context.WithTimeout(ctx, picturesTimeout)
		if err := b.monitor.Tabs().CloseStopped(closing, b.process.StopRenderers); err != nil {
			log.Warn().Err(err).Msg("a page that owes a picture does not close: the browser may crash with it")
		}
		done()
	}
	if err := b.process.KillRenderers(ctx); err != nil {
		return err
	}
	// A worker that Chrome wakes up in a new process is caught by the guard of requests.
	if err := b.monitor.Guard().Enforce(ctx, monitor.Rules{Ended: true}); err != nil {
		return fmt.Errorf("what the browser sends by itself cannot be failed: %w", err)
	}
	waits := b.mayWait(ctx)
	if n := s.network; n != nil {
		s.network = nil // its end is no surprise
		var err error
		if waits {
			err = b.replaceNetwork(ctx, n)
		} else {
			err = n.Continue()
		}
		if err = errors.Join(err, n.Close()); err != nil {
			return err
		}
	}
	b.forgetPrivate(ctx, log)
	b.endStill()
	b.mux.LetStart()
	if s.lost != "" {
		log.Error().Str("why", s.lost).Msg("cookies of the last half minute may be lost")
	}
	log.Info().Bool("network_replaced", waits).Int("cookies_put_back", s.cured).Dur("took", time.Since(begun)).Msg("the pages are ended")
	return b.driver.o.Files.DropStillCookies(b.session)
}

// mayWait tells whether anything may wait in the network service that has to be ended with it. What is not
// known counts: requests that began under an earlier launcher, or in a network service that was not stopped
// all the time, and what pages do not report if the NetLog does not tell of it. b.still.mu is held.
func (b *Browser) mayWait(ctx context.Context) bool {
	s := &b.still
	// If the cookies could not be read, the log was not asked, and the login would be lost with the network service.
	logged := b.netLog != nil && (s.unseen == nil || s.unread != nil)
	if b.adopted || s.freed || s.gap != "" || s.problem != nil || !logged {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, endTimeout/2) // the rest is for what has to be done then
	defer cancel()
	return b.monitor.CatchUp(ctx) != nil || b.monitor.Still().MayWait(s.begun)
}

func (b *Browser) pagesEnded() bool {
	b.still.mu.Lock()
	defer b.still.mu.Unlock()
	return b.still.ended
}

// killNetwork kills the stopped network service. If it is not known what that sent right before it was
// stopped, it will never be. b.still.mu is held.
func (b *Browser) killNetwork(ctx context.Context, n NetworkService) error {
	s := &b.still
	if err := n.Kill(ctx); err != nil {
		return err
	}
	if s.unseen != nil {
		b.monitor.Still().MayHaveSent("the network service was killed, and what it sent in its last moment is not known: " + s.unseen.Error())
	}
	s.unseen = nil
	return nil
}

// replaceNetwork kills the network service with all that waits in it, and puts the cookies
// into the next one. b.still.mu is held.
func (b *Browser) replaceNetwork(ctx context.Context, n NetworkService) error {
	s := &b.still
	if err := b.killNetwork(ctx, n); err != nil {
		s.lost = "the network service was killed, and its end was not seen: " + err.Error()
		return err
	}
	b.putBack(ctx)
	return nil
}

// putBack puts the cookies that the browser had before into a network service that has only those that were on the
// disk, as soon as there is one. If it does not succeed, lost says why. b.still.mu is held.
func (b *Browser) putBack(ctx context.Context) {
	s := &b.still
	ctx, cancel := context.WithTimeout(ctx, replaceTimeout)
	defer cancel()
	switch {
	case s.unread != nil:
		s.lost = "the cookies could not be read before the browser was stopped: " + s.unread.Error()
	case s.cookies.Missing != "":
		s.lost = "a cookie that a page had just set may be missing: " + s.cookies.Missing
	}
	for {
		asking, cancel := context.WithTimeout(ctx, askAgain)
		var err error
		if s.unread == nil {
			s.cured, err = sessionfile.PutBack(asking, b.monitor.Observer(), s.cookies.Jar, float64(time.Now().Unix()))
		} else {
			_, err = b.askCookies(asking)
		}
		cancel()
		switch {
		case err == nil:
			return
		case ctx.Err() != nil:
			s.lost = fmt.Sprintf("the cookies could not be put back: %v", err)
			return
		case !errors.Is(err, context.DeadlineExceeded):
			s.lost = err.Error()
			return
		}
	}
}

// forgetNetwork forgets the network service, which stays as it is. It is for when the browser has
// ended, or is left to the next launcher.
func (b *Browser) forgetNetwork() error {
	s := &b.still
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = true
	var err error
	for _, n := range []NetworkService{s.network, s.known} {
		if n != nil {
			err = errors.Join(err, n.Close())
		}
	}
	s.network, s.known = nil, nil
	return err
}

// StillFacts are the facts of an inspection about a browser that was to stand still: whether it
// did, and whether its cookies are whole nevertheless.
func (b *Browser) StillFacts() []table.Fact {
	s := &b.still
	s.mu.Lock()
	defer s.mu.Unlock()
	stood := table.Fact{Name: table.StoodStill, Answer: table.Yes, How: "its network service was stopped from the loss on"}
	switch {
	case !s.asked:
		stood.Answer, stood.How = table.Unknown, "nobody asked for that"
	case s.problem != nil:
		stood.Answer, stood.How = table.No, s.problem.Error()
	case s.gap != "":
		stood.Answer, stood.How = table.Unknown, s.gap
	case s.found:
		stood.How = "an earlier launcher had stopped its network service"
	case !s.ended:
		stood.Answer, stood.How = table.Unknown, "its pages were not ended before it was closed"
	}
	whole := table.Fact{Name: table.CookiesWhole, Answer: table.Yes, How: "its network service closed with it"}
	switch {
	case s.lost != "":
		whole.Answer, whole.How = table.No, s.lost
	case s.method == "":
		whole.Answer, whole.How = table.Unknown, "it has not been closed"
	case s.noted.Answer == profiledir.No: // what it had not written yet went with it
		whole.Answer, whole.How = table.No, "it did not end in order: "+s.noted.How
	case s.noted.Answer != profiledir.Yes || s.method != chrome.ClosedByCDP:
		whole.Answer, whole.How = table.Unknown, fmt.Sprintf("it ended by %s; whether in order: %s", s.method, s.noted.How)
	case s.cured > 0:
		whole.How = fmt.Sprintf("%d cookies were put back into a new network service", s.cured)
	}
	return []table.Fact{stood, whole}
}

// CookiesLost is why cookies of the account may be lost; empty: they are not, as far as is known yet.
func (b *Browser) CookiesLost() string {
	for _, f := range b.StillFacts() {
		if f.Name == table.CookiesWhole && f.Answer == table.No {
			return f.How
		}
	}
	return ""
}
