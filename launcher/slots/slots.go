// Package slots keeps the slots of this host: which profiles are occupied and for what,
// and which browsers wait without a session for the next task of their profile. It also
// limits how many browsers the host runs, and has the queue for a place.
package slots

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"leasehold/checkpoint"
	"leasehold/internal/durable"
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
	// Ending: the end of the last run has begun, and nobody can join any more. A caller that
	// may have the profile by its record waits until that is over.
	Ending State = "ending"
	// Warm: the browser waits without a session for the profile's next task.
	Warm State = "warm"
	// Closing: a browser without a session is being closed, or something else is done with
	// the profile that takes a moment. Requests for the profile wait until it is over.
	Closing State = "closing"
	// Recovering: a profile that an earlier launcher left is being recovered.
	Recovering State = "recovering"
	// Broken: an error of the program would have led to a state that may not follow. Nobody
	// gets the profile here until the sidecar is started again. What already uses it goes on,
	// under its lease.
	Broken State = "broken"
)

// transitions has the states that may follow each state.
var transitions = map[State][]State{
	vacant:     {Opening},
	Opening:    {Serving, Warm, Closing, Recovering, vacant},
	Serving:    {Serving, Ending},
	Ending:     {Warm, vacant},
	Warm:       {Opening, Closing},
	Closing:    {Serving, Warm, Recovering, vacant},
	Recovering: {Serving, Warm, vacant},
}

// Run is a session that uses a slot's browser.
type Run interface {
	Token() lease.Token
	// Note writes an entry about the browser into the run's journal.
	Note(checkpoint.Entry)
	// Observe shows the run the profile's record as the store has it.
	Observe(lease.Record)
}

// Options configure a Table.
type Options struct {
	Root    *profiledir.Root
	Jar     sessionfile.Jar
	DataDir string
	// MaxBrowsers is how many browsers the host may run; zero means no limit.
	MaxBrowsers int
	// MinFreeDisk is the free space, in bytes, below which no browser is started; zero
	// means no bound.
	MinFreeDisk uint64
	// Dirs are the directories in which a session writes. Ready returns why it would lack
	// something else on this host; nil: there is nothing else.
	Dirs  []string
	Ready func() error
	// KeepWarmIdle is how long a browser stays open for the next task of its profile,
	// and KeepWarmMax how many browsers may do so; zero means none.
	KeepWarmIdle time.Duration
	KeepWarmMax  int
	// KeepWarmMinMemory is how many bytes of memory have to stay available beside such
	// browsers; zero means that memory is not watched.
	KeepWarmMinMemory uint64

	Log     zerolog.Logger
	Metrics prometheus.Registerer
}

// Table has the slots of one host. Its methods are safe for concurrent use.
type Table struct {
	o          Options
	ctx        context.Context
	work       *sync.WaitGroup
	warmCloses *prometheus.CounterVec // by reason

	vacated  func(profile string) // nil: nobody is told
	preserve Preserve             // nil: nobody does

	mu       sync.Mutex
	draining bool
	slots    map[string]*Slot // by profile
	// vacancies are those who look at vacant profiles: see WhileVacant.
	vacancies map[string]map[*vacancy]bool
	places    places
	disks     durable.Calls // on the disks of Dirs
	changed   chan struct{} // closed and replaced whenever a profile or a place may have become free
}

// NewTable returns a table whose goroutines run until ctx ends. They are counted in
// work.
func NewTable(ctx context.Context, work *sync.WaitGroup, o Options) *Table {
	t := &Table{
		o: o, ctx: ctx, work: work, slots: map[string]*Slot{}, vacancies: map[string]map[*vacancy]bool{}, places: places{max: o.MaxBrowsers}, disks: durable.NewCalls(), changed: make(chan struct{}),
		warmCloses: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "leasehold_warm_closes_total", Help: "Warm browsers that were closed, by why."}, []string{"why"}),
	}
	o.Metrics.MustRegister(append(t.gauges(), t.warmCloses)...)
	return t
}

// OnVacated has told called when a profile became vacant, with the table locked: it must not wait, nor
// call the table. It is called once, before any slot is occupied.
func (t *Table) OnVacated(told func(profile string)) { t.vacated = told }

// PreserveBy has store keep evidence of warm browsers, where it is needed. It is called once, before any
// slot is occupied.
func (t *Table) PreserveBy(store Preserve) { t.preserve = store }

// Slot is a profile that this host is working on. Whoever occupies it may do everything
// with the profile. Its methods are safe for concurrent use.
type Slot struct {
	t       *Table
	profile string
	// ephemeral says that the slot is a session's own, on a copy, and of no profile.
	ephemeral bool
	// runsLock has room for one value: only one run at a time may be added or removed.
	runsLock chan struct{}

	// The table's mutex guards these.
	state State
	// passed is closed when the state ends, if that is one of those that OccupyNext waits
	// for: Ending, Closing and Recovering.
	passed chan struct{}
	// wanted says that somebody waits for that.
	wanted bool
	runs   []Run
	// starting is the run whose journal gets the entries before any run is entered.
	starting Run
	lost     []sessionfile.LostRun
	lock     *profiledir.Lock
	browser  *browser.Browser
	// placed says that the browser has a place on this host.
	placed bool
	// refused says that there was no place for it.
	refused bool
	// fit is what the browser was started with; nil if that is not known.
	fit *Fit
	// startedFor is the session that the browser was started for, whose output file is
	// the browser's.
	startedFor string
	// warm is set while no session has the browser.
	warm *warm

	proxy *proxies.Proxy // nil: none
	relay *proxies.Relay // relays to a proxy that requires credentials; nil for none
}

// enter changes the slot's state. No other function does. A state that may not follow breaks the
// slot, and only that: the other sessions of the host are not to end for it. The caller holds the
// table's mutex.
func (s *Slot) enter(to State) {
	if !slices.Contains(transitions[s.state], to) {
		if s.state != Broken {
			s.t.o.Log.Error().Str("profile", s.profile).Str("from", string(s.state)).Str("to", string(to)).
				Msg("the slot of this profile is broken, which is an error in this program: report it, and restart the sidecar to use the profile here")
		}
		to = Broken
	}
	if s.passed != nil {
		close(s.passed)
		s.passed = nil
	}
	if to == Ending || to == Closing || to == Recovering {
		s.passed = make(chan struct{})
	}
	t := s.t
	switch s.state = to; to {
	case Warm:
		s.placed = true
		t.wake()
		t.watchWarm(s)
	case Broken:
		t.wake() // a drain does not wait for it
	case vacant:
		delete(t.slots, s.profile)
		if !s.refused || t.draining { // else no place is free by that, and who got none would try again at once
			t.wake()
		}
		if t.vacated != nil && !s.ephemeral {
			t.vacated(s.profile)
		}
	}
}

// Occupy reserves a profile, with its warm browser if it has one. It returns nil if the
// profile is occupied, or if the host drains.
func (t *Table) Occupy(profile string) *Slot {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.occupy(profile)
}

// occupy is Occupy. t.mu is held.
func (t *Table) occupy(profile string) *Slot {
	if t.draining {
		return nil
	}
	s := t.slots[profile]
	switch {
	case s == nil:
		s = t.take(profile)
	case s.state == Warm:
		close(s.warm.taken)
	default:
		return nil
	}
	s.enter(Opening)
	return s
}

// take makes the slot of a vacant profile. t.mu is held.
func (t *Table) take(profile string) *Slot {
	s := &Slot{t: t, profile: profile, runsLock: make(chan struct{}, 1)}
	t.slots[profile] = s
	t.endVacancy(profile)
	return s
}

// OccupyPassing is Occupy for a moment: OccupyNext waits for the profile instead of refusing it.
func (t *Table) OccupyPassing(profile string) *Slot {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.occupyPassing(profile)
}

// OccupyVacant is OccupyPassing, and returns nil for a profile with a warm browser, too.
func (t *Table) OccupyVacant(profile string) *Slot {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.slots[profile] != nil {
		return nil
	}
	return t.occupyPassing(profile)
}

// occupyPassing is OccupyPassing. t.mu is held.
func (t *Table) occupyPassing(profile string) *Slot {
	s := t.occupy(profile)
	if s != nil {
		s.enter(Closing)
	}
	return s
}

// OccupyEphemeral makes the slot of a session that has a copy of a profile for itself: it
// takes a place on this host, and nobody can find it by the profile. It is nil if the host
// drains.
func (t *Table) OccupyEphemeral(sessionID string) *Slot {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.draining {
		return nil
	}
	name := ":" + sessionID // no profile is called so
	s := &Slot{t: t, profile: name, ephemeral: true, runsLock: make(chan struct{}, 1)}
	t.slots[name] = s
	s.enter(Opening)
	return s
}

// OccupyNext is Occupy, but first waits for the end of a last run, of a recovery, or of a browser that is
// being closed without a session. Its callers know from the profile's record that no lease
// is held: the run has released its own, or the recovery has decided, and has only its files to remove. A request that
// waits for a place delays nobody while it waits for that; w is nil where there is none.
func (t *Table) OccupyNext(ctx context.Context, profile string, w *Waiter) *Slot {
	ctx, cancel := context.WithTimeout(ctx, passingTimeout)
	defer cancel()
	for {
		if s := t.Occupy(profile); s != nil {
			return s
		}
		t.mu.Lock()
		var passed chan struct{}
		if s := t.slots[profile]; s != nil && !t.draining {
			passed = s.passed
		}
		if passed != nil {
			t.slots[profile].wanted = true
			t.endVacancy(profile)
			if w != nil {
				t.lets(w)
			}
		}
		t.mu.Unlock()
		if passed == nil {
			return nil
		}
		select {
		case <-passed:
		case <-ctx.Done():
			return nil
		}
	}
}

// passingTimeout is how long OccupyNext waits.
const passingTimeout = 30 * time.Second

// OccupyCold is OccupyNext, and also closes a warm browser, for callers that need the
// profile without a browser.
func (t *Table) OccupyCold(profile string) *Slot {
	s := t.OccupyNext(context.Background(), profile, nil)
	if s != nil {
		s.CloseWarm(WarmWanted, "")
	}
	return s
}

// Vacate gives the slot up, and wakes those who wait for the profile. A warm browser
// that was occupied with it, and neither used nor closed, stays warm.
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

// Recovers enters the state Recovering: the occupied profile is being recovered.
func (s *Slot) Recovers() { s.entering(Recovering) }

func (s *Slot) entering(to State) {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	s.enter(to)
}

// State returns the slot's state.
func (s *Slot) State() State {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	return s.state
}

// Find returns the slot of a profile, or nil if the profile is vacant.
func (t *Table) Find(profile string) *Slot {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.slots[profile]
}

// Drain makes Occupy refuse from now on, and closes warm browsers. It returns how many
// slots are still in use, but for broken ones, and a channel that is closed when that may have
// changed.
func (t *Table) Drain() (busy int, changed <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.draining = true
	for _, s := range t.slots {
		if s.state == Warm {
			t.closeWarmLater(s, WarmShutdown, "")
		}
	}
	for _, s := range t.slots {
		if s.state != Broken {
			busy++
		}
		t.endVacancy(s.profile)
	}
	return busy, t.changed
}

// Draining tells whether Drain was called.
func (t *Table) Draining() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.draining
}

// Changed returns a channel that is closed when a profile or a place may have become
// free.
func (t *Table) Changed() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.changed
}

// Wake closes the channel of Changed, so that those who wait check again.
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

// Tell passes a record on to this host's runs of its profile. It is false if there are
// none.
func (t *Table) Tell(r lease.Record) bool {
	runs := t.runsOf(r.ProfileID)
	for _, run := range runs {
		run.Observe(r)
	}
	return len(runs) > 0
}

// Serves tells whether this host has runs of the record's profile, and all of them are
// current by the record.
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
