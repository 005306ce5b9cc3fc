package main

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"leasehold/internal/procfs"
)

// stranger is a user that is not root.
const stranger = 54321

// asStranger is a command of that user, in a directory of its own.
func asStranger(dir, path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Dir = dir
	cmd.Env = []string{"HOME=" + dir, "TMPDIR=" + filepath.Join(dir, "tmp"), "PATH=" + os.Getenv("PATH"), "GORACE=atexit_sleep_ms=0"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stranger, Gid: stranger}}
	return cmd
}

// startAsStranger runs the real command as that user, and returns its URL and its
// process.
func startAsStranger(t *testing.T, dir string, args ...string) (url string, sidecar *exec.Cmd) {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(dir, "stderr.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	sidecar = asStranger(dir, "/proc/self/exe", append([]string{
		"run", "--data-dir", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0", "--lease-ttl", "60s",
		"--cooldown", "0s", "--log-format", "json", "--headless", "--orphan-timeout", "60s",
	}, args...)...)
	sidecar.Args[0] = "leasehold"
	sidecar.Stderr = log
	out, err := sidecar.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := sidecar.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = sidecar.Process.Signal(syscall.SIGTERM) // it may have ended
		_ = sidecar.Wait()
		if t.Failed() {
			b, _ := os.ReadFile(log.Name())
			t.Logf("the sidecar's log:\n%s", b)
		}
	})
	line := regexp.MustCompile(`^leasehold is ready at (\S+)`)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if m := line.FindStringSubmatch(lines.Text()); m != nil {
			return m[1], sidecar
		}
	}
	t.Fatal("the sidecar ended")
	return "", nil
}

// openable returns those files of a process in /proc that another process of the same
// user can open.
func openable(t *testing.T, dir string, pid int) string {
	t.Helper()
	script := fmt.Sprintf(`for f in environ mem maps auxv fd/0; do (: < /proc/%[1]d/$f) 2>/dev/null && echo $f; done; ls /proc/%[1]d/fd >/dev/null 2>&1 && echo fd; true`, pid)
	out, err := asStranger(dir, "/bin/sh", "-c", script).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(string(out)), " ")
}

// children are the main process of a browser and the guard of the sidecar of the directory;
// zero where there is none.
func children(t *testing.T, dir string) (browser, guard int) {
	t.Helper()
	all, err := procfs.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		line, err := procfs.CommandLine(p.PID)
		switch text := string(line); {
		case err != nil || !strings.Contains(text, dir):
		case strings.Contains(text, "\x00--remote-debugging-pipe") && !strings.Contains(text, "--type="):
			browser = p.PID
		case strings.HasPrefix(text, "leasehold\x00guard"):
			guard = p.PID
		}
	}
	return browser, guard
}

// TestNobodyOfItsUserReadsTheSidecar: another process of the sidecar's user opens neither
// its memory nor its files. The sidecar is confined, adopts a browser that it confined
// before, and that browser can be opened: adoption needs that.
func TestNobodyOfItsUserReadsTheSidecar(t *testing.T) {
	dir, err := os.MkdirTemp("", "leasehold-user-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for _, one := range []string{dir, filepath.Join(dir, "tmp")} {
		if err := os.MkdirAll(one, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(one, stranger, stranger); err != nil {
			t.Fatal(err)
		}
	}
	defer http.DefaultClient.CloseIdleConnections()

	url, sidecar := startAsStranger(t, dir, "--browser-sandbox", "require")
	var session struct {
		ID    string `json:"session_id"`
		Token uint64 `json:"lease_token"`
	}
	post(t, "POST", url+"/v1/sessions", `{"profile_id":"shop","worker_id":"w","task_id":"t","create":true}`, &session)
	browser, guard := children(t, dir)
	// Nobody waits for the guard's start. It closes itself as its first act.
	for end := time.Now().Add(patience); (guard == 0 || openable(t, dir, guard) != "") && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		_, guard = children(t, dir)
	}
	const everything = "environ mem maps auxv fd/0 fd"
	for _, one := range []struct {
		what string
		pid  int
		want string
	}{{"the sidecar", sidecar.Process.Pid, ""}, {"its guard", guard, ""}, {"a browser", browser, everything}} {
		if got := openable(t, dir, one.pid); got != one.want || one.pid == 0 {
			t.Errorf("%s (pid %d) can be opened: %q, want %q", one.what, one.pid, got, one.want)
		}
		if limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", one.pid)); err != nil || !strings.Contains(strings.Join(strings.Fields(string(limits)), " "), "core file size 1 1 bytes") {
			t.Errorf("%s leaves core dumps: %v\n%s", one.what, err, limits)
		}
	}
	// The kernel shows nothing of Landlock, but it wants this of whoever uses it.
	if status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", browser)); err != nil || !strings.Contains(string(status), "NoNewPrivs:\t1") {
		t.Errorf("the browser is not confined: %v\n%s", err, status)
	}
	if err := sidecar.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = sidecar.Wait() // killed

	url, _ = startAsStranger(t, dir, "--browser-sandbox", "require")
	post(t, "POST", url+"/v1/sessions/"+session.ID+"/heartbeat", fmt.Sprintf(`{"lease_token":%d}`, session.Token), nil)
	post(t, "DELETE", url+"/v1/sessions/"+session.ID, fmt.Sprintf(`{"lease_token":%d,"outcome":"succeeded"}`, session.Token), nil)
	log, err := os.ReadFile(filepath.Join(dir, "stderr.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"sandbox":"Landlock ABI `, "found the browser of the launcher before", `"rung":"cdp"`} {
		if !strings.Contains(string(log), want) {
			t.Errorf("the log has no %s", want)
		}
	}
}
