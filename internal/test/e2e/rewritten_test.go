package e2e

import (
	"encoding/base64"
	"errors"
	"slices"
	"testing"

	"leasehold/lease"
)

// requestsThatAWorkerRewrites: Chrome tells nobody that a paused request goes out with another method
// than it had. It counts as what it is when it is sent, and a read-only session does not send it at all.
func requestsThatAWorkerRewrites(t *testing.T, s *sidecar) {
	web := newWrites(t)
	for name, tt := range map[string]struct {
		query, path string
		want        lease.State
	}{
		"a-GET-becomes-a-POST": {"", "/page", lease.ManualReview},
		"read-only":            {"&read_only=true", "/never", lease.Available},
	} {
		c := dial(t, s.socket(name, "worker=w&task=t"+tt.query))
		page, _ := c.visit(t, web.URL+"/start")
		c.call(t, page, "Fetch.enable", map[string]any{"patterns": []map[string]string{{"urlPattern": web.URL + tt.path}}}, nil) // and not the page's icon
		c.send(t, page, "Runtime.evaluate", map[string]any{"expression": "fetch('" + tt.path + "').finally(() => {document.title = 'over'})"})
		var paused struct{ RequestID string }
		c.event(t, "Fetch.requestPaused", &paused)
		change := map[string]any{"requestId": paused.RequestID, "method": "POST", "postData": base64.StdEncoding.EncodeToString([]byte("buy=1"))}
		c.call(t, page, "Fetch.continueRequest", change, nil)
		eventually(t, "the end of the request", func() error {
			if title := c.evaluate(t, page, "document.title"); title != `"over"` {
				return errors.New(title)
			}
			return nil
		})
		c.drop()
		if got := s.until(t, name, lease.Available, lease.ManualReview); got.State != tt.want {
			t.Errorf("%s: %s (%v), want %s", name, got.State, got.Reasons, tt.want)
		}
	}
	if got := web.paths(); !slices.Equal(got, []string{"/page"}) {
		t.Errorf("the site got %v, want what the worker made a POST, and nothing of the read-only session", got)
	}
}
