package methods_test

import (
	"testing"

	"leasehold/cdpproxy/methods"
)

// TestWhatPassesWhileAPersonHasTheSession: of the commands that drive, only those that let a
// paused request go as it is, and the scripts that do nothing.
func TestWhatPassesWhileAPersonHasTheSession(t *testing.T) {
	for _, tt := range []struct {
		method, params string
		passes         bool
	}{
		{"Fetch.continueRequest", `{"requestId":"r"}`, true},
		{"Fetch.continueRequest", `{"requestId":"r","interceptResponse":true}`, true},
		{"Fetch.continueRequest", `{"requestId":"r","url":"http://a.test/"}`, false},
		{"Fetch.continueRequest", `{"requestId":"r","method":"POST"}`, false},
		{"Fetch.continueRequest", `{"requestId":"r","postData":""}`, false},
		{"Fetch.continueRequest", `{"requestId":"r","headers":[]}`, false},
		{"Fetch.continueRequest", `{"requestId":"r","ur\u006c":"http://a.test/"}`, false},
		{"Fetch.continueRequest", `{"requestId":"r","requestId":"s"}`, false},
		{"Fetch.continueRequest", `{"requestId":"r","new":1}`, false},
		{"Fetch.continueResponse", `{"requestId":"r"}`, true},
		{"Fetch.continueResponse", `{"requestId":"r","responseCode":200}`, false},
		{"Fetch.continueResponse", `{"requestId":"r","responseHeaders":[]}`, false},
		{"Fetch.continueWithAuth", `{"requestId":"r","authChallengeResponse":{"response":"Default"}}`, true},
		{"Fetch.continueWithAuth", `{"requestId":"r","authChallengeResponse":{"response":"CancelAuth"}}`, false},
		{"Fetch.continueWithAuth", `{"requestId":"r","authChallengeResponse":{"response":"ProvideCredentials","username":"a"}}`, false},
		{"Fetch.continueWithAuth", `{"requestId":"r","authChallengeResponse":[]}`, false},
		{"Fetch.continueWithAuth", `{"requestId":"r"}`, false},
		{"Fetch.failRequest", `{"requestId":"r","errorReason":"Aborted"}`, false},
		{"Fetch.fulfillRequest", `{"requestId":"r","responseCode":200}`, false},
		{"Fetch.enable", ``, false},
		{"Page.addScriptToEvaluateOnNewDocument", `{"source":"","worldName":"w"}`, true},
		{"Page.addScriptToEvaluateOnNewDocument", `{"source":"//# sourceURL=pptr:internal","worldName":"w"}`, true},
		{"Page.addScriptToEvaluateOnNewDocument", `{"source":"//\nalert(1)"}`, false},
		{"Page.addScriptToEvaluateOnNewDocument", `{"source":"//\u2028alert(1)"}`, false},
		{"Page.addScriptToEvaluateOnNewDocument", `{"source":"//","source":"alert(1)"}`, false},
		{"Page.addScriptToEvaluateOnNewDocument", `{"source":7}`, false},
		{"Page.addScriptToEvaluateOnNewDocument", `{"source":"alert(1)"}`, false},
		{"Network.setExtraHTTPHeaders", `{"headers":{}}`, false},
	} {
		m := methods.Find([]byte(tt.method))
		if !m.Drives() {
			t.Errorf("%s does not drive", tt.method)
		}
		if got := methods.PassesWhileDriven(m, []byte(tt.params)); got != tt.passes {
			t.Errorf("%s %s passes: %v", tt.method, tt.params, got)
		}
	}
}
