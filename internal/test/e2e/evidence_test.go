package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"

	"leasehold/checkpoint"
	"leasehold/evidence"
	"leasehold/evidence/recorder"
	"leasehold/lease"
)

// busySite has pages that act by themselves, and counts the POSTs to each path.
type busySite struct {
	URL   string
	Posts func(path string) int64
}

func newBusySite(t *testing.T) *busySite {
	t.Helper()
	counts := map[string]*atomic.Int64{}
	for _, path := range []string{"/api", "/order"} {
		counts[path] = &atomic.Int64{}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n := counts[r.URL.Path]; r.Method == http.MethodPost && n != nil {
			n.Add(1)
		}
		switch r.URL.Path {
		case "/socket":
			conn, _, _, err := ws.UpgradeHTTP(r, w)
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = conn.Close() }()
			for {
				if _, err := wsutil.ReadClientText(conn); err != nil {
					return
				}
			}
		case "/file":
			w.Header().Set("Content-Disposition", `attachment; filename="report.txt"`)
			_, _ = io.WriteString(w, "a report")
			return
		}
		script := map[string]string{
			"/leave": `addEventListener("beforeunload", e => { e.preventDefault(); e.returnValue = "x" })`,
		}[r.URL.Path]
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, `<!doctype html><title>busy</title><h1>busy</h1><form id=find action=/find><input name=q value=Pl4nt3d></form>
<form id=order action=/order method=post><input name=x value=1></form><script>%s</script>`, script)
	}))
	t.Cleanup(server.Close)
	return &busySite{server.URL, func(path string) int64 { return counts[path].Load() }}
}

// journal returns the journal of the profile's last session.
func (s *sidecar) journal(t *testing.T, profile string) []checkpoint.Entry {
	t.Helper()
	entries, err := checkpoint.Read(filepath.Join(s.Dir, "sessions", s.record(t, profile).SessionID+".journal"))
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

// noted waits until the journal has n entries that fit.
func (s *sidecar) noted(t *testing.T, profile, what string, n int, fits func(checkpoint.Entry) bool) {
	t.Helper()
	eventually(t, what+" in the journal", func() error {
		found := 0
		entries := s.journal(t, profile)
		for _, e := range entries {
			if fits(e) {
				found++
			}
		}
		if found < n {
			return fmt.Errorf("%d of %d among %+v", found, n, entries)
		}
		return nil
	})
}

func ofKind(kind checkpoint.Kind) func(checkpoint.Entry) bool {
	return func(e checkpoint.Entry) bool { return e.Kind == kind }
}

// posted fits the entry of a request to the path.
func posted(path string) func(checkpoint.Entry) bool {
	return func(e checkpoint.Entry) bool {
		return e.Kind == checkpoint.KindRequest && strings.HasSuffix(e.URL, path)
	}
}

// hasAnswer fits the entry of an answer with a status to a request to the path.
func hasAnswer(path string) func(checkpoint.Entry) bool {
	return func(e checkpoint.Entry) bool {
		return e.Kind == checkpoint.KindAnswer && e.Status != 0 && strings.HasSuffix(e.URL, path)
	}
}

// inspection returns the answers of the profile's inspection, and how they were found,
// by fact.
func (s *sidecar) inspection(t *testing.T, profile string) (answers, how map[string]string) {
	t.Helper()
	var i struct {
		Facts []struct{ Name, Answer, How string }
	}
	if code := s.call(t, "GET", "/v1/profiles/"+profile+"/inspection", nil, &i); code != 200 {
		t.Fatalf("inspection of %s: %d", profile, code)
	}
	answers, how = map[string]string{}, map[string]string{}
	for _, f := range i.Facts {
		answers[f.Name], how[f.Name] = f.Answer, f.How
	}
	return answers, how
}

// bundle returns the manifest of the profile's newest bundle.
func (s *sidecar) bundle(t *testing.T, profile string) evidence.Manifest {
	t.Helper()
	var m evidence.Manifest
	if code := s.call(t, "GET", "/v1/evidence/"+s.record(t, profile).EvidenceID, nil, &m); code != 200 {
		t.Fatalf("evidence of %s: %d", profile, code)
	}
	return m
}

func (s *sidecar) part(t *testing.T, m evidence.Manifest, name string, into any) {
	t.Helper()
	if code := s.call(t, "GET", "/v1/evidence/"+m.EvidenceID+"/"+name, nil, into); code != 200 {
		t.Errorf("part %s: status %d", name, code)
	}
}

// contentsOfABundle: a bundle contains the last commands, the network and the console.
func contentsOfABundle(t *testing.T, s *sidecar) {
	web := newBusySite(t)
	first := dial(t, s.socket("told", "worker=w&task=t"))
	session, target := first.visit(t, web.URL+"/list")
	first.call(t, session, "Runtime.enable", nil, nil)
	first.evaluate(t, session, `console.warn("Pl4nt3d"); fetch("/api?q=Pl4nt3d", {method: "POST", body: "Pl4nt3d"}).then(() => 1)`)
	s.noted(t, "told", "the POST", 1, posted("/api?q=REDACTED"))
	first.drop()
	s.until(t, "told", lease.ManualReview)
	m := s.bundle(t, "told")
	var commands struct{ Entries []recorder.CommandEntry }
	s.part(t, m, recorder.CommandsPart, &commands)
	if len(commands.Entries) == 0 {
		t.Fatal("no commands")
	}
	last := commands.Entries[len(commands.Entries)-1]
	if last.Method != "Runtime.evaluate" || last.Target != target || last.Session != session || last.LeaseToken != m.LeaseToken || last.At.IsZero() {
		t.Errorf("the last command: %+v", last)
	}
	var network struct{ Entries []recorder.RequestEntry }
	s.part(t, m, recorder.NetworkPart, &network)
	found := false
	for _, e := range network.Entries {
		found = found || e.Method == "POST" && e.URL == web.URL+"/api?q=REDACTED" && e.Status == 200 && e.LeaseToken == m.LeaseToken
	}
	if !found {
		t.Errorf("no POST in %+v", network.Entries)
	}
	var console struct{ Entries []recorder.ConsoleEntry }
	s.part(t, m, recorder.ConsolePart, &console)
	if len(console.Entries) == 0 || console.Entries[0].Level != "warning" || console.Entries[0].Text != "REDACTED" {
		t.Errorf("the console: %+v", console.Entries)
	}
	for _, p := range m.Parts {
		if p.Missing != "" {
			t.Errorf("%s is missing: %s", p.Name, p.Missing)
			continue
		}
		var raw []byte
		s.part(t, m, p.Name, &raw)
		if bytes.Contains(raw, []byte("Pl4nt3d")) {
			t.Errorf("%s has what was typed:\n%s", p.Name, raw)
		}
	}
}

// lostWithUnfinishedPages: the worker vanishes while its pages are in the middle of something, such as
// an open dialog. The bundle shows that, and nothing that was paused is sent.
func lostWithUnfinishedPages(t *testing.T, s *sidecar) {
	const profile, post = "unfinished", `fetch("/api", {method: "POST", keepalive: true})`
	web := newBusySite(t)
	c := dial(t, s.socket(profile, "worker=w&task=t"))
	shows := map[string]func(p evidence.PageResult) bool{} // by target
	page := func(path string) (session, target string) {
		session, target = c.visit(t, web.URL+path)
		c.call(t, session, "Page.enable", nil, nil)
		return session, target
	}
	stopped, target := page("/list")
	c.call(t, stopped, "Debugger.enable", nil, nil)
	c.send(t, stopped, "Runtime.evaluate", map[string]any{"expression": `debugger; ` + post})
	c.event(t, "Debugger.paused", nil)
	shows[target] = func(p evidence.PageResult) bool { return p.CommittedURL == web.URL+"/list" }

	asked, target := page("/leave")
	c.send(t, asked, "Runtime.evaluate", map[string]any{"expression": `document.getElementById("order").submit()`, "userGesture": true})
	s.noted(t, profile, "the question", 1, ofKind(checkpoint.KindDialog))
	shows[target] = func(p evidence.PageResult) bool {
		return strings.HasPrefix(p.Dialog, "beforeunload") && p.CommittedURL == web.URL+"/leave"
	}

	alerted, target := page("/list")
	c.send(t, alerted, "Runtime.evaluate", map[string]any{"expression": `alert("really pay?"); ` + post})
	s.noted(t, profile, "the alert", 2, ofKind(checkpoint.KindDialog))
	shows[target] = func(p evidence.PageResult) bool {
		return p.Dialog == "alert: really pay?" && strings.Contains(p.Missing, "dialog") && p.CommittedURL == web.URL+"/list"
	}

	c.drop()
	s.until(t, profile, lease.ManualReview)
	for _, p := range s.bundle(t, profile).Pages {
		if check := shows[p.TargetID]; check != nil && !check(p) {
			t.Errorf("the page in the bundle: %+v", p)
		}
		delete(shows, p.TargetID)
	}
	if len(shows) > 0 {
		t.Errorf("%d pages are not in the bundle", len(shows))
	}
	if answers, how := s.inspection(t, profile); answers["closed_cleanly"] != "yes" {
		t.Errorf("closed cleanly: %s (%s)", answers["closed_cleanly"], how["closed_cleanly"])
	}
	// The browser is gone, so nothing can be sent after this.
	if left := s.anyBrowserOf(t, profile); left != 0 {
		t.Errorf("browser %d is left", left)
	}
	if n := web.Posts("/api") + web.Posts("/order"); n != 0 {
		t.Errorf("%d POSTs were sent after the worker was gone", n)
	}
}
