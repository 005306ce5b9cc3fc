package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
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

// TestTheProfileKeepsItsCookies ends several sessions right after each set a cookie of
// each kind.
func TestTheProfileKeepsItsCookies(t *testing.T) {
	t.Parallel()
	s, web := start(t), newSite(t)
	const rounds = 3
	for i := range rounds {
		c := clients.Start(t, clients.Playwright, s.oneShot("shop", "worker=w&wait=30s&task="+fmt.Sprint(i)), clients.Interactive)
		c.Expect(t, "connect")
		c.Do(t, act("goto", "url", web.URL+"/"))
		var got string
		if err := json.Unmarshal(c.Do(t, act("evaluate", "expression", "document.cookie + '|' + Object.keys(localStorage).length")), &got); err != nil {
			t.Fatal(err)
		}
		cookies, stored, _ := strings.Cut(got, "|")
		if n := strings.Count(cookies, "s"); n != i {
			t.Errorf("round %d: %d session cookies: %s", i, n, cookies)
		}
		if n := strings.Count(cookies, "p"); n != i {
			t.Errorf("round %d: %d persistent cookies: %s", i, n, cookies)
		}
		if stored != fmt.Sprint(i) {
			t.Errorf("round %d: %s stored values", i, stored)
		}
		c.Do(t, act("evaluate", "expression", fmt.Sprintf("document.cookie='s%d=1'; document.cookie='p%d=1; max-age=86400'; localStorage.setItem('k%d','v')", i, i, i)))
		c.Do(t, act("disconnect"))
	}
	s.until(t, "shop", lease.Available)
	if found, _ := filepath.Glob(filepath.Join(s.Dir, "profiles", "shop", "Singleton*")); len(found) != 0 {
		t.Errorf("left behind: %v", found)
	}
}

func TestConflictNamesTheOwner(t *testing.T) {
	t.Parallel()
	s := start(t)
	owner := clients.Start(t, clients.Playwright, s.oneShot("acct", "worker=worker-7&task=task_101"), clients.Interactive)
	owner.Expect(t, "connect")

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
	waiting := clients.Start(t, clients.Playwright, s.oneShot("acct", "worker=worker-9&task=task_103&wait=30s"), clients.Interactive)
	owner.Do(t, act("disconnect"))
	waiting.Expect(t, "connect")
	if r := s.record(t, "acct"); r.OwnerWorkerID != "worker-9" || r.Token != 2 {
		t.Errorf("owner %s, token %d", r.OwnerWorkerID, r.Token)
	}
	eventually(t, "three conflicts as events", func() error {
		n := 0
		for _, e := range s.events(t, "acct") {
			if e.Event == lease.EventConflict {
				n++
				if e.CurrentWorkerID != "worker-7" || e.BlockedTaskID == "" {
					return fmt.Errorf("%+v", e)
				}
			}
		}
		if n < 3 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
}

func TestTwoStepSession(t *testing.T) {
	t.Parallel()
	s, web := start(t, "--lease-ttl", "60s"), newSite(t) // until the first client connects, nothing else keeps the session
	var ses struct {
		SessionID string      `json:"session_id"`
		Token     lease.Token `json:"lease_token"`
		CDPURL    string      `json:"cdp_url"`
		Dedicated string      `json:"dedicated_url"`
	}
	if code := s.call(t, "POST", "/v1/sessions", map[string]any{
		"profile_id": "two", "worker_id": "w", "task_id": "t", "create": true, "dedicated_port": true,
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

func TestBadRequests(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, tt := range []struct {
		name string
		body map[string]any
		want int
		code string
	}{
		{"unknown profile", map[string]any{"profile_id": "nobody"}, 404, "unknown_profile"},
		{"a path as profile", map[string]any{"profile_id": "../x", "create": true}, 400, "invalid_request"},
		{"unknown field", map[string]any{"profile_id": "p", "colour": "red"}, 400, "invalid_request"},
		{"a forbidden argument", map[string]any{"profile_id": "p", "create": true, "chrome_args": []string{"--remote-debugging-port=1"}}, 400, "invalid_request"},
		{"a wait without bound", map[string]any{"profile_id": "p", "wait": "1000h"}, 400, "invalid_request"},
	} {
		var problem map[string]any
		if code := s.call(t, "POST", "/v1/sessions", tt.body, &problem); code != tt.want || problem["code"] != tt.code {
			t.Errorf("%s: %d %v", tt.name, code, problem)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+"/v1/profiles", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Origin", "https://evil.example")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != 403 {
		t.Errorf("a foreign origin: %s", resp.Status)
	}
}

// TestTheLastTabKeepsTheCookies closes every tab before the session ends.
func TestTheLastTabKeepsTheCookies(t *testing.T) {
	t.Parallel()
	s, web := start(t), newSite(t)
	c := clients.Start(t, clients.Puppeteer, s.socket("tabs", "worker=w&task=1"), clients.Interactive)
	c.Expect(t, "connect")
	c.Do(t, act("goto", "url", web.URL+"/"))
	c.Do(t, act("evaluate", "expression", "document.cookie='login=1'"))
	var targets []struct{ ID, Type string }
	if code := s.call(t, "GET", "/profiles/tabs/json/list?worker=w&task=1", nil, &targets); code != 200 || len(targets) == 0 {
		t.Fatalf("list: %d %v", code, targets)
	}
	for _, target := range targets {
		if target.Type == "page" {
			c.Do(t, clients.Action{"action": "cdp", "on": "browser", "method": "Target.closeTarget", "params": map[string]any{"targetId": target.ID}})
		}
	}
	c.Do(t, act("disconnect"))
	s.until(t, "tabs", lease.Available)
	again := clients.Start(t, clients.Playwright, s.oneShot("tabs", "worker=w&task=2"), clients.Interactive)
	again.Expect(t, "connect")
	again.Do(t, act("goto", "url", web.URL+"/"))
	if got := string(again.Do(t, act("evaluate", "expression", "document.cookie"))); got != `"login=1"` {
		t.Errorf("cookies: %s", got)
	}
}

// TestTokenFile: with --token-file only the probes and URLs with a session's capability
// need no token.
func TestTokenFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("0123456789abcdef-secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, "--token-file", file)
	var problem map[string]any
	if code := s.call(t, "GET", "/v1/profiles", nil, &problem); code != 401 || problem["code"] != "unauthenticated" {
		t.Errorf("without the token: %d %v", code, problem)
	}
	c := clients.Start(t, clients.Playwright, s.oneShot("locked", "worker=w&task=t"), clients.Interactive)
	if line, err := c.Next(); err != nil || line.OK || !strings.Contains(line.Error, "401") {
		t.Errorf("Playwright without the token: %+v %v", line, err)
	}
	c = clients.Start(t, clients.Playwright, s.oneShot("locked", "worker=w&task=t&token=0123456789abcdef-secret"), clients.Interactive)
	c.Expect(t, "connect")
	log, err := os.ReadFile(s.stderr.Name())
	if err != nil || strings.Contains(string(log), "0123456789abcdef-secret") {
		t.Errorf("the token is in the log (%v)", err)
	}
}
