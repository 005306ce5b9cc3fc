package bubble

import (
	"context"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"leasehold/evidence"
	"leasehold/internal/boottime"
	"leasehold/internal/test/testkey"
	"leasehold/launcher/adopt"
	"leasehold/launcher/browser"
	"leasehold/launcher/cluster"
	"leasehold/launcher/fileroots"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/recovery"
	"leasehold/launcher/roster"
	"leasehold/launcher/session"
	"leasehold/launcher/sessionfile"
	"leasehold/launcher/slots"
	"leasehold/lease"
)

var timing = lease.Timing{TTL: 12 * time.Second}

const (
	homeTimeout = time.Minute
	cooldown    = 3 * time.Second
)

// host is what outlives a launcher: its disk, its clock, and its part of the network.
type host struct {
	w        *world
	id       string // of its launchers
	data     string // the launchers' data directory
	profiles string
	ahead    time.Duration // its clock is ahead by so much at the start
	rate     float64       // and is faster by so much
	bad      atomic.Int64  // how many of a hundred calls go wrong
	started  int           // launchers
	// restsUntil is until when no launcher is started.
	restsUntil time.Duration

	full     atomic.Bool             // its disk
	cutUntil atomic.Int64            // the store cannot be reached before, as time.Duration of the world
	p        atomic.Pointer[process] // the last launcher
}

func (h *host) clock() boottime.Instant {
	passed := h.w.now()
	return boottime.Instant(h.ahead + passed + time.Duration(float64(passed)*h.rate))
}

// cut tells whether the store cannot be reached from here.
func (h *host) cut() bool { return int64(h.w.now()) < h.cutUntil.Load() }

// process is one launcher, wired as launcher.Launcher wires one.
type process struct {
	w    *world
	host *host

	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
	log    zerolog.Logger

	store     *client
	root      *profiledir.Root
	files     sessionfile.Dir
	jar       sessionfile.Jar
	roster    *roster.Roster
	archive   *evidence.Archive
	driver    *browser.Driver
	table     *slots.Table
	recoverer *recovery.Recoverer
	sessions  *session.Registry
	presence  *cluster.Presence
	patrol    *cluster.Patrol

	dead       atomic.Bool
	stepsLeft  atomic.Int64 // before it is killed, if that is not zero
	pausedTill atomic.Int64 // as time.Duration of the world
	since      time.Duration
}

// bundles is the evidence store of one launcher, which may die at each Put.
type bundles struct {
	evidence.Store
	p *process
}

func (b bundles) Put(ctx context.Context, s *evidence.Sealed) error {
	b.p.step()
	err := b.Store.Put(ctx, s)
	b.p.step()
	return err
}

// step is where a launcher can be killed or paused: before and after each call of a store, at
// each line that it logs, and wherever it meets a browser. A goroutine of a dead launcher ends
// here.
func (p *process) step() {
	for !p.dead.Load() {
		wait := time.Duration(p.pausedTill.Load()) - p.w.now()
		if wait <= 0 {
			break
		}
		time.Sleep(wait)
	}
	if left := p.stepsLeft.Load(); left > 0 && p.stepsLeft.CompareAndSwap(left, left-1) && left == 1 {
		p.w.count("launchers killed at a step")
		p.die()
	}
	if p.dead.Load() {
		gone()
	}
}

// die is the end of the launcher's process: nothing of it goes on, and the kernel gives up its
// locks.
func (p *process) die() {
	if p.dead.Swap(true) {
		return
	}
	p.w.count("launchers killed")
	p.w.note("%s dies", p.host.id)
	p.cancel()
	for done := false; !done; {
		var err error
		if done, err = p.root.Abandon(); err != nil {
			p.w.broken("the world", "%v", err)
		}
		if !done {
			time.Sleep(time.Millisecond)
		}
	}
}

// start starts the next launcher of the host.
func (h *host) start() {
	w := h.w
	h.started++
	p := &process{w: w, host: h, since: w.now()}
	h.p.Store(p)
	w.note("%s starts", h.id)
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.log = zerolog.New(&w.said).With().Str("at", h.id).Logger().Hook(zerolog.HookFunc(func(e *zerolog.Event, _ zerolog.Level, _ string) {
		p.step()
		e.Dur("now", w.now())
	}))
	p.store = &client{server: w.server, p: p, rng: rand.New(rand.NewPCG(w.seed, uint64(h.started)<<8|uint64(h.id[0])))}
	metrics := prometheus.NewRegistry()
	must := func(err error) {
		if err != nil {
			panic(err) // it is shown with the world's log
		}
	}
	var err error
	p.root, err = profiledir.Open(h.profiles, testkey.Key)
	must(err)
	p.files, p.jar = sessionfile.NewDir(h.data, testkey.Key), sessionfile.NewJar(h.data, testkey.Key)
	p.roster, err = roster.Open(roster.Options{DataDir: h.data, Key: testkey.Key, Log: p.log})
	must(err)
	spool, err := evidence.OpenSpool(filepath.Join(h.data, "spool"))
	must(err)
	stored, err := evidence.OpenDirStore(w.evidence)
	must(err)
	p.archive = evidence.NewArchive(spool, bundles{stored, p}, p.log)
	p.driver = browser.NewDriver(p.ctx, &p.work, browser.Options{Key: testkey.Key, Files: p.files, Root: p.root, Find: p.find, Log: p.log, Metrics: metrics})
	p.table = slots.NewTable(p.ctx, &p.work, slots.Options{Root: p.root, Jar: p.jar, DataDir: h.data, Log: p.log, Metrics: metrics})
	announcer := session.NewAnnouncer(h.id, p.store, p.log, metrics)
	p.recoverer = recovery.New(recovery.Options{
		LauncherID: h.id, DataDir: h.data, Key: testkey.Key, Root: p.root, Files: p.files, Jar: p.jar, Archive: p.archive, Store: p.store, Roster: p.roster,
		Cooldown: cooldown, WroteLate: announcer.WroteLate, Log: p.log, Metrics: metrics,
	})
	roots, err := fileroots.New(fileroots.Options{Private: []string{h.data}, DataDir: h.data})
	must(err)
	p.sessions, err = session.NewRegistry(p.ctx, &p.work, session.Options{
		FileRoots: roots, LauncherID: h.id, BootID: boottime.ID(), Timing: timing, Headless: true, Store: p.store, Root: p.root, Archive: p.archive,
		Files: p.files, Jar: p.jar, Slots: p.table, Driver: p.driver, Recoverer: p.recoverer, Announcer: announcer, Log: p.log, Metrics: metrics,
	})
	must(err)
	p.presence = cluster.NewPresence(p.ctx, cluster.PresenceOptions{
		LauncherID: h.id, BootID: boottime.ID(), DataDir: h.data, Key: testkey.Key, Timing: timing, Store: p.store, SharedStore: len(w.hosts) > 1,
		Newcomer: p.roster.Empty(), LeaveOnExit: true, Expiring: func(time.Duration) {}, Clock: h.clock, Log: p.log,
	})
	adopter := adopt.New(p.ctx, &p.work, adopt.Options{
		Store: p.store, Root: p.root, Files: p.files, Jar: p.jar, Slots: p.table, Driver: p.driver, Recoverer: p.recoverer, Sessions: p.sessions,
		Presence: p.presence, Log: p.log, Metrics: metrics,
	})
	p.patrol = cluster.NewPatrol(p.ctx, &p.work, cluster.PatrolOptions{
		LauncherID: h.id, Timing: timing, HomeTimeout: homeTimeout, Store: p.store, Root: p.root, Archive: p.archive, Slots: p.table, Recoverer: p.recoverer,
		Roster: p.roster, Sessions: p.sessions, Presence: p.presence, Adopt: adopter.Adopt, Clock: h.clock, Log: p.log,
	})
	opened := make(chan struct{})
	p.work.Go(func() { p.presence.Keep(opened) })
	p.work.Go(func() {
		select {
		case <-opened:
			p.patrol.Run()
		case <-p.ctx.Done():
		}
	})
}

// living is the launcher that runs on the host, or nil.
func (h *host) living() *process {
	if p := h.p.Load(); p != nil && !p.dead.Load() {
		return p
	}
	return nil
}
