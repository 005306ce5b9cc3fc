package launcher

import (
	"os"
	"path/filepath"
	"testing"

	"leasehold/launcher/api"
	"leasehold/lease"
)

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
