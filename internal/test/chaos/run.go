package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Config describes one test run.
type Config struct {
	Seed     uint64
	Duration time.Duration // of the faults
	TTL      time.Duration
	// Short runs have fewer hosts.
	Short bool
	Here
	// Faults are the kinds of faults to inject, each at least once.
	Faults []string
	// LogDir is the folder for the logs and the history.
	LogDir string
	// Leasehold, NATSServer and Self are the paths of the programs. Self runs the
	// workers.
	Leasehold, NATSServer, Self string
}

// Bounds of the steps after the faults.
const (
	readyTime  = 30 * time.Second
	healTime   = 60 * time.Second
	decideTime = 90 * time.Second
	drainTime  = 90 * time.Second
	calmTime   = 2 * time.Second
	// unseenTime is for how long the workers go on until everything was seen that a run
	// has to show. On a busy host leases expire without a fault.
	unseenTime = 4 * time.Minute
)

// harness is a test run under way.
type harness struct {
	Config
	dir        string
	net        *network
	history    *History
	store      *store
	hosts      []*host
	subscriber *subscriber
	watcher    *watcher
	// snapshots is nil in short runs, in which no profile moves.
	snapshots *profileStore
	people    *people
	witness   *witness
	// second is the second launcher of an id; nil where there are no networks of its own.
	second *second
	// visits counts the sessions of the harness's own.
	visits int
	// lanes is held by the faults that go on; one that goes on alone has locked it.
	lanes sync.RWMutex
}

// Run makes one test run and prints its table. It returns the violations, or an error if the
// run itself could not be made.
func Run(c Config, out io.Writer) (found []Violation, err error) {
	dir, err := os.MkdirTemp("", "lhc-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, removeAll(dir)) }()
	history, err := NewHistory(filepath.Join(c.LogDir, "history.jsonl"))
	if err != nil {
		return nil, err
	}
	h := &harness{Config: c, dir: dir, history: history}
	begun := time.Now()
	runErr := h.run(context.Background(), rand.New(rand.NewPCG(c.Seed, 1)))
	if err := errors.Join(runErr, history.Close()); err != nil {
		return nil, err
	}
	entries := history.Entries()
	found = Check(entries)
	printTable(out, h, entries, found, time.Since(begun))
	return found, nil
}

// removeAll removes the directory, after it unmounted the file systems in it.
func removeAll(dir string) error {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	for line := range strings.SplitSeq(string(mounts), "\n") {
		if f := strings.Fields(line); len(f) > 1 && strings.HasPrefix(f[1], dir) {
			if err := syscall.Unmount(f[1], syscall.MNT_DETACH); err != nil {
				return fmt.Errorf("unmount %s: %w", f[1], err)
			}
		}
	}
	return os.RemoveAll(dir)
}

// run goes through the steps of a test run: start, faults, calm, judgement, stop. What was
// started is always stopped.
func (h *harness) run(ctx context.Context, rnd *rand.Rand) (err error) {
	if h.net, err = newNetwork(h.Isolated); err != nil {
		return err
	}
	if h.witness, err = startWitness(h.net.harness, h.history); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.witness.stop()) }()
	h.watcher = startWatcher(h.dir, h.history)
	defer h.watcher.stop()

	if h.store, err = newStore(h.Config, h.net, h.history, h.dir); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, h.store.each(func(n *node) error { return n.finish(healTime) }), h.store.stranger.finish(healTime))
	}()
	if err := h.store.each(func(n *node) error { return n.start() }); err != nil {
		return err
	}
	starting, cancel := context.WithTimeout(ctx, healTime)
	defer cancel()
	if err := h.store.ready(starting); err != nil {
		return err
	}
	if !h.Short {
		if h.snapshots, err = newProfileStore(h.Config, h.net, h.dir); err != nil {
			return err
		}
	}
	if h.hosts, err = newHosts(h.Config, h.net, h.store, h.snapshots, h.witness.URL, h.dir); err != nil {
		return err
	}
	if h.Isolated {
		if h.second, err = newSecond(h); err != nil {
			return err
		}
		defer h.operate(ctx, h.second.relay)()
	}
	for _, host := range h.hosts {
		h.witness.knows(host.endpoint.ip, host.name)
	}
	h.people = newPeople(h.hosts, h.history, h.TTL)
	defer func() { err = errors.Join(err, h.stopHosts()) }()
	if err := h.startHosts(starting); err != nil {
		return err
	}
	h.subscriber = newSubscriber(h.store, h.history)
	h.subscriber.subscribe()
	defer h.subscriber.unsubscribe()

	stopReviewers := h.operate(ctx, h.reviews()...)
	stopOperators := h.operate(ctx, h.moves(rnd)...)
	h.injectFaults(ctx, rnd)
	h.calm(ctx)
	for _, host := range h.hosts {
		host.stopWorkers()
	}
	if h.snapshots != nil {
		h.travel(ctx)
	}
	stopOperators()
	if h.snapshots != nil {
		h.people.probe(ctx, h.broken)
	}
	stopReviewers()
	return h.judge(ctx)
}

// startHosts starts the launchers, the first one alone so that it creates the streams.
// Then it creates each launcher's profiles and starts the workers.
func (h *harness) startHosts(ctx context.Context) error {
	for i, host := range h.hosts {
		if err := host.start(); err != nil {
			return err
		}
		if i > 0 {
			continue
		}
		if err := host.ready(ctx); err != nil {
			return err
		}
		if err := h.store.replicate(ctx); err != nil {
			return err
		}
	}
	for _, host := range h.hosts {
		if err := host.ready(ctx); err != nil {
			return err
		}
		for _, p := range host.homed {
			if err := host.create(ctx, p); err != nil {
				return fmt.Errorf("profile %s: %w", p, err)
			}
		}
	}
	for _, host := range h.hosts {
		if err := host.startWorkers(); err != nil {
			return err
		}
	}
	return nil
}

// operate does things at the same time. The function that it returns stops them and waits for
// their end.
func (h *harness) operate(ctx context.Context, things ...func(context.Context)) func() {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	for _, do := range things {
		all.Go(func() { do(ctx) })
	}
	return func() {
		cancel()
		all.Wait()
	}
}

// reviews are what people do in any run: they review profiles on each host, and keep the
// cluster's streams replicated.
func (h *harness) reviews() []func(context.Context) {
	things := []func(context.Context){func(ctx context.Context) {
		for ctx.Err() == nil {
			limited, cancel := context.WithTimeout(ctx, callTime)
			_ = h.store.replicate(limited) // the store may be unreachable
			cancel()
			sleep(ctx, time.Second)
		}
	}}
	for _, host := range h.hosts {
		things = append(things, func(ctx context.Context) {
			for ctx.Err() == nil {
				host.review(ctx, h.history)
				sleep(ctx, 500*time.Millisecond)
			}
		})
	}
	return things
}

// moves are what people do where profiles move.
func (h *harness) moves(rnd *rand.Rand) []func(context.Context) {
	if h.snapshots == nil {
		return nil
	}
	own := rand.New(rand.NewPCG(rnd.Uint64(), rnd.Uint64()))
	return []func(context.Context){h.people.watch, func(ctx context.Context) { h.people.work(ctx, own) }}
}

func (h *harness) injectFaults(ctx context.Context, rnd *rand.Rand) {
	until := time.Now().Add(h.Duration)
	var all sync.WaitGroup
	for which := range lanes {
		own := rand.New(rand.NewPCG(rnd.Uint64(), rnd.Uint64()))
		all.Go(func() { h.injectLane(ctx, which, until, own) })
	}
	all.Wait()
	sleep(ctx, time.Until(until))
}

// stopHosts ends the workers and drains the launchers. After that no browser may be
// left.
func (h *harness) stopHosts() error {
	for _, host := range h.hosts {
		for _, w := range host.workers {
			if w.running() {
				_ = w.kill()
				_ = w.finish(healTime)
			}
		}
	}
	var all sync.WaitGroup
	for _, host := range h.hosts {
		all.Go(func() {
			if err := host.finish(drainTime); err != nil {
				h.broken(NotDrained, "", "%v", err)
			} else if code := host.status(); code != 0 {
				h.broken(NotDrained, "", "%s: exit status %d", host.name, code)
			}
		})
	}
	if h.second != nil {
		_ = h.second.finish(killTime) // it was ended, and judged, when its fault was over
	}
	all.Wait()
	left, err := browserProcesses(h.dir)
	for deadline := time.Now().Add(5 * time.Second); len(left) > 0 && time.Now().Before(deadline); {
		time.Sleep(100 * time.Millisecond)
		left, err = browserProcesses(h.dir)
	}
	for _, p := range left {
		if p.main {
			h.broken(Leaked, profileOf(p), "pid %d", p.PID)
		}
		_ = syscall.Kill(p.PID, syscall.SIGKILL) // it may end by itself
	}
	return errors.Join(err, h.checkLogs())
}

// checkLogs searches the launchers' logs for data races and panics.
func (h *harness) checkLogs() error {
	logs := make([]string, 0, len(h.hosts)+1)
	for _, host := range h.hosts {
		logs = append(logs, host.logFile)
	}
	if h.second != nil {
		logs = append(logs, h.second.logFile)
	}
	for _, path := range logs {
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) { // it was never started
			continue
		}
		if err != nil {
			return err
		}
		for line := range strings.SplitSeq(string(b), "\n") {
			for _, bad := range []string{"WARNING: DATA RACE", "panic: ", "fatal error: "} {
				if strings.HasPrefix(line, bad) {
					h.broken(Crashed, "", "%s: %s", filepath.Base(path), line)
				}
			}
		}
	}
	return nil
}

func profileOf(p browserProcess) string { return filepath.Base(p.dir) }
