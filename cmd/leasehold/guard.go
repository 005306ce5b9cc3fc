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
	"leasehold/launcher/adopt"
	"leasehold/launcher/profiledir"
)

// guardCmd is the process beside a sidecar that bounds the life of its browsers:
// see adopt.Guard. The sidecar starts it, with a pipe as its standard input
// that ends with the sidecar.
type guardCmd struct {
	DataDir     string        `required:"" type:"path"`
	ProfilesDir string        `required:"" type:"path"`
	LauncherID  string        `required:""`
	Timeout     time.Duration `required:""`
}

// Run watches until there is nothing left to watch.
func (c *guardCmd) Run() error {
	root, err := profiledir.Open(c.ProfilesDir)
	if err != nil {
		return &exitError{exitDataDir, err}
	}
	log := zerolog.New(os.Stderr).With().Timestamp().Str("component", "guard").Str("launcher", c.LauncherID).Logger()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = io.Copy(io.Discard, os.Stdin) // however it ends, it has ended
	}()
	return adopt.Guard(context.Background(), adopt.GuardOptions{
		ID: c.LauncherID, DataDir: c.DataDir, Root: root, Gone: gone, Timeout: c.Timeout, Log: log,
		Archive: func() (*evidence.Archive, error) {
			spool, err := evidence.OpenSpool(filepath.Join(c.DataDir, spoolDir))
			if err != nil {
				return nil, err
			}
			return evidence.NewArchive(spool, noStore{}, log), nil
		},
	})
}

// noStore leaves every bundle in the spool, for the next sidecar.
type noStore struct{}

var errNoStore = errors.New("no launcher is there: the bundle waits for the next one")

func (noStore) Manifest(context.Context, string) ([]byte, error)          { return nil, errNoStore }
func (noStore) Part(context.Context, string, string) ([]byte, error)      { return nil, errNoStore }
func (noStore) List(context.Context, string) ([]evidence.Manifest, error) { return nil, errNoStore }
func (noStore) Put(context.Context, *evidence.Sealed) error               { return errNoStore }
func (noStore) Delete(context.Context, evidence.Manifest) error           { return errNoStore }

const (
	// guardAgain is the pause before a guard that ended too early is started
	// again.
	guardAgain = 5 * time.Second
	// guardEnd bounds how long the sidecar waits for its guard at the end.
	guardEnd = 5 * time.Second
)

// startGuard keeps a guard running until the returned function is called.
func startGuard(c RunConfig, launcherID string, log zerolog.Logger) func() error {
	args := []string{
		"guard", "--data-dir", c.DataDir, "--profiles-dir", c.ProfilesDir, "--launcher-id", launcherID,
		"--timeout", c.OrphanTimeout.String(),
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			err := runGuard(ctx, c, args)
			if ctx.Err() != nil {
				if err != nil {
					log.Warn().Err(err).Msg("the guard has not ended yet")
				}
				return
			}
			log.Error().AnErr("cause", err).Msg("nobody would close the browsers if this launcher were killed: the guard is started again")
			select {
			case <-time.After(guardAgain):
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() error {
		cancel()
		<-done
		return nil
	}
}

// runGuard runs one guard. When ctx ends it lets go of it: the guard ends by
// itself as soon as no browser is left.
func runGuard(ctx context.Context, c RunConfig, args []string) error {
	// Of its own: the sidecar's standard error may be a pipe that somebody
	// reads to its end.
	output, err := os.OpenFile(filepath.Join(c.DataDir, "guard.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = output.Close() }()
	// The very binary that runs, also when another lies in its place.
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Args[0] = "leasehold"
	cmd.Stderr = output
	cmd.Dir = "/"
	// Nothing secret of the sidecar's has a place in it.
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "LANG", "GORACE"} {
		if value, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	cmd.Env = append(cmd.Env, "GOMAXPROCS=1")
	// What is sent to the sidecar's group or terminal is not for it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
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
		return errors.Join(err, ignoreOSClosed(alive.Close()))
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
	case <-time.After(guardEnd):
		return errors.New("a browser is left")
	}
}

func ignoreOSClosed(err error) error {
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}
