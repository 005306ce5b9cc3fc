package checkpoint

import "strings"

// TellPerson puts an entry of KindPerson into words: who did what, and what they or the worker
// said about it.
func (e Entry) TellPerson() (text, said string) {
	who := e.who()
	switch e.Name {
	case PersonAsked:
		return "the worker asks for a person", e.Text
	case PersonUnanswered:
		return "the worker waits for a person no more", strings.ReplaceAll(e.Text, "_", " ")
	case PersonTook:
		return who + " takes the session over", e.Text
	case PersonHandedBack:
		return who + " hands the session back", e.Text
	}
	return strings.TrimSpace(who + ": " + strings.ReplaceAll(e.Name, "_", " ") + " " + e.URL), e.Text
}

// who names the person of an entry, and who they are, if that is known.
func (e Entry) who() string {
	if e.Principal != "" && e.Principal != e.Person {
		return e.Person + " (" + e.Principal + ")"
	}
	return e.Person
}
