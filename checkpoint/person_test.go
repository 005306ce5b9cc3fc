package checkpoint

import (
	"testing"
	"time"
)

func TestPersonsInWords(t *testing.T) {
	for _, c := range []struct {
		entry      Entry
		text, said string
		act        bool
	}{
		{Entry{Name: PersonAsked, Text: "code"}, "the worker asks for a person", "code", false},
		{Entry{Name: PersonUnanswered, Text: "wait_over"}, "the worker waits for a person no more", "wait over", false},
		{Entry{Name: PersonTook, Person: "Ann", Principal: "uid:7", Text: "n"}, "Ann (uid:7) takes the session over", "n", false},
		{Entry{Name: PersonHandedBack, Person: "ann", Principal: "ann"}, "ann hands the session back", "", false},
		{Entry{Name: "new_tab", Person: "Ann", Principal: "uid:7"}, "Ann (uid:7): new tab", "", true},
		{Entry{Name: "click", Person: "Ann", Principal: "uid:7", URL: "http://a/"}, "Ann (uid:7): click http://a/", "", true},
	} {
		c.entry.Kind = KindPerson
		if text, said := c.entry.TellPerson(); text != c.text || said != c.said || c.entry.IsAct() != c.act {
			t.Errorf("%q, %q, %v, want %q, %q, %v", text, said, c.entry.IsAct(), c.text, c.said, c.act)
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
