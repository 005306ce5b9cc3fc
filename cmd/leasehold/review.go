package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"

	"leasehold/launcher/api"
	"leasehold/lease"
)

type reviewCmd struct {
	clientFlags `embed:""`
	Profile     profileArg  `arg:"" help:"The profile."`
	Decision    string      `required:"" enum:"approve,keep" placeholder:"approve|keep" help:"Make the profile available again, or keep it in review."`
	Reviewer    string      `placeholder:"NAME" help:"Who decides (default: $$USER)."`
	Note        string      `placeholder:"TEXT" help:"Why."`
	Token       lease.Token `placeholder:"N" help:"The lease token that the reviewer saw. Without it, approve shows the profile and asks, at a terminal only (default for keep: the one shown now)."`
	Sequence    uint64      `placeholder:"N" help:"The number of the profile's last event that the reviewer saw: if there is another one since, the decision is refused (default without --token: the one shown now)."`
	Evidence    string      `placeholder:"ID" help:"The evidence that the reviewer decided on: a decision on another incident's is refused."`
	Home        string      `placeholder:"LAUNCHER" help:"The launcher that is the profile's home from now on, where two claim it, or none is there."`
}

// Run sends the decision.
func (c *reviewCmd) Run(a *app) error {
	return shown(c.clientFlags, a, func(ctx context.Context, sidecar *client) (json.RawMessage, error) { return c.ask(ctx, a, sidecar) }, func(now api.Profile) error {
		_, err := fmt.Fprintf(a.stdout, "%s: %s by %s, token %d, now %s\n", c.Profile, c.Decision, printable(c.Reviewer), now.Token, cell(now.State))
		if note := api.HomeNote(now); note != "" && err == nil {
			_, err = fmt.Fprintln(a.stdout, printable(note))
		}
		return err
	})
}

// deciding returns who decides about a profile, and the lease token that they saw. If no token
// is given, the profile is shown first, and the token is its present one; sequence is the number of the last
// event that was shown then, else 0. does and flag are for the error if nobody is named.
func deciding(ctx context.Context, a *app, sidecar *client, profile, name, does, flag string, seen lease.Token) (who string, token lease.Token, sequence uint64, err error) {
	if who, err = person(name, does, flag); err != nil || seen != 0 {
		return who, seen, 0, err
	}
	shown, err := showRecord(ctx, a, sidecar, profile)
	return who, shown.Token, shown.Sequence, err
}

func (c *reviewCmd) ask(ctx context.Context, a *app, sidecar *client) (json.RawMessage, error) {
	id := string(c.Profile)
	reviewer, token, sequence, err := deciding(ctx, a, sidecar, id, c.Reviewer, "reviews", "--reviewer", c.Token)
	if err != nil {
		return nil, err
	}
	if c.Token == 0 && c.Decision == lease.ReviewApprove {
		if err := c.confirm(ctx, a, token); err != nil {
			return nil, err
		}
	}
	c.Reviewer = reviewer
	return sidecar.ask(ctx, http.MethodPost, api.ReviewRequest{
		Write: api.Write{Token: token}, Decision: c.Decision, Reviewer: reviewer, Note: c.Note,
		EvidenceID: c.Evidence, Sequence: cmp.Or(c.Sequence, sequence), Home: c.Home,
	}, "v1", "profiles", id, "review")
}

// confirm asks whether the incident that has this token now, and was shown just before, is to be approved, which
// cannot be undone. The reviewer may have looked at an earlier one.
func (c *reviewCmd) confirm(ctx context.Context, a *app, token lease.Token) error {
	if !isTerminal(a.stdin) {
		return exitWith(exitUsage, "--decision approve without --token, and nobody to ask: give --token %d if that is what you have looked at (leasehold show %s)", token, c.Profile)
	}
	if _, err := fmt.Fprintf(a.stderr, "approve %s, token %d? y/N ", c.Profile, token); err != nil {
		return err
	}
	typed := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(a.stdin).ReadString('\n') // an error leaves what is no yes
		typed <- strings.ToLower(strings.TrimSpace(line))
	}()
	said := ""
	select {
	case said = <-typed:
	case <-ctx.Done(): // a signal
	}
	if said != "y" && said != "yes" {
		return exitWith(exitUsage, "not approved: %s stays in review", c.Profile)
	}
	return nil
}

// person is the name of the person who acts: the given one, or the user's.
func person(given, does, flag string) (string, error) {
	if given == "" {
		given = os.Getenv("USER")
	}
	if given == "" {
		return "", exitWith(exitUsage, "who %s? USER is not set: give %s", does, flag)
	}
	return given, nil
}

// showRecord returns the profile's current record, and shows the person what it says.
func showRecord(ctx context.Context, a *app, sidecar *client, id string) (api.Profile, error) {
	seen, err := sidecar.record(ctx, id)
	if err == nil {
		a.warn("%s is %s with token %d (%s, %s)", id, cell(seen.State), seen.Token, cell(seen.Reason), cell(seen.LastKnownURL))
	}
	return seen, err
}
