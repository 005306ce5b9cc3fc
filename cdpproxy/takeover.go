package cdpproxy

import (
	"sync/atomic"

	"leasehold/cdpproxy/methods"
)

// Takeover says whether a person has a session. While one does, the commands with which its
// worker would act on the pages or change something (methods.Method.Drives) are refused on all
// of the session's connections; reading is allowed. What the worker set before stays, but a
// request that pauses for it meanwhile is the person's, and can only be let go as it is. A zero
// Takeover means that nobody has the session. On the data path it costs one atomic load, and
// only for those commands.
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

// End lets the worker act again. What is still paused of the person's requests is let go before.
func (t *Takeover) End(m *Mux) {
	for _, s := range m.sessions.owners() {
		s.letGoOfPersons(t)
	}
	t.why.Store(nil)
}

// on tells whether a person has the session now.
func (t *Takeover) on() bool { return t != nil && t.why.Load() != nil }

// against returns why a command of the method is refused now; nil if it is not.
func (t *Takeover) against(m *methods.Method, params []byte) *methods.Refusal {
	if m == nil || !m.Drives() || t == nil {
		return nil
	}
	why := t.why.Load()
	if why == nil || methods.PassesWhileDriven(m, params) {
		return nil
	}
	return why
}

// against returns why a command of the method is refused now: the launcher keeps the browser to
// itself, or a person has the session; nil if it is not. What waits for the client's debugger it may let run
// meanwhile: nobody does later, and a page whose worker that is would hang.
func (c *Conn) against(m *methods.Method, params []byte) *methods.Refusal {
	if why := c.session.mux.KeptPrivate(); why != nil && (m == nil || m.Name != letRunCommand) {
		return why
	}
	return c.taken.against(m, params)
}

func (c *Conn) check(m *methods.Method, params []byte) error {
	if why := c.against(m, params); why != nil {
		return &takenError{why}
	}
	return nil
}

// takenError says that a command was not sent because somebody else has the session, or the browser.
type takenError struct{ why *methods.Refusal }

func (e *takenError) Error() string { return e.why.Text }
