package recovery_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"leasehold/checkpoint"
	"leasehold/evidence"
	"leasehold/internal/test/fakechrome"
	"leasehold/launcher/browser"
	"leasehold/launcher/profiledir"
	. "leasehold/launcher/recovery"
	"leasehold/launcher/sessionfile"
	"leasehold/launcher/witness"
	"leasehold/lease"
)

// fault is what goes wrong with a write, or at one.
type fault string

const (
	none       fault = ""
	refused    fault = "refused"         // it is not done
	unanswered fault = "unanswered"      // it is done, and nobody says so
	away       fault = "all from here"   // nothing can be written any more
	dies       fault = "the end"         // the launcher is killed before it
	diesAfter  fault = "the end, behind" // and here right behind it
)

// faults make one thing go wrong. Writes are counted, and what is logged besides: there
// a launcher can be killed, too.
type faults struct {
	kind   fault
	at     int // one-based; zero: nothing goes wrong
	passed int
}

// killed is what a launcher that is killed panics with.
type killed struct{}

// write is one write of anything anywhere.
func (f *faults) write(do func() error) error {
	f.passed++
	here := f.passed == f.at
	switch {
	case here && f.kind == dies:
		panic(killed{})
	case here && f.kind == refused, f.kind == away && f.passed >= f.at:
		return errFault
	}
	err := do()
	switch {
	case here && f.kind == diesAfter:
		panic(killed{})
	case here && f.kind == unanswered:
		return errFault
	}
	return err
}

// pass is a point at which nothing is written.
func (f *faults) pass() {
	switch f.kind {
	case none, dies:
		f.passed++
		if f.kind == dies && f.passed == f.at {
			panic(killed{})
		}
	}
}

// TestEveryFaultIsGoneOnFrom: whatever goes wrong at whichever point, another try, here
// or by the next launcher, comes to the end that there would have been, or to a person.
func TestEveryFaultIsGoneOnFrom(t *testing.T) {
	t.Parallel()
	lost := func(w *world) {
		_, err := w.r.Run(w.caseOf(Recover))
		w.ended(err)
	}
	for _, tt := range []struct {
		name  string
		kinds []fault
		play  func(w *world)
		want  lease.State
	}{
		{"lost", []fault{refused, unanswered, dies, diesAfter}, lost, lease.Available},
		{"lost, to be resumed", []fault{dies}, func(w *world) { w.resumable = true; lost(w) }, lease.ResumePending},
		{"released", []fault{unanswered, dies}, func(w *world) {
			e, err := w.r.Run(w.caseOf(Release))
			w.must(w.files.Save(e.File))
			w.ended(err)
		}, lease.Available},
		{"released, left open", []fault{unanswered, away, dies, diesAfter}, func(w *world) {
			c := w.caseOf(Release)
			c.LeaveOpen = func() bool { return true }
			e, err := w.r.Run(c)
			w.must(w.files.Save(e.File))
			w.ended(err)
		}, lease.Available},
		{"one run lost, the other released", []fault{unanswered, dies}, func(w *world) {
			w.join()
			e, err := w.r.Run(w.caseOf(EndRun))
			w.must(w.files.Save(e.File))
			c := w.caseOf(Release)
			c.File.SessionID, c.File.Token = "ses_2", token+1
			if e.Lost || err != nil {
				c.Lost = []sessionfile.LostRun{{File: e.File}}
			}
			e, err = w.r.Run(c)
			w.must(w.files.Save(e.File))
			w.ended(err)
		}, lease.Available},
		{"closed only", []fault{unanswered, dies}, func(w *world) {
			w.restate(func(r lease.Record) (lease.Record, error) {
				r.State = lease.Available
				return r, nil
			})
			w.must(w.lock.RaiseFloor(w.leases.record()))
			_, err := w.r.Run(w.caseOf(CloseOnly))
			w.ended(err)
		}, lease.Available},
	} {
		t.Run(tt.name, func(t *testing.T) {
			run := func(t *testing.T, kind fault, at int) int {
				w := newWorld(t)
				w.open(fakechrome.Script{})
				w.faults = faults{kind: kind, at: at}
				died := w.plays(tt.play)
				passed := w.faults.passed
				w.faults = faults{}
				if died || w.failed {
					w.goesOn()
				}
				if state := w.leases.record().State; state != tt.want && (state != lease.ManualReview || at == 0) {
					t.Errorf("%s, want %s", state, tt.want)
				}
				w.checkEnd(died || w.failed)
				return passed
			}
			points := map[fault]int{}
			for _, kind := range []fault{unanswered, none} { // the latter counts what is logged, too
				points[kind] = run(t, kind, 0)
			}
			for _, kind := range tt.kinds {
				n := points[unanswered]
				if kind == dies {
					n = points[none]
				}
				for at := 1; at <= n; at++ {
					t.Run(fmt.Sprint(kind, " ", at), func(t *testing.T) {
						t.Parallel()
						if passed := run(t, kind, at); passed < at {
							t.Errorf("%d of %d points were passed: the test tests nothing", passed, at)
						}
					})
				}
			}
		})
	}
}

// plays tells whether the launcher was killed.
func (w *world) plays(play func(*world)) (died bool) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case killed:
			died = true
		default:
			panic(r)
		}
	}()
	play(w)
	return false
}

// ended takes what a launcher was told.
func (w *world) ended(err error) {
	w.failed = err != nil
	if err != nil && w.faults.kind == none {
		w.t.Error(err)
	}
}

// join has a second run join the session.
func (w *world) join() {
	w.restate(func(r lease.Record) (lease.Record, error) {
		r.MaxActiveRuns = 2
		return r.Grant(lease.Request{SessionID: "ses_2", WorkerID: "worker-8", TaskID: "task_102", LauncherID: launcher, TTL: time.Minute}, time.Now())
	})
	w.must(w.lock.RaiseFloor(w.leases.record()))
	f := w.file()
	f.SessionID, f.Token = "ses_2", token+1
	w.must(w.files.Save(f))
}

// goesOn has launchers go on until one comes to the end. A process that another test is starting has the
// profile's lock until its exec, however long that takes: then the next one tries, as it does after a fault.
func (w *world) goesOn() {
	w.t.Helper()
	err := w.again()
	for deadline := time.Now().Add(time.Minute); errors.Is(err, profiledir.ErrLocked) && time.Now().Before(deadline); err = w.again() {
	}
	w.must(err)
}

// again goes on from what is stored, as a launcher does that finds it.
func (w *world) again() error {
	if !w.gone() {
		w.must(w.browser.Detach()) // the launcher's end of the pipe ends with it
	}
	w.must(w.lock.Unlock())
	left := w.adoptBrowser()
	r := w.leases.record()
	c := w.caseOf(Recover)
	c.Browser = witness.Of(left)
	switch {
	case !r.Unfinished() && left == nil:
		return w.lock.ClearRunning()
	case !r.Unfinished():
		c.Goal, c.File, c.Sealed = CloseOnly, sessionfile.File{}, nil
		c.Bundle = func() *evidence.Bundle { return w.bundle(sessionfile.File{Token: r.Token}) }
	default:
		c.File = w.left(r.SessionID, left)
		c.Bundle = func() *evidence.Bundle { return w.bundle(c.File) }
		for _, run := range slices.Concat(r.LostRuns, r.Runs) {
			if run.SessionID != r.SessionID {
				c.Lost = append(c.Lost, sessionfile.LostRun{File: w.left(run.SessionID, left)})
			}
		}
		if c.File.InOrder && r.State == lease.Held && len(c.Lost) == 0 && left == nil {
			c.Goal = Release
		}
	}
	if _, err := w.r.Run(c); err != nil {
		return err
	}
	return w.lock.ClearRunning()
}

// adoptBrowser takes the profile's lock, and with it the browser, if that still lives. A process that another
// test is starting has the lock as well, until its exec.
func (w *world) adoptBrowser() *browser.Browser {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		lock, err := w.root.Lock(profile)
		if err == nil {
			w.lock = lock
			return nil
		}
		if !errors.Is(err, profiledir.ErrLocked) {
			w.t.Fatal(err)
		}
		lock, err = w.root.Adopt(profile)
		if errors.Is(err, profiledir.ErrUnlocked) || errors.Is(err, profiledir.ErrLocked) {
			continue
		}
		w.must(err)
		running, noted, err := w.root.Running(profile)
		w.must(err)
		if noted {
			if b := w.driver.Adopt(running, w.path, lease.Appearance{}, func(checkpoint.Entry) {}, w.log); b != nil {
				w.lock, w.browser = lock, b
				return b
			}
		}
		w.must(lock.Unlock())
	}
	w.t.Fatal("the profile's lock stays with somebody, and no browser that is noted can be adopted")
	return nil
}

// left is the file of a session that no launcher has any more.
func (w *world) left(id string, b *browser.Browser) sessionfile.File {
	f, err := w.files.Read(id)
	w.must(err)
	f.Unseen = f.Unseen || b != nil || f.CloseMethod == ""
	return f
}

// checkEnd checks what every end leaves: one whole chain of evidence, the floor and the
// record as the store has it, and a profile that the next task can have.
func (w *world) checkEnd(again bool) {
	w.t.Helper()
	r := w.leases.record()
	if r.EvidenceID != "" { // of a browser that was only closed, the name may be missing
		report, err := evidence.Verify(w.t.Context(), w.archive, profile, evidence.Link{EvidenceID: r.EvidenceID, SHA256: r.EvidenceSHA256})
		if err != nil || len(report.Findings) > 0 {
			w.t.Errorf("the evidence: %+v, %v", report, err)
		}
	}
	floor, kept, err := w.root.Kept(profile)
	if err != nil || floor != r.Token || kept.State != r.State && w.faults.at == 0 && !again {
		w.t.Errorf("the floor is %d, with a record that is %s, %v; the store has %d, %s", floor, kept.State, err, r.Token, r.State)
	}
	if forgot, _, err := w.r.Forgot(r); forgot || err != nil {
		w.t.Errorf("the store seems to forget: %v", err)
	}
	if !w.gone() {
		if again {
			w.t.Error("a browser is left")
		}
		return
	}
	w.must(w.lock.Unlock())
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		locked, err := w.root.Locked(profile)
		w.must(err)
		if !locked {
			return
		}
		if time.Now().After(deadline) { // longer than another test takes to start a process
			w.t.Fatal("the profile is locked")
		}
	}
}
