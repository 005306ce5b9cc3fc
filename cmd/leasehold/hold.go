package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"leasehold/launcher/api"
	"leasehold/lease"
)

type holdCmd struct {
	clientFlags `embed:""`
	Profile     profileArg    `arg:"" help:"The profile."`
	Holder      string        `placeholder:"NAME" help:"Who uses it (default: $$USER)."`
	Note        string        `placeholder:"TEXT" help:"What for."`
	For         time.Duration `default:"1h" placeholder:"DURATION" help:"The longest it is kept; past it the profile goes through recovery (default: ${default})."`
	Headless    *bool         `negatable:"" help:"Run the browser without windows (default: as the sidecar does)."`
	Token       *lease.Token  `placeholder:"N" help:"The lease token that the person saw (default: the one shown now)."`
}

// Help is what leasehold hold --help says besides the flags.
func (c *holdCmd) Help() string {
	return `Opens the profile in a browser for a person; no task gets it meanwhile. Ctrl-C, or
closing the browser, ends it. A profile in manual review can be held too, to look what
happened: it is in review again afterwards.

A browser without windows is reached by the DevTools of another: add the printed address
under "Configure" in chrome://inspect.`
}

// holdLook is how often the sidecar is asked whether the person is done.
const holdLook = time.Second

func (c *holdCmd) Run(a *app) error { return c.printProblem(a, c.hold(a)) }

func (c *holdCmd) hold(a *app) error {
	sidecar, err := c.client()
	if err != nil {
		return err
	}
	holder, err := person(c.Holder, "uses the profile", "--holder")
	if err != nil {
		return err
	}
	ctx, stop := interruptible()
	defer stop()
	id := string(c.Profile)
	if c.Token == nil {
		seen, err := seenToken(ctx, a, sidecar, id)
		if err != nil {
			return err
		}
		c.Token = &seen
	}
	raw, err := sidecar.ask(ctx, http.MethodPost, api.HoldRequest{
		Write: api.Write{Token: *c.Token}, Holder: holder, Note: c.Note, LockTimeoutSeconds: c.For.Seconds(), Headless: c.Headless,
	}, "v1", "profiles", id, "hold")
	if err != nil {
		return err
	}
	session, err := read[api.Session](raw)
	if err != nil {
		return err
	}
	h := &held{sidecar: sidecar, session: session}
	if c.JSON {
		fmt.Fprintf(a.stdout, "%s\n", raw)
	} else {
		fmt.Fprintf(a.stdout, "%s is yours with token %d for %v: close the browser or press Ctrl-C when you are done\n", id, session.Token, c.For)
		if session.DedicatedURL != nil {
			fmt.Fprintf(a.stdout, "no window? add %s in chrome://inspect\n", strings.TrimPrefix(*session.DedicatedURL, "http://"))
		}
	}
	how, err := h.untilDone(ctx, a)
	if err != nil || c.JSON {
		return err
	}
	_, err = fmt.Fprintf(a.stdout, "%s: %s\n", id, how)
	return err
}

// person is who does something: the name given, or the user's.
func person(given, does, flag string) (string, error) {
	if given == "" {
		given = os.Getenv("USER")
	}
	if given == "" {
		return "", exitWith(exitUsage, "who %s? USER is not set: give %s", does, flag)
	}
	return given, nil
}

// seenToken is the profile's token now, which is told to the person.
func seenToken(ctx context.Context, a *app, sidecar *client, id string) (lease.Token, error) {
	seen, err := sidecar.record(ctx, id)
	if err != nil {
		return 0, err
	}
	a.warn("%s is %s with token %d (%s, %s)", id, cell(seen.State), seen.Token, cell(seen.Reason), cell(seen.LastKnownURL))
	return seen.Token, nil
}

// untilDone waits until the person is done, by closing the browser or by a signal,
// which releases the profile. A sidecar that is away may come back.
func (h *held) untilDone(ctx context.Context, a *app) (string, error) {
	look := time.NewTicker(holdLook)
	defer look.Stop()
	away := false
	for {
		select {
		case <-ctx.Done():
			return "handed back", h.release(outcomeByHand, "")
		case <-look.C:
		}
		now, err := h.look(ctx)
		var refused *refusedError
		switch {
		case ctx.Err() != nil:
			continue
		case errors.As(err, &refused) && refused.problem.Status < http.StatusInternalServerError:
			return "", err
		case err != nil && !away:
			a.warn("%v", err)
		case now.State == api.SessionEnded && strings.HasPrefix(now.Ended, "released"):
			return now.Ended, nil
		case now.State == api.SessionEnded:
			return "", exitWith(exitRefused, "the hold did not end in order: %s", now.Ended)
		}
		away = err != nil
	}
}

func (h *held) look(ctx context.Context) (api.Session, error) {
	raw, err := h.sidecar.ask(ctx, http.MethodGet, nil, "v1", "sessions", h.session.SessionID)
	if err != nil {
		return api.Session{}, err
	}
	return read[api.Session](raw)
}

// outcomeByHand is the outcome of a hold.
const outcomeByHand = "by_hand"
