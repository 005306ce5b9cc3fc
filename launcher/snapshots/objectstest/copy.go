package objectstest

import (
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"leasehold/launcher/snapshots"
	"leasehold/lease"
)

// Snapshots that are copied to a store with another key, and from there to a third store, are the
// ones that were sealed. Nothing changes in the store that is read.
func testCopy(t *testing.T, o snapshots.Objects) {
	origin, last := snapshots.OpenDir(t.TempDir()), snapshots.OpenDir(t.TempDir())
	first, middle, third := snapshots.New(origin, snapshots.NewKey()), snapshots.New(o, snapshots.NewKey()), snapshots.New(last, snapshots.NewKey())
	trees := map[string]Tree{}
	for token, tree := range []Tree{1: Profile(), 2: {"Local State": "{}", "Default/Cookies": Random(1, 500_000) + Random(7, 300_000)}} {
		if token > 0 {
			made, err := Seal(t, first, "p.1", tree.Write(t), lease.Token(token))
			must(t, err)
			trees[made.ID] = tree
		}
	}
	for _, pair := range []struct {
		objects  snapshots.Objects
		from, to *snapshots.Store
	}{{origin, first, middle}, {o, middle, third}} {
		before := Everything(t, pair.objects)
		for round, want := range []int{2, 0} {
			done, err := pair.to.CopyFrom(t.Context(), pair.from, "p.1")
			if err != nil || len(done.Copied) != want || done.There != 2-want || !done.Whole() {
				t.Fatalf("round %d: %+v, %v", round, done, err)
			}
		}
		if !maps.Equal(before, Everything(t, pair.objects)) {
			t.Error("the store that is read has changed")
		}
	}
	theirs, err := first.List(t.Context(), "p.1")
	must(t, err)
	ours, err := third.List(t.Context(), "p.1")
	must(t, err)
	if !slices.EqualFunc(theirs, ours, func(a, b snapshots.Snapshot) bool {
		a.Stored = b.Stored // it is the number of bytes that were sent to each store
		return a.ID == b.ID && a.Token == b.Token && a.CreatedAt.Equal(b.CreatedAt) && a.Previous == b.Previous && a.SessionID == b.SessionID && a.Bytes == b.Bytes
	}) {
		t.Errorf("copied are %+v, want %+v", ours, theirs)
	}
	for _, made := range ours {
		to := filepath.Join(t.TempDir(), "fetched")
		got, err := third.Fetch(t.Context(), "p.1", made.ID, to, snapshots.FetchOptions{})
		if err != nil || string(got.Extra["session-cookies"]) != string(About(made.Token).Extras["session-cookies"]) {
			t.Errorf("%q, %v", got.Extra, err)
		}
		have := ReadTree(t, to)
		for name, content := range trees[made.ID] {
			if have[name] != content {
				t.Errorf("%s of token %d is another one", name, made.Token)
			}
		}
	}
	// A holder that the first store refuses is refused by the others, too.
	_, err = Seal(t, third, "p.1", Profile().Write(t), 1)
	if stale := new(snapshots.StaleTokenError); !errors.As(err, &stale) || stale.Current != 2 {
		t.Errorf("a stale holder: %v", err)
	}
}

// Everything returns all objects of a store, with their versions, by key.
func Everything(t testing.TB, o snapshots.Objects) map[string]string {
	t.Helper()
	keys, err := o.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, key := range keys {
		content, version, err := o.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		all[key] = version + " " + string(content)
	}
	return all
}
