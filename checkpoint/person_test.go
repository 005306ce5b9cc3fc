package checkpoint

import (
	"testing"
	"time"
)

func TestWhatIsAnAct(t *testing.T) {
	for name, act := range map[string]bool{PersonAsked: false, PersonUnanswered: false, PersonTook: false, PersonHandedBack: false, "new_tab": true, "click": true} {
		if got := (Entry{Kind: KindPerson, Name: name}).IsAct(); got != act {
			t.Errorf("%s is an act: %v", name, got)
		}
	}
	if (Entry{Kind: KindEvent, Name: "click"}).IsAct() {
		t.Error("what a task reports is a person's act")
	}
}

// TestActsSinceTheCheckpoint: a safe checkpoint vouches for what came before it.
func TestActsSinceTheCheckpoint(t *testing.T) {
	at := time.Unix(0, 0)
	click := Entry{Kind: KindPerson, Name: "click", Person: "Ann", At: at}
	took := Entry{Kind: KindPerson, Name: PersonTook, Person: "Ann", At: at}
	s := Summarize([]Entry{took, click, {Kind: KindCheckpoint, Name: "no"}, click, {Kind: KindCheckpoint, Name: "c", Safe: true}, click})
	if len(s.Acts) != 3 || len(s.ActsSince) != 1 || s.Person == nil || s.Person.Person != "Ann" {
		t.Errorf("%+v", s)
	}
	s = Summarize([]Entry{took, click, {Kind: KindPerson, Name: PersonHandedBack, Person: "Ann"}})
	if s.Person != nil || len(s.ActsSince) != 1 {
		t.Errorf("%+v", s)
	}
}
