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
	t.Run("fails", func(t *testing.T) {
		r := s.exec(t, "failed", nil, "true", "; exit 3", clients.Action{"action": "goto", "url": web.URL}, post, disconnect)
		if code := r.ends(t); code != 3 {
			t.Errorf("exit status %d, want 3", code)
		}
		got := s.until(t, "failed", lease.Available, lease.ManualReview, lease.ResumePending)
		if got.State != lease.ManualReview {
			t.Errorf("the profile is %s (%s %v), want that a person decides", got.State, got.Reason, got.Reasons)
		}
		b, _ := s.screenshot(t, "failed")
		// The evidence of a connection that breaks is captured before exec says what happened.
		if reason := b.Items[0].RecoveryReason; reason != api.ReasonWorkerFailed && reason != api.ReasonConnectionLost {
			t.Errorf("the evidence says %s, want %s", reason, api.ReasonWorkerFailed)
		}
	})
}

// execResumesWithTheCheckpointsData: exec is killed, and its worker with it; whoever resumes is told of the
// checkpoint by every way.
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
	if err := r.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	r.ends(t)
	eventually(t, "the command to end", func() error {
		if p, err := procfs.Read(r.child); err == nil && p.Alive() {
			return fmt.Errorf("process %d lives", r.child)
		}
		return nil
	})
	if got := s.until(t, "p", lease.Available, lease.ManualReview, lease.ResumePending); got.State != lease.ResumePending {
		t.Fatalf("the profile is %s: %v", got.State, got.Reasons)
	}
	getLease := clients.Action{"action": "cdp", "method": "Lease.getLease"}
	const tell = `echo "$LEASEHOLD_RESUME_FROM $LEASEHOLD_RESUME_CHECKPOINT $LEASEHOLD_RESUME_DATA"; echo "$LEASEHOLD_SESSION"`
	r = s.exec(t, "p", flags, tell, "", getLease, stayThere)
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
	// The one that resumed is lost as well, and named no checkpoint: the next one goes on from the same.
	if got := s.until(t, "p", lease.Available, lease.ManualReview, lease.ResumePending); got.State != lease.ResumePending || got.LastSafeCheckpoint != "listed" {
		t.Fatalf("after the session that resumed the profile is %s at %q: %v", got.State, got.LastSafeCheckpoint, got.Reasons)
	}
	r = s.exec(t, "p", flags, tell, "", stayThere)
	if line := r.line(t); line != "list listed "+data {
		t.Errorf("the third command's environment has %q", line)
	}
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	r.ends(t)
}
