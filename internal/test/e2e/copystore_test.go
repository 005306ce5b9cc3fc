package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"leasehold/internal/test/s3test"
	"leasehold/launcher/api"
	"leasehold/launcher/snapshots"
	"leasehold/launcher/snapshots/objectstest"
	"leasehold/lease"
)

// TestAProfileStoreGetsAnotherKey: what a sidecar sealed in a directory is copied to a bucket with
// another key, while the sidecar goes on, over a store that is full first and a copy that is killed.
// A sidecar with the new store and key then has the profile with all that was done; before that, and
// for what the copy does not have, it refuses, so that the account does not go back.
func TestAProfileStoreGetsAnotherKey(t *testing.T) {
	t.Parallel()
	dir, bucket := t.TempDir(), newBadStore(t)
	keys := [2]string{filepath.Join(dir, "old.key"), filepath.Join(dir, "new.key")}
	for _, key := range keys {
		if out, err := exec.Command(binary, "profiles", "keygen", key).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	n := &natsServer{dir: t.TempDir(), port: -1}
	n.start(t)
	t.Cleanup(n.stop)
	stores := [2]string{
		"file://" + filepath.Join(dir, "store"),
		"s3://" + s3test.Bucket + "/profiles?endpoint=" + bucket.URL + "&region=" + s3test.Region + "&path_style=true",
	}
	var both [2]*sidecar
	for i, id := range []string{"home", "other"} {
		both[i] = start(t, "--nats-url", fmt.Sprintf("nats://127.0.0.1:%d", n.port), "--lease-ttl", "5s", "--profile-store", stores[i], "--profile-key", keys[i], "--launcher-id", id)
	}
	home, other := both[0], both[1]
	home.call(t, "PUT", "/v1/profiles/acct", map[string]any{"mobility": "free"}, nil)
	home.call(t, "PUT", "/v1/profiles/unused", map[string]any{}, nil)
	home.leaveSomething(t, "acct", "of-the-account")
	home.granted(t, "acct", false)
	first := home.sealed(t, "acct")

	args := []string{"profiles", "copy-store", "--from", stores[0], "--from-key", keys[0], "--to", stores[1], "--to-key", keys[1]}
	copied := func(what string) {
		t.Helper()
		if out, errs, code := home.cli(t, args...); code != 0 || !strings.Contains(out, "acct: "+what) || strings.Contains(out, "unused") {
			t.Fatalf("%d %s%s, want acct: %s", code, out, errs, what)
		}
	}
	elsewhere := func() string {
		t.Helper()
		out, errs, code := other.cli(t, "profiles", "snapshots", "acct")
		if code != 0 {
			t.Fatalf("%d %s", code, errs)
		}
		return out
	}
	other.refusedMoveOf(t, first, api.CodeNotFound) // nothing was copied

	bucket.is(full)
	if out, errs, code := home.cli(t, args...); code != 1 || !strings.Contains(errs, "the store is full") {
		t.Errorf("to a store that is full: %d %s%s", code, out, errs)
	}
	bucket.misbehaved(t)

	bucket.is(stuck) // in the middle, before what was written is read back
	cmd := exec.Command(binary, append(args, "--profile", "acct")...)
	cmd.Env = os.Environ()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the copy to be in the middle", func() error {
		bucket.mu.Lock()
		defer bucket.mu.Unlock()
		if bucket.hits == 0 {
			return fmt.Errorf("nothing is read back yet")
		}
		return nil
	})
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	bucket.is(well)
	if list := elsewhere(); strings.Contains(list, "snap_") {
		t.Errorf("a copy that was killed has left %s", list)
	}

	copied("1 snapshots copied, 0 there before")
	home.granted(t, "acct", false)
	home.sealed(t, "acct")
	home.leaveSomething(t, "acct", "of-the-second-session")
	home.granted(t, "acct", false)
	newest := home.sealed(t, "acct")
	other.refusedMoveOf(t, newest, api.CodeNotFound) // what is copied is of before
	other.hasNone(t, "acct")
	copied("2 snapshots copied, 1 there before")
	copied("0 snapshots copied, 3 there before")
	if list := elsewhere(); !strings.Contains(list, first.SnapshotID) || !strings.Contains(list, newest.SnapshotID) {
		t.Errorf("copied is %s", list)
	}
	if out, errs, code := other.cli(t, "profiles", "verify", "acct"); code != 0 {
		t.Errorf("%d %s%s", code, out, errs)
	}

	eventually(t, "the move", func() error {
		if out, errs, code := other.cli(t, "profiles", "move", "acct", "--person", "ann"); code != 0 {
			return fmt.Errorf("%d %s%s", code, out, errs)
		}
		return nil
	})
	now := other.until(t, "acct", lease.Available)
	if now.Home != "other" || now.Moved.SnapshotID != newest.SnapshotID || !other.has("acct", "of-the-account") || !other.has("acct", "of-the-second-session") {
		t.Errorf("%+v", now)
	}
	other.granted(t, "acct", false)
	ahead := other.sealed(t, "acct")
	copied("0 snapshots copied, 3 there before") // the new store has gone on
	home.refusedMoveOf(t, ahead, api.CodeNotFound)
	home.hasNone(t, "acct")
}

// TestAProfileStoreGoesToNATSAndBack, each time with another key.
func TestAProfileStoreGoesToNATSAndBack(t *testing.T) {
	t.Parallel()
	n := &natsServer{dir: t.TempDir(), port: -1}
	n.start(t)
	t.Cleanup(n.stop)
	dir := t.TempDir()
	var keys [3]*snapshots.Key
	for i := range keys {
		key, err := snapshots.WriteKey(filepath.Join(dir, fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		keys[i] = key
	}
	tree := objectstest.Profile()
	made, err := objectstest.Seal(t, snapshots.New(snapshots.OpenDir(filepath.Join(dir, "first")), keys[0]), "acct", tree.Write(t), 4)
	if err != nil {
		t.Fatal(err)
	}
	places := []string{"file://" + filepath.Join(dir, "first"), fmt.Sprintf("nats://127.0.0.1:%d", n.port), "file://" + filepath.Join(dir, "last")}
	for i := range 2 {
		out, errs, code := (&sidecar{}).cli(t, "profiles", "copy-store", "--from", places[i], "--from-key", filepath.Join(dir, fmt.Sprint(i)),
			"--to", places[i+1], "--to-key", filepath.Join(dir, fmt.Sprint(i+1)), "--profile", "acct")
		if code != 0 || !strings.HasPrefix(out, "acct: 1 snapshots copied, 0 there before") {
			t.Fatalf("to %s: %d %s%s", places[i+1], code, out, errs)
		}
	}
	to := filepath.Join(dir, "fetched")
	if _, err := snapshots.New(snapshots.OpenDir(filepath.Join(dir, "last")), keys[2]).Fetch(t.Context(), "acct", made.ID, to, snapshots.FetchOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, content := range objectstest.ReadTree(t, to) {
		if tree[name] != content {
			t.Errorf("%s is another one", name)
		}
	}
}

// hasNone checks that a sidecar gives no older state of a profile for the newest one, which its store
// does not have: to a reader, in a clone, or in a profile that comes to it.
func (s *sidecar) hasNone(t *testing.T, profile string) {
	t.Helper()
	var problem map[string]any
	if code := s.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": profile, "task_id": "t", "ephemeral": true}, &problem); code != 404 || problem["code"] != api.CodeNotFound {
		t.Errorf("a reader: %d %v", code, problem)
	}
	for _, args := range [][]string{{"clone", profile, "--to", "older", "--snapshot", "newest"}, {"rehome", profile, "--snapshot", "newest", "--ask-home", "--accept-loss", "--person", "ann", "--note", "n"}} {
		if out, errs, code := s.cli(t, append([]string{"profiles"}, args...)...); code != 8 || !strings.Contains(errs, api.CodeSnapshotDamaged) {
			t.Errorf("%v: %d %s%s", args, code, out, errs)
		}
	}
}
