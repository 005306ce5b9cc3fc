// Package agents is the MCP server for AI agents: tools with which a model leases a profile, says
// what it does, asks for a person and gives the profile back, and resources with the evidence.
//
// An Agent is one MCP client. It asks a sidecar over the REST interface, with credentials of its
// own, so that it may do there what its principal may, and no more. The same tools serve both
// transports: the command leasehold mcp has one agent and asks over the network; the path /mcp of a
// sidecar (Host) has many, and asks the sidecar itself.
//
// The agent is the worker of the sessions that it leases. It sends their heartbeats, and when it
// ends, those that it did not release are recovered as those of a lost worker.
package agents

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"leasehold/launcher/api"
)

// Sidecar is a sidecar as one agent reaches it.
type Sidecar interface {
	// Ask sends a request and returns the body of the answer, and its media type. The error is or
	// wraps an *api.Problem if the sidecar refused.
	Ask(ctx context.Context, method string, query url.Values, in any, path ...string) (body []byte, mediaType string, err error)
	// Acquire asks for a session. The sidecar that it returns is the one that has the session.
	Acquire(ctx context.Context, m api.Manifest) (api.Session, Sidecar, error)
}

// ask sends a request and decodes the answer.
func ask[Out any](ctx context.Context, sidecar Sidecar, method string, query url.Values, in any, path ...string) (out Out, err error) {
	body, _, err := sidecar.Ask(ctx, method, query, in, path...)
	if err == nil && len(body) > 0 {
		if err = json.Unmarshal(body, &out); err != nil {
			err = fmt.Errorf("answer of the sidecar: %w: is it of another version?", err)
		}
	}
	return out, err
}

// IsFinal tells whether a sidecar has refused for a permanent reason. That is not so if it could
// not be reached, or answered with an error of its own (5xx).
func IsFinal(err error) bool {
	var p *api.Problem
	return errors.As(err, &p) && p.Status < http.StatusInternalServerError
}

// Options say what an agent may lease.
type Options struct {
	// Base is what every lease has. If it names a profile, an account or labels, the agent chooses
	// no other.
	Base api.Manifest
	// Granted is called with each new session before the agent is told of it; an error gives the
	// session back. With it the agent has one session at a time, and is not told its URL.
	Granted func(context.Context, api.Session) error
	// Gone is called when the agent has lost a session, or given it back.
	Gone func()
}

// Agent is one MCP client, from its first message to its end.
type Agent struct {
	sidecar Sidecar
	o       Options
	task    string          // of leases for which the agent names none
	ctx     context.Context // ends with the agent
	cancel  context.CancelFunc
	work    sync.WaitGroup // heartbeats, and leases that are being made
	// leasing has room for one: who may have one session at a time asks for one at a time, too.
	leasing chan struct{}

	mu      sync.Mutex
	ended   bool
	leases  map[string]*leased // by profile
	refused *Refusal           // the last one
	// releases are the answers to those that were made, by profile and, for the last one, under "": empty if a
	// lease was lost after it. A later lease takes them away.
	releases map[string]releaseOut
	underWay map[string]*answer // calls of tools that wait (once)
}

// answer is that of a call, once it is done.
type answer struct {
	done     chan struct{}
	until    time.Time // the call waits, at most
	out      any
	err      error
	withdrew bool // the caller, before it had the answer
}

type leased struct {
	api.Session
	sidecar Sidecar
	request string             // that it was leased by, where that named the profile
	stop    context.CancelFunc // of its heartbeats
	lost    error              // why the lease is lost; nil: it is not, as far as is known
}

// New returns an agent that has nothing yet.
func New(sidecar Sidecar, o Options) *Agent {
	ctx, cancel := context.WithCancel(context.Background())
	return &Agent{sidecar: sidecar, o: o, task: "mcp-" + strings.ToLower(rand.Text()[:8]), ctx: ctx, cancel: cancel, leasing: make(chan struct{}, 1), leases: map[string]*leased{}, releases: map[string]releaseOut{}, underWay: map[string]*answer{}}
}

// Lease leases the profile of Options.Base.
func (a *Agent) Lease(ctx context.Context) error {
	_, err := a.leaseProfile(ctx, leaseIn{})
	return err
}

var errEnded = errors.New("the agent has ended")

// begin counts a lease that is being made, for which the end of the agent waits until the agent has it, or has given
// it back: then done is called. It is refused once the agent has ended.
func (a *Agent) begin() (done func(), err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return nil, errEnded
	}
	a.work.Add(1)
	return sync.OnceFunc(a.work.Done), nil
}

// lastGrant is how long a request for a session is waited for when its agent ends, or the connection that the answer
// was for: the sidecar may have granted it, and would hear of no worker.
const lastGrant = 5 * time.Second

// granting returns the context of a request for a session that is made for ctx.
func (a *Agent) granting(ctx context.Context) (context.Context, context.CancelFunc) {
	asking, stop := context.WithCancel(context.WithoutCancel(ctx))
	soon := func() { time.AfterFunc(lastGrant, stop) }
	ended := context.AfterFunc(a.ctx, soon)
	gone := context.AfterFunc(ctx, func() {
		if cause := context.Cause(ctx); errors.Is(cause, context.Canceled) || errors.Is(cause, context.DeadlineExceeded) {
			stop() // the caller withdrew it
			return
		}
		soon()
	})
	return asking, func() { ended(); gone(); stop() }
}

// add notes a session that was granted, and begins its heartbeats.
func (a *Agent) add(s api.Session, sidecar Sidecar, request string, every time.Duration) error {
	ctx, stop := context.WithCancel(a.ctx)
	l := &leased{Session: s, sidecar: sidecar, request: request, stop: stop}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		stop()
		return errEnded
	}
	a.leases[s.ProfileID] = l
	delete(a.releases, s.ProfileID)
	delete(a.releases, "")
	a.work.Go(func() {
		if err := KeepAlive(ctx, sidecar, s, every, nil); err != nil {
			a.lose(l, err)
		}
	})
	return nil
}

// HeartbeatInterval asks how often the sidecar wants a heartbeat of a session.
func HeartbeatInterval(ctx context.Context, sidecar Sidecar, s api.Session) (time.Duration, error) {
	r, err := ask[api.Profile](ctx, sidecar, http.MethodGet, nil, nil, "v1", "profiles", s.ProfileID)
	if err == nil && r.TTLSeconds <= 0 {
		err = fmt.Errorf("the record of %s says a lease lives %v seconds: is the sidecar of another version?", s.ProfileID, r.TTLSeconds)
	}
	return time.Duration(r.TTLSeconds * float64(time.Second) / beatsOfTTL), err
}

// beatsOfTTL is how many heartbeats are sent in the time that a lease lives without one.
const beatsOfTTL = 3

// KeepAlive sends heartbeats of a session until ctx ends, or until the lease is lost: then it returns
// the reason. The lease is lost if the sidecar says so, or has refused all heartbeats for as long as a
// lease lives without one: a token that is refused now may be replaced until then. A sidecar that cannot be
// reached may be restarting, so KeepAlive goes on until it answers. away, if it is not nil, is told once
// each time that heartbeats begin to fail.
func KeepAlive(ctx context.Context, sidecar Sidecar, s api.Session, every time.Duration, away func(error)) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	last := time.Now() // when a heartbeat was accepted
	for isAway := false; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		_, err := beat(ctx, sidecar, s, every)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			last = time.Now()
		case isOver(err), IsFinal(err) && time.Since(last) >= beatsOfTTL*every:
			return err
		case !isAway && away != nil:
			away(err)
		}
		isAway = err != nil
	}
}

// beat sends one heartbeat, and returns the session as it is then.
func beat(ctx context.Context, sidecar Sidecar, s api.Session, atMost time.Duration) (api.Session, error) {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	return ask[api.Session](ctx, sidecar, http.MethodPost, nil, api.Heartbeat{Write: api.Write{Token: s.Token}}, "v1", "sessions", s.SessionID, "heartbeat")
}

const (
	// Patience is how long the release of a session is sent again for: a sidecar that restarts is back by then.
	Patience = 30 * time.Second
	endPause = 500 * time.Millisecond // between two of them
	endPoll  = time.Second            // between two looks at whether a session that ends has ended
	// endTimeout bounds one release, which stores evidence and closes a browser.
	endTimeout = 2 * time.Minute
)

// EndSession ends a session as r says, and returns it in its final state. What an earlier request released
// is released. A sidecar that cannot be reached may be restarting, and would judge the session as a lost
// worker's: so it is asked again until patience is over. away, if it is not nil, is told once that it is.
func EndSession(ctx context.Context, sidecar Sidecar, s api.Session, r api.Release, patience time.Duration, away func(error)) (api.Session, error) {
	r.Token = s.Token
	until := time.Now().Add(patience)
	for {
		ended, err := endOnce(ctx, sidecar, s, r)
		if err == nil || IsFinal(err) || !time.Now().Before(until) {
			return ended, err
		}
		if away != nil {
			away(err)
			away = nil
		}
		select {
		case <-ctx.Done():
			return ended, err
		case <-time.After(endPause):
		}
	}
}

// endOnce sends a release. If the session is over or ends, it waits for the end.
func endOnce(ctx context.Context, sidecar Sidecar, s api.Session, r api.Release) (api.Session, error) {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	ended, err := ask[api.Session](ctx, sidecar, http.MethodDelete, nil, r, "v1", "sessions", s.SessionID)
	if !isOver(err) {
		return ended, err
	}
	for {
		now, unseen := ask[api.Session](ctx, sidecar, http.MethodGet, nil, nil, "v1", "sessions", s.SessionID)
		switch {
		case unseen == nil && now.State == api.SessionEnded && now.Released:
			return now, nil
		case unseen == nil && now.State == api.SessionEnded, IsFinal(unseen):
			return now, err
		case unseen != nil:
			return now, unseen
		}
		select {
		case <-ctx.Done():
			return now, fmt.Errorf("session %s has not ended yet", s.SessionID)
		case <-time.After(endPoll):
		}
	}
}

// lose notes that a lease is lost.
func (a *Agent) lose(l *leased, reason error) {
	a.mu.Lock()
	first := l.lost == nil && !a.ended && a.leases[l.ProfileID] == l
	if first {
		l.lost = reason
		if _, ok := a.releases[""]; ok {
			a.releases[""] = releaseOut{} // who now releases without a name may mean this one
		}
	}
	a.mu.Unlock()
	l.stop()
	if first && a.o.Gone != nil {
		a.o.Gone()
	}
}

// has returns the session on the profile or, if none is named, the only one; a lost one only if there is
// no other. It is refused if the lease is lost, or there is none.
func (a *Agent) has(profile string) (*leased, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.leases[profile]
	if profile == "" {
		var living, lost []*leased
		for _, one := range a.leases {
			if one.lost == nil {
				living = append(living, one)
			} else {
				lost = append(lost, one)
			}
		}
		switch {
		case len(living) > 1:
			return nil, api.Invalid("profile_id", "you have %d profiles: name one of them", len(living))
		case len(living) == 1:
			l = living[0]
		case len(lost) > 1:
			return nil, api.Invalid("profile_id", "your leases of %d profiles are lost: name one of them", len(lost))
		case len(lost) == 1:
			l = lost[0]
		}
	}
	if l == nil && profile == "" {
		return nil, api.Refuse(api.CodeUnknownSession, "you have no profile now")
	}
	if l == nil {
		return nil, api.Refuse(api.CodeUnknownSession, "you do not have profile %s now", profile)
	}
	if l.lost != nil {
		return l, &lostError{l.ProfileID, l.lost}
	}
	return l, nil
}

type lostError struct {
	profile string
	why     error
}

func (e *lostError) Error() string { return e.says(e.why.Error()) }

func (e *lostError) Unwrap() error { return e.why }

func (e *lostError) says(why string) string {
	return fmt.Sprintf("your lease of profile %s is lost (%s)", e.profile, why)
}

// Usable says why the agent's only session cannot be used; nil if it can. It asks the sidecar.
func (a *Agent) Usable(ctx context.Context) error {
	l, err := a.has("")
	if err != nil {
		return err
	}
	_, err = a.now(ctx, l)
	return err
}

// now returns a session as the sidecar shows it, or why it cannot be used, and notes it if the lease is lost.
// While the sidecar cannot be reached, the session is as it was granted.
func (a *Agent) now(ctx context.Context, l *leased) (api.Session, error) {
	s := l.Session
	shown, err := beat(ctx, l.sidecar, s, endTimeout)
	switch {
	case err == nil:
		s.ExpiresAt = shown.ExpiresAt
	case isOver(err):
		a.lose(l, err)
		return s, &lostError{l.ProfileID, err}
	case IsFinal(err):
		return s, err
	}
	return s, nil
}

// end ends a session as the release says, and forgets it, whatever is answered if the lease is lost. If the
// sidecar cannot be reached for longer than patience, or refuses what is asked, the agent keeps the session,
// so that it can ask again.
func (a *Agent) end(ctx context.Context, l *leased, r api.Release, patience time.Duration) (api.Session, error) {
	ended, err := EndSession(ctx, l.sidecar, l.Session, r, patience, nil)
	if isOver(err) {
		err = &lostError{l.ProfileID, err}
	}
	a.mu.Lock()
	lost := l.lost != nil
	a.mu.Unlock()
	if err == nil || isOver(err) || lost && IsFinal(err) {
		a.forget(l)
	}
	return ended, err
}

// errWaitOver says that a call has waited as long as it may, and that the same one, which may wait longer, is
// still under way.
var errWaitOver = errors.New("the wait is over")

// once makes a call, or waits for the answer to the same one if that is under way: over HTTP a call goes on
// though the connection that the answer was for is gone, and then the agent calls again. Either waits as
// long as it says itself, whatever the other says: if the one under way was refused, and the other has time
// left, that is made with the time that is left.
func (a *Agent) once(ctx context.Context, call string, wait time.Duration, do func(wait time.Duration) (any, error)) (any, error) {
	until, left := time.Now().Add(wait), wait
	for {
		a.mu.Lock()
		first := a.underWay[call]
		if first == nil {
			first = &answer{done: make(chan struct{}), until: until}
			a.underWay[call] = first
			a.mu.Unlock()
			first.out, first.err = do(left)
			first.withdrew = ctx.Err() != nil
			a.mu.Lock()
			delete(a.underWay, call)
			a.mu.Unlock()
			close(first.done)
			return first.out, first.err
		}
		a.mu.Unlock()
		var over <-chan time.Time // nil: the one under way does not wait longer
		if until.Before(first.until) {
			over = time.After(time.Until(until))
		}
		select {
		case <-first.done:
		case <-over:
			return nil, errWaitOver
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		left = max(0, time.Until(until))
		switch {
		case !first.withdrew && (first.err == nil || left == 0):
			return first.out, first.err
		case left == 0 && wait > 0:
			return nil, errWaitOver
		}
	}
}

// isOver tells whether a sidecar has refused a write because its session is over, ends, or is forgotten.
func isOver(err error) bool {
	p, ok := errors.AsType[*api.Problem](err)
	return ok && slices.Contains([]string{api.CodeSessionEnded, api.CodeStaleToken, api.CodeUnknownSession}, p.Code)
}

// forget ends the heartbeats of a session, which is over or ends without them.
func (a *Agent) forget(l *leased) {
	l.stop()
	a.mu.Lock()
	had := a.leases[l.ProfileID] == l
	if had {
		delete(a.leases, l.ProfileID)
	}
	a.mu.Unlock()
	if had && a.o.Gone != nil {
		a.o.Gone()
	}
}

// End ends the agent: what it did not release is recovered as the session of a lost worker is, or
// as r says if it is not the zero value.
func (a *Agent) End(r api.Release) error {
	if r == (api.Release{}) {
		r = api.Release{Outcome: "failed", Reason: "the agent ended without a release", Recover: api.RecoverAlways}
	}
	var errs error
	for _, l := range a.leave() {
		if l.lost != nil {
			continue
		}
		_, err := a.end(context.Background(), l, r, Patience)
		errs = errors.Join(errs, err)
	}
	return errs
}

// Leave ends the agent without ending its sessions: that happens when their heartbeats are missed.
func (a *Agent) Leave() { a.leave() }

// leave is Leave. It returns the sessions that are left.
func (a *Agent) leave() []*leased {
	a.mu.Lock()
	var left []*leased
	if !a.ended {
		for _, l := range a.leases {
			left = append(left, l)
		}
	}
	a.ended = true
	a.mu.Unlock()
	a.cancel()
	a.work.Wait()
	return left
}
