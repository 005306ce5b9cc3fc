package recorder_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"leasehold/checkpoint/ledger"
	"leasehold/evidence/recorder"
	"leasehold/internal/test/testchrome"
)

// secret is what nobody but the account's owner may read.
const secret = "Pl4nt3d"

var noon = time.Date(2026, 6, 18, 12, 0, 0, 0, time.UTC)

type part[T any] struct {
	Total, Dropped int
	Entries        []T
}

func decode[T any](t *testing.T, content []byte) part[T] {
	t.Helper()
	var p part[T]
	if err := json.Unmarshal(content, &p); err != nil || p.Entries == nil {
		t.Fatalf("%s: %v", content, err)
	}
	if strings.Contains(string(content), secret) {
		t.Errorf("the part has the secret:\n%s", content)
	}
	return p
}

func TestCommands(t *testing.T) {
	var r recorder.Commands
	r.Record(3,
		recorder.CommandEntry{Passed: 2, At: noon.Add(time.Second), LeaseToken: 42, Session: "0A1", Target: "9F", Method: "Page.navigate"},
		recorder.CommandEntry{Passed: 1, At: noon.Add(time.Minute), LeaseToken: 42, Method: "not a method " + secret},
		recorder.CommandEntry{Passed: 3, At: noon.Add(2 * time.Second), LeaseToken: 42, Session: secret + " x", Target: secret + " x", Method: "A.b"})
	p := decode[recorder.CommandEntry](t, r.Part())
	want := []recorder.CommandEntry{
		{At: noon.Add(time.Minute), LeaseToken: 42, Method: "REDACTED"},
		{At: noon.Add(time.Second), LeaseToken: 42, Session: "0A1", Target: "9F", Method: "Page.navigate"},
		{At: noon.Add(2 * time.Second), LeaseToken: 42, Session: "REDACTED", Target: "REDACTED", Method: "A.b"},
	}
	if !slices.Equal(p.Entries, want) || p.Total != 6 || p.Dropped != 3 {
		t.Errorf("got %+v\nwant %+v, 6 in all, 3 dropped", p, want)
	}
}

// A recorder keeps the last entries in order, from however many goroutines they come.
func TestRecordersAreBounded(t *testing.T) {
	var r recorder.Commands
	if p := decode[recorder.CommandEntry](t, r.Part()); p.Total != 0 || len(p.Entries) != 0 {
		t.Errorf("empty: %+v", p)
	}
	for i := range 1000 {
		r.Record(0, recorder.CommandEntry{At: noon.Add(time.Duration(i) * time.Second), LeaseToken: uint64(i), Method: "A.b"})
	}
	p := decode[recorder.CommandEntry](t, r.Part())
	if p.Total != 1000 || p.Dropped != 1000-len(p.Entries) || len(p.Entries) != 200 {
		t.Fatalf("%d, %d dropped, %d kept", p.Total, p.Dropped, len(p.Entries))
	}
	for i, e := range p.Entries {
		if e.LeaseToken != uint64(800+i) {
			t.Fatalf("entry %d is number %d", i, e.LeaseToken)
		}
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range 500 {
				r.Record(0, recorder.CommandEntry{At: noon, LeaseToken: 1, Method: "A.b"})
				if i%100 == 0 {
					r.Part()
				}
			}
		})
	}
	all.Wait()
	if p := decode[recorder.CommandEntry](t, r.Part()); p.Total != 3000 {
		t.Errorf("%d of 3000", p.Total)
	}
}

// A real page that has its secrets wherever requests and messages can carry them.
func TestNetworkAndConsole(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/moved":
			http.Redirect(w, r, "/page?code="+secret, http.StatusFound)
		case "/page":
			http.SetCookie(w, &http.Cookie{Name: "sid", Value: secret})
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, "<!DOCTYPE html><title>x</title><p>page")
		case "/api":
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, secret)
		default:
			w.WriteHeader(http.StatusTeapot)
		}
	}))
	defer web.Close()
	b := testchrome.StartDriver(t)
	_, session := b.Open("about:blank")
	for _, domain := range []string{"Network", "Runtime", "Log"} {
		b.Must(session, domain+".enable", nil, nil)
	}
	b.Must(session, "Page.navigate", map[string]any{"url": web.URL + "/moved?session=" + secret}, nil)
	b.Await(session, "Page.loadEventFired")
	b.Eval(session, `(async () => {
		console.warn("typed `+secret+`", {password: "`+secret+`"})
		await fetch("/api?q=`+secret+`#`+secret+`", {method: "POST", body: "password=`+secret+`", headers: {Authorization: "Bearer `+secret+`"}}).then(r => r.text())
		await (await fetch("/missing/?search=`+secret+`")).text()
		await fetch("http://127.0.0.1:1/?token=`+secret+`").catch(() => {})
		setTimeout(() => { class `+secret+` extends Error {}; throw new `+secret+`("`+secret+`") })
		setTimeout(() => { null.x })
		await new Promise(done => setTimeout(done, 50))
		return "done"
	})()`)
	var network ledger.Ledger
	var console recorder.Console
	pump := func(methods []string, see func(testchrome.Message)) {
		for _, method := range methods {
			for more := true; more; {
				select {
				case m := <-b.Events(session, method):
					see(m)
				default:
					more = false
				}
			}
		}
	}
	find := func() (requests map[string]recorder.RequestEntry) {
		pump(ledger.Events, func(m testchrome.Message) {
			network.Take(ledger.Event{At: noon, Token: 42, Session: m.SessionID, Method: m.Method, Params: m.Params})
		})
		requests = map[string]recorder.RequestEntry{}
		for _, e := range decode[recorder.RequestEntry](t, recorder.Network(network.Hops())).Entries {
			requests[strings.TrimPrefix(e.URL, web.URL)] = e
		}
		return requests
	}
	var requests map[string]recorder.RequestEntry
	for end := time.Now().Add(testchrome.Patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if requests = find(); requests["http://127.0.0.1:1/?token=REDACTED"].Failed != "" && requests["/missing/?search=REDACTED"].Bytes > 0 {
			break
		}
	}
	for url, want := range map[string]recorder.RequestEntry{
		"/moved?session=REDACTED":            {Method: "GET", Type: "Document", Status: 302},
		"/page?code=REDACTED":                {Method: "GET", Type: "Document", Status: 200},
		"/api?q=REDACTED":                    {Method: "POST", Type: "Fetch", Status: 201},
		"/missing/?search=REDACTED":          {Method: "GET", Type: "Fetch", Status: 418},
		"http://127.0.0.1:1/?token=REDACTED": {Method: "GET", Type: "Fetch", Failed: "net::ERR_UNSAFE_PORT"},
	} {
		got := requests[url]
		if got.Method != want.Method || got.Type != want.Type || got.Status != want.Status || got.Failed != want.Failed || got.LeaseToken != 42 || (want.Status != 0) != (got.Bytes > 0) {
			t.Errorf("%s: %+v, want %+v", url, got, want)
		}
	}
	seen := map[string]int{}
	for end := time.Now().Add(testchrome.Patience); time.Now().Before(end) && (seen["exception TypeError"] == 0 || seen["network Failed"] == 0); time.Sleep(20 * time.Millisecond) {
		pump(recorder.ConsoleEvents, func(m testchrome.Message) { console.See(noon, 42, m.Method, m.Params) })
		clear(seen)
		for _, e := range decode[recorder.ConsoleEntry](t, console.Part()).Entries {
			text, _, _ := strings.Cut(e.Text, " ")
			seen[e.Source+" "+text]++
			if e.Source == "console" && e.Level != "warning" {
				t.Errorf("%+v", e)
			}
		}
	}
	for _, want := range []string{"console REDACTED", "exception REDACTED", "exception TypeError", "network Failed"} {
		if seen[want] == 0 {
			t.Errorf("no %q among %v", want, seen)
		}
	}
}

func TestRecordersTakeAnything(t *testing.T) {
	var l ledger.Ledger
	var c recorder.Console
	for _, raw := range []string{``, `{`, `[]`, `null`, `{"requestId":1}`, `{"requestId":"x","request":{"url":"%%%` + `"}}`} {
		for _, method := range append(append([]string{"X.y"}, ledger.Events...), recorder.ConsoleEvents...) {
			l.Take(ledger.Event{At: noon, Token: 1, Session: "s", Method: method, Params: json.RawMessage(raw)})
			c.See(noon, 1, method, json.RawMessage(raw))
		}
	}
	decode[recorder.RequestEntry](t, recorder.Network(l.Hops()))
	decode[recorder.ConsoleEntry](t, c.Part())
}
