package slots

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"leasehold/checkpoint"
	"leasehold/launcher/sessionfile"
	"leasehold/lease"
)

// TestWhatASlotMayDo tries everything in every state: what does not belong there breaks the
// slot, and nobody else gets it.
func TestWhatASlotMayDo(t *testing.T) {
	t.Parallel()
	table := newTable(t, Options{})
	one := &run{}
	reach := map[State]func(profile string) *Slot{
		Opening:    table.Occupy,
		Serving:    func(profile string) *Slot { s := table.Occupy(profile); s.Enter(one); return s },
		Ending:     func(profile string) *Slot { s := table.Occupy(profile); s.Enter(one); s.Leave(one); return s },
		Closing:    table.OccupyPassing,
		Recovering: func(profile string) *Slot { s := table.Occupy(profile); s.Recovers(); return s },
	}
	for _, tt := range []struct {
		name string
		do   func(*Slot)
		to   State
		in   []State // where it may be done
	}{
		{"enter", func(s *Slot) { s.Enter(&run{}) }, Serving, []State{Opening, Serving, Closing, Recovering}},
		{"leave", func(s *Slot) { s.Leave(one) }, Ending, []State{Serving}},
		{"recover", (*Slot).Recovers, Recovering, []State{Opening, Closing}},
		{"vacate", (*Slot).Vacate, vacant, []State{Opening, Ending, Closing, Recovering}},
		{"end", (*Slot).End, vacant, []State{Opening, Ending, Closing, Recovering}},
	} {
		for from, slot := range reach {
			s := slot(fmt.Sprint(tt.name, "_", from))
			tt.do(s)
			want := Broken
			if slices.Contains(tt.in, from) {
				want = tt.to
			}
			if s.State() != want {
				t.Errorf("%s in %s: it is %q; want %q", tt.name, from, s.State(), want)
			}
			if want == Broken {
				if tt.do(s); s.State() != Broken {
					t.Errorf("%s in %s, twice: it is %q", tt.name, from, s.State())
				}
			}
			if found := table.Find(s.Profile()); (found == nil) != (s.State() == vacant) {
				t.Errorf("%s in %s: it is %q, and the table has %v", tt.name, from, s.State(), found)
			}
			if is := s.State(); (table.Occupy(s.Profile()) != nil) != (is == vacant) {
				t.Errorf("%s in %s: somebody else occupies what is %q", tt.name, from, is)
			}
		}
	}
}

// TestOneOccupantAtATime has several goroutines want the same profiles and go all ways
// through the states. None ever meets another, and none waits for ever.
func TestOneOccupantAtATime(t *testing.T) {
	t.Parallel()
	type visit struct {
		profile string
		way     string
		pauses  []time.Duration
	}
	ways := map[string]func(s *Slot, pause func()){
		"vacate":       func(*Slot, func()) {},
		"close":        func(s *Slot, pause func()) { s.entering(Closing); pause() },
		"recover":      func(s *Slot, pause func()) { s.Recovers(); pause() },
		"serve":        serveTwo,
		"close, serve": func(s *Slot, pause func()) { s.entering(Closing); pause(); serveTwo(s, pause) },
		"recover, run": func(s *Slot, pause func()) { s.Recovers(); pause(); serveTwo(s, pause) },
	}
	var names []string
	for name := range ways {
		names = append(names, name)
	}
	slices.Sort(names)
	visits := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) visit {
		return visit{
			rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "profile"), rapid.SampledFrom(names).Draw(t, "way"),
			rapid.SliceOfN(rapid.Map(rapid.IntRange(0, 3), func(n int) time.Duration { return time.Duration(n) * time.Second }), 4, 4).Draw(t, "pauses"),
		}
	}), 1, 8)
	rapid.Check(t, func(rt *rapid.T) {
		scripts := rapid.SliceOfN(visits, 2, 5).Draw(rt, "scripts")
		var problems sync.Map
		synctest.Test(t, func(t *testing.T) {
			table := newTable(t, Options{})
			occupants := map[string]*atomic.Int32{"a": {}, "b": {}, "c": {}}
			var all sync.WaitGroup
			for n, script := range scripts {
				all.Go(func() {
					defer func() {
						if p := recover(); p != nil {
							problems.Store(n, p)
						}
					}()
					for _, v := range script {
						s := next(t.Context(), table, v.profile)
						if s == nil {
							problems.Store(n, "waited for ever for "+v.profile)
							return
						}
						if others := occupants[v.profile].Add(1); others != 1 || s.State() != Opening || s.Profile() != v.profile {
							problems.Store(n, fmt.Sprintf("%d occupy %s, which is %s", others, v.profile, s.State()))
						}
						turn := 0
						ways[v.way](s, func() { time.Sleep(v.pauses[turn%4]); turn++ })
						occupants[v.profile].Add(-1)
						s.End()
					}
				})
			}
			all.Wait()
			if busy, _ := table.Drain(); busy != 0 {
				problems.Store("end", fmt.Sprintf("%d profiles are left occupied", busy))
			}
		})
		problems.Range(func(who, problem any) bool {
			rt.Errorf("%v: %v", who, problem)
			return true
		})
	})
}

// serveTwo has one run join another.
func serveTwo(s *Slot, pause func()) {
	first, second := &run{token: 1}, &run{token: 2}
	s.Enter(first)
	pause()
	s.LockRuns()
	s.Enter(second)
	s.UnlockRuns()
	pause()
	if s.Leave(first) || !s.Leave(second) {
		panic("the last of two runs is not the last")
	}
	pause()
}

// next waits for a profile as a request does: by who vacates it, never by asking again
// and again. It is nil after a day.
func next(ctx context.Context, table *Table, profile string) *Slot {
	patience := time.After(24 * time.Hour)
	for {
		changed := table.Changed()
		if s := table.OccupyNext(ctx, profile, nil); s != nil {
			return s
		}
		select {
		case <-changed:
		case <-patience:
			return nil
		}
	}
}

// TestWaitingForABrowserThatIsClosed: who wants the profile waits for the end of that, of a recovery or of
// a last run, and for nothing else.
func TestWaitingForABrowserThatIsClosed(t *testing.T) {
	const soon = 3 * time.Second
	closes := func(s *Slot) { s.entering(Closing) }
	for _, tt := range []struct {
		name  string
		state func(s *Slot)
		then  func(s *Slot, table *Table, cancel func())
		got   bool
		after time.Duration
	}{
		{"it ends", closes, func(s *Slot, _ *Table, _ func()) { s.Vacate() }, true, soon},
		{"a session goes on with it", closes, func(s *Slot, _ *Table, _ func()) { s.Enter(&run{}) }, false, soon},
		{"the host drains", closes, func(s *Slot, table *Table, _ func()) { table.Drain(); s.Vacate() }, false, soon},
		{"who asks goes away", closes, func(_ *Slot, _ *Table, cancel func()) { cancel() }, false, soon},
		{"it does not end", closes, func(*Slot, *Table, func()) {}, false, passingTimeout},
		{"the last run ends", func(s *Slot) { one := &run{}; s.Enter(one); s.Leave(one) }, func(s *Slot, _ *Table, _ func()) { s.Vacate() }, true, soon},
		{"it is being opened", func(*Slot) {}, func(s *Slot, _ *Table, _ func()) { s.Vacate() }, false, 0},
		{"its recovery ends", (*Slot).Recovers, func(s *Slot, _ *Table, _ func()) { s.Vacate() }, true, soon},
		{"its session is resumed", (*Slot).Recovers, func(s *Slot, _ *Table, _ func()) { s.Enter(&run{}) }, false, soon},
		{"it serves", func(s *Slot) { s.Enter(&run{}) }, func(*Slot, *Table, func()) {}, false, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table := newTable(t, Options{})
				ctx, cancel := context.WithCancel(t.Context())
				s := table.Occupy("p")
				tt.state(s)
				done := make(chan struct{})
				go func() {
					defer close(done)
					time.Sleep(soon)
					tt.then(s, table, cancel)
				}()
				begun := time.Now()
				got := table.OccupyNext(ctx, "p", nil)
				if took := time.Since(begun); (got != nil) != tt.got || took != tt.after {
					t.Errorf("%v after %v, want %v after %v", got, took, tt.got, tt.after)
				}
				<-done
				cancel()
			})
		})
	}
}

// TestRunsOfASlot: what is seen in the browser goes to all of its runs, and nobody joins
// after one was lost.
func TestRunsOfASlot(t *testing.T) {
	t.Parallel()
	h := newHost(t, Options{})
	s := h.table.Occupy("p")
	early, one, two := &run{token: 6}, &run{token: 7}, &run{token: 8}
	see := func(name string) { s.Note(checkpoint.Entry{Kind: checkpoint.KindURL, Name: name}) }
	see("before anybody")
	s.Starting(early)
	see("a")
	if s.Joinable() || h.table.Tell(lease.Record{ProfileID: "p"}) || h.table.Serves(lease.Record{ProfileID: "p"}) {
		t.Error("a profile that is being opened has runs")
	}
	s.Enter(one)
	if s.Joinable() {
		t.Error("joined without a browser")
	}
	h.start(s, "ses_1")
	see("b")
	if !s.Joinable() || s.Shared(one) || s.StartedFor() != "ses_1" {
		t.Errorf("one run: joinable %v, shared %v, started for %q", s.Joinable(), s.Shared(one), s.StartedFor())
	}
	s.Enter(two)
	see("c")
	record := lease.Record{ProfileID: "p", Token: 8, State: lease.Held, Runs: []lease.Run{{Token: 7}, {Token: 8}}}
	record.MaxActiveRuns = 2
	if !s.Shared(one) || !h.table.Tell(record) || !h.table.Serves(record) {
		t.Error("two runs are not there")
	}
	over := record
	over.Runs = record.Runs[1:]
	if h.table.Serves(over) {
		t.Error("the record knows nothing of one run, and all is well")
	}
	if h.table.Tell(lease.Record{ProfileID: "other"}) || h.table.Serves(lease.Record{ProfileID: "other"}) {
		t.Error("another profile has runs")
	}
	if s.Leave(one) || s.State() != Serving {
		t.Errorf("one of two left, and it is %s", s.State())
	}
	s.Lose(sessionfile.LostRun{File: sessionfile.File{SessionID: "ses_1"}})
	if lost := s.Lost(); s.Joinable() || len(lost) != 1 || lost[0].File.SessionID != "ses_1" {
		t.Errorf("after a loss: joinable %v, lost %v", s.Joinable(), lost)
	}
	see("d")
	if !s.Leave(two) || s.State() != Ending || s.Joinable() {
		t.Errorf("the last left, and it is %s", s.State())
	}
	see("e") // what the pages do at the end
	h.close(s)
	s.End()
	see("after everybody")
	for r, want := range map[*run]string{early: "[a]", one: "[b c]", two: "[c d e]"} {
		if got := r.String(); got != want && r != early || r == early && got != "[a after everybody]" {
			t.Errorf("run %d noted %s, want %s", r.token, got, want)
		}
	}
	if !slices.Equal(one.seen, []lease.Token{8}) || !slices.Equal(two.seen, []lease.Token{8}) || early.seen != nil {
		t.Errorf("told of tokens %v, %v, %v", early.seen, one.seen, two.seen)
	}
}

// TestOnlyOneRunComesOrGoes at a time.
func TestOnlyOneRunComesOrGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTable(t, Options{}).Occupy("p")
		if !s.TryLockRuns(time.Second) {
			t.Fatal("refused, although nobody has it")
		}
		begun := time.Now()
		if s.TryLockRuns(5*time.Second) || time.Since(begun) != 5*time.Second {
			t.Errorf("passed, or refused after %v", time.Since(begun))
		}
		time.AfterFunc(2*time.Second, s.UnlockRuns)
		if !s.TryLockRuns(5 * time.Second) {
			t.Error("refused, although it was free in time")
		}
		time.AfterFunc(2*time.Second, s.UnlockRuns)
		s.LockRuns()
		s.UnlockRuns()
	})
}

// TestADrainingHostGrantsNothing, and tells when it is done.
func TestADrainingHostGrantsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTable(t, Options{})
		one, two := table.Occupy("one"), table.Occupy("two")
		busy, changed := table.Drain()
		if busy != 2 || !table.Draining() || table.Occupy("three") != nil || table.OccupyCold("one") != nil {
			t.Errorf("%d busy, draining %v", busy, table.Draining())
		}
		for left, s := range []*Slot{two, one} {
			time.AfterFunc(time.Second, s.Vacate)
			<-changed
			if busy, changed = table.Drain(); busy != 1-left {
				t.Errorf("%d busy, want %d", busy, 1-left)
			}
		}
		if again := table.Changed(); again == nil {
			t.Error("nobody can wait")
		}
		table.Wake()
		<-changed
	})
}

// TestAProfileIsTakenForAMoment: whoever wants it from then on waits, and is not refused.
func TestAProfileIsTakenForAMoment(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		table := newTable(t, Options{})
		taken := table.OccupyPassing("p")
		if again := table.OccupyPassing("p"); again != nil {
			t.Error("it is taken twice")
		}
		time.AfterFunc(time.Second, taken.Vacate)
		got := table.OccupyNext(t.Context(), "p", nil)
		if got == nil {
			t.Fatal("who wants it is refused")
		}
		if table.OccupyPassing("p") != nil || table.OccupyVacant("p") != nil {
			t.Error("it is taken from who has it")
		}
		got.Vacate()
	})
}
