package e2e

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"leasehold/launcher/api"
	"leasehold/launcher/snapshots"
	"leasehold/launcher/snapshots/natsobjects"
)

// chunk is one that a store has.
type chunk struct {
	key, profile string // profile is its name in the store
	content      []byte
}

// chunksIn are all chunks that a store has.
func chunksIn(t *testing.T, objects snapshots.Objects) (all []chunk) {
	t.Helper()
	keys, err := objects.List(t.Context(), "profiles/")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		profile, _, is := strings.Cut(key, "/chunks/")
		if !is {
			continue
		}
		content, _, err := objects.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, chunk{key, profile, content})
	}
	return all
}

// replace has an object be another one.
func replace(t *testing.T, objects snapshots.Objects, key string, content []byte) {
	t.Helper()
	_, version, err := objects.Get(t.Context(), key)
	if err == nil {
		err = objects.Put(t.Context(), key, content, version)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// lies are what a store may give in the place of one of its chunks.
var lies = []struct {
	name string
	of   func(all []chunk, i int) []byte
}{
	{"changed", func(all []chunk, i int) []byte {
		lie := slices.Clone(all[i].content)
		lie[len(lie)/2] ^= 1
		return lie
	}},
	{"cut off", func(all []chunk, i int) []byte { return all[i].content[:len(all[i].content)-1] }},
	{"exchanged", func(all []chunk, i int) []byte { return all[(i+1)%len(all)].content }},
	{"another profile's", func(all []chunk, i int) []byte {
		return all[slices.IndexFunc(all, func(c chunk) bool { return c.profile != all[i].profile })].content
	}},
}

// TestALyingProfileStore: a store that gives something else than it was given is found out by
// name, whatever it is; the profile stays where it was, and goes on there, and nothing half is left.
func TestALyingProfileStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for scheme, store := range map[string]string{"file": "file://" + filepath.ToSlash(dir), "nats": "nats://"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			home, other, links := travellersBy(t, store)
			var objects snapshots.Objects = snapshots.OpenDir(dir)
			if scheme == "nats" {
				nc, err := nats.Connect("nats://" + links[0].to)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(nc.Close)
				js, err := jetstream.New(nc)
				if err != nil {
					t.Fatal(err)
				}
				objects = natsobjects.New(js, natsobjects.Config{})
			}
			for _, id := range []string{"p", "q"} { // the same browser's: their chunks are alike
				home.call(t, "PUT", "/v1/profiles/"+id, map[string]any{"mobility": "free"}, nil)
				home.granted(t, id, false)
			}
			home.sealed(t, "q")
			r := home.sealed(t, "p")
			for _, lie := range lies {
				all := chunksIn(t, objects)
				for i, c := range all {
					replace(t, objects, c.key, lie.of(all, i))
				}
				other.refusedMove(t, r, api.CodeSnapshotDamaged)
				if out, errs, code := other.cli(t, "profiles", "verify", "p", "--snapshot", r.SnapshotID); code != 9 || !strings.Contains(out+errs, "damaged") {
					t.Errorf("%s: verify: %d %s%s", lie.name, code, out, errs)
				}
				stays(t, home, other, r)
				r = home.sealed(t, "p") // it builds on nothing of that
				if out, errs, code := home.cli(t, "profiles", "verify", "p", "--snapshot", r.SnapshotID); code != 0 {
					t.Errorf("the snapshot after chunks were %s: %s%s", lie.name, out, errs)
				}
			}
		})
	}
}
