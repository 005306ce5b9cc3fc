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
		t := newTable(a.stdout, "SESSION", "PROFILE", "STATE", "TOKEN", "WORKER", "TASK", "CONNECTIONS", "EXPIRES AT")
		for _, s := range sessions.Items {
			t.row(s.SessionID, s.ProfileID, s.State, s.Token, s.WorkerID, s.TaskID, s.Connections, s.ExpiresAt)
		}
		return t.flush()
	})
}
