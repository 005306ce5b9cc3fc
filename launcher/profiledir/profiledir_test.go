package profiledir

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"leasehold/internal/durable"
	"leasehold/internal/signed"
	"leasehold/internal/test/smalldisk"
	"leasehold/internal/test/testkey"
	"leasehold/launcher/api"
	"leasehold/lease"
)

// modeVar makes the test binary behave as a launcher that takes a lock.
const modeVar = "LEASEHOLD_PROFILEDIR_TEST_ROOT"

func TestMain(m *testing.M) {
	if os.Getenv(racing) != "" {
		playRacer()
	}
	if dir := os.Getenv(modeVar); dir != "" {
		root, err := Open(dir, testkey.Key)
		if err != nil {
			panic(err)
		}
		lock, err := root.Lock("p")
		if err != nil {
			panic(err)
		}
		fmt.Println("locked")
		_, _ = io.Copy(io.Discard, os.Stdin) // until the test is done with it
		if err := lock.Unlock(); err != nil {
			panic(err)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func open(t *testing.T) *Root {
	t.Helper()
	r, err := Open(filepath.Join(t.TempDir(), "data", "profiles"), testkey.Key)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func lock(t *testing.T, r *Root, id string) *Lock {
	t.Helper()
	l, err := r.Lock(id)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Unlock(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func TestOpen(t *testing.T) {
	r := open(t)
	for _, dir := range []string{r.Dir(), filepath.Join(r.Dir(), ".leasehold")} {
		if fi, err := os.Stat(dir); err != nil || fi.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", dir, fi.Mode(), err)
		}
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(r.Dir(), link); err != nil {
		t.Fatal(err)
	}
	if same, err := Open(link, testkey.Key); err != nil || same.Dir() != r.Dir() {
		t.Errorf("through a symlink: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(file, testkey.Key); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a file as root: %v", err)
	}
	linked := t.TempDir()
	if err := os.Symlink(r.Dir(), filepath.Join(linked, ".leasehold")); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(linked, testkey.Key); err == nil {
		t.Error("a guard directory elsewhere is accepted")
	}
	if entries, err := os.ReadDir(filepath.Join(r.Dir(), ".leasehold")); err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestPath(t *testing.T) {
	r := open(t)
	for i := range 2 { // creating is idempotent
		path, err := r.Create("a.b-c_1")
		if err != nil || path != filepath.Join(r.Dir(), "a.b-c_1") {
			t.Fatalf("create %d: %s, %v", i, path, err)
		}
	}
	if fi, err := os.Stat(filepath.Join(r.Dir(), "a.b-c_1")); err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("%v, error %v; want a directory of mode 0700", fi, err)
	}
	inside, outside := filepath.Join(r.Dir(), "inside"), filepath.Join(r.Dir(), "outside")
	for link, target := range map[string]string{inside: "a.b-c_1", outside: t.TempDir()} {
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(r.Dir(), "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"inside", "outside", "file", "", ".", "..", ".leasehold", "../x", "a/b", "a\x00", strings.Repeat("x", 129)} {
		for name, f := range map[string]func(string) (string, error){"path": r.Path, "create": r.Create} {
			if path, err := f(id); err == nil || path != "" || errors.Is(err, ErrNoProfile) {
				t.Errorf("%s of %q: %s, %v", name, id, path, err)
			}
		}
	}
	if _, err := r.Path("none"); !errors.Is(err, ErrNoProfile) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	for _, id := range []string{"z", "b"} {
		if _, err := r.Create(id); err != nil {
			t.Fatal(err)
		}
	}
	if ids, err := r.List(); err != nil || !slices.Equal(ids, []string{"a.b-c_1", "b", "z"}) {
		t.Errorf("list: %q, %v", ids, err)
	}
	if err := os.Rename(r.Dir(), r.Dir()+"-moved"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(r.Dir()+"-moved", r.Dir()); err != nil {
		t.Fatal(err)
	}
	if path, err := r.Path("b"); err == nil {
		t.Errorf("a profile that is now elsewhere: %s", path)
	}
}

func locked(t *testing.T, r *Root, want bool) {
	t.Helper()
	if got, err := r.Locked("p"); err != nil || got != want {
		t.Errorf("locked: %v, %v: want %v", got, err, want)
	}
}

func TestLockIsExclusive(t *testing.T) {
	r := open(t)
	locked(t, r, false)
	l := lock(t, r, "p")
	locked(t, r, true)
	if _, err := r.Lock("p"); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), "p") {
		t.Errorf("a second: %v", err)
	}
	lock(t, r, "q") // another profile is free
	other, err := Open(r.Dir(), testkey.Key)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Lock("p"); !errors.Is(err, ErrLocked) {
		t.Errorf("a second root: %v", err)
	}
	if _, err := other.Adopt("p"); !errors.Is(err, ErrLocked) {
		t.Errorf("adopted from a living launcher: %v", err)
	}
	for range 2 { // unlocking is idempotent
		if err := l.Unlock(); err != nil {
			t.Error(err)
		}
	}
	locked(t, r, false)
	for name, err := range map[string]error{
		"floor": l.RaiseFloor(lease.Record{Token: 1}), "running": l.SetRunning(Running{}), "clear": l.ClearRunning(), "retake": l.Retake(),
	} {
		if err == nil {
			t.Errorf("%s under a lock that was given up", name)
		}
	}
	if l.File() != nil {
		t.Error("a closed file is handed out")
	}
	lock(t, other, "p")
	for _, bad := range []string{"", "../p", ".p"} {
		if _, err := r.Lock(bad); err == nil {
			t.Errorf("lock of %q", bad)
		}
		if _, err := r.Locked(bad); err == nil {
			t.Errorf("locked of %q", bad)
		}
	}
}

func TestLockHasOneWinner(t *testing.T) {
	r := open(t)
	const contenders, rounds = 8, 5
	for range rounds {
		var wg sync.WaitGroup
		won := make(chan *Lock, contenders)
		for range contenders {
			wg.Go(func() {
				l, err := r.Lock("p")
				if err == nil {
					won <- l
				} else if !errors.Is(err, ErrLocked) {
					t.Errorf("error %v, want %v", err, ErrLocked)
				}
			})
		}
		wg.Wait()
		if len(won) != 1 {
			t.Fatalf("%d winners", len(won))
		}
		if err := (<-won).Unlock(); err != nil {
			t.Fatal(err)
		}
	}
}

// child starts a program that has the files from fd 3 on and lives until the
// returned function is called.
func child(t *testing.T, files []*os.File, args ...string) (pid int, end func()) {
	t.Helper()
	cmd := exec.Command("/bin/sh", append([]string{"-c", "echo up; read line"}, args...)...)
	return begin(t, cmd, files)
}

func begin(t *testing.T, cmd *exec.Cmd, files []*os.File) (pid int, end func()) {
	t.Helper()
	cmd.ExtraFiles, cmd.Stderr = files, os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end = sync.OnceFunc(func() {
		in.Close()
		_ = cmd.Wait() // how it ends does not matter
	})
	t.Cleanup(end)
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid, end
}

func TestAnInheritedLockOutlivesUnlock(t *testing.T) {
	r := open(t)
	held := func(want bool) { // whether a launcher holds its part
		t.Helper()
		if got, err := r.Held("p"); err != nil || got != want {
			t.Errorf("held: %v, %v: want %v", got, err, want)
		}
	}
	held(false)
	l := lock(t, r, "p")
	held(true)
	_, end := child(t, []*os.File{l.File()})
	if err := l.Unlock(); err != nil {
		t.Fatal(err)
	}
	locked(t, r, true)
	held(false)
	if _, err := r.Lock("p"); !errors.Is(err, ErrLocked) {
		t.Fatalf("while the child has it: %v", err)
	}

	adopted, err := r.Adopt("p")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Adopt("p"); !errors.Is(err, ErrLocked) {
		t.Errorf("adopted twice: %v", err)
	}
	held(true)
	if adopted.File() != nil || adopted.Profile() != "p" {
		t.Errorf("adopted: %+v", adopted)
	}
	if err := errors.Join(adopted.RaiseFloor(lease.Record{Token: 3}), adopted.SetRunning(Running{PID: 1})); err != nil {
		t.Errorf("an adopted lock does not let its holder write: %v", err)
	}
	if err := adopted.Retake(); !errors.Is(err, ErrLocked) {
		t.Errorf("retaken while the child has it: %v", err)
	}
	in, err := r.Inspect("p")
	if err != nil || in.Locked.Answer != Yes {
		t.Errorf("inspection while the child has it: %+v, %v", in.Locked, err)
	}
	end()
	locked(t, r, true) // the launcher's part
	for range 2 {
		if err := adopted.Retake(); err != nil || adopted.File() == nil {
			t.Fatalf("retake: %v", err)
		}
	}
	if err := adopted.Unlock(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Adopt("p"); !errors.Is(err, ErrUnlocked) {
		t.Errorf("adopted from nobody: %v", err)
	}
	locked(t, r, false) // the refused adoption gave up the launcher's part again
}

func TestAKilledLauncherLeavesNoLock(t *testing.T) {
	r := open(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), modeVar+"="+r.Dir())
	_, end := begin(t, cmd, nil)
	locked(t, r, true)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	end()
	lock(t, r, "p")
}

func TestALockOnAReplacedFileIsRefused(t *testing.T) {
	r := open(t)
	path := r.file("p", sharedPart)
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := lockFile(f, path, syscall.LOCK_EX); err == nil || errors.Is(err, ErrLocked) {
		t.Errorf("got %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", path); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Lock("p"); err == nil {
		t.Error("a symlink was locked")
	}
}

// TestAPreparedFloor: with a prepared file RaiseFloor keeps the same as without. The file is
// used once, and only by a record that fits into it.
func TestAPreparedFloor(t *testing.T) {
	r := open(t)
	l := lock(t, r, "p")
	keep := func(token lease.Token, url string) {
		t.Helper()
		want := lease.Record{ProfileID: "p", Token: token, State: lease.Held, LastKnownURL: url}
		if err := l.RaiseFloor(want); err != nil {
			t.Fatal(err)
		}
		got, kept, err := r.Kept("p")
		if err != nil || got != token || kept.LastKnownURL != url || kept.State != lease.Held {
			t.Errorf("kept %d %+v, %v", got, kept, err)
		}
	}
	if err := l.PrepareFloor(); err == nil {
		t.Error("prepared where nothing is kept yet")
	}
	keep(1, "https://shop.example/")
	for _, url := range []string{"", strings.Repeat("x", preparedRoom/2), strings.Repeat("y", 3*preparedRoom), "https://shop.example/"} {
		floor, err := r.Floor("p")
		if err != nil {
			t.Fatal(err)
		}
		if err := l.PrepareFloor(); err != nil {
			t.Fatal(err)
		}
		if got, err := r.Floor("p"); err != nil || got != floor {
			t.Errorf("preparing changed the floor to %d, %v", got, err)
		}
		keep(floor+1, url)
		_, err = os.Lstat(r.file("p", preparedFloor))
		if used, fits := errors.Is(err, fs.ErrNotExist), len(url) < preparedRoom; used != fits {
			t.Errorf("the prepared file was used: %v, want %v (%d bytes more)", used, fits, len(url))
		}
		keep(floor+2, url)
	}
	// What a launcher that was killed had prepared does not count as a floor.
	if err := errors.Join(l.PrepareFloor(), l.Unlock()); err != nil {
		t.Fatal(err)
	}
	l = lock(t, r, "p")
	keep(100, "again")
	var fenced *lease.FencedError
	if err := errors.Join(l.PrepareFloor(), l.RaiseFloor(lease.Record{Token: 99})); !errors.As(err, &fenced) {
		t.Errorf("lowered: %v", err)
	}
}

func TestFloor(t *testing.T) {
	r := open(t)
	l := lock(t, r, "p")
	want := func(token lease.Token) {
		t.Helper()
		if got, err := r.Floor("p"); err != nil || got != token {
			t.Errorf("floor %d, %v: want %d", got, err, token)
		}
	}
	want(0)
	for _, token := range []lease.Token{0, 1, 42, 42, 1<<64 - 1} {
		if err := l.RaiseFloor(lease.Record{Token: token}); err != nil {
			t.Fatal(err)
		}
		want(token)
	}
	if err := l.RaiseFloor(lease.Record{ProfileID: "p", Token: 1<<64 - 1, State: lease.ManualReview, Sequence: 9}); err != nil {
		t.Fatal(err)
	}
	if token, kept, err := r.Kept("p"); err != nil || token != 1<<64-1 || kept.State != lease.ManualReview || kept.Sequence != 9 {
		t.Errorf("kept %d %+v, %v", token, kept, err)
	}
	var fenced *lease.FencedError
	if err := l.RaiseFloor(lease.Record{Token: 41}); !errors.As(err, &fenced) || fenced.Current != 1<<64-1 || fenced.Token != 41 {
		t.Errorf("lowered: %v", err)
	}
	want(1<<64 - 1)
	path := r.file("p", "floor")
	for _, damaged := range []string{"", "\n", "4", "42", "42\n\n", "042\n", "-1\n", "+1\n", "x\n", " 1\n", "18446744073709551616\n", "\x00\x00\x00", "42\n{}\n", "42\n{\"lease_token\":42}", "42\n{\"lease_token\":4"} {
		if err := os.WriteFile(path, testkey.Key.Sign(signed.Floor, "p", []byte(damaged)), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := r.Floor("p"); err == nil || !strings.Contains(err.Error(), path) || !errors.Is(err, signed.ErrNotAuthentic) {
			t.Errorf("%q: %d, %v", damaged, got, err)
		}
		if err := l.RaiseFloor(lease.Record{Token: 100}); err == nil {
			t.Errorf("%q: raised over a damaged floor", damaged)
		}
	}
	if _, err := r.Floor("../p"); err == nil {
		t.Error("floor of an id that is not valid")
	}
}

// A floor that could not be written is known for as long as the process lives, so that nobody takes
// it for one that was put back. One that was put back meanwhile is taken for what it is.
func TestAFloorThatCouldNotBeWrittenIsKnown(t *testing.T) {
	disk := smalldisk.Run(t, "1m")
	if disk == "" {
		return
	}
	r, err := Open(disk, testkey.Key)
	if err != nil {
		t.Fatal(err)
	}
	l := lock(t, r, "p")
	known := func(want lease.Token) {
		t.Helper()
		if got, kept, err := r.Kept("p"); err != nil || got != want || kept.Token != want {
			t.Errorf("kept %d %+v, %v, want %d", got, kept, err, want)
		}
	}
	raise := func(token lease.Token) error {
		return l.RaiseFloor(lease.Record{ProfileID: "p", Token: token, State: lease.Quarantined})
	}
	if err := raise(6); err != nil {
		t.Fatal(err)
	}
	older, err := os.ReadFile(r.file("p", "floor"))
	if err := errors.Join(err, raise(7)); err != nil {
		t.Fatal(err)
	}
	empty := smalldisk.Fill(t, disk)
	for range 2 {
		if err := raise(8); !durable.Full(err) {
			t.Errorf("on a full disk: %v", err)
		}
		known(8)
	}
	empty()
	if err := os.WriteFile(r.file("p", "floor"), older, 0o600); err != nil {
		t.Fatal(err)
	}
	known(6)
	if err := raise(8); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.file("p", "floor"), older, 0o600); err != nil {
		t.Fatal(err)
	}
	known(6)
}

// Where another directory is in the place of the one that was opened, as under a mount that has gone,
// nothing is read, made or written, and every refusal says so: what is missing there is no sign of
// anything. Once the directory is back, all is as it was.
func TestADirectoryThatIsNotThereAnyMore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "profiles")
	r, err := Open(dir, testkey.Key)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Create("p"); err != nil {
		t.Fatal(err)
	}
	l := lock(t, r, "p")
	if err := l.RaiseFloor(lease.Record{ProfileID: "p", Token: 7}); err != nil {
		t.Fatal(err)
	}
	gone := dir + ".gone"
	for name, empty := range map[string]func() error{
		"another directory": func() error { return os.MkdirAll(GuardDir(dir), 0o700) },
		"none":              func() error { return nil },
	} {
		if err := errors.Join(os.Rename(dir, gone), empty()); err != nil {
			t.Fatal(err)
		}
		for what, do := range map[string]func() error{
			"path":    func() error { return second(r.Path("p")) },
			"create":  func() error { return second(r.Create("q")) },
			"lock":    func() error { return second(r.Lock("q")) },
			"floor":   func() error { return second(r.Floor("p")) },
			"raise":   func() error { return l.RaiseFloor(lease.Record{ProfileID: "p", Token: 8}) },
			"running": func() error { return l.SetRunning(Running{PID: 7}) },
		} {
			var p *api.Problem
			if err := do(); !errors.As(err, &p) || p.Code != api.CodeHostFull || p.More["reason"] != api.ReasonFiles || !strings.Contains(err.Error(), dir) {
				t.Errorf("%s, %s: %v", name, what, err)
			}
		}
		if made, err := filepath.Glob(GuardDir(dir) + "/*"); err != nil || len(made) > 0 {
			t.Errorf("%s: %v was made there, %v", name, made, err)
		}
		if err := errors.Join(os.RemoveAll(dir), os.Rename(gone, dir)); err != nil {
			t.Fatal(err)
		}
		if floor, err := r.Floor("p"); err != nil || floor != 7 {
			t.Errorf("%s, and it is back: floor %d, %v", name, floor, err)
		}
	}
}

// second is the error of a result.
func second[T any](_ T, err error) error { return err }

func TestRunning(t *testing.T) {
	r := open(t)
	l := lock(t, r, "p")
	if _, ok, err := r.Running("p"); ok || err != nil {
		t.Errorf("none: %v, %v", ok, err)
	}
	want := Running{PID: 7, StartTime: 1 << 60, BootID: "b", SessionID: "s", Token: 9, TempDir: "/t", OutputFile: "/o"}
	if err := l.SetRunning(want); err != nil {
		t.Fatal(err)
	}
	if got, ok, err := r.Running("p"); !ok || err != nil || got != want {
		t.Errorf("got %+v, %v, %v", got, ok, err)
	}
	for range 2 {
		if err := l.ClearRunning(); err != nil {
			t.Error(err)
		}
	}
	if _, ok, err := r.Running("p"); ok || err != nil {
		t.Errorf("cleared: %v, %v", ok, err)
	}
	if err := os.WriteFile(r.file("p", "browser"), []byte(`{"pid":`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := r.Running("p"); ok || !errors.Is(err, signed.ErrNotAuthentic) {
		t.Errorf("damaged: %v, %v", ok, err)
	}
}

func TestNamesProfile(t *testing.T) {
	for _, c := range []struct {
		name, line  string
		named, main bool
	}{
		{"main", "chrome\x00--user-data-dir=/p/a\x00about:blank\x00", true, true},
		{"last argument", "chrome\x00--user-data-dir=/p/a", true, true},
		{"helper", "chrome --type=gpu-process --user-data-dir=/p/a --x\x00", true, false},
		{"helper, at its end", "chrome --type=gpu-process --user-data-dir=/p/a", true, false},
		{"longer path", "chrome\x00--user-data-dir=/p/ab\x00", false, false},
		{"below", "chrome\x00--user-data-dir=/p/a/b\x00", false, false},
		{"another first", "chrome\x00--user-data-dir=/p/ab\x00--user-data-dir=/p/a\x00", true, true},
		{"part of an argument", "chrome\x00--x--user-data-dir=/p/a\x00", false, false},
		{"empty", "", false, false},
	} {
		if named, main := namesProfile([]byte(c.line), "/p/a"); named != c.named || main != c.main {
			t.Errorf("%s: got %v, %v", c.name, named, main)
		}
	}
}

func TestWaitUnused(t *testing.T) {
	r := open(t)
	path, err := r.Create("p")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.WaitUnused(t.Context(), "p"); err != nil {
		t.Errorf("nobody: %v", err)
	}
	child(t, nil, "sh", "--user-data-dir="+path+"b") // a neighbour
	pid, end := child(t, nil, "sh", "--user-data-dir="+path)
	ps, err := Processes(path)
	if err != nil || len(ps) != 1 || ps[0].PID != pid || ps[0].StartTime == 0 || !ps[0].Main || !strings.Contains(ps[0].Command, "sh --user-data-dir="+path) {
		t.Errorf("processes %+v, %v", ps, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := r.WaitUnused(ctx, "p"); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), strconv.Itoa(pid)) {
		t.Errorf("in use: %v", err)
	}
	in, err := r.Inspect("p")
	if err != nil || in.InUse.Answer != Yes || len(in.Processes) != 1 || in.Locked.Answer != No {
		t.Errorf("inspection %+v, %v", in, err)
	}
	l := lock(t, r, "p")
	if in, err := r.Inspect("p"); err != nil || in.Locked.Answer != Yes {
		t.Errorf("in use under our lock: %+v, %v", in.Locked, err)
	}
	waited := make(chan error)
	go func() { waited <- r.WaitUnused(t.Context(), "p") }()
	end()
	if err := <-waited; err != nil {
		t.Error(err)
	}
	if in, err := r.Inspect("p"); err != nil || in.Locked.Answer != No || in.InUse.Answer != No {
		t.Errorf("unused under our lock: %+v, %v", in, err)
	}
	if err := l.Unlock(); err != nil {
		t.Error(err)
	}
	if err := r.WaitUnused(t.Context(), "none"); !errors.Is(err, ErrNoProfile) {
		t.Errorf("no profile: %v", err)
	}
}

// TestAnAbandonedRootOpensNoOther: what a launcher that has ended would still open has locks that
// nobody gives up.
func TestAnAbandonedRootOpensNoOther(t *testing.T) {
	root, err := Open(t.TempDir(), testkey.Key)
	if err != nil {
		t.Fatal(err)
	}
	if done, err := root.Abandon(); !done || err != nil {
		t.Fatalf("%t, %v", done, err)
	}
	if other, err := root.Open(t.TempDir()); err == nil {
		t.Errorf("opened %s", other.Dir())
	}
}

// TestANoteStaysAsLongAsItsBrowserHasTheLock: it says what the browser is, for whoever closes it.
func TestANoteStaysAsLongAsItsBrowserHasTheLock(t *testing.T) {
	r := open(t)
	chromes, err := os.OpenFile(filepath.Join(r.Dir(), ".leasehold", "p.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		err = syscall.Flock(int(chromes.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	l, err := r.Adopt("p")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.SetRunning(Running{PID: 1, SessionID: "chk_1"}); err != nil {
		t.Fatal(err)
	}
	if err := l.ClearRunning(); !errors.Is(err, ErrLocked) {
		t.Errorf("while it has the lock: %v, want %v", err, ErrLocked)
	}
	if was, is, err := r.Running("p"); err != nil || !is || was.SessionID != "chk_1" {
		t.Errorf("noted is %+v, %v, %v", was, is, err)
	}
	if err := os.WriteFile(r.file("p", "browser"), []byte(`{"pid":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := l.ClearRunning(); !errors.Is(err, ErrLocked) {
		t.Errorf("with somebody else's note: %v, want %v", err, ErrLocked)
	}
	if was, is, err := r.Running("p"); err != nil || is {
		t.Errorf("noted by somebody else is %+v, %v", was, err)
	}
	if err := l.SetRunning(Running{PID: 1, SessionID: "chk_1"}); err != nil {
		t.Fatal(err)
	}
	if err := chromes.Close(); err != nil {
		t.Fatal(err)
	}
	if err := l.ClearRunning(); err != nil {
		t.Errorf("after its end: %v", err)
	}
	if was, is, err := r.Running("p"); err != nil || is {
		t.Errorf("noted is %+v, %v", was, err)
	}
	if err := l.Unlock(); err != nil {
		t.Fatal(err)
	}
}
