package browser

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dustin/go-humanize"

	"leasehold/cdpproxy"
	"leasehold/internal/boottime"
	"leasehold/internal/cgroup"
	"leasehold/internal/procfs"
	"leasehold/launcher/api"
	"leasehold/launcher/chrome"
)

// A browser can be lost while its process lives: it answers nothing any more, or it
// takes more memory than it may. Both are decided by pure rules over readings (hang,
// excess), which one goroutine takes of all browsers of the host (Driver.Watch).

// Rates and bounds of the readings.
const (
	// probeEvery is the time between two readings of the browsers.
	probeEvery = time.Second
	// askEvery is the time between two questions to a browser that answers.
	askEvery = 5 * time.Second
	// excessFor is how long a browser has to be above its limit, at each reading,
	// before it is given up, and excessReadings how many readings that are at least.
	excessFor      = 5 * time.Second
	excessReadings = 4
	// restFactor is how many times longer than a reading of all processes took the
	// next one waits: readings take at most two hundredths of a processor.
	restFactor = 50
)

// Failure is why a browser that still runs has to be given up. The zero value is none.
type Failure struct {
	Reason string // api.ReasonBrowserHangs or api.ReasonBrowserMemory
	// Detail is for the worker: short, what was found and what the bound is.
	Detail string
}

// probe is one reading of a browser that was asked something.
type probe struct {
	at      boottime.Instant
	asked   bool   // and has not answered
	reads   uint64 // how often its pipe brought anything
	state   byte   // of its main thread, the kernel's letter
	cpu     uint64 // what its main thread has used, in clock ticks
	working bool   // another of its threads or processes runs, or waits for a disk
	behind  bool   // it has said something that the launcher has not processed
}

// probeOf tells the state of a browser's process from its threads, the main one first,
// and its other processes.
func probeOf(threads, tree []procfs.Process) probe {
	works := func(p procfs.Process) bool { return p.State == 'R' || p.State == 'D' }
	main := threads[0]
	tree = slices.DeleteFunc(slices.Clone(tree), func(p procfs.Process) bool { return p.PID == main.PID })
	return probe{asked: true, state: main.State, cpu: main.CPU, working: slices.ContainsFunc(threads[1:], works) || slices.ContainsFunc(tree, works)}
}

// hang is how long a browser has answered nothing, counted so that a slow machine is
// not taken for a browser that hangs. The zero value is not at all.
//
// Two kinds of time count. idle is time in which none of the browser's threads and
// processes ran or could have run, so what it waits for is nothing that the machine is
// late with. spun is processor time that its main thread used without answering: on a
// machine that gives the thread none, none is counted. A reading that came late counts
// nothing, since the launcher itself, or the whole machine, stood still. Nor does one
// while the launcher has not processed all that the browser said: the answer may be
// among that.
type hang struct {
	last probe
	idle time.Duration
	spun uint64 // clock ticks
}

// next takes another reading into account.
func (h hang) next(p probe) hang {
	gap := p.at.Sub(h.last.at)
	switch {
	case !p.asked || !h.last.asked || p.reads != h.last.reads || p.behind || h.last.behind:
		return hang{last: p}
	case gap > 2*probeEvery:
	case p.cpu != h.last.cpu:
		h.spun += p.cpu - min(p.cpu, h.last.cpu)
	case p.state == 'T', p.state == 'S' && !p.working:
		h.idle += gap
	}
	h.last = p
	return h
}

// verdict is the failure of a browser that hangs for longer than bound, if it does.
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

// reading is what a browser had in memory at a time.
type reading struct {
	at   boottime.Instant
	used uint64
}

// excess is how long a browser has been above its memory limit. The zero value is not
// at all.
type excess struct {
	since    boottime.Instant
	readings int
	last     reading
}

// next takes another reading into account.
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

// verdict is the failure of a browser that takes too much, if it does.
func (e excess) verdict(limit uint64) (f Failure, failed bool) {
	if e.readings < excessReadings || e.last.at.Sub(e.since) < excessFor {
		return Failure{}, false
	}
	return Failure{api.ReasonBrowserMemory, fmt.Sprintf("the browser took too much memory: %s for %v, its limit is %s", humanize.IBytes(e.last.used), excessFor, humanize.IBytes(limit))}, true
}

// oomKilled is the failure of a browser of which the kernel killed a process.
func oomKilled(limit uint64) Failure {
	return Failure{api.ReasonBrowserMemory, fmt.Sprintf("the browser took too much memory: the kernel killed one of its processes at its limit of %s", humanize.IBytes(limit))}
}

// health are the readings of one browser and what follows from them.
type health struct {
	process *chrome.Browser
	mux     *cdpproxy.Mux
	ctx     context.Context // until the browser is not driven any more

	failed  chan struct{} // closed when the browser has to be given up
	failure Failure       // set before

	// Used by Driver.Watch alone:
	hang    hang
	excess  excess
	nextAsk boottime.Instant

	mu    sync.Mutex
	asked bool
	limit uint64 // bytes; 0: none
	shown Memory
}

func newHealth(ctx context.Context, b *chrome.Browser, m *cdpproxy.Mux) *health {
	return &health{process: b, mux: m, ctx: ctx, failed: make(chan struct{})}
}

// setLimit sets the memory limit of the browser.
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

// fail gives the browser up, if it is not already. Driver.Watch alone calls it.
func (h *health) fail(f Failure) {
	if h.failure == (Failure{}) {
		h.failure = f
		close(h.failed)
	}
}

// probe takes one reading, and asks the browser where it is time to. background runs
// a function that may take long.
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
	threads, err := procfs.Threads(h.process.PID())
	if err != nil {
		return // it ends, which others notice
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

// ask asks the browser for what its main thread alone can answer, and returns when it
// has, or is gone.
func (h *health) ask() {
	var version struct{}
	err := h.mux.Call(h.ctx, "Browser.getVersion", nil, &version)
	if err != nil && (h.ctx.Err() != nil || errors.Is(err, cdpproxy.ErrBrowserGone)) {
		return // nobody will ask again
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked = false
}

// weigh reads the browser's memory, among all processes of the host.
func (h *health) weigh(now boottime.Instant, all []procfs.Process) {
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
			// The kernel lets it hardly any further: what is left up to the limit is
			// for its evidence.
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

// lastReading is the last reading of the browser's memory.
func (h *health) lastReading() Memory {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.shown
}

// Watch reads the health of every browser, and bounds their crash dumps, until the
// driver's context ends.
func (d *Driver) Watch() {
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
		all, err := procfs.List()
		if err != nil {
			d.o.Log.Warn().Err(err).Msg("the browsers' memory cannot be read")
			continue
		}
		for _, b := range driven {
			b.health.weigh(now, all)
		}
		due = now.Add(restFactor * boottime.Now().Sub(now))
	}
}

// watched lists the browsers that are driven, and tells whether any has a memory limit.
func (d *Driver) watched() (driven []*Browser, limited bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for b := range d.driven {
		driven = append(driven, b)
		limited = limited || b.health.limited() > 0
	}
	return driven, limited
}
