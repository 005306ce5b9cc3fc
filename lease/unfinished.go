package lease

// Unfinished tells whether a profile without a living session has to be recovered:
// its last session neither ended in order nor was decided about.
func (r Record) Unfinished() bool { return !r.State.Free() && r.State != ManualReview }
