package evidence_test

import (
	"context"
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

// beside is a reader that calls do once, before or after one of its own calls.
type beside struct {
	evidence.Reader
	do         func()
	atList     bool
	atManifest string // of this bundle
	atPart     string // of this bundle
}

func (b *beside) now(is bool) {
	if do := b.do; is && do != nil {
		b.do = nil
		do()
	}
}

func (b *beside) List(ctx context.Context, profileID string) ([]evidence.Manifest, error) {
	list, err := b.Reader.List(ctx, profileID)
	b.now(b.atList)
	return list, err
}

func (b *beside) Manifest(ctx context.Context, evidenceID string) ([]byte, error) {
	b.now(evidenceID == b.atManifest)
	return b.Reader.Manifest(ctx, evidenceID)
}

func (b *beside) Part(ctx context.Context, evidenceID, name string) ([]byte, error) {
	b.now(evidenceID == b.atPart)
	return b.Reader.Part(ctx, evidenceID, name)
}

// TestVerifyBesideRetention: what retention removes while it is checked is not taken for tampering.
func TestVerifyBesideRetention(t *testing.T) {
	for name, reader := range map[string]*beside{
		"after the list":                {atList: true},
		"before the newest is read":     {atManifest: "ev_4"},
		"before the oldest is read":     {atManifest: "ev_1"},
		"between a manifest and a part": {atPart: "ev_2"},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, a, head := chain(t, 4)
			reader.Reader, reader.do = s, func() {
				if done, err := a.Retain(t.Context(), evidence.Retention{MaxBytes: 1}, "l", needNone, noon); err != nil || done.Removed != 3 {
					t.Errorf("%+v, %v", done, err)
				}
			}
			r, err := evidence.Verify(t.Context(), reader, "p", head)
			if err != nil || !r.OK() || r.CutOff == nil || r.CutOff.Bundles != 3 || len(r.CutOff.Anchors) != 1 {
				t.Errorf("%+v, %+v, %v", r, r.CutOff, err)
			}
		})
	}
}

// TestVerifyBesideTwoRounds: the sum has each bundle once, and the newest anchor comes first.
func TestVerifyBesideTwoRounds(t *testing.T) {
	s, _, a, head := chain(t, 5)
	retain := func(maxBytes int64, want int) { // each bundle has about 300 KB
		if done, err := a.Retain(t.Context(), evidence.Retention{MaxBytes: maxBytes}, "l", needNone, noon); err != nil || done.Removed != want {
			t.Errorf("%+v, %v", done, err)
		}
	}
	retain(1_300_000, 1)
	r, err := evidence.Verify(t.Context(), &beside{Reader: s, atManifest: "ev_2", do: func() { retain(700_000, 2) }}, "p", head)
	if err != nil || !r.OK() || r.CutOff.Bundles != 3 || len(r.CutOff.Anchors) != 2 {
		t.Errorf("%+v, %+v, %v", r, r.CutOff, err)
	}
	again, err := evidence.Verify(t.Context(), s, "p", head)
	if err != nil || !slices.Equal(again.CutOff.Anchors, r.CutOff.Anchors) || again.CutOff.Bytes != r.CutOff.Bytes {
		t.Errorf("again: %+v instead of %+v, %v", again.CutOff, r.CutOff, err)
	}
}
