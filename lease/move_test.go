package lease

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"leasehold/internal/boottime"
)

func byAnn(to string, floor Token) MoveRequest {
	return MoveRequest{To: to, Floor: floor, Move: Move{ID: "mv1", Directory: DirectoryEmpty, Person: "ann", Principal: "uid:0", Note: "its disk is gone"}}
}

// free is a profile that may move by itself, if it is available.
func free(s State) Record {
	r := in(s)
	r.Mobility, r.SnapshotID, r.SnapshotToken = MobilityFree, "snap1", 7
	return r
}

func byItself(to string) MoveRequest {
	return MoveRequest{To: to, Move: Move{ID: "mv1", Directory: DirectorySnapshot, SnapshotID: "snap1", SnapshotToken: 7}}
}

// Which states a profile may leave for another home, by a person and by itself.
func TestWhoMayChangeItsHome(t *testing.T) {
	for _, c := range []struct {
		from         State
		byHand, free State // what it is then; empty: it keeps its home
	}{
		{"", "", ""}, {Held, "", ""}, {SuspectedStale, "", ""}, {Quarantined, "", ""}, {Inspected, "", ""},
		{Available, Available, Available}, {ResumePending, ManualReview, ""}, {ManualReview, ManualReview, ""},
	} {
		for _, how := range []struct {
			q    MoveRequest
			want State
		}{{byAnn("other", 0), c.byHand}, {byItself("other"), c.free}} {
			t.Run(fmt.Sprintf("%s/%s", c.from, how.q.Move.Person), func(t *testing.T) {
				r := free(c.from)
				got, err := r.Move(how.q, r.Token, noon)
				asked, askErr := r.Ask(how.q, r.Token)
				var kept *MoveError
				if how.want == "" {
					if !errors.As(err, &kept) || !errors.As(askErr, &kept) {
						t.Fatalf("moved to %+v (%v), asked %v: want a refusal of both", got, err, askErr)
					}
					return
				}
				if err != nil || got.State != how.want || got.Home != "other" || got.Token != 8 || got.HomeToken != 8 || got.Moved.From != "home" || got.Moved.Token != 8 || !got.Moved.At.Equal(noon) || got.Moved.ID != "mv1" {
					t.Fatalf("%+v %v", got, err)
				}
				e := got.Outbox[0]
				if e.Event != EventMoved || e.Subject() != "leasehold.lease.p.moved" || e.Home != "other" || e.OldHome != "home" || e.Token != 8 || e.Reason != ReasonMoved || e.Person != how.q.Move.Person || e.Sequence != 21 {
					t.Errorf("event %+v", e)
				}
				if told := len(got.Outbox) == 2 && got.Outbox[1].Event == string(ManualReview); told != (c.from == ResumePending) {
					t.Errorf("events %+v", got.Outbox)
				}
				if askErr != nil || asked.State != c.from || asked.Home != "home" || asked.Token != 7 || asked.Sequence != 20 || len(asked.Outbox) != 0 {
					t.Fatalf("who is asked has no more to say: %+v %v", asked, askErr)
				}
				given, err := asked.GiveUp(noon)
				if err != nil || given.Home != "other" || given.Token != 8 || given.MoveRequest != nil || given.State != how.want {
					t.Fatalf("given up: %+v %v", given, err)
				}
			})
		}
	}
}

func TestAMoveNeedsWhatWasSeen(t *testing.T) {
	r := in(Available)
	var fenced *FencedError
	if _, err := r.Move(byAnn("other", 0), 6, noon); !errors.As(err, &fenced) || fenced.Current != 7 {
		t.Errorf("a move by an old token: %v", err)
	}
	if _, err := r.Ask(byAnn("other", 0), 6); !errors.As(err, &fenced) {
		t.Errorf("asked by an old token: %v", err)
	}
	var kept *MoveError
	if _, err := r.GiveUp(noon); !errors.As(err, &kept) {
		t.Errorf("given up unasked: %v", err)
	}
	if _, err := r.Move(MoveRequest{Move: Move{ID: "mv1", Person: "ann"}}, 7, noon); !errors.As(err, &kept) {
		t.Errorf("moved to nobody: %v", err)
	}
	if _, err := r.Move(MoveRequest{To: "other", Move: Move{Person: "ann"}}, 7, noon); !errors.As(err, &kept) {
		t.Errorf("a move without an id: %v", err)
	}
	contested := in(ManualReview)
	contested.OtherHome = "third"
	if _, err := contested.Move(byAnn("other", 0), 7, noon); !errors.As(err, &kept) {
		t.Errorf("a contested profile moves: %v", err)
	}
}

// The token of a move is above the floor of the new home, where the profile may have been before.
func TestAMoveIsAboveTheFloorOfTheNewHome(t *testing.T) {
	for floor, want := range map[Token]Token{0: 8, 7: 8, 8: 9, 30: 31} {
		got, err := in(Available).Move(byAnn("other", floor), 7, noon)
		if err != nil || got.Token != want || got.HomeToken != want {
			t.Errorf("floor %d: token %d, home token %d (%v), want %d", floor, got.Token, got.HomeToken, err, want)
		}
	}
}

// What a person has to decide says why still, after the profile has moved.
func TestAMoveLeavesTheReviewOpen(t *testing.T) {
	r := in(ManualReview)
	r.Reason, r.Reasons, r.RememberedBy = "heartbeat_timeout", []string{"a POST"}, "third"
	got, err := r.Move(byAnn("other", 0), 7, noon)
	if err != nil || got.Reason != "heartbeat_timeout" || got.Reasons[0] != "a POST" || got.RememberedBy != "" {
		t.Fatalf("%+v %v", got, err)
	}
	moved, err := in(Available).Move(byAnn("other", 0), 7, noon)
	if err != nil || moved.Reason != ReasonMoved {
		t.Fatalf("%+v %v", moved, err)
	}
	waits, err := in(ResumePending).Move(byAnn("other", 0), 7, noon)
	if err != nil || waits.Decision != DecisionManualReview || len(waits.Reasons) != 1 {
		t.Fatalf("%+v %v", waits, err)
	}
}

// Whatever happens to a profile ends a request to give it up.
func TestARequestEndsWithTheNextTransition(t *testing.T) {
	asked, err := free(Available).Ask(byItself("other"), 7)
	if err != nil {
		t.Fatal(err)
	}
	held, err := asked.Grant(Request{SessionID: "s8", LauncherID: "home", TTL: time.Minute}, noon)
	if err != nil || held.MoveRequest != nil {
		t.Fatalf("%+v %v", held.MoveRequest, err)
	}
	if _, ok := asked.Withdraw("another"); ok {
		t.Error("somebody else's request was withdrawn")
	}
	back, ok := asked.Withdraw("mv1")
	if !ok || back.MoveRequest != nil || asked.MoveRequest == nil {
		t.Errorf("withdrawn: %v, %+v", ok, back.MoveRequest)
	}
}

// The old home believes a move, and contests what says otherwise afterwards.
func TestAMoveIsBelieved(t *testing.T) {
	before := in(Available)
	after, err := before.Move(byAnn("other", 0), 7, noon)
	if err != nil {
		t.Fatal(err)
	}
	if got := before.Known().Judge(after); got != Agrees {
		t.Errorf("the old home says %v of the move, want that it agrees", got)
	}
	if got := after.Known().Judge(before); got == Agrees {
		t.Error("the new home agrees to a store that went back to before the move")
	}
	granted, err := before.Grant(Request{SessionID: "s8", LauncherID: "home", TTL: time.Minute}, noon)
	if err != nil {
		t.Fatal(err)
	}
	if got := after.Known().Judge(granted); got != Contradicts {
		t.Errorf("the new home says %v of a grant by the old one after the store went back, want that it contradicts", got)
	}
}

// A profile moves by itself only with everything that was done on it.
func TestWhatMovesByItself(t *testing.T) {
	for name, change := range map[string]func(r *Record, q *MoveRequest){
		"as it should be":                        func(*Record, *MoveRequest) {},
		"a pinned one":                           func(r *Record, _ *MoveRequest) { r.Mobility = MobilityPinned },
		"one of which nobody said anything":      func(r *Record, _ *MoveRequest) { r.Mobility = "" },
		"one without a snapshot":                 func(r *Record, q *MoveRequest) { r.SnapshotID, q.Move.SnapshotID = "", "" },
		"one with a snapshot of before":          func(r *Record, q *MoveRequest) { r.SnapshotToken, q.Move.SnapshotToken = 6, 6 },
		"with another snapshot":                  func(_ *Record, q *MoveRequest) { q.Move.SnapshotID = "snap0" },
		"with the token of another snapshot":     func(_ *Record, q *MoveRequest) { q.Move.SnapshotToken = 6 },
		"one that another launcher remembers":    func(r *Record, _ *MoveRequest) { r.RememberedBy = "third" },
		"one that waits for a person":            func(r *Record, _ *MoveRequest) { r.State = ManualReview },
		"one that waits for its task":            func(r *Record, _ *MoveRequest) { r.State = ResumePending },
		"one that was quarantined and let go":    func(r *Record, _ *MoveRequest) { r.Token++ },
		"one that nobody knows whose home it is": func(r *Record, _ *MoveRequest) { r.OtherHome = "third" },
	} {
		r, q := free(Available), byItself("other")
		change(&r, &q)
		got, err := r.Move(q, r.Token, noon)
		var kept *MoveError
		if fits := name == "as it should be"; fits != (err == nil) || !fits && !errors.As(err, &kept) {
			t.Errorf("%s: home %s, %v", name, got.Home, err)
		}
	}
}

func TestSilence(t *testing.T) {
	o := NewObserver("own", time.Minute)
	wait := Timing{TTL: 30 * time.Second}.ObserverWait()
	if o.Silent("home", 30*time.Second, 0) {
		t.Error("a launcher is gone of which nobody ever heard")
	}
	at := func(d time.Duration) boottime.Instant { return boottime.Instant(d) }
	p := PresenceEntry{Presence: Presence{LauncherID: "home", TTLSeconds: 30, Nonce: "a"}, Revision: 1}
	o.Presences([]PresenceEntry{p}, at(time.Second))
	for _, c := range []struct {
		name string
		ttl  time.Duration
		at   time.Duration
		want bool
	}{
		{"at once", 0, time.Second, false},
		{"just before", 0, time.Second + wait - 1, false},
		{"then", 0, time.Second + wait, true},
		{"by the longer TTL of its lease", time.Minute, time.Second + wait, false},
	} {
		if got := o.Silent("home", c.ttl, at(c.at)); got != c.want {
			t.Errorf("%s: silent %v, want %v", c.name, got, c.want)
		}
	}
	// One that ended in order may be back before anybody waited: it counts from there, too.
	p.Presence.Closed, p.Presence.ClosedBy, p.Presence.Nonce, p.Revision = true, "home", "b", 2
	o.Presences([]PresenceEntry{p}, at(time.Minute))
	if o.Silent("home", 0, at(time.Minute)+1) || !o.Silent("home", 0, at(time.Minute+wait)) {
		t.Error("a launcher that ended in order counts as gone at once, or never")
	}
	// One whose stay another one ended was silent before that.
	p.Presence = Presence{LauncherID: "home", TTLSeconds: 30, Epoch: 7, Nonce: "c"}
	p.Revision = 3
	o.Presences([]PresenceEntry{p}, at(90*time.Second))
	for _, c := range []struct {
		name string
		by   string
		make func(p *PresenceEntry)
		gone bool
	}{
		{"another one ended its stay", "third", func(*PresenceEntry) {}, true},
		{"it ended its stay itself", "home", func(*PresenceEntry) {}, false},
		{"another stay was ended", "third", func(p *PresenceEntry) { p.Presence.Epoch++ }, false},
		{"the store went back to the end of its stay", "third", func(p *PresenceEntry) { p.Revision = 2 }, false},
	} {
		o := NewObserver("own", time.Minute)
		o.Presences([]PresenceEntry{p}, at(time.Second))
		ended := PresenceEntry{p.Presence.Close("home", c.by, 0, noon), p.Revision + 1}
		ended.Presence.Nonce = "d"
		c.make(&ended)
		o.Presences([]PresenceEntry{ended}, at(wait))
		if got := o.Silent("home", 0, at(time.Second+wait)); got != c.gone {
			t.Errorf("%s: gone %v, want %v", c.name, got, c.gone)
		}
		if !o.Silent("home", 0, at(2*wait)) {
			t.Errorf("%s: it is never gone", c.name)
		}
	}
	o.Start(at(2 * time.Minute))
	if o.Silent("home", 0, at(2*time.Minute+wait-1)) {
		t.Error("the wait goes on where it was after the store was away")
	}
}

// Homes come and go, a store goes back, and both old and new homes say what they remember: no
// token is used twice on one directory, and nobody but the home by what is known grants.
func TestMovesWithAStoreThatGoesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type disk struct {
			known Known
			floor Token // of its directory
			left  Token // under which it left it; zero: it is not left
		}
		hosts := []string{"alpha", "beta", "gamma"}
		disks := map[string]*disk{}
		for _, h := range hosts {
			disks[h] = &disk{}
		}
		used := map[Token]string{}
		r := Record{ProfileID: "p", State: Available, Home: "alpha", Token: 1, Settings: Settings{MaxActiveRuns: 1}}
		history := []Record{r}
		see := func(h string) {
			d := disks[h]
			if d.known.Judge(r) == Agrees && d.known.Home == h && r.Home != h && r.OtherHome == "" && r.HomeToken > d.left {
				d.left = r.HomeToken
			}
			d.known = d.known.Learn(r)
		}
		put := func(next Record) {
			next.Outbox = nil
			r = next
			history = append(history, r)
		}
		moves := 0
		for range rapid.IntRange(5, 60).Draw(t, "steps") {
			h := rapid.SampledFrom(hosts).Draw(t, "host")
			d := disks[h]
			switch rapid.SampledFrom([]string{"see", "see", "grant", "move", "give up", "back", "say"}).Draw(t, "step") {
			case "see":
				see(h)
			case "grant": // as a launcher does: only as the home, by what it knows, above its floor
				if r.Home != h || d.known.Judge(r) != Agrees || d.left != 0 || r.State != Available { // what was left is not opened, whatever the store says
					break
				}
				held, err := r.Grant(Request{SessionID: "s", LauncherID: h, TTL: time.Minute, Floor: d.floor}, noon)
				if err != nil {
					break
				}
				if held.Token <= d.floor {
					t.Fatalf("%s grants token %d on a directory with floor %d", h, held.Token, d.floor)
				}
				if by, ok := used[held.Token]; ok && by == h {
					t.Fatalf("token %d was granted twice by %s", held.Token, h)
				}
				used[held.Token] = h
				d.floor = held.Token
				put(held)
				see(h)
				free, err := held.Release("released", "", Sealed{}, noon)
				if err != nil {
					t.Fatal(err)
				}
				put(free)
			case "move", "give up":
				to := rapid.SampledFrom(hosts).Draw(t, "to")
				if to == r.Home || disks[to].known.Judge(r) != Agrees {
					break
				}
				q := byAnn(to, max(disks[to].floor, disks[to].left, disks[to].known.Token))
				next, err := r.Move(q, r.Token, noon)
				if err != nil {
					break
				}
				if next.Token <= disks[to].floor || next.Token <= r.Token || next.HomeToken != next.Token {
					t.Fatalf("moved to %s under token %d: floor %d, before %d", to, next.Token, disks[to].floor, r.Token)
				}
				old := r.Home
				put(next)
				moves++
				disks[to].floor, disks[to].left = next.Token, 0
				see(to)
				if rapid.Bool().Draw(t, "the old home is there") {
					see(old)
				}
			case "back":
				r = history[rapid.IntRange(max(0, len(history)-6), len(history)-1).Draw(t, "to")]
			case "say":
				if d.known.Judge(r) != Contradicts {
					break
				}
				next, err := r.Contest(d.known, Record{}, 0, 0, noon)
				if err != nil {
					t.Fatal(err)
				}
				if next.Token <= r.Token || next.Token <= d.known.Token || next.State != Quarantined {
					t.Fatalf("contested: %+v", next)
				}
				put(next)
				next, err = next.Abandon([]string{"why"}, Sealed{}, noon)
				if err != nil {
					t.Fatal(err)
				}
				if next, err = next.Reviewed(Review{Decision: ReviewApprove, TokenSeen: next.Token}, 0, noon); err != nil {
					t.Fatal(err)
				}
				put(next)
			}
			if i := slices.IndexFunc(hosts, func(h string) bool { return disks[h].left != 0 && disks[h].floor > disks[h].left }); i >= 0 {
				t.Fatalf("%s granted on a directory that it left under token %d: floor %d", hosts[i], disks[hosts[i]].left, disks[hosts[i]].floor)
			}
		}
	})
}
