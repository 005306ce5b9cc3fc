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
	"net/http"
	"net/http/httptest"
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
	"leasehold/internal/test/clients"
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
		"facts about pages": factsAboutPages, "contents of a bundle": contentsOfABundle, "unfinished pages": lostWithUnfinishedPages,
		"what pages ask for": whatPagesAskFor, "what was typed": whatWasSentWasTyped, "a sensitive frame": aSensitiveFrame,
		"rewritten requests": requestsThatAWorkerRewrites, "what sites answer": whatSitesAnswer, "a tab that waits": aTabThatWaitsForItsFirstAnswer,
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
	nc, err := nats.Connect(s.NATS)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	heard := make(chan *nats.Msg, 64)
	if _, err := nc.ChanSubscribe("leasehold.recovery.>", heard); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, query string
		act         []clients.Action
		state       lease.State
		decision    string
	}{
		{"only-looked", "", []clients.Action{act("goto", "url", web.URL+"/list")}, lease.Available, "release"},
		{"posted", "", []clients.Action{act("goto", "url", web.URL+"/list"), act("click", "selector", "button")}, lease.ManualReview, "manual_review"},
		{"resumable", "&resumable=true", []clients.Action{
			act("goto", "url", web.URL+"/list"), act("click", "selector", "button"),
			cdp("Lease.checkpoint", map[string]any{"name": "list_loaded"}), cdp("Lease.step", map[string]any{"name": "read_rows"}),
		}, lease.ResumePending, "resume"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := clients.Start(t, clients.Playwright, s.oneShot(tt.name, "worker=worker-7&task=task_1"+tt.query), clients.Interactive)
			c.Expect(t, "connect")
			for _, a := range tt.act {
				c.Do(t, a)
				if a["selector"] == "button" {
					s.noted(t, tt.name, "the answer to the page's POST", 1, hasAnswer("/api"))
				}
			}
			held := s.record(t, tt.name)
			c.Kill()
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

	t.Run("resume", func(t *testing.T) {
		var problem map[string]any
		if code := s.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": "resumable", "task_id": "other"}, &problem); code != 423 || problem["code"] != "profile_resume_pending" {
			t.Errorf("another task: %d %v", code, problem)
		}
		var ses struct {
			Token     lease.Token `json:"lease_token"`
			SessionID string      `json:"session_id"`
			Resume    *struct{ From, Checkpoint string }
		}
		if code := s.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": "resumable", "worker_id": "w8", "task_id": "task_1"}, &ses); code != 201 || ses.Resume == nil || ses.Resume.Checkpoint != "list_loaded" {
			t.Errorf("its own task: %d %+v", code, ses)
		}
	})

	t.Run("review", func(t *testing.T) {
		var problem map[string]any
		if code := s.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": "posted"}, &problem); code != 423 || problem["code"] != "profile_in_review" {
			t.Errorf("in review: %d %v", code, problem)
		}
		r := s.record(t, "posted")
		if code := s.call(t, "POST", "/v1/profiles/posted/review", map[string]any{"decision": "approve", "reviewer": "ann", "lease_token": r.Token - 1}, &problem); code != 409 {
			t.Errorf("a review of an old token: %d", code)
		}
		out, errs, code := s.cli(t, "review", "posted", "--decision", "approve", "--reviewer", "ann", "--note", "order was placed once")
		if code != 0 {
			t.Fatalf("review: %d %s%s", code, out, errs)
		}
		if r := s.until(t, "posted", lease.Available); r.Review == nil || r.Review.Reviewer != "ann" {
			t.Errorf("%+v", r.Review)
		}
	})

	t.Run("command line", func(t *testing.T) {
		for _, tt := range []struct {
			args []string
			want string
		}{
			{[]string{"profiles"}, "only-looked"},
			{[]string{"show", "posted", "--facts"}, "unsafe_requests"},
			{[]string{"evidence", "posted"}, "connection_lost"},
			{[]string{"watch", "posted", "--all", "--count", "3", "--timeout", "20s"}, "quarantined"},
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
		dir := t.TempDir()
		if out, errs, code := s.cli(t, "evidence", "posted", "--last", "--out", dir); code != 0 {
			t.Errorf("evidence --out: exit %d %s%s", code, out, errs)
		}
		if found, _ := filepath.Glob(filepath.Join(dir, "*", "manifest.json")); len(found) == 0 {
			if found, _ = filepath.Glob(filepath.Join(dir, "manifest.json")); len(found) == 0 {
				t.Error("no manifest was fetched")
			}
		}
	})
}

// aTabThatWaitsForItsFirstAnswer is never asked for a picture: with one owed, Chromium 156
// crashes as a whole when its pages are ended.
func aTabThatWaitsForItsFirstAnswer(t *testing.T, s *sidecar) {
	posts, over := make(chan struct{}, 1), make(chan struct{})
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			posts <- struct{}{}
			select {
			case <-over:
			case <-r.Context().Done():
			}
			return
		}
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprint(w, "<!doctype html><title>cart</title><h1>cart</h1>")
	}))
	t.Cleanup(func() { close(over); site.Close() })
	c := clients.Start(t, clients.Puppeteer, s.socket("popup", "worker=w&task=t"), clients.Interactive)
	c.Expect(t, "connect")
	c.Do(t, act("goto", "url", site.URL+"/cart"))
	c.Do(t, act("evaluate", "expression", "(() => { const f = document.createElement('form'); f.method = 'post'; f.target = '_blank'; f.action = '/order'; document.body.append(f); f.submit() })()"))
	select {
	case <-posts:
	case <-time.After(patience):
		t.Fatal("the form never came to the server")
	}
	c.Kill()
	r := s.until(t, "popup", lease.ManualReview)
	reasons := strings.Join(r.Reasons, "\n")
	if !strings.Contains(reasons, "unsafe requests were sent") || !strings.Contains(reasons, "waited for its first document") || strings.Contains(reasons, "did not close cleanly") {
		t.Errorf("%s", reasons)
	}
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
	c := clients.Start(t, clients.Playwright, s.oneShot("kept", "worker=w&task=t"), clients.Interactive)
	c.Expect(t, "connect")
	c.Do(t, act("goto", "url", web.URL+"/left-here"))
	spool := filepath.Join(s.Dir, "evidence-spool")
	if err := os.Rename(spool, spool+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(spool, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	before := s.browsers(t)
	c.Kill()
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
