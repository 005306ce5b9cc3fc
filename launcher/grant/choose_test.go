package grant

import (
	"slices"
	"strings"
	"testing"
	"time"

	"leasehold/launcher/api"
	"leasehold/launcher/host"
	"leasehold/lease"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func TestWhyAProfileIsNotFree(t *testing.T) {
	there := host.Capacity{There: true}
	for name, tt := range map[string]struct {
		r        lease.Record
		joinable bool
		home     host.Capacity
		want     string
	}{
		"free":                          {lease.Record{State: lease.Available}, false, there, ""},
		"its cooldown is over":          {lease.Record{State: lease.Available, AvailableAfter: noon}, false, there, ""},
		"cooling down":                  {lease.Record{State: lease.Available, AvailableAfter: noon.Add(time.Second)}, false, there, api.CodeCoolingDown},
		"held":                          {lease.Record{State: lease.Held}, false, there, api.CodeConflict},
		"held, and shared":              {lease.Record{State: lease.Held}, true, host.Capacity{There: true, Full: true}, ""},
		"suspected":                     {lease.Record{State: lease.SuspectedStale}, false, there, api.CodeConflict},
		"quarantined":                   {lease.Record{State: lease.Quarantined}, false, there, api.CodeQuarantined},
		"inspected":                     {lease.Record{State: lease.Inspected}, false, there, api.CodeQuarantined},
		"in review":                     {lease.Record{State: lease.ManualReview}, false, there, api.CodeInReview},
		"kept for another task":         {lease.Record{State: lease.ResumePending, TaskID: "other"}, false, there, api.CodeResumePending},
		"kept for this task":            {lease.Record{State: lease.ResumePending, TaskID: "task"}, false, there, ""},
		"kept for it, and cooling down": {lease.Record{State: lease.ResumePending, TaskID: "task", AvailableAfter: noon.Add(time.Hour)}, false, there, api.CodeCoolingDown},
		"its home is gone":              {lease.Record{State: lease.Available}, false, host.Capacity{}, api.CodeWrongHome},
		"its home is full":              {lease.Record{State: lease.Available}, false, host.Capacity{There: true, Full: true}, api.CodeHostFull},
	} {
		if got := whyNot(tt.r, api.Manifest{TaskID: "task"}, tt.joinable, tt.home, noon); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
	out := lease.Record{State: lease.Available, Account: lease.Account{SignedIn: lease.SignedInNo}}
	shared := out
	shared.State = lease.Held
	for _, tt := range []struct {
		name string
		r    lease.Record
		m    api.Manifest
		want string
	}{
		{"signed out", out, api.Manifest{}, api.CodeSignedOut},
		{"signed out, and shared", shared, api.Manifest{}, api.CodeSignedOut},
		{"signed out, for a task that signs in", out, api.Manifest{SignIn: true}, ""},
		{"signed out, for a person", out, api.Manifest{ByHand: &api.ByHand{}}, ""},
	} {
		if got := whyNot(tt.r, tt.m, true, there, noon); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	if host.IsFull(0, 9, 0) || host.IsFull(2, 1, 0) || host.IsFull(2, 2, 1) || !host.IsFull(2, 2, 0) || !host.IsFull(2, 3, 1) {
		t.Error("a host is full that is not, or not full that is")
	}
}

func TestWhatMayBeBroughtHere(t *testing.T) {
	movable := lease.Record{State: lease.Available, Token: 3, SnapshotID: "snap_1", SnapshotToken: 3, Settings: lease.Settings{Mobility: lease.MobilityFree}}
	pinned, older, held := movable, movable, movable
	pinned.Mobility, older.SnapshotToken, held.State = lease.MobilityPinned, 2, lease.Held
	for name, tt := range map[string]struct {
		candidate
		want bool
	}{
		"its home is gone":                  {candidate{Record: movable, why: api.CodeWrongHome}, true},
		"its home is full":                  {candidate{Record: movable, why: api.CodeHostFull}, true},
		"this is its home":                  {candidate{Record: movable, why: api.CodeHostFull, here: true}, false},
		"it is free at its home":            {candidate{Record: movable}, false},
		"it cools down":                     {candidate{Record: movable, why: api.CodeCoolingDown}, false},
		"pinned":                            {candidate{Record: pinned, why: api.CodeWrongHome}, false},
		"its snapshot is not of its token":  {candidate{Record: older, why: api.CodeWrongHome}, false},
		"somebody has it, on a silent host": {candidate{Record: held, why: api.CodeWrongHome}, false},
	} {
		if got := tt.mayCome(); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestWhichProfileIsTriedFirst(t *testing.T) {
	released := func(id string, ago time.Duration) lease.Record {
		return lease.Record{ProfileID: id, State: lease.Available, ReleasedAt: noon.Add(-ago)}
	}
	want := []candidate{
		{Record: released("resumes", 0), resumes: true},
		{Record: lease.Record{ProfileID: "never used"}, here: true},
		{Record: released("rested", time.Hour), here: true},
		{Record: released("b", time.Minute), here: true},
		{Record: released("c", time.Minute), here: true},
		{Record: released("shared", 2*time.Hour), here: true, shares: true},
		{Record: released("elsewhere, rested", 3*time.Hour)},
		{Record: released("elsewhere", time.Hour)},
	}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, preferred)
	for i := range want {
		if got[i].ProfileID != want[i].ProfileID {
			t.Errorf("%d: %s, want %s", i, got[i].ProfileID, want[i].ProfileID)
		}
	}
}

func TestNoneIsFree(t *testing.T) {
	m := api.Manifest{AccountID: "store", Labels: lease.Labels{"region": "us", "a": "b"}}
	of := func(why string) candidate { return candidate{why: why} }
	cooling := func(left time.Duration) candidate {
		return candidate{Record: lease.Record{AvailableAfter: noon.Add(left)}, why: api.CodeCoolingDown}
	}
	full := api.Refuse(api.CodeHostFull, "").With("queue_position", 3)
	full.RetryAfter = 2
	for name, tt := range map[string]struct {
		found  []candidate
		full   *api.Problem
		code   string
		status int
		next   int
		says   string
	}{
		"held": {[]candidate{of(api.CodeConflict), of(api.CodeConflict)}, nil, api.CodeConflict, 409, later, "none of the 2 profiles of account store with labels a:b,region:us is free (2 profile_lock_conflict)"},
		"held by somebody": {[]candidate{of(api.CodeInReview), {Record: lease.Record{ProfileID: "p", State: lease.Held, OwnerWorkerID: "w", TaskID: "t"}, why: api.CodeConflict}}, nil, api.CodeConflict, 409, later,
			"to queue, ask with wait; p is held by worker w for task t"},
		"held, and cooling down":  {[]candidate{cooling(2 * time.Second), of(api.CodeConflict), cooling(time.Hour)}, nil, api.CodeConflict, 409, 3, "(2 profile_cooling_down, 1 profile_lock_conflict)"},
		"cooling down, in review": {[]candidate{of(api.CodeInReview), cooling(time.Minute), cooling(time.Hour)}, nil, api.CodeCoolingDown, 423, later, "1 profile_in_review"},
		"in review":               {[]candidate{of(api.CodeInReview)}, nil, api.CodeInReview, 423, later, ""},
		"a place is missing":      {[]candidate{of(api.CodeConflict), of(api.CodeHostFull)}, full, api.CodeHostFull, 429, 2, ""},
		"no home is there":        {[]candidate{of(api.CodeWrongHome)}, nil, api.CodeWrongHome, 421, later, ""},
		"refused by something":    {[]candidate{of(api.CodeProxyChanged)}, nil, api.CodeProxyChanged, 409, later, "1 proxy_mapping_changed"},
	} {
		p := noneFree(m, tt.found, tt.full, noon)
		counts, _ := p.More["candidates"].(map[string]int)
		sum := 0
		for _, n := range counts {
			sum += n
		}
		if p.Code != tt.code || p.Status != tt.status || p.RetryAfter != tt.next || p.More["next_check_seconds"] != tt.next || !strings.Contains(p.Detail, tt.says) || sum != len(tt.found) {
			t.Errorf("%s: %+v", name, p)
		}
		if tt.full != nil && p.More["queue_position"] != 3 {
			t.Errorf("%s: the place in the queue is not told: %+v", name, p)
		}
		if after, ok := p.More["available_after"].(time.Time); (tt.code == api.CodeCoolingDown) != ok || ok && !after.Equal(noon.Add(time.Minute)) {
			t.Errorf("%s: available after %v", name, after)
		}
	}
}
