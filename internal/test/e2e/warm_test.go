package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"leasehold/internal/test/clients"
	"leasehold/lease"
)

// warmClosed returns how many warm browsers were closed for the reason.
func (s *sidecar) warmClosed(t *testing.T, why string) string {
	t.Helper()
	return s.metric(t, fmt.Sprintf(`leasehold_warm_closes_total{why=%q}`, why))
}

// warm waits until the profile's browser is warm, and returns its pid.
func (s *sidecar) warm(t *testing.T, profile string) int {
	t.Helper()
	eventually(t, profile+" to be warm", func() error {
		if r := s.record(t, profile); r.State != lease.Available || r.WarmSince.IsZero() {
			return fmt.Errorf("it is %s, warm since %v", r.State, r.WarmSince)
		}
		return nil
	})
	return s.anyBrowserOf(t, profile)
}

// cold waits until the profile has no browser.
func (s *sidecar) cold(t *testing.T, profile string) {
	t.Helper()
	eventually(t, profile+" to have no browser", func() error {
		if r := s.record(t, profile); !r.WarmSince.IsZero() || s.anyBrowserOf(t, profile) != 0 {
			return fmt.Errorf("pid %d, warm since %v", s.anyBrowserOf(t, profile), r.WarmSince)
		}
		return nil
	})
}

// anyBrowserOf returns the pid of the profile's only browser, or 0.
func (s *sidecar) anyBrowserOf(t *testing.T, profile string) int {
	t.Helper()
	found := 0
	for _, pid := range s.browsers(t) {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil && strings.Contains(string(line), "--user-data-dir="+filepath.Join(s.Dir, "profiles", profile)+"\x00") {
			if found != 0 {
				t.Fatalf("two browsers on %s: %d and %d", profile, found, pid)
			}
			found = pid
		}
	}
	return found
}

// leave opens a session on the profile, and ends it in order.
func (s *sidecar) leave(t *testing.T, profile, query string) {
	t.Helper()
	c := dial(t, s.socket(profile, "worker=w&wait=60s&"+query))
	c.call(t, "", "Browser.getVersion", nil, nil)
	c.call(t, "", "Lease.release", map[string]any{"outcome": "succeeded"}, nil)
	c.ended(t)
	c.drop()
}

// wantKept is the result of kept after keep with round 1.
const wantKept = `"persistent=1, session=1, localStorage=1, indexedDB=1"`

// warmly keeps browsers warm even if memory is short, since the tests' machine is
// shared.
var warmly = []string{"--keep-warm-min-memory", "0", "--lease-ttl", "60s"}

// TestTheNextTaskGetsTheWarmBrowser: one task stores a value in each kind of storage,
// leaves several things open, and releases. The next task gets the same browser with
// the values, and nothing else of the first task.
func TestTheNextTaskGetsTheWarmBrowser(t *testing.T) {
	t.Parallel()
	s, web := start(t, warmly...), newSite(t)
	if out, errs, code := s.cli(t, "profiles", "create", "shop", "--account", "store-18", "--keep-warm"); code != 0 {
		t.Fatalf("%s %s", out, errs)
	}
	var ses two
	if code := s.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": "shop", "worker_id": "w", "task_id": "t1"}, &ses); code != 201 {
		t.Fatalf("status %d", code)
	}
	c := clients.Start(t, clients.Playwright, ses.CDPURL, clients.Interactive)
	c.Expect(t, "connect")
	c.Do(t, act("goto", "url", web.URL+"/"))
	c.Do(t, act("evaluate", "expression", fmt.Sprintf(keep, 1)))
	raw := dial(t, ses.CDPURL)
	raw.call(t, "", "Browser.grantPermissions", map[string]any{"origin": web.URL, "permissions": []string{"geolocation", "notifications"}}, nil)
	const allowed = "navigator.permissions.query({name: 'geolocation'}).then((p) => p.state)"
	if got := string(c.Do(t, act("evaluate", "expression", allowed))); got != `"granted"` {
		t.Errorf("geolocation is %s, and was granted", got)
	}

	// Things that keep a page from closing: a beforeunload question, a script that does
	// not return, and a request that the worker paused.
	c.Do(t, act("newPage"))
	c.Do(t, act("goto", "url", web.URL+"/asks"))
	evaluate(t, c, "window.onbeforeunload = (e) => { e.preventDefault(); return 'stay' }")
	c.Do(t, act("click", "selector", "h1"))
	c.Do(t, act("newPage"))
	pausePost(t, s, c, web.URL+"/cart")
	c.Do(t, act("newContext"))
	c.Do(t, act("goto", "url", web.URL+"/in-a-context"))
	evaluate(t, c, "document.cookie = 'other=1; max-age=86400'")
	c.Do(t, act("newPage"))
	c.Do(t, act("goto", "url", web.URL+"/busy"))
	var made struct{ BrowserContextID string }
	raw.call(t, "", "Target.createBrowserContext", map[string]any{"disposeOnDetach": false}, &made)
	raw.page(t, web.URL+"/in-another", made.BrowserContextID)
	evaluate(t, c, "setTimeout(() => { for (;;); }, 50) && 1")

	pid := s.browserOf(t, "shop")
	if code := s.call(t, "DELETE", "/v1/sessions/"+ses.SessionID, map[string]any{"lease_token": ses.Token, "outcome": "succeeded"}, nil); code != 200 {
		t.Fatalf("release: %d", code)
	}
	c.Kill()
	raw.drop()
	if now := s.warm(t, "shop"); now != pid || pid == 0 {
		t.Fatalf("browser %d, and %d after the release", pid, now)
	}
	first := s.record(t, "shop")
	if b, _ := s.screenshot(t, "shop"); len(b.Items) != 1 || b.Items[0].EvidenceID != first.EvidenceID || b.Items[0].Token != ses.Token {
		t.Errorf("evidence of the release: %+v", b.Items)
	}
	if out, _, _ := s.cli(t, "profiles"); !strings.Contains(out, "available (warm)") {
		t.Errorf("profiles: %s", out)
	}
	if out, _, _ := s.cli(t, "show", "shop"); !strings.Contains(out, "warm since") {
		t.Errorf("show: %s", out)
	}
	if s.metric(t, "leasehold_browsers_warm") != "1" || s.metric(t, "leasehold_browsers") != "1" {
		t.Error("the metrics do not show it")
	}
	var problem map[string]any
	old, _, _ := strings.Cut(strings.TrimPrefix(strings.Replace(ses.CDPURL, "ws", "http", 1), s.URL), "/devtools/")
	if code := s.call(t, "GET", old+"/json/list", nil, &problem); code != 410 || problem["code"] != "session_ended" {
		t.Errorf("the old capability: %d %v", code, problem)
	}
	if code := s.call(t, "POST", "/v1/sessions/"+ses.SessionID+"/steps", map[string]any{"lease_token": ses.Token, "name": "late"}, &problem); code != 410 {
		t.Errorf("a late write: %d %v", code, problem)
	}

	next := clients.Start(t, clients.Playwright, s.oneShot("shop", "worker=w&task=t2"), clients.Interactive)
	next.Expect(t, "connect")
	if now := s.browserOf(t, "shop"); now != pid {
		t.Errorf("browser %d, then %d", pid, now)
	}
	if r := s.record(t, "shop"); r.Token <= first.Token || r.State != lease.Held || r.TaskID != "t2" || !r.WarmSince.IsZero() {
		t.Errorf("%+v", r)
	}
	var pages []string
	if err := json.Unmarshal(next.Do(t, act("pages")), &pages); err != nil || !slices.Equal(pages, []string{"about:blank"}) {
		t.Errorf("the next task finds the pages %q (%v)", pages, err)
	}
	both := dial(t, s.socket("shop", "worker=w&task=t2"))
	var contexts struct{ BrowserContextIDs []string }
	both.call(t, "", "Target.getBrowserContexts", nil, &contexts)
	if len(contexts.BrowserContextIDs) != 0 {
		t.Errorf("contexts are left: %v", contexts.BrowserContextIDs)
	}
	both.close(t)
	next.Do(t, act("goto", "url", web.URL+"/"))
	if found := string(next.Do(t, act("evaluate", "expression", kept))); found != wantKept {
		t.Errorf("the next task finds %s, want %s", found, wantKept)
	}
	if got := string(next.Do(t, act("evaluate", "expression", allowed))); got == `"granted"` {
		t.Errorf("what the task before was granted is left: geolocation is %s", got)
	}
	if n := web.Posts.Load(); n != 0 {
		t.Errorf("%d POSTs were sent that nobody was to send", n)
	}
	next.Do(t, act("disconnect"))
	s.warm(t, "shop")
	b, _ := s.screenshot(t, "shop")
	for _, name := range []string{"network.json", "journal.jsonl"} {
		var part []byte
		if code := s.call(t, "GET", "/v1/evidence/"+b.Items[0].EvidenceID+"/"+name, nil, &part); code != 200 || strings.Contains(string(part), "/cart") || !strings.Contains(string(part), web.URL) {
			t.Errorf("%s of the second session: %d %s", name, code, part)
		}
	}
	// Commands that a client still sends while it is cut off are reported as late
	// writes.
	if got, want := strings.ReplaceAll(names(s.events(t, "shop")), "late_write ", ""), "granted released granted released"; got != want {
		t.Errorf("events %s, want %s", got, want)
	}

	// From now on the profile's setting forbids it.
	if code := s.call(t, "PUT", "/v1/profiles/shop", map[string]any{"keep_warm": false}, nil); code != 200 || s.warmClosed(t, "setting") != "1" {
		t.Errorf("keep_warm=false: %d, %s closed", code, s.warmClosed(t, "setting"))
	}
	s.leave(t, "shop", "task=t3&keep_warm=true")
	s.until(t, "shop", lease.Available)
	s.cold(t, "shop")
}

// TestWarmBrowsersAreClosed goes through the reasons for which a warm browser is
// closed. Each time it closes in order.
func TestWarmBrowsersAreClosed(t *testing.T) {
	t.Parallel()
	s := start(t, append(warmly, "--keep-warm-max", "2", "--max-browsers", "3", "--keep-warm-idle", "1h")...)
	web := newSite(t)
	const warm = "keep_warm=true&task="
	closed := func(why string, want int) {
		t.Helper()
		eventually(t, "the count of what was closed", func() error {
			if got := s.warmClosed(t, why); got != fmt.Sprint(want) {
				return fmt.Errorf("%s for %s, want %d", got, why, want)
			}
			return nil
		})
	}
	s.leave(t, "a", warm+"1")
	a := s.warm(t, "a")
	// Another task needs different browser arguments.
	for i, query := range []string{"chrome_args=--lang=de", "headless=true&chrome_args=--lang=de,--mute-audio", "account_id=x&chrome_args=--lang=de,--mute-audio", "session_cookies=drop&account_id=x&chrome_args=--lang=de,--mute-audio"} {
		s.leave(t, "a", fmt.Sprintf("%s%d&%s", warm, i+2, query))
		closed("mismatch", i+1)
	}
	s.until(t, "a", lease.Available)
	s.cold(t, "a") // the last task dropped its cookies
	s.leave(t, "a", warm+"9&account_id=x")
	if now := s.warm(t, "a"); now == a || now == 0 {
		t.Errorf("browser %d, then %d", a, now)
	}
	// A task may forbid it.
	s.leave(t, "a", "task=no")
	s.until(t, "a", lease.Available)
	s.cold(t, "a")

	// At most two stay warm, and the one that has been warm the longest is closed.
	for _, profile := range []string{"a", "b", "c"} {
		s.leave(t, profile, warm+profile)
		s.warm(t, profile)
	}
	s.cold(t, "a")
	closed("limit", 1)
	// Warm browsers give up their places to sessions. With one more session there are
	// three browsers.
	var one, two, full map[string]any
	if code := s.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": "d", "create": true}, &one); code != 201 {
		t.Fatalf("%d %v", code, one)
	}
	if code := s.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": "e", "create": true}, &two); code != 201 {
		t.Fatalf("%d %v", code, two)
	}
	s.cold(t, "b")
	closed("place_needed", 1)
	// The next task of the profile takes its warm browser, and then all places are
	// taken.
	c := s.browserOf(t, "c")
	var third map[string]any
	if code := s.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": "c", "task_id": "next"}, &third); code != 201 || s.browserOf(t, "c") != c {
		t.Fatalf("%d %v, browser %d then %d", code, third, c, s.browserOf(t, "c"))
	}
	if code := s.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": "f", "create": true}, &full); code != 429 {
		t.Errorf("with all places taken: %d %v", code, full)
	}
	for _, ses := range []map[string]any{one, two, third} {
		if code := s.call(t, "DELETE", fmt.Sprint("/v1/sessions/", ses["session_id"]), map[string]any{"lease_token": ses["lease_token"], "outcome": "succeeded"}, nil); code != 200 {
			t.Errorf("release: %d", code)
		}
	}

	// A command on the profile itself closes its warm browser first.
	s.leave(t, "b", warm+"clone")
	s.warm(t, "b")
	if out, errs, code := s.cli(t, "profiles", "clone", "b", "--to", "copy"); code != 0 {
		t.Errorf("clone: %s %s", out, errs)
	}
	s.cold(t, "b")

	// No cookie is lost when a warm browser ends by itself, although Chrome had not
	// written them yet.
	on := func(task, expression string) string {
		t.Helper()
		c := dial(t, s.socket("b", "worker=w&wait=60s&"+warm+task))
		session, _ := c.visit(t, web.URL+"/")
		found := c.evaluate(t, session, expression)
		// A page never carries out what comes after a dialog.
		c.evaluate(t, session, "setTimeout(() => { alert('still there?'); fetch('/api', {method: 'POST'}) }, 0)")
		c.call(t, "", "Lease.release", map[string]any{"outcome": "succeeded"}, nil)
		c.ended(t)
		c.drop()
		return found
	}
	on("crash", fmt.Sprintf(keep, 7))
	kill(t, s.warm(t, "b"))
	s.cold(t, "b")
	closed("browser_gone", 1)
	if r := s.record(t, "b"); r.State != lease.Available {
		t.Errorf("%+v", r)
	}
	if got, want := on("after", "document.cookie.split('; ').sort().join()"), `"persistent=7,session=7"`; got != want {
		t.Errorf("after the crash: %s, want %s", got, want)
	}
	s.warm(t, "b")
	if n := web.Posts.Load(); n != 0 {
		t.Errorf("%d POSTs were sent from behind a dialog", n)
	}
	s.leave(t, "c", warm+"after")
	s.warm(t, "c")
	s.stop(t)
	if left := s.browsers(t); len(left) != 0 {
		t.Errorf("browsers are left: %v", left)
	}
	for _, profile := range []string{"b", "c"} {
		prefs := filepath.Join(s.Dir, "profiles", profile, "Default", "Preferences")
		if b, err := os.ReadFile(prefs); err != nil || !strings.Contains(string(b), `"exit_type":"Normal"`) {
			t.Errorf("%s did not close in order: %v", profile, err)
		}
	}
}

// TestWarmBrowsersDoNotLast: a warm browser that hangs is not given to the next task.
// Warm browsers are closed after their time, and while memory is short none stays open.
func TestWarmBrowsersDoNotLast(t *testing.T) {
	t.Parallel()
	t.Run("hung", func(t *testing.T) {
		t.Parallel()
		s := start(t, warmly...)
		s.leave(t, "a", "keep_warm=true&task=1")
		pid := s.warm(t, "a")
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		s.leave(t, "a", "task=2")
		if r := s.until(t, "a", lease.Available); r.TaskID != "2" || s.warmClosed(t, "hung") != "1" || slices.Contains(s.browsers(t), pid) {
			t.Errorf("%+v, %s closed, browsers %v", r, s.warmClosed(t, "hung"), s.browsers(t))
		}
	})
	t.Run("idle", func(t *testing.T) {
		t.Parallel()
		s := start(t, append(warmly, "--keep-warm-idle", "3s")...)
		s.leave(t, "a", "keep_warm=true&task=1")
		eventually(t, "the browser's end", func() error {
			if s.warmClosed(t, "idle") != "1" || len(s.browsers(t)) != 0 {
				return errors.New("it lives")
			}
			return nil
		})
	})
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		s := start(t, "--keep-warm-min-memory", "4000TiB")
		s.leave(t, "a", "keep_warm=true&task=1")
		s.until(t, "a", lease.Available)
		s.cold(t, "a")
	})
}

// TestAWarmBrowserOfALauncherThatWasKilled: the next launcher or the guard closes the
// browser in order, and the profile is as it was released.
func TestAWarmBrowserOfALauncherThatWasKilled(t *testing.T) {
	t.Parallel()
	s, web := start(t, append(warmly, "--orphan-timeout", "1s")...), newSite(t)
	leave := func(task string) int {
		t.Helper()
		c := clients.Start(t, clients.Playwright, s.oneShot("shop", "keep_warm=true&wait=60s&worker=w&task="+task), clients.Interactive)
		c.Expect(t, "connect")
		c.Do(t, act("goto", "url", web.URL+"/"))
		if found := string(c.Do(t, act("evaluate", "expression", kept))); task != "1" && found != wantKept {
			t.Errorf("task %s finds %s", task, found)
		}
		if task == "1" {
			c.Do(t, act("evaluate", "expression", fmt.Sprintf(keep, 1)))
		}
		c.Do(t, act("disconnect"))
		return s.warm(t, "shop")
	}
	clean := func() {
		t.Helper()
		eventually(t, "the browser's end", func() error {
			if left := s.browsers(t); len(left) != 0 {
				return fmt.Errorf("it lives: %v", left)
			}
			return nil
		})
		prefs := filepath.Join(s.Dir, "profiles", "shop", "Default", "Preferences")
		if b, err := os.ReadFile(prefs); err != nil || !strings.Contains(string(b), `"exit_type":"Normal"`) {
			t.Errorf("it did not close in order: %v", err)
		}
	}
	leave("1")
	s.kill(t)
	clean() // the guard has closed it
	s.launch(t)
	pid := leave("2")
	s.kill(t)
	s.launch(t)
	// Without a wait: the next task waits until the browser that was left is closed.
	if now := leave("3"); now == pid {
		t.Errorf("browser %d, then %d", pid, now)
	}
	if got, want := strings.ReplaceAll(names(s.events(t, "shop")), "profile_lock_conflict ", ""), "granted released granted released granted released"; got != want {
		t.Errorf("events %s, want %s", got, want)
	}
	var bundles struct{ Items []any }
	if s.call(t, "GET", "/v1/profiles/shop/evidence", nil, &bundles); len(bundles.Items) != 3 {
		t.Errorf("%d bundles, want one of each release", len(bundles.Items))
	}
	s.stop(t)
	clean()
}
