package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"time"

	"leasehold/launcher/agents"
	"leasehold/launcher/api"
)

// leasedSession is a session that this command has on a profile, until it releases it.
type leasedSession struct {
	api.Session
	sidecar *client
	raw     json.RawMessage // the session as the sidecar answered
	task    string
	beat    time.Duration // between two heartbeats
}

// newSession reads the session that was granted, and asks how often it wants a heartbeat.
// If that fails it releases the session.
func newSession(a *app, sidecar *client, raw json.RawMessage, task string) (*leasedSession, error) {
	granted, err := read[api.Session](raw)
	if err != nil {
		return nil, err
	}
	s := &leasedSession{Session: granted, sidecar: sidecar, raw: raw, task: task}
	if s.beat, err = agents.HeartbeatInterval(context.Background(), sidecar, granted); err != nil {
		return nil, errors.Join(err, s.release(a, outcomeFailed, "the command was not run"))
	}
	return s, nil
}

// environment is the environment of the command: this process's, with what the command has to
// know about its session. base is the sidecar's URL.
func (s *leasedSession) environment(a *app, base string) []string {
	env := append(os.Environ(),
		"LEASEHOLD_CDP_URL="+s.CDPURL, "LEASEHOLD_SESSION="+s.SessionID,
		"LEASEHOLD_TOKEN="+strconv.FormatUint(uint64(s.Token), 10), "LEASEHOLD_PROFILE="+s.ProfileID,
		"LEASEHOLD_TASK="+s.task, "LEASEHOLD_URL="+base)
	if s.DedicatedURL != nil {
		env = append(env, "LEASEHOLD_DEDICATED_URL="+*s.DedicatedURL)
	}
	if s.Resume == nil {
		return env
	}
	env = append(env, "LEASEHOLD_RESUME_FROM="+s.Resume.From, "LEASEHOLD_RESUME_CHECKPOINT="+s.Resume.Checkpoint)
	switch size := len(s.Resume.Data); {
	case size > maxEnvironment:
		a.warn("the checkpoint's data has %d bytes, too many for LEASEHOLD_RESUME_DATA: it is in GET %s/v1/sessions/%s, as resume.data", size, base, s.SessionID)
	case size > 0:
		env = append(env, "LEASEHOLD_RESUME_DATA="+string(s.Resume.Data))
	}
	return env
}

// maxEnvironment is the most, in bytes, of a checkpoint's data that goes into the
// environment: the kernel refuses a variable of 128 KiB.
const maxEnvironment = 96 << 10

// keepAlive sends heartbeats until ctx ends, or until the lease is lost.
func (s *leasedSession) keepAlive(ctx context.Context, a *app, losses chan<- error) {
	if err := agents.KeepAlive(ctx, s.sidecar, s.Session, s.beat, func(err error) { a.warn("heartbeat: %v", err) }); err != nil {
		losses <- err
	}
}

// now asks the sidecar for the session as it is now.
func (s *leasedSession) now(ctx context.Context) (api.Session, error) {
	raw, err := s.sidecar.ask(ctx, http.MethodGet, nil, "v1", "sessions", s.SessionID)
	if err != nil {
		return api.Session{}, err
	}
	return read[api.Session](raw)
}

// release ends the session in order.
func (s *leasedSession) release(a *app, outcome, reason string) error {
	_, err := s.end(a, api.Release{Outcome: outcome, Reason: reason})
	return err
}

// end ends the session, and returns it in its final state. A sidecar that cannot be reached is asked again
// for agents.Patience.
func (s *leasedSession) end(a *app, r api.Release) (api.Session, error) {
	ended, err := agents.EndSession(context.Background(), s.sidecar, s.Session, r, agents.Patience, func(err error) {
		a.warn("the end of session %s is asked for again: %v", s.SessionID, err)
	})
	if err != nil && !agents.IsFinal(err) {
		err = fmt.Errorf("session %s of %s is not released, as far as is known: it then ends as a lost worker's: %w", s.SessionID, s.ProfileID, err)
	}
	return ended, err
}
