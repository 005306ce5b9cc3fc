package lease

import (
	"testing"
	"time"
)

// TestWhatSitesSayOfTheAccount: a change of the answer is an event, and a check without an answer
// changes nothing but that it was tried.
func TestWhatSitesSayOfTheAccount(t *testing.T) {
	yes, no, none := Checked{SignedIn: SignedInYes, How: "in"}, Checked{SignedIn: SignedInNo, How: "out", At: "https://shop.example"}, Checked{SignedIn: SignedInUnknown, How: "down"}
	another := Checked{SignedIn: SignedInNo, How: "bob", At: "https://shop.example", Another: true}
	r := Record{ProfileID: "shop.1", State: Available, Token: 7, Reason: "released", Decision: "retry"}
	for i, step := range []struct {
		name  string
		said  Checked
		want  SignedIn
		event string
		tried bool
		since int // the step since which it is so
		how   string
	}{
		{"nobody was asked", Checked{}, "", "", false, -1, ""},
		{"the site is down", none, "", "", true, -1, "down"},
		{"signed in", yes, SignedInYes, EventSignedIn, false, 2, "in"},
		{"still", yes, SignedInYes, "", false, 2, "in"},
		{"down again", none, SignedInYes, "", true, 2, "in"},
		{"signed out", no, SignedInNo, EventSignedOut, false, 5, "out"},
		{"still out", no, SignedInNo, "", false, 5, "out"},
		{"somebody else's account", another, SignedInNo, EventAnotherAccount, false, 7, "bob"},
		{"out after that", no, SignedInNo, EventSignedOut, false, 8, "out"},
		{"down while it is out", none, SignedInNo, "", true, 8, "out"},
		{"in again", yes, SignedInYes, EventSignedIn, false, 10, "in"},
	} {
		at := func(i int) time.Time {
			if i < 0 {
				return time.Time{}
			}
			return noon.Add(time.Duration(i) * time.Hour)
		}
		r.Outbox = nil
		r = r.Checked(step.said, at(i))
		event := ""
		if len(r.Outbox) == 1 {
			event = r.Outbox[0].Event
			if e := r.Outbox[0]; e.Reason != step.how || e.SignInAt != step.said.At || e.Decision != "" || e.Subject() != "leasehold.account.shop=2E1."+event {
				t.Errorf("%s: %+v on %s", step.name, e, e.Subject())
			}
		}
		if r.SignedIn != step.want || event != step.event || r.SignedInTriedAt.IsZero() == step.tried || !r.SignedInSince.Equal(at(step.since)) || r.SignedInHow != step.how {
			t.Errorf("%s: %+v, event %q", step.name, r.Account, event)
		}
	}
}

// TestWhenAnAccountIsCheckedNext is a table of the rule.
func TestWhenAnAccountIsCheckedNext(t *testing.T) {
	never := time.Time{}
	at := func(d time.Duration) time.Time { return noon.Add(d) }
	used := Record{ProfileID: "p", State: Available, Token: 7, SessionID: "s", ReleasedAt: noon}
	set := func(r Record, how func(*Record)) Record {
		how(&r)
		return r
	}
	checked := set(used, func(r *Record) {
		r.SignedIn, r.SignedInToken, r.SignedInCheckedAt, r.CheckEvery = SignedInYes, 7, noon, Duration(15*time.Minute)
	})
	out := set(checked, func(r *Record) { r.SignedIn = SignedInNo })
	tried := set(checked, func(r *Record) { r.SignedInTriedAt = at(time.Minute) })
	more := func(r Record, d time.Duration) time.Time { return at(d).Add(r.jitter(d / 10)) }
	for _, tt := range []struct {
		name string
		r    Record
		want time.Time
	}{
		{"never used", Record{ProfileID: "p", State: Available}, never},
		{"never used, and checked every now and then", Record{ProfileID: "p", State: Available, Settings: Settings{CheckEvery: Duration(time.Hour)}}, time.Unix(0, 0)},
		{"after a session", used, at(checkAfter)},
		{"checked at the end of the session", set(checked, func(r *Record) { r.CheckEvery = 0 }), never},
		{"every now and then", checked, more(checked, 15*time.Minute)},
		{"signed out", out, more(out, checkAgain)},
		{"used to sign in", set(out, func(r *Record) { r.Token, r.ReleasedAt = 8, at(time.Minute) }), at(time.Minute + checkAfter)},
		{"no answer", tried, at(time.Minute + checkAgain).Add(tried.jitter(checkAgain / 10))},
		{"no answer, and used since", set(tried, func(r *Record) { r.Token, r.ReleasedAt = 8, at(2*time.Minute) }), at(time.Minute + checkAgain)},
		{"cooling down", set(used, func(r *Record) { r.AvailableAfter = at(5 * time.Minute) }), at(5 * time.Minute)},
		{"held", set(checked, func(r *Record) { r.State = Held }), never},
		{"in review", set(checked, func(r *Record) { r.State = ManualReview }), never},
		{"kept for its task", set(checked, func(r *Record) { r.State = ResumePending }), never},
	} {
		if got := tt.r.NextCheck(); !got.Equal(tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestASnapshotOfASignedOutAccount does not replace the newest of a signed-in one.
func TestASnapshotOfASignedOutAccount(t *testing.T) {
	yes, no := Checked{SignedIn: SignedInYes}, Checked{SignedIn: SignedInNo}
	r := Record{ProfileID: "p", State: Available, Token: 1}
	use := func() { r.Token++ }
	check := func(c Checked) { r = r.Checked(c, noon) }
	snapshot := func(id string) {
		t.Helper()
		var err error
		if r, err = r.Snapshotted(id, r.Token, r.Opened); err != nil {
			t.Fatal(err)
		}
	}
	want := func(when, usual string, out bool) {
		t.Helper()
		if got := r.UsualSnapshot(); got != usual || r.SnapshotSignedOut != out {
			t.Errorf("%s: %q, signed out %v, want %q", when, got, r.SnapshotSignedOut, usual)
		}
	}
	snapshot("a")
	want("nobody was asked", "a", false)
	check(no)
	want("signed out, and there is no other", "a", true)
	use()
	check(yes)
	snapshot("b")
	want("checked before the snapshot", "b", false)
	use()
	snapshot("c")
	check(yes)
	want("checked after the snapshot", "c", false)
	use()
	snapshot("d")
	want("not checked yet", "d", false)
	check(no)
	want("signed out meanwhile", "c", true)
	use()
	snapshot("e")
	want("signed in by now, perhaps", "c", true)
	check(yes)
	want("signed in again", "e", false)
	if r = r.WithoutSnapshot(); r.UsualSnapshot() != "" || r.SignedInSnapshotID != "" {
		t.Errorf("without a snapshot: %+v", r)
	}
}

// TestASiteThatAnswersDifferentlyEachTime: however often it is to be asked, once an hour at most it is
// asked again after a no, and each change is one event.
func TestASiteThatAnswersDifferentlyEachTime(t *testing.T) {
	r := Record{ProfileID: "shop.1", State: Available}
	r.CheckEvery = Duration(LeastCheckEvery)
	last := time.Time{}
	for i, now := 0, noon; now.Before(noon.Add(24 * time.Hour)); i++ {
		now = latest(now, r.NextCheck())
		if i%2 == 1 && now.Sub(last) < checkAgain {
			t.Fatalf("answer %d: asked at %s, after the no of %s", i, now, last)
		}
		said := Checked{SignedIn: SignedInNo, How: "out", At: "https://shop.example", Another: i%4 == 0}
		if i%2 == 1 {
			said = Checked{SignedIn: SignedInYes, How: "in"}
		} else {
			last = now
		}
		r.Outbox = nil
		if r = r.Checked(said, now); len(r.Outbox) != 1 || r.SignedIn != said.SignedIn || r.AnotherAccount != said.Another {
			t.Fatalf("answer %d: %d events, %s, another account %v", i, len(r.Outbox), r.SignedIn, r.AnotherAccount)
		}
		if i > 100 {
			t.Fatal("asked more than four times an hour")
		}
	}
}
