package bubble

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"leasehold/internal/cgroup"
	"leasehold/launcher/browser"
	"leasehold/launcher/chrome"
	"leasehold/launcher/profiledir"
	"leasehold/lease"
)

// firstPID is above every process id of the kernel.
const firstPID = 1 << 23

// fakeChrome is a browser: it holds its part of the profile's lock, has the files on which an
// inspection goes, and outlives its launcher.
type fakeChrome struct {
	w        *world
	profile  string
	path     string
	session  string
	token    lease.Token
	pid      int
	stubborn bool // it has to be killed

	exited chan struct{}
	noted  atomic.Bool // on disk: a launcher can find it

	mu    sync.Mutex
	lock  *os.File // the open file that it inherited
	ended bool
}

// spawn starts a browser that inherits the lock.
func (p *process) spawn(lock *profiledir.Lock, path, session string, token lease.Token) (*fakeChrome, error) {
	f := lock.File()
	if f == nil {
		return nil, errors.New("there is no lock to inherit")
	}
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	c := &fakeChrome{
		w: p.w, profile: lock.Profile(), path: path, session: session, token: token, pid: firstPID + int(p.w.pids.Add(1)),
		exited: make(chan struct{}), lock: os.NewFile(uintptr(fd), "inherited lock"), stubborn: p.w.dice(8),
	}
	_ = os.MkdirAll(filepath.Join(path, "Default"), 0o700)
	c.notes(false)
	p.w.mu.Lock()
	p.w.chromes[c.pid] = c
	p.w.mu.Unlock()
	p.w.check.started(c)
	return c, nil
}

// notes writes what Chrome remembers of its end. A full disk keeps them as they were.
func (c *fakeChrome) notes(clean bool) {
	exit := map[bool]string{true: "Normal", false: "Crashed"}[clean]
	_ = os.WriteFile(filepath.Join(c.path, "Variations"), fmt.Appendf(nil, `{"user_experience_metrics.stability.exited_cleanly":%v}`, clean), 0o600)
	_ = os.WriteFile(filepath.Join(c.path, "Default", "Preferences"), fmt.Appendf(nil, `{"profile":{"exit_type":%q}}`, exit), 0o600)
	_ = os.WriteFile(filepath.Join(c.path, "Local State"), []byte("{}"), 0o600)
	_ = os.WriteFile(filepath.Join(c.path, "Default", "Cookies"), []byte("cookies"), 0o600)
}

// end ends the browser.
func (c *fakeChrome) end(clean bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	c.ended = true
	if clean {
		c.notes(true)
	}
	c.w.mu.Lock()
	delete(c.w.chromes, c.pid)
	c.w.mu.Unlock()
	_ = c.lock.Close()
	close(c.exited)
}

// handle is a launcher's view of a browser. It implements browser.Process.
type handle struct {
	*fakeChrome
	p *process
}

var _ browser.Process = (*handle)(nil)

func (h *handle) PID() int                { return h.pid }
func (h *handle) Exited() <-chan struct{} { return h.exited }
func (h *handle) OutputTail(int) string   { return "" }
func (h *handle) Group() *cgroup.Group    { return nil }
func (h *handle) Detach() error           { return nil }

func (h *handle) ExitStatus() string {
	select {
	case <-h.exited:
		return "signal killed"
	default:
		return ""
	}
}

// Close ends the browser as package chrome does, by SIGINT and then by SIGKILL: nobody can ask
// it over its pipe.
func (h *handle) Close(ctx context.Context, _ func(context.Context) error, bounds chrome.CloseTimeouts) (chrome.CloseMethod, error) {
	h.p.step()
	if h.ExitStatus() != "" {
		return chrome.AlreadyExited, nil
	}
	if bounds.BeforeSignal != nil {
		if err := bounds.BeforeSignal(); err != nil {
			return "", &chrome.NotSignalledError{Err: err}
		}
	}
	h.w.check.closes(h)
	if !sleep(ctx, 200*time.Millisecond) {
		return chrome.ClosedByInterrupt, context.Cause(ctx)
	}
	h.p.step()
	h.end(!h.stubborn)
	if h.stubborn {
		return chrome.ClosedByKill, nil
	}
	return chrome.ClosedByInterrupt, nil
}

// find finds the browser that a note names: browser.Options.Find.
func (p *process) find(running profiledir.Running) browser.Process {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	c := p.w.chromes[running.PID]
	if c == nil {
		return nil
	}
	p.w.counts["browsers adopted"]++
	return &handle{c, p}
}

// gone ends the goroutine of a launcher that is dead.
func gone() { runtime.Goexit() }
