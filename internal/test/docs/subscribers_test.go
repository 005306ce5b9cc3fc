package docs

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"leasehold/internal/natsd"
	"leasehold/internal/test/clients"
	"leasehold/internal/test/natstest"
	"leasehold/lease"
	"leasehold/lease/natskv"
)

// The subscribers of docs/nats.md work as they stand there: they get the events in order,
// and after an absence those that they missed, and no others.
func TestTheSubscribersOfTheDocs(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join(root, "docs", "nats.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, language := range []string{"go", "js"} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			server, err := natsd.Start(natsd.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0", Log: zerolog.Nop()})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(server.Shutdown)
			nc, err := server.Connect()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(nc.Close)
			store, err := natskv.Open(t.Context(), nc, natskv.Options{LauncherID: "l", Log: zerolog.Nop()})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(store.Close)
			command := programOf(t, string(doc), language, server.ClientURL())
			grant(t, store, "a")
			grant(t, store, "b")
			wantEvents(t, server.ClientURL(), command, "leasehold.lease.a.granted", "leasehold.lease.b.granted")
			grant(t, store, "c")
			wantEvents(t, server.ClientURL(), command, "leasehold.lease.c.granted")
		})
	}
}

// programOf writes the code block of the language to a file below the folder of the clients, from
// where it finds its libraries, and returns the command that runs it. It connects to url.
func programOf(t *testing.T, doc, language, url string) []string {
	t.Helper()
	block := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindStringSubmatch(doc)
	const address = "nats://127.0.0.1:4333"
	if block == nil || !strings.Contains(block[1], address) {
		t.Fatalf("docs/nats.md has no program in %s that connects to %s", language, address)
	}
	dir, err := os.MkdirTemp(clients.Dir(), ".docs-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	file := filepath.Join(dir, map[string]string{"go": "main.go", "js": "main.mjs"}[language])
	if err := os.WriteFile(file, []byte(strings.Replace(block[1], address, url, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if language == "js" {
		return []string{"node", file}
	}
	binary := filepath.Join(t.TempDir(), "subscriber")
	if out, err := exec.Command("go", "build", "-o", binary, file).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return []string{binary}
}

func grant(t *testing.T, store *natskv.Store, profile string) {
	t.Helper()
	none := lease.Entry{Record: lease.Record{ProfileID: profile}}
	r, err := none.Record.Grant(lease.Request{SessionID: "s", WorkerID: "w", TaskID: "t", LauncherID: "l", TTL: time.Minute}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Swap(t.Context(), none, r); err != nil {
		t.Fatal(err)
	}
	if err := store.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// wantEvents runs the program until it has printed and acknowledged as many events, and
// then ends it.
func wantEvents(t *testing.T, url string, command []string, subjects ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cancel()
		_ = cmd.Wait() // it was killed
	}()
	lines := bufio.NewScanner(out)
	for _, want := range subjects {
		if !lines.Scan() {
			cancel()
			_ = cmd.Wait()
			t.Fatalf("%v ended before %s: %s", command, want, errs.String())
		}
		if got := lines.Text(); !strings.HasPrefix(got, want+" {") {
			t.Errorf("%v printed %q, want %s", command, got, want)
		}
	}
	nc := natstest.Connect(t, url)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for {
		audit, err := js.Consumer(ctx, natskv.Stream, "audit")
		if err != nil {
			t.Fatal(err)
		}
		if info := audit.CachedInfo(); info.NumPending == 0 && info.NumAckPending == 0 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}
