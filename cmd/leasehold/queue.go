package main

import (
	"cmp"
	"context"
	"encoding/json"
	"net/url"
	"strings"

	"leasehold/launcher/api"
)

type queueCmd struct {
	clientFlags `embed:""`
	Profile     profileArg `placeholder:"PROFILE" help:"Only those that could be given this profile."`
}

// Run prints who waits.
func (c *queueCmd) Run(a *app) error {
	parameters := url.Values{}
	if c.Profile != "" {
		parameters.Set("profile_id", string(c.Profile))
	}
	return shown(c.clientFlags, a, func(ctx context.Context, sidecar *client) (json.RawMessage, error) {
		return sidecar.with(parameters).askAll(ctx, "v1", "queue")
	}, func(queue list[api.Waiting]) error {
		t := newColumns(a.stdout, "WANTS", "POSITION", "PRIORITY", "WORKER", "TASK", "LAUNCHER", "SINCE")
		for _, w := range queue.Items {
			t.row(wants(w), w.Position, w.Priority, w.WorkerID, w.TaskID, w.LauncherID, w.Since)
		}
		return t.flush()
	})
}

func wants(w api.Waiting) string {
	var any []string
	if w.AccountID != "" {
		any = append(any, "account "+w.AccountID)
	}
	return cmp.Or(w.ProfileID, strings.Join(append(any, w.Labels.Texts()...), " "))
}
