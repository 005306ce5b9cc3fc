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
	"leasehold/evidence/capture"
	"leasehold/internal/boottime"
	"leasehold/internal/test/testchrome"
	"leasehold/launcher/recovery/findings"
)

// getsPage has one control for each case. It asks how things are all the time, as such
// pages do.
const getsPage = `<!doctype html><title>page</title><style>a, button { display: block }</style>
<a id=next href=/take>następny</a>
<a id=part href="/take#part">następny</a>
<a id=heart href="/heart?id=3">♡</a>
<a id=read href=/tickets/7>7</a>
<a id=moved href=/old>alt</a>
<a id=mark href=/mark>✓</a>
<a id=guarded href="/view?id=7&_wpnonce=8r2">kosz</a>
<a id=drop href=/drop onclick="return confirm('sicher?')">löschen</a>
<a id=pop href=/tickets/9 target=_blank>9</a>
<button id=week>→</button>
<button id=gone>-</button>
<button id=empty>=</button>
<button id=pixel>*</button>
<button id=again>○</button>
<button id=leaves>2</button>
<button id=never>3</button>
<p id=up>0</p><p id=weeks>KW 47</p><div id=list></div>
<script>
const at = (id) => document.getElementById(id), get = (url) => fetch(url);
const on = (id, what) => at(id).addEventListener('click', what);
let polls = 0;
get('/never?poll=1');
setInterval(async () => { at('up').textContent = (await (await get('/up')).json()).up; polls++; }, 60);
on('week', async () => { at('weeks').textContent = 'KW ' + (await (await get('/week?n=48')).json()).n; });
on('gone', async () => { await get('/gone?id=5'); at('list').textContent = 'voilà'; });
on('empty', async () => { await get('/empty?id=5'); at('list').textContent = 'voilà'; });
on('pixel', () => { const i = new Image(); i.onload = () => at('list').textContent = 'voilà'; i.src = '/vote.svg?id=6'; });
on('again', async () => { await get('/again?id=6'); location.reload(); });
on('leaves', () => { get('/never?id=1'); location.href = location.origin.replace('127.0.0.1', 'localhost') + '/tickets/7'; }); // to another process
on('never', () => { get('/never?poll=2'); get('/never?id=2'); at('list').textContent = 'voilà'; });
</script>`

// getsSite answers what the page asks for.
func getsSite(t *testing.T) *httptest.Server {
	over := make(chan struct{})
	mux := http.NewServeMux()
	page := func(w http.ResponseWriter, text string) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, text)
	}
	to := func(pattern, where string, status int) {
		mux.HandleFunc("GET "+pattern, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, where, status) })
	}
	says := func(pattern, mime, body string) {
		mux.HandleFunc("GET "+pattern, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", mime)
			fmt.Fprint(w, body)
		})
	}
	mux.HandleFunc("GET /list", func(w http.ResponseWriter, _ *http.Request) { page(w, getsPage) })
	for _, place := range []string{"/tickets/{id}", "/drop", "/view"} {
		mux.HandleFunc("GET "+place, func(w http.ResponseWriter, _ *http.Request) { page(w, "<h1>text</h1><a href=/list>back</a>") })
	}
	to("/take", "/tickets/8", http.StatusFound)
	to("/heart", "/list", http.StatusSeeOther)
	to("/old", "/tickets/9", http.StatusMovedPermanently)
	none := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }
	mux.HandleFunc("GET /mark", none)
	mux.HandleFunc("GET /gone", none)
	var up atomic.Int64
	mux.HandleFunc("GET /up", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, `{"up":%d}`, up.Add(1)) })
	mux.HandleFunc("GET /never", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-over:
		case <-r.Context().Done():
		}
	})
	says("/week", "application/json", `{"n":"48"}`)
	says("/again", "application/json", `{"ok":true}`)
	says("/empty", "application/json", "")
	says("/vote.svg", "image/svg+xml", `<svg xmlns="http://www.w3.org/2000/svg"/>`)
	site := httptest.NewServer(mux)
	t.Cleanup(func() { close(over); site.Close() })
	return site
}

// getsWatch is a monitor on a real browser.
type getsWatch struct {
	*Monitor
	t *testing.T
	// acted says that the worker counts as one that has acted.
	acted atomic.Bool
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
	mux, err := cdpproxy.New(cdpproxy.Pipe{Commands: commands, Events: events}, findings.CommandEffect, w.Traffic)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Attach(t.Context(), mux); err != nil {
		t.Fatal(err)
	}
	w.log.mu.Lock()
	w.gets.acted, w.gets.actedOn = boottime.Now, func(string) (bool, bool) { return w.acted.Load(), false }
	w.log.mu.Unlock()
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

// reported are the entries of one kind, with the places that were asked for.
func (w *getsWatch) reported(kind checkpoint.Kind) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var found []string
	for _, e := range w.entries {
		if e.Kind == kind {
			found = append(found, strings.TrimSpace(e.Name+" "+e.URL[strings.Index(e.URL[8:], "/")+8:]))
		}
	}
	return found
}

// is waits until want is reported.
func (w *getsWatch) is(what string, kind checkpoint.Kind, want ...string) {
	w.t.Helper()
	for end := time.Now().Add(testchrome.Patience); ; time.Sleep(recheck) {
		if err := w.CatchUp(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
		got := w.reported(kind)
		if slices.Equal(got, want) {
			return
		}
		if len(got) > len(want) || time.Now().After(end) {
			w.t.Errorf("%s: %q, want %q", what, got, want)
			return
		}
	}
}

// TestGETsOfARealBrowser plays what sites do, in one real browser.
func TestGETsOfARealBrowser(t *testing.T) {
	t.Parallel()
	site, w := getsSite(t), watchGets(t)
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
	routed := func(selector string) func(string) {
		return func(s string) {
			w.eval(s, `(() => { location.hash = '#/cart'; return true })()`)
			w.press(s, selector)
		}
	}
	session := w.openPage(site.URL + "/list")
	unprompted := func() {
		w.acted.Store(false)
		w.eval(session, "window.before = true") // the present document may be of the same address
		w.call(session, "Page.navigate", map[string]string{"url": site.URL + "/list"}, nil)
		w.eval(session, "!window.before && location.pathname + location.search === '/list' && polls > 1")
		w.mu.Lock()
		w.entries = nil
		w.mu.Unlock()
	}
	anew := func() {
		unprompted()
		w.acted.Store(true)
	}
	const shown = "at('list').textContent === 'voilà'"
	for _, c := range []struct {
		name  string
		act   func(session string)
		until string // what the page shows then
		want  []string
	}{
		{"a link that takes the next one", click("#next"), "location.pathname === '/tickets/8'", []string{"moved_on /take"}},
		{"a link that takes the next one, and shows a part of it", click("#part"), "location.pathname === '/tickets/8'", []string{"moved_on /take"}},
		{"a link that comes back", click("#heart"), "performance.getEntriesByType('navigation')[0].redirectCount === 1", []string{"returned /heart?id=3"}},
		{"a link to read", click("#read"), "location.pathname === '/tickets/7'", nil},
		{"a page that has moved", click("#moved"), "location.pathname === '/tickets/9'", nil},
		{"a link without an answer", click("#mark"), "true", []string{"no_content /mark"}},
		{"a link that guards a write", click("#guarded"), "location.pathname === '/view'", []string{"guarded /view?id=7&_wpnonce=8r2"}},
		{"a link that asks first", agree("#drop"), "location.pathname === '/drop'", []string{"confirmed /drop"}},
		{"a button that is answered with a value", click("#week"), "at('weeks').textContent === 'KW 48'", nil},
		{"an answer without content", click("#gone"), shown, []string{"no_content /gone?id=5"}},
		{"an empty answer", click("#empty"), shown, []string{"no_content /empty?id=5"}},
		{"a picture", click("#pixel"), shown, []string{"picture /vote.svg?id=6"}},
		{"a page that loads itself anew", click("#again"), "performance.getEntriesByType('navigation')[0].type === 'reload'", []string{"reloaded /again?id=6"}},
		{"a page that loads itself anew at its route", routed("#again"), "performance.getEntriesByType('navigation')[0].type === 'reload'", []string{"reloaded /again?id=6"}},
		{"what its page left behind", click("#leaves"), "location.pathname === '/tickets/7'", []string{"unanswered /never?id=1"}},
		{"a URL that takes the next one", open("/take"), "location.pathname === '/tickets/8'", nil},
		{"a URL that guards a write", open("/view?csrf=8r2"), "location.pathname === '/view'", []string{"guarded /view?csrf=8r2"}},
	} {
		anew()
		c.act(session)
		w.eval(session, c.until)
		w.is(c.name, checkpoint.KindGetWrite, c.want...)
	}

	anew()
	w.press(session, "#never")
	w.eval(session, shown)
	w.is("one that is not answered yet", checkpoint.KindGetWrite)
	w.gets.GiveUp()
	w.is("its page ends", checkpoint.KindGetWrite, "unanswered /never?id=2")

	// A GET of a page counts once the worker has acted on the page, however it is answered; one
	// that a page makes by itself, or that the worker's own command opens, does not.
	unprompted()
	w.eval(session, fmt.Sprintf(`polls > %s + 1`, w.eval(session, `polls`)))
	w.is("nobody has acted, and the page polls", checkpoint.KindGetAfter)
	w.acted.Store(true)
	w.is("it polls after an action", checkpoint.KindGetAfter, "/up")
	w.press(session, "#week")
	w.eval(session, `at('weeks').textContent === 'KW 48'`)
	w.is("the document asks for more", checkpoint.KindGetAfter, "/up")
	w.Checkpointed()
	w.is("a checkpoint was named since", checkpoint.KindGetAfter, "/up", "/up")
	w.press(session, "#pop")
	w.is("a link opened another page", checkpoint.KindGetAfter, "/up", "/up", "/tickets/9")
	w.press(session, "#read")
	w.eval(session, `location.pathname === '/tickets/7'`)
	w.is("a link was pressed", checkpoint.KindGetAfter, "/up", "/up", "/tickets/9", "/tickets/7")
	w.call(session, "Page.navigate", map[string]string{"url": site.URL + "/tickets/8"}, nil)
	w.eval(session, `location.pathname === '/tickets/8'`)
	w.is("a command opened a page", checkpoint.KindGetAfter, "/up", "/up", "/tickets/9", "/tickets/7")
}

// TestATabThatAnotherPageLoads: a link or a script loads a tab that is open already, by its name. The act was
// on the page with the link, whatever the tab shows. A tab that cannot be led by that page goes by itself.
func TestATabThatAnotherPageLoads(t *testing.T) {
	t.Parallel()
	const links = `<a id=open href=/tickets/1 target=named>1</a><br><a id=take href="/take?%[2]s" target=named>2</a><br>
		<a id=away href="%[1]s/tickets/1" target=named>3</a><br><a id=alone href=/alone target=_blank>4</a><br>
		<a id=drop href=/drop target=named onclick="return confirm('sicher?')">6</a><br>
		<button id=script onclick="window.open('/take?script', 'named')">5</button>`
	mux := http.NewServeMux()
	site := httptest.NewServer(mux)
	t.Cleanup(site.Close)
	other := strings.Replace(site.URL, "127.0.0.1", "localhost", 1)
	says := func(place, text string) {
		mux.HandleFunc("GET "+place, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, text)
		})
	}
	says("/list", fmt.Sprintf(links, other, "link"))
	says("/tickets/{id}", "<h1>text</h1>")
	says("/drop", "<h1>text</h1>")
	says("/alone", "<script>if (!sessionStorage.took) { sessionStorage.took = 1; location.href = '/take?alone' }</script>")
	mux.HandleFunc("GET /take", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/tickets/8", http.StatusFound) })

	w := watchGets(t)
	var acted atomic.Value
	acted.Store("")
	var onAll atomic.Bool
	w.log.mu.Lock()
	w.gets.actedOn = func(session string) (bool, bool) { return onAll.Load() || acted.Load() == session, false }
	w.log.mu.Unlock()
	list := w.openPage(site.URL + "/list")
	acted.Store(list)
	shown := func(what, url string) {
		t.Helper()
		for end := time.Now().Add(testchrome.Patience); ; time.Sleep(5 * time.Millisecond) {
			if slices.ContainsFunc(w.Pages(), func(p capture.Page) bool { return p.SessionID != list && p.URL == url }) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%s: no tab shows %s: %+v", what, url, w.Pages())
			}
		}
	}
	for _, step := range []struct {
		press, shows string
		onAll        bool // the worker has acted on the tab, too
		writes, gets []string
	}{
		{"#open", site.URL + "/tickets/1", false, nil, []string{"/tickets/1"}},
		{"#take", site.URL + "/tickets/8", false, []string{"moved_on /take?link"}, []string{"/take?link"}},
		{"#away", other + "/tickets/1", false, nil, []string{"/tickets/1"}},
		{"#script", site.URL + "/tickets/8", false, []string{"moved_on /take?script"}, []string{"/take?script"}},
		{"#drop", site.URL + "/drop", false, []string{"confirmed /drop"}, []string{"/drop"}},
		{"#drop", site.URL + "/drop", true, []string{"confirmed /drop"}, []string{"/drop"}},
		{"#away", other + "/tickets/1", false, nil, []string{"/tickets/1"}},
		{"#alone", site.URL + "/tickets/8", false, nil, []string{"/alone"}},
	} {
		onAll.Store(step.onAll)
		w.mu.Lock()
		w.entries = nil
		w.mu.Unlock()
		w.press(list, step.press)
		for end := time.Now().Add(testchrome.Patience); step.press == "#drop" && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			if w.chrome.Call(t.Context(), list, "Page.handleJavaScriptDialog", map[string]bool{"accept": true}, nil) == nil {
				break
			}
		}
		shown(step.press, step.shows)
		if step.press == "#away" { // until the list's process knows, Chrome loses what the list does to the tab
			w.eval(list, `(() => { try { return !open('', 'named').document } catch { return true } })()`)
		}
		w.is(step.press, checkpoint.KindGetAfter, step.gets...)
		w.is(step.press, checkpoint.KindGetWrite, step.writes...)
	}
}
