package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"leasehold/internal/test/tab"
	"leasehold/launcher/api"
	"leasehold/lease"
)

// bank is a site that asks for a password, a second factor, a passkey, a consent and a code by mail,
// one page after the other. Each page has one field above, and one button below.
type bank struct {
	*httptest.Server
	mu  sync.Mutex
	got map[string]string // what was sent, by page
}

// bankPages are the pages in their order, each with what it has.
var bankPages = []struct{ path, field, button string }{
	{"/", `<input name=v type=password autocomplete=current-password>`, "Sign in"},
	{"/factor", `<input name=v inputmode=numeric autocomplete=one-time-code>`, "Go on"},
	{"/passkey", `<p>Make a passkey?</p><script>navigator.credentials.create({publicKey: {challenge: new Uint8Array(16), rp: {name: "bank"}, user: {id: new Uint8Array(1), name: "ann", displayName: "ann"}, pubKeyCredParams: [{type: "public-key", alg: -7}]}}).catch(() => {})</script>`, "Not now"},
	{"/consent", `<label style="display:block;height:100%;background:#eee"><input name=v type=checkbox value=agreed required>I agree</label>`, "Agree"},
	{"/mailed", `<input name=v>`, "Done"},
}

func newBank(t *testing.T) *bank {
	t.Helper()
	b := &bank{got: map[string]string{}}
	b.Server = httptest.NewServer(b)
	t.Cleanup(b.Close)
	return b
}

func (b *bank) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w.Header().Set("Content-Type", "text/html")
	if r.URL.Path == "/me" {
		if c, err := r.Cookie("sid"); err != nil || c.Value != "ann" {
			http.Redirect(w, r, "/", http.StatusFound)
			return
		}
		_, _ = io.WriteString(w, "<title>me</title>ann is here")
		return
	}
	for i, p := range bankPages {
		switch {
		case r.URL.Path != p.path:
		case r.Method == http.MethodPost:
			b.got[p.path] = r.FormValue("v")
			if i+1 < len(bankPages) {
				http.Redirect(w, r, bankPages[i+1].path, http.StatusSeeOther)
				return
			}
			http.SetCookie(w, &http.Cookie{Name: "sid", Value: "ann", Path: "/", HttpOnly: true})
			http.Redirect(w, r, "/me", http.StatusSeeOther)
			return
		default:
			fmt.Fprintf(w, `<!doctype html><title>%s</title><form method=post><div style="position:fixed;left:10%%;top:10%%;width:80%%;height:30%%">%s</div>`+
				`<button style="position:fixed;left:10%%;top:50%%;width:80%%;height:40%%">%s</button><style>input:not([type=checkbox]) { width: 100%%; height: 100%% }</style></form>`, p.path, p.field, p.button)
			return
		}
	}
	http.NotFound(w, r)
}

// phone is the phone of a person, which shows the page behind a sign-in link.
type phone struct{ tab.Tab }

func newPhone(t *testing.T) phone {
	t.Helper()
	v := phone{tab.Tab{T: t, Ctx: viewer(t)}}
	v.Do(chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile, chromedp.EmulateTouch))
	return v
}

// at waits until a page of the site is shown, and its picture.
func (v phone) at(path string) {
	v.T.Helper()
	v.Until(fmt.Sprintf(`new URL(document.querySelector("#address").textContent).pathname === %q && document.querySelector("#over").hidden`, path))
}

// tap touches the picture in its middle, so far below its top.
func (v phone) tap(down float64) {
	v.T.Helper()
	box := func(what string) float64 {
		return float64(v.Number(`Math.round(document.querySelector("#picture").getBoundingClientRect().` + what + `)`))
	}
	point := &input.TouchPoint{X: box("left") + box("width")/2, Y: box("top") + box("height")*down}
	for _, e := range []input.DispatchTouchEventParams{
		{Type: input.DispatchTouchEventTypeTouchStart, TouchPoints: []*input.TouchPoint{point}},
		{Type: input.DispatchTouchEventTypeTouchEnd, TouchPoints: []*input.TouchPoint{}},
	} {
		if _, err := chromedp.Call(v.Ctx, input.DispatchTouchEvent, e); err != nil {
			v.T.Fatal(err)
		}
	}
}

// types enters a text as the keyboard of a phone does, which has no keys.
func (v phone) types(text string) {
	v.T.Helper()
	if _, err := chromedp.Call(v.Ctx, input.InsertText, input.InsertTextParams{Text: text}); err != nil {
		v.T.Fatal(err)
	}
}

// signInLink has the sidecar make a link for a profile.
func (s *sidecar) signInLink(t *testing.T, profile string) (l api.SignInLink) {
	t.Helper()
	if code := s.call(t, "POST", "/v1/profiles/"+profile+"/sign-in-link", nil, &l); code != http.StatusCreated {
		t.Fatalf("a sign-in link: %d", code)
	}
	return l
}

// endsLate is a script that keeps from a page that a session is over, until endsLate() is called there.
const endsLate = `{
	const { get, set } = Object.getOwnPropertyDescriptor(WebSocket.prototype, "onmessage");
	Object.defineProperty(WebSocket.prototype, "onmessage", { get, set(told) {
		set.call(this, e => { if (typeof e.data !== "string" || JSON.parse(e.data).type !== "ended") told.call(this, e); });
		window.endsLate = () => told.call(this, new MessageEvent("message", { data: JSON.stringify({ type: "ended", how: "late" }) }));
	} });
}`

// TestAPersonSignsInByALink: on a phone, through a password, a second factor, a passkey that is
// declined, a consent and a code by mail. The site is asked when the person says that they are done.
func TestAPersonSignsInByALink(t *testing.T) {
	t.Parallel()
	web, s := newBank(t), start(t)
	settings := map[string]any{"session_check": map[string]any{"url": web.URL + "/me", "text": "ann is here"}}
	if code := s.call(t, "PUT", "/v1/profiles/acct", settings, nil); code/100 != 2 {
		t.Fatalf("its settings: %d", code)
	}
	if out, errs, _ := s.cli(t, "check", "acct"); !strings.HasPrefix(out, "acct: signed in: no") {
		t.Fatalf("check: %s%s", out, errs)
	}
	out, errs, code := s.cli(t, "sign-in", "acct")
	link, _, _ := strings.Cut(out, "\n")
	if code != 0 || !strings.HasPrefix(link, s.URL+"/sign-in/lnk_") {
		t.Fatalf("sign-in: %d %s%s", code, out, errs)
	}
	for _, method := range []string{"GET", "HEAD"} { // what shows a preview of the link
		if r, err := http.NewRequestWithContext(t.Context(), method, link, nil); err != nil {
			t.Fatal(err)
		} else if answer, err := http.DefaultClient.Do(r); err != nil || answer.StatusCode != 200 || len(answer.Cookies()) > 0 {
			t.Fatalf("%s: %+v, %v", method, answer, err)
		}
	}
	v := newPhone(t)
	if _, err := chromedp.Call(v.Ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: endsLate}); err != nil {
		t.Fatal(err)
	}
	v.Do(chromedp.Navigate(link))
	v.Until(`!document.querySelector("#begin").hidden`)
	photograph(t, v.Ctx, "sign-in-begin")
	v.Click(`#go`)
	v.at("/")
	photograph(t, v.Ctx, "sign-in-password")
	if r := s.record(t, "acct"); r.State != lease.Held || r.ByHand == nil {
		t.Errorf("while the person signs in: %s, %+v", r.State, r.ByHand)
	}
	v.Click(`#signed-in`)
	v.Until(`document.querySelector("#notice").innerText.includes("not signed in yet")`)
	for _, step := range []struct{ path, types string }{{"/", "hunter2"}, {"/factor", "123456"}, {"/passkey", ""}, {"/consent", " "}, {"/mailed", "778899"}} {
		v.at(step.path)
		switch step.types {
		case "":
		case " ":
			v.tap(0.2)
		default:
			v.tap(0.2)
			v.types(step.types)
		}
		v.tap(0.7)
	}
	v.at("/me")
	v.Click(`#signed-in`)
	v.Until(`document.querySelector("#notice").innerText.includes("It is signed in")`)
	photograph(t, v.Ctx, "sign-in-done")
	// The view says, too, that the session is over: also after the answer, which stays.
	if says := v.Text(`(endsLate(), document.querySelector("#notice").innerText)`); !strings.Contains(says, "It is signed in") {
		t.Errorf("once the view ends: %s", says)
	}
	s.until(t, "acct", lease.Available)
	eventually(t, "the account counts as signed in", func() error {
		if r := s.record(t, "acct"); r.SignedIn != lease.SignedInYes || r.State != lease.Available {
			return fmt.Errorf("%s, %s (%s)", r.State, r.SignedIn, r.SignedInHow)
		}
		return nil
	})
	web.mu.Lock()
	defer web.mu.Unlock()
	if want := map[string]string{"/": "hunter2", "/factor": "123456", "/passkey": "", "/consent": "agreed", "/mailed": "778899"}; fmt.Sprint(web.got) != fmt.Sprint(want) {
		t.Errorf("the site got %v, want %v", web.got, want)
	}
}

// holder is a client that has used a sign-in link, with its cookie.
type holder struct {
	*http.Client
	link api.SignInLink
	page string
}

// uses opens a link as the page behind it does, and returns the status.
func (s *sidecar) uses(t *testing.T, l api.SignInLink) (holder, int) {
	t.Helper()
	u, err := url.Parse(l.URL)
	if err != nil {
		t.Fatal(err)
	}
	jar, _ := cookiejar.New(nil) // it returns no error
	h := holder{&http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, l, s.URL + u.Path}
	return h, h.send(t, "POST", "", "application/x-www-form-urlencoded", url.Values{"secret": {u.Fragment}}.Encode())
}

func (h holder) send(t *testing.T, method, path, mediaType, body string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, h.page+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	if mediaType != "" {
		r.Header.Set("Content-Type", mediaType)
	}
	answer, err := h.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	return answer.StatusCode
}

// TestASignInLinkIsForOnePersonOnce: it is used twice, revoked before and while it is used, made again,
// its person goes away, and the launcher is killed while they have the profile.
func TestASignInLinkIsForOnePersonOnce(t *testing.T) {
	t.Parallel()
	web, s := newBank(t), start(t, "--person-grace", "1s")
	settings := map[string]any{"session_check": map[string]any{"url": web.URL + "/me", "text": "ann is here"}}
	if code := s.call(t, "PUT", "/v1/profiles/acct", settings, nil); code/100 != 2 {
		t.Fatalf("its settings: %d", code)
	}
	revoke := func() (gone api.SignInRevoked) {
		t.Helper()
		if code := s.call(t, "DELETE", "/v1/profiles/acct/sign-in-link", nil, &gone); code != 200 {
			t.Fatalf("revoke: %d", code)
		}
		return gone
	}
	link := s.signInLink(t, "acct")
	if gone := revoke(); gone.LinkID != link.LinkID || gone.SessionID != "" {
		t.Errorf("revoked: %+v", gone)
	}
	if _, code := s.uses(t, link); code != 404 {
		t.Errorf("a revoked link: %d", code)
	}
	older := s.signInLink(t, "acct")
	link = s.signInLink(t, "acct")
	if _, code := s.uses(t, older); code != 404 {
		t.Errorf("a link that another one replaced: %d", code)
	}
	h, code := s.uses(t, link)
	if code != http.StatusSeeOther || h.send(t, "GET", "/session", "", "") != 200 {
		t.Fatalf("a link: %d", code)
	}
	if _, code := s.uses(t, link); code != 404 {
		t.Errorf("a link that was used: %d", code)
	}
	if code := h.send(t, "POST", "/done", "", ""); code != 200 {
		t.Errorf("done: %d", code)
	}
	if gone := revoke(); gone.SessionID == "" {
		t.Errorf("revoked: %+v", gone)
	}
	if code := h.send(t, "GET", "/session", "", ""); code != 404 {
		t.Errorf("after the link was revoked: %d", code)
	}
	s.until(t, "acct", lease.Available)

	// The person does not come back: the browser is closed, and the site asked.
	if _, code = s.uses(t, s.signInLink(t, "acct")); code != http.StatusSeeOther {
		t.Fatalf("a link: %d", code)
	}
	if r := s.until(t, "acct", lease.Available); r.Reason != api.ReasonPersonGone {
		t.Errorf("after the person was gone: %+v", r)
	}

	// A launcher that is killed knows no link, and ends the session of one as any other person's.
	if h, code = s.uses(t, s.signInLink(t, "acct")); code != http.StatusSeeOther {
		t.Fatalf("a link: %d", code)
	}
	before := s.URL
	s.kill(t)
	s.launch(t)
	h.page = strings.Replace(h.page, before, s.URL, 1)
	if code := h.send(t, "GET", "/session", "", ""); code != 404 {
		t.Errorf("after the launcher was killed: %d", code)
	}
	if r := s.until(t, "acct", lease.Available, lease.ManualReview); r.ByHand != nil {
		t.Errorf("after that: %+v", r)
	}
}

// TestASignInLinkLeadsToTheWorkerThatAsks: the person gets the session of a worker that waits, and the
// worker goes on when they are done; the link's cookie is worth nothing then.
func TestASignInLinkLeadsToTheWorkerThatAsks(t *testing.T) {
	t.Parallel()
	web, s := newBank(t), start(t)
	ses := s.open(t, "acct", nil)
	c := dial(t, ses.CDPURL)
	c.page(t, web.URL+"/mailed", "")
	asked := make(chan api.Answer, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		var answer api.Answer
		if ctx.Err() == nil {
			s.call(t, "POST", "/v1/sessions/"+ses.SessionID+"/ask", map[string]any{"lease_token": ses.Token, "reason": "the code"}, &answer)
		}
		asked <- answer
	}()
	s.asksFor(t, ses, "the code")
	var l api.SignInLink
	if code := s.call(t, "POST", "/v1/profiles/acct/sign-in-link", map[string]any{"url": web.URL + "/mailed"}, &l); code != http.StatusCreated {
		t.Fatalf("a sign-in link: %d", code)
	}
	h, code := s.uses(t, l)
	if code != http.StatusSeeOther {
		t.Fatalf("a link: %d", code)
	}
	if now := s.handed(t, ses); now.Person == nil || now.Person.Principal != "link:"+l.LinkID {
		t.Errorf("taken over by %+v", now.Person)
	}
	if code := h.send(t, "POST", "/done", "", ""); code != 200 { // no site can be asked
		t.Errorf("done: %d", code)
	}
	if answer := <-asked; !answer.Answered || answer.Principal != "link:"+l.LinkID {
		t.Errorf("the worker was told %+v", answer)
	}
	for path, method := range map[string]string{"/session": "GET", "/done": "POST"} {
		if code := h.send(t, method, path, "", ""); code != 404 {
			t.Errorf("%s after the worker goes on: %d", path, code)
		}
	}
	c.drop()
}

// makesALink presses the button of the profile's page before it that makes a sign-in link, and returns the link.
func (v phone) makesALink() string {
	v.T.Helper()
	v.Click(`#make-link`)
	v.Until(`document.querySelector("#sign-in-link").value.includes("/sign-in/")`)
	return v.Text(`document.querySelector("#sign-in-link").value`)
}

// TestAnotherAccountIsSignedInByALink: who has the link that the console's button made is told so and goes
// on. If they leave it at that, the record has it, and no task gets the profile; the right account mends it.
func TestAnotherAccountIsSignedInByALink(t *testing.T) {
	t.Parallel()
	s := start(t)
	var who atomic.Value
	who.Store("ann")
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"email":%q}`, who.Load())
	}))
	t.Cleanup(site.Close)
	file := map[string]any{"name": "shop", "origins": []string{site.URL}, "identity": map[string]any{"get": "/me", "take": []string{"$.email"}}}
	for path, settings := range map[string]any{"/v1/sites/shop": file, "/v1/profiles/acct": map[string]any{"expected_domains": []string{"127.0.0.1"}}} {
		if code := s.call(t, "PUT", path, settings, nil); code/100 != 2 {
			t.Fatalf("%s: %d", path, code)
		}
	}
	recorded := func(signedIn lease.SignedIn, another bool) {
		t.Helper()
		eventually(t, fmt.Sprintf("the record to have %s, another account %v", signedIn, another), func() error {
			if r := s.record(t, "acct"); r.State != lease.Available || r.SignedIn != signedIn || r.AnotherAccount != another {
				return fmt.Errorf("%s, %q, another account %v (%s)", r.State, r.SignedIn, r.AnotherAccount, r.SignedInHow)
			}
			return nil
		})
	}
	c := dial(t, s.socket("acct", "worker=w&task=t"))
	c.visit(t, site.URL+"/")
	c.close(t)
	recorded(lease.SignedInYes, false) // from now on ann is the account

	v := newPhone(t)
	says := func(text string) {
		t.Helper()
		v.Click(`#signed-in`)
		v.Until(fmt.Sprintf(`document.querySelector("#notice").innerText.includes(%q)`, text))
	}
	who.Store("bob")
	v.Do(chromedp.Navigate(s.URL + "/console/acct"))
	v.Do(chromedp.Navigate(v.makesALink()))
	v.Click(`#go`)
	v.at("/me")
	says("another account")
	if r := s.record(t, "acct"); r.State != lease.Held || r.ByHand == nil || r.AnotherAccount {
		t.Errorf("while the person goes on it is %s, %+v, another account %v", r.State, r.ByHand, r.AnotherAccount)
	}
	if code := s.call(t, "DELETE", "/v1/profiles/acct/sign-in-link", nil, nil); code != 200 {
		t.Fatalf("revoke: %d", code)
	}
	recorded(lease.SignedInNo, true)
	if got := names(s.events(t, "acct")); !strings.Contains(got, lease.EventAnotherAccount) {
		t.Errorf("the events are %s", got)
	}
	var refused struct {
		Code     string `json:"code"`
		At       string `json:"sign_in_at"`
		Another  bool   `json:"another_account"`
		SignedIn string `json:"signed_in_how"`
	}
	if code := s.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": "acct", "worker_id": "w", "task_id": "t2"}, &refused); code != 423 || refused.Code != "profile_signed_out" || !refused.Another || refused.At != site.URL {
		t.Errorf("a task is answered by %d %+v", code, refused)
	}

	v.Do(chromedp.Navigate(s.URL + "/accounts"))
	v.Click(`a[href$="#by-hand"]`)
	v.Do(chromedp.Navigate(v.makesALink()))
	v.Click(`#go`)
	v.at("/") // of the site that said no
	says("another account")
	who.Store("ann")
	says("It is signed in")
	recorded(lease.SignedInYes, false)
}
