package cdpproxy

import (
	"testing"
)

// TestDroppedCommandsAreCounted: one of them may have been to turn on the events of a page.
func TestDroppedCommandsAreCounted(t *testing.T) {
	m := &Mux{posts: make(chan []byte, 1)}
	m.post(nil)
	m.post(nil)
	if m.Dropped() != 1 {
		t.Errorf("%d dropped, want 1", m.Dropped())
	}
}
