package cdpproxy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"leasehold/internal/boottime"
)

func TestCommandLog(t *testing.T) {
	var log commandLog
	log.setTarget("S1", "T1")
	long := strings.Repeat("m", 100)
	for _, c := range [][2]string{{"", "Browser.getVersion"}, {"S1", "Page.navigate"}, {strings.Repeat("s", 100), long}} {
		log.add([]byte(c[0]), []byte(c[1]))
	}
	at := boottime.Now()
	log.stamp(3, at)
	log.add(nil, []byte("Never.sent"))
	got, missed := log.drain()
	if len(got) != 3 || missed != 0 {
		t.Fatalf("%+v, %d missed", got, missed)
	}
	if got[0].Method != "Browser.getVersion" || got[0].Session != "" || got[0].Target != "" || got[0].Passed != at || time.Since(got[0].At).Abs() > time.Minute {
		t.Errorf("%+v", got[0])
	}
	if got[1].Session != "S1" || got[1].Target != "T1" || got[1].Method != "Page.navigate" {
		t.Errorf("%+v", got[1])
	}
	if !strings.HasPrefix(long, got[2].Method) || len(got[2].Session) != 32 {
		t.Errorf("%+v", got[2])
	}
	if again, missed := log.drain(); len(again) != 0 || missed != 0 {
		t.Errorf("taken twice: %+v, %d", again, missed)
	}
	for i := range 3 * commandLogLength {
		log.add(nil, fmt.Append(nil, "A.", i))
	}
	log.stamp(3*commandLogLength, at)
	got, missed = log.drain()
	if len(got) != commandLogLength || missed != 2*commandLogLength || got[0].Method != fmt.Sprint("A.", 2*commandLogLength) || got[commandLogLength-1].Method != fmt.Sprint("A.", 3*commandLogLength-1) {
		t.Errorf("%d, %d missed, from %v", len(got), missed, got[0])
	}
}

// TestCommandsOnTheirWayAreFollowedLater: a command has no time until it passed the fence. Who
// follows the log gets it then, and never one that was refused.
func TestCommandsOnTheirWayAreFollowedLater(t *testing.T) {
	s := newClientSession(nil, "B", 1)
	add := func(methods ...string) {
		for _, m := range methods {
			s.log.add(nil, []byte(m))
		}
	}
	n := 0
	follows := func(want ...string) {
		t.Helper()
		var commands []Command
		commands, n = s.CommandsAfter(n)
		var got []string
		for _, c := range commands {
			got = append(got, c.Method)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	add("A.a", "A.b")
	s.log.stamp(1, boottime.Now()) // b passed, and a was refused
	add("A.c")
	follows("A.b")
	follows()
	s.log.stamp(1, boottime.Now())
	follows("A.c")
	add("A.refused")
	add("A.d")
	s.log.stamp(1, boottime.Now())
	follows("A.d")
	if _, last := s.CommandsAfter(-1); last != n {
		t.Errorf("%d, want %d", last, n)
	}
	if commands, missed := s.Commands(); len(commands) != 3 || missed != 0 {
		t.Errorf("the evidence has %v", commands)
	}
}

// TestCommandLogAllocatesNothing: the log is written on the data path.
func TestCommandLogAllocatesNothing(t *testing.T) {
	var log commandLog
	session, method, at := []byte("0123456789ABCDEF0123456789ABCDEF"), []byte("Runtime.evaluate"), boottime.Now()
	one := func() {
		log.add(session, method)
		log.stamp(1, at)
	}
	for range commandLogLength {
		one()
	}
	if n := testing.AllocsPerRun(1000, one); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkCommandLog(b *testing.B) {
	var log commandLog
	session, method, at := []byte("0123456789ABCDEF0123456789ABCDEF"), []byte("Runtime.evaluate"), boottime.Now()
	b.ReportAllocs()
	for b.Loop() {
		log.add(session, method)
		log.stamp(1, at)
	}
}
