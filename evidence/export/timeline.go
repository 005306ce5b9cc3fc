package export

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"leasehold/checkpoint"
	"leasehold/checkpoint/shape"
	"leasehold/evidence/redact"
	"leasehold/lease"
)

// row is one line of the time line.
type row struct {
	At   time.Time
	What string // a word or two
	Text string
	Note string
	// Class is how the row is shown: unsafe, mark (checkpoints and states), or "".
	Class string
}

// longestText bounds one text of a row, in bytes.
const longestText = 2000

// timeline is what the journal and the events say, in order of time.
func timeline(journal []checkpoint.Entry, events []lease.Event) []row {
	var rows []row
	for _, e := range journal {
		if r, ok := journalRow(e); ok {
			rows = append(rows, r)
		}
	}
	for _, e := range events {
		rows = append(rows, eventRow(e))
	}
	slices.SortStableFunc(rows, func(a, b row) int { return a.At.Compare(b.At) })
	return rows
}

// since is what came after the last safe checkpoint and matters for a decision. name is that
// checkpoint; "" if there was none: then since is about the whole session.
func since(journal []checkpoint.Entry) (rows []row, name string) {
	s := checkpoint.Summarize(journal)
	after := uint64(0)
	if s.LastSafe != nil {
		after, name = s.LastSafe.Seq, s.LastSafe.Name
	}
	for _, e := range journal {
		inFlight := slices.ContainsFunc(s.InFlight, func(f checkpoint.Entry) bool { return f.Seq == e.Seq })
		if e.Seq <= after && !inFlight {
			continue
		}
		switch e.Kind {
		case checkpoint.KindURL, checkpoint.KindStep, checkpoint.KindRequest, checkpoint.KindGetWrite, checkpoint.KindBlocked,
			checkpoint.KindWithheld, checkpoint.KindForm, checkpoint.KindDownload, checkpoint.KindUnfinished, checkpoint.KindDialog, checkpoint.KindAnswer, checkpoint.KindCrash,
			checkpoint.KindTyped, checkpoint.KindPerson:
			r, ok := journalRow(e)
			if inFlight {
				r.Note = strings.TrimPrefix(r.Note+"; not answered when the checkpoint was named", "; ")
			}
			if ok {
				rows = append(rows, r)
			}
		}
	}
	return rows, name
}

// journalRow is an entry in words; false if it means nothing to a person.
func journalRow(e checkpoint.Entry) (row, bool) {
	r := row{At: e.At, Text: e.URL}
	var notes []string
	note := func(yes bool, format string, args ...any) {
		if yes {
			notes = append(notes, fmt.Sprintf(format, args...))
		}
	}
	switch e.Kind {
	case checkpoint.KindStart:
		r.What, r.Class = "session begins", "mark"
	case checkpoint.KindURL:
		r.What = "page"
	case checkpoint.KindFrame:
		r.What = "frame"
	case checkpoint.KindStep:
		r.What, r.Text = "step", e.Name
		note(e.Action != "", "action %s", e.Action)
	case checkpoint.KindCheckpoint:
		r.What, r.Text, r.Class = "checkpoint", e.Name, "mark"
		note(e.Safe, "safe to resume from")
		note(e.Idempotent, "may be done twice: %s", cmp.Or(strings.Join(e.IdempotentShapes, ", "), "what is known to be repeatable"))
	case checkpoint.KindEvent:
		r.What, r.Text = "task says", e.Name
	case checkpoint.KindRequest:
		r.What, r.Class = "sent", "unsafe"
		r.Text = strings.TrimSpace(e.Method + " " + e.URL)
	case checkpoint.KindAnswer:
		r.What, r.Text = "answered", strings.TrimSpace(answerText(e)+" "+e.URL)
	case checkpoint.KindGetWrite:
		r.What, r.Class = "may be a write", "unsafe"
		r.Text = strings.TrimSpace(e.Method + " " + e.URL)
		note(e.Name != "", "sign: %s", e.Name)
	case checkpoint.KindBlocked:
		r.What, r.Text = "blocked, read-only", strings.TrimSpace(e.Method+" "+e.URL)
	case checkpoint.KindWithheld:
		r.What, r.Text = "withheld after the loss", strings.TrimSpace(e.Method+" "+e.URL)
	case checkpoint.KindForm:
		r.What, r.Class = "form", "unsafe"
		r.Text = strings.TrimSpace(e.Method + " " + e.URL)
	case checkpoint.KindDialog:
		r.What, r.Text = "dialog", strings.TrimSpace(e.Name+" "+e.Text)
	case checkpoint.KindDownload:
		r.What = "download"
	case checkpoint.KindUnfinished:
		r.What, r.Text = "download not finished", strings.TrimSpace(e.Text+" "+e.URL)
	case checkpoint.KindCrash:
		r.What = "page crashed"
	case checkpoint.KindConnection:
		r.What, r.Text = "connection", strings.TrimSpace(e.Name+" "+e.Text)
	case checkpoint.KindDenied:
		r.What, r.Text = "refused command", strings.TrimSpace(e.Name+" "+e.Text)
		note(e.Action != "", "%s", e.Action)
	case checkpoint.KindTyped:
		r.What, r.Text = "typed", e.TellTyped()
	case checkpoint.KindPerson:
		r.What = "person"
		var said string
		r.Text, said = e.TellPerson()
		note(said != "", "%s", said)
	case checkpoint.KindEnd:
		r.What, r.Text, r.Class = "session ends", strings.TrimSpace(e.Name+" "+e.Text), "mark"
	case checkpoint.KindOmitted:
		r.What, r.Text = "left out", fmt.Sprintf("%d entries of the kind %s", e.Count, e.Name)
	default: // storage, cookies, pictures
		return row{}, false
	}
	note(e.Sensitive, "sensitive")
	note(shape.Content(e.Shape) != "", "%s", shape.Content(e.Shape))
	note(e.Declared != "", "declared harmless: %s", e.Declared)
	note(e.Known != "", "known as %s: %s", e.Known, e.KnownBy)
	note(e.Count > 1 && e.Kind != checkpoint.KindOmitted, "%d times, since %s", e.Count, clock(e.First))
	note(len(e.Data) > 0 && string(e.Data) != "null", "data: %s", e.Data)
	r.Note = strings.Join(notes, "; ")
	return r, true
}

// answerText says in words what a site answered.
func answerText(e checkpoint.Entry) string {
	switch {
	case e.Failed != "":
		return "failed: " + e.Failed
	case e.Status != 0:
		return strconv.Itoa(e.Status)
	}
	return "no status"
}

func eventRow(e lease.Event) row {
	r := row{At: e.At, What: "state", Text: strings.ReplaceAll(e.Event, "_", " "), Class: "mark"}
	var notes []string
	for _, n := range []struct{ name, value string }{
		{"reason", e.Reason}, {"decision", e.Decision}, {"by", e.Reviewer}, {"outcome", e.Outcome}, {"task", e.TaskID},
	} {
		if n.value != "" {
			notes = append(notes, n.name+" "+n.value)
		}
	}
	if e.Token != 0 {
		notes = append(notes, fmt.Sprintf("token %d", e.Token))
	}
	notes = append(notes, e.Reasons...)
	r.Note = strings.Join(notes, "; ")
	return r
}

// clock is a time for a person; "" for none.
func clock(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05.000 UTC")
}

// plain makes a text from outside fit to be shown: characters that are invisible, or would
// change the direction of the text around them, are written as their codes.
func plain(s string) string {
	s = redact.Clip(s, longestText)
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == utf8.RuneError:
			b.WriteRune('�')
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, "\\u%04x", r)
		}
	}
	return b.String()
}
