package monitor

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"leasehold/checkpoint"
	"leasehold/checkpoint/wording"
	"leasehold/launcher/recovery/findings"
	"leasehold/launcher/recovery/table"
)

// answering is a site that answers as its paths say: /N with the status N, /redirect/N?to=
// with a redirect, /hang never, and everything else with a page that has the content of
// "page".
func answering(t *testing.T) *answeringSite {
	t.Helper()
	site := &answeringSite{}
	site.stored.Store("")
	stop := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		first, rest, _ := strings.Cut(strings.Trim(r.URL.Path, "/"), "/")
		h := w.Header()
		h.Set("Access-Control-Allow-Origin", "*")
		h.Set("Access-Control-Allow-Headers", "authorization, x-key")
		h.Set("Content-Type", "text/html")
		status, _ := strconv.Atoi(first)
		if r.Method == http.MethodOptions {
			return
		}
		switch {
		case first == "hang":
			select {
			case <-r.Context().Done():
			case <-stop:
			}
		case first == "stored":
			_, _ = fmt.Fprintf(w, "<!doctype html><body>%s", site.stored.Load())
		case first == "redirect":
			n, _ := strconv.Atoi(rest)
			http.Redirect(w, r, r.FormValue("to"), n)
		case status != 0:
			if rest != "" {
				h.Set("Retry-After", rest)
			}
			w.WriteHeader(status)
			if status != http.StatusNoContent {
				_, _ = fmt.Fprint(w, "no")
			}
		default:
			http.SetCookie(w, &http.Cookie{Name: "session", Value: "1", Path: "/"})
			if first == "policy" {
				h.Set("Content-Security-Policy", "connect-src 'self'")
			}
			_, _ = fmt.Fprintf(w, "<!doctype html><body>%s", r.FormValue("page"))
		}
	}))
	t.Cleanup(func() { close(stop); s.Close() })
	site.own, site.other = s.URL, strings.Replace(s.URL, "127.0.0.1", "localhost", 1)
	return site
}

// answeringSite is a site with two names that are two sites to a browser. stored is the
// content of its page /stored, which has nothing in its URL.
type answeringSite struct {
	own, other string
	stored     atomic.Value
}

// TestAnswersOfARealBrowser: what Chromium tells of requests is what the journal says they
// were answered.
func TestAnswersOfARealBrowser(t *testing.T) {
	w := watch(t)
	site := answering(t)
	own, other := site.own, site.other
	page := w.open(own + "/first")
	w.visit(page, own+"/second") // with the account's cookie
	is := func(e checkpoint.Entry, path string) bool {
		return slices.Contains([]string{own + path, other + path, path}, e.URL)
	}
	done := func(path string) func(checkpoint.Entry) bool {
		return func(e checkpoint.Entry) bool {
			return e.Kind == checkpoint.KindAnswer && is(e, path) && (e.Status != 0 || e.Failed != "")
		}
	}

	t.Run("unsafe requests", func(t *testing.T) {
		for _, tt := range []struct {
			name, script, path string
			answer             string
			answered           bool
		}{
			{"success", `fetch('/200?a', {method: 'POST', body: 'x'})`, "/200?a", "200 OK", true},
			{"a refusal", `fetch('/403?b', {method: 'PUT'})`, "/403?b", "403 Forbidden", true},
			{"a page's own OPTIONS", `fetch('/200?o', {method: 'OPTIONS', body: 'b'})`, "/200?o", "200 OK", true},
			{"XHR", `var x = new XMLHttpRequest(); x.open('DELETE', '/204?c'); x.send()`, "/204?c", "204 No Content", true},
			{"a beacon", `navigator.sendBeacon('/200?d', 'x')`, "/200?d", "200 OK", true},
			{"a beacon that calls itself a ping", `navigator.sendBeacon('/200?p', new Blob(['x'], {type: 'text/ping'}))`, "/200?p", "200 OK", true},
			{"the ping of a link", `var a = document.createElement('a'); a.href = '#', a.ping = '/200?q'; a.click()`, "/200?q", "200 OK", true},
			{"what no CORS rule lets the page see", `fetch('` + other + `/x?e', {method: 'POST', credentials: 'include'}).catch(() => 0)`, "/x?e", "failed: kept from the page by CORS", true},
			{"nobody is there", `fetch('http://127.0.0.1:9/?f', {method: 'POST'}).catch(() => 0)`, "http://127.0.0.1:9/?f", "failed: net::ERR_UNSAFE_PORT", true},
			{"taken back by the page", `var c = new AbortController(); fetch('/hang?g', {method: 'POST', signal: c.signal}).catch(() => 0); setTimeout(() => c.abort(), 50)`, "/hang?g", "failed, and not known what became of it: canceled", false},
			{"sent on with its method", `fetch('/redirect/307?to=/200?h', {method: 'POST'})`, "/redirect/307?to=/200?h", "307 Temporary Redirect", true},
			{"and what that was answered", ``, "/200?h", "200 OK", true},
			{"sent on without it", `fetch('/redirect/303?to=/200?i', {method: 'POST'})`, "/redirect/303?to=/200?i", "303 See Other", true},
		} {
			t.Run(tt.name, func(t *testing.T) {
				if tt.script != "" {
					w.run(page, tt.script+"; 0")
				}
				sum := checkpoint.Summarize(w.until(done(tt.path)))
				i := slices.IndexFunc(sum.Unsafe, func(e checkpoint.Entry) bool { return is(e, tt.path) })
				if i < 0 {
					t.Fatalf("not among %+v", sum.Unsafe)
				}
				if e := sum.Unsafe[i]; wording.Answer(e) != tt.answer || e.Answered() != tt.answered {
					t.Errorf("%q, answered %v, want %q, %v", wording.Answer(e), e.Answered(), tt.answer, tt.answered)
				}
			})
		}
	})

	t.Run("what the browser refuses to send", func(t *testing.T) {
		w.call(page, "Network.enable", nil, nil)
		w.call(page, "Network.setBlockedURLs", map[string]any{"urls": []string{"*blocked-by-list*"}}, nil)
		w.run(page, `fetch('/200?blocked-by-list', {method: 'PUT'}).catch(() => 0)`)
		for _, e := range w.until(done("/200?blocked-by-list")) {
			if e.Kind == checkpoint.KindAnswer && is(e, "/200?blocked-by-list") && (!e.Blocked || !e.Answered()) {
				t.Errorf("%+v", e)
			}
		}
		w.call(page, "Network.disable", nil, nil)
	})

	t.Run("a redirect that the browser refuses to follow", func(t *testing.T) {
		p, path := w.open(own+"/policy"), "/redirect/302?to="+other+"/refused"
		w.run(p, `fetch('`+path+`', {method: 'POST'}).catch(() => 0); 0`)
		// Chrome tells of the refusal and of the sending in any order.
		sum := checkpoint.Summarize(w.until(func(e checkpoint.Entry) bool { return done(path)(e) && !e.Blocked }))
		i := slices.IndexFunc(sum.Unsafe, func(e checkpoint.Entry) bool { return is(e, path) })
		if i < 0 || sum.Unsafe[i].Blocked {
			t.Errorf("%+v", sum.Unsafe)
		}
	})

	t.Run("a hanging one is unanswered", func(t *testing.T) {
		w.run(page, `fetch('/hang?later', {method: 'POST'}); 0`)
		w.until(func(e checkpoint.Entry) bool { return strings.HasSuffix(e.URL, "/hang?later") })
		w.monitor.HearAnswers(t.Context())
		entries := append(w.until(func(checkpoint.Entry) bool { return true }), checkpoint.Entry{Kind: checkpoint.KindCheckpoint, Safe: true})
		inFlight := checkpoint.Summarize(entries).InFlight
		if len(inFlight) != 2 || !strings.HasSuffix(inFlight[1].URL, "/hang?later") { // the other is the one taken back
			t.Errorf("%+v", inFlight)
		}
	})

	t.Run("documents", func(t *testing.T) {
		p := w.open(own + "/documents")
		refused, signIn, waits := table.SiteRefused, table.SentToSignIn, table.AskedToWait
		for _, tt := range []struct {
			name, path string
			yes        string
		}{
			{"a page", "/there", ""},
			{"no such page", "/404", ""},
			{"not signed in", "/401", refused},
			{"not allowed", "/403", refused},
			{"too many requests", "/429", refused},
			{"too many requests, come again", "/429/60", waits},
			{"too many requests, come again in two hours", "/429/7200", refused},
			{"closed by law", "/451", refused},
			{"broken", "/500", ""},
			{"moved, for now", "/redirect/302?to=/there", ""},
			{"moved, and says from where", "/redirect/301?to=/there?from=/redirect/301", ""},
			{"sent to a sign-in", "/redirect/302?to=/there?next=/redirect/302", signIn},
			{"sent to another site, to come back", "/redirect/302?to=" + other + "/there?back=" + own + "/callback", signIn},
			{"sent to where a password is wanted", "/redirect/303?to=/there?page=<input+type=password>", signIn},
			{"sent to where a code is wanted", `/redirect/303?to=/there?page=<input+autocomplete="section-a+one-time-code">`, signIn},
			{"sent to where nobody can see the field", "/redirect/303?to=/there?page=<input+type=password+hidden>", ""},
			{"where a password is wanted, as asked for", "/there?page=<input+type=password>", ""},
		} {
			t.Run(tt.name, func(t *testing.T) {
				w.restart()
				w.visit(p, own+tt.path)
				w.until(func(e checkpoint.Entry) bool { return e.Kind == checkpoint.KindAnswer && e.Committed })
				w.monitor.LookForSignIn(t.Context())
				if err := w.monitor.Reported(t.Context()); err != nil {
					t.Fatal(err)
				}
				found := findings.InspectTask(checkpoint.Summarize(w.until(func(checkpoint.Entry) bool { return true })), findings.Task{})
				for _, fact := range []string{refused, signIn, waits} {
					if got := found.Answer(fact); got != table.Is(fact == tt.yes) {
						t.Errorf("%s is %s: %+v", fact, got, found)
					}
				}
			})
		}
	})

	t.Run("anonymous requests", func(t *testing.T) {
		track := func(options string) string {
			return "<script>fetch('" + other + "/200?track', {method: 'POST', body: 'x', " + options + "}).catch(() => 0)</script>"
		}
		for _, tt := range []struct {
			name, page string
			want       bool
		}{
			{"to another site", track(`mode: 'no-cors', credentials: 'omit'`), true},
			{"with a header of its own", track(`headers: {'x-key': '1'}`), false},
			{"with credentials", track(`headers: {authorization: 'Bearer 1'}`), false},
			{"to its own site", "<script>fetch('/200?track', {method: 'POST', credentials: 'omit'})</script>", false},
		} {
			t.Run(tt.name, func(t *testing.T) {
				w.restart()
				site.stored.Store(tt.page)
				w.visit(page, own+"/stored")
				w.until(done("/200?track"))
				for judged := false; !judged; time.Sleep(5 * time.Millisecond) { // what it carried may be told later
					w.monitor.log.mu.Lock()
					judged = true
					for r := range w.monitor.log.ledger.All() {
						judged = judged && r.Page == nil
					}
					w.monitor.log.mu.Unlock()
				}
				if err := w.monitor.CatchUp(t.Context()); err != nil {
					t.Fatal(err)
				}
				e := w.until(done("/200?track"))
				if sent := checkpoint.Summarize(e).Unsafe[0]; sent.Anonymous != tt.want {
					t.Errorf("%s", checkpoint.Encode(e))
				}
			})
		}
	})
}
