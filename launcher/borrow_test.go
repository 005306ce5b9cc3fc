package launcher

import (
	"errors"
	"sync"
	"testing"

	"leasehold/launcher/api"
	"leasehold/launcher/cluster"
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
	nothingIsDone(t, l, sync.OnceFunc(func() {
		l.rooms.presence = cluster.NewPresence(t.Context(), cluster.PresenceOptions{
			LauncherID: "here", DataDir: t.TempDir(), Timing: l.o.Timing, Store: l.o.Store, Log: l.o.Log,
		})
	}))
}
