package cdpproxy

import (
	"testing"

	"leasehold/internal/boottime"
)

// TestWhatActsOnAPage: what loads and looks does not, all else does, and what is not
// known, too.
func TestWhatActsOnAPage(t *testing.T) {
	for _, tt := range []struct {
		method, params string
		acts, types    bool
	}{
		{"Page.navigate", `{"url":"https://shop.example/?a=1\u0026b=2"}`, false, false},
		{"Page.navigate", `{"url":"javascript:pay()"}`, true, false},
		{"Page.navigate", `{"url":" Java\nScript:pay()"}`, true, false},
		{"Page.navigate", `{"url":"\u006aavascript:pay()"}`, true, false},
		{"Page.navigate", `{"url":"https://shop.example/javascript:x"}`, false, false},
		{"Page.navigate", `{"url":7}`, true, false},
		{"Page.captureScreenshot", ``, false, false},
		{"Network.enable", ``, false, false},
		{"Network.replayXHR", ``, true, false},
		{"Lease.step", `{"name":"x"}`, false, false},
		{"Page.reload", ``, true, false},
		{"Runtime.evaluate", `{"expression":"1"}`, true, false},
		{"Runtime.callFunctionOn", ``, true, false},
		{"DOM.setFileInputFiles", ``, true, false},
		{"Input.dispatchMouseEvent", ``, true, false},
		{"Input.dispatchKeyEvent", ``, true, true},
		{"Input.insertText", ``, true, true},
		{"Input.imeSetComposition", ``, true, true},
		{"Prophecy.tell", ``, true, false},
	} {
		m := &Mux{attached: map[string]string{"S": "T"}}
		m.noteActs(5, staged{command: command{method: []byte(tt.method), params: []byte(tt.params), session: []byte("S")}})
		if (m.Acted() == 5) != tt.acts || (m.Typed("T") == 5) != tt.types || m.Typed("other") != 0 {
			t.Errorf("%s %s: acted at %d, typed at %d and into another at %d", tt.method, tt.params, m.Acted(), m.Typed("T"), m.Typed("other"))
		}
	}
	m := &Mux{}
	m.noteActs(7, staged{command: command{method: []byte("Input.insertText")}})
	if m.Typed("any") != boottime.Instant(7) {
		t.Error("typing into a page that is not known is typing into each")
	}
}
