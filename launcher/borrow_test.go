package launcher

import (
	"errors"
	"sync"
	"testing"
	"time"

	"leasehold/launcher/api"
	"leasehold/lease"
)

// nothingIsDone checks that a profile is not checked, copied or archived, and its clone not
// removed, after lose: the store cannot be used then.
func nothingIsDone(t *testing.T, l *Launcher, lose func()) {
	t.Helper()
	if _, err := l.ImportProfile(t.Context(), "p", api.ProfileImport{From: userDataDir(t)}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.CloneProfile(t.Context(), "p", api.ProfileClone{To: "q"}); err != nil {
		t.Fatal(err)
	}
	check := lease.SessionCheck{URL: "https://shop.example/me"}
	if _, err := l.PutProfile(t.Context(), "p", api.ProfileSettings{SessionCheck: &check}); err != nil {
		t.Fatal(err)
	}
	for name, ask := range map[string]func() error{
		"check":   func() error { _, err := l.CheckProfile(t.Context(), "p"); return err },
		"clone":   func() error { _, err := l.CloneProfile(t.Context(), "p", api.ProfileClone{To: "r"}); return err },
		"archive": func() error { _, err := l.ArchiveProfile(t.Context(), "p", api.ProfileArchive{}); return err },
		"remove":  func() error { _, err := l.RemoveClone(t.Context(), "q", api.ProfileRemove{}); return err },
	} {
		lose()
		var p *api.Problem
		if err := ask(); !errors.As(err, &p) || p.Code != api.CodeStoreUnavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
	for id, want := range map[string]bool{"p": true, "q": true, "r": false} {
		if _, err := l.o.Root.Path(id); (err == nil) != want {
			t.Errorf("%s: %v", id, err)
		}
	}
}

// TestNothingIsDoneToAProfileWithoutAPresence: a launcher that may grant nothing, since another
// one is known under its id for example, opens no profile for a check, and copies and moves
// none.
func TestNothingIsDoneToAProfileWithoutAPresence(t *testing.T) {
	l, _ := startLauncher(t)
	nothingIsDone(t, l, sync.OnceFunc(func() { supersede(t, l) }))
}

// supersede writes the presence of another launcher with the same id, and returns when this one
// knows it.
func supersede(t *testing.T, l *Launcher) {
	t.Helper()
	var moved *lease.PresenceMovedError
	for err := error(&lease.PresenceMovedError{}); errors.As(err, &moved); { // by the launcher's own renewal
		var was lease.PresenceEntry
		was, err = l.o.Store.Presence(t.Context(), l.o.ID)
		mustIn(t)(err)
		other := was.Presence
		other.Epoch++
		_, err = l.o.Store.SwapPresence(t.Context(), was, other)
		if !errors.As(err, &moved) {
			mustIn(t)(err)
		}
	}
	l.host.Presence.StoreReset()
	for deadline := time.Now().Add(time.Minute); l.host.Presence.MayAct(lease.Record{}) == nil; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the launcher still acts a minute after another one superseded it")
		}
	}
}
