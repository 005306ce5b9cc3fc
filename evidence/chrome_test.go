package evidence_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const patience = 30 * time.Second

// browser is a real Chromium on a pipe, and the least that talks to one.
type browser struct {
	t  testing.TB
	in *os.File

	mu     sync.Mutex
	last   int
	calls  map[int]chan message
	events map[string]chan message // by session and method
}

type message struct {
	ID        int             `json:"id"`
	Method    string          `json:"method"`
	SessionID string          `json:"sessionId"`
	Params    json.RawMessage `json:"params"`
	Result    json.RawMessage `json:"result"`
	Error     *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// startBrowser runs Chromium on a profile of the test's own until the test ends.
func startBrowser(t testing.TB) *browser {
	t.Helper()
	theirIn, ourIn, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ourOut, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	profile, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/usr/bin/chromium", "--remote-debugging-pipe", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
		"--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
		"--enable-features=CDPScreenshotNewSurface", "--user-data-dir="+profile, "about:blank")
	cmd.ExtraFiles = []*os.File{theirIn, theirOut}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var output bytes.Buffer
	cmd.Stderr = &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	b := &browser{t: t, in: ourIn, calls: map[int]chan message{}, events: map[string]chan message{}}
	_, _ = theirIn.Close(), theirOut.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.read(ourOut)
	}()
	t.Cleanup(func() {
		// Chromium ends in order when its pipe does.
		_ = ourIn.Close()
		late := time.AfterFunc(patience, func() {
			t.Error("chromium did not end with its pipe")
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		})
		_ = cmd.Wait()
		late.Stop()
		<-done
		_ = ourOut.Close()
		waitForEnd(t, profile)
		if t.Failed() {
			t.Logf("chromium printed:\n%s", output.String())
		}
	})
	return b
}

// waitForEnd waits until no process names the profile.
func waitForEnd(t testing.TB, profile string) {
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		left := ""
		for _, path := range lines {
			if b, err := os.ReadFile(path); err == nil && bytes.Contains(b, []byte(profile)) {
				left = path
			}
		}
		if left == "" {
			return
		}
		if time.Now().After(end) {
			t.Errorf("%s still uses %s", left, profile)
			return
		}
	}
}

func (b *browser) read(out io.Reader) {
	r := bufio.NewReader(out)
	for {
		raw, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		var m message
		if err := json.Unmarshal(raw[:len(raw)-1], &m); err != nil {
			b.t.Errorf("chromium sent %.200q: %v", raw, err)
			return
		}
		if m.ID == 0 {
			select {
			case b.event(m.SessionID, m.Method) <- m:
			default:
			}
			continue
		}
		b.mu.Lock()
		c := b.calls[m.ID]
		delete(b.calls, m.ID)
		b.mu.Unlock()
		if c != nil {
			c <- m
		}
	}
}

func (b *browser) event(session, method string) chan message {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := session + " " + method
	if b.events[key] == nil {
		b.events[key] = make(chan message, 64)
	}
	return b.events[key]
}

// await waits for the next event of a kind.
func (b *browser) await(session, method string) {
	b.t.Helper()
	select {
	case <-b.event(session, method):
	case <-time.After(patience):
		b.t.Fatalf("no %s came", method)
	}
}

func (b *browser) post(session, method string, params any) <-chan message {
	if params == nil {
		params = struct{}{}
	}
	c := make(chan message, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last++
	b.calls[b.last] = c
	raw, err := json.Marshal(struct {
		ID        int    `json:"id"`
		Method    string `json:"method"`
		Params    any    `json:"params"`
		SessionID string `json:"sessionId,omitempty"`
	}{b.last, method, params, session})
	if err == nil {
		_, err = b.in.Write(append(raw, 0))
	}
	if err != nil {
		b.t.Errorf("%s: %v", method, err)
	}
	return c
}

// Call implements evidence.Caller.
func (b *browser) Call(ctx context.Context, session, method string, params, result any) error {
	select {
	case m := <-b.post(session, method, params):
		if m.Error != nil {
			return fmt.Errorf("%s: %s", method, m.Error.Message)
		}
		if result == nil {
			return nil
		}
		return json.Unmarshal(m.Result, result)
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", method, ctx.Err())
	}
}

func (b *browser) must(session, method string, params, result any) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	if err := b.Call(ctx, session, method, params, result); err != nil {
		b.t.Fatal(err)
	}
}

// open opens a page and waits until it is loaded.
func (b *browser) open(url string) (target, session string) {
	b.t.Helper()
	var t struct {
		TargetID string `json:"targetId"`
	}
	b.must("", "Target.createTarget", map[string]any{"url": "about:blank"}, &t)
	var s struct {
		SessionID string `json:"sessionId"`
	}
	b.must("", "Target.attachToTarget", map[string]any{"targetId": t.TargetID, "flatten": true}, &s)
	b.must(s.SessionID, "Page.enable", nil, nil)
	b.must(s.SessionID, "Inspector.enable", nil, nil)
	b.must(s.SessionID, "Page.navigate", map[string]any{"url": url}, nil)
	b.await(s.SessionID, "Page.loadEventFired")
	return t.TargetID, s.SessionID
}

// eval runs script in a page and waits for its value.
func (b *browser) eval(session, script string) string {
	b.t.Helper()
	var r struct {
		Result struct {
			Value any `json:"value"`
		} `json:"result"`
	}
	b.must(session, "Runtime.evaluate", map[string]any{"expression": script}, &r)
	return strings.TrimSpace(fmt.Sprint(r.Result.Value))
}

// drawn waits until the page was painted: a tab that goes to the background
// before has nothing to show.
func (b *browser) drawn(session string) {
	b.t.Helper()
	b.must(session, "Runtime.evaluate", map[string]any{
		"expression":   "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))",
		"awaitPromise": true,
	}, nil)
}
