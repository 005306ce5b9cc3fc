// Package launcher is the sidecar: it wires the packages below it, starts and stops their work, and hands
// what the HTTP interface and the console ask to the product that answers it.
//
// The products, each behind one door: grant decides who gets a profile, and grants it; travel makes,
// moves and archives the directories of profiles; profiles has their records; accounts knows whether
// they are signed in; workers and people are at the sessions; bundles has the evidence. What they share
// is in host. Below them: cluster and adopt deal with other launchers and with what earlier ones left;
// session is one worker's use of a profile; recovery is how a session ends; slots are the profiles that
// this host is at work on; browser drives a Chrome; monitor watches its pages; sessionfile is what is
// kept on disk.
package launcher

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
	"leasehold/launcher/accounts"
	"leasehold/launcher/adopt"
	"leasehold/launcher/api"
	"leasehold/launcher/browser"
	"leasehold/launcher/bundles"
	"leasehold/launcher/catalog"
	"leasehold/launcher/chrome"
	"leasehold/launcher/cluster"
	"leasehold/launcher/events"
	"leasehold/launcher/fileroots"
	"leasehold/launcher/grant"
	"leasehold/launcher/host"
	"leasehold/launcher/people"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/profiles"
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
	"leasehold/launcher/travel"
	"leasehold/launcher/witness"
	"leasehold/launcher/workers"
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

// Launcher owns the sessions of one host.
type Launcher struct {
	api.Service // the products

	o        Options // with the stores as wire wrapped them
	host     *host.Host
	grants   *grant.Service
	travel   *travel.Service
	profiles *profiles.Service
	accounts *accounts.Service
	workers  *workers.Service
	people   *people.Service
	bundles  *bundles.Service

	events      *events.Hub
	readers     *readers.Room
	snapshotter *snapshotter.Snapshotter // nil: there is no profile store
	readiness   *readiness

	ctx    context.Context // of everything that the launcher runs in the background
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu       sync.Mutex
	version  api.BrowserVersion
	protocol *protocolAsk // Chrome's own description of its protocol, once somebody asked for it
}

// New prepares a launcher; Start begins its work.
func New(o Options) (*Launcher, error) {
	if err := o.Timing.Validate(); err != nil {
		return nil, err
	}
	if o.Processes == nil {
		o.Processes = browser.Kernel{}
	}
	if o.Now == nil {
		o.Now = func(context.Context) (time.Time, error) { return time.Now(), nil }
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &Launcher{o: o, ctx: ctx, cancel: cancel, events: events.New(o.Events, o.Log), readiness: newReadiness(o.Clock, o.Metrics)}
	if err := l.wire(); err != nil {
		cancel()
		return nil, err
	}
	return l, nil
}

// wire makes the parts, from the bottom up, and the products on them. What a part is told after it was
// made, since that belongs to one above it, it is told here, once.
func (l *Launcher) wire() (err error) {
	o, files, jar, bootID := l.o, sessionfile.NewDir(l.o.DataDir, l.o.Key), sessionfile.NewJar(l.o.DataDir, l.o.Key), boottime.ID()
	known := catalog.New()
	o.Store = catalog.Watched(o.Store, known)
	used := slots.NewTable(l.ctx, &l.work, slots.Options{
		Root: o.Root, Jar: jar, DataDir: o.DataDir, MaxBrowsers: o.MaxBrowsers, MinFreeDisk: o.MinFreeDisk,
		Dirs: []string{o.Root.Dir(), files.Path(), os.TempDir()}, Ready: o.filesReady,
		KeepWarmIdle: o.KeepWarmIdle, KeepWarmMax: o.KeepWarmMax, KeepWarmMinMemory: o.KeepWarmMinMemory, Log: o.Log, Metrics: o.Metrics,
	})
	presence := cluster.NewPresence(l.ctx, cluster.PresenceOptions{
		LauncherID: o.ID, BootID: bootID, AdvertiseURL: o.AdvertiseURL, DataDir: o.DataDir, Key: o.Key, Timing: o.Timing, Store: o.Store, Doubt: o.Doubt,
		Report: func() lease.HostReport { return host.Report(used, o.MaxBrowsers) }, SharedStore: o.SharedStore, Newcomer: o.Roster.Empty(), LeaveOnExit: o.LeaveOnExit, Clock: o.Clock, Log: o.Log,
	})
	shared := func(path string) error {
		if p := presence.SharedReady(path); p != nil {
			return p
		}
		return nil
	}
	o.Store = presence.Writer(o.Store)
	o.Archive = o.Archive.Through(presence.Bundles)
	if o.Snapshots != nil {
		o.Snapshots = o.Snapshots.Through(presence.Objects)
	}
	l.o = o
	driver := browser.NewDriver(l.ctx, &l.work, browser.Options{
		Binary: o.Chrome, Files: files, Root: o.Root, Key: o.Key, Sites: o.Sites.Book, HangTimeout: o.HangTimeout, Memory: o.BrowserMemory,
		CPUWeight: o.CPUWeight, Groups: o.Groups, Confinement: o.Confinement, User: o.User, Processes: o.Processes, Log: o.Log, Metrics: o.Metrics,
	})
	number, err := driver.Number(l.ctx)
	if err != nil {
		return err
	}
	l.version = browserVersion(number)
	var stored func(string) lease.Token
	if o.Snapshots != nil {
		if l.snapshotter, err = snapshotter.New(snapshotter.Options{
			LauncherID: o.ID, Dir: filepath.Join(o.DataDir, snapshotsDir), Snapshots: o.Snapshots, Retention: o.Retention, Now: o.Now, KeepFree: o.MinFreeDisk, Leases: o.Store, MayAct: presence.MayAct,
			Known: known.Records, Slots: used, Root: o.Root, Jar: jar, Chrome: asking(driver), Log: o.Log, Metrics: o.Metrics,
		}); err != nil {
			return err
		}
		stored = l.snapshotter.Highest
	}
	if l.readers, err = readers.Open(readers.Options{
		DataDir: o.DataDir, Profiles: o.Root, Key: o.Key, Snapshots: o.Snapshots, Chrome: asking(driver), KeepFree: o.MinFreeDisk, User: o.User, Files: files,
		Processes: o.Processes, Log: o.Log, Metrics: o.Metrics,
	}); err != nil {
		return err
	}
	answers := accountcheck.NewMemory(o.DataDir, o.Key)
	checker := accountcheck.New(accountcheck.Options{Driver: driver, Root: o.Root, Files: files, Jar: jar, Proxies: o.Proxies, Headless: o.Headless})
	announcer := session.NewAnnouncer(o.ID, o.Store, o.Log, o.Metrics)
	recoverer := recovery.New(recovery.Options{
		LauncherID: o.ID, DataDir: o.DataDir, Key: o.Key, Root: o.Root, Jar: jar, Archive: o.Archive, Store: o.Store, Roster: o.Roster, Stored: stored, SharedReady: shared,
		Witnesses: witness.List(witness.Options{Root: o.Root, Files: files, Archive: o.Archive, Proxies: o.Proxies}), Checker: witness.Account{AccountChecker: checker, Memory: answers, Files: files},
		ReviewWhen: o.ReviewWhen, Sites: o.Sites.Book, Cooldown: o.Cooldown, KeepPasts: o.Bundles.MaxAge, WroteLate: announcer.WroteLate, Log: o.Log, Metrics: o.Metrics, Tracer: o.Tracer,
	})
	preserve := func(profile, why, detail string, b *browser.Browser) error {
		return recoverer.Preserve(profile, why, detail, witness.Of(b))
	}
	used.PreserveBy(preserve)
	checker.PreserveBy(preserve)
	sessions, err := session.NewRegistry(l.ctx, &l.work, session.Options{
		LauncherID: o.ID, BootID: bootID, Timing: o.Timing, ReconnectGrace: o.ReconnectGrace, PersonGrace: o.PersonGrace, PictureInterval: o.PictureInterval,
		Headless: o.Headless, LeaveOnExit: o.LeaveOnExit, Dedicated: o.Dedicated, Store: o.Store, Root: o.Root, Archive: o.Archive,
		Records: func() ([]lease.Record, bool) {
			_, complete, _ := known.Rows()
			return known.Records(), complete
		},
		Files: files, Jar: jar, Slots: used, Driver: driver, Recoverer: recoverer, Announcer: announcer, Sites: o.Sites.Book, Answers: answers, Count: o.Sites.Count,
		FileRoots: o.FileRoots, OtherUser: o.User != nil, Clock: o.Clock, Log: o.Log, Metrics: o.Metrics,
	})
	if err != nil {
		return err
	}
	sweep(o, sessions)
	adopter := adopt.New(l.ctx, &l.work, adopt.Options{
		Store: o.Store, Root: o.Root, Files: files, Jar: jar, Proxies: o.Proxies, Slots: used, Driver: driver,
		Recoverer: recoverer, Sessions: sessions, Presence: presence, Log: o.Log, Metrics: o.Metrics,
	})
	patrol := cluster.NewPatrol(l.ctx, &l.work, cluster.PatrolOptions{
		LauncherID: o.ID, Timing: o.Timing, HomeTimeout: o.HomeTimeout, Store: o.Store, Root: o.Root, Archive: o.Archive, Slots: used,
		Recoverer: recoverer, Roster: o.Roster, Sessions: sessions, Presence: presence, Adopt: adopter.Adopt, Clock: o.Clock, Log: o.Log, Metrics: o.Metrics,
	})
	l.host = &host.Host{
		ID: o.ID, DataDir: o.DataDir, Root: o.Root, Jar: jar, Store: o.Store, Archive: o.Archive, Snapshots: o.Snapshots, Slots: used, Driver: driver,
		Recoverer: recoverer, Announcer: announcer, Sessions: sessions, Presence: presence, Patrol: patrol, Catalog: known, Answers: answers,
		Sites: o.Sites, Proxies: o.Proxies, MaxBrowsers: o.MaxBrowsers, SharedReady: shared, Log: o.Log,
		Queue: queue.New(queue.Options{
			LauncherID: o.ID, Store: o.Waiters, Epoch: presence.Epoch, Lives: patrol.Lives, Belief: o.Timing.TTL, Profiles: known.Records, Changed: used.Wake,
			Log: o.Log, Metrics: o.Metrics,
		}),
	}
	l.wireProducts(files, checker)
	patrol.SettleBy(l.travel.Settle)
	sessions.SignInBy(l.accounts.SignIn)
	return nil
}

// sweep removes the exchange directories of sessions that are over. The sessions without an end may go
// on.
func sweep(o Options, sessions *session.Registry) {
	err := o.FileRoots.Sweep(func(sessionID string) bool {
		f, known := sessions.File(sessionID)
		return known && f.Ended == ""
	})
	if err != nil {
		o.Log.Warn().Err(err).Msg("exchange directories of sessions that are over stay")
	}
}

// wireProducts makes the products, each of which knows only those before it.
func (l *Launcher) wireProducts(files sessionfile.Dir, checker *accountcheck.Checker) {
	h, o := l.host, l.o
	l.profiles = profiles.New(h, profiles.Options{Snapshotter: l.snapshotter, Ping: o.Ping, Cooldown: o.Cooldown, AdvertiseURL: o.AdvertiseURL, Over: l.ctx.Done()})
	l.travel = travel.New(l.ctx, &l.work, h, l.profiles, travel.Options{
		Roster: o.Roster, Timing: o.Timing, Chrome: asking(h.Driver), MinFreeDisk: o.MinFreeDisk, ImportRoots: o.ImportRoots,
	})
	l.grants = grant.New(h, l.profiles, l.travel, grant.Options{Files: files, Readers: l.readers, Tracer: o.Tracer, Metrics: o.Metrics})
	l.workers = workers.New(h)
	l.accounts = accounts.New(h, l.profiles, accounts.Options{Checker: checker, Secrets: o.Secrets, ReviewWhen: o.ReviewWhen})
	l.people = people.New(l.ctx, &l.work, h, l.profiles, l.grants, l.workers, l.accounts, o.Metrics)
	l.bundles = bundles.New(h, l.profiles, bundles.Options{Keep: o.Bundles, Now: o.Now, UploadEvery: max(o.Timing.Renewal(), time.Second), Metrics: o.Metrics})
	l.Service = products{l.grants, l.travel, l.profiles, l.accounts, l.workers, l.people, l.bundles, l}
}

// Start opens the launcher's presence, recovers what an earlier launcher left, and watches the
// leases of others, until Stop. It returns when the presence is open, or when the first attempt
// to open it has failed.
func (l *Launcher) Start() {
	l.work.Go(func() { l.o.Sites.Run(l.ctx) })
	l.o.Sites.Load(l.ctx)
	opened := make(chan struct{})
	l.work.Go(func() { l.host.Presence.Keep(opened, l.expiring) })
	select {
	case <-opened:
	case <-l.ctx.Done():
		return
	}
	l.work.Go(l.host.Patrol.Run)
	l.work.Go(func() { l.host.Announcer.Run(l.ctx) })
	l.work.Go(func() { l.host.Queue.Run(l.ctx) })
	l.work.Go(func() { l.events.Run(l.ctx) })
	l.work.Go(func() { l.readers.Run(l.ctx) })
	l.work.Go(func() { l.grants.DismissWriters(l.ctx) })
	l.work.Go(l.watchReadiness)
	l.work.Go(func() { l.bundles.UploadUntil(l.ctx) })
	l.work.Go(func() { l.bundles.RetainUntil(l.ctx) })
	l.work.Go(l.watchClock)
	l.work.Go(func() { l.accounts.CheckUntil(l.ctx) })
	if l.snapshotter != nil {
		l.work.Go(func() { l.snapshotter.Run(l.ctx) })
	}
	l.work.Go(l.host.Slots.WatchRoom)
	l.work.Go(l.host.Slots.WatchMemory)
	l.work.Go(l.host.Driver.Watch)
	l.work.Go(l.sweepProfiles)
}

// sweepProfiles may take long, where the copies are large and the disk is slow.
func (l *Launcher) sweepProfiles() {
	if err := l.o.Root.Sweep(l.ctx); err != nil {
		l.o.Log.Warn().Err(err).Msg("copies of profiles stay that were not made or removed to the end")
	}
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
		busy, changed := l.host.Slots.Drain()
		l.host.Sessions.Drain()
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
	for _, s := range l.host.Sessions.Living() {
		s.Expiring(left)
	}
}

// Deadline returns when this launcher's fences shut by themselves unless its presence is
// renewed, and the epoch of that presence.
func (l *Launcher) Deadline() (epoch uint64, at boottime.Instant, err error) {
	k, err := l.host.Presence.Current()
	if err != nil {
		return 0, 0, err
	}
	return k.Epoch(), k.Deadline(), nil
}

// snapshotsTimeout bounds how long a launcher that ends waits for the snapshots that are still
// to be made. The next launcher makes the rest.
const snapshotsTimeout = 20 * time.Second

// snapshotsDir is the name of the snapshotter's folder in the data directory.
const snapshotsDir = "snapshots"
