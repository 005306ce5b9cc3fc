package checkpoint

import "math"

// AnswerUnseen is the value of an answer's Failed if the page that sent the request was gone
// before Chrome reported an answer. Nobody knows whether there was one.
const AnswerUnseen = "unseen"

// A request and its answer are two entries, because a journal is only appended to. An unsafe
// request has a name, which its answers have, too: an answer with Anonymous may come first, and
// one with Status or Failed is the last. Compact combines them into one entry, without the
// name.

// ended tells whether an entry says how a request ended: with an answer or without.
func (e Entry) ended() bool { return e.Status != 0 || e.Failed != "" }

// Answered tells whether it is known what became of a request. If a request was canceled, or
// its connection broke, nobody knows whether the site carried it out.
func (e Entry) Answered() bool { return e.Status != 0 || e.Ended }

// take copies what an answer says into its request.
func (e *Entry) take(answer Entry) {
	e.Anonymous = e.Anonymous || answer.Anonymous
	if answer.ended() {
		e.Status, e.Failed, e.Ended, e.Blocked = answer.Status, answer.Failed, answer.Ended, answer.Blocked
	}
}

// never is a position after every entry of a journal.
const never = math.MaxInt

// answersOf returns the last answer to each named request, and the position in the journal at
// which it is said how the request ended; never if it is not said.
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

// endOf is the position in the journal at which a request ended, from the result of answersOf.
// It is -1 if that does not apply: for requests that get no answers, such as messages on a
// websocket, and for those that Compact has combined with their answers.
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

// pair combines requests with their answers if both are on the same side of the last safe
// checkpoint: only a request that was answered after that checkpoint needs both entries. The
// answer also stays an entry of its own, without the name, because its position among the others
// matters.
func pair(entries []Entry) []Entry {
	boundary := lastSafe(entries)
	requests := map[string]int{} // their positions in paired
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
