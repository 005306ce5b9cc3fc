package checkpoint

import "math"

// AnswerUnseen is what Failed of an answer says where the page that sent the request was
// gone before Chrome told of an answer. Nobody knows whether there was one.
const AnswerUnseen = "unseen"

// A request and its answer are two entries, since a journal is only appended to. An unsafe
// request has a name, which its answers have, too: one with Anonymous may come first, and
// one with Status or Failed is the last. Compact puts both into one entry, without the
// name.

// ended tells whether an entry says how a request ended: with an answer or without.
func (e Entry) ended() bool { return e.Status != 0 || e.Failed != "" }

// Answered tells whether it is known what became of a request. Of one that was canceled,
// or whose connection broke, nobody knows whether its site carried it out.
func (e Entry) Answered() bool { return e.Status != 0 || e.Ended }

// take puts what an answer says into its request.
func (e *Entry) take(answer Entry) {
	e.Anonymous = e.Anonymous || answer.Anonymous
	if answer.ended() {
		e.Status, e.Failed, e.Ended, e.Blocked = answer.Status, answer.Failed, answer.Ended, answer.Blocked
	}
}

// never is later than every entry of a journal.
const never = math.MaxInt

// answersOf returns the last answer to each named request, and where in the journal it
// says how the request ended; never where nothing says so.
func answersOf(entries []Entry) (answers map[string]Entry, at map[string]int) {
	answers, at = map[string]Entry{}, map[string]int{}
	for i, e := range entries {
		if e.Kind != KindAnswer || e.Request == "" {
			continue
		}
		known, ok := answers[e.Request]
		if !ok {
			at[e.Request] = never
		}
		known.take(e)
		answers[e.Request] = known
		if e.Answered() {
			at[e.Request] = i
		}
	}
	return answers, at
}

// endOf is where in the journal a request ended, by what answersOf returned. It is -1 where
// nothing can be asked: of requests that have no answers, such as messages on a websocket,
// and of those that Compact has put together with their answers.
func (e Entry) endOf(at map[string]int) int {
	switch {
	case e.ended() && !e.Answered():
		return never
	case e.Request == "":
		return -1
	}
	if i, ok := at[e.Request]; ok {
		return i
	}
	return never
}

// pair puts requests and their answers together, where both are on the same side of the
// last safe checkpoint: only a request that was answered after that checkpoint needs both
// entries. What the site answered stays an entry of its own, since its place among the
// others matters.
func pair(entries []Entry) []Entry {
	boundary := lastSafe(entries)
	requests := map[string]int{} // where in paired they are
	before := map[string]bool{}
	var paired []Entry
	for i, e := range entries {
		switch {
		case e.Kind == KindRequest && e.Request != "":
			requests[e.Request], before[e.Request] = len(paired), i < boundary
		case e.Kind == KindAnswer && e.Request != "":
			at, known := requests[e.Request]
			if !known {
				break
			}
			if !e.ended() {
				paired[at].take(e)
				continue
			}
			if before[e.Request] == (i < boundary) {
				paired[at].take(e)
				paired[at].Request, e.Request = "", ""
			}
		}
		paired = append(paired, e)
	}
	return paired
}
