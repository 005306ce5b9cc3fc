package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"leasehold/checkpoint"
	"leasehold/lease"
)

// TestASensitiveFrame: a frame that goes to a sensitive place counts if it is of the
// page's own site, or if the task names it. Widgets of other sites, in processes of
// their own, do not count.
func TestASensitiveFrame(t *testing.T) {
	t.Parallel()
	frames := map[string]string{} // URL of the frame, by the path of its page
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		frame := ""
		if src := frames[r.URL.Path]; src != "" {
			frame = "<iframe src='" + src + "'></iframe>"
		}
		_, _ = fmt.Fprintf(w, `<!doctype html><title>%s</title>%s`, r.URL.Path, frame)
	}))
	defer web.Close()
	other := strings.Replace(web.URL, "127.0.0.1", "localhost", 1)
	s := start(t)
	cases := []struct {
		profile, frame string
		manifest       map[string]any
		state          lease.State
		pushed         bool // the page calls history.pushState before a safe checkpoint
		conn           *socket
	}{
		{profile: "own-site", frame: web.URL + "/checkout", state: lease.ManualReview},
		{profile: "widget", frame: other + "/captcha/verify", state: lease.Available},
		{profile: "named", frame: other + "/widget", manifest: map[string]any{"sensitive_urls": []string{"/widget"}}, state: lease.ManualReview},
		{profile: "pushed", frame: web.URL + "/checkout", manifest: map[string]any{"resumable": true}, pushed: true, state: lease.ManualReview},
	}
	for _, tt := range cases {
		frames["/in-"+tt.profile] = tt.frame
	}
	for i := range cases {
		tt := &cases[i]
		ses := s.open(t, tt.profile, tt.manifest)
		tt.conn = dial(t, ses.CDPURL)
		page, _ := tt.conn.page(t, "about:blank", "")
		tt.conn.call(t, page, "Page.navigate", map[string]any{"url": web.URL + "/in-" + tt.profile}, nil)
		tt.conn.loaded(t, page, web.URL+"/in-"+tt.profile)
		if loaded := tt.conn.evaluate(t, page, "document.title"); loaded != `"/in-`+tt.profile+`"` {
			t.Errorf("%s: the page is %s", tt.profile, loaded)
		}
		if tt.state == lease.ManualReview {
			s.noted(t, tt.profile, "the frame", 1, func(e checkpoint.Entry) bool {
				return e.Kind == checkpoint.KindFrame && e.Sensitive && e.URL == tt.frame && e.Text == ""
			})
		}
		if tt.pushed {
			tt.conn.evaluate(t, page, "history.pushState({}, '', '/pushed')")
			s.noted(t, tt.profile, "the new URL", 1, func(e checkpoint.Entry) bool {
				return e.Kind == checkpoint.KindURL && e.URL == web.URL+"/pushed"
			})
			tt.conn.call(t, page, "Lease.checkpoint", map[string]any{"name": "pushed"}, nil)
		}
	}
	for _, tt := range cases {
		tt.conn.drop()
	}
	for _, tt := range cases {
		r := s.until(t, tt.profile, lease.Available, lease.ManualReview, lease.ResumePending)
		if r.State != tt.state || tt.state == lease.ManualReview && !strings.Contains(strings.Join(r.Reasons, " "), tt.frame) {
			t.Errorf("%s is %s: %v", tt.profile, r.State, r.Reasons)
		}
		want := web.URL + "/in-" + tt.profile
		if tt.pushed {
			want = web.URL + "/pushed"
		}
		if r.LastKnownURL != want {
			t.Errorf("%s: the last URL is %s", tt.profile, r.LastKnownURL)
		}
	}
}
