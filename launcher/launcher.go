// Package launcher is the sidecar's service: it wires the packages below it, grants leases, and
// answers what the HTTP interface and the console ask.
//
// Its parts, from the top: cluster and adopt deal with other launchers and with what earlier
// ones left; session is one worker's use of a profile; recovery is how a session ends; slots
// are the profiles that this host is at work on; browser drives a Chrome; monitor watches its
// pages; sessionfile is what is kept on disk.
package launcher

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"leasehold/evidence"
	"leasehold/internal/boottime"
	"leasehold/internal/cgroup"
	"leasehold/internal/runas"
	"leasehold/internal/signed"
	"leasehold/internal/tracing"
	"leasehold/launcher/accountcheck"
	"leasehold/launcher/adopt"
	"leasehold/launcher/api"
	"leasehold/launcher/browser"
	"leasehold/launcher/catalog"
	"leasehold/launcher/chrome"
	"leasehold/launcher/cluster"
	"leasehold/launcher/events"
	"leasehold/launcher/fileroots"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/proxies"
	"leasehold/launcher/queue"
	"leasehold/launcher/readers"
	"leasehold/launcher/recovery"
	"leasehold/launcher/recovery/table"
	"leasehold/launcher/roster"
	"leasehold/launcher/secrets"
	"leasehold/launcher/session"
	"leasehold/launcher/sessionfile"
	"leasehold/launcher/sites"
	"leasehold/launcher/slots"
	"leasehold/launcher/snapshots"
	"leasehold/launcher/snapshotter"
	"leasehold/launcher/view"
	"leasehold/launcher/witness"
	"leasehold/lease"
)

// Options are what a Launcher works with.
type Options struct {
	ID      string // stable per host and data directory
	DataDir string
	Root    *profiledir.Root
	// Key signs the files that are read back from disk. Root has the same one.
	Key   *signed.Key
	Store lease.Store
	// Waiters has the requests that wait at all launchers; nil: each launcher knows only its
	// own.
	Waiters lease.WaiterStore
	// SharedStore says that launchers of other hosts may use the store too.
	SharedStore bool
	// Sites has what is known of sites; nil: nothing is.
	Sites *sites.Shelf
	// Secrets reads those with which accounts are signed in; nil: there are none.
	Secrets func() (*secrets.Set, error)
	// Roster is what this launcher remembers of profiles.
	Roster  *roster.Roster
	Archive *evidence.Archive
	// Bundles says which evidence is kept.
	Bundles evidence.Retention
	// Snapshots is the profile store; nil: there is none.
	Snapshots *snapshots.Store
	// Retention says which snapshots are kept.
	Retention snapshots.Retention
	// Now says how late it is for acts that cannot be taken back, or why that is not known: see
	// lease.Clock. If it is nil, this host's clock is believed.
	Now func(context.Context) (time.Time, error)
	// Events is where the events of all profiles can be read; nil: nowhere.
	Events events.Source
	// Ping returns nil while the lease store can be reached.
	Ping func(context.Context) error
	// Reached tells whether the lease store is known to have been reached within the last while,
	// without asking it; nil: that is not known.
	Reached func(while time.Duration) bool
	// Doubt returns why nothing may be granted or changed although the store can be reached: it
	// may not be the only one. nil: there is never a reason.
	Doubt func() error

	Chrome   string // path of the browser binary
	Headless bool   // unless a manifest says otherwise
	// Confinement is what the kernel confines browsers to; nil: they are not confined.
	Confinement *chrome.Confinement
	// User is the browser user; nil: browsers run as the launcher's own user. Root and
	// FileRoots are set up with the same user.
	User *runas.User

	// Tracer makes spans of grants and of ends; nil: there are none.
	Tracer *tracing.Tracer
	// Proxies are what profiles' proxy ids stand for; nil: none.
	Proxies *proxies.Set
	// FileRoots are the files of the host that workers may name.
	FileRoots *fileroots.Roots

	// PictureInterval is the least time between two pictures of a session, apart from those
	// taken for checkpoints; zero: none are taken.
	PictureInterval time.Duration

	Timing         lease.Timing
	ReconnectGrace time.Duration
	// PersonGrace is how long a person who took a session over may be gone before it is
	// handed back.
	PersonGrace time.Duration
	Cooldown    time.Duration
	ReviewWhen  []table.Caution // more facts that send a profile to a person
	MaxBrowsers int             // zero: no limit
	// MinFreeDisk is the space, in bytes, below which no browser is started; zero:
	// no bound.
	MinFreeDisk uint64
	// FilesReady returns which other files sessions would lack on this host; nil: they need none.
	FilesReady func() error
	// KeepWarmIdle is how long a browser stays open for the next task of a profile that asks
	// for that; KeepWarmMax is how many such browsers there are at most; zero: none.
	KeepWarmIdle time.Duration
	KeepWarmMax  int
	// KeepWarmMinMemory is how many bytes of memory have to stay available beside such
	// browsers; zero: memory is not watched.
	KeepWarmMinMemory uint64
	// HangTimeout is how long a browser may answer nothing before it is given up; zero: no
	// limit.
	HangTimeout time.Duration
	// BrowserMemory is the most memory, in bytes, that one browser may use; zero: no limit. A
	// profile's record may lower it.
	BrowserMemory uint64
	// CPUWeight is a browser's share of the processors, in Groups; zero: the usual share.
	CPUWeight int
	// Groups is where browsers get control groups, so that the kernel enforces their limits;
	// nil: there are none.
	Groups *cgroup.Tree
	// HomeTimeout is how long a quarantined profile waits for its home before it
	// goes to a person.
	HomeTimeout time.Duration
	// AdvertiseURL is where workers of other hosts reach this launcher; empty: they do not.
	AdvertiseURL string
	// LeaveOnExit tells, once the launcher ends, whether it leaves browsers to the next one instead
	// of closing them. Its answer does not change. Nil: it does not.
	LeaveOnExit func() bool
	// ImportRoots are the directories below which user-data-dirs may be imported from.
	ImportRoots []string
	// Dedicated serves a port of the session's own, where the manifest asks for one: addr, or a
	// free port if addr is empty.
	Dedicated func(sessionID, addr string) (url string, closer func(), err error)

	// Processes runs the processes of browsers; nil: browser.Kernel does.
	Processes browser.Processes
	// Clock is the boot-time clock; nil: the host's.
	Clock boottime.Clock

	Log     zerolog.Logger
	Metrics prometheus.Registerer
}

// rooms are what the parts of the launcher share.
type rooms struct {
	o         Options
	jar       sessionfile.Jar
	slots     *slots.Table
	announcer *session.Announcer
	recoverer *recovery.Recoverer
	sessions  *session.Registry
	presence  *cluster.Presence
	patrol    *cluster.Patrol
	homes     *homes
	driver    *browser.Driver
	checker   *accountcheck.Checker
	answers   accountcheck.Memory
	events    *events.Hub
	catalog   *catalog.Catalog
	// chrome is the version of this host's Chrome, such as 156.0.8078.79.
	chrome string
	// snapshotter is nil where there is no profile store.
	snapshotter *snapshotter.Snapshotter
	readers     *readers.Room
	queue       *queue.Queue
	reach       *reach
}

// Launcher owns the sessions of one host. It implements api.Service.
type Launcher struct {
	*rooms
	*grants                    // grants leases
	*records                   // shows profiles and changes their settings
	*bundles                   // their evidence
	*directories               // makes, copies and archives their directories
	*moves                     // moves them here from other hosts
	gallery      *view.Gallery // has the views of living sessions

	readiness *readiness

	ctx    context.Context // of everything that the launcher runs in the background
	cancel context.CancelFunc
	work   sync.WaitGroup

	replaying sync.Mutex // held while incidents are decided again

	mu       sync.Mutex
	version  api.BrowserVersion
	protocol *protocolAsk // Chrome's own description of its protocol, once somebody asked for it
}

var _ api.Service = (*Launcher)(nil)

// New prepares a launcher; Start begins its work.
func New(o Options) (*Launcher, error) {
	if err := o.Timing.Validate(); err != nil {
		return nil, err
	}
	if o.Processes == nil {
		o.Processes = browser.Kernel{}
	}
	ctx, cancel := context.WithCancel(context.Background())
	if o.Now == nil {
		o.Now = func(context.Context) (time.Time, error) { return time.Now(), nil }
	}
	known := catalog.New()
	o.Store = catalog.Watched(o.Store, known)
	r := &rooms{o: o, catalog: known, reach: &reach{}, jar: sessionfile.NewJar(o.DataDir, o.Key), answers: accountcheck.NewMemory(o.DataDir, o.Key), events: events.New(o.Events, o.Log)}
	g := &grants{rooms: r, metrics: newMetrics(o.Metrics, o.Proxies)}
	told := &records{rooms: r, grants: g}
	dirs := &directories{rooms: r, grants: g, records: told}
	l := &Launcher{
		rooms: r, grants: g, records: told, directories: dirs, readiness: newReadiness(o.Clock, o.Metrics), ctx: ctx, cancel: cancel,
		bundles: &bundles{rooms: r, records: told, exports: make(chan struct{}, maxExports)},
		moves:   &moves{rooms: r, grants: g, records: told, directories: dirs},
	}
	g.roam = l.moves.roam
	if err := l.wire(); err != nil {
		cancel()
		return nil, err
	}
	return l, nil
}

// wire makes the parts, from the bottom up.
func (l *Launcher) wire() (err error) {
	o, files, bootID := l.o, sessionfile.NewDir(l.o.DataDir, l.o.Key), boottime.ID()
	l.presence = cluster.NewPresence(l.ctx, cluster.PresenceOptions{
		LauncherID: o.ID, BootID: bootID, AdvertiseURL: o.AdvertiseURL, DataDir: o.DataDir, Key: o.Key, Timing: o.Timing, Store: o.Store, Doubt: o.Doubt,
		Report: l.hostReport, SharedStore: o.SharedStore, Newcomer: o.Roster.Empty(), LeaveOnExit: o.LeaveOnExit, Expiring: l.expiring, Clock: o.Clock, Log: o.Log,
	})
	l.grants.sharedReady = l.presence.SharedReady
	o.Store = l.presence.Writer(o.Store)
	o.Archive = o.Archive.Through(l.presence.Bundles)
	o.Metrics.MustRegister(newBacklog(o.Archive))
	if o.Snapshots != nil {
		o.Snapshots = o.Snapshots.Through(l.presence.Objects)
	}
	l.o = o
	l.driver = browser.NewDriver(l.ctx, &l.work, browser.Options{
		Binary: o.Chrome, Files: files, Root: o.Root, Key: o.Key, Sites: o.Sites.Book, HangTimeout: o.HangTimeout, Memory: o.BrowserMemory,
		CPUWeight: o.CPUWeight, Groups: o.Groups, Confinement: o.Confinement, User: o.User, Processes: o.Processes, Log: o.Log, Metrics: o.Metrics,
	})
	if l.version, err = l.browserVersion(); err != nil {
		return err
	}
	l.chrome = strings.TrimPrefix(l.version.Browser, "Chrome/")
	preserve := func(profile, why, detail string, b *browser.Browser) error {
		return l.recoverer.Preserve(profile, why, detail, witness.Of(b))
	}
	l.slots = slots.NewTable(l.ctx, &l.work, slots.Options{
		Root: o.Root, Jar: l.jar, DataDir: o.DataDir, MaxBrowsers: o.MaxBrowsers, MinFreeDisk: o.MinFreeDisk,
		Dirs: []string{o.Root.Dir(), files.Path(), os.TempDir()}, Ready: l.filesReady,
		KeepWarmIdle: o.KeepWarmIdle, KeepWarmMax: o.KeepWarmMax, KeepWarmMinMemory: o.KeepWarmMinMemory, Log: o.Log, Metrics: o.Metrics,
		Preserve: preserve, Vacated: func(profile string) {
			if l.snapshotter != nil {
				l.snapshotter.Vacated(profile)
			}
		},
	})
	if err := l.wireSnapshots(); err != nil {
		return err
	}
	if l.readers, err = readers.Open(readers.Options{
		DataDir: o.DataDir, Profiles: o.Root, Key: o.Key, Snapshots: o.Snapshots, Chrome: l.chrome, KeepFree: o.MinFreeDisk, User: o.User, Files: files,
		Processes: o.Processes, Log: o.Log, Metrics: o.Metrics,
	}); err != nil {
		return err
	}
	l.checker = accountcheck.New(accountcheck.Options{Driver: l.driver, Files: files, Jar: l.jar, Proxies: o.Proxies, Headless: o.Headless, Preserve: preserve})
	l.announcer = session.NewAnnouncer(o.ID, o.Store, o.Log, o.Metrics)
	var stored func(string) lease.Token
	if l.snapshotter != nil {
		stored = l.snapshotter.Highest
	}
	l.recoverer = recovery.New(recovery.Options{
		LauncherID: o.ID, DataDir: o.DataDir, Key: o.Key, Root: o.Root, Jar: l.jar, Archive: o.Archive, Store: o.Store, Roster: o.Roster, Stored: stored, SharedReady: l.grants.stillReady,
		Witnesses: witness.List(witness.Options{Root: o.Root, Files: files, Archive: o.Archive, Proxies: o.Proxies}), Checker: witness.Account{AccountChecker: l.checker, Memory: l.answers, Files: files},
		ReviewWhen: o.ReviewWhen, Sites: o.Sites.Book, Cooldown: o.Cooldown, KeepPasts: o.Bundles.MaxAge, WroteLate: l.announcer.WroteLate, Log: o.Log, Metrics: o.Metrics, Tracer: o.Tracer,
	})
	l.sessions, err = session.NewRegistry(l.ctx, &l.work, session.Options{
		LauncherID: o.ID, BootID: bootID, Timing: o.Timing, ReconnectGrace: o.ReconnectGrace, PersonGrace: o.PersonGrace, PictureInterval: o.PictureInterval,
		Headless: o.Headless, LeaveOnExit: o.LeaveOnExit, Dedicated: o.Dedicated, Store: o.Store, Root: o.Root, Archive: o.Archive,
		Files: files, Jar: l.jar, Slots: l.slots, Driver: l.driver, Recoverer: l.recoverer, Announcer: l.announcer, Sites: o.Sites.Book, Answers: l.answers, SignIn: l.signIn, Count: o.Sites.Count,
		FileRoots: o.FileRoots, OtherUser: o.User != nil, Clock: o.Clock, Log: o.Log, Metrics: o.Metrics,
	})
	if err != nil {
		return err
	}
	l.gallery = view.New(l.ctx, &l.work, view.Options{Ended: l.ended, Log: o.Log, Metrics: o.Metrics})
	// The sessions without an end may go on.
	swept := o.FileRoots.Sweep(func(sessionID string) bool {
		f, known := l.sessions.File(sessionID)
		return known && f.Ended == ""
	})
	if swept != nil {
		o.Log.Warn().Err(swept).Msg("exchange directories of sessions that are over stay")
	}
	adopter := adopt.New(l.ctx, &l.work, adopt.Options{
		Store: o.Store, Root: o.Root, Files: files, Jar: l.jar, Proxies: o.Proxies, Slots: l.slots, Driver: l.driver,
		Recoverer: l.recoverer, Sessions: l.sessions, Presence: l.presence, Log: o.Log, Metrics: o.Metrics,
	})
	l.homes = &homes{rooms: l.rooms, ctx: l.ctx, work: &l.work}
	l.patrol = cluster.NewPatrol(l.ctx, &l.work, cluster.PatrolOptions{
		LauncherID: o.ID, Timing: o.Timing, HomeTimeout: o.HomeTimeout, Store: o.Store, Root: o.Root, Archive: o.Archive, Slots: l.slots,
		Recoverer: l.recoverer, Roster: o.Roster, Sessions: l.sessions, Presence: l.presence, Adopt: adopter.Adopt, Settle: l.homes.Settle, Clock: o.Clock, Log: o.Log, Metrics: o.Metrics,
	})
	l.queue = queue.New(queue.Options{
		LauncherID: o.ID, Store: o.Waiters, Epoch: l.epoch, Lives: l.patrol.Lives, Belief: o.Timing.TTL, Profiles: l.knownRecords, Changed: l.slots.Wake,
		Log: o.Log, Metrics: o.Metrics,
	})
	return nil
}

// Start opens the launcher's presence, recovers what an earlier launcher left, and watches the
// leases of others, until Stop. It returns when the presence is open, or when the first attempt
// to open it has failed.
func (l *Launcher) Start() {
	l.work.Go(func() { l.o.Sites.Run(l.ctx) })
	l.o.Sites.Load(l.ctx)
	opened := make(chan struct{})
	l.work.Go(func() { l.presence.Keep(opened) })
	select {
	case <-opened:
	case <-l.ctx.Done():
		return
	}
	l.work.Go(l.patrol.Run)
	l.work.Go(func() { l.announcer.Run(l.ctx) })
	l.work.Go(func() { l.queue.Run(l.ctx) })
	l.work.Go(func() { l.events.Run(l.ctx) })
	l.work.Go(func() { l.readers.Run(l.ctx) })
	l.work.Go(func() { l.dismissWriters(l.ctx) })
	l.work.Go(l.watchReadiness)
	l.work.Go(l.uploads)
	l.work.Go(l.retention)
	l.work.Go(l.watchClock)
	l.work.Go(func() { l.signIns().run(l.ctx) })
	if l.snapshotter != nil {
		l.work.Go(func() { l.snapshotter.Run(l.ctx) })
	}
	l.work.Go(l.slots.WatchRoom)
	l.work.Go(l.slots.WatchMemory)
	l.work.Go(l.driver.Watch)
}

// Stop drains the launcher: no new session begins; each living one gets its evidence and ends,
// or is left for the next launcher. It returns when everything that the launcher runs has
// ended, or with the context's error: what hangs then is given endTimeout, and left behind.
func (l *Launcher) Stop(ctx context.Context) (err error) {
	defer func() {
		l.cancel()
		err = errors.Join(err, l.awaitWork(ctx))
	}()
	var late error
	for late == nil {
		busy, changed := l.slots.Drain()
		l.sessions.Drain()
		if busy == 0 {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			late = fmt.Errorf("%d profiles are still being closed: %w", busy, ctx.Err())
		}
	}
	if l.snapshotter != nil && late == nil {
		// If this host is about to vanish for good, these snapshots are all that is left of its
		// profiles.
		ctx, cancel := context.WithTimeout(ctx, snapshotsTimeout)
		defer cancel()
		if err := l.snapshotter.Drain(ctx); err != nil {
			l.o.Log.Warn().Err(err).Msg("not all snapshots were made")
		}
	}
	return late
}

// endTimeout is how long the launcher's work may take to end after it was told to, if the time
// for that is over.
const endTimeout = 5 * time.Second

// awaitWork returns when everything that the launcher runs has ended, or with an error when the
// context and endTimeout are over.
func (l *Launcher) awaitWork(ctx context.Context) error {
	ended := make(chan struct{})
	go func() {
		l.work.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-ended:
		return nil
	case <-time.After(endTimeout):
		return fmt.Errorf("something that the launcher waits for hangs, such as a store or a disk: it is left behind: %w", ctx.Err())
	}
}

// expiring warns every worker that the leases have not been renewed for a while.
func (l *Launcher) expiring(left time.Duration) {
	l.o.Log.Warn().Dur("left", left).Msg("the leases could not be renewed: they will expire")
	for _, s := range l.sessions.Living() {
		s.Expiring(left)
	}
}

// granting returns the presence under which a lease may be granted now, or a profile be made or
// moved here. What is held already goes on without it.
func (r *rooms) granting() (*lease.Keeper, error) {
	if err := r.presence.Doubt(); err != nil {
		return nil, err
	}
	return r.presence.Current()
}

// Deadline returns when this launcher's fences shut by themselves unless its presence is
// renewed, and the epoch of that presence.
func (l *Launcher) Deadline() (epoch uint64, at boottime.Instant, err error) {
	k, err := l.presence.Current()
	if err != nil {
		return 0, 0, err
	}
	return k.Epoch(), k.Deadline(), nil
}

// problem turns an error of the packages below into a refusal.
func problem(err error) error {
	if p, ok := api.ProblemIn(err); ok {
		return p
	}
	var damaged *profiledir.DamagedError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, lease.ErrUnavailable):
		q := api.Refuse(api.CodeStoreUnavailable, "%v: check the NATS server; nothing is granted or decided until it answers", err)
		q.RetryAfter = 2
		return q
	case errors.As(err, &damaged):
		q := api.Refuse(api.CodeQuarantined, "%v: the profile is put before a person", err).With("state", lease.Quarantined).With("reason", lease.ReasonNotAuthentic)
		q.RetryAfter = 2
		return q
	default:
		return err
	}
}

// webKit is the WebKit version that every Chrome names. It does not change any more.
const webKit = "537.36"

// browserVersion asks the binary; it does not start a browser.
func (l *Launcher) browserVersion() (api.BrowserVersion, error) {
	o := l.o
	out, err := l.driver.Version(l.ctx)
	if err != nil {
		return api.BrowserVersion{}, fmt.Errorf("%s --version: %w: want a Chrome or Chromium that runs (--chrome)", o.Chrome, err)
	}
	number := ""
	for _, word := range strings.Fields(out) {
		if strings.Count(word, ".") == 3 {
			number = word
			break
		}
	}
	if number == "" {
		return api.BrowserVersion{}, fmt.Errorf("%s --version printed %q: want a Chrome or Chromium (--chrome)", o.Chrome, strings.TrimSpace(out))
	}
	major, _, _ := strings.Cut(number, ".")
	return api.BrowserVersion{
		Browser: "Chrome/" + number, ProtocolVersion: "1.3",
		UserAgent:     "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/" + webKit + " (KHTML, like Gecko) Chrome/" + major + ".0.0.0 Safari/" + webKit,
		WebKitVersion: webKit,
	}, nil
}

// revisionTimeout bounds how long a browser may take to tell its revision.
const revisionTimeout = 5 * time.Second

// revision is what only a running browser tells.
type revision struct{ Revision, JSVersion string }

// firstAnswer asks all at once, since some may hang or stand still, and returns the first answer. It
// waits for those that it asked in vain.
func firstAnswer[T any](ctx context.Context, asks []func(context.Context) (T, error)) (T, error) {
	ctx, answered := context.WithCancel(ctx)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer answered()
	type outcome struct {
		answer T
		err    error
	}
	outcomes := make(chan outcome, len(asks))
	for _, ask := range asks {
		asking.Go(func() {
			answer, err := ask(ctx)
			outcomes <- outcome{answer, err}
		})
	}
	var none T
	var errs error
	for range asks {
		o := <-outcomes
		if o.err == nil {
			return o.answer, nil
		}
		errs = errors.Join(errs, o.err)
	}
	return none, errs
}

// Version describes the browser: what the binary says and, once a browser has run, the
// revisions that only a running browser can tell. chromedriver does not connect without them.
func (l *Launcher) Version(ctx context.Context) (api.BrowserVersion, error) {
	l.mu.Lock()
	v := l.version
	l.mu.Unlock()
	living := l.sessions.Living()
	if v.V8Version != "" || len(living) == 0 {
		return v, nil
	}
	ctx, cancel := context.WithTimeout(ctx, revisionTimeout)
	defer cancel()
	var asks []func(context.Context) (revision, error)
	for _, s := range living {
		asks = append(asks, func(ctx context.Context) (said revision, err error) {
			err = s.Browser().Mux().Call(ctx, "Browser.getVersion", nil, &said)
			return said, err
		})
	}
	said, err := firstAnswer(ctx, asks)
	if err != nil {
		l.o.Log.Debug().Err(err).Msg("the browser's revision is not known yet")
		return v, nil
	}
	v.V8Version, v.WebKitVersion = said.JSVersion, fmt.Sprintf("%s (%s)", webKit, said.Revision)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.version = v
	return v, nil
}

// shown completes a record with what is not stored: what its living session knows already, the
// heartbeat of the launcher that has the lease, the end of a cooldown by this host's clock, and,
// for a free profile, whether its directory is there and its browser is warm.
func (h *rooms) shown(r lease.Record) lease.Record {
	r.AvailableAfter = h.catalog.CoolUntil(lease.Entry{Record: r}).UTC()
	s, other := h.sessions.ByID(r.SessionID), h.patrol.Other(r.LauncherID)
	if _, since, silent := h.patrol.Silent(r.Home); silent && r.Home != "" {
		r.HomeSilentSince = since.UTC()
	}
	if s == nil || r.State != lease.Held {
		if r.State == lease.Available && r.Home == h.o.ID {
			_, missing := h.o.Root.Path(r.ProfileID)
			if at, err := h.o.Root.Archived(r.ProfileID); err == nil && at != "" {
				r.Reason = api.ReasonArchived
			} else if err == nil && errors.Is(missing, profiledir.ErrNoProfile) {
				r.Reason = api.ReasonRemoved
			}
			r.WarmSince = h.slots.WarmSince(r.ProfileID)
		}
		return r.Live(other)
	}
	r = s.Latest(r)
	r.ExpiresAt = s.Show().ExpiresAt
	return r
}
