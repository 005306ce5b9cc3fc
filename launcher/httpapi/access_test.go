package httpapi

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"leasehold/launcher/api"
	"leasehold/launcher/principal"
	"leasehold/lease"
)

func bearer(name string) string { return "Authorization: Bearer token-of-" + name }

func TestListsShowWhatTheCallerMaySee(t *testing.T) {
	for _, c := range []struct {
		who, opener        string
		sessions, profiles []string
	}{
		{"worker-match", "somebody", nil, nil},
		{"worker-match", "worker-match", []string{"ses_1"}, []string{"shop_1"}},
		{"worker-other", "worker-other", nil, nil}, // its patterns changed since
		{"reviewer-other", "reviewer-other", nil, []string{"bank_1"}},
		{"viewer-match", "somebody", []string{"ses_1"}, []string{"shop_1"}},
		{"admin-other", "somebody", nil, []string{"bank_1"}},
		{"admin-match", "somebody", []string{"ses_1"}, []string{"shop_1"}},
	} {
		f := serve(t, Options{Gate: people(t)}, ofShop(c.opener))
		for path, want := range map[string][]string{"/v1/sessions": c.sessions, "/v1/profiles": c.profiles} {
			_, body := f.request("GET", path, "", bearer(c.who))
			for _, id := range []string{"ses_1", "shop_1", "bank_1"} {
				member := `"profile_id":"` + id + `"`
				if id == "ses_1" {
					member = `"session_id":"ses_1"`
				}
				if path == "/v1/sessions" && id != "ses_1" || path == "/v1/profiles" && id == "ses_1" {
					continue
				}
				if shown := strings.Contains(body, member); shown != slices.Contains(want, id) {
					t.Errorf("%s, a session of %s: %s shows %s: %v\n%s", c.who, c.opener, path, id, shown, body)
				}
			}
		}
	}
}

func TestAWorkerMakesNoProfile(t *testing.T) {
	answers := ofShop("somebody")
	answers["Acquire"] = held
	answers["Profile"] = api.Refuse(api.CodeUnknownProfile, "none")
	f := serve(t, Options{Gate: people(t)}, answers)
	ask := func(who string) (*http.Response, string) {
		return f.request("POST", "/v1/sessions", `{"profile_id":"shop_1","worker_id":"w","create":true}`, bearer(who))
	}
	if r, body := ask("worker-match"); r.StatusCode != 403 || !strings.Contains(body, "operator, admin") || len(f.acted()) > 0 {
		t.Errorf("a profile that is not there: %s %s, want 403 that says who makes profiles", r.Status, body)
	}
	if r, body := ask("operator-match"); r.StatusCode != 201 || !strings.Contains(f.acted()[0], `"create":true`) {
		t.Errorf("an operator: %s %s, want 201", r.Status, body)
	}
	f.mu.Lock()
	f.answers["Profile"] = api.Profile{Record: lease.Record{ProfileID: "shop_1"}}
	f.mu.Unlock()
	if r, body := ask("worker-match"); r.StatusCode != 201 || strings.Contains(f.acted()[0], "create") {
		t.Errorf("a profile that is there: %s %s, want 201, and that nothing is made", r.Status, body)
	}
}

func hexOf(token string) string { return fmt.Sprintf("%x", principal.Hash(token)) }

func TestACopyIsOneThatTheCallerMayMake(t *testing.T) {
	f := serve(t, Options{Gate: people(t)}, ofShop("somebody"))
	r, body := f.request("POST", "/v1/profiles/shop_1/clone", `{"to":"bank_1"}`, bearer("operator-match"))
	if r.StatusCode != 403 || !strings.Contains(body, "bank_1") || len(f.acted()) > 0 {
		t.Errorf("%s %s, want 403 for the copy", r.Status, body)
	}
}

// TestWhoMayRehome: a reviewer helps a profile whose home is gone. To take it from one that is there is to move it, and
// to copy a directory is to import it.
func TestWhoMayRehome(t *testing.T) {
	for body, roles := range map[string]string{`{"empty":true}`: "reviewer operator", `{"empty":true,"ask_home":true}`: "operator", `{"from":"/x"}`: "operator"} {
		for _, role := range []string{"reviewer", "operator"} {
			f := serve(t, Options{Gate: people(t)}, ofShop("somebody"))
			r, said := f.request("POST", "/v1/profiles/shop_1/rehome", body, bearer(role+"-match"))
			if may := strings.Contains(roles, role); (r.StatusCode == 403) == may || (len(f.acted()) > 0) != may {
				t.Errorf("%s asks for %s: %s %s; may: %v", role, body, r.Status, said, may)
			}
		}
	}
}

// TestATokenInTheQueryDoesNotComeBack: the URL that is answered has a ticket, which does for
// one profile what the token does, and ends with the token.
func TestATokenInTheQueryDoesNotComeBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	write := func(name string) {
		t.Helper()
		line := "tokens: [{name: " + name + ", sha256: \"" + hexOf("token-of-w") + "\", role: worker, profiles: [\"shop_*\"]}]\n"
		if err := os.WriteFile(path, []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("w")
	g, err := principal.NewGate(principal.Options{Own: 1, File: path, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	conn := newConnection(nil)
	answers := ofShop("w")
	mine := answers["Session"].(api.Session)
	answers["Acquire"], answers["Connect"], answers["SessionOf"], answers["Targets"] = mine, api.Connection(conn), mine, []api.Target{{ID: "T1"}}
	f := serve(t, Options{Gate: g}, answers)
	_, body := f.request("GET", "/profiles/shop_1/json/version/?worker=w&task=t&token=token-of-w", "")
	if strings.Contains(body, "token-of-w") {
		t.Fatalf("the token comes back: %s", body)
	}
	_, after, _ := strings.Cut(body, "ws://"+f.addr())
	ticketed, _, _ := strings.Cut(after, `"`)
	if !strings.HasPrefix(ticketed, "/s/") || !strings.HasSuffix(ticketed, "/devtools/browser/shop_1") {
		t.Fatalf("%s, want a URL with a ticket", body)
	}
	f.taken()
	base := strings.TrimSuffix(ticketed, "/devtools/browser/shop_1")
	upgrade := func(path string) string {
		nc := f.dial()
		defer nc.Close()
		if _, err := nc.Write([]byte(f.upgrade(path))); err != nil {
			t.Fatal(err)
		}
		line, _ := bufio.NewReader(nc).ReadString('\n')
		return line
	}
	if line := upgrade(ticketed); !strings.Contains(line, " 101 ") {
		t.Errorf("the ticket: %q, want 101", line)
	}
	select {
	case <-conn.served:
	case <-time.After(patience):
		t.Fatal("nothing is served")
	}
	if calls := f.taken(); !slices.Contains(calls, `Acquire {"task_id":"t","worker_id":"w","profile_id":"shop_1"} true`) {
		t.Errorf("calls %q, want the lease of the URL that was asked for", calls)
	}
	if line := upgrade(base + "/devtools/browser/shop_2"); !strings.Contains(line, " 400 ") {
		t.Errorf("another profile: %q, want 400", line)
	}
	for path, want := range map[string]string{"/json/version": ticketed, "/json/list": base + "/devtools/page/T1"} {
		if r, body := f.request("GET", base+path, ""); r.StatusCode != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %s %s, want %s", path, r.Status, body, want)
		}
	}
	if _, body := f.request("GET", "/profiles/shop_1/json/list?worker=w&task=t&token=token-of-w", ""); strings.Contains(body, "token-of-w") || !strings.Contains(body, "/s/") {
		t.Errorf("the list repeats the token: %s", body)
	}
	if r, body := serve(t, Options{Gate: g}, answers).request("GET", base+"/json/list", ""); r.StatusCode != 404 {
		t.Errorf("the ticket at the next sidecar: %s %s, want 404", r.Status, body)
	}
	write("other") // who showed the token is not known any more
	for _, path := range []string{"/json/version", "/json/list", "/json/close/T1"} {
		if r, body := f.request("GET", base+path, ""); r.StatusCode != 401 {
			t.Errorf("%s after the principal was taken out: %s %s, want 401", path, r.Status, body)
		}
	}
	if line := upgrade(ticketed); !strings.Contains(line, " 401 ") {
		t.Errorf("the ticket of nobody: %q, want 401", line)
	}
}

func TestTicketsEnd(t *testing.T) {
	const most = 16
	ts, now := newTickets(most), time.Now()
	over := func(string) bool { return false }
	living := func(id string) bool { return id == "ses_1" }
	a := ts.issue(ticket{}, now, over)
	b := ts.issue(ticket{}, now, over)
	ts.opened(b, "ses_1")
	for _, c := range []struct {
		secret string
		after  time.Duration
		living func(string) bool
		want   bool
	}{
		{"", 0, living, false}, {"x", 0, living, false}, {a, 0, over, true}, {b, ticketLife, living, true},
		{a, ticketLife, living, false}, {a, 0, over, false}, {b, ticketLife, over, false}, {b, 0, living, false},
	} {
		if _, ok := ts.find(c.secret, now.Add(c.after), c.living); ok != c.want {
			t.Errorf("%+v: %v", c, ok)
		}
	}
	first := ts.issue(ticket{}, now, over)
	for i := range most {
		ts.issue(ticket{}, now.Add(time.Duration(i+1)), over)
	}
	if _, ok := ts.find(first, now, over); ok || len(ts.all) != most {
		t.Errorf("%d tickets, the first is there: %v", len(ts.all), ok)
	}
}

// TestATicketInUseIsKept: whatever other principals ask for, and whatever its own principal asks
// for, a ticket stays while its session lives; but of several of one session the newest.
func TestATicketInUseIsKept(t *testing.T) {
	const most = 16
	ts, now := newTickets(most), time.Now()
	living := func(id string) bool { return id != "over" }
	ann, bob := principal.Principal{Name: "ann"}, principal.Principal{Name: "bob"}
	issue := func(who principal.Principal, session string) string {
		now = now.Add(time.Millisecond)
		secret := ts.issue(ticket{who: who}, now, living)
		if session != "" {
			ts.opened(secret, session)
		}
		return secret
	}
	anns, bobs, over := issue(ann, "ses_1"), issue(bob, ""), issue(ann, "over")
	for range 2 * most {
		issue(ann, "")
	}
	now = now.Add(ticketLife - 3*most*time.Millisecond)
	for secret, want := range map[string]bool{anns: true, bobs: true, over: false} {
		if _, ok := ts.find(secret, now, living); ok != want {
			t.Errorf("a ticket is there: %v, want %v", ok, want)
		}
	}
	for range 2 * most { // each joins the same session
		issue(ann, "ses_2")
	}
	newest := issue(ann, "ses_2")
	for _, secret := range []string{anns, newest} {
		if _, ok := ts.find(secret, now, living); !ok {
			t.Error("the newest ticket of a living session is gone")
		}
	}
	if n := len(ts.all); n > most+1 { // and bob's
		t.Errorf("%d tickets", n)
	}
}

func TestABodyIsJSON(t *testing.T) {
	for _, header := range []string{"Content-Type: text/plain", "Content-Type: application/x-www-form-urlencoded", "Content-Type: multipart/form-data; boundary=x", "Content-Type: ", "Content-Type: application/json; q"} {
		f := serve(t, Options{}, nil)
		for _, c := range [][2]string{{"POST", "/v1/sessions"}, {"PUT", "/v1/profiles/p"}, {"DELETE", "/v1/sessions/s"}, {"POST", "/v1/profiles/p/review"}, {"POST", "/v1/profiles/p/archive"}} {
			r, body := f.request(c[0], c[1], `{"lease_token":1}`, header)
			if r.StatusCode != 415 {
				t.Errorf("%s %s with %q: %s %s, want 415", c[0], c[1], header, r.Status, body)
			}
			conforms(t, document(t), c[0], c[1], r, body)
		}
		f.wantCalls()
	}
	f := serve(t, Options{}, map[string]any{"Release": held})
	if r, body := f.request("DELETE", "/v1/sessions/s?lease_token=1&outcome=succeeded", ""); r.StatusCode != 200 {
		t.Errorf("no body: %s %s", r.Status, body)
	}
	f = serve(t, Options{}, map[string]any{"Release": held})
	if r, body := f.request("DELETE", "/v1/sessions/s", `{"lease_token":1,"outcome":"succeeded"}`, "Content-Type: application/json; charset=utf-8"); r.StatusCode != 200 {
		t.Errorf("with a charset: %s %s", r.Status, body)
	}
}

func TestRefusalsAreLoggedAndBounded(t *testing.T) {
	f := serve(t, Options{Gate: people(t)}, ofShop("somebody"))
	for range maxDenials + 50 {
		f.request("GET", "/v1/profiles/shop_1/history", "", bearer("worker-match"))
	}
	f.Server.Close()
	log := f.log.String()
	// A minute may end between two requests.
	if n := strings.Count(log, `"message":"caller refused"`); n < maxDenials || n > 2*maxDenials || strings.Count(log, `"principal":"worker-match"`) < n {
		t.Errorf("%d lines of refusals:\n%.2000s", n, log)
	}
	if !strings.Contains(log, `"route":"GET /v1/profiles/{profile}/history"`) || !strings.Contains(log, `"profile":"shop_1"`) {
		t.Errorf("they do not say of what:\n%.2000s", log)
	}
}

// TestWhoComesThroughAProxyIsNotItsUser: neither at the API nor at a session's own port, as far as
// the request shows it; and not at the API if it comes from where the operator said that a proxy is.
// An API token counts as ever.
func TestWhoComesThroughAProxyIsNotItsUser(t *testing.T) {
	const trusted = "from a trusted proxy"
	for _, header := range []string{
		"Forwarded: for=10.0.0.1", "Via: 1.1 x", "X-Forwarded-For: 10.0.0.1", "X-Forwarded-Host: x", "X-Forwarded-Proto: https", "X-Forwarded-Port: 443",
		"X-Real-IP: 10.0.0.1", "x-forwarded-for: ", trusted,
	} {
		o := Options{Gate: people(t)}
		headers := []string{header}
		if header == trusted {
			o.TrustedProxies, headers = behind.TrustedProxies, nil
		}
		f := serve(t, o, ofShop("somebody"))
		if r, body := f.request("GET", "/v1/sessions", "", headers...); r.StatusCode != 401 || !strings.Contains(body, "you come through a proxy") {
			t.Errorf("%s: %s %s, want 401", header, r.Status, body)
		}
		if r, body := f.request("GET", "/v1/sessions", "", append(headers, bearer("viewer-match"))...); r.StatusCode != 200 {
			t.Errorf("%s, with a token: %s %s, want 200", header, r.Status, body)
		}
		if header == trusted {
			continue // whose settings are not those of a session's port
		}
		port := serveWith(t, o, map[string]any{"Session": held}, func(svc api.Service, o Options) http.Handler { return Dedicated(svc, "ses_1", o) })
		if r, body := port.request("GET", "/json/list", "", headers...); r.StatusCode != 401 || !strings.Contains(body, "you come through a proxy") {
			t.Errorf("%s, at a session's port: %s %s, want 401", header, r.Status, body)
		}
	}
}

// TestAServerThatDoesNotAskTheKernel admits nobody by the user.
func TestAServerThatDoesNotAskTheKernel(t *testing.T) {
	f := serve(t, Options{}, nil)
	plain := &http.Server{Handler: f.Config.Handler, ReadHeaderTimeout: patience}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = plain.Serve(l) }()
	t.Cleanup(func() { _ = plain.Close(); <-done })
	r, err := f.Client().Get("http://" + l.Addr().String() + "/v1/sessions")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if r.StatusCode != 401 {
		t.Errorf("%s, want 401", r.Status)
	}
}
