package launcher

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"leasehold/internal/signed"
	"leasehold/launcher/api"
	"leasehold/launcher/principal"
	"leasehold/launcher/profiledir"
	"leasehold/lease"
)

// keep has a launcher keep a record beside a profile directory, as the home of it does.
func keep(t *testing.T, root *profiledir.Root, r lease.Record) {
	t.Helper()
	lock, err := root.Lock(r.ProfileID)
	if err == nil {
		err = errors.Join(lock.RaiseFloor(r), lock.Unlock())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestAnUninspectedProfileIsNeverShownFree: the store lost its record during the recovery,
// and nobody has noticed yet. It is not free to be cloned either, and what is made of its
// settings is not lost.
func TestAnUninspectedProfileIsNeverShownFree(t *testing.T) {
	l, store := startLauncher(t)
	path, err := l.o.Root.Create("p")
	if err == nil {
		err = os.WriteFile(filepath.Join(path, "Local State"), []byte("{}"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	keep(t, l.o.Root, lease.Record{ProfileID: "p", State: lease.Quarantined, Home: "here", Token: 2, SessionID: "ses_gone", AccountID: "store-18"})
	r, err := l.Profile(t.Context(), "p")
	if err != nil || r.State.Free() || r.AccountID != "store-18" {
		t.Errorf("%s of account %q, %v", r.State, r.AccountID, err)
	}
	all, err := l.ListProfiles(t.Context(), api.ProfileQuery{})
	if err != nil || len(all.Items) != 1 || all.Items[0].State.Free() {
		t.Errorf("listed: %+v, %v", all, err)
	}
	var p *api.Problem
	if _, err := l.CloneProfile(t.Context(), "p", api.ProfileClone{To: "copy"}); !errors.As(err, &p) || p.Code != api.CodeConflict {
		t.Errorf("cloned: %v", err)
	}
	if e, err := store.Get(t.Context(), "p"); err != nil || e.Record.State.Free() || e.Record.Token != 3 {
		t.Errorf("stored: %+v, %v", e.Record, err)
	}
}

// TestSettingsMakeNoForgottenProfileFree: the store lost the record of a profile that somebody
// here is at work on, so that it cannot be healed now. Its settings wait until it is.
func TestSettingsMakeNoForgottenProfileFree(t *testing.T) {
	l, store := startLauncher(t)
	if _, err := l.o.Root.Create("p"); err != nil {
		t.Fatal(err)
	}
	slot := l.host.Slots.Occupy("p")
	if slot == nil {
		t.Fatal("somebody has the profile")
	}
	keep(t, l.o.Root, lease.Record{ProfileID: "p", State: lease.Held, Home: "here", LauncherID: "here", Token: 2, SessionID: "ses_lost"})
	runs := 3
	var p *api.Problem
	if _, err := l.PutProfile(t.Context(), "p", api.ProfileSettings{MaxActiveRuns: &runs}); !errors.As(err, &p) || p.Code != api.CodeConflict {
		t.Errorf("settings of a profile that is in use: %v", err)
	}
	if e, err := store.Get(t.Context(), "p"); err == nil && e.Record.State.Free() {
		t.Errorf("nobody inspected it, and it is %s with token %d", e.Record.State, e.Record.Token)
	}
	slot.Vacate()
	if r, err := l.PutProfile(t.Context(), "p", api.ProfileSettings{MaxActiveRuns: &runs}); !errors.As(err, &p) || p.Code != api.CodeConflict {
		t.Errorf("settings of a profile in recovery: %+v, %v", r, err)
	}
	if e, err := store.Get(t.Context(), "p"); err == nil && e.Record.State.Free() {
		t.Errorf("nobody inspected it, and it is %s with token %d", e.Record.State, e.Record.Token)
	}
}

// TestOnlyFreeProfilesAreImported, whichever launcher has them, by whatever path.
func TestOnlyFreeProfilesAreImported(t *testing.T) {
	l, store := startLauncher(t)
	dir := t.TempDir()
	other, err := profiledir.Open(filepath.Join(dir, "profiles"), signed.New([32]byte{9}))
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(other.Dir(), link); err != nil {
		t.Fatal(err)
	}
	make := func(id string, state lease.State) {
		t.Helper()
		path, err := other.Create(id)
		if err == nil {
			err = os.WriteFile(filepath.Join(path, "Local State"), []byte("{}"), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		if state != "" {
			keep(t, other, lease.Record{ProfileID: id, State: state, Home: "there", Token: 4})
		}
	}
	make("free", lease.Available)
	make("unused", "")
	make("review", lease.ManualReview)
	make("reviewed", lease.ManualReview)
	make("granted", lease.Available)
	make("locked", lease.Available)
	lock, err := other.Lock("locked")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Unlock() }()
	archived := func(id string, state lease.State) (name string) {
		t.Helper()
		make(id, state)
		lock, err := other.Lock(id)
		if err != nil {
			t.Fatal(err)
		}
		at, err := lock.Archive(time.Now(), nil)
		if err = errors.Join(err, lock.Unlock()); err != nil {
			t.Fatal(err)
		}
		return strings.TrimPrefix(at, other.Dir()+"/")
	}
	aside, judged := archived("aside", lease.Available), archived("judged", lease.ManualReview)
	for id, state := range map[string]lease.State{"reviewed": lease.Available, "granted": lease.Held} { // since then
		if _, err := store.Store.Swap(t.Context(), lease.Entry{}, lease.Record{ProfileID: id, State: state, Home: "there", Token: 4}); err != nil {
			t.Fatal(err)
		}
	}
	for id, want := range map[string]bool{"free": true, "unused": true, "reviewed": true, "review": false, "granted": false, "locked": false, aside: true, judged: false} {
		name, _, _ := strings.Cut(filepath.Base(id), "@")
		for how, from := range map[string]string{"": other.Dir(), "-by-link": link} {
			_, err := l.ImportProfile(t.Context(), "copy-of-"+name+how, api.ProfileImport{From: filepath.Join(from, id)})
			var p *api.Problem
			if refused := errors.As(err, &p) && p.Code == api.CodeConflict; refused == want || want && err != nil {
				t.Errorf("%s%s: %v", id, how, err)
			}
			if _, err := l.o.Root.Path("copy-of-" + name + how); (err == nil) != want {
				t.Errorf("%s%s: a profile: %v", id, how, err)
			}
		}
	}
	// Whoever had the source gets it back.
	if again, err := other.Lock("free"); err != nil {
		t.Error(err)
	} else if err := again.Unlock(); err != nil {
		t.Error(err)
	}
}

// TestNoOtherProfilesUndecidedDirectoryIsGivenToOne: what a person has to judge of one profile
// does not become another's directory by a rehome either, and a directory of the profile itself
// does.
func TestNoOtherProfilesUndecidedDirectoryIsGivenToOne(t *testing.T) {
	l, store := startLauncher(t)
	other, err := profiledir.Open(filepath.Join(t.TempDir(), "profiles"), signed.New([32]byte{9}))
	if err != nil {
		t.Fatal(err)
	}
	for id, state := range map[string]lease.State{"p": lease.ManualReview, "judged": lease.ManualReview, "in-use": lease.Held, "free": lease.Available} {
		path, err := other.Create(id)
		if err == nil {
			err = os.WriteFile(filepath.Join(path, "Local State"), []byte("{}"), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		keep(t, other, lease.Record{ProfileID: id, State: state, Home: "there", Token: 4})
	}
	for from, want := range map[string]bool{"p": true, "judged": false, "in-use": false, "free": true} {
		id := "p"
		if from != "p" {
			id = "of-" + from
		}
		// Its directory on this host is gone.
		waiting := lease.Record{ProfileID: id, State: lease.ManualReview, Home: "here", Token: 4}
		keep(t, l.o.Root, waiting)
		if _, err := store.Store.Swap(t.Context(), lease.Entry{}, waiting); err != nil {
			t.Fatal(err)
		}
		r, err := l.RehomeProfile(principal.In(t.Context(), principal.Principal{Name: "root", Role: principal.Admin, Profiles: principal.EveryProfile}), id, api.ProfileRehome{
			Write: api.Write{Token: waiting.Token}, From: filepath.Join(other.Dir(), from), AcceptLoss: true, Person: "ann", Note: "the disk died",
		})
		var p *api.Problem
		if refused := errors.As(err, &p) && p.Code == api.CodeConflict; refused == want || want && err != nil {
			t.Errorf("of %s: %+v, %v", from, r.Moved, err)
		}
		if _, err := l.o.Root.Path(id); (err == nil) != want {
			t.Errorf("of %s: a directory: %v", from, err)
		}
	}
}

// TestAnArchivedProfileIsImportedWhenItIsFree, since it went through a recovery, and by who may
// manage it, although it lies below no import root.
func TestAnArchivedProfileIsImportedWhenItIsFree(t *testing.T) {
	l, store := startLauncher(t)
	if _, err := l.ImportProfile(t.Context(), "p", api.ProfileImport{From: userDataDir(t)}); err != nil {
		t.Fatal(err)
	}
	at, err := l.ArchiveProfile(t.Context(), "p", api.ProfileArchive{})
	if err != nil {
		t.Fatal(err)
	}
	restate := func(state lease.State) {
		t.Helper()
		if _, err := lease.Change(t.Context(), store.Store, "p", func(e lease.Entry) (lease.Record, error) {
			e.Record.State = state
			return e.Record, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	restate(lease.ManualReview)
	ctx := principal.In(t.Context(), principal.Principal{Name: "ann", Role: principal.Admin, Profiles: []string{"*"}})
	var p *api.Problem
	if _, err := l.ImportProfile(ctx, "q", api.ProfileImport{From: at.Path}); !errors.As(err, &p) || p.Code != api.CodeConflict {
		t.Errorf("one in review: %v", err)
	}
	restate(lease.Available)
	other := principal.In(t.Context(), principal.Principal{Name: "bob", Role: principal.Operator, Profiles: []string{"q"}})
	if _, err := l.ImportProfile(other, "q", api.ProfileImport{From: at.Path}); !errors.As(err, &p) || p.Code != api.CodeForbidden {
		t.Errorf("by who does not manage what was archived: %v", err)
	}
	if _, err := l.ImportProfile(ctx, "q", api.ProfileImport{From: at.Path}); err != nil {
		t.Errorf("one that is free: %v", err)
	}
}
