package main

import (
	"context"
	"encoding/json"
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
	return shown(c.clientFlags, a, func(ctx context.Context, sidecar *client) (json.RawMessage, error) { return c.ask(ctx, a, sidecar) }, a.tellMoved)
}

func (c *moveCmd) ask(ctx context.Context, a *app, sidecar *client) (json.RawMessage, error) {
	id := string(c.Profile)
	person, token, _, err := deciding(ctx, a, sidecar, id, c.Person, "decides", "--person", c.Token)
	if err != nil {
		return nil, err
	}
	return sidecar.askFor(ctx, http.MethodPost, api.ProfileMove{Write: api.Write{Token: token}, To: c.To, Person: person, Note: c.Note}, "v1", "profiles", id, "move")
}

// tellMoved prints where a profile has its home now.
func (a *app) tellMoved(now api.Profile) error {
	_, err := fmt.Fprintf(a.stdout, "%s: %s, token %d, now %s\n", printable(now.ProfileID), printable(api.MoveNote(now.Record)), now.Token, cell(now.State))
	return err
}
