package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"leasehold/launcher/api"
	"leasehold/lease"
)

// stay opens a session, sets a lasting and a session cookie to a value unless that is
// empty, ends the session in order, and returns the cookies that it had found.
func (s *sidecar) stay(t *testing.T, profile, value string) string {
	t.Helper()
	c := dial(t, s.socket(profile, "worker=w&wait=60s"))
	var had struct {
		Cookies []struct {
			Name, Value string
			Session     bool
		}
	}
	c.call(t, "", "Storage.getCookies", nil, &had)
	var found []string
	for _, cookie := range had.Cookies {
		found = append(found, fmt.Sprintf("%s=%s,%v", cookie.Name, cookie.Value, cookie.Session))
	}
	if value != "" {
		c.call(t, "", "Storage.setCookies", map[string]any{"cookies": []any{
			map[string]any{"name": "lasting", "value": value, "url": "https://shop.test/", "expires": 4e9},
			map[string]any{"name": "session", "value": value, "url": "https://shop.test/"},
		}}, nil)
	}
	c.call(t, "", "Lease.release", map[string]any{"outcome": "succeeded"}, nil)
	c.ended(t)
	c.drop()
	s.until(t, profile, lease.Available)
	slices.Sort(found)
	return strings.Join(found, " ")
}

// sealed waits until the record names a snapshot of the profile as it is now.
func (s *sidecar) sealed(t *testing.T, profile string) (r lease.Record) {
	t.Helper()
	eventually(t, "a snapshot of "+profile, func() error {
		if r = s.record(t, profile); !r.HasSnapshot() {
			return fmt.Errorf("token %d, and snapshot %q is of %d", r.Token, r.SnapshotID, r.SnapshotToken)
		}
		return nil
	})
	return r
}

// A person brings back what an account was before: with its session cookies, under a
// higher token, with the state before kept; and damage in the store is found.
func TestSnapshots(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store, key := filepath.Join(dir, "store"), filepath.Join(dir, "key")
	if _, errs, code := (&sidecar{}).cli(t, "profiles", "keygen", key); code != 0 {
		t.Fatalf("exit status %d, want 0: %s", code, errs)
	}
	s := start(t, "--profile-store", "file://"+store, "--profile-key", key)
	if found := s.stay(t, "shop", "one"); found != "" {
		t.Fatalf("a new profile has %s", found)
	}
	first := s.sealed(t, "shop")
	eventually(t, "the home's copy of the record to name the snapshot", func() error { // it follows the record
		floor, err := os.ReadFile(filepath.Join(s.Dir, "profiles/.leasehold/shop.floor"))
		if err == nil && !strings.Contains(string(floor), first.SnapshotID) {
			err = fmt.Errorf("it is %s, without %s", floor, first.SnapshotID)
		}
		return err
	})
	if found := s.stay(t, "shop", "two"); found != "lasting=one,false session=one,true" {
		t.Errorf("the second session found %s", found)
	}
	second := s.sealed(t, "shop")
	if first.SnapshotID == second.SnapshotID || second.SnapshotToken != second.Token {
		t.Fatalf("%+v", second)
	}
	var list struct{ Items []api.Snapshot }
	if code := s.call(t, "GET", "/v1/profiles/shop/snapshots", nil, &list); code != 200 || len(list.Items) != 2 || list.Items[0].ID != second.SnapshotID || list.Items[0].Previous != first.SnapshotID {
		t.Fatalf("%d, %+v", code, list)
	}
	if out, errs, code := s.cli(t, "profiles", "verify", "shop"); code != 0 || strings.Count(out, ": whole\n") != 2 {
		t.Errorf("%d, %s%s", code, out, errs)
	}

	stale := map[string]any{"snapshot_id": first.SnapshotID, "lease_token": second.Token - 1}
	if code := s.call(t, "POST", "/v1/profiles/shop/restore", stale, nil); code != 409 {
		t.Errorf("a restore with a token that is over: %d", code)
	}
	unknown := map[string]any{"snapshot_id": "snap_NONE", "lease_token": second.Token}
	if code := s.call(t, "POST", "/v1/profiles/shop/restore", unknown, nil); code != 404 {
		t.Errorf("a snapshot that is not there: %d", code)
	}
	if r := s.record(t, "shop"); r.Token != second.Token || r.State != lease.Available {
		t.Errorf("what was refused left %s with token %d", r.State, r.Token)
	}
	out, errs, code := s.cli(t, "profiles", "restore", "shop", "--snapshot", first.SnapshotID, "--person", "ann", "--note", "was signed out")
	if code != 0 || !strings.Contains(out, fmt.Sprintf("shop: available, with snapshot %s under token %d\n", first.SnapshotID, second.Token+1)) {
		t.Fatalf("%d, %s%s", code, out, errs)
	}
	_, kept, _ := strings.Cut(strings.TrimSpace(out), "kept in ")
	if _, err := os.Stat(filepath.Join(kept, "Local State")); err != nil {
		t.Errorf("the state before is not in %q: %v", kept, err)
	}
	// What was restored has a snapshot of its own.
	if r := s.sealed(t, "shop"); r.Token != second.Token+1 || r.Reason != lease.ReasonSnapshotRestored {
		t.Errorf("%d, %s", r.Token, r.Reason)
	}
	if found := s.stay(t, "shop", ""); found != "lasting=one,false session=one,true" {
		t.Errorf("after the restore there was %s", found)
	}
	s.sealed(t, "shop")
	events := s.events(t, "shop")
	restored := slices.IndexFunc(events, func(e lease.Event) bool { return e.Event == lease.EventSnapshotRestored })
	if restored < 0 || events[restored].Reviewer != "ann" || events[restored].Note != "was signed out" || !strings.Contains(names(events), "snapshot_made") {
		t.Errorf("events: %+v", events)
	}
	if s.metric(t, `leasehold_snapshots_total{result="failed"}`) != "0" {
		t.Error("a snapshot failed")
	}
}
