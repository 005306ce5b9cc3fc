package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"leasehold/internal/test/clients"
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

// TestAForgottenProfileIsNotMadeAnew: its host is killed while its browser lives, and the
// store is wiped. Another host, which has seen the profile, gives it to nobody, also after
// the grant delay, after a restart of its own and after another wipe. A host that knows nothing
// of it makes it anew; then the first one comes back, both stop, and a person decides.
func TestAForgottenProfileIsNotMadeAnew(t *testing.T) {
	t.Parallel()
	n := &natsServer{dir: filepath.Join(t.TempDir(), "now"), port: -1}
	n.start(t)
	t.Cleanup(func() { n.stop() })
	args := []string{"--nats-url", fmt.Sprintf("nats://127.0.0.1:%d", n.port), "--lease-ttl", "6s", "--launcher-id"}
	home, other := start(t, append(args, "home")...), start(t, append(args, "other")...)

	home.call(t, "PUT", "/v1/profiles/acct1", map[string]any{"account_id": "store-1"}, nil)
	for _, task := range []string{"t1", "t2"} {
		c := clients.Start(t, clients.Puppeteer, home.socket("acct1", "worker=w&wait=20s&task="+task), clients.Interactive)
		c.Expect(t, "connect")
		if task == "t1" {
			c.Do(t, act("disconnect"))
			home.until(t, "acct1", lease.Available)
		}
	}
	held := home.record(t, "acct1")
	if held.Token < 2 {
		t.Fatalf("token %d", held.Token)
	}
	eventually(t, "the other host to have seen it", func() error {
		b, err := os.ReadFile(filepath.Join(other.Dir, "roster"))
		if want := fmt.Sprintf(`"acct1","home":"home","lease_token":%d`, held.Token); err == nil && !bytes.Contains(b, []byte(want)) {
			err = fmt.Errorf("it remembers %s", b)
		}
		return err
	})
	home.kill(t)
	refused := func(when string) {
		t.Helper()
		for _, ask := range []struct {
			method, path string
			body         map[string]any
		}{
			{"POST", "/v1/sessions", map[string]any{"profile_id": "acct1", "create": true}},
			{"PUT", "/v1/profiles/acct1", map[string]any{"account_id": "store-1"}},
		} {
			var problem map[string]any
			if code := other.call(t, ask.method, ask.path, ask.body, &problem); code != 421 || problem["home_launcher"] != "home" {
				t.Errorf("%s: %s %s: %d %v", when, ask.method, ask.path, code, problem)
			}
		}
	}
	for _, when := range []string{"wiped", "wiped, while this one was away"} {
		if when == "wiped" {
			n.wipe(t)
		} else {
			other.stop(t)
			n.wipe(t)
			other.young = true
			other.launch(t)
		}
		var problem map[string]any // asked first, while the store is young
		if code := other.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": "never_seen", "create": true}, &problem); code != 503 || problem["reason"] != "store_young" {
			t.Errorf("%s: a profile in a young store: %d %v", when, code, problem)
		}
		refused(when)
		eventually(t, "the profile to be recalled", func() error {
			var r lease.Record
			if code := other.call(t, "GET", "/v1/profiles/acct1", nil, &r); code != 200 || r.State != lease.Quarantined || r.RememberedBy != "other" || r.Home != "home" || r.Token != held.Token || r.AccountID != "store-1" {
				return fmt.Errorf("%d %+v", code, r)
			}
			return nil
		})
		other.awaitGrantDelay(t)
		refused(when + ", after the grant delay")
	}
	if _, err := os.Lstat(filepath.Join(other.Dir, "profiles", "acct1")); !os.IsNotExist(err) {
		t.Errorf("there is a directory of it: %v", err)
	}
	home.launch(t)
	back := home.until(t, "acct1", lease.Available, lease.ManualReview)
	if back.Token <= held.Token || back.SessionID != held.SessionID || back.RememberedBy != "" || back.EvidenceID == "" || back.AccountID != "store-1" {
		t.Errorf("%+v", back)
	}

	if back.State == lease.ManualReview { // its browser was not watched for a while
		if out, errs, code := home.cli(t, "review", "acct1", "--decision", "approve", "--reviewer", "ann"); code != 0 {
			t.Fatalf("review: %d %s %s", code, out, errs)
		}
	}

	// The other host forgets, too.
	lost := clients.Start(t, clients.Puppeteer, home.socket("acct1", "worker=w&task=t3&wait=20s"), clients.Interactive)
	lost.Expect(t, "connect")
	held = home.record(t, "acct1")
	home.kill(t)
	other.stop(t)
	if err := os.Remove(filepath.Join(other.Dir, "roster")); err != nil {
		t.Fatal(err)
	}
	n.wipe(t)
	other.launch(t)
	anew := clients.Start(t, clients.Puppeteer, other.socket("acct1", "worker=w&task=anew&wait=30s"), clients.Interactive)
	anew.Expect(t, "connect")
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
	anew.Send(t, act("evaluate", "expression", "1+1"))
	if line, err := anew.Next(); err == nil && line.OK {
		t.Errorf("the worker of the other host goes on: %+v", line)
	}
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
