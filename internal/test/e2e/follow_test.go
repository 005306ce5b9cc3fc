package e2e

import (
	"net/http"
	"testing"

	"leasehold/lease"
)

// A worker's tasks follow each other without a wait: while a session ends in order, who
// asks for its profile is not refused. A session that goes on refuses at once, as ever.
func TestTasksFollowEachOther(t *testing.T) {
	t.Parallel()
	s := start(t)
	c := dial(t, s.socket("shop", "worker=w&task=one"))
	var refused struct {
		Code       string
		RetryAfter int `json:"retry_after_seconds"`
	}
	asks := map[string]any{"profile_id": "shop", "worker_id": "w", "task_id": "two"}
	if status := s.call(t, "POST", "/v1/sessions", asks, &refused); status != http.StatusConflict || refused.RetryAfter < 2 {
		t.Errorf("while the session goes on: %d %+v", status, refused)
	}
	first := s.record(t, "shop")
	c.close(t)
	c.ended(t) // clients wait for the answer to their close frame
	var two struct {
		SessionID string      `json:"session_id"`
		Token     lease.Token `json:"lease_token"`
	}
	if status := s.call(t, "POST", "/v1/sessions", asks, &two); status != http.StatusCreated || two.Token <= first.Token {
		t.Fatalf("right after the close: %d %+v, after token %d", status, two, first.Token)
	}
	if status := s.call(t, "DELETE", "/v1/sessions/"+two.SessionID, map[string]any{"lease_token": two.Token, "outcome": "succeeded"}, nil); status != http.StatusOK {
		t.Errorf("release: %d", status)
	}
}
