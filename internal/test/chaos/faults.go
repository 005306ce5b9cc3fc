package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
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
	SameID        = "second launcher of the same id"
	CopiedDir     = "copied data directory"
	NoInodes      = "no inodes on the disk of a launcher"
	FullAtEnd     = "full disk at an orderly end"
	ClockAhead    = "launcher whose wall clock is ahead"
	SplitStore    = "servers that are not one store"
	StoresHang    = "stores hang at SIGTERM"

	// In long runs only, for want of an image.
	PowerCut = "power cut of a host"

	// Of profiles that move; in long runs only.
	HostLost         = "host lost for a while"
	SnapshotsAway    = "profile store away"
	SnapshotsHang    = "profile store hangs"
	SnapshotsFull    = "full disk of the profile store"
	SnapshotsDamaged = "damaged profile store"
)

// fault is one kind of fault.
type fault struct {
	kind string
	// lane is which faults it does not overlap with: those of the same lane.
	lane lane
	// alone says that no fault of another lane goes on meanwhile.
	alone bool
	// isolated says that it needs namespaces, image that it needs a host on an image; nodes is
	// how many NATS nodes it needs, and machine which processor, if not any.
	isolated, image bool
	nodes           int
	machine         string
	begin           func(*harness, context.Context, *rand.Rand) error
}

// lane is one of the sequences of faults, which go on at the same time.
type lane int

const (
	ofHosts lane = iota
	ofStore
	ofSnapshots
	lanes
)

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
	{kind: KillStore, lane: ofStore, begin: (*harness).killStore},
	{kind: StopStore, lane: ofStore, begin: (*harness).stopStore},
	{kind: CutBothWays, lane: ofStore, isolated: true, begin: (*harness).cutBothWays},
	{kind: CutToStore, lane: ofStore, isolated: true, begin: (*harness).cutToStore},
	{kind: CutFromStore, lane: ofStore, isolated: true, begin: (*harness).cutFromStore},
	{kind: CutNodes, lane: ofStore, isolated: true, nodes: 3, begin: (*harness).cutNodes},
	{kind: CutNodeOneWay, lane: ofStore, isolated: true, nodes: 3, begin: (*harness).cutNodeOneWay},
	{kind: FullStore, lane: ofStore, isolated: true, begin: (*harness).fillStore},
	{kind: SubscriberOff, lane: ofStore, begin: (*harness).subscriberOff},
	{kind: WipedStore, lane: ofStore, begin: (*harness).wipeStore},
	{kind: DeletedStream, lane: ofStore, begin: (*harness).deleteStreams},
	{kind: RolledBack, lane: ofStore, begin: (*harness).rollBack},
	{kind: SameID, isolated: true, begin: (*harness).sameID},
	{kind: CopiedDir, isolated: true, begin: (*harness).copyDir},
	{kind: NoInodes, isolated: true, begin: (*harness).fillFiles},
	{kind: FullAtEnd, alone: true, isolated: true, begin: (*harness).fillAtEnd},
	{kind: ClockAhead, isolated: true, machine: aheadMachine, begin: (*harness).setClockAhead},
	{kind: SplitStore, alone: true, begin: (*harness).splitStore},
	{kind: StoresHang, isolated: true, begin: (*harness).hangStores},
	{kind: PowerCut, alone: true, isolated: true, image: true, begin: (*harness).cutPower},
	{kind: HostLost, isolated: true, begin: (*harness).loseHost},
	{kind: SnapshotsAway, lane: ofSnapshots, begin: (*harness).snapshotsAway},
	{kind: SnapshotsHang, lane: ofSnapshots, begin: (*harness).snapshotsHang},
	{kind: SnapshotsFull, lane: ofSnapshots, isolated: true, begin: (*harness).snapshotsFull},
	{kind: SnapshotsDamaged, lane: ofSnapshots, begin: (*harness).snapshotsDamaged},
}

// Here is what there is where a test run is made.
type Here struct {
	// Isolated says that the process has namespaces of its own, and Images that file systems in
	// files can be mounted there.
	Isolated, Images bool
	Nodes            int // of NATS: 1 or 3
}

// Possible returns the kinds of faults that are possible there.
func (h Here) Possible() []string {
	var possible []string
	for _, f := range faults {
		if (h.Isolated || !f.isolated) && (h.Images || !f.image) && f.nodes <= h.Nodes && (f.machine == "" || f.machine == runtime.GOARCH) {
			possible = append(possible, f.kind)
		}
	}
	return possible
}

// injectLane injects the faults of one lane until the time is over: each kind once, in
// random order, and then random ones.
func (h *harness) injectLane(ctx context.Context, which lane, until time.Time, rnd *rand.Rand) {
	var lane []fault
	for _, f := range faults {
		if f.lane == which && slices.Contains(h.Faults, f.kind) {
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
		if err := h.inject(ctx, f, rnd); err != nil && !errors.Is(err, errNotHad) {
			h.history.Add(Entry{Kind: Broken, Text: fmt.Sprintf("%s: %s: %v", Harness, f.kind, err)})
		}
		h.history.Add(Entry{Kind: Healed, Text: f.kind})
		pause := between(rnd, h.TTL/8, h.TTL/2)
		if which == ofSnapshots { // a store that always fails moves nobody
			pause += between(rnd, h.TTL, 4*h.TTL)
		}
		sleep(ctx, pause)
	}
}

// inject injects one fault.
func (h *harness) inject(ctx context.Context, f fault, rnd *rand.Rand) error {
	if f.alone {
		h.lanes.Lock()
		defer h.lanes.Unlock()
	} else {
		h.lanes.RLock()
		defer h.lanes.RUnlock()
	}
	return f.begin(h, ctx, rnd)
}

func between(rnd *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(rnd.Int64N(int64(high-low)))
}

// log adds an entry for a fault that begins, with the process that it affects.
func (h *harness) log(kind, whom string) {
	h.history.Add(Entry{Kind: Fault, Text: kind, Launcher: whom})
}

// long is a time longer than the TTL, so that leases run out. brief is a shorter one.
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
	for deadline := time.Now().Add(unseenTime); ctx.Err() == nil && time.Now().Before(deadline); {
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

// browsersOf lists the Chrome processes on the profiles of the host: those on its own disk, and
// of the folder that two launchers share those whose home it is.
func (h *harness) browsersOf(host *host) ([]browserProcess, error) {
	all, err := browserProcesses(h.dir)
	return slices.DeleteFunc(all, func(p browserProcess) bool {
		if owner := h.watcher.owner(p); owner != sharedDisk {
			return owner != host.name
		}
		if home := h.people.home(profileOf(p)); home != "" {
			return home != host.name
		}
		return !slices.Contains(host.homed, profileOf(p))
	}), err
}

// loseHost loses a host, the home of a profile that could move if there is one, and brings it back
// after a time that is long enough for others to take its profiles.
func (h *harness) loseHost(ctx context.Context, rnd *rand.Rand) error {
	host := h.anyHost(rnd)
	if ready := h.people.ready(); len(ready) > 0 {
		if home := h.people.find(ready[rnd.IntN(len(ready))].Home); home != nil {
			host = home
		}
	}
	if err := h.lose(ctx, host); err != nil {
		return err
	}
	sleep(ctx, between(rnd, 2*h.TTL, 7*h.TTL))
	return host.start()
}

// lose ends everything that runs on a host at once.
func (h *harness) lose(ctx context.Context, host *host) error {
	h.log(HostLost, host.name)
	return h.ends(ctx, host)
}

// processesOf are the processes on a host, its workers among them.
func (h *harness) processesOf(host *host) ([]int, error) {
	all, err := host.endpoint.processes()
	if err != nil {
		return nil, err
	}
	browsers, err := h.browsersOf(host)
	for _, p := range browsers {
		all = append(all, p.PID)
	}
	return all, err
}

// ends ends everything that runs on a host, whose launcher stays down until start.
func (h *harness) ends(ctx context.Context, host *host) error {
	if err := host.kill(); err != nil {
		return err
	}
	for range 3 { // what was about to be started is there the next time
		all, err := h.processesOf(host)
		if err != nil {
			return err
		}
		for _, pid := range all {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
		sleep(ctx, 50*time.Millisecond)
	}
	return nil
}

// stopHost behaves like a virtual machine that is paused: none of its processes runs.
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

// shiftClock restarts a launcher on a shifted clock, and later on the right one, as if
// the host had been rebooted. What the launcher keeps on disk must not mislead it. Its
// browsers are killed before, since the kernel also shifts the start times of living
// processes.
func (h *harness) shiftClock(ctx context.Context, rnd *rand.Rand) error {
	host := h.anyHost(rnd)
	seconds := 3600
	if up := time.Duration(boottime.Now()); rnd.IntN(2) == 0 && up > time.Minute {
		seconds = -int(min(up/2, time.Hour).Seconds())
	}
	h.log(ShiftedClock, fmt.Sprintf("%s %+d s", host.name, seconds))
	restart := func(seconds int) error {
		h.drain(host)
		left, err := h.browsersOf(host)
		for _, p := range left {
			_ = syscall.Kill(p.PID, syscall.SIGKILL) // it may have ended
		}
		if err != nil {
			return err
		}
		host.is(odd{shift: seconds})
		return host.start()
	}
	err := restart(seconds)
	sleep(ctx, h.long(rnd))
	return errors.Join(err, restart(0))
}

// drain ends a launcher in order. It stays down until start.
func (h *harness) drain(host *host) {
	if err := host.drain(drainTime); err != nil {
		h.broken(NotDrained, "", "%v", err)
	}
}

// wallJump is by how much the wall clock is ahead for a moment.
const wallJump = time.Hour

// jumpWallClock sets this machine's wall clock forward for a moment.
func (h *harness) jumpWallClock(ctx context.Context, _ *rand.Rand) error {
	h.log(WallClock, "+"+wallJump.String())
	begun := boottime.Now()
	wall := time.Now()
	set := func(t time.Time) error {
		ts := unix.NsecToTimespec(t.UnixNano())
		return unix.ClockSettime(unix.CLOCK_REALTIME, &ts)
	}
	if err := set(wall.Add(wallJump)); err != nil {
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

// cut makes a partition between a launcher and all nodes.
func (h *harness) cut(ctx context.Context, rnd *rand.Rand, kind string, to, from bool) error {
	host := h.anyHost(rnd)
	h.log(kind, host.name)
	var heals []func() error
	drop := func(from *endpoint, to ...*endpoint) error {
		heal, err := h.net.cut(from, to...)
		if err == nil {
			heals = append(heals, heal)
		}
		return err
	}
	var errs []error
	for _, n := range h.store.endpoints() {
		if to {
			errs = append(errs, drop(host.endpoint, n))
		}
		if from {
			errs = append(errs, drop(n, host.endpoint))
		}
	}
	sleep(ctx, h.long(rnd))
	for _, heal := range heals {
		errs = append(errs, heal())
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

// cutNode separates one node, which may be the leader, from the other nodes. Clients
// still reach it.
func (h *harness) cutNode(ctx context.Context, rnd *rand.Rand, kind string, both bool) error {
	alone := h.anyNode(rnd)
	h.log(kind, alone.name)
	var heals []func() error
	var errs []error
	for _, n := range h.store.nodes {
		if n == alone {
			continue
		}
		heal, err := h.net.cut(alone.endpoint, n.endpoint)
		errs, heals = append(errs, err), append(heals, heal)
		if both {
			heal, err := h.net.cut(n.endpoint, alone.endpoint)
			errs, heals = append(errs, err), append(heals, heal)
		}
	}
	sleep(ctx, h.long(rnd))
	for _, heal := range heals {
		if heal != nil {
			errs = append(errs, heal())
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

// fillStore fills the disk of a node. A server that runs out of space disables
// JetStream until it is restarted, so the node is restarted once there is room, as an
// operator would do.
func (h *harness) fillStore(ctx context.Context, rnd *rand.Rand) error {
	n := h.anyNode(rnd)
	h.log(FullStore, n.name)
	err := n.dir.fill()
	sleep(ctx, h.long(rnd))
	return errors.Join(err, n.dir.free(), n.kill(), n.start())
}

func (h *harness) subscriberOff(ctx context.Context, rnd *rand.Rand) error {
	h.log(SubscriberOff, "")
	h.subscriber.unsubscribe()
	sleep(ctx, h.brief(rnd))
	h.subscriber.subscribe()
	return nil
}

// setStoreBack sets the store back while the subscriber is away.
func (h *harness) setStoreBack(kind string, setBack func() error) error {
	h.subscriber.unsubscribe()
	h.log(kind, "")
	err := setBack()
	h.subscriber.subscribe()
	return err
}

func (h *harness) wipeStore(context.Context, *rand.Rand) error {
	return h.setStoreBack(WipedStore, h.store.wipe)
}

func (h *harness) deleteStreams(ctx context.Context, rnd *rand.Rand) error {
	names := [][]string{{bucketStream}, {natskv.Stream}, {bucketStream, natskv.Stream}}[rnd.IntN(3)]
	return h.setStoreBack(DeletedStream, func() error { return h.store.deleteStreams(ctx, names...) })
}

func (h *harness) rollBack(ctx context.Context, rnd *rand.Rand) error {
	if err := h.store.copy(); err != nil {
		return err
	}
	sleep(ctx, h.long(rnd))
	return h.setStoreBack(RolledBack, h.store.rollBack)
}
