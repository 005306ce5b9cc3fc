package session

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"leasehold/launcher/api"
	"leasehold/lease"
)

// fillDisk has the disk take no more of the session's journal, until it is freed.
func (r *room) fillDisk(s *Session) (free func()) {
	r.t.Helper()
	fail := func(err error) {
		r.t.Helper()
		if err != nil {
			r.t.Error(err)
		}
	}
	journal := -1
	open, err := os.ReadDir("/proc/self/fd")
	fail(err)
	for _, e := range open {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && to == s.recording.journalPath {
			journal, err = strconv.Atoi(e.Name())
			fail(err)
		}
	}
	kept, err := unix.FcntlInt(uintptr(journal), unix.F_DUPFD_CLOEXEC, 0)
	fail(err)
	full, err := unix.Open("/dev/full", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	fail(err)
	fail(unix.Dup3(full, journal, unix.O_CLOEXEC))
	fail(unix.Close(full))
	return func() {
		fail(unix.Dup3(kept, journal, unix.O_CLOEXEC))
		fail(unix.Close(kept))
	}
}

// TestAnEntryThatTheDiskDidNotTakeCounts, also where the end of its session has begun by then, and the disk
// takes what comes after it.
func TestAnEntryThatTheDiskDidNotTakeCounts(t *testing.T) {
	t.Parallel()
	dead := api.Release{Outcome: "failed", Reason: "signal killed", Recover: api.RecoverAlways}
	for _, how := range []api.Release{dead, failed} {
		for _, at := range []string{"Page.captureScreenshot", "Browser.close"} {
			t.Run(fmt.Sprint(how.Recover, ", at ", at), func(t *testing.T) {
				t.Parallel()
				r, s := begun(t, task("one"))
				r.connect(s)
				r.chromium.first(at, func() {
					defer r.fillDisk(s)()
					r.chromium.posts(1)
					r.await("the entry is lost", func() bool { return s.file.get().Unseen })
				})
				if _, err := s.Release(t.Context(), how); err != nil {
					t.Error(err)
				}
				f, rec := r.over(s), r.record()
				if !strings.HasSuffix(f.Ended, "recovered: manual_review") || rec.State != lease.ManualReview || !f.Unseen {
					t.Errorf("it ended: %s, the profile is %s, unseen: %t, for %q", f.Ended, rec.State, f.Unseen, rec.Reasons)
				}
			})
		}
	}
}
