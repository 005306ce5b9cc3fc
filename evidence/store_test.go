package evidence_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"leasehold/evidence"
	"leasehold/internal/test/storetest"
)

// openDir opens an empty store in a directory, with how to damage it.
func openDir(t *testing.T) (evidence.Store, storetest.Damage) {
	dir := filepath.Join(t.TempDir(), "store")
	s, err := evidence.OpenDirStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s, storetest.Damage{
		Change: func(t *testing.T, _, evidenceID, name string) {
			path := filepath.Join(dir, evidenceID, name)
			b, err := os.ReadFile(path)
			must(t, err)
			b[len(b)-2] ^= 1
			must(t, os.WriteFile(path, b, 0o600))
		},
		Remove: func(t *testing.T, _, evidenceID, name string) {
			must(t, os.Remove(filepath.Join(dir, evidenceID, name)))
		},
		Swap: func(t *testing.T, _, a, b string) {
			must(t, os.Rename(filepath.Join(dir, a), filepath.Join(dir, "x")))
			must(t, os.Rename(filepath.Join(dir, b), filepath.Join(dir, a)))
			must(t, os.Rename(filepath.Join(dir, "x"), filepath.Join(dir, b)))
		},
	}
}

func TestDirStore(t *testing.T) { storetest.Run(t, openDir) }

// The manifest of another profile's bundle is read once for the lists of a profile. A list of all
// profiles reads it again.
func TestAListReadsWhatItHas(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s, err := evidence.OpenDirStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	spool := storetest.Spool(t)
	own, _ := storetest.Seal(t, spool, "p", "ev_1", 1, evidence.Link{})
	other, _ := storetest.Seal(t, spool, "q", "ev_2", 1, evidence.Link{})
	if err := errors.Join(s.Put(t.Context(), own), s.Put(t.Context(), other)); err != nil {
		t.Fatal(err)
	}
	lists := func(profileID string, want int) {
		t.Helper()
		if list, err := s.List(t.Context(), profileID); err != nil || len(list) != want {
			t.Errorf("of %q: %d bundles, %v; want %d", profileID, len(list), err, want)
		}
	}
	lists("p", 1)
	forged, _ := storetest.Seal(t, storetest.Spool(t), "p", "ev_2", 1, evidence.Link{})
	if err := os.WriteFile(filepath.Join(dir, "ev_2", evidence.ManifestName), forged.Raw, 0o600); err != nil {
		t.Fatal(err)
	}
	lists("p", 1) // ev_2 was not read again
	lists("", 2)
	lists("p", 2)
	third, _ := storetest.Seal(t, spool, "p", "ev_3", 2, evidence.Link{})
	if err := s.Put(t.Context(), third); err != nil {
		t.Fatal(err)
	}
	lists("p", 3)
}

// TestWhatOthersPutIntoTheStoreIsNotFollowed: a link to another file, a pipe that nobody writes
// to and a file that would fill the memory count as damage, wherever they are, and Verify says so.
// The other bundles are listed as before.
func TestWhatOthersPutIntoTheStoreIsNotFollowed(t *testing.T) {
	const part = "console.json"
	secret := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(secret, []byte("SECRET"), 0o600); err != nil {
		t.Fatal(err)
	}
	for what, put := range map[string]func(path string) error{
		"a link":           func(path string) error { return os.Symlink(secret, path) },
		"a link in a link": func(path string) error { return os.Symlink("../ev_2/"+filepath.Base(path), path) },
		"a pipe":           func(path string) error { return unix.Mkfifo(path, 0o600) },
		"a sparse file": func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<40))
		},
	} {
		for _, name := range []string{part, evidence.ManifestName} {
			t.Run(what+" as "+name, func(t *testing.T) {
				dir := t.TempDir()
				s, err := evidence.OpenDirStore(dir)
				if err != nil {
					t.Fatal(err)
				}
				spool := storetest.Spool(t)
				one, first := storetest.Seal(t, spool, "p", "ev_1", 1, evidence.Link{})
				two, head := storetest.Seal(t, spool, "p", "ev_2", 2, first)
				if err := errors.Join(s.Put(t.Context(), one), s.Put(t.Context(), two)); err != nil {
					t.Fatal(err)
				}
				path := filepath.Join(dir, "ev_1", name)
				if name == part {
					path = filepath.Join(dir, "ev_1", one.Manifest.Parts[0].Name)
				}
				if err := errors.Join(os.Remove(path), put(path)); err != nil {
					t.Fatal(err)
				}
				read := func() ([]byte, error) { return s.Manifest(t.Context(), "ev_1") }
				listed, problem := 1, evidence.BundleChanged
				if name == part {
					read = func() ([]byte, error) { return s.Part(t.Context(), "ev_1", filepath.Base(path)) }
					listed, problem = 2, evidence.PartChanged
				}
				if content, err := read(); !errors.Is(err, evidence.ErrDamaged) {
					t.Errorf("%.20q, %v", content, err)
				}
				if list, err := s.List(t.Context(), "p"); err != nil || len(list) != listed {
					t.Errorf("%d are listed, %v; want %d", len(list), err, listed)
				}
				r, err := evidence.Verify(t.Context(), s, "p", head)
				if err != nil || len(r.Findings) == 0 || r.Findings[0].Problem != problem {
					t.Errorf("%+v, %v; want %s", r.Findings, err, problem)
				}
				if err := s.Put(t.Context(), one); name == part && err != nil {
					t.Errorf("put again: %v", err)
				}
				if got, err := os.ReadFile(secret); err != nil || string(got) != "SECRET" {
					t.Errorf("the file behind the link: %q, %v", got, err)
				}
			})
		}
	}
}

// TestABundlesFolderIsNoLink: nothing is stored through a link that somebody put where the
// bundle's folder will be.
func TestABundlesFolderIsNoLink(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	s, err := evidence.OpenDirStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, filepath.Join(dir, "ev_1")); err != nil {
		t.Fatal(err)
	}
	one, _ := storetest.Seal(t, storetest.Spool(t), "p", "ev_1", 1, evidence.Link{})
	if err := s.Put(t.Context(), one); err == nil {
		t.Error("it was stored")
	}
	if left, err := os.ReadDir(elsewhere); err != nil || len(left) > 0 {
		t.Errorf("%v, %v behind the link", left, err)
	}
}
