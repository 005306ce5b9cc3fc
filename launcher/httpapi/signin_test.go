package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"leasehold/launcher/api"
)

// signingIn is a server with a profile shop_1, whose sign-in link can be made by a reviewer.
func signingIn(t *testing.T) *fixture {
	t.Helper()
	page := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "page "+r.PathValue("session")) })
	f := serve(t, Options{Gate: people(t), Console: page, Metrics: http.NotFoundHandler()}, ofShop("somebody"))
	f.answers["PlanSignIn"], f.answers["BeginSignIn"], f.answers["EndSignIn"] = "https://shop.example", held, nil
	return f
}

// sends sends a request of a browser, and returns the answer and its body.
func (f *fixture) sends(method, path, body string, headers ...string) (*http.Response, string) {
	f.t.Helper()
	r, err := http.NewRequestWithContext(f.t.Context(), method, f.URL+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	r.Header.Set("X-Forwarded-For", "10.0.0.1") // it is no user of this host
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	answer, err := f.Client().Transport.RoundTrip(r)
	if err != nil {
		f.t.Fatal(err)
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return answer, string(b)
}

const reviewer = "Authorization: Bearer token-of-reviewer-match"

// signInLink makes a link, and returns it with its path and its secret.
func (f *fixture) signInLink() (l api.SignInLink, path, secret string) {
	f.t.Helper()
	answer, body := f.sends("POST", "/v1/profiles/shop_1/sign-in-link", "", reviewer)
	if answer.StatusCode != http.StatusCreated || json.Unmarshal([]byte(body), &l) != nil {
		f.t.Fatalf("%s %s", answer.Status, body)
	}
	u, err := url.Parse(l.URL)
	if err != nil {
		f.t.Fatal(err)
	}
	return l, u.Path, u.Fragment
}

// uses is what the page behind a link sends.
func (f *fixture) uses(path, secret string, headers ...string) (*http.Response, string) {
	f.t.Helper()
	headers = append([]string{"Content-Type: application/x-www-form-urlencoded", "Sec-Fetch-Site: same-origin"}, headers...)
	return f.sends("POST", path, url.Values{"secret": {secret}}.Encode(), headers...)
}

// cookieOf uses a new link, and returns its path, and its cookie as a header.
func (f *fixture) cookieOf() (path, cookie string) {
	f.t.Helper()
	l, path, secret := f.signInLink()
	answer, body := f.uses(path, secret)
	cookies := answer.Cookies()
	if answer.StatusCode != http.StatusSeeOther || len(cookies) != 1 || answer.Header.Get("Location") != path {
		f.t.Fatalf("%s %s, cookies %v", answer.Status, body, cookies)
	}
	if c := cookies[0]; c.Path != path || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Value == secret {
		f.t.Errorf("the cookie is %v", c)
	}
	s := held
	s.State, s.Person = api.SessionServing, &api.Person{Principal: "link:" + l.LinkID}
	f.mu.Lock()
	f.answers["Session"] = s
	f.mu.Unlock()
	return path, "Cookie: " + signInCookie + "=" + cookies[0].Value
}

func TestASignInLinkIsUsedOnceByItsPage(t *testing.T) {
	f := signingIn(t)
	_, path, secret := f.signInLink()
	for name, ask := range map[string]func() (*http.Response, string){
		"loaded": func() (*http.Response, string) { return f.sends("GET", path, "") },
		"loaded from a page of another site": func() (*http.Response, string) {
			return f.sends("GET", path, "", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate")
		},
		"previewed with its secret as a query": func() (*http.Response, string) { return f.sends("GET", path+"?secret="+secret, "") },
	} {
		if answer, body := ask(); answer.StatusCode != 200 || body != "page " || len(answer.Cookies()) > 0 {
			t.Errorf("%s: %s %q, want the page, and nothing used", name, answer.Status, body)
		}
	}
	for name, ask := range map[string]func() (*http.Response, string){
		"framed by another site": func() (*http.Response, string) {
			return f.sends("GET", path, "", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors")
		},
		"sent by another site":            func() (*http.Response, string) { return f.uses(path, secret, "Sec-Fetch-Site: cross-site") },
		"sent from another origin":        func() (*http.Response, string) { return f.uses(path, secret, "Origin: https://evil.example") },
		"without its secret":              func() (*http.Response, string) { return f.uses(path, "") },
		"with another secret":             func() (*http.Response, string) { return f.uses(path, secret+"x") },
		"with the secret of another link": func() (*http.Response, string) { return f.uses("/sign-in/lnk_other", secret) },
	} {
		if answer, body := ask(); answer.StatusCode != 403 && answer.StatusCode != 404 {
			t.Errorf("%s: %s %s", name, answer.Status, body)
		}
	}
	if calls := strings.Join(f.taken(), "; "); strings.Contains(calls, "BeginSignIn") {
		t.Errorf("begun: %s", calls)
	}
	if answer, body := f.uses(path, secret); answer.StatusCode != http.StatusSeeOther {
		t.Errorf("used: %s %s", answer.Status, body)
	}
	if answer, body := f.uses(path, secret); answer.StatusCode != 404 || strings.Contains(body, "shop_1") {
		t.Errorf("used again: %s %s", answer.Status, body)
	}
}

// TestASignInCookieOpensNothingElse: no operation of the API, and no other link.
func TestASignInCookieOpensNothingElse(t *testing.T) {
	f := signingIn(t)
	path, cookie := f.cookieOf()
	if answer, body := f.sends("GET", path+"/session", "", cookie); answer.StatusCode != 200 || body != "{\"state\":\"serving\"}\n" {
		t.Errorf("its own session: %s %s", answer.Status, body)
	}
	if _, body := f.sends("GET", path, "", cookie); body != "page "+held.SessionID {
		t.Errorf("its own page: %q", body)
	}
	for _, o := range operations(t) {
		if matrix[o.id].roles == "open" {
			continue
		}
		if answer, body := f.ask(f.Client(), o, cookie, "X-Forwarded-For: 10.0.0.1"); answer.StatusCode != 401 {
			t.Errorf("%s: %s %s", o.id, answer.Status, body)
		}
	}
	for _, below := range []string{"/session", "/view", "/done"} {
		method := map[string]string{"/done": "POST"}[below]
		headers := []string{cookie}
		if below == "/view" {
			headers = append(headers, upgradeHeaders...)
		}
		if answer, body := f.sends(method, "/sign-in/lnk_other"+below, "", headers...); answer.StatusCode != 404 {
			t.Errorf("another link's %s: %s %s", below, answer.Status, body)
		}
	}
}

// TestASignInCookieEndsWithItsSession: when somebody else has the session, or the link is revoked.
func TestASignInCookieEndsWithItsSession(t *testing.T) {
	f := signingIn(t)
	path, cookie := f.cookieOf()
	s := held
	s.State, s.Person = api.SessionServing, &api.Person{Principal: "reviewer-match"}
	f.mu.Lock()
	mine := f.answers["Session"]
	f.answers["Session"] = s
	f.mu.Unlock()
	for _, below := range []string{"/session", "/view", "/done"} {
		headers := []string{cookie}
		if below == "/view" {
			headers = append(headers, upgradeHeaders...)
		}
		if answer, body := f.sends(map[string]string{"/done": "POST"}[below], path+below, "", headers...); answer.StatusCode != 404 {
			t.Errorf("%s of a session that another person has: %s %s", below, answer.Status, body)
		}
	}
	f.mu.Lock()
	f.answers["Session"] = mine
	f.mu.Unlock()
	if answer, body := f.sends("DELETE", "/v1/profiles/shop_1/sign-in-link", "", reviewer); answer.StatusCode != 200 || !strings.Contains(body, held.SessionID) {
		t.Errorf("revoked: %s %s", answer.Status, body)
	}
	if calls := strings.Join(f.taken(), "; "); !strings.Contains(calls, "EndSignIn") {
		t.Errorf("the session goes on: %s", calls)
	}
	if answer, body := f.sends("GET", path+"/session", "", cookie); answer.StatusCode != 404 {
		t.Errorf("after that: %s %s", answer.Status, body)
	}
}

// TestALinksPersonIsNotToldWhoHasTheSession: somebody took it while the site was asked.
func TestALinksPersonIsNotToldWhoHasTheSession(t *testing.T) {
	f := signingIn(t)
	path, cookie := f.cookieOf()
	f.answers["CheckSignIn"] = api.Refuse(api.CodeTakenOver, "Ann has the session").With("person", "Ann")
	if answer, body := f.sends("POST", path+"/done", "", cookie); answer.StatusCode != 404 || strings.Contains(body, "Ann") {
		t.Errorf("%s %s", answer.Status, body)
	}
}

// TestALinkThatBeganNothingIsNotUsed: the profile is another's at that moment, which is not told.
func TestALinkThatBeganNothingIsNotUsed(t *testing.T) {
	f := signingIn(t)
	_, path, secret := f.signInLink()
	f.answers["BeginSignIn"] = api.Refuse(api.CodeConflict, "held by worker-7").With("current_worker_id", "worker-7")
	if answer, body := f.uses(path, secret); answer.StatusCode != 409 || strings.Contains(body, "worker-7") {
		t.Errorf("%s %s", answer.Status, body)
	}
	f.answers["BeginSignIn"] = held
	if answer, body := f.uses(path, secret); answer.StatusCode != http.StatusSeeOther {
		t.Errorf("%s %s", answer.Status, body)
	}
}

// TestAPersonWhoLostTheirConnectionBeginsAgain: they get the session that was begun for them, or another
// one if that is over.
func TestAPersonWhoLostTheirConnectionBeginsAgain(t *testing.T) {
	for state, times := range map[string]int{api.SessionServing: 1, api.SessionEnded: 2} {
		f := signingIn(t)
		l, path, secret := f.signInLink()
		s := held
		s.State, s.Person = state, &api.Person{Principal: "link:" + l.LinkID}
		f.answers["Session"] = s
		ctx, leave := context.WithCancel(t.Context())
		f.during = func(context.Context) { leave() }
		r := httptest.NewRequestWithContext(ctx, "POST", path, strings.NewReader(url.Values{"secret": {secret}}.Encode()))
		for name, value := range map[string]string{"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin", "X-Forwarded-For": "10.0.0.1"} {
			r.Header.Set(name, value)
		}
		r.Host = f.addr()
		f.Config.Handler.ServeHTTP(httptest.NewRecorder(), r)
		f.during = nil
		answer, body := f.uses(path, secret)
		if answer.StatusCode != http.StatusSeeOther || len(answer.Cookies()) != 1 {
			t.Fatalf("%s: again: %s %s", state, answer.Status, body)
		}
		if calls := strings.Join(f.taken(), "; "); strings.Count(calls, "BeginSignIn") != times || strings.Contains(calls, "EndSignIn") {
			t.Errorf("%s: want %d begun, got %s", state, times, calls)
		}
		if answer, body := f.uses(path, secret); answer.StatusCode != 404 {
			t.Errorf("%s: used twice: %s %s", state, answer.Status, body)
		}
	}
}

func TestASignInLinkIsGoodForHalfAnHour(t *testing.T) {
	links, now := newSignInLinks(), time.Now()
	links.put(signInLink{id: "lnk_1", profile: "p", secret: sha256.Sum256([]byte("s")), expires: now.Add(api.SignInTime)}, now)
	late := now.Add(30 * time.Minute)
	if _, ok := links.use("lnk_1", "s", "c", late); ok {
		t.Error("a link can be used after half an hour")
	}
	if _, ok := links.use("lnk_1", "s", "c", late.Add(-time.Second)); !ok {
		t.Error("a link cannot be used within half an hour")
	}
	links.change(signInLink{id: "lnk_1", profile: "p"}, func(l *signInLink) { l.session = "ses_1" })
	if _, ok := links.find("lnk_1", "c", true, late.Add(30*time.Minute)); ok {
		t.Error("its cookie is good for longer than half an hour")
	}
}

// TestALinkWithASessionCanBeTakenBack: also when its time is over, and other links were made since.
func TestALinkWithASessionCanBeTakenBack(t *testing.T) {
	links, now := newSignInLinks(), time.Now()
	links.put(signInLink{id: "lnk_1", profile: "p", used: true, session: "ses_1", expires: now}, now)
	links.put(signInLink{id: "lnk_2", profile: "q", expires: now}, now)
	links.put(signInLink{id: "lnk_3", profile: "r", expires: now.Add(api.SignInTime)}, now)
	if l := links.remove("p"); l.session != "ses_1" {
		t.Errorf("the link is %+v, want that of ses_1", l)
	}
	if l := links.remove("q"); l.id != "" {
		t.Errorf("a link that nobody used is kept when its time is over: %+v", l)
	}
}
