package e2e

import (
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"leasehold/checkpoint"
	"leasehold/lease"
)

// aSensitiveFrame: a frame that goes to a sensitive place counts if it is of the page's own site, also
// after the page has changed its address. Widgets of other sites, in processes of their own, do not count.
func aSensitiveFrame(t *testing.T, s *sidecar) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, `<!doctype html><title>%s</title>`, r.URL.Path)
		if src := r.URL.Query().Get("frame"); src != "" {
			_, _ = fmt.Fprintf(w, `<iframe src="%s"></iframe>`, html.EscapeString(src))
		}
	}))
	defer web.Close()
	other := strings.Replace(web.URL, "127.0.0.1", "localhost", 1)
	visit := func(profile, frame string) (c *socket, page string) {
		c = dial(t, s.socket(profile, "worker=w&task=t&resumable=true"))
		page, _ = c.visit(t, web.URL+"/in?frame="+url.QueryEscape(frame))
		return c, page
	}
	pushed, page := visit("pushed", web.URL+"/checkout")
	s.noted(t, "pushed", "the frame", 1, func(e checkpoint.Entry) bool {
		return e.Kind == checkpoint.KindFrame && e.Sensitive && e.URL == web.URL+"/checkout" && e.Text == ""
	})
	pushed.evaluate(t, page, "history.pushState({}, '', '/pushed')")
	s.noted(t, "pushed", "the new URL", 1, func(e checkpoint.Entry) bool {
		return e.Kind == checkpoint.KindURL && e.URL == web.URL+"/pushed"
	})
	pushed.call(t, page, "Lease.checkpoint", map[string]any{"name": "pushed"}, nil)
	widget, _ := visit("widget", other+"/captcha/verify")
	pushed.drop()
	widget.drop()
	states := []lease.State{lease.Available, lease.ManualReview, lease.ResumePending}
	if r := s.until(t, "pushed", states...); r.State != lease.ManualReview || !strings.Contains(strings.Join(r.Reasons, " "), web.URL+"/checkout") || r.LastKnownURL != web.URL+"/pushed" {
		t.Errorf("with a frame of its own site: %s at %s: %v", r.State, r.LastKnownURL, r.Reasons)
	}
	if r := s.until(t, "widget", states...); r.State != lease.Available {
		t.Errorf("with a frame of another site: %s: %v", r.State, r.Reasons)
	}
}
