package cdpproxy_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gobwas/ws/wsutil"

	"leasehold/cdpproxy"
	"leasehold/internal/test/testchrome"
)

// refused fails the test unless a command is refused for the reason, and the browser gets
// nothing of it.
func (c *client) refused(s *scripted, h *handler, method, session string, params any, reason string) {
	c.t.Helper()
	got := c.call(method, session, params)
	if got.Error == nil || !strings.Contains(got.Error.Message, method) {
		c.t.Errorf("%s %v: %+v", method, params, got)
	}
	if denied := h.deniedSince(); !slices.Equal(denied, []string{method + " " + reason}) {
		c.t.Errorf("%s: the session was told of %q, want %s", method, denied, reason)
	}
	if heard := s.heard(); len(heard) > 0 {
		c.t.Errorf("%s reached the browser: %+v", method, heard)
	}
}

func TestWhatAWorkerMayNotDoDoesNotReachTheBrowser(t *testing.T) {
	s := script(t)
	h := &handler{
		readable: func(path string) error {
			if path == "/tmp/ok" {
				return nil
			}
			return errors.New(path + " is outside")
		},
		writable: func(string) error { return errors.New("it is outside") },
	}
	c := connect(t, s.mux, open(), h)
	c.call("Target.attachToTarget", "", flat)
	s.heard()
	for _, session := range []string{"", "B1-page"} {
		c.refused(s, h, "Extensions.loadUnpacked", session, map[string]any{"path": "/x"}, "method")
		c.refused(s, h, "Made.up", session, nil, "unknown")
		c.refused(s, h, "Page.navigate", session, map[string]any{"url": "file:///etc"}, "url")
		c.refused(s, h, "DOM.setFileInputFiles", session, map[string]any{"files": []string{"/tmp/ok", "/etc/passwd"}}, "file")
		c.refused(s, h, "Browser.setDownloadBehavior", session, map[string]any{"behavior": "allow", "downloadPath": "/x"}, "file")
		c.refused(s, h, "Target.createBrowserContext", session, map[string]any{"proxyServer": "x"}, "parameter")
		c.refused(s, h, "Target.createTarget", session, map[string]any{"url": 7}, "form")
	}
	if got := c.call("DOM.setFileInputFiles", "B1-page", map[string]any{"files": []string{"/tmp/ok"}}); got.Error != nil {
		t.Errorf("a file that is allowed: %+v", got.Error)
	}
	// Commands stay in order, although some take another way.
	s.heard()
	var want []string
	for i := range 50 {
		method := []string{"DOM.getDocument", "Page.navigate", "DOM.setFileInputFiles"}[i%3]
		c.send(method, "B1-page", map[string]any{"url": "http://a/", "files": []string{"/tmp/ok"}})
		want = append(want, method)
	}
	for range 50 {
		if got, err := c.next(); err != nil || got.Error != nil {
			t.Fatalf("message %v, error %v; want an answer without an error", got, err)
		}
	}
	var got []string
	for _, command := range s.heard() {
		got = append(got, command.Method)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the browser heard %q", got)
	}
}

// TestEscapesDoNotHideACommand: what is refused is refused in each way to write it.
func TestEscapesDoNotHideACommand(t *testing.T) {
	s := script(t)
	h := &handler{readable: func(string) error { return errors.New("outside") }}
	c := connect(t, s.mux, open(), h)
	for _, raw := range []string{
		`{"id":1,"method":"DOM.setFileInputFiles","params":{"fil\u0065s":["/etc/passwd"]}}`,
		`{"id":1,"m\u0065thod":"DOM.setFileInput\u0046iles","p\u0061rams":{"files":["\/etc\/passwd"]}}`,
		`{"params":{"files":["/etc/passwd"]},"method":"DOM.setFileInputFiles","id":1}`,
		`{"id":1,"method":"DOM.setFileInputFiles","params":{"files":[],"files":["/etc/passwd"]}}`,
		`{"id":1,"method":"Page.navigate","params":{"url":"http://a/","url":"file:///"}}`,
		`{"id":1,"method":"Page.navigate","params":{"u\u0072l":"f\u0069le:///"}}`,
		`{"id":1,"method":"Page.navigate","method":"Page.navigate","params":{"url":"file:///"}}`,
		`{"id":1,"method":"Target.createBrowserContext","params":{"proxy\u0053erver":"x"}}`,
		`{"id":1,"method":"Extensions\u002eloadUnpacked","params":{}}`,
		`{"id":1,"method":"extensions.loadUnpacked","params":{}}`,
	} {
		if err := wsutil.WriteClientText(c.net, []byte(raw)); err != nil {
			t.Fatal(err)
		}
		if got, err := c.next(); err != nil || got.ID != 1 || got.Error == nil {
			t.Errorf("%s: %+v, %v", raw, got, err)
		}
	}
	if heard := s.heard(); len(heard) > 0 {
		t.Errorf("the browser heard %+v", heard)
	}
}

// attachedTo has a connection attached to a target with the URL, and returns the session.
func (s *scripted) attachedTo(c *client, url string) string {
	c.t.Helper()
	session := fmt.Sprintf("B1-%d", time.Now().UnixNano())
	s.say(`{"method":"Target.attachedToTarget","params":{"sessionId":%q,"targetInfo":{"targetId":"T%s","type":"page","url":%q},"waitingForDebugger":false},"sessionId":"B1"}`, session, session, url)
	if e, err := c.next(); err != nil || e.Method != "Target.attachedToTarget" {
		c.t.Fatal(e, err)
	}
	return session
}

// TestChromesOwnPagesAreClosed, from the moment on when the launcher's own session
// reports that a target is one, until it is none.
func TestChromesOwnPagesAreClosed(t *testing.T) {
	s := script(t)
	h := &handler{}
	c := connect(t, s.mux, open(), h)
	o, err := s.mux.Observe(t.Context(), "Target.targetInfoChanged")
	if err != nil {
		t.Fatal(err)
	}
	moves := func(session, url string) {
		t.Helper()
		s.say(`{"method":"Target.targetInfoChanged","params":{"targetInfo":{"targetId":"T%s","type":"page","url":%q}},"sessionId":"B2"}`, session, url)
		if _, err := o.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	settings, web := s.attachedTo(c, "chrome://settings/"), s.attachedTo(c, "http://a/")
	s.heard()
	c.refused(s, h, "Runtime.evaluate", settings, nil, "target")
	c.refused(s, h, "Page.navigate", settings, map[string]any{"url": "http://a/"}, "target")
	for _, method := range []string{"Runtime.runIfWaitingForDebugger", "Target.setAutoAttach", "Target.detachFromTarget"} {
		if got := c.call(method, settings, nil); got.Error != nil {
			t.Errorf("%s: %+v", method, got.Error)
		}
	}
	if got := c.call("Runtime.evaluate", web, nil); got.Error != nil {
		t.Errorf("the browser answered with an error: %v", got.Error)
	}
	s.heard()
	moves(web, "file:///etc/passwd")
	c.refused(s, h, "Runtime.evaluate", web, nil, "target")
	moves(web, "http://a/")
	if got := c.call("Runtime.evaluate", web, nil); got.Error != nil {
		t.Errorf("the browser answered with an error: %v", got.Error)
	}
}

// downloads are the commands of the launcher's own about downloads that the browser has
// heard: the context and the directory.
func (s *scripted) downloads(t *testing.T, n int) (set []string) {
	t.Helper()
	for deadline := time.Now().Add(testchrome.Patience); len(set) < n && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		for _, c := range s.heard() {
			var p struct{ Behavior, DownloadPath, BrowserContextID string }
			if c.Method != "Browser.setDownloadBehavior" || json.Unmarshal(c.Params, &p) != nil {
				set = append(set, c.Method)
			} else if c.SessionID == "" {
				set = append(set, p.BrowserContextID+"="+p.DownloadPath)
			} else {
				set = append(set, "client")
			}
		}
	}
	return set
}

// TestTheLaunchersDownloadsComeBack where Chrome would write into the folder of its user.
func TestTheLaunchersDownloadsComeBack(t *testing.T) {
	s := script(t)
	if err := s.mux.SetDownloads(t.Context(), "/x"); err != nil {
		t.Fatal(err)
	}
	c := connect(t, s.mux, open(), &handler{downloads: "/x"})
	s.heard()
	want := func(what string, want ...string) {
		t.Helper()
		if got := s.downloads(t, len(want)); !slices.Equal(got, want) {
			t.Errorf("%s: the browser heard %q, want %q", what, got, want)
		}
	}
	c.call("Browser.setDownloadBehavior", "", map[string]any{"behavior": "allow", "downloadPath": "/mine"})
	want("a place", "client")
	c.call("Browser.setDownloadBehavior", "", map[string]any{"behavior": "default"})
	want("Chrome's own", "client", "=/x")

	s.say(`{"method":"Target.attachedToTarget","params":{"sessionId":"P","targetInfo":{"targetId":"T","browserContextId":"C"},"waitingForDebugger":false},"sessionId":"B1"}`)
	if _, err := c.next(); err != nil {
		t.Fatal(err)
	}
	c.call("Page.setDownloadBehavior", "P", map[string]any{"behavior": "default", "browserContextId": "X"})
	want("Chrome's own on a page, which names no context", "Page.setDownloadBehavior", "C=/x")
	s.say(`{"method":"Target.detachedFromTarget","params":{"sessionId":"P"},"sessionId":"B1"}`)
	if _, err := c.next(); err != nil {
		t.Fatal(err)
	}
	want("the page's session ended", "C=/x")

	// Some Chromes know the profile's own context by no name.
	s.say(`{"method":"Target.attachedToTarget","params":{"sessionId":"Q","targetInfo":{"targetId":"T2","browserContextId":"own"},"waitingForDebugger":false},"sessionId":"B1"}`)
	if _, err := c.next(); err != nil {
		t.Fatal(err)
	}
	c.call("Page.setDownloadBehavior", "Q", map[string]any{"behavior": "default"})
	want("Chrome's own on a page of the profile's own context", "Page.setDownloadBehavior", "=/x")

	// The first page of a new context.
	s.say(`{"id":77,"result":{"browserContextId":"D"},"sessionId":"B1"}`)
	c.works()
	s.heard()
	for _, first := range []bool{true, false} {
		c.call("Target.createTarget", "", map[string]any{"url": "about:blank", "browserContextId": "D"})
		if first {
			want("the first page", "D=/x", "Target.createTarget")
		} else {
			want("the second page", "Target.createTarget")
		}
	}
	s.say(`{"id":78,"result":{"browserContextId":"E"},"sessionId":"B1"}`)
	c.works()
	s.heard()
	c.call("Browser.setDownloadBehavior", "", map[string]any{"behavior": "deny", "browserContextId": "E"})
	c.call("Target.createTarget", "", map[string]any{"url": "about:blank", "browserContextId": "E"})
	want("a context with a behaviour", "client", "Target.createTarget")

	_ = c.net.Close()
	<-c.end
	if err := c.conn.ClientSession().Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := s.downloads(t, 4)
	slices.Sort(got)
	if !slices.Equal(got, []string{"=/x", "=/x", "E=/x", "Target.detachFromTarget"}) {
		t.Errorf("the connection's end: the browser heard %q", got)
	}
}

// TestAPagesDownloadsComeBack to the launcher's directory, with a real browser: when the session has ended on
// which the client set them for a page, when it asks for Chrome's own behaviour there, and when it does so for
// the browser, which is the profile's own context on a page of another one, too.
func TestAPagesDownloadsComeBack(t *testing.T) {
	m, dir := browser(t), t.TempDir()
	if err := m.SetDownloads(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	c := connect(t, m, open(), &handler{downloads: dir})
	_, page := c.page("data:text/html,a page")
	var made struct{ BrowserContextID, TargetID, SessionID string }
	for _, one := range []struct {
		method string
		params map[string]any
	}{
		{"Target.createBrowserContext", nil},
		{"Target.createTarget", map[string]any{"url": "about:blank"}},
		{"Target.attachToTarget", map[string]any{"flatten": true}},
	} {
		if one.params != nil {
			one.params["browserContextId"], one.params["targetId"] = made.BrowserContextID, made.TargetID
		}
		if err := json.Unmarshal(c.call(one.method, "", one.params).Result, &made); err != nil {
			t.Fatalf("the answer to %s: %v", one.method, err)
		}
	}
	toDefault := map[string]any{"behavior": "default"}
	for name, end := range map[string]func(session string) message{
		"detached": func(session string) message {
			c.call("Page.setDownloadBehavior", session, map[string]any{"behavior": "allow", "downloadPath": t.TempDir()})
			return c.call("Target.detachFromTarget", "", map[string]any{"sessionId": session})
		},
		"default":   func(session string) message { return c.call("Page.setDownloadBehavior", session, toDefault) },
		"a context": func(string) message { return c.call("Browser.setDownloadBehavior", made.SessionID, toDefault) },
	} {
		_, session := c.page("data:text/html,another page")
		if m := end(session); m.Error != nil {
			t.Fatalf("%s: %v", name, m.Error)
		}
		script := fmt.Sprintf(`{ const a = document.createElement("a"); a.href = "data:text/plain,hello"; a.download = %q; a.click() }`, name+".txt")
		c.call("Runtime.evaluate", page, map[string]any{"expression": script, "userGesture": true})
		for late := time.Now().Add(testchrome.Patience); ; time.Sleep(10 * time.Millisecond) {
			if found, err := filepath.Glob(filepath.Join(dir, name+".txt")); err != nil || len(found) > 0 {
				break
			}
			if time.Now().After(late) {
				t.Errorf("%s: nothing came into the launcher's directory", name)
				break
			}
		}
	}
}

// TestASocketOfChromesOwnPageIsRefused, with a real browser.
func TestASocketOfChromesOwnPageIsRefused(t *testing.T) {
	m := browser(t)
	var made struct{ TargetID string }
	if err := m.Call(t.Context(), "Target.createTarget", map[string]any{"url": "chrome://version"}, &made); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(testchrome.Patience); ; {
		var is struct{ TargetInfo struct{ URL string } }
		if err := m.Call(t.Context(), "Target.getTargetInfo", map[string]any{"targetId": made.TargetID}, &is); err != nil || time.Now().After(deadline) {
			t.Fatalf("%+v, %v", is, err)
		}
		if strings.HasPrefix(is.TargetInfo.URL, "chrome:") {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	h := &handler{}
	conn, err := m.Connect(t.Context(), made.TargetID, open(), h, true)
	var refused *cdpproxy.Error
	if conn != nil || !errors.As(err, &refused) || !strings.Contains(refused.Message, "Chrome's own") || len(h.deniedSince()) != 1 {
		t.Errorf("%v, %v", conn, err)
	}
}
