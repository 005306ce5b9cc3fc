package methods_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"leasehold/internal/test/testchrome"
)

// TestChromeItselfKeepsTheWebOutOfFiles: some methods pass because Chrome refuses what
// they could be misused for. If another Chrome does not, they need another class.
func TestChromeItselfKeepsTheWebOutOfFiles(t *testing.T) {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/redirect" {
			http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<p>a page"))
	}))
	defer site.Close()
	d := testchrome.StartDriver(t)
	_, page := d.Open(site.URL + "/")

	// A request that is rewritten on its way.
	d.Must(page, "Fetch.enable", nil, nil)
	paused := d.Events(page, "Fetch.requestPaused")
	for _, url := range []string{"file:///etc/passwd", "view-source:file:///etc/passwd", "chrome://settings/"} {
		for _, rewrite := range []string{"Fetch.continueRequest", "Fetch.fulfillRequest"} {
			navigated := d.Post(page, "Page.navigate", map[string]any{"url": site.URL + "/next"})
			for found := false; !found; {
				var e testchrome.Message
				select {
				case e = <-paused:
				case <-time.After(testchrome.Patience):
					t.Fatal("nothing was paused")
				}
				var p struct {
					RequestID string
					Request   struct{ URL string }
				}
				if err := json.Unmarshal(e.Params, &p); err != nil {
					t.Fatal(err)
				}
				if found = strings.HasSuffix(p.Request.URL, "/next"); !found { // such as an icon
					d.Post(page, "Fetch.failRequest", map[string]any{"requestId": p.RequestID, "errorReason": "Aborted"})
					continue
				}
				params := map[string]any{"requestId": p.RequestID, "url": url}
				if rewrite == "Fetch.fulfillRequest" {
					params = map[string]any{"requestId": p.RequestID, "responseCode": 302, "responseHeaders": []any{map[string]any{"name": "Location", "value": url}}}
				}
				d.Post(page, rewrite, params)
			}
			var answer testchrome.Message
			select {
			case answer = <-navigated:
			case <-time.After(testchrome.Patience):
				t.Fatalf("%s with %s: the navigation got no answer", rewrite, url)
			}
			if !strings.Contains(string(answer.Result), "errorText") {
				t.Errorf("%s with %s: %s", rewrite, url, answer.Result)
			}
		}
	}
	d.Must(page, "Fetch.disable", nil, nil)

	// What pages do themselves, and links that are dropped on them.
	_, page = d.Open(site.URL + "/")
	for _, url := range []string{"file:///etc/passwd", "view-source:file:///etc/passwd", "chrome://settings/", site.URL + "/redirect"} {
		d.Post(page, "Runtime.evaluate", map[string]any{"expression": `window.open("` + url + `"), 1`, "userGesture": true})
		for _, kind := range []string{"dragEnter", "dragOver", "drop"} {
			d.Post(page, "Input.dispatchDragEvent", map[string]any{"type": kind, "x": 5, "y": 5, "data": map[string]any{
				"items": []any{map[string]any{"mimeType": "text/uri-list", "data": url}}, "dragOperationsMask": 3,
			}})
		}
		d.Post(page, "Runtime.evaluate", map[string]any{"expression": `location.href = "` + url + `", 1`, "userGesture": true})
	}
	time.Sleep(time.Second) // for what must not happen
	var open struct{ TargetInfos []struct{ Type, URL string } }
	d.Must("", "Target.getTargets", nil, &open)
	for _, info := range open.TargetInfos {
		if info.Type != "browser_ui" && (strings.Contains(info.URL, "passwd") || strings.HasPrefix(info.URL, "chrome:")) {
			t.Errorf("%s %s is open", info.Type, info.URL)
		}
	}
}
