package e2e

import (
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
	"leasehold/internal/test/rawcdp"
)

// filesSite serves a page with a file input, and downloads under any name.
func filesSite(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/to-a-file":
			http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
		case strings.HasPrefix(r.URL.Path, "/download/"):
			w.Header().Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", strings.TrimPrefix(r.URL.Path, "/download/")))
			_, _ = io.WriteString(w, "downloaded")
		default:
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, `<!doctype html><title>files</title><input type=file id=input multiple><a id=link href="/download/report.txt">report</a>
<script>async function chosen() { return (await Promise.all([...input.files].map(async f => f.name + "=" + await f.text()))).join() }</script>`)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
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
// writes what the launcher believes, and leaves the profile's proxy. cdpproxy and launcher/fileroots have each
// way to say it.
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
	page, _ := c.visit(t, site+"/")

	t.Run("reading", func(t *testing.T) {
		link := filepath.Join(root, "link")
		if err := os.Symlink(floor, link); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{floor, filepath.Join(s.Dir, "nats", "admin.url"), "/etc/passwd", link, "/proc/self/environ", theirs} {
			if e := c.choose(t, page, path); e == nil || !strings.Contains(e.Message, ses.Exchange) {
				t.Errorf("%s: %+v", path, e)
			}
		}
		if got := c.evaluate(t, page, "input.files.length"); got != "0" {
			t.Errorf("the page has %s files", got)
		}
		c.denied(t, page, "Input.dispatchDragEvent", map[string]any{"type": "drop", "x": 5, "y": 5, "data": map[string]any{"items": []any{}, "files": []string{"/etc/passwd"}, "dragOperationsMask": 1}})
	})
	t.Run("pages", func(t *testing.T) {
		for _, at := range []string{"file:///" + s.Dir, " \x00view-source: file:///etc/passwd", "chrome://settings"} {
			c.denied(t, "", "Target.createTarget", map[string]any{"url": at})
			c.denied(t, page, "Page.navigate", map[string]any{"url": at})
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
		c.call(t, page, "Page.navigate", map[string]any{"url": site + "/?after"}, nil)
		c.loaded(t, page, site+"/?after")
		var open struct {
			TargetInfos []struct{ Type, URL string }
		}
		c.call(t, "", "Target.getTargets", map[string]any{"filter": []any{map[string]any{}}}, &open)
		for _, info := range open.TargetInfos {
			if strings.Contains(info.URL, "passwd") || strings.Contains(info.URL, "settings") {
				t.Errorf("%s %s is open", info.Type, info.URL)
			}
		}
	})
	t.Run("writing", func(t *testing.T) {
		for _, dir := range []string{filepath.Join(home, ".ssh"), filepath.Join(s.Dir, "profiles", ".leasehold"), neighbour.Exchange} {
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
	})
	s.noted(t, "mine", "what was refused", 1, func(e checkpoint.Entry) bool {
		return e.Kind == checkpoint.KindDenied && e.Name == "Extensions.loadUnpacked" && e.Action == "method"
	})
}
