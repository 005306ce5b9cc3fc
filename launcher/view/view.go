// Package view shows living sessions to people: pictures of their pages, the tabs, and what the
// worker does. It also carries the input of a person who has a session by hand.
//
// A Gallery has a watch for each session that somebody watches. A watch opens a browser session
// of its own, beside the page monitor's, and in it a cast for each page that is shown: Chrome's
// screencast, which all viewers of the page share. A cast takes one picture at a time, and the
// next one when a viewer has taken the last. If nothing moves in a page there are no pictures,
// and if nobody watches, nothing is done at all. Pictures are not kept.
//
// A viewer is one websocket. It has no queue: a watch keeps the newest message of each kind and
// the newest picture of each page, and a viewer is sent what it has not received yet, as fast
// as it reads.
package view

import (
	"context"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"leasehold/cdpproxy"
	"leasehold/launcher/api"
	"leasehold/launcher/monitor"
	"leasehold/launcher/principal"
	"leasehold/launcher/session"
	"leasehold/lease"
)

// Session is what a watch needs of a session: a *session.Session with its *session.People is one. It
// has 14 methods because a watch shows all of a session, and a person can act in it by the same watch.
type Session interface {
	ID() string
	Show() api.Session
	// Monitor is refused once the session ends.
	Monitor() (*monitor.Monitor, error)
	Mux() *cdpproxy.Mux
	// Attend arranges that stop is called when the session begins to end; the end waits for it.
	Attend(stop func()) (leave func(), err error)
	Done() <-chan struct{}
	// Doing is what the task said about itself last.
	Doing() (step, checkpoint string)
	// FollowCommands returns a function that returns what the worker has sent since the
	// function's last call.
	FollowCommands() func() []cdpproxy.Command
	// PersonIs returns nil while the principal has the session by hand. ByPerson carries out
	// what they do then.
	PersonIs(p principal.Principal) error
	ByPerson(p principal.Principal, act session.Act, do func(*lease.Fence) error) error
	// Present counts a view that the principal has open, until left is called.
	Present(p principal.Principal) (left func())
	// PageCloses is called before a target is closed.
	PageCloses(target string)
	// Readable returns nil for a file that pages of the session may read.
	Readable(path string) error
	Manifest() api.Manifest
}

const (
	// MaxViewers is how many may watch one session; MaxAllViewers, how many may watch all
	// sessions of a launcher.
	MaxViewers    = 8
	MaxAllViewers = 32
	// MaxLinkViewers is how many of a session's viewers may have the same sign-in link.
	MaxLinkViewers = MaxViewers / 2
)

// Options are what the watches of a launcher share.
type Options struct {
	// Ended says how a session that is over has ended.
	Ended   func(sessionID string) string
	Log     zerolog.Logger
	Metrics prometheus.Registerer
}

// Gallery has the watches of one launcher. Its methods may be called concurrently.
type Gallery struct {
	o       Options
	ctx     context.Context
	work    *sync.WaitGroup
	viewing prometheus.Gauge
	frames  prometheus.Counter

	mu      sync.Mutex
	watches map[string]*watch // by session id
	viewers int               // of all of them
}

// New returns a gallery without watches. Its watches end with ctx, and are counted in work.
func New(ctx context.Context, work *sync.WaitGroup, o Options) *Gallery {
	g := &Gallery{
		o: o, ctx: ctx, work: work, watches: map[string]*watch{},
		viewing: prometheus.NewGauge(prometheus.GaugeOpts{Name: "leasehold_viewers", Help: "Websockets on which people watch sessions."}),
		frames:  prometheus.NewCounter(prometheus.CounterOpts{Name: "leasehold_view_frames_total", Help: "Pictures of pages that were taken for people who watch."}),
	}
	o.Metrics.MustRegister(g.viewing, g.frames)
	return g
}

// Open lets a principal watch a session. The caller has checked that they may.
func (g *Gallery) Open(s Session, who principal.Principal) (api.Connection, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	w := g.watches[s.ID()]
	switch {
	case w != nil && len(w.viewers) >= MaxViewers:
		return nil, tooMany("session %s is watched by %d, and more may not", s.ID(), MaxViewers)
	case w != nil && who.Link && w.seenBy(who) >= MaxLinkViewers: // the other places are for those who review
		return nil, tooMany("the sign-in link is open in %d pages, and more may not", MaxLinkViewers)
	case g.viewers >= MaxAllViewers:
		return nil, tooMany("sessions of this launcher are watched by %d, and more may not", MaxAllViewers)
	}
	if w == nil {
		var err error
		if w, err = newWatch(g, s); err != nil {
			return nil, err
		}
		g.watches[s.ID()] = w
		g.work.Go(w.run)
	}
	v := newViewer(w, who)
	g.viewers++
	g.viewing.Set(float64(g.viewers))
	w.enter(v)
	return v, nil
}

// retryViewers is the number of seconds after which watching may be tried again.
const retryViewers = 10

func tooMany(format string, args ...any) *api.Problem {
	p := api.Refuse(api.CodeTooManyViewers, format+": close a page that watches", args...)
	p.RetryAfter = retryViewers
	return p
}

// leave removes a viewer, and ends a watch that has no viewers left.
func (g *Gallery) leave(v *viewer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	w := v.watch
	if !w.remove(v) {
		return
	}
	g.viewers--
	g.viewing.Set(float64(g.viewers))
	if len(w.viewers) == 0 {
		w.cancel()
		g.forget(w)
	}
}

// over removes a watch whose session is over: nobody can join it any more.
func (g *Gallery) over(w *watch) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forget(w)
}

func (g *Gallery) forget(w *watch) {
	if g.watches[w.session.ID()] == w {
		delete(g.watches, w.session.ID())
	}
}
