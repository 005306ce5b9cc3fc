// Package slots knows what this host is at work on: which profiles are occupied and
// by what, which browsers wait without a session for the next task of their profile,
// and how many browsers the host may run.
package slots

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"leasehold/checkpoint"
	"leasehold/launcher/browser"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/proxies"
	"leasehold/launcher/sessionfile"
	"leasehold/lease"
)

// State is what a profile's slot is doing.
type State string

// The states. A profile that has no slot is vacant.
const (
	vacant State = ""
	// Opening: somebody prepares the profile, for a grant or a command.
	Opening State = "opening"
	// Serving: runs are using the profile's browser.
	Serving State = "serving"
	// Ending: the end of the last run has begun, and nobody joins any more.
	Ending State = "ending"
	// Warm: the browser waits, without a session, for the profile's next task.
	Warm State = "warm"
	// Cooling: a browser without a session is being closed. Who wants the profile
	// waits for that.
	Cooling State = "cooling"
	// Recovering: a profile that an earlier launcher left is being recovered.
	Recovering State = "recovering"
)

// transitions are the states that may follow each state.
var transitions = map[State][]State{
	vacant:     {Opening},
	Opening:    {Serving, Warm, Cooling, Recovering, vacant},
	Serving:    {Serving, Ending},
	Ending:     {Warm, vacant},
	Warm:       {Opening, Cooling},
	Cooling:    {Serving, Warm, vacant},
	Recovering: {Serving, Warm, vacant},
}

// Run is a session that uses a slot's browser.
type Run interface {
	Token() lease.Token
	// Note puts what was seen in the browser into the run's journal.
	Note(checkpoint.Entry)
	// See takes in what the store shows of the profile's lease.
	See(lease.Record)
}

// Options are what a Table works with.
type Options struct {
	Root    *profiledir.Root
	Jar     sessionfile.Jar
	DataDir string
	// MaxBrowsers is how many browsers the host may run; zero: no limit.
	MaxBrowsers int
	// MinFreeDisk is the space, in bytes, below which no browser is started; zero:
	// no bound.
	MinFreeDisk uint64
	// KeepWarmIdle is how long a browser stays open for the next task of its profile,
	// and KeepWarmMax how many do; zero: none.
	KeepWarmIdle time.Duration
	KeepWarmMax  int
	// KeepWarmMinMemory is how many bytes of memory are to stay available beside such
	// browsers; zero: memory is not watched.
	KeepWarmMinMemory uint64

	Log     zerolog.Logger
	Metrics prometheus.Registerer
}

// Table has the slots of one host. Its methods may be called concurrently.
type Table struct {
	o          Options
	ctx        context.Context
	work       *sync.WaitGroup
	warmCloses *prometheus.CounterVec // by reason

	mu       sync.Mutex
	draining bool
	slots    map[string]*Slot // by profile
	places   places
	changed  chan struct{} // closed and replaced whenever a profile or a place may have become free
}

// NewTable returns a table whose goroutines run until ctx ends, counted in work.
func NewTable(ctx context.Context, work *sync.WaitGroup, o Options) *Table {
	t := &Table{
		o: o, ctx: ctx, work: work, slots: map[string]*Slot{}, places: places{max: o.MaxBrowsers}, changed: make(chan struct{}),
		warmCloses: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "leasehold_warm_closes_total", Help: "Warm browsers that were closed, by why."}, []string{"why"}),
	}
	o.Metrics.MustRegister(append(t.gauges(), t.warmCloses)...)
	return t
}

// Slot is a profile that this host is at work on. Whoever occupies it may do
// everything with the profile; methods may be called concurrently.
type Slot struct {
	t       *Table
	profile string
	// gate has room for the one run that comes or goes.
	gate chan struct{}

	// Guarded by the table's mutex:
	state State
	// settled is closed when Cooling ends.
	settled chan struct{}
	runs    []Run
	// starting is the run whose journal has what is seen before any run is entered.
	starting Run
	lost     []sessionfile.LostRun
	lock     *profiledir.Lock
	browser  *browser.Browser
	// placed is since when the browser takes a place on this host; zero: it does not.
	placed time.Time
	// fit is what the browser was started with; nil: that is not known here.
	fit *Fit
	// startedFor is the session that the browser was started for, whose output file is
	// the browser's.
	startedFor string
	// warm is not nil while no session has the browser.
	warm *warm

	proxy *proxies.Proxy // nil: none
	relay *proxies.Relay // the way to a proxy that wants credentials; nil: none
}

// enter changes what the slot is doing. It is the only place where that changes. The
// caller holds the table's mutex.
func (s *Slot) enter(to State) {
	if !slices.Contains(transitions[s.state], to) {
		panic("slot of " + s.profile + ": " + string(s.state) + " to " + string(to))
	}
	if s.state == Cooling {
		close(s.settled)
	}
	t := s.t
	switch s.state = to; to {
	case Cooling:
		s.settled = make(chan struct{})
	case Warm:
		s.placed = s.warm.since
		t.wake()
		t.watchWarm(s)
	case vacant:
		if s.browser != nil && !s.placed.IsZero() {
			t.places.observe(time.Since(s.placed))
		}
		delete(t.slots, s.profile)
		t.wake()
	}
}

// Occupy reserves a profile; never while the host drains. It is nil where somebody
// else has the profile. A warm browser comes with it.
func (t *Table) Occupy(profile string) *Slot {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.draining {
		return nil
	}
	s := t.slots[profile]
	switch {
	case s == nil:
		s = &Slot{t: t, profile: profile, gate: make(chan struct{}, 1)}
		t.slots[profile] = s
	case s.state == Warm:
		close(s.warm.taken)
	default:
		return nil
	}
	s.enter(Opening)
	return s
}

// OccupyNext is Occupy, after the end of a browser without a session that is being
// closed.
func (t *Table) OccupyNext(ctx context.Context, profile string) *Slot {
	ctx, cancel := context.WithTimeout(ctx, coolingTimeout)
	defer cancel()
	for {
		if s := t.Occupy(profile); s != nil {
			return s
		}
		t.mu.Lock()
		var settled chan struct{}
		if s := t.slots[profile]; s != nil && s.state == Cooling && !t.draining {
			settled = s.settled
		}
		t.mu.Unlock()
		if settled == nil {
			return nil
		}
		select {
		case <-settled:
		case <-ctx.Done():
			return nil
		}
	}
}

// coolingTimeout bounds how long OccupyNext waits.
const coolingTimeout = 30 * time.Second

// OccupyCold is OccupyNext for one who wants no browser on the profile: a warm one is
// closed first.
func (t *Table) OccupyCold(profile string) *Slot {
	s := t.OccupyNext(context.Background(), profile)
	if s != nil {
		s.Cool(WarmWanted, "")
	}
	return s
}

// Vacate gives the slot up, and wakes those who wait for the profile. A warm browser
// that came with it, and was neither used nor closed, stays warm.
func (s *Slot) Vacate() {
	s.t.mu.Lock()
	if s.warm != nil {
		s.warm = s.warm.again()
		s.enter(Warm)
		s.t.mu.Unlock()
		return
	}
	s.t.mu.Unlock()
	s.closeRelay()
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	s.enter(vacant)
}

// Recovers says that the occupied profile is being recovered.
func (s *Slot) Recovers() { s.entering(Recovering) }

// Cools says that whoever wants the occupied profile may have it in a moment.
func (s *Slot) Cools() { s.entering(Cooling) }

func (s *Slot) entering(to State) {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	s.enter(to)
}

// State is what the slot is doing.
func (s *Slot) State() State {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	return s.state
}

// Find returns the slot of a profile that is not vacant, or nil.
func (t *Table) Find(profile string) *Slot {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.slots[profile]
}

// Drain ends the granting of profiles, and closes warm browsers. It returns how many
// profiles this host is still at work on, and a channel that is closed when that may
// have changed.
func (t *Table) Drain() (busy int, changed <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.draining = true
	for _, s := range t.slots {
		if s.state == Warm {
			t.coolLater(s, WarmShutdown, "")
		}
	}
	return len(t.slots), t.changed
}

// Draining tells whether Drain was called.
func (t *Table) Draining() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.draining
}

// Changed is closed when a profile or a place may have become free.
func (t *Table) Changed() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.changed
}

// Wake lets those who wait on Changed look again.
func (t *Table) Wake() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wake()
}

// wake is Wake. The caller holds t.mu.
func (t *Table) wake() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// Tell passes a record on to the runs of its profile here, and tells whether there are
// any.
func (t *Table) Tell(r lease.Record) bool {
	runs := t.runsOf(r.ProfileID)
	for _, run := range runs {
		run.See(r)
	}
	return len(runs) > 0
}

// Serves tells whether runs here have the profile, and the record agrees.
func (t *Table) Serves(r lease.Record) bool {
	runs := t.runsOf(r.ProfileID)
	return len(runs) > 0 && !slices.ContainsFunc(runs, func(run Run) bool { return r.Standing(run.Token()) != lease.Current })
}

func (t *Table) runsOf(profile string) []Run {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.slots[profile]; s != nil {
		return slices.Clone(s.runs)
	}
	return nil
}
