package procfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// fakeProc is a /proc of its own, with the files given by their paths below it.
func fakeProc(t *testing.T, files map[string]string) procfs.FS {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	proc, err := procfs.NewFS(dir)
	if err != nil {
		t.Fatal(err)
	}
	return proc
}

// statLine is a stat file as the kernel writes it, of a process 12 with this name.
func statLine(name string) string {
	return "12 (" + name + ") S 1 40 40 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 777 9646080 445 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 3 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
}

func TestReadStat(t *testing.T) {
	sound := Process{PID: 12, Parent: 1, Group: 40, State: 'S', StartTime: 777, CPU: 11}
	for _, c := range []struct {
		name, stat string
		want       Process
		fails      bool
	}{
		{"plain", statLine("cat"), sound, false},
		{"brackets and spaces in the name", statLine("a) Z (b "), sound, false},
		{"short", "12 (cat) S 1 40", Process{}, true},
		{"no name", strings.Replace(statLine(""), "()", "cat", 1), Process{}, true},
		{"empty", "", Process{}, true},
		{"state of two letters", strings.Replace(statLine("cat"), " S ", " SS ", 1), Process{}, true},
		{"start time no number", strings.Replace(statLine("cat"), "777", "x", 1), Process{}, true},
	} {
		proc, err := fakeProc(t, map[string]string{"12/stat": c.stat}).Proc(12)
		if err != nil {
			t.Fatal(err)
		}
		got, err := readStat(proc)
		if (err != nil) != c.fails || got != c.want {
			t.Errorf("%s: got %+v, %v", c.name, got, err)
		}
	}
}

// TestListLeavesOut has a process that ended between the listing and the reading,
// and files that are no processes.
func TestListLeavesOut(t *testing.T) {
	proc := fakeProc(t, map[string]string{"12/stat": statLine("cat"), "13/cmdline": "", "uptime": "1 1", "sys/stat": ""})
	all, err := listProcesses(proc)
	if err != nil || len(all) != 1 || all[0].PID != 12 {
		t.Errorf("%+v, %v", all, err)
	}
	if all, err := listProcesses(fakeProc(t, map[string]string{"12/stat": "nonsense"})); err == nil {
		t.Errorf("a stat file that cannot be read: %+v", all)
	}
}

func TestProcessError(t *testing.T) {
	if err := processError(7, nil); err != nil {
		t.Errorf("no error: %v", err)
	}
	ended := processError(7, &fs.PathError{Op: "read", Path: "/proc/7/stat", Err: unix.ESRCH})
	if !isGone(ended) || !strings.Contains(ended.Error(), "process 7") {
		t.Errorf("a process that ended while it was read: %v", ended)
	}
	hidden := processError(7, &fs.PathError{Op: "open", Path: "/proc/7/stat", Err: unix.EPERM})
	if !errors.Is(hidden, fs.ErrPermission) || isGone(hidden) {
		t.Errorf("a hidden process: %v", hidden)
	}
}

// FuzzReadStatName: no name that a process gives itself changes what else is read of
// it.
func FuzzReadStatName(f *testing.F) {
	for _, name := range []string{"cat", "a) Z (b ", ")", "(", "\n", "\x00\xff"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		proc, err := fakeProc(t, map[string]string{"12/stat": statLine(name)}).Proc(12)
		if err != nil {
			t.Fatal(err)
		}
		want := Process{PID: 12, Parent: 1, Group: 40, State: 'S', StartTime: 777, CPU: 11}
		if got, err := readStat(proc); err != nil || got != want {
			t.Errorf("%q: %+v, %v", name, got, err)
		}
	})
}

func TestReadTellsZombiesAndTheGone(t *testing.T) {
	self, err := Read(os.Getpid())
	if err != nil || !self.Alive() || self.Parent != os.Getppid() || self.Group != unix.Getpgrp() || self.StartTime == 0 {
		t.Fatalf("self: %+v, %v", self, err)
	}
	cmd := exec.Command("/bin/cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	all, err := List()
	if err != nil || !slices.ContainsFunc(all, func(p Process) bool { return p.PID == pid && p.Alive() }) {
		t.Errorf("the child is not listed: %v", err)
	}
	in.Close()
	for p := (Process{PID: pid}); p.State != 'Z'; { // nobody reaps it before Wait
		if p, err = Read(pid); err != nil {
			t.Fatal(err)
		}
	}
	if p, err := Read(pid); err != nil || p.Alive() {
		t.Errorf("a zombie is alive: %+v, %v", p, err)
	}
	if line, err := CommandLine(pid); err != nil || len(line) != 0 {
		t.Errorf("command line of a zombie: %q, %v", line, err)
	}
	if m, err := ReadMemory(pid); err != nil || m != (Memory{}) {
		t.Errorf("memory of a zombie: %+v, %v", m, err)
	}
	if _, err := Proportional(pid); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("PSS of a zombie: %v", err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	for what, read := range map[string]func(int) error{
		"process":      func(pid int) error { _, err := Read(pid); return err },
		"command line": func(pid int) error { _, err := CommandLine(pid); return err },
		"threads":      func(pid int) error { _, err := Threads(pid); return err },
		"memory":       func(pid int) error { _, err := ReadMemory(pid); return err },
		"PSS":          func(pid int) error { _, err := Proportional(pid); return err },
	} {
		for _, pid := range []int{pid, -1} {
			if err := read(pid); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), fmt.Sprintf("process %d", pid)) {
				t.Errorf("%s of a process that is gone: %v", what, err)
			}
		}
	}
}

// TestCommandLineIsRaw: arguments that are empty, or end with spaces or zero bytes,
// come as they are.
func TestCommandLineIsRaw(t *testing.T) {
	cmd := exec.Command("/bin/sh", "-c", "echo up; read line", "sh", "--user-data-dir=/a ", "", "")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 3)); err != nil { // it runs, so its arguments are there
		t.Fatal(err)
	}
	want := strings.Join(cmd.Args, "\x00") + "\x00"
	if line, err := CommandLine(cmd.Process.Pid); err != nil || string(line) != want {
		t.Errorf("got %q, %v: want %q", line, err, want)
	}
	in.Close()
	_ = cmd.Wait() // read meets the end of its input and fails
}

// TestGroup: a group's members are those that the list of all processes shows, with a
// leader that is a zombie, and no others.
func TestGroup(t *testing.T) {
	cmd := exec.Command("/bin/sh", "-c", "cat <&3 & cat <&3 & echo up")
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	held, release, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.ExtraFiles = []*os.File{held}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	group := cmd.Process.Pid
	for p := (Process{}); p.State != 'Z'; { // nobody reaps it before Wait
		if p, err = Read(group); err != nil {
			t.Fatal(err)
		}
	}
	all, err := List()
	if err != nil {
		t.Fatal(err)
	}
	want := slices.DeleteFunc(all, func(p Process) bool { return p.Group != group })
	got, err := Group(group)
	if err != nil || len(got) != 3 || !slices.EqualFunc(got, want, Process.Same) {
		t.Errorf("%+v, %v: want %+v", got, err, want)
	}
	if err := errors.Join(held.Close(), release.Close(), cmd.Wait()); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); slices.ContainsFunc(got, Process.Alive); {
		if got, err = Group(group); err != nil || time.Now().After(end) {
			t.Fatalf("left of a group that ended: %+v, %v", got, err)
		}
	}
	// The process of that id is shown, although it leads no group.
	child := exec.Command("/bin/sleep", "100")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if got, err := Group(child.Process.Pid); err != nil || len(got) != 1 || got[0].Group == got[0].PID {
		t.Errorf("%+v, %v", got, err)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // it was killed
}

func TestThreads(t *testing.T) {
	threads, err := Threads(os.Getpid())
	if err != nil || len(threads) < 2 || threads[0].PID != os.Getpid() {
		t.Errorf("threads: %+v, %v", threads, err)
	}
	seen := map[int]bool{}
	for _, one := range threads {
		if seen[one.PID] {
			t.Errorf("thread %d twice", one.PID)
		}
		seen[one.PID] = true
	}
}

// TestRan: the time of a process that works grows, and one that sleeps is asleep without.
func TestRan(t *testing.T) {
	before, _, err := Ran(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Millisecond); time.Now().Before(end); {
	}
	if now, asleep, err := Ran(os.Getpid()); err != nil || now <= before || asleep {
		t.Errorf("%v after %v, asleep: %v, %v", now, before, asleep, err)
	}
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		first, asleep, err := Ran(cmd.Process.Pid)
		time.Sleep(10 * time.Millisecond)
		second, still, err2 := Ran(cmd.Process.Pid)
		if err == nil && err2 == nil && first == second && asleep && still {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("it does not sleep: %v, %v, %v, %v, %v, %v", first, asleep, err, second, still, err2)
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if _, _, err := Ran(cmd.Process.Pid); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of one that is gone: %v", err)
	}
}
