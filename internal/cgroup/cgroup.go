// Package cgroup gives each browser a control group (v2) of its own, below the group that was
// delegated to the launcher.
//
// In version 2 a group whose children have limits cannot have processes of its own. So the
// launcher itself is in a child group, named Leaf, beside the browsers' groups: systemd has put
// it there (DelegateSubgroup=), or it moves itself. Nothing outside the delegated group is
// touched.
package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Leaf is the name of the launcher's own group, below the delegated one.
const Leaf = "launcher"

// prefix is the beginning of the names of browsers' groups.
const prefix = "browser-"

// required are the controllers without which browsers get no groups. The controller cpu is used
// if the host has it.
var required = []string{"memory", "pids"}

// UnavailableError says why browsers cannot have groups on this host, and what to do.
type UnavailableError struct{ Why string }

func (e *UnavailableError) Error() string { return e.Why }

func unavailable(format string, args ...any) error {
	return &UnavailableError{fmt.Sprintf(format, args...)}
}

// Host is this process's place in the hierarchy of control groups.
type Host struct {
	// Mount is where cgroup v2 is mounted; Own is this process's group below it,
	// beginning with a slash.
	Mount, Own string
	PID        int
	// Service says that systemd started this process as a service. It will start the
	// next one in the same group.
	Service bool

	files files
}

// Here returns this process's Host. The error is an *UnavailableError if the host has
// no cgroup v2.
func Here() (Host, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return Host{}, err
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return Host{}, err
	}
	h := Host{Mount: mountOf(mounts), Own: ownOf(own), PID: os.Getpid(), Service: os.Getenv("INVOCATION_ID") != "", files: kernel{}}
	if h.Mount == "" || h.Own == "" {
		return Host{}, unavailable("cgroup v2 is not mounted on this host")
	}
	return h, nil
}

// mountOf finds the mount point of the v2 hierarchy: one that shows it from its root.
func mountOf(mountinfo []byte) string {
	for line := range bytes.Lines(mountinfo) {
		before, after, ok := strings.Cut(string(line), " - ")
		fields := strings.Fields(before)
		kind, _, _ := strings.Cut(after, " ")
		if ok && len(fields) >= 5 && kind == "cgroup2" && fields[3] == "/" {
			return unescape(fields[4])
		}
	}
	return ""
}

// unescape replaces the kernel's octal escapes, such as \040 for a space.
func unescape(s string) string {
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		out.WriteByte(s[i])
	}
	return out.String()
}

// ownOf finds the process's group in the v2 hierarchy. It is empty if the group is outside what
// this process can see (/../x).
func ownOf(cgroup []byte) string {
	for line := range bytes.Lines(cgroup) {
		if own, ok := strings.CutPrefix(strings.TrimSpace(string(line)), "0::"); ok && path.IsAbs(own) && !strings.HasPrefix(own, "/..") {
			return own
		}
	}
	return ""
}

// Plan says what has to be done so that browsers can have groups.
type Plan struct {
	// Base is the delegated group's directory.
	Base string
	// Move says that the launcher has to move itself into Leaf.
	Move bool
	// Controllers are the controllers for browsers' groups. Enable are those of them that are
	// not enabled yet.
	Controllers, Enable []string

	host Host
}

// Plan finds out how browsers can have groups. It changes nothing. The error is an
// *UnavailableError if they cannot have any.
func (h Host) Plan() (Plan, error) {
	p := Plan{Base: filepath.Join(h.Mount, h.Own), Move: true, host: h}
	if up := filepath.Dir(p.Base); h.Own != "/" && (filepath.Base(p.Base) == Leaf || h.files.delegated(up)) {
		p.Base, p.Move = up, false
	}
	present, err := h.words(p.Base, "cgroup.controllers")
	if err != nil {
		return p, err
	}
	for _, c := range required {
		if !slices.Contains(present, c) {
			return p, unavailable("the control group %s has no controller %s (it has: %s): want cgroup v2 with memory and pids, delegated to the launcher (Delegate=yes in its systemd unit; a host with the hybrid hierarchy has none)",
				p.Base, c, list(present))
		}
	}
	enabled, err := h.words(p.Base, "cgroup.subtree_control")
	if err != nil {
		return p, err
	}
	for _, c := range append(slices.Clone(required), "cpu") {
		if !slices.Contains(present, c) {
			continue
		}
		p.Controllers = append(p.Controllers, c)
		if !slices.Contains(enabled, c) {
			p.Enable = append(p.Enable, c)
		}
	}
	for _, file := range []string{"", "cgroup.procs", "cgroup.subtree_control"} {
		if err := h.files.writable(filepath.Join(p.Base, file)); err != nil {
			return p, unavailable("the control group %s is not delegated to this user (%v): set Delegate=yes in the launcher's systemd unit", p.Base, err)
		}
	}
	inside, err := h.words(p.Base, "cgroup.procs")
	if err != nil {
		return p, err
	}
	others := slices.DeleteFunc(inside, func(pid string) bool { return p.Move && pid == strconv.Itoa(h.PID) })
	switch {
	case len(others) > 0:
		return p, unavailable("the control group %s has other processes (%s): start the launcher in a group of its own, as its systemd unit does", p.Base, list(others[:min(len(others), 5)]))
	case p.Move && h.Service:
		// While a browser's group below it has limits, the unit's own group cannot have
		// processes. So if a browser of this launcher is left, systemd could not start the next
		// launcher there.
		return p, unavailable("the launcher is in its unit's own control group %s: set DelegateSubgroup=%s beside Delegate=yes (systemd 254 or later)", p.Base, Leaf)
	}
	return p, nil
}

func list(words []string) string {
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, " ")
}

// words reads the words of a file of the group. The error is an *UnavailableError.
func (h Host) words(dir, file string) ([]string, error) {
	b, err := h.files.read(filepath.Join(dir, file))
	if err != nil {
		return nil, unavailable("the control group %s cannot be read: %v", dir, err)
	}
	return strings.Fields(string(b)), nil
}

// Do carries out the plan. It also removes the empty groups of browsers that an earlier
// launcher left.
func (p Plan) Do() (*Tree, error) {
	f := p.host.files
	if p.Move {
		leaf := filepath.Join(p.Base, Leaf)
		if err := f.mkdir(leaf); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("the launcher's control group: %w", err)
		}
		if err := f.write(filepath.Join(leaf, "cgroup.procs"), strconv.Itoa(p.host.PID)); err != nil {
			return nil, fmt.Errorf("moving the launcher into %s: %w", leaf, err)
		}
	}
	for _, c := range p.Enable {
		if err := f.write(filepath.Join(p.Base, "cgroup.subtree_control"), "+"+c); err != nil {
			return nil, fmt.Errorf("enabling the controller %s in %s: %w", c, p.Base, err)
		}
	}
	t := &Tree{dir: p.Base, files: f, hasCPU: slices.Contains(p.Controllers, "cpu")}
	names, err := f.list(p.Base)
	for _, name := range names {
		if strings.HasPrefix(name, prefix) {
			_ = f.rmdir(filepath.Join(p.Base, name)) // this fails for a group with processes
		}
	}
	return t, err
}

// Tree is the delegated group, below which browsers get theirs.
type Tree struct {
	dir    string
	files  files
	hasCPU bool // there is a cpu controller
}

// Limits are the limits of one browser. A zero value is no limit.
type Limits struct {
	// Memory is the most memory that the browser's processes together may use, in bytes. Above
	// seven eighths of it the kernel slows them down; at the limit it kills one of them.
	Memory    uint64
	Processes int // includes threads
	// Weight is the browser's share of the processors relative to that of others, 1 to
	// 10000. The kernel's default is 100.
	Weight int
}

// High is the number of bytes above which the kernel slows the browser down.
func (l Limits) High() uint64 { return l.Memory - l.Memory/8 }

// Beyond is the number of bytes at which the kernel has evidently failed to make the group
// smaller. Pages that can be read from files again do not count here, because the kernel drops
// those at High already.
func (l Limits) Beyond() uint64 { return l.High() + l.High()/64 }

// Create makes a browser's group. The name has to be valid as a file name.
func (t *Tree) Create(name string, l Limits) (_ *Group, err error) {
	g := &Group{dir: filepath.Join(t.dir, prefix+name), files: t.files}
	if err := t.files.mkdir(g.dir); err != nil {
		return nil, fmt.Errorf("control group of a browser: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.files.rmdir(g.dir))
		}
	}()
	set := func(file string, n uint64) {
		if n > 0 && err == nil {
			err = t.files.write(filepath.Join(g.dir, file), strconv.FormatUint(n, 10))
		}
	}
	set("memory.max", l.Memory)
	set("memory.high", l.High())
	set("pids.max", uint64(max(l.Processes, 0)))
	if t.hasCPU {
		set("cpu.weight", uint64(max(l.Weight, 0)))
	}
	if err != nil {
		return nil, fmt.Errorf("control group %s: %w", g.dir, err)
	}
	return g, nil
}

// Open returns the group whose Dir was dir. The error says so if it is not the group of
// a browser, or if the process is not in it.
func Open(dir string, pid int) (*Group, error) { return open(kernel{}, dir, pid) }

func open(f files, dir string, pid int) (*Group, error) {
	if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir || !strings.HasPrefix(filepath.Base(dir), prefix) {
		return nil, fmt.Errorf("control group %q: want that of a browser", dir)
	}
	g := &Group{dir: dir, files: f}
	pids, err := g.Processes()
	if err != nil {
		return nil, err
	}
	if !slices.Contains(pids, pid) {
		return nil, fmt.Errorf("control group %s: process %d is not in it", dir, pid)
	}
	return g, nil
}

// Group is the group of one browser.
type Group struct {
	dir   string
	files files
}

// Dir is the group's directory.
func (g *Group) Dir() string { return g.dir }

// File opens the directory, so that a child can be started in the group
// (syscall.SysProcAttr.CgroupFD).
func (g *Group) File() (*os.File, error) {
	return os.OpenFile(g.dir, unix.O_DIRECTORY|unix.O_PATH|unix.O_CLOEXEC, 0)
}

// Processes returns the pids of the processes in the group.
func (g *Group) Processes() ([]int, error) {
	b, err := g.files.read(filepath.Join(g.dir, "cgroup.procs"))
	if err != nil {
		return nil, fmt.Errorf("control group: %w", err)
	}
	var pids []int
	for word := range strings.FieldsSeq(string(b)) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			return nil, fmt.Errorf("control group %s: process %.20q", g.dir, word)
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// Usage is what a group uses, and which limits it has met. A field is nil if it could
// not be read.
type Usage struct {
	Dir string `json:"path"`
	// Memory is what its processes use, and what the kernel uses for them, in bytes. Files is
	// the part that can be read from files again.
	Memory *uint64 `json:"memory_bytes,omitempty"`
	Files  *uint64 `json:"memory_file_bytes,omitempty"`
	// OOMKills counts the processes that the kernel killed at the limit; High, how often it
	// slowed the group down; PIDsMax, how often it refused a new process.
	OOMKills *uint64 `json:"oom_kill,omitempty"`
	High     *uint64 `json:"memory_high_events,omitempty"`
	PIDsMax  *uint64 `json:"pids_max_events,omitempty"`
}

// Usage reads the group's usage, as far as it can be read.
func (g *Group) Usage() Usage {
	u := Usage{Dir: g.dir}
	get := func(file, key string) *uint64 {
		n, err := g.number(file, key)
		if err != nil {
			return nil
		}
		return &n
	}
	u.OOMKills, u.High, u.PIDsMax = get("memory.events", "oom_kill"), get("memory.events", "high"), get("pids.events", "max")
	u.Memory, u.Files = get("memory.current", ""), get("memory.stat", "file")
	return u
}

// number reads one number of a file: the one after the key, or the only one if the key
// is empty.
func (g *Group) number(file, key string) (uint64, error) {
	b, err := g.files.read(filepath.Join(g.dir, file))
	if err != nil {
		return 0, fmt.Errorf("control group: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		fields := strings.Fields(line)
		if key == "" && len(fields) == 1 || len(fields) == 2 && fields[0] == key {
			n, err := strconv.ParseUint(fields[len(fields)-1], 10, 64)
			if err != nil {
				return 0, fmt.Errorf("control group %s: %s: %w", g.dir, file, err)
			}
			return n, nil
		}
	}
	return 0, fmt.Errorf("control group %s: %s has no %q", g.dir, file, key)
}

// Kill sends SIGKILL to every process in the group, including those that fork meanwhile.
// It needs Linux 5.14.
func (g *Group) Kill() error {
	if err := g.files.write(filepath.Join(g.dir, "cgroup.kill"), "1"); err != nil {
		return fmt.Errorf("control group: %w", err)
	}
	return nil
}

// Remove waits until the last process of the group has ended, and removes the group.
// After the timeout it gives up; the next Plan.Do tries again.
func (g *Group) Remove(timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	for {
		err := g.files.rmdir(g.dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("control group: %w", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// files are the operations on the kernel's files. Tests have their own. They have 7 methods because
// the kernel's files differ from those of a disk: each is an operation that the kernel may refuse.
type files interface {
	read(name string) ([]byte, error)
	write(name, content string) error
	mkdir(name string) error
	rmdir(name string) error
	list(name string) ([]string, error) // the directories in it
	writable(name string) error
	// delegated tells whether systemd has marked the group as delegated.
	delegated(name string) bool
}

type kernel struct{}

func (kernel) read(name string) ([]byte, error) { return os.ReadFile(name) }

func (kernel) write(name, content string) error {
	f, err := os.OpenFile(name, os.O_WRONLY, 0) // it is never created
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	return errors.Join(err, f.Close())
}

func (kernel) mkdir(name string) error { return os.Mkdir(name, 0o755) }

func (kernel) rmdir(name string) error {
	if err := unix.Rmdir(name); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (kernel) list(name string) ([]string, error) {
	entries, err := os.ReadDir(name)
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, err
}

func (kernel) writable(name string) error { return unix.Access(name, unix.W_OK) }

func (kernel) delegated(name string) bool {
	var value [8]byte
	for _, attribute := range []string{"user.delegate", "trusted.delegate"} {
		if n, err := unix.Getxattr(name, attribute, value[:]); err == nil && string(value[:n]) == "1" {
			return true
		}
	}
	return false
}
