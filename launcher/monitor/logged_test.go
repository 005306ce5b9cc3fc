package monitor

import (
	"strings"
	"testing"
)

// TestAMarkIsSeenInItsPlace: who waits for a mark is told when its line is read, and not before.
func TestAMarkIsSeenInItsPlace(t *testing.T) {
	l := newNetLog()
	first, forget := l.await("mark-1")
	other, forgetOther := l.await("mark-2")
	defer forgetOther()
	told := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	if l.read([]byte(`{"url":"mark"}`)); told(first) || told(other) {
		t.Error("another line is taken for a mark")
	}
	l.read([]byte(`{"url":"mark-1"}`))
	l.read([]byte(`{"url":"mark-1"}`))
	if forget(); !told(first) || told(other) {
		t.Errorf("mark 1: %v, mark 2: %v", told(first), told(other))
	}
}

// TestALogIsReadWithoutPausesWhileSomebodyWaits for it.
func TestALogIsReadWithoutPausesWhileSomebodyWaits(t *testing.T) {
	l := newNetLog()
	hurries := func() bool {
		select {
		case <-l.hurried():
			return true
		default:
			return false
		}
	}
	slow, slower := l.hasten(), l.hasten()
	if slow(); !hurries() {
		t.Error("it pauses, and somebody still waits")
	}
	if slower(); hurries() {
		t.Error("it does not pause, and nobody waits")
	}
}

// TestALogIsNotMarkedWithoutAPage: then it is not known how far it is read.
func TestALogIsNotMarkedWithoutAPage(t *testing.T) {
	m := New(nil)
	if err := m.ReadNetLog(strings.NewReader(""), nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := m.AwaitLogged(t.Context()); err == nil || !strings.Contains(err.Error(), "no page is open") {
		t.Errorf("%v", err)
	}
}
