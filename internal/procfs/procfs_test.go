package procfs

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestParseStat(t *testing.T) {
	rest := " S 1 40 3 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 777 9 9"
	for _, c := range []struct {
		name, stat string
		want       Process
		fails      bool
	}{
		{"plain", "12 (cat)" + rest, Process{PID: 12, Parent: 1, Group: 40, State: 'S', StartTime: 777, CPU: 11}, false},
		{"brackets and spaces in the name", "12 (a) Z (b )" + rest, Process{PID: 12, Parent: 1, Group: 40, State: 'S', StartTime: 777, CPU: 11}, false},
		{"short", "12 (cat) S 1 40", Process{}, true},
		{"no name", "12 cat" + rest, Process{}, true},
		{"empty", "", Process{}, true},
		{"start time no number", "12 (cat)" + strings.Replace(rest, "777", "x", 1), Process{}, true},
	} {
		got, err := parseStat([]byte(c.stat))
		if (err != nil) != c.fails || got != c.want {
			t.Errorf("%s: got %+v, %v", c.name, got, err)
		}
	}
}

func TestParseMemory(t *testing.T) {
	page := uint64(os.Getpagesize())
	for _, c := range []struct {
		statm string
		want  Memory
		fails bool
	}{
		{"900 30 20 1 0 2 0\n", Memory{30 * page, 20 * page}, false},
		{"900 30", Memory{}, true},
		{"900 x 20 1", Memory{}, true},
		{"900 -1 20 1", Memory{}, true},
		{"", Memory{}, true},
	} {
		if got, err := parseStatm([]byte(c.statm)); (err != nil) != c.fails || got != c.want {
			t.Errorf("statm %q: %+v, %v", c.statm, got, err)
		}
	}
	for _, c := range []struct {
		rollup string
		want   uint64
		fails  bool
	}{
		{"55-7f ---p 0 0:0 0 [rollup]\nRss:     4144 kB\nPss:     1017 kB\nPss_Dirty: 632 kB\n", 1017 << 10, false},
		{"Pss_Dirty: 632 kB\n", 0, true},
		{"Pss: x kB\n", 0, true},
		{"Pss: 12\n", 0, true},
		{"", 0, true},
	} {
		if got, err := parseRollup([]byte(c.rollup)); (err != nil) != c.fails || got != c.want {
			t.Errorf("rollup %q: %d, %v", c.rollup, got, err)
		}
	}
}

// TestOwnMemory: the kernel's own files have the form that is read.
func TestOwnMemory(t *testing.T) {
	m, err := ReadMemory(os.Getpid())
	if err != nil || m.Resident == 0 || m.Shared > m.Resident {
		t.Errorf("%+v, %v", m, err)
	}
	pss, err := Proportional(os.Getpid())
	if err != nil || pss == 0 || pss > 4*m.Resident {
		t.Errorf("PSS %d of %+v, %v", pss, m, err)
	}
	threads, err := Threads(os.Getpid())
	if err != nil || len(threads) < 2 || threads[0].PID != os.Getpid() {
		t.Errorf("threads: %+v, %v", threads, err)
	}
	if _, err := Threads(-1); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("threads of nobody: %v", err)
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("12 (cat) S 1 40 3 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 777 9 9"))
	f.Add([]byte(") ("))
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := parseStat(b); err != nil && p != (Process{}) {
			t.Errorf("an error and a process: %+v", p)
		}
	})
}

func TestReadTellsZombiesAndTheGone(t *testing.T) {
	self, err := Read(os.Getpid())
	if err != nil || !self.Alive() || self.Parent != os.Getppid() || self.StartTime == 0 {
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
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(pid); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a process that is gone: %v", err)
	}
	if _, err := CommandLine(pid); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("command line of a process that is gone: %v", err)
	}
}
