package chrome_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"leasehold/internal/test/sockets"
	"leasehold/launcher/chrome"
)

// The browser that describes the protocol has a port. Another user looks at every port
// of the host meanwhile, and never finds it.
func TestNobodyElseReachesTheBrowserThatDescribesItself(t *testing.T) {
	binary, err := chrome.Find("")
	if err != nil {
		t.Fatal(err)
	}
	marked := func(mark string) string {
		path := filepath.Join(t.TempDir(), "chrome")
		if err := os.WriteFile(path, []byte("#!/bin/sh\nexec "+binary+" --user-agent="+mark+" \"$@\"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, c := range map[string]*chrome.Confinement{"confined": {}, "not confined": nil} {
		t.Run(name, func(t *testing.T) {
			ownNetwork(t)
			mark := "leasehold-test-" + strconv.Itoa(os.Getpid())
			reached := pollPorts(t, mark)
			raw, err := chrome.Describe(t.Context(), marked(mark), filepath.Join(t.TempDir(), "tmp"), c, nil)
			var description struct{ Domains []struct{ Domain string } }
			if err == nil {
				err = json.Unmarshal(raw, &description)
			}
			if err != nil || len(description.Domains) < 20 {
				t.Errorf("%d domains, %v", len(description.Domains), err)
			}
			if got := reached(); got != "" {
				t.Errorf("another user reached it: %s", got)
			}
		})
	}
	t.Run("the neighbour sees a port of the host", func(t *testing.T) {
		ownNetwork(t)
		mark := "leasehold-test-open-" + strconv.Itoa(os.Getpid())
		reached := pollPorts(t, mark)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		dir := t.TempDir()
		cmd := exec.CommandContext(ctx, marked(mark), "--headless", "--no-sandbox", "--remote-debugging-port=0", "--user-data-dir="+dir, "--disable-gpu")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			_ = cmd.Wait()
		}()
		until(t, "the neighbour connects", func() bool { return reached() != "" })
	})
}

// ownNetwork gives the rest of the test, and the processes that it starts, a network of
// their own: the neighbour asks every port that it finds, and other tests have ports too.
func ownNetwork(t *testing.T) {
	t.Helper()
	runtime.LockOSThread() // for good: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("a network of the test's own: %v (these tests run as root)", err)
	}
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		t.Fatalf("ip link set lo up: %v\n%s", err, out)
	}
}

// pollPorts starts a process of another user that asks every loopback port for its
// version, over and over. The function returns the first answer with the mark.
func pollPorts(t *testing.T, mark string) func() string {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{modeVar + "=neighbour", "TEST_MARK=" + mark}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stranger, Gid: stranger}}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 16)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
	}()
	if line := <-lines; line != "looking" {
		t.Fatalf("the neighbour said %q", line)
	}
	t.Cleanup(func() {
		_ = in.Close()
		for range lines {
		}
		_ = cmd.Wait()
	})
	return func() string {
		select {
		case line := <-lines:
			return line
		default:
			return ""
		}
	}
}

// playNeighbour is the process of the other user. It ends with its input.
func playNeighbour() {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	mark := os.Getenv("TEST_MARK")
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	asked := map[string]bool{}
	fmt.Println("looking")
	for {
		select {
		case <-gone:
			return
		case <-time.After(time.Millisecond):
		}
		for _, port := range openPorts() {
			if asked[port] {
				continue
			}
			resp, err := client.Get("http://127.0.0.1:" + port + "/json/version")
			if err != nil {
				continue
			}
			b, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
			_ = resp.Body.Close()
			if err != nil {
				continue
			}
			asked[port] = !strings.Contains(string(b), "Browser")
			if strings.Contains(string(b), mark) {
				fmt.Printf("port %s: %q\n", port, b)
				return
			}
		}
	}
}

// openPorts are the TCP ports of this network on which somebody listens.
func openPorts() []string {
	var ports []string
	open, err := sockets.All()
	if err != nil {
		fmt.Println(err)
	}
	for _, s := range open {
		if s.Listening {
			ports = append(ports, strconv.FormatUint(s.Port, 10))
		}
	}
	return ports
}
