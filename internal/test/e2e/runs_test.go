package e2e

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"testing"

	"leasehold/internal/test/clients"
	"leasehold/lease"
)

const shared = "&requires_exclusive_profile_lock=false"

// TestRunsShareABrowser: two tasks share a profile, each with a token of its own. If
// one is lost, the other goes on, and the profile is inspected when that one ends.
func TestRunsShareABrowser(t *testing.T) {
	t.Parallel()
	s, web := start(t), newSite(t)
	if code := s.call(t, "PUT", "/v1/profiles/pool", map[string]any{"max_active_runs": 2}, nil); code != 200 {
		t.Fatalf("settings: %d", code)
	}
	run := func(task, more string) *clients.Client {
		c := clients.Start(t, clients.Playwright, s.oneShot("pool", "worker=w-"+task+"&task="+task+more), clients.Interactive)
		c.Expect(t, "connect")
		c.Do(t, act("newPage"))
		c.Do(t, act("goto", "url", web.URL+"/"+task))
		return c
	}
	refused := func(query, why string) {
		t.Helper()
		var problem map[string]any
		q, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		body := map[string]any{"profile_id": "pool", "requires_exclusive_profile_lock": q.Get("exclusive") != "no"}
		if code := s.call(t, "POST", "/v1/sessions", body, &problem); code != 409 || problem["code"] != "profile_lock_conflict" {
			t.Errorf("%s: %d %v", why, code, problem)
		}
	}

	a, b := run("a", shared), run("b", shared)
	r := s.record(t, "pool")
	if len(r.Runs) != 2 || r.Runs[0].Token != 1 || r.Runs[1].Token != 2 || r.Token != 2 || r.State != lease.Held {
		t.Fatalf("%+v", r)
	}
	if n := len(s.browsers(t)); n != 1 {
		t.Errorf("%d browsers", n)
	}
	refused("exclusive=no", "a third run")
	refused("", "a task that wants the profile for itself")
	b.Do(t, act("evaluate", "expression", "window.kept = 42"))

	a.Kill()
	eventually(t, "the lost run to be out", func() error {
		if r = s.record(t, "pool"); len(r.Runs) != 1 || len(r.LostRuns) != 1 {
			return fmt.Errorf("%d runs, %d lost", len(r.Runs), len(r.LostRuns))
		}
		return nil
	})
	if r.State != lease.Held || r.Runs[0].TaskID != "b" || r.LostRuns[0].TaskID != "a" || r.LostRuns[0].EvidenceID == "" || r.LostRuns[0].Reason != "connection_lost" {
		t.Errorf("%+v", r)
	}
	s.screenshot(t, "pool")
	refused("exclusive=no", "a run beside one that was lost")
	var kept int
	if err := json.Unmarshal(b.Do(t, act("evaluate", "expression", "window.kept")), &kept); err != nil || kept != 42 {
		t.Errorf("the other run is disturbed: %v", err)
	}
	b.Do(t, act("goto", "url", web.URL+"/on"))
	b.Do(t, act("disconnect"))
	r = s.until(t, "pool", lease.Available)
	if r.Reason != "run_lost" || r.Decision != "release" || r.Token != 3 || len(r.LostRuns) != 0 {
		t.Errorf("%+v", r)
	}
	transitions := slices.DeleteFunc(s.events(t, "pool"), func(e lease.Event) bool { return e.Event == lease.EventConflict })
	if got, want := names(transitions), "granted granted expired suspected_stale quarantined expired inspected available"; got != want {
		t.Errorf("history %s, want %s", got, want)
	}
	if left := s.browsers(t); len(left) != 0 {
		t.Errorf("browsers are left: %v", left)
	}
}
