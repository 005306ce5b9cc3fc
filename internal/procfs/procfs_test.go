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
		{"plain", "12 (cat)" + rest, Process{PID: 12, Parent: 1, Group: 40, State: 'S', StartTime: 777}, false},
		{"brackets and spaces in the name", "12 (a) Z (b )" + rest, Process{PID: 12, Parent: 1, Group: 40, State: 'S', StartTime: 777}, false},
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
