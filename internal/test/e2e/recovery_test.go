package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"image"
	_ "image/jpeg"
	_ "image/png"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"leasehold/evidence"
	"leasehold/internal/test/natstest"
	"leasehold/lease"
)

type bundles struct {
	Items []bundle
}

type bundle struct {
	EvidenceID     string      `json:"evidence_id"`
	Token          lease.Token `json:"lease_token"`
	RecoveryReason string      `json:"recovery_reason"`
	Parts          []struct{ Name, Kind, SHA256, Missing string }
}

// ofEnds are the bundles of sessions' ends. While a session lives, pictures are kept, too.
func (b bundles) ofEnds() bundles {
	return bundles{slices.DeleteFunc(b.Items, func(one bundle) bool { return one.RecoveryReason == evidence.PictureReason })}
}

// screenshot fetches the screenshot of the newest bundle, and checks that it is an
// image and has the sealed hash.
func (s *sidecar) screenshot(t *testing.T, profile string) (bundles, image.Image) {
	t.Helper()
	var b bundles
	code := s.call(t, "GET", "/v1/profiles/"+profile+"/evidence", nil, &b)
	if b = b.ofEnds(); code != 200 || len(b.Items) == 0 {
		t.Fatalf("evidence of %s: status %d, %d bundles", profile, code, len(b.Items))
	}
	for _, p := range b.Items[0].Parts {
		if p.Kind != "screenshot" || p.Missing != "" {
			continue
		}
		var raw []byte
		if code := s.call(t, "GET", "/v1/evidence/"+b.Items[0].EvidenceID+"/"+p.Name, nil, &raw); code != 200 {
			t.Fatalf("part %s: status %d", p.Name, code)
		}
		if sum := sha256.Sum256(raw); hex.EncodeToString(sum[:]) != p.SHA256 {
			t.Errorf("part %s is not what was sealed", p.Name)
		}
		img, _, err := image.Decode(bytes.NewReader(raw))
		if err != nil {
			t.Fatalf("part %s: %v", p.Name, err)
		}
		return b, img
	}
	t.Fatalf("no screenshot in %+v", b.Items[0])
	return b, nil
}

// TestWhatIsFoundAfterALoss: one sidecar, where workers are lost from pages of all kinds.
func TestWhatIsFoundAfterALoss(t *testing.T) {
	t.Parallel()
	s := start(t)
	for name, lose := range map[string]func(*testing.T, *sidecar){
		"contents of a bundle": contentsOfABundle, "unfinished pages": lostWithUnfinishedPages, "what pages ask for": whatPagesAskFor,
		"what no page reports": whatNoPageReports,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lose(t, s)
		})
	}
}

func TestLostWorker(t *testing.T) {
	t.Parallel()
	s, web := start(t), newSite(t)
	nc := natstest.Connect(t, s.NATS)
	heard := make(chan *nats.Msg, 64)
	if _, err := nc.ChanSubscribe("leasehold.recovery.>", heard); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, query string
		act         func(c *socket, page string)
		state       lease.State
		decision    string
	}{
		{"only-looked", "", func(*socket, string) {}, lease.Available, "release"},
		{"resumable", "&resumable=true", func(c *socket, page string) {
			c.evaluate(t, page, `document.querySelector("button").click()`)
			s.noted(t, "resumable", "the answer to the page's POST", 1, hasAnswer("/api"))
			c.call(t, page, "Lease.checkpoint", map[string]any{"name": "list_loaded"}, nil)
			c.call(t, page, "Lease.step", map[string]any{"name": "read_rows"}, nil)
		}, lease.ResumePending, "resume"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := dial(t, s.socket(tt.name, "worker=worker-7&task=task_1"+tt.query))
			page, _ := c.visit(t, web.URL+"/list")
			tt.act(c, page)
			held := s.record(t, tt.name)
			c.drop()
			r := s.until(t, tt.name, tt.state)
			if r.Decision != tt.decision || r.Token != held.Token+1 || r.LastKnownURL != web.URL+"/list" || r.EvidenceID == "" || len(r.Reasons) == 0 {
				t.Errorf("record: %+v", r)
			}
			for _, state := range []lease.State{lease.SuspectedStale, lease.Quarantined, lease.Inspected, tt.state} {
				select {
				case m := <-heard:
					var e lease.Event
					if err := json.Unmarshal(m.Data, &e); err != nil {
						t.Fatal(err)
					}
					if m.Subject != "leasehold.recovery."+tt.name+"."+string(state) || e.State != state || m.Header.Get("Leasehold-Token") != fmt.Sprint(e.Token) || e.EvidenceID != r.EvidenceID {
						t.Errorf("heard %s %+v, want %s", m.Subject, e, state)
					}
				case <-time.After(patience):
					t.Fatalf("no event %s", state)
				}
			}
			if got, want := names(s.events(t, tt.name)), "granted suspected_stale quarantined expired inspected "+string(tt.state); got != want {
				t.Errorf("history %s, want %s", got, want)
			}
			for i, e := range s.events(t, tt.name) {
				if e.Sequence != uint64(i+1) {
					t.Errorf("event %d has sequence %d", i, e.Sequence)
				}
			}
			b, img := s.screenshot(t, tt.name)
			if b.Items[0].Token != held.Token || b.Items[0].RecoveryReason != "connection_lost" || img.Bounds().Dx() < 100 {
				t.Errorf("bundle %+v, picture %v", b.Items[0], img.Bounds())
			}
			if left := s.browsers(t); len(left) != 0 {
				t.Errorf("browsers are left: %v", left)
			}
		})
	}

	t.Run("command line", func(t *testing.T) {
		for _, tt := range []struct {
			args []string
			want string
		}{
			{[]string{"profiles"}, "only-looked"},
			{[]string{"show", "resumable", "--facts"}, "unsafe_requests"},
			{[]string{"evidence", "resumable"}, "connection_lost"},
			{[]string{"watch", "resumable", "--all", "--count", "3", "--timeout", "20s"}, "quarantined"},
		} {
			out, errs, code := s.cli(t, tt.args...)
			if code != 0 || !strings.Contains(out, tt.want) {
				t.Errorf("%v: exit %d, %q, %s", tt.args, code, out, errs)
			}
			if tt.args[0] == "watch" {
				continue
			}
			out, errs, code = s.cli(t, append(tt.args, "--json")...)
			if code != 0 || !json.Valid([]byte(out)) {
				t.Errorf("%v --json: exit %d, %q, %s", tt.args, code, out, errs)
			}
		}
	})
}

// TestShutdown: when a sidecar ends, each living session gets its evidence and a decision, and its
// clients are told.
func TestShutdown(t *testing.T) {
	t.Parallel()
	s := start(t)
	w := s.watch(t, "drained", false)
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil { // as when its terminal is closed
		t.Fatal(err)
	}
	w.over(t, 4503, "the launcher is shutting down")
	<-s.done
	if code := s.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("SIGHUP: exit status %d (%v), want 0", code, s.cmd.ProcessState)
	}
	if left := s.browsers(t); len(left) != 0 {
		t.Errorf("browsers are left: %v", left)
	}
	s.through = "nohup"
	s.launch(t)
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if r := s.record(t, "drained"); r.State != lease.Available || r.Reason != "launcher_shutdown" || r.Decision != "release" {
		t.Errorf("%+v", r)
	}
	s.screenshot(t, "drained")
	if status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid)); err != nil || !regexp.MustCompile(`(?m)^SigIgn:.*[13579bdf]$`).Match(status) {
		t.Errorf("SIGHUP is not ignored any more (%v):\n%s", err, status)
	}
}

// TestNothingIsClosedWithoutEvidence: as long as no bundle can be sealed, the profile
// stays quarantined, and its browser stays open as the worker left it.
func TestNothingIsClosedWithoutEvidence(t *testing.T) {
	t.Parallel()
	s, web := start(t), newSite(t)
	c := dial(t, s.socket("kept", "worker=w&task=t"))
	c.visit(t, web.URL+"/left-here")
	spool := filepath.Join(s.Dir, "evidence-spool")
	if err := os.Rename(spool, spool+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(spool, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	before := s.browsers(t)
	c.drop()
	s.until(t, "kept", lease.Quarantined)
	eventually(t, "a second try", func() error {
		log, err := os.ReadFile(s.stderr.Name())
		if n := strings.Count(string(log), "recovery is not complete"); err != nil || n < 2 {
			return fmt.Errorf("%d tries: %w", n, err)
		}
		return nil
	})
	if r := s.record(t, "kept"); r.State != lease.Quarantined || r.EvidenceID != "" {
		t.Errorf("%+v", r)
	}
	if after := s.browsers(t); len(before) != 1 || fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("browsers %v, without evidence %v", before, after)
	}
	if err := os.Remove(spool); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(spool+".away", spool); err != nil {
		t.Fatal(err)
	}
	if r := s.until(t, "kept", lease.Available, lease.ManualReview); r.EvidenceID == "" || r.LastKnownURL != web.URL+"/left-here" {
		t.Errorf("%+v", r)
	}
	s.screenshot(t, "kept")
	if left := s.browsers(t); len(left) != 0 {
		t.Errorf("browsers are left: %v", left)
	}
}
