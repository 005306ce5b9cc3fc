package bundles

import (
	"testing"

	"leasehold/evidence"
	"leasehold/lease"
)

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
