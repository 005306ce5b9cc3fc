package lease

import (
	"errors"
	"testing"
)

// The record names a snapshot only if that is of the profile as it is now.
func TestARecordNamesASnapshotOfItsOwnToken(t *testing.T) {
	ended := Record{ProfileID: "p", State: Available, Token: 7, ReleasedAt: noon}
	r, err := ended.Snapshotted("snap_1", 7)
	if err != nil || r.SnapshotID != "snap_1" || r.SnapshotToken != 7 || !r.HasSnapshot() || !r.EndedInOrder() {
		t.Fatalf("%+v, %v", r, err)
	}
	for what, c := range map[string]struct {
		token  Token
		change func(*Record)
	}{
		"of an earlier token":     {6, func(*Record) {}},
		"of a later token":        {8, func(*Record) {}},
		"while it is held":        {7, func(r *Record) { r.State = Held }},
		"in review":               {7, func(r *Record) { r.State = ManualReview }},
		"after a recovery":        {7, func(r *Record) { r.Decision = DecisionRetry }},
		"after a person approved": {7, func(r *Record) { r.Review = &Review{Decision: ReviewApprove} }},
		"before any session":      {7, func(r *Record) { r.ReleasedAt = r.AcquiredAt }},
	} {
		r := ended
		c.change(&r)
		var fenced *FencedError
		if next, err := r.Snapshotted("snap_2", c.token); !errors.As(err, &fenced) || next.SnapshotID != "" {
			t.Errorf("%s: %v, %v", what, next.SnapshotID, err)
		}
	}
	// The next session goes on from there, and its snapshot is not made yet.
	next, err := r.Grant(Request{SessionID: "s", LauncherID: "home", Floor: 7, TTL: 30}, noon)
	if err != nil || next.SnapshotID != "snap_1" || next.HasSnapshot() {
		t.Errorf("%+v, %v", next, err)
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
