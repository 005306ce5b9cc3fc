// Package launcher is the sidecar's heart: sessions, from the grant of a lease
// over the browser that it starts and the connections that it carries, to the
// release or the recovery. Everything that has effects on a profile goes through
// here, in this order and no other: evidence, quarantine, close, inspect, decide.
package launcher

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"leasehold/evidence"
	"leasehold/internal/boottime"
	"leasehold/internal/cgroup"
	"leasehold/launcher/api"
	"leasehold/launcher/browser"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/proxies"
	"leasehold/launcher/recovery"
	"leasehold/launcher/recovery/decision"
	"leasehold/launcher/sessionfile"
	"leasehold/launcher/slots"
	"leasehold/lease"
)

// Options are what a Launcher works with.
type Options struct {
	ID      string // stable per host and data directory
	DataDir string
	Root    *profiledir.Root
	Store   lease.Store
	Archive *evidence.Archive
	// Ping returns nil while the lease store can be reached.
	Ping func(context.Context) error

	Chrome   string // path of the browser binary
	Headless bool   // unless a manifest says otherwise

	// Proxies are what profiles' proxy ids stand for; nil: none.
	Proxies *proxies.Set

	// PictureInterval is the least time between two pictures of a session that no
	// checkpoint asks for; zero: none is taken.
	PictureInterval time.Duration

	Timing         lease.Timing
	ReconnectGrace time.Duration
	Cooldown       time.Duration
	ReviewWhen     []decision.Caution // more that goes to a person
	MaxBrowsers    int                // zero: no limit
	// MinFreeDisk is the space, in bytes, below which no browser is started; zero:
	// no bound.
	MinFreeDisk uint64
	// KeepWarmIdle is how long a browser stays open for the next task of a profile
	// that wants that, and KeepWarmMax how many do; zero: none.
	KeepWarmIdle time.Duration
	KeepWarmMax  int
	// KeepWarmMinMemory is how many bytes of memory are to stay available beside
	// such browsers; zero: memory is not watched.
	KeepWarmMinMemory uint64
	// HangTimeout is how long a browser may answer nothing before it is given up;
	// zero: for ever.
	HangTimeout time.Duration
	// BrowserMemory is the most, in bytes, that one browser may have in memory;
	// zero: no bound. A profile's record may lower it.
	BrowserMemory uint64
	// CPUWeight is a browser's part of the processors, for Groups; zero: as usual.
	CPUWeight int
	// Groups is where browsers get control groups, so that the kernel holds them to
	// their limits; nil: nowhere.
	Groups *cgroup.Tree
	// HomeTimeout is how long a quarantined profile waits for its home before it
	// goes to a person.
	HomeTimeout time.Duration
	// AdvertiseURL is where workers of other hosts reach this launcher, if they
	// do.
	AdvertiseURL string
	// LeaveOnExit leaves browsers to the next launcher instead of closing them.
	LeaveOnExit bool
	// Dedicated serves a session's own port, where manifests ask for one: a
	// free one, or addr where it is not empty.
	Dedicated func(sessionID, addr string) (url string, closer func(), err error)

	Log     zerolog.Logger
	Metrics prometheus.Registerer
}

// Launcher owns the sessions of one host. It implements api.Service.
type Launcher struct {
	o         Options
	cases     sessionfile.Dir
	jar       sessionfile.Jar
	driver    *browser.Driver
	recoverer *recovery.Recoverer
	slots     *slots.Table
	presence  *presence
	bootID    string
	metrics   *metrics
	version   api.BrowserVersion

	picturing chan struct{} // has room for those that are taken at a time

	ctx    context.Context // of everything the launcher runs by itself
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu       sync.Mutex
	draining bool
	sessions map[string]*session         // by id, living
	ended    map[string]sessionfile.File // by id
	hashes   map[string]string           // session id by hash of capability
	others   map[string]lease.Presence   // the launchers that the store knows
	late     map[string]bool             // sessions whose worker wrote after its end
	protocol *protocolAsk                // Chrome's own description, once asked for
	pending  map[string]chan struct{}    // sessions of the launcher before, by id; closed when it is known what becomes of them
}

var _ api.Service = (*Launcher)(nil)

// New prepares a launcher; Start begins its work.
func New(o Options) (*Launcher, error) {
	if err := o.Timing.Validate(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &Launcher{
		o: o, cases: sessionfile.NewDir(o.DataDir), jar: sessionfile.NewJar(o.DataDir),
		bootID: boottime.ID(), metrics: newMetrics(o.Metrics), ctx: ctx, cancel: cancel,
		sessions: map[string]*session{}, ended: map[string]sessionfile.File{},
		hashes: map[string]string{}, others: map[string]lease.Presence{},
		late: map[string]bool{}, pending: map[string]chan struct{}{},
		picturing: make(chan struct{}, picturesAtOnce),
	}
	l.driver = browser.NewDriver(ctx, &l.work, browser.Options{
		Binary: o.Chrome, Files: l.cases, Root: o.Root, HangTimeout: o.HangTimeout, Memory: o.BrowserMemory, CPUWeight: o.CPUWeight, Groups: o.Groups,
		Log: o.Log, Metrics: o.Metrics,
	})
	l.recoverer = recovery.New(recovery.Options{
		LauncherID: o.ID, DataDir: o.DataDir, Root: o.Root, Files: l.cases, Archive: o.Archive, Store: o.Store,
		Proxies: o.Proxies, ReviewWhen: o.ReviewWhen, Cooldown: o.Cooldown, WroteLate: l.wroteLate, Log: o.Log, Metrics: o.Metrics,
	})
	l.slots = slots.NewTable(ctx, &l.work, slots.Options{
		Root: o.Root, Jar: l.jar, DataDir: o.DataDir, MaxBrowsers: o.MaxBrowsers, MinFreeDisk: o.MinFreeDisk,
		KeepWarmIdle: o.KeepWarmIdle, KeepWarmMax: o.KeepWarmMax, KeepWarmMinMemory: o.KeepWarmMinMemory, Log: o.Log, Metrics: o.Metrics,
	})
	l.presence = &presence{l: l, steady: boottime.Now()}
	known, err := l.cases.Load()
	if err != nil {
		cancel()
		return nil, err
	}
	for _, f := range known {
		l.ended[f.SessionID] = f
		l.hashes[f.CapabilityHash] = f.SessionID
		if f.Reason == "" && f.Ended == "" {
			l.pending[f.SessionID] = make(chan struct{})
		}
	}
	if l.version, err = browserVersion(ctx, o.Chrome, o.Headless); err != nil {
		cancel()
		return nil, err
	}
	return l, nil
}

// webKit is the version of it that each Chrome names, and will.
const webKit = "537.36"

// browserVersion asks the binary; it starts no browser.
func browserVersion(ctx context.Context, binary string, headless bool) (api.BrowserVersion, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, binary, "--version").Output()
	if err != nil {
		return api.BrowserVersion{}, fmt.Errorf("%s --version: %w: want a Chrome or Chromium that runs (--chrome)", binary, err)
	}
	number := ""
	for _, word := range strings.Fields(string(out)) {
		if strings.Count(word, ".") == 3 {
			number = word
			break
		}
	}
	if number == "" {
		return api.BrowserVersion{}, fmt.Errorf("%s --version printed %q: want a Chrome or Chromium (--chrome)", binary, strings.TrimSpace(string(out)))
	}
	major, _, _ := strings.Cut(number, ".")
	name := "Chrome"
	if headless {
		name = "HeadlessChrome"
	}
	return api.BrowserVersion{
		Browser: "Chrome/" + number, ProtocolVersion: "1.3",
		UserAgent:     "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/" + webKit + " (KHTML, like Gecko) " + name + "/" + major + ".0.0.0 Safari/" + webKit,
		WebKitVersion: webKit,
	}, nil
}

// Start opens the launcher's presence, recovers what an earlier launcher left,
// and watches the leases of others, until Stop. It returns when the presence is
// open, or could not be opened at once.
func (l *Launcher) Start() {
	opened := make(chan struct{})
	l.work.Go(func() { l.presence.attend(opened) })
	<-opened
	l.work.Go(l.tend)
	l.work.Go(l.uploads)
	l.work.Go(l.slots.WatchDisk)
	l.work.Go(l.slots.WatchMemory)
	l.work.Go(l.driver.Watch)
}

// Stop drains: no new sessions; each living one gets its evidence and ends, or is
// left for the next launcher. It returns when everything that the launcher runs
// has ended, or with the context's error.
func (l *Launcher) Stop(ctx context.Context) error {
	var late error
	for late == nil {
		busy, changed := l.slots.Drain()
		l.mu.Lock()
		l.draining = true
		for _, s := range l.sessions {
			s.update(func(f *facts) { f.draining, f.leaving = true, l.o.LeaveOnExit })
		}
		l.mu.Unlock()
		if busy == 0 {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			late = fmt.Errorf("%d profiles are still being closed: %w", busy, ctx.Err())
		}
	}
	l.cancel()
	l.work.Wait()
	return late
}

// lookup finds a living session, or says how it ended. One of the launcher before
// is waited for until it is known what becomes of it.
func (l *Launcher) lookup(sessionID string) (*session, error) {
	if err := l.await(sessionID); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.sessions[sessionID]; s != nil {
		return s, nil
	}
	if f, ok := l.ended[sessionID]; ok {
		return nil, endedProblem(f)
	}
	if l.draining { // it may have been left to the next launcher
		return nil, api.Refuse(api.CodeShuttingDown, "the launcher is shutting down: ask for session %s when it is back", sessionID)
	}
	return nil, api.Refuse(api.CodeUnknownSession, "no session %s is known here", sessionID)
}

func endedProblem(f sessionfile.File) *api.Problem {
	how := f.Ended
	if how == "" {
		how = "the launcher that served it is gone"
	}
	return api.Refuse(api.CodeSessionEnded, "session %s is over: %s", f.SessionID, how).
		With("session_id", f.SessionID).With("ended", how)
}

// Ready tells whether a lease could be granted now.
func (l *Launcher) Ready(ctx context.Context) error {
	l.mu.Lock()
	draining := l.draining
	l.mu.Unlock()
	if draining {
		return api.Refuse(api.CodeShuttingDown, "the launcher is shutting down")
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := l.o.Ping(ctx); err != nil {
		return l.problem(err)
	}
	_, err := l.presence.current()
	return err
}

// problem turns an error of the layers below into a refusal.
func (l *Launcher) problem(err error) error {
	var p *api.Problem
	switch {
	case err == nil:
		return nil
	case errors.As(err, &p):
		return p
	case errors.Is(err, lease.ErrUnavailable):
		q := api.Refuse(api.CodeStoreUnavailable, "%v: check the NATS server; nothing is granted until it answers", err)
		q.RetryAfter = 2
		return q
	default:
		return err
	}
}

// revisionTimeout bounds how long a browser may take to say its revision.
const revisionTimeout = 5 * time.Second

// Version describes the browser: what the binary says, and the revisions that
// only a browser that runs can say, as soon as there was one. chromedriver
// connects to none without.
func (l *Launcher) Version(ctx context.Context) (api.BrowserVersion, error) {
	l.mu.Lock()
	v := l.version
	var running *session
	for _, running = range l.sessions {
		break
	}
	l.mu.Unlock()
	if v.V8Version != "" || running == nil {
		return v, nil
	}
	ctx, cancel := context.WithTimeout(ctx, revisionTimeout)
	defer cancel()
	var said struct{ Revision, JSVersion string }
	if err := running.browser.Mux().Call(ctx, "Browser.getVersion", nil, &said); err != nil {
		l.o.Log.Debug().Err(err).Msg("the browser's revision is not known yet")
		return v, nil
	}
	v.V8Version, v.WebKitVersion = said.JSVersion, fmt.Sprintf("%s (%s)", webKit, said.Revision)
	l.mu.Lock()
	l.version = v
	l.mu.Unlock()
	return v, nil
}
