package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"leasehold/internal/boottime"
	"leasehold/lease/natskv"
)

// The kinds of faults.
const (
	KillWorker    = "kill -9 of a worker"
	KillLauncher  = "kill -9 of a launcher"
	KillChrome    = "kill -9 of a Chrome"
	StopLauncher  = "SIGSTOP of a launcher, longer than the TTL"
	StopHost      = "SIGSTOP of a launcher and its Chromes"
	StopWorker    = "SIGSTOP of a worker"
	FullLauncher  = "full disk of a launcher"
	ShiftedClock  = "launcher with a shifted boot-time clock"
	WallClock     = "jump of the wall clock"
	KillStore     = "kill -9 of nats-server"
	StopStore     = "SIGSTOP of nats-server"
	CutBothWays   = "partition launcher | NATS"
	CutToStore    = "partition launcher -> NATS, one way"
	CutFromStore  = "partition NATS -> launcher, one way"
	CutNodes      = "partition of a node from the others"
	CutNodeOneWay = "partition of a node from the others, one way"
	FullStore     = "full disk of nats-server"
	SubscriberOff = "subscriber away"
	WipedStore    = "wiped store"
	DeletedStream = "streams deleted"
	RolledBack    = "rolled-back store"
)

// fault is one kind: begin does it, holds it, and heals it.
type fault struct {
	kind string
	// store says that it is one of the store's lane. Faults of one lane do not
	// overlap.
	store bool
	// isolated says that it needs namespaces, nodes how many nodes.
	isolated bool
	nodes    int
	begin    func(*harness, context.Context, *rand.Rand) error
}

var faults = []fault{
	{kind: KillWorker, begin: (*harness).killWorker},
	{kind: KillLauncher, begin: (*harness).killLauncher},
	{kind: KillChrome, begin: (*harness).killChrome},
	{kind: StopLauncher, begin: (*harness).stopLauncher},
	{kind: StopHost, begin: (*harness).stopHost},
	{kind: StopWorker, begin: (*harness).stopWorker},
	{kind: FullLauncher, isolated: true, begin: (*harness).fillLauncher},
	{kind: ShiftedClock, isolated: true, begin: (*harness).shiftClock},
	{kind: WallClock, isolated: true, begin: (*harness).jumpWallClock},
	{kind: KillStore, store: true, begin: (*harness).killStore},
	{kind: StopStore, store: true, begin: (*harness).stopStore},
	{kind: CutBothWays, store: true, isolated: true, begin: (*harness).cutBothWays},
	{kind: CutToStore, store: true, isolated: true, begin: (*harness).cutToStore},
	{kind: CutFromStore, store: true, isolated: true, begin: (*harness).cutFromStore},
	{kind: CutNodes, store: true, isolated: true, nodes: 3, begin: (*harness).cutNodes},
	{kind: CutNodeOneWay, store: true, isolated: true, nodes: 3, begin: (*harness).cutNodeOneWay},
	{kind: FullStore, store: true, isolated: true, begin: (*harness).fillStore},
	{kind: SubscriberOff, store: true, begin: (*harness).subscriberOff},
	{kind: WipedStore, store: true, begin: (*harness).wipeStore},
	{kind: DeletedStream, store: true, begin: (*harness).deleteStreams},
	{kind: RolledBack, store: true, begin: (*harness).rollBack},
}

// Possible returns the kinds of faults that can be had here.
func Possible(isolated bool, nodes int) []string {
	var possible []string
	for _, f := range faults {
		if (isolated || !f.isolated) && f.nodes <= nodes {
			possible = append(possible, f.kind)
		}
	}
	return possible
}

// wreak causes the faults of one lane until the time is over: each kind once, in
// random order, and then any.
func (h *harness) wreak(ctx context.Context, store bool, until time.Time, rnd *rand.Rand) {
	var lane []fault
	for _, f := range faults {
		if f.store == store && slices.Contains(h.Faults, f.kind) {
			lane = append(lane, f)
		}
	}
	if len(lane) == 0 {
		return
	}
	bag := slices.Clone(lane)
	rnd.Shuffle(len(bag), func(i, j int) { bag[i], bag[j] = bag[j], bag[i] })
	for ctx.Err() == nil && (len(bag) > 0 || time.Now().Before(until)) {
		f := lane[rnd.IntN(len(lane))]
		if len(bag) > 0 {
			f, bag = bag[0], bag[1:]
		}
		if err := f.begin(h, ctx, rnd); err != nil {
			h.history.Add(Entry{Kind: Broken, Text: fmt.Sprintf("%s: %s: %v", Harness, f.kind, err)})
		}
		h.history.Add(Entry{Kind: Healed, Text: f.kind})
		sleep(ctx, between(rnd, h.TTL/8, h.TTL/2))
	}
}

func between(rnd *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(rnd.Int64N(int64(high-low)))
}

// log notes that a fault happens, to whom.
func (h *harness) log(kind, whom string) {
	h.history.Add(Entry{Kind: Fault, Text: kind, Launcher: whom})
}

// long is longer than the TTL: leases run out. brief is not.
func (h *harness) long(rnd *rand.Rand) time.Duration { return between(rnd, h.TTL*5/4, h.TTL*2) }
func (h *harness) brief(rnd *rand.Rand) time.Duration {
	return between(rnd, h.TTL/8, h.TTL)
}

func (h *harness) anyHost(rnd *rand.Rand) *host { return h.hosts[rnd.IntN(len(h.hosts))] }
func (h *harness) anyNode(rnd *rand.Rand) *node { return h.store.nodes[rnd.IntN(len(h.store.nodes))] }

func (h *harness) anyWorker(rnd *rand.Rand) *process {
	all := h.anyHost(rnd).workers
	return all[rnd.IntN(len(all))]
}

func (h *harness) killWorker(_ context.Context, rnd *rand.Rand) error {
	w := h.anyWorker(rnd)
	h.log(KillWorker, w.name)
	return errors.Join(w.kill(), w.start())
}

func (h *harness) killLauncher(ctx context.Context, rnd *rand.Rand) error {
	host := h.anyHost(rnd)
	h.log(KillLauncher, host.name)
	if err := host.kill(); err != nil {
		return err
	}
	sleep(ctx, between(rnd, 0, h.TTL))
	return host.start()
}

func (h *harness) killChrome(ctx context.Context, rnd *rand.Rand) error {
	for range 100 {
		all, err := browserProcesses(h.dir)
		if err != nil {
			return err
		}
		mains := slices.DeleteFunc(all, func(p browserProcess) bool { return !p.main })
		if len(mains) == 0 {
			sleep(ctx, 100*time.Millisecond)
			continue
		}
		p := mains[rnd.IntN(len(mains))]
		h.log(KillChrome, p.dir)
		if err := syscall.Kill(p.PID, syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return errors.New("no Chrome runs")
}

// freeze stops processes for a while.
func freeze(ctx context.Context, d time.Duration, all ...*process) error {
	var errs []error
	for _, p := range all {
		errs = append(errs, p.signal(syscall.SIGSTOP))
	}
	sleep(ctx, d)
	for _, p := range all {
		errs = append(errs, p.signal(syscall.SIGCONT))
	}
	return errors.Join(errs...)
}

func (h *harness) stopLauncher(ctx context.Context, rnd *rand.Rand) error {
	host := h.anyHost(rnd)
	h.log(StopLauncher, host.name)
	return freeze(ctx, h.long(rnd), host.process)
}

// browsersOf lists the processes of the Chromes whose profiles are at home there.
func (h *harness) browsersOf(host *host) ([]browserProcess, error) {
	all, err := browserProcesses(h.dir)
	return slices.DeleteFunc(all, func(p browserProcess) bool { return !slices.Contains(host.homed, profileOf(p)) }), err
}

// stopHost is a virtual machine that is paused: nothing of it runs.
func (h *harness) stopHost(ctx context.Context, rnd *rand.Rand) error {
	host := h.anyHost(rnd)
	h.log(StopHost, host.name)
	if err := host.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	stopped, err := h.browsersOf(host)
	each := func(s syscall.Signal) {
		for _, p := range stopped {
			_ = syscall.Kill(p.PID, s) // it may have ended
		}
	}
	each(syscall.SIGSTOP)
	sleep(ctx, h.long(rnd))
	each(syscall.SIGCONT)
	return errors.Join(err, host.signal(syscall.SIGCONT))
}

func (h *harness) stopWorker(ctx context.Context, rnd *rand.Rand) error {
	w := h.anyWorker(rnd)
	h.log(StopWorker, w.name)
	return freeze(ctx, h.long(rnd), w)
}

func (h *harness) fillLauncher(ctx context.Context, rnd *rand.Rand) error {
	host := h.anyHost(rnd)
	h.log(FullLauncher, host.name)
	err := host.data.fill()
	sleep(ctx, h.long(rnd))
	return errors.Join(err, host.data.free())
}

// shiftClock restarts a launcher on a clock that jumped, and back again, as a host
// does that is started anew: what it keeps on disk must not make it wrong. No
// browser outlives that, since the kernel tells the start times of living
// processes, too, by that clock.
func (h *harness) shiftClock(ctx context.Context, rnd *rand.Rand) error {
	host := h.anyHost(rnd)
	seconds := 3600
	if up := time.Duration(boottime.Now()); rnd.IntN(2) == 0 && up > time.Minute {
		seconds = -int(min(up/2, time.Hour).Seconds())
	}
	h.log(ShiftedClock, fmt.Sprintf("%s %+d s", host.name, seconds))
	restart := func(seconds int) error {
		if err := host.drain(drainTime); err != nil {
			h.broken(NotDrained, "", "%v", err)
		}
		left, err := h.browsersOf(host)
		for _, p := range left {
			_ = syscall.Kill(p.PID, syscall.SIGKILL) // it may have ended
		}
		if err != nil {
			return err
		}
		host.shiftClock(seconds)
		return host.start()
	}
	err := restart(seconds)
	sleep(ctx, h.long(rnd))
	return errors.Join(err, restart(0))
}

// jumpWallClock sets the wall clock of this machine forward for a moment.
func (h *harness) jumpWallClock(ctx context.Context, _ *rand.Rand) error {
	h.log(WallClock, "+3600 s")
	begun := boottime.Now()
	wall := time.Now()
	set := func(t time.Time) error {
		ts := unix.NsecToTimespec(t.UnixNano())
		return unix.ClockSettime(unix.CLOCK_REALTIME, &ts)
	}
	if err := set(wall.Add(time.Hour)); err != nil {
		return err
	}
	sleep(ctx, 300*time.Millisecond)
	return set(wall.Add(boottime.Now().Sub(begun)))
}

func (h *harness) killStore(ctx context.Context, rnd *rand.Rand) error {
	nodes := []*node{h.anyNode(rnd)}
	if rnd.IntN(4) == 0 {
		nodes = h.store.nodes
	}
	h.log(KillStore, fmt.Sprintf("%d nodes", len(nodes)))
	var errs []error
	for _, n := range nodes {
		errs = append(errs, n.kill())
	}
	sleep(ctx, between(rnd, 0, h.TTL*3/2))
	for _, n := range nodes {
		errs = append(errs, n.start())
	}
	return errors.Join(errs...)
}

func (h *harness) stopStore(ctx context.Context, rnd *rand.Rand) error {
	n := h.anyNode(rnd)
	h.log(StopStore, n.name)
	return freeze(ctx, h.long(rnd), n.process)
}

// cut is a partition between a launcher and all nodes.
func (h *harness) cut(ctx context.Context, rnd *rand.Rand, kind string, to, from bool) error {
	host := h.anyHost(rnd)
	h.log(kind, host.name)
	var mends []func() error
	drop := func(from *place, to ...*place) error {
		mend, err := h.net.cut(from, to...)
		if err == nil {
			mends = append(mends, mend)
		}
		return err
	}
	var errs []error
	for _, n := range h.store.places() {
		if to {
			errs = append(errs, drop(host.place, n))
		}
		if from {
			errs = append(errs, drop(n, host.place))
		}
	}
	sleep(ctx, h.long(rnd))
	for _, mend := range mends {
		errs = append(errs, mend())
	}
	return errors.Join(errs...)
}

func (h *harness) cutBothWays(ctx context.Context, rnd *rand.Rand) error {
	return h.cut(ctx, rnd, CutBothWays, true, true)
}

func (h *harness) cutToStore(ctx context.Context, rnd *rand.Rand) error {
	return h.cut(ctx, rnd, CutToStore, true, false)
}

func (h *harness) cutFromStore(ctx context.Context, rnd *rand.Rand) error {
	return h.cut(ctx, rnd, CutFromStore, false, true)
}

// cutNode takes one node, perhaps the leader, from the others; its clients reach
// it.
func (h *harness) cutNode(ctx context.Context, rnd *rand.Rand, kind string, both bool) error {
	alone := h.anyNode(rnd)
	h.log(kind, alone.name)
	var mends []func() error
	var errs []error
	for _, n := range h.store.nodes {
		if n == alone {
			continue
		}
		mend, err := h.net.cut(alone.place, n.place)
		errs, mends = append(errs, err), append(mends, mend)
		if both {
			mend, err := h.net.cut(n.place, alone.place)
			errs, mends = append(errs, err), append(mends, mend)
		}
	}
	sleep(ctx, h.long(rnd))
	for _, mend := range mends {
		if mend != nil {
			errs = append(errs, mend())
		}
	}
	return errors.Join(errs...)
}

func (h *harness) cutNodes(ctx context.Context, rnd *rand.Rand) error {
	return h.cutNode(ctx, rnd, CutNodes, true)
}

func (h *harness) cutNodeOneWay(ctx context.Context, rnd *rand.Rand) error {
	return h.cutNode(ctx, rnd, CutNodeOneWay, false)
}

// fillStore fills the disk of a node. A server that ran out of space gives
// JetStream up until it is started again, which an operator does once there is
// room.
func (h *harness) fillStore(ctx context.Context, rnd *rand.Rand) error {
	n := h.anyNode(rnd)
	h.log(FullStore, n.name)
	err := n.dir.fill()
	sleep(ctx, h.long(rnd))
	return errors.Join(err, n.dir.free(), n.kill(), n.start())
}

func (h *harness) subscriberOff(ctx context.Context, rnd *rand.Rand) error {
	h.log(SubscriberOff, "")
	h.subscriber.leave()
	sleep(ctx, h.brief(rnd))
	h.subscriber.come()
	return nil
}

// forget sets the store back while the subscriber is away.
func (h *harness) forget(kind string, setBack func() error) error {
	h.subscriber.leave()
	h.log(kind, "")
	err := setBack()
	h.subscriber.come()
	return err
}

func (h *harness) wipeStore(context.Context, *rand.Rand) error {
	return h.forget(WipedStore, h.store.wipe)
}

func (h *harness) deleteStreams(ctx context.Context, rnd *rand.Rand) error {
	names := [][]string{{bucketStream}, {natskv.Stream}, {bucketStream, natskv.Stream}}[rnd.IntN(3)]
	return h.forget(DeletedStream, func() error { return h.store.deleteStreams(ctx, names...) })
}

func (h *harness) rollBack(ctx context.Context, rnd *rand.Rand) error {
	if err := h.store.copy(); err != nil {
		return err
	}
	sleep(ctx, h.long(rnd))
	return h.forget(RolledBack, h.store.rollBack)
}
