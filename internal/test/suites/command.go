package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// command runs a program with its own process group, which ends with ctx, and returns what
// it printed. Only an exit status of its own is no error: suites have one for failed tests.
func command(ctx context.Context, dir string, env []string, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, env
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = patience / 4 // what a suite left behind may keep its output open
	err := cmd.Run()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what a suite left behind
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) || errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	return out.Bytes(), err
}

// keep appends what a suite printed to a file beside it, for the person who asks why.
func (s *side) keep(dir string, out []byte) error {
	f, err := os.OpenFile(filepath.Join(dir, s.name+".log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(out)
	return errors.Join(err, f.Close())
}

// must is command for what has to succeed.
func must(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "PUPPETEER_SKIP_DOWNLOAD=1", "PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD=1")
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, exit.Stderr, out)
	}
	return strings.TrimSpace(string(out)), err
}

// done is the file that a prepared directory has: what is without it was left half done.
const done = ".prepared"

// once prepares a directory below the work directory, unless an earlier run did.
func (p *place) once(name string, prepare func(dir string) error) (string, error) {
	dir := filepath.Join(p.work, name)
	if _, err := os.Stat(filepath.Join(dir, done)); err == nil {
		return dir, nil
	}
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return "", err
	}
	if err := prepare(dir); err != nil {
		return "", err
	}
	return dir, os.WriteFile(filepath.Join(dir, done), nil, 0o644)
}

// replace puts one text in place of another that a file has to have.
func replace(file, old, new string) error {
	source, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if !bytes.Contains(source, []byte(old)) {
		return fmt.Errorf("%s has no %q any more", file, old)
	}
	return os.WriteFile(file, bytes.ReplaceAll(source, []byte(old), []byte(new)), 0o644)
}

// pages serves the files of a directory at their own paths: the sidecar refuses file: URLs.
type pages struct {
	url    string
	server *http.Server
	ended  chan struct{}
}

func servePages(dir string) (*pages, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &pages{url: "http://" + l.Addr().String(), ended: make(chan struct{})}
	s.server = &http.Server{Handler: http.StripPrefix(dir, http.FileServerFS(os.DirFS(dir))), ReadHeaderTimeout: patience}
	go func() {
		defer close(s.ended)
		_ = s.server.Serve(l) // ends by close
	}()
	return s, nil
}

func (s *pages) close() error {
	err := s.server.Close()
	<-s.ended
	return err
}
