package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const coldProfile = "cold"

// coldSessions measures the time from a task's request to its first CDP answer where no
// browser is open, beside the same Chrome with the same arguments that is started by hand:
// from its start to the same answer, by its port. Both have a profile of their own that
// was used before. The rounds alternate.
func coldSessions(o options, binary string) (_ []result, err error) {
	s, err := startSidecar(binary, o.chrome)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	hand, err := s.byHand(o.chrome)
	if err != nil {
		return nil, err
	}
	var t taken
	var more []float64
	for round := range o.rounds + 1 {
		var took [2]float64
		for k := range took {
			which := (k + round) % len(took)
			var d time.Duration
			if which == 0 {
				d, err = hand.first()
			} else {
				d, err = s.first(fmt.Sprintf("cold-%d", round), coldProfile, false)
			}
			if err != nil {
				return nil, err
			}
			took[which] = float64(d.Nanoseconds()) / 1e6
		}
		if round > 0 { // the first makes the profiles
			t.add(took[0], took[1], 0)
			more = append(more, took[1]-took[0])
		}
	}
	const name = "cold session: request to first CDP answer, p50 (port: Chrome started by hand)"
	return []result{t.result(name, "ms", 0), {Name: "cold session, more than by hand, p50", Unit: "ms", Goal: 20, Value: median(more)}}, nil
}

// byHand is Chrome as somebody starts it who wants to drive it by its port.
type byHand struct {
	chrome string
	args   []string
}

// byHand returns the launcher's Chrome, with a profile beside the launcher's.
func (s *sidecar) byHand(chrome string) (*byHand, error) {
	url, err := s.session(coldProfile)
	if err != nil {
		return nil, err
	}
	args, err := s.browserArgs(coldProfile)
	if err != nil {
		return nil, err
	}
	c, err := dial(url)
	if err != nil {
		return nil, err
	}
	if _, err = s.answered(c, time.Now()); err != nil {
		return nil, err
	}
	args = slices.DeleteFunc(args, func(arg string) bool {
		return arg == "--remote-debugging-pipe" || strings.HasPrefix(arg, "--user-data-dir=")
	})
	dir := filepath.Join(s.dir, "by-hand")
	return &byHand{chrome, append(args, "--remote-debugging-port=0", "--user-data-dir="+dir)}, nil
}

const listening = "DevTools listening on "

// first starts Chrome, waits for one answer, and closes it.
func (h *byHand) first() (_ time.Duration, err error) {
	cmd := exec.Command(h.chrome, h.args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return 0, err
	}
	begun := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, cmd.Process.Kill(), cmd.Wait())
		}
	}()
	late := time.AfterFunc(answerTimeout, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	lines := bufio.NewReader(stderr)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return 0, fmt.Errorf("the browser opened no port: %w", err)
		}
		if url, ok := strings.CutPrefix(strings.TrimSpace(line), listening); ok {
			c, err := dial(url)
			if err != nil {
				return 0, err
			}
			if _, err := c.call("", "Browser.getVersion", `{}`); err != nil {
				return 0, err
			}
			took := time.Since(begun)
			if _, err := c.call("", "Browser.close", `{}`); err != nil {
				return 0, err
			}
			_, _ = io.Copy(io.Discard, lines)
			return took, errors.Join(c.net.Close(), ignoreStatus(cmd.Wait()))
		}
	}
}

// ignoreStatus drops the error that only says how a process ended.
func ignoreStatus(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil
	}
	return err
}
