package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"

	"leasehold/launcher"
	"leasehold/launcher/chrome"
	"leasehold/launcher/console"
	"leasehold/launcher/httpapi"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/proxies"
	"leasehold/lease"
	"leasehold/lease/natskv"
)

type runCmd struct {
	RunConfig `embed:""`
}

// Run serves until SIGINT, SIGTERM or, where that was not ignored before, SIGHUP.
func (c *runCmd) Run() error {
	config, err := c.Complete(os.Getenv)
	if err != nil {
		return err
	}
	ctx, stop := interruptible(hangup()...)
	defer stop()
	return serve(ctx, config)
}

// Bounds of start and stop.
const (
	connectTimeout = 15 * time.Second
	drainTimeout   = 60 * time.Second
	serverTimeout  = 5 * time.Second
)

// stops are what was started, by name, to be stopped in reverse.
type stops struct {
	log   zerolog.Logger
	steps []step
}

type step struct {
	name string
	stop func() error
}

func (s *stops) add(name string, stop func() error) { s.steps = append(s.steps, step{name, stop}) }

func (s *stops) run() error {
	var errs error
	for i := len(s.steps) - 1; i >= 0; i-- {
		if err := s.steps[i].stop(); err != nil {
			s.log.Error().Err(err).Str("part", s.steps[i].name).Msg("not stopped cleanly")
			errs = errors.Join(errs, fmt.Errorf("stopping the %s: %w", s.steps[i].name, err))
		}
	}
	return errs
}

// serve is the sidecar: it returns when ctx has ended and everything is drained.
// What it starts stands below in the order of the start.
func serve(ctx context.Context, c RunConfig) (err error) {
	log := newLogger(c)
	started := &stops{log: log}
	defer func() { err = errors.Join(err, started.run()) }()

	binary, err := chrome.Find(c.Chrome)
	if err != nil {
		return &exitError{exitNoChrome, err}
	}
	var servers *proxies.Set
	if c.Proxies != "" {
		if servers, err = proxies.Load(c.Proxies); err != nil {
			return &exitError{exitUsage, fmt.Errorf("--proxies: %w", err)}
		}
	}
	if err := claimDataDir(c, started); err != nil {
		return &exitError{exitDataDir, err}
	}
	root, err := profiledir.Open(c.ProfilesDir)
	if err != nil {
		return &exitError{exitDataDir, fmt.Errorf("--profiles-dir: %w", err)}
	}
	launcherID, err := ownID(c)
	if err != nil {
		return &exitError{exitDataDir, err}
	}
	log = log.With().Str("launcher", launcherID).Logger()
	// Before the guard, which would be left behind where the launcher was.
	groups, limits := browserGroups(c)
	started.add("guard", startGuard(c, launcherID, log))
	listener, err := listen("--listen", c.Listen)
	if err != nil {
		return err
	}
	started.add("listener", func() error { return ignoreClosed(listener.Close()) })

	nc, natsURL, err := connectNATS(ctx, c, started, log)
	if err != nil {
		return err
	}
	store, err := natskv.Open(ctx, nc, natskv.Options{LauncherID: launcherID, Log: log, Replicas: replicas(c, nc)})
	if err != nil {
		return &exitError{exitNATS, err}
	}
	started.add("lease store", func() error { store.Close(); return nil })
	archive, err := openArchive(ctx, c, nc, started, log)
	if err != nil {
		return err
	}

	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	cautions, err := c.cautions()
	if err != nil {
		return err
	}
	dedicated := &dedicatedPorts{log: log}
	l, err := launcher.New(launcher.Options{
		ID: launcherID, DataDir: c.DataDir, Root: root, Store: store, Archive: archive, Ping: store.Ping,
		Chrome: binary, Headless: *c.Headless, Proxies: servers, Timing: lease.Timing{TTL: c.LeaseTTL}, ReconnectGrace: c.ReconnectGrace,
		Cooldown: c.Cooldown, ReviewWhen: cautions, MaxBrowsers: c.MaxBrowsers, MinFreeDisk: uint64(c.MinFreeDisk),
		KeepWarmIdle: c.KeepWarmIdle, KeepWarmMax: c.KeepWarmMax, KeepWarmMinMemory: uint64(c.KeepWarmMemory), LeaveOnExit: c.OnExit == "leave",
		HangTimeout: c.HangTimeout, BrowserMemory: uint64(c.BrowserMemory), CPUWeight: c.BrowserWeight, Groups: groups,
		HomeTimeout: c.HomeTimeout, AdvertiseURL: serverURL(c, listener.Addr().String()),
		PictureInterval: c.PictureEvery,
		Dedicated:       dedicated.open, Log: log, Metrics: registry,
	})
	if err != nil {
		return err
	}
	options := httpapi.Options{
		ListenAddr: listener.Addr().String(), AdvertiseURL: c.AdvertiseURL, Token: c.Token, TLS: c.TLSCert != "", Log: log,
		Metrics: promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), Console: console.Handler(),
	}
	dedicated.handler = func(sessionID, addr string) http.Handler {
		o := options
		o.ListenAddr, o.AdvertiseURL = addr, ""
		return httpapi.Dedicated(l, sessionID, o)
	}
	failed := make(chan error, 1)
	server := &http.Server{Handler: httpapi.New(l, options), ReadHeaderTimeout: 10 * time.Second}
	if c.TLSCert != "" {
		certificate, err := tls.LoadX509KeyPair(c.TLSCert, c.TLSKey)
		if err != nil {
			return &exitError{exitUsage, fmt.Errorf("--tls-cert, --tls-key: %w", err)}
		}
		// No HTTP/2: a websocket needs the connection for itself.
		listener = tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12})
	}
	serving := make(chan struct{})
	go func() {
		defer close(serving)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			failed <- fmt.Errorf("serving %s: %w", c.Listen, err)
		}
	}()
	started.add("http server", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), serverTimeout)
		defer cancel()
		err := server.Shutdown(ctx)
		<-serving
		return err
	})
	log.Info().Str("limits", limits).Msg("limits of browsers")
	l.Start()
	// Stopped first: while sessions drain, the surface still answers.
	started.add("launcher", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
		defer cancel()
		return l.Stop(ctx)
	})

	started.add("retention", startRetention(c, launcherID, archive, store, log))

	greet(c, serverURL(c, options.ListenAddr), natsURL)
	log.Info().Str("url", serverURL(c, options.ListenAddr)).Str("nats", natsURL).Str("chrome", binary).Msg("ready")
	select {
	case <-ctx.Done():
		log.Info().Msg("draining")
		return nil
	case err := <-failed:
		return err
	}
}

// newLogger writes to the standard error.
func newLogger(c RunConfig) zerolog.Logger {
	level, err := zerolog.ParseLevel(c.LogLevel)
	if err != nil {
		level = zerolog.InfoLevel
	}
	if c.LogFormat == "json" {
		return zerolog.New(os.Stderr).Level(level).With().Timestamp().Logger()
	}
	info, err := os.Stderr.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0
	return zerolog.New(zerolog.ConsoleWriter{Out: os.Stderr, TimeFormat: time.TimeOnly, NoColor: !terminal}).Level(level).With().Timestamp().Logger()
}

// greet prints where the sidecar is, and how to use it.
func greet(c RunConfig, at, natsURL string) {
	query := "?worker=me&task=try&create=true"
	if c.Token != "" {
		query += "&token=YOUR_TOKEN"
	}
	ws := strings.Replace(at, "http", "ws", 1)
	fmt.Printf(`leasehold is ready at %[1]s   (console: %[1]s/  events: %[4]s)

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
