package checkpoint

// Summary is what a journal says in the end: a pure fold over its entries.
type Summary struct {
	LastURL  string
	LastStep string
	// URLs are the pages seen, in order, without repetition in a row.
	URLs []string
	// Steps are the steps named, in order.
	Steps []Entry
	// LastSafe is the last checkpoint declared safe, if any.
	LastSafe *Entry
	// SafeStep is the step that was on when LastSafe was named.
	SafeStep string
	// Unsafe are the unsafe requests of the whole session; UnsafeSince those
	// after LastSafe.
	Unsafe, UnsafeSince []Entry
	// StepsSince and URLsSince are what came after LastSafe, with the page
	// that was open then.
	StepsSince []Entry
	URLsSince  []string
	// Crashed says that a page crashed.
	Crashed bool
}

// Summarize folds a journal.
func Summarize(entries []Entry) Summary {
	var s Summary
	for _, e := range entries {
		switch e.Kind {
		case KindURL:
			if e.URL != s.LastURL {
				s.URLs = append(s.URLs, e.URL)
			}
			s.LastURL = e.URL
			s.URLsSince = append(s.URLsSince, e.URL)
		case KindStep:
			s.LastStep = e.Name
			s.Steps = append(s.Steps, e)
			s.StepsSince = append(s.StepsSince, e)
		case KindCheckpoint:
			if !e.Safe {
				break
			}
			s.LastSafe, s.SafeStep = &e, s.LastStep
			s.UnsafeSince, s.StepsSince, s.URLsSince = nil, nil, nil
			if s.LastURL != "" {
				s.URLsSince = []string{s.LastURL}
			}
		case KindRequest:
			s.Unsafe = append(s.Unsafe, e)
			s.UnsafeSince = append(s.UnsafeSince, e)
		case KindCrash:
			s.Crashed = true
		}
	}
	return s
}
