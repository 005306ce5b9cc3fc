package monitor

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/checkpoint/ledger"
	"leasehold/internal/boottime"
	"leasehold/internal/test/testchrome"
	"leasehold/lease"
)

// typedPages is a site with fields of many kinds, of which some stand where they are hard to see.
func typedPages(t *testing.T) (url string) {
	t.Helper()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		other := "http://" + strings.Replace(r.Host, "127.0.0.1", "localhost", 1)
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, strings.ReplaceAll(map[string]string{
			"/form": `<form method=post action=/done><input id=user><input id=pass type=password><input id=card autocomplete=cc-number><button id=go>ok</button></form>`,
			"/open": `<div id=host></div><script>
				host.attachShadow({mode: "open"}).innerHTML = "<div id=inner></div>";
				host.shadowRoot.getElementById("inner").attachShadow({mode: "open"}).innerHTML = "<input type=password>";
				globalThis.f = host.shadowRoot.getElementById("inner").shadowRoot.querySelector("input")</script>`,
			"/closed": `<div id=host></div><script>
				const root = host.attachShadow({mode: "closed"});
				root.innerHTML = "<div></div>";
				const inner = root.firstChild.attachShadow({mode: "closed"});
				inner.innerHTML = "<input autocomplete=one-time-code><input type=tel>";
				globalThis.f = inner.querySelector("input"); globalThis.g = inner.querySelector("[type=tel]")</script>`,
			"/element": `<script>customElements.define("my-field", class extends HTMLElement {
				constructor() { super(); globalThis.root = this.attachShadow({mode: "closed", delegatesFocus: true}); root.innerHTML = "<input type=email><input type=password>" }
				})</script><my-field></my-field>`,
			"/frame":   `<iframe srcdoc="<input id=f type=password>"></iframe>`,
			"/far":     `<body style="margin:0"><iframe src="OTHER/near" style="border:0"></iframe></body>`,
			"/near":    `<body style="margin:0"><input id=f type=password style="width:200px;height:90px"></body>`,
			"/edit":    `<div id=f contenteditable>old</div>`,
			"/design":  `<iframe id=frame></iframe><script>frame.contentDocument.designMode = "on"</script>`,
			"/keeps":   `<input id=f type=password><script>let kept = ""; f.addEventListener("beforeinput", (e) => { e.preventDefault(); kept += e.data })</script>`,
			"/code":    `<input id=f autocomplete=one-time-code><script>f.addEventListener("keydown", (e) => { e.preventDefault(); f.value += e.key })</script>`,
			"/plain":   `<input id=f><input id=g><input id=h>`,
			"/search":  `<form method=get action=/form><input id=f><input type=hidden name=x></form>`,
			"/sly":     `<form method=get action=/form><input id=f><input name=getAttribute><input name=querySelectorAll></form>`,
			"/buttons": `<body tabindex=0><input id=f type=checkbox><select id=g><option>a<option>b</select><input id=h readonly></body>`,
		}[r.URL.Path], "OTHER", other))
	}))
	t.Cleanup(site.Close)
	return site.URL
}

// worker types as the usual clients do: its commands count as acting on the pages.
type typist struct {
	*watched
	fence   *lease.Fence
	session string
}

func (w typist) input(method string, params any) {
	w.Helper()
	if err := w.worker.CallFenced(w.Context(), w.fence, w.session, method, params, nil); err != nil {
		w.Fatal(err)
	}
}

// fill focuses a field by script and enters a text at once.
func (w typist) fill(field, text string) {
	w.Helper()
	w.run(w.session, field+".focus()")
	w.input("Input.insertText", map[string]any{"text": text})
}

// keys presses keys one after the other: \t is that of the tabulator, \r Enter.
func (w typist) keys(keys string) {
	w.Helper()
	for _, key := range keys {
		p := map[string]any{"type": "keyDown", "key": string(key), "text": string(key)}
		if key == '\t' {
			p = map[string]any{"type": "keyDown", "key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9}
		}
		if key == '\r' {
			p = map[string]any{"type": "keyDown", "key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"}
		}
		w.input("Input.dispatchKeyEvent", p)
		w.input("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": p["key"]})
	}
}

// whereItWent says where what was typed into a frame of another process went, as that frame and its page tell it.
func (w typist) whereItWent() string {
	w.Helper()
	said := "the page has the focus on " + w.value("document.activeElement.tagName + ', drawn: ' + document.visibilityState")
	var all struct {
		TargetInfos []struct{ TargetID, Type string }
	}
	w.call("", "Target.getTargets", nil, &all)
	for _, frame := range all.TargetInfos {
		if frame.Type != "iframe" {
			continue
		}
		var in struct{ SessionID string }
		w.call("", "Target.attachToTarget", map[string]any{"targetId": frame.TargetID, "flatten": true}, &in)
		inFrame := w
		inFrame.session = in.SessionID
		said += "; the frame has " + inFrame.value("document.readyState + ', focus: ' + document.hasFocus() + ', characters: ' + document.querySelector('input')?.value.length")
		var world struct{ ExecutionContextID int64 }
		w.call(in.SessionID, "Page.createIsolatedWorld", map[string]any{"frameId": frame.TargetID, "worldName": cdpproxy.HiddenWorld}, &world)
		var has struct{ Result struct{ Value string } }
		w.call(in.SessionID, "Runtime.evaluate", map[string]any{"contextId": world.ExecutionContextID, "expression": "typeof watchTyping + ' ' + typeof " + typedBinding}, &has)
		said += "; its script and binding: " + has.Result.Value
	}
	return said
}

// arrives waits until a page has left for the path.
func (w typist) arrives(path string) {
	w.Helper()
	w.until(func(e checkpoint.Entry) bool { return e.Kind == checkpoint.KindURL && strings.HasSuffix(e.URL, path) })
}

// value is that of an expression in the page, a text.
func (w typist) value(expression string) string {
	w.Helper()
	var r struct{ Result struct{ Value string } }
	w.call(w.session, "Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true}, &r)
	return r.Result.Value
}

// reported are the kinds that were reported so far.
func (w typist) reported() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return kinds(w.entries)
}

// kinds are those of the fields that were reported, in order.
func kinds(entries []checkpoint.Entry) string {
	var list []string
	for _, e := range entries {
		if e.Kind == checkpoint.KindTyped {
			list = append(list, e.Name)
		}
	}
	return strings.Join(list, " ")
}

// TestWhatIsTypedInto types into fields of one real browser.
func TestWhatIsTypedInto(t *testing.T) {
	t.Parallel()
	url, w := typedPages(t), watch(t)
	fence := lease.Begin(lease.PresenceEntry{}, boottime.Now(), lease.Timing{TTL: time.Hour}, boottime.Now).Fence(1)
	session := w.open(url + "/plain") // the one tab: another one is a process more
	w.call(session, "Page.bringToFront", nil, nil)
	for _, tt := range []struct {
		page, want string
		do         func(w typist)
	}{
		{"/form", "text password card", func(w typist) { // and leaves the document at once
			w.fill("user", "ann")
			w.fill("pass", "pl4nted")
			w.fill("card", "4111")
			w.input("Runtime.evaluate", map[string]any{"expression": "go.click()"})
			w.arrives("/done")
		}},
		{"/form", "text password card", func(w typist) {
			w.run(w.session, "user.focus()")
			w.keys("an\tpw\t41")
		}},
		{"/open", "password", func(w typist) { w.fill("f", "x") }},
		{"/closed", "one_time_code phone", func(w typist) {
			w.fill("f", "123456")
			w.until(func(e checkpoint.Entry) bool { return e.Name == "one_time_code" })
			w.fill("g", "1")
		}},
		{"/element", "mail_address password", func(w typist) {
			w.fill("root.firstChild", "a@b.example")
			w.until(func(e checkpoint.Entry) bool { return e.Name == "mail_address" })
			w.fill("root.lastChild", "x")
		}},
		{"/frame", "password", func(w typist) { w.fill("frames[0].document.querySelector('input')", "x") }},
		{"/far", "password", func(w typist) { // of another process
			// It may not be drawn yet, and hear of the focus after the text.
			for end := time.Now().Add(testchrome.Patience); w.reported() == "" && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
				for _, kind := range []string{"mousePressed", "mouseReleased"} {
					w.input("Input.dispatchMouseEvent", map[string]any{"type": kind, "x": 50, "y": 50, "button": "left", "clickCount": 1})
				}
				w.input("Input.insertText", map[string]any{"text": "x"})
			}
			if w.reported() == "" {
				w.Errorf("nothing is reported of the frame: %s", w.whereItWent())
			}
		}},
		{"/edit", "message", func(w typist) { w.fill("f", "x") }},
		{"/design", "message", func(w typist) {
			w.run(w.session, "frame.focus(), frame.contentDocument.body.focus()")
			w.input("Input.insertText", map[string]any{"text": "x"})
		}},
		{"/keeps", "password", func(w typist) { w.fill("f", "x") }},
		{"/code", "one_time_code", func(w typist) {
			w.run(w.session, "f.focus()")
			w.keys("12")
		}},
		{"/plain", "card text bank_account", func(w typist) { // by check digits
			w.fill("f", "4111 1111 1111 1111")
			w.fill("g", "4111 1111 1111 1112")
			w.fill("h", "DE89370400440532013000")
		}},
		{"/plain", "text card", func(w typist) {
			w.run(w.session, "f.focus()")
			w.keys("4111111111111111\t")
		}},
		{"/plain", "text card", func(w typist) { // and leaves the document at once
			w.run(w.session, `f.focus(), f.addEventListener("keydown", (e) => { if (e.key === "Enter") { e.preventDefault(); location.href = "/form" } })`)
			w.keys("4111111111111111\r")
			w.arrives("/form")
		}},
		{"/plain", "text card", func(w typist) { // without a key that ends it
			w.run(w.session, "f.focus()")
			w.keys("4111111111111111")
		}},
		{"/search", "search", func(w typist) { w.fill("f", "x") }},
		{"/sly", "text", func(w typist) { w.fill("f", "x") }},
		{"/buttons", "", func(w typist) { // nothing that is typed into
			for _, field := range []string{"f", "g", "h"} {
				w.run(w.session, field+".focus()")
				w.keys(" b")
			}
		}},
	} {
		t.Logf("%s: %s", tt.page, tt.want) // whatever fails below, it is at the last one
		w.visit(session, url+tt.page)
		w.restart()
		tt.do(typist{w, fence, session})
		want := tt.want
		if want == "" { // what comes after it shows that it is not there
			w.visit(session, url+"/plain")
			typist{w, fence, session}.fill("f", "x")
			want = "text"
		}
		var got []checkpoint.Entry
		w.until(func(checkpoint.Entry) bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			got = slices.Clone(w.entries)
			return len(kinds(got)) >= len(want)
		})
		if kinds(got) != want {
			t.Errorf("%s: %s, want %s", tt.page, kinds(got), want)
		}
		for _, e := range got {
			if e.Kind == checkpoint.KindTyped && tt.want != "" && e.URL != url+tt.page && !slices.Contains([]string{"/frame", "/far", "/design"}, tt.page) {
				t.Errorf("%s: on %s", tt.page, e.URL)
			}
		}
	}
}

// TestWhatWasTypedBeforeItCouldBeTold: a document on a busy host gets the function by which its
// script tells some seconds late. What was typed until then is told all the same.
func TestWhatWasTypedBeforeItCouldBeTold(t *testing.T) {
	t.Parallel()
	url, w := typedPages(t), watch(t)
	fence := lease.Begin(lease.PresenceEntry{}, boottime.Now(), lease.Timing{TTL: time.Hour}, boottime.Now).Fence(1)
	typing := typist{w, fence, w.open(url + "/plain")}
	typing.fill("f", "x")
	typing.until(func(e checkpoint.Entry) bool { return e.Name == "text" }) // it has it
	frame, own := w.targetOf(typing.session), ""                            // its session is the worker's
	for _, p := range w.monitor.Pages() {
		if p.TargetID == frame {
			own = p.SessionID
		}
	}
	inWorld := func(expression string) {
		t.Helper()
		var done bool
		if err := inPage(t.Context(), w.monitor.chrome, own, frame, "("+expression+", true)", &done); err != nil || !done {
			t.Fatalf("done: %v, error %v; want true", done, err)
		}
	}
	inWorld("globalThis.kept = leaseholdTyped, delete globalThis.leaseholdTyped")
	typing.fill("g", "4111 1111 1111 1111")
	time.Sleep(3 * time.Second) // it has stopped to ask for it often
	inWorld("globalThis.leaseholdTyped = kept")
	typing.until(func(e checkpoint.Entry) bool { return e.Name == "card" })
}

func (w *watched) targetOf(session string) string {
	w.Helper()
	var r struct{ TargetInfo struct{ TargetID string } }
	w.call(session, "Target.getTargetInfo", nil, &r)
	return r.TargetInfo.TargetID
}

// TestTypingIsNotNoticed: a page that listens for everything, and replaced what the launcher
// could ask it by, sees the focus of its fields and nothing else.
func TestTypingIsNotNoticed(t *testing.T) {
	t.Parallel()
	const page = `<!doctype html><input id=user><input id=pass type=password><script>
		let seen = [];
		const names = () => Object.getOwnPropertyNames(globalThis).sort().join();
		const before = names();
		for (const [what, name] of [[Document, "activeElement"], [ShadowRoot, "activeElement"], [Event, "composedPath"], [HTMLInputElement, "value"], [HTMLInputElement, "type"], [Node, "getRootNode"],
			[Document, "querySelector"], [Element, "closest"], [Element, "matches"], [Element, "getAttribute"], [Element, "querySelectorAll"], [Element, "checkVisibility"], [JSON, "stringify"], [Date, "now"], [Array, "includes"]]) {
			const owner = what.prototype ?? what, old = Object.getOwnPropertyDescriptor(owner, name) ?? {};
			if (old.get) Object.defineProperty(owner, name, {...old, get() { seen.push(name); return old.get.call(this) }});
			else if (old.value) owner[name] = function(...args) { seen.push(name); return old.value.apply(this, args) };
		}
		for (const type of ["focus", "blur", "focusin", "focusout", "change"]) addEventListener(type, (e) => seen.push(type), true);
		new MutationObserver(() => seen.push("mutation")).observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
	</script>`
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, page)
	}))
	t.Cleanup(site.Close)
	w := watch(t)
	fence := lease.Begin(lease.PresenceEntry{}, boottime.Now(), lease.Timing{TTL: time.Hour}, boottime.Now).Fence(1)
	typing := typist{w, fence, w.open(site.URL)}
	typing.call(typing.session, "Page.bringToFront", nil, nil)
	// Its window gets the focus a moment after the answer.
	typing.value("new Promise((done) => document.hasFocus() ? done('') : addEventListener('focus', () => done(''), {once: true}))")
	typing.run(typing.session, "seen = []")
	typing.fill("user", "ann")
	typing.fill("pass", "pl4nted")
	w.until(func(e checkpoint.Entry) bool { return e.Name == "password" })
	const tried = "document.activeElement, document.body.append('x'), Promise.resolve().then(() => [...seen, names() === before ? 'no name' : 'a new name'].join(' '))"
	// The last three are what the page does itself, to show that it would see it.
	const want = "focus focusin change blur focusout focus focusin activeElement mutation no name"
	if got := typing.value(tried); got != want {
		t.Errorf("the page sees %s, want %s", got, want)
	}
}

// TestTypingIsGathered: equal kinds of one document are reported once until something was sent,
// a checkpoint was named, or a while has passed; and not where nobody typed.
func TestTypingIsGathered(t *testing.T) {
	t.Parallel()
	var got []checkpoint.Entry
	m := direct(func(e checkpoint.Entry) { got = append(got, e) })
	m.pages.open["T"], m.pages.targets["S"] = &page{}, "T"
	m.pages.open["T"].TargetID = "T"
	now := time.Unix(0, 0)
	tell := func(world int, attributes string, typed bool) {
		payload, err := json.Marshal(fmt.Sprintf(`{"tag":"input","attributes":%s,"value":"","url":"http://a/"}`, attributes))
		if err != nil {
			t.Fatal(err)
		}
		m.typing.fieldTyped(told{"S", fmt.Appendf(nil, `{"name":"leaseholdTyped","payload":%s,"executionContextId":%d}`, payload, world), typed}, now)
	}
	const text, password = `{"type":"text"}`, `{"type":"password"}`
	tell(1, text, true)
	tell(1, text, true)
	tell(1, password, true)
	tell(1, text, true)
	tell(1, text, false)
	if kinds(got) != "text password" || got[0].Target != "T" || got[0].URL != "http://a/" {
		t.Errorf("%+v", got)
	}
	tell(2, text, true) // another document
	tell(2, password, false)
	m.Checkpointed()
	tell(2, text, true)
	m.requests.observe(cdpproxy.Traffic{Method: ledger.Sent, Params: json.RawMessage(`{"requestId":"1","type":"Fetch","request":{"url":"http://a/","method":"POST"}}`)})
	tell(2, text, true)
	now = now.Add(typedAgain)
	tell(2, text, true)
	if want := "text password text text text text"; kinds(got) != want {
		t.Errorf("%s, want %s", kinds(got), want)
	}
	for _, params := range []string{`{}`, `{"name":"leaseholdTyped","payload":"x"}`, `{"name":"other","payload":"{}"}`, `[`} {
		m.typing.fieldTyped(told{"S", json.RawMessage(params), true}, now)
	}
	if kinds(got) != "text password text text text text" {
		t.Errorf("of what nobody told: %s", kinds(got))
	}
}
