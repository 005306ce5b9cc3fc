package foreign

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// stranger is a user that is not root.
const stranger = 54321

// place is a directory of the stranger, with one of everything that he could put there, and
// a secret of root outside.
func place(t *testing.T) (dir, secret string) {
	t.Helper()
	base := t.TempDir()
	dir, secret = filepath.Join(base, "theirs"), filepath.Join(base, "secret")
	if err := os.WriteFile(secret, []byte("SECRET"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		os.WriteFile(filepath.Join(dir, "plain"), []byte("plain"), 0o600),
		os.WriteFile(filepath.Join(dir, "sub", "deep"), []byte("deep"), 0o600),
		os.WriteFile(filepath.Join(dir, "roots"), []byte("SECRET"), 0o600),
		os.WriteFile(filepath.Join(dir, "once"), []byte("SECRET"), 0o600),
		os.Symlink(secret, filepath.Join(dir, "link")),
		os.Symlink("../secret", filepath.Join(dir, "out")),
		os.Symlink("plain", filepath.Join(dir, "within")),
		os.Symlink("..", filepath.Join(dir, "up")),
		os.Link(secret, filepath.Join(dir, "hard")),
		os.Link(filepath.Join(dir, "once"), filepath.Join(dir, "twice")),
		unix.Mkfifo(filepath.Join(dir, "pipe"), 0o666),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{".", "sub", "plain", "sub/deep", "once", "pipe"} {
		if err := os.Chown(filepath.Join(dir, name), stranger, stranger); err != nil {
			t.Fatal(err)
		}
	}
	return dir, secret
}

func TestFilesOfAnotherUser(t *testing.T) {
	dir, secret := place(t)
	for name, want := range map[string]string{"plain": "plain", "sub/deep": "deep", "within": "plain"} {
		if got, err := Read(dir, name, 100); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	for _, name := range []string{"link", "out", "up/secret", "../secret", "roots", "hard", "once", "twice", "pipe", "sub", "none", secret} {
		if got, err := Read(dir, name, 100); err == nil {
			t.Errorf("%s: %q was read", name, got)
		}
	}
	if _, err := Read(dir, "hard", 100); !errors.Is(err, ErrNotItsOwn) {
		t.Errorf("a hard link: %v", err)
	}
	if got, err := Read(dir, "plain", 4); err == nil {
		t.Errorf("with a bound of 4 bytes: %q", got)
	}
	// A directory of one's own is read as it is, save for what leads out.
	if got, err := Read(filepath.Dir(dir), "secret", 100); err != nil || string(got) != "SECRET" {
		t.Errorf("an own file: %q, %v", got, err)
	}
}

func TestReplace(t *testing.T) {
	dir, secret := place(t)
	// Where it is made first, the stranger waits with a link.
	if err := os.Symlink(secret, filepath.Join(dir, ".new-note")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"note", "link", "hard"} {
		if err := Replace(dir, name, []byte("said")); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		st := info.Sys().(*syscall.Stat_t)
		if b, err := os.ReadFile(path); err != nil || string(b) != "said" || !info.Mode().IsRegular() || st.Uid != stranger || st.Gid != stranger || st.Nlink != 1 {
			t.Errorf("%s: %q, %v, %v, uid %d, gid %d", name, b, err, info.Mode(), st.Uid, st.Gid)
		}
	}
	if b, err := os.ReadFile(secret); err != nil || string(b) != "SECRET" {
		t.Errorf("the secret is %q now, %v", b, err)
	}
	own := filepath.Dir(dir)
	if err := Replace(own, "note", []byte("said")); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(filepath.Join(own, "note")); err != nil || string(b) != "said" {
		t.Errorf("in an own directory: %q, %v", b, err)
	}
}
