package launcher

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"leasehold/launcher/api"
	"leasehold/lease"
)

// TestAFreeProfileWithALockOfAnotherHostGoesToAPerson: a warm browser's container was killed, and
// the next one has another name. Whoever asks for the profile is refused, and learns the one thing
// that helps; after it, the profile is as any other, and the lock is kept.
func TestAFreeProfileWithALockOfAnotherHostGoesToAPerson(t *testing.T) {
	l, _ := startLauncher(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must := mustIn(t)
	_, err := l.PutProfile(ctx, "p", api.ProfileSettings{})
	must(err)
	path, err := l.o.Root.Path("p")
	must(err)
	must(os.WriteFile(filepath.Join(path, "Local State"), []byte("{}"), 0o600))
	link := filepath.Join(path, "SingletonLock")
	must(os.Symlink("killed-7", link))
	for name, try := range map[string]func() error{
		"a task": func() error {
			_, err := l.Acquire(ctx, api.Manifest{ProfileID: "p", WorkerID: "w", TaskID: "t"})
			return err
		},
		"a clone": func() error {
			_, err := l.CloneProfile(ctx, "p", api.ProfileClone{To: "copy"})
			return err
		},
		"an archive": func() error {
			_, err := l.ArchiveProfile(ctx, "p", api.ProfileArchive{})
			return err
		},
	} {
		if try() == nil {
			t.Errorf("%s is not refused", name)
		}
	}
	var r lease.Record
	for r.State != lease.ManualReview {
		changed := l.host.Slots.Changed()
		e, err := l.o.Store.Get(ctx, "p")
		must(err)
		if r = e.Record; r.State == lease.ManualReview {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("%s because of %q; want it before a person", r.State, r.Reason)
		}
	}
	const helps = "leasehold review p --decision approve"
	if r.Reason != lease.ReasonForeignLock || !strings.Contains(fmt.Sprint(r.Reasons), helps) {
		t.Errorf("a person is told %q: %q", r.Reason, r.Reasons)
	}
	hold := func() error {
		_, err := l.Hold(ctx, "p", api.HoldRequest{Write: api.Write{Token: r.Token}, Holder: "ann"})
		return err
	}
	for l.host.Slots.Find("p") != nil { // the recovery has not left it yet
		changed := l.host.Slots.Changed()
		if l.host.Slots.Find("p") == nil {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatal("the recovery does not end")
		}
	}
	if err := hold(); codeOf(err) != api.CodeConflict || !strings.Contains(err.Error(), helps) {
		t.Errorf("a hold before the approval: %v", err)
	}
	if _, err := os.Lstat(link); err != nil {
		t.Errorf("nobody approved, and the lock is gone: %v", err)
	}
	_, err = l.Review(ctx, "p", api.ReviewRequest{Write: api.Write{Token: r.Token}, Decision: lease.ReviewApprove, Reviewer: "ann"})
	must(err)
	if _, err := l.CloneProfile(ctx, "p", api.ProfileClone{To: "copy"}); err != nil {
		t.Errorf("after the approval: %v", err)
	}
	kept, err := filepath.Glob(filepath.Join(l.o.Root.Dir(), ".leasehold", "singletons", "p@*", "SingletonLock"))
	if err != nil || len(kept) != 1 {
		t.Errorf("kept are %v, %v", kept, err)
	}
	if _, err := os.Lstat(link); err == nil {
		t.Error("the lock is still in the profile")
	}
	if e, err := l.o.Store.Get(ctx, "p"); err != nil || e.Record.State != lease.Available || e.Record.Token != r.Token {
		t.Errorf("the profile is %s under token %d, %v", e.Record.State, e.Record.Token, err)
	}
}
