package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fake is a v2 hierarchy with the rules that matter here. The test fails if it touches a
// file that the kernel would not have.
type fake struct {
	t *testing.T
	// groups are the contents of their files, by the group's path and the file's name.
	groups map[string]map[string]string
	// readOnly are the paths that this user may not write, marked the groups that
	// systemd has marked as delegated.
	readOnly, marked map[string]bool
}

var controllers = map[string][]string{
	"memory": {"memory.max", "memory.high", "memory.current", "memory.events", "memory.stat"},
	"pids":   {"pids.max", "pids.events"},
	"cpu":    {"cpu.weight"},
}

// newFake has one group, with these controllers and processes.
func newFake(t *testing.T, own string, has []string, pids ...int) *fake {
	f := &fake{t: t, groups: map[string]map[string]string{}, readOnly: map[string]bool{}, marked: map[string]bool{}}
	f.add(own, has, pids...)
	return f
}

func (f *fake) add(dir string, has []string, pids ...int) {
	g := map[string]string{"cgroup.controllers": strings.Join(has, " "), "cgroup.subtree_control": "", "cgroup.procs": "", "cgroup.kill": ""}
	for _, pid := range pids {
		g["cgroup.procs"] += strconv.Itoa(pid) + "\n"
	}
	for _, c := range has {
		for _, file := range controllers[c] {
			g[file] = ""
		}
	}
	f.groups[dir] = g
}

func (f *fake) file(name string) (map[string]string, string) {
	g := f.groups[filepath.Dir(name)]
	if g == nil {
		f.t.Fatalf("%s: there is no such group", name)
	}
	base := filepath.Base(name)
	if _, ok := g[base]; !ok {
		f.t.Fatalf("%s: the kernel has no such file there", name)
	}
	return g, base
}

func (f *fake) read(name string) ([]byte, error) {
	g, base := f.file(name)
	return []byte(g[base]), nil
}

func (f *fake) write(name, content string) error {
	g, base := f.file(name)
	switch base {
	case "cgroup.subtree_control":
		if g["cgroup.procs"] != "" {
			return unix.EBUSY
		}
		c, ok := strings.CutPrefix(content, "+")
		if !ok || !slices.Contains(strings.Fields(g["cgroup.controllers"]), c) {
			return unix.ENOENT
		}
		g[base] = strings.TrimSpace(g[base] + " " + c)
	case "cgroup.procs":
		for _, other := range f.groups {
			other["cgroup.procs"] = strings.ReplaceAll(other["cgroup.procs"], content+"\n", "")
		}
		g[base] += content + "\n"
	case "cgroup.kill":
		g["cgroup.procs"] = ""
	case "memory.max", "memory.high", "pids.max", "cpu.weight":
		g[base] = content
	default:
		f.t.Fatalf("%s: nothing may write that", name)
	}
	return nil
}

func (f *fake) mkdir(name string) error {
	if f.groups[name] != nil {
		return fs.ErrExist
	}
	parent := f.groups[filepath.Dir(name)]
	if parent == nil {
		f.t.Fatalf("mkdir %s: there is no parent", name)
	}
	f.add(name, strings.Fields(parent["cgroup.subtree_control"]))
	return nil
}

func (f *fake) rmdir(name string) error {
	if f.groups[name] == nil {
		return fs.ErrNotExist
	}
	if f.groups[name]["cgroup.procs"] != "" {
		return unix.EBUSY
	}
	delete(f.groups, name)
	return nil
}

func (f *fake) list(name string) ([]string, error) {
	var names []string
	for dir := range f.groups {
		if filepath.Dir(dir) == name && dir != name {
			names = append(names, filepath.Base(dir))
		}
	}
	slices.Sort(names)
	return names, nil
}

func (f *fake) writable(name string) error {
	if f.readOnly[name] {
		return unix.EACCES
	}
	return nil
}

func (f *fake) delegated(name string) bool { return f.marked[name] }

var all = []string{"cpuset", "cpu", "io", "memory", "pids"}

const unit = "/cg/system.slice/leasehold.service"

func TestPlan(t *testing.T) {
	for _, c := range []struct {
		name    string
		host    Host
		prepare func(f *fake)
		has     []string
		pids    []int
		want    string // the plan, or a part of the error
	}{
		{"in a container", Host{Own: "/"}, nil, all, []int{7}, "/cg move [memory pids cpu]"},
		{"a group of its own", Host{Own: "/x/y"}, nil, []string{"memory", "pids"}, []int{7}, "/cg/x/y move [memory pids]"},
		{"systemd's subgroup", Host{Own: "/system.slice/leasehold.service/launcher", Service: true}, func(f *fake) { f.add(unit, all) }, all, []int{7}, unit + " stay [memory pids cpu]"},
		{"another name for it", Host{Own: "/system.slice/leasehold.service/main", Service: true}, func(f *fake) {
			f.add(unit, all)
			f.marked[unit] = true
		}, all, []int{7}, unit + " stay [memory pids cpu]"},
		{"on already", Host{Own: "/system.slice/leasehold.service/launcher", Service: true}, func(f *fake) {
			f.add(unit, all)
			f.groups[unit]["cgroup.subtree_control"] = "memory pids cpu"
		}, all, []int{7}, unit + " stay []"},
		{"an older systemd", Host{Own: "/system.slice/leasehold.service", Service: true}, nil, all, []int{7}, "DelegateSubgroup=launcher"},
		{"a login's group", Host{Own: "/user.slice/session.scope"}, nil, all, []int{5, 7}, "has other processes (5)"},
		{"hybrid", Host{Own: "/"}, nil, []string{"hugetlb"}, []int{7}, "no controller memory (it has: hugetlb)"},
		{"no pids", Host{Own: "/"}, nil, []string{"memory"}, []int{7}, "no controller pids"},
		{"not delegated", Host{Own: "/x"}, func(f *fake) { f.readOnly["/cg/x/cgroup.subtree_control"] = true }, all, []int{7}, "not delegated to this user"},
		{"somebody beside the leaf", Host{Own: "/x/launcher"}, func(f *fake) { f.add("/cg/x", all, 9) }, all, []int{7}, "has other processes (9)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(t, filepath.Join("/cg", c.host.Own), c.has, c.pids...)
			if c.prepare != nil {
				c.prepare(f)
			}
			before := fmt.Sprint(f.groups)
			c.host.Mount, c.host.PID, c.host.files = "/cg", 7, f
			p, err := c.host.Plan()
			move := "stay"
			if p.Move {
				move = "move"
			}
			got := fmt.Sprintf("%s %s %v", p.Base, move, p.Enable)
			var why *UnavailableError
			switch {
			case err == nil && got != c.want:
				t.Errorf("got %s, want %s", got, c.want)
			case err != nil && (!errors.As(err, &why) || !strings.Contains(err.Error(), c.want)):
				t.Errorf("got %v, want %s", err, c.want)
			case fmt.Sprint(f.groups) != before:
				t.Error("a plan changed something")
			}
			if err != nil {
				return
			}
			tree, err := p.Do()
			if err != nil {
				t.Fatal(err)
			}
			if tree.dir != p.Base || f.groups[p.Base]["cgroup.procs"] != "" || f.groups[p.Base]["cgroup.subtree_control"] != strings.Join(p.Controllers, " ") {
				t.Errorf("done: %v", f.groups[p.Base])
			}
			again, err := c.host.Plan()
			if !p.Move && (err != nil || len(again.Enable) != 0) {
				t.Errorf("again: %+v, %v", again, err)
			}
		})
	}
}

func TestLimits(t *testing.T) {
	f := newFake(t, "/cg", all, 7)
	f.add("/cg/browser-left", all)
	f.add("/cg/browser-alive", all, 40)
	f.add("/cg/another", all)
	p, err := Host{Mount: "/cg", Own: "/", PID: 7, files: f}.Plan()
	if err != nil {
		t.Fatal(err)
	}
	tree, err := p.Do()
	if err != nil {
		t.Fatal(err)
	}
	if names, _ := f.list("/cg"); !slices.Equal(names, []string{"another", "browser-alive", Leaf}) {
		t.Errorf("left: %v", names)
	}
	g, err := tree.Create("s1", Limits{Memory: 800, Processes: 50, Weight: 30})
	if err != nil {
		t.Fatal(err)
	}
	files := f.groups["/cg/browser-s1"]
	if got := []string{files["memory.max"], files["memory.high"], files["pids.max"], files["cpu.weight"]}; !slices.Equal(got, []string{"800", "700", "50", "30"}) {
		t.Errorf("limits %v", got)
	}
	if _, err := tree.Create("s1", Limits{}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("twice: %v", err)
	}
	files["cgroup.procs"] = "40\n41\n"
	files["memory.current"], files["memory.stat"] = "700\n", "anon 500\nfile 100\ninactive_file 30\nactive_file 70\n"
	files["memory.events"], files["pids.events"] = "low 0\nhigh 3\nmax 2\noom 1\noom_kill 1\n", "max 0\n"
	u := g.Usage()
	if u.Memory == nil || *u.Memory != 700 || u.Files == nil || *u.Files != 100 || u.OOMKills == nil || *u.OOMKills != 1 || u.High == nil || *u.High != 3 || u.PIDsMax == nil || *u.PIDsMax != 0 {
		t.Errorf("usage %+v", u)
	}
	if _, err := open(f, g.Dir(), 41); err != nil {
		t.Error(err)
	}
	if _, err := open(f, g.Dir(), 42); err == nil {
		t.Error("a group was opened for a process that is not in it")
	}
	if _, err := open(f, "/cg/another", 7); err == nil {
		t.Error("a group that is no browser's was opened")
	}
	if err := g.Remove(0); !errors.Is(err, unix.EBUSY) {
		t.Errorf("removed with processes: %v", err)
	}
	if err := errors.Join(g.Kill(), g.Remove(0), g.Remove(0)); err != nil || f.groups[g.Dir()] != nil {
		t.Errorf("killed and removed: %v", err)
	}
	plain := &Tree{dir: "/cg", files: f}
	if _, err := plain.Create("s2", Limits{Weight: 30}); err != nil || f.groups["/cg/browser-s2"]["cpu.weight"] != "" {
		t.Errorf("a weight without the controller: %v", err)
	}
}

func TestHere(t *testing.T) {
	mounts := "30 24 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n" +
		"40 31 0:38 /sub /mnt rw,relatime - cgroup2 cgroup2 rw\n" +
		"41 31 0:38 / /sys/fs/a\\040b rw,relatime shared:9 - cgroup2 cgroup2 rw\n"
	if got := mountOf([]byte(mounts)); got != "/sys/fs/a b" {
		t.Errorf("mount %q", got)
	}
	for in, want := range map[string]string{
		"4:memory:/a\n0::/system.slice/x.service\n": "/system.slice/x.service",
		"0::/\n": "/", "4:memory:/a\n": "", "0::/../other\n": "",
	} {
		if got := ownOf([]byte(in)); got != want {
			t.Errorf("own of %q: %q", in, got)
		}
	}
	if h, err := Here(); err == nil && (h.Mount == "" || h.Own == "" || h.PID != os.Getpid()) {
		t.Errorf("%+v", h)
	}
}

// TestKernel uses the kernel's own v2 hierarchy for everything that needs no
// controllers. Where this user may not make a group, the test logs that, and checks only
// that the plan says so, too.
func TestKernel(t *testing.T) {
	h, err := Here()
	if err != nil {
		t.Fatalf("%v: the tests need cgroup v2, hybrid or not", err)
	}
	base := filepath.Join(h.Mount, h.Own, fmt.Sprintf("leasehold-test-%d", os.Getpid()))
	if err := os.Mkdir(base, 0o755); err != nil {
		if !errors.Is(err, fs.ErrPermission) && !errors.Is(err, unix.EROFS) {
			t.Fatal(err)
		}
		var why *UnavailableError
		if _, err := h.Plan(); !errors.As(err, &why) {
			t.Errorf("no group can be made, but the plan is: %v", err)
		}
		t.Logf("this user may not make groups in %s: the kernel's part is not tested", h.Mount)
		return
	}
	tree := &Tree{dir: base, files: kernel{}}
	defer func() {
		if err := unix.Rmdir(base); err != nil {
			t.Error(err)
		}
	}()
	g, err := tree.Create("one", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(g.Kill(), g.Remove(30*time.Second)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	}()
	dir, err := g.File()
	if err != nil {
		t.Fatal(err)
	}
	// Two processes, the second in a session of its own.
	cmd := exec.Command("/bin/sh", "-c", "setsid sleep 1000 & exec sleep 1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	if err := errors.Join(cmd.Start(), dir.Close()); err != nil {
		t.Fatal(err)
	}
	var pids []int
	for end := time.Now().Add(30 * time.Second); len(pids) < 2; time.Sleep(5 * time.Millisecond) {
		if pids, err = g.Processes(); err != nil || time.Now().After(end) {
			t.Fatalf("processes %v, %v", pids, err)
		}
	}
	if !slices.Contains(pids, cmd.Process.Pid) {
		t.Errorf("process %d is not among %v", cmd.Process.Pid, pids)
	}
	if again, err := Open(g.Dir(), cmd.Process.Pid); err != nil || again.Dir() != g.Dir() {
		t.Errorf("opened: %v", err)
	}
	if err := g.Remove(0); !errors.Is(err, unix.EBUSY) {
		t.Errorf("removed with processes: %v", err)
	}
	if err := g.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != unix.SIGKILL {
		t.Errorf("cgroup.kill: %v", cmd.ProcessState)
	}
	if err := g.Remove(30 * time.Second); err != nil {
		t.Error(err)
	}
	if err := unix.Access(g.Dir(), unix.F_OK); !errors.Is(err, unix.ENOENT) {
		t.Errorf("the group is still there: %v", err)
	}
}

// TestLimitsByTheKernel: the kernel enforces the limits of a browser's group. This needs
// a delegated group with the controllers, such as that of a container or of a virtual
// machine. Elsewhere the test checks only that the plan says what is missing.
func TestLimitsByTheKernel(t *testing.T) {
	h, err := Here()
	if err != nil {
		t.Fatalf("%v: the tests need cgroup v2, hybrid or not", err)
	}
	p, err := h.Plan()
	var why *UnavailableError
	if errors.As(err, &why) {
		t.Logf("not tried on this host: %v", err)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	tree, err := p.Do()
	if err != nil {
		t.Fatal(err)
	}
	limits := Limits{Memory: 64 << 20, Processes: 20, Weight: 50}
	g, err := tree.Create("test", limits)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(g.Kill(), g.Remove(30*time.Second)); err != nil {
			t.Error(err)
		}
	}()
	start := func(script string) *exec.Cmd {
		t.Helper()
		dir, err := g.File()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("/bin/sh", "-c", script)
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
		if err := errors.Join(cmd.Start(), dir.Close()); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	wait := func(what string, holds func(Usage) bool) Usage {
		t.Helper()
		for end := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
			u := g.Usage()
			switch {
			case holds(u):
				return u
			case time.Now().After(end):
				t.Fatalf("not met: %s: %+v", what, u)
			}
		}
	}
	// tail keeps a whole line in memory, and this line never ends.
	eater := start("exec tail /dev/zero")
	wait("it is slowed down above memory.high", func(u Usage) bool { return u.High != nil && *u.High > 0 })
	// The kernel lets it grow slowly from there on, so there is time for evidence.
	if u := wait("it goes beyond", func(u Usage) bool { return u.Memory != nil && *u.Memory > limits.Beyond() }); *u.Memory > limits.Memory || u.OOMKills == nil || *u.OOMKills > 0 {
		t.Errorf("it is not held between memory.high and memory.max: %+v", u)
	}
	if err := (kernel{}).write(filepath.Join(g.Dir(), "memory.high"), "max"); err != nil {
		t.Fatal(err)
	}
	wait("a process is killed at memory.max", func(u Usage) bool { return u.OOMKills != nil && *u.OOMKills > 0 })
	if err := eater.Wait(); err == nil || eater.ProcessState.Sys().(syscall.WaitStatus).Signal() != unix.SIGKILL {
		t.Errorf("the one that took too much: %v", eater.ProcessState)
	}
	many := start("for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22; do sleep 1000 & done; wait")
	wait("a process more is refused at pids.max", func(u Usage) bool { return u.PIDsMax != nil && *u.PIDsMax > 0 })
	if err := g.Kill(); err != nil {
		t.Error(err)
	}
	_ = many.Wait()                  // it was killed
	if h, err = Here(); err != nil { // this process has moved
		t.Fatal(err)
	}
	again, err := h.Plan()
	if err != nil || again.Base != p.Base || again.Move || len(again.Enable) != 0 {
		t.Errorf("the plan of the next launcher, in the leaf: %+v, %v", again, err)
	}
}
