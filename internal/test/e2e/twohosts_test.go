package e2e

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"leasehold/internal/test/clients"
)

// block is one fenced block of a page.
type block struct{ kind, text string }

var fence = regexp.MustCompile("(?ms)^```([^\n]*)\n(.*?)^```$")

func blocksOf(t *testing.T, page string) []block {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", page))
	if err != nil {
		t.Fatal(err)
	}
	var blocks []block
	for _, m := range fence.FindAllStringSubmatch(string(b), -1) {
		blocks = append(blocks, block{m[1], m[2]})
	}
	return blocks
}

// TestTwoHosts does what docs/two-hosts.md says, line by line. Other than on the page, the
// hosts are two addresses of this one, their port is a free one, and leases are short.
func TestTwoHosts(t *testing.T) {
	t.Parallel()
	n := startNATS(t)
	// The module is looked for beside the script, or above it.
	dir := t.TempDir()
	if err := os.Symlink(filepath.Join(clients.Dir(), "node_modules"), filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	as := strings.NewReplacer(
		"host-1.example.com", "127.0.0.2", "host-2.example.com", "127.0.0.3", "tls://nats-1.example.com", n.url(),
		":9333", fmt.Sprintf(":%d", portFreeAt(t, "127.0.0.2", "127.0.0.3")))
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "LEASEHOLD_") })
	env = append(env, "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"), "LEASEHOLD_LEASE_TTL=15s", "LEASEHOLD_HEADLESS=true", "LEASEHOLD_LOG_FORMAT=json", "LEASEHOLD_LOG_LEVEL=debug")
	// What a shell exports, the next ones have.
	sh := func(text string) *exec.Cmd {
		keep := filepath.Join(dir, "exported")
		cmd := exec.Command("sh", "-euc", "[ ! -f "+keep+" ] || . "+keep+"\n"+text)
		if !isRun(text) {
			cmd.Args[2] += "\n export -p | grep -E ' (HOST_|LEASEHOLD_|NODE_|SSL_)' > " + keep
		}
		cmd.Dir, cmd.Env = dir, env
		return cmd
	}
	var logs []string
	said, ran, showed := "", 0, 0
	for _, b := range blocksOf(t, "two-hosts.md") {
		text := as.Replace(b.text)
		name, isScript := strings.CutPrefix(b.kind, "js ")
		switch {
		case isScript:
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		case b.kind == "sh" && isRun(text):
			logs = append(logs, runInBackground(t, sh("exec "+text)))
			ran++
		case b.kind == "sh":
			cmd := sh(text)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%s%v\n%s%s", text, err, out, &stderr)
			}
			said = string(out)
			ran++
		case b.kind == "text":
			if said != text {
				t.Errorf("the page shows\n%swhat came was\n%s", text, said)
			}
			showed++
		default:
			t.Errorf("a block of kind %q", b.kind)
		}
	}
	if ran < 8 || showed < 4 || len(logs) != 2 {
		t.Errorf("%d blocks ran, %d outputs were compared, %d sidecars", ran, showed, len(logs))
	}
	token, err := os.ReadFile(filepath.Join(dir, "team.token"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range logs {
		log, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(log, bytes.TrimSpace(token)) {
			t.Errorf("%s has the token", path)
		}
		if secret := regexp.MustCompile(`/s/[A-Za-z0-9_-]{20,}`).Find(log); secret != nil {
			t.Errorf("%s has the secret %s", path, secret)
		}
	}
}

func isRun(text string) bool { return strings.Contains(text, "leasehold run ") }

// portFreeAt is a port that nobody listens on at any of the addresses.
func portFreeAt(t *testing.T, addresses ...string) int {
	t.Helper()
	for range 20 {
		first, err := net.Listen("tcp", addresses[0]+":0")
		if err != nil {
			t.Fatal(err)
		}
		port := first.Addr().(*net.TCPAddr).Port
		free := first.Close() == nil
		for _, other := range addresses[1:] {
			l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", other, port))
			free = free && err == nil && l.Close() == nil
		}
		if free {
			return port
		}
	}
	t.Fatal("no port is free at all addresses")
	return 0
}

// runInBackground starts a sidecar, which ends with the test, waits until it is ready, and
// returns the path of its log.
func runInBackground(t *testing.T, cmd *exec.Cmd) (log string) {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "log")
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = f
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if readyLine.MatchString(lines.Text()) {
				close(ready)
			}
		}
		_ = cmd.Wait() // its state is looked at
	}()
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Error(err)
		}
		<-ended
		if b, _ := os.ReadFile(f.Name()); t.Failed() || !cmd.ProcessState.Success() {
			t.Errorf("%s: %v\n%s", cmd.Args, cmd.ProcessState, b)
		}
	})
	select {
	case <-ready:
	case <-ended:
		b, _ := os.ReadFile(f.Name())
		t.Fatalf("%s: %v\n%s", cmd.Args, cmd.ProcessState, b)
	case <-time.After(time.Minute):
		t.Fatal("the sidecar is not ready after a minute")
	}
	return f.Name()
}
