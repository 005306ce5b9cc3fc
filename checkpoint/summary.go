package checkpoint

import "slices"

// Summary is what a journal says in the end: a pure fold over its entries.
type Summary struct {
	LastURL  string
	LastStep string
	// Pages are the pages seen, in order, without repetition in a row, and the
	// sensitive frames in them.
	Pages []Entry
	// Steps are the steps named, in order.
	Steps []Entry
	// LastSafe is the last checkpoint declared safe, if any.
	LastSafe *Entry
	// SafeStep is the step that was on when LastSafe was named.
	SafeStep string
	// Unsafe are the unsafe requests of the whole session; UnsafeSince those
	// after LastSafe.
	Unsafe, UnsafeSince []Entry
	// StepsSince and PagesSince are what came after LastSafe, with the page
	// that was open then, and the sensitive frames in pages.
	StepsSince []Entry
	PagesSince []Entry
	// Did is what pages did besides: forms, downloads, dialogs, changes of what
	// they store. DidSince came after LastSafe.
	Did, DidSince []Entry
	// Crashed says that a page crashed.
	Crashed bool
}

// Summarize folds a journal.
func Summarize(entries []Entry) Summary {
	var s Summary
	var last Entry
	var frames []Entry // of the pages that are open
	for _, e := range entries {
		switch e.Kind {
		case KindFrame:
			s.Pages, s.PagesSince = append(s.Pages, e), append(s.PagesSince, e)
			frames = append(frames, e)
		case KindURL:
			if e.Committed {
				frames = slices.DeleteFunc(frames, func(f Entry) bool { return f.Target == e.Target })
			}
			if e.URL != s.LastURL || e.Sensitive != last.Sensitive {
				s.Pages = append(s.Pages, e)
			}
			s.LastURL, last = e.URL, e
			s.PagesSince = append(s.PagesSince, e)
		case KindStep:
			s.LastStep = e.Name
			s.Steps = append(s.Steps, e)
			s.StepsSince = append(s.StepsSince, e)
		case KindCheckpoint:
			if !e.Safe {
				break
			}
			s.LastSafe, s.SafeStep = &e, s.LastStep
			s.UnsafeSince, s.StepsSince, s.PagesSince, s.DidSince = nil, nil, nil, nil
			if s.LastURL != "" {
				s.PagesSince = []Entry{last}
			}
			s.PagesSince = append(s.PagesSince, frames...)
		case KindRequest:
			s.Unsafe = append(s.Unsafe, e)
			s.UnsafeSince = append(s.UnsafeSince, e)
		case KindForm, KindDownload, KindDialog, KindStorage:
			s.Did = append(s.Did, e)
			s.DidSince = append(s.DidSince, e)
		case KindCrash:
			s.Crashed = true
		}
	}
	return s
}
