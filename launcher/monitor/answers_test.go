package monitor

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/checkpoint/ledger"
	"leasehold/internal/boottime"
)

// The events of a page, T, on its session S, that a worker opened by its URL and did not
// act on. Its document has the id D.
func requested(id, method, url, more string) cdpproxy.Event {
	return cdpproxy.Event{Session: "S", Method: ledger.Sent, Params: fmt.Appendf(nil,
		`{"requestId":%q,"loaderId":"D","documentURL":"http://a.example/","request":{"url":%q,"method":%q,"headers":{"User-Agent":"x","sec-ch-ua":"x"}},"type":"Fetch","frameId":"T"%s}`, id, url, method, more)}
}
func carriedWith(id, members string) cdpproxy.Event {
	return cdpproxy.Event{Session: "S", Method: ledger.Carried, Params: fmt.Appendf(nil, `{"requestId":%q,%s}`, id, members)}
}
func responded(id, kind, url string, status int) cdpproxy.Event {
	return cdpproxy.Event{Session: "S", Method: ledger.Answered, Params: fmt.Appendf(nil,
		`{"requestId":%q,"loaderId":"D","timestamp":1,"type":%q,"response":{"url":%q,"status":%d,"headers":{}},"frameId":"T"}`, id, kind, url, status)}
}

const (
	withCookie    = `"associatedCookies":[{"cookie":{"name":"id"},"blockedReasons":[]}],"headers":{"Cookie":"id=1"}`
	withoutCookie = `"associatedCookies":[],"headers":{}`
	keptCookie    = `"associatedCookies":[{"cookie":{"name":"id"},"blockedReasons":["UserPreferences"]}],"headers":{}`
	tokenInstead  = `"associatedCookies":[],"headers":{"authorization":"Bearer 1"}`
	loudToken     = `"associatedCookies":[],"headers":{"AUTHORIZATION":"Bearer 1"}`
	addedCookie   = `"associatedCookies":[],"headers":{"COOKIE":"id=1"}`
	saysIt        = `"associatedCookies":[],"headers":{"X":"\"blockedReasons\":[]"}`
)

// shows is the page with its document.
func shows(t *testing.T, document string) *navigations {
	t.Helper()
	n := newNavigations()
	observeScript(t, n, "page S T\nstarts S T D\ngoes S T D "+document+"\n")
	return n
}

// answersOn are the answers of the page, which take events.
type answersOn struct{ *answers }

func answersOf(n *navigations) answersOn { return answersOn{newAnswers(&requestLog{}, n)} }

func (a answersOn) take(e cdpproxy.Event) []answer {
	found := a.replaced(e)
	a.log.take(ledger.Event{Session: e.Session, Method: e.Method, Params: e.Params}, func(f ledger.Fact) { found = append(found, a.observe(f)...) })
	return found
}

// TestAnonymousInWhateverOrder: Chrome may tell of what requests carried after it told of
// their answers, and of the page's document after what the page sent.
func TestAnonymousInWhateverOrder(t *testing.T) {
	const page = "http://a.example/"
	document := requested("D", "GET", page, "")
	shown := responded("D", "Document", page, 200)
	sent := requested("R", "POST", "http://b.example/hit", "")
	answer := responded("R", "Fetch", "http://b.example/hit", 200)
	used := cdpproxy.Event{Method: "the worker acts"}
	inFrame := func(e cdpproxy.Event) cdpproxy.Event {
		e.Session = "F"
		return e
	}
	for _, tt := range []struct {
		name   string
		events []cdpproxy.Event
		want   bool
	}{
		{"in order", []cdpproxy.Event{document, carriedWith("D", withCookie), shown, sent, carriedWith("R", withoutCookie), answer}, true},
		{"before its request", []cdpproxy.Event{document, carriedWith("D", withCookie), shown, carriedWith("R", withoutCookie), sent, answer}, true},
		{"after its answer", []cdpproxy.Event{document, carriedWith("D", withCookie), shown, sent, answer, carriedWith("R", withoutCookie)}, true},
		{"the document's last", []cdpproxy.Event{document, shown, sent, carriedWith("R", withoutCookie), answer, carriedWith("D", withCookie)}, true},
		{"a cookie that Chrome kept back", []cdpproxy.Event{document, carriedWith("D", withCookie), shown, sent, carriedWith("R", keptCookie)}, true},
		{"a header with the words", []cdpproxy.Event{document, carriedWith("D", withCookie), shown, sent, carriedWith("R", saysIt)}, true},

		{"with a cookie", []cdpproxy.Event{document, carriedWith("D", withCookie), shown, sent, carriedWith("R", withCookie), answer}, false},
		{"with a token", []cdpproxy.Event{document, carriedWith("D", withCookie), shown, sent, carriedWith("R", tokenInstead), answer}, false},
		{"with a token in capitals", []cdpproxy.Event{document, carriedWith("D", withCookie), shown, sent, carriedWith("R", loudToken), answer}, false},
		{"with a cookie that a worker added", []cdpproxy.Event{document, carriedWith("D", withCookie), shown, sent, carriedWith("R", addedCookie), answer}, false},
		{"never told", []cdpproxy.Event{document, carriedWith("D", withCookie), shown, sent, answer}, false},
		{"an account that is not known by cookies", []cdpproxy.Event{document, carriedWith("D", withoutCookie), shown, sent, carriedWith("R", withoutCookie)}, false},
		{"a document that nobody saw", []cdpproxy.Event{sent, carriedWith("R", withoutCookie), answer}, false},
		{"by a gesture", []cdpproxy.Event{document, carriedWith("D", withCookie), shown, requested("R", "POST", "http://b.example/hit", `,"hasUserGesture":true`), carriedWith("R", withoutCookie)}, true},
		{"of a frame", []cdpproxy.Event{document, carriedWith("D", withCookie), shown, inFrame(sent), carriedWith("R", withoutCookie)}, true},
		{"of a frame in a page that was used", []cdpproxy.Event{used, document, carriedWith("D", withCookie), shown, inFrame(sent), carriedWith("R", withoutCookie)}, false},
		{"of a page that was used", []cdpproxy.Event{used, document, carriedWith("D", withCookie), shown, sent, carriedWith("R", withoutCookie)}, true},
		{"to its own site", []cdpproxy.Event{document, carriedWith("D", withCookie), shown, requested("R", "POST", "http://www.a.example/hit", ""), carriedWith("R", withoutCookie)}, false},
		{"a PUT", []cdpproxy.Event{document, carriedWith("D", withCookie), shown, requested("R", "PUT", "http://b.example/hit", ""), carriedWith("R", withoutCookie)}, true},
		{"sent on from elsewhere", []cdpproxy.Event{document, carriedWith("D", withCookie), shown,
			requested("R", "POST", "http://b.example/hit", `,"redirectResponse":{"url":"http://a.example/x","status":307}`), carriedWith("R", withoutCookie)}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := shows(t, page+"\nframe F S FRAME")
			a, got := answersOf(n), false
			for _, e := range tt.events {
				if e.Method == used.Method {
					n.lastActed = func(string) boottime.Instant { return 1 << 40 }
					continue
				}
				for _, found := range a.take(e) {
					got = got || found.entry.Anonymous && found.id == "R"
				}
			}
			if got != tt.want {
				t.Errorf("anonymous: %v", got)
			}
		})
	}
}

// TestAPageThatIsReplacedLeavesRequestsUnanswered: nothing more is told of them.
func TestAPageThatIsReplacedLeavesRequestsUnanswered(t *testing.T) {
	sent := requested("R", "POST", "http://a.example/save", "")
	goes := cdpproxy.Event{Session: "S", Method: eventFrameNavigated, Params: []byte(`{"frame":{"id":"T","loaderId":"E","url":"http://a.example/2"}}`)}
	ends := cdpproxy.Event{Method: eventDetached, Params: []byte(`{"sessionId":"S"}`)}
	for _, tt := range []struct {
		name    string
		events  []cdpproxy.Event
		closing bool
		want    string
	}{
		{"another document", []cdpproxy.Event{sent, goes}, false, checkpoint.AnswerUnseen},
		{"the page ends", []cdpproxy.Event{sent, ends}, false, checkpoint.AnswerUnseen},
		{"by the launcher", []cdpproxy.Event{sent, ends}, true, ""},
		{"answered before", []cdpproxy.Event{sent, responded("R", "Fetch", "http://a.example/save", 200), goes}, false, ""},
		{"what the new document sends stays open", []cdpproxy.Event{requested("R", "POST", "http://a.example/save", `,"x":1`), {Session: "S", Method: eventFrameNavigated, Params: []byte(`{"frame":{"id":"T","loaderId":"D","url":"http://a.example/"}}`)}}, false, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := shows(t, "http://a.example/")
			a, got := answersOf(n), ""
			n.closing.Store(tt.closing)
			for _, e := range tt.events {
				for _, found := range a.take(e) {
					got = found.entry.Failed
				}
			}
			if got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// TestWhatNeverLeft: a request that the browser refuses never left, unless its network service had
// sent it before a redirect led to what is not allowed.
func TestWhatNeverLeft(t *testing.T) {
	sent, carried := requested("R", "POST", "http://a.example/save", ""), carriedWith("R", withCookie)
	refused := cdpproxy.Event{Session: "S", Method: ledger.Failed, Params: []byte(`{"requestId":"R","errorText":"net::ERR_BLOCKED_BY_CSP","blockedReason":"csp"}`)}
	for name, tt := range map[string]struct {
		events []cdpproxy.Event
		want   bool
	}{
		"refused":                      {[]cdpproxy.Event{sent, refused}, true},
		"sent, and a redirect refused": {[]cdpproxy.Event{sent, carried, refused}, false},
		"sent, which is told first":    {[]cdpproxy.Event{carried, sent, refused}, false},
		"sent, which is told last":     {[]cdpproxy.Event{sent, refused, carried, carried}, false},
		"another one was sent":         {[]cdpproxy.Event{carriedWith("Q", withCookie), sent, refused}, true},
	} {
		a := answersOf(shows(t, "http://a.example/"))
		var got []answer
		for _, e := range tt.events {
			got = append(got, a.take(e)...)
		}
		if len(got) == 0 || len(got) > 2 || got[len(got)-1].entry.Blocked != tt.want || !got[len(got)-1].entry.Ended {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestRefusalsAreToldOnce: for each document, and once more when the place is there again.
func TestRefusalsAreToldOnce(t *testing.T) {
	const api = "http://a.example/api"
	a := answersOf(shows(t, "http://a.example/"))
	for i, tt := range []struct {
		event cdpproxy.Event
		want  int
	}{
		{responded("1", "Fetch", api, 200), 0},
		{responded("2", "Fetch", api, 401), 1},
		{responded("3", "Fetch", api, 401), 0},
		{responded("4", "Fetch", api+"/other", 200), 0},
		{responded("5", "Image", api+"/picture", 403), 0},
		{responded("6", "Fetch", api, 404), 0},
		{responded("7", "Fetch", api, 200), 1},
		{responded("8", "Fetch", api, 200), 0},
		{requested("D", "GET", "http://a.example/", ""), 0},
		{responded("D", "Document", "http://a.example/", 200), 1},
		{responded("9", "XHR", api, 401), 1},
	} {
		if found := a.take(tt.event); len(found) != tt.want {
			t.Errorf("%d: %+v", i, found)
		}
	}
}

func TestReturnsTo(t *testing.T) {
	const asked = "https://app.example/orders/7?tab=2"
	for reached, want := range map[string]bool{
		"https://app.example/in?next=/orders/7":                                    true,
		"https://app.example/in?next=%2Forders%2F7%3Ftab%3D2":                      true,
		"https://app.example/in?next=%252Forders%252F7":                            true,
		"https://app.example/in?u=https://app.example/orders/7/":                   true,
		"https://app.example/in#/sign?back=/orders/7":                              true,
		"https://id.example/authorize?redirect_uri=https%3A%2F%2Fapp.example%2Fcb": true,
		"https://app.example/in?u=https://app.example/cb":                          false,
		"https://app.example/in?next=/orders":                                      false,
		"https://app.example/orders/8?from=7":                                      false,
		"https://id.example/?u=https://other.example/cb":                           false,
		"https://id.example/?u=//app.example/orders/7":                             true,
		"https://id.example/?next=orders/7":                                        false,
		"https://app.example/":                                                     false,
		"::":                                                                       false,
	} {
		if got := returnsTo(asked, reached); got != want {
			t.Errorf("%s: %v", reached, got)
		}
	}
}

// TestARefusalIsReportedAgainAfterACheckpoint: a checkpoint ends what sites refused before it, and not what they
// go on refusing.
func TestARefusalIsReportedAgainAfterACheckpoint(t *testing.T) {
	m := New(nil)
	observeScript(t, m.navigations, "page S T\nstarts S T D\ngoes S T D http://a.example/\n")
	a, asked := answersOn{m.answers}, 0
	asks := func(status, want int, when string) {
		t.Helper()
		asked++
		id := strconv.Itoa(asked)
		if got := append(a.take(requested(id, "GET", "http://a.example/api/me", "")), a.take(responded(id, "Fetch", "http://a.example/api/me", status))...); len(got) != want {
			t.Errorf("%d, %s: %d are reported, want %d", status, when, len(got), want)
		}
	}
	for _, status := range []int{http.StatusUnauthorized, http.StatusTooManyRequests} {
		asks(status, 1, "for the first time")
		asks(status, 0, "again")
		m.Checkpointed()
		asks(status, 1, "after a checkpoint")
		asks(status, 0, "again after it")
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)
	for value, want := range map[string]int64{
		"60": 60, " 5 ": 5, "0": 0, "-3": 0, "soon": 0, "99999999999999": 0, "Sun, 22 Nov 2026 09:02:00 GMT": 120, "Sun, 22 Nov 2026 08:00:00 GMT": 0,
	} {
		if got := retryAfter(map[string]string{"x": "1", "retry-after": value}, now); got != want {
			t.Errorf("%q: %d, want %d", value, got, want)
		}
	}
}

// FuzzAnswers: whatever the events of the network say, each unsafe request ends once at
// most, and nothing panics.
func FuzzAnswers(f *testing.F) {
	f.Add("R", "POST", "http://b.example/hit?next=/a", withoutCookie, 429)
	f.Add("D", "GET", "http://a.example/in?next=%2F", withCookie, 200)
	f.Add(`R","loaderId":"`, "PUT", "\x00:", `"redirectResponse":{"status":`, -1)
	f.Fuzz(func(t *testing.T, id, method, url, members string, status int) {
		n := newNavigations()
		a := answersOf(n)
		observeScript(t, n, "page S T\nstarts S T D\ngoes S T D\n")
		ends := 0
		raw := []byte(`{"requestId":"` + id + `","loaderId":"` + id + `",` + members + `}`)
		for _, e := range []cdpproxy.Event{
			requested("D", "GET", "http://a.example/", ""), responded("D", "Document", url, 200),
			{Session: "S", Method: ledger.Sent, Params: raw}, requested(id, method, url, ""), carriedWith(id, members), responded(id, "Fetch", url, status),
			{Session: "S", Method: ledger.Answered, Params: raw}, {Session: "S", Method: ledger.Failed, Params: raw}, {Session: "S", Method: eventDetached, Params: []byte(`{"sessionId":"S"}`)},
		} {
			for _, found := range a.take(e) {
				if found.id != "" && found.id == id && (found.entry.Status != 0 || found.entry.Failed != "") {
					ends++
				}
			}
		}
		if ends > 2 { // raw and requested may be two requests
			t.Errorf("%d ends", ends)
		}
	})
}

// BenchmarkAnswers is the cost of the events of one picture that a page loads, in the
// reader of the browser's pipe.
func BenchmarkAnswers(b *testing.B) {
	a := answersOf(newNavigations())
	sent, extra, answer := requested("1.7", "GET", "http://a.example/picture.png", ""), carriedWith("1.7", withCookie), responded("1.7", "Image", "http://a.example/picture.png", 200)
	b.ReportAllocs()
	for b.Loop() {
		a.take(sent)
		a.take(extra)
		a.take(answer)
	}
}
