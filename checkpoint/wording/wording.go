// Package wording puts what a journal says into words for people: in the console, in an exported bundle,
// and in the facts of an inspection. Texts come from pages, which may be hostile: whoever shows them
// escapes them.
package wording

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"

	"leasehold/checkpoint"
	"leasehold/checkpoint/shape"
)

// Begins is what a session begins with.
const Begins = "session begins"

// Line is an entry of a journal as one line.
type Line struct {
	What  string // a word or two
	Text  string
	Notes []string // the outcome, and what else one should know about it
	// Asked says that it asked something of the site or of a person.
	Asked bool
	// Warns says that it speaks against letting the profile go.
	Warns bool
}

// Of is an entry in words; false if its kind means nothing to a person.
func Of(e checkpoint.Entry) (Line, bool) {
	l := Line{What: string(e.Kind), Text: e.URL, Warns: e.Sensitive}
	request := strings.TrimSpace(e.Method + " " + e.URL)
	switch e.Kind {
	case checkpoint.KindStart:
		l.What, l.Text = Begins, strings.TrimSpace("task "+e.Name+" of worker "+e.Text)
	case checkpoint.KindURL:
		l.What = "page"
	case checkpoint.KindStep:
		l.Text, l.Notes = e.Name, []string{e.Action}
	case checkpoint.KindCheckpoint:
		l.checkpoint(e)
	case checkpoint.KindEvent:
		l.What, l.Text = "task says", Joined(e.Name, e.Action, e.Text)
	case checkpoint.KindRequest:
		l.Asked, l.Warns, l.Text, l.Notes = true, true, request, []string{shape.Content(e.Shape), Answer(e), e.KnownBy}
		switch e.Method {
		case checkpoint.Websocket:
			l.Text = "messages on the websocket " + e.URL
		case checkpoint.Unseen:
			l.Text = "what pages may have sent, and nobody saw: " + Joined(e.URL, e.Text)
		}
	case checkpoint.KindGetWrite:
		l.What, l.Asked, l.Warns = "write by GET", true, true
		l.Text, l.Notes = "GET "+e.URL, []string{"may be a write: " + Spaced(e.Name)}
	case checkpoint.KindBlocked:
		l.What, l.Text, l.Notes = "stopped", request, []string{"failed, not sent: the session is read-only"}
	case checkpoint.KindWithheld:
		l.What, l.Text, l.Notes = "held back", request, []string{"wanted after the worker was lost, and never sent"}
	case checkpoint.KindForm:
		l.Asked, l.Text = true, request
	case checkpoint.KindDialog:
		l.Asked, l.Text, l.Notes = true, strings.TrimSpace(e.Name+" on "+e.URL), []string{e.Text}
	case checkpoint.KindDownload:
		l.Asked = true
	case checkpoint.KindUnfinished:
		l.Asked, l.What, l.Text = true, "download not finished", strings.TrimSpace(e.Text+" "+e.URL)
	case checkpoint.KindAnswer:
		l.answer(e)
	case checkpoint.KindCookie:
		return cookie(e)
	case checkpoint.KindCrash:
		l.Text, l.Warns = cmp.Or(e.URL, "a page crashed"), true
	case checkpoint.KindConnection:
		l.Text, l.Notes = Spaced(e.Name), []string{e.Text}
	case checkpoint.KindDenied:
		l.Text, l.Notes = strings.TrimSpace(e.Name+" "+e.Text), []string{e.Action}
	case checkpoint.KindTyped:
		l.Asked, l.Text = true, Typed(e)
	case checkpoint.KindPerson:
		l.person(e)
	case checkpoint.KindEnd:
		l.What, l.Text = "session ends", strings.TrimSpace(e.Name+" "+e.Text)
	case checkpoint.KindOmitted:
		l.What, l.Text, l.Notes = "left out", "entries about "+Spaced(e.Name), []string{"the journal was full, or its disk took nothing"}
	case checkpoint.KindFrame:
	default: // storage, pictures, and pages that are closed
		return Line{}, false
	}
	if e.Sensitive {
		l.Notes = append(l.Notes, "sensitive")
	}
	return l, true
}

func (l *Line) checkpoint(e checkpoint.Entry) {
	l.Text, l.Warns = e.Name, false
	if e.Safe {
		l.What = "safe checkpoint"
	} else {
		l.Notes = append(l.Notes, "not safe to resume from")
	}
	if e.ResumeFrom != "" {
		l.Notes = append(l.Notes, "named in an earlier session: the task goes on from it")
	}
	if e.Idempotent {
		l.Notes = append(l.Notes, "may be done twice: "+cmp.Or(strings.Join(e.IdempotentShapes, ", "), "what is known to be repeatable"))
	}
}

func (l *Line) answer(e checkpoint.Entry) {
	if l.Warns = true; e.SignIn != "" {
		l.Text, l.Notes = e.Asked+" led to "+e.URL, []string{"asks for a " + e.SignIn}
		return
	}
	l.Notes = []string{cmp.Or(Answer(checkpoint.Entry{Status: e.Status, Failed: e.Failed, Ended: e.Ended}), "no status")}
	l.Warns = e.Status >= http.StatusBadRequest
}

func (l *Line) person(e checkpoint.Entry) {
	l.Asked = e.IsAct()
	l.Warns = l.Asked
	text := ""
	switch e.Name {
	case checkpoint.PersonAsked:
		text = "the worker asks for a person"
	case checkpoint.PersonUnanswered:
		l.Text, l.Notes = "the worker waits for a person no more", []string{Spaced(e.Text)}
		return
	case checkpoint.PersonTook:
		text = who(e) + " takes the session over"
	case checkpoint.PersonHandedBack:
		text = who(e) + " hands the session back"
	default:
		text = strings.TrimSpace(who(e) + ": " + Spaced(e.Name) + " " + e.URL)
	}
	l.Text, l.Notes = text, []string{e.Text}
}

// cookie says what became of a cookie that may carry the account's identity; false if nothing did.
func cookie(e checkpoint.Entry) (Line, bool) {
	if e.Cookie == nil {
		return Line{}, false
	}
	l := Line{What: "cookie"}
	switch e.Cookie.What {
	case checkpoint.CookieDropped, checkpoint.CookieReplaced, checkpoint.CookieSetAgain:
		l.Text = "a cookie of " + e.Cookie.Domain + " that may carry the account's identity was " + Spaced(string(e.Cookie.What))
		if e.Cookie.By != "" {
			l.Notes = []string{"by " + Spaced(string(e.Cookie.By))}
		}
		return l, true
	case checkpoint.CookiesWritten:
		l.Text, l.Notes, l.Warns = "the worker wrote cookies by itself", []string{e.Method}, true
		return l, true
	}
	return Line{}, false
}

// Typed says of an entry of checkpoint.KindTyped into what kind of field something was typed, on which
// page, and by whom, if it was not the worker.
func Typed(e checkpoint.Entry) string {
	text := checkpoint.Field(e.Name).Words() + " on " + e.URL
	if e.Person != "" {
		return who(e) + ": " + text
	}
	return text
}

// Answer says in a few words how a request was answered. It is empty for what gets no answer, such as
// messages on a websocket.
func Answer(e checkpoint.Entry) string {
	switch {
	case e.Failed == checkpoint.AnswerUnseen:
		return "not known: its page was gone"
	case e.Failed != "" && !e.Ended:
		return "failed, and not known what became of it: " + e.Failed
	case e.Failed != "":
		return "failed: " + e.Failed
	case e.Status != 0:
		return strings.TrimSpace(fmt.Sprintf("%d %s", e.Status, http.StatusText(e.Status)))
	case e.Request != "":
		return "unanswered"
	}
	return ""
}

// who names the person of an entry, and who they are, if that is known.
func who(e checkpoint.Entry) string {
	if e.Principal != "" && e.Principal != e.Person {
		return e.Person + " (" + e.Principal + ")"
	}
	return e.Person
}

// Joined are the texts that are not empty, separated by commas.
func Joined(texts ...string) string {
	var have []string
	for _, t := range texts {
		if strings.TrimSpace(t) != "" {
			have = append(have, t)
		}
	}
	return strings.Join(have, ", ")
}

// Spaced is a name of the outside contract, written as words.
func Spaced(name string) string { return strings.ReplaceAll(name, "_", " ") }
