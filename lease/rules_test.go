package lease

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// states lists all states, in the order of a recovery.
var states = []State{Held, SuspectedStale, Quarantined, Inspected, Available, ResumePending, ManualReview}

// in returns a record in the state, with all that the rules read. A held one has two
// runs.
func in(s State) Record {
	r := Record{
		ProfileID: "p", State: s, Token: 7, Sequence: 20, SessionID: "s7", OwnerWorkerID: "w7", TaskID: "t7",
		LauncherID: "home", Home: "home", PresenceEpoch: 3, TTLSeconds: 30, Settings: Settings{MaxActiveRuns: 3},
	}
	if s == "" {
		return Record{ProfileID: "p"}
	}
	if s == Held || s == SuspectedStale {
		r.Runs = []Run{{SessionID: "s6", Token: 6, TaskID: "t6"}, {SessionID: "s7", Token: 7, TaskID: "t7"}}
	}
	return r
}

// alone returns the record with one run only.
func alone(r Record) Record {
	r = r.Clone()
	if len(r.Runs) > 1 {
		r.Runs = r.Runs[1:]
	}
	return r
}

// makes has, for each fact, the call that states it. Created is missing, since the
// launcher makes that record from settings.
var makes = map[Fact]func(Record) (Record, error){
	Granted: func(r Record) (Record, error) {
		return r.Grant(Request{SessionID: "s8", LauncherID: "home", PresenceEpoch: 3, TTL: 30 * time.Second}, noon)
	},
	RunEnded: func(r Record) (Record, error) { return r.EndRun(6, false, "done", "ok", Sealed{}, noon) },
	RunLost:  func(r Record) (Record, error) { return r.EndRun(6, true, "lost", "", Sealed{}, noon) },
	Released: func(r Record) (Record, error) { return alone(r).Release("done", "ok", Sealed{}, noon) },
	PutBack: func(r Record) (Record, error) {
		r = alone(r)
		r.ResumeFrom = "x"
		return r.Unserved("not started", Sealed{}, time.Minute, noon)
	},
	Suspected:  func(r Record) (Record, error) { return r.Suspect("lost", Sealed{}, noon) },
	Reasserted: func(r Record) (Record, error) { return r.Reassert(noon) },
	Fenced:     func(r Record) (Record, error) { return r.Quarantine(0, noon) },
	Examined:   func(r Record) (Record, error) { return r.Inspect(Sealed{}, noon) },
	FoundSafe:  func(r Record) (Record, error) { return r.Decide(Verdict{Decision: DecisionRelease}, noon) },
	FoundResume: func(r Record) (Record, error) {
		return r.Decide(Verdict{Decision: DecisionResume, ResumeFrom: "x"}, noon)
	},
	FoundUnclear: func(r Record) (Record, error) { return r.Decide(Verdict{Decision: DecisionManualReview}, noon) },
	Abandoned:    func(r Record) (Record, error) { return r.Abandon([]string{"gone"}, Sealed{}, noon) },
	Approved: func(r Record) (Record, error) {
		return r.Reviewed(Review{Decision: ReviewApprove, TokenSeen: r.Token}, 0, noon)
	},
	Kept: func(r Record) (Record, error) {
		return r.Reviewed(Review{Decision: ReviewKeep, TokenSeen: r.Token}, 0, noon)
	},
	TakenByHand: func(r Record) (Record, error) {
		return r.Grant(Request{SessionID: "s8", LauncherID: "home", TTL: 30 * time.Second, ByHand: &ByHand{Holder: "ann"}}, noon)
	},
	HandedBack: func(r Record) (Record, error) {
		r = alone(r)
		r.ByHand = &ByHand{Holder: "ann", Review: &OpenReview{}}
		return r.Release("done", "by_hand", Sealed{}, noon)
	},
	Recalled: func(r Record) (Record, error) {
		return r.Recall(Known{ProfileID: "p", Home: "home", Token: 9, State: Held}, "other", 0, 30, noon)
	},
	Contested: func(r Record) (Record, error) {
		return r.Contest(Known{ProfileID: "p", Home: "first", Token: 9, State: Held}, Record{}, 0, 30, noon)
	},
	Moved: func(r Record) (Record, error) {
		r.Mobility, r.SnapshotID, r.SnapshotToken = MobilityFree, "snap1", 7
		return r.Move(byItself("other"), r.Token, noon)
	},
	MovedByHand: func(r Record) (Record, error) { return r.Move(byAnn("other", 0), r.Token, noon) },
	Restored: func(r Record) (Record, error) {
		own := in(ManualReview)
		own.Token = 9
		return r.Heal(own, 9, noon)
	},
	SnapshotRestored: func(r Record) (Record, error) {
		return r.RestoreSnapshot("snap_1", Review{TokenSeen: r.Token}, noon)
	},
	Remade:    func(r Record) (Record, error) { return r.Remake("ann", noon) },
	Forgotten: func(r Record) (Record, error) { return r.Heal(Record{}, 9, noon) },
}

func TestEveryFactInEveryState(t *testing.T) {
	rows := map[Fact]bool{Created: true}
	for _, row := range Table() {
		rows[row.Fact] = true
	}
	for fact := range rows {
		if makes[fact] == nil && fact != Created {
			t.Fatalf("no test makes %q", fact)
		}
	}
	for fact, do := range makes {
		for _, from := range append([]State{""}, states...) {
			t.Run(fmt.Sprintf("%s/%s", cmp.Or(from, "none"), fact), func(t *testing.T) {
				before := in(from)
				got, err := do(before)
				var want []State
				for _, row := range Table() {
					if row.From == from && row.Fact == fact {
						want = append(want, row.To)
					}
				}
				var refused *TransitionError
				var ended *FencedError
				var kept *MoveError
				switch {
				case len(want) == 0 && (fact == Moved || fact == MovedByHand) && errors.As(err, &kept): // says why in words
				case len(want) == 0 && errors.As(err, &refused) && refused.From == from && refused.Fact == fact:
				case len(want) == 0 && (fact == RunEnded || fact == RunLost) && errors.As(err, &ended): // a record in that state has no runs
				case len(want) == 0:
					t.Fatalf("made %s of it, %v: want a refusal that names the step", got.State, err)
				case err != nil:
					t.Fatalf("%v: want %v", err, want)
				case !slices.Contains(want, got.State):
					t.Fatalf("made %s of it, want %v", got.State, want)
				case got.Sequence <= before.Sequence || len(got.Outbox) == 0 || got.Outbox[len(got.Outbox)-1].Sequence != got.Sequence:
					t.Fatalf("sequence %d after %d, outbox %v: a transition without its event", got.Sequence, before.Sequence, got.Outbox)
				}
			})
		}
	}
}

// TestThePackageCommentShowsTheTable compares the table in doc.go with the one that the code uses.
func TestThePackageCommentShowsTheTable(t *testing.T) {
	b, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	want := "//\t" + strings.ReplaceAll(strings.TrimSpace(printTable()), "\n", "\n//\t") + "\npackage lease\n"
	if !strings.HasSuffix(string(b), "//\n"+want) {
		t.Errorf("the comment in doc.go does not end with lease.Table: put this there\n%s", want)
	}
}

// afterLoss are the facts of a store that forgot, which may be stated in every state.
var afterLoss = []Fact{Restored, Forgotten, Recalled, Contested}

// printTable returns the table in Markdown. The rows that are the same for every state
// are printed once.
func printTable() string {
	var s strings.Builder
	s.WriteString("| from | fact | to | stated by |\n| --- | --- | --- | --- |\n")
	for _, row := range Table() {
		if !slices.Contains(afterLoss, row.Fact) {
			fmt.Fprintf(&s, "| %s | %s | %s | %s |\n", cmp.Or(row.From, "no record"), row.Fact, row.To, row.By)
		}
	}
	for _, row := range Table() {
		if row.From == "" && slices.Contains(afterLoss, row.Fact) {
			fmt.Fprintf(&s, "| any, or no record | %s | %s | %s |\n", row.Fact, row.To, row.By)
		}
	}
	return s.String()
}

func TestTheStoreMayForgetInEveryState(t *testing.T) {
	for _, from := range append([]State{""}, states...) {
		for _, fact := range []Fact{Restored, Forgotten} {
			if !slices.ContainsFunc(Table(), func(row Transition) bool { return row.From == from && row.Fact == fact && row.By == Home }) {
				t.Errorf("from %q nothing can be %s by its home", from, fact)
			}
		}
	}
}

func TestWholeRecovery(t *testing.T) {
	r := Record{ProfileID: "p.1", Token: 6}
	steps := []struct {
		name  string
		do    func(Record) (Record, error)
		state State
		token Token
		event string
	}{
		{"grant", func(r Record) (Record, error) {
			return r.Grant(Request{SessionID: "s1", WorkerID: "w1", TaskID: "t1", LauncherID: "l", TTL: 30 * time.Second, Floor: 6}, noon)
		}, Held, 7, "leasehold.lease.p=2E1.granted"},
		{"suspect", func(r Record) (Record, error) {
			return r.Suspect("heartbeat_timeout", Sealed{EvidenceID: "ev", SHA256: "ab"}, noon)
		}, SuspectedStale, 7, "leasehold.recovery.p=2E1.suspected_stale"},
		{"quarantine", func(r Record) (Record, error) { return r.Quarantine(0, noon) }, Quarantined, 8, "leasehold.lease.p=2E1.expired"},
		{"inspect", func(r Record) (Record, error) { return r.Inspect(Sealed{}, noon) }, Inspected, 8, "leasehold.recovery.p=2E1.inspected"},
		{"settle", func(r Record) (Record, error) {
			return r.Decide(Verdict{Decision: DecisionManualReview, Reasons: []string{"why"}}, noon)
		}, ManualReview, 8, "leasehold.recovery.p=2E1.manual_review"},
		{"keep", func(r Record) (Record, error) {
			return r.Reviewed(Review{Decision: ReviewKeep, Reviewer: "ann", TokenSeen: 8}, 0, noon)
		}, ManualReview, 8, "leasehold.recovery.p=2E1.manual_review"},
		{"approve", func(r Record) (Record, error) {
			return r.Reviewed(Review{Decision: ReviewApprove, Reviewer: "ann", TokenSeen: 8}, 0, noon)
		}, Available, 8, "leasehold.recovery.p=2E1.available"},
	}
	for i, s := range steps {
		next, err := s.do(r)
		if err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		last := next.Outbox[len(next.Outbox)-1]
		if next.State != s.state || next.Token != s.token || last.Subject() != s.event || last.Sequence != next.Sequence {
			t.Fatalf("%s: state %s token %d event %s sequence %d of %d", s.name, next.State, next.Token, last.Subject(), last.Sequence, next.Sequence)
		}
		if len(r.Outbox) >= len(next.Outbox) {
			t.Fatalf("step %d added no event", i)
		}
		r = next
	}
	if r.EvidenceID != "ev" || r.OwnerWorkerID != "w1" || r.Reason != "review_approved" {
		t.Errorf("what the record knew is lost: %+v", r)
	}
}

func TestReviewOfAnOldToken(t *testing.T) {
	r := Record{ProfileID: "p", State: ManualReview, Token: 9}
	_, err := r.Reviewed(Review{Decision: ReviewApprove, TokenSeen: 8}, 0, noon)
	var fenced *FencedError
	if !errors.As(err, &fenced) || fenced.Current != 9 {
		t.Fatalf("got %v, want a refusal that names token 9", err)
	}
}

func TestAPersonHandsAReviewBack(t *testing.T) {
	incident := Record{
		ProfileID: "p", State: ManualReview, Token: 9, Sequence: 4, SessionID: "s9", OwnerWorkerID: "w9", TaskID: "t9", Reason: "heartbeat_timeout",
		Decision: DecisionManualReview, Reasons: []string{"a POST"}, DecisionVersion: 2, EvidenceID: "incident", LastKnownURL: "https://shop/pay",
		LastKnownStep: "pay", LastSafeCheckpoint: "cart", SuspectedAt: noon, RecoveryStartedAt: noon, HumanReview: HumanReview{Review: &Review{Decision: ReviewKeep, Reviewer: "bob"}},
	}
	r := incident
	for round := range 2 { // the second time, too, the review is that of the first incident
		held, err := r.Grant(Request{SessionID: "s10", WorkerID: "ann", TaskID: "by-hand", LauncherID: "home", TTL: time.Minute, ByHand: &ByHand{Holder: "ann", Note: "look"}}, noon)
		if err != nil {
			t.Fatal(err)
		}
		if held.State != Held || held.Token != r.Token+1 || held.Reason != ReasonByHand || held.Decision != "" || held.OwnerWorkerID != "ann" || !held.ByHand.Since.Equal(noon) {
			t.Fatalf("held: %+v", held)
		}
		held.LastKnownURL, held.LastKnownStep = "https://shop/orders", "looked"
		back, err := held.Release("released", "by_hand", Sealed{EvidenceID: fmt.Sprint("hold", round)}, noon)
		if err != nil {
			t.Fatal(err)
		}
		events := back.Outbox[len(back.Outbox)-2:]
		if events[0].Event != EventReleased || events[0].TaskID != "by-hand" || events[1].Event != string(ManualReview) || events[1].TaskID != "t9" || events[1].Reason != incident.Reason {
			t.Fatalf("events %+v", events)
		}
		want := incident.Clone()
		want.Token, want.EvidenceID = held.Token, fmt.Sprint("hold", round)
		// These members describe the last lease, which was the person's.
		want.Sequence, want.Outbox, want.LauncherID, want.Home, want.MaxActiveRuns = back.Sequence, back.Outbox, "home", "home", 1
		want.AcquiredAt, want.HeartbeatAt, want.ExpiresAt, want.TTLSeconds, want.ByHand = noon, noon, noon.Add(time.Minute), 60, back.ByHand
		if !reflect.DeepEqual(back, want) {
			t.Fatalf("handed back:\n%+v\nwant\n%+v", back, want)
		}
		if back.ByHand.Review.EvidenceID != "incident" {
			t.Fatalf("the incident's evidence is lost: %+v", back.ByHand.Review)
		}
		r = back
	}
	approved, err := r.Reviewed(Review{Decision: ReviewApprove, Reviewer: "ann", TokenSeen: r.Token}, 0, noon)
	if err != nil || approved.State != Available || approved.ByHand != nil {
		t.Fatalf("%+v %v", approved, err)
	}
}

func TestGrantBelowTheFloor(t *testing.T) {
	for _, s := range []State{"", Available, ResumePending, Held} {
		_, err := in(s).Grant(Request{LauncherID: "home", PresenceEpoch: 3, Floor: 8}, noon)
		var floor *FloorError
		if !errors.As(err, &floor) || floor.Floor != 8 {
			t.Errorf("%q below the floor: %v, want a FloorError", s, err)
		}
	}
}

// Heal for every combination of the stored record, the home's own record, and the floor.
func TestHeal(t *testing.T) {
	store := append([]State{""}, states...)
	kept := append([]State{""}, states...)
	for _, s := range store {
		for _, o := range kept {
			for _, c := range []struct {
				name         string
				stored, kept Token
				floor        Token
			}{
				{"the store forgot nothing", 9, 9, 9},
				{"the store is ahead", 10, 9, 9},
				{"the home's own record stands at the floor", 7, 9, 9},
				{"the home's own record is older than the floor", 7, 8, 9},
				{"the home's own record is older than the store's", 7, 5, 9},
			} {
				t.Run(fmt.Sprintf("%s/store %s/own %s", c.name, cmp.Or(s, "none"), cmp.Or(o, "none")), func(t *testing.T) {
					r, own := in(s), in(o)
					if s != "" {
						r.Token = c.stored
					} else if c.stored >= c.floor {
						return // a record that is missing has no token
					}
					if o != "" {
						own.Token, own.Sequence = c.kept, 30
						for i := range own.Runs {
							own.Runs[i].Token = c.kept - Token(len(own.Runs)-1-i)
						}
					}
					before := r.Clone()
					got, err := r.Heal(own, c.floor, noon)
					if err != nil {
						t.Fatal(err)
					}
					if r.Token >= c.floor {
						if got.State != before.State || got.Sequence != before.Sequence || got.Token != before.Token {
							t.Fatalf("changed a record that was not forgotten: %+v", got)
						}
						return
					}
					if got.Token < c.floor || got.Sequence <= max(before.Sequence, own.Sequence) {
						t.Fatalf("token %d, sequence %d: want no less than the floor %d, and one more than both know", got.Token, got.Sequence, c.floor)
					}
					restored := o != "" && c.kept == c.floor && (o == Available || o == ResumePending || o == ManualReview)
					switch {
					case restored && (got.State != o || got.Token != c.floor || got.SessionID != own.SessionID):
						t.Fatalf("%s token %d of %s: want the home's own record", got.State, got.Token, got.SessionID)
					case !restored && (got.State != Quarantined || got.Token <= c.floor || got.Reason != ReasonRecordLost || len(got.Runs) > 0):
						t.Fatalf("%s token %d (%s), runs %v: want a quarantine above the floor", got.State, got.Token, got.Reason, got.Runs)
					}
					// Each run that is known to have been held is reported as expired, once.
					known := before.Runs
					if o != "" && own.Token >= before.Token {
						known = own.Runs
					}
					var expired []Token
					for _, e := range got.Outbox {
						if e.Event == EventExpired {
							expired = append(expired, cmp.Or(e.RunToken, e.Token))
						}
					}
					var want []Token
					for _, run := range known {
						want = append(want, run.Token)
					}
					if !restored && !slices.Equal(expired, want) || restored && len(expired) > 0 {
						t.Fatalf("runs %v are reported as expired, want %v", expired, want)
					}
				})
			}
		}
	}
}

// grants returns a record with n runs, with the tokens 1 to n. At most most runs may
// share the profile.
func grants(t *testing.T, most, n int) Record {
	t.Helper()
	r := Record{ProfileID: "p", Settings: Settings{MaxActiveRuns: most}}
	for i := range n {
		var err error
		if r, err = r.Grant(Request{SessionID: fmt.Sprintf("s%d", i+1), TaskID: fmt.Sprintf("t%d", i+1), LauncherID: "home", PresenceEpoch: 3, TTL: time.Second}, noon); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func TestWhoMayJoin(t *testing.T) {
	two := grants(t, 3, 2)
	lost, err := two.EndRun(1, true, "lost", "", Sealed{}, noon)
	if err != nil {
		t.Fatal(err)
	}
	exclusive, err := Record{ProfileID: "p", Settings: Settings{MaxActiveRuns: 3}}.Grant(Request{LauncherID: "home", PresenceEpoch: 3, Exclusive: true}, noon)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		r     Record
		q     Request
		joins bool
	}{
		"there is room":               {two, Request{LauncherID: "home", PresenceEpoch: 3}, true},
		"all runs are taken":          {grants(t, 2, 2), Request{LauncherID: "home", PresenceEpoch: 3}, false},
		"one run only":                {grants(t, 1, 1), Request{LauncherID: "home", PresenceEpoch: 3}, false},
		"wants it for itself":         {two, Request{LauncherID: "home", PresenceEpoch: 3, Exclusive: true}, false},
		"another has it for itself":   {exclusive, Request{LauncherID: "home", PresenceEpoch: 3}, false},
		"a run was lost":              {lost, Request{LauncherID: "home", PresenceEpoch: 3}, false},
		"another launcher":            {two, Request{LauncherID: "other", PresenceEpoch: 3}, false},
		"another stay of the holder":  {two, Request{LauncherID: "home", PresenceEpoch: 4}, false},
		"an older stay of the holder": {two, Request{LauncherID: "home", PresenceEpoch: 2}, false},
	} {
		t.Run(name, func(t *testing.T) {
			next, err := c.r.Grant(c.q, noon)
			var refused *RunsError
			if !c.joins && !errors.As(err, &refused) {
				t.Fatalf("%v: want a RunsError", err)
			}
			if c.joins && (err != nil || next.Token != c.r.Token+1 || len(next.Runs) != len(c.r.Runs)+1) {
				t.Fatalf("%v, token %d, runs %v", err, next.Token, next.Runs)
			}
		})
	}
}

func TestStandingOfRuns(t *testing.T) {
	r := grants(t, 3, 3)
	for token, want := range map[Token]Standing{1: Current, 2: Current, 3: Current, 4: Behind} {
		if got := r.Standing(token); got != want {
			t.Errorf("token %d stands as %d, want %d", token, got, want)
		}
	}
	// The token was raised, and the run is still listed.
	raised := grants(t, 1, 1)
	raised.Token++
	if raised.Standing(1) != Over {
		t.Error("the only run of a profile is not over although its token is not the current one")
	}
	ended, err := r.EndRun(3, false, "done", "", Sealed{}, noon)
	if err != nil {
		t.Fatal(err)
	}
	if ended.Standing(3) != Over || ended.Standing(1) != Current {
		t.Errorf("the run that ended stands as %d, another as %d", ended.Standing(3), ended.Standing(1))
	}
	suspected, err := r.Suspect("lost", Sealed{}, noon)
	if err != nil {
		t.Fatal(err)
	}
	fenced, err := suspected.Quarantine(0, noon)
	if err != nil {
		t.Fatal(err)
	}
	for token := range Token(3) {
		if suspected.Standing(token+1) != Doubted || fenced.Standing(token+1) != Over {
			t.Errorf("token %d: suspected %d, fenced %d", token+1, suspected.Standing(token+1), fenced.Standing(token+1))
		}
	}
}

func TestTheLastRunEndsTheLease(t *testing.T) {
	var refused *RunsError
	if _, err := grants(t, 1, 1).EndRun(1, false, "done", "", Sealed{}, noon); !errors.As(err, &refused) {
		t.Errorf("the only run was taken out: %v", err)
	}
	r := grants(t, 3, 2)
	if _, err := r.Release("done", "", Sealed{}, noon); !errors.As(err, &refused) {
		t.Errorf("two runs were released by one: %v", err)
	}
	r, err := r.EndRun(1, true, "lost", "", Sealed{EvidenceID: "e1"}, noon)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Release("done", "", Sealed{}, noon); !errors.As(err, &refused) {
		t.Errorf("a profile with a lost run was released: %v", err)
	}
	if len(r.LostRuns) != 1 || r.LostRuns[0].Token != 1 || r.LostRuns[0].EvidenceID != "e1" || r.SessionID != "s2" {
		t.Errorf("lost runs %v, session %s", r.LostRuns, r.SessionID)
	}
}

func TestUphold(t *testing.T) {
	own := in(Held)
	own.Sequence = 20
	progress := Progress{LastKnownURL: "http://u/"}
	for name, c := range map[string]struct {
		shown Record
		state State
		token Token
		over  bool
	}{
		"current":                        {in(Held), Held, 7, false},
		"doubted":                        {in(SuspectedStale), Held, 7, false},
		"gone":                           {Record{ProfileID: "p"}, Held, 7, false},
		"older, free":                    {func() Record { r := in(Available); r.Token = 5; return r }(), Held, 7, false},
		"older, in review":               {func() Record { r := in(ManualReview); r.Token = 6; r.Sequence = 40; return r }(), Held, 7, false},
		"released by somebody":           {in(Available), "", 0, true},
		"the same token, another's":      {func() Record { r := in(Held); r.LauncherID = "other"; return r }(), "", 0, true},
		"the same token, another stay's": {func() Record { r := in(SuspectedStale); r.PresenceEpoch = 4; return r }(), "", 0, true},
		"quarantined":                    {func() Record { r := in(Quarantined); r.Token = 8; return r }(), "", 0, true},
		"granted to somebody else":       {func() Record { r := in(Held); r.Token, r.Runs = 9, []Run{{Token: 9}}; return r }(), "", 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := c.shown.Uphold(own, 7, progress, noon)
			var fenced *FencedError
			if c.over {
				if !errors.As(err, &fenced) || fenced.Token != 7 {
					t.Fatalf("%v: want a FencedError of token 7", err)
				}
				return
			}
			if err != nil || got.State != c.state || got.Token != c.token || got.LastKnownURL != progress.LastKnownURL || got.Sequence < max(c.shown.Sequence, own.Sequence) {
				t.Fatalf("%v: %s token %d url %q sequence %d", err, got.State, got.Token, got.LastKnownURL, got.Sequence)
			}
			if !slices.EqualFunc(got.Runs, own.Runs, func(a, b Run) bool { return a == b }) {
				t.Fatalf("runs %v, want %v", got.Runs, own.Runs)
			}
		})
	}
}

func TestProfileIDs(t *testing.T) {
	for id, ok := range map[string]bool{
		"a": true, "A-b_c.9": true, strings.Repeat("x", 128): true, "_x": true,
		"": false, ".": false, "..": false, ".hidden": false, "a/b": false, "a b": false, "a\x00": false, "é": false,
		strings.Repeat("x", 129): false, "a=2E": false, "a*": false, "a>": false,
	} {
		if err := CheckProfileID(id); (err == nil) != ok {
			t.Errorf("%q: %v", id, err)
		}
		if ok && (ProfileOfKey(Key(id)) != id || strings.Contains(Key(id), ".")) {
			t.Errorf("%q: key %q", id, Key(id))
		}
	}
}

// TestAnyHistory takes random steps, allowed ones and others, on a store that forgets
// now and then. Granted tokens have to rise, sequences may have no gap, and each run
// that was granted has to end by exactly one event.
func TestAnyHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := Record{ProfileID: "p", Settings: Settings{MaxActiveRuns: rapid.IntRange(1, 3).Draw(t, "runs")}}
		var published []Event
		own, floor := r, Token(0)
		pick := func(name string) Token { return Token(rapid.Uint64Range(0, uint64(floor)+1).Draw(t, name)) }
		steps := map[string]func() (Record, error){
			"grant": func() (Record, error) {
				return r.Grant(Request{SessionID: fmt.Sprint("s", r.Token+1), LauncherID: "l", Floor: floor, TTL: time.Second, Exclusive: rapid.Bool().Draw(t, "exclusive")}, noon)
			},
			"release":  func() (Record, error) { return r.Release("done", "ok", Sealed{}, noon) },
			"unserved": func() (Record, error) { return r.Unserved("not started", Sealed{}, time.Minute, noon) },
			"end run":  func() (Record, error) { return r.EndRun(pick("run"), false, "done", "ok", Sealed{}, noon) },
			"lose run": func() (Record, error) { return r.EndRun(pick("run"), true, "lost", "", Sealed{}, noon) },
			"suspect":  func() (Record, error) { return r.Suspect("lost", Sealed{}, noon) },
			"reassert": func() (Record, error) { return r.Reassert(noon) },
			"fence":    func() (Record, error) { return r.Quarantine(floor, noon) },
			"inspect":  func() (Record, error) { return r.Inspect(Sealed{}, noon) },
			"abandon":  func() (Record, error) { return r.Abandon(nil, Sealed{}, noon) },
			"settle": func() (Record, error) {
				d := rapid.SampledFrom([]string{DecisionRelease, DecisionRetry, DecisionResume, DecisionManualReview, "?"}).Draw(t, "decision")
				return r.Decide(Verdict{Decision: d, ResumeFrom: "x"}, noon)
			},
			"review": func() (Record, error) {
				seen := r.Token - Token(rapid.IntRange(0, 1).Draw(t, "old"))
				return r.Reviewed(Review{Decision: ReviewApprove, TokenSeen: seen}, 0, noon)
			},
			"uphold": func() (Record, error) { return r.Uphold(r, pick("holder"), Progress{LastKnownStep: "x"}, noon) },
			"the store forgets, the home heals": func() (Record, error) {
				forgotten := rapid.SampledFrom([]Record{{ProfileID: "p"}, {ProfileID: "p", State: Available, Token: floor / 2}}).Draw(t, "store")
				if forgotten.Token >= floor {
					return r, errors.New("it forgot nothing")
				}
				return forgotten.Heal(own, floor, noon)
			},
		}
		names := slices.Sorted(func(yield func(string) bool) {
			for name := range steps {
				if !yield(name) {
					return
				}
			}
		})
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			name := rapid.SampledFrom(names).Draw(t, "step")
			next, err := steps[name]()
			if err != nil {
				continue
			}
			if next.Token < r.Token {
				t.Fatalf("%s: token fell from %d to %d", name, r.Token, next.Token)
			}
			if next.State == Quarantined && r.State != Quarantined && next.Token <= r.Token {
				t.Fatalf("%s left the token valid", name)
			}
			published = append(published, next.Outbox...)
			next.Outbox = nil
			r = next
			own, floor = r, r.Token
		}
		highest, open := Token(0), map[Token]bool{}
		for i, e := range published {
			if e.Sequence != uint64(i+1) {
				t.Fatalf("event %d has sequence %d", i, e.Sequence)
			}
			switch run := cmp.Or(e.RunToken, e.Token); e.Event {
			case EventGranted:
				if open[run] && e.Reason == "reasserted" {
					continue
				}
				if run <= highest {
					t.Fatalf("token %d was granted after %d", run, highest)
				}
				highest, open[run] = run, true
			case EventReleased, EventExpired:
				if !open[run] {
					t.Fatalf("run %d is %s, and was not open", run, e.Event)
				}
				open[run] = false
			}
		}
		listed := 0
		for _, run := range r.Runs {
			if !open[run.Token] {
				t.Fatalf("run %d is listed, and its end was published", run.Token)
			}
			listed++
		}
		for run, is := range open {
			if is {
				listed--
			} else if slices.ContainsFunc(r.Runs, func(l Run) bool { return l.Token == run }) {
				t.Fatalf("run %d ended and is listed", run)
			}
		}
		if listed != 0 {
			t.Fatalf("%d runs are open that no record lists", -listed)
		}
	})
}
