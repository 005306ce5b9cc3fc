package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"leasehold/launcher/api"
	"leasehold/lease"
)

// whatSitesAnswer: what a site answered decides about a lost worker's profile, and is shown to people.
func whatSitesAnswer(t *testing.T, s *sidecar) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		http.SetCookie(w, &http.Cookie{Name: "account", Value: "ann", Path: "/"})
		switch r.URL.Path {
		case "/signed-in-only":
			w.WriteHeader(http.StatusUnauthorized)
		case "/later":
			w.Header().Set("Retry-After", "300")
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = fmt.Fprint(w, "later")
		default:
			_, _ = fmt.Fprintf(w, `<!doctype html><title>%s</title>`, r.URL.Path)
		}
	}))
	t.Cleanup(web.Close)
	for _, tt := range []struct {
		profile, script, last, reason, request, answer string
		state                                          lease.State
	}{
		{"signed-out", `fetch('/order', {method: 'POST'}).then(() => fetch('/signed-in-only')); 0`, "/signed-in-only", "/signed-in-only, answered 401", "/order", "200 OK", lease.ManualReview},
		{"waits", `location.href = '/later'; 0`, "/later", "", "", "", lease.Available},
	} {
		conn := dial(t, s.socket(tt.profile, "worker=w&task=t"))
		page, _ := conn.visit(t, web.URL+"/start")
		conn.evaluate(t, page, tt.script)
		s.noted(t, tt.profile, "the answer", 1, hasAnswer(tt.last))
		conn.drop()
		r := s.until(t, tt.profile, lease.Available, lease.ManualReview)
		if r.State != tt.state || !strings.Contains(strings.Join(r.Reasons, " "), tt.reason) {
			t.Errorf("%s is %s: %q", tt.profile, r.State, r.Reasons)
		}
		if left := time.Until(r.AvailableAfter); tt.profile == "waits" && (left < time.Minute || left > 5*time.Minute) {
			t.Errorf("%s is available after %v", tt.profile, left)
		}
		var found api.Inspection
		s.call(t, "GET", "/v1/profiles/"+tt.profile+"/inspection", nil, &found)
		shown := ""
		for _, q := range found.UnsafeRequests {
			shown += strings.TrimPrefix(q.URL, web.URL) + " " + q.Answer
		}
		if want := strings.TrimSpace(tt.request + " " + tt.answer); shown != want {
			t.Errorf("%s: %q, want %q", tt.profile, shown, want)
		}
		if out, _, _ := s.cli(t, "show", tt.profile); tt.request != "" && !strings.Contains(out, tt.answer) {
			t.Errorf("%s", out)
		}
	}
}
