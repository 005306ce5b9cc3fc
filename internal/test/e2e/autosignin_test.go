package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
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
	"leasehold/internal/test/natstest"
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
	pauses string   // a request that is answered only when going is closed, as METHOD PATH; paused is closed then
	paused chan struct{}
	going  chan struct{}
	gone   chan struct{} // closed when the page that waits for it is
	// key is a file with a key, and recipient who has it.
	key, recipient string
}

func newAuthShop(t *testing.T) *authShop {
	t.Helper()
	return newAuthShopOn(t, httptest.NewServer)
}

// newAuthShopOn is newAuthShop on a server of another kind.
func newAuthShopOn(t *testing.T, serve func(http.Handler) *httptest.Server) *authShop {
	t.Helper()
	b := &authShop{paused: make(chan struct{}), going: make(chan struct{}), gone: make(chan struct{})}
	b.Server = serve(b)
	t.Cleanup(b.Close)
	b.key = filepath.Join(t.TempDir(), "key")
	var err error
	if b.recipient, err = crypt.WriteIdentity(b.key); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *authShop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/html")
	b.mu.Lock()
	pauses := b.pauses == r.Method+" "+r.URL.Path
	if pauses {
		b.pauses = ""
	}
	b.mu.Unlock()
	if pauses {
		close(b.paused)
		select {
		case <-b.going:
		case <-r.Context().Done():
			close(b.gone)
			return
		}
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
	to, err := crypt.ParseRecipients([]string{b.recipient})
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := to.Encrypt(fmt.Appendf(nil, "- {name: acct, origin: %q, username: %q, password: %q, totp: %q}\n", b.URL, shopUser, password, shopSeed))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "secrets.age")
	if err := os.WriteFile(file, sealed, 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, append([]string{"--secrets", file, "--secrets-identity", b.key}, args...)...)
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

// hear has every message of a NATS server from now on, also those inside of it that ask for streams.
func (n *natsServer) hear(t *testing.T) (all func() []*nats.Msg) {
	t.Helper()
	nc := natstest.Connect(t, n.url())
	var mu sync.Mutex
	var got []*nats.Msg
	_, err := nc.Subscribe(">", func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, m)
	})
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() []*nats.Msg {
		mu.Lock()
		defer mu.Unlock()
		return got
	}
}

// webhook takes notices, and returns what came, heads and bodies.
func webhook(t *testing.T) (all func() [][]byte, address string) {
	t.Helper()
	var mu sync.Mutex
	var got [][]byte
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		got = append(got, fmt.Append(nil, r.URL, r.Header, string(body), err))
	}))
	t.Cleanup(server.Close)
	return func() [][]byte {
		mu.Lock()
		defer mu.Unlock()
		return got
	}, server.URL
}

// TestTheSidecarSignsIn: by user name, password and code, on three pages, while a worker that follows all
// targets is told of no page, and everything that it sends is refused. Nothing that the sidecar and its
// browser wrote, and that the sidecar sent, has the password, the seed or the code.
func TestTheSidecarSignsIn(t *testing.T) {
	t.Parallel()
	web := newAuthShop(t)
	web.echoes, web.pauses = true, "GET /password"
	n, traces, store := startNATS(t), &receiver{}, t.TempDir()
	collector := httptest.NewServer(traces)
	t.Cleanup(collector.Close)
	heard := n.hear(t)
	told, hook := webhook(t)
	s := startWithSecrets(t, web, shopPassword, n.args("--evidence-recipient", web.recipient, "--evidence-store", "file://"+store,
		"--otlp-endpoint", collector.URL, "--notify", hook+"#event=*")...)
	ses := s.open(t, "acct", map[string]any{"sign_in": true, "task_id": planted})
	c := dial(t, ses.CDPURL)
	own, _ := c.visit(t, web.URL+"/")
	c.call(t, "", "Target.setDiscoverTargets", map[string]any{"discover": true, "filter": []map[string]any{{}}}, nil)
	c.call(t, "", "Target.setAutoAttach", map[string]any{"autoAttach": true, "waitForDebuggerOnStart": true, "flatten": true}, nil)
	c.call(t, "", "Lease.event", map[string]any{"type": "planted", "data": planted}, nil)
	for on, off := range map[string]string{"Tracing.start": "Tracing.end", "Fetch.enable": "Fetch.disable", "Security.enable": "Security.disable"} {
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
	look := newSearch(t, web, planted, alone)
	look.files(t, s.Dir)
	look.files(t, n.dir)
	look.files(t, store)
	for _, m := range heard() {
		look.in("NATS", fmt.Append(nil, m.Subject, " ", m.Header, " ", string(m.Data)))
	}
	look.in("OTLP", traces.raw.Bytes())
	for _, body := range told() {
		look.in("webhook", body)
	}
	look.judge(t, "stderr.log", ".journal", "(opened)", n.dir, store, "NATS", "OTLP", "webhook")
}

// alone is said of a request of which no page told: of those of a sign-in, its own page does.
const alone = "no page reported it"

// TestNoSecretToAnImpostor: who is on the way to a site shows a certificate of their own, which a worker has
// told Chrome to accept. All that the worker does itself goes on, and no password leaves: neither meanwhile,
// nor by a connection that is open since then.
func TestNoSecretToAnImpostor(t *testing.T) {
	t.Parallel()
	for name, browsers := range map[string]bool{"accepted for all pages": true, "accepted for the worker's page": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			web := newAuthShopOn(t, httptest.NewTLSServer)
			s := startWithSecrets(t, web, shopPassword)
			ses := s.open(t, "acct", map[string]any{"sign_in": true})
			c := dial(t, ses.CDPURL)
			own, _ := c.page(t, "about:blank", "")
			on := own
			if browsers {
				on = ""
			}
			visit := func() {
				t.Helper()
				var went struct{ ErrorText string }
				if c.call(t, own, "Page.navigate", map[string]any{"url": web.URL + "/login"}, &went); went.ErrorText != "" {
					t.Errorf("the worker's page: %s", went.ErrorText)
				}
				// Each on a connection of its own, which stays open.
				c.evaluate(t, own, `Promise.all([1, 2, 3, 4, 5].map((n) => fetch("/?" + n, {cache: "no-store"}).then((r) => r.text())))`)
			}
			const ignore = "Security.setIgnoreCertificateErrors"
			c.call(t, on, ignore, map[string]any{"ignore": true}, nil)
			visit()
			if browsers {
				if got := c.fails(t, "", "Lease.signIn", nil); !strings.Contains(got.Message, "accepts every certificate since a client's "+ignore) {
					t.Errorf("meanwhile: %s", got.Message)
				}
				visit()
				c.call(t, on, ignore, map[string]any{"ignore": false}, nil)
			}
			answer := c.signsIn(t)
			if answer.SignedIn == "yes" || !strings.Contains(answer.Reason, web.URL+" answered under a certificate that is not valid") {
				t.Errorf("the answer is %+v", answer)
			}
			if got := web.sent(); len(got) > 0 {
				t.Errorf("the site got %v", got)
			}
		})
	}
}

// TestAfterTwoSignInsAPersonSignsIn: nothing more is typed then. The answer of the site counts, and not the
// person's word.
func TestAfterTwoSignInsAPersonSignsIn(t *testing.T) {
	t.Parallel()
	web, n := newAuthShop(t), startNATS(t)
	s := startWithSecrets(t, web, shopPassword, n.args()...)
	ses := s.open(t, "acct", map[string]any{"sign_in": true})
	nc := natstest.Connect(t, n.url(), nats.ReconnectBufSize(-1))
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

// TestALauncherIsKilledWhileItSignsIn: the site shows the password that it was sent. The next launcher
// closes that page before the worker is back, and nothing has kept it; the attempt counts.
func TestALauncherIsKilledWhileItSignsIn(t *testing.T) {
	t.Parallel()
	web := newAuthShop(t)
	web.echoes, web.pauses = true, "GET /code" // until it is answered, the page with the password stays
	s := startWithSecrets(t, web, shopPassword, "--reconnect-grace", "60s")
	ses := s.open(t, "acct", map[string]any{"sign_in": true})
	c := dial(t, ses.CDPURL)
	c.visit(t, web.URL+"/")
	begun := c.send(t, "", "Lease.signIn", nil)
	<-web.paused
	s.kill(t)
	if m, err := c.Answer(t.Context(), begun); err == nil {
		t.Errorf("from a launcher that was killed the worker has %s, %+v", m.Result, m.Error)
	}
	select {
	case <-web.gone:
		t.Error("the page was closed without a launcher")
	default:
	}
	s.launch(t)
	c = dial(t, s.here(t, ses.CDPURL))
	var open struct{ TargetInfos []struct{ URL string } }
	c.call(t, "", "Target.getTargets", nil, &open)
	<-web.gone
	if len(open.TargetInfos) == 0 || strings.Contains(fmt.Sprint(open), "/password") {
		t.Errorf("the worker that is back is told of %v", open)
	}
	r := s.record(t, "acct")
	if r.SignInAttempts != 1 || !r.SignedOut() || r.SignInAt != web.URL {
		t.Errorf("the record has %d attempts, signed in %q at %q", r.SignInAttempts, r.SignedIn, r.SignInAt)
	}
	if answer := c.signsIn(t); answer.SignedIn != "no" || !strings.Contains(answer.Reason, "the next one may begin at "+r.SignInBegunAt.Add(time.Hour).Format(time.RFC3339)) {
		t.Errorf("at once again: %+v", answer)
	}
	c.call(t, "", "Lease.event", map[string]any{"type": "planted", "data": planted}, nil)
	s.kill(t)
	s.args = append(s.args, "--reconnect-grace", "1s") // the worker does not come back to this one
	s.launch(t)
	r = s.until(t, "acct", lease.Available, lease.ManualReview)
	if r.SignInAttempts != 1 || !r.SignedOut() {
		t.Errorf("afterwards it has %d attempts, signed in %q", r.SignInAttempts, r.SignedIn)
	}
	if got := web.sent(); len(got) != 2 {
		t.Errorf("the site got %q", got)
	}
	s.stop(t)
	look := newSearch(t, web, planted, alone)
	look.files(t, s.Dir)
	look.judge(t, s.Dir)
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

// search looks for texts in everything that a sidecar wrote and sent, and in what is compressed or
// encrypted in it.
type search struct {
	texts []string
	with  *crypt.Identities
	found map[string][]string // where a text is
}

func newSearch(t *testing.T, web *authShop, more ...string) *search {
	t.Helper()
	with, err := crypt.ReadIdentities([]string{web.key})
	if err != nil {
		t.Fatal(err)
	}
	web.mu.Lock()
	defer web.mu.Unlock()
	return &search{append(append(more, shopPassword, shopSeed, shopUser), web.codes...), with, map[string][]string{}}
}

// hidden is what may be compressed or encrypted in something, by how it begins.
var hidden = map[string]func(*search, []byte) (opened []byte){
	"\x1f\x8b\x08": func(_ *search, b []byte) []byte {
		z, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			return nil
		}
		z.Multistream(false)
		return begins(z)
	},
	"\x28\xb5\x2f\xfd": func(_ *search, b []byte) []byte {
		z, err := zstd.NewReader(bytes.NewReader(b))
		if err != nil {
			return nil
		}
		defer z.Close()
		return begins(z)
	},
	"\xff\x06\x00\x00": func(_ *search, b []byte) []byte { return begins(s2.NewReader(bytes.NewReader(b))) },
	ageBegins: func(s *search, b []byte) []byte {
		opened, err := s.with.Decrypt(b)
		if err != nil {
			return nil
		}
		return opened
	},
	base64.StdEncoding.EncodeToString([]byte(ageBegins)): func(s *search, b []byte) []byte { // in JSON
		end := bytes.IndexByte(b, '"')
		sealed, err := base64.StdEncoding.DecodeString(string(b[:max(end, 0)]))
		if err != nil {
			return nil
		}
		opened, _ := s.with.Decrypt(sealed) // of another key
		return opened
	},
}

const ageBegins = "age-encryption.org/v1" // so long that its base64 begins what is longer, too

// begins is what a stream begins with: what follows it is no part of it.
func begins(r io.Reader) []byte {
	b, _ := io.ReadAll(r)
	return b
}

// in looks into something that was written or sent.
func (s *search) in(where string, b []byte) {
	for _, text := range s.texts {
		if has(b, text) {
			s.found[text] = append(s.found[text], where)
		}
	}
	for magic, open := range hidden {
		for at := 0; ; at++ {
			i := bytes.Index(b[at:], []byte(magic))
			if i < 0 {
				break
			}
			at += i
			if opened := open(s, b[at:]); len(opened) > 0 {
				s.in(where+" (opened)", opened)
			}
		}
	}
}

// has tells whether a text is in something: a code only where it is no part of a longer number, of a fraction
// (times have hundreds with six digits) or of a hash in hex.
func has(b []byte, text string) bool {
	const hash = 32 // the digits of the shortest
	at := func(i int) byte {
		if i < 0 || i >= len(b) {
			return 0
		}
		return b[i]
	}
	digit := func(i int) bool { return at(i) >= '0' && at(i) <= '9' }
	hex := func(i int) bool { return digit(i) || at(i)|0x20 >= 'a' && at(i)|0x20 <= 'f' }
	number := strings.Trim(text, "0123456789") == ""
	for from := 0; ; from++ {
		i := bytes.Index(b[from:], []byte(text))
		if i < 0 {
			return false
		}
		from += i
		first, end := from, from+len(text)
		if !number {
			return true
		}
		if digit(first-1) || digit(end) || at(first-1) == '.' && digit(first-2) {
			continue
		}
		for hex(first - 1) {
			first--
		}
		for hex(end) {
			end++
		}
		if end-first < hash {
			return true
		}
	}
}

// TestACodeIsFound wherever it may have been written, and not in numbers that are something else.
func TestACodeIsFound(t *testing.T) {
	for text, want := range map[string]bool{
		"123456": true, "the code is 123456.": true, "otp%3D123456&x": true, `{"otp":"123456"}`: true, "fade123456": true,
		"1234567": false, "1.123456": false, `"took":12.123456,`: false, "sha256:" + strings.Repeat("f", 40) + "123456" + strings.Repeat("0a", 9): false,
	} {
		if got := has([]byte(text), "123456"); got != want {
			t.Errorf("in %s: %t, want %t", text, got, want)
		}
	}
}

// files looks into all files below a directory.
func (s *search) files(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		s.in(path, b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

const planted = "planted-string"

// judge fails the test for what is found, and for what is not: in each of the places there has to be what
// was planted. The profile may have the user name, which Chrome keeps for forms.
func (s *search) judge(t *testing.T, places ...string) {
	t.Helper()
	for _, place := range places {
		if !slices.ContainsFunc(s.found[planted], func(where string) bool { return strings.Contains(where, place) }) {
			t.Errorf("not even what was planted is in %s, but in %q", place, s.found[planted])
		}
	}
	for text, where := range s.found {
		for _, one := range where {
			if text != planted && (text != shopUser || !strings.Contains(one, "/profiles/")) {
				t.Errorf("%s is in %s", text, one)
			}
		}
	}
}

// TestASignInThatIsNotToBe: each is a page that wants the secret elsewhere, or does not take it.
func TestASignInThatIsNotToBe(t *testing.T) {
	t.Parallel()
	other := newAuthShop(t)
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
			c.call(t, "", "Target.setAutoAttach", map[string]any{ // to tabs, as Puppeteer does
				"autoAttach": true, "waitForDebuggerOnStart": true, "flatten": true, "filter": []map[string]any{{"type": "page", "exclude": true}, {}},
			}, nil)
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
