package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"leasehold/internal/procfs"
	"leasehold/internal/test/clients"
	"leasehold/launcher/api"
	"leasehold/lease"
)

// execRun is a running "leasehold exec" whose command is a Playwright worker.
type execRun struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
	child int // the process id of the command
}

// exec starts a worker under "leasehold exec". before and after are shell commands that
// the command runs before and after the worker.
func (s *sidecar) exec(t *testing.T, profile string, flags []string, before, after string, act ...clients.Action) *execRun {
	t.Helper()
	script := fmt.Sprintf("echo $$; %s; node '%s' \"$LEASEHOLD_CDP_URL\" '%s'%s",
		before, filepath.Join(clients.Dir(), clients.Playwright), clients.Actions(act...), after)
	if after == "" {
		script = strings.Replace(script, "; node", "; exec node", 1)
	}
	args := slices.Concat([]string{"exec", "--profile", profile, "--create", "--wait", "30s"}, flags, []string{"--", "sh", "-c", script})
	r := &execRun{cmd: exec.Command(binary, args...)}
	r.cmd.Env = append(os.Environ(), "LEASEHOLD_URL="+s.URL)
	r.cmd.Stderr = os.Stderr
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill() // where the test failed
		_ = r.cmd.Wait()
	})
	r.lines = bufio.NewScanner(out)
	r.lines.Buffer(nil, 1<<20)
	if r.child, err = strconv.Atoi(r.line(t)); err != nil {
		t.Fatal(err)
	}
	return r
}

// line is the next line that the command printed.
func (r *execRun) line(t *testing.T) string {
	t.Helper()
	if !r.lines.Scan() {
		t.Fatalf("the command printed no more: %v", r.lines.Err())
	}
	return r.lines.Text()
}

// did waits until the worker did n actions, the connection among them.
func (r *execRun) did(t *testing.T, n int) {
	t.Helper()
	for range n {
		var l clients.Line
		if text := r.line(t); json.Unmarshal([]byte(text), &l) != nil || !l.OK {
			t.Fatalf("the worker printed %s", text)
		}
	}
}

// ends waits for the end of exec, and returns its exit status.
func (r *execRun) ends(t *testing.T) int {
	t.Helper()
	for r.lines.Scan() {
	}
	_ = r.cmd.Wait() // the status says it
	return r.cmd.ProcessState.ExitCode()
}

var (
	post       = clients.Action{"action": "evaluate", "expression": `fetch("/api", {method: "POST", body: "x"}).then((r) => r.status)`}
	disconnect = clients.Action{"action": "disconnect"}
	stayThere  = clients.Action{"action": "waitForever"}
)

// TestExec: a worker under exec that touched the account and then died, or failed, is judged as one without
// exec, and the data of its checkpoint comes back to whoever resumes.
func TestExec(t *testing.T) {
	t.Parallel()
	s, web := start(t, "--reconnect-grace", "5s"), newSite(t)
	t.Run("resumes", func(t *testing.T) { execResumesWithTheCheckpointsData(t, s, web) })
	visit := clients.Action{"action": "goto", "url": web.URL}
	killExec := func(sig syscall.Signal) func(*execRun) error {
		return func(r *execRun) error { return r.cmd.Process.Signal(sig) }
	}
	for _, tt := range []struct {
		name   string
		flags  []string
		act    []clients.Action
		after  string
		end    func(*execRun) error // nil: the command ends by itself
		code   int
		state  lease.State
		reason string // why the session ended, as the evidence has it
	}{
		{"exec_killed", nil, []clients.Action{visit, post, stayThere}, "", killExec(syscall.SIGKILL), -1, lease.ManualReview, api.ReasonConnectionLost},
		{"failed", nil, []clients.Action{visit, post, disconnect}, "; exit 3", nil, 3, lease.ManualReview, api.ReasonWorkerFailed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := s.exec(t, tt.name, tt.flags, "true", tt.after, tt.act...)
			if tt.end != nil {
				r.did(t, len(tt.act))
				if err := tt.end(r); err != nil {
					t.Fatal(err)
				}
			}
			if code := r.ends(t); code != tt.code {
				t.Errorf("exit status %d, want %d", code, tt.code)
			}
			eventually(t, "the command to end", func() error {
				if p, err := procfs.Read(r.child); err == nil && p.Alive() {
					return fmt.Errorf("process %d lives", r.child)
				}
				return nil
			})
			got := s.until(t, tt.name, lease.Available, lease.ManualReview, lease.ResumePending)
			if got.State != tt.state {
				t.Errorf("the profile is %s (%s %v), want %s", got.State, got.Reason, got.Reasons, tt.state)
			}
			b, _ := s.screenshot(t, tt.name)
			// The evidence of a connection that breaks is captured before exec says what
			// happened.
			reason := b.Items[0].RecoveryReason
			if lost := strings.HasPrefix(tt.reason, "worker_"); reason != tt.reason && (!lost || reason != api.ReasonConnectionLost) {
				t.Errorf("the evidence says %s, want %s", reason, tt.reason)
			}
		})
	}
}

// execResumesWithTheCheckpointsData: by every way that tells of the checkpoint.
func execResumesWithTheCheckpointsData(t *testing.T, s *sidecar, web *site) {
	data := `{"page":7,"seen":["a","b"]}`
	flags := []string{"--task", "task_1", "--resumable"}
	act := []clients.Action{
		{"action": "goto", "url": web.URL},
		{"action": "cdp", "method": "Lease.step", "params": map[string]any{"name": "list"}},
		{"action": "cdp", "method": "Lease.checkpoint", "params": map[string]any{"name": "listed", "data": json.RawMessage(data)}},
		stayThere,
	}
	r := s.exec(t, "p", flags, "true", "", act...)
	r.did(t, len(act))
	if err := syscall.Kill(r.child, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.ends(t)
	if got := s.until(t, "p", lease.Available, lease.ManualReview, lease.ResumePending); got.State != lease.ResumePending {
		t.Fatalf("the profile is %s: %v", got.State, got.Reasons)
	}
	getLease := clients.Action{"action": "cdp", "method": "Lease.getLease"}
	r = s.exec(t, "p", flags, `echo "$LEASEHOLD_RESUME_FROM $LEASEHOLD_RESUME_CHECKPOINT $LEASEHOLD_RESUME_DATA"; echo "$LEASEHOLD_SESSION"`, "", getLease, stayThere)
	if line := r.line(t); line != "list listed "+data {
		t.Errorf("the command's environment has %q", line)
	}
	session := r.line(t)
	r.did(t, 1)
	var told struct{ Value struct{ Resume api.Resume } }
	if err := json.Unmarshal([]byte(r.line(t)), &told); err != nil || string(told.Value.Resume.Data) != data {
		t.Errorf("Lease.getLease tells %s, %v", told.Value.Resume.Data, err)
	}
	var shown api.Session
	if code := s.call(t, "GET", "/v1/sessions/"+session, nil, &shown); code != 200 || shown.Resume == nil || string(shown.Resume.Data) != data {
		t.Errorf("GET of the session: %d, resume %+v", code, shown.Resume)
	}
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	r.ends(t)
}
