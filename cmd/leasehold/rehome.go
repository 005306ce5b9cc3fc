package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"leasehold/launcher/api"
	"leasehold/lease"
)

type rehomeCmd struct {
	clientFlags `embed:""`
	Profile     profileArg  `arg:"" help:"The profile."`
	To          string      `placeholder:"LAUNCHER" help:"The launcher that is to be its home (default: the one that is asked, and only that one does it)."`
	Snapshot    string      `xor:"directory" placeholder:"ID" help:"Its directory is that of this snapshot, or of the newest one: newest."`
	From        string      `xor:"directory" placeholder:"DIR" help:"Its directory is a copy of this Chrome user-data-dir of the sidecar's host."`
	Left        bool        `xor:"directory" help:"Its directory is a copy of the one that it left on this host before."`
	Empty       bool        `xor:"directory" help:"Its directory is empty: nothing of the account's session is in it."`
	AskHome     bool        `help:"Have a home that is there give it up; without this only a home that is gone loses it."`
	Person      string      `placeholder:"NAME" help:"Who decides (default: $$USER)."`
	Note        string      `required:"" placeholder:"TEXT" help:"Why."`
	Token       lease.Token `placeholder:"N" help:"The lease token that was seen (default: the one shown now)."`
	AcceptLoss  bool        `help:"Accept that what is only on the old home's disk is not taken along; without this the command says what that is."`
}

// Run asks the sidecar to be the profile's home.
func (c *rehomeCmd) Run(a *app) error {
	if c.Snapshot == "" && c.From == "" && !c.Left && !c.Empty {
		return exitWith(exitUsage, "want one of --snapshot ID, --from DIR, --left and --empty: what the profile's directory is to be")
	}
	return shown(c.clientFlags, a, func(ctx context.Context, sidecar *client) (json.RawMessage, error) { return c.ask(ctx, a, sidecar) }, func(now api.Profile) error {
		err := a.tellMoved(now)
		if err == nil && now.State == lease.ManualReview {
			_, err = fmt.Fprintf(a.stdout, "it still waits for a person: leasehold review %s\n", c.Profile)
		}
		return err
	})
}

func (c *rehomeCmd) ask(ctx context.Context, a *app, sidecar *client) (json.RawMessage, error) {
	id := string(c.Profile)
	person, token, _, err := deciding(ctx, a, sidecar, id, c.Person, "decides", "--person", c.Token)
	if err != nil {
		return nil, err
	}
	return sidecar.askFor(ctx, http.MethodPost, api.ProfileRehome{
		Write: api.Write{Token: token}, To: c.To, Snapshot: c.Snapshot, From: c.From, Left: c.Left, Empty: c.Empty, Person: person, Note: c.Note,
		AcceptLoss: c.AcceptLoss, AskHome: c.AskHome,
	}, "v1", "profiles", id, "rehome")
}
