package monitor

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/checkpoint/site"
)

func TestCheckOrigin(t *testing.T) {
	for origin, want := range map[string]bool{
		"https://queue.example": true, "http://127.0.0.1:8080": true, "https://[2001:db8::1]:8443": true, "http://queue.example:443": true,
		"": false, "queue.example": false, "https://": false, "ws://queue.example": false, "https://Queue.example": false,
		"https://queue.example/": false, "https://queue.example/api": false, "https://queue.example:443": false, "http://queue.example:80": false,
		"https://u:p@queue.example": false, "https://*.example": false, "https://queue.example?x": false, "https://queue.example#": false,
		"https://queue.example:": false, "https://queue.exa\\mple": false, "file://x": false,
	} {
		if got := CheckOrigin(origin); got != want {
			t.Errorf("%q: %t, want %t", origin, got, want)
		}
	}
}

func TestTheGuardDecides(t *testing.T) {
	const own = "https://queue.example"
	tagging := Rules{TokenOrigins: []string{own}, Token: 42}
	reading := Rules{ReadOnly: true, TokenOrigins: []string{own}, Token: 42}
	for _, tt := range []struct {
		rules       Rules
		method, url string
		headers     map[string]string
		want        string // part of the command
		tagged      bool
	}{
		{reading, "POST", own + "/x", nil, "BlockedByClient", false},
		{reading, "DELETE", "https://a.example/", nil, "BlockedByClient", false},
		{reading, "PROPFIND", "https://a.example/", nil, "BlockedByClient", false}, // what is not known to be safe is not
		{reading, "post", "https://a.example/", nil, "BlockedByClient", false},
		{reading, "OPTIONS", "https://a.example/", nil, "BlockedByClient", false},
		{reading, "OPTIONS", own + "/x", map[string]string{"Access-Control-Request-Method": "GET", "Accept": "y"}, "Fetch.continueRequest", true}, // a preflight
		{reading, "GET", "https://a.example/", nil, "Fetch.continueRequest", false},
		{reading, "HEAD", own + "/x", nil, "Fetch.continueRequest", true},
		{tagging, "POST", own + "/x", map[string]string{"leasehold-TOKEN": "99", "Accept": "y"}, "Fetch.continueRequest", true},
		{tagging, "POST", own + ":8443/x", nil, "Fetch.continueRequest", false},
		{tagging, "POST", own + ".evil.example/x", nil, "Fetch.continueRequest", false},
		{tagging, "POST", "https://evil.example/" + own + "/", nil, "Fetch.continueRequest", false},
		{tagging, "POST", "https://queue.example@evil.example/", nil, "Fetch.continueRequest", false},
		{tagging, "POST", "http://queue.example/", nil, "Fetch.continueRequest", false},
	} {
		var p pausedRequest
		p.RequestID, p.Request.Method, p.Request.URL, p.Request.Headers = "r", tt.method, tt.url, tt.headers
		method, params := tt.rules.decide(p)
		b, err := json.Marshal(params)
		text := method + " " + string(b)
		if err != nil || !strings.Contains(text, tt.want) || !strings.Contains(text, `"requestId":"r"`) {
			t.Errorf("%s %s: %s, %v", tt.method, tt.url, text, err)
		}
		if tagged := strings.Contains(text, `{"name":"Leasehold-Token","value":"42"}`); tagged != tt.tagged || strings.Contains(text, `"99"`) || tt.headers != nil && !strings.Contains(text, `"Accept"`) {
			t.Errorf("%s %s: %s", tt.method, tt.url, text)
		}
	}
}

// resolved is a browser that keeps what was asked of it.
type resolved []string

func (r *resolved) Call(_ context.Context, _, method string, _, _ any) error {
	*r = append(*r, method)
	return nil
}

func (r *resolved) Post(_, method string, _ any) { *r = append(*r, method) }

func (r *resolved) Resolve(session, requestID, method string, _ any) {
	*r = append(*r, session+" "+requestID+" "+method)
}

// TestTheGuardReportsWhatItFails: every request that is paused is decided about once, and of
// those that are failed the journal has the unsafe ones.
func TestTheGuardReportsWhatItFails(t *testing.T) {
	paused := func(method string) cdpproxy.Event {
		return cdpproxy.Event{Session: "B", Method: eventPaused, Params: fmt.Appendf(nil, `{"requestId":"1","frameId":"F","request":{"url":"http://a.test/","method":%q}}`, method)}
	}
	f, err := site.Parse([]byte(`{name: a, origins: ["http://a.test"], requests: [{shape: "GET /", is: write}]}`))
	if err != nil {
		t.Fatal(err)
	}
	book, _ := site.NewBook([]site.File{f})
	files := site.Source(func() *site.Book { return book })
	transport := cdpproxy.Event{Session: "S", Method: eventWebTransport, Params: []byte(`{"url":"https://a.test/"}`)}
	for name, tt := range map[string]struct {
		rules    Rules
		event    cdpproxy.Event
		asked    string // after Fetch.enable
		reported string
	}{
		"an unsafe request of a read-only session": {Rules{ReadOnly: true}, paused("POST"), "B 1 Fetch.failRequest", "blocked POST http://a.test/"},
		"a safe request of a read-only session":    {Rules{ReadOnly: true}, paused("GET"), "B 1 Fetch.continueRequest", ""},
		"a GET that writes of a check":             {Rules{ReadOnly: true, ByFiles: true}, paused("GET"), "B 1 Fetch.failRequest", "blocked GET http://a.test/"},
		"a GET for which a check asks":             {Rules{ReadOnly: true, ByFiles: true, Asked: []string{"http://a.test/"}}, paused("GET"), "B 1 Fetch.continueRequest", ""},
		"a HEAD of a check":                        {Rules{ReadOnly: true, ByFiles: true}, paused("HEAD"), "B 1 Fetch.continueRequest", ""},
		"an unsafe request of ended pages":         {Rules{Ended: true}, paused("POST"), "B 1 Fetch.failRequest", "withheld POST http://a.test/"},
		"a safe request of ended pages":            {Rules{Ended: true}, paused("GET"), "B 1 Fetch.failRequest", ""},
		"the one page that may go on":              {Rules{Ended: true, Pass: "F"}, paused("POST"), "B 1 Fetch.continueRequest", ""},
		"an event without an id":                   {Rules{Ended: true}, cdpproxy.Event{Method: eventPaused, Params: []byte(`{}`)}, "", ""},
		"WebTransport in a read-only session":      {Rules{ReadOnly: true}, transport, "", "request WEBTRANSPORT https://a.test/"},
		"WebTransport in another session":          {Rules{TokenOrigins: []string{"http://a.test"}}, transport, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var asked resolved
			reported := ""
			known := &harmless{}
			known.sites.Store(&files)
			g := newGuard(&asked, known, func(e checkpoint.Entry) { reported += fmt.Sprintf("%s %s %s", e.Kind, e.Method, e.URL) })
			if err := g.Enforce(t.Context(), tt.rules); err != nil {
				t.Fatal(err)
			}
			g.observe(tt.event)
			if got := strings.Join(asked, "; "); got != strings.TrimSuffix("Fetch.enable; "+tt.asked, "; ") || reported != tt.reported {
				t.Errorf("asked %q, reported %q, want %+v", got, reported, tt)
			}
		})
	}
}
