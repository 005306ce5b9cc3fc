package evidence_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"pgregory.net/rapid"

	"leasehold/evidence"
	"leasehold/internal/test/storetest"
)

var noon = time.Date(2026, 6, 18, 12, 0, 0, 0, time.UTC)

// bundleOf is a bundle of so many bytes, made so many hours before noon. Tokens
// follow the time.
func bundleOf(profile, evidenceID string, hours int, bytes int64) evidence.Manifest {
	return evidence.Manifest{
		ProfileID: profile, EvidenceID: evidenceID, LeaseToken: uint64(1000 - hours), At: noon.Add(-time.Duration(hours) * time.Hour),
		Parts: []evidence.Part{{Name: "a", Bytes: bytes}},
	}
}

func TestPlan(t *testing.T) {
	bundles := []evidence.Manifest{
		bundleOf("p", "p4", 1, 10), bundleOf("p", "p3", 2, 10), bundleOf("p", "p2", 30, 10), bundleOf("p", "p1", 40, 10),
		bundleOf("q", "q2", 20, 10), bundleOf("q", "q1", 35, 10), bundleOf("old", "o1", 900, 10),
	}
	for _, c := range []struct {
		name   string
		limits evidence.Retention
		keep   string
		want   string
	}{
		{"no limits", evidence.Retention{}, "", ""},
		{"nothing is too old", evidence.Retention{MaxAge: 40 * time.Hour}, "", ""},
		{"age", evidence.Retention{MaxAge: 24 * time.Hour}, "", "p1:age q1:age p2:age"},
		{"never the newest", evidence.Retention{MaxAge: time.Minute}, "", "p1:age q1:age p2:age p3:age"},
		{"size, the oldest of all first", evidence.Retention{MaxBytes: 50}, "", "p1:size q1:size"},
		{"exactly full", evidence.Retention{MaxBytes: 70}, "", ""},
		{"size cannot be kept", evidence.Retention{MaxBytes: 1}, "", "p1:size q1:size p2:size p3:size"},
		{"both", evidence.Retention{MaxAge: 37 * time.Hour, MaxBytes: 50}, "", "p1:age q1:size"},
		{"needed", evidence.Retention{MaxAge: 24 * time.Hour, MaxBytes: 1}, "q1", "p1:age p2:age p3:size"},
		{"what comes after a needed one stays too", evidence.Retention{MaxAge: time.Minute}, "p2", "p1:age q1:age"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, cut := range c.limits.Plan(bundles, func(evidenceID string) bool { return evidenceID == c.keep }, noon) {
				got = append(got, cut.EvidenceID+":"+cut.Why)
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("got %v, want %s", got, c.want)
			}
		})
	}
}

// What Plan leaves of a profile is always the new end of its chain, and that has the
// newest bundle and all that are needed.
func TestPlanLeavesWholeChains(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var bundles []evidence.Manifest
		needed := map[string]bool{}
		for i := range rapid.IntRange(0, 20).Draw(t, "bundles") {
			m := bundleOf(rapid.SampledFrom([]string{"p", "q", "r"}).Draw(t, "profile"), fmt.Sprint("e", i),
				rapid.IntRange(0, 100).Draw(t, "hours"), rapid.Int64Range(0, 100).Draw(t, "bytes"))
			bundles = append(bundles, m)
			needed[m.EvidenceID] = rapid.IntRange(0, 9).Draw(t, "needed") == 0
		}
		limits := evidence.Retention{
			MaxAge:   time.Duration(rapid.IntRange(0, 100).Draw(t, "age")) * time.Hour,
			MaxBytes: rapid.Int64Range(0, 1000).Draw(t, "max"),
		}
		cuts := limits.Plan(slices.Clone(bundles), func(evidenceID string) bool { return needed[evidenceID] }, noon)
		cut := map[string]bool{}
		for _, c := range cuts {
			cut[c.EvidenceID] = true
		}
		evidence.Newest(bundles)
		var left int64
		seen, hasCut := map[string]bool{}, map[string]bool{} // by profile, from the newest bundle on
		allHeld := true                                      // each profile's oldest bundle that is left has to stay
		for _, m := range bundles {
			switch {
			case cut[m.EvidenceID] && (!seen[m.ProfileID] || needed[m.EvidenceID]):
				t.Fatalf("%s is the newest, or needed, and cut", m.EvidenceID)
			case cut[m.EvidenceID]:
				hasCut[m.ProfileID] = true
			case hasCut[m.ProfileID]:
				t.Fatalf("%s is left with a newer one cut", m.EvidenceID)
			default:
				left += m.Parts[0].Bytes
			}
			seen[m.ProfileID] = true
		}
		oldest := map[string]evidence.Manifest{}
		count := map[string]int{}
		for _, m := range bundles {
			if !cut[m.EvidenceID] {
				oldest[m.ProfileID] = m
				count[m.ProfileID]++
			}
		}
		for profile, m := range oldest {
			free := count[profile] > 1 && !needed[m.EvidenceID]
			if free && limits.MaxAge > 0 && noon.Sub(m.At) > limits.MaxAge {
				t.Fatalf("%s is too old, and left", m.EvidenceID)
			}
			allHeld = allHeld && !free
		}
		if limits.MaxBytes > 0 && left > limits.MaxBytes && !allHeld {
			t.Fatalf("%d bytes are left, and some could go", left)
		}
	})
}

// needNone is a Retain callback that needs no bundle.
func needNone(context.Context) (evidence.Needs, error) {
	return evidence.Needs{Profiles: map[string]bool{"p": true}}, nil
}

// chain stores bundles of one profile, each naming the one before.
func chain(t *testing.T, n int) (evidence.Store, *evidence.Spool, *evidence.Archive, evidence.Link) {
	t.Helper()
	s, _ := openDir(t)
	spool := storetest.Spool(t)
	var head evidence.Link
	for i := range n {
		_, head = storetest.Seal(t, spool, "p", fmt.Sprint("ev_", i+1), uint64(i+1), head)
	}
	a := evidence.NewArchive(spool, s, zerolog.Nop())
	if err := a.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s, spool, a, head
}

func TestRetainRemovesNothingWithoutAnAnswer(t *testing.T) {
	s, _, a, _ := chain(t, 3)
	limits := evidence.Retention{MaxBytes: 1}
	failing := func(context.Context) (evidence.Needs, error) { return evidence.Needs{}, errAway }
	if done, err := a.Retain(t.Context(), limits, "l", failing, noon); !errors.Is(err, errAway) || done.Removed != 0 {
		t.Errorf("%+v, %v", done, err)
	}
	if done, err := a.Retain(t.Context(), evidence.Retention{}, "l", needNone, noon); err != nil || done.Removed != 0 {
		t.Errorf("without limits: %+v, %v", done, err)
	}
	// The profiles are another cluster's, which uses the same store.
	others := func(context.Context) (evidence.Needs, error) { return evidence.Needs{}, nil }
	if done, err := a.Retain(t.Context(), limits, "l", others, noon); err != nil || done.Removed != 0 {
		t.Errorf("of a profile without a record: %+v, %v", done, err)
	}
	if list, err := s.List(t.Context(), "p"); err != nil || len(list) != 3 {
		t.Errorf("%d left, %v", len(list), err)
	}
}

// A bundle that is still in the spool stays, and so do all after it.
func TestRetainLeavesWhatIsInTheSpool(t *testing.T) {
	dir, _ := openDir(t)
	spool := storetest.Spool(t)
	lossy := &away{Store: dir, lost: "journal.jsonl"}
	a := evidence.NewArchive(spool, lossy, zerolog.Nop())
	var head evidence.Link
	for i := range 3 {
		_, head = storetest.Seal(t, spool, "p", fmt.Sprint("ev_", i+1), uint64(i+1), head)
	}
	// They are in the store, but could not be read back.
	if err := a.Flush(t.Context()); err == nil {
		t.Fatal("flushed")
	}
	if done, err := a.Retain(t.Context(), evidence.Retention{MaxBytes: 1}, "l", needNone, noon); err != nil || done.Removed != 0 {
		t.Errorf("%+v, %v", done, err)
	}
	lossy.lost = ""
	if err := a.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if done, err := a.Retain(t.Context(), evidence.Retention{MaxBytes: 1}, "l", needNone, noon); err != nil || done.Removed != 2 {
		t.Errorf("%+v, %v", done, err)
	}
	if r, err := evidence.Verify(t.Context(), a, "p", head); err != nil || !r.OK() || r.CutOff.Bundles != 2 {
		t.Errorf("%+v, %v", r, err)
	}
}

// refusing is a store that does not take one bundle.
type refusing struct {
	evidence.Store
	id string
}

func (s *refusing) Put(ctx context.Context, b *evidence.Sealed) error {
	if b.Manifest.EvidenceID == s.id {
		return errAway
	}
	return s.Store.Put(ctx, b)
}

// A bundle that waits protects what came after it, even if no part of it is in the store.
func TestRetainLeavesWhatCameAfterABundleThatWaits(t *testing.T) {
	dir, _ := openDir(t)
	spool := storetest.Spool(t)
	store := &refusing{dir, "ev_2"}
	a := evidence.NewArchive(spool, store, zerolog.Nop())
	var head evidence.Link
	for i := range 5 {
		_, head = storetest.Seal(t, spool, "p", fmt.Sprint("ev_", i+1), uint64(i+1), head)
	}
	if err := a.Flush(t.Context()); !errors.Is(err, errAway) {
		t.Fatalf("stored with error %v, want %v", err, errAway)
	}
	limits := evidence.Retention{MaxBytes: 1}
	if done, err := a.Retain(t.Context(), limits, "l", needNone, noon); err != nil || done.Removed != 1 {
		t.Errorf("%+v, %v; want only the one that is older than what waits", done, err)
	}
	store.id = ""
	if err := a.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r, err := evidence.Verify(t.Context(), a, "p", head); err != nil || !r.OK() || r.CutOff.Bundles != 1 {
		t.Errorf("then: %+v, %v", r, err)
	}
	if done, err := a.Retain(t.Context(), limits, "l", needNone, noon); err != nil || done.Removed != 3 {
		t.Errorf("once nothing waits: %+v, %v", done, err)
	}
}

// stubborn is a store that does not delete one bundle.
type stubborn struct {
	evidence.Store
	id string
}

func (s stubborn) Delete(ctx context.Context, m evidence.Manifest) error {
	if m.EvidenceID == s.id {
		return errAway
	}
	return s.Store.Delete(ctx, m)
}

// A round that an error interrupts leaves a whole chain, and the next one finishes it.
func TestRetainGoesOnWhereItBrokeOff(t *testing.T) {
	s, spool, a, head := chain(t, 4)
	broken := evidence.NewArchive(spool, stubborn{s, "ev_2"}, zerolog.Nop())
	limits := evidence.Retention{MaxBytes: 1}
	if done, err := broken.Retain(t.Context(), limits, "l", needNone, noon); !errors.Is(err, errAway) || done.Removed != 1 {
		t.Errorf("%+v, %v", done, err)
	}
	if r, err := evidence.Verify(t.Context(), s, "p", head); err != nil || !r.OK() || r.CutOff.Bundles != 3 {
		t.Errorf("in between: %+v, %v", r, err)
	}
	if done, err := a.Retain(t.Context(), limits, "l", needNone, noon); err != nil || done.Removed != 2 {
		t.Errorf("%+v, %v", done, err)
	}
	r, err := evidence.Verify(t.Context(), s, "p", head)
	if err != nil || !r.OK() || r.CutOff.Bundles != 3 || len(r.CutOff.Anchors) != 1 {
		t.Errorf("in the end: %+v, %+v, %v", r, r.CutOff, err)
	}
}

// cutShort is a store in which the removal of one bundle ends before its manifest is removed, when the
// bundle is not listed any more.
type cutShort struct {
	evidence.Store
	id     string
	ending bool
	left   bool
}

func (s *cutShort) Delete(ctx context.Context, m evidence.Manifest) error {
	if s.ending && m.EvidenceID == s.id {
		s.ending, s.left = false, true
		return errAway
	}
	if m.EvidenceID == s.id {
		s.left = false
	}
	return s.Store.Delete(ctx, m)
}

func (s *cutShort) List(ctx context.Context, profileID string) ([]evidence.Manifest, error) {
	list, err := s.Store.List(ctx, profileID)
	return slices.DeleteFunc(list, func(m evidence.Manifest) bool { return s.left && m.EvidenceID == s.id }), err
}

// TestRetainRemovesWhatIsNotListedAnyMore: the manifest of a bundle whose removal was cut short.
func TestRetainRemovesWhatIsNotListedAnyMore(t *testing.T) {
	for _, last := range []string{"ev_2", "ev_3"} {
		s, spool, _, head := chain(t, 4)
		store := &cutShort{Store: s, id: last, ending: true}
		a := evidence.NewArchive(spool, store, zerolog.Nop())
		limits := evidence.Retention{MaxBytes: 1}
		if _, err := a.Retain(t.Context(), limits, "l", needNone, noon); !errors.Is(err, errAway) || !store.left {
			t.Fatalf("%v", err)
		}
		_, head = storetest.Seal(t, spool, "p", "ev_5", 5, head)
		if err := a.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := 3 - int(last[3]-'0') + 1 // those after it, and ev_4
		if done, err := a.Retain(t.Context(), limits, "l", needNone, noon); err != nil || done.Removed != want || store.left {
			t.Errorf("%s: %+v, %v; want %d removed; left: %v", last, done, err, want, store.left)
		}
		if r, err := evidence.Verify(t.Context(), store, "p", head); err != nil || !r.OK() || r.CutOff.Bundles != 4 {
			t.Errorf("%s: %+v, %v", last, r, err)
		}
	}
}

// Two launchers that retain at the same time leave a whole chain.
func TestTwoRetainAtOnce(t *testing.T) {
	s, _, a, head := chain(t, 6)
	other := evidence.NewArchive(storetest.Spool(t), s, zerolog.Nop())
	limits := evidence.Retention{MaxBytes: 1}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = other.Retain(t.Context(), limits, "l2", needNone, noon) // it may fail on what the other has removed
	}()
	_, _ = a.Retain(t.Context(), limits, "l1", needNone, noon)
	<-done
	if _, err := a.Retain(t.Context(), limits, "l1", needNone, noon); err != nil {
		t.Error(err)
	}
	if r, err := evidence.Verify(t.Context(), s, "p", head); err != nil || !r.OK() || r.CutOff.Bundles != 5 || r.Bundles != 1+len(r.CutOff.Anchors) {
		t.Errorf("%+v, %v", r, err)
	}
}

// forge stores an anchor that claims a bundle was removed.
func forge(t *testing.T, s evidence.Store, list evidence.AnchorList, token uint64) {
	t.Helper()
	spool := storetest.Spool(t)
	b, err := spool.New(evidence.Manifest{EvidenceID: "forged", ProfileID: "p", LeaseToken: token, At: noon, RecoveryReason: evidence.RetentionReason})
	if err != nil {
		t.Fatal(err)
	}
	content, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Add(evidence.AnchorPart, evidence.KindRetention, "application/json", content); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.Seal(); err != nil {
		t.Fatal(err)
	}
	sealed, err := spool.Open("forged")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), sealed); err != nil {
		t.Fatal(err)
	}
}

// An anchor stands only for what retention could have removed.
func TestVerifyDoubtsAnchors(t *testing.T) {
	for _, c := range []struct {
		name string
		cut  func(evidence.Cut) evidence.Cut
		want []string
	}{
		{"out of the middle", func(c evidence.Cut) evidence.Cut { c.Why = evidence.CutSize; return c }, []string{evidence.RetentionWrong}},
		{"too young", func(c evidence.Cut) evidence.Cut { c.Why, c.At = evidence.CutAge, noon; return c }, []string{evidence.RetentionWrong, evidence.RetentionWrong}},
		{"another hash", func(c evidence.Cut) evidence.Cut { c.Why, c.ManifestSHA256 = evidence.CutSize, "00"; return c }, []string{evidence.BundleChanged, evidence.RetentionWrong}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, _, _, head := chain(t, 3)
			list, err := s.List(t.Context(), "p")
			if err != nil {
				t.Fatal(err)
			}
			victim, next := list[1], list[0]
			if err := s.Delete(t.Context(), victim); err != nil {
				t.Fatal(err)
			}
			forge(t, s, evidence.AnchorList{MaxAgeSeconds: 3600, MaxBytes: 1, Cut: []evidence.Cut{c.cut(evidence.Cut{
				EvidenceID: victim.EvidenceID, ManifestSHA256: next.PreviousManifestSHA256, LeaseToken: victim.LeaseToken, At: victim.At,
				PreviousEvidenceID: victim.PreviousEvidenceID, PreviousManifestSHA256: victim.PreviousManifestSHA256,
			})}}, victim.LeaseToken)
			r, err := evidence.Verify(t.Context(), s, "p", head)
			var got []string
			for _, f := range r.Findings {
				got = append(got, f.Problem)
			}
			if err != nil || !slices.Equal(got, c.want) {
				t.Errorf("%+v, %v; want %v", r.Findings, err, c.want)
			}
		})
	}
}
