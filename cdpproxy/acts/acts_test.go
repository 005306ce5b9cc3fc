package acts

import (
	"fmt"
	"testing"

	"leasehold/cdpproxy/methods"
	"leasehold/internal/boottime"
)

// on returns Acts of a browser with these sessions, by the targets that they are attached to.
func on(targets map[string]string) *Acts {
	return &Acts{effect: testEffect, attached: func(session []byte) (target, context string) { return targets[string(session)], "" }}
}

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
		m := on(map[string]string{"S": "T"})
		m.Sent(5, Command{Method: []byte(tt.method), Session: []byte(tt.session)})
		if m.Last() != tt.acted || m.On("T") != tt.acted || m.Typed("T") != tt.typed || m.On("other") != tt.actedOn || m.Typed("other") != tt.typedIn {
			t.Errorf("%s on %q: acted at %d, on T %d, on another %d; typed into T at %d, into another %d",
				tt.method, tt.session, m.Last(), m.On("T"), m.On("other"), m.Typed("T"), m.Typed("other"))
		}
	}
}

// TestTheEffectIsJudgedByMethodAndParams: it gets both.
func TestTheEffectIsJudgedByMethodAndParams(t *testing.T) {
	var got string
	m := &Acts{effect: func(method, params []byte) (acts, types bool) {
		got = fmt.Sprintf("%s %s", method, params)
		return false, true
	}}
	m.Sent(5, Command{Method: []byte("Page.navigate"), Params: []byte(`{"url":"a"}`)})
	if got != `Page.navigate {"url":"a"}` || m.Last() != 0 || m.Typed("any") != 0 {
		t.Errorf("asked about %q, acted at %d, typed at %d", got, m.Last(), m.Typed("any"))
	}
}

// TestALateNoteDoesNotTurnTimeBack: each connection notes what it sent, so that a later
// command may be noted first.
func TestALateNoteDoesNotTurnTimeBack(t *testing.T) {
	m := on(map[string]string{"S": "T"})
	for _, at := range []boottime.Instant{9, 5} {
		m.Sent(at, Command{Method: []byte("Test.type"), Session: []byte("S")})
	}
	if m.Last() != 9 || m.On("T") != 9 || m.Typed("T") != 9 {
		t.Errorf("acted at %d, on the target at %d, typed at %d, want 9", m.Last(), m.On("T"), m.Typed("T"))
	}
}

// TestAFullMapOfTimesIsEmptied: what is noted then counts for every target.
func TestAFullMapOfTimesIsEmptied(t *testing.T) {
	noted := map[string]boottime.Instant{}
	for i := range maxNoted {
		noteTime(&noted, fmt.Sprint(i), 1)
	}
	noteTime(&noted, "T", 2)
	if m := (&Acts{typed: noted}); m.Typed("any") != 2 || len(noted) != 1 {
		t.Errorf("typed at %d, %d noted", m.Typed("any"), len(noted))
	}
}

// TestACommandThatDoesNothingIsNotKept: it takes no memory either, on a session as Chrome names them.
func TestACommandThatDoesNothingIsNotKept(t *testing.T) {
	a := on(nil)
	c := Command{Method: []byte("Test.look"), Session: []byte("0123456789ABCDEF0123456789ABCDEF"), Params: []byte(`{}`)}
	if n := testing.AllocsPerRun(100, func() { a.Sent(1, c) }); n != 0 || len(a.acted) > 0 {
		t.Errorf("%v allocations, acted at %v", n, a.acted)
	}
}

// TestTheFirstMethodThatLastsIsKnown: one of the launcher's own is none.
func TestTheFirstMethodThatLastsIsKnown(t *testing.T) {
	a := on(nil)
	for _, tt := range []struct {
		listed *methods.Method
		want   string
	}{{nil, ""}, {&methods.Method{Name: "A", Effect: methods.Sets}, ""}, {&methods.Method{Name: "B", Effect: methods.Stays}, "B"}, {&methods.Method{Name: "C", Effect: methods.Stays}, "B"}} {
		if a.Sent(1, Command{Method: []byte("Test.look"), Listed: tt.listed}); a.Lasting() != tt.want {
			t.Errorf("after %+v: %q, want %q", tt.listed, a.Lasting(), tt.want)
		}
	}
}
