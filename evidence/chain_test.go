package evidence_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"pgregory.net/rapid"

	"leasehold/evidence"
	"leasehold/internal/test/storetest"
)

// storeAt opens an empty store, and returns its directory.
func storeAt(t testing.TB) (evidence.Store, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	s, err := evidence.OpenDirStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s, dir
}

// spoolAt opens the spool in a directory, as a launcher does at its start.
func spoolAt(t testing.TB, dir string) *evidence.Spool {
	t.Helper()
	s, err := evidence.OpenSpool(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// verifyWhole verifies a profile's evidence and wants nothing wrong, no fork, and every
// bundle in the chain.
func verifyWhole(t testing.TB, r evidence.Reader, profile string, head evidence.Link, bundles int) {
	t.Helper()
	got, err := evidence.Verify(t.Context(), r, profile, head)
	if err != nil || !got.OK() || len(got.Forks) != 0 || len(got.Unlinked) != 0 || got.Bundles != bundles {
		t.Errorf("%+v, %v; want %d bundles in one chain", got, err, bundles)
	}
}

// Three runs that share a profile were all granted under the same newest bundle, and
// their bundles all say so. Whichever is sealed last names the others, so that none can
// vanish, whatever their tokens are.
func TestARemovedBundleOfASharedProfileShows(t *testing.T) {
	for _, order := range [][]uint64{{2, 3, 4}, {4, 3, 2}, {3, 2, 4}} {
		s, stored := storeAt(t)
		spool := storetest.Spool(t)
		archive := evidence.NewArchive(spool, s, zerolog.Nop())
		_, before := storetest.Seal(t, spool, "pool", "ev_1", 1, evidence.Link{})
		var head evidence.Link
		for _, token := range order {
			_, head = storetest.Seal(t, spool, "pool", fmt.Sprint("ev_", token), token, before)
		}
		if err := archive.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		verifyWhole(t, s, "pool", head, 4)
		for _, token := range order {
			removed := fmt.Sprint("ev_", token)
			kept := filepath.Join(t.TempDir(), removed)
			if err := os.Rename(filepath.Join(stored, removed), kept); err != nil {
				t.Fatal(err)
			}
			r, err := evidence.Verify(t.Context(), s, "pool", head)
			if err != nil || len(r.Findings) != 1 || r.Findings[0].Problem != evidence.BundleMissing || r.Findings[0].EvidenceID != removed {
				t.Errorf("sealed in the order %v, without %s: %+v, %v; want it missing", order, removed, r, err)
			}
			if err := os.Rename(kept, filepath.Join(stored, removed)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Bundles that are sealed at once are in one chain, too.
func TestBundlesSealedAtOnceAreOneChain(t *testing.T) {
	s, _ := storeAt(t)
	spool := storetest.Spool(t)
	archive := evidence.NewArchive(spool, s, zerolog.Nop())
	_, before := storetest.Seal(t, spool, "pool", "ev_1", 1, evidence.Link{})
	var wg sync.WaitGroup
	for token := range uint64(8) {
		wg.Go(func() { storetest.Seal(t, spool, "pool", fmt.Sprint("ev_", token+2), token+2, before) })
	}
	wg.Wait()
	_, head := storetest.Seal(t, spool, "pool", "ev_last", 10, before)
	if err := archive.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	verifyWhole(t, s, "pool", head, 10)
}

// A launcher that ended between the note of a bundle and the bundle itself left none, and
// what was sealed before that is named by the next one. One that left it sealed, in the
// spool or in the store already, has it named.
func TestTheChainOutlivesACrash(t *testing.T) {
	s, _ := storeAt(t)
	dir := filepath.Join(t.TempDir(), "spool")
	spool := spoolAt(t, dir)
	_, first := storetest.Seal(t, spool, "p", "ev_1", 1, evidence.Link{})
	storetest.Seal(t, spool, "p", "ev_2", 2, first)
	storetest.Seal(t, spool, "p", "ev_3", 3, first)
	if err := os.Remove(filepath.Join(dir, "ev_3", evidence.ManifestName)); err != nil {
		t.Fatal(err)
	}
	spool = spoolAt(t, dir)
	four, _ := storetest.Seal(t, spool, "p", "ev_4", 4, first)
	if also := four.Manifest.AlsoFollows; len(also) != 1 || also[0].EvidenceID != "ev_2" {
		t.Errorf("after a crash before the seal: %v, want ev_2", also)
	}
	if err := evidence.NewArchive(spool, s, zerolog.Nop()).Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	spool = spoolAt(t, dir)
	five, head := storetest.Seal(t, spool, "p", "ev_5", 5, first)
	if also := five.Manifest.AlsoFollows; len(also) != 1 || also[0].EvidenceID != "ev_4" {
		t.Errorf("after the bundle left the spool: %v, want ev_4", also)
	}
	if err := s.Put(t.Context(), five); err != nil {
		t.Fatal(err)
	}
	verifyWhole(t, s, "p", head, 4)
}

// TestABundleOfAKilledLauncherIsRemoved a day later, if it was not sealed, and nothing names it.
func TestABundleOfAKilledLauncherIsRemoved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	spool := spoolAt(t, dir)
	_, first := storetest.Seal(t, spool, "p", "ev_sealed", 1, evidence.Link{})
	storetest.Seal(t, spool, "p", "ev_ended", 2, first) // while its manifest was written
	if err := os.Remove(filepath.Join(dir, "ev_ended", evidence.ManifestName)); err != nil {
		t.Fatal(err)
	}
	for _, evidenceID := range []string{"ev_empty", "ev_filled"} {
		if _, err := spool.New(evidence.Manifest{EvidenceID: evidenceID, ProfileID: "p"}); err != nil {
			t.Fatal(err)
		}
	}
	filled := filepath.Join(dir, "ev_filled", "a.txt") // a guard writes to it
	if err := os.WriteFile(filled, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	before := time.Now().Add(-25 * time.Hour)
	for _, pattern := range []string{"ev_*/*", "ev_*"} {
		paths, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(paths) < 4 {
			t.Fatalf("%v, %v", paths, err)
		}
		for _, path := range paths {
			if err := os.Chtimes(path, before, before); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Chtimes(filled, time.Time{}, before.Add(2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	spool = spoolAt(t, dir)
	for evidenceID, want := range map[string]bool{"ev_sealed": true, "ev_filled": true, "ev_ended": false, "ev_empty": false} {
		if _, err := os.Stat(filepath.Join(dir, evidenceID)); (err == nil) != want {
			t.Errorf("%s: %v", evidenceID, err)
		}
	}
	next, _ := storetest.Seal(t, spool, "p", "ev_next", 3, evidence.Link{})
	if also := next.Manifest.AlsoFollows; len(also) != 1 || also[0] != first {
		t.Errorf("the next one names %v, want ev_sealed", also)
	}
}

// A bundle that could not be sealed and is given up is not named, and costs no other its
// place in the chain.
func TestABundleThatIsGivenUpIsNotNamed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	spool := spoolAt(t, dir)
	_, first := storetest.Seal(t, spool, "p", "ev_1", 1, evidence.Link{})
	b, err := spool.New(evidence.Manifest{EvidenceID: "ev_2", ProfileID: "p", LeaseToken: 2})
	if err != nil {
		t.Fatal(err)
	}
	away := filepath.Join(t.TempDir(), "away")
	if err := os.Rename(filepath.Join(dir, "ev_2"), away); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.Seal(); err == nil {
		t.Fatal("sealed without its directory")
	}
	if err := os.Rename(away, filepath.Join(dir, "ev_2")); err != nil {
		t.Fatal(err)
	}
	if err := b.Discard(); err != nil {
		t.Fatal(err)
	}
	three, _ := storetest.Seal(t, spool, "p", "ev_4", 3, evidence.Link{})
	if also := three.Manifest.AlsoFollows; len(also) != 1 || also[0] != first {
		t.Errorf("%v, want ev_1", also)
	}
}

// Evidence is sealed also where what is remembered of the chain cannot be read, and says
// that.
func TestADamagedChainFileIsNamedInTheBundle(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	spool := spoolAt(t, dir)
	storetest.Seal(t, spool, "p", "ev_1", 1, evidence.Link{})
	if err := os.WriteFile(filepath.Join(dir, ".chain", "p.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	two, _ := storetest.Seal(t, spool, "p", "ev_2", 2, evidence.Link{})
	says := func(p evidence.Part) bool {
		return p.Kind == evidence.KindChain && strings.Contains(p.Missing, "the chain of profile p")
	}
	if !slices.ContainsFunc(two.Manifest.Parts, says) {
		t.Errorf("%+v; want a part that says it", two.Manifest.Parts)
	}
	three, _ := storetest.Seal(t, spool, "p", "ev_3", 3, evidence.Link{})
	if also := three.Manifest.AlsoFollows; len(also) != 1 || also[0].EvidenceID != "ev_2" {
		t.Errorf("%v, want the chain to go on from ev_2", also)
	}
}

// Records that are written in another order than their bundles were sealed in go on to
// name the bundle that names the others.
func TestARecordKeepsTheBundleThatLeadsToAll(t *testing.T) {
	s, _ := storeAt(t)
	spool := storetest.Spool(t)
	archive := evidence.NewArchive(spool, s, zerolog.Nop())
	_, x := storetest.Seal(t, spool, "p", "ev_1", 1, evidence.Link{})
	_, a := storetest.Seal(t, spool, "p", "ev_2", 2, x)
	_, b := storetest.Seal(t, spool, "p", "ev_3", 3, x)
	head := x
	for _, next := range []evidence.Link{b, a} {
		var err error
		if head, err = archive.Follow("p", head, next); err != nil {
			t.Fatal(err)
		}
	}
	if head != b {
		t.Errorf("the record names %s, want ev_3", head.EvidenceID)
	}
}

// A bundle of another launcher, whose step came too late, is named by the home's next one;
// so is one that the record named and that the home did not know of.
func TestABundleOfAnotherHostIsNamed(t *testing.T) {
	s, _ := storeAt(t)
	home, other := storetest.Spool(t), storetest.Spool(t)
	archive := evidence.NewArchive(home, s, zerolog.Nop())
	_, x := storetest.Seal(t, home, "p", "ev_1", 1, evidence.Link{})
	storetest.Seal(t, other, "p", "ev_stray", 2, x)
	_, displaced := storetest.Seal(t, other, "p", "ev_displaced", 2, x)
	_, own := storetest.Seal(t, home, "p", "ev_2", 2, x)
	for _, a := range []*evidence.Archive{archive, evidence.NewArchive(other, s, zerolog.Nop())} {
		if err := a.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if head, err := archive.Follow("p", displaced, own); err != nil || head != own {
		t.Errorf("%v, %v; want the home's own", head, err)
	}
	heads := func(context.Context) (evidence.Needs, error) {
		return evidence.Needs{Heads: map[string]evidence.Link{"p": own}}, nil
	}
	if _, err := archive.Retain(t.Context(), evidence.Retention{}, "launcher", heads, time.Now()); err != nil {
		t.Fatal(err)
	}
	three, head := storetest.Seal(t, home, "p", "ev_3", 3, own)
	if err := s.Put(t.Context(), three); err != nil {
		t.Fatal(err)
	}
	verifyWhole(t, s, "p", head, 5)
}

// Retention cuts the old end of a chain by its tokens. Verify follows what a removed
// bundle named besides the one before it.
func TestVerifyFollowsEveryLinkOfARemovedBundle(t *testing.T) {
	s, stored := storeAt(t)
	spool := storetest.Spool(t)
	archive := evidence.NewArchive(spool, s, zerolog.Nop())
	_, x := storetest.Seal(t, spool, "p", "ev_1", 1, evidence.Link{})
	storetest.Seal(t, spool, "p", "ev_3", 3, x)
	_, low := storetest.Seal(t, spool, "p", "ev_2", 2, x) // the first to go, and it alone names ev_3
	_, head := storetest.Seal(t, spool, "p", "ev_4", 4, low)
	if err := archive.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	all, err := s.List(t.Context(), "p")
	if err != nil {
		t.Fatal(err)
	}
	size := int64(0)
	for _, p := range all[0].Parts {
		size += p.Bytes
	}
	done, err := archive.Retain(t.Context(), evidence.Retention{MaxBytes: 2*size + 100}, "launcher", needNone, time.Now())
	if err != nil || done.Removed != 2 {
		t.Fatalf("%+v, %v; want two removed", done, err)
	}
	verifyWhole(t, s, "p", head, 3) // with the anchor
	if err := os.RemoveAll(filepath.Join(stored, "ev_3")); err != nil {
		t.Fatal(err)
	}
	r, err := evidence.Verify(t.Context(), s, "p", head)
	if err != nil || len(r.Findings) != 1 || r.Findings[0].EvidenceID != "ev_3" {
		t.Errorf("%+v, %v; want ev_3 missing", r, err)
	}
}

// Whatever ends sessions on a profile, in whatever order, under whichever old record, and
// however often the launcher starts anew: one more bundle leads to all of them, and a
// removed one shows.
func TestEveryBundleIsInTheChain(t *testing.T) {
	keys := map[bool]evidence.Keys{false: {}, true: storetest.NewKeys(t)}
	rapid.Check(t, func(rt *rapid.T) {
		root, err := os.MkdirTemp("/dev/shm", "leasehold-chain-") // in memory: it syncs thousands of files
		if err != nil {
			rt.Fatal(err)
		}
		defer os.RemoveAll(root)
		dir := filepath.Join(root, "spool")
		store, err := evidence.OpenDirStore(filepath.Join(root, "store"))
		if err != nil {
			rt.Fatal(err)
		}
		encrypted := keys[rapid.Bool().Draw(rt, "encrypted")]
		var spool *evidence.Spool
		var archive *evidence.Archive
		restart := func() {
			if spool, err = evidence.OpenEncryptedSpool(dir, encrypted); err != nil {
				rt.Fatal(err)
			}
			archive = evidence.NewArchive(spool, store, zerolog.Nop())
		}
		restart()
		var head evidence.Link           // what the record names
		records := []evidence.Link{head} // what it named at some time
		var unwritten []evidence.Link    // sealed, and not in a record yet
		var sealed []string
		seal := func(previous evidence.Link) evidence.Link {
			token := uint64(len(sealed) + 1)
			b, err := archive.New(evidence.Manifest{ProfileID: "p", LeaseToken: token, PreviousEvidenceID: previous.EvidenceID, PreviousManifestSHA256: previous.SHA256})
			if err != nil {
				rt.Fatal(err)
			}
			m, sum, err := b.Seal()
			if err != nil {
				rt.Fatal(err)
			}
			sealed = append(sealed, m.EvidenceID)
			return evidence.Link{EvidenceID: m.EvidenceID, SHA256: sum}
		}
		flush := func() {
			if err := archive.Flush(t.Context()); err != nil {
				rt.Fatal(err)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"a session ends": func(rt *rapid.T) {
				unwritten = append(unwritten, seal(rapid.SampledFrom(records).Draw(rt, "granted under")))
			},
			"a record is written": func(rt *rapid.T) {
				if len(unwritten) == 0 {
					return
				}
				i := rapid.IntRange(0, len(unwritten)-1).Draw(rt, "which")
				if head, err = archive.Follow("p", head, unwritten[i]); err != nil {
					rt.Fatal(err)
				}
				records, unwritten = append(records, head), slices.Delete(unwritten, i, i+1)
			},
			"a record is never written": func(*rapid.T) { unwritten = nil },
			"the lease store goes back": func(rt *rapid.T) { head = rapid.SampledFrom(records).Draw(rt, "to") },
			"upload":                    func(*rapid.T) { flush() },
			"restart":                   func(*rapid.T) { restart() },
		})
		head = seal(head)
		flush()
		r, err := evidence.Verify(t.Context(), store, "p", head)
		if err != nil || !r.OK() || len(r.Forks)+len(r.Unlinked) != 0 || r.Bundles != len(sealed) {
			rt.Fatalf("%+v, %v; want %d bundles in one chain", r, err, len(sealed))
		}
		removed := rapid.SampledFrom(sealed).Draw(rt, "removed")
		if err := os.RemoveAll(filepath.Join(root, "store", removed)); err != nil {
			rt.Fatal(err)
		}
		r, err = evidence.Verify(t.Context(), store, "p", head)
		missing := func(f evidence.Finding) bool { return f.Problem == evidence.BundleMissing && f.EvidenceID == removed }
		if err != nil || !slices.ContainsFunc(r.Findings, missing) {
			rt.Fatalf("%+v, %v; want %s missing", r, err, removed)
		}
	})
}
