package lease

import (
	"testing"
	"time"
)

// TestHowFarAFloorMayBeBehind: what the home's own death, and a quarantine by another
// launcher, leave; nothing else.
func TestHowFarAFloorMayBeBehind(t *testing.T) {
	approved := func(r Record) Record {
		r.Review = &Review{Decision: ReviewApprove}
		return r
	}
	kept := func(r Record) Record {
		r.Review = &Review{Decision: ReviewKeep}
		return r
	}
	for _, tt := range []struct {
		name   string
		record Record
		most   Token // how far the floor may be below the record's token
	}{
		{"no record", Record{}, 0},
		{"held: killed between the grant and the floor", Record{State: Held}, 1},
		{"suspected: that, and somebody saw it", Record{State: SuspectedStale}, 1},
		{"quarantined: that, and somebody quarantined it", Record{State: Quarantined}, 2},
		{"inspected: that, by an earlier version", Record{State: Inspected}, 2},
		{"with a person: that, and the home did not come back", Record{State: ManualReview}, 2},
		{"with a person who kept it", kept(Record{State: ManualReview}), 2},
		{"free: the grant was taken back before the floor", Record{State: Available}, 1},
		{"free by a person: after a quarantine by somebody else", approved(Record{State: Available}), 2},
		{"free, and a person had kept it: not by that person", kept(Record{State: Available}), 1},
		{"to be resumed: the home decided so, with the floor", Record{State: ResumePending, RecoveryStartedAt: time.Now()}, 0},
		{"to be resumed again: the grant was taken back before the floor", Record{State: ResumePending}, 1},
	} {
		for _, floor := range []Token{0, 1, 7, 1 << 40} {
			for gap := range Token(5) {
				r := tt.record
				r.Token = floor + gap
				if got := r.ExplainsFloor(floor, Record{Token: floor}); got != (gap <= tt.most) {
					t.Errorf("%s, %d above the floor %d: %v", tt.name, gap, floor, got)
				}
			}
			if r := tt.record; floor > 0 { // the store forgot, which Heal is for
				r.Token = floor - 1
				if !r.ExplainsFloor(floor, Record{Token: floor}) {
					t.Errorf("%s, below the floor %d", tt.name, floor)
				}
			}
		}
	}
}

// TestTheFloorsOfACrashAreExplained goes the ways by which a floor stays behind, with the
// rules themselves.
func TestTheFloorsOfACrashAreExplained(t *testing.T) {
	now := time.Now()
	step := func(r Record, err error) Record {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	explained := func(r Record) Record {
		t.Helper()
		if !r.ExplainsFloor(7, Record{ProfileID: "p", State: Available, Token: 7}) {
			t.Errorf("%s with token %d is not explained", r.State, r.Token)
		}
		return r
	}
	free := Record{ProfileID: "p", State: Available, Token: 7}
	granted := explained(step(free.Grant(Request{SessionID: "s", LauncherID: "home", Floor: 7}, now)))
	explained(step(granted.Release("browser_start_failed", "", Sealed{}, now)))
	waits := free
	waits.State, waits.ResumeFrom, waits.TaskID = ResumePending, "order", "t"
	resumed := step(waits.Grant(Request{SessionID: "s", TaskID: "t", LauncherID: "home", Floor: 7}, now))
	explained(step(resumed.Unserved("browser_start_failed", Sealed{EvidenceID: "ev"}, 0, now)))
	suspected := explained(step(granted.Suspect("lease_expired", Sealed{}, now)))
	quarantined := explained(step(suspected.Quarantine(0, now)))
	review := explained(step(quarantined.Abandon(nil, Sealed{}, now)))
	explained(step(review.Reviewed(Review{Decision: ReviewKeep, TokenSeen: 9}, 0, now)))
	approved := explained(step(review.Reviewed(Review{Decision: ReviewApprove, TokenSeen: 9}, 0, now)))
	// The next grant is not made before the floor followed.
	if next := step(approved.Grant(Request{SessionID: "t", LauncherID: "home", Floor: 7}, now)); next.ExplainsFloor(7, free) || !next.ExplainsFloor(9, approved) {
		t.Errorf("held with token %d", next.Token)
	}
}

// A session that served under the floor may be quarantined by another launcher, or by its own one
// that is killed before it has raised the floor. What it did meanwhile is no sign that the floor was
// put back; what a later session did is.
func TestTheFloorOfALostSessionIsExplained(t *testing.T) {
	now := time.Now()
	own, err := Record{ProfileID: "p", State: Available, Token: 6}.Grant(Request{SessionID: "s", LauncherID: "home", Floor: 6}, now)
	if err != nil {
		t.Fatal(err)
	}
	served := own
	served.LastKnownURL, served.LastKnownStep = "https://b.example/", "pay"
	lost, err := served.Suspect("heartbeat_timeout", Sealed{EvidenceID: "ev"}, now)
	if err != nil {
		t.Fatal(err)
	}
	if lost, err = lost.Quarantine(0, now); err != nil {
		t.Fatal(err)
	}
	abandoned, err := lost.Abandon(nil, Sealed{}, now)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []Record{lost, abandoned} {
		if !r.ExplainsFloor(7, own) {
			t.Errorf("%s with token %d is not explained", r.State, r.Token)
		}
		r.SessionID = "another"
		if r.ExplainsFloor(7, own) {
			t.Errorf("%s, of a later session, is explained", r.State)
		}
	}
}

// A floor that is behind a session that served was put back, however little it is behind: the
// floor is raised before a worker is served.
func TestNoFloorIsBehindASessionThatServed(t *testing.T) {
	now := time.Now()
	own := Record{ProfileID: "p", State: Available, Token: 7, EvidenceID: "ev_7", LastKnownURL: "https://a.example/", LastKnownStep: "done"}
	granted, err := own.Grant(Request{SessionID: "s", LauncherID: "home", Floor: 7}, now)
	if err != nil {
		t.Fatal(err)
	}
	released, err := granted.Release("released", "succeeded", Sealed{EvidenceID: "ev_8"}, now)
	if err != nil {
		t.Fatal(err)
	}
	atAnotherPage, atAStep := granted, granted
	atAnotherPage.LastKnownURL, atAStep.LastKnownStep = "https://b.example/", "pay"
	for _, tt := range []struct {
		name      string
		record    Record
		own       Record
		explained bool
	}{
		{"granted", granted, own, true},
		{"released at the same page, with evidence", released, own, false},
		{"at another page", atAnotherPage, own, false},
		{"at a step", atAStep, own, false},
		{"nothing was kept with the floor", released, Record{}, true},
	} {
		if got := tt.record.ExplainsFloor(7, tt.own); got != tt.explained {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
	first := Record{ProfileID: "q", State: Available, Token: 1, EvidenceID: "ev_1"}
	if first.ExplainsFloor(0, Record{}) {
		t.Error("the floor of a first session is gone, and that is explained")
	}
}

// A record that a person has to decide about for this reason is not distrusted a second time,
// unless somebody claims a higher token.
func TestADistrustIsSaidOnce(t *testing.T) {
	for _, from := range []State{"", Available, Held, ResumePending} {
		r, err := Record{ProfileID: "p", State: from, Token: 7}.Distrust(ReasonRolledBack, 3, 0, time.Now())
		if err != nil || !r.Distrusts(8) || r.Distrusts(9) {
			t.Errorf("%q: %+v, %v", from, r, err)
		}
		r.State = Available // a person approved
		if r.Distrusts(0) {
			t.Error("what a person made free is not asked about again")
		}
	}
}

// TestADistrustIsAboveAllThatAnybodyNames, from every state, with all that the record has.
func TestADistrustIsAboveAllThatAnybodyNames(t *testing.T) {
	for _, from := range []State{"", Available, Held, SuspectedStale, Quarantined, Inspected, ResumePending, ManualReview} {
		for _, tt := range []struct{ token, floor, want Token }{{7, 3, 8}, {7, 7, 8}, {7, 50, 51}, {0, 0, 1}} {
			r := Record{ProfileID: "p", State: from, Token: tt.token, SessionID: "s", AccountID: "a", Sequence: 4}
			got, err := r.Distrust(ReasonNotAuthentic, tt.floor, 9, time.Now())
			if err != nil || got.State != Quarantined || got.Token != tt.want || got.Reason != ReasonNotAuthentic || got.AccountID != "a" || got.SessionID != "s" {
				t.Errorf("%q: %+v, %v", from, got, err)
			}
			if len(got.Outbox) == 0 || got.Outbox[0].Sequence != 10 || got.Outbox[0].Reason != ReasonNotAuthentic || got.Outbox[0].Token != tt.want {
				t.Errorf("%q: %+v", from, got.Outbox)
			}
		}
	}
}
