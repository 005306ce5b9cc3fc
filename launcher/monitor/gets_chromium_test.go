package monitor

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/internal/boottime"
	"leasehold/internal/test/testchrome"
	"leasehold/launcher/recovery/decision"
)

// getsPage has one control for each case. It asks how things are all the time, as such
// pages do.
const getsPage = `<!doctype html><title>page</title><style>a, button, select, input, output { display: block }</style>
<a id=next href=/take>następny</a>
<a id=heart href="/heart?id=3">♡</a>
<a id=read href=/tickets/7>7</a>
<a id=sort href="/list?sort=name">↑</a>
<a id=logo href=/>logo</a>
<a id=alias href=/home>début</a>
<a id=keys href=/keys>clés</a>
<a id=moved href=/old>alt</a>
<a id=mark href=/mark>✓</a>
<a id=code href="/here?k=8r2">jestem</a>
<a id=print href="/view?id=7">印刷</a>
<a id=drop href=/drop onclick="return confirm('sicher?')">löschen</a>
<a id=ask href=/tickets/9 onclick="return confirm('weg?')">9</a>
<a id=spa href=/spa onclick="event.preventDefault(); get('/spa?part=1').then(r => r.json()).then(r => at('panel').textContent = r.name)">spa</a>
<form action=/find><input id=find name=q><button id=find-go>搜</button></form>
<form action=/view><input type=hidden name=range value=2><button id=set-go>OK</button></form>
<form action=/view><input id=from name=from value=2><input name=to value=9><button id=both-go>OK</button></form>
<button id=relay>P1</button>
<button id=week>→</button>
<button id=more>+</button>
<button id=keep>☆</button>
<button id=close>×</button>
<button id=toast>♪</button>
<button id=gone>-</button>
<button id=again>○</button>
<button id=row>del</button>
<button id=tab>t</button>
<input id=live placeholder=search>
<select id=area><option>a<option>b</select>
<p id=up>0</p><p id=weeks>KW 47</p><div id=list></div><div id=panel hidden>panel</div><output id=state></output>
<script>
const at = (id) => document.getElementById(id), get = (url) => fetch(url);
const on = (id, what, event = 'click') => at(id).addEventListener(event, what);
let polls = 0;
setInterval(async () => { at('up').textContent = (await (await get('/up')).json()).up; polls++; }, 60);
on('relay', async () => { await get('/relay?p=1'); at('relay').textContent = 'P1 *'; });
on('week', async () => { at('weeks').textContent = 'KW ' + (await (await get('/week?n=48')).json()).n; });
on('more', async () => { for (const i of await (await get('/items?from=20')).json()) at('list').insertAdjacentHTML('beforeend', '<p>item</p>'); });
on('keep', () => get('/keep?id=4'));
on('close', async () => { await get('/close?id=5'); at('list').insertAdjacentHTML('beforeend', '<p>voilà</p>'); });
on('toast', async () => { await get('/toast?id=5'); at('state').textContent = 'fait'; });
on('gone', async () => { await get('/gone?id=5'); at('list').insertAdjacentHTML('beforeend', '<p>voilà</p>'); });
on('again', async () => { await get('/again?id=6'); location.reload(); });
on('row', async () => { await get('/row?id=6'); at('row').remove(); });
on('tab', async () => { at('panel').hidden = false; await get('/prefetch?x=1'); });
on('live', async () => { at('list').textContent = (await (await get('/live?q=' + at('live').value)).json()).found; }, 'input');
on('area', async () => { at('list').textContent = (await (await get('/area?a=' + at('area').value)).json()).rows; }, 'change');
</script>`

// getsSite answers what the page asks for.
func getsSite() http.Handler {
	mux := http.NewServeMux()
	page := func(w http.ResponseWriter, text string) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, text)
	}
	to := func(pattern, where string, status int) {
		mux.HandleFunc("GET "+pattern, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, where, status) })
	}
	says := func(pattern, body string) {
		mux.HandleFunc("GET "+pattern, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, body)
		})
	}
	mux.HandleFunc("GET /list", func(w http.ResponseWriter, _ *http.Request) { page(w, getsPage) })
	for _, place := range []string{"/tickets/{id}", "/home/start", "/enter", "/drop", "/view"} {
		mux.HandleFunc("GET "+place, func(w http.ResponseWriter, _ *http.Request) { page(w, "<h1>text</h1><a href=/list>back</a>") })
	}
	mux.HandleFunc("GET /here", func(w http.ResponseWriter, _ *http.Request) { page(w, "<h1>Jesteś na liście</h1><p>Chemia</p>") })
	to("/take", "/tickets/8", http.StatusFound)
	to("/heart", "/list", http.StatusSeeOther)
	to("/{$}", "/list", http.StatusFound)
	to("/home", "/home/start", http.StatusFound)
	to("/keys", "/enter?next=%2Fkeys", http.StatusFound)
	to("/old", "/tickets/9", http.StatusMovedPermanently)
	to("/find", "/tickets/7", http.StatusFound)
	to("/in", "/list", http.StatusFound)
	none := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }
	mux.HandleFunc("GET /mark", none)
	mux.HandleFunc("GET /gone", none)
	var mu sync.Mutex
	up := 0
	mux.HandleFunc("GET /up", func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		up++
		fmt.Fprintf(w, `{"up":%d}`, up)
	})
	says("/relay", `{"p":1}`)
	says("/week", `{"n":"48"}`)
	says("/items", `[{"id":20},{"id":21}]`)
	says("/close", `{"ok":true}`)
	for _, place := range []string{"/keep", "/toast", "/again", "/row", "/prefetch"} {
		says(place, `{"ok":true}`)
	}
	says("/spa", `{"name":"Ann"}`)
	mux.HandleFunc("GET /live", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, `{"found":%q}`, r.FormValue("q")) })
	mux.HandleFunc("GET /area", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"rows":"rows of %s"}`, r.FormValue("a"))
	})
	return mux
}

// getsWatch is a monitor on a real browser, with a worker that acts all the time.
type getsWatch struct {
	*Monitor
	t *testing.T
	// typed says that the worker counts as one that has typed.
	typed atomic.Bool
	mu    sync.Mutex

	entries []checkpoint.Entry
}

func watchGets(t *testing.T) *getsWatch {
	t.Helper()
	w := &getsWatch{t: t}
	b := testchrome.Start(t, testchrome.Options(t))
	commands, events, err := b.TakePipe()
	if err != nil {
		t.Fatal(err)
	}
	w.Monitor = New(func(e checkpoint.Entry) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.entries = append(w.entries, e)
	})
	mux, err := cdpproxy.New(cdpproxy.Pipe{Commands: commands, Events: events}, decision.CommandEffect, w.Traffic)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Attach(t.Context(), mux); err != nil {
		t.Fatal(err)
	}
	w.gets.mu.Lock()
	w.gets.acted, w.gets.actedOn = boottime.Now, func(string) (bool, bool) { return true, w.typed.Load() }
	w.gets.mu.Unlock()
	var watching sync.WaitGroup
	watching.Go(func() { w.Watch(context.Background()) })
	t.Cleanup(func() {
		// The reply may be lost with the pipe.
		_ = w.chrome.Call(context.Background(), "", "Browser.close", nil, nil)
		<-mux.Done()
		watching.Wait()
	})
	return w
}

func (w *getsWatch) call(session, method string, params, result any) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), testchrome.Patience)
	defer cancel()
	if err := w.chrome.Call(ctx, session, method, params, result); err != nil {
		w.t.Fatalf("%s: %v", method, err)
	}
}

// eval evaluates an expression until it is true.
func (w *getsWatch) eval(session, expression string) json.RawMessage {
	w.t.Helper()
	for end := time.Now().Add(testchrome.Patience); ; time.Sleep(10 * time.Millisecond) {
		var r struct {
			Result struct{ Value json.RawMessage }
		}
		ctx, cancel := context.WithTimeout(w.t.Context(), testchrome.Patience)
		err := w.chrome.Call(ctx, session, "Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true}, &r)
		cancel()
		if v := string(r.Result.Value); err == nil && v != "" && v != "false" && v != "null" {
			return r.Result.Value
		}
		if time.Now().After(end) {
			w.t.Fatalf("%s: %s, %v", expression, r.Result.Value, err)
		}
	}
}

// openPage opens a page of the site's list, and returns its CDP session.
func (w *getsWatch) openPage(url string) string {
	w.t.Helper()
	var tab struct{ TargetID string }
	w.call("", "Target.createTarget", map[string]string{"url": url}, &tab)
	for end := time.Now().Add(testchrome.Patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		for _, p := range w.Pages() {
			if p.TargetID == tab.TargetID {
				w.eval(p.SessionID, `document.readyState === 'complete' && location.href !== 'about:blank'`)
				return p.SessionID
			}
		}
	}
	w.t.Fatal("the page is not watched")
	return ""
}

func (w *getsWatch) press(session, selector string) {
	w.t.Helper()
	var at [2]float64
	expression := fmt.Sprintf(`(() => { const e = document.querySelector(%q); e.scrollIntoView(); const r = e.getBoundingClientRect(); return [r.x + 5, r.y + r.height / 2]; })()`, selector)
	if err := json.Unmarshal(w.eval(session, expression), &at); err != nil {
		w.t.Fatal(err)
	}
	for _, kind := range []string{"mousePressed", "mouseReleased"} {
		w.chrome.Post(session, "Input.dispatchMouseEvent", map[string]any{"type": kind, "x": at[0], "y": at[1], "button": "left", "clickCount": 1})
	}
}

// signs are those that were reported, with the places that were asked for.
func (w *getsWatch) signs() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var found []string
	for _, e := range w.entries {
		if e.Kind == checkpoint.KindGetWrite {
			place := e.URL[strings.Index(e.URL[8:], "/")+8:]
			found = append(found, e.Name+" "+place)
		}
	}
	return found
}

// TestGetsThatWrite plays what sites do, in one real browser.
func TestGetsThatWrite(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(getsSite())
	t.Cleanup(site.Close)
	w := watchGets(t)
	click := func(selector string) func(session string) { return func(s string) { w.press(s, selector) } }
	agree := func(selector string) func(string) {
		return func(s string) {
			w.press(s, selector)
			for end := time.Now().Add(testchrome.Patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
				if w.chrome.Call(t.Context(), s, "Page.handleJavaScriptDialog", map[string]bool{"accept": true}, nil) == nil {
					return
				}
			}
			t.Error("no dialog")
		}
	}
	open := func(path string) func(string) {
		return func(s string) { w.call(s, "Page.navigate", map[string]string{"url": site.URL + path}, nil) }
	}
	choose := func(selector, letter string) func(string) { // by keyboard
		return func(s string) {
			w.eval(s, fmt.Sprintf(`(document.querySelector(%q).focus(), true)`, selector))
			w.call(s, "Input.dispatchKeyEvent", map[string]any{"type": "keyDown", "key": letter, "text": letter}, nil)
		}
	}
	typed := func(selector, text string) func(string) {
		return func(s string) {
			w.typed.Store(true)
			w.eval(s, fmt.Sprintf(`(document.querySelector(%q).focus(), true)`, selector))
			for _, letter := range text {
				w.call(s, "Input.dispatchKeyEvent", map[string]any{"type": "keyDown", "key": string(letter), "text": string(letter)}, nil)
			}
		}
	}
	session := w.openPage(site.URL + "/list")
	for _, c := range []struct {
		name  string
		act   func(session string)
		until string // what the page shows then
		want  string
	}{
		{"a link that takes the next one", click("#next"), "location.pathname === '/tickets/8'", "chosen /take"},
		{"a link that comes back", click("#heart"), "performance.getEntriesByType('navigation')[0].redirectCount === 1", "returned /heart?id=3"},
		{"a link to read", click("#read"), "location.pathname === '/tickets/7'", ""},
		{"a list sorted", click("#sort"), "location.search === '?sort=name'", ""},
		{"the site's logo", click("#logo"), "performance.getEntriesByType('navigation')[0].redirectCount === 1", ""},
		{"an address of another page", click("#alias"), "location.pathname === '/home/start'", ""},
		{"a sign-in comes first", click("#keys"), "location.pathname === '/enter'", ""},
		{"a page that has moved", click("#moved"), "location.pathname === '/tickets/9'", ""},
		{"a link without an answer", click("#mark"), "(globalThis.waited ??= setTimeout(() => globalThis.over = true, 200), globalThis.over)", "no_content /mark"},
		{"a link with a code", click("#code"), "location.pathname === '/here'", "notice /here?k=8r2"},
		{"a page to print", click("#print"), "location.pathname === '/view'", ""},
		{"a link that asks first", agree("#drop"), "location.pathname === '/drop'", "confirmed /drop"},
		{"a single-page link", click("#spa"), "at('panel').textContent === 'Ann'", ""},
		{"a form that finds one thing", click("#find-go"), "location.pathname === '/tickets/7'", ""},
		{"a form of choices", click("#set-go"), "location.pathname === '/view'", "unjudged /view?range=2"},
		{"a form of texts that were there", click("#both-go"), "location.pathname === '/view'", "unjudged /view?from=2&to=9"},
		{"the same, typed into", func(s string) { typed("#from", "1")(s); click("#both-go")(s) }, "location.pathname === '/view'", ""},
		{"a relay, beside what changes by itself", click("#relay"), "at('relay').textContent === 'P1 *'", "toggled /relay?p=1"},
		{"a button that is answered with a value", click("#week"), "at('weeks').textContent === 'KW 48'", "unjudged /week?n=48"},
		{"a choice that is answered with a value", choose("#area", "b"), "at('list').textContent === 'rows of b'", ""},
		{"more of a list", click("#more"), "at('list').children.length === 2", ""},
		{"a star", click("#keep"), "performance.getEntriesByName(location.origin + '/keep?id=4').length", "nothing_shown /keep?id=4"},
		{"done", click("#close"), "at('list').children.length === 1", "acknowledged /close?id=5"},
		{"done, where notices are", click("#toast"), "at('state').textContent === 'fait'", "nothing_shown /toast?id=5"},
		{"an answer without content", click("#gone"), "at('list').children.length === 1", "no_content /gone?id=5"},
		{"a page that loads itself anew", click("#again"), "performance.getEntriesByType('navigation')[0].type === 'reload'", "reloaded /again?id=6"},
		{"a row that goes", click("#row"), "!at('row')", "toggled /row?id=6"},
		{"typed into a search", typed("#live", "x"), "at('list').textContent === 'x'", ""},
		{"a URL that takes the next one", open("/take"), "location.pathname === '/tickets/8'", "chosen /take"},
		{"a URL that comes back", open("/heart?id=3"), "performance.getEntriesByType('navigation')[0].redirectCount === 1", "returned /heart?id=3"},
		{"a URL of a sign-in that is done", open("/in"), "performance.getEntriesByType('navigation')[0].redirectCount === 1", ""},
		{"a URL with a code", open("/here?k=8r2"), "location.pathname === '/here'", "notice /here?k=8r2"},
		{"a URL to read", open("/tickets/7"), "location.pathname === '/tickets/7'", ""},
	} {
		w.call(session, "Page.navigate", map[string]string{"url": site.URL + "/list"}, nil)
		w.eval(session, "location.pathname + location.search === '/list' && polls > 4")
		w.mu.Lock()
		w.entries = nil
		w.mu.Unlock()
		w.typed.Store(false)
		w.gets.mu.Lock()
		clear(w.gets.known) // what an earlier case has shown
		w.gets.mu.Unlock()
		c.act(session)
		w.eval(session, c.until)
		for end := time.Now().Add(testchrome.Patience); w.gets.underWay(time.Now()) && time.Now().Before(end); {
			time.Sleep(recheck) // on a busy machine an answer takes its time
		}
		if err := w.CatchUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		var want []string
		if c.want != "" {
			want = []string{c.want}
		}
		// An answer that the page leaves unread is judged a moment after it has come.
		got := w.signs()
		for end := time.Now().Add(testchrome.Patience); len(got) < len(want) && time.Now().Before(end); got = w.signs() {
			time.Sleep(recheck)
			if err := w.CatchUp(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
