package bundles

import (
	"testing"
	"time"

	"leasehold/evidence"
	"leasehold/lease"
)

// What a holder that was fenced stored too late counts for nothing.
func TestAcceptedPictures(t *testing.T) {
	bundle := evidence.Manifest{EvidenceID: "ev", SessionID: "ses_1", Pictures: []evidence.Picture{{EvidenceID: "named"}}}
	picture := func(id, session string) evidence.Manifest {
		return evidence.Manifest{EvidenceID: id, SessionID: session, RecoveryReason: evidence.PictureReason}
	}
	lacks := bundle
	lacks.EvidenceID, lacks.Parts = "lacks", []evidence.Part{{Name: evidence.PicturesPart, Missing: "the store did not answer"}}
	for _, c := range []struct {
		state lease.State
		named evidence.Manifest // by the record
		want  string
	}{
		{lease.Held, bundle, "ev named living run"},
		{lease.SuspectedStale, bundle, "ev named living run"},
		{lease.Quarantined, bundle, "ev named living run"},
		{lease.ManualReview, bundle, "ev named"},
		{lease.ManualReview, lacks, "lacks named living run"},
		{lease.Available, lacks, "lacks named"},
		{lease.Available, bundle, "ev named"},
		{lease.ResumePending, bundle, "ev named"},
	} {
		r := lease.Record{State: c.state, SessionID: "ses_2", EvidenceID: c.named.EvidenceID, Runs: []lease.Run{{SessionID: "ses_3"}}}
		got := ""
		for _, m := range accepted([]evidence.Manifest{
			c.named, picture("named", "ses_1"), picture("late", "ses_1"), picture("living", "ses_2"), picture("run", "ses_3"),
		}, r) {
			got += m.EvidenceID + " "
		}
		if got != c.want+" " {
			t.Errorf("%s: %s, want %s", c.state, got, c.want)
		}
	}
}

// A run that was lost while another one went on has a bundle of its own. Who reviews what came of both
// reads it, however old it is by then.
func TestAReviewNeedsTheBundleOfALostRun(t *testing.T) {
	needed := func(when string, r lease.Record, want bool) {
		t.Helper()
		if of, got := needs("here", []lease.Entry{{Record: r}}).Evidence["ev_lost"]; got != want || got && of != "p" {
			t.Errorf("%s: needed: %t, want %t", when, got, want)
		}
	}
	r := lease.Record{ProfileID: "p", Home: "here", State: lease.Held, Token: 2, SessionID: "b", Runs: []lease.Run{{SessionID: "a", Token: 1}, {SessionID: "b", Token: 2}}}
	now := time.Now()
	then := func(next lease.Record, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		r = next
	}
	then(r.EndRun(1, true, "connection_lost", "", lease.Sealed{EvidenceID: "ev_lost"}, now))
	needed("while the other goes on", r, true)
	then(r.Suspect("run_lost", lease.Sealed{EvidenceID: "ev_last"}, now))
	then(r.Quarantine(0, now))
	needed("quarantined", r, true)
	then(r.Inspect(lease.Sealed{}, now))
	then(r.Decide(lease.Verdict{Decision: lease.DecisionManualReview}, now))
	needed("in review", r, true)
	then(r.Grant(lease.Request{SessionID: "c", LauncherID: "here", ByHand: &lease.ByHand{Holder: "ana"}}, now))
	needed("by hand", r, true)
	then(r.Release("released", "", lease.Sealed{EvidenceID: "ev_hand"}, now))
	needed("handed back", r, true)
	then(r.Reviewed(lease.Review{Decision: lease.ReviewApprove, TokenSeen: r.Token}, 0, now))
	needed("approved", r, false)
}
