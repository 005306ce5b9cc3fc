package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"leasehold/internal/test/clients"
	"leasehold/lease"
)

// TestTheSubscribersOfThePage runs the two programs of docs/nats.md, as they stand there but
// for the address: each prints the events that there were before, and goes on after a break
// where it was.
func TestTheSubscribersOfThePage(t *testing.T) {
	t.Parallel()
	s := start(t, fakeBrowsers(t)...)
	programs := map[string]string{}
	for _, b := range blocksOf(t, "nats.md") {
		if _, known := programs[b.kind]; !known {
			programs[b.kind] = strings.ReplaceAll(b.text, "nats://127.0.0.1:4333", s.NATS)
		}
	}
	session := func(task string) {
		t.Helper()
		c := dial(t, s.socket("shop", "worker=w&wait=20s&task="+task))
		c.close(t)
		c.ended(t)
		s.until(t, "shop", lease.Available)
	}
	session("one")
	dir := t.TempDir()
	if err := os.Symlink(filepath.Join(clients.Dir(), "node_modules"), filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	js := filepath.Join(dir, "audit.mjs")
	// The place in the stream is the consumer's, by its name.
	script := strings.ReplaceAll(programs["js"], "'audit'", "'audit-js'")
	// In the module, so that its client library is the pinned one.
	goDir, err := os.MkdirTemp(".", ".audit-") // no package of the module, for whoever lists them
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(goDir); err != nil {
			t.Error(err)
		}
	})
	binary := filepath.Join(dir, "audit")
	if err := errors.Join(os.WriteFile(js, []byte(script), 0o600), os.WriteFile(filepath.Join(goDir, "main.go"), []byte(programs["go"]), 0o600)); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-o", binary, filepath.Join(goDir, "main.go")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	commands := map[string][]string{"go": {binary}, "js": {"node", js}}
	seen := map[string]bool{}
	reads := func(kind string, want ...string) {
		t.Helper()
		cmd := exec.Command(commands[kind][0], commands[kind][1:]...)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for _, w := range want {
			event, task, _ := strings.Cut(w, " ")
			more := lines.Scan()
			for more && seen[kind+lines.Text()] { // it was killed before it acknowledged that
				more = lines.Scan()
			}
			seen[kind+lines.Text()] = true
			if !more || !strings.HasPrefix(lines.Text(), "leasehold.lease.shop."+event+" {") || !strings.Contains(lines.Text(), fmt.Sprintf(`"task_id":"%s"`, task)) {
				t.Errorf("%s: %q, want %s", kind, lines.Text(), w)
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // it was killed
	}
	for kind := range commands {
		reads(kind, "granted one", "released one")
	}
	session("two")
	for kind := range commands {
		reads(kind, "granted two", "released two")
	}
}
