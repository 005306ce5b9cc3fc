package e2e

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/nats-io/nats.go"
	"github.com/pquerna/otp/totp"
	"github.com/rs/zerolog"

	"leasehold/evidence/crypt"
	"leasehold/internal/test/rawcdp"
	"leasehold/launcher/api"
	"leasehold/lease"
	"leasehold/lease/natskv"
)

const (
	shopPassword = "correct-horse-battery-7391"
	shopUser     = "ann-4711@shop.example"
	shopSeed     = "JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXQ"
)

// authShop is a site with a user name, a password on a second page, and a code of a second factor. What
// it does otherwise, tricks say.
type authShop struct {
	*httptest.Server
	mu     sync.Mutex
	got    []string // what was sent, as PATH VALUE
	codes  []string // those that were right
	trick  string   // a script of the page with the password
	echoes bool     // the page after the password has it in its text
	to     string   // where the sign-in leads instead; empty: nowhere else
	in     bool     // who has no cookie is signed in, too
	paused chan struct{}
	going  chan struct{}
}

func newAuthShop(t *testing.T) *authShop {
	t.Helper()
	b := &authShop{}
	b.Server = httptest.NewServer(b)
	t.Cleanup(b.Close)
	return b
}

func (b *authShop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/html")
	b.mu.Lock()
	paused, going := b.paused, b.going
	b.mu.Unlock()
	if paused != nil && r.URL.Path == "/password" && r.Method == http.MethodGet {
		close(paused)
		<-going
		b.mu.Lock()
		b.paused = nil
		b.mu.Unlock()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.Method == http.MethodPost {
		b.got = append(b.got, r.URL.Path+" "+r.FormValue("v"))
	}
	form := func(field, more string) {
		fmt.Fprintf(w, `<!doctype html><title>%s</title><form method=post action=%[1]s><input name=v %s><button>Go on</button></form>%s`, r.URL.Path, field, more)
	}
	switch r.Method + " " + r.URL.Path {
	case "GET /":
		_, _ = io.WriteString(w, "<title>shop</title>a shop")
	case "GET /me":
		if c, err := r.Cookie("sid"); err != nil || c.Value != "signed-in-as-ann" {
			if b.in {
				_, _ = io.WriteString(w, "ann is here")
				return
			}
			http.Redirect(w, r, "/login", http.StatusFound)
			return
		}
		_, _ = io.WriteString(w, "<title>me</title>ann is here")
	case "GET /login":
		if b.to != "" {
			http.Redirect(w, r, b.to, http.StatusFound)
			return
		}
		form(`id=user`, "")
	case "POST /login":
		http.Redirect(w, r, "/password", http.StatusSeeOther)
	case "GET /password":
		form(`id=password type=password`, b.trick)
	case "POST /password":
		if r.FormValue("v") != shopPassword {
			http.Redirect(w, r, "/password", http.StatusSeeOther)
			return
		}
		if b.echoes {
			fmt.Fprintf(w, `<title>echo</title><p>you typed %s</p><script>console.log(%[1]q); setTimeout(() => location = "/code", 300)</script>`, r.FormValue("v"))
			return
		}
		http.Redirect(w, r, "/code", http.StatusSeeOther)
	case "GET /code":
		form(`id=code inputmode=numeric autocomplete=one-time-code`, "")
	case "POST /code":
		if !totp.Validate(r.FormValue("v"), shopSeed) {
			http.Redirect(w, r, "/code", http.StatusSeeOther)
			return
		}
		b.codes = append(b.codes, r.FormValue("v"))
		http.SetCookie(w, &http.Cookie{Name: "sid", Value: "signed-in-as-ann", Path: "/", HttpOnly: true})
		http.Redirect(w, r, "/me", http.StatusSeeOther)
	default:
		http.NotFound(w, r)
	}
}

// sent is what the site got.
func (b *authShop) sent() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string{}, b.got...)
}

// startWithSecrets starts a sidecar that has a secret of acct for the site, and knows how to sign in there.
func startWithSecrets(t *testing.T, b *authShop, password string, args ...string) *sidecar {
	t.Helper()
	dir := t.TempDir()
	key := filepath.Join(dir, "key")
	recipient, err := crypt.WriteIdentity(key)
	if err != nil {
		t.Fatal(err)
	}
	to, err := crypt.ParseRecipients([]string{recipient})
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := to.Encrypt(fmt.Appendf(nil, "- {name: acct, origin: %q, username: %q, password: %q, totp: %q}\n", b.URL, shopUser, password, shopSeed))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "secrets.age")
	if err := os.WriteFile(file, sealed, 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, append([]string{"--secrets", file, "--secrets-identity", key}, args...)...)
	site := map[string]any{"origins": []string{b.URL}, "sign_in": map[string]any{"url": "/login", "username": "#user", "password": "#password", "code": "#code", "submit": "button"}}
	if code := s.call(t, "PUT", "/v1/sites/shop", site, nil); code/100 != 2 {
		t.Fatalf("the file about the site: %d", code)
	}
	settings := map[string]any{"session_check": map[string]any{"url": b.URL + "/me", "text": "ann is here"}}
	if code := s.call(t, "PUT", "/v1/profiles/acct", settings, nil); code/100 != 2 {
		t.Fatalf("its settings: %d", code)
	}
	return s
}

// signsIn has a worker's connection ask for the sign-in.
func (c *socket) signsIn(t *testing.T) (answer api.SignInAnswer) {
	t.Helper()
	c.call(t, "", "Lease.signIn", nil, &answer)
	return answer
}

// TestTheSidecarSignsIn: by user name, password and code, on three pages, while a worker that follows all
// targets is told of no page, and everything that it sends is refused. Nothing that the sidecar wrote has
// the password, the seed or the code.
func TestTheSidecarSignsIn(t *testing.T) {
	t.Parallel()
	web := newAuthShop(t)
	web.echoes, web.paused, web.going = true, make(chan struct{}), make(chan struct{})
	s := startWithSecrets(t, web, shopPassword)
	ses := s.open(t, "acct", map[string]any{"sign_in": true})
	c := dial(t, ses.CDPURL)
	own, _ := c.visit(t, web.URL+"/")
	c.call(t, "", "Target.setDiscoverTargets", map[string]any{"discover": true, "filter": []map[string]any{{}}}, nil)
	c.call(t, "", "Target.setAutoAttach", map[string]any{"autoAttach": true, "waitForDebuggerOnStart": true, "flatten": true}, nil)
	c.call(t, "", "Lease.event", map[string]any{"type": "planted", "data": "planted-string"}, nil)
	for on, off := range map[string]string{"Tracing.start": "Tracing.end", "Fetch.enable": "Fetch.disable"} {
		c.call(t, "", on, map[string]any{}, nil)
		if got := c.fails(t, "", "Lease.signIn", nil); !strings.Contains(got.Message, "hears what every page does since its "+on) {
			t.Errorf("after %s: %s", on, got.Message)
		}
		c.call(t, "", off, nil, nil)
	}
	c.evaluate(t, own, "1") // what came before is read
	before := len(c.targetEvents(t))
	id := c.send(t, "", "Lease.signIn", nil)
	goOn := sync.OnceFunc(func() { close(web.going) })
	defer goOn()
	<-web.paused
	for method, session := range map[string]string{"Page.captureScreenshot": own, "Runtime.evaluate": own, "Target.getTargets": "", "Input.insertText": own, "Storage.getCookies": ""} {
		if got := c.fails(t, session, method, map[string]any{"expression": "1", "text": "x"}); !strings.Contains(got.Message, "the sidecar signs the account in") {
			t.Errorf("%s: %s", method, got.Message)
		}
	}
	goOn()
	if m := c.answer(t, id); m.Error != nil || !bytes.Contains(m.Result, []byte(`"signedIn":"yes"`)) {
		t.Fatalf("%s, %+v; the site got %v", m.Result, m.Error, len(web.sent()))
	}
	c.evaluate(t, own, "1")
	if got := c.targetEvents(t)[before:]; len(got) > 0 {
		t.Errorf("the worker was told of %s", got)
	}
	if r := s.record(t, "acct"); r.SignedIn != lease.SignedInYes || r.SignInAttempts != 0 {
		t.Errorf("the record has %s, %d attempts", r.SignedIn, r.SignInAttempts)
	}
	if answer := c.signsIn(t); answer.SignedIn != "yes" || !strings.HasPrefix(answer.Reason, "nothing was typed") {
		t.Errorf("once more: %+v", answer)
	}
	c.drop() // the worker is lost, with evidence
	s.until(t, "acct", lease.Available, lease.ManualReview)
	web.mu.Lock()
	codes := web.codes
	web.mu.Unlock()
	if len(codes) != 1 || len(web.sent()) != 3 {
		t.Errorf("the site got %d requests, %d right codes", len(web.sent()), len(codes))
	}
	s.stop(t)
	const alone = "no page reported it" // of a request of the sign-in: its own page does
	found := grep(t, s, append([]string{"planted-string", alone, shopPassword, shopSeed, shopUser}, codes...)...)
	if len(found["planted-string"]) == 0 {
		t.Error("what is there was not found either")
	}
	delete(found, "planted-string")
	if len(found) > 0 {
		t.Errorf("secrets are in %v", found)
	}
}

// TestAfterTwoSignInsAPersonSignsIn: nothing more is typed then. The answer of the site counts, and not the
// person's word.
func TestAfterTwoSignInsAPersonSignsIn(t *testing.T) {
	t.Parallel()
	web, n := newAuthShop(t), startNATS(t)
	s := startWithSecrets(t, web, shopPassword, n.args()...)
	ses := s.open(t, "acct", map[string]any{"sign_in": true})
	nc, err := nats.Connect(n.url(), nats.ReconnectBufSize(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	store, err := natskv.Open(t.Context(), nc, natskv.Options{Log: zerolog.Nop(), LauncherID: "the-test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	if _, err := lease.ChangeExisting(t.Context(), store, "acct", func(e lease.Entry) (lease.Record, error) {
		return e.Record.BeginSignIn(time.Now()).BeginSignIn(time.Now()), nil // two that failed
	}); err != nil {
		t.Fatal(err)
	}
	c := dial(t, ses.CDPURL)
	reason := "sign the account in at " + web.URL + ": the sidecar's own attempts failed"
	for _, tt := range []struct {
		in       bool
		signedIn string
		attempts int
	}{{false, "no", 2}, {true, "yes", 0}} {
		id := c.send(t, "", "Lease.signIn", nil)
		s.asksFor(t, ses, reason)
		s.hand(t, ses, "take-over", map[string]any{"person": "Ann"})
		web.mu.Lock()
		web.in = tt.in
		web.mu.Unlock()
		s.hand(t, ses, "hand-back", map[string]any{"answered": true})
		if m := c.answer(t, id); m.Error != nil || !bytes.Contains(m.Result, []byte(`"signedIn":"`+tt.signedIn+`"`)) {
			t.Errorf("%+v: %s, %+v", tt, m.Result, m.Error)
		}
		if r := s.record(t, "acct"); r.SignInAttempts != tt.attempts {
			t.Errorf("%+v: %d attempts", tt, r.SignInAttempts)
		}
	}
	if got := web.sent(); len(got) > 0 {
		t.Errorf("the site got %q", got)
	}
}

// targetEvents are the events about targets that came so far.
func (c *socket) targetEvents(t *testing.T) (all []string) {
	t.Helper()
	id := c.send(t, "", "Browser.getVersion", nil)
	c.next(t, "an answer", func(m rawcdp.Message) bool {
		if strings.HasPrefix(m.Method, "Target.") {
			all = append(all, fmt.Sprintf("%s %s", m.Method, m.Params))
		}
		return m.ID == id
	})
	return all
}

// grep searches everything that a sidecar wrote, but for the profiles, and what is compressed in it. It
// returns the files that have a text, by text.
func grep(t *testing.T, s *sidecar, texts ...string) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	look := func(path string, b []byte) {
		for _, text := range texts {
			if bytes.Contains(b, []byte(text)) {
				found[text] = append(found[text], path)
			}
		}
	}
	whole := func(path string) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		look(path, b)
		for i := range b {
			var r io.Reader
			switch {
			case bytes.HasPrefix(b[i:], []byte{0x1f, 0x8b, 8}):
				if z, err := gzip.NewReader(bytes.NewReader(b[i:])); err == nil {
					z.Multistream(false)
					r = z
				}
			case bytes.HasPrefix(b[i:], []byte{0x28, 0xb5, 0x2f, 0xfd}):
				if z, err := zstd.NewReader(bytes.NewReader(b[i:])); err == nil {
					defer z.Close()
					r = z
				}
			case bytes.HasPrefix(b[i:], []byte("\xff\x06\x00\x00")):
				r = s2.NewReader(bytes.NewReader(b[i:]))
			}
			if r != nil {
				opened, _ := io.ReadAll(r) // what follows it is no part of it
				look(path+" (opened)", opened)
			}
		}
	}
	err := filepath.WalkDir(s.Dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path == filepath.Join(s.Dir, "profiles"):
			return fs.SkipDir
		case d.Type().IsRegular():
			whole(path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	whole(s.stderr.Name())
	return found
}

// TestASignInThatIsNotToBe: each is a page that wants the secret elsewhere, or does not take it.
func TestASignInThatIsNotToBe(t *testing.T) {
	t.Parallel()
	var other authShop
	other.Server = httptest.NewServer(&other)
	t.Cleanup(other.Close)
	const wrong = "no-such-password-1842"
	for name, tt := range map[string]struct {
		password string
		set      func(*authShop)
		signedIn string
		reason   string
		sent     string // the last that the site got
	}{
		"a redirect to another site": {shopPassword, func(b *authShop) { b.to = other.URL + "/login" }, "no", "nothing was typed there", "[]"},
		"a wrong password":           {wrong, func(*authShop) {}, "no", "the site asks for the password again", "/password " + wrong},
		"a page that swaps the field": {shopPassword, func(b *authShop) {
			b.trick = `<script>const f = document.querySelector("#password"); f.onfocus = () => { const n = f.cloneNode(); f.replaceWith(n); n.id = "other" }</script>`
		}, "no", "the page took the field or its focus away", "/login " + shopUser},
		"a field that would show the password": {shopPassword, func(b *authShop) {
			b.trick = `<script>document.querySelector("#password").type = "text"</script>`
		}, "no", "the field would show it", "/login " + shopUser},
		"a page that opens windows": {shopPassword, func(b *authShop) {
			b.trick = `<script>document.querySelector("button").addEventListener("click", () => { open("/"); open("/", "_blank", "noopener") })</script>`
		}, "yes", "", "/code"},
		"a frame of another site that takes the focus": {shopPassword, func(b *authShop) {
			b.trick = `<iframe src="` + other.URL + `/password"></iframe><script>setInterval(() => document.querySelector("iframe").focus(), 1)</script>`
		}, "yes", "", "/code"},
	} {
		t.Run(name, func(t *testing.T) {
			web := newAuthShop(t)
			tt.set(web)
			s := startWithSecrets(t, web, tt.password)
			c := dial(t, s.open(t, "acct", map[string]any{"sign_in": true}).CDPURL)
			own, _ := c.visit(t, web.URL+"/")
			if answer := c.signsIn(t); answer.SignedIn != tt.signedIn || !strings.Contains(answer.Reason, tt.reason) || strings.Contains(answer.Reason, tt.password) {
				t.Errorf("%+v, want %s: %s", answer, tt.signedIn, tt.reason)
			}
			if got := web.sent(); len(got) > 0 && !strings.HasPrefix(got[len(got)-1], tt.sent) || len(got) == 0 && tt.sent != "[]" {
				t.Errorf("the site got %d requests, %q last, want %q", len(got), got[max(0, len(got)-1):], tt.sent)
			}
			if got := other.sent(); len(got) > 0 {
				t.Errorf("the other site got %q", got)
			}
			if pages := c.evaluate(t, own, `document.title`); pages != `"shop"` { // the worker goes on
				t.Errorf("the worker's page is %q", pages)
			}
			r := s.record(t, "acct")
			if tt.signedIn == "yes" {
				return
			}
			if r.SignInAttempts != 1 || r.SignInBegunAt.IsZero() {
				t.Errorf("%d attempts, the last at %v", r.SignInAttempts, r.SignInBegunAt)
			}
			n := len(web.sent())
			if answer := c.signsIn(t); answer.SignedIn != "no" || !strings.Contains(answer.Reason, "the next one may begin at") || len(web.sent()) != n {
				t.Errorf("at once again: %+v", answer)
			}
		})
	}
}
