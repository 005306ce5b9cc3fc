package session

import (
	"testing"
	"time"

	"leasehold/checkpoint"
)

// TestWhatGoesOnWithAnActHasNoEntryOfItsOwn: a pointer that moves between two clicks does not
// split their entry, and one that moves alone is noted.
func TestWhatGoesOnWithAnActHasNoEntryOfItsOwn(t *testing.T) {
	var a acts
	now := time.Now()
	act := func(kind ActKind, url string) checkpoint.Entry {
		return checkpoint.Entry{Kind: checkpoint.KindPerson, Name: string(kind), URL: url, Target: "T", Person: "Ann", Principal: "uid:1"}
	}
	if a.goesOn(act(ActMove, "/cart"), now) {
		t.Error("a move goes on with nothing")
	}
	if due := a.add(act(ActClick, "/cart"), now); len(due) != 1 {
		t.Fatalf("%+v", due)
	}
	if !a.goesOn(act(ActMove, "/cart"), now.Add(time.Second)) || !a.goesOn(act(ActClick, "/cart"), now.Add(time.Second)) {
		t.Error("a move, and the end of a click, do not go on with the click")
	}
	if due := a.add(act(ActClick, "/cart"), now.Add(2*time.Second)); len(due) != 0 {
		t.Errorf("the second click has an entry of its own: %+v", due)
	}
	if a.goesOn(act(ActMove, "/other"), now.Add(time.Second)) || a.goesOn(act(ActMove, "/cart"), now.Add(actsTogether)) {
		t.Error("a move on another page, or much later, goes on")
	}
	if due := a.flush(); len(due) != 1 || due[0].Name != string(ActClick) {
		t.Errorf("%+v", due)
	}
}
