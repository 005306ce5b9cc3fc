package evidence_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"leasehold/evidence"
	"leasehold/internal/test/storetest"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newBundle(t *testing.T, s *evidence.Spool, evidenceID string) *evidence.Bundle {
	t.Helper()
	b, err := s.New(evidence.Manifest{EvidenceID: evidenceID, ProfileID: "p"})
	must(t, err)
	return b
}

func TestBundleFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	s, err := evidence.OpenSpool(dir)
	if err != nil {
		t.Fatal(err)
	}
	b := newBundle(t, s, "ev_1")
	if err := b.Add("a.txt", evidence.KindOutput, "text/plain", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if ids, err := s.Sealed(); err != nil || len(ids) != 0 {
		t.Errorf("sealed too early: %v, %v", ids, err)
	}
	if _, err := s.Open("ev_1"); !errors.Is(err, evidence.ErrNotFound) {
		t.Errorf("an unsealed bundle opens: %v", err)
	}
	if _, err := s.Part(t.Context(), "ev_1", "a.txt"); !errors.Is(err, evidence.ErrNotFound) {
		t.Errorf("a part of an unsealed bundle reads: %v", err)
	}
	m, sum, err := b.Seal()
	if err != nil {
		t.Fatal(err)
	}
	if again, sum2, err := b.Seal(); err != nil || sum2 != sum || again.EvidenceID != m.EvidenceID {
		t.Errorf("sealed again: %v %v", sum2, err)
	}
	if err := b.Add("b.txt", evidence.KindOutput, "text/plain", nil); err == nil {
		t.Error("a part was added after the seal")
	}
	if err := b.Discard(); err == nil {
		t.Error("a sealed bundle was discarded")
	}
	if ids, err := s.Sealed(); err != nil || !slices.Equal(ids, []string{"ev_1"}) {
		t.Errorf("sealed: %v, %v", ids, err)
	}
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		want := fs.FileMode(0o600)
		if e.IsDir() {
			want = 0o700
		}
		if err == nil && info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, want %v", path, info.Mode().Perm(), want)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestPartNames(t *testing.T) {
	b := newBundle(t, storetest.Spool(t), "ev_1")
	for _, c := range []struct {
		name string
		ok   bool
	}{
		{"screenshot-1.jpg", true}, {"screenshot-1.jpg", false}, {"_x", true}, {"manifest.json", false}, {"", false}, {".", false},
		{"..", false}, {".hidden", false}, {"a/b", false}, {"../x", false}, {"a\x00", false}, {"a b", false},
	} {
		if err := b.Add(c.name, evidence.KindOutput, "", []byte("x")); (err == nil) != c.ok {
			t.Errorf("Add(%q): %v", c.name, err)
		}
	}
	b.AddMissing("screenshot-1.jpg", evidence.KindScreenshot, "late")
	b.AddMissing("lock.json", evidence.KindLock, "")
	m, _, err := b.Seal()
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Parts) != 3 || m.Parts[0].Missing != "" || m.Parts[2].Missing == "" {
		t.Errorf("parts: %+v", m.Parts)
	}
}

func TestNewRefusesBadIDs(t *testing.T) {
	s := storetest.Spool(t)
	newBundle(t, s, "ev_1")
	for _, m := range []evidence.Manifest{
		{}, {ProfileID: "a/b"}, {ProfileID: "p", EvidenceID: "../x"}, {ProfileID: "p", EvidenceID: ".key"}, {ProfileID: "p", EvidenceID: "ev_1"},
	} {
		if _, err := s.New(m); err == nil {
			t.Errorf("New(%+v) was not refused", m)
		}
	}
	b, err := s.New(evidence.Manifest{ProfileID: "p"})
	if err != nil || b.ID() == "" {
		t.Errorf("a bundle without an id: %q, %v", b.ID(), err)
	}
}

func TestDiscard(t *testing.T) {
	s := storetest.Spool(t)
	b := newBundle(t, s, "ev_1")
	if err := errors.Join(b.Add("a", "output", "", []byte("x")), b.Discard(), b.Discard()); err != nil {
		t.Fatal(err)
	}
	newBundle(t, s, "ev_1") // the id is free again
	if _, _, err := b.Seal(); err == nil {
		t.Error("a discarded bundle was sealed")
	}
	if err := b.Add("b", "output", "", nil); err == nil {
		t.Error("a discarded bundle took a part")
	}
}

func TestSalt(t *testing.T) {
	dir := t.TempDir()
	salt := func(profileID string) []byte {
		t.Helper()
		s, err := evidence.OpenSpool(dir)
		if err != nil {
			t.Fatal(err)
		}
		return s.Salt(profileID)
	}
	one := salt("p")
	if !bytes.Equal(one, salt("p")) || bytes.Equal(one, salt("q")) || len(one) != 32 {
		t.Error("a salt is not its profile's own, for good")
	}
	if err := os.WriteFile(filepath.Join(dir, ".key"), []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := evidence.OpenSpool(dir); err == nil {
		t.Error("a short key was taken")
	}
}
