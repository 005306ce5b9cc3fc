package httpapi

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"leasehold/launcher/api"
)

// Playwright shows the reason of an upgrade that is refused, and of a discovery that is
// refused only the status.
func TestPlaywrightIsToldWhatIsWrongWithAQuery(t *testing.T) {
	for name, c := range map[string]struct {
		o     Options
		query string
		field string
	}{
		"a parameter that there is not": {Options{}, "?worker=w&task=t&nosuch=1", "nosuch"},
		"too long a wait":               {Options{}, "?worker=w&task=t&wait=999h", "wait"},
		"with an API token":             {Options{Gate: gate(aToken)}, "?token=" + aToken + "&wait=999h", "wait"},
	} {
		t.Run(name, func(t *testing.T) {
			f := serve(t, c.o, map[string]any{"Version": chromium})
			r, body := f.request("GET", "/profiles/p/json/version/"+c.query, "")
			var version struct{ WebSocketDebuggerURL string }
			if err := json.Unmarshal([]byte(body), &version); err != nil || r.StatusCode != http.StatusOK {
				t.Fatalf("%s %s (%v)", r.Status, body, err)
			}
			if strings.Contains(body, aToken) {
				t.Errorf("the answer repeats the API token: %s", body)
			}
			f.wantCalls("Version")
			address := strings.TrimPrefix(version.WebSocketDebuggerURL, "ws://"+strings.TrimPrefix(f.URL, "http://"))
			for range 2 {
				r, body = f.request("GET", address, "", upgradeHeaders...)
				if p := problemOf(t, r, body); p.Code != api.CodeInvalidRequest || p.Field != c.field || !strings.Contains(r.Status, "invalid_request: "+c.field+": ") {
					t.Errorf("the upgrade of %s: %s %+v", address, r.Status, p)
				}
			}
			f.wantCalls()
		})
	}
	// Who may not open the profile is refused at once, and so is a query that cannot be read.
	f := serve(t, Options{Gate: gate(aToken)}, map[string]any{})
	if r, _ := f.request("GET", "/profiles/p/json/version/?nosuch=1", ""); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a token: %s", r.Status)
	}
	f = serve(t, Options{}, map[string]any{})
	if r, _ := f.request("GET", "/profiles/p/json/version/?a=%zz", ""); r.StatusCode != http.StatusBadRequest {
		t.Errorf("a query that cannot be read: %s", r.Status)
	}
}
