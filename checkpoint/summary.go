package checkpoint

import (
	"cmp"
	"slices"
)

// Summary is what is known about a session from the entries of its journal. If no checkpoint
// was declared safe, the fields about what came after it have everything.
type Summary struct {
	LastURL  string
	LastStep string
	// Pages has the navigations of pages, in order and without immediate repetitions,
	// and those of the sensitive frames in them.
	Pages []Entry
	// Steps has the steps, in order.
	Steps []Entry
	// LastSafe is the last checkpoint that was declared safe; nil if none was.
	LastSafe *Entry
	// SafeStep is the step at which LastSafe was named.
	SafeStep string
	// Unsafe has the unsafe requests of the session with their answers; UnsafeSince has those
	// after LastSafe, and those of InFlight.
	Unsafe, UnsafeSince []Entry
	// InFlight has the unsafe requests that were sent before LastSafe, but whose outcome was
	// not known when LastSafe was named: it cannot vouch for them.
	InFlight []Entry
	// Answers has the answers of sites after LastSafe, and the answer that was the document of
	// the page on which the task was when LastSafe was named.
	Answers []Entry
	// Writes has the GETs that look like writes, and WritesSince those after LastSafe.
	Writes, WritesSince []Entry
	// GetsAfter has the GETs of pages on which the worker had acted, and GetsAfterSince those
	// after LastSafe: of each document the first.
	GetsAfter, GetsAfterSince []Entry
	// StepsSince has the steps after LastSafe. PagesSince has the navigations after it,
	// and before them the pages and the sensitive frames that were open at LastSafe, and the page on
	// which the task was.
	StepsSince []Entry
	PagesSince []Entry
	// Did has what else pages did: forms, downloads, dialogs and changes of storage.
	Did []Entry
	// Cookies has what became of cookies that may carry the account's identity, and what a
	// worker did with cookies; CookiesSince has the part after LastSafe.
	Cookies, CookiesSince []Entry
	// Acts has what persons did who had the session by hand; ActsSince has the part after
	// LastSafe.
	Acts, ActsSince []Entry
	// Typed has the kinds of fields that were typed into; TypedSince has the part after
	// LastSafe.
	Typed, TypedSince []Entry
	// Person is the entry with which a person took the session over, if that person has it at
	// the end of the journal; nil: nobody has it.
	Person *Entry
	// Began says that the journal has a beginning, before which no page was open.
	Began bool
	// Withheld has the unsafe requests and messages that pages made after the worker was
	// lost, and that were never sent.
	Withheld []Entry
	// LeftOut has the entries that say that something was left out on which a decision might
	// depend.
	LeftOut []Entry
}

// Summarize returns the summary of a journal. It is a pure function of the entries.
func Summarize(entries []Entry) Summary {
	var s Summary
	var last Entry
	var open, frames []Entry // what the pages that are open show, and the sensitive frames in them
	answers, at := answersOf(entries)
	var ends []int                  // positions at which the requests of Unsafe ended
	documents := map[string]Entry{} // the answers that are pages' documents, by target
	for i, e := range entries {
		switch e.Kind {
		case KindFrame:
			s.Pages, s.PagesSince = append(s.Pages, e), append(s.PagesSince, e)
			frames = append(frames, e)
		case KindURL:
			if e.Committed {
				frames = slices.DeleteFunc(frames, e.ofItsPage)
			}
			if e.URL != s.LastURL || e.Sensitive != last.Sensitive {
				s.Pages = append(s.Pages, e)
			}
			s.LastURL, last = e.URL, e
			open = append(slices.DeleteFunc(open, e.ofItsPage), e)
			s.PagesSince = append(s.PagesSince, e)
		case KindClosed:
			open, frames = slices.DeleteFunc(open, e.ofItsPage), slices.DeleteFunc(frames, e.ofItsPage)
		case KindStep:
			s.LastStep = e.Name
			s.Steps = append(s.Steps, e)
			s.StepsSince = append(s.StepsSince, e)
		case KindCheckpoint:
			if !e.Safe {
				break
			}
			s.LastSafe, s.SafeStep = &e, cmp.Or(e.ResumeFrom, s.LastStep)
			s.StepsSince, s.PagesSince, s.CookiesSince, s.WritesSince, s.GetsAfterSince, s.ActsSince, s.TypedSince = nil, nil, nil, nil, nil, nil, nil
			s.InFlight = nil
			for k, sent := range s.Unsafe {
				if ends[k] > i {
					s.InFlight = append(s.InFlight, sent)
				}
			}
			s.UnsafeSince = slices.Clone(s.InFlight)
			s.Answers = nil
			if e, known := documents[last.Target]; known {
				s.Answers = []Entry{e}
			}
			s.PagesSince = slices.Clone(open)
			if s.LastURL != "" && !slices.ContainsFunc(open, last.ofItsPage) {
				s.PagesSince = append(s.PagesSince, last)
			}
			s.PagesSince = append(s.PagesSince, frames...)
		case KindAnswer:
			s.Answers = append(s.Answers, e)
			if e.Committed {
				documents[e.Target] = e
			}
		case KindRequest:
			ends = append(ends, e.endOf(at))
			e.take(answers[e.Request])
			s.Unsafe = append(s.Unsafe, e)
			s.UnsafeSince = append(s.UnsafeSince, e)
		case KindGetWrite:
			s.Writes, s.WritesSince = append(s.Writes, e), append(s.WritesSince, e)
		case KindGetAfter:
			s.GetsAfter, s.GetsAfterSince = append(s.GetsAfter, e), append(s.GetsAfterSince, e)
		case KindForm, KindDownload, KindUnfinished, KindDialog, KindStorage:
			s.Did = append(s.Did, e)
		case KindCookie:
			s.Cookies, s.CookiesSince = append(s.Cookies, e), append(s.CookiesSince, e)
		case KindTyped:
			s.Typed, s.TypedSince = append(s.Typed, e), append(s.TypedSince, e)
		case KindPerson:
			switch {
			case e.IsAct():
				s.Acts, s.ActsSince = append(s.Acts, e), append(s.ActsSince, e)
			case e.Name == PersonTook:
				s.Person = &e
			case e.Name == PersonHandedBack:
				s.Person = nil
			}
		case KindStart:
			s.Began = true
		case KindWithheld:
			s.Withheld = append(s.Withheld, e)
		case KindOmitted:
			if Kind(e.Name).decides() {
				s.LeftOut = append(s.LeftOut, e)
			}
		}
	}
	return s
}

// ofItsPage tells whether another entry is about the same page.
func (e Entry) ofItsPage(other Entry) bool { return other.Target == e.Target }
