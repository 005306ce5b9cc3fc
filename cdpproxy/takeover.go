package cdpproxy

import (
	"sync/atomic"

	"leasehold/cdpproxy/methods"
)

// Takeover says whether a person has a session. While one does, the commands with which its
// worker would act on the pages (methods.Method.Drives) are refused on all of the session's
// connections; reading is allowed. A zero Takeover means that nobody has the session. On the
// data path it costs one atomic load, and only for those commands.
type Takeover struct {
	why atomic.Pointer[methods.Refusal]
}

// Begin refuses such commands from now on, with the reason. When it returns, none can reach the
// session's browser any more, because each command is checked in the same step in which it is
// written.
func (t *Takeover) Begin(m *Mux, why *methods.Refusal) {
	t.why.Store(why)
	m.Barrier()
}

// End lets the worker act again.
func (t *Takeover) End() { t.why.Store(nil) }

// against returns why a command of the method is refused now; nil if it is not.
func (t *Takeover) against(m *methods.Method) *methods.Refusal {
	if m == nil || !m.Drives || t == nil {
		return nil
	}
	return t.why.Load()
}

// check is against as an error.
func (t *Takeover) check(m *methods.Method) error {
	if why := t.against(m); why != nil {
		return &takenError{why}
	}
	return nil
}

// takenError says that a command was not sent because a person has the session.
type takenError struct{ why *methods.Refusal }

func (e *takenError) Error() string { return e.why.Text }
