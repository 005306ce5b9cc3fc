package lease

import (
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestWhatIsRememberedJudgesARecord: a store that forgot a profile cannot give it another
// home, whatever was granted there since.
func TestWhatIsRememberedJudgesARecord(t *testing.T) {
	k := Known{ProfileID: "p", Home: "a", Token: 5, State: Held}
	for name, tt := range map[string]struct {
		k    Known
		r    Record
		want Judgement
	}{
		"nothing is remembered":             {Known{}, Record{State: Held, Home: "b", Token: 1}, Agrees},
		"as it is remembered":               {k, Record{State: Held, Home: "a", Token: 5}, Agrees},
		"further on":                        {k, Record{State: Held, Home: "a", Token: 9}, Agrees},
		"no record":                         {k, Record{}, Forgets},
		"no record of one without a lease":  {Known{Home: "a", State: Available}, Record{}, Forgets},
		"an older record":                   {k, Record{State: Available, Home: "a", Token: 4}, Forgets},
		"made anew elsewhere":               {k, Record{State: Held, Home: "b", Token: 1}, Contradicts},
		"made anew, and far on":             {k, Record{State: Held, Home: "b", Token: 50}, Contradicts},
		"made anew, of one without a lease": {Known{Home: "a", State: Available}, Record{State: Held, Home: "b", Token: 1}, Contradicts},
		"moved under a higher token":        {k, Record{State: Available, Home: "b", HomeToken: 6, Token: 6}, Agrees},
		"moved earlier than is remembered":  {k, Record{State: Available, Home: "b", HomeToken: 5, Token: 9}, Contradicts},
	} {
		if got := tt.k.Judge(tt.r); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
		if learnt := tt.k.Learn(tt.r); tt.want != Agrees && !learnt.Same(tt.k) {
			t.Errorf("%s: learnt %+v", name, learnt)
		}
	}
	free := Known{ProfileID: "p", Home: "a", Token: 5, State: Available}
	recalled := Record{ProfileID: "p", State: Quarantined, Home: "a", Token: 5, RememberedBy: "b"}
	if got := free.Learn(recalled); !got.Same(free) {
		t.Errorf("a free profile is no longer free, since somebody else did not know that: %+v", got)
	}
	if recalled.Token++; free.Learn(recalled).Token != 6 || (Known{}).Learn(recalled).Home != "a" {
		t.Error("what somebody else knew is not learnt")
	}
	if got := k.Learn(Record{ProfileID: "p", State: Held, Home: "a", Token: MaxClaim + 1}); !got.Same(k) {
		t.Errorf("a token that nobody was granted is remembered: %+v", got)
	}
	claim := k
	claim.Unproved = true
	if got := claim.Learn(Record{ProfileID: "p", State: Available, Home: "b", Token: 1}); got.Unproved || got.Home != "b" {
		t.Errorf("what nobody proved stands against the store: %+v", got)
	}
	if got := (Known{Home: "a", Token: 3}).Later(claim); got.Unproved {
		t.Errorf("what nobody proved stands against what is known: %+v", got)
	}
}

// TestARecalledProfileIsItsHomes: nobody else gets it, and the home says more, whatever it
// was doing.
func TestARecalledProfileIsItsHomes(t *testing.T) {
	own, err := Record{ProfileID: "p", Token: 4, Home: "a", AccountID: "acct"}.Grant(Request{SessionID: "s5", LauncherID: "a", PresenceEpoch: 3, TTL: time.Minute}, noon)
	if err != nil {
		t.Fatal(err)
	}
	recalled, err := Record{ProfileID: "p"}.Recall(own.Known(), "b", 0, 12, noon)
	if err != nil {
		t.Fatal(err)
	}
	if recalled.State != Quarantined || recalled.Token != 5 || recalled.Home != "a" || recalled.AccountID != "acct" || recalled.Sequence != 13 || recalled.RememberedBy != "b" {
		t.Fatalf("%+v", recalled)
	}
	if _, err := recalled.Grant(Request{SessionID: "s", LauncherID: "a"}, noon); err == nil {
		t.Error("it is granted")
	}
	// The holder is still there.
	upheld, err := recalled.Uphold(own, 5, Progress{}, noon)
	if err != nil || upheld.State != Held || upheld.RememberedBy != "" || upheld.Sequence < recalled.Sequence {
		t.Errorf("upheld: %+v, %v", upheld, err)
	}
	// The home is back without it.
	healed, err := recalled.Heal(own, 5, noon)
	if err != nil || healed.State != Quarantined || healed.Token != 6 || healed.SessionID != "s5" || healed.RememberedBy != "" || healed.Reason != ReasonRecordLost {
		t.Errorf("healed: %+v, %v", healed, err)
	}
	// It was free.
	free, err := own.Release("done", "ok", Sealed{}, noon)
	if err != nil {
		t.Fatal(err)
	}
	if healed, err = recalled.Heal(free, 5, noon); err != nil || healed.State != Available || healed.Token != 5 || healed.RememberedBy != "" {
		t.Errorf("healed: %+v, %v", healed, err)
	}
	// The home does not come back, and a person gives the profile to another launcher.
	gone, err := recalled.Abandon([]string{"gone"}, Sealed{EvidenceID: "ev_1"}, noon)
	if err != nil {
		t.Fatal(err)
	}
	given, err := gone.Reviewed(Review{Decision: ReviewApprove, Reviewer: "ann", TokenSeen: 5, Home: "b"}, 0, noon)
	if err != nil || given.State != Available || given.Home != "b" || given.Token != 6 || given.HomeToken != 6 || given.RememberedBy != "" {
		t.Fatalf("%+v, %v", given, err)
	}
	if own.Known().Judge(given) != Agrees || !given.ExplainsFloor(0, Record{}) {
		t.Error("the new home is taken for one that was made up")
	}
}

// TestBothHomesStop: the record that was made anew goes to a person, under a token above
// both, with what the first home knows.
func TestBothHomesStop(t *testing.T) {
	own := in(Held)
	own.Home, own.AccountID, own.EvidenceID = "a", "acct", "ev_a"
	anew, err := Record{ProfileID: "p"}.Grant(Request{SessionID: "sb", LauncherID: "b", PresenceEpoch: 9, TTL: time.Minute}, noon)
	if err != nil {
		t.Fatal(err)
	}
	for name, own := range map[string]Record{"by the home": own, "by another": {}} {
		r, err := anew.Contest(Known{ProfileID: "p", Home: "a", Token: 7}, own, 8, 40, noon)
		if err != nil {
			t.Fatal(err)
		}
		if r.State != Quarantined || r.Token != 9 || r.HomeToken != 9 || r.Home != "a" || r.OtherHome != "b" || r.Reason != ReasonContested || len(r.Runs) != 0 || r.AccountID != own.AccountID {
			t.Errorf("%s: %+v", name, r)
		}
		if e := r.Outbox[len(r.Outbox)-1]; e.Event != EventExpired || e.SessionID != "sb" || e.Sequence != r.Sequence || r.Sequence != 42 {
			t.Errorf("%s: the last event is %+v", name, e)
		}
		for who, k := range map[string]Known{"the home": {Home: "a", Token: 7}, "the other": anew.Known()} {
			if k.Judge(r) != Agrees {
				t.Errorf("%s: %s contests it again", name, who)
			}
		}
		if s := r.standingFor(anew, 1); s != Over {
			t.Errorf("%s: the other one goes on: %d", name, s)
		}
		if s := anew.standingFor(in(Held), 7); s != Over {
			t.Errorf("the first one goes on beside it: %d", s)
		}
		// Who is the home is the person's to say, and nobody else's name will do.
		inspected, err1 := r.Inspect(Sealed{EvidenceID: "ev_9"}, noon)
		review, err2 := inspected.Decide(Verdict{Decision: DecisionManualReview}, noon)
		var wrong *HomeError
		_, err3 := review.Reviewed(Review{Decision: ReviewApprove, TokenSeen: 9, Home: "c"}, 0, noon)
		if err := errors.Join(err1, err2); err != nil || !errors.As(err3, &wrong) {
			t.Fatalf("%v, %v", err, err3)
		}
		stays, err1 := review.Reviewed(Review{Decision: ReviewApprove, TokenSeen: 9}, 0, noon)
		moves, err2 := review.Reviewed(Review{Decision: ReviewApprove, TokenSeen: 9, Home: "b"}, 0, noon)
		if err1 != nil || err2 != nil || stays.Home != "a" || stays.Token != 9 || stays.OtherHome != "" || moves.Home != "b" || moves.Token != 10 || moves.HomeToken != 10 || moves.OtherHome != "" {
			t.Errorf("%s: stays %+v, moves %+v; %v, %v", name, stays, moves, err1, err2)
		}
		if r.Known().Judge(moves) != Agrees || !moves.ExplainsFloor(1, Record{}) {
			t.Errorf("%s: what the person decided is contested", name)
		}
	}
}

// TestAReviewIsOfOneIncident.
func TestAReviewIsOfOneIncident(t *testing.T) {
	r := in(ManualReview)
	r.EvidenceID = "ev_2"
	var incident *IncidentError
	if _, err := r.Reviewed(Review{Decision: ReviewApprove, TokenSeen: 7, EvidenceID: "ev_1"}, 0, noon); !errors.As(err, &incident) || incident.Current != "ev_2" {
		t.Errorf("%v", err)
	}
	if got, err := r.Reviewed(Review{Decision: ReviewApprove, TokenSeen: 7, EvidenceID: "ev_2"}, 0, noon); err != nil || got.Review.EvidenceID != "ev_2" {
		t.Errorf("%+v, %v", got.Review, err)
	}
	// A person's own session makes a newer bundle; the incident's is still meant.
	r.ByHand = &ByHand{Review: &OpenReview{EvidenceID: "ev_2"}}
	r.EvidenceID = "ev_3"
	if _, err := r.Reviewed(Review{Decision: ReviewApprove, TokenSeen: 7, EvidenceID: "ev_2"}, 0, noon); err != nil {
		t.Error(err)
	}
}

// TestMemoryIsNeverTalkedDown: whatever records a launcher is shown, in whatever order, the
// token that it remembers only grows, and a home changes under a higher token alone.
func TestMemoryIsNeverTalkedDown(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var k Known
		for range rapid.IntRange(1, 30).Draw(t, "records") {
			r := Record{
				ProfileID: "p", State: rapid.SampledFrom(append([]State{""}, states...)).Draw(t, "state"), Home: rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "home"),
				Token: Token(rapid.IntRange(0, 6).Draw(t, "token")), HomeToken: Token(rapid.IntRange(0, 6).Draw(t, "home_token")),
			}
			r.HomeToken = min(r.HomeToken, r.Token)
			next := k.Learn(r)
			if next.Token < k.Token || k.Home != "" && next.Home != k.Home && next.HomeToken <= k.Token {
				t.Fatalf("%+v after %+v, shown %+v", next, k, r)
			}
			if again := next.Judge(r); k.Judge(r) == Agrees && again != Agrees {
				t.Fatalf("%+v was learnt of %+v, and does not agree with it", next, r)
			}
			k = next
		}
	})
}

// TestEventsGoOnAboveThoseThatWereSeen: whoever states a profile again that the store forgot
// numbers its events above all that anybody saw, so that subscribers find neither a gap nor
// a number twice.
func TestEventsGoOnAboveThoseThatWereSeen(t *testing.T) {
	seen := Record{ProfileID: "p", State: Available, Home: "a", Token: 5, Sequence: 40}
	k := Known{}.Learn(seen)
	older, later := seen, seen
	older.Sequence, later.Sequence = 38, 41
	recalled, made := seen, seen
	recalled.RememberedBy, recalled.Sequence = "b", 43
	made.Sequence = uint64(MaxClaim) + 1
	for name, tt := range map[string]struct {
		r    Record
		want uint64
	}{
		"the same": {seen, 40}, "later": {later, 41}, "an older copy with the same token": {older, 40}, "recalled by another": {recalled, 43}, "made up": {made, 40},
	} {
		if got := k.Learn(tt.r); got.Sequence != tt.want || got.Token != 5 || got.State != Available {
			t.Errorf("%s: %+v, want sequence %d", name, got, tt.want)
		}
	}
	other := k
	other.Sequence, other.Home = 50, "b"
	if a, b := k.Later(other), other.Later(k); a.Sequence != 50 || a.Home != "a" || b.Sequence != 50 || b.Home != "b" {
		t.Errorf("of two memories: %+v and %+v", a, b)
	}
	for name, r := range map[string]Record{"no record": {ProfileID: "p"}, "an older copy": {ProfileID: "p", State: Held, Home: "a", Token: 4, Sequence: 37}} {
		again, err := r.Recall(k, "b", 0, 12, noon)
		if err != nil || again.Sequence != 41 || again.Outbox[0].Sequence != 41 {
			t.Errorf("%s, recalled: %+v, %v", name, again.Outbox, err)
		}
	}
	anew := Record{ProfileID: "p", State: Available, Home: "b", Token: 1, Sequence: 3}
	if contested, err := anew.Contest(k, Record{}, 0, 12, noon); err != nil || contested.Sequence != 41 {
		t.Errorf("contested: %+v, %v", contested.Outbox, err)
	}
}

// TestUnpublishedEventsStayInOrder: a record that was recalled may have later events than the
// one that its home kept, which has some that nobody published.
func TestUnpublishedEventsStayInOrder(t *testing.T) {
	own := Record{ProfileID: "p", State: Available, Home: "a", Token: 5, Sequence: 40, Outbox: []Event{{ProfileID: "p", Token: 4, Sequence: 39}, {ProfileID: "p", Token: 5, Sequence: 40}}}
	recalled, err := Record{ProfileID: "p"}.Recall(own.Known(), "b", 0, 0, noon)
	if err != nil {
		t.Fatal(err)
	}
	healed, err := recalled.Heal(own, 5, noon)
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range healed.Outbox {
		if want := uint64(39 + i); e.Sequence != want || len(healed.Outbox) != 4 {
			t.Errorf("event %d of %d has number %d, want %d", i, len(healed.Outbox), e.Sequence, want)
		}
	}
}

// TestLastEventsAreRemembered: what a store that goes back may lose, a launcher that was
// restarted since states again with the profile.
func TestLastEventsAreRemembered(t *testing.T) {
	numbers := func(events []Event) (all []uint64) {
		for _, e := range events {
			all = append(all, e.Sequence)
		}
		return all
	}
	var k Known
	r := Record{ProfileID: "p", State: Available, Home: "a", Token: 1}
	for n := range uint64(6) {
		r.Outbox = nil
		r = r.emit("released", noon)
		if n == 3 {
			continue // a record that was not seen
		}
		k = k.Learn(r)
	}
	if got := numbers(k.Events); !slices.Equal(got, []uint64{2, 3, 5, 6}) {
		t.Errorf("remembered: %d", got)
	}
	again := k.Learn(r)
	older := r
	older.Sequence, older.Outbox = 4, []Event{{Sequence: 4}}
	if !again.Same(k) || !k.Learn(older).Same(k) {
		t.Errorf("the same once more, and an older copy: %+v, %+v", again, k.Learn(older))
	}
	other := r
	other.Sequence, other.Outbox = 5, []Event{{Sequence: 5, Reason: "another"}}
	if got := lastEvents(k.Events, other.Outbox); !slices.Equal(numbers(got), []uint64{2, 3, 5}) || got[2].Reason != "another" {
		t.Errorf("a profile that goes on otherwise: %+v", got)
	}
	for name, tt := range map[string]struct {
		r    Record
		want []uint64
	}{
		"no record":     {Record{ProfileID: "p"}, []uint64{2, 3, 5, 6, 7}},
		"an older copy": {Record{ProfileID: "p", State: Available, Home: "a", Token: 1, Sequence: 4}, []uint64{5, 6, 7}},
		"the same":      {Record{ProfileID: "p", State: Available, Home: "a", Token: 1, Sequence: 6}, []uint64{7}},
	} {
		if got, err := tt.r.Recall(k, "b", 0, 0, noon); err != nil || !slices.Equal(numbers(got.Outbox), tt.want) {
			t.Errorf("%s, recalled: %d, %v", name, numbers(got.Outbox), err)
		}
	}
}
