package cdpproxy

import "testing"

// TestATabIsBroughtToTheFront by its id, or on a session that is attached to it.
func TestATabIsBroughtToTheFront(t *testing.T) {
	m := &Mux{clientTargets: map[string]string{"S": "T", "S2": "T2"}}
	for _, tt := range []struct {
		method, params, session, target string
	}{
		{"Target.activateTarget", `{"targetId":"U"}`, "", "U"},
		{"Page.bringToFront", "", "S", "T"},
		{"Page.bringToFront", `{}`, "S2", "T2"},
		{"Page.reload", `{"targetId":"V"}`, "S2", ""},
		{"Target.activateTarget", `{"targetId":7}`, "", ""},
		{"Target.activateTarget", `{"targetId":"W","TARGETID":"X"}`, "", "W"},
	} {
		before := m.ActivatedAt(tt.target)
		m.noteActivation(tt.session, command{method: []byte(tt.method), params: []byte(tt.params)})
		if after := m.ActivatedAt(tt.target); (after > before) != (tt.target != "") {
			t.Errorf("%+v: %v, then %v", tt, before, after)
		}
	}
	if m.ActivatedAt("V") != 0 {
		t.Error("a reload brings nothing to the front")
	}
	for range maxNoted {
		m.NoteActivated(string(rune('a' + len(m.activated))))
	}
	if m.NoteActivated("last"); len(m.activated) > maxNoted || m.ActivatedAt("last") == 0 {
		t.Errorf("%d are noted", len(m.activated))
	}
}
