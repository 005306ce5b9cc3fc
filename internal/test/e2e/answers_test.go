package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"leasehold/checkpoint"
	"leasehold/internal/test/clients"
	"leasehold/launcher/api"
	"leasehold/lease"
)

// TestWhatSitesAnswer: what a site answered decides about a lost worker's profile, and is
// shown to people.
func TestWhatSitesAnswer(t *testing.T) {
	t.Parallel()
	stop := make(chan struct{})
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		http.SetCookie(w, &http.Cookie{Name: "account", Value: "ann", Path: "/"})
		switch r.URL.Path {
		case "/hang":
			<-stop
		case "/signed-in-only":
			w.WriteHeader(http.StatusUnauthorized)
		case "/later":
			w.Header().Set("Retry-After", "300")
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = fmt.Fprint(w, "later")
		case "/with-widget":
			other := "http://" + strings.Replace(r.Host, "127.0.0.1", "localhost", 1)
			_, _ = fmt.Fprintf(w, `<!doctype html><title>x</title><iframe src='%s/widget'></iframe>
				<script>onload = () => setTimeout(() => fetch('%s/seen', {method: 'POST', mode: 'no-cors', body: location.pathname}), 2000)</script>`, other, other)
		default:
			_, _ = fmt.Fprintf(w, `<!doctype html><title>%s</title>`, r.URL.Path)
		}
	}))
	t.Cleanup(func() { close(stop); web.Close() })
	s := start(t, "--cooldown", "1s")
	raw := func(profile string, manifest map[string]any, script string, done func(checkpoint.Entry) bool) *socket {
		conn := dial(t, s.open(t, profile, manifest).CDPURL)
		page, _ := conn.visit(t, web.URL+"/start")
		if script != "" {
			conn.evaluate(t, page, script)
		}
		s.noted(t, profile, "what it waits for", 1, done)
		return conn
	}
	resumable := map[string]any{"resumable": true}

	signedOut := raw("signed-out", nil, `fetch('/order', {method: 'POST'}).then(() => fetch('/signed-in-only')); 0`, hasAnswer("/signed-in-only"))
	waits := raw("waits", nil, `location.href = '/later'; 0`, hasAnswer("/later"))
	vouched := raw("vouched", resumable, `fetch('/order', {method: 'POST'}); 0`, hasAnswer("/order"))
	inFlight := raw("in-flight", resumable, `fetch('/hang', {method: 'POST'}); 0`, func(e checkpoint.Entry) bool { return e.Kind == checkpoint.KindRequest })
	for _, conn := range []*socket{vouched, inFlight} {
		conn.call(t, "", "Lease.checkpoint", map[string]any{"name": "seen"}, nil)
	}
	// Playwright sends commands of its own to the frame of another site. What the page sends
	// by itself after that speaks for nobody.
	c := clients.Start(t, clients.Playwright, s.oneShot("nobodys", "worker=w&task=t"), clients.Interactive)
	c.Expect(t, "connect")
	c.Do(t, clients.Action{"action": "goto", "url": web.URL + "/start"})
	c.Do(t, clients.Action{"action": "goto", "url": web.URL + "/with-widget"})
	s.noted(t, "nobodys", "the answer to what the page sends", 1, hasAnswer("/seen"))

	for _, conn := range []*socket{signedOut, waits, vouched, inFlight} {
		conn.drop()
	}
	c.Kill()

	for _, tt := range []struct {
		profile, reason, request, answer string
		state                            lease.State
	}{
		{"signed-out", "/signed-in-only, answered 401", "/order", "200 OK", lease.ManualReview},
		{"waits", "", "", "", lease.Available},
		{"vouched", "", "/order", "200 OK", lease.ResumePending},
		{"in-flight", "unsafe requests were sent", "/hang", "unanswered", lease.ManualReview},
		{"nobodys", "", "/seen", "200 OK", lease.Available},
	} {
		r := s.until(t, tt.profile, lease.Available, lease.ManualReview, lease.ResumePending)
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
			shown += strings.TrimPrefix(strings.Replace(q.URL, "localhost", "127.0.0.1", 1), web.URL) + " " + q.Answer
		}
		if want := strings.TrimSpace(tt.request + " " + tt.answer); shown != want {
			t.Errorf("%s: %q, want %q", tt.profile, shown, want)
		}
		if out, _, _ := s.cli(t, "show", tt.profile); tt.request != "" && !strings.Contains(out, tt.answer) {
			t.Errorf("%s", out)
		}
	}
}
