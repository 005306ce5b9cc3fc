package browser

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"

	"leasehold/cdpproxy"
	"leasehold/internal/boottime"
	"leasehold/internal/cgroup"
	"leasehold/internal/procfs"
	"leasehold/launcher/api"
)

// A browser may have to be given up while its process lives, because it does not answer
// any more or uses too much memory. Pure rules decide both (hang, excess), from
// readings that one goroutine takes of all browsers of the host (Driver.Watch).

// Rates and bounds of the readings.
const (
	// probeEvery is the time between two readings.
	probeEvery = time.Second
	// askEvery is the time between two questions to a browser that answers them.
	askEvery = 5 * time.Second
	// A browser is given up when at least excessReadings readings in a row, over at
	// least excessFor, are above its limit.
	excessFor      = 5 * time.Second
	excessReadings = 4
	// restFactor limits the cost of memory readings: after a reading of all processes the next
	// one waits restFactor times the processor time that the reading took. So readings use at
	// most two percent of a processor. The wall time of a reading would not do: on an
	// overloaded host it is long, and that is when memory has to be watched.
	restFactor = 50
)

// Failure is why a browser that still runs has to be given up. The zero value is none.
type Failure struct {
	Reason string // api.ReasonBrowserHangs or api.ReasonBrowserMemory
	// Detail says briefly what was found and what the bound is, for the worker.
	Detail string
}

// probe is one reading of a browser, taken to see whether it hangs.
type probe struct {
	at      boottime.Instant
	asked   bool   // a question was sent and is not answered yet
	reads   uint64 // how many reads of its pipe returned something
	state   byte   // the main thread's state, as the kernel's letter
	cpu     uint64 // processor time of the main thread, in clock ticks
	working bool   // another thread or process of the browser runs, or waits for a disk
	behind  bool   // it sent something that the launcher has not processed yet
}

// probeOf fills in the state of a browser's processes. threads are those of the main
// process, the main thread first, and tree are all its processes.
func probeOf(threads, tree []procfs.Process) probe {
	works := func(p procfs.Process) bool { return p.State == 'R' || p.State == 'D' }
	main := threads[0]
	tree = slices.DeleteFunc(slices.Clone(tree), func(p procfs.Process) bool { return p.PID == main.PID })
	return probe{asked: true, state: main.State, cpu: main.CPU, working: slices.ContainsFunc(threads[1:], works) || slices.ContainsFunc(tree, works)}
}

// hang measures how long a browser has given no answer, so that a slow machine is not
// taken for a browser that hangs. The zero value says that it is answering.
//
// Two kinds of time count. idle is time in which no thread or process of the browser
// ran or was ready to run, so the browser was not waiting for a slow machine. spun is
// processor time that its main thread used without giving the answer; on a machine that
// gives the thread no processor time, nothing is counted. A reading that comes late
// counts nothing, since the launcher itself or the whole machine stood still; but a main
// thread that was stopped by a signal at both readings is not slow, and counts as if the reading
// had come in time. A reading also counts nothing while the launcher has not processed everything that the browser
// sent, since the answer may be among that.
type hang struct {
	last probe
	idle time.Duration
	spun uint64 // clock ticks
}

// next is the state of the rule after one more reading.
func (h hang) next(p probe) hang {
	gap := p.at.Sub(h.last.at)
	switch {
	case !p.asked || !h.last.asked || p.reads != h.last.reads || p.behind || h.last.behind:
		return hang{last: p}
	case gap > 2*probeEvery && p.state == 'T' && h.last.state == 'T' && p.cpu == h.last.cpu:
		h.idle += probeEvery
	case gap > 2*probeEvery:
	case p.cpu != h.last.cpu:
		h.spun += p.cpu - min(p.cpu, h.last.cpu)
	case p.state == 'T', p.state == 'S' && !p.working:
		h.idle += gap
	}
	h.last = p
	return h
}

// verdict tells whether the browser has hung for at least bound, and how. A bound of
// zero means for ever.
func (h hang) verdict(bound time.Duration) (f Failure, failed bool) {
	what := ""
	switch {
	case bound <= 0:
	case h.idle >= bound && h.last.state == 'T':
		what = fmt.Sprintf("no answer for %v, its process is stopped", bound)
	case h.idle >= bound:
		what = fmt.Sprintf("no answer for %v, its main thread waits", bound)
	case procfs.Ticks(h.spun) >= bound:
		what = fmt.Sprintf("no answer while its main thread ran for %v", bound)
	}
	if what == "" {
		return Failure{}, false
	}
	return Failure{api.ReasonBrowserHangs, "the browser hangs: " + what}, true
}

// reading is how much memory a browser used at an instant, in bytes.
type reading struct {
	at   boottime.Instant
	used uint64
}

// excess measures how long a browser has been above its memory limit. The zero value
// says that it is not.
type excess struct {
	since    boottime.Instant
	readings int
	last     reading
}

// next is the state of the rule after one more reading.
func (e excess) next(limit uint64, r reading) excess {
	if limit == 0 || r.used <= limit {
		return excess{last: r}
	}
	if e.readings == 0 {
		e.since = r.at
	}
	e.readings++
	e.last = r
	return e
}

// verdict tells whether the browser has been above its limit for too long, and how.
func (e excess) verdict(limit uint64) (f Failure, failed bool) {
	if e.readings < excessReadings || e.last.at.Sub(e.since) < excessFor {
		return Failure{}, false
	}
	return Failure{api.ReasonBrowserMemory, fmt.Sprintf("the browser took too much memory: %s for %v, its limit is %s", humanize.IBytes(e.last.used), excessFor, humanize.IBytes(limit))}, true
}

// oomKilled is the failure of a browser in which the kernel killed a process for its
// memory.
func oomKilled(limit uint64) Failure {
	return Failure{api.ReasonBrowserMemory, fmt.Sprintf("the browser took too much memory: the kernel killed one of its processes at its limit of %s", humanize.IBytes(limit))}
}

// health has the readings of one browser, and the failure that follows from them.
type health struct {
	process Process
	mux     *cdpproxy.Mux
	ctx     context.Context // ends when the browser is not driven any more

	failed  chan struct{} // closed when the browser has to be given up
	failure Failure       // set before failed is closed

	// Only Driver.Watch uses these.
	hang    hang
	excess  excess
	nextAsk boottime.Instant

	mu    sync.Mutex
	asked bool
	limit uint64 // bytes; zero for none
	shown Memory
}

func newHealth(ctx context.Context, p Process, m *cdpproxy.Mux) *health {
	return &health{process: p, mux: m, ctx: ctx, failed: make(chan struct{})}
}

func (h *health) setLimit(limit uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.limit = limit
}

func (h *health) limited() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.limit
}

// fail says that the browser has to be given up. Only the first failure counts. Only
// Driver.Watch calls it.
func (h *health) fail(f Failure) {
	if h.failure == (Failure{}) {
		h.failure = f
		close(h.failed)
	}
}

// probe takes one reading for the hang detector, and sends the next question if it is
// due. background runs a function that may take long.
func (h *health) probe(now boottime.Instant, bound time.Duration, background func(func())) {
	h.mu.Lock()
	asked := h.asked
	due := !asked && now >= h.nextAsk
	h.asked = asked || due
	h.mu.Unlock()
	if due {
		h.nextAsk = now.Add(min(askEvery, bound))
		background(h.ask)
	}
	if !asked {
		h.hang = hang{}
		return
	}
	behind, reads := h.mux.Behind(), h.mux.Reads()
	threads, err := procfs.Threads(h.process.Identity().PID)
	if err != nil {
		return // the browser is ending, which is noticed elsewhere
	}
	tree, err := h.process.Processes()
	p := probeOf(threads, tree)
	p.at, p.behind, p.reads = now, behind, reads
	p.working = p.working || err != nil
	h.hang = h.hang.next(p)
	if f, failed := h.hang.verdict(bound); failed {
		h.fail(f)
	}
}

// ask sends a question that only the browser's main thread can answer. It returns when
// the answer is there or the browser is gone.
func (h *health) ask() {
	var version struct{}
	err := h.mux.Call(h.ctx, "Browser.getVersion", nil, &version)
	if err != nil && (h.ctx.Err() != nil || errors.Is(err, cdpproxy.ErrBrowserGone)) {
		return // no further question is needed
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked = false
}

// checkMemory reads how much memory the browser uses. all are the host's processes.
func (h *health) checkMemory(now boottime.Instant, all []procfs.Process) {
	limit := h.limited()
	if limit == 0 {
		return
	}
	shown := Memory{LimitBytes: limit}
	threshold := limit
	if g := h.process.Group(); g != nil {
		u := g.Usage()
		if u.OOMKills != nil && *u.OOMKills > 0 {
			h.fail(oomKilled(limit))
		}
		if u.Memory != nil {
			// The kernel hardly lets it grow beyond this. What is left below the limit
			// is needed to capture its evidence.
			threshold = (cgroup.Limits{Memory: limit}).Beyond()
			shown.UsedBytes, shown.How = *u.Memory, "cgroup"
		}
	}
	if shown.How == "" {
		shown.UsedBytes, shown.How, shown.Processes = memoryOf(h.process.Among(all), limit)
	}
	at := time.Now().UTC()
	shown.At = &at
	h.excess = h.excess.next(threshold, reading{now, shown.UsedBytes})
	h.mu.Lock()
	h.shown = shown
	h.mu.Unlock()
	if f, failed := h.excess.verdict(limit); failed {
		h.fail(f)
	}
}

func (h *health) lastReading() Memory {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.shown
}

// Watch checks the health of every browser and bounds its crash dumps, until the
// driver's context ends.
func (d *Driver) Watch() {
	runtime.LockOSThread() // see threadTime
	defer runtime.UnlockOSThread()
	every := time.NewTicker(probeEvery)
	defer every.Stop()
	var due boottime.Instant
	for {
		select {
		case <-every.C:
		case <-d.ctx.Done():
			return
		}
		driven, limited := d.watched()
		if len(driven) == 0 { // an idle launcher is not woken up for nothing
			every.Stop()
			select {
			case <-d.begun:
			case <-d.ctx.Done():
				return
			}
			every.Reset(probeEvery)
			continue
		}
		for _, b := range driven {
			if err := trimDumps(b.dumps); err != nil {
				d.o.Log.Warn().Err(err).Msg("crash dumps are not bounded")
			}
		}
		if d.o.HangTimeout > 0 {
			for _, b := range driven {
				b.health.probe(boottime.Now(), d.o.HangTimeout, d.work.Go)
			}
		}
		now := boottime.Now()
		if !limited || now < due {
			continue
		}
		begun := threadTime()
		all, err := procfs.List()
		if err != nil {
			d.o.Log.Warn().Err(err).Msg("the browsers' memory cannot be read")
			continue
		}
		for _, b := range driven {
			b.health.checkMemory(now, all)
		}
		due = now.Add(restFactor * (threadTime() - begun))
	}
}

// threadTime is the processor time that the calling thread has used.
func threadTime() time.Duration {
	var used unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_THREAD, &used) // it cannot fail with these arguments
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// watched lists the driven browsers, and tells whether any of them has a memory limit.
func (d *Driver) watched() (driven []*Browser, limited bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for b := range d.driven {
		driven = append(driven, b)
		limited = limited || b.health.limited() > 0
	}
	return driven, limited
}
