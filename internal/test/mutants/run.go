package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// outcome is what a test run says.
type outcome int

const (
	passed outcome = iota
	failed
	// broken says that no test ran: the code does not compile, or the tests are not there.
	broken
)

// verdict is an outcome with what the test run said: which test failed, or what is broken.
type verdict struct {
	outcome outcome
	said    string
}

var (
	failure = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	crash   = regexp.MustCompile(`(?m)^(panic: .*|fatal error: .*|found unexpected goroutines.*|goleak: .*)`)
	running = regexp.MustCompile(`(?m)^\t\t?(Test\S+|Fuzz\S+) \(`)
)

// judge reads the output of go test. err is how the command ended.
func judge(output string, err error) verdict {
	var exit *exec.ExitError
	switch {
	case err != nil && !errors.As(err, &exit):
		return verdict{broken, err.Error()}
	case strings.Contains(output, "[build failed]"), strings.Contains(output, "[setup failed]"):
		return verdict{broken, "it does not compile:\n" + output}
	case strings.Contains(output, "[no tests to run]"), strings.Contains(output, "[no test files]"):
		return verdict{broken, "there is no such test:\n" + output}
	case err == nil:
		return verdict{passed, ""}
	}
	if strings.Contains(output, "panic: test timed out") {
		said := "time limit"
		if m := running.FindStringSubmatch(output); m != nil {
			said += " of " + m[1]
		}
		return verdict{failed, said}
	}
	if m := failure.FindStringSubmatch(output); m != nil {
		return verdict{failed, m[1]}
	}
	if m := crash.FindStringSubmatch(output); m != nil {
		return verdict{failed, m[1]}
	}
	if strings.Contains(output, "\nFAIL\t") || strings.HasPrefix(output, "FAIL\t") {
		return verdict{failed, "the end of the package's tests"}
	}
	return verdict{broken, "go test said neither that a test failed nor that all passed:\n" + output}
}

// tester runs tests on the code as it is, or with another file in the place of one.
type tester struct {
	root, dir string // dir is for files of its own
	// contained goes before a command, so that all that it started ends with it.
	contained []string
	// limits are how long the tests of a catcher may take, by its key. A mutant may wait
	// for ever.
	limits map[string]time.Duration
}

// firstLimit is for the tests on the code as it is.
const firstLimit = 5 * time.Minute

// unchanged runs the tests of a catcher on the code as it is, and notes what they take.
func (t *tester) unchanged(ctx context.Context, c Catcher) verdict {
	begun := time.Now()
	v := t.run(ctx, c, firstLimit)
	// The time of the build is in it, too, which makes the limit a generous one.
	t.limits[c.key()] = 20*time.Second + 4*time.Since(begun)
	return v
}

// mutated runs the tests of the mutant, which is the nth, until one notices. It changes no
// file of the tree.
func (t *tester) mutated(ctx context.Context, m Mutant, n int) verdict {
	source, err := m.apply(t.root)
	if err != nil {
		return verdict{broken, err.Error()}
	}
	changed, overlay := filepath.Join(t.dir, fmt.Sprintf("mutant%d.go", n)), filepath.Join(t.dir, fmt.Sprintf("overlay%d.json", n))
	b, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(t.root, m.File): changed}})
	if err = errors.Join(err, os.WriteFile(changed, source, 0o600), os.WriteFile(overlay, b, 0o600)); err != nil {
		return verdict{broken, err.Error()}
	}
	for _, c := range m.By {
		if v := t.run(ctx, c, t.limits[c.key()], "-overlay="+overlay); v.outcome != passed {
			return v
		}
	}
	return verdict{passed, ""}
}

func (t *tester) run(ctx context.Context, c Catcher, limit time.Duration, flags ...string) verdict {
	args := append([]string{"test", "-p=1", "-count=1", "-failfast", "-vet=off", "-timeout=" + limit.String()}, flags...)
	if len(c.Tests) > 0 {
		args = append(args, "-run="+anyOf(c.Tests))
	}
	if len(c.Without) > 0 {
		args = append(args, "-skip="+anyOf(c.Without))
	}
	args = append(append(slices.Clone(t.contained), goCommand()), append(args, "./"+c.Package)...)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = t.root
	// More schedules than make test plays: some rules are missed in one of many only.
	cmd.Env = append(os.Environ(), "LEASEHOLD_SEEDS=20")
	// What a test leaves running must not keep the pipe of the output open.
	cmd.WaitDelay = 10 * time.Second
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	err := cmd.Run()
	if ctx.Err() != nil {
		return verdict{broken, fmt.Sprint("stopped: ", context.Cause(ctx))}
	}
	return judge(output.String(), err)
}

// contained is what goes before a command, so that it runs in a PID namespace of its own: what
// its tests leave running ends with it, such as the browsers of a test that its time limit ends.
// It is nothing where no such namespace can be had, which takes root.
func contained(ctx context.Context) []string {
	command := []string{"unshare", "--pid", "--fork", "--kill-child", "--mount-proc"}
	if exec.CommandContext(ctx, command[0], append(command[1:len(command):len(command)], "true")...).Run() != nil {
		return nil
	}
	// The shell is the namespace's first process, which has to wait for those that lose theirs.
	return append(command, "sh", "-c", `"$@"; exit $?`, "sh")
}

// goCommand is the go command of the Makefile.
func goCommand() string {
	if name := os.Getenv("GO"); name != "" {
		return name
	}
	return "go"
}
