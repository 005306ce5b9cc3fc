package lease

import (
	"errors"
	"testing"
)

// The record names a snapshot only if that is of the profile as it is now.
func TestARecordNamesASnapshotOfItsOwnToken(t *testing.T) {
	ended := Record{ProfileID: "p", State: Available, Token: 7, ReleasedAt: noon}
	r, err := ended.Snapshotted("snap_1", 7, 0)
	if err != nil || r.SnapshotID != "snap_1" || r.SnapshotToken != 7 || !r.HasSnapshot() || !r.AtRest() {
		t.Fatalf("%+v, %v", r, err)
	}
	for what, c := range map[string]struct {
		token  Token
		change func(*Record)
	}{
		"of an earlier token":      {6, func(*Record) {}},
		"of a later token":         {8, func(*Record) {}},
		"while it is held":         {7, func(r *Record) { r.State = Held }},
		"in review":                {7, func(r *Record) { r.State = ManualReview }},
		"after a recovery":         {7, func(r *Record) { r.Decision = DecisionRetry }},
		"after a person approved":  {7, func(r *Record) { r.Review = &Review{Decision: ReviewApprove} }},
		"of a session's beginning": {7, func(r *Record) { r.SessionID, r.ReleasedAt = "s", r.AcquiredAt }},
	} {
		r := ended
		c.change(&r)
		var fenced *FencedError
		if next, err := r.Snapshotted("snap_2", c.token, 0); !errors.As(err, &fenced) || next.SnapshotID != "" {
			t.Errorf("%s: %v, %v", what, next.SnapshotID, err)
		}
	}
	// The next session goes on from there, and its snapshot is not made yet.
	next, err := r.Grant(Request{SessionID: "s", LauncherID: "home", Floor: 7, TTL: 30}, noon)
	if err != nil || next.SnapshotID != "snap_1" || next.HasSnapshot() {
		t.Errorf("%+v, %v", next, err)
	}
}

// A profile that nobody used yet is as it was made, and its first snapshot is of the token that
// it has then.
func TestWhatNobodyUsedYetIsAtRest(t *testing.T) {
	made := Record{ProfileID: "p", State: Available, Home: "home"}
	first, err := made.Snapshotted("snap_1", 0, 0)
	if err != nil || !made.AtRest() || made.HasSnapshot() || !first.HasSnapshot() {
		t.Fatalf("%+v, %v", first, err)
	}
	held, err := made.Grant(Request{SessionID: "s", LauncherID: "home", TTL: 30}, noon)
	if err != nil || held.AtRest() {
		t.Fatalf("%+v, %v", held, err)
	}
	var fenced *FencedError
	if _, err := held.Snapshotted("snap_1", 0, 0); !errors.As(err, &fenced) {
		t.Errorf("a first snapshot that came after a grant: %v", err)
	}
	for _, state := range []State{Held, SuspectedStale, Quarantined, Inspected, ManualReview, ResumePending} {
		r := made
		if r.State = state; r.AtRest() {
			t.Errorf("%s is at rest", state)
		}
	}
}

// Another directory in the place of one that was put aside has nothing to do with how that was
// left, and what was sealed of that one comes too late.
func TestAnotherDirectoryIsNotTheOneBefore(t *testing.T) {
	before := Record{
		ProfileID: "p", State: Available, Token: 7, SessionID: "s", ReleasedAt: noon, Reason: "review_approved", Decision: DecisionRelease, Reasons: []string{"approved by ann"},
		SnapshotID: "snap_1", SnapshotToken: 7,
	}
	before.Review = &Review{Decision: ReviewApprove}
	before.Principal, before.Sequence = "bob", 4
	now, err := before.Remake("ann", noon)
	if err != nil || now.Token != 8 || now.HasSnapshot() || !now.AtRest() || before.AtRest() || now.Reason != ReasonRemade || now.Reasons != nil || now.State != Available {
		t.Errorf("%+v, %v", now, err)
	}
	if len(now.Outbox) != 1 || now.Sequence != 5 {
		t.Fatalf("%+v", now)
	}
	if e := now.Outbox[0]; e.Event != EventRemade || e.Token != 8 || e.Sequence != 5 || e.Principal != "ann" || e.Decision != "" || e.Reviewer != "" || e.Reason != ReasonRemade || e.Subject() != "leasehold.lease.p.remade" {
		t.Errorf("%+v", e)
	}
	var fenced *FencedError
	if _, err := now.Snapshotted("snap_2", 7, 0); !errors.As(err, &fenced) {
		t.Errorf("a snapshot of the directory before: %v", err)
	}
}

// A person brings back a snapshot under a higher token, having seen the present one.
func TestASnapshotIsRestoredUnderAHigherToken(t *testing.T) {
	for _, state := range []State{Available, ManualReview} {
		r := Record{ProfileID: "p", State: state, Token: 7, SnapshotID: "snap_2", SnapshotToken: 7, Sequence: 3, Reason: "why"}
		var fenced *FencedError
		if _, err := r.RestoreSnapshot("snap_1", Review{TokenSeen: 6}, noon); !errors.As(err, &fenced) {
			t.Errorf("with an old token: %v", err)
		}
		next, err := r.RestoreSnapshot("snap_1", Review{TokenSeen: 7, Principal: "ann", Note: "n"}, noon)
		if err != nil || next.Token != 8 || next.State != state || next.HasSnapshot() || next.Sequence != 4 || len(next.Outbox) != 1 {
			t.Fatalf("%+v, %v", next, err)
		}
		if e := next.Outbox[0]; e.Event != EventSnapshotRestored || e.Token != 8 || e.SnapshotID != "snap_1" || e.Principal != "ann" || e.Note != "n" || e.Subject() != "leasehold.lease.p.snapshot_restored" {
			t.Errorf("%+v", e)
		}
		if (next.Reason == ReasonSnapshotRestored) != (state == Available) {
			t.Errorf("in %s the reason is %s", state, next.Reason)
		}
	}
}

// A browser without a session may change the profile under its token: the snapshot of before is not the
// present state, and neither is one that was read before, and is there later.
func TestABrowserWithoutASessionOutdatesTheSnapshot(t *testing.T) {
	open := func(r Record) Record {
		t.Helper()
		r, err := r.Open()
		if err != nil || r.HasSnapshot() {
			t.Fatalf("%+v, %v", r, err)
		}
		return r
	}
	sealed := func(r Record, id string, opened uint64) Record {
		t.Helper()
		r, err := r.Snapshotted(id, 7, opened)
		if err != nil || r.SnapshotID != id || r.UsualSnapshot() != id {
			t.Fatalf("%+v, %v", r, err)
		}
		return r
	}
	ended := Record{ProfileID: "p", State: Available, Token: 7, ReleasedAt: noon, Settings: Settings{Mobility: MobilityFree}}
	named := sealed(ended, "snap_1", 0)
	var kept *MoveError
	if err := open(named).MayMove(); !errors.As(err, &kept) || kept.Why == "" || open(named).UsualSnapshot() != "snap_1" {
		t.Errorf("%v", err)
	}
	for what, tt := range map[string]struct {
		r    Record
		want bool
	}{
		"nothing was opened":                {named, true},
		"read after it":                     {sealed(open(named), "snap_2", 1), true},
		"read before it":                    {sealed(open(ended), "snap_1", 0), false},
		"it changed nothing":                {open(named).Unchanged(1), true},
		"the second changed nothing":        {open(open(named)).Unchanged(2), false},
		"an earlier one changed nothing":    {open(open(named)).Unchanged(1), false},
		"read between two":                  {sealed(open(open(named)), "snap_2", 1), false},
		"read between, and nothing after":   {sealed(open(open(named)), "snap_2", 1).Unchanged(2), true},
		"nothing changed, read before":      {sealed(open(named).Unchanged(1), "snap_2", 0), false},
		"with no snapshot, nothing changed": {open(ended).Unchanged(1), false},
	} {
		if tt.r.HasSnapshot() != tt.want || (tt.r.MayMove() == nil) != tt.want {
			t.Errorf("%s: %+v, %v", what, tt.r, tt.r.MayMove())
		}
	}
	// The next session goes on from there, and the snapshot of its end has all.
	held, err := open(named).Grant(Request{SessionID: "s", LauncherID: "home", Floor: 7, TTL: 30}, noon)
	if err == nil {
		held, err = held.Release("done", "ok", Sealed{}, noon)
	}
	if err == nil {
		held, err = held.Snapshotted("snap_2", 8, held.Opened)
	}
	if err != nil || !held.HasSnapshot() {
		t.Errorf("%+v, %v", held, err)
	}
	// Whoever asks for the profile gets the snapshot that it asked for, and nothing else has come since.
	named.MoveRequest = &MoveRequest{To: "elsewhere"}
	if _, err := named.Open(); !errors.As(err, &kept) {
		t.Errorf("while another launcher asks for it: %v", err)
	}
}
