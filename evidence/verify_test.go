package evidence_test

import (
	"slices"
	"testing"

	"leasehold/evidence"
	"leasehold/internal/test/storetest"
)

func TestVerifyTellsAForkFromAGap(t *testing.T) {
	s, _ := openDir(t)
	spool, another := storetest.Spool(t), storetest.Spool(t) // no spool knows of the other's
	one, first := storetest.Seal(t, spool, "p", "ev_1", 1, evidence.Link{})
	two, _ := storetest.Seal(t, another, "p", "ev_2", 2, first)
	three, head := storetest.Seal(t, spool, "p", "ev_3", 2, first)
	for _, b := range []*evidence.Sealed{one, two, three} {
		if err := s.Put(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	r, err := evidence.Verify(t.Context(), s, "p", head)
	if err != nil || !r.OK() || !slices.Equal(r.Unlinked, []string{"ev_2"}) || r.Bundles != 3 {
		t.Errorf("%+v, %v; want nothing wrong and ev_2 unlinked", r, err)
	}
	if len(r.Forks) != 1 || r.Forks[0].Previous != "ev_1" || !slices.Equal(r.Forks[0].Bundles, []string{"ev_2", "ev_3"}) || r.Head != "ev_3" || !r.HeadKnown {
		t.Errorf("forks: %+v; want ev_2 and ev_3 after ev_1", r.Forks)
	}
	// Both sides are checked, also the one that the head does not lead to.
	if err := s.Delete(t.Context(), one.Manifest); err != nil {
		t.Fatal(err)
	}
	r, err = evidence.Verify(t.Context(), s, "p", head)
	if err != nil || len(r.Findings) != 1 || r.Findings[0].Problem != evidence.BundleMissing || r.Findings[0].EvidenceID != "ev_1" {
		t.Errorf("%+v, %v; want ev_1 missing, once", r, err)
	}
}

func TestVerifyFindsATokenThatFell(t *testing.T) {
	s, _ := openDir(t)
	spool := storetest.Spool(t)
	one, first := storetest.Seal(t, spool, "p", "ev_1", 7, evidence.Link{})
	two, head := storetest.Seal(t, spool, "p", "ev_2", 6, first)
	for _, b := range []*evidence.Sealed{one, two} {
		if err := s.Put(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	r, err := evidence.Verify(t.Context(), s, "p", head)
	if err != nil || len(r.Findings) != 1 || r.Findings[0].Problem != evidence.BundleReordered || r.Findings[0].EvidenceID != "ev_1" {
		t.Errorf("%+v, %v; want ev_1 reordered", r, err)
	}
}

// What an earlier version sealed is still found to be whole. testdata/sealed is the store
// of a profile, with pictures, and with anchors for two bundles that retention removed.
func TestVerifyEvidenceOfAnEarlierVersion(t *testing.T) {
	s, err := evidence.ExistingDirStore("testdata/sealed")
	if err != nil {
		t.Fatal(err)
	}
	head := evidence.Link{EvidenceID: "ev_5", SHA256: "2f5f1005d747df255738afdfd6294f70b884f8999083e8aaed444c7765f74945"}
	r, err := evidence.Verify(t.Context(), s, "shop_018", head)
	if err != nil || !r.OK() || r.Bundles != 9 || r.Parts != 14 || len(r.Unlinked) != 0 || r.CutOff == nil || r.CutOff.Bundles != 2 {
		t.Errorf("%+v, %v; want nothing wrong, 9 bundles with 14 parts, and 2 cut off", r, err)
	}
}
