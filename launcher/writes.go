package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/launcher/api"
	"leasehold/launcher/sessionfile"
	"leasehold/lease"
)

// writable finds the session for a write that carries a token. A write with
// another token than the session's, or to a session whose profile has moved on,
// is refused and reported.
func (l *Launcher) writable(ctx context.Context, sessionID string, token lease.Token, write string) (*session, error) {
	s, err := l.lookup(sessionID)
	if err != nil {
		return nil, l.lateOrEnded(ctx, sessionID, token, write, err)
	}
	if token != s.token {
		return nil, l.stale(ctx, s.profile, s.id, token, s.token, write)
	}
	if err := s.holding.Fence().Check(); err != nil || s.ending() {
		ending := api.Refuse(api.CodeSessionEnded, "session %s is ending", s.id).With("session_id", s.id)
		return nil, l.lateOrEnded(ctx, sessionID, token, write, ending)
	}
	return s, nil
}

// lateOrEnded tells a write to a session that is over what happened: its token
// is stale if the profile has a higher one, else the session just ended.
func (l *Launcher) lateOrEnded(ctx context.Context, sessionID string, token lease.Token, write string, ended error) error {
	l.mu.Lock()
	f, known := l.ended[sessionID]
	if s := l.sessions[sessionID]; s != nil {
		f, known = sessionfile.File{SessionID: s.id, Token: s.token, Manifest: s.manifest}, true
	}
	l.mu.Unlock()
	if !known {
		return ended
	}
	entry, err := l.o.Store.Get(ctx, f.Manifest.ProfileID)
	if err == nil && entry.Record.Token > token {
		return l.stale(ctx, f.Manifest.ProfileID, sessionID, token, entry.Record.Token, write)
	}
	return ended
}

func (l *Launcher) stale(ctx context.Context, profile, sessionID string, token, current lease.Token, write string) error {
	if token < current {
		l.reportLate(ctx, profile, sessionID, token, current, write)
	}
	return api.Refuse(api.CodeStaleToken, "%s with token %d: the current token is %d", write, token, current).
		With("lease_token", token).With("current_token", current)
}

// lateWrite reports a CDP command that came after its session was fenced.
func (l *Launcher) lateWrite(ctx context.Context, profile, sessionID string, token lease.Token, write string) {
	l.mu.Lock()
	again := l.late[sessionID]
	l.late[sessionID] = true
	l.mu.Unlock()
	if again { // one event says it; a client's retries need no thousand
		return
	}
	current := token
	if entry, err := l.o.Store.Get(ctx, profile); err == nil {
		current = entry.Record.Token
	}
	l.reportLate(ctx, profile, sessionID, token, current, write)
}

func (l *Launcher) reportLate(ctx context.Context, profile, sessionID string, token, current lease.Token, write string) {
	l.mu.Lock()
	l.late[sessionID] = true
	l.mu.Unlock()
	l.metrics.lateWrites.Inc()
	l.o.Log.Warn().Str("profile", profile).Str("session", sessionID).Uint64("token", uint64(token)).
		Uint64("current_token", uint64(current)).Str("write", write).Msg("late write refused")
	l.announce(ctx, lease.Event{
		Event: lease.EventLateWrite, ProfileID: profile, Token: token, CurrentToken: current, At: time.Now().UTC(),
		SessionID: sessionID, LauncherID: l.o.ID, Write: write, Reason: "stale_lease_token",
	})
}

func (l *Launcher) wroteLate(sessionID string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.late[sessionID]
}

// beat notes a sign of life.
func (s *session) beat() { s.update(func(f *facts) { f.seenAt = time.Now() }) }

// Heartbeat says that the worker lives.
func (l *Launcher) Heartbeat(ctx context.Context, sessionID string, h api.Heartbeat) (api.Session, error) {
	s, err := l.writable(ctx, sessionID, h.Token, "heartbeat")
	if err != nil {
		return api.Session{}, l.problem(err)
	}
	s.beat()
	if h.Step != "" {
		err = s.record(checkpoint.Entry{Kind: checkpoint.KindStep, Name: h.Step})
	}
	return s.show(), err
}

// Step names what the worker does now.
func (l *Launcher) Step(ctx context.Context, sessionID string, st api.Step) error {
	s, err := l.writable(ctx, sessionID, st.Token, "step")
	if err != nil {
		return l.problem(err)
	}
	if st.Name == "" {
		return api.Invalid("name", "want the step's name")
	}
	s.beat()
	return s.record(checkpoint.Entry{Kind: checkpoint.KindStep, Name: st.Name, Action: st.Action, Sensitive: st.Sensitive})
}

// Checkpoint names a point of the task.
func (l *Launcher) Checkpoint(ctx context.Context, sessionID string, c api.Checkpoint) error {
	s, err := l.writable(ctx, sessionID, c.Token, "checkpoint")
	if err != nil {
		return l.problem(err)
	}
	if c.Name == "" {
		return api.Invalid("name", "want the checkpoint's name")
	}
	s.beat()
	return s.record(checkpoint.Entry{
		Kind: checkpoint.KindCheckpoint, Name: c.Name, Safe: c.Safe == nil || *c.Safe, Idempotent: c.Idempotent, Data: c.Data,
	})
}

// Event puts what the task reports into the journal.
func (l *Launcher) Event(ctx context.Context, sessionID string, e api.TaskEvent) error {
	s, err := l.writable(ctx, sessionID, e.Token, "event")
	if err != nil {
		return l.problem(err)
	}
	if e.Type == "" {
		return api.Invalid("type", "want the event's type")
	}
	s.beat()
	return s.record(checkpoint.Entry{Kind: checkpoint.KindEvent, Name: e.Type, Data: e.Data})
}

// Release ends the session in order and returns when the profile is free.
func (l *Launcher) Release(ctx context.Context, sessionID string, r api.Release) (api.Session, error) {
	s, err := l.writable(ctx, sessionID, r.Token, "release")
	if err != nil {
		return api.Session{}, l.problem(err)
	}
	shown := s.show()
	r.Outcome, r.Reason = checkpoint.Clip(r.Outcome), checkpoint.Clip(r.Reason)
	s.update(func(f *facts) { f.released = &r })
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

// invalidParams is CDP's code for parameters that are wrong.
const invalidParams = -32602

// domain answers a command of the Lease domain: the same writes as over REST.
// The connection itself is fenced, so the token need not be said again.
func (s *session) domain(ctx context.Context, method string, params json.RawMessage) (any, *cdpproxy.Error) {
	if len(params) == 0 || string(params) == "null" {
		params = json.RawMessage("{}")
	}
	if len(params) > maxParams {
		return nil, &cdpproxy.Error{Code: invalidParams, Message: fmt.Sprintf("Invalid parameters: %s: the parameters have %d bytes, want at most %d", longest(params), len(params), maxParams)}
	}
	write := api.Write{Token: s.token}
	decode := func(v any) error { return api.DecodeBody(params, v, method) }
	var result any = struct{}{}
	var err error
	switch method {
	case "Lease.getLease":
		if err = decode(&struct{}{}); err == nil {
			v := s.show()
			result = map[string]any{
				"session_id": v.SessionID, "profile_id": v.ProfileID, "lease_token": v.Token, "worker_id": v.WorkerID,
				"task_id": v.TaskID, "expires_at": v.ExpiresAt, "acquired_at": v.AcquiredAt, "resume": v.Resume,
			}
		}
	case "Lease.heartbeat":
		h := api.Heartbeat{Write: write}
		if err = decode(&h); err == nil {
			_, err = s.l.Heartbeat(ctx, s.id, h)
		}
	case "Lease.step":
		st := api.Step{Write: write}
		if err = decode(&st); err == nil {
			err = s.l.Step(ctx, s.id, st)
		}
	case "Lease.checkpoint":
		c := api.Checkpoint{Write: write}
		if err = decode(&c); err == nil {
			err = s.l.Checkpoint(ctx, s.id, c)
		}
	case "Lease.event":
		e := api.TaskEvent{Write: write}
		if err = decode(&e); err == nil {
			err = s.l.Event(ctx, s.id, e)
		}
	case "Lease.release":
		r := api.Release{Write: write}
		if err = decode(&r); err == nil {
			if r.Outcome == "" {
				err = api.Invalid("outcome", "want how the task ended, such as succeeded or failed")
			} else if _, err = s.l.writable(ctx, s.id, r.Token, "release"); err == nil {
				r.Outcome, r.Reason = checkpoint.Clip(r.Outcome), checkpoint.Clip(r.Reason)
				// The answer goes out before the connection is closed.
				result = cdpproxy.Last{Result: result, Then: func() { s.update(func(f *facts) { f.released = &r }) }}
			}
		}
	default:
		return nil, &cdpproxy.Error{Code: -32601, Message: "'" + method + "' wasn't found"}
	}
	if err == nil {
		return result, nil
	}
	var p *api.Problem
	if errors.As(err, &p) && p.Code == api.CodeInvalidRequest {
		return nil, &cdpproxy.Error{Code: invalidParams, Message: "Invalid parameters: " + p.Detail}
	}
	return nil, &cdpproxy.Error{Code: -32000, Message: err.Error()}
}
