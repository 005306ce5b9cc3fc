package launcher

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
	"leasehold/launcher/chrome"
)

// A browser can be lost while its process lives: it answers nothing any more, or it
// takes more memory than it may. Both are told by rules over readings, and noticed
// by one goroutine for all browsers of the host.

// Rates and bounds of the readings.
const (
	// lookEvery is the time between two looks at the browsers.
	lookEvery = time.Second
	// askEvery is the time between two probes of a browser that answers.
	askEvery = 5 * time.Second
	// excessFor is how long a browser has to be above its limit, at each reading,
	// before it is ended, and excessReadings how many readings that are at least.
	excessFor      = 5 * time.Second
	excessReadings = 4
	// restOfReading is how many times longer than a reading of all processes took
	// the next one waits: at most two hundredths of a processor.
	restOfReading = 50
)

// ailment is why a browser that still runs has to be given up.
type ailment struct {
	reason string
	// told is for the worker: short, what was found and what the bound is.
	told string
}

// look is one look at a browser that was asked something.
type look struct {
	at      boottime.Instant
	asked   bool   // and has not answered
	reads   uint64 // how often its pipe brought anything
	state   byte   // of its main thread, the kernel's letter
	cpu     uint64 // what its main thread has used, in clock ticks
	working bool   // another of its threads or processes runs, or waits for a disk
	behind  bool   // it has said something that the launcher has not taken in
}

// lookAt tells what the browser's process, by its threads, the main one first, and its
// other processes are at.
func lookAt(threads, tree []procfs.Process) look {
	works := func(p procfs.Process) bool { return p.State == 'R' || p.State == 'D' }
	main := threads[0]
	tree = slices.DeleteFunc(slices.Clone(tree), func(p procfs.Process) bool { return p.PID == main.PID })
	return look{asked: true, state: main.State, cpu: main.CPU, working: slices.ContainsFunc(threads[1:], works) || slices.ContainsFunc(tree, works)}
}

// silence is how long a browser has answered nothing, counted so that a slow
// machine is not taken for a browser that hangs. The zero value is none.
//
// Two kinds of time count. Still is time in which none of the browser's threads and
// processes ran or could have run: what it waits for is nothing that the machine is
// late with. Spun
// is processor time that its main thread used without answering: on a machine that
// gives it none, none is counted. A look that came late counts nothing: then the
// launcher itself, or the whole machine, stood still. Nor does one while the launcher
// is behind with what the browser says: the answer may be among it.
type silence struct {
	last  look
	still time.Duration
	spun  uint64 // clock ticks
}

// next takes another look into account.
func (s silence) next(l look) silence {
	gap := l.at.Sub(s.last.at)
	switch {
	case !l.asked || !s.last.asked || l.reads != s.last.reads || l.behind || s.last.behind:
		return silence{last: l}
	case gap > 2*lookEvery:
	case l.cpu != s.last.cpu:
		s.spun += l.cpu - min(l.cpu, s.last.cpu)
	case l.state == 'T', l.state == 'S' && !l.working:
		s.still += gap
	}
	s.last = l
	return s
}

// verdict is the ailment of a browser that hangs, or nil.
func (s silence) verdict(bound time.Duration) *ailment {
	what := ""
	switch {
	case bound <= 0:
	case s.still >= bound && s.last.state == 'T':
		what = fmt.Sprintf("no answer for %v, its process is stopped", bound)
	case s.still >= bound:
		what = fmt.Sprintf("no answer for %v, its main thread waits", bound)
	case procfs.Ticks(s.spun) >= bound:
		what = fmt.Sprintf("no answer while its main thread ran for %v", bound)
	}
	if what == "" {
		return nil
	}
	return &ailment{reasonBrowserHangs, "the browser hangs: " + what}
}

// reading is what a browser had in memory at a time.
type reading struct {
	at   boottime.Instant
	used uint64
}

// excess is how long a browser has been above its limit. The zero value is not at
// all.
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

// verdict is the ailment of a browser that takes too much, or nil.
func (e excess) verdict(limit uint64) *ailment {
	if e.readings < excessReadings || e.last.at.Sub(e.since) < excessFor {
		return nil
	}
	return &ailment{reasonBrowserMemory, fmt.Sprintf("the browser took too much memory: %s for %v, its limit is %s", humanize.IBytes(e.last.used), excessFor, humanize.IBytes(limit))}
}

// oomKilled is the ailment of a browser of which the kernel killed a process.
func oomKilled(limit uint64) *ailment {
	return &ailment{reasonBrowserMemory, fmt.Sprintf("the browser took too much memory: the kernel killed one of its processes at its limit of %s", humanize.IBytes(limit))}
}

// share is what one process of a browser has in memory.
type share struct {
	PID   int    `json:"pid"`
	Bytes uint64 `json:"bytes"`
	// How is "pss" or, where the kernel shows no more, "private".
	How string `json:"how"`
}

// memoryOf adds up what processes have in memory, no page twice. Where all of their
// resident pages together are below enough, it leaves it at their sum, which is more
// than they have and costs next to nothing; how is "rss" then.
func memoryOf(ps []procfs.Process, enough uint64) (used uint64, how string, shares []share) {
	found := map[int]procfs.Memory{}
	for _, p := range ps {
		if m, err := procfs.ReadMemory(p.PID); err == nil {
			found[p.PID] = m
			used += m.Resident
		}
	}
	if used <= enough {
		return used, "rss", nil
	}
	used, how = 0, "pss"
	var common uint64
	for _, p := range ps {
		m, ok := found[p.PID]
		if !ok {
			continue // it has ended
		}
		one := share{PID: p.PID, How: "pss"}
		var err error
		if one.Bytes, err = procfs.Proportional(p.PID); err != nil {
			// What is shared counts once: with the process that has most of it.
			one.Bytes, one.How, how = m.Resident-min(m.Resident, m.Shared), "private", "private"
			common = max(common, m.Shared)
		}
		used += one.Bytes
		shares = append(shares, one)
	}
	slices.SortFunc(shares, func(a, b share) int { return int(int64(b.Bytes) - int64(a.Bytes)) })
	return used + common, how, shares
}

// vitals are the signs of life of one browser.
type vitals struct {
	browser *chrome.Browser
	mux     *cdpproxy.Mux
	ctx     context.Context // of the browser's being driven
	dumps   string          // the folder of its minidumps; empty: not known

	// sick is closed when the browser has to be given up; ill says why, then.
	sick chan struct{}
	ill  *ailment

	// Of the one who looks:
	silent silence
	above  excess
	next   boottime.Instant // when to ask again

	mu    sync.Mutex
	asked bool
	limit uint64 // bytes; 0: none
	shown memoryShown
}

// memoryShown is the last reading of a browser's memory, for the evidence.
type memoryShown struct {
	LimitBytes uint64     `json:"limit_bytes"`
	UsedBytes  uint64     `json:"used_bytes"`
	How        string     `json:"how"`
	At         *time.Time `json:"at"`
	Processes  []share    `json:"processes,omitempty"`
}

func newVitals(ctx context.Context, b *chrome.Browser, m *cdpproxy.Mux, dumps string) *vitals {
	return &vitals{browser: b, mux: m, ctx: ctx, dumps: dumps, sick: make(chan struct{})}
}

// bound sets the browser's limit.
func (v *vitals) bound(limit uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.limit = limit
}

func (v *vitals) limited() uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.limit
}

// fail gives the browser up. It is called by the one who looks only.
func (v *vitals) fail(a *ailment) {
	if a != nil && v.ill == nil {
		v.ill = a
		close(v.sick)
	}
}

// ailing is why the browser has to be given up; empty where it has not.
func (b *live) ailing() string {
	if b.vitals == nil {
		return ""
	}
	select {
	case <-b.vitals.sick:
		return b.vitals.ill.told
	default:
		return ""
	}
}

// look looks once, and asks where it is time to.
func (v *vitals) look(now boottime.Instant, bound time.Duration, ask func(func())) {
	v.mu.Lock()
	asked := v.asked
	due := !asked && now >= v.next
	v.asked = asked || due
	v.mu.Unlock()
	if due {
		v.next = now.Add(min(askEvery, bound))
		ask(v.ask)
	}
	if !asked {
		v.silent = silence{}
		return
	}
	behind, reads := v.mux.Behind(), v.mux.Reads()
	threads, err := procfs.Threads(v.browser.PID())
	if err != nil {
		return // it ends, which others notice
	}
	tree, err := v.browser.Processes()
	l := lookAt(threads, tree)
	l.at, l.behind, l.reads = now, behind, reads
	l.working = l.working || err != nil
	v.silent = v.silent.next(l)
	v.fail(v.silent.verdict(bound))
}

// ask asks the browser for what its main thread alone can answer, and returns when
// it has, or is gone.
func (v *vitals) ask() {
	var version struct{}
	err := v.mux.Call(v.ctx, "Browser.getVersion", nil, &version)
	if err != nil && (v.ctx.Err() != nil || errors.Is(err, cdpproxy.ErrBrowserGone)) {
		return // nobody will ask again
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.asked = false
}

// weigh reads the browser's memory, among all processes of the host.
func (v *vitals) weigh(now boottime.Instant, all []procfs.Process) {
	limit := v.limited()
	if limit == 0 {
		return
	}
	shown := memoryShown{LimitBytes: limit}
	threshold := limit
	if g := v.browser.Group(); g != nil {
		u := g.Usage()
		if u.OOMKills != nil && *u.OOMKills > 0 {
			v.fail(oomKilled(limit))
		}
		if u.Memory != nil {
			// The kernel lets it hardly any further: what is left up to the limit is
			// for its evidence.
			threshold = (cgroup.Limits{Memory: limit}).Beyond()
			shown.UsedBytes, shown.How = *u.Memory, "cgroup"
		}
	}
	if shown.How == "" {
		shown.UsedBytes, shown.How, shown.Processes = memoryOf(v.browser.Among(all), limit)
	}
	at := time.Now().UTC()
	shown.At = &at
	v.above = v.above.next(threshold, reading{now, shown.UsedBytes})
	v.mu.Lock()
	v.shown = shown
	v.mu.Unlock()
	v.fail(v.above.verdict(limit))
}

// seen is the last reading.
func (v *vitals) seen() memoryShown {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.shown
}

// watchBrowsers looks at every browser of the host until the launcher ends.
func (l *Launcher) watchBrowsers() {
	every := time.NewTicker(lookEvery)
	defer every.Stop()
	var due boottime.Instant
	for {
		select {
		case <-every.C:
		case <-l.ctx.Done():
			return
		}
		l.mu.Lock()
		driven := make([]*vitals, 0, len(l.driven))
		limited := false
		for v := range l.driven {
			driven = append(driven, v)
			limited = limited || v.limited() > 0
		}
		l.mu.Unlock()
		for _, v := range driven {
			if err := trimDumps(v.dumps); err != nil {
				l.o.Log.Warn().Err(err).Msg("crash dumps are not bounded")
			}
		}
		if l.o.HangTimeout > 0 {
			for _, v := range driven {
				v.look(boottime.Now(), l.o.HangTimeout, l.work.Go)
			}
		}
		now := boottime.Now()
		if !limited || now < due {
			continue
		}
		all, err := procfs.List()
		if err != nil {
			l.o.Log.Warn().Err(err).Msg("the browsers' memory cannot be read")
			continue
		}
		for _, v := range driven {
			v.weigh(now, all)
		}
		took := boottime.Now().Sub(now)
		due = now.Add(restOfReading * took)
	}
}

// drivenBy has a browser looked at, until the returned function is called.
func (l *Launcher) drivenBy(v *vitals) (stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.driven == nil { // the guard's, which looks at none
		l.driven = map[*vitals]bool{}
	}
	l.driven[v] = true
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.driven, v)
	}
}

// maxProcesses is how many processes and threads a browser's group may have: far more
// than forty tabs take, and less than what a host falls over from.
const maxProcesses = 8192

// groupTimeout bounds how long the crash handlers of a browser that has ended may
// take.
const groupTimeout = 3 * time.Second

// group makes the control group of a session's browser; nil where there are none, or
// nothing is to be limited.
func (l *Launcher) group(sessionID string, limit uint64) (*cgroup.Group, error) {
	if l.o.Groups == nil || limit == 0 && l.o.CPUWeight == 0 {
		return nil, nil
	}
	return l.o.Groups.Create(sessionID, cgroup.Limits{Memory: limit, Processes: maxProcesses, Weight: l.o.CPUWeight})
}

// memoryLimit is the limit of a profile's browser: the host's, which the profile's own
// record may lower.
func memoryLimit(host, profile uint64) uint64 {
	if host == 0 || profile == 0 {
		return max(host, profile)
	}
	return min(host, profile)
}
