package e2e

import (
	"fmt"
	"net/url"
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

func TestConflictNamesTheOwner(t *testing.T) {
	t.Parallel()
	s := start(t, fakeBrowsers(t)...)
	owner := dial(t, s.socket("acct", "worker=worker-7&task=task_101"))
	owner.call(t, "", "Browser.getVersion", nil, nil)

	second := clients.Start(t, clients.Playwright, s.oneShot("acct", "worker=worker-9&task=task_102"), clients.Interactive)
	line, err := second.Next()
	if err != nil || line.OK || !strings.Contains(line.Error, "409") || !strings.Contains(line.Error, "worker-7") || !strings.Contains(line.Error, "profile_lock_conflict") {
		t.Fatalf("Playwright shows: %+v, %v", line, err)
	}

	var problem map[string]any
	if code := s.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": "acct", "worker_id": "worker-9", "task_id": "task_102"}, &problem); code != 409 {
		t.Fatalf("status %d", code)
	}
	for field, want := range map[string]any{"code": "profile_lock_conflict", "current_worker_id": "worker-7", "current_task_id": "task_101", "decision": "rescheduled"} {
		if problem[field] != want {
			t.Errorf("%s is %v, want %v", field, problem[field], want)
		}
	}
	for _, field := range []string{"lease_expires_at", "next_check_seconds"} {
		if problem[field] == nil {
			t.Errorf("no %s in %v", field, problem)
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
	if a := <-waiting; a.code != 201 || s.record(t, "acct").OwnerWorkerID != "worker-9" {
		t.Errorf("%+v", a)
	}
	eventually(t, "a conflict as an event", func() error {
		for _, e := range s.events(t, "acct") {
			if e.Event == lease.EventConflict && e.CurrentWorkerID == "worker-7" && e.BlockedTaskID == "task_102" {
				return nil
			}
		}
		return fmt.Errorf("there is %s", names(s.events(t, "acct")))
	})
}

func TestTwoStepSession(t *testing.T) {
	t.Parallel()
	s, web := start(t, warmly...), newSite(t)
	var ses struct {
		SessionID string      `json:"session_id"`
		Token     lease.Token `json:"lease_token"`
		CDPURL    string      `json:"cdp_url"`
		Dedicated string      `json:"dedicated_url"`
	}
	if code := s.call(t, "POST", "/v1/sessions", map[string]any{
		"profile_id": "two", "worker_id": "w", "task_id": "t", "create": true, "dedicated_port": true, "keep_warm": true,
	}, &ses); code != 201 {
		t.Fatalf("status %d", code)
	}
	c := clients.Start(t, clients.Puppeteer, ses.CDPURL, clients.Interactive)
	c.Expect(t, "connect")
	c.Do(t, act("goto", "url", web.URL+"/account"))
	c.Do(t, cdp("Lease.step", map[string]any{"name": "open_list"}))
	c.Do(t, cdp("Lease.checkpoint", map[string]any{"name": "list_loaded"}))
	c.Do(t, cdp("Lease.event", map[string]any{"type": "seen", "data": map[string]any{"rows": 3}}))
	c.Send(t, cdp("Lease.checkpoint", map[string]any{"nam": "x"}))
	if line, err := c.Next(); err != nil || line.OK || !strings.Contains(line.Error, "nam") {
		t.Errorf("a wrong parameter: %+v %v", line, err)
	}
	// A second client joins the session by the session's own port.
	host, err := url.Parse(ses.Dedicated)
	if err != nil || ses.Dedicated == "" {
		t.Fatalf("dedicated_url %q", ses.Dedicated)
	}
	other := clients.Start(t, clients.Playwright, "http://"+host.Host, clients.Interactive)
	other.Expect(t, "connect")
	other.Do(t, act("disconnect"))

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
		if r := s.record(t, "two"); r.LastKnownStep != "by_rest" || r.LastSafeCheckpoint != "list_loaded" || r.LastKnownURL != web.URL+"/account" {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})
	var over map[string]any
	if code := s.call(t, "DELETE", path, map[string]any{"lease_token": ses.Token, "outcome": "succeeded"}, &over); code != 200 {
		t.Fatalf("release: status %d %v", code, over)
	}
	if r := s.record(t, "two"); r.State != lease.Available || r.Outcome != "succeeded" {
		t.Errorf("%s %s", r.State, r.Outcome)
	}
	var kept bundles
	code := s.call(t, "GET", "/v1/profiles/two/evidence", nil, &kept)
	if kept = kept.ofEnds(); code != 200 || len(kept.Items) != 1 {
		t.Fatalf("evidence of the release: %d %+v", code, kept)
	}
	var manifest map[string]any
	if s.call(t, "GET", "/v1/evidence/"+kept.Items[0].EvidenceID, nil, &manifest); manifest["outcome"] != "succeeded" || manifest["last_known_step"] != "by_rest" {
		t.Errorf("manifest: %v", manifest)
	}
	if code := s.call(t, "POST", path+"/steps", map[string]any{"lease_token": ses.Token, "name": "too late"}, &over); code != 410 {
		t.Errorf("a step after the release: status %d", code)
	}
	// The next task gets a higher token, so the old one is stale.
	next := clients.Start(t, clients.Playwright, s.oneShot("two", "worker=w2&task=t2"), clients.Interactive)
	next.Expect(t, "connect")
	if code := s.call(t, "POST", path+"/checkpoints", map[string]any{"lease_token": ses.Token, "name": "ghost"}, &over); code != 409 || over["code"] != "stale_lease_token" {
		t.Errorf("a stale checkpoint: status %d %v", code, over)
	}
	eventually(t, "the late write as an event", func() error {
		if !strings.Contains(names(s.events(t, "two")), lease.EventLateWrite) {
			return fmt.Errorf("%s", names(s.events(t, "two")))
		}
		return nil
	})
	ghost := clients.Start(t, clients.Playwright, ses.CDPURL, clients.Interactive)
	if line, err := ghost.Next(); err != nil || line.OK || !strings.Contains(line.Error, "410") || !strings.Contains(line.Error, "session_ended") {
		t.Errorf("the old capability: %+v %v", line, err)
	}
}
