package agents

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"leasehold/launcher/api"
)

const (
	// idle is how long an agent over HTTP may send no request, with none under way, before it counts
	// as gone. The stream that most clients keep open counts as a request.
	idle = 2 * time.Minute
	// maxAgents bounds the agents of a sidecar. The last maxOwn places are for principals that have fewer than
	// that: nobody takes all.
	maxAgents = 512
	maxOwn    = maxAgents / 4
)

// writeTimeout is how long a client may take to accept what is sent before it is cut off. A test
// makes it shorter.
var writeTimeout = 30 * time.Second

// Caller is who sent a request over HTTP.
type Caller struct {
	Name    string // of the principal
	Sidecar Sidecar
}

type callerKey struct{}

// From returns a context that says who sent a request.
func From(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// Host serves agents over HTTP. Each is that of the principal who sent its first request; it is
// found by no other. What it asks the sidecar, it asks as its newest request could: the principal may
// have changed its credentials since the first.
type Host struct {
	handler *sdk.StreamableHTTPHandler
	idle    time.Duration

	mu     sync.Mutex
	agents map[string]*remote // by the id of the MCP session
	closed bool
	work   sync.WaitGroup // ends of agents
}

// remote is an agent over HTTP.
type remote struct {
	*Agent
	session  *sdk.ServerSession
	owner    string
	by       *newest
	requests int // under way
	silence  *time.Timer
}

// newest is the sidecar as the sender of an agent's newest request reaches it.
type newest struct {
	mu  sync.Mutex
	now Sidecar
}

func (n *newest) set(s Sidecar) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.now = s
}

func (n *newest) get() Sidecar {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.now
}

// Ask implements Sidecar.
func (n *newest) Ask(ctx context.Context, method string, query url.Values, in any, path ...string) (body []byte, mediaType string, err error) {
	return n.get().Ask(ctx, method, query, in, path...)
}

// Acquire implements Sidecar. The sidecar that serves the agents has their sessions.
func (n *newest) Acquire(ctx context.Context, m api.Manifest) (api.Session, Sidecar, error) {
	s, _, err := n.get().Acquire(ctx, m)
	return s, n, err
}

// NewHost returns a host without agents. It has to be closed.
func NewHost(version string) *Host {
	h := &Host{idle: idle, agents: map[string]*remote{}}
	server := NewServer(version, Instructions, func(s *sdk.ServerSession) *Agent {
		h.mu.Lock()
		defer h.mu.Unlock()
		if r := h.agents[s.ID()]; r != nil {
			return r.Agent
		}
		return nil
	})
	server.AddReceivingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(ctx context.Context, method string, r sdk.Request) (sdk.Result, error) {
			if session, ok := r.GetSession().(*sdk.ServerSession); ok && method == "initialize" {
				if err := h.begin(ctx, session); err != nil {
					return nil, err
				}
			}
			return next(ctx, method, r)
		}
	})
	h.handler = sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server },
		&sdk.StreamableHTTPOptions{DisableLocalhostProtection: true}) // Host and Origin are checked before
	return h
}

// begin notes a new agent.
func (h *Host) begin(ctx context.Context, session *sdk.ServerSession) error {
	caller, ok := ctx.Value(callerKey{}).(Caller)
	if !ok {
		return errors.New("it is not known who asks")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	own := 0
	for _, r := range h.agents {
		if r.owner == caller.Name {
			own++
		}
	}
	switch {
	case h.closed:
		return errors.New("the sidecar is ending: ask the next one")
	case own >= maxOwn && len(h.agents) >= maxAgents-maxOwn:
		return fmt.Errorf("too many agents of %s are connected: close some of them, or wait two minutes for those that are gone", caller.Name)
	case len(h.agents) >= maxAgents:
		return errors.New("too many agents are connected: close some of them, or wait two minutes for those that are gone")
	case h.agents[session.ID()] != nil:
		return errors.New("the session is initialized already")
	}
	by := &newest{now: caller.Sidecar}
	r := &remote{Agent: New(by, Options{}), session: session, owner: caller.Name, by: by}
	r.silence = time.AfterFunc(h.idle, func() { h.end(session.ID(), r, false) })
	h.agents[session.ID()] = r
	return nil
}

// ServeHTTP serves a request, whose context says who sent it (From).
func (h *Host) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	caller, _ := r.Context().Value(callerKey{}).(Caller)
	if id := r.Header.Get("Mcp-Session-Id"); id != "" {
		agent := h.enter(id, caller)
		if agent == nil {
			http.Error(w, "session not found: initialize a new one", http.StatusNotFound)
			return
		}
		defer h.leave(agent)
		if r.Method == http.MethodDelete {
			h.end(id, agent, true)
			w.WriteHeader(http.StatusNoContent)
			return
		}
	}
	h.handler.ServeHTTP(boundedWriter{w}, r)
}

// enter notes that a request of an agent is under way.
func (h *Host) enter(id string, caller Caller) *remote {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.agents[id]
	if r == nil || r.owner != caller.Name {
		return nil
	}
	r.by.set(caller.Sidecar)
	r.requests++
	r.silence.Stop()
	return r
}

// leave notes that a request has been answered, or that its client is gone.
func (h *Host) leave(r *remote) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.requests--; r.requests == 0 && h.agents[r.session.ID()] == r {
		r.silence.Reset(h.idle)
	}
}

// end ends an agent, if it asks for that or has no request under way: its sessions are recovered.
func (h *Host) end(id string, r *remote, asked bool) {
	h.mu.Lock()
	found := h.agents[id] == r && (asked || r.requests == 0)
	if found {
		delete(h.agents, id)
		h.work.Add(1)
	}
	h.mu.Unlock()
	if !found {
		return
	}
	defer h.work.Done()
	r.silence.Stop()
	_ = r.End(api.Release{}) // what cannot be told to the sidecar ends by missing heartbeats
	_ = r.session.Close()
}

// Close ends the agents without ending their sessions, whose heartbeats are missed then.
func (h *Host) Close() {
	h.mu.Lock()
	h.closed = true
	all := h.agents
	h.agents = nil
	h.mu.Unlock()
	for _, r := range all {
		r.silence.Stop()
		r.Leave()
		_ = r.session.Close()
	}
	h.work.Wait()
}

// boundedWriter cuts off a client that does not read.
type boundedWriter struct{ http.ResponseWriter }

// Unwrap is for http.ResponseController.
func (w boundedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w boundedWriter) Write(b []byte) (int, error) {
	control := http.NewResponseController(w.ResponseWriter)
	_ = control.SetWriteDeadline(time.Now().Add(writeTimeout)) // if it cannot be set, the client's end ends it
	n, err := w.ResponseWriter.Write(b)
	if err == nil {
		err = control.Flush()
	}
	_ = control.SetWriteDeadline(time.Time{})
	return n, err
}
