package monitor

import (
	"encoding/json"
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

// sent is an event about what a page sent, at a time by Chrome's clock.
func posted(id string, at float64) cdpproxy.Traffic {
	return cdpproxy.Traffic{Method: ledger.Sent, Params: json.RawMessage(fmt.Sprintf(
		`{"requestId":%q,"loaderId":"l","documentURL":"http://shop/","request":{"url":"http://shop/save?id=%s","method":"POST"},"timestamp":%f,"type":"Fetch"}`, id, id, at))}
}

func message(socket string, at float64) cdpproxy.Traffic {
	return cdpproxy.Traffic{Method: eventMessageSent, Params: json.RawMessage(fmt.Sprintf(
		`{"requestId":%q,"timestamp":%f,"response":{"opcode":1,"mask":true,"payloadData":"x"}}`, socket, at))}
}

// unattached is a monitor that is not attached to a browser, with what it reported.
func unattached() (*Monitor, *[]string) {
	var got []string
	m := direct(func(e checkpoint.Entry) { got = append(got, fmt.Sprintf("%s %s %s", e.Kind, e.Method, e.URL)) })
	m.chrome.mux = &cdpproxy.Mux{}
	m.navigations.follow(m.chrome.mux)
	return m, &got
}

func TestWhatAPageSendsWhileItStandsStillIsWithheld(t *testing.T) {
	const stop = 100 * time.Second
	before := []string{"request POST http://shop/save?id=1", "request WEBSOCKET "}
	for name, tt := range map[string]struct {
		end  func(*Monitor)
		want []string
	}{
		"as long as it stands still": {func(*Monitor) {}, nil},
		"sent when it goes on":       {func(m *Monitor) { m.still.Moves() }, []string{"request POST http://shop/save?id=2", "request WEBSOCKET ", "request WEBSOCKET "}},
		"never sent if its pages end": {func(m *Monitor) {
			m.still.PagesEnd()
			m.requests.observe(posted("3", 103)) // it comes late
		}, []string{"withheld POST http://shop/save?id=2", "withheld WEBSOCKET ", "withheld WEBSOCKET ", "withheld POST http://shop/save?id=3"}},
		"after it went on": {func(m *Monitor) {
			m.still.Moves()
			m.requests.observe(posted("3", 103))
		}, []string{"request POST http://shop/save?id=2", "request WEBSOCKET ", "request WEBSOCKET ", "request POST http://shop/save?id=3"}},
	} {
		t.Run(name, func(t *testing.T) {
			m, got := unattached()
			m.requests.observe(message("w", 99))
			m.still.Begins(stop)
			m.requests.observe(posted("1", 99.9)) // it was sent before, and is reported after
			for range 2 {                         // by the client's session, and by the launcher's own
				m.requests.observe(posted("2", 100.1))
				m.requests.observe(message("w", 100.2))
			}
			m.requests.observe(message("w", 100.3))
			if list, more := m.still.Withheld(); len(list) != 3 || more != 0 || list[0].Method != "POST" || list[0].URL != "http://shop/save?id=2" {
				t.Errorf("withheld: %+v, %d more", list, more)
			}
			tt.end(m)
			want := append([]string{before[1], before[0]}, tt.want...)
			if fmt.Sprint(*got) != fmt.Sprint(want) {
				t.Errorf("reported\n%q, want\n%q", *got, want)
			}
		})
	}
}

// TestWhatWasWithheldIsThePages: once the browser goes on, the network service sends what the pages
// reported while it stood still.
func TestWhatWasWithheldIsThePages(t *testing.T) {
	m, _ := unattached()
	m.still.Begins(time.Second)
	m.requests.observe(posted("1", 2))
	m.requests.observe(message("w", 2))
	m.still.Moves()
	for _, s := range []netlog.Sent{{Method: "POST", URL: "http://shop/save?id=1"}, {Method: checkpoint.Websocket}} {
		s.At = boottime.Monotonic() + time.Hour
		m.unreported.sent(s)
	}
	if alone, _, _ := m.unreported.takeAlone(0); len(alone) != 0 {
		t.Errorf("reported by no page: %+v", alone)
	}
}

// TestWhatIsWithheldHidesNothing: what a page wanted to send while the browser stood still stands for
// nothing that the network service sent to the same place, however much of it there was, and what else is
// said of it changes nothing.
func TestWhatIsWithheldHidesNothing(t *testing.T) {
	save := func(int) cdpproxy.Traffic { return posted("1", 2) }
	refused := func(m *Monitor, id string) {
		m.processHeard(heard{answer: &answer{id: id, unsent: true, entry: checkpoint.Entry{Kind: checkpoint.KindAnswer, Failed: "refused", Ended: true, Blocked: true}}})
	}
	for name, tt := range map[string]struct {
		sent func(i int) cdpproxy.Traffic
		n    int
		do   func(*Monitor)
		want int // how many of those that the network service sends no page has reported
	}{
		"while it stands still":                  {save, 1, func(*Monitor) {}, 1},
		"its pages end":                          {save, 1, func(m *Monitor) { m.still.PagesEnd() }, 1},
		"reported after they end":                {save, 0, func(m *Monitor) { m.still.PagesEnd(); m.requests.observe(save(0)) }, 1},
		"refused, and then its pages end":        {save, 1, func(m *Monitor) { refused(m, "1"); m.still.PagesEnd() }, 1},
		"its pages end, and it is refused":       {save, 1, func(m *Monitor) { m.still.PagesEnd(); refused(m, "1") }, 1},
		"refused, and then the browser goes on":  {save, 1, func(m *Monitor) { refused(m, "1"); m.still.Moves() }, 1},
		"the browser goes on, and it is refused": {save, 1, func(m *Monitor) { m.still.Moves(); refused(m, "1") }, 1},
		"the browser goes on":                    {save, 1, func(m *Monitor) { m.still.Moves() }, 0},
		"messages, and its pages end":            {func(i int) cdpproxy.Traffic { return message("w", 2+float64(i)) }, maxWithheld + 5, func(m *Monitor) { m.still.PagesEnd() }, 1},
		"messages, and the browser goes on": {func(i int) cdpproxy.Traffic { return message("w", 2+float64(i)) }, maxWithheld + 5, func(m *Monitor) {
			m.still.Moves()
			for range maxWithheld + 4 {
				m.unreported.sent(netlog.Sent{Method: checkpoint.Websocket, URL: "wss://shop/feed", At: boottime.Monotonic() + time.Hour})
			}
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			m, _ := unattached()
			m.log.ledger.Known("w").URL = "wss://shop/feed"
			m.still.Begins(time.Second)
			for i := range tt.n {
				m.requests.observe(tt.sent(i))
			}
			tt.do(m)
			s := netlog.Sent{Method: "POST", URL: "http://shop/save?id=1", At: boottime.Monotonic() + time.Hour}
			if tt.n > 1 {
				s.Method, s.URL = checkpoint.Websocket, "wss://shop/feed"
			}
			m.unreported.sent(s)
			if alone, _, _ := m.unreported.takeAlone(0); len(alone) != tt.want {
				t.Errorf("%d of them are reported by no page, want %d", len(alone), tt.want)
			}
		})
	}
}

func TestMoreIsWithheldThanIsKept(t *testing.T) {
	m, got := unattached()
	m.still.Begins(time.Second)
	for i := range maxWithheld + 5 {
		m.requests.observe(posted(fmt.Sprint("r", i), 2))
	}
	if list, more := m.still.Withheld(); len(list) != maxWithheld || more != 5 {
		t.Errorf("%d withheld, %d more", len(list), more)
	}
	// What is sent all the time hides nothing else.
	for range 2 {
		m.still.withholds(checkpoint.Entry{Method: "DELETE", URL: "http://shop/account?id=1"}, 2, false)
	}
	if list, more := m.still.Withheld(); len(list) != maxWithheld+1 || list[maxWithheld].Method != "DELETE" || more != 6 {
		t.Errorf("with another one: %d withheld, %d more", len(list), more)
	}
	m.still.PagesEnd()
	if n := len(*got); n != maxWithheld+2 || (*got)[n-1] != "withheld MANY " {
		t.Errorf("%d reported, the last %s", n, (*got)[n-1])
	}
}

func TestWhatMayWaitInTheNetworkService(t *testing.T) {
	since := boottime.Instant(time.Hour)
	event := func(method, content string) func(*Still, boottime.Instant) {
		return func(s *Still, at boottime.Instant) {
			s.log.take(ledger.Event{Method: method, Params: json.RawMessage(content), Boot: at}, s.observe)
		}
	}
	get, post := `{"requestId":"1","loaderId":"l","documentURL":"http://shop/","request":{"url":"http://shop/","method":"GET"`, `{"requestId":"1","loaderId":"l","documentURL":"http://shop/","request":{"url":"http://shop/","method":"POST"`
	own := `{"requestId":"1","loaderId":"l","documentURL":"chrome://omnibox-popup/","request":{"url":"chrome://x","method":"GET"`
	finished := event(ledger.Finished, `{"requestId":"1","timestamp":1`)
	for _, tt := range []struct {
		name   string
		ago    time.Duration
		events []func(*Still, boottime.Instant)
		want   bool
	}{
		{"nothing was sent", 0, nil, false},
		{"a request that is answered", time.Second, []func(*Still, boottime.Instant){event(ledger.Sent, get), finished}, false},
		{"one that failed", time.Second, []func(*Still, boottime.Instant){event(ledger.Sent, post), event(ledger.Failed, `{"requestId":"1"`)}, false},
		{"a new one without an answer", time.Second, []func(*Still, boottime.Instant){event(ledger.Sent, get)}, true},
		{"an old one, as of a stream", time.Minute, []func(*Still, boottime.Instant){event(ledger.Sent, get)}, false},
		{"an old unsafe one, as of an upload", time.Minute, []func(*Still, boottime.Instant){event(ledger.Sent, post)}, true},
		{"an old one whose header says that it is a GET", time.Minute, []func(*Still, boottime.Instant){event(ledger.Sent, post+`,"headers":{"method":"GET"}`)}, true},
		{"one whose header says that it is of Chrome's own pages", time.Second, []func(*Still, boottime.Instant){event(ledger.Sent, post+`,"headers":{"documentURL":"chrome://x"}`)}, true},
		{"an old OPTIONS of a page", time.Minute, []func(*Still, boottime.Instant){event(ledger.Sent, strings.Replace(post, "POST", "OPTIONS", 1))}, true},
		{"one of Chrome's own pages", time.Second, []func(*Still, boottime.Instant){event(ledger.Sent, own)}, false},
		{"a message just now", time.Second, []func(*Still, boottime.Instant){(*Still).message}, true},
		{"a message long ago", time.Minute, []func(*Still, boottime.Instant){(*Still).message}, false},
		{"a read while it stands still", -time.Second, []func(*Still, boottime.Instant){event(ledger.Sent, get), finished}, true},
	} {
		s := newStill(&requestLog{}, newUnreported(), nil)
		if tt.ago < 0 {
			s.Begins(time.Hour)
		}
		for _, e := range tt.events {
			e(s, since.Add(-tt.ago))
		}
		if got := s.MayWait(since); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

// TestAnOldGETMayWaitIfItMayWrite: it followed from an act of the worker's, or says so itself, and is not answered.
func TestAnOldGETMayWaitIfItMayWrite(t *testing.T) {
	for name, tt := range map[string]struct {
		acted  bool
		query  string
		answer string // the event after it; empty: there is none
		want   bool
	}{
		"a read":                       {false, "", "", false},
		"after an act":                 {true, "", "", true},
		"after an act, as of a stream": {true, "", ledger.Answered, false},
		"after an act, and taken back": {true, "", ledger.Failed, false},
		"with what guards a write":     {false, "?nonce=a", "", true},
	} {
		m, _ := unattached()
		m.gets.acted, m.gets.actedOn = func() boottime.Instant { return 0 }, func(string) (acted, typed bool) { return tt.acted, false }
		m.readerEvent(cdpproxy.Event{Session: "S", Method: ledger.Sent, Params: json.RawMessage(
			`{"requestId":"1","loaderId":"L","documentURL":"http://a.test/list","request":{"url":"http://a.test/take` + tt.query + `","method":"GET"},"timestamp":1,"initiator":{"type":"script"},"type":"Fetch","frameId":"F"}`)})
		if tt.answer != "" {
			m.readerEvent(cdpproxy.Event{Session: "S", Method: tt.answer, Params: json.RawMessage(`{"requestId":"1","response":{"status":200}}`)})
		}
		m.gets.GiveUp()
		if got := m.still.MayWait(boottime.Now().Add(time.Hour)); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestWhatEndsWhileTheBrowserStandsStillMayHaveSent: a page that ends, or a frame that is taken out, may send something
// that no page reports.
func TestWhatEndsWhileTheBrowserStandsStillMayHaveSent(t *testing.T) {
	for name, tt := range map[string]struct {
		method, params string
		want           bool
	}{
		"a page that closes":          {eventDetached, `{"sessionId":"S"}`, true},
		"a page that crashes":         {eventCrashed, `{}`, true},
		"a frame that is taken out":   {eventFrameDetached, `{"frameId":"F","reason":"remove"}`, true},
		"a page that shows a new one": {eventFrameNavigated, `{"frame":{"id":"F","loaderId":"L","url":"about:blank"}}`, true},
		"a page that goes on":         {eventNavigatedWithin, `{"frameId":"F","url":"http://a.test/#1"}`, false},
	} {
		for still := range 3 {
			m, _ := unattached()
			if still > 0 {
				m.still.Begins(time.Second)
			}
			if still > 1 { // it is the launcher that ends the pages now
				m.Closing()
			}
			m.readerEvent(cdpproxy.Event{Session: "S", Method: tt.method, Params: json.RawMessage(tt.params)})
			if got := m.still.MayWait(boottime.Now().Add(time.Hour)); got != (tt.want && still == 1) {
				t.Errorf("%s, case %d: %v", name, still, got)
			}
		}
	}
}

// TestWhatASessionLeavesOpenMayWaitInTheNext, if it is unsafe: it may be an upload.
func TestWhatASessionLeavesOpenMayWaitInTheNext(t *testing.T) {
	for method, want := range map[string]bool{"POST": true, "GET": false} {
		m, _ := unattached()
		m.readerEvent(requested("1", method, "http://shop/", ""))
		m.forget()
		if got := m.still.MayWait(boottime.Now().Add(time.Hour)); got != want {
			t.Errorf("%s: %v", method, got)
		}
	}
}
