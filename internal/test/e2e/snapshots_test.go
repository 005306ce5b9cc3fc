package e2e

import (
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
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
	s := start(t, "--profile-store", "file://"+store, "--profile-key", key, "--lease-ttl", "60s")
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
	newest := s.record(t, "shop").SnapshotID
	if out, errs, code := s.cli(t, "profiles", "restore", "shop", "--snapshot", "newest", "--person", "ann"); code != 0 || !strings.Contains(out, "with snapshot "+newest) {
		t.Errorf("%d, %s%s", code, out, errs)
	}
	s.sealed(t, "shop")

	s.restoredInTheConsole(t, "shop")

	// Damage of what all snapshots have.
	damaged := 0
	err := filepath.WalkDir(filepath.Join(store, "profiles"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && filepath.Base(filepath.Dir(filepath.Dir(path))) == "chunks" {
			damaged++
			err = os.Truncate(path, 5)
		}
		return err
	})
	if err != nil || damaged == 0 {
		t.Fatalf("%d chunks, %v", damaged, err)
	}
	if out, errs, code := s.cli(t, "profiles", "verify", "shop"); code != 9 || !strings.Contains(out, ": damaged\n") || !strings.Contains(errs, "anew") {
		t.Errorf("%d, %s%s", code, out, errs)
	}
	before := s.record(t, "shop")
	if out, errs, code := s.cli(t, "profiles", "restore", "shop", "--snapshot", before.SnapshotID); code != 8 || !strings.Contains(errs, "snapshot_damaged") {
		t.Errorf("%d, %s%s", code, out, errs)
	}
	if after := s.record(t, "shop"); after.Token != before.Token {
		t.Errorf("what could not be restored raised the token to %d", after.Token)
	}
	if found := s.stay(t, "shop", ""); found != "lasting=one,false session=one,true" {
		t.Errorf("the profile is not as it was: %s", found)
	}
	whole := s.sealed(t, "shop")
	if out, errs, code := s.cli(t, "profiles", "verify", "shop", "--snapshot", whole.SnapshotID); code != 0 {
		t.Errorf("the next snapshot is damaged, too: %s%s", out, errs)
	}
	if s.metric(t, `leasehold_snapshots_total{result="failed"}`) != "0" {
		t.Error("a snapshot failed")
	}
}

// restoredInTheConsole has a person bring the newest snapshot back by the form of the profile's page.
func (s *sidecar) restoredInTheConsole(t *testing.T, profile string) {
	t.Helper()
	before := s.record(t, profile)
	page, err := http.Get(s.URL + "/console/" + profile)
	if err != nil {
		t.Fatal(err)
	}
	defer page.Body.Close()
	body, err := io.ReadAll(page.Body)
	for _, want := range []string{`<option value="` + before.SnapshotID + `">newest: `, "nothing was done since", "this one.", `action="/console/` + profile + `/restore"`} {
		if err != nil || page.StatusCode != 200 || !strings.Contains(string(body), want) {
			t.Errorf("the page, %d, does not have %q: %v", page.StatusCode, want, err)
		}
	}
	form := url.Values{"lease_token": {fmt.Sprint(before.Token)}, "snapshot": {api.NewestSnapshot}, "reviewer": {"Ada"}, "note": {"by the form"}}
	r, err := http.NewRequestWithContext(t.Context(), "POST", s.URL+"/console/"+profile+"/restore", strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", s.URL)
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if said, err := io.ReadAll(answer.Body); answer.StatusCode != http.StatusSeeOther {
		t.Fatalf("the form: %d %s %v", answer.StatusCode, said, err)
	}
	var told lease.Event
	for _, e := range s.events(t, profile) {
		if e.Event == lease.EventSnapshotRestored {
			told = e
		}
	}
	if now := s.record(t, profile); now.Token != before.Token+1 || told.Reviewer != "Ada" || told.Note != "by the form" || told.SnapshotID != before.SnapshotID {
		t.Errorf("token %d after %d, event %+v", now.Token, before.Token, told)
	}
	s.sealed(t, profile)
}

// A profile that stays open for the next task is sealed when its browser is closed; and a
// sidecar that ends makes what snapshots are left.
func TestAWarmProfileIsSealedWhenItIsClosed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key := filepath.Join(dir, "key")
	if _, errs, code := (&sidecar{}).cli(t, "profiles", "keygen", key); code != 0 {
		t.Fatalf("exit status %d, want 0: %s", code, errs)
	}
	s := start(t, append(slices.Clone(warmly), "--profile-store", "nats://", "--profile-key", key)...)
	s.leave(t, "shop", "keep_warm=true")
	s.warm(t, "shop")
	if r := s.record(t, "shop"); r.SnapshotID != "" {
		t.Errorf("a profile with an open browser has snapshot %s", r.SnapshotID)
	}
	s.stop(t)
	s.launch(t)
	if r := s.sealed(t, "shop"); r.SnapshotToken != r.Token {
		t.Errorf("%+v", r)
	}
	if out, errs, code := s.cli(t, "profiles", "verify", "shop"); code != 0 || !strings.Contains(out, ": whole\n") {
		t.Errorf("%d, %s%s", code, out, errs)
	}
}
