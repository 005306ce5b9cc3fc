package bubble

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"leasehold/launcher/chrome"
	"leasehold/launcher/sessionfile"
	"leasehold/lease"
)

// firstPID is above every process id of the kernel.
const firstPID = 1 << 23

// fakeChrome is a browser: it holds its part of the profile's lock, has the files on which an
// inspection goes, answers on its pipe (cdp_test.go), and outlives its launcher.
type fakeChrome struct {
	w        *world
	host     *host
	profile  string
	path     string
	session  string // that it was started for
	args     string // of its task's own
	byHand   bool   // it was started for a person
	reader   bool   // it is on a copy, for an ephemeral session
	pid      int
	stubborn bool // it has to be killed

	exited chan struct{}

	mu        sync.Mutex
	token     lease.Token   // of the newest session in it
	found     lease.Token   // that was kept where it was started, if it is on a copy
	writes    bool          // it is on a copy, and its pages may send what they want
	by        *life         // whose pipe it is
	bySince   time.Duration // when that one found it; 0: that one started it
	lock      *os.File      // the open file that it inherited
	ended     bool
	idle      bool // it waits for the next task
	idleSince time.Duration
	link      *link // to the launcher that has the pipe now; nil: none has taken it
	cdp       cdp
	// network is its network service.
	network *networkService
}

// spawn starts a browser that inherits the lock.
func (l *life) spawn(o chrome.Options) (*fakeChrome, error) {
	fd, err := unix.FcntlInt(o.Lock.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if l.dead.Load() { // its files are being closed: this may be another one's by now
		return nil, errors.Join(errGone, unix.Close(fd))
	}
	session := strings.TrimSuffix(filepath.Base(o.OutputFile), ".chrome.log")
	reader := filepath.Dir(o.ProfileDir) == l.host.copies()
	f, err := sessionfile.NewDir(l.host.data, key).Read(session)
	if err != nil && !reader {
		return nil, fmt.Errorf("a browser is started for a session without a file: %w", err)
	}
	c := &fakeChrome{
		w: l.w, host: l.host, profile: filepath.Base(o.ProfileDir), path: o.ProfileDir, session: session, token: f.Token, args: strings.Join(o.ExtraArgs, " "), byHand: f.ByHand != nil,
		pid: firstPID + int(l.w.pids.Add(1)), exited: make(chan struct{}), lock: os.NewFile(uintptr(fd), "inherited lock"), stubborn: l.w.dice(8), by: l,
	}
	if reader {
		c.profile, c.reader, c.found = roams, true, keptIn(c.path)
	}
	c.cdp = newCDP()
	c.network = &networkService{c: c, pid: c.pid + 1, ended: make(chan struct{})}
	_ = os.MkdirAll(filepath.Join(c.path, "Default"), 0o700)
	c.notes(false)
	_ = os.WriteFile(o.OutputFile, nil, 0o600)
	if err := c.shows(o.Lock.Name()); err != nil {
		return nil, errors.Join(err, c.lock.Close())
	}
	l.w.mu.Lock()
	l.w.chromes[c.pid] = c
	l.w.mu.Unlock()
	l.w.check.started(c)
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
	if c.ended {
		c.mu.Unlock()
		return
	}
	c.ended = true
	link := c.link
	c.mu.Unlock()
	if clean {
		c.keep()
		c.notes(true)
	}
	c.w.mu.Lock()
	delete(c.w.chromes, c.pid)
	c.w.mu.Unlock()
	if err := os.RemoveAll(c.proc()); err != nil {
		c.w.broken("the world", "%v", err)
	}
	_ = c.lock.Close()
	close(c.exited)
	if link != nil {
		link.hangUp()
	}
}

func (c *fakeChrome) newest() lease.Token {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.token
}

// taken says that a session has the browser now.
func (c *fakeChrome) taken(token lease.Token) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.token, c.idle = max(c.token, token), false
}

// leftWarm tells whether a browser looks as one that is left for the next task. If so, it
// waits from now on.
func (c *fakeChrome) leftWarm() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idleSince = c.w.now()
	c.idle = len(c.cdp.pages) == 1 && c.cdp.pages[0].url == "about:blank"
	return c.idle
}

// waits tells whether it is a warm one, which may stay.
func (c *fakeChrome) waits() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.idle
}

// identity is by which the next launcher knows it.
func (c *fakeChrome) identity() chrome.Identity {
	return chrome.Identity{PID: c.pid, StartTime: uint64(c.pid), BootID: bootID}
}

// proc is where the kernel shows it.
func (c *fakeChrome) proc() string { return filepath.Join(processes, strconv.Itoa(c.pid)) }

// shows shows the browser as the kernel does, with the lock that it has open.
func (c *fakeChrome) shows(lock string) error {
	err := os.MkdirAll(filepath.Join(c.proc(), "fd"), 0o700)
	if err == nil {
		err = os.Symlink(lock, filepath.Join(c.proc(), "fd", "5"))
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(c.proc(), "cmdline"), []byte("chromium\x00--user-data-dir="+c.path+"\x00"), 0o600)
	}
	return errors.Join(err, stat(c.pid, uint64(c.pid)))
}

// stat writes what the kernel says of a process.
func stat(pid int, started uint64) error {
	dir := filepath.Join(processes, strconv.Itoa(pid))
	text := fmt.Sprintf("%d (chromium) S 1 %d %d 0 -1 0 0 0 0 0 1 1 0 0 20 0 1 0 %d%s\n", pid, pid, pid, started, strings.Repeat(" 0", 30))
	return errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "stat"), []byte(text), 0o600))
}

// networkService is the process through which everything goes that the browser sends.
type networkService struct {
	c   *fakeChrome
	pid int

	mu      sync.Mutex
	stopped bool
	over    bool
	ended   chan struct{}
}

func (n *networkService) set(stopped bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stopped = stopped
}

// seen is a launcher's view of a network service. It implements browser.NetworkService.
type seen struct {
	*networkService
	l      *life
	once   sync.Once
	closed chan struct{}
}

func (s *seen) PID() int { return s.pid }

func (s *seen) Stop(context.Context) error {
	s.l.step()
	s.set(true)
	return nil
}

// AwaitRest returns at once: what a page sent is with its network service.
func (s *seen) AwaitRest(context.Context) error {
	s.l.step()
	return nil
}

func (s *seen) Stopped() (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped, nil
}

func (s *seen) Continue() error {
	s.l.step()
	s.set(false)
	return nil
}

// Kill ends the network service. The browser starts another.
func (s *seen) Kill(context.Context) error {
	s.l.step()
	s.kill()
	return nil
}

func (n *networkService) kill() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.over {
		return
	}
	n.over = true
	close(n.ended)
	n.c.mu.Lock()
	n.c.network = &networkService{c: n.c, pid: n.pid + 1<<20, ended: make(chan struct{})}
	n.c.mu.Unlock()
}

func (s *seen) AwaitEnd() bool {
	select {
	case <-s.ended:
		return true
	case <-s.c.exited:
		return true
	case <-s.closed:
		return false
	case <-s.l.w.over:
		return false
	}
}

func (s *seen) Ended() bool {
	select {
	case <-s.ended:
		return true
	case <-s.c.exited:
		return true
	default:
		return false
	}
}

func (s *seen) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

// page is what is open in the browser.
type page struct{ target, url string }

// cdp is what a browser knows of those who drive it.
type cdp struct {
	sessions int               // browser sessions that there ever were
	watching []string          // those that are attached to every page
	waiting  map[string]string // pages that wait for a session, by that
	pages    []page
	made     int // pages that there ever were
	// happened says that something happened in it that no session answers for.
	happened bool
}

func newCDP() cdp {
	return cdp{pages: []page{{"T0", "about:blank"}}, waiting: map[string]string{}}
}

// drops forgets the pages of a target.
func (d *cdp) drops(target string) {
	d.pages = slices.DeleteFunc(d.pages, func(p page) bool { return p.target == target })
}

// closing is how long a browser takes to end by a signal.
const closing = 200 * time.Millisecond

// String names it in what is shown to people.
func (c *fakeChrome) String() string {
	return fmt.Sprintf("the browser of token %d of %s", c.newest(), cmp.Or(c.profile, "nobody"))
}
