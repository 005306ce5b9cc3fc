package cdpproxy

import (
	"fmt"
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
		m := &Mux{clientTargets: map[string]string{"S": "T"}}
		m.noteActivity(5, stagedCommand{command: command{method: []byte(tt.method), params: []byte(tt.params), sessionID: []byte("S")}})
		if (m.Acted() == 5) != tt.acts || (m.Typed("T") == 5) != tt.types || m.Typed("other") != 0 || (m.ActedOn("T") == 5) != tt.acts || m.ActedOn("other") != 0 {
			t.Errorf("%s %s: acted at %d, typed at %d and into another at %d", tt.method, tt.params, m.Acted(), m.Typed("T"), m.Typed("other"))
		}
	}
	m := &Mux{}
	m.noteActivity(7, stagedCommand{command: command{method: []byte("Input.insertText")}})
	if m.Typed("any") != boottime.Instant(7) {
		t.Error("typing into a page that is not known is typing into each")
	}
}

// TestALateNoteDoesNotTurnTimeBack: connections note what they sent on their own, so
// that a later command may be noted first.
func TestALateNoteDoesNotTurnTimeBack(t *testing.T) {
	m := &Mux{clientTargets: map[string]string{"S": "T"}}
	for _, at := range []boottime.Instant{9, 5} {
		m.noteActivity(at, stagedCommand{command: command{method: []byte("Input.insertText"), sessionID: []byte("S")}})
	}
	if m.Acted() != 9 || m.ActedOn("T") != 9 || m.Typed("T") != 9 {
		t.Errorf("acted at %d, on the target at %d, typed at %d, want 9", m.Acted(), m.ActedOn("T"), m.Typed("T"))
	}
}

// TestWhatClientsOpened: only Chrome's own answers prove it.
func TestWhatClientsOpened(t *testing.T) {
	m := &Mux{typedAt: map[string]boottime.Instant{"T": 1}}
	for _, msg := range []string{
		`{"id":1073741824,"result":{"targetId":"T"},"sessionId":"S"}`,
		`{"id":2,"result":{"frameId":"F","loaderId":"L"},"sessionId":"S"}`,
		`{"id":3,"result":{"frameId":"F"},"sessionId":"S"}`,
		`{"id":4,"result":{"result":{"type":"string","value":",\"result\":{\"targetId\":\"X\""}},"sessionId":"S"}`,
		`{"id":5,"error":{"code":1,"message":",\"result\":{\"frameId\""},"sessionId":"S"}`,
	} {
		m.noteOpened([]byte(msg))
	}
	if !m.Made("T") || !m.Navigated("L") || m.Made("X") || m.Made("") || m.Navigated("") || m.Navigated("F") {
		t.Errorf("made %v, navigated %v", m.made, m.navigated)
	}
	if m.Forget(); m.Made("T") || m.Navigated("L") || m.Typed("T") != 0 {
		t.Error("it is not forgotten")
	}
}

// TestWhatIsForgottenIsTrueOfAll: of typing, when there is no room to tell where.
func TestWhatIsForgottenIsTrueOfAll(t *testing.T) {
	noted := map[string]boottime.Instant{}
	for i := range maxNoted {
		noteTime(&noted, fmt.Sprint(i), 1)
	}
	noteTime(&noted, "T", 2)
	if m := (&Mux{typedAt: noted}); m.Typed("any") != 2 || len(noted) != 1 {
		t.Errorf("typed at %d, %d noted", m.Typed("any"), len(noted))
	}
}
