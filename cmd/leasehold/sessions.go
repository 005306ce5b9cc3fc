package main

import (
	"context"
	"encoding/json"

	"leasehold/launcher/api"
)

type sessionsCmd struct {
	clientFlags `embed:""`
}

// Run prints the living sessions.
func (c *sessionsCmd) Run(a *app) error {
	return shown(c.clientFlags, a, func(ctx context.Context, sidecar *client) (json.RawMessage, error) {
		return sidecar.askAll(ctx, "v1", "sessions")
	}, func(sessions list[api.Session]) error {
		t := newColumns(a.stdout, "SESSION", "PROFILE", "STATE", "TOKEN", "WORKER", "TASK", "CONNECTIONS", "EXPIRES AT", "PERSON")
		for _, s := range sessions.Items {
			t.row(s.SessionID, s.ProfileID, stateOf(s), s.Token, s.WorkerID, s.TaskID, s.Connections, s.ExpiresAt, personOf(s))
		}
		return t.flush()
	})
}

// stateOf is the state of a session, and whether the session is without the lease of its
// profile.
func stateOf(s api.Session) string {
	if s.Ephemeral {
		return s.State + ", ephemeral"
	}
	return s.State
}

// personOf says who has a session by hand, or what its worker waits for a person for.
func personOf(s api.Session) string {
	switch {
	case s.Person != nil:
		return s.Person.Name
	case s.Ask != nil:
		return "wanted: " + s.Ask.Reason
	}
	return ""
}
