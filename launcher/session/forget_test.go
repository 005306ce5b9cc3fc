package session

import (
	"fmt"
	"os"
	"testing"
	"time"

	"leasehold/launcher/sessionfile"
	"leasehold/lease"
)

// over is the file of a session that is over, the nth that began.
func over(n int, change ...func(*sessionfile.File)) sessionfile.File {
	change = append(change, ended("lost"), func(f *sessionfile.File) { f.AcquiredAt = time.Unix(int64(n), 0).UTC() })
	return known(fmt.Sprintf("ses_%04d", n), "p", "one", change...)
}

func ofReader(f *sessionfile.File) { f.Manifest.Ephemeral = true }

// TestReadersPushNoOtherSessionOut: ephemeral sessions that are over have a bound of their own.
func TestReadersPushNoOtherSessionOut(t *testing.T) {
	h, dir, _ := hostWith(t, over(0))
	for n := 1; n <= 2*maxEnded; n++ {
		if err := h.keep(over(n, ofReader)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := dir.Read("ses_0000"); err != nil {
		t.Errorf("the file of a session with a lease is gone: %v", err)
	}
	if _, known := h.File("ses_0000"); !known {
		t.Error("a session with a lease is forgotten")
	}
	if n := len(h.ended); n > maxEnded+1 {
		t.Errorf("%d sessions that are over are remembered", n)
	}
	if _, known := h.File(over(2 * maxEnded).SessionID); !known {
		t.Error("the last ephemeral session is forgotten")
	}
}

// TestWhatIsNotDecidedIsNotForgotten: the files of sessions stay that a record names about which somebody has
// yet to decide, and all of them while not all records are known.
func TestWhatIsNotDecidedIsNotForgotten(t *testing.T) {
	h, dir, _ := hostWith(t)
	for n := range maxEnded {
		f := over(n)
		h.ended[f.SessionID] = f
	}
	for n := range 9 {
		if err := os.WriteFile(dir.Journal(over(n).SessionID), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	named := func(n int, state lease.State) lease.Record {
		return lease.Record{ProfileID: fmt.Sprint("p", n), State: state, SessionID: over(n).SessionID}
	}
	run := func(n int) []lease.Run { return []lease.Run{{SessionID: over(n).SessionID}} }
	runs, byHand := named(4, lease.Held), named(6, lease.Held)
	runs.LostRuns = run(5)
	byHand.ByHand = &lease.ByHand{Review: &lease.OpenReview{SessionID: over(7).SessionID, LostRuns: run(8)}}
	records, complete := []lease.Record{
		named(0, lease.Available), named(1, lease.ManualReview), named(2, lease.ResumePending), named(3, lease.Quarantined), runs, byHand,
	}, false
	h.o.Records = func() ([]lease.Record, bool) { return records, complete }
	kept := func() (n int) {
		for n := range 9 {
			_, err := os.Stat(dir.Journal(over(n).SessionID))
			if _, known := h.File(over(n).SessionID); known != (err == nil) || known != (n > 0 || !complete) {
				t.Errorf("all records known: %v: session %d is remembered: %v, its journal: %v", complete, n, known, err)
			}
		}
		return len(h.ended)
	}
	for n := maxEnded; n < maxEnded+2; n++ {
		if err := h.Remember(over(n)); err != nil {
			t.Fatal(err)
		}
		kept()
		complete = true
	}
	if n := kept(); n != maxEnded+2-maxEnded/10 {
		t.Errorf("%d are remembered", n)
	}
}
