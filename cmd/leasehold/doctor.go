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

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"leasehold/internal/natsd"
	"leasehold/launcher/api"
	"leasehold/launcher/chrome"
	"leasehold/launcher/proxies"
)

type doctorCmd struct {
	RunConfig `embed:""`
	JSON      bool `name:"json" help:"Print JSON."`
}

// checkup is one line of doctor.
type checkup struct {
	Check  string `json:"check"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
}

// probeTimeout bounds each check that waits for somebody.
const probeTimeout = 10 * time.Second

// Run makes every check with the settings that leasehold run would have.
func (c *doctorCmd) Run(a *app) error {
	config, err := c.Complete(os.Getenv)
	if err != nil {
		return err
	}
	ctx, stop := interruptible()
	defer stop()
	checks := config.examine(ctx)
	if err := c.print(a, checks); err != nil {
		return err
	}
	bad := 0
	for _, one := range checks {
		if !one.OK {
			bad++
		}
	}
	if bad > 0 {
		return exitWith(exitFailure, "%d of %d checks failed", bad, len(checks))
	}
	return nil
}

func (c *doctorCmd) print(a *app, checks []checkup) error {
	if c.JSON {
		return a.printValue(map[string][]checkup{"checks": checks})
	}
	t := newTable(a.stdout, "CHECK", "RESULT", "DETAIL")
	for _, one := range checks {
		result := "ok"
		if !one.OK {
			result = "FAILED"
		}
		t.row(one.Check, result, one.Detail)
	}
	return t.flush()
}

// examine makes the checks, in the order in which run would meet their subjects.
func (c RunConfig) examine(ctx context.Context) []checkup {
	running, sidecar := c.examineSidecar(ctx)
	checks := []checkup{
		verdict("chrome", c.examineChrome)(ctx),
		{"display", true, c.display()},
		{"browser limits", true, c.limits()},
		verdict("data directory", func(context.Context) (string, error) { return examineDir("--data-dir", c.DataDir) })(ctx),
		verdict("profiles directory", func(context.Context) (string, error) { return examineDir("--profiles-dir", c.ProfilesDir) })(ctx),
		sidecar,
		verdict("nats", func(ctx context.Context) (string, error) { return c.examineNATS(ctx, running) })(ctx),
	}
	if c.Proxies != "" {
		checks = append(checks, verdict("proxies", c.examineProxies)(ctx))
	}
	return checks
}

// examineProxies connects to each proxy; it sends nothing through one.
func (c RunConfig) examineProxies(ctx context.Context) (string, error) {
	set, err := proxies.Load(c.Proxies)
	if err != nil {
		return "", fmt.Errorf("--proxies: %w", err)
	}
	var errs error
	for _, id := range set.IDs() {
		errs = errors.Join(errs, set.Find(id).Check(ctx))
	}
	return fmt.Sprintf("%d proxies answer", len(set.IDs())), errs
}

// verdict makes a checkup of a function that says what it found.
func verdict(check string, examine func(context.Context) (string, error)) func(context.Context) checkup {
	return func(ctx context.Context) checkup {
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		detail, err := examine(ctx)
		if err != nil {
			return checkup{check, false, err.Error()}
		}
		return checkup{check, true, detail}
	}
}

func (c RunConfig) examineChrome(ctx context.Context) (string, error) {
	path, err := chrome.Find(c.Chrome)
	if err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w: is it a Chrome that runs on this host (--chrome)?", path, err)
	}
	return fmt.Sprintf("%s: %s", path, strings.TrimSpace(string(out))), nil
}

func (c RunConfig) display() string {
	if *c.Headless {
		return "browsers run headless"
	}
	return "browsers open windows"
}

// limits tells how browsers are limited. That they cannot have control groups fails
// nothing.
func (c RunConfig) limits() string {
	plan, err := planGroups()
	return limitsText(c, plan, err)
}

// examineDir tells whether the sidecar could write there. It creates nothing.
func examineDir(flag, dir string) (string, error) {
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
	if at != dir {
		return fmt.Sprintf("%s can be created in %s", dir, at), nil
	}
	return dir + " is writable", nil
}

// examineSidecar looks whether one is running already, or could listen.
func (c RunConfig) examineSidecar(ctx context.Context) (running bool, _ checkup) {
	check := verdict("sidecar", func(ctx context.Context) (string, error) {
		detail, err := c.askReady(ctx)
		if running = !errors.Is(err, errNoSidecar); running {
			return detail, err
		}
		return examineAddress(ctx, "--listen", c.Listen)
	})(ctx)
	return running, check
}

// errNoSidecar says that nobody answers as a sidecar does.
var errNoSidecar = errors.New("no sidecar answers")

// askReady asks the sidecar that listens where this one would.
func (c RunConfig) askReady(ctx context.Context) (string, error) {
	u := url.URL{Scheme: "http", Host: dialable(c.Listen), Path: "/readyz"}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	if c.TLSCert != "" {
		u.Scheme = "https"
		// The certificate is for the name that others use. Nothing secret is
		// sent, and the answer decides nothing.
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

// examineAddress tells whether the address could be listened on.
func examineAddress(ctx context.Context, flag, address string) (string, error) {
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

// examineNATS connects to the NATS that is given or, where a sidecar runs, to
// the one embedded in it.
func (c RunConfig) examineNATS(ctx context.Context, running bool) (string, error) {
	target := c.NATSURL
	if target == "" {
		if !running {
			return examineAddress(ctx, "--nats-listen", c.NATSListen)
		}
		target = "nats://" + dialable(c.NATSListen)
	}
	conn, err := natsd.Dial(ctx, target, c.NATSCreds, zerolog.Nop())
	if err != nil {
		return "", err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return "", fmt.Errorf("JetStream at %s: %w", conn.ConnectedUrlRedacted(), err)
	}
	if _, err := js.AccountInfo(ctx); err != nil {
		return "", fmt.Errorf("JetStream at %s: %w: want a server with JetStream enabled for this account", conn.ConnectedUrlRedacted(), err)
	}
	return fmt.Sprintf("%s, server %s, JetStream enabled", conn.ConnectedUrlRedacted(), conn.ConnectedServerVersion()), nil
}
