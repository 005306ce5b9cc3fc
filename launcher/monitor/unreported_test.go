package monitor

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/checkpoint/ledger"
	"leasehold/checkpoint/netlog"
	"leasehold/internal/boottime"
)

// TestWhatNoPageReported: whichever of the two says it first, a request that both know is none.
func TestWhatNoPageReported(t *testing.T) {
	now := boottime.Monotonic()
	net := func(url string) func(*unreported) {
		return func(n *unreported) { n.sent(netlog.Sent{Method: "POST", URL: url, At: now + time.Hour}) }
	}
	pageAt := func(url string, at time.Duration) func(*unreported) {
		return func(n *unreported) { n.page("POST", url, chromeClock(at)) }
	}
	page := func(url string) func(*unreported) { return pageAt(url, now) }
	netLater := func(url string) func(*unreported) {
		return func(n *unreported) { n.sent(netlog.Sent{Method: "POST", URL: url, At: now + 2*time.Hour}) }
	}
	pageLater := func(url string) func(*unreported) { return pageAt(url, now+2*time.Hour) }
	for _, tt := range []struct {
		name string
		do   []func(*unreported)
		want string
	}{
		{"the page first", []func(*unreported){page("/a"), net("/a")}, ""},
		{"the network service first", []func(*unreported){net("/a"), page("/a")}, ""},
		{"no page", []func(*unreported){page("/a"), net("/b")}, "/b"},
		{"sent twice, reported once", []func(*unreported){net("/a"), page("/a"), net("/a")}, "/a"},
		{"both twice", []func(*unreported){net("/a"), net("/a"), page("/a"), page("/a#x")}, ""},
		{"of the session before", []func(*unreported){net("/a"), (*unreported).forget}, ""},
		{"of the session before, and read later", []func(*unreported){(*unreported).forget, func(n *unreported) {
			n.sent(netlog.Sent{Method: "POST", URL: "/a", At: now - time.Second})
		}}, ""},
		{"told, and reported late", []func(*unreported){net("/a"), func(n *unreported) { n.takeAlone(0) }, page("/a"), net("/a")}, "/a"},
		{"told, and another one that a page reports", []func(*unreported){net("/a"), func(n *unreported) { n.takeAlone(0) }, pageLater("/a"), netLater("/a")}, ""},
		{"told, and another one that no page reports", []func(*unreported){net("/a"), func(n *unreported) { n.takeAlone(0) }, netLater("/a")}, "/a"},
		{"told, another one, and the report of the first", []func(*unreported){net("/a"), func(n *unreported) { n.takeAlone(0) }, netLater("/a"), page("/a"), pageLater("/a")}, ""},
		{"one that never left is told, and then the report of the other", []func(*unreported){page("/a"), net("/a"), func(n *unreported) { n.kept("POST", "/a", 0); n.takeAlone(0) }, page("/a"), net("/a")}, "/a"},
		{"told, and another one that seemed not to leave", []func(*unreported){net("/a"), func(n *unreported) { n.takeAlone(0) }, func(n *unreported) {
			r := ledger.Request{Method: "POST", LastURL: "/a", MadeAt: chromeClock(now + 2*time.Hour)}
			n.count(&r)
			netLater("/a")(n)
			n.uncount(&r)
			n.count(&r)
		}}, ""},
		{"told, and one that was made before and never left", []func(*unreported){net("/a"), func(n *unreported) { n.takeAlone(0) }, func(n *unreported) {
			r := ledger.Request{Method: "POST", LastURL: "/a", MadeAt: chromeClock(now)}
			n.count(&r)
			n.uncount(&r)
		}}, ""},
		{"told, one that was made before and never left, and the report", []func(*unreported){net("/a"), func(n *unreported) { n.takeAlone(0) }, func(n *unreported) {
			r := ledger.Request{Method: "POST", LastURL: "/a", MadeAt: chromeClock(now)}
			n.count(&r)
			n.uncount(&r)
		}, page("/a"), net("/a")}, "/a"},
		{"young", []func(*unreported){net("/a"), func(n *unreported) {
			if sent, _, left := n.takeAlone(time.Minute); len(sent) > 0 || !left {
				n.forget()
			}
		}}, "/a"},
		{"a page's that never left, and one that no page reported", []func(*unreported){page("/a"), func(n *unreported) { n.kept("POST", "/a", 0) }, net("/a")}, "/a"},
		{"the same, in another order", []func(*unreported){net("/a"), page("/a"), func(n *unreported) { n.kept("POST", "/a", 0) }}, "/a"},
		{"taken once", []func(*unreported){net("/a"), func(n *unreported) { n.takeAlone(0) }}, ""},
	} {
		n := newUnreported()
		for _, do := range tt.do {
			do(n)
		}
		sent, many, _ := n.takeAlone(0)
		var urls []string
		for _, s := range sent {
			urls = append(urls, s.URL)
		}
		if got := strings.Join(urls, " "); got != tt.want || many {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestWhatAPageCouldNotSendHidesNothing: a request that ended before the network service sent it stands for
// none that it sends, whichever Chrome tells first.
func TestWhatAPageCouldNotSendHidesNothing(t *testing.T) {
	const save = "http://a.example/save"
	failed := func(members string) cdpproxy.Event {
		return cdpproxy.Event{Session: "S", Method: ledger.Failed, Params: fmt.Appendf(nil, `{"requestId":"R",%s}`, members)}
	}
	sent, carried := requested("R", "POST", save, ""), carriedWith("R", withCookie)
	before := requested("R", "POST", "http://a.example/first", "")
	again := requested("R", "POST", save, `,"redirectResponse":{"url":"http://a.example/first","status":307}`)
	nobodyThere, reset := failed(`"errorText":"net::ERR_CONNECTION_REFUSED"`), failed(`"errorText":"net::ERR_EMPTY_RESPONSE"`)
	csp := failed(`"errorText":"net::ERR_BLOCKED_BY_CSP","blockedReason":"csp"`)
	aborted := failed(`"errorText":"net::ERR_ABORTED","canceled":true`)
	preflight := failed(`"errorText":"net::ERR_FAILED","corsErrorStatus":{"corsError":"PreflightMissingAllowOriginHeader"}`)
	byWorker := cdpproxy.Event{Session: "S", Method: ledger.Answered, Params: []byte(`{"requestId":"R","loaderId":"D","timestamp":1,"type":"Fetch","response":{"url":"` + save + `","status":200,"headers":{},"fromServiceWorker":true},"frameId":"T"}`)}
	opened := cdpproxy.Event{Session: "B", Method: eventAttached, Params: []byte(`{"sessionId":"S","targetInfo":{"targetId":"T","type":"page","url":"http://a.example/"}}`)}
	closed := cdpproxy.Event{Session: "B", Method: eventDetached, Params: []byte(`{"sessionId":"S"}`)}
	left := cdpproxy.Event{Session: "S", Method: eventFrameNavigated, Params: []byte(`{"frame":{"id":"T","loaderId":"E","url":"http://a.example/next"}}`)}
	beacon := sent
	beacon.Params = bytes.Replace(sent.Params, []byte(`"type":"Fetch"`), []byte(`"type":"Ping"`), 1)
	other := func(e cdpproxy.Event) cdpproxy.Event {
		e.Session = "S2"
		return e
	}
	for name, tt := range map[string]struct {
		events []cdpproxy.Event
		hides  bool // it stands for one that was sent
	}{
		"under way": {[]cdpproxy.Event{sent}, true},
		"answered":  {[]cdpproxy.Event{sent, carried, responded("R", "Fetch", save, 200)}, true},
		"answered, and nobody tells what it carried": {[]cdpproxy.Event{sent, responded("R", "Fetch", save, 200)}, true},
		"no answer": {[]cdpproxy.Event{sent, carried, reset}, true},
		"no answer, and what it carried is told last": {[]cdpproxy.Event{sent, reset, carried}, true},
		"taken back later":                            {[]cdpproxy.Event{sent, carried, aborted}, true},
		"sent on, and no answer":                      {[]cdpproxy.Event{before, carried, again, carried, reset}, true},
		"sent on, no answer, and both are told last":  {[]cdpproxy.Event{before, again, reset, carried, carried}, true},
		"nobody is there":                             {[]cdpproxy.Event{sent, nobodyThere}, false},
		"taken back at once":                          {[]cdpproxy.Event{sent, aborted}, false},
		"its site was asked, and did not allow it":    {[]cdpproxy.Event{sent, preflight}, false},
		"refused":                                             {[]cdpproxy.Event{sent, csp}, false},
		"of two sessions, refused":                            {[]cdpproxy.Event{sent, other(sent), csp, other(csp)}, false},
		"of two sessions, nobody is there":                    {[]cdpproxy.Event{sent, other(sent), nobodyThere, other(nobodyThere)}, false},
		"sent on to where nobody is":                          {[]cdpproxy.Event{before, carried, again, nobodyThere}, false},
		"a service worker answered":                           {[]cdpproxy.Event{sent, byWorker}, false},
		"its page was closed before":                          {[]cdpproxy.Event{opened, sent, closed}, false},
		"its page was left before":                            {[]cdpproxy.Event{opened, sent, left}, false},
		"its page was closed after it":                        {[]cdpproxy.Event{opened, sent, carried, closed}, true},
		"its page was left, and what it carried is told last": {[]cdpproxy.Event{opened, sent, left, carried}, true},
		"the page of a beacon was closed":                     {[]cdpproxy.Event{opened, beacon, closed}, true},
		"another one was sent":                                {[]cdpproxy.Event{sent, nobodyThere, carriedWith("Q", withCookie)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			m, _ := unattached()
			for _, e := range tt.events {
				m.readerEvent(e)
				if e.Method == ledger.Sent {
					m.Traffic(cdpproxy.Traffic{Method: e.Method, Params: e.Params})
				}
				for !m.backlog.empty() {
					m.processHeard(<-m.backlog.waiting)
					m.backlog.pending.Add(-1)
				}
			}
			want := 1
			if tt.hides {
				want = 0
			}
			m.unreported.sent(netlog.Sent{Method: "POST", URL: save, At: boottime.Monotonic() + time.Hour})
			alone, _, _ := m.unreported.takeAlone(0)
			if n := len(alone); n != want {
				t.Errorf("%d are reported by no page, want %d", n, want)
			}
		})
	}
}

// TestWhatNoPageReportedToTheAccountsAPI is not anonymous: pages sent something there by which a site knows
// an account, whatever its domain is.
func TestWhatNoPageReportedToTheAccountsAPI(t *testing.T) {
	const charge = "https://pay.b.example/charge"
	get, post := requested("R", "GET", "https://api.b.example/me", ""), requested("R", "POST", "https://api.b.example/me", "")
	picture := get
	picture.Params = bytes.Replace(get.Params, []byte(`"type":"Fetch"`), []byte(`"type":"Image"`), 1)
	beacon := post
	beacon.Params = bytes.Replace(post.Params, []byte(`"type":"Fetch"`), []byte(`"type":"Ping"`), 1)
	ownHeader := get
	ownHeader.Params = bytes.Replace(get.Params, []byte(`"sec-ch-ua":"x"`), []byte(`"X-Auth-Token":"x"`), 1)
	elsewhere := requested("R", "GET", "https://c.example/me", "")
	ledOn := requested("R", "GET", "https://api.b.example/me", `,"redirectResponse":{"url":"https://c.example/me","status":307}`)
	for name, tt := range map[string]struct {
		events []cdpproxy.Event
		want   bool // it is anonymous
	}{
		"led on without the other site's cookie":              {[]cdpproxy.Event{elsewhere, carriedWith("R", withCookie), ledOn}, true},
		"led on, and sent without the other site's cookie":    {[]cdpproxy.Event{elsewhere, carriedWith("R", withCookie), ledOn, carriedWith("R", withoutCookie)}, true},
		"led on, and all that was carried is told first":      {[]cdpproxy.Event{carriedWith("R", withCookie), carriedWith("R", withoutCookie), elsewhere, ledOn}, true},
		"led on with a cookie":                                {[]cdpproxy.Event{elsewhere, carriedWith("R", withoutCookie), ledOn, carriedWith("R", withCookie)}, false},
		"led on with a cookie, which is told first":           {[]cdpproxy.Event{carriedWith("R", withoutCookie), carriedWith("R", withCookie), elsewhere, ledOn}, false},
		"led on by a worker, with a cookie, and nobody asked": {[]cdpproxy.Event{elsewhere, ledOn, carriedWith("R", withCookie)}, false},
		"nothing was sent there":                              {nil, true},
		"without anything":                                    {[]cdpproxy.Event{get, carriedWith("R", withoutCookie)}, true},
		"a picture with a cookie":                             {[]cdpproxy.Event{picture, carriedWith("R", withCookie)}, true},
		"a cookie that Chrome kept back":                      {[]cdpproxy.Event{get, carriedWith("R", keptCookie)}, true},
		"to another site":                                     {[]cdpproxy.Event{requested("R", "GET", "https://c.example/me", ""), carriedWith("R", tokenInstead)}, true},
		"in the session before":                               {[]cdpproxy.Event{get, carriedWith("R", tokenInstead), {Method: "the session ends"}}, true},
		"with a token":                                        {[]cdpproxy.Event{get, carriedWith("R", tokenInstead)}, false},
		"with a token, which is told first":                   {[]cdpproxy.Event{carriedWith("R", tokenInstead), get}, false},
		"with a cookie":                                       {[]cdpproxy.Event{get, carriedWith("R", withCookie)}, false},
		"a beacon with a cookie":                              {[]cdpproxy.Event{beacon, carriedWith("R", withCookie)}, false},
		"with a header that a script added":                   {[]cdpproxy.Event{ownHeader}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var got []checkpoint.Entry
			m := direct(func(e checkpoint.Entry) {
				if e.Kind == checkpoint.KindRequest {
					got = append(got, e)
				}
			})
			for _, e := range tt.events {
				if e.Method == "the session ends" {
					m.unreported.forget()
					continue
				}
				m.readerEvent(e)
			}
			m.unreported.sent(netlog.Sent{Method: "POST", URL: charge, At: boottime.Monotonic() + time.Hour})
			m.ReportAlone()
			if len(got) != 1 || got[0].URL != charge || got[0].Anonymous != tt.want {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestWhatNeverLeftWakes: that a request never left may show that another one was sent that no page reported.
func TestWhatNeverLeftWakes(t *testing.T) {
	n := newUnreported()
	n.page("POST", "/a", chromeClock(boottime.Monotonic()))
	n.sent(netlog.Sent{Method: "POST", URL: "/a", At: boottime.Monotonic() + time.Hour})
	select {
	case <-n.found:
		t.Fatal("something was found before")
	default:
	}
	n.kept("POST", "/a", 0)
	select {
	case <-n.found:
	default:
		t.Error("nobody is told that a request was reported by no page")
	}
}

// TestAMessageThatNoPageReportedIsNotAnonymous: what a websocket carried when it was opened is not seen.
func TestAMessageThatNoPageReportedIsNotAnonymous(t *testing.T) {
	var got []checkpoint.Entry
	m := direct(func(e checkpoint.Entry) { got = append(got, e) })
	m.unreported.sent(netlog.Sent{Method: checkpoint.Websocket, URL: "wss://b.example/feed", At: boottime.Monotonic() + time.Hour})
	m.ReportAlone()
	if len(got) != 1 || got[0].Method != checkpoint.Websocket || got[0].Anonymous {
		t.Errorf("%+v", got)
	}
}

// TestMessagesAreCounted: two sessions report each message, and the journal has one entry for equal
// ones; one more than were reported has left.
func TestMessagesAreCounted(t *testing.T) {
	const url = "wss://a.example/feed"
	m := direct(func(checkpoint.Entry) {})
	m.log.ledger.Known("r").URL = url
	for i := range 3 {
		message := cdpproxy.Traffic{Method: eventMessageSent, Params: fmt.Appendf(nil, `{"requestId":"r","timestamp":%d,"response":{"opcode":1,"payloadData":"x"}}`, i+1)}
		for range 2 {
			m.processHeard(heard{traffic: message})
		}
	}
	for range 4 {
		m.unreported.sent(netlog.Sent{Method: checkpoint.Websocket, URL: url, At: boottime.Monotonic() + time.Hour})
	}
	if alone, _, _ := m.unreported.takeAlone(0); len(alone) != 1 || alone[0].URL != url {
		t.Errorf("%+v, want one message more", alone)
	}
}

// TestWhatTheLaunchersOwnPageSends is reported, and no more of it than it sent.
func TestWhatTheLaunchersOwnPageSends(t *testing.T) {
	const login, feed = "https://a.example/login", "wss://a.example/feed"
	m := direct(func(e checkpoint.Entry) { t.Errorf("an entry %+v", e) })
	hear := m.Own()
	for _, e := range []struct{ method, params string }{
		{"Network.requestWillBeSent", `{"requestId":"1","request":{"method":"GET","url":"` + login + `"}}`},
		{"Network.requestWillBeSent", `{"requestId":"2","request":{"method":"POST","url":"` + login + `"}}`},
		{"Network.webSocketCreated", `{"requestId":"3","url":"` + feed + `"}`},
		{"Network.webSocketFrameSent", `{"requestId":"3","timestamp":1,"response":{"opcode":1,"payloadData":"x"}}`},
	} {
		hear(cdpproxy.Event{Method: e.method, Params: []byte(e.params)})
	}
	for _, s := range []netlog.Sent{{Method: "POST", URL: login}, {Method: checkpoint.Websocket, URL: feed}} {
		s.At = boottime.Monotonic() + time.Hour
		m.unreported.sent(s)
		if alone, _, _ := m.unreported.takeAlone(0); len(alone) != 0 {
			t.Errorf("reported by no page: %+v", alone)
		}
		m.unreported.sent(s)
		if alone, _, _ := m.unreported.takeAlone(0); len(alone) != 1 {
			t.Errorf("one more than the page sent: %+v", alone)
		}
	}
}

// TestWithoutANetLogNothingIsKnown: that counts as sent, once, and again after each checkpoint.
func TestWithoutANetLogNothingIsKnown(t *testing.T) {
	reported := 0
	m := direct(func(e checkpoint.Entry) {
		if e.Method == checkpoint.Unseen && strings.Contains(e.Text, "NetLog") {
			reported++
		}
	})
	wants := func(want int, when string) {
		t.Helper()
		m.reportUnlogged()
		if m.reportUnlogged(); reported != want {
			t.Errorf("%s: reported %d times, want %d", when, reported, want)
		}
	}
	wants(0, "as long as nothing is wrong")
	m.Unlogged()
	wants(1, "when it cannot be read")
	m.Checkpointed()
	wants(2, "after a checkpoint")
}

// TestUnreportedRequestsAreBounded: more of them than are kept are said to be there.
func TestUnreportedRequestsAreBounded(t *testing.T) {
	n := newUnreported()
	for i := range maxKnown + 1 {
		n.sent(netlog.Sent{Method: "POST", URL: strings.Repeat("/", i+1), At: time.Hour})
	}
	if sent, many, _ := n.takeAlone(0); len(sent) != maxKnown || !many {
		t.Errorf("%d are kept, more: %v", len(sent), many)
	}
}

// TestALogIsRead to its end, with a line that is too long.
func TestALogIsRead(t *testing.T) {
	var begun netlog.Types
	reader := func() *Monitor {
		m := New(nil)
		m.HurryNetLog()
		return m
	}
	m := reader()
	log := `{"constants":{"logEventTypes":{"HTTP_TRANSACTION_SEND_REQUEST":40,"REQUEST_ALIVE":2,"URL_REQUEST_START_JOB":136,"WEBSOCKET_SENT_FRAME_HEADER":623}},` + "\n\"events\": [\n" +
		strings.Repeat("x", 2*maxLine) + "\n" +
		`{"params":{"initiator":"https://a.example","method":"POST","url":"https://a.example/open"},"phase":1,"source":{"id":7},"time":"99","type":136},` + "\n"
	if err := m.ReadNetLog(strings.NewReader(log), nil, func(types netlog.Types) error { begun = types; return nil }); err != nil {
		t.Fatal(err)
	}
	if sent, _, _ := m.unreported.takeAlone(0); len(sent) != 1 || sent[0].URL != "https://a.example/open" {
		t.Errorf("%+v", sent)
	}
	if !m.still.MayWait(0) {
		t.Error("a request that has not ended does not wait in the network service")
	}
	// The next launcher begins in the middle of a line.
	m = reader()
	if err := m.ReadNetLog(strings.NewReader(log[len(log)-200:]+log[strings.LastIndex(log, `{"params`):]), &begun, nil); err != nil {
		t.Fatal(err)
	}
	if sent, _, _ := m.unreported.takeAlone(0); len(sent) != 1 {
		t.Errorf("read on: %+v", sent)
	}
	m = reader()
	log += `{"phase":2,"source":{"id":7},"time":"99","type":2},` + "\n"
	if err := m.ReadNetLog(strings.NewReader(log), nil, func(netlog.Types) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if m.still.MayWait(0) {
		t.Error("a request that has ended waits in the network service")
	}
	if err := reader().ReadNetLog(strings.NewReader("no log"), nil, nil); err == nil {
		t.Error("anything is taken for a log")
	}
}
