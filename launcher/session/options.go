// Package session is one worker's use of a profile: from the grant of a lease, over the
// connections that it carries, to its end, in order or through recovery. A Registry has the
// sessions of this host, living and ended.
//
// A Session is put together from objects, each of which owns its state and the mutexes that guard
// it; the comment of Session has the order in which these are taken. The files:
//
//	terms.go              whose session it is, on which profile, under which token and rules
//	life.go, policy.go    the facts about worker and browser; the rule that decides by them
//	start.go, serve.go    how it gets its browser; the goroutine that serves it
//	end.go                its end: evidence, then what package recovery does
//	kept.go, recording.go what is on disk: the session file and the capability; the journal
//	baselines.go          sites are asked about the account beside the worker
//	clients.go, still.go  its connections; whether the browser stands still for one that broke off
//	files.go, narrow.go   exchange directory and downloads; the actions that its worker may declare
//	writes.go, domain.go  what its worker says; the CDP domain Lease
//	pictures.go           pictures while it lives
//	ask.go, person.go     a worker asks for a person; who has the session by hand
//	attend.go, acts.go    a person who is gone; what a person did
//	reader.go             the copy of the profile, of an ephemeral session
//
// When a person takes over, People.TakeOver shuts the worker's input at the pipe
// (cdpproxy.Takeover) and waits for its lock once: after that, commands that drive a page are
// refused, and requests that pause for the worker go as they are. A person's input passes ByPerson,
// which notes it, and a fence of that person's own under the session's. HandBack, or attend.go if
// the person is gone, shuts that fence and lets the worker act again.
package session

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"leasehold/checkpoint/site"
	"leasehold/evidence"
	"leasehold/evidence/capture"
	"leasehold/internal/boottime"
	"leasehold/launcher/accountcheck"
	"leasehold/launcher/api"
	"leasehold/launcher/browser"
	"leasehold/launcher/fileroots"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/recovery"
	"leasehold/launcher/sessionfile"
	"leasehold/launcher/slots"
	"leasehold/lease"
)

// Options are what the sessions of one host share.
type Options struct {
	LauncherID string
	BootID     string
	Timing     lease.Timing
	// ReconnectGrace is how long a worker has to come back after its last connection
	// was lost.
	ReconnectGrace time.Duration
	// PersonGrace is how long a person who took a session over may be gone before it is
	// handed back.
	PersonGrace time.Duration
	// PictureInterval is the least time between two pictures of a session that no
	// checkpoint asks for; zero: none is taken.
	PictureInterval time.Duration
	Headless        bool // unless a manifest says otherwise
	// QuietTimeout bounds how long a warm browser may take to show, before a grant, that it is as
	// it was left, and ClearTimeout how long a session's pages may take to close before its
	// browser is kept warm, both in time that the host gives. Zero stands for 2 s and 10 s.
	QuietTimeout, ClearTimeout time.Duration
	// CutTimeout bounds how long a write waits for the browser of a worker that is lost or cut off. Zero stands
	// for 20 s.
	CutTimeout time.Duration
	// Patience bounds what a browser may take in time that the host gives; nil: capture.Patience.
	Patience func(context.Context, time.Duration) (context.Context, context.CancelFunc)
	// LeaveOnExit tells, once the launcher ends, whether it leaves browsers to the next one instead
	// of closing them. Its answer does not change. Nil: it does not.
	LeaveOnExit func() bool
	// Sites is what is known of sites.
	Sites site.Source
	// Answers is what sites answered about accounts while nobody used them.
	Answers accountcheck.Memory
	// Count takes what was counted in a session that ended in order, and does not wait; nil: nothing
	// is counted.
	Count func(map[string]site.Tally)
	// Dedicated serves a session's own port, if the manifest asks for one: a free port, or addr
	// if it is not empty.
	Dedicated func(sessionID, addr string) (url string, closer func(), err error)

	// Records are the records of all profiles, as far as they are known; complete says that they all
	// are. Nil: no record keeps the files of a session that is over.
	Records func() (records []lease.Record, complete bool)

	Store     lease.Store
	Root      *profiledir.Root
	Archive   *evidence.Archive
	Files     sessionfile.Dir
	Jar       sessionfile.Jar
	Slots     *slots.Table
	Driver    *browser.Driver
	Recoverer *recovery.Recoverer
	Announcer *Announcer
	FileRoots *fileroots.Roots
	// OtherUser says that browsers run as another user than the launcher.
	OtherUser bool

	// Clock is the boot-time clock; nil: the host's.
	Clock   boottime.Clock
	Log     zerolog.Logger
	Metrics prometheus.Registerer
}

// Registry has the sessions of one host: the living ones, those of an earlier launcher that are
// not resumed or recovered yet, and those that are over. Its methods may be called
// concurrently.
type Registry struct {
	o         Options
	ctx       context.Context // of everything that sessions run in the background
	work      *sync.WaitGroup
	metrics   metrics
	picturing chan struct{} // has room for the pictures that may be taken at the same time
	signIn    func(context.Context, *Session, api.SignIn) (api.SignInAnswer, error)

	mu       sync.Mutex
	draining bool
	living   map[string]*Session         // by id
	ended    map[string]sessionfile.File // by id; those that are pending, too
	hashes   map[string]string           // session id by hash of capability
	pending  map[string]pending          // by id
}

// pending is a session of an earlier launcher of which it is not decided yet whether it is
// resumed.
type pending struct {
	file  sessionfile.File
	known chan struct{} // closed when it is decided
}

// NewRegistry reads the files of earlier sessions. Its goroutines run until ctx ends, and are
// counted in work.
func NewRegistry(ctx context.Context, work *sync.WaitGroup, o Options) (*Registry, error) {
	o.QuietTimeout, o.ClearTimeout = cmp.Or(o.QuietTimeout, 2*time.Second), cmp.Or(o.ClearTimeout, 10*time.Second)
	o.CutTimeout = cmp.Or(o.CutTimeout, 20*time.Second)
	if o.Clock == nil {
		o.Clock = boottime.Now
	}
	if o.Patience == nil {
		o.Patience = capture.Patience
	}
	h := &Registry{
		o: o, ctx: ctx, work: work, metrics: newMetrics(o.Metrics), picturing: make(chan struct{}, picturesAtOnce),
		living: map[string]*Session{}, ended: map[string]sessionfile.File{}, hashes: map[string]string{}, pending: map[string]pending{},
	}
	known, err := o.Files.Load()
	if err != nil {
		return nil, err
	}
	for _, f := range known {
		h.ended[f.SessionID] = f
		h.hashes[f.CapabilityHash] = f.SessionID
		if f.Reason == "" && f.Ended == "" {
			h.pending[f.SessionID] = pending{f, make(chan struct{})}
		}
	}
	return h, nil
}

// SignInBy has signIn sign the accounts of sessions' profiles in, for their workers. It is called once,
// before the first session.
func (h *Registry) SignInBy(signIn func(context.Context, *Session, api.SignIn) (api.SignInAnswer, error)) {
	h.signIn = signIn
}

// Request is the request for a grant to the manifest's task.
func (h *Registry) Request(m api.Manifest, sessionID string, k *lease.Keeper, floor lease.Token) lease.Request {
	var byHand *lease.ByHand
	if m.ByHand != nil {
		byHand = &lease.ByHand{Holder: m.ByHand.Holder, Note: m.ByHand.Note}
	}
	return lease.Request{
		ByHand: byHand, Principal: m.Opener.Name,
		SessionID: sessionID, WorkerID: m.WorkerID, TaskID: m.TaskID, AccountID: m.AccountID, ProxyID: m.ProxyID,
		LauncherID: h.o.LauncherID, BootID: h.o.BootID, PresenceEpoch: k.Epoch(), TTL: h.o.Timing.TTL, Floor: floor, Exclusive: m.Exclusive(),
	}
}

type metrics struct {
	sessions    prometheus.Gauge
	connections prometheus.Gauge
	ends        *prometheus.CounterVec // by how
	pictures    *prometheus.CounterVec // by result
	denied      *prometheus.CounterVec // by reason
	handovers   prometheus.Histogram
	readers     prometheus.Gauge
	waiting     prometheus.Gauge       // workers that wait for a person
	asks        *prometheus.CounterVec // by how they ended
}

func newMetrics(r prometheus.Registerer) metrics {
	m := metrics{
		sessions:    prometheus.NewGauge(prometheus.GaugeOpts{Name: "leasehold_sessions", Help: "Sessions alive, those in recovery included."}),
		connections: prometheus.NewGauge(prometheus.GaugeOpts{Name: "leasehold_connections", Help: "Websocket connections of workers."}),
		ends:        prometheus.NewCounterVec(prometheus.CounterOpts{Name: "leasehold_session_ends_total", Help: "Sessions that ended, by how."}, []string{"how"}),
		pictures:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "leasehold_pictures_total", Help: "Pictures of living sessions, by what became of them."}, []string{"how"}),
		denied:      prometheus.NewCounterVec(prometheus.CounterOpts{Name: "leasehold_denied_commands_total", Help: "Commands of workers that were refused, by why."}, []string{"reason"}),
		handovers:   prometheus.NewHistogram(prometheus.HistogramOpts{Name: "leasehold_warm_handover_seconds", Help: "Time to grant a warm browser to the next task, from its request's turn.", Buckets: prometheus.ExponentialBuckets(0.0005, 2, 12)}),
		readers:     prometheus.NewGauge(prometheus.GaugeOpts{Name: "leasehold_reader_sessions", Help: "Ephemeral sessions alive; leasehold_sessions counts them, too."}),
		waiting:     prometheus.NewGauge(prometheus.GaugeOpts{Name: "leasehold_asks_waiting", Help: "Workers that wait for a person now."}),
		asks:        prometheus.NewCounterVec(prometheus.CounterOpts{Name: "leasehold_asks_total", Help: "Requests of workers for a person that ended, by how."}, []string{"how"}),
	}
	r.MustRegister(m.sessions, m.connections, m.ends, m.pictures, m.denied, m.handovers, m.readers, m.waiting, m.asks)
	return m
}
