package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/fetch"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/remote"

	"leasehold/internal/test/clients"
	"leasehold/lease"
)

// bench is what the clients are tested on: one sidecar, a profile for each client, a
// profile that is held, and a web site.
type bench struct {
	*sidecar
	site string
}

const heldProfile = "held"

// inTurn has a client wait until the one before it has left the profile.
const inTurn = "&wait=60s"

// TestEveryClient drives each client of docs/clients.md, unchanged, through everything
// that it offers: navigation, click, evaluation, screenshot, a second context,
// interception, a download, the Lease domain, an error of the browser, the refusal of a
// held profile, and the end; older versions and the MCP servers with LEASEHOLD_CLIENTS=all
// (make clients-all). Three profiles are used by one client after the other, each
// in the browser that the one before left.
func TestEveryClient(t *testing.T) {
	t.Parallel()
	b := bench{start(t, warmly...), clientSite(t)}
	holder := clients.Start(t, clients.Playwright, b.socket(heldProfile, "worker=worker-7&task=task_101"), clients.Interactive)
	holder.Expect(t, "connect")
	domain := b.leaseDomain(t)

	type row struct {
		name, reason string
		drive        func(t *testing.T, profile string)
	}
	rows := []row{
		{"chromedp", "connection_closed", b.chromedp},
		{"go-rod", "browser_close_requested", func(t *testing.T, profile string) {
			b.program(t, profile, clients.GoRod, "")
		}},
		{"discovery by concatenation", "connection_closed", b.concatenation},
		{"page socket", "released", b.pageSocket},
		{"chrome-remote-interface by name", "text", func(t *testing.T, profile string) { b.leaseDomainByName(t, profile, domain) }},
	}
	for _, c := range scripted {
		if c.older && !everyClient() {
			continue
		}
		rows = append(rows, row{c.name, c.reason, func(t *testing.T, profile string) { b.script(t, profile, c) }})
	}
	if everyClient() { // older versions, and servers that TestABrowsersToolsAreServedWithTheLease drives
		rows = append(rows, row{"chromedp 0.14", "connection_dropped", func(t *testing.T, profile string) {
			b.program(t, profile, clients.Chromedp014, "&on_drop=release")
		}}, row{"chrome-devtools-mcp", "connection_closed", b.devtoolsMCP}, row{"playwright-mcp", "connection_dropped", b.playwrightMCP})
	}
	const profiles = 3
	t.Run("clients", func(t *testing.T) {
		for lane := range profiles {
			profile := fmt.Sprint("lane-", lane)
			if code := b.call(t, "PUT", "/v1/profiles/"+profile, map[string]any{"keep_warm": true}, nil); code != http.StatusOK {
				t.Fatalf("%s: status %d", profile, code)
			}
			t.Run(profile, func(t *testing.T) {
				t.Parallel()
				wanted := ""
				for i := lane; i < len(rows); i += profiles {
					t.Run(rows[i].name, func(t *testing.T) {
						rows[i].drive(t, profile)
						if r := b.until(t, profile, lease.Available); r.Reason != rows[i].reason {
							t.Errorf("ended by %s, want %s", r.Reason, rows[i].reason)
						}
					})
					wanted += "granted released "
				}
				// A client may ask until it is refused, and the next one while the browser is cleared; one asks a person.
				got := strings.NewReplacer("late_write ", "", "profile_lock_conflict ", "", lease.EventAsked+" ", "").Replace(names(b.events(t, profile)) + " ")
				if got != wanted {
					t.Errorf("history: %s", got)
				}
			})
		}
	})
	holder.Do(t, act("disconnect"))
	b.until(t, heldProfile, lease.Available)
}

// scripted are the clients on Node.js.
var scripted = []scriptedClient{
	{name: "playwright http", script: clients.Playwright, at: oneShotURL, pattern: "**/api", reason: "connection_closed", refusal: "profile_lock_conflict"},
	{name: "puppeteer 25 http", script: clients.Puppeteer, at: oneShotURL, reason: "browser_close_requested", end: "close", refusal: "409"},
	{name: "puppeteer 24 http", script: clients.Puppeteer, older: true, more: []string{"puppeteer-core-24"}, reason: "browser_close_requested", end: "close"},
	{name: "chrome-remote-interface", script: clients.CRI, reason: "connection_closed", lacks: []string{"upload"}},
	{name: "selenium", script: clients.Selenium, reason: "connection_dropped", lacks: []string{"newContext", "intercept", "upload"}},
}

type scriptedClient struct {
	name, script string
	// older says that another row has its latest version.
	older bool
	more  []string
	// at returns the URL of a one-shot session. It is nil for a client that keeps only
	// host and port, which gets a port of its own.
	at func(s *sidecar, profile, query string) string
	// pattern matches /api in the client's own form.
	pattern string
	lacks   []string
	// end is the action that ends the session, disconnect if empty. reason is the
	// record's reason then.
	end, reason string
	// refusal is a part of the client's error when the profile is held.
	refusal string
}

func oneShotURL(s *sidecar, profile, query string) string { return s.oneShot(profile, query) }

func (b bench) script(t *testing.T, profile string, tt scriptedClient) {
	const identity = "worker=worker-9&task=task_102"
	if tt.refusal != "" {
		c := clients.Start(t, tt.script, append([]string{tt.at(b.sidecar, heldProfile, identity), clients.Interactive}, tt.more...)...)
		if line, err := c.Next(); err != nil || line.OK || !strings.Contains(line.Error, tt.refusal) {
			t.Errorf("a held profile shows %+v, %v; want %s", line, err, tt.refusal)
		}
	}
	var at string
	switch {
	case tt.at != nil:
		at = tt.at(b.sidecar, profile, identity+inTurn)
	case tt.script == clients.Puppeteer:
		at = b.open(t, profile, map[string]any{"dedicated_port": true, "on_close": "release", "wait": "60s"}).Dedicated
	default:
		at = b.open(t, profile, map[string]any{"dedicated_port": true, "on_close": "release", "on_drop": "release", "wait": "60s"}).hostPort()
	}
	has := func(action string) bool { return !slices.Contains(tt.lacks, action) }
	c := clients.Start(t, tt.script, append([]string{at, clients.Interactive}, tt.more...)...)
	c.Expect(t, "connect")
	c.Do(t, act("goto", "url", b.site+"/form"))
	c.Do(t, act("click", "selector", "#go"))
	c.Do(t, act("evaluate", "expression", "document.cookie = 'who=worker'"))
	if got := string(c.Do(t, act("evaluate", "expression", "document.title"))); got != `"clicked"` {
		t.Errorf("title after the click: %s", got)
	}
	dir := t.TempDir()
	shot := filepath.Join(dir, "shot.png")
	c.Do(t, act("screenshot", "path", shot))
	isPicture(t, shot)
	if has("intercept") {
		pattern := "/api"
		if tt.pattern != "" {
			pattern = tt.pattern
		}
		c.Do(t, act("intercept", "pattern", pattern, "body", "intercepted"))
		if got := string(c.Do(t, act("evaluate", "expression", "fetch('/api').then((r) => r.text())"))); got != `"intercepted"` {
			t.Errorf("an intercepted request: %s", got)
		}
	}
	if has("upload") {
		b.uploads(t, c, tt.script == clients.Playwright)
	}
	report := filepath.Join(dir, "report.txt")
	c.Do(t, act("download", "selector", "#file", "path", report))
	isReport(t, report)
	b.isLease(t, profile, c.Do(t, cdpAction("Lease.getLease")))
	c.Send(t, cdpAction("Browser.crash"))
	if line, err := c.Next(); err != nil || line.OK || !strings.Contains(line.Error, "leasehold refuses Browser.crash") {
		t.Errorf("a refused command shows %+v, %v", line, err)
	}
	if tt.script == clients.Selenium {
		b.bidi(t, c)
	}
	if has("newContext") {
		c.Do(t, act("newContext"))
		c.Do(t, act("goto", "url", b.site+"/form"))
		if got := string(c.Do(t, act("evaluate", "expression", "document.cookie"))); got != `""` {
			t.Errorf("a second context has the first one's cookies: %s", got)
		}
	}
	if tt.end == "" {
		tt.end = "disconnect"
	}
	c.Do(t, act(tt.end))
	if err := c.Wait(); err != nil {
		t.Errorf("exit: %v: %s", err, c.Stderr())
	}
}

// uploads: what honest workers do with files of theirs works without a setting. A page with a document whose
// viewer is an extension of Chrome's own, which is closed to workers, is open to them.
func (b bench) uploads(t *testing.T, c *clients.Client, playwright bool) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "up load.txt")
	write(t, file, []byte("uploaded"))
	c.Do(t, clients.Action{"action": "upload", "selector": "#input", "paths": []string{file}})
	if got := string(c.Do(t, act("evaluate", "expression", "chosen()"))); got != `"up load.txt=uploaded"` {
		t.Errorf("the page got %s", got)
	}
	if !playwright {
		return
	}
	c.Do(t, act("uploadText", "selector", "#input", "name", "b.txt", "text", "from memory"))
	if got := string(c.Do(t, act("evaluate", "expression", "chosen()"))); got != `"b.txt=from memory"` {
		t.Errorf("the page got %s", got)
	}
	c.Do(t, act("goto", "url", b.site+"/paper"))
	if got := string(c.Do(t, act("evaluate", "expression", "document.title"))); got != `"paper"` {
		t.Errorf("the page with a PDF has the title %s", got)
	}
	c.Do(t, act("goto", "url", b.site+"/form"))
}

// bidi plays a session of WebDriver BiDi, which chromedriver speaks by a script in a tab of its own
// (Target.exposeDevToolsProtocol): events, navigation, evaluation, input, an interception, and a
// context of its own, which has no cookies of the first.
func (b bench) bidi(t *testing.T, c *clients.Client) {
	t.Helper()
	send := func(method string, params map[string]any, into any) {
		t.Helper()
		if got := c.Do(t, clients.Action{"action": "bidi", "method": method, "params": params}); into != nil {
			if err := json.Unmarshal(got, into); err != nil {
				t.Fatalf("%s: %s: %v", method, got, err)
			}
		}
	}
	var context struct{ Context string }
	var user struct{ UserContext string }
	send("session.subscribe", map[string]any{"events": []string{"browsingContext.load", "network.beforeRequestSent"}}, nil)
	send("browser.createUserContext", map[string]any{}, &user)
	send("browsingContext.create", map[string]any{"type": "tab", "userContext": user.UserContext}, &context)
	send("browsingContext.navigate", map[string]any{"context": context.Context, "url": b.site + "/form", "wait": "complete"}, nil)
	if seen := string(c.Do(t, act("seen", "method", "browsingContext.load"))); !strings.Contains(seen, `"context":"`) {
		t.Errorf("the event of a page that has loaded: %s", seen)
	}
	evaluate := func(expression string) string {
		t.Helper()
		var r struct{ Result struct{ Value string } }
		send("script.evaluate", map[string]any{"expression": expression, "target": map[string]any{"context": context.Context}, "awaitPromise": true}, &r)
		return r.Result.Value
	}
	if got := evaluate("document.cookie"); got != "" {
		t.Errorf("a context of BiDi has the profile's cookies: %s", got)
	}
	var found struct{ Nodes []struct{ SharedID string } }
	send("browsingContext.locateNodes", map[string]any{"context": context.Context, "locator": map[string]any{"type": "css", "value": "#go"}}, &found)
	if len(found.Nodes) != 1 {
		t.Fatalf("%+v, want one button", found)
	}
	origin := map[string]any{"type": "element", "element": map[string]any{"sharedId": found.Nodes[0].SharedID}}
	send("input.performActions", map[string]any{"context": context.Context, "actions": []any{map[string]any{"type": "pointer", "id": "mouse", "actions": []any{
		map[string]any{"type": "pointerMove", "x": 0, "y": 0, "origin": origin}, map[string]any{"type": "pointerDown", "button": 0}, map[string]any{"type": "pointerUp", "button": 0},
	}}}}, nil)
	if got := evaluate("document.title"); got != "clicked" {
		t.Errorf("title after BiDi's click: %s", got)
	}
	// It is a worker's all the same: what a worker may not do, the script may not.
	c.Send(t, clients.Action{"action": "bidi", "method": "browsingContext.navigate", "params": map[string]any{"context": context.Context, "url": "file:///etc/passwd"}})
	if line, err := c.Next(); err != nil || line.OK || !strings.Contains(line.Error, "leasehold refuses Page.navigate") {
		t.Errorf("a refused navigation shows %+v, %v", line, err)
	}
}

func cdpAction(method string) clients.Action {
	return clients.Action{"action": "cdp", "method": method}
}

func isPicture(t *testing.T, path string) {
	t.Helper()
	if b, err := os.ReadFile(path); err != nil || len(b) < 1000 || !strings.HasPrefix(string(b), "\x89PNG") {
		t.Errorf("screenshot: %d bytes, %v; want a PNG", len(b), err)
	}
}

func isReport(t *testing.T, path string) {
	t.Helper()
	if b, err := os.ReadFile(path); err != nil || string(b) != "a report" {
		t.Errorf("download: %q, %v", b, err)
	}
}

// isLease checks the answer to Lease.getLease.
func (b bench) isLease(t *testing.T, profile string, answer []byte) {
	t.Helper()
	var got struct {
		SessionID string      `json:"session_id"`
		ProfileID string      `json:"profile_id"`
		Token     lease.Token `json:"lease_token"`
	}
	if err := json.Unmarshal(answer, &got); err != nil {
		t.Fatalf("Lease.getLease: %s: %v", answer, err)
	}
	if r := b.record(t, profile); got.ProfileID != profile || got.SessionID != r.SessionID || got.Token != r.Token {
		t.Errorf("Lease.getLease: %+v, the record: %s token %d", got, r.SessionID, r.Token)
	}
}

// program drives a client with a module of its own, on a URL with more query
// parameters.
func (b bench) program(t *testing.T, profile, name, more string) {
	binary, dir := clients.Build(t, name), t.TempDir()
	refused := clients.StartProgram(t, binary, b.socket(heldProfile, "worker=worker-9&task=task_102"), b.site, dir)
	if line, err := refused.Next(); err != nil || line.OK || !strings.Contains(line.Error, "409") {
		t.Errorf("a held profile shows %+v, %v; want 409", line, err)
	}
	c := clients.StartProgram(t, binary, b.socket(profile, "worker=worker-9&task=task_102"+inTurn+more), b.site, dir)
	for _, action := range []string{"connect", "goto", "click"} {
		c.Expect(t, action)
	}
	if got := string(c.Expect(t, "evaluate")); got != `"clicked"` {
		t.Errorf("title after the click: %s", got)
	}
	c.Expect(t, "screenshot")
	isPicture(t, filepath.Join(dir, "shot.png"))
	if got := string(c.Expect(t, "intercept")); got != `"intercepted"` {
		t.Errorf("an intercepted request: %s", got)
	}
	c.Expect(t, "download")
	isReport(t, filepath.Join(dir, "report.txt"))
	if got := string(c.Expect(t, "newContext")); got != `""` {
		t.Errorf("a second context has the first one's cookies: %s", got)
	}
	b.isLease(t, profile, c.Expect(t, "lease"))
	if got := string(c.Expect(t, "refused")); !strings.Contains(got, "leasehold refuses Browser.crash") {
		t.Errorf("a refused command shows %s", got)
	}
	c.Expect(t, "close")
	if err := c.Wait(); err != nil {
		t.Errorf("exit: %v: %s", err, c.Stderr())
	}
}

// chromedp tests the version of chromedp in this module.
func (b bench) chromedp(t *testing.T, profile string) {
	// Its discovery drops path and query, so it gets the URL of the websocket.
	const identity = "worker=worker-9&task=task_102"
	connect := func(profile, more string) (context.Context, context.CancelFunc) {
		allocator, stop := remote.NewAllocator(t.Context(), b.socket(profile, identity+more), remote.WithDialTimeout(0))
		ctx, cancel := chromedp.NewContext(allocator)
		ctx, timeout := context.WithTimeout(ctx, patience)
		return ctx, func() { timeout(); cancel(); stop() }
	}
	refused, cancel := connect(heldProfile, "")
	if err := chromedp.Do(refused); err == nil || !strings.Contains(err.Error(), "409") {
		t.Errorf("a held profile shows %v, want 409", err)
	}
	cancel()

	ctx, cancel := connect(profile, inTurn)
	defer cancel()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(chromedp.Do(ctx, chromedp.Navigate(b.site+"/form"), chromedp.Click(chromedp.CSS("#go")), chromedp.WaitVisible(chromedp.CSS("#clicked"))))
	title, err := chromedp.Run(ctx, chromedp.Title())
	if check(err); title != "clicked" {
		t.Errorf("title after the click: %s", title)
	}
	// Poll runs its script in the last world of the page that the client was told of.
	_, err = chromedp.Run(ctx, chromedp.Evaluate[int]("window.ofThePage = 7"))
	check(err)
	if seven, err := chromedp.Run(ctx, chromedp.Poll[int]("window.ofThePage")); err != nil || seven != 7 {
		t.Errorf("polled %d, %v", seven, err)
	}
	dir := t.TempDir()
	picture, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	check(err)
	check(os.WriteFile(filepath.Join(dir, "shot.png"), picture, 0o600))
	isPicture(t, filepath.Join(dir, "shot.png"))
	paused := chromedp.Events(ctx, fetch.RequestPaused)
	fulfilled := make(chan error, 1)
	go func() {
		for e, err := range paused {
			if err == nil {
				_, err = chromedp.Call(ctx, fetch.FulfillRequest, fetch.FulfillRequestParams{RequestID: e.RequestID, ResponseCode: 200, Body: []byte("intercepted")})
			}
			fulfilled <- err
			return
		}
	}()
	_, err = chromedp.Call(ctx, fetch.Enable, fetch.EnableParams{Patterns: []*fetch.RequestPattern{{URLPattern: "*/api*"}}})
	check(err)
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string]("fetch('/api').then((r) => r.text())", chromedp.EvalAwaitPromise))
	check(errors.Join(err, <-fulfilled))
	if text != "intercepted" {
		t.Errorf("an intercepted request: %s", text)
	}
	progress := chromedp.Events(ctx, browser.DownloadProgress)
	announced := true
	_, err = chromedp.Call(ctx, browser.SetDownloadBehavior, browser.SetDownloadBehaviorParams{
		Behavior: browser.SetDownloadBehaviorBehaviorAllow, DownloadPath: dir, EventsEnabled: &announced,
	})
	check(errors.Join(err, chromedp.Do(ctx, chromedp.Click(chromedp.CSS("#file")))))
	for e, err := range progress {
		check(err)
		if e.State == browser.DownloadProgressStateCompleted {
			break
		}
	}
	isReport(t, filepath.Join(dir, "report.txt"))
	var got json.RawMessage
	check(chromedp.FromContext(ctx).Target.Call(ctx, "Lease.getLease", nil, &got))
	b.isLease(t, profile, got)
	if err := chromedp.FromContext(ctx).Browser.Call(ctx, browser.CommandCrash, nil, nil); err == nil || !strings.Contains(err.Error(), "leasehold refuses Browser.crash") {
		t.Errorf("a refused command shows %v", err)
	}
	second, leave := chromedp.NewContext(ctx, chromedp.WithNewBrowserContext())
	defer leave()
	check(chromedp.Do(second, chromedp.Navigate(b.site+"/form")))
	check(chromedp.Cancel(second))
	check(chromedp.Cancel(ctx))
}

// concatenation is discovery as Stagehand does it: it appends text to the base URL, and
// requests that until it is there.
func (b bench) concatenation(t *testing.T, profile string) {
	poll := func(base string) (socketURL string) {
		eventually(t, base+"/json/version", func() error {
			resp, err := http.Get(base + "/json/version")
			if err != nil {
				return err
			}
			defer func() { _ = resp.Body.Close() }()
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				return err
			}
			if resp.StatusCode != http.StatusOK {
				return fmt.Errorf("%s %s", resp.Status, body)
			}
			var v struct{ WebSocketDebuggerURL string }
			err = json.Unmarshal(body, &v)
			socketURL = v.WebSocketDebuggerURL
			return err
		})
		return socketURL
	}
	// The base URL has a query, so nothing can be appended to its path.
	first := dial(t, poll(b.oneShot(profile, "worker=worker-9&task=task_102"+inTurn)))
	first.call(t, "", "Browser.getVersion", nil, nil)
	b.isLease(t, profile, first.answer(t, first.send(t, "", "Lease.getLease", nil)).Result)
	first.close(t)
	if code, _ := first.ended(t); code != 1000 {
		t.Errorf("close code %d", code)
	}
}

// pageSocket drives a target on a websocket of its own, by each kind of URL.
func (b bench) pageSocket(t *testing.T, profile string) {
	ses := b.open(t, profile, map[string]any{"dedicated_port": true, "wait": "60s"})
	base := strings.NewReplacer("ws:", "http:", "/devtools/browser/"+profile, "").Replace(ses.CDPURL)
	for _, at := range []string{base, ses.Dedicated, b.URL + "/profiles/" + profile} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, at+"/json/new?worker=worker-7&task=task_1&"+b.site+"/form", nil)
		if at == ses.Dedicated {
			req, err = http.NewRequestWithContext(t.Context(), http.MethodPut, at+"/json/new?"+b.site+"/form", nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var target struct{ ID, WebSocketDebuggerURL string }
		err = errors.Join(json.NewDecoder(resp.Body).Decode(&target), resp.Body.Close())
		if err != nil || target.WebSocketDebuggerURL == "" {
			t.Fatalf("%s/json/new: %s %v", at, resp.Status, err)
		}
		c := dial(t, target.WebSocketDebuggerURL)
		c.call(t, "", "Page.enable", nil, nil)
		// It answers when the page has replaced the one that json/new still loads.
		c.call(t, "", "Page.navigate", map[string]any{"url": b.site + "/form"}, nil)
		eventually(t, at+": the page is loaded", func() error {
			if got := c.evaluate(t, "", "document.title"); got != `"form"` {
				return fmt.Errorf("title %s", got)
			}
			return nil
		})
		c.event(t, "Page.loadEventFired", nil)
		b.isLease(t, profile, c.answer(t, c.send(t, "", "Lease.getLease", nil)).Result)
		c.close(t)
		if code, _ := c.ended(t); code != 1000 {
			t.Errorf("%s: close code %d", at, code)
		}
	}
	if code := b.call(t, "DELETE", "/v1/sessions/"+ses.SessionID, map[string]any{"lease_token": ses.Token, "outcome": "succeeded"}, nil); code != http.StatusOK {
		t.Errorf("release: status %d", code)
	}
}

// devtoolsMCP drives chrome-devtools-mcp as an agent does.
func (b bench) devtoolsMCP(t *testing.T, profile string) {
	server := func(profile, more string) *clients.Client {
		c := clients.Start(t, clients.MCP, "chrome-devtools-mcp", clients.Interactive, "--no-usage-statistics",
			"--wsEndpoint", b.socket(profile, "worker=worker-9&task=task_102"+more))
		c.Expect(t, "connect")
		return c
	}
	refused := server(heldProfile, "")
	refused.Send(t, tool("list_pages", nil))
	if line, err := refused.Next(); err != nil || line.OK || !strings.Contains(line.Error, "409") {
		t.Errorf("a held profile shows %+v, %v; want 409", line, err)
	}
	c := server(profile, inTurn)
	c.Do(t, tool("navigate_page", map[string]any{"pageId": 1, "type": "url", "url": b.site + "/form"}))
	page := string(c.Do(t, tool("take_snapshot", map[string]any{"pageId": 1})))
	c.Do(t, tool("click", map[string]any{"pageId": 1, "uid": reference(t, page, `uid=(\S+) button`)}))
	if got := string(c.Do(t, tool("evaluate_script", map[string]any{"pageId": 1, "function": "() => document.title"}))); !strings.Contains(got, "clicked") {
		t.Errorf("title after the click: %s", got)
	}
	shot := filepath.Join(t.TempDir(), "shot.png")
	c.Do(t, tool("take_screenshot", map[string]any{"pageId": 1, "filePath": shot}))
	isPicture(t, shot)
	c.Do(t, tool("new_page", map[string]any{"url": b.site + "/form", "isolatedContext": "second"}))
	c.Send(t, tool("evaluate_script", map[string]any{"pageId": 1, "function": "() => { throw new Error('of the page') }"}))
	if line, err := c.Next(); err != nil || line.OK || !strings.Contains(line.Error, "of the page") {
		t.Errorf("an error of the page shows %+v, %v", line, err)
	}
	c.Do(t, act("disconnect"))
}

// playwrightMCP drives @playwright/mcp as an agent does.
func (b bench) playwrightMCP(t *testing.T, profile string) {
	dir := t.TempDir()
	server := func(profile, more string) *clients.Client {
		// It ends without a close handshake.
		c := clients.Start(t, clients.MCP, "playwright-mcp", clients.Interactive, "--output-dir", dir,
			"--cdp-endpoint", b.oneShot(profile, "worker=worker-9&task=task_102&on_drop=release"+more))
		c.Expect(t, "connect")
		return c
	}
	refused := server(heldProfile, "")
	refused.Send(t, tool("browser_navigate", map[string]any{"url": b.site + "/form"}))
	if line, err := refused.Next(); err != nil || line.OK || !strings.Contains(line.Error, "profile_lock_conflict") {
		t.Errorf("a held profile shows %+v, %v; want profile_lock_conflict", line, err)
	}
	c := server(profile, inTurn)
	c.Do(t, tool("browser_navigate", map[string]any{"url": b.site + "/form"}))
	page := string(c.Do(t, tool("browser_snapshot", nil)))
	ref := reference(t, page, `button .*?\[ref=(\w+)\]`)
	c.Do(t, tool("browser_click", map[string]any{"element": "go", "ref": ref, "target": ref}))
	if got := string(c.Do(t, tool("browser_evaluate", map[string]any{"function": "() => document.title"}))); !strings.Contains(got, "clicked") {
		t.Errorf("title after the click: %s", got)
	}
	shot := filepath.Join(dir, "shot.png")
	c.Do(t, tool("browser_take_screenshot", map[string]any{"filename": shot}))
	isPicture(t, shot)
	c.Send(t, tool("browser_navigate", map[string]any{"url": "http://127.0.0.1:1/"}))
	if line, err := c.Next(); err != nil || line.OK || !strings.Contains(line.Error, "ERR_") {
		t.Errorf("a page that is not there shows %+v, %v", line, err)
	}
	c.Do(t, act("disconnect"))
}

func tool(name string, arguments map[string]any) clients.Action {
	a := clients.Action{"action": "call", "tool": name}
	if arguments != nil {
		a["arguments"] = arguments
	}
	return a
}

// reference returns the snapshot's name of the element that matches the pattern.
func reference(t *testing.T, snapshot, pattern string) string {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(snapshot)
	if m == nil {
		t.Fatalf("no %s in the snapshot: %s", pattern, snapshot)
	}
	return m[1]
}
