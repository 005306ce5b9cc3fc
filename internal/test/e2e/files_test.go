package e2e

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"leasehold/checkpoint"
	"leasehold/internal/test/clients"
	"leasehold/internal/test/rawcdp"
	"leasehold/lease"
)

// filesSite serves a page with a file input, and downloads under any name.
func filesSite(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/to-a-file":
			http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
		case r.URL.Path == "/download/"+endless:
			w.Header().Set("Content-Disposition", "attachment")
			_, _ = io.WriteString(w, strings.Repeat("x", 1<<20))
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		case strings.HasPrefix(r.URL.Path, "/download/"):
			w.Header().Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", strings.TrimPrefix(r.URL.Path, "/download/")))
			_, _ = io.WriteString(w, "downloaded")
		case r.URL.Path == "/paper.pdf":
			w.Header().Set("Content-Type", "application/pdf")
			_, _ = io.WriteString(w, emptyPDF())
		case r.URL.Path == "/paper":
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, `<!doctype html><title>paper</title><embed src="/paper.pdf" type="application/pdf" width=300 height=300>`)
		default:
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, `<!doctype html><title>files</title><input type=file id=input multiple><a id=link href="/download/report.txt">report</a>
<script>async function chosen() { return (await Promise.all([...input.files].map(async f => f.name + "=" + await f.text()))).join() }</script>`)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// endless is a download that does not come to its end.
const endless = "endless.bin"

// emptyPDF is a document with one empty page.
func emptyPDF() string {
	doc, table := "%PDF-1.4\n", "xref\n0 4\n0000000000 65535 f \n"
	for i, object := range []string{"<</Type/Catalog/Pages 2 0 R>>", "<</Type/Pages/Kids[3 0 R]/Count 1>>", "<</Type/Page/Parent 2 0 R/MediaBox[0 0 200 200]>>"} {
		table += fmt.Sprintf("%010d 00000 n \n", len(doc))
		doc += fmt.Sprintf("%d 0 obj%sendobj\n", i+1, object)
	}
	return fmt.Sprintf("%s%strailer<</Size 4/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF", doc, table, len(doc))
}

// choose sends DOM.setFileInputFiles for the page's file input, and returns the error.
func (c *socket) choose(t *testing.T, session string, files ...string) *rawcdp.Error {
	t.Helper()
	var found struct{ Result struct{ ObjectID string } }
	c.call(t, session, "Runtime.evaluate", map[string]any{"expression": "input"}, &found)
	return c.answer(t, c.send(t, session, "DOM.setFileInputFiles", map[string]any{"files": files, "objectId": found.Result.ObjectID})).Error
}

// get clicks on a link to a download with the name.
func (c *socket) get(t *testing.T, session, name string) {
	t.Helper()
	c.evaluate(t, session, fmt.Sprintf(`link.href = "/download/" + encodeURIComponent(%q), link.click()`, name))
}

// arrives waits until a file has been downloaded into the directory.
func arrives(t *testing.T, dir, name string) {
	t.Helper()
	eventually(t, name+" in "+dir, func() error {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != "downloaded" {
			found, _ := os.ReadDir(dir)
			return fmt.Errorf("%q, %v; there is %v", got, err, found)
		}
		return nil
	})
}

// denied fails the test unless the command is refused by the launcher.
func (c *socket) denied(t *testing.T, session, method string, params any) {
	t.Helper()
	m := c.answer(t, c.send(t, session, method, params))
	if m.Error == nil || !strings.Contains(m.Error.Message, "leasehold refuses "+method) || !strings.Contains(m.Error.Message, "llowed") && !strings.Contains(m.Error.Message, ".") {
		t.Errorf("%s %v: %+v, %s", method, params, m.Error, m.Result)
	}
}

// TestAWorkerReachesNoFileOfTheHost plays a worker that looks for the launcher's secrets,
// writes what the launcher believes, and leaves the profile's proxy.
func TestAWorkerReachesNoFileOfTheHost(t *testing.T) {
	t.Parallel()
	root, home := t.TempDir(), t.TempDir()
	s := start(t, "--file-root", root)
	site := filesSite(t)
	neighbour := s.open(t, "neighbour", nil) // another profile, which is not this worker's
	floor := s.guardFile("neighbour", "floor")
	before, err := os.ReadFile(floor)
	if err != nil {
		t.Fatal(err)
	}
	ses := s.open(t, "mine", map[string]any{"dedicated_port": true})
	theirs := filepath.Join(neighbour.Exchange, "theirs.txt")
	if err := os.WriteFile(theirs, []byte("theirs"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := dial(t, s.here(t, ses.CDPURL))
	if ses.Exchange == "" || c.Header.Get("Leasehold-Exchange") != ses.Exchange {
		t.Errorf("the exchange directory is %q, and by the header %q", ses.Exchange, c.Header.Get("Leasehold-Exchange"))
	}
	page, target := c.visit(t, site+"/")

	t.Run("reading", func(t *testing.T) {
		link := filepath.Join(root, "link")
		if err := os.Symlink(floor, link); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{
			floor, filepath.Join(s.Dir, "nats", "admin.url"), filepath.Join(s.Dir, "profiles", "neighbour", "Default", "Cookies"), "/etc/passwd", link,
			root + "/../../etc/passwd", "/proc/self/environ", theirs, root, filepath.Join(home, "x"),
		} {
			if e := c.choose(t, page, path); e == nil || !strings.Contains(e.Message, ses.Exchange) {
				t.Errorf("%s: %+v", path, e)
			}
		}
		if got := c.evaluate(t, page, "input.files.length"); got != "0" {
			t.Errorf("the page has %s files", got)
		}
		// Other spellings of the same command.
		for _, raw := range []string{
			`{"id":900,"method":"DOM.setFileInputFiles","params":{"fil\u0065s":["/etc/passwd"],"nodeId":1},"sessionId":"` + page + `"}`,
			`{"id":900,"method":"DOM.setFileInput\u0046iles","params":{"files":["\u002fetc/passwd"],"nodeId":1},"sessionId":"` + page + `"}`,
			`{"id":900,"method":"DOM.setFileInputFiles","params":{"files":["` + ses.Exchange + `"],"files":["/etc/passwd"],"nodeId":1},"sessionId":"` + page + `"}`,
		} {
			if err := c.Write([]byte(raw)); err != nil {
				t.Fatal(err)
			}
			if m := c.answer(t, 900); m.Error == nil || !strings.Contains(m.Error.Message, "leasehold refuses DOM.setFileInputFiles") {
				t.Errorf("%s: %+v", raw, m.Error)
			}
		}
		for _, kind := range []string{"dragEnter", "drop"} {
			c.denied(t, page, "Input.dispatchDragEvent", map[string]any{"type": kind, "x": 5, "y": 5, "data": map[string]any{"items": []any{}, "files": []string{"/etc/passwd"}, "dragOperationsMask": 1}})
		}
	})
	t.Run("pages", func(t *testing.T) {
		var nested struct{ SessionID string }
		c.call(t, "", "Target.attachToBrowserTarget", nil, &nested)
		ownSocket := dial(t, "ws://"+ses.hostPort()+"/devtools/page/"+target)
		for _, at := range []string{
			"file:///" + s.Dir, "file:///etc/passwd", "FI\tLE:/etc/passwd", " \x00view-source: file:///etc/passwd", `file:\\etc\passwd`, "filesystem:file:///temporary/",
			"chrome://settings", "about:settings", "chrome://newtab", "devtools://devtools/bundled/inspector.html", "chrome-untrusted://print/",
			"chrome-extension://mhjfbmdgcfjbbpaeojofohoefgiehjai/index.html",
		} {
			params := map[string]any{"url": at}
			c.denied(t, "", "Target.createTarget", params)
			c.denied(t, nested.SessionID, "Target.createTarget", params)
			c.denied(t, page, "Page.navigate", params)
			ownSocket.denied(t, "", "Page.navigate", params)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, ses.Dedicated+"/json/new?"+url.PathEscape(at), nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			if said, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(said), "not one that a worker may open") {
				t.Errorf("/json/new %q: %d %s", at, resp.StatusCode, said)
			}
			_ = resp.Body.Close()
		}
		// What pages do themselves, Chrome refuses.
		for _, expression := range []string{
			`location.href = "file:///etc/passwd"`, `window.open("file:///etc/passwd")`, `location.href = "chrome://settings"`, `window.open("view-source:file:///etc/passwd")`,
			`location.href = "/to-a-file"`, `document.body.append(Object.assign(document.createElement("iframe"), {src: "file:///etc/passwd"}))`,
		} {
			c.answer(t, c.send(t, page, "Runtime.evaluate", map[string]any{"expression": expression + ", 1", "userGesture": true}))
		}
		c.call(t, page, "Page.navigate", map[string]any{"url": site + "/"}, nil)
		c.loaded(t, page, site+"/")
		var open struct {
			TargetInfos []struct{ TargetID, Type, URL string }
		}
		c.call(t, "", "Target.getTargets", map[string]any{"filter": []any{map[string]any{}}}, &open)
		own := 0
		for _, info := range open.TargetInfos {
			if strings.Contains(info.URL, "passwd") || strings.Contains(info.URL, "settings") {
				t.Errorf("%s %s is open", info.Type, info.URL)
			}
			if !strings.HasPrefix(info.URL, "chrome:") {
				continue
			}
			own++
			// The browser's own interface: it could open chrome://settings.
			session := c.attach(t, info.TargetID)
			for _, method := range []string{"Runtime.evaluate", "Page.navigate", "DOM.getDocument", "Page.enable", "Runtime.enable"} {
				c.denied(t, session, method, map[string]any{"expression": "1", "url": "about:blank"})
			}
			c.call(t, session, "Runtime.runIfWaitingForDebugger", nil, nil)
			c.call(t, "", "Target.detachFromTarget", map[string]any{"sessionId": session}, nil)
		}
		t.Logf("%d of Chrome's own pages are open", own)
		c.denied(t, "", "Target.openDevTools", map[string]any{"targetId": target})
		c.denied(t, "", "Target.sendMessageToTarget", map[string]any{"targetId": target, "message": `{"id":1,"method":"Page.navigate","params":{"url":"file:///"}}`})
	})
	t.Run("writing", func(t *testing.T) {
		ssh := filepath.Join(home, ".ssh")
		for _, dir := range []string{ssh, filepath.Join(s.Dir, "profiles", ".leasehold"), filepath.Join(s.Dir, "sessions"), neighbour.Exchange, "/etc", "rel", root + "/../x"} {
			c.denied(t, "", "Browser.setDownloadBehavior", map[string]any{"behavior": "allow", "downloadPath": dir})
			c.denied(t, page, "Page.setDownloadBehavior", map[string]any{"behavior": "allow", "downloadPath": dir})
		}
		for _, name := range []string{"authorized_keys", "neighbour.floor"} {
			c.get(t, page, name)
			arrives(t, ses.Exchange, name)
		}
		if found, err := os.ReadDir(home); err != nil || len(found) > 0 {
			t.Errorf("%v was written, %v", found, err)
		}
		if after, err := os.ReadFile(floor); err != nil || string(after) != string(before) {
			t.Errorf("the floor of another profile is %q, %v", after, err)
		}
	})
	t.Run("the network", func(t *testing.T) {
		c.denied(t, "", "Extensions.loadUnpacked", map[string]any{"path": ses.Exchange})
		c.denied(t, "", "Target.createBrowserContext", map[string]any{"proxyServer": "direct://"})
		c.denied(t, "", "Target.createBrowserContext", map[string]any{"proxyServer": "http://127.0.0.1:1", "proxyBypassList": "<-loopback>"})
		c.denied(t, "", "Target.setRemoteLocations", map[string]any{"locations": []any{map[string]any{"host": "127.0.0.1", "port": 1}}})
		c.denied(t, page, "Cast.enable", nil)
		c.denied(t, page, "PWA.install", map[string]any{"manifestId": site})
	})
	for range 25 {
		c.denied(t, page, "DeviceAccess.enable", nil)
	}
	for i := range 25 {
		if e := c.fails(t, page, fmt.Sprintf("Made.up%d", i), nil); e.Code != -32601 || !strings.Contains(e.Message, "wasn't found") {
			t.Errorf("%+v", e)
		}
	}
	counts := map[string][]uint64{}
	for _, e := range s.journal(t, "mine") {
		if e.Kind == checkpoint.KindDenied {
			counts[e.Name+" "+e.Action] = append(counts[e.Name+" "+e.Action], e.Times())
		}
	}
	for key, want := range map[string]string{
		"DeviceAccess.enable method": "[1 9]", " unknown": "[1 9]", "Extensions.loadUnpacked method": "[1]", "Target.createBrowserContext parameter": "[1]",
		"Target.createTarget url": "[1 9]", "Browser.setDownloadBehavior file": "[1]", "DOM.setFileInputFiles form": "[1]", "/json/new url": "[1 9]",
	} {
		if got := fmt.Sprint(counts[key]); got != want {
			t.Errorf("the journal has %s of %q, want %s: %v", got, key, want, counts)
		}
	}
}

// TestWorkersKeepTheirFiles: what honest workers do with files works without a setting,
// with Playwright and Puppeteer.
func TestWorkersKeepTheirFiles(t *testing.T) {
	t.Parallel()
	s := start(t, warmly...)
	site := filesSite(t)
	for script, at := range map[string]func(*sidecar, string, string) string{clients.Playwright: oneShotURL, clients.Puppeteer: socketURL} {
		name := strings.TrimSuffix(script, ".mjs")
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			upload, saved := filepath.Join(dir, "up load.txt"), filepath.Join(dir, "report.txt")
			if err := os.WriteFile(upload, []byte("uploaded"), 0o600); err != nil {
				t.Fatal(err)
			}
			c := clients.Start(t, script, at(s, "files", "worker=w&keep_warm=true&wait=60s&task="+name), clients.Interactive)
			c.Expect(t, "connect")
			for _, context := range []string{"the profile's own", "a new one"} {
				if context == "a new one" {
					c.Do(t, act("newContext"))
				}
				c.Do(t, act("goto", "url", site+"/"))
				c.Do(t, clients.Action{"action": "upload", "selector": "#input", "paths": []string{upload}})
				if got := string(c.Do(t, act("evaluate", "expression", "chosen()"))); got != `"up load.txt=uploaded"` {
					t.Errorf("%s: the page got %s", context, got)
				}
				if script == clients.Playwright {
					c.Do(t, act("uploadText", "selector", "#input", "name", "b.txt", "text", "from memory"))
					if got := string(c.Do(t, act("evaluate", "expression", "chosen()"))); got != `"b.txt=from memory"` {
						t.Errorf("%s: the page got %s", context, got)
					}
				}
				c.Do(t, act("download", "selector", "#link", "path", saved))
				arrives(t, dir, "report.txt")
				if err := os.Remove(saved); err != nil {
					t.Fatal(err)
				}
			}
			// The viewer of PDF files is an extension of Chrome's own, whose pages are
			// closed to workers. The page around it is not.
			c.Do(t, act("goto", "url", site+"/paper"))
			if got := string(c.Do(t, act("evaluate", "expression", "document.title"))); got != `"paper"` {
				t.Errorf("the page with a PDF has the title %s", got)
			}
			c.Do(t, act("screenshot", "path", filepath.Join(dir, "paper.png")))
			c.Do(t, act("newPage"))
			c.Do(t, act("goto", "url", site+"/"))
			c.Do(t, act("disconnect"))
		})
	}
}

// TestDownloadsWithoutAPlaceGoToTheExchangeDirectory: whatever was set before, on this
// connection, on another one or in an earlier session of the same browser.
func TestDownloadsWithoutAPlaceGoToTheExchangeDirectory(t *testing.T) {
	t.Parallel()
	s := start(t, append(warmly, "--keep-warm-idle", "1h")...)
	site := filesSite(t)
	mine := t.TempDir()
	here := func(session *socket) string { return session.Header.Get("Leasehold-Exchange") }

	c := dial(t, s.socket("p", "worker=w&task=one&keep_warm=true"))
	first := here(c)
	page, target := c.visit(t, site+"/")
	c.get(t, page, "untold.txt")
	arrives(t, first, "untold.txt")

	set := func(session, behavior string, more map[string]any) {
		t.Helper()
		params := map[string]any{"behavior": behavior}
		for k, v := range more {
			params[k] = v
		}
		c.call(t, session, "Browser.setDownloadBehavior", params, nil)
	}
	set("", "allow", map[string]any{"downloadPath": mine})
	c.get(t, page, "told.txt")
	arrives(t, mine, "told.txt")
	set("", "default", nil)
	c.get(t, page, "default.txt")
	arrives(t, first, "default.txt")

	// The behaviour ends with the CDP session that set it.
	var nested struct{ SessionID string }
	c.call(t, "", "Target.attachToBrowserTarget", nil, &nested)
	set(nested.SessionID, "allow", map[string]any{"downloadPath": mine})
	c.call(t, "", "Target.detachFromTarget", map[string]any{"sessionId": nested.SessionID}, nil)
	c.get(t, page, "detached.txt")
	arrives(t, first, "detached.txt")
	again := c.attach(t, target)
	c.call(t, again, "Page.setDownloadBehavior", map[string]any{"behavior": "allow", "downloadPath": mine}, nil)
	c.get(t, page, "page.txt")
	arrives(t, mine, "page.txt")
	c.call(t, "", "Target.detachFromTarget", map[string]any{"sessionId": again}, nil)
	c.get(t, page, "page-detached.txt")
	arrives(t, first, "page-detached.txt")

	// A browser context of its own, without and with a behaviour.
	var context struct{ BrowserContextID string }
	c.call(t, "", "Target.createBrowserContext", nil, &context)
	apart, _ := c.page(t, site+"/", context.BrowserContextID)
	c.loaded(t, apart, site+"/")
	c.get(t, apart, "apart.txt")
	arrives(t, first, "apart.txt")
	c.call(t, "", "Target.createBrowserContext", nil, &context)
	set("", "allow", map[string]any{"downloadPath": mine, "browserContextId": context.BrowserContextID})
	apart, _ = c.page(t, site+"/", context.BrowserContextID)
	c.loaded(t, apart, site+"/")
	c.get(t, apart, "apart-told.txt")
	arrives(t, mine, "apart-told.txt")

	// The next session has the same browser, and nothing of this one.
	set("", "allow", map[string]any{"downloadPath": mine})
	pid := s.browserOf(t, "p")
	c.close(t)
	c.ended(t)
	s.until(t, "p", lease.Available)
	eventually(t, "the end of the exchange directory", func() error {
		if _, err := os.Stat(first); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%s: %v", first, err)
		}
		return nil
	})
	c = dial(t, s.socket("p", "worker=w&task=two&keep_warm=true&wait=60s"))
	if s.browserOf(t, "p") != pid || here(c) == first {
		t.Errorf("browser %d, then %d; exchange directory %s, then %s", pid, s.browserOf(t, "p"), first, here(c))
	}
	page, _ = c.visit(t, site+"/")
	c.get(t, page, "second.txt")
	arrives(t, here(c), "second.txt")

	// The end cuts off a download, and says so; the browser does not wait for another session with it.
	c.get(t, page, endless)
	eventually(t, "the beginning of a download", func() error {
		if found, err := os.ReadDir(here(c)); err != nil || len(found) != 2 {
			return fmt.Errorf("%v, %v", found, err)
		}
		return nil
	})
	c.close(t)
	c.ended(t)
	s.until(t, "p", lease.Available)
	var over struct {
		Released   bool `json:"released"`
		Unfinished int  `json:"unfinished_downloads"`
	}
	s.call(t, "GET", "/v1/sessions/"+c.Header.Get("Leasehold-Session"), nil, &over)
	if !over.Released || over.Unfinished != 1 {
		t.Errorf("the session ended as %+v, want it released with one unfinished download", over)
	}
	eventually(t, "the end of the browser", func() error {
		if left := s.browsers(t); len(left) > 0 {
			return fmt.Errorf("%v", left)
		}
		return nil
	})
}
