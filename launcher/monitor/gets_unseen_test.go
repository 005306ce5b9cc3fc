package monitor

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/internal/boottime"
	"leasehold/internal/test/testchrome"
	"leasehold/launcher/recovery/decision"
)

// unseenPage has controls whose GETs nobody can judge, each for a reason of its own, and some
// with which the same happens and that only read.
const unseenPage = `<!doctype html><title>page</title><style>a, button, input { display: block }</style>
<button id=hangs>1</button>
<button id=leaves>2</button>
<button id=never>3</button>
<button id=half>4</button>
<button id=mixed>5</button>
<button id=apart>6</button>
<button id=list>7</button>
<button id=crashes>8</button>
<button id=goes>9</button>
<a id=link href=/spa onclick="event.preventDefault(); fetch('/never?link=1')">spa</a>
<form onsubmit="event.preventDefault(); fetch('/never?q=1')"><input name=q><button id=search>go</button></form>
<p id=name></p><p id=count></p>
<script>
const at = (id) => document.getElementById(id);
const on = (id, what) => at(id).addEventListener('click', what);
const get = async (url) => (await fetch(url)).json();
on('hangs', async () => { await get('/hangs?id=1'); at('hangs').textContent = 'on'; for (;;); });
on('leaves', async () => { await get('/leaves?id=1'); location.href = '/other'; });
on('never', () => get('/never?id=1'));
on('half', () => get('/half?id=1'));
on('goes', () => { location.href = '/never?page=1'; });
on('crashes', () => get('/never?id=2'));
on('list', async () => { await get('/list?id=1'); location.href = '/other'; });
const both = async (a, b) => {
  const [x, y] = await Promise.all([get(a), get(b)]);
  at('name').textContent = x.v;
  at('count').textContent = y.v;
};
on('mixed', () => both('/mixed?a=1', '/mixed?b=1'));
on('apart', () => both('/apart?a=1', '/apart?b=1'));
</script>`

// unseenSite also tells which URLs it was asked for.
func unseenSite(t *testing.T) (site *httptest.Server, askedFor func(url string) bool) {
	over := make(chan struct{})
	mux := http.NewServeMux()
	for _, place := range []string{"/unseen", "/other"} {
		mux.HandleFunc("GET "+place, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, unseenPage)
		})
	}
	wait := func(r *http.Request) {
		select {
		case <-over:
		case <-r.Context().Done():
		}
	}
	mux.HandleFunc("GET /never", func(_ http.ResponseWriter, r *http.Request) { wait(r) })
	mux.HandleFunc("GET /half", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"ok":`)
		w.(http.Flusher).Flush()
		wait(r)
	})
	for _, place := range []string{"/hangs", "/leaves"} {
		mux.HandleFunc("GET "+place, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"ok":true}`) })
	}
	mux.HandleFunc("GET /list", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"items":[1,2,3]}`+strings.Repeat(" ", maxAnswer))
	})
	mux.HandleFunc("GET /mixed", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"v":1}`) })
	mux.HandleFunc("GET /apart", func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("a") != "" {
			fmt.Fprint(w, `{"v":"Ann","of":4,"from":"Bonn","to":"Ulm"}`)
		} else {
			fmt.Fprint(w, `{"v":3,"of":5,"from":"Kiel","to":"Trier"}`)
		}
	})
	var asked sync.Map
	site = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r.URL.String(), true)
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(site.Close)
	t.Cleanup(func() { close(over) })
	return site, func(url string) bool { _, ok := asked.Load(url); return ok }
}

// TestGetsThatNobodyCanJudge: what a press led to, and what could not be seen to its end, is
// not taken for a read.
func TestGetsThatNobodyCanJudge(t *testing.T) {
	t.Parallel()
	site, askedFor := unseenSite(t)
	w := watchGets(t)
	isHeld := func(url string, mayWrite bool) func(string) {
		return func(string) {
			if !w.held(site.URL+url, mayWrite) {
				t.Errorf("%s was not asked for (the site says: it was %t), or nobody asked what led to it", url, askedFor(url))
			}
		}
	}
	held := func(url string) func(string) { return isHeld(url, true) }
	reads := func(url string) func(string) { return isHeld(url, false) }
	shows := func(expression string) func(string) { return func(s string) { w.eval(s, expression) } }
	asked := func(urls ...string) func(string) {
		return func(string) {
			for _, url := range urls {
				for end := time.Now().Add(testchrome.Patience); !askedFor(url); time.Sleep(recheck) {
					if time.Now().After(end) {
						t.Fatalf("the press led to no request for %s", url)
					}
				}
			}
		}
	}
	for _, c := range []struct {
		name, press string
		until       func(session string)
		then        func(session string) // what the page does not survive; nil: its pages end
		want        []string
		why         []string // one of these
	}{
		{"a page that hangs", "#hangs", asked("/hangs?id=1"), func(string) {}, []string{"unjudged /hangs?id=1"}, []string{pageSilent}},
		{"a page that goes on to another one", "#leaves", asked("/leaves?id=1"), func(string) {}, []string{"unjudged /leaves?id=1"}, []string{pageGone}},
		{"an answer that never comes", "#never", held("/never?id=1"), nil, []string{"unjudged /never?id=1"}, []string{noAnswerSeen}},
		{"an answer that is never complete", "#half", held("/half?id=1"), nil, []string{"unjudged /half?id=1"}, []string{notComplete}},
		{"a page that is closed", "#never", held("/never?id=1"), func(s string) { w.call(s, "Page.close", nil, nil) }, []string{"unjudged /never?id=1"}, []string{noAnswerSeen}},
		{"a page that crashes", "#crashes", held("/never?id=2"), func(s string) { w.chrome.Post(s, "Page.crash", nil) }, []string{"unjudged /never?id=2"}, []string{noAnswerSeen}},
		{"a script's own navigation", "#goes", held("/never?page=1"), nil, []string{"unjudged /never?page=1"}, []string{noAnswerSeen}},
		{"two answers that are shown at once", "#mixed", asked("/mixed?a=1", "/mixed?b=1"), func(string) {}, []string{"unjudged /mixed?a=1", "unjudged /mixed?b=1"}, []string{answersMixed, fewShown}}, // by how far apart they come
		{"two answers that are shown at once, and differ", "#apart", shows("at('count').textContent === '3'"), nil, nil, nil},
		{"a list, and then another page", "#list", shows("location.pathname === '/other'"), nil, nil, nil},
		{"a link", "#link", reads("/never?link=1"), nil, nil, nil},
		{"a search", "#search", reads("/never?q=1"), nil, nil, nil},
	} {
		session := w.openPage(site.URL + "/unseen")
		w.mu.Lock()
		w.entries = nil
		w.mu.Unlock()
		w.press(session, c.press)
		c.until(session)
		if c.then == nil {
			w.judged()
			w.getJudge.GiveUp()
		} else {
			c.then(session)
		}
		got := w.signs()
		for end := time.Now().Add(testchrome.Patience); len(got) < len(c.want) && time.Now().Before(end); got = w.signs() {
			time.Sleep(recheck)
		}
		if slices.Sort(got); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		w.mu.Lock()
		for _, e := range w.entries {
			if e.Kind == checkpoint.KindGetWrite && !slices.ContainsFunc(c.why, func(why string) bool { return strings.HasPrefix(e.Text, why) }) {
				t.Errorf("%s: %q, want %q", c.name, e.Text, c.why)
			}
		}
		w.mu.Unlock()
		w.chrome.Post(session, "Page.close", nil)
	}
}

// held waits until a request that is not answered in full has been asked about in its page,
// and checks whether it may write. It tells whether that was so.
func (w *getsWatch) held(url string, mayWrite bool) bool {
	w.t.Helper()
	for end := time.Now().Add(testchrome.Patience); time.Now().Before(end); time.Sleep(recheck) {
		w.gets.mu.Lock()
		for _, a := range w.gets.open {
			if a.get.Asked == url && (a.control || !a.mayWrite || a.document) && (!strings.Contains(url, "half") || a.get.Status != 0) {
				if a.mayWrite != mayWrite {
					w.t.Errorf("%s may write: %t", url, a.mayWrite)
				}
				w.gets.mu.Unlock()
				return true
			}
		}
		w.gets.mu.Unlock()
	}
	w.gets.mu.Lock()
	defer w.gets.mu.Unlock()
	for _, a := range w.gets.open {
		w.t.Logf("open: %+v", *a)
	}
	return false
}

// judged waits until everything is judged that can be.
func (w *getsWatch) judged() {
	for end := time.Now().Add(testchrome.Patience); !w.gets.idle(time.Now()) && time.Now().Before(end); time.Sleep(recheck) {
	}
}

// keeping is a sink that keeps the entries of one kind.
func keeping(list *[]checkpoint.Entry, kind checkpoint.Kind) func(checkpoint.Entry) {
	return func(e checkpoint.Entry) {
		if e.Kind == kind {
			*list = append(*list, e)
		}
	}
}

// TestAPageThatNobodyTouched: what a page asks for by itself reads, whether it can be judged
// or not.
func TestAPageThatNobodyTouched(t *testing.T) {
	for _, tt := range []struct {
		touched bool
		frame   string // empty: a worker asks
		want    bool
	}{{false, "F", false}, {true, "F", true}, {true, "", false}} {
		var got []checkpoint.Entry
		m := direct(keeping(&got, checkpoint.KindGetWrite))
		m.gets.acted = boottime.Now
		m.gets.actedOn = func(string) (bool, bool) { return tt.touched, false }
		sent := `{"requestId":"1","loaderId":"L","documentURL":"http://a.test/","frameId":"` + tt.frame + `","request":{"url":"http://a.test/x","method":"GET"},"type":"Fetch"}`
		m.readerEvent(cdpproxy.Event{Session: "S", Method: eventRequest, Params: json.RawMessage(sent)})
		m.getJudge.GiveUp() // nobody asks the page
		if (len(got) > 0) != tt.want || tt.want && got[0].Name != string(decision.Unjudged) {
			t.Errorf("%+v: %+v", tt, got)
		}
	}
}

// TestTheNextDocumentAnswers: what a press led to is not taken for a read because the document
// that is asked about it is the next one already, in which nobody pressed anything.
func TestTheNextDocumentAnswers(t *testing.T) {
	var got []checkpoint.Entry
	p := &pipe{evaluate: func(expression string) string {
		if strings.HasPrefix(expression, "pressedBefore") {
			return `[null]`
		}
		return `{"found":[null]}`
	}}
	m := p.attach(t, keeping(&got, checkpoint.KindGetWrite))
	m.gets.acted, m.gets.actedOn = boottime.Now, func(string) (bool, bool) { return true, false }
	happens := func(method, params string) {
		m.readerEvent(cdpproxy.Event{Method: method, Params: json.RawMessage(params)})
	}
	happens(eventRequest, `{"requestId":"1","loaderId":"L","documentURL":"http://a.test/","frameId":"F","request":{"url":"http://a.test/x","method":"GET"},"type":"Fetch"}`)
	happens(eventResponse, `{"requestId":"1","loaderId":"L","type":"Fetch","response":{"url":"http://a.test/x","status":200}}`)
	happens(eventFinished, `{"requestId":"1","encodedDataLength":20}`)
	visits, _, _ := m.gets.take(time.Now().Add(time.Minute))
	if len(visits) != 1 || len(visits[0].ask) != 1 || visits[0].look == nil {
		t.Fatalf("visits: %+v", visits)
	}
	happens(eventFrameNavigated, `{"frame":{"id":"F","loaderId":"M","url":"http://a.test/other"}}`)
	m.getJudge.visit(t.Context(), visits[0])
	if len(got) != 1 || got[0].Name != string(decision.Unjudged) || !strings.HasPrefix(got[0].Text, pageGone) {
		t.Errorf("%+v", got)
	}
}

// TestCookiesThatWereNotRead: where the cookies at the grant are not known, nobody can tell
// whether they are there at the end.
func TestCookiesThatWereNotRead(t *testing.T) {
	var got []checkpoint.Entry
	m := direct(func(e checkpoint.Entry) { got = append(got, e) })
	if m.cookies.Learn(nil, errors.New("the browser did not answer")) == nil {
		t.Error("the problem is not passed on")
	}
	m.cookies.Compare(json.RawMessage(`{"cookies":[]}`), nil)
	if f := decision.InspectTask(checkpoint.Summarize(append([]checkpoint.Entry{{Kind: checkpoint.KindStart}}, got...)), decision.Task{}); f.Answer(decision.SessionKept) != decision.Unknown {
		t.Errorf("%+v", got)
	}
}

// TestAnswersThatCannotBeRecorded: a refusal that is dropped would be no refusal.
func TestAnswersThatCannotBeRecorded(t *testing.T) {
	var got []checkpoint.Entry
	m := direct(func(e checkpoint.Entry) { got = append(got, e) })
	for range trafficBacklog { // nobody processes it
		m.backlog.queue(heard{})
	}
	m.readerEvent(cdpproxy.Event{Session: "S", Method: eventResponse, Params: json.RawMessage(
		`{"requestId":"1","type":"XHR","response":{"url":"http://a.test/x","status":401}}`)})
	if len(got) != 1 || got[0].Method != "MANY" {
		t.Errorf("%+v", got)
	}
}

// TestWhatIsLeftUnjudged: what is said of a request that nobody can judge any more.
func TestWhatIsLeftUnjudged(t *testing.T) {
	t.Parallel()
	get := func(status int) decision.Get {
		return decision.Get{From: "http://a.test/", Asked: "http://a.test/x", Final: "http://a.test/x", Status: status}
	}
	for name, tt := range map[string]struct {
		a    asked
		want decision.Sign // empty: nothing is said
		text string
	}{
		"a page that nobody looked at":              {asked{document: true, get: get(200)}, decision.Unjudged, pageGone},
		"a search":                                  {asked{document: true, get: get(200), search: true}, "", ""},
		"a page that was never answered":            {asked{document: true, get: get(0)}, "", ""},
		"of a control, and it says nothing":         {asked{mayWrite: true, control: true, get: get(204)}, decision.NoContent, ""},
		"of a page that was touched, it may be":     {asked{mayWrite: true, touched: true, get: get(204)}, decision.Unjudged, pageGone},
		"of a page that nobody touched":             {asked{mayWrite: true, get: get(204)}, "", ""},
		"of a control, an answer that was not read": {asked{mayWrite: true, control: true, get: get(200)}, decision.Unjudged, pageGone},
	} {
		got := tt.a.unjudged(pageGone)
		switch {
		case got == nil && tt.want != "", got != nil && (got.sign != tt.want || got.why != tt.text):
			t.Errorf("%s: %+v, want %q %q", name, got, tt.want, tt.text)
		}
	}
}

// TestARequestThatFailed is not taken for a read if it may have reached its site.
func TestARequestThatFailed(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"net::ERR_EMPTY_RESPONSE": true, "net::ERR_CONNECTION_RESET": true, "net::ERR_CONNECTION_REFUSED": false, "net::ERR_NAME_NOT_RESOLVED": false,
	} {
		g := newGets()
		g.open[[2]string{"S", "1"}] = &asked{mayWrite: true, control: true, frame: "F", get: decision.Get{From: "http://a.test/", Asked: "http://a.test/x", Final: "http://a.test/x"}}
		got := g.finished(cdpproxy.Event{Session: "S", Method: eventFailed, Params: fmt.Appendf(nil, `{"requestId":"1","errorText":%q}`, name)}, time.Now())
		if (got != nil) != want || want && got.sign != decision.Unjudged {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestTooManyToLookAt: those that nobody will look at are not taken for reads.
func TestTooManyToLookAt(t *testing.T) {
	t.Parallel()
	g := newGets()
	for n := range maxToLook + 1 {
		a := &asked{mayWrite: true, control: true, frame: "F", end: 1, get: decision.Get{From: "http://a.test/", Asked: "http://a.test/x", Final: "http://a.test/x", Status: 200}}
		if got := g.toLook(a, time.Now()); (got != nil) != (n == maxToLook) || got != nil && (got.sign != decision.Unjudged || got.why != tooMany) {
			t.Fatalf("request %d: %+v", n+1, got)
		}
	}
}
