// Package clients runs real CDP and NATS clients in other languages as child processes
// of tests. The clients are the scripts beside this file, which need Node.js. Their
// packages are pinned in package-lock.json and installed by "make deps". Those in more are
// large: "make clients-all" installs and drives them.
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

	"leasehold/internal/test/source"
)

// The scripts, with their arguments.
const (
	Playwright = "playwright.mjs" // URL ACTIONS [HEADERS] [PACKAGE]
	Puppeteer  = "puppeteer.mjs"  // URL ACTIONS [PACKAGE]
	CRI        = "cri.mjs"        // HOST:PORT ACTIONS
	Selenium   = "selenium.mjs"   // HOST:PORT ACTIONS
	MCP        = "mcp.mjs"        // BIN ACTIONS ARG...
	NATS       = "nats.mjs"       // URL SUBJECT

	AgentBrowser = "more/agent-browser.mjs" // URL ACTIONS DIR
	DevTools     = "more/devtools.mjs"      // CHROMIUM ACTIONS DIR
	Lighthouse   = "more/lighthouse.mjs"    // URL ACTIONS
	Stagehand    = "more/stagehand.mjs"     // URL ACTIONS MODEL
	Taiko        = "more/taiko.mjs"         // HOST:PORT ACTIONS
)

// Interactive is the argument ACTIONS of a script that gets its actions from Do and
// Send.
const Interactive = "-"

// Dir returns the folder with the scripts.
func Dir() string {
	return source.Path("internal/test/clients")
}

// Action is one thing for a script to do. It has the action's name under "action", and
// the parameters that the head of the script lists.
type Action map[string]any

// Line is what a script prints after each action.
type Line struct {
	Action string          `json:"action"`
	OK     bool            `json:"ok"`
	Value  json.RawMessage `json:"value"`
	Error  string          `json:"error"`
}

// answerTimeout is how long Next waits for a line.
const answerTimeout = 90 * time.Second

// Client is one running script or program.
type Client struct {
	// Pid is its process id.
	Pid int

	name   string
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	lines  chan Line // closed when the script has ended
	err    error     // how the process ended; set when done is closed
	done   chan struct{}
	stderr bytes.Buffer // complete when done is closed
}

// Actions returns the argument ACTIONS for a list of actions.
func Actions(list ...Action) string {
	b, err := json.Marshal(list)
	if err != nil {
		panic(fmt.Sprintf("actions of a test: %v", err))
	}
	return string(b)
}

// Start runs a script of this folder, which is killed when the test ends. If Node.js or
// a package is missing, the test fails with the way to install it.
func Start(t testing.TB, script string, args ...string) *Client {
	t.Helper()
	if err := installed(); err != nil {
		t.Fatal(err)
	}
	if filepath.Dir(script) == "more" {
		if err := moreInstalled(); err != nil {
			t.Fatal(err)
		}
	}
	return start(t, script, exec.Command("node", append([]string{"--require", CodeCache(), filepath.Join(Dir(), script)}, args...)...))
}

// CodeCache returns the module that Node.js loads first (--require), so that a client does
// not compile its packages at each start.
func CodeCache() string { return filepath.Join(Dir(), "codecache.cjs") }

// The Go programs: clients in modules of their own, because their dependencies cannot
// be in this one. Both take URL SITE DIR, and perform the actions that their package
// comments list, in that order.
const (
	Chromedp014 = "chromedp014"
	GoRod       = "gorod"
)

// Build compiles one of the Go programs, and returns the path of its binary.
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

// StartProgram runs a binary that Build returned. It is killed when the test ends.
func StartProgram(t testing.TB, binary string, args ...string) *Client {
	t.Helper()
	return start(t, filepath.Base(binary), exec.Command(binary, args...))
}

func start(t testing.TB, script string, cmd *exec.Cmd) *Client {
	t.Helper()
	c := &Client{name: script, cmd: cmd, lines: make(chan Line, 64), done: make(chan struct{})}
	// The process must not outlive a test binary that dies.
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
		// Lines that nobody read would block the reader.
		for range c.lines {
		}
		<-c.done
	})
	return c
}

// run starts the process and reads its output to the end. The parent-death signal is
// sent when the thread that started the process ends, so this goroutine keeps its
// thread.
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

// installed returns an error with the way to install what is missing. It checks once
// per process.
var installed = sync.OnceValue(func() error {
	if _, err := exec.LookPath("node"); err != nil {
		return fmt.Errorf("node: %w: install Node.js 20 or later with npm (Debian: apt-get install nodejs npm)", err)
	}
	if _, err := os.Stat(filepath.Join(Dir(), "node_modules")); err != nil {
		return fmt.Errorf("the client packages are not installed: run \"make deps\": %w", err)
	}
	return nil
})

// moreInstalled is installed for the scripts in more.
var moreInstalled = sync.OnceValue(func() error {
	if _, err := os.Stat(filepath.Join(Dir(), "more", "node_modules")); err != nil {
		return fmt.Errorf("the large client packages are not installed: run \"make clients-all\": %w", err)
	}
	return nil
})

// Next returns the script's next line, or io.EOF if the script has ended.
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

// Expect returns the value of the next line. The test fails unless that line is of this
// action and has no error.
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

// Send sends an Interactive script its next action.
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

// Do sends an action to an Interactive script, and returns its value.
func (c *Client) Do(t testing.TB, a Action) json.RawMessage {
	t.Helper()
	c.Send(t, a)
	return c.Expect(t, fmt.Sprint(a["action"]))
}

// Kill kills the process by SIGKILL, like a worker that vanishes.
func (c *Client) Kill() {
	// The process may have ended by itself.
	if err := c.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		panic(fmt.Sprintf("%s (pid %d): %v", c.name, c.Pid, err))
	}
}

// Wait lets an Interactive script end after the actions that it got, and returns when
// the process has ended, with nil for exit status 0. Lines that were not read are
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

// Stderr returns what the script printed to its standard error. It may be called only
// after Wait.
func (c *Client) Stderr() string { return c.stderr.String() }
