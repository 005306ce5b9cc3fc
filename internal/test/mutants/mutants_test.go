package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// root is the module's.
const root = "../../.."

// TestTheListFitsTheCode: each piece of source stands in its file once, the code still
// parses with its replacement, and the tests that have to notice are there.
func TestTheListFitsTheCode(t *testing.T) {
	t.Parallel()
	list, err := all(root)
	if err == nil {
		err = check(root, list)
	}
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]bool{}
	for _, m := range list {
		files[m.File] = true
	}
	if len(list) < 60 || len(files) < 20 {
		t.Errorf("%d mutants of %d files", len(list), len(files))
	}
}

// TestAListThatDoesNotFitIsRefused, with the mutant's name.
func TestAListThatDoesNotFitIsRefused(t *testing.T) {
	t.Parallel()
	fine := Mutant{"one", "lease/fence.go", "f.Shut(ErrExpired)", "_ = 1", []Catcher{by("lease", "TestTimings")}}
	if err := check(root, []Mutant{fine}); err != nil && !strings.Contains(err.Error(), "is no mutant") {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Mutant){
		"is not there":         func(m *Mutant) { m.From = "no such piece" },
		"is there twice":       func(m *Mutant) { m.From = "return" },
		"changes nothing":      func(m *Mutant) { m.To = m.From },
		"does not parse":       func(m *Mutant) { m.To = "if {" },
		"no such file":         func(m *Mutant) { m.File = "lease/none.go" },
		"nobody has to notice": func(m *Mutant) { m.By = nil },
		"no such test":         func(m *Mutant) { m.By = []Catcher{by("lease", "TestNone")} },
		"no such tests":        func(m *Mutant) { m.By = []Catcher{by("scripts")} },
	} {
		bad := fine
		bad.Name = name
		change(&bad)
		if err := check(root, []Mutant{bad}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := check(root, []Mutant{fine, fine}); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("the same name twice: %v", err)
	}
	if _, err := matching([]Mutant{fine}, "^two$"); err == nil {
		t.Error("a pattern that nothing matches is taken")
	}
}

// TestOnlyATestThatFailsIsACatch: what does not compile, or runs no test, is a mistake in
// the list.
func TestOnlyATestThatFailsIsACatch(t *testing.T) {
	t.Parallel()
	exit := error(&exec.ExitError{})
	for name, tt := range map[string]struct {
		output string
		err    error
		want   outcome
		said   string
	}{
		"all pass":           {"ok  \tleasehold/lease\t0.1s\n", nil, passed, ""},
		"one fails":          {"--- FAIL: TestUphold (0.00s)\n    --- FAIL: TestUphold/gone (0.00s)\nFAIL\nFAIL\tleasehold/lease\t0.1s\n", exit, failed, "TestUphold"},
		"a panic":            {"panic: close of closed channel\n\ngoroutine 1\nFAIL\tleasehold/lease\t0.1s\n", exit, failed, "panic: close of closed channel"},
		"it never ends":      {"panic: test timed out after 20s\n\trunning tests:\n\t\tTestWatch (20s)\n\nFAIL\tleasehold/lease\t20s\n", exit, failed, "time limit of TestWatch"},
		"a goroutine stays":  {"PASS\nfound unexpected goroutines: [x]\nFAIL\tleasehold/lease\t0.1s\n", exit, failed, "found unexpected goroutines: [x]"},
		"an exit":            {"FAIL\tleasehold/lease\t0.1s\n", exit, failed, "the end of the package's tests"},
		"it does not build":  {"# leasehold/lease\nx.go:1: undefined\nFAIL\tleasehold/lease [build failed]\n", exit, broken, "does not compile"},
		"no such package":    {"FAIL\t./none [setup failed]\n", exit, broken, "does not compile"},
		"no test is there":   {"ok  \tleasehold/lease\t0.1s [no tests to run]\n", nil, broken, "no such test"},
		"no go command":      {"", errors.New("not found"), broken, "not found"},
		"something is wrong": {"go: cannot\n", exit, broken, "neither"},
	} {
		v := judge(tt.output, tt.err)
		if v.outcome != tt.want || !strings.Contains(v.said, tt.said) {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// TestWhatATestLeavesEndsWithIt, since the pipe of the output is open as long as anything of it
// runs.
func TestWhatATestLeavesEndsWithIt(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	command := contained(ctx)
	if command == nil {
		if os.Getuid() != 0 {
			t.Skip("only root makes PID namespaces")
		}
		t.Fatal("root cannot make a PID namespace with unshare")
	}
	command = append(command, "sh", "-c", "setsid sleep 1000 & echo begun")
	said, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput()
	if err != nil || string(said) != "begun\n" {
		t.Errorf("%q, %v", said, err)
	}
}
