package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"leasehold/launcher/api"
	"leasehold/lease"
)

// sessionFlags name a living session: by its id, or as the only one of a profile. Both are in
// the environment of a command that exec runs.
type sessionFlags struct {
	Session string      `env:"LEASEHOLD_SESSION" placeholder:"ID" help:"The session (default: the only one of the profile)."`
	Token   lease.Token `env:"LEASEHOLD_TOKEN" placeholder:"N" help:"The session's lease token (default: the one shown now)."`
}

// find asks the sidecar for the session that the flags name. If another launcher has the
// profile, it asks that one, and so does the client from then on. profile may be empty if the
// flags have an id.
func (f sessionFlags) find(ctx context.Context, sidecar *client, profile string) (api.Session, error) {
	if f.Session != "" {
		ask := func() (json.RawMessage, error) {
			return sidecar.ask(ctx, http.MethodGet, nil, "v1", "sessions", f.Session)
		}
		raw, err := ask()
		if profile != "" && refusedWith(err, api.CodeUnknownSession) {
			if _, failed := sidecar.with(ofProfile(profile)).ask(ctx, http.MethodGet, nil, "v1", "sessions"); failed != nil {
				return api.Session{}, failed
			}
			if sidecar.moved {
				raw, err = ask()
			}
		}
		if err != nil {
			return api.Session{}, err
		}
		s, err := read[api.Session](raw)
		if err == nil && profile != "" && s.ProfileID != profile {
			err = exitWith(exitUsage, "session %s is on profile %s, not on %s", s.SessionID, s.ProfileID, profile)
		}
		return f.with(s), err
	}
	raw, err := sidecar.with(ofProfile(profile)).askAll(ctx, "v1", "sessions")
	if err != nil {
		return api.Session{}, err
	}
	all, err := read[list[api.Session]](raw)
	if err != nil {
		return api.Session{}, err
	}
	var found []api.Session
	for _, s := range all.Items {
		if s.ProfileID == profile && s.State == api.SessionServing {
			found = append(found, s)
		}
	}
	switch len(found) {
	case 0:
		return api.Session{}, exitWith(exitRefused, "profile %s has no living session at this sidecar (leasehold sessions lists them)", profile)
	case 1:
		return f.with(found[0]), nil
	}
	return api.Session{}, exitWith(exitUsage, "profile %s has %d living sessions: name one of them by --session (leasehold sessions lists them)", profile, len(found))
}

// ofProfile asks for a list that is limited to a profile.
func ofProfile(profile string) url.Values { return url.Values{"profile_id": {profile}} }

// with is the session with the token of the flags, if they have one.
func (f sessionFlags) with(s api.Session) api.Session {
	if f.Token != 0 {
		s.Token = f.Token
	}
	return s
}

type askCmd struct {
	clientFlags  `embed:""`
	sessionFlags `embed:""`
	Reason       string        `arg:"" help:"What the person is to do."`
	Profile      profileArg    `env:"LEASEHOLD_PROFILE" placeholder:"P" help:"The profile, where no session is named."`
	Wait         time.Duration `default:"10m" placeholder:"DURATION" help:"The longest to wait (default: ${default})."`
}

// Help is what leasehold ask --help prints besides the flags.
func (c *askCmd) Help() string {
	return `Waits until a person has taken the session over, done what is asked for, and handed it
back. The session's worker counts as alive meanwhile. A command that leasehold exec runs
needs no flags: leasehold ask "enter the code".

Exits 0 if a person answered, and 11 if not: nobody came in time, or the person says that
it could not be done. Ctrl-C withdraws the request.`
}

// Run asks for a person and waits.
func (c *askCmd) Run(a *app) error {
	if c.Session == "" && c.Profile == "" {
		return exitWith(exitUsage, "which session? give --session or --profile")
	}
	return c.withSidecar(a, func(ctx context.Context, sidecar *client) error { return c.ask(ctx, a, sidecar) })
}

func (c *askCmd) ask(ctx context.Context, a *app, sidecar *client) error {
	s, err := c.find(ctx, sidecar, string(c.Profile))
	if err != nil {
		return err
	}
	raw, err := sidecar.askFor(ctx, http.MethodPost, api.AskPerson{Write: api.Write{Token: s.Token}, Reason: c.Reason, Wait: api.Duration(c.Wait)},
		"v1", "sessions", s.SessionID, "ask")
	if interrupted, ok := errors.AsType[*interruptedError](err); ok {
		return exitWith(exitCode(err), "%w: the request is withdrawn", interrupted)
	}
	if err != nil {
		return err
	}
	answer, err := read[api.Answer](raw)
	if err != nil {
		return err
	}
	if c.JSON {
		err = a.printJSON(raw)
	} else {
		err = tellAnswer(a, answer)
	}
	if err == nil && !answer.Answered {
		err = &exitError{code: exitNotAnswered}
	}
	return err
}

// tellAnswer prints who answered and what they said, and on a line of its own the data that
// they gave.
func tellAnswer(a *app, answer api.Answer) error {
	text := "answered by " + answer.By
	switch {
	case answer.Reason == api.AskDeclined:
		text = "not done, says " + answer.By
	case !answer.Answered:
		text = "nobody answered in time"
	}
	if answer.Note != "" {
		text += ": " + answer.Note
	}
	if _, err := fmt.Fprintln(a.stdout, printable(text)); err != nil || len(answer.Data) == 0 {
		return err
	}
	return a.printJSON(answer.Data)
}
