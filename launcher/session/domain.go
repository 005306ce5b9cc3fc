package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/launcher/api"
)

// maxParams is the size of the largest command of the Lease domain, in bytes.
const maxParams = 1 << 20

// CDP's error codes.
const (
	invalidParams = -32602 // parameters that are wrong
	unknownMethod = -32601
	serverError   = -32000
)

var errUnknownMethod = errors.New("no such method")

// leaseDomain answers the commands of the Lease domain that come on a session's connections.
// They make the same writes as over REST. The connection itself is fenced, so the commands do
// not have to carry the token.
type leaseDomain struct{ s *Session }

// Lease answers one command.
func (d leaseDomain) Lease(ctx context.Context, method string, params json.RawMessage) (any, *cdpproxy.Error) {
	if len(params) == 0 || string(params) == "null" {
		params = json.RawMessage("{}")
	}
	if len(params) > maxParams {
		return nil, &cdpproxy.Error{Code: invalidParams, Message: fmt.Sprintf("Invalid parameters: %s: the parameters have %d bytes, want at most %d", longest(params), len(params), maxParams)}
	}
	result, err := d.carryOut(ctx, method, params)
	if err != nil {
		return nil, problemOf(method, err)
	}
	return result, nil
}

func problemOf(method string, err error) *cdpproxy.Error {
	var p *api.Problem
	switch {
	case errors.Is(err, errUnknownMethod):
		return &cdpproxy.Error{Code: unknownMethod, Message: "'" + method + "' wasn't found"}
	case errors.As(err, &p) && p.Code == api.CodeInvalidRequest:
		return &cdpproxy.Error{Code: invalidParams, Message: "Invalid parameters: " + p.Detail}
	}
	return &cdpproxy.Error{Code: serverError, Message: err.Error()}
}

func (d leaseDomain) carryOut(ctx context.Context, method string, params json.RawMessage) (any, error) {
	s := d.s
	write := api.Write{Token: s.token}
	decode := func(v any) error { return api.DecodeBody(params, v, method) }
	// apply decodes a write, and carries it out if the session may write.
	apply := func(v any, with *api.Write, name string, makeIt func() error) (any, error) {
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
			"task_id": v.TaskID, "expires_at": v.ExpiresAt, "acquired_at": v.AcquiredAt, "resume": v.Resume, "person": v.Person,
		}, nil
	case "Lease.heartbeat":
		h := api.Heartbeat{Write: write}
		return apply(&h, &h.Write, "heartbeat", func() error { return s.Reports().Heartbeat(h) })
	case "Lease.step":
		st := api.Step{Write: write}
		return apply(&st, &st.Write, "step", func() error { return s.Reports().Step(st) })
	case "Lease.checkpoint":
		c := api.Checkpoint{Write: write}
		done, err := apply(&c, &c.Write, "checkpoint", func() error { return s.Reports().Checkpoint(c) })
		if err != nil || !c.IsSafe() || s.baselines.current() == nil {
			return done, err
		}
		return cdpproxy.Later{Wait: func(ctx context.Context) (any, *cdpproxy.Error) {
			s.AwaitCheckpoint(ctx)
			return done, nil
		}}, nil
	case "Lease.event":
		e := api.TaskEvent{Write: write}
		return apply(&e, &e.Write, "event", func() error { return s.Reports().Event(e) })
	case "Lease.askPerson":
		a := api.AskPerson{Write: write}
		if err := decode(&a); err != nil {
			return nil, err
		}
		if err := s.writable(ctx, a.Token, "ask"); err != nil {
			return nil, err
		}
		asked, err := s.asks.begin(a)
		if err != nil {
			return nil, err
		}
		return cdpproxy.Later{Wait: func(ctx context.Context) (any, *cdpproxy.Error) {
			answer, err := s.asks.await(ctx, asked)
			if err != nil {
				return nil, problemOf(method, err)
			}
			return answer, nil
		}}, nil
	case "Lease.signIn":
		a := api.SignIn{Write: write}
		if err := decode(&a); err != nil {
			return nil, err
		}
		if err := s.writable(ctx, a.Token, "sign in"); err != nil {
			return nil, err
		}
		if s.ephemeral || s.rules().ReadOnly {
			return nil, api.Invalid("", "session %s only reads: no account is signed in by it", s.id)
		}
		return cdpproxy.Later{Wait: func(ctx context.Context) (any, *cdpproxy.Error) {
			answer, err := s.h.signIn(ctx, s, a)
			if err != nil {
				return nil, problemOf(method, err)
			}
			return answer, nil
		}}, nil
	case "Lease.release":
		r := api.Release{Write: write}
		if err := decode(&r); err != nil {
			return nil, err
		}
		if r.Outcome == "" {
			return nil, api.Invalid("outcome", "want how the task ended, such as succeeded or failed")
		}
		if err := r.Check(); err != nil {
			return nil, err
		}
		if err := s.writable(ctx, r.Token, "release"); err != nil {
			return nil, err
		}
		// The answer goes out before the connection is closed.
		return cdpproxy.Last{Result: struct{}{}, Then: func() { s.release(r) }}, nil
	}
	return nil, errUnknownMethod
}

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
