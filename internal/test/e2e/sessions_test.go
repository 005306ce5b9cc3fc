package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"leasehold/internal/test/clients"
	"leasehold/lease"
)

func act(name string, more ...string) clients.Action {
	a := clients.Action{"action": name}
	for i := 0; i < len(more); i += 2 {
		a[more[i]] = more[i+1]
	}
	return a
}

func cdp(method string, params map[string]any) clients.Action {
	return clients.Action{"action": "cdp", "method": method, "params": params}
}

// TestTasksOfAProfile: a task that comes too early is told whose the profile is, and waits for it; a
// session of two steps ends by REST, and nothing can be written under its token any more; and two tasks
// share a browser where the profile's settings say so. One sidecar, of scripted browsers.
func TestTasksOfAProfile(t *testing.T) {
	t.Parallel()
	s := start(t, fakeBrowsers(t)...)
	for name, play := range map[string]func(*testing.T, *sidecar){
		"a conflict names the owner": aConflictNamesTheOwner, "a session of two steps": aSessionOfTwoSteps, "runs share a browser": runsShareABrowser,
	} {
		t.Run(name, func(t *testing.T) { play(t, s) })
	}
}

func aConflictNamesTheOwner(t *testing.T, s *sidecar) {
	owner := dial(t, s.socket("acct", "worker=worker-7&task=task_101"))
	owner.call(t, "", "Browser.getVersion", nil, nil)
	var problem map[string]any
	if code := s.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": "acct", "worker_id": "worker-9", "task_id": "task_102"}, &problem); code != 409 {
		t.Fatalf("status %d", code)
	}
	for field, want := range map[string]any{"code": "profile_lock_conflict", "current_worker_id": "worker-7", "current_task_id": "task_101", "decision": "rescheduled"} {
		if problem[field] != want {
			t.Errorf("%s is %v, want %v", field, problem[field], want)
		}
	}
	// A short wait runs out, and a longer one gets the profile.
	if code := s.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": "acct", "task_id": "task_102", "wait": "300ms"}, &problem); code != 504 || problem["code"] != "wait_timeout" {
		t.Errorf("status %d, %v", code, problem["code"])
	}
	waiting := async(func() answered {
		return asks(t, s.URL, map[string]any{"profile_id": "acct", "worker_id": "worker-9", "task_id": "task_103", "wait": "30s"})
	})
	s.awaitQueue(t, "task_103")
	owner.close(t)
	next := <-waiting
	if next.code != 201 || s.record(t, "acct").OwnerWorkerID != "worker-9" {
		t.Errorf("%+v", next)
	}
	s.giveBack(t, next)
	eventually(t, "a conflict as an event", func() error {
		for _, e := range s.events(t, "acct") {
			if e.Event == lease.EventConflict && e.CurrentWorkerID == "worker-7" && e.BlockedTaskID == "task_102" {
				return nil
			}
		}
		return fmt.Errorf("there is %s", names(s.events(t, "acct")))
	})
}

func aSessionOfTwoSteps(t *testing.T, s *sidecar) {
	ses := s.open(t, "two", nil)
	c := dial(t, ses.CDPURL)
	c.call(t, "", "Lease.step", map[string]any{"name": "open_list"}, nil)
	c.call(t, "", "Lease.checkpoint", map[string]any{"name": "list_loaded"}, nil)
	path := "/v1/sessions/" + ses.SessionID
	write := func(name string, body map[string]any, want int) {
		t.Helper()
		var answer map[string]any
		if code := s.call(t, "POST", path+"/"+name, body, &answer); code != want {
			t.Errorf("%s: status %d, want %d: %v", name, code, want, answer)
		}
	}
	write("steps", map[string]any{"lease_token": ses.Token, "name": "by_rest"}, 201)
	write("heartbeat", map[string]any{"lease_token": ses.Token}, 200)
	write("steps", map[string]any{"lease_token": ses.Token + 1, "name": "early"}, 409)
	write("steps", map[string]any{"name": "tokenless"}, 400)
	eventually(t, "the record to show progress", func() error {
		if r := s.record(t, "two"); r.LastKnownStep != "by_rest" || r.LastSafeCheckpoint != "list_loaded" {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})
	s.release(t, ses)
	r := s.until(t, "two", lease.Available)
	var manifest map[string]any
	if s.call(t, "GET", "/v1/evidence/"+r.EvidenceID, nil, &manifest); r.Outcome != "succeeded" || manifest["outcome"] != "succeeded" || manifest["last_known_step"] != "by_rest" {
		t.Errorf("%s, and the manifest: %v", r.Outcome, manifest)
	}
	write("steps", map[string]any{"lease_token": ses.Token, "name": "too late"}, 410)
	// The next task gets a higher token, so the old one is stale.
	next := dial(t, s.socket("two", "worker=w2&task=t2"))
	next.call(t, "", "Browser.getVersion", nil, nil)
	write("checkpoints", map[string]any{"lease_token": ses.Token, "name": "ghost"}, 409)
	eventually(t, "the late write as an event", func() error {
		if !strings.Contains(names(s.events(t, "two")), lease.EventLateWrite) {
			return fmt.Errorf("%s", names(s.events(t, "two")))
		}
		return nil
	})
	next.close(t)
	next.ended(t)
	s.until(t, "two", lease.Available)
}

// runsShareABrowser: each run has a token of its own. If one is lost, the other goes on, and the profile is
// inspected when that one ends.
func runsShareABrowser(t *testing.T, s *sidecar) {
	if code := s.call(t, "PUT", "/v1/profiles/pool", map[string]any{"max_active_runs": 2}, nil); code != 200 {
		t.Fatalf("settings: %d", code)
	}
	run := func(task string) *socket {
		c := dial(t, s.socket("pool", "requires_exclusive_profile_lock=false&worker=w-"+task+"&task="+task))
		c.call(t, "", "Browser.getVersion", nil, nil)
		return c
	}
	refused := func(exclusive bool, why string) {
		t.Helper()
		var problem map[string]any
		body := map[string]any{"profile_id": "pool", "requires_exclusive_profile_lock": exclusive}
		if code := s.call(t, "POST", "/v1/sessions", body, &problem); code != http.StatusConflict || problem["code"] != "profile_lock_conflict" {
			t.Errorf("%s: %d %v", why, code, problem)
		}
	}
	a, b := run("a"), run("b")
	r := s.record(t, "pool")
	if len(r.Runs) != 2 || r.Runs[0].Token != 1 || r.Runs[1].Token != 2 || r.Token != 2 || r.State != lease.Held {
		t.Fatalf("%+v", r)
	}
	s.browserOf(t, "pool") // the only one
	refused(false, "a third run")
	refused(true, "a task that wants the profile for itself")
	a.drop()
	eventually(t, "the lost run to be out", func() error {
		if r = s.record(t, "pool"); len(r.Runs) != 1 || len(r.LostRuns) != 1 {
			return fmt.Errorf("%d runs, %d lost", len(r.Runs), len(r.LostRuns))
		}
		return nil
	})
	if r.State != lease.Held || r.Runs[0].TaskID != "b" || r.LostRuns[0].TaskID != "a" || r.LostRuns[0].EvidenceID == "" || r.LostRuns[0].Reason != "connection_lost" {
		t.Errorf("%+v", r)
	}
	refused(false, "a run beside one that was lost")
	b.call(t, "", "Browser.getVersion", nil, nil) // the other run is not disturbed
	b.close(t)
	b.ended(t)
	r = s.until(t, "pool", lease.Available, lease.ManualReview)
	if r.Reason != "run_lost" || r.Decision != "release" || r.Token != 3 || len(r.LostRuns) != 0 {
		t.Errorf("%+v", r)
	}
	transitions := slices.DeleteFunc(s.events(t, "pool"), func(e lease.Event) bool { return e.Event == lease.EventConflict })
	if got, want := names(transitions), "granted granted expired suspected_stale quarantined expired inspected available"; got != want {
		t.Errorf("history %s, want %s", got, want)
	}
}
