package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"leasehold/lease"
)

// travellers are two launchers on one NATS server and one profile store, which is a folder.
func travellers(t *testing.T, args ...string) (home, other *sidecar, store string) {
	t.Helper()
	dir := t.TempDir()
	key := filepath.Join(dir, "key")
	if out, err := exec.Command(binary, "profiles", "keygen", key).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	store = filepath.Join(dir, "store")
	home, other = pair(t, append(args, "--profile-store", "file://"+store, "--profile-key", key)...)
	return home, other, store
}

// leaveSomething puts a file into the profile, which the account could have written.
func (s *sidecar) leaveSomething(t *testing.T, profile, name string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.Dir, "profiles", profile, name), []byte(name), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (s *sidecar) has(profile, name string) bool {
	b, err := os.ReadFile(filepath.Join(s.Dir, "profiles", profile, name))
	return err == nil && string(b) == name
}

// TestAFreeProfileIsHadElsewhere: what ended in order is had on another host as soon as its own
// counts as gone, with all that was done; a pinned one is not. The old home never opens what it
// left. An operator moves it back, and the home that is there gives it up.
func TestAFreeProfileIsHadElsewhere(t *testing.T) {
	t.Parallel()
	home, other, _ := travellers(t)
	home.call(t, "PUT", "/v1/profiles/free", map[string]any{"mobility": "free"}, nil)
	home.call(t, "PUT", "/v1/profiles/pinned", map[string]any{}, nil)
	home.leaveSomething(t, "free", "of-the-account")
	for _, profile := range []string{"free", "pinned"} {
		home.granted(t, profile, false)
	}
	before := home.sealed(t, "free")
	home.sealed(t, "pinned")
	var problem map[string]any
	if code := other.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": "free"}, &problem); code != 421 {
		t.Errorf("a profile whose home is there and has a place: %d %v", code, problem)
	}
	home.kill(t)
	var token lease.Token
	eventually(t, "the profile elsewhere", func() error {
		var got struct {
			SessionID string      `json:"session_id"`
			Token     lease.Token `json:"lease_token"`
			Detail    string      `json:"detail"`
		}
		if code := other.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": "free", "task_id": "t"}, &got); code != 201 {
			return fmt.Errorf("%d %s", code, got.Detail)
		}
		token = got.Token
		if code := other.call(t, "DELETE", "/v1/sessions/"+got.SessionID, map[string]any{"lease_token": got.Token, "outcome": "done"}, nil); code != 200 {
			t.Errorf("release: %d", code)
		}
		return nil
	})
	now := other.until(t, "free", lease.Available)
	if now.Home != "other" || token != before.Token+2 || now.Moved.SnapshotID != before.SnapshotID || now.Moved.Person != "" || !other.has("free", "of-the-account") {
		t.Errorf("token %d after %d, %+v", token, before.Token, now)
	}
	if code := other.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": "pinned"}, &problem); code != 421 {
		t.Errorf("a pinned profile: %d %v", code, problem)
	}
	other.leaveSomething(t, "free", "of-the-other-host")
	home.launch(t)
	home.isLeft(t, "free", "other")

	// A file alone makes no new snapshot: a session does.
	other.granted(t, "free", false)
	other.sealed(t, "free")
	eventually(t, "the way back", func() error {
		if out, errs, code := home.cli(t, "profiles", "move", "free", "--person", "ann"); code != 0 {
			return fmt.Errorf("%d %s %s", code, out, errs)
		}
		return nil
	})
	if !home.has("free", "of-the-account") || !home.has("free", "of-the-other-host") || home.marked("free") {
		t.Error("not everything came back")
	}
	other.isLeft(t, "free", "home")
	home.granted(t, "free", false)
}

// TestACloneIsHadElsewhere: a profile that somebody has, and one whose home is gone, is cloned on
// another host from its snapshot. The clone lives there, with all that was done, and has a snapshot
// of its own before anybody used it.
func TestACloneIsHadElsewhere(t *testing.T) {
	t.Parallel()
	home, other, _ := travellers(t)
	home.call(t, "PUT", "/v1/profiles/acct", map[string]any{"account_id": "store-18"}, nil)
	home.leaveSomething(t, "acct", "of-the-account")
	home.granted(t, "acct", false)
	sealed := home.sealed(t, "acct")
	holder := dial(t, home.socket("acct", "worker=w&task=t"))
	before := home.record(t, "acct")
	cloned := func(to, snapshot string) {
		t.Helper()
		if out, errs, code := other.cli(t, "profiles", "clone", "acct", "--to", to, "--snapshot", snapshot); code != 0 || out != to+": available\n" {
			t.Fatalf("%d %s %s", code, out, errs)
		}
		now := other.sealed(t, to)
		if now.Home != "other" || now.AccountID != "store-18" || now.SessionID != "" || !other.has(to, "of-the-account") {
			t.Errorf("%s: %+v", to, now)
		}
	}
	cloned("beside", "newest")
	if now := home.record(t, "acct"); now.State != lease.Held || now.Token != before.Token || now.SessionID != before.SessionID {
		t.Errorf("the profile that was cloned: %+v", now)
	}
	if _, errs, code := other.cli(t, "profiles", "clone", "acct", "--to", "of-the-directory"); code != 8 || !strings.Contains(errs, "held") {
		t.Errorf("its directory, which the home is asked for: %d %s", code, errs)
	}
	holder.call(t, "", "Lease.release", map[string]any{"outcome": "succeeded"}, nil)
	holder.ended(t)
	holder.drop()
	home.until(t, "acct", lease.Available)
	home.kill(t)
	cloned("after", sealed.SnapshotID)
	other.granted(t, "after", false)
	if out, errs, code := other.cli(t, "profiles", "remove-clone", "after"); code != 0 || out != "after: removed, a clone of acct\n" {
		t.Errorf("removed: %d %s %s", code, out, errs)
	}
}

// TestAnyProfileMayMove: a task that asks by labels or by account gets a profile whose home is
// full, or gone, at another launcher, if the profile is free to move; a pinned one stays.
func TestAnyProfileMayMove(t *testing.T) {
	t.Parallel()
	home, other, _ := travellers(t, "--max-browsers", "1")
	labels := map[string]any{"region": "us"}
	home.call(t, "PUT", "/v1/profiles/free", map[string]any{"mobility": "free", "labels": labels, "account_id": "acct"}, nil)
	home.call(t, "PUT", "/v1/profiles/pinned", map[string]any{"labels": labels}, nil)
	for _, profile := range []string{"pinned", "free"} {
		home.granted(t, profile, false)
		home.sealed(t, profile)
	}
	type session struct {
		SessionID string      `json:"session_id"`
		ProfileID string      `json:"profile_id"`
		Token     lease.Token `json:"lease_token"`
	}
	ask := func(s *sidecar, what string, manifest map[string]any) (got session) {
		t.Helper()
		manifest["task_id"] = "t"
		eventually(t, what, func() error {
			var said []byte
			code := s.call(t, "POST", "/v1/sessions", manifest, &said)
			return errors.Join(wantStatus(code, 201, said), json.Unmarshal(said, &got))
		})
		return got
	}
	release := func(s *sidecar, of session) {
		t.Helper()
		if code := s.call(t, "DELETE", "/v1/sessions/"+of.SessionID, map[string]any{"lease_token": of.Token, "outcome": "done"}, nil); code != 200 {
			t.Errorf("release of %s: %d", of.ProfileID, code)
		}
	}
	// What a launcher knows of another one's places is as old as that one's last heartbeat.
	free := func(want int) {
		t.Helper()
		eventually(t, fmt.Sprintf("%d of the home's profiles to be free", want), func() error {
			var list struct{ Items []lease.Record }
			if code := other.call(t, "GET", "/v1/profiles?free=true&label=region:us", nil, &list); code != 200 || len(list.Items) != want {
				return fmt.Errorf("%d %+v", code, list.Items)
			}
			return nil
		})
	}
	free(2)
	var problem map[string]any
	if code := other.call(t, "POST", "/v1/sessions", map[string]any{"labels": labels}, &problem); code != 421 || problem["location"] != home.URL {
		t.Errorf("while its home has a place: %d %v", code, problem)
	}
	busy := dial(t, home.socket("busy", "worker=w&wait=40s"))
	defer busy.drop()
	free(0)
	got := ask(other, "a profile of a full home", map[string]any{"labels": labels})
	if r := other.record(t, "free"); got.ProfileID != "free" || r.Home != "other" || r.Moved == nil || r.Moved.From != "home" {
		t.Errorf("%+v, home %s", got, r.Home)
	}
	release(other, got)
	other.sealed(t, "free")
	busy.call(t, "", "Lease.release", map[string]any{"outcome": "succeeded"}, nil)
	busy.ended(t)
	other.kill(t)
	got = ask(home, "a profile of a home that is gone", map[string]any{"account_id": "acct"})
	if r := home.record(t, "free"); got.ProfileID != "free" || r.Home != "home" || r.Moved.From != "other" {
		t.Errorf("%+v, home %s", got, r.Home)
	}
	release(home, got)
	if r := home.record(t, "pinned"); r.Moved != nil {
		t.Errorf("a pinned profile: %+v", r.Moved)
	}
}

// TestAMoveThatCannotBe: without its snapshot, or with one that is damaged, a profile stays where
// it was, and nothing half is left where it was asked for. What did not end in order does not move.
func TestAMoveThatCannotBe(t *testing.T) {
	t.Parallel()
	home, other, store := travellers(t)
	home.call(t, "PUT", "/v1/profiles/free", map[string]any{"mobility": "free"}, nil)
	home.granted(t, "free", false)
	sealed := home.sealed(t, "free")
	kept := filepath.Join(t.TempDir(), "kept")
	if err := os.CopyFS(kept, os.DirFS(store)); err != nil {
		t.Fatal(err)
	}
	damaged := 0
	err := filepath.WalkDir(store, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && strings.Contains(path, "chunk") {
			damaged++
			err = os.WriteFile(path, []byte("damaged"), 0o600)
		}
		return err
	})
	if err != nil || damaged == 0 {
		t.Fatalf("%d chunks damaged: %v", damaged, err)
	}
	var problem map[string]any
	code := other.call(t, "POST", "/v1/profiles/free/move", map[string]any{"lease_token": sealed.Token, "person": "ann"}, &problem)
	if code < 400 || problem["code"] == "internal_error" {
		t.Errorf("a move with a damaged snapshot: %d %v", code, problem)
	}
	r := home.record(t, "free")
	if r.Home != "home" || r.Token != sealed.Token || r.MoveRequest != nil || home.marked("free") {
		t.Errorf("%+v", r)
	}
	if left, err := filepath.Glob(filepath.Join(other.Dir, "profiles", ".leasehold", "*arrival*")); err != nil || len(left) != 0 {
		t.Errorf("left: %v %v", left, err)
	}
	if _, err := os.Stat(filepath.Join(other.Dir, "profiles", "free")); err == nil {
		t.Error("a directory is there")
	}
	home.granted(t, "free", false) // it is as it was
}
