package e2e

import (
	"encoding/base64"
	"errors"
	"slices"
	"testing"

	"leasehold/lease"
)

// TestRequestsThatAWorkerRewrites: Chrome tells nobody that a paused request goes out with another
// method, URL or body than it had. It counts as what it is when it is sent, and a read-only session
// does not send it at all.
func TestRequestsThatAWorkerRewrites(t *testing.T) {
	t.Parallel()
	s, web := start(t), newWrites(t)
	type change = map[string]any
	for name, tt := range map[string]struct {
		query, fetch string
		change       change
		vouched      bool // by a checkpoint, when the request was answered
		sent         string
		want         lease.State
	}{
		"a-GET-becomes-a-POST":       {"", "fetch('/page')", change{"method": "POST", "postData": base64.StdEncoding.EncodeToString([]byte("buy=1"))}, false, "/page", lease.ManualReview},
		"a-checkpoint-vouches":       {"&resumable=true", "fetch('/vouched')", change{"method": "POST"}, true, "/vouched", lease.ResumePending},
		"what-is-harmless-elsewhere": {"", "fetch('/search', {method: 'POST'})", change{"url": web.URL + "/pay"}, false, "/pay", lease.ManualReview},
		"to-what-is-harmless":        {"", "fetch('/send', {method: 'POST'})", change{"url": web.URL + "/search"}, false, "/search", lease.Available},
		"read-only":                  {"&read_only=true", "fetch('/never')", change{"method": "POST"}, false, "", lease.Available},
	} {
		if out, errs, code := s.cli(t, "profiles", "create", name, "--harmless-request", "POST "+web.URL+"/search"); code != 0 {
			t.Fatalf("exit status %d, want 0: %s%s", code, out, errs)
		}
		c := dial(t, s.socket(name, "worker=w&task=t"+tt.query))
		page, _ := c.visit(t, web.URL+"/start")
		var patterns []map[string]string // and not the page's icon
		for _, path := range []string{"/page", "/vouched", "/search", "/send", "/never"} {
			patterns = append(patterns, map[string]string{"urlPattern": web.URL + path})
		}
		c.call(t, page, "Fetch.enable", map[string]any{"patterns": patterns}, nil)
		c.send(t, page, "Runtime.evaluate", map[string]any{"expression": tt.fetch + ".finally(() => {document.title = 'over'})"})
		var paused struct{ RequestID string }
		c.event(t, "Fetch.requestPaused", &paused)
		tt.change["requestId"] = paused.RequestID
		c.call(t, page, "Fetch.continueRequest", tt.change, nil)
		eventually(t, "the end of the request", func() error {
			if title := c.evaluate(t, page, "document.title"); title != `"over"` {
				return errors.New(title)
			}
			return nil
		})
		if tt.vouched {
			c.call(t, page, "Lease.checkpoint", map[string]any{"name": "done"}, nil)
		}
		c.drop()
		if got := s.until(t, name, lease.Available, lease.ManualReview, lease.ResumePending); got.State != tt.want {
			t.Errorf("%s: %s (%v), want %s", name, got.State, got.Reasons, tt.want)
		}
		if tt.sent != "" && !slices.Contains(web.paths(), tt.sent) {
			t.Errorf("%s: the site got %v", name, web.paths())
		}
	}
	if slices.Contains(web.paths(), "/never") {
		t.Error("a read-only session sent what its worker had made a POST")
	}
}
