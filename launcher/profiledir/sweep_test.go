package profiledir

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What is left of an account where a launcher was killed is removed, unless it is needed or somebody is at work
// on it.
func TestSweep(t *testing.T) {
	r, must := open(t), mustIn(t)
	left := func(parts ...string) (dir string) {
		t.Helper()
		dir = filepath.Join(parts...)
		must(os.MkdirAll(filepath.Join(dir, "Default"), 0o700))
		must(os.WriteFile(filepath.Join(dir, "Default", "Cookies"), []byte("it"), 0o600))
		return dir
	}
	gone := []string{
		left(r.guard, ".import-p.1", "profile"), left(r.guard, ".import-made", "profile"), left(r.guard, ".arrival-p"), left(r.guard, "..arrival-q.1.fetch_1"),
		left(r.archive(), ".r@20260618T120000.000000000Z"), left(r.archive(), "..s@20260618T120000.000000000Z.fetch_1"),
		left(r.guard, ".removed-clone", "Default"), left(r.guard, ".removed-made"),
	}
	_, err := r.Create("made")
	must(err)
	lock(t, r, "busy")
	lock(t, r, "p.2")
	stays := []string{
		left(r.dir, "made"), left(r.guard, ".import-busy", "profile"), left(r.archive(), "p@20260618T120000.000000000Z"), left(r.guard, ".unknown"),
		left(r.guard, "..arrival-p.2.fetch_1"), // of a move to p.2, not to p
	}
	arriving := lock(t, r, "arriving")
	must(arriving.PrepareArrival(t.Context(), Arrival{MoveID: "mv9", At: time.Now()}, Empty))
	must(arriving.Unlock())
	stays = append(stays, left(r.arrivalPath("arriving")))
	// Where another host may have the directory, too, nobody knows what it is at work on.
	var st unix.Statfs_t
	must(unix.Statfs(r.dir, &st))
	magic := int64(uint32(st.Type))
	known := filesystems[magic]
	for _, of := range []func(){
		func() { filesystems[magic] = filesystems[unix.NFS_SUPER_MAGIC] },
		func() { delete(filesystems, magic) },
	} {
		of()
		err := r.Sweep(t.Context())
		filesystems[magic] = known
		must(err)
		for _, dir := range gone {
			if _, err := os.Lstat(dir); err != nil {
				t.Errorf("%s is gone from a network: %v", dir, err)
			}
		}
	}
	// It has no profile's lock while it deletes what may be large.
	deleted := 0
	must(r.sweep(t.Context(), func(string) error {
		deleted++
		for _, id := range []string{"p.1", "made", "p", "q.1", "r", "s", "clone"} {
			must(lock(t, r, id).Unlock())
		}
		return nil // as if the launcher was killed now
	}))
	if deleted < len(gone) {
		t.Errorf("%d are deleted, want %d", deleted, len(gone))
	}
	for range 2 {
		must(r.Sweep(t.Context()))
		for _, dir := range gone {
			if _, err := os.Lstat(dir); !os.IsNotExist(err) {
				t.Errorf("%s is left: %v", dir, err)
			}
		}
		if left, err := filepath.Glob(filepath.Join(r.guard, discardedMark+"*")); err != nil || len(left) > 0 {
			t.Errorf("%v are left: %v", left, err)
		}
		for _, dir := range stays {
			if _, err := os.Lstat(filepath.Join(dir, "Default", "Cookies")); err != nil {
				t.Errorf("%s is gone: %v", dir, err)
			}
		}
	}
	// Who removes the clone again is told that it is done.
	if _, err := lock(t, r, "clone").RemoveClone(); err != nil {
		t.Error(err)
	}
	if _, err := lock(t, r, "p").RemoveClone(); !errors.Is(err, ErrNoClone) {
		t.Error("a profile that is no clone:", err)
	}
}
