package wording

import (
	"testing"

	"leasehold/checkpoint"
)

func TestLines(t *testing.T) {
	const u = "https://a/"
	for _, c := range []struct {
		entry checkpoint.Entry
		line  string // WHAT: TEXT (NOTES), with ? for what asked and ! for what warns; "": none
	}{
		{checkpoint.Entry{Kind: checkpoint.KindStart, Name: "t", Text: "w"}, "session begins: task t of worker w"},
		{checkpoint.Entry{Kind: checkpoint.KindURL, URL: u, Sensitive: true}, "page: " + u + " (sensitive) !"},
		{checkpoint.Entry{Kind: checkpoint.KindStep, Name: "pay", Action: "payment"}, "step: pay (payment)"},
		{checkpoint.Entry{Kind: checkpoint.KindCheckpoint, Name: "cart", Safe: true, Sensitive: true}, "safe checkpoint: cart (sensitive)"},
		{checkpoint.Entry{Kind: checkpoint.KindCheckpoint, Name: "cart", Safe: true, ResumeFrom: "fill"}, "safe checkpoint: cart (named in an earlier session: the task goes on from it)"},
		{checkpoint.Entry{Kind: checkpoint.KindCheckpoint, Name: "half", Idempotent: true, IdempotentShapes: []string{"a", "b"}}, "checkpoint: half (not safe to resume from, may be done twice: a, b)"},
		{checkpoint.Entry{Kind: checkpoint.KindEvent, Name: "note", Action: "export", Text: "half"}, "task says: note, export, half"},
		{checkpoint.Entry{Kind: checkpoint.KindRequest, Method: "POST", URL: u, Request: "1", KnownBy: "site a, line 3"}, "request: POST " + u + " (unanswered, site a, line 3) ? !"},
		{checkpoint.Entry{Kind: checkpoint.KindRequest, Method: checkpoint.Websocket, URL: u}, "request: messages on the websocket " + u + " ? !"},
		{checkpoint.Entry{Kind: checkpoint.KindRequest, Method: checkpoint.Unseen, Text: "a page ended"}, "request: what pages may have sent, and nobody saw: a page ended ? !"},
		{checkpoint.Entry{Kind: checkpoint.KindGetWrite, URL: u, Name: "by_dialog"}, "write by GET: GET " + u + " (may be a write: by dialog) ? !"},
		{checkpoint.Entry{Kind: checkpoint.KindBlocked, Method: "PUT", URL: u}, "stopped: PUT " + u + " (failed, not sent: the session is read-only)"},
		{checkpoint.Entry{Kind: checkpoint.KindWithheld, Method: "PUT", URL: u}, "held back: PUT " + u + " (wanted after the worker was lost, and never sent)"},
		{checkpoint.Entry{Kind: checkpoint.KindForm, Method: "POST", URL: u}, "form: POST " + u + " ?"},
		{checkpoint.Entry{Kind: checkpoint.KindDialog, Name: "confirm", URL: u, Text: "Pay?"}, "dialog: confirm on " + u + " (Pay?) ?"},
		{checkpoint.Entry{Kind: checkpoint.KindDownload, URL: u}, "download: " + u + " ?"},
		{checkpoint.Entry{Kind: checkpoint.KindUnfinished, Text: "a.pdf", URL: u}, "download not finished: a.pdf " + u + " ?"},
		{checkpoint.Entry{Kind: checkpoint.KindAnswer, URL: u, Status: 204}, "answer: " + u + " (204 No Content)"},
		{checkpoint.Entry{Kind: checkpoint.KindAnswer, URL: u, Status: 403}, "answer: " + u + " (403 Forbidden) !"},
		{checkpoint.Entry{Kind: checkpoint.KindAnswer, URL: u, Asked: "https://b/", SignIn: "password", Status: 200}, "answer: https://b/ led to " + u + " (asks for a password) !"},
		{checkpoint.Entry{Kind: checkpoint.KindAnswer, URL: u, Failed: "net::ERR_FAILED", Ended: true}, "answer: " + u + " (failed: net::ERR_FAILED)"},
		{checkpoint.Entry{Kind: checkpoint.KindCookie, Cookie: &checkpoint.CookieChange{What: checkpoint.CookieDropped, By: checkpoint.BySite, Domain: "a"}}, "cookie: a cookie of a that may carry the account's identity was dropped (by site)"},
		{checkpoint.Entry{Kind: checkpoint.KindCookie, Cookie: &checkpoint.CookieChange{What: checkpoint.CookiesRead}}, ""},
		{checkpoint.Entry{Kind: checkpoint.KindCookie}, ""},
		{checkpoint.Entry{Kind: checkpoint.KindCrash}, "crash: a page crashed !"},
		{checkpoint.Entry{Kind: checkpoint.KindDenied, Name: "Browser.close", Action: "forbidden"}, "denied: Browser.close (forbidden)"},
		{checkpoint.Entry{Kind: checkpoint.KindTyped, Name: string(checkpoint.FieldPassword), URL: u}, "typed: a password on " + u + " ?"},
		{checkpoint.Entry{Kind: checkpoint.KindTyped, Name: "of_a_later_version", URL: u, Person: "Ann", Principal: "uid:7"}, "typed: Ann (uid:7): of_a_later_version on " + u + " ?"},
		{checkpoint.Entry{Kind: checkpoint.KindPerson, Name: checkpoint.PersonAsked, Text: "code"}, "person: the worker asks for a person (code)"},
		{checkpoint.Entry{Kind: checkpoint.KindPerson, Name: checkpoint.PersonUnanswered, Text: "wait_over"}, "person: the worker waits for a person no more (wait over)"},
		{checkpoint.Entry{Kind: checkpoint.KindPerson, Name: checkpoint.PersonTook, Person: "Ann", Principal: "uid:7", Text: "n"}, "person: Ann (uid:7) takes the session over (n)"},
		{checkpoint.Entry{Kind: checkpoint.KindPerson, Name: checkpoint.PersonHandedBack, Person: "ann", Principal: "ann"}, "person: ann hands the session back"},
		{checkpoint.Entry{Kind: checkpoint.KindPerson, Name: "new_tab", Person: "Ann"}, "person: Ann: new tab ? !"},
		{checkpoint.Entry{Kind: checkpoint.KindEnd, Name: "released"}, "session ends: released"},
		{checkpoint.Entry{Kind: checkpoint.KindOmitted, Name: "request"}, "left out: entries about request (the journal was full, or its disk took nothing)"},
		{checkpoint.Entry{Kind: checkpoint.KindFrame, URL: u}, "frame: " + u},
		{checkpoint.Entry{Kind: checkpoint.KindConnection, Name: "opened"}, "connection: opened"},
		{checkpoint.Entry{Kind: checkpoint.KindStorage, URL: u}, ""},
		{checkpoint.Entry{Kind: checkpoint.KindPicture, URL: u}, ""},
		{checkpoint.Entry{Kind: checkpoint.KindGetAfter, URL: u}, ""},
	} {
		l, ok := Of(c.entry)
		got := ""
		if ok {
			got = l.What + ": " + l.Text
			if notes := Joined(l.Notes...); notes != "" {
				got += " (" + notes + ")"
			}
			if l.Asked {
				got += " ?"
			}
			if l.Warns {
				got += " !"
			}
		}
		if got != c.line {
			t.Errorf("%s %s\n got %s\nwant %s", c.entry.Kind, c.entry.Name, got, c.line)
		}
	}
}
