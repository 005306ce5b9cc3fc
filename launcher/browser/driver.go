// Package browser drives the Chromes of one host: it starts them, or adopts
// those of an earlier launcher, watches their health and their crash dumps, and
// closes them or detaches from them.
package browser

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/checkpoint/netlog"
	"leasehold/checkpoint/site"
	"leasehold/internal/cgroup"
	"leasehold/internal/chromever"
	"leasehold/internal/runas"
	"leasehold/internal/signed"
	"leasehold/launcher/chrome"
	"leasehold/launcher/monitor"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/recovery/findings"
	"leasehold/launcher/sessionfile"
	"leasehold/lease"
)

// Options configure a Driver.
type Options struct {
	Binary string // path of the browser binary
	Files  sessionfile.Dir
	Root   *profiledir.Root
	Key    *signed.Key // of the pipe logs
	Sites  site.Source // what is known of sites

	// HangTimeout is how long a browser may give no answer before it is given up; zero
	// means for ever. See hang for the time that counts.
	HangTimeout time.Duration
	// Memory is how much memory one browser may use, in bytes; zero means no limit. A
	// profile's record may lower it.
	Memory uint64
	// CPUWeight is a browser's share of the processors, in Groups; zero means the
	// kernel's default.
	CPUWeight int
	// Groups is where browsers get control groups, by which the kernel enforces their
	// limits; nil means that they get none.
	Groups *cgroup.Tree
	// Confinement, if given, is what the kernel confines every browser to. A browser that
	// an earlier launcher started keeps the one that it has.
	Confinement *chrome.Confinement
	// User is the browser user; nil: browsers run as the launcher's own user. A browser
	// that an earlier launcher started keeps the one that it has.
	User *runas.User
	// CookiesWithin is how long a browser whose worker was lost may go on until it has
	// shown its cookies; zero is the default.
	CookiesWithin time.Duration
	// CloseTimeouts is how long each step of a close may take; zero values are the defaults.
	CloseTimeouts chrome.CloseTimeouts
	// Processes runs the browsers' processes; nil: Kernel does.
	Processes Processes

	Log     zerolog.Logger
	Metrics prometheus.Registerer
}

// Driver drives the browsers of one host. Its methods are safe for concurrent use.
type Driver struct {
	o      Options
	ctx    context.Context // ends everything that the driver runs
	work   *sync.WaitGroup // counts the driver's goroutines
	starts prometheus.Histogram
	closes *prometheus.CounterVec // by close method

	installed installed

	mu     sync.Mutex
	driven map[*Browser]bool
	begun  chan struct{} // one place: there is a browser to watch
}

// NewDriver returns a driver whose goroutines run until ctx ends. They are counted in
// work.
func NewDriver(ctx context.Context, work *sync.WaitGroup, o Options) *Driver {
	if o.Processes == nil {
		o.Processes = Kernel{}
	}
	d := &Driver{
		o: o, ctx: ctx, work: work, driven: map[*Browser]bool{}, begun: make(chan struct{}, 1),
		starts: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "leasehold_browser_start_seconds", Help: "Time from the start of Chrome to its first answer.", Buckets: prometheus.ExponentialBuckets(0.05, 2, 10)}),
		closes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "leasehold_browser_closes_total", Help: "Browsers that ended, by the rung of the close ladder."}, []string{"rung"}),
	}
	o.Metrics.MustRegister(d.starts, d.closes)
	return d
}

// Start describes a browser to start for a session.
type Start struct {
	SessionID string
	Token     lease.Token
	Lock      *profiledir.Lock // the profile's lock, of which Chrome inherits its part
	Path      string           // the profile's directory
	Headless  bool
	Proxy     string // Chrome's --proxy-server; empty for none
	// ProxySocket keeps the address of Proxy for the browser, see chrome.Options; nil for none.
	ProxySocket *os.File
	ReadOnly    bool // its pages cannot open websockets
	Args        []string
	Memory      uint64 // the profile's own limit in bytes; zero for none
	// Appearance is what sites see of it.
	Appearance lease.Appearance
	// ReadWrite are directories that a confined browser may use, beside those of all
	// browsers. They have to exist, and to be right for every session that the browser
	// will serve: the kernel adds none later.
	ReadWrite []string
	// Sink receives what the browser's monitor reports.
	Sink func(checkpoint.Entry)
	// Prepare, if given, begins to prepare the browser, and returns a function that waits until it is prepared.
	// What it sends comes before the command that opens the first tab, for which Chrome takes some time. Nothing
	// is loaded before Start returns.
	Prepare func(ctx context.Context, b *Browser) (prepared func() error)
	Log     zerolog.Logger
}

// Start starts a browser and drives it. If it fails after the process was started, it
// returns the browser together with the error, and the caller has to close it.
func (d *Driver) Start(ctx context.Context, s Start) (*Browser, error) {
	begun := time.Now()
	if err := s.Lock.MayOpen(); err != nil {
		return nil, err
	}
	if err := d.MayOpen(ctx, s.Path); err != nil {
		return nil, err
	}
	if err := s.Lock.Opening(); err != nil {
		return nil, err
	}
	if _, err := s.Lock.SetAsideSingleton(""); err != nil { // nothing is set aside here
		return nil, err
	}
	folder, err := s.Lock.PinFolder()
	if err != nil {
		return nil, err
	}
	dumps, err := d.o.Files.MakeDumps(s.SessionID)
	if err != nil {
		return nil, err
	}
	group, err := d.group(s.SessionID, d.MemoryLimit(s.Memory))
	if err != nil { // the launcher still enforces the limit by its own readings
		s.Log.Warn().Err(err).Msg("the browser gets no control group")
	}
	said, _ := d.Version(ctx) // a binary that does not say it does not start, either
	output := d.o.Files.Output(s.SessionID)
	process, err := d.o.Processes.Start(ctx, chrome.Options{
		Binary: d.o.Binary, ProfileDir: s.Path, Folder: folder, Headless: s.Headless, Proxy: s.Proxy, ProxySocket: s.ProxySocket, ReadOnly: s.ReadOnly, Group: group, DumpDir: dumps,
		Version: chromever.In(said), Appearance: s.Appearance, ExtraArgs: s.Args, Lock: s.Lock.File(), OutputFile: output, Confinement: d.o.Confinement.With(s.ReadWrite), User: d.o.User,
	})
	if err != nil {
		if group != nil {
			err = errors.Join(err, group.Remove(groupTimeout))
		}
		return nil, err
	}
	for _, w := range process.Warnings() {
		s.Log.Warn().Msg(w)
	}
	pipeLog, err := cdpproxy.CreatePipeLog(d.o.Files.PipeLog(s.SessionID), d.o.Key)
	if err != nil { // then the session is recovered, not resumed, if the launcher is killed
		s.Log.Warn().Err(err).Msg("a restart of the launcher will end the session")
	}
	identity := process.Identity()
	running := profiledir.Running{
		PID: identity.PID, StartTime: identity.StartTime, BootID: identity.BootID, SessionID: s.SessionID, Token: s.Token,
		TempDir: process.TempDir(), OutputFile: output, Dumps: dumps,
	}
	if group != nil {
		running.Group = group.Dir()
	}
	if pipeLog != nil {
		running.PipeLog = d.o.Files.PipeLog(s.SessionID)
	}
	if err := s.Lock.SetRunning(running); err != nil {
		return d.undriven(process, pipeLog, dumps, s.SessionID), err
	}
	b, err := d.drive(ctx, process, pipeLog, dumps, s.SessionID, s.Appearance, s.Sink, nil)
	if err != nil {
		return b, err
	}
	prepared := func() error { return nil }
	if s.Prepare != nil {
		prepared = s.Prepare(ctx, b)
	}
	// One tab that loads nothing. Chrome drops the session cookies when the last tab is
	// closed, so this tab also keeps them.
	err = b.monitor.Tabs().OpenFirst(ctx)
	if err != nil {
		err = process.StartFailure(err)
	}
	if err = errors.Join(err, prepared()); err != nil {
		return b, err
	}
	if width, height, ok := s.Appearance.Size(); ok {
		if err := b.monitor.Tabs().FitWindow(ctx, width, height); err != nil {
			return b, fmt.Errorf("the window of the browser could not get the profile's viewport: %w", err)
		}
	}
	b.LimitMemory(s.Memory)
	d.work.Go(b.learnNetwork)
	d.starts.Observe(time.Since(begun).Seconds())
	return b, nil
}

// Adopt drives a browser whose launcher has ended, and that was started with this appearance. It returns nil if the browser is
// gone. A browser that cannot be driven is returned undriven, so that it can be closed.
func (d *Driver) Adopt(running profiledir.Running, path string, looks lease.Appearance, sink func(checkpoint.Entry), log zerolog.Logger) *Browser {
	identity := identityOf(running)
	options := chrome.AdoptOptions{ProfileDir: path, TempDir: running.TempDir, OutputFile: running.OutputFile, Group: running.Group}
	process, err := d.o.Processes.Adopt(identity, options)
	if _, ok := errors.AsType[*chrome.NotSameError](err); ok {
		log.Warn().Err(err).Msg("the browser of the launcher before is gone")
		return nil
	}
	if err != nil {
		log.Warn().Err(err).Msg("the browser's pipe cannot be had: it is closed by signals")
		if process, err = d.o.Processes.Attach(identity, options); err != nil {
			log.Warn().Err(err).Msg("the browser cannot be adopted")
			return nil
		}
		return d.undriven(process, nil, running.Dumps, running.SessionID)
	}
	log.Info().Int("pid", running.PID).Msg("found the browser of the launcher before")
	for _, w := range process.Warnings() {
		log.Warn().Msg(w)
	}
	var pipeLog *cdpproxy.PipeLog
	if running.PipeLog != "" {
		pipeLog, err = cdpproxy.OpenPipeLog(running.PipeLog, d.o.Key)
		if err == nil && !pipeLog.Whole() {
			err = fmt.Errorf("%s: %w", running.PipeLog, signed.ErrNotAuthentic)
		}
		if err != nil {
			log.Warn().Err(err).Msg("what is open on the browser's pipe is not known")
		}
	}
	ctx, cancel := context.WithTimeout(d.ctx, adoptTimeout)
	defer cancel()
	types, err := d.o.Files.ReadNetLog(running.SessionID)
	if err != nil {
		log.Warn().Err(err).Msg("what pages do not report themselves is not known from here on")
	}
	b, err := d.drive(ctx, process, pipeLog, running.Dumps, running.SessionID, looks, sink, &types)
	b.adopted = true
	if err == nil {
		err = b.monitor.Tabs().AwaitWatched(ctx)
	}
	if err != nil {
		log.Warn().Err(err).Msg("the browser cannot be driven: it is closed without its picture")
	}
	if b.Driven() {
		b.adoptStill(log)
		if !b.Still() {
			b.forgetPrivate(ctx, log)
		}
	}
	return b
}

// adoptTimeout is how long a browser of an earlier launcher may take to answer.
const adoptTimeout = 60 * time.Second

// drive opens the launcher's own session on a browser's pipe. Pages that are open need not
// be watched yet when it returns. If it fails, it returns the browser together with the
// error, and the caller has to close it. types are given if an earlier launcher has read the
// beginning of its NetLog.
func (d *Driver) drive(ctx context.Context, process Process, pipeLog *cdpproxy.PipeLog, dumps, session string, looks lease.Appearance, sink func(checkpoint.Entry), types *netlog.Types) (*Browser, error) {
	b := d.undriven(process, pipeLog, dumps, session)
	m := monitor.New(sink)
	m.KnowSites(d.o.Sites)
	if latitude, longitude, ok := looks.Place(); ok {
		m.SetPlace(latitude, longitude)
	}
	var err error
	if b.mux, err = openMux(process, pipeLog, m.Traffic); err != nil {
		return b, err
	}
	// Requests that the clients of an earlier launcher had paused must not be sent.
	for _, clients := range b.mux.Inherited() {
		for _, c := range clients {
			c.Fence()
		}
	}
	if b.still.forget, err = b.mux.ClosePrivate(ctx); err == nil {
		err = m.Attach(ctx, b.mux)
	}
	if err != nil {
		return b, process.StartFailure(err)
	}
	b.monitor = m
	watching, cancel := context.WithCancel(d.ctx)
	b.health = newHealth(watching, process, b.mux)
	d.mu.Lock()
	d.driven[b] = true
	d.mu.Unlock()
	select {
	case d.begun <- struct{}{}:
	default:
	}
	b.stop = func() {
		d.mu.Lock()
		delete(d.driven, b)
		d.mu.Unlock()
		cancel()
	}
	reported := make(chan struct{})
	b.reported = reported
	d.work.Go(func() {
		defer close(reported)
		m.Watch(watching)
	})
	b.readNetLog(types)
	return b, nil
}

// undriven returns a browser that can only be closed or detached from.
func (d *Driver) undriven(p Process, pipeLog *cdpproxy.PipeLog, dumps, session string) *Browser {
	reported := make(chan struct{})
	close(reported)
	return &Browser{driver: d, process: p, still: stillness{mu: newTurn()}, pipeLog: pipeLog, dumps: dumps, session: session, stop: func() {}, reported: reported, logged: reported}
}

// openMux starts a mux on a browser's pipe.
func openMux(process Process, pipeLog *cdpproxy.PipeLog, traffic func(cdpproxy.Traffic)) (*cdpproxy.Mux, error) {
	commands, events, err := process.TakePipe()
	if err != nil {
		return nil, err
	}
	m, err := cdpproxy.New(cdpproxy.Pipe{Commands: commands, Events: events, PipeLog: pipeLog, Waiting: process.Waiting()}, findings.CommandEffect, traffic)
	if err != nil {
		return nil, errors.Join(err, unix.Close(commands), unix.Close(events))
	}
	return m, nil
}

// HostProxy is chrome.HostProxy for the driver's browsers.
func (d *Driver) HostProxy() (variable string, err error) { return chrome.HostProxy(d.o.User) }

// MemoryLimit is the memory limit of a profile's browser in bytes: the host's limit,
// which the profile's own may lower. Zero means none.
func (d *Driver) MemoryLimit(profile uint64) uint64 {
	if d.o.Memory == 0 || profile == 0 {
		return max(d.o.Memory, profile)
	}
	return min(d.o.Memory, profile)
}

const (
	// maxProcesses is how many processes and threads a browser's control group may
	// have: far more than forty tabs need, and less than what brings a host down.
	maxProcesses = 8192
	// groupTimeout is how long the crash handlers of a browser that has ended may still
	// run.
	groupTimeout = 3 * time.Second
)

// group makes the control group of a session's browser. It returns nil if the host has
// no control groups, or if nothing is to be limited.
func (d *Driver) group(sessionID string, limit uint64) (*cgroup.Group, error) {
	if d.o.Groups == nil || limit == 0 && d.o.CPUWeight == 0 {
		return nil, nil
	}
	return d.o.Groups.Create(sessionID, cgroup.Limits{Memory: limit, Processes: maxProcesses, Weight: d.o.CPUWeight})
}
