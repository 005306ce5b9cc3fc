package signin

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"leasehold/cdpproxy"
)

// TestWhoAnsweredForTheSite: a page that was answered under a certificate that is not valid, on its way or in
// a part of it, gets nothing more; what needs no certificate does.
func TestWhoAnsweredForTheSite(t *testing.T) {
	for name, tt := range map[string]struct{ method, params, by string }{
		"valid":            {eventReceived, `{"response":{"url":"https://shop.example/login","securityState":"secure"}}`, ""},
		"not valid":        {eventReceived, `{"response":{"url":"https://shop.example/login","securityState":"insecure"}}`, "https://shop.example "},
		"a part of it":     {eventReceived, `{"type":"Script","response":{"url":"https://cdn.example/a.js","securityState":"insecure"}}`, "https://cdn.example "},
		"a redirect":       {"Network.requestWillBeSent", `{"redirectResponse":{"url":"https://shop.example/","securityState":"insecure"}}`, "https://shop.example "},
		"a request":        {"Network.requestWillBeSent", `{"request":{"url":"https://shop.example/"}}`, ""},
		"no certificate":   {eventReceived, `{"response":{"url":"http://shop.example/login","securityState":"insecure"}}`, ""},
		"another event":    {"Network.loadingFinished", `{"response":{"url":"https://shop.example/","securityState":"insecure"}}`, ""},
		"what is no event": {eventReceived, `[]`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := &page{}
			p.heard(cdpproxy.Event{Method: tt.method, Params: json.RawMessage(tt.params)})
			p.heard(cdpproxy.Event{Method: eventReceived, Params: json.RawMessage(`{"response":{"url":"https://later.example/","securityState":"secure"}}`)})
			err := p.genuine()
			if errors.Is(err, errImpostor) != (tt.by != "") || err != nil && !strings.HasPrefix(err.Error(), tt.by) {
				t.Errorf("got %v, want %q", err, tt.by)
			}
		})
	}
}
