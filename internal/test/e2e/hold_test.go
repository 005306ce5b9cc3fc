package e2e

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"leasehold/lease"
)

// TestAPersonUsesAProfile: a person uses a profile during its review, to see what
// happened, and an available one.
func TestAPersonUsesAProfile(t *testing.T) {
	t.Parallel() // it waits until the cookies are saved
	s, web := start(t), newSite(t)
	c := dial(t, s.socket("acct", "worker=w&task=pay"))
	page, _ := c.visit(t, web.URL+"/checkout")
	c.evaluate(t, page, "fetch('/api', {method: 'POST', body: 'x'}).then(r => r.status)")
	c.drop()
	incident := s.until(t, "acct", lease.ManualReview)

	hold := func(args ...string) (cmd *exec.Cmd, out *bytes.Buffer) {
		t.Helper()
		cmd, out = exec.Command(binary, append([]string{"hold", "acct", "--holder", "ann", "--url", s.URL}, args...)...), &bytes.Buffer{}
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd, out
	}
	cmd, out := hold("--note", "was it paid?")
	held := s.until(t, "acct", lease.Held)
	if held.Token <= incident.Token || held.OwnerWorkerID != "ann" || held.ByHand == nil || held.ByHand.Note != "was it paid?" || held.ByHand.Review.EvidenceID != incident.EvidenceID {
		t.Errorf("held: %+v, by hand %+v", held, held.ByHand)
	}
	var by twoStep
	var refused struct {
		Code          string `json:"code"`
		CurrentWorker string `json:"current_worker_id"`
		CurrentToken  uint64 `json:"current_token"`
	}
	if code := s.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": "acct", "worker_id": "w", "task_id": "pay"}, &refused); code != 409 || refused.CurrentWorker != "ann" {
		t.Errorf("a task meanwhile: %d %+v", code, refused)
	}
	kill := func(signal syscall.Signal) {
		t.Helper()
		if err := syscall.Kill(s.browserOf(t, "acct"), signal); err != nil {
			t.Fatal(err)
		}
	}
	noted := filepath.Join(s.Dir, "session-cookies", "acct.json.noted")
	eventually(t, "the session serves", func() error {
		if code := s.call(t, "GET", "/v1/sessions/"+held.SessionID, nil, nil); code != 200 {
			return fmt.Errorf("status %d", code)
		}
		return nil
	})
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), "acct: handed back") {
		t.Errorf("hold: %v\n%s", err, out)
	}
	back := s.until(t, "acct", lease.ManualReview)
	if back.Token != held.Token || back.Reason != incident.Reason || back.TaskID != "pay" || back.EvidenceID == incident.EvidenceID || len(back.Reasons) == 0 {
		t.Errorf("the review again: %+v", back)
	}
	if _, errs, code := s.cli(t, "review", "acct", "--decision", "approve", "--reviewer", "ann", "--token", fmt.Sprint(incident.Token)); code != 8 || !strings.Contains(errs, "stale_lease_token") {
		t.Errorf("a decision on what was seen before the hold: %d %s", code, errs)
	}
	if _, errs, code := s.cli(t, "review", "acct", "--decision", "approve", "--reviewer", "ann"); code != 0 {
		t.Fatalf("review: %d %s", code, errs)
	}

	// Once more, with an available profile. The answer's URL opens the browser.
	if code := s.call(t, "POST", "/v1/profiles/acct/hold", map[string]any{"lease_token": incident.Token, "holder": "ann"}, &refused); code != 409 || refused.Code != "stale_lease_token" || refused.CurrentToken != uint64(back.Token) {
		t.Errorf("with an old token: %d %+v", code, refused)
	}
	if code := s.call(t, "POST", "/v1/profiles/acct/hold", map[string]any{"holder": "ann"}, &refused); code != 400 || refused.Code != "invalid_request" {
		t.Errorf("without a token: %d %+v", code, refused)
	}
	if code := s.call(t, "POST", "/v1/profiles/acct/hold", map[string]any{"lease_token": back.Token, "holder": "ann"}, &by); code != 201 || by.Dedicated == "" {
		t.Fatalf("hold: %d %+v", code, by)
	}
	p := dial(t, by.CDPURL)
	page, _ = p.visit(t, web.URL+"/orders")
	p.evaluate(t, page, "document.cookie = 'session=1'")
	p.drop() // the person's DevTools are no worker, so the session is not lost
	isNoted := func() error {
		b, err := os.ReadFile(noted)
		if err == nil && !strings.Contains(string(b), `"session"`) {
			err = fs.ErrNotExist
		}
		return err
	}
	eventually(t, "the session cookie is noted", isNoted)
	kill(syscall.SIGINT) // the same happens when the last window is closed
	if r := s.until(t, "acct", lease.Available); r.ByHand != nil || r.Reason != "browser_close_requested" {
		t.Errorf("handed back: %+v", r)
	}
	cmd, out = hold("--for", "10m")
	s.until(t, "acct", lease.Held)
	eventually(t, "the cookies of the browser that the person closed", isNoted)
	kill(syscall.SIGKILL)
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != 8 || !strings.Contains(out.String(), "did not end in order") {
		t.Errorf("hold: %v\n%s", err, out)
	}
	s.until(t, "acct", lease.ManualReview)
	if answers, how := s.inspection(t, "acct"); answers["review_flag"] != "yes" || !strings.Contains(how["review_flag"], "ann") {
		t.Errorf("review_flag %s (%s)", answers["review_flag"], how["review_flag"])
	}
	if _, err := os.Stat(noted); err == nil {
		t.Error("the cookies noted of a browser that crashed are kept")
	}
}
