package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"leasehold/internal/test/clients"
	"leasehold/launcher/chrome"
	"leasehold/lease"
)

// byFlow has Lighthouse audit a page, and then a visit.
func byFlow(t *testing.T, c *clients.Client, shop *shop, picture string) (before, after string) {
	audit(t, c, shop)
	before = asText(c.Do(t, act("flowLoad", "url", shop.URL+"/order")))
	after = asText(c.Do(t, act("flowSubmit", "field", "#name", "text", "Ada", "button", "#send")))
	var flow struct {
		Modes, Failed []string
		Pictured      bool
	}
	raw := c.Do(t, act("flowResult"))
	if err := json.Unmarshal(raw, &flow); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(flow.Modes, []string{"navigation", "timespan", "snapshot"}) || !flow.Pictured {
		t.Errorf("flow: %s", raw)
	}
	wantFailedAudits(t, flow.Failed)
	c.Do(t, act("screenshot", "path", picture))
	return before, after
}

// audit has Lighthouse audit the page with the form.
func audit(t *testing.T, c *clients.Client, shop *shop) {
	t.Helper()
	var result struct {
		Final  string
		Scores map[string]*float64
		Failed []string
	}
	if err := json.Unmarshal(c.Do(t, act("audit", "url", shop.URL+"/order")), &result); err != nil {
		t.Fatal(err)
	}
	if result.Final != shop.URL+"/order" || len(result.Scores) != 4 {
		t.Errorf("audit of %s: %v", result.Final, result.Scores)
	}
	for category, score := range result.Scores {
		if score == nil && category != "performance" {
			t.Errorf("no score for %s", category)
		}
	}
	wantFailedAudits(t, result.Failed)
}

// auditsByItself has Lighthouse connect by itself, which takes a port only.
func auditsByItself(t *testing.T, s *sidecar, shop *shop) {
	const profile = "lighthouse-port"
	ses := s.open(t, profile, map[string]any{"dedicated_port": true, "on_close": "release", "heartbeat": "explicit"})
	defer s.beat(t, profile)()
	c := clients.Start(t, clients.Lighthouse, ses.Dedicated, clients.Interactive)
	c.Expect(t, "connect")
	audit(t, c, shop)
	if r := s.until(t, profile, lease.Available); r.Reason != "connection_closed" {
		t.Errorf("ended by %s, want connection_closed", r.Reason)
	}
	c.Do(t, act("disconnect"))
	if err := c.Wait(); err != nil {
		t.Errorf("exit: %v: %s", err, c.Stderr())
	}
}

// wantFailedAudits checks that no audit failed but those that are known to.
func wantFailedAudits(t *testing.T, failed []string) {
	t.Helper()
	for _, one := range failed {
		audit, _, _ := strings.Cut(one, ":")
		switch {
		case audit == "bf-cache" && strings.Contains(one, "leasehold refuses Page.navigate"):
			// It opens chrome://terms, which is a page of Chrome's own.
		case strings.HasSuffix(one, "is not a function") || strings.HasSuffix(one, "its return value is not iterable"):
			// It calls what Node.js has since version 22.
		default:
			t.Errorf("an audit failed: %s", one)
		}
	}
}

func byDevToolsMCP(t *testing.T, c *clients.Client, shop *shop, picture string) (before, after string) {
	onPage := func(name string, more ...string) clients.Action {
		arguments := map[string]any{"pageId": 1}
		for i := 0; i < len(more); i += 2 {
			arguments[more[i]] = more[i+1]
		}
		return tool(name, arguments)
	}
	c.Do(t, onPage("navigate_page", "type", "url", "url", shop.URL+"/order"))
	before = asText(c.Do(t, onPage("take_snapshot")))
	c.Do(t, onPage("fill", "uid", reference(t, before, `uid=(\S+) textbox "Your name"`), "value", "Ada"))
	c.Do(t, onPage("click", "uid", reference(t, before, `uid=(\S+) button "Send order"`)))
	after = thanked(t, c, onPage("take_snapshot"))
	c.Do(t, onPage("take_screenshot", "filePath", picture))
	return before, after
}

func byPlaywrightMCP(t *testing.T, c *clients.Client, shop *shop, picture string) (before, after string) {
	c.Do(t, tool("browser_navigate", map[string]any{"url": shop.URL + "/order"}))
	before = asText(c.Do(t, tool("browser_snapshot", nil)))
	field, button := reference(t, before, `textbox "Your name".*?\[ref=(\w+)\]`), reference(t, before, `button "Send order".*?\[ref=(\w+)\]`)
	c.Do(t, tool("browser_type", map[string]any{"element": "Your name", "ref": field, "target": field, "text": "Ada"}))
	c.Do(t, tool("browser_click", map[string]any{"element": "Send order", "ref": button, "target": button}))
	after = thanked(t, c, tool("browser_snapshot", nil))
	// It writes below its own folder only.
	own := filepath.Join(shop.dir, "page.png")
	c.Do(t, tool("browser_take_screenshot", map[string]any{"filename": own}))
	if b, err := os.ReadFile(own); err != nil || os.WriteFile(picture, b, 0o600) != nil {
		t.Errorf("no picture: %v", err)
	}
	return before, after
}

// devToolsWatch opens Chrome's developer tools on a page of a session, in a Chromium of their
// own. They show what the page shows, also when a worker changes it, and the session's end.
func devToolsWatch(t *testing.T, s *sidecar, shop *shop, frontend string) {
	chromium, err := chrome.Find("")
	if err != nil {
		t.Fatal(err)
	}
	c := clients.Start(t, clients.DevTools, chromium, clients.Interactive, t.TempDir())
	c.Expect(t, "connect")
	profile := "devtools-" + frontend
	ses := s.open(t, profile, map[string]any{"heartbeat": "explicit"})
	defer s.beat(t, profile)()
	base := strings.NewReplacer("ws:", "http:", "/devtools/browser/"+profile, "").Replace(ses.CDPURL)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, base+"/json/new?"+shop.URL+"/order", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var page struct{ ID, WebSocketDebuggerURL string }
	if err := json.NewDecoder(resp.Body).Decode(&page); err != nil {
		t.Fatal(err)
	}
	c.Do(t, act("open", "url", page.WebSocketDebuggerURL, "frontend", frontend))
	c.Do(t, act("text", "contains", formPage))
	worker := dial(t, ses.CDPURL)
	worker.evaluate(t, worker.attach(t, page.ID), heading+" = 'Changed by a worker'")
	c.Do(t, act("text", "contains", "Changed by a worker"))
	if got := asText(c.Do(t, act("evaluate", "expression", heading))); !strings.Contains(got, "Changed by a worker") {
		t.Errorf("the console shows %q", got)
	}
	picture := filepath.Join(picturesDir(t), profile+".png")
	c.Do(t, act("screenshot", "path", picture))
	isPicture(t, picture)
	s.release(t, ses)
	c.Do(t, act("text", "contains", "Debugging connection was closed"))
	s.until(t, profile, lease.Available)
	c.Do(t, act("disconnect"))
	if err := c.Wait(); err != nil {
		t.Errorf("exit: %v: %s", err, c.Stderr())
	}
}
