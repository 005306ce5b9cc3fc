package main

import (
	"bufio"
	"encoding/json"
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
// browser is open, and to the first answer of a page, beside the same Chrome with the same
// arguments that is started by hand: from its start to the same answers, by its port. A
// session has a tab from its beginning; by hand one is opened. Both have a profile of their
// own that was used before. The rounds alternate.
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
	return compareBeginnings(o, s, hand, "cold session")
}

// compareBeginnings does so with the cold profile of the launcher, and the one by hand.
func compareBeginnings(o options, s *sidecar, hand *byHand, name string) ([]result, error) {
	var err error
	var answers [2]taken // of the browser, and of a page
	var more [2][]float64
	for round := range o.rounds + 1 {
		var took [2]beginning
		for k := range took {
			which := (k + round) % len(took)
			if which == 0 {
				took[which], err = hand.first()
			} else {
				took[which], err = s.firstPage(fmt.Sprintf("cold-%d", round))
			}
			if err != nil {
				return nil, err
			}
		}
		if round == 0 { // it makes the profiles
			continue
		}
		for i := range answers {
			answers[i].add(took[0][i], took[1][i], 0)
			more[i] = append(more[i], took[1][i]-took[0][i])
		}
	}
	return []result{
		answers[0].result(name+": request to first CDP answer, p50 (port: Chrome started by hand)", "ms", 0),
		{Name: name + ", more than by hand, p50", Unit: "ms", Goal: 20, Value: median(more[0])},
		answers[1].result(name+": request to a page's first answer, p50 (port: by hand, and a tab opened)", "ms", 0),
		{Name: name + ", more than by hand, to a page's answer, p50", Unit: "ms", Value: median(more[1])},
	}, nil
}

// beginning is how long a new browser took to its own first answer, and to a page's, in
// milliseconds.
type beginning [2]float64

func (b *beginning) note(i int, since time.Time) {
	b[i] = float64(time.Since(since).Nanoseconds()) / 1e6
}

// firstPage begins a session with a new browser, and ends it.
func (s *sidecar) firstPage(task string) (took beginning, _ error) {
	url := s.taskURL(task, coldProfile, false)
	begun := time.Now()
	c, err := dial(url)
	if err != nil {
		return took, err
	}
	if _, err = c.call("", "Browser.getVersion", `{}`); err == nil {
		took.note(0, begun)
		err = c.evaluate(c.openPage)
	}
	took.note(1, begun)
	return took, s.over(c, err)
}

// evaluate has the page that find finds answer.
func (c *client) evaluate(find func() (session string, err error)) error {
	session, err := find()
	if err == nil {
		_, err = c.call(session, "Runtime.evaluate", `{"expression":"1"}`)
	}
	return err
}

// openPage returns a CDP session on the first page that is open.
func (c *client) openPage() (string, error) {
	msg, err := c.call("", "Target.getTargets", `{"filter":[{"type":"page"}]}`)
	if err != nil {
		return "", err
	}
	var r struct {
		Result struct{ TargetInfos []struct{ TargetID string } }
	}
	if err := json.Unmarshal(msg, &r); err != nil {
		return "", err
	}
	if len(r.Result.TargetInfos) == 0 {
		return "", errors.New("the session has no page")
	}
	return c.attach(r.Result.TargetInfos[0].TargetID)
}

// byHand is Chrome as somebody starts it who wants to drive it by its port.
type byHand struct {
	chrome string
	args   []string // without the directory
	dir    string   // of its profile that is used again
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
	return &byHand{chrome, append(args, "--remote-debugging-port=0"), filepath.Join(s.dir, "by-hand")}, nil
}

const listening = "DevTools listening on "

// first starts Chrome, waits for its answer and for a page's, and closes it.
func (h *byHand) first() (took beginning, err error) {
	begun := time.Now()
	err = h.with(h.dir, func(c *client) error {
		if _, err := c.call("", "Browser.getVersion", `{}`); err != nil {
			return err
		}
		took.note(0, begun)
		err := c.evaluate(c.page)
		took.note(1, begun)
		return err
	})
	return took, err
}

// with starts Chrome on a directory, uses it by its port, and closes it.
func (h *byHand) with(dir string, use func(*client) error) (err error) {
	cmd := exec.Command(h.chrome, append(slices.Clone(h.args), "--user-data-dir="+dir)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
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
			return fmt.Errorf("the browser opened no port: %w", err)
		}
		if url, ok := strings.CutPrefix(strings.TrimSpace(line), listening); ok {
			c, err := dial(url)
			if err != nil {
				return err
			}
			if err := use(c); err != nil {
				return err
			}
			if _, err := c.call("", "Browser.close", `{}`); err != nil {
				return err
			}
			_, _ = io.Copy(io.Discard, lines)
			return errors.Join(c.net.Close(), ignoreStatus(cmd.Wait()))
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
