package e2e

import (
	"bytes"
	"encoding/json"
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
	for _, path := range []string{"/api", "/beacon", "/poll", "/order"} {
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
		case "/silent":
			<-r.Context().Done()
			return
		}
		script := map[string]string{
			"/polls": `let n = setInterval(() => fetch("/poll", {method: "POST", body: "what=new"}), 100)`,
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

// TestFactsAboutPages: what pages sent and did gives the right facts and the right
// decision.
func TestFactsAboutPages(t *testing.T) {
	t.Parallel()
	s, web := start(t), newBusySite(t)
	for _, tt := range []struct {
		name, query, page string
		act               func(t *testing.T, c *socket, session string)
		decision          string
		answers           map[string]string
	}{
		{"beacons", "", "/list", func(t *testing.T, c *socket, session string) {
			c.evaluate(t, session, `navigator.sendBeacon("/beacon", "x=1")`)
			s.noted(t, "beacons", "the beacon", 1, posted("/beacon"))
		}, "release", map[string]string{"background_requests": "yes", "unsafe_requests": "no", "forms_submitted": "no", "downloads": "no"}},
		{"posts", "", "/list", func(t *testing.T, c *socket, session string) {
			c.evaluate(t, session, `fetch("/api", {method: "POST", keepalive: true}).then(() => 1)`)
			s.noted(t, "posts", "the POST", 1, posted("/api"))
		}, "manual_review", map[string]string{"background_requests": "no", "unsafe_requests": "yes"}},
		{"keeps-back", "", "/list", func(t *testing.T, c *socket, session string) {
			c.call(t, session, "Fetch.enable", map[string]any{"patterns": []map[string]string{{"urlPattern": "*/api*"}}}, nil)
			for _, end := range []struct {
				method string
				params map[string]any
			}{
				{"Fetch.failRequest", map[string]any{"errorReason": "Failed"}},
				{"Fetch.fulfillRequest", map[string]any{"responseCode": 200}},
			} {
				c.evaluate(t, session, `fetch("/api?`+end.method+`", {method: "POST", body: "x"}).catch(() => 1), 1`)
				var paused struct{ RequestID string }
				c.event(t, "Fetch.requestPaused", &paused)
				end.params["requestId"] = paused.RequestID
				c.call(t, session, end.method, end.params, nil)
			}
			s.noted(t, "keeps-back", "how they ended", 2, func(e checkpoint.Entry) bool { return e.Blocked })
		}, "release", map[string]string{"unsafe_requests": "no"}},
		{"lets-through", "", "/list", func(t *testing.T, c *socket, session string) {
			c.call(t, session, "Fetch.enable", map[string]any{"patterns": []map[string]string{{"urlPattern": "*/api*", "requestStage": "Response"}}}, nil)
			c.evaluate(t, session, `fetch("/api", {method: "POST", body: "x"}).catch(() => 1), 1`)
			var paused struct{ RequestID string }
			c.event(t, "Fetch.requestPaused", &paused) // it was answered
			c.call(t, session, "Fetch.failRequest", map[string]string{"requestId": paused.RequestID, "errorReason": "Failed"}, nil)
			s.noted(t, "lets-through", "how it ended", 1, func(e checkpoint.Entry) bool { return e.Kind == checkpoint.KindAnswer && e.Method == "POST" })
		}, "manual_review", map[string]string{"unsafe_requests": "yes"}},
		{"polls", "", "/polls", func(t *testing.T, _ *socket, _ string) {
			s.noted(t, "polls", "the polls", 4, posted("/poll"))
		}, "release", map[string]string{"background_requests": "yes", "unsafe_requests": "no"}},
		{"insists", "", "/list", func(t *testing.T, c *socket, session string) {
			c.evaluate(t, session, `void setInterval(() => fetch("/api", {method: "POST", body: "pay"}), 50)`)
			s.noted(t, "insists", "the repeated POSTs", 4, posted("/api"))
		}, "manual_review", map[string]string{"background_requests": "no", "unsafe_requests": "yes"}},
		{"looks-around", "", "/list", func(t *testing.T, c *socket, session string) {
			c.evaluate(t, session, `document.cookie = "a=1"; localStorage.setItem("k", "v"); location.href = "/file?q=Pl4nt3d"; 1`)
			s.noted(t, "looks-around", "the download", 1, ofKind(checkpoint.KindDownload))
			s.noted(t, "looks-around", "what was stored", 1, ofKind(checkpoint.KindStorage))
			c.evaluate(t, session, `document.getElementById("find").submit(); 1`)
			s.noted(t, "looks-around", "the search", 1, ofKind(checkpoint.KindForm))
			s.noted(t, "looks-around", "its page", 1, func(e checkpoint.Entry) bool {
				return e.Kind == checkpoint.KindURL && strings.HasSuffix(e.URL, "/find?q=REDACTED")
			})
		}, "release", map[string]string{"downloads": "yes", "forms_submitted": "yes", "cookies_or_storage_changed": "yes", "unsafe_requests": "no", "dialogs": "no"}},
		{"changes-nothing", "", "/list", func(*testing.T, *socket, string) {},
			"release", map[string]string{"cookies_or_storage_changed": "no"}},
		{"orders", "", "/list", func(t *testing.T, c *socket, session string) {
			c.evaluate(t, session, `document.getElementById("order").submit(); 1`)
			s.noted(t, "orders", "the order", 1, posted("/order"))
		}, "manual_review", map[string]string{"forms_submitted": "yes", "unsafe_requests": "yes"}},
		{"only-asks", "", "/list", func(t *testing.T, c *socket, session string) {
			// The declared request is a form, which a script and the page itself send.
			c.evaluate(t, session, `fetch("/api", {method: "POST", body: new URLSearchParams({kind: "read"})}).then(() => {
				const form = Object.assign(document.createElement("form"), {method: "post", action: "/api"});
				form.innerHTML = "<input name=kind value=read>";
				document.body.append(form);
				form.submit();
				return 1;
			})`)
			s.noted(t, "only-asks", "both", 2, posted("/api"))
		}, "release", map[string]string{"unsafe_requests": "no", "harmless_requests": "yes"}},
		{"chats", "&resumable=true", "/list", func(t *testing.T, c *socket, session string) {
			c.evaluate(t, session, `new Promise(done => { window.w = new WebSocket(location.origin.replace("http", "ws") + "/socket"); w.onopen = () => done(w.send("one")) })`)
			fits := func(e checkpoint.Entry) bool { return e.Method == checkpoint.Websocket }
			s.noted(t, "chats", "the first message", 1, fits)
			c.call(t, "", "Lease.checkpoint", map[string]any{"name": "said_hello"}, nil)
			c.evaluate(t, session, `w.send("two")`)
			s.noted(t, "chats", "the message after the checkpoint", 2, fits)
		}, "manual_review", map[string]string{"websocket_messages": "yes", "websocket_messages_since_safe_checkpoint": "yes"}},
		{"said-all", "&resumable=true", "/list", func(t *testing.T, c *socket, session string) {
			c.evaluate(t, session, `fetch("/api", {method: "POST"}).then(() => 1)`)
			s.noted(t, "said-all", "the POST", 1, posted("/api"))
			c.call(t, "", "Lease.step", map[string]any{"name": "read_rows"}, nil)
			c.call(t, "", "Lease.checkpoint", map[string]any{"name": "sent"}, nil)
		}, "resume", map[string]string{"unsafe_requests": "yes", "unsafe_requests_since_safe_checkpoint": "no"}},
		{"by-query", "&sensitive_urls=step=Pl4nt3d", "/list?step=Pl4nt3d", func(*testing.T, *socket, string) {},
			"manual_review", map[string]string{"sensitive_page_or_step": "yes"}},
		{"by-word", "&sensitive_words=gazebo", "/the-gazebo/1", func(*testing.T, *socket, string) {},
			"manual_review", map[string]string{"sensitive_page_or_step": "yes"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.name == "only-asks" {
				if code := s.call(t, "PUT", "/v1/profiles/"+tt.name, map[string]any{"harmless_requests": []string{"POST " + web.URL + "/api kind=read"}}, nil); code/100 != 2 {
					t.Fatalf("its declaration: %d", code)
				}
			}
			c := dial(t, s.socket(tt.name, "worker=w&task=t"+tt.query))
			session, _ := c.page(t, web.URL+tt.page, "")
			s.noted(t, tt.name, "the page", 1, func(e checkpoint.Entry) bool {
				return e.Kind == checkpoint.KindURL && strings.HasPrefix(e.URL, web.URL)
			})
			if tt.name != "polls" { // polling has to begin before anything is done
				c.loaded(t, session, web.URL+tt.page)
			}
			tt.act(t, c, session)
			c.drop()
			r := s.until(t, tt.name, lease.Available, lease.ManualReview, lease.ResumePending)
			answers, how := s.inspection(t, tt.name)
			if r.Decision != tt.decision || r.DecisionVersion == 0 {
				t.Errorf("%s %q by version %d, want %s\n%v", r.Decision, r.Reasons, r.DecisionVersion, tt.decision, how)
			}
			for name, want := range tt.answers {
				if answers[name] != want {
					t.Errorf("%s: %q (%s), want %s", name, answers[name], how[name], want)
				}
			}
			if t.Failed() {
				t.Logf("journal: %s", checkpoint.Encode(s.journal(t, tt.name)))
			}
			events := s.events(t, tt.name)
			if last := events[len(events)-1]; last.DecisionVersion != r.DecisionVersion || tt.decision == "resume" && (last.LastSafeCheckpoint != "sent" || last.ResumeFrom != "read_rows") {
				t.Errorf("the last event: %+v", last)
			}
			for _, e := range s.journal(t, tt.name) {
				if b, err := json.Marshal(e); err != nil || bytes.Contains(b, []byte("Pl4nt3d")) {
					t.Errorf("the journal has what was typed: %s %v", b, err)
				}
			}
		})
	}
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

// TestContentsOfABundle: a bundle contains the last commands, the network and the console.
func TestContentsOfABundle(t *testing.T) {
	t.Parallel()
	s, web := start(t), newBusySite(t)
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

// TestReviewWhen: with --review-when a fact that the table ignores sends the profile to
// a person.
func TestReviewWhen(t *testing.T) {
	t.Parallel()
	s, web := start(t, "--review-when", "downloads,dialogs", "--cooldown", "1h"), newBusySite(t)
	c := dial(t, s.socket("careful", "worker=w&task=t"))
	session, _ := c.visit(t, web.URL+"/list")
	c.evaluate(t, session, `location.href = "/file"; 1`)
	s.noted(t, "careful", "the download", 1, ofKind(checkpoint.KindDownload))
	c.drop()
	r := s.until(t, "careful", lease.ManualReview, lease.Available)
	if r.State != lease.ManualReview || !strings.Contains(strings.Join(r.Reasons, " "), "downloads goes to a person by configuration") {
		t.Errorf("%s %q", r.State, r.Reasons)
	}
	if _, errs, code := s.cli(t, "review", "careful", "--decision", "approve", "--reviewer", "ann"); code != 0 {
		t.Fatalf("review: %s", errs)
	}
	var problem map[string]any
	if code := s.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": "careful"}, &problem); code != 423 || problem["code"] != "profile_cooling_down" {
		t.Errorf("right after the review: %d %v", code, problem)
	}
}

// TestLostWithAnUnfinishedPage: the worker vanishes while its page is in the middle of
// something, such as an open dialog. The bundle shows that, and nothing that was
// paused is sent.
func TestLostWithAnUnfinishedPage(t *testing.T) {
	t.Parallel()
	s, web := start(t), newBusySite(t)
	const post = `fetch("/api", {method: "POST", keepalive: true})`
	for _, tt := range []struct {
		name, page string
		prepare    func(t *testing.T, c *socket, session string)
		state      lease.State
		check      func(p evidence.PageResult) bool
	}{
		{"an-open-alert", "/list", func(t *testing.T, c *socket, session string) {
			c.call(t, session, "Page.enable", nil, nil)
			c.send(t, session, "Runtime.evaluate", map[string]any{"expression": `alert("really pay?"); ` + post})
			s.noted(t, "an-open-alert", "the alert", 1, ofKind(checkpoint.KindDialog))
		}, lease.Available, func(p evidence.PageResult) bool {
			return p.Dialog == "alert: really pay?" && strings.Contains(p.Missing, "dialog") && p.CommittedURL == web.URL+"/list"
		}},
		{"a-question-before-leaving", "/leave", func(t *testing.T, c *socket, session string) {
			c.call(t, session, "Page.enable", nil, nil)
			c.send(t, session, "Runtime.evaluate", map[string]any{"expression": `document.getElementById("order").submit()`, "userGesture": true})
			s.noted(t, "a-question-before-leaving", "the question", 1, ofKind(checkpoint.KindDialog))
		}, lease.ManualReview, func(p evidence.PageResult) bool {
			return strings.HasPrefix(p.Dialog, "beforeunload") && p.CommittedURL == web.URL+"/leave"
		}},
		{"a-crashed-page", "/list", func(t *testing.T, c *socket, _ string) {
			c.killRenderers(t)
			s.noted(t, "a-crashed-page", "the crash", 1, ofKind(checkpoint.KindCrash))
		}, lease.Available, func(p evidence.PageResult) bool {
			return p.Crashed && strings.Contains(p.Missing, "crashed") && p.CommittedURL == web.URL+"/list"
		}},
		{"an-order-held-back", "/list", func(t *testing.T, c *socket, session string) {
			c.call(t, session, "Fetch.enable", map[string]any{"patterns": []map[string]any{{"urlPattern": "*/order*"}}}, nil)
			c.send(t, session, "Runtime.evaluate", map[string]any{"expression": `document.getElementById("order").submit()`})
			c.event(t, "Fetch.requestPaused", nil)
			s.noted(t, "an-order-held-back", "the order", 1, posted("/order"))
		}, lease.ManualReview, func(p evidence.PageResult) bool {
			return p.Screenshot != "" && p.CommittedURL == web.URL+"/list"
		}},
		{"halfway-to-a-page", "/list", func(t *testing.T, c *socket, session string) {
			c.send(t, session, "Page.navigate", map[string]any{"url": web.URL + "/silent"})
			eventually(t, "the page on its way", func() error {
				var r struct{ TargetInfos []struct{ Type, URL string } }
				c.call(t, "", "Target.getTargets", nil, &r)
				for _, i := range r.TargetInfos {
					if strings.HasSuffix(i.URL, "/silent") {
						return nil
					}
				}
				return fmt.Errorf("%+v", r)
			})
		}, lease.Available, func(p evidence.PageResult) bool {
			return p.Screenshot != "" && p.URL == web.URL+"/silent" && p.CommittedURL == web.URL+"/list"
		}},
		{"a-stopped-script", "/list", func(t *testing.T, c *socket, session string) {
			c.call(t, session, "Debugger.enable", nil, nil)
			c.send(t, session, "Runtime.evaluate", map[string]any{"expression": `debugger; ` + post})
			c.event(t, "Debugger.paused", nil)
		}, lease.ManualReview, func(p evidence.PageResult) bool { return p.CommittedURL == web.URL+"/list" }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			api, orders := web.Posts("/api"), web.Posts("/order")
			c := dial(t, s.socket(tt.name, "worker=w&task=t"))
			session, target := c.page(t, web.URL+tt.page, "")
			s.noted(t, tt.name, "the page", 1, func(e checkpoint.Entry) bool { return e.Kind == checkpoint.KindURL && e.URL == web.URL+tt.page })
			c.loaded(t, session, web.URL+tt.page)
			tt.prepare(t, c, session)
			c.drop()
			r := s.until(t, tt.name, lease.Available, lease.ManualReview)
			if r.State != tt.state {
				t.Errorf("%s %q, want %s", r.State, r.Reasons, tt.state)
			}
			found := false
			m := s.bundle(t, tt.name)
			for _, p := range m.Pages {
				if p.TargetID == target {
					found = true
					if !tt.check(p) {
						t.Errorf("the page in the bundle: %+v", p)
					}
				}
			}
			if !found {
				t.Errorf("no page %s among %+v", target, m.Pages)
			}
			// The browser is gone, so nothing can be sent after this.
			if left := s.browsers(t); len(left) != 0 {
				t.Errorf("browsers are left: %v", left)
			}
			if n := web.Posts("/api") - api + web.Posts("/order") - orders; n != 0 {
				t.Errorf("%d POSTs were sent after the worker was gone", n)
			}
		})
	}
}
