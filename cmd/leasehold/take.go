package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"leasehold/launcher/api"
)

type takeCmd struct {
	clientFlags  `embed:""`
	sessionFlags `embed:""`
	Profile      profileArg `arg:"" help:"The profile."`
	Person       string     `placeholder:"NAME" help:"Who takes it over (default: $$USER)."`
	Note         string     `placeholder:"TEXT" help:"What for, or what was done."`
	From         string     `placeholder:"NAME" help:"Take it from the person of this name, who has it."`
	HandBack     bool       `help:"Hand back a session that you have, and do nothing else."`
	NotDone      bool       `help:"Hand it back saying that what its worker asked for is not done."`

	askID string // of the request that was shown last; empty: none was
}

// Help is what leasehold take --help prints besides the flags.
func (c *takeCmd) Help() string {
	return `Takes a living session over from its worker, which keeps its lease and may only look
until the session is handed back. The pages are shown and driven at the printed URL.

Ctrl-C hands the session back, and so does the button on that page, or --hand-back in
another terminal. Ctrl-C says that what was asked for, as it is printed, is done;
--hand-back says so of what its worker asked for before you took it over.`
}

// takeSign is how often the sidecar is told that the person is still there.
const takeSign = 20 * time.Second

// Run takes the session over and waits until it is handed back, or hands it back.
func (c *takeCmd) Run(a *app) error {
	if c.NotDone && !c.HandBack {
		return exitWith(exitUsage, "--not-done goes with --hand-back")
	}
	name, err := person(c.Person, "takes it over", "--person")
	if err != nil {
		return err
	}
	return c.withSidecar(a, func(ctx context.Context, sidecar *client) error {
		s, err := c.find(ctx, sidecar, string(c.Profile))
		if err != nil {
			return err
		}
		if c.HandBack {
			raw, err := c.handBack(ctx, a, sidecar, s)
			if err != nil || c.JSON {
				return a.printAnswer(raw, err)
			}
			_, err = fmt.Fprintf(a.stdout, "%s: handed back to %s\n", c.Profile, cell(s.WorkerID))
			return err
		}
		return c.have(ctx, a, sidecar, s, name)
	})
}

// have takes a session over, and returns when it is handed back.
func (c *takeCmd) have(ctx context.Context, a *app, sidecar *client, s api.Session, name string) error {
	raw, err := c.take(ctx, sidecar, s, name, c.From)
	if err != nil {
		return err
	}
	taken, err := read[api.Session](raw)
	if err != nil {
		return err
	}
	if c.JSON {
		err = a.printJSON(raw)
	} else {
		_, err = fmt.Fprintf(a.stdout, "%s is yours: %s\npress Ctrl-C when you are done\n", c.Profile, liveOf(sidecar.base.String(), string(c.Profile), s.SessionID)+"&person="+url.QueryEscape(name))
	}
	if err := errors.Join(err, c.shows(a, taken.Ask)); err != nil {
		return err
	}
	how, err := c.stay(ctx, a, sidecar, s, name)
	if err != nil || c.JSON {
		return err
	}
	_, err = fmt.Fprintf(a.stdout, "%s: %s\n", c.Profile, printable(how))
	return err
}

// shows prints what the worker waits for, if that is new.
func (c *takeCmd) shows(a *app, asked *api.Ask) (err error) {
	if asked == nil || asked.ID == c.askID {
		return nil
	}
	c.askID = asked.ID
	if !c.JSON {
		_, err = fmt.Fprintf(a.stdout, "its worker waits until %s for: %s\n", cell(asked.Until), cell(asked.Reason))
	}
	return err
}

func (c *takeCmd) take(ctx context.Context, sidecar *client, s api.Session, name, from string) ([]byte, error) {
	return sidecar.ask(ctx, http.MethodPost, api.TakeOver{Write: api.Write{Token: s.Token}, Person: name, Note: c.Note, TakeFrom: from},
		"v1", "sessions", s.SessionID, "take-over")
}

// handBack answers the request that was shown last or, if none was, the one that waited at the take-over.
func (c *takeCmd) handBack(ctx context.Context, a *app, sidecar *client, s api.Session) ([]byte, error) {
	h := api.HandBack{Write: api.Write{Token: s.Token}, Note: c.Note, AskID: c.askID}
	if c.NotDone {
		done := false
		h.Answered = &done
	}
	raw, err := sidecar.ask(ctx, http.MethodPost, h, "v1", "sessions", s.SessionID, "hand-back")
	if err != nil {
		return nil, err
	}
	now, err := read[api.Session](raw)
	if err == nil && now.Ask != nil {
		a.warn("the worker of %s waits for a person still: %s", c.Profile, now.Ask.Reason)
	}
	return raw, err
}

// stay waits until the person no longer has the session, and returns how that came about. A
// signal hands it back. Repeating the request at intervals shows that the person is there.
func (c *takeCmd) stay(ctx context.Context, a *app, sidecar *client, s api.Session, name string) (string, error) {
	mine, signed := &leasedSession{Session: s, sidecar: sidecar}, time.Now()
	how, done, err := mine.follow(ctx, a, func(now api.Session) (string, error) {
		switch {
		case now.State != api.SessionServing:
			return "the session is over: " + now.Ended, nil
		case now.Person == nil:
			return "handed back", nil
		case now.Person.Name != name:
			return "taken by " + now.Person.Name, nil
		case !c.JSON: // with --json, no more is shown than the session as it was taken over
			if err := c.shows(a, now.Ask); err != nil {
				return "", err
			}
		}
		if time.Since(signed) > takeSign {
			// If it fails, the next look at the session says what became of it.
			if _, err := c.take(ctx, sidecar, s, name, ""); err == nil {
				signed = time.Now()
			}
		}
		return "", nil
	})
	if !done {
		_, err = c.handBack(context.Background(), a, sidecar, s)
		return "handed back", err
	}
	return how, err
}
