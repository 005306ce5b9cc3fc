package launcher

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// leaseDomain describes the Lease domain as Chrome describes its own.
//
//go:embed lease_domain.json
var leaseDomain []byte

// protocolTimeout bounds how long Chrome may take to describe its protocol.
const protocolTimeout = 60 * time.Second

// protocolAsk is a description of the protocol that was asked for.
type protocolAsk struct {
	done chan struct{}
	raw  json.RawMessage // after done
	err  error           // after done
}

// Protocol returns Chrome's description of CDP with the Lease domain in it. The first
// caller has Chrome asked, in the background; the answer is kept for all others.
func (l *Launcher) Protocol(ctx context.Context, _ string) (json.RawMessage, error) {
	l.mu.Lock()
	ask := l.protocol
	if ask == nil {
		ask = &protocolAsk{done: make(chan struct{})}
		l.protocol = ask
		l.work.Go(func() {
			defer close(ask.done)
			if ask.raw, ask.err = l.describe(); ask.err != nil {
				l.mu.Lock()
				l.protocol = nil
				l.mu.Unlock()
			}
		})
	}
	l.mu.Unlock()
	select {
	case <-ask.done:
		return ask.raw, ask.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *Launcher) describe() (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(l.ctx, protocolTimeout)
	defer cancel()
	raw, err := askProtocol(ctx, l.o.Chrome, filepath.Join(l.o.DataDir, "tmp"))
	if err != nil {
		return nil, fmt.Errorf("protocol description: %w", err)
	}
	var description struct {
		Version json.RawMessage   `json:"version"`
		Domains []json.RawMessage `json:"domains"`
	}
	if err := json.Unmarshal(raw, &description); err != nil {
		return nil, fmt.Errorf("protocol description: %w", err)
	}
	description.Domains = append(description.Domains, leaseDomain)
	if raw, err = json.Marshal(description); err != nil {
		return nil, fmt.Errorf("protocol description: %w", err)
	}
	return raw, nil
}

// askProtocol has a Chrome on an empty, throwaway profile describe itself: it
// does so on a port only, and a profile of somebody's account never gets one.
func askProtocol(ctx context.Context, binary, tmp string) (_ []byte, err error) {
	if err := os.MkdirAll(tmp, 0o700); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(tmp, "protocol-")
	if err != nil {
		return nil, err
	}
	// Chrome's socket there has to fit into a socket address: not below dir.
	sockets, err := os.MkdirTemp("", "leasehold-")
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	args := []string{
		"--headless", "--remote-debugging-port=0", "--user-data-dir=" + dir, "--no-first-run", "--disable-gpu",
		"--disable-background-networking", "--disable-component-update", "--disable-sync",
	}
	if os.Geteuid() == 0 {
		args = append(args, "--no-sandbox")
	}
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), "TMPDIR="+sockets)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir), os.RemoveAll(sockets))
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = cmd.Wait() // its status is in ProcessState
	}()
	defer func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-exited
		// Its children may still write for a moment.
		for range 50 {
			if errors.Join(os.RemoveAll(dir), os.RemoveAll(sockets)) == nil {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	port := ""
	for port == "" {
		b, err := os.ReadFile(filepath.Join(dir, "DevToolsActivePort"))
		if first, _, ok := strings.Cut(string(b), "\n"); err == nil && ok {
			port = first
			break
		}
		select {
		case <-exited:
			return nil, fmt.Errorf("%s, started to be asked, ended: %s", binary, cmd.ProcessState)
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:"+port+"/json/protocol", nil)
	if err != nil {
		return nil, err
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	return io.ReadAll(resp.Body)
}
