package acts

import (
	"testing"

	"leasehold/internal/boottime"
)

// TestATabIsBroughtToTheFront by its id, or on a session that is attached to it.
func TestATabIsBroughtToTheFront(t *testing.T) {
	m := on(map[string]string{"S": "T", "S2": "T2"})
	for i, tt := range []struct {
		method, params, session, target string
	}{
		{"Target.activateTarget", `{"targetId":"U"}`, "", "U"},
		{"Page.bringToFront", "", "S", "T"},
		{"Page.bringToFront", `{}`, "S2", "T2"},
		{"Page.reload", `{"targetId":"V"}`, "S2", ""},
		{"Target.activateTarget", `{"targetId":7}`, "", ""},
		{"Target.activateTarget", `{"targetId":"W","TARGETID":"X"}`, "", "W"},
	} {
		before := m.Activated(tt.target)
		m.Sent(boottime.Instant(i+1), Command{Session: []byte(tt.session), Method: []byte(tt.method), Params: []byte(tt.params)})
		if after := m.Activated(tt.target); (after > before) != (tt.target != "") {
			t.Errorf("%+v: %v, then %v", tt, before, after)
		}
	}
	if m.Activated("V") != 0 {
		t.Error("a reload brings nothing to the front")
	}
	for range maxNoted {
		m.Activate(string(rune('a' + len(m.activated))))
	}
	if m.Activate("last"); len(m.activated) > maxNoted || m.Activated("last") == 0 {
		t.Errorf("%d are noted", len(m.activated))
	}
}
