package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/launcher/api"
	"leasehold/lease"
)

// ForWrite finds the session for a write that carries a token. A write with another
// token than the session's, or to a session whose profile has moved on, is refused and
// reported.
func (h *Host) ForWrite(ctx context.Context, sessionID string, token lease.Token, write string) (*Session, error) {
	s, err := h.Lookup(sessionID)
	if err != nil {
		return nil, h.lateOrEnded(ctx, sessionID, token, write, err)
	}
	if err := s.writable(ctx, token, write); err != nil {
		return nil, err
	}
	return s, nil
}

// writable refuses a write with another token than the session's, and one to a session
// that is ending.
func (s *Session) writable(ctx context.Context, token lease.Token, write string) error {
	if token != s.token {
		return s.h.o.Announcer.Stale(ctx, s.profile, s.id, token, s.token, write)
	}
	if err := s.Fence().Check(); err == nil && !s.Ending() {
		return nil
	}
	ending := api.Refuse(api.CodeSessionEnded, "session %s is ending", s.id).With("session_id", s.id)
	return s.h.lateOrEnded(ctx, s.id, s.token, write, ending)
}

// lateOrEnded tells a write to a session that is over what happened: its token is stale
// where the profile has a higher one, else the session just ended.
func (h *Host) lateOrEnded(ctx context.Context, sessionID string, token lease.Token, write string, ended error) error {
	f, known := h.Identify(sessionID)
	if !known {
		return ended
	}
	entry, err := h.o.Store.Get(ctx, f.Manifest.ProfileID)
	if err == nil && entry.Record.Token > token {
		return h.o.Announcer.Stale(ctx, f.Manifest.ProfileID, sessionID, token, entry.Record.Token, write)
	}
	return ended
}

// Heartbeat says that the worker lives.
func (s *Session) Heartbeat(h api.Heartbeat) error {
	s.beat()
	if h.Step == "" {
		return nil
	}
	return s.record(checkpoint.Entry{Kind: checkpoint.KindStep, Name: h.Step})
}

// Step names what the worker does now.
func (s *Session) Step(st api.Step) error {
	if st.Name == "" {
		return api.Invalid("name", "want the step's name")
	}
	s.beat()
	return s.record(checkpoint.Entry{Kind: checkpoint.KindStep, Name: st.Name, Action: st.Action, Sensitive: st.Sensitive})
}

// Checkpoint names a point of the task.
func (s *Session) Checkpoint(c api.Checkpoint) error {
	if c.Name == "" {
		return api.Invalid("name", "want the checkpoint's name")
	}
	s.beat()
	return s.record(checkpoint.Entry{
		Kind: checkpoint.KindCheckpoint, Name: c.Name, Safe: c.Safe == nil || *c.Safe, Idempotent: c.Idempotent, Data: c.Data,
	})
}

// Event puts what the task reports into the journal.
func (s *Session) Event(e api.TaskEvent) error {
	if e.Type == "" {
		return api.Invalid("type", "want the event's type")
	}
	s.beat()
	return s.record(checkpoint.Entry{Kind: checkpoint.KindEvent, Name: e.Type, Data: e.Data})
}

// Release ends the session in order, and returns when the profile is free.
func (s *Session) Release(ctx context.Context, r api.Release) (api.Session, error) {
	shown := s.Show()
	s.release(r)
	select {
	case <-s.done:
	case <-ctx.Done():
		return api.Session{}, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	shown.State, shown.Ended, shown.Connections = api.SessionEnded, s.file.Ended, 0
	return shown, nil
}

// release states that the worker asked for the end.
func (s *Session) release(r api.Release) {
	r.Outcome, r.Reason = checkpoint.Clip(r.Outcome), checkpoint.Clip(r.Reason)
	s.update(func(f *facts) { f.released = &r })
}

// maxParams is the size of the largest command of the Lease domain, in bytes.
const maxParams = 1 << 20

// longest names the member of a JSON object that takes the most room.
func longest(params json.RawMessage) (name string) {
	var members map[string]json.RawMessage
	if json.Unmarshal(params, &members) != nil {
		return "params"
	}
	for m, value := range members {
		if name == "" || len(value) > len(members[name]) {
			name = m
		}
	}
	return checkpoint.Clip(name)
}

// domain answers a command of the Lease domain: the same writes as over REST. The
// connection itself is fenced, so the token need not be said again.
func (s *Session) domain(ctx context.Context, method string, params json.RawMessage) (any, *cdpproxy.Error) {
	if len(params) == 0 || string(params) == "null" {
		params = json.RawMessage("{}")
	}
	if len(params) > maxParams {
		return nil, &cdpproxy.Error{Code: invalidParams, Message: fmt.Sprintf("Invalid parameters: %s: the parameters have %d bytes, want at most %d", longest(params), len(params), maxParams)}
	}
	result, err := s.leaseCommand(ctx, method, params)
	var p *api.Problem
	switch {
	case err == nil:
		return result, nil
	case errors.Is(err, errUnknownMethod):
		return nil, &cdpproxy.Error{Code: unknownMethod, Message: "'" + method + "' wasn't found"}
	case errors.As(err, &p) && p.Code == api.CodeInvalidRequest:
		return nil, &cdpproxy.Error{Code: invalidParams, Message: "Invalid parameters: " + p.Detail}
	}
	return nil, &cdpproxy.Error{Code: serverError, Message: err.Error()}
}

// CDP's codes of errors.
const (
	invalidParams = -32602 // parameters that are wrong
	unknownMethod = -32601
	serverError   = -32000
)

var errUnknownMethod = errors.New("no such method")

// leaseCommand carries out one command of the Lease domain.
func (s *Session) leaseCommand(ctx context.Context, method string, params json.RawMessage) (any, error) {
	write := api.Write{Token: s.token}
	decode := func(v any) error { return api.DecodeBody(params, v, method) }
	// carryOut decodes a write and makes it, where the session may write.
	carryOut := func(v any, with *api.Write, name string, makeIt func() error) (any, error) {
		err := decode(v)
		if err == nil {
			err = s.writable(ctx, with.Token, name)
		}
		if err == nil {
			err = makeIt()
		}
		return struct{}{}, err
	}
	switch method {
	case "Lease.getLease":
		if err := decode(&struct{}{}); err != nil {
			return nil, err
		}
		v := s.Show()
		return map[string]any{
			"session_id": v.SessionID, "profile_id": v.ProfileID, "lease_token": v.Token, "worker_id": v.WorkerID,
			"task_id": v.TaskID, "expires_at": v.ExpiresAt, "acquired_at": v.AcquiredAt, "resume": v.Resume,
		}, nil
	case "Lease.heartbeat":
		h := api.Heartbeat{Write: write}
		return carryOut(&h, &h.Write, "heartbeat", func() error { return s.Heartbeat(h) })
	case "Lease.step":
		st := api.Step{Write: write}
		return carryOut(&st, &st.Write, "step", func() error { return s.Step(st) })
	case "Lease.checkpoint":
		c := api.Checkpoint{Write: write}
		return carryOut(&c, &c.Write, "checkpoint", func() error { return s.Checkpoint(c) })
	case "Lease.event":
		e := api.TaskEvent{Write: write}
		return carryOut(&e, &e.Write, "event", func() error { return s.Event(e) })
	case "Lease.release":
		r := api.Release{Write: write}
		if err := decode(&r); err != nil {
			return nil, err
		}
		if r.Outcome == "" {
			return nil, api.Invalid("outcome", "want how the task ended, such as succeeded or failed")
		}
		if err := s.writable(ctx, r.Token, "release"); err != nil {
			return nil, err
		}
		// The answer goes out before the connection is closed.
		return cdpproxy.Last{Result: struct{}{}, Then: func() { s.release(r) }}, nil
	}
	return nil, errUnknownMethod
}
