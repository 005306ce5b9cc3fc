package main

import (
	"context"
	"fmt"
	"net/http"

	"leasehold/launcher/api"
)

type checkCmd struct {
	clientFlags `embed:""`
	Profile     profileArg `arg:"" help:"The profile, which nobody uses."`
}

// Run makes the profile's session check, and fails unless the account is signed in.
func (c *checkCmd) Run(a *app) error {
	return c.withSidecar(a, func(ctx context.Context, sidecar *client) error {
		raw, err := sidecar.ask(ctx, http.MethodPost, nil, "v1", "profiles", string(c.Profile), "check")
		if err != nil || c.JSON {
			if err := a.printAnswer(raw, err); err != nil {
				return err
			}
		}
		found, err := read[api.SessionChecked](raw)
		if err != nil {
			return err
		}
		if !c.JSON {
			if _, err := fmt.Fprintf(a.stdout, "%s: signed in: %s (%s)\n", c.Profile, cell(found.SignedIn), printable(found.How)); err != nil {
				return err
			}
		}
		if found.SignedIn != "yes" {
			return &exitError{code: exitFailure}
		}
		return nil
	})
}
