package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"leasehold/lease"
)

// wipe makes the store one that knows nothing.
func (n *natsServer) wipe(t *testing.T) {
	t.Helper()
	n.stop()
	if err := os.RemoveAll(n.dir); err != nil {
		t.Fatal(err)
	}
	n.start(t)
}

// says waits until the sidecar's log says something.
func (s *sidecar) says(t *testing.T, what string) {
	t.Helper()
	eventually(t, "the log to say "+what, func() error {
		b, err := os.ReadFile(s.stderr.Name())
		if err == nil && !bytes.Contains(b, []byte(what)) {
			err = fmt.Errorf("it does not")
		}
		return err
	})
}

// TestAForgottenProfileIsMadeAnew by a host that knows nothing of it: the store was wiped, and its
// host killed while its browser lives. Then the first one comes back, both stop, and a person
// decides.
func TestAForgottenProfileIsMadeAnew(t *testing.T) {
	t.Parallel()
	n := startNATS(t)
	home, other := pairOn(t, n, fakeBrowsers(t)...)

	home.call(t, "PUT", "/v1/profiles/acct1", map[string]any{"account_id": "store-1"}, nil)
	home.granted(t, "acct1", false)
	lost := dial(t, home.socket("acct1", "worker=w&task=t2&wait=20s"))
	lost.call(t, "", "Browser.getVersion", nil, nil)
	held := home.record(t, "acct1")
	home.kill(t)
	other.stop(t)
	if err := os.Remove(filepath.Join(other.Dir, "roster")); err != nil {
		t.Fatal(err)
	}
	n.wipe(t)
	other.launch(t)
	anew := dial(t, other.socket("acct1", "worker=w&task=anew&wait=30s"))
	anew.call(t, "", "Browser.getVersion", nil, nil)
	if r := other.record(t, "acct1"); r.Token != 1 || r.Home != "other" {
		t.Fatalf("made anew: %+v", r)
	}
	home.young = true
	home.launch(t)
	r := home.until(t, "acct1", lease.ManualReview)
	if r.Reason != lease.ReasonContested || r.Home != "home" || r.OtherHome != "other" || r.Token <= held.Token || r.EvidenceID == "" || r.Decision != lease.DecisionManualReview {
		t.Errorf("%+v", r)
	}
	home.says(t, "another launcher made it anew")
	other.says(t, "another launcher was the home of the profile before the lease store forgot it")
	eventually(t, "both browsers to be closed", func() error {
		if a, b := home.browsers(t), other.browsers(t); len(a)+len(b) > 0 {
			return fmt.Errorf("%v and %v", a, b)
		}
		return nil
	})
	anew.ended(t)
	out, errs, code := home.cli(t, "review", "acct1", "--decision", "approve", "--reviewer", "ann", "--evidence", "ev_of_before")
	if code == 0 {
		t.Errorf("an approval of another incident: %s %s", out, errs)
	}
	out, errs, code = home.cli(t, "review", "acct1", "--decision", "approve", "--reviewer", "ann", "--evidence", r.EvidenceID, "--home", "other")
	if code != 0 {
		t.Fatalf("review: %d %s %s", code, out, errs)
	}
	eventually(t, "a grant at the home that was chosen", func() error {
		var problem map[string]any
		if code := home.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": "acct1"}, &problem); code != 421 || problem["home_launcher"] != "other" {
			return fmt.Errorf("the launcher that was not chosen: %d %v", code, problem)
		}
		var raw []byte
		if code := other.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": "acct1", "worker_id": "w", "task_id": "t4"}, &raw); code != 201 {
			return fmt.Errorf("%d %s", code, raw)
		}
		return nil
	})
	if now := other.record(t, "acct1"); now.State != lease.Held || now.Token != r.Token+2 || now.Home != "other" || now.OtherHome != "" {
		t.Errorf("%+v, after token %d", now, r.Token)
	}
}
