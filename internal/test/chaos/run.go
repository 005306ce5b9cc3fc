package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"leasehold/lease"
)

// Config describes one test run.
type Config struct {
	Seed     uint64
	Duration time.Duration // of the faults
	Nodes    int           // of NATS: 1 or 3
	TTL      time.Duration
	// Short runs have fewer hosts.
	Short bool
	// Isolated says that the process has namespaces of its own.
	Isolated bool
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
	witness, err := startWitness(h.net.harness, h.history)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, witness.stop()) }()
	h.watcher = startWatcher(h.dir, h.history)
	defer h.watcher.stop()

	if h.store, err = newStore(h.Config, h.net, h.history, h.dir); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, h.store.each(func(n *node) error { return n.finish(healTime) }))
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
	if h.hosts, err = newHosts(h.Config, h.net, h.store, h.snapshots, witness.URL, h.dir); err != nil {
		return err
	}
	for _, host := range h.hosts {
		witness.knows(host.endpoint.ip, host.name)
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
	h.calm(ctx, rnd)
	for _, host := range h.hosts {
		host.stopWorkers()
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

// calm lets the workers work without faults, until everything that a test run has to show
// has happened at least once. A host is lost again as long as no profile has moved for that.
func (h *harness) calm(ctx context.Context, rnd *rand.Rand) {
	sleep(ctx, calmTime)
	for deadline := time.Now().Add(unseenTime); time.Now().Before(deadline); sleep(ctx, 200*time.Millisecond) {
		left := h.unseen()
		if len(left) == 0 {
			return
		}
		if slices.Contains(left, movedFromLost) || slices.Contains(left, string(Moved)+" "+movedByItself) {
			if err := h.loseHost(ctx, rnd); err != nil {
				h.broken(Harness, "", "%v", err)
			}
			h.history.Add(Entry{Kind: Healed, Text: HostLost})
			sleep(ctx, 4*h.TTL)
		}
	}
}

// wanted are the entries that a test run has to show, as their kinds or as their kinds and texts.
func (h *harness) wanted() []string {
	var all []string
	for _, k := range []Kind{Granted, Released, Refused, Requested, Accepted, Published} {
		all = append(all, string(k))
	}
	if h.snapshots == nil {
		return all
	}
	for _, k := range []Kind{Found, Wrote, Opened, Queued} {
		all = append(all, string(k))
	}
	for _, way := range []string{byLabels, byAccount, byTurn, byRedirect, byPriority} {
		all = append(all, string(Asked)+" "+way)
	}
	for _, way := range []string{movedByItself, movedByOperator, movedByPerson} {
		all = append(all, string(Moved)+" "+way)
	}
	return append(all, movedFromLost, movedBack, snapshotMade, waitedFor)
}

// What a test run has to show that no single entry says.
const (
	movedFromLost = "a profile moved while its home was lost"
	movedBack     = "a profile came back to a home that it had left"
	snapshotMade  = "a snapshot was made"
	waitedFor     = "a request was granted after it waited"
)

// shown are what a history shows, by the names of wanted, and how often.
func shown(entries []Entry) map[string]int {
	n := map[string]int{}
	lost := map[string]bool{}
	homes := map[string]map[string]bool{} // by profile
	for _, e := range entries {
		n[string(e.Kind)]++
		n[string(e.Kind)+" "+e.Text]++
		switch {
		case e.Kind == Fault && e.Text == HostLost:
			lost[e.Launcher] = true
		case e.Kind == Healed && e.Text == HostLost:
			clear(lost)
		case e.Kind == Moved:
			if lost[e.Move.From] {
				n[movedFromLost]++
			}
			if homes[e.Profile] == nil {
				homes[e.Profile] = map[string]bool{}
			}
			homes[e.Profile][e.Move.From] = true
			if homes[e.Profile][e.Home] {
				n[movedBack]++
			}
		case e.Kind == Published && e.Event.Event == lease.EventSnapshotMade:
			n[snapshotMade]++
		case e.Kind == Granted && e.At.Sub(e.Since) > waitedLong && e.Waited:
			n[waitedFor]++
		}
	}
	return n
}

// waitedLong is longer than a grant takes for which nobody waits, on a quiet host.
const waitedLong = 2 * time.Second

// unseen returns what a test run has to show and is still missing.
func (h *harness) unseen() []string {
	have := shown(h.history.Entries())
	return slices.DeleteFunc(h.wanted(), func(what string) bool { return have[what] > 0 })
}

// broken adds a violation that was found during the test run.
func (h *harness) broken(kind, profile, format string, args ...any) {
	h.history.Add(Entry{Kind: Broken, Profile: profile, Text: kind + ": " + fmt.Sprintf(format, args...)})
}

// judge checks the final state, once all faults are healed and no worker runs any more.
func (h *harness) judge(ctx context.Context) error {
	healing, cancel := context.WithTimeout(ctx, healTime)
	defer cancel()
	if err := h.store.ready(healing); err != nil {
		return err
	}
	for _, host := range h.hosts {
		if err := host.ready(healing); err != nil {
			h.broken(NotReady, "", "%v", err)
		}
	}
	records := h.decided(ctx)
	settling, cancel := context.WithTimeout(ctx, healTime)
	defer cancel()
	if err := h.subscriber.catchUp(settling); err != nil {
		h.broken(EventMissing, "", "the event stream cannot be read: %v", err)
	}
	h.published(settling, records)
	h.history.Add(Entry{Kind: Settled})
	h.checkEvidence(ctx)
	h.checkFaults()
	return nil
}

// decided waits until every profile has been decided on, and returns the records.
func (h *harness) decided(ctx context.Context) map[string]lease.Record {
	for deadline := time.Now().Add(decideTime); ; sleep(ctx, 200*time.Millisecond) {
		records := map[string]lease.Record{}
		for _, host := range h.hosts {
			list, err := host.records(ctx)
			if err != nil {
				records[host.endpoint.name] = lease.Record{Reason: err.Error()}
			}
			for _, r := range list {
				if r.Home == host.endpoint.name || records[r.ProfileID].ProfileID == "" {
					records[r.ProfileID] = r
				}
			}
		}
		left := map[string]string{}
		for _, host := range h.hosts {
			for _, p := range host.homed {
				switch r, ok := records[p]; {
				case !ok:
					left[p] = "it is not listed: " + records[host.endpoint.name].Reason
				case r.State != lease.Available && r.State != lease.ResumePending && r.State != lease.ManualReview:
					left[p] = fmt.Sprintf("it is %s (%s), token %d, of session %s", r.State, r.Reason, r.Token, r.SessionID)
				}
			}
			delete(records, host.endpoint.name)
		}
		if len(left) == 0 {
			return records
		}
		if time.Now().After(deadline) {
			for _, p := range sortedKeys(left) {
				h.broken(Undecided, p, "%s", left[p])
			}
			return records
		}
	}
}

// published waits until the last transition of each record was read from the stream.
func (h *harness) published(ctx context.Context, records map[string]lease.Record) {
	for deadline := time.Now().Add(readyTime); ; sleep(ctx, 200*time.Millisecond) {
		last := map[string]uint64{}
		epoch, _ := h.store.generation()
		for _, e := range h.history.Entries() {
			if e.Kind == Published && e.Epoch == epoch {
				last[e.Profile] = max(last[e.Profile], e.Event.Sequence)
			}
		}
		var behind []string
		for p, r := range records {
			if r.Sequence > last[p] {
				behind = append(behind, fmt.Sprintf("%s: the record's sequence is %d, the last event's %d", p, r.Sequence, last[p]))
			}
		}
		if len(behind) == 0 {
			return
		}
		// After a set-back of the store, earlier events may be gone, and nothing new
		// may have happened to a profile.
		if time.Now().After(deadline) {
			for _, b := range behind {
				p, _, _ := strings.Cut(b, ":")
				if epoch == 0 || last[p] > 0 {
					h.broken(EventMissing, p, "%s", b)
				}
			}
			return
		}
	}
}

// checkEvidence fetches the bundle of each state after quarantined, and one of its
// parts. Bundles from before a set-back of the store may be gone, so only sessions
// since then count.
func (h *harness) checkEvidence(ctx context.Context) {
	epoch, wall := h.store.generation()
	fetched := map[string]error{}
	begun := map[string]bool{} // sessions that began in this epoch
	for _, e := range h.history.Entries() {
		if e.Kind != Published || e.Epoch != epoch || e.Made.Before(wall) {
			continue
		}
		if e.Event.Event == lease.EventGranted {
			begun[e.Event.SessionID] = true
		}
		switch e.Event.Event {
		case string(lease.Inspected), string(lease.ManualReview), string(lease.ResumePending), string(lease.Available):
		default:
			continue
		}
		id := e.Event.EvidenceID
		err, known := fetched[id]
		switch {
		case !begun[e.Event.SessionID]:
			continue
		case id == "":
			h.broken(NoEvidence, e.Profile, "%s, token %d, names none", e.Event.Event, e.Event.Token)
			continue
		case !known:
			err = h.fetch(ctx, id)
			fetched[id] = err
		}
		if err != nil {
			h.broken(NoEvidence, e.Profile, "%s, token %d: %v", e.Event.Event, e.Event.Token, err)
		}
	}
}

// fetch asks every launcher for a bundle, since one that is still in a spool is known
// to one of them only.
func (h *harness) fetch(ctx context.Context, id string) error {
	var errs []error
	for _, host := range h.hosts {
		var m struct {
			Parts []struct{ Name, Missing string }
		}
		err := host.call(ctx, callTime, http.MethodGet, "/v1/evidence/"+id, nil, &m)
		for _, p := range m.Parts {
			if p.Missing == "" && strings.HasSuffix(p.Name, ".json") {
				var part json.RawMessage
				err = host.call(ctx, callTime, http.MethodGet, "/v1/evidence/"+id+"/"+p.Name, nil, &part)
				break
			}
		}
		if err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", host.endpoint.name, err))
	}
	return errors.Join(errs...)
}

// checkFaults checks that each fault and each required kind of entry occurred, since a
// run in which nothing happened proves nothing.
func (h *harness) checkFaults() {
	happened := map[string]bool{}
	for _, e := range h.history.Entries() {
		if e.Kind == Fault {
			happened[e.Text] = true
		}
	}
	for _, f := range h.Faults {
		if !happened[f] {
			h.broken(Harness, "", "the fault %q did not happen", f)
		}
	}
	for _, what := range h.unseen() {
		h.broken(Harness, "", "never: %s", what)
	}
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
	for _, host := range h.hosts {
		b, err := os.ReadFile(host.logFile)
		if err != nil {
			return err
		}
		for line := range strings.SplitSeq(string(b), "\n") {
			for _, bad := range []string{"WARNING: DATA RACE", "panic: ", "fatal error: "} {
				if strings.HasPrefix(line, bad) {
					h.broken(Crashed, "", "%s: %s", filepath.Base(host.logFile), line)
				}
			}
		}
	}
	return nil
}

func profileOf(p browserProcess) string { return filepath.Base(p.dir) }
