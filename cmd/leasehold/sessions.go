package main

import (
	"context"

	"leasehold/launcher/api"
)

type sessionsCmd struct {
	clientFlags `embed:""`
}

// Run prints the living sessions.
func (c *sessionsCmd) Run(a *app) error {
	return c.withSidecar(a, func(ctx context.Context, sidecar *client) error {
		raw, err := sidecar.askAll(ctx, "v1", "sessions")
		if err != nil || c.JSON {
			return a.printAnswer(raw, err)
		}
		sessions, err := read[list[api.Session]](raw)
		if err != nil {
			return err
		}
		t := newTable(a.stdout, "SESSION", "PROFILE", "STATE", "TOKEN", "WORKER", "TASK", "CONNECTIONS", "EXPIRES AT", "PERSON", "KIND")
		for _, s := range sessions.Items {
			t.row(s.SessionID, s.ProfileID, s.State, s.Token, s.WorkerID, s.TaskID, s.Connections, s.ExpiresAt, personOf(s), kindOf(s))
		}
		return t.flush()
	})
}

// kindOf says whether a session has the lease of its profile.
func kindOf(s api.Session) string {
	switch {
	case s.Ephemeral && s.ReadOnly:
		return "ephemeral, read-only"
	case s.Ephemeral:
		return "ephemeral"
	}
	return "lease"
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
