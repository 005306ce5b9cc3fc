package adopt

import (
	"testing"
	"time"

	"leasehold/checkpoint"
	"leasehold/lease"
)

// TestWhatALauncherLeftWarm tells a browser that no session had from one in use.
func TestWhatALauncherLeftWarm(t *testing.T) {
	now := time.Now()
	held, err := lease.Record{ProfileID: "p"}.Grant(lease.Request{SessionID: "ses", WorkerID: "w", TaskID: "t", LauncherID: "l", TTL: time.Minute}, now)
	if err != nil {
		t.Fatal(err)
	}
	released, err := held.Release("released", "succeeded", lease.Sealed{EvidenceID: "ev"}, now)
	if err != nil {
		t.Fatal(err)
	}
	blind := released
	blind.EvidenceID = ""
	for name, tt := range map[string]struct {
		kept lease.Record
		warm bool
	}{
		"nothing was kept":            {lease.Record{}, false},
		"held":                        {held, false},
		"released":                    {released, true},
		"released, without evidence":  {blind, false},
		"with a person":               {lease.Record{State: lease.ManualReview, EvidenceID: "ev"}, false},
		"kept for a task to go on on": {lease.Record{State: lease.ResumePending, EvidenceID: "ev"}, false},
	} {
		if got := leftWarm(tt.kept); got != tt.warm {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestEntriesArePassedOn(t *testing.T) {
	var b entryBuffer
	b.add(checkpoint.Entry{Seq: 1})
	b.add(checkpoint.Entry{Seq: 2})
	var got []uint64
	b.passTo(func(e checkpoint.Entry) { got = append(got, e.Seq) })
	b.add(checkpoint.Entry{Seq: 3})
	if len(got) != 3 || got[0] != 1 || got[1] != 2 || got[2] != 3 {
		t.Errorf("passed on: %v", got)
	}
}
