package session

import (
	"slices"
	"strings"

	"leasehold/checkpoint"
	"leasehold/launcher/api"
)

// What a session's manifest forbids binds its worker. A later manifest, of a request that
// joins the session, may forbid more, and nothing less.

// actionRefusedEvent is the name of the journal's entry for a step whose action the
// manifest does not allow.
const actionRefusedEvent = "action_not_allowed"

// allowed are the actions that the session's steps may declare; empty: any.
func (s *Session) allowed() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.file.Manifest.AllowedActions
}

// checkAction refuses a step that declares an action which the manifest does not allow,
// and notes that it was tried.
func (s *Session) checkAction(st api.Step) error {
	allowed := s.allowed()
	if st.Action == "" || len(allowed) == 0 || slices.Contains(allowed, st.Action) {
		return nil
	}
	s.Note(checkpoint.Entry{Kind: checkpoint.KindEvent, Name: actionRefusedEvent, Action: st.Action, Text: st.Name})
	return notAllowed(st.Action, allowed)
}

// notAllowed is the refusal of an action.
func notAllowed(action string, allowed []string) *api.Problem {
	return api.Refuse(api.CodeActionNotAllowed, "action %q is not one that the manifest allows: want one of %s", checkpoint.Clip(action), strings.Join(allowed, ", ")).
		With("action", checkpoint.Clip(action)).With("allowed_actions", allowed)
}

// Narrow takes in the manifest of a request that joins the session. Actions that it does
// not name are refused from now on. A manifest that would allow more is refused, and
// changes nothing.
func (s *Session) Narrow(m api.Manifest) error {
	if len(m.AllowedActions) == 0 {
		return nil
	}
	s.mu.Lock()
	now := s.file.Manifest.AllowedActions
	for _, action := range m.AllowedActions {
		if len(now) > 0 && !slices.Contains(now, action) {
			s.mu.Unlock()
			return notAllowed(action, now)
		}
	}
	same := slices.Equal(now, m.AllowedActions)
	s.file.Manifest.AllowedActions = slices.Clone(m.AllowedActions)
	s.mu.Unlock()
	if same {
		return nil
	}
	return s.persist() // the next launcher holds to it, too
}
