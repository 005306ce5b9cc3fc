package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"os/user"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"leasehold/launcher/api"
	"leasehold/lease"
)

type execCmd struct {
	clientFlags `embed:""`
	Profile     profileArg `required:"" placeholder:"P" help:"The profile to lease."`
	Task        string     `placeholder:"ID" help:"The task (default: made up)."`
	Worker      string     `placeholder:"ID" help:"The worker (default: user@host)."`
	Account     string     `placeholder:"ID" help:"Refuse if the profile is of another account."`
	Proxy       string     `placeholder:"ID" help:"Refuse if the profile is mapped to another proxy."`

	Wait          time.Duration `placeholder:"DURATION" help:"Wait so long for the lease (default: not at all)."`
	LockTimeout   time.Duration `placeholder:"DURATION" help:"Longest life of the session (default: no limit)."`
	Create        bool          `help:"Create the profile where there is none."`
	Resumable     bool          `help:"The task can be resumed from its last safe checkpoint."`
	DedicatedPort bool          `help:"Give the session a port of its own (LEASEHOLD_DEDICATED_URL)."`
	Headless      *bool         `negatable:"" help:"Run the browser without windows (default: as the sidecar does)."`
	KeepWarm      *bool         `negatable:"" help:"Leave the browser open for the profile's next task, where the profile does not forbid it; --no-keep-warm: close it (default: as the profile says)."`

	ExpectedDomain []string `placeholder:"DOMAIN" help:"Where the task is supposed to be; may be given several times."`
	SensitiveURL   []string `name:"sensitive-url" placeholder:"PATTERN" help:"Pages that count as sensitive; may be given several times."`
	SensitiveWord  []string `placeholder:"WORD" help:"A word of a step or path that makes it sensitive; may be given several times."`
	ChromeArg      []string `sep:"none" placeholder:"ARG" help:"An allow-listed argument for Chrome; may be given several times."`

	Command []string `arg:"" passthrough:"" help:"The command and its arguments, after --."`
}

// Help is what leasehold exec --help says besides the flags.
func (c *execCmd) Help() string {
	return `The command finds in its environment:
LEASEHOLD_CDP_URL (the websocket to connect to), LEASEHOLD_SESSION,
LEASEHOLD_TOKEN (the lease token), LEASEHOLD_PROFILE, LEASEHOLD_TASK, LEASEHOLD_URL,
LEASEHOLD_DEDICATED_URL with --dedicated-port, and for a resumed task
LEASEHOLD_RESUME_FROM and LEASEHOLD_RESUME_CHECKPOINT.

Signals are passed on to it. Where the lease is lost it gets SIGTERM, and SIGKILL ten
seconds later. When it ends, the session is released with the outcome succeeded (status
0) or failed.`
}

// The outcomes that exec reports.
const (
	outcomeSucceeded = "succeeded"
	outcomeFailed    = "failed"
)

// killDelay is the time between SIGTERM and SIGKILL for a command whose lease is
// lost. Its connection is cut already.
const killDelay = 10 * time.Second

func (c *execCmd) Run(a *app) error { return c.printProblem(a, c.run(a)) }

func (c *execCmd) run(a *app) error {
	// Everything from the first argument on is the command's, the dashes too.
	if c.Command[0] == "--" {
		c.Command = c.Command[1:]
	}
	if len(c.Command) == 0 {
		return exitWith(exitUsage, "which command? want leasehold exec --profile P -- CMD")
	}
	path, err := exec.LookPath(c.Command[0])
	if err != nil {
		return cannotRun(err)
	}
	sidecar, err := c.client()
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	defer signal.Stop(signals)

	h, err := c.acquire(sidecar, signals)
	if err != nil {
		return err
	}
	c.report(a, h)
	status, lost, err := c.runCommand(a, h, path, signals)
	if err != nil {
		return errors.Join(err, h.release(outcomeFailed, "the command could not be run"))
	}
	if lost != nil {
		return lost
	}
	outcome := outcomeFailed
	if status.Success() {
		outcome = outcomeSucceeded
	}
	if err := h.release(outcome, status.String()); err != nil {
		if !status.Success() {
			a.warn("%v", err)
			return &exitError{code: statusCode(status)}
		}
		return err
	}
	return &exitError{code: statusCode(status)}
}

// cannotRun is what a shell would say of a command that is not there.
func cannotRun(err error) error {
	code := exitCannotRun
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		code = exitNotFound
	}
	return &exitError{code, err}
}

// statusCode is a process's end as a shell counts it.
func statusCode(s *os.ProcessState) int {
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return exitSignal + int(w.Signal())
	}
	return s.ExitCode()
}

func (c *execCmd) manifest() api.Manifest {
	m := api.Manifest{
		ProfileID: string(c.Profile), TaskID: c.Task, WorkerID: c.Worker, AccountID: c.Account, ProxyID: c.Proxy,
		Wait: api.Duration(c.Wait), LockTimeoutSeconds: c.LockTimeout.Seconds(),
		Create: c.Create, Resumable: c.Resumable, DedicatedPort: c.DedicatedPort, Headless: c.Headless, KeepWarm: c.KeepWarm,
		ExpectedDomains: c.ExpectedDomain, SensitiveURLs: c.SensitiveURL, SensitiveWords: c.SensitiveWord, ChromeArgs: c.ChromeArg,
		Heartbeat: api.HeartbeatExplicit, OnClose: api.OnCloseKeep,
	}
	if m.TaskID == "" {
		m.TaskID = "exec-" + strings.ToLower(rand.Text()[:8])
	}
	if m.WorkerID == "" {
		m.WorkerID = defaultWorker()
	}
	return m
}

func defaultWorker() string {
	name := "uid" + strconv.Itoa(os.Getuid())
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	return name + "@" + host
}

// held is the session that exec has, and how to keep it.
type held struct {
	sidecar *client
	session api.Session
	raw     json.RawMessage
	task    string
	beat    time.Duration // between two heartbeats
}

// acquire asks for the lease. A signal that would end a program ends the wait.
func (c *execCmd) acquire(sidecar *client, signals <-chan os.Signal) (*held, error) {
	m := c.manifest()
	if err := m.Check(); err != nil {
		return nil, &exitError{exitUsage, err}
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.Wait+requestTimeout)
	defer cancel()
	type answer struct {
		raw json.RawMessage
		err error
	}
	answered := make(chan answer, 1)
	go func() {
		raw, err := sidecar.askFor(ctx, http.MethodPost, m, "v1", "sessions")
		answered <- answer{raw, err}
	}()
	var got answer
	var caught os.Signal
	for got.raw == nil && got.err == nil {
		select {
		case got = <-answered:
		case s := <-signals:
			if s == syscall.SIGUSR1 || s == syscall.SIGUSR2 {
				continue
			}
			caught = s
			cancel()
			got = <-answered
		}
	}
	if got.err != nil && caught == nil {
		return nil, got.err
	}
	var h *held
	if got.err == nil {
		var err error
		if h, err = newHeld(sidecar, got.raw, m.TaskID); err != nil {
			return nil, err
		}
	}
	if caught == nil {
		return h, nil
	}
	interrupted := &exitError{code: exitSignal + signalNumber(caught)}
	if h != nil {
		// Granted at the same moment.
		return nil, errors.Join(interrupted, h.release(outcomeFailed, "interrupted before the command ran"))
	}
	return nil, interrupted
}

func signalNumber(s os.Signal) int {
	if n, ok := s.(syscall.Signal); ok {
		return int(n)
	}
	return 0
}

// newHeld reads the session and asks how often it wants a heartbeat.
func newHeld(sidecar *client, raw json.RawMessage, task string) (*held, error) {
	session, err := read[api.Session](raw)
	if err != nil {
		return nil, err
	}
	h := &held{sidecar: sidecar, session: session, raw: raw, task: task}
	record, err := sidecar.ask(context.Background(), http.MethodGet, nil, "v1", "profiles", session.ProfileID)
	if err != nil {
		return nil, errors.Join(err, h.release(outcomeFailed, "the command was not run"))
	}
	r, err := read[lease.Record](record)
	if err == nil && r.TTLSeconds <= 0 {
		err = fmt.Errorf("the record of %s says a lease lives %v seconds: is the sidecar of another version?", session.ProfileID, r.TTLSeconds)
	}
	if err != nil {
		return nil, errors.Join(err, h.release(outcomeFailed, "the command was not run"))
	}
	h.beat = time.Duration(r.TTLSeconds * float64(time.Second) / 3)
	return h, nil
}

// report says, beside what the command prints, which lease it runs under.
func (c *execCmd) report(a *app, h *held) {
	if c.JSON {
		fmt.Fprintf(a.stderr, "%s\n", h.raw)
		return
	}
	s := h.session
	a.warn("leased %s with token %d (session %s, task %s)", s.ProfileID, s.Token, s.SessionID, h.task)
	if s.Resume != nil {
		a.warn("resumed from %s, checkpoint %s", s.Resume.From, s.Resume.Checkpoint)
	}
}

func (h *held) environment(base string) []string {
	s := h.session
	env := append(os.Environ(),
		"LEASEHOLD_CDP_URL="+s.CDPURL, "LEASEHOLD_SESSION="+s.SessionID,
		"LEASEHOLD_TOKEN="+strconv.FormatUint(uint64(s.Token), 10), "LEASEHOLD_PROFILE="+s.ProfileID,
		"LEASEHOLD_TASK="+h.task, "LEASEHOLD_URL="+base)
	if s.DedicatedURL != nil {
		env = append(env, "LEASEHOLD_DEDICATED_URL="+*s.DedicatedURL)
	}
	if s.Resume != nil {
		env = append(env, "LEASEHOLD_RESUME_FROM="+s.Resume.From, "LEASEHOLD_RESUME_CHECKPOINT="+s.Resume.Checkpoint)
	}
	return env
}

// runCommand runs the command to its end, with heartbeats and signals. lost is
// why the lease was lost, where it was.
func (c *execCmd) runCommand(a *app, h *held, path string, signals <-chan os.Signal) (status *os.ProcessState, lost, err error) {
	cmd := exec.Command(path, c.Command[1:]...)
	cmd.Args[0] = c.Command[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = a.stdin, a.stdout, a.stderr
	cmd.Env = h.environment(c.URL)
	if err := cmd.Start(); err != nil {
		return nil, nil, cannotRun(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	losses := make(chan error, 1)
	work.Go(func() { h.keepAlive(ctx, a, losses) })
	ended := make(chan error, 1)
	work.Go(func() { ended <- cmd.Wait() })

	var kill <-chan time.Time
	for {
		select {
		case err := <-ended:
			// A status that is not zero is an error to os/exec, not to us.
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				a.warn("%s: %v", c.Command[0], err)
			}
			return cmd.ProcessState, lost, nil
		case s := <-signals:
			if !sentByTerminal(s) {
				passOn(a, cmd.Process, s)
			}
		case lost = <-losses:
			a.warn("the lease of %s is lost, ending the command", h.session.ProfileID)
			passOn(a, cmd.Process, syscall.SIGTERM)
			timer := time.NewTimer(killDelay)
			defer timer.Stop()
			kill = timer.C
		case <-kill:
			passOn(a, cmd.Process, syscall.SIGKILL)
		}
	}
}

func passOn(a *app, p *os.Process, s os.Signal) {
	if err := p.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		a.warn("signal %v was not passed on: %v", s, err)
	}
}

// sentByTerminal tells whether the signal is one that the terminal sends to
// every process in its foreground group, so that the command has it already.
func sentByTerminal(s os.Signal) bool {
	if s != os.Interrupt && s != syscall.SIGQUIT {
		return false
	}
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// keepAlive sends heartbeats until ctx ends. Where the sidecar refuses one, the
// lease is lost. Where it cannot be reached it may be starting again, and its
// word is waited for.
func (h *held) keepAlive(ctx context.Context, a *app, losses chan<- error) {
	ticker := time.NewTicker(h.beat)
	defer ticker.Stop()
	away := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		err := h.heartbeat(ctx)
		var refused *refusedError
		switch {
		case ctx.Err() != nil:
			return
		case errors.As(err, &refused) && refused.problem.Status < http.StatusInternalServerError:
			losses <- err
			return
		case err != nil && !away:
			a.warn("heartbeat: %v", err)
		}
		away = err != nil
	}
}

func (h *held) heartbeat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.beat)
	defer cancel()
	_, err := h.sidecar.askFor(ctx, http.MethodPost, api.Heartbeat{Write: api.Write{Token: h.session.Token}},
		"v1", "sessions", h.session.SessionID, "heartbeat")
	return err
}

// release ends the session in order.
func (h *held) release(outcome, reason string) error {
	_, err := h.sidecar.ask(context.Background(), http.MethodDelete,
		api.Release{Write: api.Write{Token: h.session.Token}, Outcome: outcome, Reason: reason},
		"v1", "sessions", h.session.SessionID)
	return err
}
