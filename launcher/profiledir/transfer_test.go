package profiledir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// userData makes a directory that looks like a user-data-dir.
func userData(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "chrome")
	for path, content := range map[string]string{"Local State": "{}", "Default/Cookies": "cookies", "Default/Cache/one": "", "DevToolsActivePort": "1"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, path), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("elsewhere-1", filepath.Join(dir, "SingletonLock")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// copyOf makes a copy of a user-data-dir.
func copyOf(from string) Fill {
	return func(ctx context.Context, dir string) (map[string][]byte, error) { return nil, Copy(ctx, from, dir) }
}

// importOf makes a profile of a copy of a directory.
func importOf(ctx context.Context, l *Lock, from string, prepare func(dir string) error) (string, error) {
	return l.Make(ctx, copyOf(from), func(dir string, _ map[string][]byte) error { return prepare(dir) })
}

func TestImportCopies(t *testing.T) {
	r, from := open(t), userData(t)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	if err := os.Chtimes(filepath.Join(from, "Default", "Cookies"), at, at); err != nil {
		t.Fatal(err)
	}
	if n, err := Measure(from); err != nil || n != uint64(len("{}")+len("cookies")) {
		t.Errorf("measured %d, %v", n, err)
	}
	l := lock(t, r, "a")
	to, err := importOf(t.Context(), l, from, asItIs)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]fs.FileMode{}
	if err := filepath.WalkDir(to, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		got[strings.TrimPrefix(path, to)] = fi.Mode()
		return err
	}); err != nil {
		t.Fatal(err)
	}
	want := map[string]fs.FileMode{
		"": fs.ModeDir | 0o700, "/Default": fs.ModeDir | 0o700, "/Default/Cache": fs.ModeDir | 0o700,
		"/Local State": 0o600, "/Default/Cookies": 0o600, "/Default/Cache/one": 0o600,
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if fi, err := os.Stat(filepath.Join(to, "Default", "Cookies")); err != nil || !fi.ModTime().Equal(at) {
		t.Errorf("modified at %v, %v", fi.ModTime(), err)
	}
	if _, err := os.Readlink(filepath.Join(from, "SingletonLock")); err != nil {
		t.Errorf("the source was changed: %v", err)
	}
	if _, err := importOf(t.Context(), l, from, asItIs); !errors.Is(err, ErrExists) {
		t.Errorf("over a profile: %v", err)
	}
	r.nothingStaged(t)
}

// asItIs prepares nothing.
func asItIs(string) error { return nil }

// TestAnImportThatIsNotPreparedMakesNothing: neither where the preparation fails, nor where
// it was cut short, as by a kill.
func TestAnImportThatIsNotPreparedMakesNothing(t *testing.T) {
	r, from := open(t), userData(t)
	refused := errors.New("refused")
	_, err := importOf(t.Context(), lock(t, r, "a"), from, func(dir string) error {
		if _, err := os.Stat(filepath.Join(dir, "Default", "Cookies")); err != nil {
			t.Errorf("prepared before it is complete: %v", err)
		}
		if _, err := r.Path("a"); !errors.Is(err, ErrNoProfile) {
			t.Errorf("prepared when it is there already: %v", err)
		}
		return refused
	})
	if !errors.Is(err, refused) {
		t.Errorf("not prepared: %v", err)
	}
	if _, err := r.Path("a"); !errors.Is(err, ErrNoProfile) {
		t.Errorf("not prepared: %v", err)
	}
	r.nothingStaged(t)

	l := lock(t, r, "b")
	var left string
	if _, err := importOf(t.Context(), l, from, func(dir string) error {
		left = filepath.Dir(dir) // where a launcher that is killed here leaves its copy
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	left = strings.TrimSuffix(left, "b") + "c"
	if err := os.MkdirAll(filepath.Join(left, "profile", "Default"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Path("c"); !errors.Is(err, ErrNoProfile) {
		t.Errorf("cut short: %v", err)
	}
	if _, err := importOf(t.Context(), lock(t, r, "c"), from, asItIs); err != nil {
		t.Errorf("after one that was cut short: %v", err)
	}
	r.nothingStaged(t)
}

// TestOnlyClonesAreRemoved: not the original, not a copy of a clone, and not another
// profile that has the id of a removed one.
func TestOnlyClonesAreRemoved(t *testing.T) {
	r, from := open(t), userData(t)
	original, clone, copied := lock(t, r, "original"), lock(t, r, "clone"), lock(t, r, "copied")
	marked := func(dir string) error { return MarkClone(dir, "original") }
	if _, err := importOf(t.Context(), original, from, asItIs); err != nil {
		t.Fatal(err)
	}
	if _, err := importOf(t.Context(), clone, from, marked); err != nil {
		t.Fatal(err)
	}
	made, err := r.Path("clone")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := importOf(t.Context(), copied, made, asItIs); err != nil {
		t.Fatal(err)
	}
	for _, l := range []*Lock{original, copied} {
		if _, err := l.RemoveClone(); !errors.Is(err, ErrNoClone) {
			t.Errorf("%s: %v", l.id, err)
		}
		if _, err := r.Path(l.id); err != nil {
			t.Errorf("%s: %v", l.id, err)
		}
	}
	if _, err := lock(t, r, "nobody").RemoveClone(); !errors.Is(err, ErrNoClone) {
		t.Errorf("nobody: %v", err)
	}
	// A launcher that died in the middle has moved the clone, and not yet deleted it.
	if err := os.Rename(made, clone.removedPath()); err != nil {
		t.Fatal(err)
	}
	if _, err := clone.RemoveClone(); err != nil {
		t.Errorf("finishing what was cut short: %v", err)
	}
	if _, err := os.Stat(clone.removedPath()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("left: %v", err)
	}
	// The id is used again, for a directory that is no clone.
	if _, err := importOf(t.Context(), clone, from, asItIs); err != nil {
		t.Fatal(err)
	}
	if _, err := clone.RemoveClone(); !errors.Is(err, ErrNoClone) {
		t.Errorf("another profile of the same id: %v", err)
	}
	if err := marked(made); err != nil {
		t.Fatal(err)
	}
	if of, err := clone.RemoveClone(); of != "original" || err != nil {
		t.Errorf("removed: %q, %v", of, err)
	}
	if _, err := r.Path("clone"); !errors.Is(err, ErrNoProfile) {
		t.Errorf("removed: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(r.guard, ".removed*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// nothingStaged fails the test if an import left something behind.
func (r *Root) nothingStaged(t *testing.T) {
	t.Helper()
	if left, err := filepath.Glob(filepath.Join(r.guard, ".import-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestImportRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil func(dir string) error
		want  string
	}{
		"no user-data-dir": {func(dir string) error { return os.Remove(filepath.Join(dir, "Local State")) }, "Local State"},
		"a link out":       {func(dir string) error { return os.Symlink("/etc/passwd", filepath.Join(dir, "Default", "Bookmarks")) }, "Bookmarks is a link"},
		"a directory elsewhere": {func(dir string) error {
			return os.Symlink("/etc", filepath.Join(dir, "Extensions"))
		}, "Extensions is a link"},
		"a pipe":       {func(dir string) error { return unix.Mkfifo(filepath.Join(dir, "Default", "pipe"), 0o600) }, "pipe is a device"},
		"a lock below": {func(dir string) error { return os.Symlink("x", filepath.Join(dir, "Default", "SingletonLock")) }, "is a link"},
	} {
		r, from := open(t), userData(t)
		if err := tt.spoil(from); err != nil {
			t.Fatal(err)
		}
		if _, err := Measure(from); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: measured with %v", name, err)
		}
		if _, err := importOf(t.Context(), lock(t, r, "a"), from, asItIs); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := r.Path("a"); !errors.Is(err, ErrNoProfile) {
			t.Errorf("%s: part of a profile is there: %v", name, err)
		}
		r.nothingStaged(t)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	r := open(t)
	if _, err := importOf(gone, lock(t, r, "a"), userData(t), asItIs); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
	r.nothingStaged(t)
}

func TestArchive(t *testing.T) {
	r := open(t)
	l := lock(t, r, "a")
	if _, err := l.Archive(time.Now(), nil); !errors.Is(err, ErrNoProfile) {
		t.Errorf("nothing to put aside: %v", err)
	}
	if _, err := importOf(t.Context(), l, userData(t), asItIs); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	if at, err := r.Archived("a"); at != "" || err != nil {
		t.Errorf("before: %q %v", at, err)
	}
	at, err := l.Archive(now, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := r.Archived("a"); got != at || err != nil {
		t.Errorf("archived at %q, not %q: %v", got, at, err)
	}
	if got, err := r.Archived("a.b"); got != "" || err != nil {
		t.Errorf("another profile: %q %v", got, err)
	}
	if _, err := r.Create("a"); !errors.Is(err, ErrArchived) || !errors.Is(err, fs.ErrNotExist) || err.Error() != "the profile is archived: import it from "+at {
		t.Errorf("made anew: %v", err)
	}
	if ids, err := r.List(); err != nil || len(ids) != 0 {
		t.Errorf("listed: %v %v", ids, err)
	}
	if _, err := importOf(t.Context(), l, at, asItIs); err != nil {
		t.Fatal(err)
	}
	if got, err := r.Archived("a"); got != "" || err != nil {
		t.Errorf("back again: %q %v", got, err)
	}
	second, err := l.Archive(now.Add(time.Second), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := r.Archived("a"); got != second || err != nil {
		t.Errorf("the last is %q, not %q: %v", got, second, err)
	}
}

func TestCheckMine(t *testing.T) {
	dir := t.TempDir()
	for mode, want := range map[os.FileMode]string{0o700: "", 0o755: "", 0o500: "chmod u+rwx", 0o775: "", 0o757: "chmod go-w", 0o777: "chmod go-w"} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		if err := CheckMine(dir); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%#o: %v, want %q", mode, err, want)
		}
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	fi, err := os.Lstat(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := checkMine(dir, fi, os.Getuid()+1); err == nil || !strings.Contains(err.Error(), "chown") {
		t.Errorf("somebody else's: %v", err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if CheckMine(link) == nil || CheckMine(filepath.Join(dir, "none")) == nil {
		t.Error("a link, or nothing, is taken for a directory")
	}
}

// TestFindUser uses this process in place of a Chrome that does not name the
// directory.
func TestFindUser(t *testing.T) {
	dir := t.TempDir()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if u, err := FindUser(dir); u != nil || err != nil {
		t.Errorf("nobody: %v %v", u, err)
	}
	lock := filepath.Join(dir, "SingletonLock")
	write := func(target string) {
		t.Helper()
		_ = os.Remove(lock)
		if err := os.Symlink(target, lock); err != nil {
			t.Fatal(err)
		}
	}
	write(fmt.Sprintf("%s-%d", host, os.Getpid()))
	if u, err := FindUser(dir); u != nil || err != nil {
		t.Errorf("a pid that is another program's by now: %v %v", u, err)
	}
	f, err := os.Create(filepath.Join(dir, "Cookies"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	u, err := FindUser(dir)
	if err != nil || u == nil || u.PID != os.Getpid() || u.Name == "" {
		t.Fatalf("%v %v", u, err)
	}
	if age := time.Since(u.Since); age < -2*time.Second || age > time.Hour {
		t.Errorf("this process started %v ago", age)
	}
	if s := u.String(); !strings.Contains(s, fmt.Sprintf("pid %d, since 2", os.Getpid())) {
		t.Errorf("shown as %s", s)
	}
	write("another-host-1")
	if _, err := FindUser(dir); err == nil || !strings.Contains(err.Error(), "another-host") {
		t.Errorf("another host's: %v", err)
	}
	write("nonsense")
	if u, err := FindUser(dir); u != nil || err != nil {
		t.Errorf("nonsense: %v %v", u, err)
	}
}

// TestABrowserIsFoundByAnyName: through a link to a directory above, or relative to where it
// was started.
func TestABrowserIsFoundByAnyName(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	path, link := filepath.Join(dir, "real", "p"), filepath.Join(dir, "link")
	if err := errors.Join(os.MkdirAll(path, 0o700), os.Symlink(filepath.Join(dir, "real"), link)); err != nil {
		t.Fatal(err)
	}
	for name, as := range map[string]string{"by a link": filepath.Join(link, "p"), "relative": "real/p", "itself": path, "another": filepath.Join(dir, "other")} {
		cmd := exec.Command("sh", "-c", "read line", "browser", "--user-data-dir="+as)
		cmd.Dir = dir
		in, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		u, err := FindUser(path)
		if found := u != nil && u.PID == cmd.Process.Pid; err != nil || found != (name != "another") {
			t.Errorf("%s: %v, %v", name, u, err)
		}
		_ = in.Close()
		_ = cmd.Wait() // read fails at the end of its input
	}
}
