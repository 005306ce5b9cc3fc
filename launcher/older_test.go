package launcher

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"leasehold/internal/test/fakechrome"
	"leasehold/launcher/api"
	"leasehold/launcher/browser"
	"leasehold/lease"
)

// replaceable is a binary that is replaced while the launcher runs.
type replaceable struct {
	browser.Kernel
	says atomic.Value // a string; empty: nothing
}

func (b *replaceable) Version(context.Context, string) (string, error) {
	if said := b.says.Load().(string); said != "" {
		return "Chromium " + said, nil
	}
	return "", errors.New("exit status 127")
}

// A Chrome that is upgraded while the launcher runs fetches the snapshots of what it has opened since. One that
// does not say its version, as while it is being replaced, fetches none.
func TestAChromeThatWasUpgradedFetchesNewerSnapshots(t *testing.T) {
	binary, path := &replaceable{}, filepath.Join(t.TempDir(), "chrome")
	replace := func(says string) {
		t.Helper()
		mustIn(t)(os.WriteFile(path, []byte(says), 0o600)) // the launcher notices another size
		binary.says.Store(says)
	}
	replace("156.0.8078.79")
	r := startReading(t, 2, func(o *Options) { o.Chrome, o.Processes = path, binary })
	newer := r.snapshot("157.0.1.2", 7, nil)
	r.profile(func(rec *lease.Record) { rec.SnapshotID, rec.SnapshotToken = newer.ID, 7 })
	fetched := func(want string) {
		t.Helper()
		if _, err := r.clone(newer.ID); codeOf(err) != want {
			t.Errorf("a clone: %v, want %s", err, want)
		}
		s, err := r.read(nil)
		if codeOf(err) != want {
			t.Errorf("an ephemeral session: %v, want %s", err, want)
		}
		if err == nil {
			r.end(s)
		}
	}
	fetched(api.CodeBrowserOlder)
	replace("")
	fetched(api.CodeBrowserStartFailed)
	mustIn(t)(errors.Join(os.Remove(path), os.Symlink(fakechrome.Binary(t), path)))
	binary.says.Store("157.0.1.2")
	fetched(codeOf(nil))
}

// TestAnOlderChromeOpensNoProfile: nobody gets a profile that a newer Chrome wrote, by whichever
// way it would be opened, and nothing of it is changed.
func TestAnOlderChromeOpensNoProfile(t *testing.T) {
	r, store := startImporting(t)
	from := closedInOrder(t, "it")
	_, err := r.ImportProfile(t.Context(), "p", api.ProfileImport{From: from})
	mustIn(t)(err)
	const checked = "https://shop.example/"
	_, err = r.PutProfile(t.Context(), "p", api.ProfileSettings{SessionCheck: &lease.SessionCheck{URL: checked}})
	mustIn(t)(err)
	path, err := r.o.Root.Path("p")
	mustIn(t)(err)
	for _, dir := range []string{from, path} {
		mustIn(t)(os.WriteFile(filepath.Join(dir, "Last Version"), []byte("156.0.8078.80"), 0o600)) // by the last number
	}
	before, err := store.Get(t.Context(), "p")
	mustIn(t)(err)
	ways := map[string]func() error{
		"a session": func() error { _, err := r.Acquire(t.Context(), api.Manifest{ProfileID: "p"}); return err },
		"a person": func() error {
			_, err := r.Acquire(t.Context(), api.Manifest{ProfileID: "p", ByHand: &api.ByHand{Holder: "ann"}})
			return err
		},
		"a session check": func() error { _, err := r.CheckProfile(t.Context(), "p"); return err },
		"a clone": func() error {
			_, err := r.CloneProfile(t.Context(), "p", api.ProfileClone{To: "clone"})
			return err
		},
		"an import": func() error {
			_, err := r.ImportProfile(t.Context(), "other", api.ProfileImport{From: from})
			return err
		},
	}
	for way, try := range ways {
		if err := try(); codeOf(err) != api.CodeBrowserOlder {
			t.Errorf("%s: %v, want %s", way, err, api.CodeBrowserOlder)
		}
	}
	if after, err := store.Get(t.Context(), "p"); err != nil || after.Record.Token != before.Record.Token || after.Record.State != lease.Available {
		t.Errorf("the record is %+v %v, was %+v", after.Record, err, before.Record)
	}
	mustIn(t)(os.WriteFile(filepath.Join(path, "Last Version"), []byte("156.0.8078.79"), 0o600))
	_, err = r.PutProfile(t.Context(), "p", api.ProfileSettings{SessionCheck: &lease.SessionCheck{}}) // nobody answers it
	mustIn(t)(err)
	if _, err := r.Acquire(t.Context(), api.Manifest{ProfileID: "p"}); err != nil {
		t.Errorf("with a Chrome of the same version: %v", err)
	}
}
