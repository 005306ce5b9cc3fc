package profiledir

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"leasehold/internal/runas"
	"leasehold/internal/signed"
	"leasehold/internal/test/testkey"
)

// Two browser users.
var (
	ana = &runas.User{UID: 54321, GID: 54331}
	ben = &runas.User{UID: 54322, GID: 54332}
)

// as opens the profiles directory as a launcher with the browser user does.
func as(t *testing.T, dir string, u *runas.User) *Root {
	t.Helper()
	r, err := Open(dir, testkey.Key)
	if err == nil {
		err = r.SetBrowserUser(u)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// handTo hands the profile p to the user.
func handTo(t *testing.T, dir string, u *runas.User) error {
	t.Helper()
	l, err := as(t, dir, u).Lock("p")
	if err != nil {
		t.Fatal(err)
	}
	return errors.Join(l.Chown(), l.Unlock())
}

// written makes a profile of the launcher's own user, as a browser leaves it.
func written(t *testing.T, dir string) (path string) {
	t.Helper()
	path = filepath.Join(dir, "p")
	for _, err := range []error{
		os.MkdirAll(filepath.Join(path, "Default", "Network"), 0o777),
		os.WriteFile(filepath.Join(path, "Local State"), []byte("{}"), 0o600),
		os.WriteFile(filepath.Join(path, "Default", "Cookies"), []byte("cookies"), 0o600),
		os.WriteFile(filepath.Join(path, "Default", "Network", "x"), []byte("x"), 0o644),
		os.Symlink("host-12", filepath.Join(path, "SingletonLock")),
		os.Symlink("/etc/shadow", filepath.Join(path, "SingletonSocket")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// owners fails the test unless all of the profile is the user's.
func owners(t *testing.T, path string, uid, gid int) {
	t.Helper()
	err := filepath.WalkDir(path, func(at string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if st := info.Sys().(*syscall.Stat_t); int(st.Uid) != uid || int(st.Gid) != gid {
			t.Errorf("%s is of %d:%d, want %d:%d", at, st.Uid, st.Gid, uid, gid)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestChown(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "profiles")
	as(t, dir, nil)
	path := written(t, dir)
	for _, u := range []*runas.User{ana, ana, ben, nil, nil, ana} {
		if err := handTo(t, dir, u); err != nil {
			t.Fatal(err)
		}
		own := runas.User{UID: os.Geteuid(), GID: os.Getegid()}
		if u != nil {
			own = *u
		}
		owners(t, path, own.UID, own.GID)
	}
	shadow, err := os.Stat("/etc/shadow")
	if err != nil || shadow.Sys().(*syscall.Stat_t).Uid != 0 {
		t.Errorf("what a link of Chrome's leads to: %v, %v", shadow, err)
	}
	for _, name := range []string{"p.lock", "p.launcher", ownersFile} {
		info, err := os.Stat(filepath.Join(GuardDir(dir), name))
		if err != nil || int(info.Sys().(*syscall.Stat_t).Uid) != os.Geteuid() {
			t.Errorf("%s is the launcher's no more: %v", name, err)
		}
	}
	// One that was cut short is finished.
	if err := handTo(t, dir, nil); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(filepath.Join(path, "Default", "Cookies"), ana.UID, ana.GID); err != nil {
		t.Fatal(err)
	}
	if err := handTo(t, dir, ana); err != nil {
		t.Error(err)
	}
	owners(t, path, ana.UID, ana.GID)
}

// That a directory was being taken back when its launcher was killed says nothing about the one that came into
// its place since.
func TestAnotherDirectoryIsNotHeldToBeCutShort(t *testing.T) {
	for name, come := range map[string]func(r *Root, l *Lock) error{
		"restored": func(_ *Root, l *Lock) error {
			_, err := l.Exchange(t.Context(), time.Now(), nil, Empty)
			return err
		},
		"imported": func(_ *Root, l *Lock) error {
			_, err := l.Archive(time.Now(), nil)
			if err == nil {
				_, err = l.Make(t.Context(), Empty, func(string, map[string][]byte) error { return nil })
			}
			return err
		},
		"moved here": func(_ *Root, l *Lock) error {
			err := l.PrepareArrival(t.Context(), Arrival{MoveID: "mv9"}, Empty)
			if err == nil {
				_, err = l.Arrive(cameUnder(9, "mv9"), time.Now(), nil, func(map[string][]byte) error { return nil })
			}
			return err
		},
		"made": func(r *Root, l *Lock) error {
			at, err := l.Archive(time.Now(), nil)
			if err = errors.Join(err, os.RemoveAll(at)); err == nil {
				_, err = r.Create("p")
			}
			return err
		},
	} {
		r, must := open(t), mustIn(t)
		_, err := r.Create("p")
		must(err)
		l := lock(t, r, "p")
		must(os.WriteFile(r.file("p", takingMark), nil, 0o600))
		if err := l.Chown(); err == nil || !strings.Contains(err.Error(), "cut short") {
			t.Errorf("%s: the directory that was being taken: %v", name, err)
		}
		must(come(r, l))
		if err := l.Chown(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	t.Run("put aside, and the launcher was killed", func(t *testing.T) {
		r, must := open(t), mustIn(t)
		path, err := r.Create("p")
		must(err)
		l := lock(t, r, "p")
		must(os.WriteFile(r.file("p", takingMark), nil, 0o600))
		must(errors.Join(l.writeNote(signed.Aside, struct{}{}), os.Rename(path, path+".was")))
		_, err = r.Create("p")
		must(err)
		must(l.Chown())
	})
	t.Run("archived, and moved back by hand", func(t *testing.T) {
		r, must := open(t), mustIn(t)
		path, err := r.Create("p")
		must(err)
		l := lock(t, r, "p")
		must(os.WriteFile(r.file("p", takingMark), nil, 0o600))
		at, err := l.Archive(time.Now(), nil)
		must(err)
		must(os.Rename(at, path))
		if err := l.Chown(); err == nil || !strings.Contains(err.Error(), "cut short") {
			t.Errorf("the directory that was being taken: %v", err)
		}
	})
	t.Run("restored, and the launcher was killed", func(t *testing.T) {
		r, must := open(t), mustIn(t)
		path, err := r.Create("p")
		must(err)
		l := lock(t, r, "p")
		must(os.WriteFile(r.file("p", takingMark), nil, 0o600))
		now := time.Unix(1, 0)
		must(os.MkdirAll(filepath.Join(r.archive(), "p"+archiveMark+now.UTC().Format("20060102T150405.000000000Z")), 0o700)) // in the way
		if _, err := l.Exchange(t.Context(), now, nil, func(_ context.Context, dir string) (map[string][]byte, error) {
			return nil, os.Mkdir(dir, 0o700)
		}); err == nil {
			t.Fatal("it came into its place")
		}
		if spared, err := os.ReadFile(r.file("p", takingMark)); err != nil || len(spared) == 0 {
			t.Errorf("a restore spares %q, %v", spared, err)
		}
		if err := l.Chown(); err == nil || !strings.Contains(err.Error(), "cut short") {
			t.Errorf("the directory that was being taken: %v", err)
		}
		made := filepath.Join(t.TempDir(), "made")
		must(errors.Join(os.Mkdir(made, 0o700), r.spareTaking("p", made)))
		must(errors.Join(os.Rename(path, path+".was"), os.Rename(made, path), l.Chown()))
	})
	// One that comes back is as it was.
	r, must := open(t), mustIn(t)
	_, err := r.Create("p")
	must(err)
	l := lock(t, r, "p")
	must(os.WriteFile(r.file("p", takingMark), nil, 0o600))
	e, err := l.Exchange(t.Context(), time.Now(), nil, Empty)
	must(err)
	must(e.Undo())
	if err := l.Chown(); err == nil || !strings.Contains(err.Error(), "cut short") {
		t.Errorf("a restore that was undone: %v", err)
	}
}

// What a browser user could have put into a profile to be given it, by the next change of owner.
func TestChownRefuses(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	own := os.Geteuid()
	chown := func(name string, uid int) func(string) error {
		return func(path string) error { return os.Lchown(filepath.Join(path, name), uid, uid) }
	}
	for _, c := range []struct {
		name     string
		from, to *runas.User
		plant    func(path string) error
		says     string
	}{
		{"a hard link to a file of the launcher", nil, ana, func(path string) error { return os.Link(secret, filepath.Join(path, "Default", "h")) }, "has 2 names"},
		{"the same, by a browser user", ana, ben, func(path string) error { return os.Link(secret, filepath.Join(path, "Default", "h")) }, fmt.Sprintf("Default/h belongs to uid %d, want uid %d", own, ana.UID)},
		{"a file of the launcher that was moved there", ana, nil, chown("Default/Cookies", own), fmt.Sprintf("Default/Cookies belongs to uid %d", own)},
		{"a file of a third user", nil, ana, chown("Default/Cookies", 54399), "Default/Cookies belongs to uid 54399"},
		{"a directory of a third user", ana, ben, chown("Default/Network", 54399), "Default/Network belongs to uid 54399"},
		{"a link", ana, nil, func(path string) error {
			return errors.Join(os.Symlink(secret, filepath.Join(path, "l")), chown("l", ana.UID)(path))
		}, "p/l is a link"},
		{"a link where Chrome has none", nil, ana, func(path string) error { return os.Symlink(secret, filepath.Join(path, "Default", "SingletonLock")) }, "Default/SingletonLock is a link"},
		{"a pipe", nil, ana, func(path string) error { return unix.Mkfifo(filepath.Join(path, "f"), 0o600) }, "p/f is a device, pipe or socket"},
		{"a directory of somebody else", nil, ana, func(path string) error { return os.Chown(path, 54399, 54399) }, "belongs to uid 54399, which is no browser user"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "profiles")
			as(t, dir, nil)
			path := written(t, dir)
			if err := handTo(t, dir, c.from); err != nil {
				t.Fatal(err)
			}
			if err := c.plant(path); err != nil {
				t.Fatal(err)
			}
			if err := handTo(t, dir, c.to); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %s", err, c.says)
			}
			for _, theirs := range []string{secret, "/etc/shadow"} {
				if info, err := os.Stat(theirs); err != nil || int(info.Sys().(*syscall.Stat_t).Uid) != own {
					t.Errorf("%s was given away: %v", theirs, err)
				}
			}
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if c.to != nil && int(info.Sys().(*syscall.Stat_t).Uid) == c.to.UID {
				t.Error("the directory is the new user's")
			}
			if c.from == nil {
				return
			}
			// What was left half taken is for a person.
			if err := handTo(t, dir, c.to); err == nil || !strings.Contains(err.Error(), "was cut short") {
				t.Errorf("the next try: %v", err)
			}
		})
	}
}

// A copy of a browser user's profile has the files of that user, and no others that he put
// there to be copied. It is the launcher's own until its browser starts.
func TestACopyOfAProfileOfABrowserUser(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("SECRET"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "profiles")
	as(t, dir, nil)
	path := written(t, dir)
	if err := handTo(t, dir, ana); err != nil {
		t.Fatal(err)
	}
	r := as(t, dir, ana)
	clone := func(id string) (string, error) {
		return importOf(t.Context(), lock(t, r, id), path, func(dir string) error { return MarkClone(dir, "p") })
	}
	copied, err := clone("copy")
	if err != nil {
		t.Fatal(err)
	}
	owners(t, copied, os.Geteuid(), os.Getegid())
	if err := r.CheckOwner(path); err != nil {
		t.Error(err)
	}
	planted := filepath.Join(path, "Default", "planted")
	for id, plant := range map[string]func() error{
		"hard-link":    func() error { return os.Link(secret, planted) },
		"file-of-root": func() error { return os.WriteFile(planted, []byte("SECRET"), 0o600) },
	} {
		if err := plant(); err != nil {
			t.Fatal(err)
		}
		if _, err := clone(id); err == nil || !strings.Contains(err.Error(), "planted: it is not a file of the directory's owner alone") {
			t.Errorf("%s: %v", id, err)
		}
		if err := os.Remove(planted); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(filepath.Join(dir, id)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: the copy is there: %v", id, err)
		}
	}
	// The mark of a clone, and how Chrome ended, are read the same way.
	for _, name := range []string{cloneMark, "Variations"} {
		if err := os.Symlink(secret, filepath.Join(path, name)); err != nil {
			t.Fatal(err)
		}
	}
	if of, err := lock(t, r, "p").RemoveClone(); err == nil {
		t.Errorf("removed as a clone of %q", of)
	}
	in, err := r.Inspect("p")
	if err != nil || in.ClosedCleanly.Answer == Yes {
		t.Errorf("%+v, %v", in.ClosedCleanly, err)
	}
}

// A list of browser users that the launcher has not written is not believed.
func TestAForgedListOfOwners(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "profiles")
	r := as(t, dir, ana)
	if err := os.Mkdir(filepath.Join(dir, "p"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(filepath.Join(dir, "p"), ana.UID, ana.GID); err != nil {
		t.Fatal(err)
	}
	for uid, ok := range map[int]bool{os.Geteuid(): true, ana.UID: true, ben.UID: false} {
		if err := os.Chown(filepath.Join(dir, "p"), uid, uid); err != nil {
			t.Fatal(err)
		}
		if err := r.CheckOwner(filepath.Join(dir, "p")); (err == nil) != ok {
			t.Errorf("uid %d: %v", uid, err)
		}
	}
	if err := os.WriteFile(filepath.Join(GuardDir(dir), ownersFile), []byte("[54322]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := Open(dir, testkey.Key)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.SetBrowserUser(nil); err == nil || !strings.Contains(err.Error(), "cannot be believed") {
		t.Errorf("a forged list: %v", err)
	}
}

// racing makes the test binary the adversary of TestNobodyIsGivenAForeignFile.
const racing = "LEASEHOLD_PROFILEDIR_TEST_RACE"

// playRacer is a process of a browser user in a profile's directory. It puts files of others
// under the names of its own, again and again.
func playRacer() {
	fmt.Println("ready")
	for {
		_ = os.Rename("Cookies", "aside")
		_ = os.Symlink("/etc/shadow", "Cookies")
		_ = os.Remove("Cookies")
		_ = os.Rename("../../../home/theirs", "theirs") // one of root's in a directory of the user
		_ = os.Rename("theirs", "../../../home/theirs")
		_ = os.Mkdir("d", 0o777)
		_ = os.Rename("d", "e")
		_ = os.Remove("e")
		_ = os.Rename("aside", "Cookies")
	}
}

// While a profile changes hands, a process of the user that it belonged to is in it.
func TestNobodyIsGivenAForeignFile(t *testing.T) {
	base := t.TempDir()
	dir, home := filepath.Join(base, "profiles"), filepath.Join(base, "home")
	theirs := filepath.Join(home, "theirs")
	for _, err := range []error{os.Mkdir(home, 0o777), os.WriteFile(theirs, []byte("root's"), 0o600), os.Chown(home, ana.UID, ana.GID)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	as(t, dir, nil)
	path := written(t, dir)
	// It can pass through everything above, once it is in it.
	for at := base; at != os.TempDir() && at != "/"; at = filepath.Dir(at) {
		if err := os.Chmod(at, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Chmod(dir, 0o711), handTo(t, dir, ana)); err != nil {
		t.Fatal(err)
	}
	tried, refused := 0, 0
	for end := time.Now().Add(400 * time.Millisecond); time.Now().Before(end); tried++ {
		racer := exec.Command("/proc/self/exe")
		racer.Env, racer.Dir = []string{racing + "=1"}, filepath.Join(path, "Default")
		racer.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(ana.UID), Gid: uint32(ana.GID)}}
		out, err := racer.StdoutPipe()
		if err == nil {
			err = racer.Start()
		}
		if err == nil {
			_, err = bufio.NewReader(out).ReadString('\n')
		}
		if err != nil {
			t.Fatal(err)
		}
		// Back to the launcher, and away again: with what was taken, if anything was.
		for _, u := range []*runas.User{ben, nil} {
			if err := handTo(t, dir, u); err != nil {
				refused++
				break
			}
		}
		_ = racer.Process.Kill()
		_ = racer.Wait()
		for _, at := range []string{theirs, filepath.Join(path, "Default", "theirs"), "/etc/shadow"} {
			info, err := os.Stat(at)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil || info.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()) {
				t.Fatalf("%s was given away: %v, %v", at, info, err)
			}
		}
		// A person puts it right.
		if err := os.RemoveAll(filepath.Join(path, "Default", "theirs")); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(theirs, []byte("root's"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.RemoveAll(path), os.RemoveAll(filepath.Join(GuardDir(dir), "p."+takingMark))); err != nil {
			t.Fatal(err)
		}
		written(t, dir)
		if err := handTo(t, dir, ana); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d rounds, %d of which refused what they found", tried, refused)
	if tried == 0 {
		t.Error("nothing was tried")
	}
}
