package cdpproxy

import (
	"fmt"
	"testing"

	"leasehold/internal/boottime"
)

// testEffect judges by names of the tests' own.
func testEffect(method, _ []byte) (acts, types bool) {
	return string(method) != "Test.look", string(method) == "Test.type"
}

// TestActivityIsNotedByTarget: when a command acts or types is noted for the target that
// its session is attached to, and for every target if that is not known.
func TestActivityIsNotedByTarget(t *testing.T) {
	for _, tt := range []struct {
		method, session  string
		acted, typed     boottime.Instant // on the target of the session
		actedOn, typedIn boottime.Instant // on another
	}{
		{"Test.look", "S", 0, 0, 0, 0},
		{"Test.act", "S", 5, 0, 0, 0},
		{"Test.type", "S", 5, 5, 0, 0},
		{"Test.look", "", 0, 0, 0, 0},
		{"Test.act", "", 5, 0, 5, 0},
		{"Test.type", "", 5, 5, 5, 5},
	} {
		m := &Mux{effect: testEffect, clientTargets: map[string]string{"S": "T"}}
		m.noteActivity(5, stagedCommand{command: command{method: []byte(tt.method), sessionID: []byte(tt.session)}})
		if m.Acted() != tt.acted || m.ActedOn("T") != tt.acted || m.Typed("T") != tt.typed || m.ActedOn("other") != tt.actedOn || m.Typed("other") != tt.typedIn {
			t.Errorf("%s on %q: acted at %d, on T %d, on another %d; typed into T at %d, into another %d",
				tt.method, tt.session, m.Acted(), m.ActedOn("T"), m.ActedOn("other"), m.Typed("T"), m.Typed("other"))
		}
	}
}

// TestTheEffectIsJudgedByMethodAndParams: the Mux passes both on.
func TestTheEffectIsJudgedByMethodAndParams(t *testing.T) {
	var got string
	m := &Mux{effect: func(method, params []byte) (acts, types bool) {
		got = fmt.Sprintf("%s %s", method, params)
		return false, true
	}}
	m.noteActivity(5, stagedCommand{command: command{method: []byte("Page.navigate"), params: []byte(`{"url":"a"}`)}})
	if got != `Page.navigate {"url":"a"}` || m.Acted() != 0 || m.Typed("any") != 0 {
		t.Errorf("asked about %q, acted at %d, typed at %d", got, m.Acted(), m.Typed("any"))
	}
}

// TestALateNoteDoesNotTurnTimeBack: each connection notes what it sent, so that a later
// command may be noted first.
func TestALateNoteDoesNotTurnTimeBack(t *testing.T) {
	m := &Mux{effect: testEffect, clientTargets: map[string]string{"S": "T"}}
	for _, at := range []boottime.Instant{9, 5} {
		m.noteActivity(at, stagedCommand{command: command{method: []byte("Test.type"), sessionID: []byte("S")}})
	}
	if m.Acted() != 9 || m.ActedOn("T") != 9 || m.Typed("T") != 9 {
		t.Errorf("acted at %d, on the target at %d, typed at %d, want 9", m.Acted(), m.ActedOn("T"), m.Typed("T"))
	}
}

// TestAFullMapOfTimesIsEmptied: what is noted then counts for every target.
func TestAFullMapOfTimesIsEmptied(t *testing.T) {
	noted := map[string]boottime.Instant{}
	for i := range maxNoted {
		noteTime(&noted, fmt.Sprint(i), 1)
	}
	noteTime(&noted, "T", 2)
	if m := (&Mux{typedAt: noted}); m.Typed("any") != 2 || len(noted) != 1 {
		t.Errorf("typed at %d, %d noted", m.Typed("any"), len(noted))
	}
}
