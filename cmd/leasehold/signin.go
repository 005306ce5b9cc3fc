package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"leasehold/launcher/api"
)

type signInCmd struct {
	clientFlags `embed:""`
	Profile     profileArg `arg:"" help:"The profile."`
	Page        string     `placeholder:"URL" help:"The page with which the person begins (default: where the account was found not to be signed in)."`
	Revoke      bool       `help:"Take the profile's link back, and end what its person has."`
}

// Help is what leasehold sign-in --help prints besides the flags.
func (c *signInCmd) Help() string {
	return `Prints a link by which a person signs the profile's account in, on a phone for example. The
first who opens it, and says so, gets the profile's browser on that page; nobody else does. It is
good for one use within 30 minutes. Once the person says that they are done, the site is asked
(--session-check, or the identity of a site): if the account is signed in, the profile is free.

A worker that waits for a person (leasehold ask) keeps its session: the link leads into it.`
}

// Run makes a link, or takes it back.
func (c *signInCmd) Run(a *app) error {
	if c.Revoke && c.Page != "" {
		return exitWith(exitUsage, "--page is for a new link, and --revoke makes none")
	}
	path := []string{"v1", "profiles", string(c.Profile), "sign-in-link"}
	if c.Revoke {
		return shown(c.clientFlags, a, func(ctx context.Context, sidecar *client) (json.RawMessage, error) {
			return sidecar.ask(ctx, http.MethodDelete, nil, path...)
		}, func(was api.SignInRevoked) error {
			said := "its link cannot be used any more"
			if was.LinkID == "" {
				said = "it has no link"
			}
			_, err := fmt.Fprintf(a.stdout, "%s: %s\n", c.Profile, said)
			return err
		})
	}
	return shown(c.clientFlags, a, func(ctx context.Context, sidecar *client) (json.RawMessage, error) {
		return sidecar.ask(ctx, http.MethodPost, api.SignInLinkRequest{URL: c.Page}, path...)
	}, func(link api.SignInLink) error {
		_, err := fmt.Fprintf(a.stdout, "%s\nfor one use until %s: whoever opens it first has the browser of %s\n", printable(link.URL), link.ExpiresAt.Local().Format(time.TimeOnly), c.Profile)
		return err
	})
}
