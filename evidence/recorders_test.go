package evidence_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"leasehold/evidence"
)

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
	for _, c := range []struct{ method, params, want string }{
		{"Page.navigate", `{"url":"https://u:` + secret + `@a.example/x?q=` + secret + `&token=` + secret + `#` + secret + `","transitionType":"typed"}`,
			`{"transitionType":"typed","url":"https://a.example/x?q=REDACTED&token=REDACTED"}`},
		{"Input.insertText", `{"text":"` + secret + `"}`, `{"text":"REDACTED"}`},
		{"Input.dispatchKeyEvent", `{"type":"keyDown","key":"P","code":"KeyP","windowsVirtualKeyCode":80,"text":"P"}`,
			`{"code":"REDACTED","key":"REDACTED","text":"REDACTED","type":"keyDown","windowsVirtualKeyCode":"REDACTED"}`},
		{"Runtime.evaluate", `{"expression":"login('` + secret + `')","awaitPromise":true}`, `{"awaitPromise":true,"expression":"REDACTED"}`},
		{"Network.setExtraHTTPHeaders", `{"headers":{"Authorization":"Bearer ` + secret + `"}}`, `{"headers":"REDACTED"}`},
		{"Storage.setCookies", `{"cookies":[{"name":"sid","value":"` + secret + `"}]}`, `{"cookies":"REDACTED"}`},
		{"DOMStorage.setDOMStorageItem", `{"storageId":{},"key":"k","value":"` + secret + `"}`, `{"key":"REDACTED","storageId":"REDACTED","value":"REDACTED"}`},
		{"Fetch.continueWithAuth", `{"requestId":"r.1 ` + secret + `","authChallengeResponse":{"password":"` + secret + `"}}`, `{"authChallengeResponse":"REDACTED","requestId":"REDACTED"}`},
		{"Page.handleJavaScriptDialog", `{"accept":true,"promptText":"` + secret + `"}`, `{"accept":true,"promptText":"REDACTED"}`},
		{"A.b", `{"my secret is ` + secret + `":1,"type":{"x":"` + secret + `"},"url":["` + secret + `"]}`, `{"REDACTED":"REDACTED","type":"REDACTED","url":"REDACTED"}`},
		{"Target.getTargets", ``, `null`},
		{"Target.getTargets", `{`, `null`},
		{"Target.getTargets", `["` + secret + `"]`, `null`},
	} {
		var r evidence.Commands
		r.Record(noon, 42, "S1", c.method, []byte(c.params))
		p := decode[evidence.CommandEntry](t, r.Part())
		got, err := json.Marshal(p.Entries[0].Params)
		if got = bytes.ReplaceAll(got, []byte(`\u0026`), []byte("&")); err != nil || string(got) != c.want {
			t.Errorf("%s\n got %s, %v\nwant %s", c.method, got, err, c.want)
		}
		if e := p.Entries[0]; e.Method != c.method || e.LeaseToken != 42 || !e.At.Equal(noon) || e.Session != "S1" || e.Bytes != len(c.params) {
			t.Errorf("%+v", e)
		}
	}
	var r evidence.Commands
	r.Record(noon, 1, "", "not a method "+secret, nil)
	r.Record(noon, 1, secret+" x", "A.b", []byte(`{"text":"`+strings.Repeat(secret, 1000)+`"}`))
	if p := decode[evidence.CommandEntry](t, r.Part()); p.Entries[0].Method != "REDACTED" || p.Entries[1].Params != nil || p.Entries[1].Bytes < 7000 {
		t.Errorf("%+v", p)
	}
}

// A recorder keeps the last entries in order, whoever adds them.
func TestRecordersAreBounded(t *testing.T) {
	var r evidence.Commands
	if p := decode[evidence.CommandEntry](t, r.Part()); p.Total != 0 || len(p.Entries) != 0 {
		t.Errorf("empty: %+v", p)
	}
	for i := range 1000 {
		r.Record(noon.Add(time.Duration(i)*time.Second), uint64(i), "", "A.b", nil)
	}
	p := decode[evidence.CommandEntry](t, r.Part())
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
				r.Record(noon, 1, "", "A.b", []byte(`{"type":"x"}`))
				if i%100 == 0 {
					r.Part()
				}
			}
		})
	}
	all.Wait()
	if p := decode[evidence.CommandEntry](t, r.Part()); p.Total != 3000 {
		t.Errorf("%d of 3000", p.Total)
	}
}

// A real page, with its secrets wherever requests and messages carry them.
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
	b := startBrowser(t)
	_, session := b.open("about:blank")
	for _, domain := range []string{"Network", "Runtime", "Log"} {
		b.must(session, domain+".enable", nil, nil)
	}
	b.must(session, "Page.navigate", map[string]any{"url": web.URL + "/moved?session=" + secret}, nil)
	b.await(session, "Page.loadEventFired")
	b.eval(session, `(async () => {
		console.warn("typed `+secret+`", {password: "`+secret+`"})
		await fetch("/api?q=`+secret+`#`+secret+`", {method: "POST", body: "password=`+secret+`", headers: {Authorization: "Bearer `+secret+`"}}).then(r => r.text())
		await (await fetch("/missing/?search=`+secret+`")).text()
		await fetch("http://127.0.0.1:1/?token=`+secret+`").catch(() => {})
		setTimeout(() => { class `+secret+` extends Error {}; throw new `+secret+`("`+secret+`") })
		setTimeout(() => { null.x })
		await new Promise(done => setTimeout(done, 50))
		return "done"
	})()`)
	var network evidence.Network
	var console evidence.Console
	pump := func(methods []string, see func(message)) {
		for _, method := range methods {
			for more := true; more; {
				select {
				case m := <-b.event(session, method):
					see(m)
				default:
					more = false
				}
			}
		}
	}
	find := func() (requests map[string]evidence.RequestEntry) {
		pump(evidence.NetworkEvents, func(m message) { network.See(noon, 42, m.SessionID, m.Method, m.Params) })
		requests = map[string]evidence.RequestEntry{}
		for _, e := range decode[evidence.RequestEntry](t, network.Part()).Entries {
			requests[strings.TrimPrefix(e.URL, web.URL)] = e
		}
		return requests
	}
	var requests map[string]evidence.RequestEntry
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if requests = find(); requests["http://127.0.0.1:1/?token=REDACTED"].Failed != "" && requests["/missing/?search=REDACTED"].Bytes > 0 {
			break
		}
	}
	for url, want := range map[string]evidence.RequestEntry{
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
	for end := time.Now().Add(patience); time.Now().Before(end) && (seen["exception TypeError"] == 0 || seen["network Failed"] == 0); time.Sleep(20 * time.Millisecond) {
		pump(evidence.ConsoleEvents, func(m message) { console.See(noon, 42, m.Method, m.Params) })
		clear(seen)
		for _, e := range decode[evidence.ConsoleEntry](t, console.Part()).Entries {
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
	var n evidence.Network
	var c evidence.Console
	for _, raw := range []string{``, `{`, `[]`, `null`, `{"requestId":1}`, `{"requestId":"x","request":{"url":"%%%` + `"}}`} {
		for _, method := range append(append([]string{"X.y"}, evidence.NetworkEvents...), evidence.ConsoleEvents...) {
			n.See(noon, 1, "s", method, json.RawMessage(raw))
			c.See(noon, 1, method, json.RawMessage(raw))
		}
	}
	decode[evidence.RequestEntry](t, n.Part())
	decode[evidence.ConsoleEntry](t, c.Part())
}
