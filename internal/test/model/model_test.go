package model

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scenario is a kind of world. The rules have to hold in it for so many steps altogether, and
// in each world for so many.
type scenario struct {
	steps, each int
	world       func(o *Options)
}

var scenarios = map[string]scenario{
	// Each profile is on the disk of one host. The kernel's lock and the floor guard it.
	"local": {600_000, 50_000, func(*Options) {}},
	// Directories that two hosts share, without locks: only waiting times guard them.
	// A launcher that is killed or paused leaves a browser behind that no waiting time
	// ends, and nothing is promised for that case. A host that dies takes its browsers
	// along.
	"shared": {300_000, 50_000, share},
	// The same at its limits: clock rates at both ends of what is allowed, and observers
	// that act as soon as they may.
	"sharp": {500_000, 50_000, func(o *Options) { sharpen(o, map[Fault]time.Duration{Partition: 50 * time.Second}) }},
	// The same, and answers that come late or never.
	"stormy": {800_000, 50_000, func(o *Options) {
		sharpen(o, map[Fault]time.Duration{Partition: 50 * time.Second, Storm: time.Minute})
	}},
	// A store that loses what it acknowledged while hosts come and go.
	"back": {500_000, 50_000, func(o *Options) {
		o.Hosts, o.Profiles, o.Cuts = 2, 2, [2]time.Duration{5 * time.Second, 30 * time.Second}
		o.Faults = map[Fault]time.Duration{Partition: 30 * time.Second, Lost: 2 * time.Minute}
	}},
	// Shared profiles that never had a lease, and a store that is wiped.
	"first": {300_000, 3_000, func(o *Options) {
		share(o)
		o.Profiles = 20
		o.Faults[Wiped], o.Faults[Lost] = 30*time.Second, 30*time.Second
	}},
	// The same, with first grants on both hosts at once while the store is wiped.
	"race": {1_000_000, 2_000, func(o *Options) {
		share(o)
		o.Hosts, o.Profiles = 2, 30
		o.Faults = map[Fault]time.Duration{Wiped: 5 * time.Minute}
	}},
}

func share(o *Options) {
	o.Shared = true
	delete(o.Faults, Crash)
	delete(o.Faults, Pause)
	delete(o.Faults, Freeze)
	o.Faults[Reboot] = 5 * time.Minute
}

func sharpen(o *Options, faults map[Fault]time.Duration) {
	o.Shared, o.Sharp, o.Hosts, o.Profiles, o.StaleReads, o.Late = true, true, 2, 2, 0, 0
	o.Faults, o.Cuts = faults, [2]time.Duration{o.TTL, 2 * o.TTL}
}

// world returns the nth world of a scenario. MODEL_SEED is added to all seeds.
func world(t *testing.T, name string, n int) Options {
	shift, err := strconv.ParseUint("0"+os.Getenv("MODEL_SEED"), 10, 63)
	if err != nil {
		t.Fatalf("MODEL_SEED: %v", err)
	}
	o := Options{
		Seed: shift + uint64(n), Steps: scenarios[name].each, Hosts: 3, Profiles: 4, TTL: 30 * time.Second, Patrol: 5 * time.Second,
		Drift: 1e-3, Loss: 0.01, StaleReads: 0.05, Late: 0.01, Cuts: [2]time.Duration{0, 90 * time.Second},
		Faults: map[Fault]time.Duration{
			Crash: 4 * time.Minute, Reboot: 20 * time.Minute, Pause: 4 * time.Minute, Freeze: 6 * time.Minute, WallJump: 3 * time.Minute,
			Partition: 4 * time.Minute, Away: 10 * time.Minute, Restart: 10 * time.Minute, Lost: 6 * time.Minute, Back: 15 * time.Minute,
			Wiped: 20 * time.Minute, Storm: 8 * time.Minute,
		},
	}
	scenarios[name].world(&o)
	return o
}

// slower is by what factor fewer steps are run.
var slower = 1

// budget returns the number of steps of a scenario. MODEL_TIMES multiplies it for a long run.
func budget(t *testing.T, name string) int {
	times := 1
	if s := os.Getenv("MODEL_TIMES"); s != "" {
		var err error
		if times, err = strconv.Atoi(s); err != nil || times < 1 {
			t.Fatalf("MODEL_TIMES %q: want a number of 1 or more", s)
		}
	}
	return times * scenarios[name].steps / slower
}

// TestTheRulesHold runs more than a million steps. A failure names its seed.
func TestTheRulesHold(t *testing.T) {
	for name := range scenarios {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			steps, virtual, counts := 0, time.Duration(0), map[string]int{}
			for n := 0; steps < budget(t, name); n++ {
				o := world(t, name, n)
				r := Run(o)
				if v := r.Violation; v != nil {
					t.Fatalf("seed %d: %s", o.Seed, explain(o, v))
				}
				steps += r.Steps
				virtual += r.Virtual
				for kind, n := range r.Counts {
					counts[kind] += n
				}
			}
			t.Logf("seeds from %d: %d steps, %.0f virtual hours: %v", world(t, name, 0).Seed, steps, virtual.Hours(), counts)
			for _, kind := range []string{"grants", "browsers started", "writes", "transitions", "presences written"} {
				if counts[kind] == 0 {
					t.Errorf("no %s: nothing was tested", kind)
				}
			}
			for kind := range world(t, name, 0).Kinds() {
				if counts[string(kind)] == 0 {
					t.Errorf("fault %q never happened", kind)
				}
			}
		})
	}
}

// explain describes the smallest world that breaks the same rule.
func explain(o Options, v *Violation) string {
	small, found := Shrink(o, v.Rule)
	if found == nil {
		small, found = o, v
	}
	return fmt.Sprintf("after %d steps: %s: %s\nthe smallest like it (seed %d, %d hosts, %d profiles, faults %v) after %d steps: %s\n%s",
		v.Step, v.Rule, v.Why, small.Seed, small.Hosts, small.Profiles, small.Kinds(), found.Step, found.Why, strings.Join(found.Trace[max(0, len(found.Trace)-60):], "\n"))
}

// mutants leave out one rule each. A check of one of the given rules has to catch each of
// them, in a world in which nothing is broken with all rules in place.
var mutants = []struct {
	name, scenario string
	within         int // steps
	by             []string
	change         func(o *Options)
}{
	{name: "no token floor", scenario: "local", within: 300_000, by: []string{TokensGrow}},
	{name: "no kernel lock", scenario: "local", within: 100_000, by: []string{OneChrome}},
	{name: "heal left out", scenario: "local", within: 100_000, by: []string{Inspected}},
	{name: "quarantine leaves the token as it is", scenario: "local", within: 20_000, by: []string{StaleWrites}},
	{name: "the wall clock for the deadline", scenario: "local", within: 600_000, by: []string{StopsFirst, StaleWrites}},
	{name: "no fence in front of the browser", scenario: "local", within: 300_000, by: []string{StaleWrites}},
	{name: "act on a read without compare-and-swap", scenario: "local", within: 50_000, by: []string{TokensGrow, NothingLost, TheTable, StopsFirst, Inspected, EveryRunEnds}},
	{name: "no nonce: a time-out is a success", scenario: "local", within: 20_000, by: []string{HonestSwap}},
	{name: "no nonce: a refusal after a time-out is a loss", scenario: "local", within: 20_000, by: []string{HonestSwap}},
	{name: "no bundle stored", scenario: "local", within: 20_000, by: []string{EvidenceFirst}},
	{name: "the observer's timer not started again by a renewal", scenario: "local", within: 20_000, by: []string{StopsFirst}},
	{name: "the observer goes on where it was after a restart of the store", scenario: "back", within: 500_000, by: []string{StopsFirst}},
	{name: "the deadline counted from the answer", scenario: "stormy", within: 800_000, by: []string{StopsFirst}},
	{name: "observers wait for the TTL, without drift and slack", scenario: "sharp", within: 500_000, by: []string{StopsFirst}},
	{name: "clocks that drift by a tenth", scenario: "sharp", within: 500_000, by: []string{StopsFirst}, change: func(o *Options) { o.Drift = 0.1 }},
	{name: "no grace on shared directories", scenario: "first", within: 300_000, by: []string{OneChrome, TokensGrow, Inspected, StopsFirst}},
	{name: "the grace not looked at again after the grant", scenario: "race", within: 1_000_000, by: []string{OneChrome, TokensGrow, Inspected, StopsFirst}},
	{name: "any launcher that sees the directory heals", scenario: "shared", within: 100_000, by: []string{TheTable, StopsFirst}},
}

func TestEveryMutantIsCaught(t *testing.T) {
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			steps := 0
			for n := 0; steps < m.within; n++ {
				o := world(t, m.scenario, n)
				if o.Mutant = m.name; m.change != nil {
					o.Mutant = ""
					m.change(&o)
				}
				r := Run(o)
				steps += r.Steps
				v := r.Violation
				if v == nil {
					continue
				}
				t.Logf("%d steps (%s, seed %d): %s: %s", steps, m.scenario, o.Seed, v.Rule, v.Why)
				if !slices.Contains(m.by, v.Rule) {
					t.Errorf("caught by %q, want one of %q", v.Rule, m.by)
				}
				if whole := world(t, m.scenario, n); Run(whole).Violation != nil {
					t.Errorf("seed %d: a rule is broken in this world without the mutant, too", whole.Seed)
				}
				return
			}
			t.Errorf("not caught in %d steps", steps)
		})
	}
}

// A seed determines a world: what happened once happens again.
func TestSeedsRepeat(t *testing.T) {
	o := world(t, "local", 0)
	o.Mutant = "no kernel lock"
	o.Steps = 100_000
	first, second := Run(o), Run(o)
	if first.Violation == nil || !reflect.DeepEqual(first, second) {
		t.Fatalf("two runs of seed %d:\n%+v\n%+v", o.Seed, first, second)
	}
	small, v := Shrink(o, first.Violation.Rule)
	if v == nil || v.Rule != first.Violation.Rule || v.Step > first.Violation.Step || len(small.Kinds()) >= len(o.Kinds()) || len(v.Trace) == 0 {
		t.Fatalf("shrunk to %+v: %+v", small, v)
	}
	t.Logf("%d kinds of faults and %d steps became %d and %d: %v", len(o.Kinds()), first.Violation.Step, len(small.Kinds()), v.Step, small.Kinds())
}

// As long as the store forgets nothing, what writers believe about their swaps agrees
// with a register. Without the nonce it does not.
func TestSwapsAreThoseOfARegister(t *testing.T) {
	for mutant, want := range map[string]porcupine.CheckResult{
		"":                                  porcupine.Ok,
		"no nonce: a time-out is a success": porcupine.Illegal,
		"no nonce: a refusal after a time-out is a loss": porcupine.Illegal,
	} {
		t.Run(mutant, func(t *testing.T) {
			o := world(t, "local", 0)
			o.Mutant, o.Keep, o.Steps = mutant, true, 40_000
			for _, f := range []Fault{Lost, Back, Wiped} {
				delete(o.Faults, f)
			}
			r := Run(o)
			if mutant == "" && r.Violation != nil {
				t.Fatal(explain(o, r.Violation))
			}
			byKey, kinds := map[string][]porcupine.Operation{}, map[Outcome]int{}
			for i, s := range r.Swaps {
				kinds[s.Outcome]++
				op := porcupine.Operation{ClientId: i, Input: *s, Call: s.Call, Return: s.Return}
				if s.Outcome == Unknown {
					if s.Wrote == 0 {
						continue // it was never stored
					}
					op.Return = 1 << 62
				}
				byKey[s.Key] = append(byKey[s.Key], op)
			}
			t.Logf("%d swaps on %d keys: %d stored, %d moved, %d unknown", len(r.Swaps), len(byKey), kinds[Stored], kinds[Moved], kinds[Unknown])
			if mutant == "" && (kinds[Moved] == 0 || kinds[Unknown] == 0) {
				t.Error("no conflict, or no doubt: nothing was tested")
			}
			got := porcupine.Ok
			for key, ops := range byKey {
				if res := porcupine.CheckOperationsTimeout(register, ops, time.Minute); res != porcupine.Ok {
					got = res
					t.Logf("%s: %d swaps are %s", key, len(ops), res)
				}
			}
			if got != want {
				t.Errorf("the swaps are %s, want %s", got, want)
			}
		})
	}
}

// register is the model of one key. Its state is the current revision.
var register = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{uint64(0)} },
	Step: func(state, input, _ any) []any {
		s := input.(Swap)
		matches := state.(uint64) == s.Expected
		switch {
		case s.Outcome == Stored && matches && s.Wrote != 0:
			return []any{s.Wrote}
		case s.Outcome == Moved && !matches:
			return []any{state}
		case s.Outcome == Unknown && matches:
			return []any{s.Wrote, state}
		case s.Outcome == Unknown:
			return []any{state}
		}
		return nil
	},
}).ToModel()
