// Package clients runs real CDP and NATS clients of other languages as child
// processes of tests: the scripts beside this file, on Node.js. What they need is
// pinned in package-lock.json and installed by "make deps".
package clients

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The scripts.
const (
	Playwright = "playwright.mjs" // URL ACTIONS [HEADERS]
	Puppeteer  = "puppeteer.mjs"  // URL ACTIONS [PACKAGE]
	CRI        = "cri.mjs"        // HOST:PORT ACTIONS
	Selenium   = "selenium.mjs"   // HOST:PORT ACTIONS
	MCP        = "mcp.mjs"        // BIN ACTIONS ARG...
	NATS       = "nats.mjs"       // URL SUBJECT
)

// Interactive stands in the place of ACTIONS where Do and Send give them.
const Interactive = "-"

// Dir returns the folder with the scripts.
func Dir() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(file)
}

// Action is one thing for a script to do: its name under "action", and its
// parameters, as the head of the script lists them.
type Action map[string]any

// Line is what a script prints after each action.
type Line struct {
	Action string          `json:"action"`
	OK     bool            `json:"ok"`
	Value  json.RawMessage `json:"value"`
	Error  string          `json:"error"`
}

// answerTimeout is how long a test waits for a line before it fails.
const answerTimeout = 90 * time.Second

// Client is one script that runs.
type Client struct {
	// Pid is its process.
	Pid int

	name   string
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	lines  chan Line // closed when the script has ended
	err    error     // of the process; after done
	done   chan struct{}
	stderr bytes.Buffer // after done
}

// Actions is the ACTIONS argument for a script.
func Actions(list ...Action) string {
	b, err := json.Marshal(list)
	if err != nil {
		panic(fmt.Sprintf("actions of a test: %v", err))
	}
	return string(b)
}

// Start runs a script of this folder. It is killed when the test ends. A missing
// Node.js or package fails the test and says how to get it.
func Start(t testing.TB, script string, args ...string) *Client {
	t.Helper()
	if err := installed(); err != nil {
		t.Fatal(err)
	}
	return start(t, script, exec.Command("node", append([]string{filepath.Join(Dir(), script)}, args...)...))
}

// The Go programs: clients in modules of their own, for what cannot be in the
// build of this one. Both do, in this order, what their heads list, and take
// URL SITE DIR.
const (
	Chromedp014 = "chromedp014"
	GoRod       = "gorod"
)

// Build compiles one of the Go programs and returns the path of its binary.
func Build(t testing.TB, program string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), program)
	cmd := exec.Command("go", "build", "-o", binary, ".")
	cmd.Dir = filepath.Join(Dir(), program)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", program, err, out)
	}
	return binary
}

// StartProgram runs what Build returned. It is killed when the test ends.
func StartProgram(t testing.TB, binary string, args ...string) *Client {
	t.Helper()
	return start(t, filepath.Base(binary), exec.Command(binary, args...))
}

func start(t testing.TB, script string, cmd *exec.Cmd) *Client {
	t.Helper()
	c := &Client{name: script, cmd: cmd, lines: make(chan Line, 64), done: make(chan struct{})}
	// A test binary that dies leaves no worker behind.
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	c.stdin, c.cmd.Stderr = stdin, &c.stderr
	started := make(chan error, 1)
	go c.run(stdout, started)
	if err := <-started; err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	c.Pid = c.cmd.Process.Pid
	t.Cleanup(func() {
		c.Kill()
		// What nobody read must not keep the reader from its end.
		for range c.lines {
		}
		<-c.done
	})
	return c
}

// run starts the process and reads it to its end. The parent-death signal goes
// by the thread that started the process, so this goroutine keeps its thread.
func (c *Client) run(stdout io.Reader, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(c.done)
	defer close(c.lines)
	err := c.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	scanner := bufio.NewScanner(stdout)
	scanner.Buffer(nil, 64<<20)
	for scanner.Scan() {
		var line Line
		if err := json.Unmarshal(scanner.Bytes(), &line); err != nil {
			line = Line{Action: "stdout", Error: scanner.Text()}
		}
		c.lines <- line
	}
	c.err = errors.Join(scanner.Err(), c.cmd.Wait())
}

// installed returns an error that says what to do where a part is missing. It
// looks once per process.
var installed = sync.OnceValue(func() error {
	if _, err := exec.LookPath("node"); err != nil {
		return fmt.Errorf("node: %w: install Node.js 20 or later with npm (Debian: apt-get install nodejs npm)", err)
	}
	if _, err := os.Stat(filepath.Join(Dir(), "node_modules")); err != nil {
		return fmt.Errorf("the client packages are not installed: run \"make deps\": %w", err)
	}
	return nil
})

// Next returns the script's next line, or io.EOF when it has ended.
func (c *Client) Next() (Line, error) {
	select {
	case line, ok := <-c.lines:
		if !ok {
			return Line{}, io.EOF
		}
		return line, nil
	case <-time.After(answerTimeout):
		return Line{}, fmt.Errorf("%s (pid %d) printed nothing for %v", c.name, c.Pid, answerTimeout)
	}
}

// Expect returns the value of the next line, which has to be of this action and
// without an error; anything else fails the test.
func (c *Client) Expect(t testing.TB, action string) json.RawMessage {
	t.Helper()
	line, err := c.Next()
	switch {
	case errors.Is(err, io.EOF):
		<-c.done
		t.Fatalf("%s ended (%v) before %s: %s", c.name, c.err, action, c.stderr.String())
	case err != nil:
		t.Fatal(err)
	case !line.OK || line.Action != action:
		t.Fatalf("%s: want %s, got %s: %s", c.name, action, line.Action, line.Error)
	}
	return line.Value
}

// Send gives an Interactive script its next action.
func (c *Client) Send(t testing.TB, a Action) {
	t.Helper()
	b, err := json.Marshal(a)
	if err != nil {
		t.Fatalf("%s: action: %v", c.name, err)
	}
	if _, err := c.stdin.Write(append(b, '\n')); err != nil {
		t.Fatalf("%s: %v", c.name, err)
	}
}

// Do sends an action to an Interactive script and returns its value.
func (c *Client) Do(t testing.TB, a Action) json.RawMessage {
	t.Helper()
	c.Send(t, a)
	return c.Expect(t, fmt.Sprint(a["action"]))
}

// Kill ends the process with SIGKILL: a worker that vanishes.
func (c *Client) Kill() {
	// It may have ended by itself.
	if err := c.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		panic(fmt.Sprintf("%s (pid %d): %v", c.name, c.Pid, err))
	}
}

// Wait lets an Interactive script end after what it was given, and returns when
// the process has ended: nil after exit code 0. Lines that were not read are
// dropped.
func (c *Client) Wait() error {
	closed := c.stdin.Close()
	for range c.lines {
	}
	<-c.done
	if errors.Is(closed, os.ErrClosed) {
		closed = nil
	}
	return errors.Join(c.err, closed)
}

// Stderr returns what the script printed there. Only after Wait.
func (c *Client) Stderr() string { return c.stderr.String() }
