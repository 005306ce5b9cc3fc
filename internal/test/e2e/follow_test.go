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
	c := dial(t, s.socket("shop", "worker=w&task=one&create=true"))
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
	var two struct {
		SessionID string      `json:"session_id"`
		Token     lease.Token `json:"lease_token"`
	}
	if status := s.call(t, "POST", "/v1/sessions", asks, &two); status != http.StatusCreated || two.Token <= first.Token {
		t.Fatalf("right after the close: %d %+v, after token %d", status, two, first.Token)
	}
	for _, e := range s.events(t, "shop") {
		if e.Event == lease.EventConflict && e.At.After(first.AcquiredAt) && e.BlockedTaskID == "two" && e.CurrentTaskID != "one" {
			t.Errorf("a conflict with an end: %+v", e)
		}
	}
	// A release over REST that is under way is such an end, too.
	released := make(chan int, 1)
	go func() {
		released <- s.call(t, "DELETE", "/v1/sessions/"+two.SessionID, map[string]any{"lease_token": two.Token, "outcome": "succeeded"}, nil)
	}()
	if status := <-released; status != http.StatusOK {
		t.Errorf("release: %d", status)
	}
}
