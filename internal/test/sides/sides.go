// Package sides starts the two things on which a client's traffic is compared: a Chromium
// on a debugging port of its own, and a sidecar.
package sides

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"leasehold/internal/chromever"
	"leasehold/launcher/chrome"
)

// PortOptions are how a Chromium on a port is started.
type PortOptions struct {
	Binary  string
	Profile string   // the profile's directory, which is made if it is missing
	Args    []string // more arguments
	Env     []string // more variables
	// Start is how long it may take to open its port, and End to end before it is killed.
	Start, End time.Duration
}

// Port is a Chromium on a debugging port.
type Port struct {
	Host  string          // host:port
	Ended <-chan struct{} // closed when it has ended
	stop  func()
}

// Stop ends the browser, and waits for its end.
func (p *Port) Stop() { p.stop() }

// StartPort starts a Chromium on a debugging port, with the arguments that the sidecar gives
// to its browsers. The browser ends with the thread that started it.
func StartPort(ctx context.Context, o PortOptions) (*Port, error) {
	if err := os.MkdirAll(o.Profile, 0o700); err != nil {
		return nil, err
	}
	said, err := exec.CommandContext(ctx, o.Binary, "--version").Output()
	if err != nil {
		return nil, err
	}
	args, _, err := chrome.Arguments(chrome.Options{ProfileDir: o.Profile, Headless: true, Version: chromever.In(string(said)), ExtraArgs: o.Args}, os.Geteuid())
	if err != nil {
		return nil, err
	}
	active := filepath.Join(o.Profile, "DevToolsActivePort")
	if err := os.Remove(active); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err // an earlier browser's would be read as this one's
	}
	cmd := exec.Command(o.Binary, chrome.OnPort(args)...)
	cmd.Env = append(os.Environ(), o.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ends is not looked at
		close(ended)
	}()
	p := &Port{Ended: ended, stop: func() {
		_ = cmd.Process.Signal(os.Interrupt) // it may have ended
		late := time.AfterFunc(o.End, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		<-ended
	}}
	for deadline := time.Now().Add(o.Start); ; {
		said, err := os.ReadFile(active)
		if number, _, ok := strings.Cut(string(said), "\n"); err == nil && ok {
			p.Host = "127.0.0.1:" + number
			return p, nil
		}
		if time.Now().After(deadline) {
			p.Stop()
			return nil, fmt.Errorf("chromium opened no debugging port within %v", o.Start)
		}
		select {
		case <-ended:
			return nil, errors.New("chromium ended before it had opened a debugging port")
		case <-ctx.Done():
			p.Stop()
			return nil, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Sidecar is a running sidecar.
type Sidecar struct {
	URL string
	cmd *exec.Cmd
	log string
}

var readyLine = regexp.MustCompile(`^leasehold is ready at (\S+)`)

// StartSidecar starts a sidecar on free ports, with its files in dir and more arguments.
// attributes of its process may be nil.
func StartSidecar(binary, dir string, attributes *syscall.SysProcAttr, args ...string) (*Sidecar, error) {
	s := &Sidecar{log: filepath.Join(dir, "sidecar.log")}
	log, err := os.Create(s.log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	s.cmd = exec.Command(binary, append([]string{
		"run", "--data-dir", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0",
		"--cooldown", "0s", "--log-format", "json", "--headless",
	}, args...)...)
	s.cmd.Stderr = log
	s.cmd.SysProcAttr = attributes
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if m := readyLine.FindStringSubmatch(lines.Text()); m != nil {
			s.URL = m[1]
			return s, nil
		}
	}
	_ = s.cmd.Wait()              // its log says why
	said, _ := os.ReadFile(s.log) // for the message only
	return nil, fmt.Errorf("the sidecar is not ready: %s", said)
}

// Stop drains the sidecar, and kills it after the timeout.
func (s *Sidecar) Stop(timeout time.Duration) error {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	late := time.AfterFunc(timeout, func() { _ = s.cmd.Process.Kill() })
	defer late.Stop()
	return s.cmd.Wait()
}
