package travel

import (
	"errors"
	"testing"

	"leasehold/launcher/api"
	"leasehold/lease"
)

func TestWhichSnapshotIsMeant(t *testing.T) {
	out := lease.Record{ProfileID: "p", SnapshotID: "snap_3", SnapshotSignedOut: true, SignedInSnapshotID: "snap_2"}
	list := []api.Snapshot{{ID: "snap_3", Token: 3}, {ID: "snap_2", Token: 2}}
	for name, tt := range map[string]struct {
		list         []api.Snapshot
		record, id   string
		want, refuse string
	}{
		"by its id":                          {list, "snap_3", "snap_2", "snap_2", ""},
		"the newest":                         {list, "snap_3", "newest", "snap_3", ""},
		"newer than what the record names":   {list, "snap_2", "newest", "snap_3", ""},
		"the record names none":              {list, "", "newest", "snap_3", ""},
		"another id":                         {list, "snap_3", "snap_1", "", api.CodeNotFound},
		"no list":                            {nil, "", "newest", "", api.CodeNotFound},
		"an old list":                        {list, "snap_4", "newest", "", api.CodeSnapshotDamaged},
		"an empty list in place of the real": {nil, "snap_4", "newest", "", api.CodeSnapshotDamaged},
		"an old list, and a person insists":  {list, "snap_4", "snap_3", "snap_3", ""},
	} {
		got, err := named(tt.list, lease.Record{ProfileID: "p", SnapshotID: tt.record}, tt.id)
		var p *api.Problem
		if errors.As(err, &p); got.ID != tt.want || (err != nil) != (tt.refuse != "") || p != nil && p.Code != tt.refuse {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for id, want := range map[string]string{"newest": "snap_2", "snap_3": "snap_3"} {
		if got, err := named(list, out, id); got.ID != want || err != nil {
			t.Errorf("%s of a signed-out account: %+v, %v, want %s", id, got, err, want)
		}
	}
	if _, err := named(list[:1], out, "newest"); err == nil {
		t.Error("the snapshot of a signed-out account is meant since the one before is not listed")
	}
}
