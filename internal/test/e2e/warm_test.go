package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"leasehold/internal/test/clients"
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

// wantKept is the result of kept after keep with round 1.
const wantKept = `"persistent=1, session=1, localStorage=1, indexedDB=1"`

// warmly keeps browsers warm even if memory is short, since the tests' machine is
// shared.
var warmly = []string{"--keep-warm-min-memory", "0"}

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
}

// whatPagesSee is what a page can read of a browser, and what its server is sent.
const whatPagesSee = `(async () => {
	const granted = async (name) => (await navigator.permissions.query({name})).state;
	const read = async (path) => (await fetch(path)).text().catch(String);
	return JSON.stringify({
		agent: navigator.userAgent, platform: navigator.platform, languages: navigator.languages, cores: navigator.hardwareConcurrency,
		touch: navigator.maxTouchPoints, zone: Intl.DateTimeFormat().resolvedOptions().timeZone, locale: (1234.5).toLocaleString(),
		view: [innerWidth, innerHeight, devicePixelRatio], screen: [screen.width, screen.height, screen.isExtended],
		scheme: matchMedia('(prefers-color-scheme: dark)').matches, motion: matchMedia('(prefers-reduced-motion: reduce)').matches,
		print: matchMedia('print').matches, online: navigator.onLine, gpc: String(navigator.globalPrivacyControl),
		left: String(globalThis.left), binding: typeof globalThis.told, cookies: navigator.cookieEnabled,
		geolocation: await granted('geolocation'), notifications: await granted('notifications'),
		font: getComputedStyle(document.body).fontFamily + getComputedStyle(document.body).fontSize + document.querySelector('p').offsetHeight,
		inline: (() => {
			document.body.append(Object.assign(document.createElement('script'), {textContent: 'globalThis.ran = 1'}));
			return String(globalThis.ran);
		})(),
		blocked: await read('/blocked').catch(String), headers: await read('/headers').catch(String),
	})})()`

// TestAWarmBrowserIsLikeANewOne: a page reads the same in a browser that was just started and in
// one in which the task before had set all that it can for a connection or a page. (A browser in
// which a task set what stays is not handed on: cdpproxy.TestWhatABrowserKeepsIsNoted.)
func TestAWarmBrowserIsLikeANewOne(t *testing.T) {
	t.Parallel()
	s := start(t, warmly...)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/headers" {
			_ = json.NewEncoder(w).Encode([]string{r.Header.Get("X-Left"), r.UserAgent(), r.Header.Get("Accept-Language"), r.Header.Get("Cache-Control")})
			return
		}
		w.Header().Set("Content-Type", "text/html")
		w.Header().Set("Content-Security-Policy", "script-src 'self'")
		_, _ = io.WriteString(w, "<!doctype html><p>text</p>")
	}))
	t.Cleanup(web.Close)
	see := func(c *socket) string {
		session, _ := c.visit(t, web.URL+"/")
		return c.evaluate(t, session, whatPagesSee)
	}
	open := func(task string) *socket {
		return dial(t, s.socket("a", "worker=w&wait=60s&keep_warm=true&task="+task))
	}
	release := func(c *socket) {
		c.call(t, "", "Lease.release", map[string]any{"outcome": "succeeded"}, nil)
		c.ended(t)
		c.drop()
	}
	c := open("1")
	before := see(c)
	session, _ := c.visit(t, web.URL+"/")
	for _, set := range []struct {
		session, method string
		params          map[string]any
	}{
		{"", "Browser.grantPermissions", map[string]any{"permissions": []string{"geolocation", "notifications"}}},
		{"", "Browser.setPermission", map[string]any{"permission": map[string]string{"name": "geolocation"}, "setting": "granted", "origin": web.URL}},
		{session, "Emulation.setUserAgentOverride", map[string]any{"userAgent": "left", "acceptLanguage": "de", "platform": "left"}},
		{session, "Emulation.setLocaleOverride", map[string]any{"locale": "de-DE"}},
		{session, "Emulation.setTimezoneOverride", map[string]any{"timezoneId": "Asia/Tokyo"}},
		{session, "Emulation.setHardwareConcurrencyOverride", map[string]any{"hardwareConcurrency": 3}},
		{session, "Emulation.setGeolocationOverride", map[string]any{"latitude": 1, "longitude": 1, "accuracy": 1}},
		{session, "Emulation.setDeviceMetricsOverride", map[string]any{"width": 333, "height": 444, "deviceScaleFactor": 3, "mobile": true}},
		{session, "Emulation.setTouchEmulationEnabled", map[string]any{"enabled": true, "maxTouchPoints": 5}},
		{session, "Emulation.setEmulatedMedia", map[string]any{"media": "print", "features": []any{map[string]string{"name": "prefers-color-scheme", "value": "dark"}, map[string]string{"name": "prefers-reduced-motion", "value": "reduce"}}}},
		{session, "Emulation.setDocumentCookieDisabled", map[string]any{"disabled": true}},
		{session, "Network.enable", nil},
		{session, "Network.setExtraHTTPHeaders", map[string]any{"headers": map[string]string{"X-Left": "left"}}},
		{session, "Network.setBlockedURLs", map[string]any{"urls": []string{"*blocked*"}}},
		{session, "Network.setCacheDisabled", map[string]any{"cacheDisabled": true}},
		{session, "Network.emulateNetworkConditions", map[string]any{"offline": true, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}},
		{session, "Page.setBypassCSP", map[string]any{"enabled": true}},
		{session, "Page.setFontFamilies", map[string]any{"fontFamilies": map[string]string{"standard": "Monospace"}}},
		{session, "Page.setFontSizes", map[string]any{"fontSizes": map[string]int{"standard": 40}}},
		{session, "Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": "globalThis.left = 1", "runImmediately": true}},
		{session, "Runtime.addBinding", map[string]any{"name": "told"}},
		{session, "Emulation.setScriptExecutionDisabled", map[string]any{"value": true}},
	} {
		c.call(t, set.session, set.method, set.params, nil)
	}
	release(c)
	warm := s.warm(t, "a")
	c = open("2")
	if after := see(c); after != before || s.anyBrowserOf(t, "a") != warm {
		t.Errorf("a page reads in the warm browser\n%s\nand in a new one\n%s", after, before)
	}
	release(c)
}
