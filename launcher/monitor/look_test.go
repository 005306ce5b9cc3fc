package monitor

import (
	"encoding/json"
	"testing"

	"leasehold/cdpproxy"
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
		talk.observe(cdpproxy.Event{Session: "S", Method: eventResponseExtra, Params: json.RawMessage(params)}, 5)
		if _, asked := talk.of("S"); (asked == 5) != want {
			t.Errorf("%s: asked at %d", params, asked)
		}
	}
}

func TestTheLastRequestOfASessionIsKnown(t *testing.T) {
	talk := newTalk()
	for i, session := range []string{"S", "T", "S", "T"} {
		talk.observe(cdpproxy.Event{Session: session, Method: eventRequest}, boottime.Instant(7+i))
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
