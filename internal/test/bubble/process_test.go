package bubble

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"leasehold/evidence"
	"leasehold/internal/boottime"
	"leasehold/internal/test/testkey"
	"leasehold/launcher"
	"leasehold/launcher/fileroots"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/roster"
	"leasehold/launcher/snapshots"
	"leasehold/lease"
)

var (
	timing = lease.Timing{TTL: 12 * time.Second}
	key    = testkey.Key
	bootID = boottime.ID()
)

const (
	homeTimeout = time.Minute
	cooldown    = 3 * time.Second
	grace       = 5 * time.Second
	keptWarm    = 30 * time.Second
	orphanTime  = 40 * time.Second
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

// life is a process on a host as the world can end and pause it: a launcher's, or a guard's.
type life struct {
	w    *world
	host *host
	as   string // "", or what else than a launcher it is
	root *profiledir.Root
	gone chan struct{} // closed when it is dead

	dead       atomic.Bool
	died       atomic.Int64 // when, as time.Duration of the world
	stepsLeft  atomic.Int64 // before it is killed, if that is not zero
	pausedTill atomic.Int64 // as time.Duration of the world
}

// String names it in what is shown to people.
func (l *life) String() string { return strings.TrimSpace(l.host.id + " " + l.as) }

// rests returns at once in a process that runs. It returns after the pause of one that is
// paused, and when the world is over in one that is dead.
func (l *life) rests() {
	for !l.dead.Load() {
		wait := time.Duration(l.pausedTill.Load()) - l.w.now()
		if wait <= 0 {
			return
		}
		time.Sleep(wait)
	}
	<-l.w.over
}

// step is where a process can be killed or paused: before and after each call of a store, at
// each line that it logs, and wherever it meets a browser. A goroutine of a dead one ends
// here.
func (l *life) step() {
	for !l.dead.Load() {
		wait := time.Duration(l.pausedTill.Load()) - l.w.now()
		if wait <= 0 {
			break
		}
		time.Sleep(wait)
	}
	if left := l.stepsLeft.Load(); left > 0 && l.stepsLeft.CompareAndSwap(left, left-1) && left == 1 {
		l.w.count("launchers killed at a step")
		l.die()
	}
	if l.dead.Load() {
		runtime.Goexit()
	}
}

// die is the end of the process: nothing of it goes on, and the kernel gives up its locks.
func (l *life) die() {
	l.died.CompareAndSwap(0, int64(l.w.now())) // before anybody sees that it is dead
	if l.dead.Swap(true) {
		return
	}
	l.w.count(cmp.Or(l.as, "launchers") + " killed")
	l.w.note("%s dies", l)
	for done := false; !done; {
		var err error
		if done, err = l.root.Abandon(); err != nil {
			l.w.broken("the world", "%v", err)
		}
		if !done {
			time.Sleep(time.Millisecond)
		}
	}
	close(l.gone)
}

// logger writes the process's log, each line of which is a step.
func (l *life) logger() zerolog.Logger {
	return zerolog.New(&l.w.said).With().Str("at", l.String()).Logger().Hook(zerolog.HookFunc(func(e *zerolog.Event, _ zerolog.Level, _ string) {
		l.step()
		e.Dur("now", l.w.now())
	}))
}

// process is one launcher.
type process struct {
	*life
	store    *client
	roster   *roster.Roster
	archive  *evidence.Archive
	launcher *launcher.Launcher
	opened   time.Duration    // when it opened its presence last, by the world's clock; zero: never. The checker's mu guards it
	deadline boottime.Instant // that a write has shown last
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

func (w *world) must(err error) {
	if err != nil {
		panic(err) // it is shown with the world's log
	}
}

// start starts the next launcher of the host, and its guard.
func (h *host) start() {
	w := h.w
	h.started++
	root, err := profiledir.Open(h.profiles, key)
	w.must(err)
	p := &process{life: &life{w: w, host: h, root: root, gone: make(chan struct{})}}
	w.note("%s starts", h.id)
	log := p.logger()
	p.store = &client{server: w.server, p: p, rng: rand.New(rand.NewPCG(w.seed, uint64(h.started)<<8|uint64(h.id[0])))}
	p.roster, err = roster.Open(roster.Options{DataDir: h.data, Key: key, Log: log})
	w.must(err)
	spool, err := evidence.OpenSpool(filepath.Join(h.data, "spool"))
	w.must(err)
	stored, err := evidence.OpenDirStore(w.evidence)
	w.must(err)
	p.archive = evidence.NewArchive(spool, bundles{stored, p}, log)
	roots, err := fileroots.New(fileroots.Options{Private: []string{h.data}, DataDir: h.data})
	w.must(err)
	p.launcher, err = launcher.New(launcher.Options{
		ID: h.id, DataDir: h.data, Root: root, Key: key, Store: p.store, Waiters: p.store, Snapshots: snapshots.New(share{snapshots.OpenDir(w.snapshots), p}, w.snapshotKey), SharedStore: len(w.hosts) > 1, Roster: p.roster, Archive: p.archive,
		Ping:   func(ctx context.Context) error { _, err := p.store.Look(ctx); return err },
		Chrome: "chromium", Headless: true, FileRoots: roots, Timing: timing, ReconnectGrace: grace, PersonGrace: time.Minute, Cooldown: cooldown,
		KeepWarmIdle: keptWarm, KeepWarmMax: 2, HomeTimeout: homeTimeout, LeaveOnExit: func() bool { return true },
		Dedicated: func(string, string) (string, func(), error) { return "http://127.0.0.1:4711", func() {}, nil },
		Processes: kernel{p.life}, Clock: h.clock, Log: log, Metrics: prometheus.NewRegistry(),
	})
	w.must(err)
	h.p.Store(p)
	w.late.Go(p.launcher.Start)
	w.guard(p)
}

// living is the launcher that runs on the host, or nil.
func (h *host) living() *process {
	if p := h.p.Load(); p != nil && !p.dead.Load() {
		return p
	}
	return nil
}

// leaves ends the launcher in order, as an upgrade does: its browsers are left to the next one.
func (p *process) leaves() {
	p.w.count("launchers that left")
	p.w.note("%s leaves", p.host.id)
	p.w.leaving.Go(func() {
		_, _ = rpc(p, func() (struct{}, error) {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			return struct{}{}, p.launcher.Stop(ctx)
		})
		p.die()
	})
}

// ends ends what is left of a dead launcher's goroutines, when the world is over.
func (p *process) ends() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := p.launcher.Stop(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		p.w.broken("the world", "%v", err)
	}
}
