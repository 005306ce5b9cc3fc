package lease

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// A record is one message of the store, and every write of it has to fit, above all the one that
// raises the token of a holder that was lost. So whatever callers and pages may fill is bounded,
// and the bounds add up to less than MaxEncoded. All of them are in bytes of the encoded record,
// in which a quotation mark takes two bytes and a control character six.
const (
	// MaxEncoded is the most bytes that a record takes, its outbox included.
	MaxEncoded = 512 << 10
	// MaxSettings is the most bytes that the settings of a profile may take together. What sets
	// them refuses more.
	MaxSettings = 16 << 10
	// MaxRuns is the most tasks that may share a profile.
	MaxRuns = 64
	// MaxName is the longest name of a worker, task, account, proxy or person that the API takes,
	// in bytes of the text itself.
	MaxName = 256
	// MaxNote is the same for a note of a person.
	MaxNote = 4000

	// maxOutbox is the most bytes of an outbox: more than one transition adds to it, whatever it
	// is. Past it, the oldest events leave.
	maxOutbox = 224 << 10
	// The other bounds: past them, a text is cut.
	maxEncodedName, maxEncodedNote = 2 * MaxName, 2 * MaxNote
	maxText, maxReasons, maxCode   = 2048, 8 << 10, 128
)

// Encode returns v as JSON in one line, as stores keep it. Unlike json.Marshal it does not
// replace < > & by six bytes each, because a page chooses how many of those its URL has.
func Encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// Size is how many bytes the settings take in a record.
func (s Settings) Size() int {
	b, err := Encode(s)
	if err != nil { // they consist of texts, numbers and booleans
		panic(err)
	}
	return len(b)
}

// Fit returns the record with its texts and its outbox cut so that it takes at most limit bytes,
// where MaxEncoded is the most that it ever takes. Settings and runs are never cut: below
// MaxEncoded, a limit may be too low for them. dropped are the events that have left the outbox.
func (r Record) Fit(limit int) (fitted Record, dropped []Event, err error) {
	outbox := slices.Clone(r.Outbox)
	r.Outbox = nil
	r = r.bounded()
	b, err := Encode(r)
	if err != nil {
		return r, nil, err
	}
	for i := range outbox {
		outbox[i] = outbox[i].bounded()
	}
	// The newest events stay: they are what subscribers ask for first.
	room := min(maxOutbox, min(limit, MaxEncoded)-len(b)-len(`,"outbox":[]`))
	first := len(outbox)
	for ; first > 0; first-- {
		e, err := Encode(outbox[first-1])
		if err != nil {
			return r, nil, err
		}
		if room -= len(e) + len(","); room < 0 {
			break
		}
	}
	r.Outbox = slices.Clip(outbox[first:])
	if len(r.Outbox) == 0 {
		r.Outbox = nil
	}
	return r, outbox[:first], nil
}

// bounded is the record without its outbox, with texts that are within their bounds.
func (r Record) bounded() Record {
	names(&r.Principal, &r.OwnerWorkerID, &r.TaskID)
	texts(&r.LastKnownURL, &r.LastKnownStep, &r.LastSafeCheckpoint, &r.ResumeFrom, &r.Outcome)
	codes(&r.Reason, &r.Decision, &r.SessionID, &r.EvidenceID, &r.EvidenceSHA256, &r.SnapshotID, &r.SignedInSnapshotID)
	names(&r.SignedInHow, &r.SignInAt)
	r.Reasons = reasons(r.Reasons)
	r.Runs, r.LostRuns = boundedRuns(r.Runs), boundedRuns(r.LostRuns)
	r.Review = r.Review.bounded()
	if h := r.ByHand; h != nil {
		hand := *h
		names(&hand.Holder, &hand.Principal)
		hand.Note = cut(hand.Note, maxEncodedNote)
		if h.Review != nil {
			open := *h.Review
			names(&open.OwnerWorkerID, &open.TaskID, &open.Principal)
			texts(&open.LastKnownURL, &open.LastKnownStep, &open.LastSafeCheckpoint)
			codes(&open.Reason, &open.Decision, &open.SessionID, &open.EvidenceID)
			open.Reasons, open.LostRuns, open.Review = reasons(open.Reasons), boundedRuns(open.LostRuns), open.Review.bounded()
			hand.Review = &open
		}
		r.ByHand = &hand
	}
	if r.Moved != nil {
		moved := r.Moved.bounded()
		r.Moved = &moved
	}
	if r.MoveRequest != nil {
		asked := *r.MoveRequest
		asked.Move = asked.Move.bounded()
		r.MoveRequest = &asked
	}
	return r
}

func (v *Review) bounded() *Review {
	if v == nil {
		return nil
	}
	b := *v
	names(&b.Reviewer, &b.Principal)
	codes(&b.Decision, &b.EvidenceID, &b.Home)
	b.Note = cut(b.Note, maxEncodedNote)
	return &b
}

func (m Move) bounded() Move {
	names(&m.Person, &m.Principal)
	codes(&m.SnapshotID)
	m.Note = cut(m.Note, maxEncodedNote)
	return m
}

func (e Event) bounded() Event {
	names(&e.OwnerWorkerID, &e.TaskID, &e.Principal, &e.Reviewer, &e.Person, &e.SignInAt)
	texts(&e.LastKnownURL, &e.LastKnownStep, &e.ResumeFrom, &e.LastSafeCheckpoint, &e.Outcome)
	codes(&e.Reason, &e.Decision, &e.EvidenceID, &e.SessionID, &e.SnapshotID)
	e.Reasons, e.Note = reasons(e.Reasons), cut(e.Note, maxEncodedNote)
	return e
}

func boundedRuns(runs []Run) []Run {
	runs = slices.Clone(runs)
	for i := range runs {
		r := &runs[i]
		names(&r.OwnerWorkerID, &r.TaskID, &r.Principal)
		codes(&r.Reason, &r.SessionID, &r.EvidenceID)
	}
	return runs
}

func names(all ...*string) { cutAll(maxEncodedName, all) }
func texts(all ...*string) { cutAll(maxText, all) }
func codes(all ...*string) { cutAll(maxCode, all) }

func cutAll(most int, all []*string) {
	for _, s := range all {
		*s = cut(*s, most)
	}
}

// reasons are as many of the reasons as there is room for, and how many others there are.
func reasons(all []string) []string {
	room := maxReasons - maxCode
	for i, s := range all {
		s = cut(s, maxText)
		if room -= encodedSize(s) + len(`"",`); room < 0 {
			return append(slices.Clone(all[:i]), fmt.Sprintf("and %d more", len(all)-i))
		}
		if s != all[i] {
			all = slices.Clone(all)
			all[i] = s
		}
	}
	return all
}

// cut returns as much of the beginning of s as takes at most this many bytes in JSON. It ends
// with a whole character.
func cut(s string, most int) string {
	if len(s)*longestEscape <= most {
		return s
	}
	size := 0
	for i, c := range s {
		if size += encodedRune(c, s[i:]); size > most {
			return strings.Clone(s[:i])
		}
	}
	return s
}

// longestEscape is the most bytes that one byte of a text takes in JSON: a control character,
// or one that is not UTF-8.
const longestEscape = len(`\u0000`)

func encodedSize(s string) (size int) {
	for i, c := range s {
		size += encodedRune(c, s[i:])
	}
	return size
}

// encodedRune is how many bytes Encode writes for c, the first character of text.
func encodedRune(c rune, text string) int {
	switch {
	case c == '"', c == '\\', c == '\b', c == '\f', c == '\n', c == '\r', c == '\t':
		return 2
	case c < ' ', c == '\u2028', c == '\u2029':
		return longestEscape
	case c == utf8.RuneError:
		if _, width := utf8.DecodeRuneInString(text); width == 1 { // no UTF-8
			return longestEscape
		}
	}
	return utf8.RuneLen(c)
}
