package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"leasehold/launcher/api"
	"leasehold/launcher/principal"
	"leasehold/lease"
)

// signedIn is a browser with one session cookie, as far as the jar asks.
type signedIn struct{}

func (signedIn) Call(_ context.Context, _, _ string, _, result any) error {
	return json.Unmarshal([]byte(`{"cookies":[{"name":"sid","value":"1","domain":"shop.example","path":"/","session":true}]}`), result)
}

// TestANewDirectoryHasNoCookiesOfTheOneBefore: another directory under the same id would be
// signed in to an account that is not its own. One that comes back from the archive has its
// own ones still.
func TestANewDirectoryHasNoCookiesOfTheOneBefore(t *testing.T) {
	l, store := startLauncher(t)
	ctx := principal.In(t.Context(), principal.Principal{Name: "ann", Role: principal.Admin, Profiles: []string{"*"}})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	kept := func(profile string) bool {
		files, err := filepath.Glob(filepath.Join(l.o.DataDir, "session-cookies", lease.Key(profile)+"*"))
		must(err)
		return len(files) > 0
	}
	imported := func(profile, from string) error {
		_, err := l.ImportProfile(ctx, profile, api.ProfileImport{From: from})
		return err
	}
	must(imported("source", userDataDir(t)))
	granted := errors.New("granted")
	store.set(hooks{swap: func(next lease.Record) error {
		if next.State == lease.Held {
			return granted // it would be opened
		}
		return nil
	}})
	for profile, tt := range map[string]struct {
		again func(profile string) error
		keeps bool
	}{
		"made": {func(p string) error { _, err := l.PutProfile(ctx, p, api.ProfileSettings{}); return err }, false},
		"made-for-a-task": {func(p string) error {
			if _, err := l.Acquire(ctx, api.Manifest{ProfileID: p, Create: true}); !errors.Is(err, granted) {
				return err
			}
			return nil
		}, false},
		"imported": {func(p string) error { return imported(p, userDataDir(t)) }, false},
		"cloned": {func(p string) error {
			_, err := l.CloneProfile(ctx, "source", api.ProfileClone{To: p})
			return err
		}, false},
		"brought-back": {func(p string) error {
			at, err := l.o.Root.Archived(p)
			return errors.Join(err, imported(p, at))
		}, true},
		"set": {func(p string) error {
			at, err := l.o.Root.Archived(p)
			if err = errors.Join(err, os.Rename(at, filepath.Join(l.o.Root.Dir(), p))); err == nil {
				_, err = l.PutProfile(ctx, p, api.ProfileSettings{})
			}
			return err
		}, true},
	} {
		must(imported(profile, userDataDir(t)))
		must(l.host.Jar.KeepAll(ctx, signedIn{}, profile))
		at, err := l.ArchiveProfile(ctx, profile, api.ProfileArchive{})
		must(err)
		if !tt.keeps {
			must(os.RemoveAll(at.Path))
		}
		must(tt.again(profile))
		if kept(profile) != tt.keeps {
			t.Errorf("%s: cookies of the directory before are there: %v", profile, kept(profile))
		}
	}
}
