package capture_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image/jpeg"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"leasehold/evidence"
	"leasehold/evidence/capture"
	"leasehold/internal/test/storetest"
	"leasehold/internal/test/testchrome"
)

// secret is what nobody but the account's owner may read.
const secret = "Pl4nt3d"

// planted stands in the page's source where no part may repeat it. It is typed
// nowhere, so that only the list of what may be written keeps it out.
const planted = "H1dden"

// site serves the pages of the tests.
func site(t *testing.T) *httptest.Server {
	pages := map[string]string{
		"/plain": `<title>Campaigns</title><h1 id=top>Campaign list</h1><a href="/next?token=` + secret + `">next</a>`,
		"/other": `<title>Other</title><p>the other page</p>`,
		"/form": `<title>Form</title><h1>Sign up</h1>
			<style>.x::before{content:"` + planted + `"}</style><script>var s = "` + planted + `"</script>
			<meta name=csrf content="` + planted + `"><!-- ` + planted + ` -->
			<form action="/go?key=` + secret + `">
			<input id=user value="` + planted + `-default" data-x="` + planted + `"><input id=pass type=password><input id=pin>
			<input type=hidden value="` + planted + `-and-long-enough">
			<select><option value="` + planted + `">Texas</option></select>
			<textarea id=area>` + planted + `</textarea></form>
			<div id=edit contenteditable>x</div><div id=box role=textbox>x</div>
			<p id=mirror></p><p id=kept>kept text</p>
			<div id=host></div><iframe id=frame srcdoc="<p>inside a frame</p><input id=inner>"></iframe>
			<iframe id=design srcdoc="<p>x</p>"></iframe><noscript>` + planted + `</noscript><template>` + planted + `</template>`,
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, "<!DOCTYPE html>"+pages[r.URL.Path])
	}))
	t.Cleanup(s.Close)
	return s
}

// typeSecrets puts the secret everywhere where a person can type.
const typeSecrets = `(() => {
	const get = id => document.getElementById(id)
	for (const id of ["user", "pass"]) get(id).value = "` + secret + `-" + id
	get("pin").value = "731"
	get("area").value = "first line of ` + secret + `\nsecond ` + secret + `"
	get("edit").innerHTML = "edited <b>` + secret + ` bold</b> <i>` + secret + `</i>"
	get("box").textContent = "boxed ` + secret + `"
	get("mirror").textContent = "Hello ` + secret + `-user, edited, also " + "second ` + secret + `"
	get("mirror").title = "boxed ` + secret + `"
	document.title = "Welcome ` + secret + `-user"
	const root = get("host").attachShadow({mode: "open"})
	root.innerHTML = "<p>in the shadow</p><input><div contenteditable>` + secret + ` shadow</div>"
	root.querySelector("input").value = "` + secret + `-shadow"
	get("frame").contentDocument.getElementById("inner").value = "` + secret + `-frame"
	const d = get("design").contentDocument
	d.designMode = "on"
	d.body.innerHTML = "<p>designed ` + secret + `</p>"
	return document.title
})()`

func capturePages(t *testing.T, c capture.Caller, pages []capture.Page, limits capture.Limits) ([]evidence.PageResult, *evidence.Sealed) {
	t.Helper()
	spool := storetest.Spool(t)
	b, err := spool.New(evidence.Manifest{EvidenceID: "ev_1", ProfileID: "p"})
	if err != nil {
		t.Fatal(err)
	}
	results := capture.Pages(t.Context(), c, pages, b, limits)
	if _, _, err := b.Seal(); err != nil {
		t.Fatal(err)
	}
	s, err := spool.Open("ev_1")
	if err != nil {
		t.Fatal(err)
	}
	return results, s
}

// isImage fails the test unless a part is a JPEG with something on it.
func isImage(t *testing.T, s *evidence.Sealed, name string) {
	t.Helper()
	content, err := s.Part(name)
	if err != nil {
		t.Error(err)
		return
	}
	img, err := jpeg.Decode(bytes.NewReader(content))
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	box := img.Bounds()
	for x := box.Min.X; x < box.Max.X; x++ {
		for y := box.Min.Y; y < box.Max.Y; y++ {
			if r, g, b, _ := img.At(x, y).RGBA(); r+g+b < 0x18000 {
				return
			}
		}
	}
	t.Errorf("%s is blank", name)
}

func text(t *testing.T, s *evidence.Sealed, name string) string {
	t.Helper()
	content, err := s.Part(name)
	if err != nil {
		t.Error(err)
	}
	return string(content)
}

// patient limits are long enough for a loaded machine. Tests of pages that are known to
// hang have shorter ones.
var patient = capture.Limits{Part: testchrome.Patience, Total: 2 * testchrome.Patience}

func TestCapturePages(t *testing.T) {
	b, web := testchrome.StartDriver(t), site(t)
	backTarget, back := b.Open(web.URL + "/plain?session=" + secret)
	b.Drawn(back)
	frontTarget, front := b.Open(web.URL + "/other")
	b.Drawn(front)
	b.Must("", "Target.activateTarget", map[string]any{"targetId": frontTarget}, nil)
	results, s := capturePages(t, b, []capture.Page{
		{TargetID: backTarget, SessionID: back, Type: "page", URL: "stale"},
		{TargetID: frontTarget, SessionID: front, Type: "page", URL: "stale", Primary: true},
		{TargetID: "worker", SessionID: front, Type: "worker", URL: "https://w.example/?token=" + secret},
		{TargetID: "loose", Type: "page", URL: "https://l.example/"},
	}, patient)
	for i, want := range []evidence.PageResult{
		{TargetID: backTarget, URL: web.URL + "/plain?session=REDACTED", CommittedURL: web.URL + "/plain?session=REDACTED", Title: "Campaigns", Screenshot: "screenshot-1.jpg", DOM: "dom-1.html"},
		{TargetID: frontTarget, URL: web.URL + "/other", CommittedURL: web.URL + "/other", Title: "Other", Screenshot: "screenshot-2.jpg", DOM: "dom-2.html", Primary: true},
	} {
		if results[i] != want {
			t.Errorf("page %d\n got %+v\nwant %+v", i+1, results[i], want)
		}
	}
	if w := results[2]; !strings.Contains(w.Missing, "worker") || w.Screenshot != "" || w.URL != "https://w.example/?token=REDACTED" {
		t.Errorf("a worker: %+v", w)
	}
	if l := results[3]; !strings.Contains(l.Missing, "not attached") {
		t.Errorf("a page without a session: %+v", l)
	}
	isImage(t, s, "screenshot-1.jpg")
	isImage(t, s, "screenshot-2.jpg")
	dom := text(t, s, "dom-1.html")
	if !strings.Contains(dom, `<h1 id="top">Campaign list</h1>`) || !strings.Contains(dom, `href="/next?token=REDACTED"`) {
		t.Errorf("the DOM part: %s", dom)
	}
	m := s.Manifest
	if m.LastScreenshot != "screenshot-2.jpg" || m.LastKnownURL != web.URL+"/other" || len(m.Pages) != 4 || len(m.Parts) != 8 {
		t.Errorf("manifest: %+v", m)
	}
}

// sized measures the longest result.
type sized struct {
	*testchrome.Driver
	mu      sync.Mutex
	longest int
}

func (s *sized) Call(ctx context.Context, session, method string, params, result any) error {
	var raw json.RawMessage
	if err := s.Driver.Call(ctx, session, method, params, &raw); err != nil || result == nil {
		return err
	}
	s.mu.Lock()
	s.longest = max(s.longest, len(raw))
	s.mu.Unlock()
	return json.Unmarshal(raw, result)
}

// Of a page with 20 or 100 MB the beginning is captured, in small messages, and without what
// was typed at the page's end.
func TestCaptureLargePage(t *testing.T) {
	b, web := testchrome.StartDriver(t), site(t)
	for name, grow := range map[string]string{
		"many elements": `for (let i = 0; i < 51000; i++) { const p = document.createElement("p"); p.textContent = "row " + i + " ".repeat(400); hidden.append(p) }`,
		"in a script":   `const data = document.createElement("script"); data.type = "application/json"; data.textContent = "x".repeat(100e6); hidden.append(data)`,
		"one text":      `hidden.textContent = "` + secret + `-user ".repeat(2e6)`,
		"in a shadow":   `hidden.attachShadow({mode: "open"}).innerHTML = "<p>" + "x".repeat(20e6)`,
		"in a frame": `const d = document.getElementById("frame").contentDocument, data = d.createElement("script");
			data.type = "application/json"; data.textContent = "x".repeat(20e6); d.body.append(data)`,
	} {
		target, session := b.Open(web.URL + "/form")
		b.Eval(session, `globalThis.hidden = document.createElement("div"); hidden.hidden = true; document.body.append(hidden); `+grow+`; 1`)
		b.Eval(session, `const f = document.createElement("input"); f.type = "password"; document.body.append(f); f.value = "`+secret+`-late";
			document.getElementById("kept").textContent = "kept text, `+secret+`-late, `+secret+`-user"`)
		if got := b.Eval(session, typeSecrets); !strings.Contains(got, secret) {
			t.Fatalf("%s: the page was not filled: %s", name, got)
		}
		c := &sized{Driver: b}
		results, s := capturePages(t, c, []capture.Page{{TargetID: target, SessionID: session, Type: "page", URL: "http://shop.example/"}}, patient)
		if results[0].DOM == "" || results[0].Screenshot == "" {
			t.Errorf("%s: %+v", name, results[0])
			continue
		}
		dom := text(t, s, "dom-1.html")
		if !strings.Contains(dom, "<!-- the page is large (it has more than ") || !strings.Contains(dom, "Sign up") || !strings.Contains(dom, "kept text") {
			t.Errorf("%s: the DOM part begins with %.600s", name, dom)
		}
		if strings.Contains(dom, secret) || strings.Contains(dom, planted) || strings.Contains(results[0].Title, secret) {
			t.Errorf("%s: typed text is in the DOM part, or in the title %q", name, results[0].Title)
		}
		if c.longest > 16<<20 || len(dom) > 4<<20 {
			t.Errorf("%s: a message of %d bytes, a part of %d", name, c.longest, len(dom))
		}
		b.Must("", "Target.closeTarget", map[string]any{"targetId": target}, nil)
	}
}

// Inputs without typed text do not count as fields of a large page. Where it has more
// fields with text than are looked for, none of its texts is written.
func TestALargePageWithManyFields(t *testing.T) {
	b, web := testchrome.StartDriver(t), site(t)
	const fill = `const add = (n, type, value, to) => { for (let i = 0; i < n; i++) { const f = to.createElement("input"); f.type = type; f.value = value + i; to.body.append(f) } };`
	for _, c := range []struct {
		name, fields string
		noText       bool
	}{
		{"no text", `add(2500, "checkbox", "on", document); add(2500, "radio", "yes", document); add(2500, "hidden", "flag", document); add(2500, "submit", "go", document)`, false},
		{"texts", `add(2100, "text", "row", document)`, true},
		{"texts in a frame", `add(2100, "text", "row", document.getElementById("frame").contentDocument)`, true},
		{"a text that is too long", `const f = document.createElement("textarea"); f.value = "line\n".repeat(20000); document.body.append(f)`, true},
	} {
		target, session := b.Open(web.URL + "/form")
		b.Eval(session, fill+c.fields+`; const big = document.createElement("script"); big.type = "application/json"; big.textContent = "x".repeat(20e6); document.body.append(big); 1`)
		b.Eval(session, `const f = document.createElement("input"); f.type = "password"; document.body.append(f); f.value = "`+secret+`-late";
			document.title = "`+secret+`-late"; document.getElementById("kept").title = "`+secret+`-late";
			document.getElementById("kept").textContent = "kept text, `+secret+`-late"; 1`)
		results, s := capturePages(t, b, []capture.Page{{TargetID: target, SessionID: session, Type: "page", URL: "http://shop.example/"}}, patient)
		if results[0].DOM == "" {
			t.Errorf("%s: %+v", c.name, results[0])
			continue
		}
		dom := text(t, s, "dom-1.html")
		if strings.Contains(dom, secret) || strings.Contains(results[0].Title, secret) {
			t.Errorf("%s: typed text is in the DOM part, or in the title %q", c.name, results[0].Title)
		}
		if !strings.Contains(dom, "the page is large") || !strings.Contains(dom, "<form") || strings.Contains(dom, "kept text") == c.noText {
			t.Errorf("%s: the DOM part begins with %.600s", c.name, dom)
		}
		b.Must("", "Target.closeTarget", map[string]any{"targetId": target}, nil)
	}
}

func TestCaptureLeavesOutWhatWasTyped(t *testing.T) {
	b, web := testchrome.StartDriver(t), site(t)
	target, session := b.Open(web.URL + "/form")
	if got := b.Eval(session, typeSecrets); !strings.Contains(got, secret) {
		t.Fatalf("the page was not filled: %s", got)
	}
	results, s := capturePages(t, b, []capture.Page{{TargetID: target, SessionID: session, Type: "page", URL: "http://shop.example/"}}, patient)
	dom := text(t, s, "dom-1.html")
	for _, gone := range []string{secret, planted, "731", "bold", "designed"} {
		if strings.Contains(dom, gone) {
			t.Errorf("the DOM part has %q:\n%s", gone, dom)
		}
	}
	for _, kept := range []string{"Sign up", "kept text", "in the shadow", "inside a frame", "Texas", "Hello REDACTED", `action="/go?key=REDACTED"`, `type="password"`} {
		if !strings.Contains(dom, kept) {
			t.Errorf("the DOM part lacks %q:\n%s", kept, dom)
		}
	}
	if got := results[0].Title; got != "Welcome REDACTED" {
		t.Errorf("the title is %q", got)
	}
	if bytes.Contains(s.Raw, []byte(secret)) {
		t.Errorf("the manifest has the secret: %s", s.Raw)
	}
	// The page still has what was typed.
	if got := b.Eval(session, `document.getElementById("pass").value`); got != secret+"-pass" {
		t.Errorf("the page holds %q now", got)
	}
}

func TestCaptureOfAPageWithADialog(t *testing.T) {
	b, web := testchrome.StartDriver(t), site(t)
	target, session := b.Open(web.URL + "/plain")
	answer := b.Post(session, "Runtime.evaluate", map[string]any{"expression": `alert("really pay?")`})
	b.Await(session, "Page.javascriptDialogOpening")
	results, s := capturePages(t, b, []capture.Page{{TargetID: target, SessionID: session, Type: "page", URL: "http://shop.example/", Dialog: "alert: really pay?", Primary: true}}, patient)
	r := results[0]
	if r.Dialog != "alert: really pay?" || r.Screenshot != "" || !strings.Contains(r.Missing, "dialog") || r.CommittedURL != web.URL+"/plain" {
		t.Errorf("%+v", r)
	}
	if len(s.Manifest.Parts) != 2 || s.Manifest.Parts[0].Missing == "" || s.Manifest.LastScreenshot != "" {
		t.Errorf("manifest: %+v", s.Manifest)
	}
	// The dialog was left open: a person decides about it.
	b.Must(session, "Page.handleJavaScriptDialog", map[string]any{"accept": true}, nil)
	<-answer
}

// unread is a browser that says nothing about its pages. With drawn it gives a picture of them.
type unread struct{ drawn bool }

func (u unread) Call(_ context.Context, _, method string, _, result any) error {
	if u.drawn && method == "Page.captureScreenshot" {
		return json.Unmarshal([]byte(`{"data":"aGk="}`), result)
	}
	return errors.New("not in the script")
}

// TestTheTitleOfAPageThatIsNotRead is left out: what was typed may be in it.
func TestTheTitleOfAPageThatIsNotRead(t *testing.T) {
	page := capture.Page{TargetID: "T", SessionID: "S", Type: "page", URL: "http://shop.example/", Title: "Welcome " + secret}
	dialog, crashed := page, page
	dialog.Dialog, crashed.Crashed = "alert: x", true
	for name, one := range map[string]struct {
		from capture.Caller
		page capture.Page
	}{"a dialog": {unread{}, dialog}, "a crash": {unread{}, crashed}, "no answer": {unread{}, page}, "no snapshot": {unread{drawn: true}, page}} {
		synctest.Test(t, func(t *testing.T) {
			results, _ := capturePages(t, one.from, []capture.Page{one.page, one.page}, capture.Limits{Part: testchrome.Patience, Total: 2 * testchrome.Patience, Pages: 1})
			for i, r := range results {
				if r.Title != "" || (r.Screenshot != "") != (name == "no snapshot" && i == 0) {
					t.Errorf("%s, page %d: %+v", name, i+1, r)
				}
			}
		})
	}
}

// impatient gives a page that will not answer only a moment, and the browser, which says where
// the page is, and a page whose script was terminated as long as they take.
type impatient struct {
	capture.Caller
	terminated atomic.Bool
}

func (i *impatient) Call(ctx context.Context, session, method string, params, result any) error {
	if !i.terminated.Load() && method != "Target.getTargetInfo" && method != "Page.getNavigationHistory" {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
	}
	return i.Caller.Call(ctx, session, method, params, result)
}

// busy is impatient until the script of the page is terminated.
type busy struct{ impatient }

func (b *busy) Call(ctx context.Context, session, method string, params, result any) error {
	if method == "Runtime.terminateExecution" {
		b.terminated.Store(true)
	}
	return b.impatient.Call(ctx, session, method, params, result)
}

func TestCaptureOfADialogNobodyKnewOf(t *testing.T) {
	b, web := testchrome.StartDriver(t), site(t)
	target, session := b.Open(web.URL + "/plain")
	b.Post(session, "Runtime.evaluate", map[string]any{"expression": `alert("really pay?")`})
	b.Await(session, "Page.javascriptDialogOpening")
	results, _ := capturePages(t, &impatient{Caller: b}, []capture.Page{{TargetID: target, SessionID: session, Type: "page", URL: "http://shop.example/"}},
		capture.Limits{Part: testchrome.Patience, Total: testchrome.Patience})
	if r := results[0]; r.Screenshot != "" || !strings.Contains(r.Missing, "drew nothing") || r.DOMMissing == "" || r.CommittedURL == "" {
		t.Errorf("%+v", r)
	}
}

func TestCaptureOfABusyPage(t *testing.T) {
	b, web := testchrome.StartDriver(t), site(t)
	target, session := b.Open(web.URL + "/plain")
	b.Must(session, "Runtime.enable", nil, nil)
	answer := b.Post(session, "Runtime.evaluate", map[string]any{"expression": `console.log("busy now"); for (;;);`})
	b.Await(session, "Runtime.consoleAPICalled")
	results, s := capturePages(t, &busy{impatient{Caller: b}}, []capture.Page{{TargetID: target, SessionID: session, Type: "page", URL: "http://shop.example/"}},
		capture.Limits{Part: testchrome.Patience, Total: testchrome.Patience})
	if r := results[0]; r.Screenshot != "screenshot-1.jpg" || r.DOM != "dom-1.html" {
		t.Fatalf("%+v", r)
	}
	isImage(t, s, "screenshot-1.jpg")
	<-answer // the script was terminated
}

func TestCaptureOfACrashedPage(t *testing.T) {
	b, web := testchrome.StartDriver(t), site(t)
	target, session := b.Open(web.URL + "/plain")
	b.Post(session, "Page.navigate", map[string]any{"url": "chrome://crash"})
	b.Await(session, "Inspector.targetCrashed")
	for _, tt := range []struct{ before, since bool }{{true, true}, {false, true}, {false, false}} {
		var looked capture.Page
		results, _ := capturePages(t, &impatient{Caller: b}, []capture.Page{{TargetID: target, SessionID: session, Type: "page", URL: "http://shop.example/", Crashed: tt.before}}, capture.Limits{
			Part: testchrome.Patience, Total: testchrome.Patience,
			Crashed: func(id string) bool { return tt.since && id == target },
			Look: func(context.Context, int, capture.Page) func(capture.Page, []byte, string) {
				return func(p capture.Page, _ []byte, _ string) { looked = p }
			},
		})
		r := results[0]
		if r.Screenshot != "" || r.Missing == "" || r.Crashed != tt.since || looked.Crashed != tt.since || r.CommittedURL != web.URL+"/plain" {
			t.Errorf("%+v: %+v, looked at %+v", tt, r, looked)
		}
		if tt.since != strings.Contains(r.Missing, "crashed") {
			t.Errorf("%+v: why it is missing: %s", tt, r.Missing)
		}
	}
}

// late loses the first question to a page's scripts, as if its answer came too late.
type late struct {
	capture.Caller
	asked atomic.Bool
}

func (l *late) Call(ctx context.Context, session, method string, params, result any) error {
	if method == "Runtime.evaluate" && !l.asked.Swap(true) {
		return context.DeadlineExceeded
	}
	return l.Caller.Call(ctx, session, method, params, result)
}

// TestALatePageIsNoPageOnItsWay: in a browser that stands still, a page that is loaded and has
// drawn nothing, such as one that was never in front, is captured however late it says so. One
// that is still being loaded is not.
func TestALatePageIsNoPageOnItsWay(t *testing.T) {
	over := make(chan struct{})
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, "<!DOCTYPE html><title>"+r.URL.Path+"</title><script>1</script>")
		if r.URL.Path == "/half" {
			_ = http.NewResponseController(w).Flush()
			<-over
		}
	}))
	t.Cleanup(func() { close(over); web.Close() })
	b := testchrome.StartDriver(t)
	for path, wanted := range map[string]bool{"/whole": true, "/half": false} {
		var target, session string
		if wanted {
			target, session = b.Open(web.URL + path)
		} else {
			target, session = b.Open("about:blank")
			b.Must(session, "Page.navigate", map[string]any{"url": web.URL + path}, nil) // it is answered when the document begins
		}
		const says = `location.pathname + " " + performance.getEntriesByType("paint").length`
		got := b.Eval(session, says)
		for end := time.Now().Add(testchrome.Patience); strings.HasPrefix(got, "blank") && time.Now().Before(end); got = b.Eval(session, says) {
			// the document before it may still answer
		}
		if got != path+" 0" {
			t.Fatalf("the page says %q", got)
		}
		limits := patient
		limits.Still = true
		results, _ := capturePages(t, &late{Caller: b}, []capture.Page{{TargetID: target, SessionID: session, Type: "page", URL: web.URL + path}}, limits)
		if r := results[0]; (r.Screenshot != "") != wanted || (r.DOM != "") != wanted {
			t.Errorf("%s: %+v", path, r)
		}
	}
}

// script is a Caller that answers what a test says, and counts its calls.
type script struct {
	mu      sync.Mutex
	calls   map[string]int // by method
	answer  func(ctx context.Context, session, method string, n int) (any, error)
	running map[string]int // calls, by the session of their page
	maxRun  int            // the most pages that were asked at the same time
}

// inWorld is how a script knows Runtime.evaluate in a world of the caller's own.
const inWorld = "Runtime.evaluate in a world"

func (s *script) Call(ctx context.Context, session, method string, params, result any) error {
	if p, ok := params.(map[string]any); ok && p["contextId"] != nil {
		method = inWorld
	}
	s.mu.Lock()
	if s.calls == nil {
		s.calls, s.running = map[string]int{}, map[string]int{}
	}
	s.calls[method]++
	n := s.calls[method]
	if session != "" {
		s.running[session]++
	}
	s.maxRun = max(s.maxRun, len(s.running))
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		if s.running[session]--; s.running[session] <= 0 {
			delete(s.running, session)
		}
		s.mu.Unlock()
	}()
	answer, err := s.answer(ctx, session, method, n)
	if err != nil || result == nil {
		return err
	}
	raw, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, result)
}

// answers has the answers of an empty page.
func answers(_ context.Context, _, method string, _ int) (any, error) {
	switch method {
	case "Page.captureScreenshot":
		return map[string]any{"data": []byte("jpeg")}, nil
	case "Page.getFrameTree":
		return json.RawMessage(`{"frameTree":{"frame":{"id":"f"},"childFrames":[{"frame":{"id":"g"}}]}}`), nil
	case "Page.createIsolatedWorld":
		return map[string]any{"executionContextId": 3}, nil
	case "Runtime.evaluate":
		return json.RawMessage(`{"result":{"value":false}}`), nil // it is not being loaded
	case inWorld:
		return json.RawMessage(`{"result":{"value":{"nodes":1,"chars":1}}}`), nil
	case "DOMSnapshot.captureSnapshot":
		return json.RawMessage(`{"documents":[{"nodes":{"parentIndex":[-1],"nodeType":[9]}}],"strings":[]}`), nil
	}
	return struct{}{}, nil
}

func hang(ctx context.Context) error {
	<-ctx.Done()
	return fmt.Errorf("no answer: %w", ctx.Err())
}

func pagesOf(n int) []capture.Page {
	pages := make([]capture.Page, n)
	for i := range pages {
		pages[i] = capture.Page{TargetID: fmt.Sprint("t", i), SessionID: fmt.Sprint("s", i), Type: "page", URL: "https://a.example/"}
	}
	return pages
}

func TestCaptureIsBounded(t *testing.T) {
	t.Run("pages", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := &script{answer: func(ctx context.Context, s, method string, n int) (any, error) {
				time.Sleep(time.Millisecond) // until all that can be asked are
				return answers(ctx, s, method, n)
			}}
			results, s := capturePages(t, c, pagesOf(70), capture.Limits{})
			if c.calls["Page.captureScreenshot"] != 64 || c.maxRun != 4 {
				t.Errorf("%d pages, %d at the same time; want 64, 4", c.calls["Page.captureScreenshot"], c.maxRun)
			}
			if results[63].Missing != "" || results[64].Missing == "" || results[64].URL == "" || len(s.Manifest.Parts) != 140 {
				t.Errorf("the page after the last: %+v", results[64])
			}
		})
	})
	t.Run("a browser that hangs", func(t *testing.T) {
		c := &script{answer: func(_ context.Context, _, method string, _ int) (any, error) {
			t.Errorf("it was asked %s", method)
			return nil, errors.New("nobody answers")
		}}
		results, _ := capturePages(t, c, pagesOf(3), capture.Limits{Silent: "the browser hangs"})
		for _, r := range results {
			if r.Missing != "the browser hangs" || r.DOMMissing != r.Missing || r.URL != "https://a.example/" {
				t.Errorf("%+v", r)
			}
		}
	})
	t.Run("time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := &script{answer: func(ctx context.Context, _, _ string, _ int) (any, error) { return nil, hang(ctx) }}
			results, _ := capturePages(t, c, pagesOf(40), capture.Limits{})
			for _, r := range results {
				if r.Missing == "" || r.DOMMissing == "" || r.URL != "https://a.example/" {
					t.Errorf("%+v", r)
				}
			}
			if last := results[39].Missing; !strings.Contains(last, "used up") {
				t.Errorf("the last page: %s", last)
			}
		})
	})
	t.Run("no pages", func(t *testing.T) {
		if results, s := capturePages(t, &script{answer: answers}, nil, capture.Limits{}); len(results) != 0 || s.Manifest.Pages == nil {
			t.Errorf("%v", results)
		}
	})
}

func TestCaptureRecipes(t *testing.T) {
	broken := errors.New("Internal error")
	for _, c := range []struct {
		name       string
		answer     func(ctx context.Context, session, method string, n int) (any, error)
		terminated int
		shot, dom  bool
		says       string
	}{
		{"answers", answers, 0, true, true, ""},
		{"busy once", func(ctx context.Context, s, method string, n int) (any, error) {
			if method == "Page.captureScreenshot" && n == 1 {
				return nil, hang(ctx)
			}
			return answers(ctx, s, method, n)
		}, 1, true, true, ""},
		{"busy for good", func(ctx context.Context, s, method string, n int) (any, error) {
			if method == "Page.captureScreenshot" {
				return nil, hang(ctx)
			}
			return answers(ctx, s, method, n)
		}, 1, false, false, "nor after its script was terminated"},
		{"not to be terminated", func(ctx context.Context, s, method string, n int) (any, error) {
			if method == "Page.captureScreenshot" || method == "Runtime.terminateExecution" {
				return nil, hang(ctx)
			}
			return answers(ctx, s, method, n)
		}, 1, false, false, "could not be terminated"},
		{"no sign of life", func(ctx context.Context, s, method string, n int) (any, error) {
			switch {
			case method == "Runtime.evaluate" && n < 3, method == "Runtime.terminateExecution":
				return nil, hang(ctx)
			case method == "Page.captureScreenshot":
				return nil, errors.New("it is asked for a screenshot, which it would owe")
			}
			return answers(ctx, s, method, n)
		}, 1, false, false, "could not be terminated"},
		{"error", func(ctx context.Context, s, method string, n int) (any, error) {
			if method == "Page.captureScreenshot" {
				return nil, broken
			}
			return answers(ctx, s, method, n)
		}, 0, false, true, "Internal error"},
		{"refused at first", func(ctx context.Context, s, method string, n int) (any, error) {
			if method == "Page.captureScreenshot" && n < 30 {
				return nil, errors.New("Unable to capture screenshot")
			}
			return answers(ctx, s, method, n)
		}, 0, true, true, ""},
		{"being loaded", func(ctx context.Context, s, method string, n int) (any, error) {
			if method == "Runtime.evaluate" {
				return json.RawMessage(`{"result":{"value":true}}`), nil
			}
			return answers(ctx, s, method, n)
		}, 0, false, false, "has drawn nothing yet"},
		{"empty image", func(ctx context.Context, s, method string, n int) (any, error) {
			if method == "Page.captureScreenshot" {
				return struct{}{}, nil
			}
			return answers(ctx, s, method, n)
		}, 0, false, true, "empty"},
		{"navigation pending", func(ctx context.Context, s, method string, n int) (any, error) {
			if method == "DOMSnapshot.captureSnapshot" {
				return nil, hang(ctx)
			}
			return answers(ctx, s, method, n)
		}, 0, true, false, ""},
		{"too large for a moment", func(ctx context.Context, s, method string, n int) (any, error) {
			if method == inWorld && n == 2 {
				return nil, hang(ctx)
			}
			return answers(ctx, s, method, n)
		}, 0, true, true, ""},
		{"too large for good", func(ctx context.Context, s, method string, n int) (any, error) {
			if method == inWorld {
				return nil, hang(ctx)
			}
			return answers(ctx, s, method, n)
		}, 0, true, false, ""},
		{"it refuses while it draws", func(ctx context.Context, s, method string, n int) (any, error) {
			if method == "DOMSnapshot.captureSnapshot" && n == 1 {
				return nil, broken
			}
			if method == "Page.captureScreenshot" {
				time.Sleep(50 * time.Millisecond)
			}
			return answers(ctx, s, method, n)
		}, 0, true, true, ""},
		{"it refuses while it draws, and says so later", func(ctx context.Context, s, method string, n int) (any, error) {
			if method == "DOMSnapshot.captureSnapshot" && n == 1 {
				time.Sleep(50 * time.Millisecond)
				return nil, broken
			}
			return answers(ctx, s, method, n)
		}, 0, true, true, ""},
		{"it refuses when it has drawn", func(ctx context.Context, s, method string, n int) (any, error) {
			if method == "DOMSnapshot.captureSnapshot" {
				time.Sleep(50 * time.Millisecond)
				return nil, broken
			}
			return answers(ctx, s, method, n)
		}, 0, true, false, ""},
		{"its script fails", func(ctx context.Context, s, method string, n int) (any, error) {
			if method == inWorld {
				return json.RawMessage(`{"result":{},"exceptionDetails":{"text":"Uncaught"}}`), nil
			}
			return answers(ctx, s, method, n)
		}, 0, true, false, ""},
		{"strange history", func(ctx context.Context, s, method string, n int) (any, error) {
			if method == "Page.getNavigationHistory" {
				return map[string]any{"currentIndex": 7}, nil
			}
			return answers(ctx, s, method, n)
		}, 0, true, true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				caller := &script{answer: c.answer}
				var undrawn bool
				begun := time.Now()
				results, s := capturePages(t, caller, pagesOf(1), capture.Limits{
					Look: func(context.Context, int, capture.Page) func(capture.Page, []byte, string) {
						return func(p capture.Page, _ []byte, _ string) { undrawn = p.Undrawn }
					},
				})
				r := results[0]
				if (r.Screenshot != "") != c.shot || (r.DOM != "") != c.dom || caller.calls["Runtime.terminateExecution"] != c.terminated || !strings.Contains(r.Missing, c.says) {
					t.Errorf("%+v after %v", r, caller.calls)
				}
				if took := time.Since(begun); undrawn != (!c.shot && c.dom) || took > 10*time.Second {
					t.Errorf("undrawn %t, after %v", undrawn, took)
				}
				for _, p := range s.Manifest.Parts {
					if (p.Missing == "") != (p.SHA256 != "") {
						t.Errorf("%+v", p)
					}
				}
			})
		})
	}
}
