package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"os/user"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"leasehold/launcher/api"
	"leasehold/lease"
)

// leaseFlags say what is leased, for whom, and within which limits.
type leaseFlags struct {
	Profile  profileArg `placeholder:"P" help:"The profile to lease; without it any that --account and --label choose."`
	Label    []string   `sep:"none" placeholder:"NAME:VALUE" help:"Without --profile: lease any profile with this label; may be given several times, and a * in the value stands for any characters."`
	Priority int        `placeholder:"N" help:"Who waits with a higher one is served first, -5 to 5; more than 0 is for those who may (default: 0)."`
	Task     string     `placeholder:"ID" help:"The task (default: made up)."`
	Worker   string     `placeholder:"ID" help:"The worker (default: user@host)."`
	Account  string     `placeholder:"ID" help:"Refuse if the profile is of another account; without --profile: lease any profile of this one."`
	Proxy    string     `placeholder:"ID" help:"Refuse if the profile is mapped to another proxy."`

	Wait        time.Duration `placeholder:"DURATION" help:"Wait so long for the lease (default: not at all)."`
	LockTimeout time.Duration `placeholder:"DURATION" help:"Longest life of the session (default: no limit)."`
	Create      bool          `help:"Create the profile where there is none."`
	SignIn      bool          `help:"The task is to sign the account in: it gets a profile that is known to be signed out."`
	Resumable   bool          `help:"The task can be resumed from its last safe checkpoint."`
	Headless    *bool         `negatable:"" help:"Run the browser without windows (default: as the sidecar does)."`
	KeepWarm    *bool         `negatable:"" help:"Leave the browser open for the profile's next task, where the profile does not forbid it; --no-keep-warm: close it (default: as the profile says)."`

	ReadOnly       *bool    `negatable:"" help:"Fail unsafe requests of the pages (POST, PUT, PATCH, DELETE) and their websockets (default: as the profile says; with --ephemeral: yes, and --no-read-only is for those who manage profiles)."`
	AllowedAction  []string `placeholder:"ACTION" help:"An action that the task's steps may declare; may be given several times (default: any)."`
	TokenOrigin    []string `name:"fence-header-origin" placeholder:"ORIGIN" help:"An origin of your own services, which gets the lease token with each request; may be given several times."`
	ExpectedDomain []string `placeholder:"DOMAIN" help:"Where the task is supposed to be; may be given several times."`
	SensitiveURL   []string `name:"sensitive-url" placeholder:"PATTERN" help:"Pages that count as sensitive; may be given several times."`
	SensitiveWord  []string `placeholder:"WORD" help:"A word of a step or path that makes it sensitive; may be given several times."`
	ChromeArg      []string `sep:"none" placeholder:"ARG" help:"An allow-listed argument for Chrome; may be given several times."`
}

// manifest is the request for the lease. The session of its worker lives as long as there are
// heartbeats.
func (f *leaseFlags) manifest() (api.Manifest, error) {
	labels, err := lease.ParseLabels(f.Label)
	if err != nil {
		return api.Manifest{}, api.Invalid("label", "%v", err)
	}
	m := api.Manifest{
		Labels: labels, Priority: f.Priority,
		ProfileID: string(f.Profile), TaskID: f.Task, WorkerID: f.Worker, AccountID: f.Account, ProxyID: f.Proxy,
		Wait: api.Duration(f.Wait), LockTimeoutSeconds: f.LockTimeout.Seconds(),
		Create: f.Create, Resumable: f.Resumable, SignIn: f.SignIn, Headless: f.Headless, KeepWarm: f.KeepWarm,
		ReadOnly: f.ReadOnly, AllowedActions: f.AllowedAction, FenceHeaderOrigins: f.TokenOrigin,
		ExpectedDomains: f.ExpectedDomain, SensitiveURLs: f.SensitiveURL, SensitiveWords: f.SensitiveWord, ChromeArgs: f.ChromeArg,
		Heartbeat: api.HeartbeatExplicit, OnClose: api.OnCloseKeep,
	}
	if m.WorkerID == "" {
		m.WorkerID = defaultWorker()
	}
	return m, nil
}

type execCmd struct {
	clientFlags   `embed:""`
	leaseFlags    `embed:""`
	Ephemeral     bool   `help:"Use a throwaway browser made of the profile's newest snapshot, without its lease: others may have the profile meanwhile, and nothing of it is kept."`
	OnFailure     string `enum:"recover,release" default:"recover" help:"What becomes of a session whose command fails by itself, when it had sent anything unsafe or been anywhere sensitive since its last safe checkpoint, or had resumed: recover (it is judged) or release."`
	DedicatedPort bool   `help:"Give the session a port of its own (LEASEHOLD_DEDICATED_URL)."`

	Command []string `arg:"" passthrough:"" help:"The command and its arguments, after --."`
}

// Help is what leasehold exec --help prints besides the flags.
func (c *execCmd) Help() string {
	return `The command finds in its environment:
LEASEHOLD_CDP_URL (the websocket to connect to), LEASEHOLD_SESSION,
LEASEHOLD_TOKEN (the lease token), LEASEHOLD_PROFILE, LEASEHOLD_TASK, LEASEHOLD_URL,
LEASEHOLD_DEDICATED_URL with --dedicated-port, and for a resumed task
LEASEHOLD_RESUME_FROM, LEASEHOLD_RESUME_CHECKPOINT and LEASEHOLD_RESUME_DATA (the data
that the task gave with the checkpoint, JSON; where it is larger than 96 KiB it is in the
session, GET $LEASEHOLD_URL/v1/sessions/$LEASEHOLD_SESSION).

Signals are passed on to it. Where the lease is lost it gets SIGTERM, and SIGKILL ten
seconds later. If exec itself is killed, so is the command.

When the command ends with status 0, the session is released as succeeded. With another
status it is released as failed, unless the task had sent anything unsafe or been anywhere
sensitive since its last safe checkpoint, or had resumed: then it is recovered, as the session
of a lost worker is (--on-failure). If a signal ended the command, the session is always recovered.
A sidecar that restarts just then is asked again for 30 seconds.`
}

// The outcomes that exec reports.
const (
	outcomeSucceeded = "succeeded"
	outcomeFailed    = "failed"
)

// onFailureRelease is the value of --on-failure with which a failed command is not judged.
const onFailureRelease = "release"

// killDelay is the time between SIGTERM and SIGKILL for a command whose lease is lost. By then
// its connection has been closed.
const killDelay = 10 * time.Second

// Run leases the profile, runs the command, and releases the profile.
func (c *execCmd) Run(a *app) error { return c.printProblem(a, c.run(a)) }

func (c *execCmd) run(a *app) error {
	// Everything from the first argument on belongs to the command, dashes included.
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

	s, err := c.acquire(a, sidecar, signals)
	if err != nil {
		return err
	}
	c.report(a, s)
	status, lost, err := c.runCommand(a, s, path, signals)
	if err != nil {
		return errors.Join(err, s.release(a, outcomeFailed, "the command could not be run"))
	}
	if lost != nil {
		return lost
	}
	outcome, recovery := c.ending(status)
	ended, err := s.end(a, api.Release{Outcome: outcome, Reason: status.String(), Recover: recovery})
	if err == nil && (recovery != "" || !ended.Released) {
		a.warn("%s: the session of %s ended: %s", status, s.ProfileID, ended.Ended)
	}
	if err != nil {
		if !status.Success() {
			a.warn("%v", err)
			return &exitError{code: statusCode(status)}
		}
		return err
	}
	return &exitError{code: statusCode(status)}
}

// ending is how the session ends, given how the command ended.
func (c *execCmd) ending(status *os.ProcessState) (outcome, recovery string) {
	w, ok := status.Sys().(syscall.WaitStatus)
	switch {
	case status.Success():
		return outcomeSucceeded, ""
	case ok && w.Signaled():
		return outcomeFailed, api.RecoverAlways
	case c.OnFailure == onFailureRelease:
		return outcomeFailed, ""
	}
	return outcomeFailed, api.RecoverTouched
}

// cannotRun is the error for a command that cannot be started. Its exit code is the one
// that a shell would give.
func cannotRun(err error) error {
	code := exitCannotRun
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		code = exitNotFound
	}
	return &exitError{code, err}
}

// statusCode is the status with which a shell would report the process's end.
func statusCode(s *os.ProcessState) int {
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return exitSignal + int(w.Signal())
	}
	return s.ExitCode()
}

func (c *execCmd) manifest() (api.Manifest, error) {
	m, err := c.leaseFlags.manifest()
	m.Ephemeral, m.DedicatedPort = c.Ephemeral, c.DedicatedPort
	if m.TaskID == "" {
		m.TaskID = "exec-" + strings.ToLower(rand.Text()[:8])
	}
	return m, err
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

// acquire asks for the lease. A signal that would end a program ends the waiting.
func (c *execCmd) acquire(a *app, sidecar *client, signals <-chan os.Signal) (*leasedSession, error) {
	m, err := c.manifest()
	if err == nil {
		err = m.Check()
	}
	if err != nil {
		return nil, &exitError{exitUsage, err}
	}
	raw, caught, err := c.askForSession(sidecar, m, signals)
	interrupted := &exitError{code: exitSignal + signalNumber(caught)}
	switch {
	case err != nil && caught != nil:
		return nil, interrupted
	case err != nil:
		return nil, err
	}
	s, err := newSession(a, sidecar, raw, m.TaskID)
	if err != nil {
		return nil, err
	}
	if caught != nil { // the lease was granted at the moment of the signal
		return nil, errors.Join(interrupted, s.release(a, outcomeFailed, "interrupted before the command ran"))
	}
	return s, nil
}

// askForSession asks for a session and waits for the answer. A signal that would end a program
// cancels the request, and is returned; there may be an answer all the same.
func (c *execCmd) askForSession(sidecar *client, m api.Manifest, signals <-chan os.Signal) (raw json.RawMessage, caught os.Signal, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		raw, err = sidecar.acquire(ctx, m)
	}()
	for {
		select {
		case <-answered:
			return raw, caught, err
		case s := <-signals:
			if s != syscall.SIGUSR1 && s != syscall.SIGUSR2 {
				caught = s
				cancel()
				<-answered
				return raw, caught, err
			}
		}
	}
}

// signalNumber is 0 for no signal.
func signalNumber(s os.Signal) int {
	if n, ok := s.(syscall.Signal); ok {
		return int(n)
	}
	return 0
}

// report prints which lease the command runs under. It goes to the standard error: the
// standard output is the command's.
func (c *execCmd) report(a *app, s *leasedSession) {
	if c.JSON {
		fmt.Fprintf(a.stderr, "%s\n", s.raw)
		return
	}
	a.warn("leased %s with token %d (session %s, task %s)", s.ProfileID, s.Token, s.SessionID, s.task)
	if s.sidecar.moved {
		a.warn("%s lives on another host: %s", s.ProfileID, s.sidecar.base.Redacted())
	}
	if s.Resume != nil {
		a.warn("resumed from %s, checkpoint %s", s.Resume.From, s.Resume.Checkpoint)
	}
}

// runCommand runs the command to its end. Meanwhile it sends heartbeats, and passes on
// signals. lost is the reason if the lease was lost. If this process is killed, the kernel
// kills the command.
func (c *execCmd) runCommand(a *app, s *leasedSession, path string, signals <-chan os.Signal) (status *os.ProcessState, lost, err error) {
	cmd := exec.Command(path, c.Command[1:]...)
	cmd.Args[0] = c.Command[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = a.stdin, a.stdout, a.stderr
	cmd.Env = s.environment(a, s.sidecar.base.String())
	// The kernel sends the signal when the thread that started the command ends, so this
	// goroutine keeps its thread until then.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = endsWithThis()
	if err := cmd.Start(); err != nil {
		return nil, nil, cannotRun(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	losses := make(chan error, 1)
	work.Go(func() { s.keepAlive(ctx, a, losses) })
	ended := make(chan error, 1)
	work.Go(func() { ended <- cmd.Wait() })

	var kill <-chan time.Time
	for {
		select {
		case err := <-ended:
			// os/exec returns an error for a status other than zero, which is no
			// error here.
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				a.warn("%s: %v", c.Command[0], err)
			}
			return cmd.ProcessState, lost, nil
		case sig := <-signals:
			if !sentByTerminal(sig) {
				passOn(a, cmd.Process, sig)
			}
		case lost = <-losses:
			a.warn("the lease of %s is lost, ending the command", s.ProfileID)
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

// sentByTerminal tells whether the command has the signal already: the terminal sends it
// to every process in the foreground group.
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
