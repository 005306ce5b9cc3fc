package export

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"leasehold/checkpoint"
	"leasehold/checkpoint/wording"
	"leasehold/evidence/redact"
	"leasehold/lease"
)

// row is one line of the time line.
type row struct {
	At   time.Time
	What string // a word or two
	Text string
	Note string
	// Class is how the row is shown: warns, mark (checkpoints and states), or "".
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
	l, ok := wording.Of(e)
	r := row{At: e.At, What: l.What, Text: l.Text}
	switch {
	case e.Kind == checkpoint.KindStart, e.Kind == checkpoint.KindCheckpoint, e.Kind == checkpoint.KindEnd:
		r.Class = "mark"
	case l.Warns:
		r.Class = "warns"
	}
	notes := l.Notes
	if e.Declared != "" {
		notes = append(notes, "declared harmless: "+e.Declared)
	}
	if e.Count > 1 {
		notes = append(notes, fmt.Sprintf("%d times, since %s", e.Count, clock(e.First)))
	}
	if len(e.Data) > 0 && string(e.Data) != "null" {
		notes = append(notes, "data: "+string(e.Data))
	}
	r.Note = wording.Joined(notes...)
	return r, ok
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
