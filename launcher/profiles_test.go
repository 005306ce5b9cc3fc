package launcher

import (
	"fmt"
	"testing"

	"leasehold/evidence"
	"leasehold/lease"
)

func TestHistoryReachesToTheState(t *testing.T) {
	granted := lease.Event{Event: "granted", Token: 1, Sequence: 1}
	conflict := lease.Event{Event: lease.EventConflict, Token: 1}
	released := lease.Event{Event: "released", Token: 1, Sequence: 2}
	again := lease.Event{Event: "granted", Token: 2, Sequence: 3}
	for _, tt := range []struct{ stream, outbox, want []lease.Event }{
		{nil, nil, nil},
		{nil, []lease.Event{granted}, []lease.Event{granted}},
		{[]lease.Event{granted, conflict}, nil, []lease.Event{granted, conflict}},
		{[]lease.Event{granted, conflict}, []lease.Event{granted, released, again}, []lease.Event{granted, conflict, released, again}},
		{[]lease.Event{granted, released, again}, []lease.Event{released, again}, []lease.Event{granted, released, again}},
	} {
		if got := withOutbox(tt.stream, tt.outbox); fmt.Sprint(got) != fmt.Sprint(tt.want) {
			t.Errorf("stream %v, outbox %v: %v, want %v", tt.stream, tt.outbox, got, tt.want)
		}
	}
}

// What a holder that was fenced stored too late counts for nothing.
func TestAcceptedPictures(t *testing.T) {
	bundle := evidence.Manifest{EvidenceID: "ev", SessionID: "ses_1", Pictures: []evidence.Picture{{EvidenceID: "named"}}}
	picture := func(id, session string) evidence.Manifest {
		return evidence.Manifest{EvidenceID: id, SessionID: session, RecoveryReason: evidence.PictureReason}
	}
	for _, c := range []struct {
		state lease.State
		want  string
	}{
		{lease.Held, "ev named living run"},
		{lease.SuspectedStale, "ev named living run"},
		{lease.Quarantined, "ev named living run"},
		{lease.ManualReview, "ev named"},
		{lease.Available, "ev named"},
		{lease.ResumePending, "ev named"},
	} {
		r := lease.Record{State: c.state, SessionID: "ses_2", Runs: []lease.Run{{SessionID: "ses_3"}}}
		got := ""
		for _, m := range accepted([]evidence.Manifest{
			bundle, picture("named", "ses_1"), picture("late", "ses_1"), picture("living", "ses_2"), picture("run", "ses_3"),
		}, r) {
			got += m.EvidenceID + " "
		}
		if got != c.want+" " {
			t.Errorf("%s: %s, want %s", c.state, got, c.want)
		}
	}
}
