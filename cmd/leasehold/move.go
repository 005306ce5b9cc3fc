package main

import (
	"context"
	"fmt"
	"net/http"

	"leasehold/launcher/api"
	"leasehold/lease"
)

type moveCmd struct {
	clientFlags `embed:""`
	Profile     profileArg  `arg:"" help:"The profile, which nobody uses."`
	To          string      `placeholder:"LAUNCHER" help:"The launcher that is to be its home (default: the one that is asked, and only that one does it)."`
	Person      string      `placeholder:"NAME" help:"Who decides (default: $$USER)."`
	Note        string      `placeholder:"TEXT" help:"Why."`
	Token       lease.Token `placeholder:"N" help:"The lease token that was seen (default: the one shown now)."`
}

// Run asks the sidecar to be the profile's home.
func (c *moveCmd) Run(a *app) error {
	return c.withSidecar(a, func(ctx context.Context, sidecar *client) error { return c.move(ctx, a, sidecar) })
}

func (c *moveCmd) move(ctx context.Context, a *app, sidecar *client) error {
	id := string(c.Profile)
	person, token, _, err := deciding(ctx, a, sidecar, id, c.Person, "decides", "--person", c.Token)
	if err != nil {
		return err
	}
	raw, err := sidecar.askFor(ctx, http.MethodPost, api.ProfileMove{Write: api.Write{Token: token}, To: c.To, Person: person, Note: c.Note}, "v1", "profiles", id, "move")
	if err != nil || c.JSON {
		return a.printAnswer(raw, err)
	}
	now, err := read[api.Profile](raw)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.stdout, "%s: %s, token %d, now %s\n", id, printable(api.MoveNote(now.Record)), now.Token, cell(now.State))
	return err
}
