//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"

	"leasehold"
	"leasehold/evidence"
	"leasehold/internal/cgroup"
	"leasehold/internal/confine"
	"leasehold/internal/connlimit"
	"leasehold/internal/durable"
	"leasehold/internal/natsd"
	"leasehold/internal/ownpath"
	"leasehold/internal/signed"
	"leasehold/internal/tracing"
	"leasehold/launcher"
	"leasehold/launcher/agents"
	"leasehold/launcher/chrome"
	"leasehold/launcher/console"
	"leasehold/launcher/fileroots"
	"leasehold/launcher/httpapi"
	"leasehold/launcher/notify"
	"leasehold/launcher/principal"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/proxies"
	"leasehold/launcher/roster"
	"leasehold/launcher/secrets"
	"leasehold/launcher/sites"
	"leasehold/launcher/snapshots"
	"leasehold/lease"
	"leasehold/lease/natskv"
)

type runCmd struct {
	RunConfig `embed:""`
}

// Run serves until SIGINT or SIGTERM, or until SIGHUP if that was not ignored before.
func (c *runCmd) Run(a *app) error {
	c.ConfigFile = a.config
	config, err := c.Complete(os.Getenv)
	if err != nil {
		return err
	}
	ctx, stop := interruptible(hangup()...)
	defer stop()
	colors := isTerminal(a.stderr)
	a.outlive(func(dropped uint64) []byte {
		var line bytes.Buffer
		log := newLogger(config, &line, colors)
		log.Warn().Uint64("lines", dropped).Msg("lines of this log were dropped: whoever reads it did not take them in time")
		return line.Bytes()
	})
	return serve(ctx, config, a, newLogger(config, a.stderr, colors))
}

// Time limits of start and stop.
const (
	drainTimeout  = 60 * time.Second
	serverTimeout = 5 * time.Second
	// headerTimeout limits how long a client may take to send its request.
	headerTimeout = 10 * time.Second
	// welcomeTime is how long a subscriber may wait for its greeting. Most clients give up earlier, and
	// connect again.
	welcomeTime = 30 * time.Second
	// idleTimeout is how long a connection that is no websocket may send no request.
	idleTimeout = time.Minute
)

// service is the sidecar, with its parts in the order in which they are started.
type service struct {
	config RunConfig
	log    zerolog.Logger
	stops  stopList

	chrome        string // the path of the browser's binary
	gate          *principal.Gate
	proxies       *proxies.Set // nil if none are configured
	key           *signed.Key  // signs what is kept on disk to be read back
	dataDir       string       // the ownpath.Identity of the data directory that was claimed
	roster        *roster.Roster
	root          *profiledir.Root
	files         *fileroots.Roots
	launcherID    string
	groups        *cgroup.Tree // nil if browsers get no control groups
	browserLimits string       // how browsers are limited, as text
	// confinement is what the kernel confines browsers to; nil if they are not confined.
	confinement *chrome.Confinement
	// peers bounds what others have open at all listeners.
	peers    *connlimit.Peers
	listener *connlimit.Listener

	reserve  *durable.Reserve
	embedded *natsd.Server // nil if the user has a NATS of their own
	nats     *nats.Conn
	servers  *natskv.Servers // nil if the NATS is the embedded one
	natsURL  string          // without credentials
	leases   *natskv.Store
	// now says how late it is for acts that cannot be taken back.
	now     func(context.Context) (time.Time, error)
	sites   *sites.Shelf
	archive *evidence.Archive
	// snapshots is nil if there is no profile store.
	snapshots *snapshots.Store

	metrics   *prometheus.Registry
	tracer    *tracing.Tracer // nil: no spans are made
	dedicated dedicatedPorts
	launcher  *launcher.Launcher
	notifier  *notify.Notifier
	// leaves tells, at the end, whether browsers are left to the next sidecar.
	leaves func() bool
}

// newService returns a service of which nothing is started yet. dropped counts the lines of its
// log that were dropped.
func newService(c RunConfig, log zerolog.Logger, dropped func() uint64) *service {
	s := &service{config: c, log: log, peers: connlimit.NewPeers(c.MaxPeer), stops: stopList{log: log}, metrics: prometheus.NewRegistry()}
	s.leaves = sync.OnceValue(func() bool {
		if s.config.OnExit != "leave" {
			return false
		}
		stops := hostStops()
		if stops {
			log.Info().Msg("the host shuts down: browsers are closed, and not left to the next sidecar")
		}
		return !stops
	})
	s.metrics.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "leasehold_log_lines_dropped_total", Help: "Lines of the log that were dropped, because whoever reads it stalled or went away.",
	}, func() float64 { return float64(dropped()) }))
	s.metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return s
}

// serve runs the sidecar. It returns when ctx has ended and everything is drained.
func serve(ctx context.Context, c RunConfig, a *app, log zerolog.Logger) (err error) {
	s := newService(c, log, a.dropped)
	if err := confine.MakeUndumpable(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stops.run()) }()
	if err := s.prepareHost(ctx); err != nil {
		return err
	}
	if err := s.openStores(ctx); err != nil {
		return err
	}
	if err := s.openTraces(ctx); err != nil {
		return err
	}
	if err := s.newLauncher(); err != nil {
		return err
	}
	failed, err := s.serveHTTP()
	if err != nil {
		return err
	}
	s.log.Info().Str("limits", s.browserLimits).Msg("limits of browsers")
	s.launcher.Start()
	// It is stopped before the HTTP server, which still answers while sessions drain.
	s.stops.add("launcher", func() error {
		s.leaves() // asked before anything waits for the answer
		ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
		defer cancel()
		return s.launcher.Stop(ctx)
	})

	s.stops.add("notices", background(s.notifier.Run))
	printWelcome(a.stdout, c, s.url(), s.natsURL)
	s.log.Info().Str("url", s.url()).Str("nats", s.natsURL).Str("chrome", s.chrome).Msg("ready")
	select {
	case <-ctx.Done():
		s.log.Info().Msg("draining")
		return nil
	case err := <-failed:
		return err
	}
}

// prepareHost finds or claims what the sidecar needs of this host: Chrome, the proxies'
// configuration, its directories, control groups, the guard and the port.
func (s *service) prepareHost(ctx context.Context) (err error) {
	c := s.config
	if s.chrome, err = chrome.Find(c.Chrome); err != nil {
		return &exitError{exitNoChrome, err}
	}
	if err := chrome.CheckTemp(); err != nil {
		return &exitError{exitUsage, err}
	}
	if s.gate, err = c.gate(s.log); err != nil {
		return &exitError{exitUsage, err}
	}
	if err := c.mayRunAs(); err != nil {
		return &exitError{exitUsage, err}
	}
	if s.confinement, err = s.confineBrowsers(ctx); err != nil {
		return err
	}
	if c.Proxies != "" {
		if s.proxies, err = proxies.Load(c.Proxies); err != nil {
			return &exitError{exitUsage, fmt.Errorf("--proxies: %w", err)}
		}
	}
	if err := s.claimDataDir(); err != nil {
		return &exitError{exitDataDir, err}
	}
	if s.launcherID, err = ownID(c); err != nil {
		return &exitError{exitDataDir, err}
	}
	s.log = s.log.With().Str("launcher", s.launcherID).Logger()
	if err := s.keepReserve(); err != nil {
		return &exitError{exitDataDir, err}
	}
	if err := s.openKept(); err != nil {
		return &exitError{exitDataDir, err}
	}
	if err := s.admitBrowserUser(ctx); err != nil {
		return err
	}
	if s.proxies != nil {
		log := s.log
		s.stops.add("proxies", background(func(ctx context.Context) { s.proxies.Follow(ctx, log) }))
	}
	var own []string
	for _, one := range c.ownFiles() {
		own = append(own, one.path)
	}
	if s.files, err = fileroots.New(fileroots.Options{Roots: c.FileRoot, Private: []string{c.DataDir, s.root.Dir()}, Own: own, DataDir: c.DataDir, User: c.User}); err != nil {
		return &exitError{exitUsage, err}
	}
	s.stops.add("exchange directories", func() error { s.files.Close(); return nil })
	// The groups come before the guard: if the launcher moves itself into another group
	// for them, the guard has to be started there.
	s.groups, s.browserLimits = browserGroups(c)
	s.stops.add("guard", startGuard(c, s.launcherID, s.log))
	if s.listener, err = listen("--listen", c.Listen, s.limits()); err != nil {
		return err
	}
	s.stops.add("listener", func() error { return ignore(net.ErrClosed, s.listener.Close()) })
	return nil
}

// openTime is how long the lease store may take to open: what is left of connectTimeout after connecting.
// An embedded NATS that read a large store may have taken longer than that, and answers at once.
func openTime(connecting time.Duration) time.Duration {
	return max(connectTimeout-connecting, 5*time.Second)
}

// openStores connects to NATS, or starts the embedded one, and opens the stores of leases
// and of evidence.
func (s *service) openStores(ctx context.Context) (err error) {
	// A NATS that starts beside this sidecar is waited for: its servers, and then their JetStream.
	start := time.Now()
	soon, cancel := context.WithTimeout(ctx, connectTimeout)
	err = s.connectNATS(soon)
	cancel()
	if err != nil {
		return err
	}
	open, cancel := context.WithTimeout(ctx, openTime(time.Since(start)))
	defer cancel()
	s.leases, err = natskv.Open(open, s.nats, natskv.Options{LauncherID: s.launcherID, Log: s.log, Replicas: s.replicas(),
		EventBytes: int64(s.config.EventsMax), OwnServer: s.config.NATSURL == "", Metrics: s.metrics})
	if errors.Is(err, lease.ErrUnavailable) {
		return exitWith(exitNATS, "nats server %s: its JetStream does not answer: %w: in a cluster it needs most of the servers", s.natsURL, err)
	}
	if err != nil {
		return exitWith(exitNATS, "nats server %s: %w", s.natsURL, err)
	}
	s.stops.add("lease store", func() error { s.leases.Close(); return nil })
	if s.embedded != nil {
		s.embedded.Welcome(welcomeTime, s.leases.CopyEvents)
	}
	if s.sites, err = sites.New(sites.Options{Store: s.leases, Dir: s.config.SitesDir, Announce: s.announceSite, Log: s.log, Metrics: s.metrics}); err != nil {
		return exitWith(exitUsage, "--sites-dir: %w", err)
	}
	s.compareNATS(ctx)
	s.newClock()
	s.surveyNATS(ctx)
	if err := s.openArchive(ctx); err != nil {
		return err
	}
	return s.openSnapshots(ctx)
}

// announceSite publishes that this sidecar changed what is known of a site.
func (s *service) announceSite(ctx context.Context, e lease.Event) error {
	e.LauncherID = s.launcherID
	return s.leases.Announce(ctx, e)
}

// limits are who may connect to this sidecar's ports, and how often.
func (s *service) limits() connlimit.Options {
	return connlimit.Options{Peers: s.peers, Admit: chrome.ClientsOnly(s.config.User), Silent: s.config.TLSCert != "", Log: s.log}
}

// newLauncher makes the launcher. It is not started yet.
func (s *service) newLauncher() error {
	s.dedicated.log, s.notifier = s.log, s.newNotifier()
	c := s.config
	cautions, err := c.cautions()
	if err != nil {
		return err
	}
	var known func() (*secrets.Set, error)
	if c.Secrets != "" {
		known = c.secrets
	}
	s.launcher, err = launcher.New(launcher.Options{
		ID: s.launcherID, DataDir: c.DataDir, Key: s.key, Root: s.root, Store: s.leases, Waiters: s.leases, Sites: s.sites, Secrets: known, SharedStore: c.NATSURL != "", Roster: s.roster, Archive: s.archive, Bundles: evidence.Retention{MaxAge: c.EvidenceMaxAge, MaxBytes: int64(c.EvidenceMax)}, Events: s.leases, Ping: s.ping, Reached: s.reached, Doubt: s.storeDoubt,
		Chrome: s.chrome, Headless: *c.Headless, Confinement: s.confinement, User: c.User, Proxies: s.proxies, FileRoots: s.files, Timing: lease.Timing{TTL: c.LeaseTTL}, ReconnectGrace: c.ReconnectGrace, PersonGrace: c.PersonGrace,
		Cooldown: c.Cooldown, ReviewWhen: cautions, MaxBrowsers: c.MaxBrowsers, MinFreeDisk: uint64(c.MinFreeDisk), FilesReady: s.filesReady,
		KeepWarmIdle: c.KeepWarmIdle, KeepWarmMax: c.KeepWarmMax, KeepWarmMinMemory: uint64(c.KeepWarmMemory), LeaveOnExit: s.leaves,
		HangTimeout: c.HangTimeout, BrowserMemory: uint64(c.BrowserMemory), CPUWeight: c.BrowserWeight, Groups: s.groups,
		HomeTimeout: c.HomeTimeout, AdvertiseURL: s.toldOthers(),
		Now: s.now, Snapshots: s.snapshots, Retention: snapshots.Retention{Keep: c.SnapshotKeep, KeepFor: c.SnapshotMaxAge},
		PictureInterval: c.PictureEvery, ImportRoots: c.ImportRoot,
		Dedicated: s.dedicated.open, Log: s.log, Metrics: s.metrics, Tracer: s.tracer,
	})
	return err
}

// filesReady returns why a session could not be kept on this host: the data directory is another one by now,
// its evidence has no place, or what is signed now could not be read after a restart.
func (s *service) filesReady() error {
	return errors.Join(ownpath.Still(s.config.DataDir, s.dataDir), durable.Takes(filepath.Join(s.config.DataDir, spoolDir)), signed.NewFile(s.config.DataDir).Has(s.key))
}

// serveHTTP begins to answer on the listener, and prepares the handler for sessions with ports
// of their own. The channel receives the error if the server fails.
func (s *service) serveHTTP() (failed <-chan error, err error) {
	c := s.config
	if s.dedicated.tls, err = c.tls(s.log); err != nil {
		return nil, &exitError{exitUsage, err}
	}
	referrals, err := s.listenForOthers()
	if err != nil {
		return nil, &exitError{exitNATS, err}
	}
	host := agents.NewHost(leasehold.Version)
	options := httpapi.Options{
		Agents:     host,
		ListenAddr: s.listener.Addr().String(), AdvertiseURL: c.advertised(), TLS: c.TLSCert != "", Log: s.log,
		Gate: s.gate, TrustedProxies: c.TrustedProxies, Referrals: referrals, Tracer: s.tracer,
		Metrics: promhttp.HandlerFor(s.metrics, promhttp.HandlerOpts{}), Console: console.Handler(s.launcher, s.log), Refused: console.Refused(s.log),
	}
	s.dedicated.limits = s.limits()
	s.dedicated.handler = func(sessionID, addr string) http.Handler {
		o := options
		o.ListenAddr, o.AdvertiseURL = addr, ""
		return httpapi.Dedicated(s.launcher, sessionID, o)
	}
	var listener net.Listener = s.listener
	if s.dedicated.tls != nil {
		listener = tls.NewListener(listener, s.dedicated.tls)
	}
	server := &http.Server{
		Handler: httpapi.New(s.launcher, options), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
		ConnState: s.listener.State, ConnContext: httpapi.ConnContext,
	}
	server.RegisterOnShutdown(s.listener.CloseUnused)
	failures := make(chan error, 1)
	served := goServe(server, listener, func(err error) { failures <- fmt.Errorf("serving %s: %w", c.Listen, err) })
	s.stops.add("http server", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), serverTimeout)
		defer cancel()
		err := server.Shutdown(ctx)
		<-served
		return err
	})
	s.stops.add("agents", func() error { host.Close(); return nil })
	return failures, nil
}

// listenForOthers answers the sidecars of other hosts, which send workers here. It returns nil
// if the NATS is this sidecar's own.
func (s *service) listenForOthers() (*httpapi.Referrals, error) {
	if s.config.NATSURL == "" {
		return nil, nil
	}
	r := httpapi.NewReferrals(s.launcherID, s.gate, s.leases, s.log)
	stop, err := r.Listen()
	if err != nil {
		return nil, fmt.Errorf("listening for other sidecars: %w", err)
	}
	s.stops.add("referrals", func() error { stop(); return nil })
	return r, nil
}

// goServe serves until the server is closed or shut down; if it ends before that, failed
// is called. The channel is closed when it has ended.
func goServe(server *http.Server, l net.Listener, failed func(error)) (served <-chan struct{}) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			failed(err)
		}
	}()
	return done
}

// newLogger makes the logger that writes to a writer, with colors if it is for a person.
func newLogger(c RunConfig, to io.Writer, colors bool) zerolog.Logger {
	level, err := zerolog.ParseLevel(c.LogLevel)
	if err != nil {
		level = zerolog.InfoLevel
	}
	if c.LogFormat == "json" {
		return zerolog.New(to).Level(level).With().Timestamp().Logger()
	}
	return zerolog.New(zerolog.ConsoleWriter{Out: to, TimeFormat: time.TimeOnly, NoColor: !colors}).Level(level).With().Timestamp().Logger()
}

// printWelcome prints where the sidecar is, and how to use it.
func printWelcome(to io.Writer, c RunConfig, at, natsURL string) {
	query := "?worker=me&task=try&create=true"
	if c.provesOthers() {
		query += "&token=YOUR_TOKEN"
	}
	ws := strings.Replace(at, "http", "ws", 1)
	_, _ = fmt.Fprintf(to, `leasehold is ready at %[1]s   (console: %[1]s/  events: %[4]s)

Playwright
    const { chromium } = await import('playwright-core');
    const browser = await chromium.connectOverCDP('%[1]s/profiles/demo%[3]s');
    const page = await browser.contexts()[0].newPage();

Puppeteer
    const { default: puppeteer } = await import('puppeteer-core');
    const browser = await puppeteer.connect({ browserWSEndpoint: '%[2]s/devtools/browser/demo%[3]s' });
    const page = await browser.newPage();
`, at, ws, query, natsURL)
}
