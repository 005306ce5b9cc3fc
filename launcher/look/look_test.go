package look_test

import (
	"bytes"
	"context"
	"fmt"
	"image/jpeg"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"leasehold/evidence"
	"leasehold/evidence/capture"
	"leasehold/internal/test/storetest"
	"leasehold/internal/test/testchrome"
	"leasehold/launcher/look"
	. "leasehold/launcher/recovery/table"
)

// lines is content that a page has besides what a case is about.
func lines(n int) string {
	return strings.Repeat("<p>Kόσμος мир 世界 عالم something to read</p>", n)
}

const (
	signIn  = `<form action=/x method=post><input name=a autocomplete=username><input name=b type=password><button>Είσοδος</button></form>`
	overlay = `<div style="position:fixed;inset:0;background:rgba(0,0,0,.5)"></div><div style="position:fixed;left:20%;top:20%;width:60%;background:#fff;padding:20px">`
	links   = `<a href=/1>eins</a><a href=/2>zwei</a><a href=/3>drei</a>`
	nav     = `<nav>` + links + `</nav>`
	robot   = `<input type=checkbox>`
	frame   = `<iframe id=f width=300 height=120 src="{other}/inner"></iframe>`
)

// shadow puts a page's content into a closed shadow root.
func shadow(html string) string {
	return fmt.Sprintf(`<div id=h></div><script>document.getElementById("h").attachShadow({mode: "closed"}).innerHTML = %q</script>`, html)
}

// pages are what may be open at a loss. inner is what a frame of another site shows.
var pages = []struct {
	name, html, inner string
	want              []string
}{
	// What a person has to give or to decide.
	{"a form to sign in, and little else", `<h1>Η συνεδρία έληξε</h1>` + signIn, "", []string{PasswordAsked}},
	{"one in the middle of a page with content", lines(40) + `<div style="position:absolute;left:400px;top:200px;background:#fff">` + signIn + `</div>`, "", []string{PasswordAsked}},
	{"one in a closed shadow root", shadow(signIn), "", []string{PasswordAsked}},
	{"one in a frame of another site", `<iframe style="width:90vw;height:90vh" src="{other}/inner"></iframe>`, signIn, []string{PasswordAsked}},
	{"one in a dialog over the page", nav + lines(40) + `<dialog id=d>` + signIn + `</dialog><script>document.getElementById("d").showModal()</script>`, "", []string{PasswordAsked, SignedOut}},
	{"one in a box over the page", nav + lines(40) + overlay + signIn + `</div>`, "", []string{PasswordAsked, SignedOut}},
	{"the name of an account first", `<form method=post><input autocomplete="username webauthn" type=email><button>次へ</button></form>`, "", []string{PasswordAsked}},
	{"a field for a one-time code", nav + `<input autocomplete=one-time-code>` + lines(40), "", []string{CodeAsked}},
	{"six fields for a character each", `<p>أدخل الأرقام</p><form>` + strings.Repeat(`<input maxlength=1 size=1>`, 6) + `</form>`, "", []string{CodeAsked}},
	{"a field for six digits", `<p>ስድስት</p><form method=post><input inputmode=numeric maxlength=6><button>→</button></form>`, "", []string{CodeAsked}},
	{"one by its pattern", `<form method=post><input pattern="[0-9]{5}" type=tel><button>→</button></form>`, "", []string{CodeAsked}},
	{"a box to tick in a frame of another site", `<h1>続けるには</h1>` + frame, robot, []string{ChallengeShown}},
	{"one in a closed shadow root", `<h1>続けるには</h1>` + shadow(frame), `<span role=checkbox aria-checked=false style="display:block;width:28px;height:28px;border:1px solid"></span>`, []string{ChallengeShown}},
	{"pictures to choose from", frame, strings.Repeat(`<img width=60 height=60 src="data:image/gif;base64,R0lGODlhAQABAAAAACw=">`, 9) + `<button>OK</button>`, []string{ChallengeShown}},
	{"a box to tick in a form to sign in", `<form method=post><input type=password><iframe width=300 height=80 src="{other}/inner"></iframe></form>`, robot, []string{PasswordAsked, ChallengeShown}},
	{"a wall of consent", nav + lines(40) + overlay + `<p>` + strings.Repeat("Wir und unsere Partner ", 30) + `</p><button>Ja</button><button>Wahl</button><a href=/p>mehr</a></div>`, "", []string{ConsentAsked}},
	{"one in a frame of another site", nav + lines(40) + `<iframe style="position:fixed;inset:0;width:100vw;height:100vh;border:0;background:#fff" src="{other}/inner"></iframe>`,
		`<p>cookies</p><button>Accept</button><button>Choose</button><a href=/p>more</a>`, []string{ConsentAsked}},
	{"terms to agree to", `<h1>Vilkår</h1><p>nye vilkår</p><label><input type=checkbox required> ja</label><button>→</button>`, "", []string{ConsentAsked}},
	{"terms without which nothing can be pressed", `<h1>Vilkår</h1><label><input type=checkbox> ja</label><button disabled>→</button>`, "", []string{ConsentAsked}},
	{"a form over the page that nobody opened", nav + lines(40) + overlay + `<p>電話番号</p><form><input type=tel><button>次へ</button></form></div>`, "", []string{NoticeBlocks}},
	{"a notice over the page", nav + lines(40) + overlay + `<p>Sesja zakończona.</p><button>Dobrze</button></div>`, "", []string{NoticeBlocks}},
	{"one that says that it is modal", nav + lines(2) + `<div role=alertdialog style="position:fixed;inset:30%;background:#fff"><p>Upozornění</p><button>Ano</button></div>`, "", []string{NoticeBlocks}},
	{"a question and its answers", `<h1>Bir dakika</h1><p>Bu sen miydin?</p><button>Bendim</button><button>Ben değildim</button>`, "", []string{NoticeBlocks}},
	{"one in another script", `<p>هل هذا أنت؟</p><button>نعم</button><button>لا</button>`, "", []string{NoticeBlocks}},

	// What is no matter for a person.
	{"nothing", "", "", nil},
	{"content", nav + lines(40), "", nil},
	{"a form to sign in, in a header", `<header>` + signIn + `</header><main>` + lines(40) + `</main>`, "", nil},
	{"one in a line at the top", `<div style="display:flex;height:40px">` + links + signIn + `</div>` + lines(4), "", nil},
	{"one at the side", `<div style="float:right;width:150px">` + signIn + `</div>` + lines(60), "", nil},
	{"one that does not show", lines(3) + `<div style="display:none">` + signIn + `</div><div style="opacity:0;position:absolute">` + signIn + `</div><div style="position:absolute;left:-3000px">` + signIn + `</div>`, "", nil},
	{"a form to sign up", `<form method=post><input type=email><input type=password><input type=password><button>Registrieren</button></form>`, "", nil},
	{"one that says that its password is new", `<form method=post><input type=email><input type=password autocomplete=new-password><button>Registrieren</button></form>`, "", nil},
	{"a cookie banner at the edge", nav + lines(40) + `<div style="position:fixed;bottom:0;left:0;right:0;height:80px;background:#fff">Cookies! <button>OK</button><button>Non</button><a href=/p>plus</a></div>`, "", nil},
	{"a newsletter that can be closed", nav + lines(40) + overlay + `<button style="position:absolute;right:4px;top:4px;width:24px">×</button><p>Newsletter</p><form><input type=text><button>Ja</button></form></div>`, "", nil},
	{"one that cannot but by its own words", nav + lines(40) + overlay + `<p>Newsletter</p><form><input type=email><button>Ja</button></form><a href="#">nein, danke</a></div>`, "", nil},
	{"a search", `<form role=search><input maxlength=6 inputmode=numeric><button>Cerca</button></form>` + lines(2), "", nil},
	{"a quantity among content", nav + lines(40) + `<form><input type=number maxlength=4><button>+</button></form>`, "", nil},
	{"a postal code", `<form><input inputmode=numeric maxlength=5 autocomplete=postal-code><button>→</button></form>`, "", nil},
	{"a card's fields", frame, `<input autocomplete=cc-number inputmode=numeric maxlength=19><input autocomplete=cc-csc inputmode=numeric maxlength=4>`, nil},
	{"a box that is ticked", frame, `<input type=checkbox checked>`, nil},
	{"an advertisement with a box, among content", nav + lines(40) + frame, robot, nil},
	{"a frame that shows nothing to solve", frame, `<button>Pay</button>`, nil},
	{"a picture over the page that can be closed", nav + lines(40) + overlay + `<a href="#" style="position:absolute;right:0;top:0;width:30px;height:30px">✕</a><img width=300 height=200></div>`, "", nil},
	{"an application whose content floats", `<div style="position:absolute;top:0;left:0;right:0;height:50px">` + links + `</div><div style="position:absolute;top:50px;left:0;right:0;bottom:0">` + lines(10) + `<button>Neu</button></div>`, "", nil},
	{"something that loads", nav + lines(40) + overlay + `<p>…</p></div>`, "", nil},
	{"a setting", `<h1>Varsler</h1><label><input type=checkbox> e-post</label><button>Lagre</button>`, "", nil},
	{"a page with two buttons", `<h1>Boiler, 4 Mill Lane</h1><button>Done</button><button>Later</button>`, "", nil},
	{"a question among other things", nav + `<p>Fragen?</p><button>Ja</button><button>Nein</button>`, "", nil},
}

// world is a browser, and two sites whose pages the cases are.
type world struct {
	*testchrome.Driver
	t       *testing.T
	mu      sync.Mutex
	html    map[string]string // by path
	address string
	// The one tab, in which pages follow each other.
	target, session string
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, html: map[string]string{}}
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, ".js") {
			rw.Header().Set("Content-Type", "text/javascript")
			fmt.Fprint(rw, w.page(r.URL.Path))
			return
		}
		rw.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(rw, "<!DOCTYPE html><meta charset=utf-8><title>x</title>"+strings.ReplaceAll(w.page(r.URL.Path), "{other}", w.site("other")))
	}))
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	w.address = u.Port()
	w.Driver = testchrome.StartDriver(t)
	return w
}

// page is what the site has at a path, and put changes that. A page before this one may still
// ask for something.
func (w *world) page(path string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.html[path]
}

func (w *world) put(path, html string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.html[path] = html
}

func (w *world) site(name string) string { return "http://" + name + ".localhost:" + w.address }

// TestEyes looks at the pages of one browser.
func TestEyes(t *testing.T) {
	w := newWorld(t)
	t.Run("pages say what they ask for", w.pagesSayWhatTheyAskFor)
	t.Run("a form to sign in that came later", w.aFormToSignInThatCameLater)
	t.Run("what was typed and not sent", w.whatWasTypedAndNotSent)
	t.Run("what cannot be seen is said", w.whatCannotBeSeenIsSaid)
	t.Run("a page without a picture is looked at", w.aPageWithoutAPictureIsLookedAt)
	t.Run("what does not answer is not nothing", w.whatDoesNotAnswerIsNotNothing)
	t.Run("a page on its way asks for nothing", w.aPageOnItsWayAsksForNothing)
	t.Run("a task for later is seen", w.aTaskForLaterIsSeen)
}

// open opens a page, whose frame shows inner, and returns what is needed to look at it.
func (w *world) open(html, inner string) (capture.Page, look.Page) {
	w.t.Helper()
	w.put("/page", html)
	w.put("/inner", inner)
	if w.session == "" {
		w.target, w.session = w.Open(w.site("site") + "/page")
	} else {
		w.Must(w.session, "Page.navigate", map[string]any{"url": w.site("site") + "/page"}, nil)
		w.Await(w.session, "Page.loadEventFired")
	}
	w.Drawn(w.session)
	known := look.Page{TargetID: w.target}
	var targets struct {
		TargetInfos []struct {
			TargetID, Type, URL, ParentFrameID string
		} `json:"targetInfos"`
	}
	w.Must("", "Target.getTargets", nil, &targets)
	for _, info := range targets.TargetInfos {
		if info.Type != "iframe" || info.ParentFrameID != w.target {
			continue
		}
		var attached struct{ SessionID string }
		w.Must("", "Target.attachToTarget", map[string]any{"targetId": info.TargetID, "flatten": true}, &attached)
		known.Frames = append(known.Frames, look.Frame{TargetID: info.TargetID, SessionID: attached.SessionID, Parent: w.target})
	}
	if strings.Contains(html, "{other}") && len(known.Frames) != 1 {
		w.t.Errorf("%d frames of other processes: %+v", len(known.Frames), targets)
	}
	return capture.Page{TargetID: w.target, SessionID: w.session, Type: "page", URL: w.site("site") + "/page"}, known
}

// picture is what a page shows. A busy host may need several tries.
func (w *world) picture(page capture.Page) []byte {
	w.t.Helper()
	for end := time.Now().Add(testchrome.Patience); ; {
		image, missing := capture.TakePicture(w.t.Context(), w.Driver, page)
		if missing == "" {
			return image
		}
		if time.Now().After(end) {
			w.t.Fatal(missing)
		}
	}
}

// look looks at a page, without a picture of it, and returns the bundle with what was
// found.
func (w *world) look(page capture.Page, known look.Page) *evidence.Sealed {
	w.t.Helper()
	return w.lookAt(page, known, nil, "")
}

func (w *world) lookAt(page capture.Page, known look.Page, image []byte, missing string) *evidence.Sealed {
	w.t.Helper()
	return w.lookBy(w.Driver, page, known, image, missing)
}

func (w *world) lookBy(caller capture.Caller, page capture.Page, known look.Page, image []byte, missing string) *evidence.Sealed {
	w.t.Helper()
	spool := storetest.Spool(w.t)
	b, err := spool.New(evidence.Manifest{EvidenceID: "ev_1", ProfileID: "p"})
	if err != nil {
		w.t.Fatal(err)
	}
	looker := look.New(caller, []look.Page{known})
	looker.Look(w.t.Context(), 1, page)(page, image, missing)
	if err := looker.AddTo(b); err != nil {
		w.t.Fatal(err)
	}
	if _, _, err := b.Seal(); err != nil {
		w.t.Fatal(err)
	}
	s, err := spool.Open("ev_1")
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// answered are the questions with an answer.
func answered(s *evidence.Sealed, a Answer) (names []string) {
	for _, f := range s.Manifest.Found {
		if f.Answer == string(a) && f.Name != PagesLookedAt {
			names = append(names, f.Name)
		}
	}
	return names
}

// pagesSayWhatTheyAskFor: what a person has to give or decide is seen, in whatever
// language, frame or shadow root, and what is no matter for a person is not taken for it.
func (w *world) pagesSayWhatTheyAskFor(t *testing.T) {
	for _, tt := range pages {
		page, known := w.open(tt.html, tt.inner)
		known.First = true
		var image []byte
		if len(tt.want) > 0 {
			image = w.picture(page)
		}
		s := w.lookAt(page, known, image, "")
		got := answered(s, Yes)
		slices.Sort(got)
		want := slices.Sorted(slices.Values(tt.want))
		if !slices.Equal(got, want) || len(answered(s, Unknown)) > 0 {
			t.Errorf("%s: %v, want %v\n%+v", tt.name, got, want, s.Manifest.Found)
		}
		for _, f := range s.Manifest.Found {
			if f.How == "" || f.Name == PagesLookedAt && f.Answer != "yes" {
				t.Errorf("%s: %+v", tt.name, f)
			}
			if f.Answer != "yes" || f.Name == PagesLookedAt {
				continue
			}
			picture, err := s.Part(f.Picture)
			if err != nil {
				t.Errorf("%s: %+v: %v", tt.name, f, err)
			} else if _, err := jpeg.Decode(bytes.NewReader(picture)); err != nil {
				t.Errorf("%s: the picture: %v", tt.name, err)
			}
		}
	}
}

// aFormToSignInThatCameLater: whoever was signed in before has been signed out, by a new
// document, or in the one that was used.
func (w *world) aFormToSignInThatCameLater(t *testing.T) {
	for _, tt := range []struct {
		name  string
		first bool
		click bool
		want  []string
	}{
		{"the first document, as it came", true, false, []string{PasswordAsked}},
		{"a later one", false, false, []string{PasswordAsked, SignedOut}},
		{"the first one, after a click", true, true, []string{PasswordAsked, SignedOut}},
	} {
		page, known := w.open(`<h1 style="height:30px">Kalender</h1>`+signIn, "")
		known.First = tt.first
		if tt.click {
			for _, kind := range []string{"mousePressed", "mouseReleased"} {
				w.Must(page.SessionID, "Input.dispatchMouseEvent", map[string]any{"type": kind, "x": 20, "y": 30, "button": "left", "clickCount": 1}, nil)
			}
		}
		if s := w.look(page, known); !slices.Equal(answered(s, Yes), tt.want) {
			t.Errorf("%s: %+v, want %v", tt.name, s.Manifest.Found, tt.want)
		}
	}
}

// typed is what is typed in the cases; nothing may keep it.
const typed = "4111 1111 1111 1111"

// whatWasTypedAndNotSent goes through fields into which a worker typed: by input
// events, as clients do.
func (w *world) whatWasTypedAndNotSent(t *testing.T) {
	const field = `document.querySelector("input, textarea, [contenteditable]")`
	for _, tt := range []struct {
		name, html, inner string
		text              string
		then              string // a script
		silent            bool
		want              []string
	}{
		{"a card's number by its field", "", `<input autocomplete=cc-number>`, "1234 56", "", true, []string{SecretUnsent}},
		{"a card's number by its digits", `<input id=x>`, "", typed, "", true, []string{SecretUnsent}},
		{"a bank account", `<input>`, "", "DE89 3704 0044 0532 0130 00", "", true, []string{SecretUnsent}},
		{"a message", nav + lines(20) + `<textarea></textarea>`, "", "Olá", "", true, []string{InputUnsent}},
		{"a message in something editable", nav + `<div contenteditable style="width:100px;height:30px"></div>`, "", "Olá", "", true, []string{InputUnsent}},
		{"an address", `<input autocomplete=street-address>`, "", "Hauptstr. 7", "", true, []string{InputUnsent}},
		{"in a page that writes it into its source", nav + `<input oninput="this.setAttribute('value', this.value)">`, "", "Olá", "", true, []string{InputUnsent}},
		{"the same, left again", nav + `<input oninput="this.setAttribute('value', this.value)">` + links, "", "Olá", field + `.blur()`, true, []string{InputUnsent}},
		{"a search", `<input type=search>`, "", "zapatos", "", true, nil},
		{"a search by its form", `<form method=get><input></form>`, "", "zapatos", "", true, nil},
		{"taken out again", `<input>`, "", "zapatos", field + `.value = ""`, true, nil},
		{"beside what stood there before", `<input type=search><input value="Ann"><textarea>Hallo</textarea>`, "", "zapatos", "", true, nil},
		{"a button pressed then", `<input><button id=b>Enviar</button>`, "", "ana@correio.example", `document.getElementById("b").focus()`, true, []string{InputUnsent, PressedUnsent}},
		{"a button pressed, and something sent", `<input><button id=b>Enviar</button>`, "", "ana@correio.example", `document.getElementById("b").focus()`, false, []string{InputUnsent}},
	} {
		html := tt.html
		if tt.inner != "" {
			html = lines(20) + frame
		}
		page, known := w.open(html, tt.inner)
		session := page.SessionID
		if tt.inner != "" {
			session = known.Frames[0].SessionID
		}
		w.Eval(session, field+`.focus()`)
		w.Must(session, "Input.insertText", map[string]any{"text": tt.text}, nil)
		if tt.then != "" {
			w.Eval(session, tt.then)
		}
		known.Typed, known.Acted, known.Silent = true, true, tt.silent
		s := w.look(page, known)
		got := slices.DeleteFunc(answered(s, Yes), func(q string) bool { return q == ConsentAsked })
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v\n%+v", tt.name, got, tt.want, s.Manifest.Found)
		}
		part, err := s.Part(look.Part)
		if err != nil || bytes.Contains(s.Raw, []byte(tt.text)) || bytes.Contains(part, []byte(tt.text)) {
			t.Errorf("%s: what was typed is kept, or %v", tt.name, err)
		}
	}
}

// whatCannotBeSeenIsSaid goes through pages that do not answer, each for a reason of
// its own.
func (w *world) whatCannotBeSeenIsSaid(t *testing.T) {
	page, known := w.open(nav+lines(2), "")
	dialog := func(text string) capture.Page { p := page; p.Dialog = text; return p }
	crashed := page
	crashed.Crashed = true
	detached := page
	detached.SessionID = ""
	offline := known
	offline.Offline, offline.Authentication = true, w.site("site")+"/page?key=s3cr3t"
	for _, tt := range []struct {
		name   string
		page   capture.Page
		known  look.Page
		looked Answer
		want   []string
		blind  bool
	}{
		{"an alert", dialog("alert: a sale"), known, Yes, nil, true},
		{"a question", dialog("confirm: really pay?"), known, Yes, []string{DialogWaits}, true},
		{"a page that is left", dialog("beforeunload: "), known, Yes, []string{DialogWaits}, true},
		{"a renderer that crashed", crashed, known, Yes, nil, true},
		{"a page that nobody is attached to", detached, known, No, nil, true},
		{"a page without a network, that wants a password", page, offline, Yes, []string{HTTPAuthAsked, OfflineOn}, false},
	} {
		s := w.look(tt.page, tt.known)
		if got := answered(s, Yes); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
		if blind := len(answered(s, Unknown)) > 0; blind != tt.blind || s.Manifest.Found[0].Answer != string(tt.looked) {
			t.Errorf("%s: %+v", tt.name, s.Manifest.Found)
		}
		if bytes.Contains(s.Raw, []byte("s3cr3t")) || bytes.Contains(s.Raw, []byte("really")) && tt.page.Dialog == "" {
			t.Errorf("%s: a secret is kept", tt.name)
		}
	}
}

// aPageWithoutAPictureIsLookedAt: Chrome may refuse to draw a page that answers. What it asks
// for is in its structure.
func (w *world) aPageWithoutAPictureIsLookedAt(t *testing.T) {
	page, known := w.open(signIn, "")
	for _, tt := range []struct {
		undrawn bool
		looked  Answer
		want    []string
	}{
		{true, Yes, []string{PasswordAsked, SignedOut}},
		{false, No, nil},
	} {
		page.Undrawn = tt.undrawn
		s := w.lookAt(page, known, nil, "Chrome gave no screenshot")
		if got := answered(s, Yes); !slices.Equal(got, tt.want) || s.Manifest.Found[0].Answer != string(tt.looked) {
			t.Errorf("undrawn %t: %+v", tt.undrawn, s.Manifest.Found)
		}
	}
}

// silentTo is a browser that does not answer one question.
type silentTo struct {
	capture.Caller
	method, about string
	asked         int
}

func (s *silentTo) Call(ctx context.Context, session, method string, params, result any) error {
	if method == s.method && strings.Contains(fmt.Sprint(params), s.about) {
		s.asked++
		return context.DeadlineExceeded
	}
	return s.Caller.Call(ctx, session, method, params, result)
}

// whatDoesNotAnswerIsNotNothing: a question that a busy page does not answer in time is open,
// and a person decides.
func (w *world) whatDoesNotAnswerIsNotNothing(t *testing.T) {
	const field = `<input oninput="this.setAttribute('value', this.value)">`
	image := []byte("a picture of the page")
	leaving := func() bool { return true }
	for _, tt := range []struct {
		name, html, inner string
		method, about     string
		leaving           func() bool
		looked            Answer
	}{
		{"what its service workers have to do", nav, "", "Runtime.evaluate", "getRegistrations", nil, No},
		{"whether a field was typed into", nav + field, "", "Runtime.callFunctionOn", "user-valid", nil, No},
		{"which field that is", nav + field, "", "DOM.resolveNode", "", nil, No},
		{"where a frame is", lines(20) + frame, robot, "DOM.getFrameOwner", "", nil, No},
		{"what it shows", nav, "", "DOMSnapshot.captureSnapshot", "", nil, No},
		{"what it shows, on its way to another page", nav, "", "DOMSnapshot.captureSnapshot", "", leaving, Yes},
	} {
		page, known := w.open(tt.html, tt.inner)
		known.Leaving = tt.leaving
		if tt.inner == "" && strings.Contains(tt.html, field) {
			known.Typed, known.Acted = true, true
			w.Eval(page.SessionID, `document.querySelector("input").focus()`)
			w.Must(page.SessionID, "Input.insertText", map[string]any{"text": "Olá"}, nil)
		}
		silent := &silentTo{Caller: w.Driver, method: tt.method, about: tt.about}
		s := w.lookBy(silent, page, known, image, "")
		if silent.asked == 0 || s.Manifest.Found[0].Answer != string(tt.looked) || len(answered(s, Unknown)) == 0 || len(answered(s, No)) > 0 {
			t.Errorf("%s: asked %d times, %+v", tt.name, silent.asked, s.Manifest.Found)
		}
	}
}

// aPageOnItsWayAsksForNothing: Chrome delays commands to a page whose next
// document has not come.
func (w *world) aPageOnItsWayAsksForNothing(t *testing.T) {
	gone := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-gone:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(slow.Close)
	t.Cleanup(func() { close(gone) })
	page, known := w.open(nav+lines(2), "")
	going := w.Post(page.SessionID, "Page.navigate", map[string]any{"url": slow.URL})
	w.Await(page.SessionID, "Page.frameStartedNavigating")
	page.Leaving = true
	s := w.lookAt(page, known, w.picture(page), "")
	if got := answered(s, Yes); len(got) > 0 || s.Manifest.Found[0].Answer != "yes" {
		t.Errorf("%+v", s.Manifest.Found)
	}
	w.Must("", "Target.closeTarget", map[string]any{"targetId": page.TargetID}, nil)
	w.session = ""
	select {
	case <-going:
	case <-t.Context().Done():
	}
}

// aTaskForLaterIsSeen: a service worker has a background sync to make, which the next
// task's browser would make.
func (w *world) aTaskForLaterIsSeen(t *testing.T) {
	w.put("/sw.js", "addEventListener('sync', (e) => e.waitUntil(new Promise(() => {})))")
	page, known := w.open(nav+lines(2), "")
	w.Must("", "Browser.grantPermissions", map[string]any{"permissions": []string{"backgroundSync"}}, nil)
	if got := w.Eval(page.SessionID, `navigator.serviceWorker.register("/sw.js").then(() => navigator.serviceWorker.ready).then((r) => r.sync.register("outbox")).then(() => "done")`); got != "done" {
		t.Fatalf("the page answered %v, want %s", got, "done")
	}
	s := w.look(page, known)
	if got := answered(s, Yes); !slices.Equal(got, []string{WritesWaiting}) {
		t.Errorf("%+v", s.Manifest.Found)
	}
}
