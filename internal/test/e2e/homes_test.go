package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"leasehold/launcher/api"
	"leasehold/lease"
)

// granted asks for a profile, waits for it, and ends the session in order. It returns the token.
func (s *sidecar) granted(t *testing.T, profile string, create bool) lease.Token {
	t.Helper()
	var got struct {
		SessionID string      `json:"session_id"`
		Token     lease.Token `json:"lease_token"`
		Detail    string      `json:"detail"`
	}
	if code := s.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": profile, "task_id": "t", "create": create, "wait": "40s"}, &got); code != 201 {
		t.Fatalf("%s: %d %+v", profile, code, got)
	}
	if code := s.call(t, "DELETE", "/v1/sessions/"+got.SessionID, map[string]any{"lease_token": got.Token, "outcome": "done"}, nil); code != 200 {
		t.Fatalf("release: %d", code)
	}
	s.until(t, profile, lease.Available)
	return got.Token
}

// rehome asks to be the home of a profile.
func (s *sidecar) rehome(t *testing.T, profile string, more map[string]any) (code int, answer map[string]any) {
	t.Helper()
	body := map[string]any{"lease_token": s.record(t, profile).Token, "person": "ann", "note": "its host is gone", "accept_loss": true}
	for k, v := range more {
		body[k] = v
	}
	code = s.call(t, "POST", "/v1/profiles/"+profile+"/rehome", body, &answer)
	return code, answer
}

// rehomed waits until its old home counts as gone, and makes the sidecar the home.
func (s *sidecar) rehomed(t *testing.T, profile string, more map[string]any) api.Profile {
	t.Helper()
	eventually(t, "another home", func() error {
		if code, answer := s.rehome(t, profile, more); code != 200 {
			return fmt.Errorf("%d %v", code, answer)
		}
		return nil
	})
	return s.record(t, profile)
}

// marked tells whether the profile's directory on the sidecar's disk is marked as left.
func (s *sidecar) marked(profile string) bool {
	_, err := os.Stat(filepath.Join(s.Dir, "profiles", ".leasehold", profile+".departure"))
	return err == nil
}

// isLeft waits until a launcher that is back knows that a profile left it.
func (s *sidecar) isLeft(t *testing.T, profile, home string) {
	t.Helper()
	eventually(t, "the directory to be marked as left", func() error {
		if !s.marked(profile) {
			return fmt.Errorf("it is not: %+v", s.record(t, profile))
		}
		return nil
	})
	var problem map[string]any
	if code := s.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": profile, "create": true}, &problem); code != 421 || problem["home_launcher"] != home {
		t.Errorf("a session on a profile that left: %d %v", code, problem)
	}
	if _, err := os.Stat(filepath.Join(s.Dir, "profiles", profile)); err != nil {
		t.Errorf("what was left is not there any more: %v", err)
	}
	if left := s.browsers(t); len(left) != 0 {
		t.Errorf("browsers on what was left: %v", left)
	}
}

// TestAProfileOfADeadHome: a host is killed. A person approves nothing into the void, is told
// what is lost, and gives the profile another home, where it is had at once. The old home comes
// back, without the store first, and never opens its directory again. Later the profile comes
// back to it, from the directory that it left.
func TestAProfileOfADeadHome(t *testing.T) {
	t.Parallel()
	n := startNATS(t)
	home, other := pairOn(t, n, fakeBrowsers(t)...)
	first := home.granted(t, "far", true)
	home.call(t, "PUT", "/v1/profiles/unused", map[string]any{}, nil)
	if code, p := other.rehome(t, "far", map[string]any{"empty": true}); code != 409 || p["reason"] != "home_is_there" {
		t.Fatalf("the profile of a home that is there: %d %v", code, p)
	}
	home.leaveSomething(t, "far", "of-the-first-home")
	home.leaveSomething(t, "far", "Local State") // a directory of Chrome has one
	home.kill(t)
	eventually(t, "the home to count as gone", func() error {
		if r := other.record(t, "far"); r.HomeSilentSince.IsZero() {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})
	out, _, code := other.cli(t, "show", "far")
	if code != 0 || !strings.Contains(out, "leasehold profiles rehome far") {
		t.Errorf("show says: %d %s", code, out)
	}
	if code, p := other.rehome(t, "far", map[string]any{"empty": true, "accept_loss": false}); code != 400 || !strings.Contains(fmt.Sprint(p["detail"]), "is not taken along") {
		t.Errorf("without a word about the loss: %d %v", code, p)
	}
	if code, p := other.rehome(t, "far", map[string]any{"empty": true, "lease_token": first - 1}); code == 200 {
		t.Errorf("on a token that is not the current one: %d %v", code, p)
	}
	_, errs, code := other.cli(t, "profiles", "rehome", "far", "--empty", "--note", "its host is gone", "--person", "ann", "--accept-loss")
	if code != 0 {
		t.Fatalf("rehome: %d %s", code, errs)
	}
	r := other.record(t, "far")
	if r.Home != "other" || r.Token <= first || r.HomeToken != r.Token || r.Moved.From != "home" || r.Moved.Person != "ann" || !r.HomeSilentSince.IsZero() {
		t.Fatalf("%+v", r)
	}
	if second := other.granted(t, "far", false); second != r.Token+1 {
		t.Errorf("token %d after %d", second, r.Token)
	}
	if unused := other.rehomed(t, "unused", map[string]any{"empty": true}); unused.Home != "other" || unused.Token != 1 {
		t.Errorf("a profile that was never used: %+v", unused)
	}
	// Where the late write stands among the others depends on when the first home published those before it.
	events := names(other.events(t, "far"))
	if !strings.Contains(events, "late_write ") || strings.Replace(events, "late_write ", "", 1) != "granted released moved granted released" {
		t.Errorf("events %s", events)
	}

	// Back without the store, it grants nothing; back with it, it knows.
	n.stop()
	home.young = true
	cmd := exec.Command(binary, home.args...)
	said, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 6 || err == nil {
		t.Errorf("a launcher without a store: %v, %s", err, said)
	}
	n.start(t)
	home.launch(t)
	home.isLeft(t, "far", "other")
	home.kill(t)
	home.launch(t)
	home.isLeft(t, "far", "other")

	// And back again, by a person, from what it left; the other one gives it up.
	moved := home.rehomed(t, "far", map[string]any{"left": true, "ask_home": true})
	if moved.Home != "home" || moved.Moved.From != "other" || moved.Moved.Directory != lease.DirectoryCopied || home.marked("far") {
		t.Fatalf("%+v", moved)
	}
	if !home.has("far", "of-the-first-home") {
		t.Error("the directory is not a copy of what was left")
	}
	other.isLeft(t, "far", "home")
	if last := home.granted(t, "far", false); last <= moved.Token {
		t.Errorf("token %d after %d", last, moved.Token)
	}
}
