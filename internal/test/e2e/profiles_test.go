package e2e

import (
	"errors"
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
func (s *sidecar) sealed(t *testing.T, profile string) (r api.Profile) {
	t.Helper()
	eventually(t, "a snapshot of "+profile, func() error {
		if r = s.record(t, profile); !r.HasSnapshot() {
			return fmt.Errorf("token %d, and snapshot %q is of %d", r.Token, r.SnapshotID, r.SnapshotToken)
		}
		return nil
	})
	return r
}

// TestProfilesComeAndGo: a person brings back what an account was before, with its session cookies, under
// a higher token, with the state before kept. Then the profile is cloned, and the clone put aside, brought
// back, and another one removed.
func TestProfilesComeAndGo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store, key := filepath.Join(dir, "store"), filepath.Join(dir, "key")
	if _, errs, code := (&sidecar{}).cli(t, "profiles", "keygen", key); code != 0 {
		t.Fatalf("exit status %d, want 0: %s", code, errs)
	}
	s := start(t, "--profile-store", "file://"+store, "--profile-key", key)
	run := func(args ...string) string {
		t.Helper()
		out, errs, code := s.cli(t, append([]string{"profiles"}, args...)...)
		if code != 0 {
			t.Fatalf("profiles %v: %d %s", args, code, errs)
		}
		return out
	}
	run("create", "acct", "--account", "store-18", "--max-active-runs", "2", "--harmless-request", "POST https://shop.example/search kind=a,b")
	if found := s.stay(t, "acct", "one"); found != "" {
		t.Fatalf("a new profile has %s", found)
	}
	first := s.sealed(t, "acct")
	eventually(t, "the home's copy of the record to name the snapshot", func() error { // it follows the record
		floor, err := os.ReadFile(filepath.Join(s.Dir, "profiles/.leasehold/acct.floor"))
		if err == nil && !strings.Contains(string(floor), first.SnapshotID) {
			err = fmt.Errorf("it is %s, without %s", floor, first.SnapshotID)
		}
		return err
	})
	if found := s.stay(t, "acct", "two"); found != "lasting=one,false session=one,true" {
		t.Errorf("the second session found %s", found)
	}
	second := s.sealed(t, "acct")
	if first.SnapshotID == second.SnapshotID || second.SnapshotToken != second.Token {
		t.Fatalf("%+v", second)
	}
	var list struct{ Items []api.Snapshot }
	if code := s.call(t, "GET", "/v1/profiles/acct/snapshots", nil, &list); code != 200 || len(list.Items) != 2 || list.Items[0].ID != second.SnapshotID || list.Items[0].Previous != first.SnapshotID {
		t.Fatalf("%d, %+v", code, list)
	}
	if out, errs, code := s.cli(t, "profiles", "verify", "acct"); code != 0 || strings.Count(out, ": whole\n") != 2 {
		t.Errorf("%d, %s%s", code, out, errs)
	}

	stale := map[string]any{"snapshot_id": first.SnapshotID, "lease_token": second.Token - 1}
	if code := s.call(t, "POST", "/v1/profiles/acct/restore", stale, nil); code != 409 {
		t.Errorf("a restore with a token that is over: %d", code)
	}
	unknown := map[string]any{"snapshot_id": "snap_NONE", "lease_token": second.Token}
	if code := s.call(t, "POST", "/v1/profiles/acct/restore", unknown, nil); code != 404 {
		t.Errorf("a snapshot that is not there: %d", code)
	}
	if r := s.record(t, "acct"); r.Token != second.Token || r.State != lease.Available {
		t.Errorf("what was refused left %s with token %d", r.State, r.Token)
	}
	out, errs, code := s.cli(t, "profiles", "restore", "acct", "--snapshot", first.SnapshotID, "--person", "ann", "--note", "was signed out")
	if code != 0 || !strings.Contains(out, fmt.Sprintf("acct: available, with snapshot %s under token %d\n", first.SnapshotID, second.Token+1)) {
		t.Fatalf("%d, %s%s", code, out, errs)
	}
	_, kept, _ := strings.Cut(strings.TrimSpace(out), "kept in ")
	if _, err := os.Stat(filepath.Join(kept, "Local State")); err != nil {
		t.Errorf("the state before is not in %q: %v", kept, err)
	}
	// What was restored has a snapshot of its own.
	if r := s.sealed(t, "acct"); r.Token != second.Token+1 || r.Reason != lease.ReasonSnapshotRestored {
		t.Errorf("%d, %s", r.Token, r.Reason)
	}
	const restoredCookies = "lasting=one,false session=one,true"
	if found := s.stay(t, "acct", ""); found != restoredCookies {
		t.Errorf("after the restore there was %s", found)
	}
	s.sealed(t, "acct")
	events := s.events(t, "acct")
	restored := slices.IndexFunc(events, func(e lease.Event) bool { return e.Event == lease.EventSnapshotRestored })
	if restored < 0 || events[restored].Reviewer != "ann" || events[restored].Note != "was signed out" || !strings.Contains(names(events), "snapshot_made") {
		t.Errorf("events: %+v", events)
	}
	if s.metric(t, `leasehold_snapshots_total{result="failed"}`) != "0" {
		t.Error("a snapshot failed")
	}

	run("clone", "acct", "--to", "copy")
	if r := s.record(t, "copy"); r.AccountID != "store-18" || r.State != lease.Available || r.Token != 0 || len(r.HarmlessRequests) != 1 {
		t.Errorf("the copy: %+v", r)
	}
	if found := s.stay(t, "copy", ""); found != restoredCookies {
		t.Errorf("the copy has %s", found)
	}
	aside := strings.TrimSpace(run("archive", "copy"))
	_, path, _ := strings.Cut(aside, " in ")
	if fi, err := os.Stat(path); err != nil || !fi.IsDir() {
		t.Fatalf("%s: %v", aside, err)
	}
	if r := s.record(t, "copy"); r.Reason != "archived" || r.Token != 1 {
		t.Errorf("put aside: %+v", r)
	}
	var problem map[string]any
	if code := s.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": "copy", "create": true}, &problem); code != 404 || !strings.Contains(fmt.Sprint(problem["detail"]), path) {
		t.Errorf("a session on what was put aside: %d %v", code, problem)
	}
	run("import", "copy", "--from", path, "--account", "store-18")
	if r := s.record(t, "copy"); r.Reason == "archived" || r.Token != 2 {
		t.Errorf("brought back: %+v", r)
	}
	// Only a clone can be removed, and a clone that came back from the archive is none any more.
	for _, kept := range []string{"acct", "copy"} {
		if out, errs, code := s.cli(t, "profiles", "remove-clone", kept); code != 8 || !strings.Contains(errs, "not made by cloning") {
			t.Errorf("%s was removed: %d %s %s", kept, code, out, errs)
		}
	}
	run("clone", "acct", "--to", "thrown-away")
	if out := run("remove-clone", "thrown-away"); out != "thrown-away: removed, a clone of acct\n" {
		t.Errorf("removed: %s", out)
	}
	if left, err := filepath.Glob(filepath.Join(s.Dir, "profiles", "*thrown-away*")); len(left) > 0 || err != nil {
		t.Errorf("left: %v, %v", left, err)
	}
	if r := s.record(t, "thrown-away"); r.Reason != "removed" || r.Token != 0 {
		t.Errorf("its record: %+v", r)
	}
	if list := run(); !strings.Contains(list, "acct") || !strings.Contains(list, "copy") {
		t.Errorf("listed: %s", list)
	}
}

// TestDirectoriesThatAreRefused: those that others may write, that are links, or that are below none of the
// roots. (The directory of a person's own Chrome: launcher/profiledir.TestFindUser, and what the answer says.)
func TestDirectoriesThatAreRefused(t *testing.T) {
	t.Parallel()
	imports := t.TempDir()
	s := start(t, append(fakeBrowsers(t), "--import-root", imports)...)
	profiles := filepath.Join(s.Dir, "profiles")
	ask := func(profile string, status int, says string) {
		t.Helper()
		var problem map[string]any
		if code := s.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": profile}, &problem); code != status || !strings.Contains(fmt.Sprint(problem["detail"]), says) {
			t.Errorf("%s: %d %v, want %d with %q", profile, code, problem, status, says)
		}
	}
	for _, dir := range []string{"open", "mine"} {
		if err := os.Mkdir(filepath.Join(profiles, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(profiles, "open"), 0o777); err != nil {
		t.Fatal(err)
	}
	ask("open", 400, "chmod go-w")
	if err := os.Symlink(t.TempDir(), filepath.Join(profiles, "linked")); err != nil {
		t.Fatal(err)
	}
	ask("linked", 400, "symlink")
	var problem map[string]any
	empty, inside, out := filepath.Join(imports, "empty"), filepath.Join(imports, "inside"), filepath.Join(imports, "out")
	if err := errors.Join(os.Mkdir(empty, 0o700), os.Symlink(empty, inside), os.Symlink(t.TempDir(), out)); err != nil {
		t.Fatal(err)
	}
	for from, says := range map[string]string{"relative": "absolute", empty: "Local State", inside: "link"} {
		if code := s.call(t, "POST", "/v1/profiles/new/import", map[string]any{"from": from}, &problem); code != 400 || problem["field"] != "from" || !strings.Contains(fmt.Sprint(problem["detail"]), says) {
			t.Errorf("import from %s: %d %v", from, code, problem)
		}
	}
	for from, says := range map[string]string{
		t.TempDir(): "is below none of --import-root", out: "is below none of --import-root", imports + "/../x": "is below none of --import-root", "/": "is the sidecar's own",
		filepath.Join(profiles, "mine"): "is the sidecar's own", s.Dir: "is the sidecar's own",
	} {
		if code := s.call(t, "POST", "/v1/profiles/new/import", map[string]any{"from": from}, &problem); code != 403 || !strings.Contains(fmt.Sprint(problem["detail"]), says) {
			t.Errorf("import from %s: %d %v", from, code, problem)
		}
	}
}
