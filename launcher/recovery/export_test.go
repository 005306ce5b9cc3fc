package recovery

// ErrNotKept is for the tests of this package that are outside of it, as they use the witnesses.
var ErrNotKept = errNotKept
