package monitor

import (
	"encoding/json"
	"testing"

	"leasehold/cdpproxy"
	"leasehold/checkpoint/ledger"
	"leasehold/internal/boottime"
)

// TestWhoAsksForHTTPAuthenticationIsKnown: an answer to a navigation, of a scheme for which
// a browser asks its user.
func TestWhoAsksForHTTPAuthenticationIsKnown(t *testing.T) {
	for params, want := range map[string]bool{
		`{"requestId":"A1","headers":{"WWW-Authenticate":"Basic realm=\"x\""},"statusCode":401}`:   true,
		`{"requestId":"A1","headers":{"www-authenticate":"Digest realm=\"x\""},"statusCode":401}`:  true,
		`{"requestId":"A1","headers":{"Proxy-Authenticate":"Basic realm=\"x\""},"statusCode":407}`: true,
		`{"requestId":"A1","headers":{"WWW-Authenticate":"Bearer"},"statusCode":401}`:              false,
		`{"requestId":"A1","headers":{"WWW-Authenticate":"Basic"},"statusCode":200}`:               false,
		`{"requestId":"A1","headers":{"X":"\"statusCode\":401"},"statusCode":200}`:                 false,
		`{"requestId":"77.4","headers":{"WWW-Authenticate":"Basic"},"statusCode":401}`:             false,
		`{"requestId":"A1","headers":{},"statusCode":401}`:                                         false,
		`"statusCode":401`: false,
	} {
		talk := newTalk()
		talk.observe(cdpproxy.Event{Session: "S", Method: ledger.Headers, Params: json.RawMessage(params)}, 5)
		if _, asked := talk.of("S"); (asked == 5) != want {
			t.Errorf("%s: asked at %d", params, asked)
		}
	}
}

func TestTheLastRequestOfASessionIsKnown(t *testing.T) {
	talk := newTalk()
	for i, session := range []string{"S", "T", "S", "T"} {
		talk.observe(cdpproxy.Event{Session: session, Method: ledger.Sent}, boottime.Instant(7+i))
	}
	s, _ := talk.of("S")
	other, _ := talk.of("T")
	if s != 9 || other != 10 {
		t.Errorf("S sent at %d, T at %d; want 9 and 10", s, other)
	}
	if talk.forget(); len(talk.sent)+len(talk.asks) > 0 {
		t.Error("what is forgotten is known")
	}
}

// TestTheFirstDocumentOfASessionIsKnown: blank pages do not count, and the same URL again
// is another document.
func TestTheFirstDocumentOfASessionIsKnown(t *testing.T) {
	for _, tt := range []struct {
		script              string
		first, typed, acted bool
	}{
		{"page S T\nstarts S T L\ngoes S T L", true, false, false},
		{"page S T\ngoes S T B about:blank\nstarts S T L\ngoes S T L", true, false, false},
		{"page S T\nstarts S T L\ngoes S T L\nstarts S T M\ngoes S T M", false, false, false},
		{"page S T\nstarts S T L\ngoes S T L\nstarts S T M\ngoes S T M http://b.example/", false, false, false},
		{"page R U\nstarts R U L\ngoes R U L\npage S T\nstarts S T M\ngoes S T M", false, false, false},
		{"page S T\nstarts S T L\ngoes S T L\ntypes T\nacts T", true, true, true},
		{"page S T\nstarts S T L\ngoes S T L\ntypes T\nstarts S T M\ngoes S T M", false, false, false},
		{"page S T\nstarts S T L\ngoes S T L\nframe S2 S F\ntypes F", true, true, false},
	} {
		n := newNavigations()
		observeScript(t, n, tt.script)
		typed, acted, begun, first := n.used("T")
		if first != tt.first || (typed != 0 && typed >= begun) != tt.typed || (acted != 0 && acted >= begun) != tt.acted {
			t.Errorf("%s: first %v, typed at %d, acted at %d, begun at %d; want %+v", tt.script, first, typed, acted, begun, tt)
		}
	}
	if typed, _, begun, first := newNavigations().used("T"); typed == 0 || begun != 0 || first {
		t.Error("of a page that is not known anything may have been done")
	}
}
