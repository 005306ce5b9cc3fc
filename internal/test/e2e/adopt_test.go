package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"leasehold/internal/test/clients"
	"leasehold/lease"
)

// two is the answer to POST /v1/sessions.
type two struct {
	SessionID string      `json:"session_id"`
	Token     lease.Token `json:"lease_token"`
	CDPURL    string      `json:"cdp_url"`
	Dedicated string      `json:"dedicated_url"`
}

// here is a cdp_url with the port of the launcher that runs now.
func (s *sidecar) here(t *testing.T, cdpURL string) string {
	t.Helper()
	u, err := url.Parse(cdpURL)
	if err != nil {
		t.Fatal(err)
	}
	now, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = now.Host
	return u.String()
}

func evaluate(t *testing.T, c *clients.Client, expression string) string {
	t.Helper()
	var got string
	if err := json.Unmarshal(c.Do(t, act("evaluate", "expression", "String("+expression+")")), &got); err != nil {
		t.Fatal(err)
	}
	return got
}

// onPage makes the client go on with the page at the URL.
func onPage(t *testing.T, c *clients.Client, at string) {
	t.Helper()
	var pages []string
	if err := json.Unmarshal(c.Do(t, act("pages")), &pages); err != nil {
		t.Fatal(err)
	}
	i := slices.Index(pages, at)
	if i < 0 {
		t.Fatalf("no page at %s, but at %q", at, pages)
	}
	c.Do(t, clients.Action{"action": "page", "index": i})
}

// TestTheWorkerOutlivesTheLauncher: the launcher is killed in the middle of a worker's
// script. The worker goes on through the next launcher, on the same pages. A guard that is
// killed is started again, and ends when the next launcher is there, which has its own.
func TestTheWorkerOutlivesTheLauncher(t *testing.T) {
	t.Parallel()
	s, web := start(t, "--reconnect-grace", "60s"), newSite(t)
	var ses two
	if code := s.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": "shop", "worker_id": "w", "task_id": "t", "create": true, "dedicated_port": true}, &ses); code != 201 {
		t.Fatalf("status %d", code)
	}
	c := clients.Start(t, clients.Playwright, ses.CDPURL, clients.Interactive)
	c.Expect(t, "connect")
	c.Do(t, act("goto", "url", web.URL+"/form"))
	evaluate(t, c, "window.typed = 'half of it'")
	c.Do(t, act("newContext"))
	c.Do(t, act("goto", "url", web.URL+"/in-a-context"))
	evaluate(t, c, "window.other = 'kept'")
	if code := s.call(t, "POST", "/v1/sessions/"+ses.SessionID+"/checkpoints", map[string]any{"lease_token": ses.Token, "name": "typed"}, nil); code >= 300 {
		t.Fatalf("checkpoint: %d", code)
	}
	var guards []int
	guard := func() int {
		t.Helper()
		eventually(t, "another guard, alone", func() error {
			now := s.guards(t)
			if len(now) != 1 || slices.Contains(guards, now[0]) {
				return fmt.Errorf("there are %v", now)
			}
			guards = append(guards, now[0])
			return nil
		})
		return guards[len(guards)-1]
	}
	if err := syscall.Kill(guard(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	guard()
	before := s.browsers(t)
	s.kill(t)
	c.Kill()
	if after := s.browsers(t); len(before) != 1 || fmt.Sprint(before) != fmt.Sprint(after) {
		t.Fatalf("browsers %v, without a launcher %v", before, after)
	}
	s.launch(t)
	guard()

	again := clients.Start(t, clients.Playwright, s.here(t, ses.CDPURL), clients.Interactive)
	again.Expect(t, "connect")
	// The pages in the browser context of the connection that ended are there,
	// too.
	for path, state := range map[string]string{"/form": "window.typed", "/in-a-context": "window.other"} {
		onPage(t, again, web.URL+path)
		want := map[string]string{"/form": "half of it", "/in-a-context": "kept"}[path]
		if got := evaluate(t, again, state); got != want {
			t.Errorf("%s is %q on %s, want %q", state, got, path, want)
		}
	}
	// A client that is gone does not delay new pages.
	again.Do(t, act("newPage"))
	again.Do(t, act("goto", "url", web.URL+"/on"))
	evaluate(t, again, "window.open('/popup', '_blank') && 1")
	if after := s.browsers(t); fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("browsers %v, then %v", before, after)
	}

	// The session's own port is the same, unless another process has taken it.
	var shown two
	if code := s.call(t, "GET", "/v1/sessions/"+ses.SessionID, nil, &shown); code != 200 || shown.Token != ses.Token {
		t.Errorf("the session: %d %+v", code, shown)
	}
	if shown.Dedicated != ses.Dedicated {
		l, err := net.Listen("tcp", strings.TrimPrefix(ses.Dedicated, "http://"))
		if err == nil {
			_ = l.Close()
			t.Errorf("its own port is %q, and was %q", shown.Dedicated, ses.Dedicated)
		}
	} else if resp, err := http.Get(ses.Dedicated + "/json/version"); err != nil {
		t.Error(err)
	} else if _ = resp.Body.Close(); resp.StatusCode != 200 {
		t.Errorf("its own port answers %s", resp.Status)
	}
	if code := s.call(t, "POST", "/v1/sessions/"+ses.SessionID+"/heartbeat", map[string]any{"lease_token": ses.Token}, nil); code != 200 {
		t.Errorf("a heartbeat with the token: %d", code)
	}
	if r := s.record(t, "shop"); r.State != lease.Held || r.Token != ses.Token || r.SessionID != ses.SessionID || r.LastSafeCheckpoint != "typed" {
		t.Errorf("%+v", r)
	}
	if code := s.call(t, "DELETE", "/v1/sessions/"+ses.SessionID, map[string]any{"lease_token": ses.Token, "outcome": "succeeded"}, nil); code != 200 {
		t.Errorf("release: %d", code)
	}
	s.until(t, "shop", lease.Available)
	eventually(t, "the history", func() error {
		if got := names(s.events(t, "shop")); got != "granted released" {
			return fmt.Errorf("it is: %s", got)
		}
		return nil
	})
	if left := s.browsers(t); len(left) != 0 {
		t.Errorf("browsers are left: %v", left)
	}
}

// pausePost makes the worker pause a POST of a page.
func pausePost(t *testing.T, s *sidecar, c *clients.Client, page string) {
	t.Helper()
	c.Do(t, act("goto", "url", page))
	c.Do(t, cdp("Fetch.enable", map[string]any{"patterns": []map[string]any{{"urlPattern": "*/api*"}}}))
	c.Do(t, act("click", "selector", "button"))
	eventually(t, "the paused request in the pipe log", func() error {
		files, _ := filepath.Glob(filepath.Join(s.Dir, "sessions", "*.ledger"))
		for _, f := range files {
			if b, _ := os.ReadFile(f); bytes.Contains(b, []byte("\npause ")) {
				return nil
			}
		}
		return fmt.Errorf("not in %v", files)
	})
}
