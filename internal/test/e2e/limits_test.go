package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"leasehold/lease"
)

// metric reads a gauge of the sidecar.
func (s *sidecar) metric(t *testing.T, name string) string {
	t.Helper()
	var text []byte
	if code := s.call(t, "GET", "/metrics", nil, &text); code != 200 {
		t.Fatalf("metrics: %d", code)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func TestHostFull(t *testing.T) {
	t.Parallel()
	s := start(t, "--max-browsers", "1", "--lease-ttl", "300s") // long enough that no session is lost
	type session struct {
		SessionID string      `json:"session_id"`
		Token     lease.Token `json:"lease_token"`
	}
	acquire := func(profile, wait string) (session, int) {
		var ses session
		code := s.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": profile, "task_id": profile, "create": true, "wait": wait, "lock_timeout_seconds": 600, "heartbeat": "connection"}, &ses)
		return ses, code
	}
	release := func(ses session) {
		t.Helper()
		if code := s.call(t, "DELETE", "/v1/sessions/"+ses.SessionID, map[string]any{"lease_token": ses.Token, "outcome": "succeeded"}, nil); code != 200 {
			t.Errorf("release: %d", code)
		}
	}
	held, code := acquire("first", "0s")
	if code != http.StatusCreated {
		t.Fatalf("status %d", code)
	}
	order := make(chan string, 2)
	for i, profile := range []string{"second", "third"} {
		go func() {
			ses, code := acquire(profile, "5m")
			order <- fmt.Sprintf("%s %d", profile, code)
			if code == http.StatusCreated {
				release(ses)
			}
		}()
		eventually(t, profile+" to queue", func() error {
			if n := s.metric(t, "leasehold_queue"); n != fmt.Sprint(i+1) {
				return fmt.Errorf("%s wait", n)
			}
			return nil
		})
	}
	var problem map[string]any
	if code := s.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": "fourth", "create": true}, &problem); code != 429 || problem["code"] != "host_full" {
		t.Fatalf("%d %v", code, problem)
	}
	for member, want := range map[string]any{"max_browsers": 1.0, "browsers": 1.0, "queue_position": 3.0, "queue_length": 2.0, "reason": "browsers"} {
		if problem[member] != want {
			t.Errorf("%s is %v, want %v", member, problem[member], want)
		}
	}
	if s.metric(t, "leasehold_browsers") != "1" || s.metric(t, "leasehold_disk_free_bytes") == "" {
		t.Error("the metrics do not show it")
	}
	release(held)
	for _, want := range []string{"second 201", "third 201"} {
		if got := <-order; got != want {
			t.Errorf("%s, want %s: first come, first served", got, want)
		}
	}
	s.until(t, "third", lease.Available)
	eventually(t, "its place to be free", func() error {
		if n := s.metric(t, "leasehold_browsers"); n != "0" {
			return fmt.Errorf("%s browsers", n)
		}
		return nil
	})
	if code := s.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": "fourth", "create": true}, &problem); code != 201 {
		t.Errorf("with nobody in the way: %d %v", code, problem)
	}
	// Sessions have ended by now, so the wait can be estimated.
	if code := s.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": "fifth", "create": true, "wait": "100ms"}, &problem); code != 504 || problem["last_code"] != "host_full" || problem["estimated_wait_seconds"] == nil {
		t.Errorf("a wait that ran out: %d %v", code, problem)
	}
}

func TestDiskShort(t *testing.T) {
	t.Parallel()
	s := start(t, "--min-free-disk", "4000TiB")
	var problem map[string]any
	if code := s.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": "p", "create": true}, &problem); code != 429 || problem["reason"] != "disk" || !strings.Contains(fmt.Sprint(problem["detail"]), "--min-free-disk") {
		t.Errorf("%d %v", code, problem)
	}
	if code := s.call(t, "GET", "/v1/profiles/p", nil, nil); code != 404 || len(s.browsers(t)) != 0 {
		t.Errorf("something was made or started: status %d", code)
	}
}
