package ledger

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// sent is the event that begins a request, with its members in Chrome's order.
func sent(id, document, method, more string) Event {
	return Event{Session: "s", Method: Sent, Params: fmt.Appendf(nil,
		`{"requestId":%q,"loaderId":"L","documentURL":%q,"request":{"url":"http://shop.test/%s","method":%q,"headers":{%s}},"type":"Fetch"}`, id, document, id, method, more)}
}

// about is another event of a request.
func about(id, method, more string) Event {
	return Event{Session: "s", Method: method, Params: fmt.Appendf(nil, `{"requestId":%q%s}`, id, more)}
}

const page = "http://shop.test/"

func take(l *Ledger, events ...Event) {
	for _, e := range events {
		l.Take(e)
	}
}

// TestWhatWasSentIsKept: what a page loads does not take the place of what it sent, and Chrome's own
// pages take no place at all.
func TestWhatWasSentIsKept(t *testing.T) {
	for _, ended := range []bool{false, true} {
		var l Ledger
		end := func(id string) {
			if ended {
				take(&l, about(id, Finished, ""))
			}
		}
		take(&l, sent("order", page, "POST", ""))
		for i := range 500 {
			for id, e := range map[string]Event{
				fmt.Sprint("own", i): sent(fmt.Sprint("own", i), "chrome://new-tab-page/", "GET", ""), fmt.Sprint("post", i): sent(fmt.Sprint("post", i), "chrome-untrusted://x/", "POST", ""),
				fmt.Sprint("image", i): sent(fmt.Sprint("image", i), page, "GET", ""),
			} {
				take(&l, e)
				end(id)
			}
		}
		take(&l, about("order", Answered, `,"status":201`))
		hops, total := l.Hops()
		if total != 501 || len(hops) != 301 || !hops[0].Unsafe || hops[0].Answered == nil || !strings.Contains(string(hops[1].Sent), "/image200") {
			t.Errorf("%d requests, %d kept, want 501 and the order with the last 300 images; the first are %s, %s", total, len(hops), hops[0].Sent, hops[1].Sent)
		}
		l = Ledger{}
		for i := range 1500 {
			take(&l, sent(fmt.Sprint("order", i), page, "POST", ""))
			end(fmt.Sprint("order", i))
		}
		if hops, total := l.Hops(); total != 1500 || len(hops) != 1000 || !strings.Contains(string(hops[999].Sent), "/order1499") {
			t.Errorf("%d requests, %d kept; want 1500, 1000", total, len(hops))
		}
	}
}

// TestAPageCannotHideARequest: a page chooses names and values of headers, and none of them makes a
// request look as if it were Chrome's own, or safe.
func TestAPageCannotHideARequest(t *testing.T) {
	var l Ledger
	take(&l, sent("a", page, "POST", `"documentURL":"chrome://settings/","method":"GET","requestId":"b"`))
	if hops, total := l.Hops(); total != 1 || len(hops) != 1 || !hops[0].Unsafe || l.known["a"] == nil {
		t.Errorf("%d, %+v", total, hops)
	}
}

// TestHopsOfAChain: all have one id, and the event of each one but the first has the answer to the one
// before it. An id that is used again is another request.
func TestHopsOfAChain(t *testing.T) {
	var l Ledger
	take(&l, sent("a", page, "POST", ""), sent("a", page, "GET", ""), about("a", Answered, ""), about("a", Failed, ""), sent("a", page, "PUT", ""))
	if n := len(l.kept[unsafe]); n != 2 {
		t.Fatalf("%d requests", n)
	}
	chain, again := l.kept[unsafe][0], l.kept[unsafe][1]
	if len(chain.Hops) != 2 || !chain.Ended || again.Ended || l.find("s", "a") != again {
		t.Fatalf("%+v, %+v", chain, again)
	}
	first, second := chain.Hops[0], chain.Hops[1]
	if !first.Unsafe || second.Unsafe || string(first.Redirected) != string(second.Sent) || first.Ended != nil || second.Answered == nil || !second.Failed {
		t.Errorf("%+v, %+v", first, second)
	}
}

// TestAChainHasAnEnd: a hop that is one too many is another request.
func TestAChainHasAnEnd(t *testing.T) {
	var l Ledger
	for range maxHops + 1 {
		take(&l, sent("a", page, "GET", ""))
	}
	if n := len(l.kept[reading]); n != 2 || len(l.Lookup("a").Hops) != 1 {
		t.Errorf("%d requests, the last of %d hops", n, len(l.Lookup("a").Hops))
	}
}

// TestWhatARequestCarried is known whichever Chrome reports first.
func TestWhatARequestCarried(t *testing.T) {
	begins, carried := sent("a", page, "GET", ""), about("a", Carried, `,"associatedCookies":[{"blockedReasons":[]}],"headers":{"Authorization":"x"}`)
	for _, events := range [][]Event{{begins, carried}, {carried, begins}} {
		var l Ledger
		take(&l, events...)
		if r := l.Lookup("a"); r.Left != 1 || !r.Cookies || !r.Credentials || len(r.Hops) != 1 {
			t.Errorf("%+v", r)
		}
	}
	var l Ledger
	take(&l, begins, about("a", Carried, `,"associatedCookies":[{"blockedReasons":["SameSiteLax"]}],"headers":{}`))
	if r := l.Lookup("a"); r.Left != 1 || r.Cookies || r.Credentials {
		t.Errorf("%+v", r)
	}
}

// TestHeadersOfAnswers belong to the hops in their order, whichever Chrome reports first.
func TestHeadersOfAnswers(t *testing.T) {
	begins, headers := sent("a", page, "GET", ""), about("a", Headers, "")
	other := func(e Event) Event {
		e.Session = "t"
		return e
	}
	for name, tt := range map[string]struct {
		events []Event
		want   string // the hop of each fact about headers; -1: it is not known yet
	}{
		"in order":                     {[]Event{begins, headers, begins, headers}, "[0 1]"},
		"after both hops":              {[]Event{begins, begins, headers, headers}, "[0 1]"},
		"the answer first, one of two": {[]Event{headers, begins, begins}, "[-1 0]"},
		"the answer first":             {[]Event{headers, begins}, "[-1 0]"},
		"both answers first":           {[]Event{begins, headers, headers, headers, begins, begins}, "[0 -1 -1 1 2]"},
		"after the end":                {[]Event{begins, about("a", Finished, ""), headers}, "[0]"},
		"of two sessions":              {[]Event{begins, other(begins), other(headers), headers}, "[0 0]"},
		"of another session":           {[]Event{begins, other(headers)}, "[0]"},
		"of another session, first":    {[]Event{other(headers), begins}, "[-1 0]"},
		"more than may come first":     {[]Event{headers, headers, headers, headers, headers, headers, begins}, "[-1 -1 -1 -1 0]"},
	} {
		var l Ledger
		var got []int
		for _, e := range tt.events {
			for _, f := range l.Take(e) {
				if f.Method == Headers {
					got = append(got, f.Hop)
				}
			}
			check(t, &l)
		}
		if fmt.Sprint(got) != tt.want {
			t.Errorf("%s: %v, want %s", name, got, tt.want)
		}
	}
}

// TestNothingIsLostSilently: where too many have not ended, the oldest one is given up, first one that
// only reads; one that is not answered is given up when it is dropped.
func TestNothingIsLostSilently(t *testing.T) {
	var l Ledger
	givenUp := func(e Event) (ids []string) {
		for _, f := range l.Take(e) {
			if f.Method == GivenUp {
				ids = append(ids, f.Request.ID)
			}
		}
		return ids
	}
	take(&l, sent("order", page, "POST", ""), sent("image", page, "GET", ""))
	for i := range maxOpen - 2 {
		if ids := givenUp(sent(fmt.Sprint("order", i), page, "POST", "")); ids != nil {
			t.Fatalf("%v are given up when %d are open", ids, i+3)
		}
	}
	for _, want := range []string{"image", "order", "order0"} {
		if ids := givenUp(sent("new"+want, page, "POST", "")); fmt.Sprint(ids) != fmt.Sprintf("[%s]", want) {
			t.Errorf("%v are given up, want %s", ids, want)
		}
	}
	l = Ledger{}
	l.Known("rewritten").Pending = true
	for i := range maxEnded[unclaimed] {
		l.Known(fmt.Sprint(i)).Kept = true
	}
	if ids := givenUp(Event{}); fmt.Sprint(ids) != "[rewritten]" {
		t.Errorf("%v are dropped without an answer", ids)
	}
	if ids := givenUp(Event{}); ids != nil {
		t.Errorf("%v are told twice", ids)
	}
}

// TestReportedHops are known, whatever else is reported of the request.
func TestReportedHops(t *testing.T) {
	var r Request
	for i := range maxReported {
		if r.Report(fmt.Sprint("POST ", i)) || !r.Report(fmt.Sprint("POST ", i)) || r.Report(fmt.Sprint("PUT ", i)) || len(r.Reported) > maxReported {
			t.Errorf("%d of %q", i, r.Reported)
		}
	}
}

// TestMessagesAreReportedAgain after a checkpoint, also on a websocket that is older than the ledger;
// a request that was reported is not, though its hop may not be known yet.
func TestMessagesAreReportedAgain(t *testing.T) {
	var l Ledger
	take(&l, about("known", Socket, `,"url":"ws://shop.test/"`))
	for _, id := range []string{"known", "older"} {
		l.Known(id).Message(1)
		l.Known(id).Report("text")
	}
	l.Known("rewritten").Report("POST http://shop.test/")
	l.ForgetMessages()
	if l.Known("known").Report("text") || l.Known("older").Report("text") || !l.Known("rewritten").Report("POST http://shop.test/") {
		t.Error("want the messages forgotten, and nothing else")
	}
}

// TestASocketHasItsURL, and is no request that waits.
func TestASocketHasItsURL(t *testing.T) {
	var l Ledger
	take(&l, about("a", Socket, `,"url":"ws://shop.test/\u0061"`), about("a", Finished, ""), sent("b", page, "GET", ""), about("b", Socket, `,"url":"ws://shop.test/b"`))
	a, b := l.Lookup("a"), l.Lookup("b")
	if a == nil || a.URL != "ws://shop.test/a" || !a.Ended || b == nil || b.URL != "" || b.Ended || l.Lookup("c") != nil {
		t.Errorf("%+v, %+v", a, b)
	}
}

// TestLongParameters are kept without what nobody reads.
func TestLongParameters(t *testing.T) {
	long := strings.Repeat("x", 2*maxURL)
	for url, want := range map[string]string{
		"http://shop.test/a?" + long:       ("http://shop.test/a?" + long)[:maxURL],
		"http://shop.test/b/" + long + "#": "http://shop.test/b/",
		"http://shop.test/c":               "http://shop.test/c",
		long:                               long[:maxURL],
	} {
		var l Ledger
		take(&l, Event{Method: Sent, Params: fmt.Appendf(nil, `{"requestId":"a","documentURL":"x","request":{"url":%q,"method":"PUT","postData":%q},"type":"Fetch"}`, url, long)})
		hops, _ := l.Hops()
		var p Params
		if len(hops) != 1 || json.Unmarshal(hops[0].Sent, &p) != nil || p.Request.URL != want || p.Request.Method != "PUT" || !hops[0].Unsafe || len(hops[0].Sent) > 2*maxURL {
			t.Errorf("%.40s: %+v", url, p)
		}
	}
}

// FuzzPipeLog: whatever comes in whatever order, nothing panics, the bounds hold, each hop is counted, and
// no request that has not ended is lost without a fact that says so.
// Each two bytes of a script are an event, and a request on a session.
func FuzzPipeLog(f *testing.F) {
	f.Add([]byte{0, 1, 1, 1, 2, 1, 0, 1, 4, 2, 3, 2, 5, 3, 9, 3}, `"x":1`)
	f.Add([]byte{0, 0, 0, 16, 4, 0, 4, 0, 0, 1, 5, 1, 3, 1}, "")
	f.Add([]byte{1, 0, 1, 1, 1, 2, 1, 3, 0, 4, 0, 5, 0, 6, 0, 7, 0, 8, 3, 1, 3, 2, 3, 3, 3, 4}, `"X":{"method":"`)
	ended, open := maxEnded, maxOpen
	f.Cleanup(func() { maxEnded, maxOpen = ended, open })
	maxEnded, maxOpen = [kinds]int{2, 3, 1, 2, 2}, 5
	documents := []string{page, "chrome://x/", `\u0000`}
	f.Fuzz(func(t *testing.T, script []byte, more string) {
		var l Ledger
		begun := 0
		for ; len(script) > 1; script = script[2:] {
			number, at := int(script[1]%16), time.Unix(int64(len(script)), 0)
			id := fmt.Sprint(number)
			before := openOf(&l)
			var e Event
			switch op := int(script[0]) % 12; op {
			case 0, 1, 2:
				e = sent(id, documents[number%3], []string{"GET", "POST"}[script[1]/16%2], more)
			case 3, 4, 5, 6, 7, 8:
				e = about(id, Events[op-2], ","+more)
			case 9, 10: // of no request
				e = Event{Method: Events[op-9], Params: json.RawMessage("{" + more)}
			case 11: // a worker lets it go as an unsafe one
				l.Known(id).Pending = true
			}
			e.At, e.Session = at, fmt.Sprint(script[1]/64)
			facts := l.Take(e)
			for _, r := range before {
				if !slices.Contains(openOf(&l), r) && !slices.ContainsFunc(facts, func(f Fact) bool { return f.Request == r && slices.Contains(ends, f.Method) }) {
					t.Fatalf("%+v is lost, and no fact says so", r)
				}
			}
			for _, f := range facts { // as the monitor does
				f.Request.Pending = f.Request.Pending && !slices.Contains([]string{Answered, Failed, GivenUp}, f.Method) || f.Method == Sent && f.Request.Hops[f.Hop].Unsafe
			}
			if op := script[0] % 12; op < 3 && number%3 != 1 {
				begun++
			}
			check(t, &l)
		}
		if hops, total := l.Hops(); total != begun || len(hops) > total {
			t.Errorf("%d hops, %d of them kept; %d began", total, len(hops), begun)
		}
	})
}

// ends are what a request that was open ends with.
var ends = []string{Answered, Finished, Failed, GivenUp}

// openOf are the requests that are kept, and have not ended or are not answered.
func openOf(l *Ledger) []*Request {
	return slices.DeleteFunc(slices.Collect(l.All()), func(r *Request) bool { return r.Ended && !r.Pending })
}

// check checks what always holds.
func check(t *testing.T, l *Ledger) {
	t.Helper()
	open := 0
	for k, list := range l.kept {
		ended := 0
		for _, r := range list {
			if r.Ended {
				ended++
			}
			if k == int(reading) && slices.ContainsFunc(r.Hops, func(h Hop) bool { return h.Unsafe }) {
				t.Fatalf("%+v counts as one that only reads", r)
			}
			if (len(r.Hops) == 0) != (r.kind == unclaimed || r.kind == socket) || len(r.Hops) > maxHops || r.kind != kind(k) || len(r.early) > maxEarly {
				t.Fatalf("%+v", r)
			}
		}
		if ended > maxEnded[k] || ended != l.ended[k] {
			t.Fatalf("%d of kind %d have ended, %d are counted", ended, k, l.ended[k])
		}
		open += len(list) - ended
	}
	if open > maxOpen || open != l.open {
		t.Fatalf("%d have not ended, %d are counted", open, l.open)
	}
	for id, list := range l.known {
		of := map[string]bool{}
		for _, r := range list {
			if id != r.ID || of[r.Session] || !slices.Contains(l.kept[r.kind], r) {
				t.Fatalf("%s is known as %+v", id, r)
			}
			of[r.Session] = true
		}
		if len(list) == 0 {
			t.Fatalf("%s is nothing", id)
		}
	}
}

// TestAMessageIsTakenInOnce, though each session that follows the page reports it, also before the
// websocket itself is known. Chrome tells one session of all that a page sent at once, and then the next.
func TestAMessageIsTakenInOnce(t *testing.T) {
	var l Ledger
	for i, tt := range []struct {
		id    string
		at    float64
		again bool
	}{{"a", 1, false}, {"a", 1, true}, {"b", 1, false}, {"a", 2, false}, {"b", 1, true}, {"a", 1, true}, {"a", 2, true}, {"a", 3, false}} {
		if got := l.Known(tt.id).Message(tt.at); got != tt.again {
			t.Errorf("%d: the message of %s at %v was there before: %v", i, tt.id, tt.at, got)
		}
	}
}
