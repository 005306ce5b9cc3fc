package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"leasehold/launcher/api"
	"leasehold/lease"
)

// guardFile is a file that a sidecar keeps of a profile.
func (s *sidecar) guardFile(profile, kind string) string {
	return filepath.Join(s.Dir, "profiles", ".leasehold", profile+"."+kind)
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// used opens a session on the profile and releases it, so many times.
func (s *sidecar) used(t *testing.T, profile string, times int) {
	t.Helper()
	for range times {
		var ses two
		// The one before may not have left the profile yet.
		if code := s.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": profile, "worker_id": "w", "task_id": "t", "create": true, "wait": "30s"}, &ses); code != 201 {
			t.Fatalf("%s: %d", profile, code)
		}
		if code := s.call(t, "DELETE", "/v1/sessions/"+ses.SessionID, map[string]any{"lease_token": ses.Token, "outcome": "succeeded"}, nil); code >= 300 {
			t.Fatalf("release of %s: %d", profile, code)
		}
		s.until(t, profile, lease.Available)
	}
}

// notGranted asks for the profile until a person has it, and checks that nobody else ever
// gets it, and that every answer is one of those that say why.
func (s *sidecar) notGranted(t *testing.T, profile, reason string) api.Profile {
	t.Helper()
	eventually(t, profile+" is with a person", func() error {
		var problem map[string]any
		code := s.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": profile, "worker_id": "other", "task_id": "u"}, &problem)
		switch {
		case code == http.StatusLocked && problem["code"] == "profile_in_review" && problem["reason"] == reason:
			return nil
		case code != http.StatusLocked && code != http.StatusConflict && code != http.StatusServiceUnavailable:
			t.Fatalf("%s: %d %v", profile, code, problem)
		}
		for _, path := range []string{"/v1/profiles", "/v1/profiles/" + profile, "/v1/profiles/" + profile + "/history"} {
			if code := s.call(t, "GET", path, nil, nil); code != 200 {
				t.Fatalf("%s: %d", path, code)
			}
		}
		return fmt.Errorf("%d %v", code, problem)
	})
	r := s.record(t, profile)
	if r.State != lease.ManualReview || r.Reason != reason || r.EvidenceID == "" {
		t.Errorf("%s is %s because of %q, with evidence %q", profile, r.State, r.Reason, r.EvidenceID)
	}
	return r
}

// approved has a person approve the profile, which is then granted under a higher token.
func (s *sidecar) approved(t *testing.T, profile string, seen lease.Token) {
	t.Helper()
	if code := s.call(t, "POST", "/v1/profiles/"+profile+"/review", map[string]any{"decision": "approve", "reviewer": "ann", "lease_token": seen}, nil); code != 200 {
		t.Fatalf("approval of %s: %d", profile, code)
	}
	s.used(t, profile, 1)
	if r := s.record(t, profile); r.Token != seen+1 {
		t.Errorf("%s has token %d after %d", profile, r.Token, seen)
	}
}

// TestForgedFilesGoToAPerson: somebody who can write files as the launcher's user, but
// does not have its key, frees no profile.
func TestForgedFilesGoToAPerson(t *testing.T) {
	t.Parallel()
	s := start(t, fakeBrowsers(t)...)

	t.Run("a profile in review is not freed by its floor", func(t *testing.T) {
		var ses two
		if code := s.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": "reviewed", "worker_id": "w", "task_id": "t", "create": true}, &ses); code != 201 {
			t.Fatalf("status %d, want 201", code)
		}
		if err := syscall.Kill(s.browserOf(t, "reviewed"), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		r := s.until(t, "reviewed", lease.ManualReview)
		eventually(t, "the launcher keeps the floor of the review", func() error {
			floor, err := os.ReadFile(s.guardFile("reviewed", "floor"))
			if err == nil && !strings.Contains(string(floor), `"state":"manual_review"`) {
				err = fmt.Errorf("it is %s", floor)
			}
			return err
		})
		write(t, s.guardFile("reviewed", "floor"), fmt.Appendf(nil, "50\n"+`{"profile_id":"reviewed","state":"available","lease_token":50,"home":%q,"max_active_runs":1}`+"\n", r.Home))
		eventually(t, "the forged floor is found", func() error {
			var problem map[string]any
			if code := s.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": "reviewed"}, &problem); code != http.StatusLocked && code != http.StatusConflict {
				t.Fatalf("granted: %d %v", code, problem)
			}
			// A request and the patrol may find it at the same time, and each raises the token.
			if r := s.record(t, "reviewed"); r.Token <= 50 {
				return fmt.Errorf("token %d", r.Token)
			}
			return nil
		})
		s.approved(t, "reviewed", s.notGranted(t, "reviewed", lease.ReasonNotAuthentic).Token)
	})

}

// TestAForgedNoteKillsNothing: the next launcher closes the browser of its notes, which
// somebody else may have written meanwhile. Neither the process in the forged note nor the
// browser itself is touched, and a person decides.
func TestAForgedNoteKillsNothing(t *testing.T) {
	t.Parallel()
	s := start(t, append(fakeBrowsers(t), "--orphan-timeout", "10m")...)
	var ses two
	if code := s.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": "shop", "worker_id": "w", "task_id": "t", "create": true}, &ses); code != 201 {
		t.Fatalf("status %d, want 201", code)
	}
	// It leads its group and names the profile's directory, as a browser does.
	victim := exec.Command("sh", "-c", "while :; do sleep 1; done", "--user-data-dir="+filepath.Join(s.Dir, "profiles", "shop"))
	victim.Args = []string{"sh", "-c", "while :; do sleep 1; done", "--user-data-dir=" + filepath.Join(s.Dir, "profiles", "shop")}
	victim.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	browser := s.browserOf(t, "shop")
	s.kill(t)
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = victim.Wait() }()
	t.Cleanup(func() { _ = syscall.Kill(-victim.Process.Pid, syscall.SIGKILL); <-ended })
	stat, start := fmt.Sprintf("/proc/%d/stat", victim.Process.Pid), 0
	b, err := os.ReadFile(stat)
	if err != nil {
		t.Fatal(err)
	}
	var skip string
	fields := []any{&skip, &skip, &skip}
	for range 18 {
		fields = append(fields, &skip)
	}
	if _, err := fmt.Sscan(string(b), append(fields, &start)...); err != nil {
		t.Fatal(err)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	write(t, s.guardFile("shop", "browser"), fmt.Appendf(nil, `{"pid":%d,"start_time":%d,"boot_id":%q,"session_id":%q,"lease_token":1}`+"\n", victim.Process.Pid, start, string(boot[:36]), ses.SessionID))
	s.launch(t)
	r := s.notGranted(t, "shop", lease.ReasonNotAuthentic)
	if pids := s.browsers(t); len(pids) != 1 || pids[0] != browser {
		t.Errorf("browsers %v, want %d to live: nobody knows what it shows", pids, browser)
	}
	select {
	case <-ended:
		t.Error("the process in the forged note was killed")
	default:
	}
	if code := s.call(t, "POST", "/v1/profiles/shop/review", map[string]any{"decision": "approve", "reviewer": "ann", "lease_token": r.Token}, nil); code != 200 {
		t.Fatalf("status %d, want 200", code)
	}
	// What the person has approved does not come before a person again. They end what runs there, and only
	// then the profile can be used.
	eventually(t, "the launcher no longer waits for the browser's end", func() error {
		var problem map[string]any
		code := s.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": "shop"}, &problem)
		if code != http.StatusConflict {
			t.Fatalf("with a browser there: %d %v", code, problem)
		}
		if problem["pid"] != float64(browser) {
			return fmt.Errorf("%v", problem)
		}
		return nil
	})
	if err := syscall.Kill(browser, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = syscall.Kill(-victim.Process.Pid, syscall.SIGKILL)
	<-ended
	eventually(t, "the profile can be used", func() error {
		var problem map[string]any
		if code := s.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": "shop", "worker_id": "w"}, &problem); code != http.StatusCreated {
			return fmt.Errorf("%d %v", code, problem)
		}
		return nil
	})
}

// TestAnUnsafeDataDirectoryIsRefused: another user of the host made it for all, and could
// replace everything in it.
func TestAnUnsafeDataDirectoryIsRefused(t *testing.T) {
	t.Parallel()
	const stranger = 61234
	dir, err := os.MkdirTemp("/tmp", "leasehold-unsafe-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, os.ModeSticky|0o777); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(dir, "data")
	make := exec.Command("mkdir", "-m", "777", data)
	make.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stranger, Gid: stranger}}
	if out, err := make.CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	for _, command := range []string{"run", "doctor"} {
		cmd := exec.Command(binary, command, "--data-dir", data, "--listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0", "--headless")
		timer := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
		out, err := cmd.CombinedOutput()
		timer.Stop()
		if err == nil || !cmd.ProcessState.Exited() {
			t.Errorf("%s: %v", command, cmd.ProcessState)
		}
		for _, says := range []string{data, "belongs to uid 61234", "0777", "chown"} {
			if !strings.Contains(string(out), says) {
				t.Errorf("%s does not say %q: %s", command, says, out)
			}
		}
	}
	if left, err := os.ReadDir(data); err != nil || len(left) != 0 {
		t.Errorf("made in it: %v, %v", left, err)
	}
}
