package lease

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"
)

// What follows tests the rules that the tables and histories of the other files left open:
// a mutant of each survived them (docs/lab/mutants.md).

func must(t *testing.T) func(Record, error) Record {
	return func(r Record, err error) Record {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
}

// TestAGrantLeavesWhatAProfileIsForGood: another launcher, account or proxy may stand in a
// request, and does not come into the record.
func TestAGrantLeavesWhatAProfileIsForGood(t *testing.T) {
	r := Record{ProfileID: "p", State: Available, Home: "home", AccountID: "acct", ProxyID: "px", Token: 3}
	got := must(t)(r.Grant(Request{SessionID: "s", LauncherID: "other", AccountID: "acct2", ProxyID: "px2"}, noon))
	if got.Home != "home" || got.AccountID != "acct" || got.ProxyID != "px" || got.LauncherID != "other" {
		t.Errorf("%+v", got)
	}
	first := must(t)(Record{ProfileID: "p"}.Grant(Request{SessionID: "s", LauncherID: "l", AccountID: "acct2", ProxyID: "px2"}, noon))
	if first.Home != "l" || first.AccountID != "acct2" || first.ProxyID != "px2" {
		t.Errorf("the first one: %+v", first)
	}
}

// TestOnlyATaskThatIsToResumeFindsACheckpoint.
func TestOnlyATaskThatIsToResumeFindsACheckpoint(t *testing.T) {
	for state, want := range map[State]string{Available: "", ResumePending: "listed"} {
		r := in(state)
		r.LastSafeCheckpoint, r.ResumeFrom = "listed", "listed"
		got := must(t)(r.Grant(Request{SessionID: "s", LauncherID: "home"}, noon))
		if got.LastSafeCheckpoint != want || got.ResumeFrom != want {
			t.Errorf("%s: checkpoint %q, to resume from %q, want %q", state, got.LastSafeCheckpoint, got.ResumeFrom, want)
		}
	}
}

// TestASessionThatNeverServedLeavesACheckpointAsItWas, however often the profile is granted for it; a profile
// that was kept for nobody is free again, and a release by a worker ends the wait.
func TestASessionThatNeverServedLeavesACheckpointAsItWas(t *testing.T) {
	r := in(ResumePending)
	r.LastSafeCheckpoint, r.ResumeFrom = "listed", "list"
	grant := func(r Record) Record {
		return must(t)(r.Grant(Request{SessionID: "s", TaskID: "t7", LauncherID: "home"}, noon))
	}
	for range 2 {
		held := grant(r)
		r = must(t)(held.Unserved("not started", Sealed{EvidenceID: "ev"}, time.Minute, noon))
		if r.State != ResumePending || r.ResumeFrom != "list" || r.LastSafeCheckpoint != "listed" || r.TaskID != "t7" || r.Token != held.Token || len(r.Runs) != 0 ||
			r.Decision != DecisionResume || r.Reason != "not started" || len(r.Reasons) != 1 || r.EvidenceID != "ev" || r.Cooldown() != time.Minute {
			t.Fatalf("%+v", r)
		}
		ended, waits := r.Outbox[len(r.Outbox)-2], r.Outbox[len(r.Outbox)-1]
		if ended.Event != EventReleased || waits.Event != string(ResumePending) || waits.ResumeFrom != "list" || waits.LastSafeCheckpoint != "listed" || waits.Decision != DecisionResume {
			t.Errorf("events %+v and %+v", ended, waits)
		}
	}
	if got := must(t)(grant(r).Release("done", "ok", Sealed{}, noon)); got.State != Available {
		t.Errorf("released by its worker: %s", got.State)
	}
	if got := must(t)(grant(in(Available)).Unserved("not started", Sealed{}, time.Minute, noon)); got.State != Available {
		t.Errorf("kept for nobody: %s", got.State)
	}
}

// TestLostRunsEndWithTheirRecovery: whoever decides, the next task begins without them, and
// may share the profile and release it.
func TestLostRunsEndWithTheirRecovery(t *testing.T) {
	lost := must(t)(must(t)(in(Held).Suspect("lost", Sealed{}, noon)).Quarantine(0, noon))
	if len(lost.LostRuns) != 2 {
		t.Fatalf("two runs ended together, and of these are lost: %v", lost.LostRuns)
	}
	inspected := must(t)(lost.Inspect(Sealed{}, noon))
	for _, decision := range []string{DecisionRelease, DecisionRetry, DecisionResume} {
		if got := must(t)(inspected.Decide(Verdict{Decision: decision}, noon)); len(got.LostRuns) != 0 {
			t.Errorf("decided, %s: %v", decision, got.LostRuns)
		}
	}
	abandoned := must(t)(lost.Abandon(nil, Sealed{}, noon))
	approved := must(t)(abandoned.Reviewed(Review{Decision: ReviewApprove, TokenSeen: abandoned.Token}, 0, noon))
	if len(approved.LostRuns) != 0 {
		t.Errorf("approved: %v", approved.LostRuns)
	}
	got := must(t)(approved.Grant(Request{SessionID: "s", LauncherID: "home"}, noon))
	if len(got.LostRuns) != 0 || len(got.Runs) != 1 || got.Shut(false) != "" {
		t.Errorf("granted: lost runs %v, runs %v: %s", got.LostRuns, got.Runs, got.Shut(false))
	}
	// One run alone is the record's own session, and no run beside others.
	if one := must(t)(must(t)(alone(in(Held)).Suspect("lost", Sealed{}, noon)).Quarantine(0, noon)); len(one.LostRuns) != 0 {
		t.Errorf("one run: %v", one.LostRuns)
	}
}

// TestAReviewKeepsItsLostRuns: also while a person has the profile by hand, and if that is lost, too. A
// record never has them twice: it would be too large.
func TestAReviewKeepsItsLostRuns(t *testing.T) {
	lost := must(t)(must(t)(in(Held).Suspect("lost", Sealed{}, noon)).Quarantine(0, noon))
	r := must(t)(must(t)(lost.Inspect(Sealed{}, noon)).Decide(Verdict{Decision: DecisionManualReview}, noon))
	byHand := func(r Record) Record {
		return must(t)(r.Grant(Request{SessionID: "s10", LauncherID: "home", ByHand: &ByHand{Holder: "ann"}}, noon))
	}
	has := func(when string, r Record) {
		t.Helper()
		if !reflect.DeepEqual(r.IncidentRuns(), lost.LostRuns) {
			t.Errorf("%s: %v, want %v", when, r.IncidentRuns(), lost.LostRuns)
		}
	}
	has("in review", r)
	has("kept", must(t)(r.Reviewed(Review{Decision: ReviewKeep, TokenSeen: r.Token}, 0, noon)))
	hand := byHand(r)
	has("by hand", hand)
	back := must(t)(hand.Release("released", "", Sealed{}, noon))
	has("handed back", back)
	if !reflect.DeepEqual(back.LostRuns, lost.LostRuns) {
		t.Errorf("handed back: %v", back.LostRuns)
	}
	has("by hand again", byHand(back))
	gone := must(t)(must(t)(hand.Suspect("lost", Sealed{}, noon)).Quarantine(0, noon))
	has("the person is lost", gone)
	given := must(t)(gone.Abandon(nil, Sealed{}, noon))
	has("the person was lost", given)
	has("by hand after that", byHand(given))
	if got := must(t)(given.Reviewed(Review{Decision: ReviewApprove, TokenSeen: given.Token}, 0, noon)); len(got.IncidentRuns()) != 0 {
		t.Errorf("approved: %v", got.IncidentRuns())
	}
}

// TestWhatIsLetGoRestsFirst: after a recovery, and after a review.
func TestWhatIsLetGoRestsFirst(t *testing.T) {
	for decision, want := range map[string]time.Time{
		DecisionRelease: noon.Add(time.Minute), DecisionRetry: noon.Add(time.Minute), DecisionResume: noon.Add(time.Minute), DecisionManualReview: {},
	} {
		got := must(t)(in(Inspected).Decide(Verdict{Decision: decision, Cooldown: time.Minute}, noon))
		if rest := max(want.Sub(noon), 0); !got.AvailableAfter.Equal(want) || got.Cooldown() != rest {
			t.Errorf("%s: available after %v, in %v, want %v, in %v", decision, got.AvailableAfter, got.Cooldown(), want, rest)
		}
	}
	if got := must(t)(in(ManualReview).Reviewed(Review{Decision: ReviewApprove, TokenSeen: 7}, time.Minute, noon)); !got.AvailableAfter.Equal(noon.Add(time.Minute)) {
		t.Errorf("approved: available after %v", got.AvailableAfter)
	}
	if _, err := in(Inspected).Decide(Verdict{Decision: "?"}, noon); err == nil {
		t.Error("a decision that does not exist is taken")
	}
}

// TestAQuarantineIsAboveTheRecordAndTheFloor.
func TestAQuarantineIsAboveTheRecordAndTheFloor(t *testing.T) {
	for floor, want := range map[Token]Token{0: 8, 6: 8, 7: 8, 8: 9, 20: 21} {
		if got := must(t)(in(SuspectedStale).Quarantine(floor, noon)); got.Token != want || len(got.Runs) != 0 {
			t.Errorf("token 7, floor %d: token %d, runs %v, want %d", floor, got.Token, got.Runs, want)
		}
	}
	if _, err := in(Held).Quarantine(0, noon); !errors.As(err, new(*TransitionError)) {
		t.Errorf("a lease that nobody suspected is fenced: %v", err)
	}
}

// TestWhichStatesAreFree, and which have a session that has to be recovered.
func TestWhichStatesAreFree(t *testing.T) {
	for state, want := range map[State][2]bool{
		"": {true, false}, Available: {true, false}, ResumePending: {true, false}, ManualReview: {false, false},
		Held: {false, true}, SuspectedStale: {false, true}, Quarantined: {false, true}, Inspected: {false, true},
	} {
		if got := [2]bool{state.Free(), (Record{State: state}).Unfinished()}; got != want {
			t.Errorf("%q: free %v, unfinished %v", state, got[0], got[1])
		}
	}
}

// TestWhatARecordLacks.
func TestWhatARecordLacks(t *testing.T) {
	known := in(Available)
	for name, tt := range map[string]struct {
		r     Record
		own   Record
		floor Token
		want  bool
	}{
		"at the floor":                   {Record{State: Held, Token: 9}, known, 9, false},
		"above it":                       {Record{State: Held, Token: 10}, known, 9, false},
		"one below it":                   {Record{State: Held, Token: 8}, known, 9, true},
		"no record, and none was kept":   {Record{}, Record{}, 0, false},
		"no record of one without lease": {Record{}, Record{State: Available}, 0, true},
		"remembered by another launcher": {Record{State: Quarantined, Token: 9, RememberedBy: "b"}, known, 9, true},
	} {
		if got := tt.r.Lacks(tt.own, tt.floor); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestAHealGoesAboveWhatOthersRemembered: another launcher recalled the profile under a
// token that the home never heard of. Nobody can say what happened under it.
func TestAHealGoesAboveWhatOthersRemembered(t *testing.T) {
	own := in(Available)
	recalled := must(t)(Record{ProfileID: "p"}.Recall(own.Known(), "b", 12, 40, noon))
	if recalled.Token != 12 {
		t.Fatalf("recalled with token %d", recalled.Token)
	}
	healed := must(t)(recalled.Heal(own, 7, noon))
	if healed.State != Quarantined || healed.Token != 13 || healed.RememberedBy != "" || healed.Sequence <= recalled.Sequence {
		t.Errorf("%+v", healed)
	}
	if unkept := must(t)(recalled.Heal(Record{}, 0, noon)); unkept.State != Quarantined || unkept.Token != 13 || unkept.RememberedBy != "" {
		t.Errorf("of a home that kept nothing: %+v", unkept)
	}
	distrusted := must(t)(recalled.Distrust(ReasonRolledBack, 7, 0, noon))
	if distrusted.Token != 13 || distrusted.RememberedBy != "" {
		t.Errorf("%+v: its home has spoken", distrusted)
	}
	if distrusted.Lacks(distrusted, 13) {
		t.Error("it would be healed again and again")
	}
}

// TestAReasonForAPersonIsNotHealedAway.
func TestAReasonForAPersonIsNotHealedAway(t *testing.T) {
	for reason, want := range map[string]string{
		ReasonNotAuthentic: ReasonNotAuthentic, ReasonRolledBack: ReasonRolledBack, ReasonContested: ReasonContested, "heartbeat_timeout": ReasonRecordLost,
	} {
		own := in(Quarantined)
		own.Reason = reason
		if got := must(t)(Record{ProfileID: "p"}.Heal(own, 7, noon)); got.Reason != want || PersonDecides(got.Reason) != PersonDecides(reason) {
			t.Errorf("%s: healed because of %s", reason, got.Reason)
		}
	}
}

// TestEventsThatMayNotBePublishedGoAlong, whoever writes the record again.
func TestEventsThatMayNotBePublishedGoAlong(t *testing.T) {
	stored, own := in(ManualReview), in(Held)
	stored.Token, stored.Outbox = 6, []Event{{Event: "a", Sequence: 19}}
	own.Outbox = []Event{{Event: "b", Sequence: 20}}
	for name, got := range map[string]Record{
		"upheld":    must(t)(stored.Uphold(own, 7, Progress{}, noon)),
		"healed":    must(t)(stored.Heal(own, 7, noon)),
		"contested": must(t)(stored.Contest(Known{ProfileID: "p", Home: "first", Token: 7}, own, 0, 0, noon)),
	} {
		if len(got.Outbox) < 2 || got.Outbox[0].Event != "a" || got.Outbox[1].Event != "b" {
			t.Errorf("%s: the outbox is %+v", name, got.Outbox)
		}
	}
}

// TestOfTwoMemoriesTheLaterCounts.
func TestOfTwoMemoriesTheLaterCounts(t *testing.T) {
	at := func(home string, token Token) Known { return Known{ProfileID: "p", Home: home, Token: token} }
	for _, tt := range []struct{ k, other, want Known }{
		{at("a", 3), at("b", 3), at("a", 3)}, {at("a", 3), at("b", 4), at("b", 4)}, {at("a", 3), at("b", 2), at("a", 3)},
		{Known{}, at("b", 2), at("b", 2)}, {at("a", 3), Known{}, at("a", 3)},
	} {
		if got := tt.k.Later(tt.other); !got.Same(tt.want) {
			t.Errorf("of %+v and %+v: %+v", tt.k, tt.other, got)
		}
	}
}

// TestARecallAndAContestAreAboveAllThatAnybodyKnows: the record, the memory, the stream.
func TestARecallAndAContestAreAboveAllThatAnybodyKnows(t *testing.T) {
	for _, tokens := range [][3]Token{{9, 5, 5}, {5, 9, 5}, {5, 5, 9}} {
		r := in(Held)
		r.Token, r.Runs[1].Token = tokens[0], tokens[0]
		k := Known{ProfileID: "p", Home: "first", Token: tokens[1], State: Held}
		for name, got := range map[string]Record{
			"recalled":              must(t)(r.Recall(k, "b", tokens[2], 50, noon)),
			"contested":             must(t)(r.Contest(k, Record{}, tokens[2], 50, noon)),
			"contested by its home": must(t)(r.Contest(k, Record{ProfileID: "p", State: Available, Home: "first", Token: 4}, tokens[2], 50, noon)),
		} {
			want := Token(9)
			if name != "recalled" {
				want = 10
				if got.HomeToken != want {
					t.Errorf("%s, %v: home under token %d", name, tokens, got.HomeToken)
				}
			}
			var ended []string
			for _, e := range got.Outbox {
				if e.Event == EventExpired {
					ended = append(ended, e.SessionID)
				}
			}
			if got.Token != want || got.Sequence <= 50 || len(got.Runs) != 0 || got.Home != "first" || !slices.Equal(ended, []string{"s6", "s7"}) {
				t.Errorf("%s, %v: token %d, sequence %d, runs %v, home %s; ended: %v", name, tokens, got.Token, got.Sequence, got.Runs, got.Home, ended)
			}
		}
	}
}

// TestOnlyAnApprovalMovesTheHome.
func TestOnlyAnApprovalMovesTheHome(t *testing.T) {
	r := in(ManualReview)
	r.OtherHome, r.RememberedBy = "b", "b"
	if _, err := r.Reviewed(Review{Decision: ReviewKeep, TokenSeen: 7, Home: "b"}, 0, noon); !errors.As(err, new(*HomeError)) {
		t.Errorf("kept in review, and moved: %v", err)
	}
	if got := must(t)(r.Reviewed(Review{Decision: ReviewApprove, TokenSeen: 7}, 0, noon)); got.Home != "home" || got.OtherHome != "" || got.RememberedBy != "" || got.Token != 7 {
		t.Errorf("approved where it is: %+v", got)
	}
	if _, err := r.Reviewed(Review{Decision: ReviewApprove, TokenSeen: 8}, 0, noon); !errors.As(err, new(*FencedError)) {
		t.Errorf("a token that nobody saw: %v", err)
	}
}

// TestALeaseOfSeveralRunsDoesNotContinue, also when only the first of them is left: who
// knows what the others did.
func TestALeaseOfSeveralRunsDoesNotContinue(t *testing.T) {
	q := Request{SessionID: "s", LauncherID: "home", BootID: "b", PresenceEpoch: 4, TTL: ttl}
	r := alone(in(Held))
	r.BootID = "b"
	must(t)(r.Continue(7, q, noon))
	r.Token = 8
	if _, err := r.Continue(7, q, noon); !errors.As(err, new(*FencedError)) {
		t.Errorf("%v", err)
	}
}

// TestARunEndsAsItself: the lease's own reason and session stay, where they are others'.
func TestARunEndsAsItself(t *testing.T) {
	r := in(Held)
	r.Reason = "reasserted"
	first := must(t)(r.EndRun(6, false, "done", "ok", Sealed{}, noon))
	if e := first.Outbox[0]; first.Reason != "reasserted" || first.Outcome != "" || first.SessionID != "s7" || e.SessionID != "s6" || e.RunToken != 6 || e.Reason != "done" || e.Outcome != "ok" {
		t.Errorf("%+v, event %+v", first, e)
	}
	if last := must(t)(r.EndRun(7, false, "done", "ok", Sealed{}, noon)); last.SessionID != "s6" || last.TaskID != "t6" {
		t.Errorf("it names a run that has ended: %+v", last)
	}
}

// TestAnOldCopyIsNotWhatTheHolderKnows: a lagging server shows the lease as it was. What
// the store forgets afterwards is written again as it was last.
func TestAnOldCopyIsNotWhatTheHolderKnows(t *testing.T) {
	holding(t, func(b *bench, h *Holding) {
		old := b.s.record()
		b.s.change(t, func(r Record) (Record, error) { return r.Suspect("lease_expired", Sealed{}, noon) })
		h.Observe(b.s.record())
		time.Sleep(time.Second)
		last := b.s.record()
		if last.State != Held || last.Sequence <= old.Sequence {
			t.Fatalf("%+v", last)
		}
		h.Observe(old)
		time.Sleep(time.Second)
		b.wiped()()
		h.Observe(b.s.record())
		time.Sleep(time.Second)
		if r := b.s.record(); r.Sequence < last.Sequence || r.Reason != last.Reason {
			t.Errorf("sequence %d (%s) after %d", r.Sequence, r.Reason, last.Sequence)
		}
	})
}

// TestAChangeIsMadeOverWhatCameFirst, whether or not the refusal has that.
func TestAChangeIsMadeOverWhatCameFirst(t *testing.T) {
	for _, noCurrent := range []bool{false, true} {
		t.Run(fmt.Sprint("without the current entry: ", noCurrent), func(t *testing.T) {
			s := newMemory()
			s.noCurrent = noCurrent
			calls := 0
			_, err := Change(t.Context(), s, "p", func(e Entry) (Record, error) {
				if calls++; calls == 1 {
					s.change(t, func(r Record) (Record, error) { r.AccountID = "acct"; return r, nil })
				}
				e.Record.ProxyID = "px"
				return e.Record, nil
			})
			if r := s.record(); err != nil || calls != 2 || r.AccountID != "acct" || r.ProxyID != "px" {
				t.Errorf("%+v after %d calls, %v", r, calls, err)
			}
		})
	}
	s := newMemory()
	s.noReads = true
	if _, err := Change(t.Context(), s, "p", func(e Entry) (Record, error) { return e.Record, nil }); !errors.Is(err, ErrUnavailable) || s.writes != 0 {
		t.Errorf("without a store: %v, %d writes", err, s.writes)
	}
}

// TestWhatTheStoreForgotIsNotChanged: a change of what is there writes no record where there is
// none, nor where it was lost before the write.
func TestWhatTheStoreForgotIsNotChanged(t *testing.T) {
	for _, lost := range []bool{false, true} {
		s := newMemory()
		if lost {
			s.change(t, func(r Record) (Record, error) { return r, nil })
		}
		calls := 0
		_, err := ChangeExisting(t.Context(), s, "p", func(e Entry) (Record, error) {
			calls++
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.records, "p")
			return e.Record, nil
		})
		if !errors.Is(err, ErrNotFound) || len(s.records) != 0 || lost != (calls == 1) {
			t.Errorf("lost before the write: %t: %v after %d calls, the store has %v", lost, err, calls, s.records)
		}
	}
}

// TestAnObserverLeavesLateTimersTheirTime: a holder's timer may fire a second late, and the
// clocks of both hosts may drift.
func TestAnObserverLeavesLateTimersTheirTime(t *testing.T) {
	for _, ttl := range []time.Duration{minTTL, 30 * time.Second, maxTTL} {
		if x := (Timing{TTL: ttl}); x.ObserverWait() < ttl+time.Duration(2*driftBound*float64(ttl))+time.Second {
			t.Errorf("TTL %v: observers wait %v", ttl, x.ObserverWait())
		}
	}
}

// TestAStoreThatWentBackGivesHomesTheirTimeAgain.
func TestAStoreThatWentBackGivesHomesTheirTimeAgain(t *testing.T) {
	w := observe()
	w.see(closed(live(1, 3, "a")))
	w.lease(at(Quarantined))
	w.after(abandonAfter)
	w.Start(w.now)
	if s := w.lease(at(Quarantined)); !nothing(s) {
		t.Errorf("%+v: its home had no time to write again what the store forgot", s)
	}
	w.after(abandonAfter)
	if s := w.lease(at(Quarantined)); s.Fact != Abandoned {
		t.Errorf("%+v: it waits for ever", s)
	}
}
