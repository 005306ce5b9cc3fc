//go:build linux

package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"leasehold/evidence/s3store"
	"leasehold/internal/chromever"
	"leasehold/internal/natsd"
	"leasehold/internal/s3bucket"
	"leasehold/launcher/api"
	"leasehold/launcher/chrome"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/proxies"
	"leasehold/lease/natskv"
)

type doctorCmd struct {
	RunConfig `embed:""`
	Quick     bool `help:"Start no browser."`
	JSON      bool `name:"json" help:"Print JSON."`
}

// Help is what leasehold doctor --help prints besides the flags.
func (c *doctorCmd) Help() string {
	return `Tries what leasehold run would use, with the same settings: starts a browser as run would
and asks it and a page over the pipe, writes to and reads from a NATS of yours and the
evidence store, shows each proxy its credentials, asks the advertised address, and sends each
webhook a notice that says that it is a test. It keeps nothing of that, makes no directory,
and asks no site.`
}

type checkResult struct {
	Check  string `json:"check"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
}

// checkTimeout limits each check.
const checkTimeout = 10 * time.Second

// Run makes every check, with the settings that leasehold run would have.
func (c *doctorCmd) Run(a *app) error {
	c.ConfigFile = a.config
	config, err := c.Complete(os.Getenv)
	if err != nil {
		return err
	}
	ctx, stop := interruptible()
	defer stop()
	checks := config.checkAll(ctx, c.Quick)
	if err := c.print(a, checks); err != nil {
		return err
	}
	failed := 0
	for _, one := range checks {
		if !one.OK {
			failed++
		}
	}
	if failed > 0 {
		return exitWith(exitFailure, "%d of %d checks failed", failed, len(checks))
	}
	return nil
}

func (c *doctorCmd) print(a *app, checks []checkResult) error {
	if c.JSON {
		return a.printValue(map[string][]checkResult{"checks": checks})
	}
	t := newColumns(a.stdout, "CHECK", "RESULT", "DETAIL")
	for _, one := range checks {
		result := "ok"
		if !one.OK {
			result = "FAILED"
		}
		t.row(one.Check, result, one.Detail)
	}
	return t.flush()
}

// checkAll makes the checks, in the order in which run needs what they are about. quick leaves
// out the slow ones.
func (c RunConfig) checkAll(ctx context.Context, quick bool) []checkResult {
	running, sidecar := c.checkSidecar(ctx)
	checks := []checkResult{
		check(ctx, "chrome", c.checkChrome),
		{"display", true, c.display()},
		{"browser limits", true, c.limits()},
		check(ctx, "browser user", c.checkBrowserUser),
		check(ctx, "browser sandbox", c.checkConfinement),
	}
	if !quick {
		checks = append(checks, c.tryBrowser(ctx)...)
	}
	checks = append(checks,
		check(ctx, "data directory", func(context.Context) (string, error) { return c.checkDataDir(running) }),
		check(ctx, "profiles directory", func(context.Context) (string, error) { return checkDir("--profiles-dir", c.ProfilesDir) }),
		check(ctx, "safe from others", func(context.Context) (string, error) {
			return "nobody else can write or replace what the sidecar reads back", c.checkDirectories()
		}),
		check(ctx, "disk space", func(context.Context) (string, error) { return c.checkSpace() }),
		sidecar,
		check(ctx, "nats", func(ctx context.Context) (string, error) { return c.checkNATSServer(ctx, running) }),
	)
	if c.advertised() != "" {
		checks = append(checks, check(ctx, "advertised address", func(ctx context.Context) (string, error) { return c.tryAdvertised(ctx, running) }))
	}
	if c.EvidenceStore != ownNATS { // that one is checked together with NATS
		checks = append(checks, check(ctx, "evidence store", c.checkEvidenceStore))
	}
	if c.ProfileStore != "" {
		checks = append(checks, check(ctx, "profile store", c.checkProfileStore))
	}
	if c.Proxies != "" {
		checks = append(checks, check(ctx, "proxies", c.checkProxies))
	}
	if len(c.Notify) > 0 && !quick {
		checks = append(checks, check(ctx, "webhooks", c.checkWebhooks))
	}
	return checks
}

// check makes one check. The function returns what it found.
func check(ctx context.Context, name string, find func(context.Context) (string, error)) checkResult {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	detail, err := find(ctx)
	if err != nil {
		return checkResult{name, false, err.Error()}
	}
	return checkResult{name, true, detail}
}

// checkEvidenceStore tells whether bundles can be stored. For S3 it does what the sidecar does
// at its start, which is to write one small object. It makes no directory.
func (c RunConfig) checkEvidenceStore(ctx context.Context) (string, error) {
	if strings.HasPrefix(c.EvidenceStore, "file:") {
		dir, err := storeDir(c.EvidenceStore)
		if err != nil {
			return "", fmt.Errorf("--evidence-store: %w", err)
		}
		return checkDir("--evidence-store", dir)
	}
	config, err := s3bucket.ParseURL(c.EvidenceStore)
	if err != nil {
		return "", fmt.Errorf("--evidence-store: %w", err)
	}
	store, err := s3store.Open(config)
	if err != nil {
		return "", fmt.Errorf("--evidence-store: %w", err)
	}
	defer store.Close()
	if err := store.Check(ctx); err != nil {
		return "", fmt.Errorf("--evidence-store: %w", err)
	}
	return config.String() + " takes bundles, and lets nobody write over them", nil
}

// checkProxies connects to each proxy and shows it the credentials. It contacts nobody through
// them.
func (c RunConfig) checkProxies(ctx context.Context) (string, error) {
	set, err := proxies.Load(c.Proxies)
	if err != nil {
		return "", fmt.Errorf("--proxies: %w", err)
	}
	var errs error
	for _, id := range set.IDs() {
		errs = errors.Join(errs, set.Find(id).Try(ctx))
	}
	return fmt.Sprintf("%d proxies answer, and take the credentials that they want", len(set.IDs())), errs
}

func (c RunConfig) checkChrome(ctx context.Context) (string, error) {
	path, err := chrome.Find(c.Chrome)
	if err == nil {
		err = chrome.CheckTemp()
	}
	if err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w: is it a Chrome that runs on this host (--chrome)?", path, err)
	}
	if newer := newerProfiles(c.ProfilesDir, chromever.In(string(out))); len(newer) > 0 {
		return "", fmt.Errorf("%s: %s: it may not open these profiles, which a newer Chrome wrote: %s; upgrade it", path, strings.TrimSpace(string(out)), strings.Join(newer, ", "))
	}
	return fmt.Sprintf("%s: %s", path, strings.TrimSpace(string(out))), nil
}

// newerProfiles are the profiles in a directory that were written by a newer Chrome than one of
// this version, and its version.
func newerProfiles(dir, version string) (newer []string) {
	entries, _ := os.ReadDir(dir) // another check is about the directory itself
	for _, e := range entries {
		if last := profiledir.LastVersion(filepath.Join(dir, e.Name())); chromever.Older(version, last) {
			newer = append(newer, e.Name()+" ("+last+")")
		}
	}
	return newer
}

func (c RunConfig) display() string {
	if *c.Headless {
		return "browsers run headless"
	}
	return "browsers open windows"
}

// limits tells how browsers are limited. It is not a failure if they cannot have control
// groups.
func (c RunConfig) limits() string {
	plan, err := planGroups()
	return limitsText(c, plan, err)
}

// checkDir tells whether the sidecar could write to the directory, or create it, by making a
// file and removing it. The permissions alone would not show it: in /proc they allow what the
// kernel then refuses.
func checkDir(flag, dir string) (string, error) {
	at := dir
	for {
		info, err := os.Stat(at)
		if errors.Is(err, os.ErrNotExist) && at != filepath.Dir(at) {
			at = filepath.Dir(at)
			continue
		}
		if err != nil {
			return "", fmt.Errorf("%w: give another %s", err, flag)
		}
		if !info.IsDir() {
			return "", fmt.Errorf("%s is not a directory: give another %s", at, flag)
		}
		break
	}
	if err := unix.Access(at, unix.W_OK|unix.X_OK); err != nil {
		return "", fmt.Errorf("%s: %w for this user: give another %s", at, err, flag)
	}
	probe, err := os.CreateTemp(at, ".leasehold-doctor-")
	if err != nil {
		return "", fmt.Errorf("%s: no file can be made there: %w: give another %s", at, err, flag)
	}
	if err := errors.Join(probe.Close(), os.Remove(probe.Name())); err != nil {
		return "", fmt.Errorf("%s: %w: give another %s", at, err, flag)
	}
	if at != dir {
		return fmt.Sprintf("%s can be created in %s", dir, at), nil
	}
	return dir + " is writable", nil
}

// checkDataDir tells whether the data directory can be used. If a sidecar is running, it has to be that
// one's, since all else that is found in it would be about nothing that runs.
func (c RunConfig) checkDataDir(running bool) (string, error) {
	if running && !c.dataDirInUse() {
		return "", fmt.Errorf("the sidecar that runs on %s has another one than %s: give doctor the settings of that sidecar, as its user (--data-dir; docs/runbook.md)", c.Listen, c.DataDir)
	}
	return checkDir("--data-dir", c.DataDir)
}

// checkSidecar tells whether a sidecar is running already, and checks that it is ready or
// that one could listen.
func (c RunConfig) checkSidecar(ctx context.Context) (running bool, _ checkResult) {
	result := check(ctx, "sidecar", func(ctx context.Context) (string, error) {
		detail, err := c.askReady(ctx)
		if running = !errors.Is(err, errNoSidecar); running {
			return detail, err
		}
		return checkAddress(ctx, "--listen", c.Listen)
	})
	return running, result
}

// errNoSidecar says that nothing answers like a sidecar.
var errNoSidecar = errors.New("no sidecar answers")

// askReady asks the sidecar that listens where this one would.
func (c RunConfig) askReady(ctx context.Context) (string, error) {
	u := url.URL{Scheme: "http", Host: dialable(c.Listen), Path: "/readyz"}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	if c.TLSCert != "" {
		u.Scheme = "https"
		// The certificate is for the name that others use. Nothing secret is sent, and only
		// this line of doctor depends on the answer.
		transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errNoSidecar, err)
	}
	response, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errNoSidecar, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err != nil {
		return "", fmt.Errorf("%w: %w", errNoSidecar, err)
	}
	var p api.Problem
	switch {
	case response.StatusCode == http.StatusOK:
		return "one is running on " + c.Listen + " and is ready", nil
	case json.Unmarshal(body, &p) == nil && p.Code != "":
		return "", fmt.Errorf("one is running on %s and is not ready: %w", c.Listen, &p)
	default:
		return "", fmt.Errorf("%w: %s", errNoSidecar, response.Status)
	}
}

func checkAddress(ctx context.Context, flag, address string) (string, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", address)
	if errors.Is(err, unix.EADDRINUSE) {
		return "", fmt.Errorf("%s is in use by another program: end that, or give another %s", address, flag)
	}
	if err != nil {
		return "", fmt.Errorf("%w: give another %s", err, flag)
	}
	return address + " is free", l.Close()
}

// checkNATSServer connects to the configured NATS server or, if a sidecar is running, to
// the one embedded in it. If there is neither, it checks that the embedded one could
// listen.
func (c RunConfig) checkNATSServer(ctx context.Context, running bool) (string, error) {
	target := c.natsTarget()
	var more []nats.Option
	if target.URL == "" {
		if !running {
			return checkAddress(ctx, "--nats-listen", c.NATSListen)
		}
		target.URL = "nats://" + dialable(c.NATSListen)
		if c.Token != "" {
			more = append(more, nats.Token(c.Token))
		}
	}
	conn, err := natsd.Dial(ctx, target, zerolog.Nop(), more...)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if c.NATSURL != "" {
		if err := c.refuseEmbedded(conn); err != nil {
			return "", err
		}
	}
	js, err := jetstream.New(conn)
	if err != nil {
		return "", fmt.Errorf("JetStream at %s: %w", conn.ConnectedUrlRedacted(), err)
	}
	if _, err := js.AccountInfo(ctx); err != nil {
		return "", fmt.Errorf("JetStream at %s: %w: want a server with JetStream enabled for this account", conn.ConnectedUrlRedacted(), err)
	}
	detail := fmt.Sprintf("%s, server %s, JetStream enabled; it is %s", conn.ConnectedUrlRedacted(), conn.ConnectedServerVersion(), c.natsChoice(os.Getenv))
	if c.NATSURL == "" {
		return detail, nil
	}
	servers := c.natsServers(zerolog.Nop())
	for _, err := range servers.Check(ctx, conn) {
		detail += "; " + err.Error()
	}
	unsafe := servers.Problem()
	for _, f := range natskv.Survey(ctx, conn) {
		switch f.Grade {
		case natskv.Unsafe:
			unsafe = errors.Join(unsafe, errors.New(f.Text))
		case natskv.Unasked:
			detail += "; " + f.Text
		case natskv.Fine:
			if f.Check == "limits" {
				detail += "; " + f.Text
			}
		}
	}
	tried, bad := c.tryNATS(ctx, conn, js)
	return strings.Join(append([]string{detail}, tried...), "; "), errors.Join(unsafe, bad)
}
