package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"leasehold/internal/test/clients"
	"leasehold/internal/test/natstest"
	"leasehold/lease"
)

// tell prints a line of a demo, below the title of its chapter: at once for the person who asked
// for the demo, and in the test's own log otherwise, which shows when the test fails.
func tell(t *testing.T, format string, args ...any) {
	t.Helper()
	if testing.Verbose() {
		fmt.Printf("  "+format+"\n", args...)
		return
	}
	t.Logf(format, args...)
}

func chapter(t *testing.T, title string) {
	t.Helper()
	if testing.Verbose() {
		fmt.Printf("\n%s\n", title)
		return
	}
	t.Log(title)
}

// TestDemo plays the story of the README with the real programs. make demo shows its
// output.
func TestDemo(t *testing.T) {
	chapter(t, "The sidecar starts: embedded NATS, real Chromium, loopback only.")
	s, web := start(t), newSite(t)
	tell(t, "%s   events: %s", s.URL, s.NATS)
	nc := natstest.Connect(t, s.NATS)
	heard := make(chan *nats.Msg, 64)
	if _, err := nc.ChanSubscribe("leasehold.>", heard); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	listen := func(want ...string) {
		t.Helper()
		for _, name := range want {
			select {
			case m := <-heard:
				var e lease.Event
				if err := json.Unmarshal(m.Data, &e); err != nil || e.Event != name {
					t.Fatalf("heard %s, want %s (%v)", m.Data, name, err)
				}
				more := strings.Join(append([]string{e.Reason, e.Decision}, e.Reasons...), " ")
				tell(t, "event  %-50s token %d  %s", m.Subject, e.Token, strings.TrimSpace(more))
			case <-time.After(patience):
				t.Fatalf("no event %s", name)
			}
		}
	}

	chapter(t, "1. Playwright, unchanged, gets the profile shop_018.")
	worker := clients.Start(t, clients.Playwright, s.oneShot("shop_018", "worker=worker-7&task=task_101"), clients.Interactive)
	worker.Expect(t, "connect")
	worker.Do(t, act("goto", "url", web.URL+"/cart"))
	worker.Do(t, cdp("Lease.step", map[string]any{"name": "submit_order"}))
	listen("granted")

	chapter(t, "2. A second worker wants it too.")
	second := clients.Start(t, clients.Playwright, s.oneShot("shop_018", "worker=worker-9&task=task_102"), clients.Interactive)
	line, err := second.Next()
	if err != nil || line.OK || !strings.Contains(line.Error, "held by worker") {
		t.Fatalf("%+v %v", line, err)
	}
	for l := range strings.Lines(line.Error) {
		if strings.Contains(l, "409") {
			tell(t, "Playwright says: %.150s", strings.TrimSpace(l))
			break
		}
	}
	listen(lease.EventConflict)

	chapter(t, "3. The first worker orders something, and is killed (kill -9).")
	posts := web.Posts.Load()
	worker.Do(t, act("click", "selector", "button"))
	eventually(t, "the order", func() error {
		if web.Posts.Load() == posts {
			return fmt.Errorf("not yet")
		}
		return nil
	})
	worker.Kill()
	listen("suspected_stale", "quarantined", "expired", "inspected", "manual_review")

	chapter(t, "4. The evidence was stored before anything was closed.")
	dir, err := os.MkdirTemp("", "leasehold-demo-evidence-")
	if err != nil {
		t.Fatal(err)
	}
	out, errs, code := s.cli(t, "evidence", "shop_018", "--last", "--out", filepath.Join(dir, "bundle"))
	if code != 0 {
		t.Fatalf("%s%s", out, errs)
	}
	var shots []string
	if err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if strings.HasPrefix(filepath.Base(path), "screenshot-") {
			shots = append(shots, path)
		}
		return err
	}); err != nil || len(shots) == 0 {
		t.Fatalf("no screenshot in %s (%v)", dir, err)
	}
	tell(t, "screenshot: %s", shots[0])
	if !testing.Verbose() {
		defer func() { _ = os.RemoveAll(dir) }()
	}
	out, _, _ = s.cli(t, "show", "shop_018")
	for l := range strings.Lines(out) {
		tell(t, "%s", strings.TrimRight(l, "\n"))
	}

	chapter(t, "5. Nobody gets the profile until a person has looked.")
	var problem map[string]any
	if code := s.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": "shop_018", "worker_id": "worker-9", "task_id": "task_102"}, &problem); code != 423 {
		t.Fatalf("status %d", code)
	}
	tell(t, "423 %v: %v", problem["code"], problem["detail"])
	if out, errs, code := s.cli(t, "review", "shop_018", "--decision", "approve", "--token", fmt.Sprint(s.record(t, "shop_018").Token), "--reviewer", "ann", "--note", "the order was placed once"); code != 0 {
		t.Fatalf("%s%s", out, errs)
	}
	tell(t, "ann approves: the order was placed once")
	listen("available")

	chapter(t, "6. The next task gets it, under a higher token.")
	next := clients.Start(t, clients.Playwright, s.oneShot("shop_018", "worker=worker-9&task=task_102"), clients.Interactive)
	next.Expect(t, "connect")
	listen("granted")
	next.Do(t, act("goto", "url", web.URL+"/orders"))
	next.Do(t, act("disconnect"))
	listen("released")
	if r := s.record(t, "shop_018"); r.State != lease.Available || r.Token != 3 {
		t.Errorf("%s, token %d", r.State, r.Token)
	}
}
