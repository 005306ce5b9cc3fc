package browser

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"leasehold/cdpproxy"
	"leasehold/checkpoint/netlog"
	"leasehold/evidence/capture"
	"leasehold/internal/cgroup"
	"leasehold/internal/cookiedb"
	"leasehold/launcher/chrome"
	"leasehold/launcher/monitor"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/sessionfile"
)

// Browser is a Chrome that a Driver started or adopted. Its owner ends it with Close, or gives
// it up with Detach.
type Browser struct {
	driver  *Driver
	process Process
	pipeLog *cdpproxy.PipeLog // nil if none is kept
	dumps   string            // the folder of its minidumps; empty if not known
	session string            // that it was started for
	still   stillness
	adopted bool            // an earlier launcher drove it, and may have asked for what this one does not know
	bare    bool            // no page with scripts was open in it: see StoredNothing
	atClose *cookiesAtClose // nil: they are not known
	unkept  error           // why the cookies that it had at its end may be lost; nil: they are not
	stop    context.CancelFunc
	// reported is closed when everything that the monitor saw has gone to its sink.
	reported <-chan struct{}
	// logged is closed when the NetLog is read to its end. netLog closes it.
	logged <-chan struct{}
	netLog io.ReadCloser // nil: there is none

	// These are nil in a browser that is not driven.
	mux     *cdpproxy.Mux
	monitor *monitor.Monitor
	health  *health
}

// Bounds of the steps that close a browser.
const (
	closeTimeout    = 45 * time.Second
	askTimeout      = 10 * time.Second
	cookiesTimeout  = 6 * time.Second // in time that the host gives (see capture.Patience)
	preserveTimeout = 30 * time.Second
	unusedTimeout   = 10 * time.Second
)

// Driven tells whether the browser's pipe is open and its pages are watched. A browser
// that is not driven can only be closed or detached from, and its Mux and Monitor are
// nil.
func (b *Browser) Driven() bool { return b != nil && b.monitor != nil }

// Mux carries connections on the browser's pipe.
func (b *Browser) Mux() *cdpproxy.Mux { return b.mux }

// Monitor watches the browser's pages.
func (b *Browser) Monitor() *monitor.Monitor { return b.monitor }

// PID is the process id of the browser's main process.
func (b *Browser) PID() int { return b.process.Identity().PID }

// Exited returns a channel that is closed when the browser's main process has ended.
func (b *Browser) Exited() <-chan struct{} { return b.process.Exited() }

// ExitStatus says how the browser's main process ended. It is empty while it runs.
func (b *Browser) ExitStatus() string { return b.process.ExitStatus() }

// OutputTail returns the last n bytes that the browser printed.
func (b *Browser) OutputTail(n int) string { return b.process.OutputTail(n) }

// HasPipeLog tells whether there is a pipe log of what clients have open on the browser's
// pipe, all of it written by launchers of this host. Without one, no other launcher can
// resume a session on it.
func (b *Browser) HasPipeLog() bool { return b.pipeLog != nil && b.pipeLog.Whole() }

// Ping returns when the browser has answered a command.
func (b *Browser) Ping(ctx context.Context) error {
	return b.mux.Call(ctx, "Browser.getVersion", nil, nil)
}

// Cookies returns the cookies of the profile's own browser context, as the result of
// Storage.getCookies. Those of a browser that stands still are as they were before.
func (b *Browser) Cookies(ctx context.Context) (json.RawMessage, error) {
	if cookies, err, still := b.stillCookies(); still {
		return cookies, err
	}
	return b.askCookies(ctx)
}

func (b *Browser) askCookies(ctx context.Context) (json.RawMessage, error) {
	var cookies json.RawMessage
	err := b.monitor.Observer().Call(ctx, "", "Storage.getCookies", nil, &cookies)
	return cookies, err
}

// LimitWrites says that no write waits for the browser once d has passed, so that one that
// does not read cannot delay the end of its session. Zero removes the limit.
func (b *Browser) LimitWrites(d time.Duration) {
	if b.mux != nil {
		b.mux.LimitWrites(d)
	}
}

// LimitMemory sets the limit of the profile's own record, in bytes. With zero only the
// host's limit counts.
func (b *Browser) LimitMemory(profile uint64) { b.health.setLimit(b.driver.MemoryLimit(profile)) }

// Failed returns a channel that is closed when the browser has to be given up although
// it runs.
func (b *Browser) Failed() <-chan struct{} { return b.health.failed }

// Failure is why the browser has to be given up, or the zero value if it does not have
// to.
func (b *Browser) Failure() Failure {
	if b.health == nil {
		return Failure{}
	}
	select {
	case <-b.health.failed:
		return b.health.failure
	default:
		return Failure{}
	}
}

// Detach lets go of the browser and leaves it open for the launcher that adopts it. What it
// could not report in time is lost, and the next launcher knows that it missed something.
func (b *Browser) Detach() error {
	if b.mux != nil {
		b.mux.Stop()
		<-b.mux.Done()
		select {
		case <-b.reported:
		case <-time.After(askTimeout):
		}
	}
	b.stop()
	return errors.Join(b.forgetNetwork(), b.closeNetLog(), b.pipeLog.Close(), b.process.Detach())
}

// KeepCookies saves the session cookies of a profile's browser before it closes.
type KeepCookies func(ctx context.Context, browser sessionfile.Caller, profile string) error

// Close ends the browser through CDP or, if that fails, by signals. It returns the
// close method, once no process uses the profile's directory, everything that the browser
// wrote is on the disk, and everything that the pages did is reported. The error is a
// *profiledir.NotStoredError if the browser ended, and only what it wrote, or its session cookies,
// may be lost. With keep nil these are dropped.
func (b *Browser) Close(profile string, keep KeepCookies, log zerolog.Logger) (chrome.CloseMethod, error) {
	return b.ClosePreserved(profile, keep, nil, log)
}

// ClosePreserved is Close for a browser of which there is no evidence yet. preserve stores
// some; it is called before the first signal, if the browser does not end through CDP. If
// it fails, the browser is detached as it is, and the close method is empty.
func (b *Browser) ClosePreserved(profile string, keep KeepCookies, preserve func() error, log zerolog.Logger) (chrome.CloseMethod, error) {
	bounds, timeout := b.driver.o.CloseTimeouts, closeTimeout
	if bounds.BeforeSignal = preserve; preserve != nil {
		timeout += preserveTimeout
	}
	if !b.Driven() {
		bounds.BeforeSignal = b.silence(preserve)
	}
	before, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	b.LimitWrites(askTimeout)
	if b.monitor != nil {
		b.monitor.Closing()
	}
	begun, full := time.Now(), b.driver.o.Root.Full(profile)
	endErr := b.EndPages(before, log)
	if endErr == nil {
		b.storePages(before, log)
	}
	b.keepCookies(profile, keep, endErr, log)
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	ask := func(ctx context.Context) error {
		if endErr != nil { // asked to close, it would let its pages send what they want to
			return endErr
		}
		return b.askToClose(ctx)
	}
	method, err := b.process.Close(ctx, ask, bounds)
	if _, ok := errors.AsType[*chrome.NotSignalledError](err); ok {
		return "", errors.Join(err, b.Detach())
	}
	b.endedStill()
	err = b.closed(b.driver.o.Root, profile, method, begun, errors.Join(err, b.awaitEnd(ctx)), log)
	b.noteEnd(profile, method)
	if err == nil {
		err = b.stored(profile, full)
	}
	if err == nil && b.unkept != nil && !method.Killed() {
		err = &profiledir.NotStoredError{Profile: profile, Why: "the browser's cookies were not kept: " + b.unkept.Error()}
	}
	return method, err
}

// silence is done before the first signal to a browser whose pipe cannot be had. SIGINT has Chrome end in order:
// its pages would send what they send at their end, and what a client of an earlier launcher had paused would be sent
// with the end of that client's session. Without their processes pages send nothing; what waits to be sent
// after its page (a beacon, a fetch with keepalive) may still be sent. preserve is called first, if it is not nil.
func (b *Browser) silence(preserve func() error) func() error {
	return func() error {
		if preserve != nil {
			if err := preserve(); err != nil {
				return err
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
		defer cancel()
		return b.process.KillRenderers(ctx)
	}
}

// stored puts what the browser, which has ended, wrote into the profile on the disk. The error is
// a *profiledir.NotStoredError if some of it may be missing. full says why the disk was full when
// the end began; empty: it was not.
func (b *Browser) stored(profile, full string) error {
	err := b.driver.o.Root.Store(profile)
	if err == nil && full != "" {
		err = &profiledir.NotStoredError{Profile: profile, Why: full}
	}
	if had := b.atClose; err == nil && had != nil && len(had.cookies) > 0 {
		left, unread := b.driver.o.Root.Cookies(profile)
		lost, why := cookiedb.Lost(had.cookies, left, had.at, time.Now())
		switch {
		case unread != nil:
			err = &profiledir.NotStoredError{Profile: profile, Why: "the cookies cannot be read: " + unread.Error()}
		case lost != nil:
			err = &profiledir.NotStoredError{Profile: profile, Why: fmt.Sprintf("the browser had a cookie %.60q of %s at its end: %s", lost.Name, lost.Domain, why)}
		}
	}
	return err
}

// storePages closes the pages, and returns when what they left in local storage is on the disk,
// or when the browser has not done that for as long as it may take to end: then some of it may be
// lost.
func (b *Browser) storePages(ctx context.Context, log zerolog.Logger) {
	if !b.Driven() || b.bare || b.process.ExitStatus() != "" || b.Failure() != (Failure{}) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, b.driver.o.CloseTimeouts.Asking())
	defer cancel()
	var err error
	if !b.pagesEnded() {
		err = b.monitor.Tabs().ClosePages(ctx)
	}
	if err == nil {
		err = b.AwaitStored(ctx)
	}
	if err != nil {
		log.Warn().Err(err).Msg("what pages stored in the last seconds may be lost")
	}
}

// StoredNothing says that no page with scripts was ever open in the browser: its end need not wait for
// what pages store. It is called before Close.
func (b *Browser) StoredNothing() { b.bare = true }

// AwaitStored ends the renderers of a browser whose pages are closed, and returns when it has
// written what they left in local storage.
func (b *Browser) AwaitStored(ctx context.Context) error {
	// A renderer that the next page of its site might use would go on for a while.
	if err := b.process.KillRenderers(ctx); err != nil {
		return err
	}
	return b.process.AwaitStored(ctx)
}

// awaitEnd returns when everything that the pages did is reported.
func (b *Browser) awaitEnd(ctx context.Context) error {
	if b.mux == nil {
		return nil
	}
	if b.monitor != nil {
		b.monitor.HurryNetLog()
	}
	for _, ended := range []<-chan struct{}{b.mux.Done(), b.reported, b.logged} {
		select {
		case <-ended:
		case <-ctx.Done():
			return errors.New("the browser's pipe did not end")
		}
	}
	if b.monitor != nil {
		b.monitor.ReportAlone()
	}
	return nil
}

// readNetLog reads what the network service says that it does. types are given if an earlier launcher
// has read the beginning.
func (b *Browser) readNetLog(types *netlog.Types) {
	if b.netLog = b.process.TakeNetLog(); b.netLog == nil {
		b.monitor.Unlogged()
		return
	}
	keep := func(found netlog.Types) error { return b.driver.o.Files.SaveNetLog(b.session, found) }
	logged := make(chan struct{})
	b.logged = logged
	b.driver.work.Go(func() {
		defer close(logged)
		if err := b.monitor.ReadNetLog(b.netLog, types, keep); err != nil {
			b.monitor.Unlogged()
			b.driver.o.Log.Warn().Err(err).Str("session", b.session).Msg("what pages do not report themselves is not known")
			_, _ = io.Copy(io.Discard, b.netLog) // Chrome keeps in memory what nobody reads
		}
	})
}

// closed removes what is kept of the browser, whose process ended by the method, and returns
// when no process uses the directory of that id in root. err is what went wrong before: the
// result has it, too.
func (b *Browser) closed(root *profiledir.Root, id string, method chrome.CloseMethod, begun time.Time, err error, log zerolog.Logger) error {
	b.stop()
	err = errors.Join(err, b.forgetNetwork(), b.closeNetLog(), b.pipeLog.Remove(), b.driver.o.Files.DropStillCookies(b.session))
	if g := b.process.Group(); g != nil && method != "" {
		if err := g.Remove(groupTimeout); err != nil {
			log.Warn().Err(err).Msg("the browser's control group is left: the next launcher removes it")
		}
	}
	waiting, cancel := context.WithTimeout(context.Background(), unusedTimeout)
	defer cancel()
	err = errors.Join(err, root.WaitUnused(waiting, id))
	b.driver.closes.WithLabelValues(string(method)).Inc()
	log.Info().Str("rung", string(method)).Dur("took", time.Since(begun)).AnErr("problem", err).Msg("browser closed")
	return err
}

// keepCookies saves the session cookies, and notes those that have to be on the disk when the browser
// has ended. endErr is why its pages could not be ended: then it is not asked. A browser that is gone
// before it answers has had its end: what it left in the directory tells how it was.
func (b *Browser) keepCookies(profile string, keep KeepCookies, endErr error, log zerolog.Logger) {
	if b.monitor == nil || b.process.ExitStatus() != "" {
		return
	}
	ctx, cancel := capture.Patience(context.Background(), min(cookiesTimeout, b.driver.o.CloseTimeouts.Asking()))
	defer cancel()
	err := endErr
	if err == nil && keep != nil {
		err = keep(ctx, b.monitor.Observer(), profile)
	}
	if err == nil {
		err = b.noteCookies(ctx)
	}
	if b.unkept = err; errors.Is(err, cdpproxy.ErrBrowserGone) {
		b.unkept = nil
	}
	if err != nil {
		log.Warn().Err(err).Msg("the browser's cookies may be lost")
	}
}

func (b *Browser) askToClose(ctx context.Context) error {
	if b.monitor == nil {
		return errors.New("the browser was never driven")
	}
	err := b.mux.Call(ctx, "Browser.close", nil, nil)
	if errors.Is(err, cdpproxy.ErrBrowserGone) {
		err = fmt.Errorf("%w: %w", err, io.EOF)
	}
	return err
}

// cookiesAtClose are the persistent cookies that the browser had when it was asked to end.
type cookiesAtClose struct {
	jar     json.RawMessage // all cookies, as the browser listed them
	cookies []cookiedb.Cookie
	at      time.Time
}

// noteCookies notes the cookies that have to be on the disk when the browser has ended.
func (b *Browser) noteCookies(ctx context.Context) error {
	noted := &cookiesAtClose{at: time.Now()}
	jar, err := b.askCookies(ctx)
	if err == nil {
		noted.cookies, err = sessionfile.Lasting(jar)
	}
	if err == nil {
		noted.jar, b.atClose = jar, noted
	}
	return err
}

// CookiesAtClose are all cookies that the browser had when it was asked to end, as Cookies lists them;
// nil: they are not known.
func (b *Browser) CookiesAtClose() json.RawMessage {
	if b.atClose == nil {
		return nil
	}
	return b.atClose.jar
}

func (b *Browser) closeNetLog() error {
	if b.netLog == nil {
		return nil
	}
	return b.netLog.Close()
}

// State is the part of a bundle about the browser's process, in JSON.
type State struct {
	PID int `json:"pid"`
	// ExitStatus says how the process ended. It is empty while it runs.
	ExitStatus string `json:"exit_status,omitempty"`
	// Failure is why the browser had to be given up while it ran.
	Failure string  `json:"ailment,omitempty"`
	Memory  *Memory `json:"memory,omitempty"`
	// Group is what its control group counted.
	Group *cgroup.Usage `json:"cgroup,omitempty"`
	// Dumps are the minidumps of the browser's processes that crashed. The files are in
	// DumpDir on the launcher's host.
	DumpDir string `json:"dump_dir,omitempty"`
	Dumps   []Dump `json:"dumps,omitempty"`
	// DumpsMissing says why the dumps could not be listed.
	DumpsMissing string `json:"dumps_missing,omitempty"`
	// DumpsSent says that Chrome may send the dumps to its maker, because its user
	// agreed to that.
	DumpsSent bool `json:"dumps_may_be_sent,omitempty"`
}

// State describes the browser for the evidence of a session that began at since. Dumps
// of an earlier session on the same browser are left out.
func (b *Browser) State(ctx context.Context, since time.Time) State {
	st := State{PID: b.process.Identity().PID, ExitStatus: b.process.ExitStatus(), Failure: b.Failure().Detail}
	if b.health != nil && b.health.limited() > 0 {
		m := b.health.lastReading()
		st.Memory = &m
	}
	if g := b.process.Group(); g != nil {
		u := g.Usage()
		st.Group = &u
	}
	if b.dumps == "" {
		st.DumpsMissing = "the launcher before did not say where they are"
		return st
	}
	var err error
	if st.Dumps, err = awaitDumps(ctx, b.dumps); err != nil {
		st.DumpsMissing = err.Error()
	}
	st.Dumps = slices.DeleteFunc(st.Dumps, func(d Dump) bool { return d.At.Before(since) })
	if len(st.Dumps) > 0 {
		st.DumpDir, st.DumpsSent = b.dumps, uploadsDumps(b.dumps)
	}
	return st
}
