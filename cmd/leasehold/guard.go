//go:build linux

package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"leasehold/evidence"
	"leasehold/evidence/crypt"
	"leasehold/internal/confine"
	"leasehold/internal/durable"
	"leasehold/internal/signed"
	"leasehold/launcher/adopt"
	"leasehold/launcher/profiledir"
)

// guardCmd is the process beside a sidecar that closes its browsers if the sidecar dies and no
// other one is started: see adopt.Guard. The sidecar starts it. Its standard input is a pipe
// that is closed when the sidecar ends.
type guardCmd struct {
	DataDir     string        `required:"" type:"path"`
	ProfilesDir string        `required:"" type:"path"`
	LauncherID  string        `required:""`
	Timeout     time.Duration `required:""`
	EvidenceTo  []string      `name:"evidence-recipient"`
}

// Run guards until no browser is left.
func (c *guardCmd) Run() error {
	if err := confine.MakeUndumpable(); err != nil {
		return err
	}
	key, err := signed.NewFile(c.DataDir).Read()
	if err != nil {
		return &exitError{exitDataDir, err}
	}
	root, err := profiledir.Open(c.ProfilesDir, key)
	if err != nil {
		return &exitError{exitDataDir, err}
	}
	to, err := crypt.ParseRecipients(c.EvidenceTo)
	if err != nil {
		return exitWith(exitUsage, "--evidence-recipient: %w", err)
	}
	log := zerolog.New(os.Stderr).With().Timestamp().Str("component", "guard").Str("launcher", c.LauncherID).Logger()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = io.Copy(io.Discard, os.Stdin) // an error is an end as well
	}()
	return adopt.Guard(context.Background(), adopt.GuardOptions{
		ID: c.LauncherID, DataDir: c.DataDir, Root: root, Key: key, Gone: gone, Timeout: c.Timeout, Log: log,
		Archive: func() (*evidence.Archive, error) {
			if reserve, err := durable.LeftReserve(filepath.Join(c.DataDir, reserveFile)); err == nil {
				durable.UseReserve(reserve) // the launcher that kept it is gone
			}
			spool, err := evidence.OpenEncryptedSpool(filepath.Join(c.DataDir, spoolDir), evidence.Keys{To: to})
			if err != nil {
				return nil, err
			}
			return evidence.NewArchive(spool, noStore{}, log), nil
		},
	})
}

// noStore stores nothing, so every bundle stays in the spool for the next sidecar.
type noStore struct{}

var errNoStore = errors.New("no launcher is there: the bundle waits for the next one")

func (noStore) Manifest(context.Context, string) ([]byte, error)          { return nil, errNoStore }
func (noStore) Part(context.Context, string, string) ([]byte, error)      { return nil, errNoStore }
func (noStore) List(context.Context, string) ([]evidence.Manifest, error) { return nil, errNoStore }
func (noStore) Put(context.Context, *evidence.Sealed) error               { return errNoStore }
func (noStore) Delete(context.Context, evidence.Manifest) error           { return errNoStore }

const (
	// guardRestartDelay is the pause before a guard that ended too early is started
	// again.
	guardRestartDelay = 5 * time.Second
	// guardEndTimeout limits how long a sidecar that ends waits for its guard.
	guardEndTimeout = 5 * time.Second
)

// startGuard keeps a guard running until the returned function is called.
func startGuard(c RunConfig, launcherID string, log zerolog.Logger) func() error {
	args := []string{
		"guard", "--data-dir", c.DataDir, "--profiles-dir", c.ProfilesDir, "--launcher-id", launcherID,
		"--timeout", c.OrphanTimeout.String(),
	}
	for _, recipient := range c.Keys.To.Names() {
		args = append(args, "--evidence-recipient", recipient)
	}
	return background(func(ctx context.Context) {
		for ctx.Err() == nil {
			err := runGuard(ctx, c, args)
			switch {
			case ctx.Err() == nil:
				log.Error().AnErr("cause", err).Msg("nobody would close the browsers if this launcher were killed: the guard is started again")
				sleep(ctx, guardRestartDelay)
			case err != nil:
				log.Warn().Err(err).Msg("the guard has not ended yet")
			}
		}
	})
}

// runGuard runs one guard. When ctx ends, it closes the guard's standard input: the guard
// then ends by itself as soon as no browser is left.
func runGuard(ctx context.Context, c RunConfig, args []string) error {
	// The guard has a log file of its own. The sidecar's standard error may be a pipe,
	// and its reader would wait for the guard to close it, too.
	output, err := os.OpenFile(filepath.Join(c.DataDir, "guard.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = output.Close() }()
	cmd := guardProcess(args, output)
	alive, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return errors.Join(err, alive.Close())
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		return errors.Join(err, ignore(os.ErrClosed, alive.Close()))
	case <-ctx.Done():
	}
	if err := alive.Close(); err != nil {
		return err
	}
	if c.OnExit == "leave" {
		return nil
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(guardEndTimeout):
		return errors.New("a browser is left")
	}
}

// guardProcess is the guard's process, not started yet.
func guardProcess(args []string, output *os.File) *exec.Cmd {
	// This is the binary that runs, even if the file was replaced since.
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Args[0] = "leasehold"
	cmd.Stderr = output
	cmd.Dir = "/"
	// The sidecar's environment may contain secrets, so the guard gets only these.
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "LANG", "GORACE"} {
		if value, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	cmd.Env = append(cmd.Env, "GOMAXPROCS=1")
	// Signals to the sidecar's process group or terminal must not reach the guard.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}
