package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
	home, other, _ := travellers(t, fakeBrowsers(t)...)
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
