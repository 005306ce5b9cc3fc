package profiledir

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAPersonsWordIsAboutOneLock, and counts only where no other host can have the directory.
func TestAPersonsWordIsAboutOneLock(t *testing.T) {
	for _, c := range []struct {
		shared, approved string
		gone             bool
	}{
		{"", "there-7", true}, {"", "", false}, {"", "there-77", false}, {"nfs", "there-7", false},
	} {
		if got := (&ForeignLockError{Owner: "there-7", Shared: c.shared}).Gone(c.approved); got != c.gone {
			t.Errorf("%+v: gone is %t", c, got)
		}
	}
}

// links makes Chrome's three links, as a browser leaves them that was killed.
func links(t *testing.T, dir, owner string) {
	t.Helper()
	for name, to := range map[string]string{"SingletonLock": owner, "SingletonSocket": "/tmp/gone/SingletonSocket", "SingletonCookie": "123"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestALockThatIsSetAsideIsKept(t *testing.T) {
	here, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	r := open(t)
	l := lock(t, r, "p")
	if done, err := l.SetAsideSingleton(""); err != nil || done.Path != "" {
		t.Errorf("without a directory: %+v, %v", done, err)
	}
	path, err := r.Create("p")
	if err != nil {
		t.Fatal(err)
	}
	if done, err := l.SetAsideSingleton("there-7"); err != nil || done.Path != "" {
		t.Errorf("without a lock: %+v, %v", done, err)
	}
	for _, owner := range []string{"there-7", here + "-2-9"} {
		links(t, path, owner)
		done, err := l.SetAsideSingleton(owner)
		if err != nil || done.Owner != owner || filepath.Dir(filepath.Dir(done.Path)) != GuardDir(r.Dir()) {
			t.Fatalf("%s: %+v, %v", owner, done, err)
		}
		if left, err := filepath.Glob(filepath.Join(path, "Singleton*")); err != nil || len(left) > 0 {
			t.Errorf("%s: %v, %v are left", owner, left, err)
		}
		if kept, err := os.Readlink(filepath.Join(done.Path, "SingletonLock")); err != nil || kept != owner {
			t.Errorf("%s: %q is kept, %v", owner, kept, err)
		}
		if kept, err := filepath.Glob(filepath.Join(done.Path, "Singleton*")); err != nil || len(kept) != 3 {
			t.Errorf("%s: %v, %v are kept", owner, kept, err)
		}
	}
	links(t, path, "there-7")
	for _, approved := range []string{"", "there-8"} {
		done, err := l.SetAsideSingleton(approved)
		var foreign *ForeignLockError
		if !errors.As(err, &foreign) || foreign.Owner != "there-7" || foreign.Profile != "p" || done.Path != "" {
			t.Fatalf("%q is approved: %+v, %v", approved, done, err)
		}
		if again := r.ForeignLock("p"); again == nil || again.Error() != err.Error() {
			t.Errorf("refused with %v, and before that with %v", err, again)
		}
		if in, err := r.Inspect("p"); err != nil || in.Singleton.OwnerAlive.How != foreign.Error() {
			t.Errorf("refused with %v, and the inspection has %v, %v", foreign, in.Singleton.OwnerAlive, err)
		}
	}
	if kept, err := os.Readlink(filepath.Join(path, "SingletonLock")); err != nil || kept != "there-7" {
		t.Errorf("what is refused has %q, %v", kept, err)
	}
}

// TestALockOfAnotherHostSaysOneThingThatHelps: never to remove anything of a profile that this
// host's lock guards.
func TestALockOfAnotherHostSaysOneThingThatHelps(t *testing.T) {
	for _, c := range []struct {
		err         ForeignLockError
		says, never string
	}{
		{ForeignLockError{Path: "/d", Profile: "p", Owner: "there-7", Host: "there"}, "leasehold review p --decision approve", "by hand"},
		{ForeignLockError{Path: "/d", Profile: "p", Owner: "there-7", Host: "there", Shared: "nfs"}, "(nfs)", "approve"},
		{ForeignLockError{Path: "/d", Owner: "there-7", Host: "there"}, "by hand", "approve"},
	} {
		if got := c.err.Error(); !strings.Contains(got, c.says) || strings.Contains(got, c.never) || !strings.Contains(got, "there-7") {
			t.Errorf("%+v says %q", c.err, got)
		}
	}
}
