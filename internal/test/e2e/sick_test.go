package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"leasehold/checkpoint"
	"leasehold/evidence"
	"leasehold/internal/procfs"
	"leasehold/lease"
)

func signal(t *testing.T, pid int, sig unix.Signal) {
	t.Helper()
	if err := unix.Kill(pid, sig); err != nil {
		t.Fatal(err)
	}
}

// renderers returns the pids of a browser's renderers.
func renderers(t *testing.T, browser int) []int {
	t.Helper()
	all, err := procfs.List()
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, p := range all {
		line, err := procfs.CommandLine(p.PID)
		if err == nil && p.Group == browser && bytes.Contains(line, []byte("--type=renderer")) {
			pids = append(pids, p.PID)
		}
	}
	return pids
}

// browserPart is the content of a bundle's browser.json.
type browserPart struct {
	PID        int
	ExitStatus string `json:"exit_status"`
	Ailment    string
	Memory     *struct {
		Limit     uint64 `json:"limit_bytes"`
		Used      uint64 `json:"used_bytes"`
		How       string
		Processes []struct{ PID int }
	}
	DumpDir string `json:"dump_dir"`
	Dumps   []struct {
		File  string
		Bytes int64
		At    time.Time
	}
	DumpsSent bool `json:"dumps_may_be_sent"`
}

// TestFailingBrowsers: browsers that hang, take too much memory, or crash are noticed.
// Their workers learn the reason, and the evidence contains what could be found.
func TestFailingBrowsers(t *testing.T) {
	t.Parallel() // it waits most of the time
	s, web := start(t, "--hang-timeout", "3s", "--browser-memory", "8GiB"), newSite(t)
	type worker struct {
		*socket
		page, target string
		pid          int
	}
	work := func(profile string) worker {
		c := dial(t, s.socket(profile, "worker=w&task=t"))
		page, target := c.page(t, web.URL+"/"+profile, "")
		s.noted(t, profile, "the page", 1, func(e checkpoint.Entry) bool {
			return e.Kind == checkpoint.KindURL && strings.HasSuffix(e.URL, "/"+profile)
		})
		return worker{c, page, target, s.browserOf(t, profile)}
	}
	// told waits for the end of a worker's connection, with the reason, and for the end
	// of its recovery.
	told := func(profile string, c worker, reason, recorded string, states ...lease.State) (evidence.Manifest, browserPart) {
		t.Helper()
		if code, why := c.ended(t); code != 4411 || !strings.Contains(why, reason) {
			t.Errorf("%s: the connection ended with %d %q", profile, code, why)
		}
		r := s.until(t, profile, states...)
		m := s.bundle(t, profile)
		if m.RecoveryReason != recorded {
			t.Errorf("%s: %s, evidence of %s", profile, r.Reason, m.RecoveryReason)
		}
		var b browserPart
		s.part(t, m, "browser.json", &b)
		if b.PID != c.pid {
			t.Errorf("%s: %+v, want pid %d", profile, b, c.pid)
		}
		found := false
		for _, p := range m.Pages {
			found = found || p.TargetID == c.target && strings.HasSuffix(p.URL, "/"+profile)
		}
		if !found {
			t.Errorf("%s: the page is not among %+v", profile, m.Pages)
		}
		return m, b
	}
	if code := s.call(t, "PUT", "/v1/profiles/eats", map[string]any{"browser_memory_bytes": 1 << 20}, nil); code != 400 {
		t.Errorf("a limit that no browser can live with: status %d", code)
	}
	const limit = 700 << 20
	if code := s.call(t, "PUT", "/v1/profiles/eats", map[string]any{"browser_memory_bytes": limit}, nil); code != 200 {
		t.Fatalf("a limit of the profile's own: status %d", code)
	}
	hangs, eats, crashes := work("hangs"), work("eats"), work("crashes")
	signal(t, hangs.pid, unix.SIGSTOP)
	eats.evaluate(t, eats.page, "globalThis.kept = []; for (let i = 0; i < 90; i++) kept.push(new Uint8Array(8 << 20).fill(1)); 1")

	var all sync.WaitGroup
	all.Go(func() {
		m, b := told("hangs", hangs, "the browser hangs: no answer for 3s, its process is stopped", "browser_hangs", lease.ManualReview)
		if !strings.Contains(b.Ailment, "hangs") || b.ExitStatus != "" {
			t.Errorf("it hangs: %+v", b)
		}
		for _, p := range m.Pages {
			if !strings.Contains(p.Missing, "the browser hangs") {
				t.Errorf("a page of a browser that hangs: %+v", p)
			}
		}
		if _, how := s.inspection(t, "hangs"); !strings.Contains(how["chrome_process_gone"], "sigkill") {
			t.Errorf("how it was closed: %v", how)
		}
	})
	all.Go(func() {
		m, b := told("eats", eats, "the browser took too much memory", "browser_memory", lease.Available)
		if b.Memory == nil || b.Memory.Limit != limit || b.Memory.Used <= limit || b.Memory.How == "rss" || len(b.Memory.Processes) < 3 {
			t.Errorf("its memory: %+v", b.Memory)
		}
		for _, p := range m.Pages {
			if p.Screenshot == "" {
				t.Errorf("the page was alive: %+v", p)
			}
		}
	})
	all.Go(func() {
		pages := renderers(t, crashes.pid)
		if len(pages) == 0 {
			t.Error("no renderers")
		}
		for _, pid := range pages {
			signal(t, pid, unix.SIGSEGV)
		}
		s.noted(t, "crashes", "the crash of its page", 1, ofKind(checkpoint.KindCrash))
		begun := time.Now()
		signal(t, crashes.pid, unix.SIGSEGV)
		m, b := told("crashes", crashes, "the browser crashed: signal segmentation fault", "browser_crashed", lease.ManualReview)
		if b.ExitStatus != "signal segmentation fault" || len(b.Dumps) != len(pages)+1 || b.DumpsSent {
			t.Fatalf("%d renderers and the browser crashed: %+v", len(pages), b)
		}
		for _, d := range b.Dumps {
			fi, err := os.Stat(filepath.Join(b.DumpDir, d.File))
			if err != nil || fi.Size() != d.Bytes || d.Bytes == 0 || !strings.HasPrefix(b.DumpDir, s.Dir) {
				t.Errorf("dump %+v: %v", d, err)
			}
		}
		if last := b.Dumps[len(b.Dumps)-1]; last.At.Before(begun.Add(-time.Second)) {
			t.Errorf("the last dump is older than the last crash: %+v", last)
		}
		if fi, err := os.Stat(b.DumpDir); err != nil || fi.Mode().Perm() != 0o700 {
			t.Errorf("others may read the dumps: %v", err)
		}
		for _, p := range m.Parts {
			if strings.HasSuffix(p.Name, ".dmp") {
				t.Errorf("a dump is in the bundle: %+v", p)
			}
		}
	})
	all.Wait()
}
