package launcher

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"leasehold/evidence"
	"leasehold/internal/test/fakechrome"
	"leasehold/launcher/api"
	"leasehold/lease"
)

// TestListsAreMadeOfWhatTheLauncherSaw: its own writes at once, and all of it while the store
// is away, with since when.
func TestListsAreMadeOfWhatTheLauncherSaw(t *testing.T) {
	o := optionsIn(t, t.TempDir(), evidence.Keys{})
	o.Chrome = fakechrome.Binary(t)
	var away atomic.Bool
	ping := o.Ping
	o.Ping = func(ctx context.Context) error {
		if away.Load() {
			return errors.New("away")
		}
		return ping(context.WithoutCancel(ctx)) // a slow store is not away
	}
	l := runIn(t, o)
	for i, id := range []string{"shop_1", "shop_2", "bank_1"} {
		account := "store-" + id
		if _, err := l.PutProfile(t.Context(), id, api.ProfileSettings{AccountID: &account}); err != nil {
			t.Fatal(err)
		}
		page, err := l.ListProfiles(t.Context(), api.ProfileQuery{})
		if err != nil || len(page.Items) != i+1 || !page.Stale.IsZero() {
			t.Fatalf("after %s: %+v, %v", id, page, err)
		}
	}
	if err := os.Remove(filepath.Join(l.o.Root.Dir(), "shop_2")); err != nil {
		t.Fatal(err)
	}
	free := true
	if page, err := l.ListProfiles(t.Context(), api.ProfileQuery{Words: "shop", Free: &free}); err != nil || len(page.Items) != 1 || page.Items[0].ProfileID != "shop_1" {
		t.Errorf("free ones: %+v, %v", page.Items, err)
	}
	if page, err := l.ListProfiles(t.Context(), api.ProfileQuery{AccountID: "store-shop_2"}); err != nil || len(page.Items) != 1 || page.Items[0].Reason != api.ReasonRemoved {
		t.Errorf("one whose directory is gone: %+v, %v", page.Items, err)
	}
	for complete := false; !complete; time.Sleep(10 * time.Millisecond) { // the watch has begun
		_, complete, _ = l.host.Catalog.Rows()
	}
	away.Store(true)
	began := time.Now()
	for range 2 {
		page, err := l.ListProfiles(t.Context(), api.ProfileQuery{})
		if err != nil || len(page.Items) != 3 || page.Stale.Before(began) || page.Stale.After(time.Now()) {
			t.Errorf("while the store is away: %d profiles, stale since %v, %v", len(page.Items), page.Stale, err)
		}
		began = time.Time{}
	}
	hosts, err := l.Hosts(t.Context())
	if err != nil || len(hosts.Items) != 1 || hosts.Stale.IsZero() {
		t.Fatalf("%+v, %v", hosts, err)
	}
	if h := hosts.Items[0]; !h.Own || !h.Here || h.LauncherID != "here" || h.Presence.Host.MemoryTotal == 0 || h.States[lease.Available] != 3 {
		t.Errorf("the own host: %+v", h)
	}
}

// TestAListSaysWhoseAccountIsChecked, and when next; of the others that nobody is asked.
func TestAListSaysWhoseAccountIsChecked(t *testing.T) {
	l, _ := startLauncher(t)
	every := lease.Duration(time.Hour)
	for id, set := range map[string]api.ProfileSettings{
		"asked": {SessionCheck: &lease.SessionCheck{URL: "https://shop.example/me"}, CheckEvery: &every}, "after_sessions": {SessionCheck: &lease.SessionCheck{URL: "https://shop.example/me"}}, "nobody": {CheckEvery: &every},
	} {
		if _, err := l.PutProfile(t.Context(), id, set); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Join(l.o.Root.Dir(), "after_sessions")); err != nil {
		t.Fatal(err)
	}
	page, err := l.ListProfiles(t.Context(), api.ProfileQuery{WithAccounts: true})
	if err != nil || len(page.Accounts) != 3 {
		t.Fatalf("%+v, %v", page.Accounts, err)
	}
	if a := page.Accounts["asked"]; !a.Asked || a.Gone || a.NextCheck.IsZero() {
		t.Errorf("one with a check: %+v", a)
	}
	if a := page.Accounts["after_sessions"]; !a.Asked || !a.Gone || !a.NextCheck.IsZero() {
		t.Errorf("one that is checked after sessions alone, and whose directory is gone: %+v", a)
	}
	if a := page.Accounts["nobody"]; a != (api.AccountCare{}) {
		t.Errorf("one without a check: %+v", a)
	}
	if page, err := l.ListProfiles(t.Context(), api.ProfileQuery{}); err != nil || page.Accounts != nil {
		t.Errorf("a list that does not ask for it: %+v, %v", page.Accounts, err)
	}
}

// TestNobodyFollowsALauncherThatHasEnded: pages hear of it, and events are refused.
func TestNobodyFollowsALauncherThatHasEnded(t *testing.T) {
	l, _ := startLauncher(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := l.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	select {
	case <-l.Changes().Over:
	default:
		t.Error("pages that are open do not hear that the launcher has ended")
	}
	if _, err := l.Events(t.Context(), lease.PlaceNow); err == nil {
		t.Error("events can be followed after the end")
	}
}

// TestTheHostIsToldWithThePresence to the other launchers.
func TestTheHostIsToldWithThePresence(t *testing.T) {
	l, store := startLauncher(t)
	told, err := store.Presence(t.Context(), l.o.ID)
	if h := told.Presence.Host; err != nil || h.MemoryTotal == 0 || h.MemoryAvailable > h.MemoryTotal || h.Name == "" {
		t.Errorf("%+v, %v", told.Presence, err)
	}
}
