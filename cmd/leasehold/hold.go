package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"leasehold/launcher/agents"
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

// Help is what leasehold hold --help prints besides the flags.
func (c *holdCmd) Help() string {
	return `Opens the profile in a browser for a person; no task gets it meanwhile. Ctrl-C, or
closing the browser, ends it. A profile in manual review can be held too, to look what
happened: it is in review again afterwards.

A browser without windows is used on the printed page of the console: mouse, keys, tabs and the
clipboard work there. The DevTools of another browser reach it, too: add the other printed address
under "Configure" in chrome://inspect.`
}

// holdPoll is how often the sidecar is asked whether the person is done.
const holdPoll = time.Second

const outcomeByHand = "by_hand"

// Run opens the profile for a person and waits until the person is done.
func (c *holdCmd) Run(a *app) error {
	return c.withSidecar(a, func(ctx context.Context, sidecar *client) error { return c.hold(ctx, a, sidecar) })
}

func (c *holdCmd) hold(ctx context.Context, a *app, sidecar *client) error {
	s, err := c.open(ctx, a, sidecar)
	if err != nil {
		return err
	}
	c.announce(a, s)
	how, err := s.waitUntilDone(ctx, a)
	if err != nil || c.JSON {
		return err
	}
	_, err = fmt.Fprintf(a.stdout, "%s: %s\n", c.Profile, how)
	return err
}

func (c *holdCmd) open(ctx context.Context, a *app, sidecar *client) (*leasedSession, error) {
	holder, err := person(c.Holder, "uses the profile", "--holder")
	if err != nil {
		return nil, err
	}
	id := string(c.Profile)
	token, err := seenToken(ctx, a, sidecar, c.Profile, c.Token)
	if err != nil {
		return nil, err
	}
	// A signal does not end the request: the hold may be granted all the same, and then has to
	// be known in order to be given back.
	raw, err := sidecar.ask(context.WithoutCancel(ctx), http.MethodPost, api.HoldRequest{
		Write: api.Write{Token: token}, Holder: holder, Note: c.Note, LockTimeoutSeconds: c.For.Seconds(), Headless: c.Headless,
	}, "v1", "profiles", id, "hold")
	if err != nil {
		return nil, err
	}
	granted, err := read[api.Session](raw)
	if err != nil {
		return nil, err
	}
	return &leasedSession{Session: granted, sidecar: sidecar, raw: raw}, nil
}

// announce tells the person how to use the profile.
func (c *holdCmd) announce(a *app, s *leasedSession) {
	if c.JSON {
		fmt.Fprintf(a.stdout, "%s\n", s.raw)
		return
	}
	fmt.Fprintf(a.stdout, "%s is yours with token %d for %v: close the browser or press Ctrl-C when you are done\n", c.Profile, s.Token, c.For)
	if s.DedicatedURL != nil {
		fmt.Fprintf(a.stdout, "no window? use it at %s/live, or add %s in chrome://inspect\n", pageOf(s.sidecar.base.String(), string(c.Profile)), strings.TrimPrefix(*s.DedicatedURL, "http://"))
	}
}

// follow checks the session at intervals, until look says how it ended or returns an error, or
// until ctx ends: then done is false. If the sidecar cannot be reached, follow goes on until it
// answers.
func (s *leasedSession) follow(ctx context.Context, a *app, look func(now api.Session) (how string, err error)) (how string, done bool, err error) {
	poll := time.NewTicker(holdPoll)
	defer poll.Stop()
	away := false
	for {
		select {
		case <-ctx.Done():
			return "", false, nil
		case <-poll.C:
		}
		now, err := s.now(ctx)
		switch {
		case ctx.Err() != nil:
			continue
		case agents.IsFinal(err):
			return "", true, err
		case err != nil && !away:
			a.warn("%v", err)
		case err == nil:
			if how, err := look(now); how != "" || err != nil {
				return how, true, err
			}
		}
		away = err != nil
	}
}

// waitUntilDone waits until the person is done, and returns how that came about. The person
// closes the browser, or sends a signal, which releases the profile.
func (s *leasedSession) waitUntilDone(ctx context.Context, a *app) (string, error) {
	how, done, err := s.follow(ctx, a, func(now api.Session) (string, error) {
		if now.State != api.SessionEnded {
			return "", nil
		}
		return now.Ended, inOrder(now)
	})
	if !done {
		ended, err := s.end(a, api.Release{Outcome: outcomeByHand})
		return "handed back", cmp.Or(err, inOrder(ended))
	}
	return how, err
}

// inOrder says of a hold that is over whether the profile is free again.
func inOrder(ended api.Session) error {
	if ended.Released {
		return nil
	}
	return exitWith(exitRefused, "the hold did not end in order: %s", ended.Ended)
}
