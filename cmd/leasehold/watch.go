package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"leasehold/internal/natsd"
	"leasehold/lease"
	"leasehold/lease/natskv"
)

type watchCmd struct {
	Profile   profileArg    `arg:"" optional:"" help:"Only this profile."`
	NATSURL   string        `name:"nats-url" env:"LEASEHOLD_EVENTS_URL,LEASEHOLD_NATS_URL" default:"nats://127.0.0.1:4333" placeholder:"URL" help:"The NATS that has the events (default: ${default}, the one inside a sidecar). LEASEHOLD_EVENTS_URL is for this command alone, LEASEHOLD_NATS_URL for leasehold run too."`
	NATSCreds string        `name:"nats-creds" env:"LEASEHOLD_EVENTS_CREDS,LEASEHOLD_NATS_CREDS" type:"path" placeholder:"FILE" help:"Credentials for --nats-url: a user's JWT and seed, or the seed of an nkey."`
	NATSCA    string        `name:"nats-ca" env:"LEASEHOLD_EVENTS_CA,LEASEHOLD_NATS_CA" type:"path" placeholder:"FILE" help:"Certificates (PEM) of those who sign that of --nats-url (default: the system's)."`
	Token     string        `name:"nats-token-file" type:"path" placeholder:"FILE" help:"File with the API token that the NATS inside a sidecar wants from other users than its own and root."`
	All       bool          `help:"Begin with the oldest event that is kept, not with the next one."`
	Count     int           `placeholder:"N" help:"End after so many events (default: never)."`
	Timeout   time.Duration `placeholder:"DURATION" help:"Give up after this time, with exit code 124 (default: never)."`
	JSON      bool          `name:"json" help:"Print one JSON object a line."`
}

// Run prints events until it is interrupted, has printed --count of them, or --timeout has
// passed.
func (c *watchCmd) Run(a *app) error {
	switch {
	case c.Count < 0:
		return exitWith(exitUsage, "--count %d: want 1 or more", c.Count)
	case c.Timeout < 0:
		return exitWith(exitUsage, "--timeout %v: want more than zero", c.Timeout)
	}
	if err := checkNATS(c.target()); err != nil {
		return &exitError{exitUsage, err}
	}
	ctx, stop := interruptible()
	defer stop()
	if c.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.Timeout)
		defer cancel()
	}
	err := c.follow(ctx, a)
	interrupted, _ := errors.AsType[*interruptedError](context.Cause(ctx))
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return exitWith(exitTimeout, "--timeout %v ran out", c.Timeout)
	case interrupted != nil && c.Count > 0:
		return exitWith(interrupted.exitCode(), "%w before %d events came", interrupted, c.Count)
	case ctx.Err() != nil: // this is how a watch without --count ends
		return nil
	default:
		return err
	}
}

func (c *watchCmd) target() natsd.Target {
	return natsd.Target{URL: c.NATSURL, Creds: c.NATSCreds, CA: c.NATSCA}
}

// follow prints events until ctx ends or --count are printed.
func (c *watchCmd) follow(ctx context.Context, a *app) error {
	log := zerolog.New(zerolog.ConsoleWriter{Out: a.stderr, TimeFormat: time.TimeOnly}).Level(zerolog.WarnLevel).With().Timestamp().Logger()
	var more []nats.Option
	if c.Token != "" {
		token, err := readToken(c.Token)
		if err != nil {
			return &exitError{exitUsage, err}
		}
		more = append(more, nats.Token(token))
	}
	conn, err := natsd.Dial(ctx, c.target(), log, more...)
	if err != nil {
		return &exitError{exitNATS, err}
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return exitWith(exitNATS, "NATS: %w", err)
	}
	consumer, err := js.OrderedConsumer(ctx, natskv.Stream, c.consumer())
	if err != nil {
		return exitWith(exitNATS, "stream %s: %w: is a leasehold connected to this NATS (--nats-url)?", natskv.Stream, err)
	}
	messages, err := consumer.Messages()
	if err != nil {
		return exitWith(exitNATS, "stream %s: %w", natskv.Stream, err)
	}
	defer messages.Stop()
	for n := 0; c.Count == 0 || n < c.Count; n++ {
		message, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return exitWith(exitNATS, "stream %s: %w", natskv.Stream, err)
		}
		if err := c.printEvent(a, message.Data()); err != nil {
			return err
		}
	}
	return nil
}

func (c *watchCmd) consumer() jetstream.OrderedConsumerConfig {
	config := jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverNewPolicy}
	if c.All {
		config.DeliverPolicy = jetstream.DeliverAllPolicy
	}
	if c.Profile != "" {
		// leasehold.conflict.{profile} and leasehold.lease.{profile}.granted.
		subject := "leasehold.*." + lease.Key(string(c.Profile))
		config.FilterSubjects = []string{subject + ".>"}
		for _, kind := range []string{"conflict", "late_write"} { // a site may have the same name
			config.FilterSubjects = append(config.FilterSubjects, "leasehold."+kind+"."+lease.Key(string(c.Profile)))
		}
	}
	return config
}

func (c *watchCmd) printEvent(a *app, data []byte) error {
	if c.JSON {
		return a.printJSON(data)
	}
	var e lease.Event
	if err := json.Unmarshal(data, &e); err != nil {
		a.warn("an event on %s is not understood: %v", natskv.Stream, err)
		return nil
	}
	line := fmt.Sprintf("%s  %s  %s", cell(e.At), cell(cmp.Or(e.ProfileID, e.Site)), cell(e.Event))
	for _, field := range []struct {
		name  string
		value any
	}{
		{"token", e.Token}, {"current_token", e.CurrentToken}, {"worker", e.OwnerWorkerID}, {"task", e.TaskID},
		{"current_task", e.CurrentTaskID}, {"blocked_task", e.BlockedTaskID}, {"write", e.Write},
		{"reason", e.Reason}, {"person", e.Person}, {"revision", e.Revision}, {"requests", e.Requests}, {"decision", e.Decision}, {"reviewer", e.Reviewer}, {"outcome", e.Outcome},
		{"evidence", e.EvidenceID}, {"url", e.LastKnownURL},
	} {
		if text := cell(field.value); text != "-" && text != "0" {
			line += "  " + field.name + "=" + text
		}
	}
	_, err := fmt.Fprintln(a.stdout, line)
	return err
}
