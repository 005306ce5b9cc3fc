// Package storetest has the tests that every evidence.Store must pass, and helpers for
// tests that need bundles.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"leasehold/evidence"
	"leasehold/evidence/crypt"
)

// Spool opens a spool in a temporary directory of the test.
func Spool(t testing.TB) *evidence.Spool {
	t.Helper()
	return EncryptedSpool(t, evidence.Keys{})
}

// EncryptedSpool is like Spool, for bundles that are encrypted with the keys.
func EncryptedSpool(t testing.TB, keys evidence.Keys) *evidence.Spool {
	t.Helper()
	s, err := evidence.OpenEncryptedSpool(filepath.Join(t.TempDir(), "spool"), keys)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// NewKeys makes a key pair.
func NewKeys(t testing.TB) evidence.Keys {
	t.Helper()
	path := filepath.Join(t.TempDir(), "identity")
	recipient, err := crypt.WriteIdentity(path)
	if err != nil {
		t.Fatal(err)
	}
	var k evidence.Keys
	if k.To, err = crypt.ParseRecipients([]string{recipient}); err != nil {
		t.Fatal(err)
	}
	if k.With, err = crypt.ReadIdentities([]string{path}); err != nil {
		t.Fatal(err)
	}
	return k
}

// Seal makes a bundle in the spool, with two parts and a missing one, and seals it. Bundles of
// one profile form a chain if their tokens rise and each names the one before it.
func Seal(t testing.TB, s *evidence.Spool, profileID, evidenceID string, token uint64, previous evidence.Link) (*evidence.Sealed, evidence.Link) {
	t.Helper()
	b, err := s.New(evidence.Manifest{
		EvidenceID: evidenceID, ProfileID: profileID, LeaseToken: token, At: time.Date(2026, 6, 18, 9, 39, int(token), 0, time.UTC),
		RecoveryReason: "heartbeat_timeout", PreviousEvidenceID: previous.EvidenceID, PreviousManifestSHA256: previous.SHA256,
	})
	if err != nil {
		t.Fatal(err)
	}
	// The image is larger than one chunk of an object store.
	image := bytes.Repeat([]byte(evidenceID), 300_000/len(evidenceID))
	if err := errors.Join(
		b.Add("screenshot-1.jpg", evidence.KindScreenshot, "image/jpeg", image),
		b.Add("journal.jsonl", evidence.KindJournal, "application/x-ndjson", []byte("{}\n"+evidenceID)),
	); err != nil {
		t.Fatal(err)
	}
	b.AddMissing("dom-1.html", evidence.KindDOM, "the page did not answer")
	m, sum, err := b.Seal()
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := s.Open(m.EvidenceID)
	if err != nil {
		t.Fatal(err)
	}
	return sealed, evidence.Link{EvidenceID: m.EvidenceID, SHA256: sum}
}

// Damage has the functions with which a test damages what a store keeps, without using the store.
type Damage struct {
	// Change changes a part or the manifest. Remove removes a part; if it removes the manifest,
	// the bundle is gone.
	Change, Remove func(t *testing.T, profileID, evidenceID, name string)
	// Swap puts each of two bundles of a profile in the place of the other.
	Swap func(t *testing.T, profileID, a, b string)
}

// opener returns an empty store, and the functions that damage what it keeps.
type opener = func(t *testing.T) (evidence.Store, Damage)

// under has the conditions of a test: the store, and the keys if bundles are encrypted.
type under struct {
	open opener
	keys evidence.Keys
}

func (u under) spool(t testing.TB) *evidence.Spool {
	t.Helper()
	return EncryptedSpool(t, u.keys)
}

// Run tests that a store keeps its contract, with bundles that are not encrypted and with
// encrypted ones. open returns an empty store.
func Run(t *testing.T, open func(t *testing.T) (evidence.Store, Damage)) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, under)
	}{
		{"read", testRead}, {"conflict", testConflict}, {"race", testRace}, {"delete", testDelete}, {"repair", testRepair},
		{"verify", testVerify}, {"retention", testRetention},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, under{open: open}) })
		t.Run(test.name+" encrypted", func(t *testing.T) { test.run(t, under{open, NewKeys(t)}) })
	}
}

// A store returns what was stored, and finds nothing under any other name.
func testRead(t *testing.T, u under) {
	s, _ := u.open(t)
	ctx, spool := t.Context(), u.spool(t)
	if list, err := s.List(ctx, "p.1"); err != nil || len(list) != 0 {
		t.Fatalf("an empty store lists %v, %v", list, err)
	}
	if _, err := s.Manifest(ctx, "ev_1"); !errors.Is(err, evidence.ErrNotFound) {
		t.Fatalf("an empty store's manifest: %v", err)
	}
	first, link := Seal(t, spool, "p.1", "ev_1", 1, evidence.Link{})
	second, _ := Seal(t, spool, "p.1", "ev_2", 2, link)
	other, _ := Seal(t, spool, "p", "ev_3", 3, evidence.Link{})
	for _, b := range []*evidence.Sealed{second, first, other, first} {
		if err := s.Put(ctx, b); err != nil {
			t.Fatal(err)
		}
	}
	list, err := s.List(ctx, "p.1")
	if err != nil || len(list) != 2 || list[0].EvidenceID != "ev_2" || list[1].EvidenceID != "ev_1" {
		t.Errorf("listed %+v, %v; want ev_2, ev_1", list, err)
	}
	if raw, err := s.Manifest(ctx, "ev_1"); err != nil || !bytes.Equal(raw, first.Raw) {
		t.Errorf("the manifest differs, or %v", err)
	}
	want, err := first.Part("screenshot-1.jpg")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.Part(ctx, "ev_1", "screenshot-1.jpg"); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the part differs, or %v", err)
	}
	for _, c := range []struct{ evidenceID, name string }{
		{"ev_1", "dom-1.html"}, {"ev_1", "none"}, {"none", "journal.jsonl"}, {"ev_1", "manifest.json"}, {"", "journal.jsonl"}, {"ev_1", ""},
		{"..", "ev_1"}, {"ev_1", ".."}, {"ev_1", "../ev_2/journal.jsonl"}, {"p=2E1/ev_1", "journal.jsonl"}, {".", "manifest.json"}, {"ev_1\x00", "x"},
		{strings.Repeat("e", 5000), "x"}, {"ev_1", strings.Repeat("x", 5000)},
	} {
		if b, err := s.Part(ctx, c.evidenceID, c.name); !errors.Is(err, evidence.ErrNotFound) {
			t.Errorf("part %q of %q: %d bytes, %v; want ErrNotFound", c.name, c.evidenceID, len(b), err)
		}
	}
}

// A store refuses another bundle under the same id.
func testConflict(t *testing.T, u under) {
	s, _ := u.open(t)
	one, _ := Seal(t, u.spool(t), "p", "ev_1", 1, evidence.Link{})
	two, _ := Seal(t, u.spool(t), "p", "ev_1", 2, evidence.Link{})
	if err := s.Put(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), two); !errors.Is(err, evidence.ErrConflict) {
		t.Errorf("another bundle under the same id: %v", err)
	}
	if raw, err := s.Manifest(t.Context(), "ev_1"); err != nil || !bytes.Equal(raw, one.Raw) {
		t.Errorf("the first one did not stay, or %v", err)
	}
}

// If two different bundles are stored under one id at the same time, one is kept, and the call
// for the other returns an error that says so.
func testRace(t *testing.T, u under) {
	s, _ := u.open(t)
	spool, twin := u.spool(t), u.spool(t)
	one, _ := Seal(t, spool, "p", "ev_1", 1, evidence.Link{})
	two, _ := Seal(t, twin, "p", "ev_1", 2, evidence.Link{})
	// Each launcher tries again until it knows the result, as Flush does.
	store := func(b *evidence.Sealed) error {
		for {
			err := s.Put(t.Context(), b)
			if err == nil || errors.Is(err, evidence.ErrConflict) || t.Context().Err() != nil {
				return err
			}
		}
	}
	var errs [2]error
	var both sync.WaitGroup
	for i, b := range []*evidence.Sealed{one, two} {
		both.Go(func() { errs[i] = store(b) })
	}
	both.Wait()
	raw, err := s.Manifest(t.Context(), "ev_1")
	if err != nil {
		t.Fatal(err)
	}
	for i, b := range []*evidence.Sealed{one, two} {
		if won := bytes.Equal(raw, b.Raw); won == errors.Is(errs[i], evidence.ErrConflict) {
			t.Errorf("bundle %d: stored %v, and Put said %v", i+1, won, errs[i])
		}
	}
}

// A deleted bundle is gone, and all others stay.
func testDelete(t *testing.T, u under) {
	s, _ := u.open(t)
	ctx, spool := t.Context(), u.spool(t)
	one, link := Seal(t, spool, "p.1", "ev_1", 1, evidence.Link{})
	two, _ := Seal(t, spool, "p.1", "ev_2", 2, link)
	other, _ := Seal(t, spool, "p", "ev_3", 1, evidence.Link{})
	if err := s.Delete(ctx, one.Manifest); err != nil {
		t.Errorf("nothing was deleted from an empty store: %v", err)
	}
	for _, b := range []*evidence.Sealed{one, two, other} {
		if err := s.Put(ctx, b); err != nil {
			t.Fatal(err)
		}
	}
	if list, err := s.List(ctx, ""); err != nil || len(list) != 3 {
		t.Errorf("of all profiles: %d bundles, %v", len(list), err)
	}
	for range 2 {
		if err := s.Delete(ctx, one.Manifest); err != nil {
			t.Fatal(err)
		}
	}
	if list, err := s.List(ctx, ""); err != nil || len(list) != 2 {
		t.Errorf("after the deletion: %d bundles, %v", len(list), err)
	}
	if _, err := s.Manifest(ctx, "ev_1"); !errors.Is(err, evidence.ErrNotFound) {
		t.Errorf("the deleted manifest: %v", err)
	}
	if _, err := s.Part(ctx, "ev_1", "journal.jsonl"); !errors.Is(err, evidence.ErrNotFound) {
		t.Errorf("a part of the deleted bundle: %v", err)
	}
	if b, err := s.Part(ctx, "ev_2", "screenshot-1.jpg"); err != nil || len(b) == 0 {
		t.Errorf("a part of another bundle: %v", err)
	}
	if err := s.Delete(ctx, evidence.Manifest{EvidenceID: "../ev_2", ProfileID: "p.1"}); err == nil {
		t.Error("a bundle outside of the store can be deleted")
	}
}

// Storing a bundle again adds a part that is missing.
func testRepair(t *testing.T, u under) {
	s, d := u.open(t)
	b, head := Seal(t, u.spool(t), "p", "ev_1", 1, evidence.Link{})
	if err := s.Put(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	d.Remove(t, "p", "ev_1", "journal.jsonl")
	if err := s.Put(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if r, err := evidence.VerifyWith(t.Context(), s, "p", head, u.keys.With); err != nil || !r.OK() {
		t.Errorf("after the same bundle was stored again: %+v, %v", r, err)
	}
}

// Retention cuts a chain of five bundles in two rounds. Then the rest is damaged.
func testRetention(t *testing.T, u under) {
	fill := func(t *testing.T) (evidence.Store, Damage, *evidence.Archive, evidence.Link) {
		t.Helper()
		s, d := u.open(t)
		spool := u.spool(t)
		var head evidence.Link
		for i := range 5 {
			_, head = Seal(t, spool, "p", fmt.Sprint("ev_", i+1), uint64(i+1), head)
		}
		a := evidence.NewArchive(spool, s, zerolog.Nop())
		if err := a.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		return s, d, a, head
	}
	retain := func(t *testing.T, a *evidence.Archive, age time.Duration, now time.Time, removed int, needed ...string) {
		t.Helper()
		done, err := a.Retain(t.Context(), evidence.Retention{MaxAge: age}, "launcher-1", func(context.Context) (evidence.Needs, error) {
			n := evidence.Needs{Profiles: map[string]bool{"p": true}, Evidence: map[string]string{}}
			for _, evidenceID := range needed {
				n.Evidence[evidenceID] = "p"
			}
			return n, nil
		}, now)
		if err != nil || done.Removed != removed {
			t.Fatalf("removed %+v, %v; want %d", done, err, removed)
		}
	}
	at := func(second int) time.Time { return time.Date(2026, 6, 18, 9, 39, second, 0, time.UTC) }

	s, d, a, head := fill(t)
	check := func(t *testing.T, cut, bundles int, problems ...string) {
		t.Helper()
		r, err := evidence.VerifyWith(t.Context(), s, "p", head, u.keys.With)
		var found []string
		for _, f := range r.Findings {
			found = append(found, f.Problem+" "+f.EvidenceID)
		}
		if err != nil || !slices.Equal(found, problems) {
			t.Errorf("found %+v, %v; want %v", r.Findings, err, problems)
		}
		if r.CutOff == nil || r.CutOff.Bundles != cut || r.Bundles != bundles {
			t.Errorf("cut off %+v, checked %d; want %d, %d", r.CutOff, r.Bundles, cut, bundles)
		}
	}
	// A review needs the second bundle: it stays, with all later ones.
	retain(t, a, 2*time.Second, at(60), 1, "ev_2")
	check(t, 1, 5) // with the anchor
	retain(t, a, 2*time.Second, at(60), 0, "ev_2")
	// The review is over. Two seconds after the third bundle was made, the second is too old.
	retain(t, a, 2*time.Second, at(5), 1)
	check(t, 2, 5)
	list, err := s.List(t.Context(), "p")
	if err != nil || len(list) != 5 || list[0].EvidenceID != "ev_5" || !list[3].IsAnchor() || !list[4].IsAnchor() {
		t.Fatalf("listed %+v, %v", list, err)
	}
	// Damage to the rest is found.
	d.Remove(t, "p", "ev_4", evidence.ManifestName)
	check(t, 2, 4, "bundle_missing ev_4")

	s, d, a, head = fill(t)
	retain(t, a, time.Second, at(3), 1)
	retain(t, a, time.Second, at(60), 3)
	check(t, 4, 3)
	if list, err = s.List(t.Context(), "p"); err != nil || len(list) != 3 {
		t.Fatalf("%d bundles, error %v; want 3: %v", len(list), err, list)
	}
	newest, oldest := list[1].EvidenceID, list[2].EvidenceID
	d.Change(t, "p", oldest, evidence.AnchorPart)
	check(t, 3, 3, "part_changed "+oldest, "bundle_missing ev_1")
	d.Remove(t, "p", oldest, evidence.ManifestName)
	check(t, 3, 2, "bundle_missing "+oldest, "bundle_missing ev_1")
	d.Remove(t, "p", newest, evidence.ManifestName)
	r, err := evidence.VerifyWith(t.Context(), s, "p", head, u.keys.With)
	if err != nil || len(r.Findings) != 1 || r.Findings[0].Problem != evidence.BundleMissing || r.Findings[0].EvidenceID != "ev_4" || r.CutOff != nil {
		t.Errorf("without any anchor: %+v, %v", r, err)
	}
}

// Verify finds every kind of damage, and names the bundle and the part.
func testVerify(t *testing.T, u under) {
	for _, c := range []struct {
		name   string
		damage func(t *testing.T, d Damage)
		want   []evidence.Finding // without details
	}{
		{"nothing", func(*testing.T, Damage) {}, nil},
		{"part changed", func(t *testing.T, d Damage) { d.Change(t, "p", "ev_2", "screenshot-1.jpg") },
			[]evidence.Finding{{Problem: evidence.PartChanged, EvidenceID: "ev_2", Part: "screenshot-1.jpg"}}},
		{"part removed", func(t *testing.T, d Damage) { d.Remove(t, "p", "ev_1", "journal.jsonl") },
			[]evidence.Finding{{Problem: evidence.PartMissing, EvidenceID: "ev_1", Part: "journal.jsonl"}}},
		{"manifest changed", func(t *testing.T, d Damage) { d.Change(t, "p", "ev_2", evidence.ManifestName) },
			[]evidence.Finding{{Problem: evidence.BundleChanged, EvidenceID: "ev_2"}}},
		{"newest removed", func(t *testing.T, d Damage) { d.Remove(t, "p", "ev_3", evidence.ManifestName) },
			[]evidence.Finding{{Problem: evidence.BundleMissing, EvidenceID: "ev_3"}}},
		{"one in between removed", func(t *testing.T, d Damage) { d.Remove(t, "p", "ev_2", evidence.ManifestName) },
			[]evidence.Finding{{Problem: evidence.BundleMissing, EvidenceID: "ev_2"}}},
		{"first removed", func(t *testing.T, d Damage) { d.Remove(t, "p", "ev_1", evidence.ManifestName) },
			[]evidence.Finding{{Problem: evidence.BundleMissing, EvidenceID: "ev_1"}}},
		{"two swapped", func(t *testing.T, d Damage) { d.Swap(t, "p", "ev_1", "ev_2") },
			[]evidence.Finding{{Problem: evidence.BundleChanged, EvidenceID: "ev_2"}, {Problem: evidence.BundleReordered, EvidenceID: "ev_2"}}},
		{"several", func(t *testing.T, d Damage) {
			d.Remove(t, "p", "ev_3", "journal.jsonl")
			d.Change(t, "p", "ev_1", "journal.jsonl")
		}, []evidence.Finding{
			{Problem: evidence.PartMissing, EvidenceID: "ev_3", Part: "journal.jsonl"},
			{Problem: evidence.PartChanged, EvidenceID: "ev_1", Part: "journal.jsonl"},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, d := u.open(t)
			spool := u.spool(t)
			var head evidence.Link
			for i, evidenceID := range []string{"ev_1", "ev_2", "ev_3"} {
				var b *evidence.Sealed
				b, head = Seal(t, spool, "p", evidenceID, uint64(i+1), head)
				if err := s.Put(t.Context(), b); err != nil {
					t.Fatal(err)
				}
			}
			c.damage(t, d)
			r, err := evidence.VerifyWith(t.Context(), s, "p", head, u.keys.With)
			if err != nil {
				t.Fatal(err)
			}
			same := len(r.Findings) == len(c.want)
			for i, f := range r.Findings {
				if f.Detail == "" {
					t.Errorf("%+v does not say what is wrong", f)
				}
				f.Detail = ""
				same = same && f == c.want[i]
			}
			if !same {
				t.Errorf("found %+v\nwant %+v", r.Findings, c.want)
			}
			if want := map[bool]int{true: 3}[u.keys.To != nil]; c.want == nil && (r.Encrypted != want || len(r.Locked) > 0) {
				t.Errorf("%d bundles are encrypted, want %d; not opened: %v", r.Encrypted, want, r.Locked)
			}
			if c.want == nil && (r.Bundles != 3 || r.Parts != 6 || len(r.Unlinked) != 0) {
				t.Errorf("checked %+v; want 3 bundles with 6 parts", r)
			}
		})
	}
}
