package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// answerTimeout bounds every wait for a process or an answer.
const answerTimeout = 60 * time.Second

// sidecar is a running launcher, with a process and a directory of its own.
type sidecar struct {
	url string
	dir string
	cmd *exec.Cmd

	stopping sync.Once
}

var readyLine = regexp.MustCompile(`^leasehold is ready at (\S+)`)

// running has the launchers to stop when the bench is interrupted.
var running struct {
	sync.Mutex
	list []*sidecar
}

// stopOnSignal stops all launchers when the bench is interrupted.
func stopOnSignal() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-c
		running.Lock() // never unlocked, so that no launcher starts any more
		for _, s := range running.list {
			if err := s.stop(); err != nil {
				fmt.Fprintln(os.Stderr, "bench:", err)
			}
		}
		os.Exit(130)
	}()
}

// startSidecar starts a launcher. browser is the command line that starts its browsers;
// the launcher's arguments for the browser are appended to it.
func startSidecar(binary, browser string, args ...string) (_ *sidecar, err error) {
	s := &sidecar{}
	if s.dir, err = os.MkdirTemp("", "leasehold-bench-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	wrapper := filepath.Join(s.dir, "browser")
	if err := os.WriteFile(wrapper, []byte("#!/bin/sh\nexec "+browser+" \"$@\"\n"), 0o700); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(s.dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(binary, append([]string{
		"run", "--data-dir", filepath.Join(s.dir, "data"), "--listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0", "--headless", "--chrome", wrapper,
	}, args...)...)
	// A confined browser opens no port, and runs no program that is none of a browser's.
	// It is a variable, since launchers of before the confinement are measured, too.
	cmd.Env = append(os.Environ(), "LEASEHOLD_BROWSER_SANDBOX=off")
	cmd.Stderr = log
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	running.Lock()
	if err = cmd.Start(); err == nil {
		s.cmd = cmd
		running.list = append(running.list, s)
	}
	running.Unlock()
	if err != nil {
		return nil, err
	}
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if m := readyLine.FindStringSubmatch(lines.Text()); m != nil {
			s.url = m[1]
			return s, nil
		}
	}
	said, _ := os.ReadFile(log.Name())
	return nil, fmt.Errorf("%s ended before it was ready:\n%s", binary, said)
}

// stop drains the launcher, and removes its directory. Only the first call has an
// effect.
func (s *sidecar) stop() (err error) {
	s.stopping.Do(func() { err = s.end() })
	return err
}

// kill ends the launcher as if its host had failed, and removes its directory.
func (s *sidecar) kill() (err error) {
	s.stopping.Do(func() {
		err = errors.Join(s.cmd.Process.Kill(), ignoreStatus(s.cmd.Wait()), os.RemoveAll(s.dir))
	})
	return err
}

func (s *sidecar) end() error {
	var err error
	if s.cmd != nil {
		err = s.cmd.Process.Signal(syscall.SIGTERM)
		late := time.AfterFunc(answerTimeout, func() { _ = s.cmd.Process.Kill() })
		err = errors.Join(err, s.cmd.Wait())
		late.Stop()
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// session opens a session on a profile, and returns the URL to connect to.
func (s *sidecar) session(profile string) (string, error) { return s.sessionWith(profile, nil) }

// sessionWith is session with further members of the manifest.
func (s *sidecar) sessionWith(profile string, more map[string]any) (string, error) {
	manifest := map[string]any{"profile_id": profile, "worker_id": "bench", "task_id": "bench-" + profile, "create": true}
	maps.Copy(manifest, more)
	body, err := json.Marshal(manifest)
	if err != nil {
		return "", err
	}
	client := http.Client{Timeout: answerTimeout}
	resp, err := client.Post(s.url+"/v1/sessions", "application/json", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var r struct {
		CDPURL string `json:"cdp_url"`
		Detail string `json:"detail"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&r); err != nil {
		return "", err
	}
	if r.CDPURL == "" {
		return "", fmt.Errorf("no session on %s: %s %s", profile, resp.Status, r.Detail)
	}
	return r.CDPURL, nil
}

// granted is a session that was granted.
type granted struct {
	SessionID  string `json:"session_id"`
	LeaseToken uint64 `json:"lease_token"`
	CDPURL     string `json:"cdp_url"`
}

// grant opens a session on a profile, which is made if it is missing.
func (s *sidecar) grant(profile string) (g granted, err error) {
	err = s.rest(http.MethodPost, "/v1/sessions", map[string]any{
		"profile_id": profile, "worker_id": "bench", "task_id": "bench-" + profile, "create": true, "wait": "60s",
	}, &g)
	return g, err
}

// release ends a session whose task is done.
func (s *sidecar) release(g granted) error {
	return s.rest(http.MethodDelete, fmt.Sprintf("/v1/sessions/%s?lease_token=%d&outcome=succeeded", g.SessionID, g.LeaseToken), nil, nil)
}

// portURL is the websocket URL of the debugging port of the profile's browser, which it
// has beside the launcher's pipe.
func (s *sidecar) portURL(profile string) (string, error) {
	return portIn(s.profileDir(profile))
}

func (s *sidecar) profileDir(profile string) string {
	return filepath.Join(s.dir, "data", "profiles", profile)
}

// portIn waits for the debugging port of the browser on a profile directory, and
// returns its websocket URL.
func portIn(dir string) (string, error) {
	path := filepath.Join(dir, "DevToolsActivePort")
	for deadline := time.Now().Add(answerTimeout); ; time.Sleep(50 * time.Millisecond) {
		b, err := os.ReadFile(path)
		if port, rest, ok := strings.Cut(string(b), "\n"); err == nil && ok {
			return "ws://127.0.0.1:" + port + strings.TrimSpace(rest), nil
		}
		if time.Now().After(deadline) {
			return "", fmt.Errorf("the browser opened no port: %w", err)
		}
	}
}

// cpu is the CPU time that the launcher's process has used.
func (s *sidecar) cpu() (time.Duration, error) {
	// The kernel's id of another process's CPU clock.
	clock := int32(^s.cmd.Process.Pid<<3 | 2)
	var t unix.Timespec
	if err := unix.ClockGettime(clock, &t); err != nil {
		return 0, fmt.Errorf("CPU clock of pid %d: %w", s.cmd.Process.Pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// sleeps is how often the threads of the launcher's process went to sleep. Each time
// costs a wake-up, and the count does not depend on how busy the machine is.
func (s *sidecar) sleeps() (float64, error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", s.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for _, task := range tasks {
		b, err := os.ReadFile(task)
		if err != nil {
			continue // the thread has ended
		}
		var n float64
		_, rest, _ := strings.Cut(string(b), "\nvoluntary_ctxt_switches:")
		if _, err := fmt.Sscan(rest, &n); err != nil {
			return 0, fmt.Errorf("%s: %w", task, err)
		}
		sum += n
	}
	return sum, nil
}

// memory is the launcher's anonymous resident memory, in KiB.
func (s *sidecar) memory() (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	var kib float64
	_, rest, _ := strings.Cut(string(b), "\nRssAnon:")
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		return 0, fmt.Errorf("memory of pid %d: %w", s.cmd.Process.Pid, err)
	}
	return kib, nil
}
