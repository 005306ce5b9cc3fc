package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"leasehold/evidence"
	"leasehold/internal/test/fakechrome"
	"leasehold/internal/test/s3test"
)

// patience is the time limit for what happens by itself unless something is broken.
const patience = 90 * time.Second

// startSidecarProcess runs the real command on a data directory. It returns the sidecar's
// URL, and a function that has it drain and checks its status, which is called at the end
// of the test at the latest.
func startSidecarProcess(t *testing.T, dir string, args ...string) (url string, stop func()) {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(dir, "stderr.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return startSidecarLogging(t, dir, log, args...)
}

// startSidecarLogging is startSidecarProcess with another standard error, which it closes.
func startSidecarLogging(t *testing.T, dir string, log *os.File, args ...string) (url string, stop func()) {
	t.Helper()
	cmd := exec.Command("leasehold", append([]string{
		"run", "--data-dir", dir, "--listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0", "--lease-ttl", "30s",
		"--reconnect-grace", "0s", "--cooldown", "0s", "--log-format", "json", "--log-level", "trace", "--headless",
	}, args...)...)
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = log
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make(chan string, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		line := regexp.MustCompile(`^leasehold is ready at (\S+)`)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			if m := line.FindStringSubmatch(lines.Text()); m != nil {
				ready <- m[1]
			}
		}
		_ = cmd.Wait() // the status is checked below
	}()
	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		select {
		case <-done:
		case <-time.After(patience):
			_ = cmd.Process.Kill()
			<-done
		}
		if code := cmd.ProcessState.ExitCode(); code != 0 {
			t.Errorf("the sidecar ended with %d", code)
		}
		if t.Failed() {
			b, _ := os.ReadFile(log.Name())
			t.Logf("the sidecar's log:\n%s", b)
		}
		_ = log.Close()
	})
	t.Cleanup(stop)
	select {
	case url = <-ready:
	case <-done:
		t.Fatal("the sidecar ended")
	case <-time.After(patience):
		t.Fatal("the sidecar is not ready")
	}
	return url, stop
}

// get fetches a document from the sidecar.
func get(t *testing.T, url string, into any) []byte {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d, %v: %.300s", url, response.StatusCode, err, b)
	}
	if into != nil {
		if err := json.Unmarshal(b, into); err != nil {
			t.Fatalf("%s: %v: %.300s", url, err, b)
		}
	}
	return b
}

// TestALogThatNobodyReads: a reader of the log that went away ends nothing, and one that stalls
// holds nothing up, neither the start nor a session nor the end.
func TestALogThatNobodyReads(t *testing.T) {
	for _, gone := range []bool{true, false} {
		t.Run(fmt.Sprintf("gone=%t", gone), func(t *testing.T) {
			from, to, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer from.Close()
			if _, err := unix.FcntlInt(to.Fd(), unix.F_SETPIPE_SZ, 4096); err != nil { // the log of the start alone is longer
				t.Fatal(err)
			}
			if gone {
				_ = from.Close()
			}
			url, stop := startSidecarLogging(t, t.TempDir(), to)
			if metrics := string(get(t, url+"/metrics", nil)); gone == strings.Contains(metrics, "leasehold_log_lines_dropped_total 0\n") {
				t.Errorf("the lines that were dropped:%s", regexp.MustCompile(`(?m)^leasehold_log.*$`).FindString(metrics))
			}
			stop()
			http.DefaultClient.CloseIdleConnections()
		})
	}
}

// TestSidecarOnS3: the evidence of released sessions is kept in a bucket, and removed when
// it is more than the limit.
func TestSidecarOnS3(t *testing.T) {
	server := s3test.Start(t)
	t.Setenv("AWS_ACCESS_KEY_ID", s3test.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", s3test.SecretKey)
	t.Setenv("AWS_SESSION_TOKEN", "")
	store, dir := server.URL("host-1"), t.TempDir()
	defer http.DefaultClient.CloseIdleConnections()

	browser := fakechrome.Binary(t)
	url, stop := startSidecarProcess(t, dir, "--evidence-store", store, "--chrome", browser)
	for range 3 {
		var session struct {
			ID    string `json:"session_id"`
			Token uint64 `json:"lease_token"`
		}
		post(t, "POST", url+"/v1/sessions", `{"profile_id":"shop","worker_id":"w","task_id":"t","create":true}`, &session)
		post(t, "DELETE", url+"/v1/sessions/"+session.ID, fmt.Sprintf(`{"lease_token":%d,"outcome":"succeeded"}`, session.Token), nil)
	}
	verify := func(removed int, args ...string) {
		t.Helper()
		out, err := exec.Command("leasehold", append([]string{"evidence", "verify", "shop", "--json"}, args...)...).Output()
		var v verification
		if err != nil || json.Unmarshal(out, &v) != nil || !v.OK || len(v.Items) != 1 {
			t.Fatalf("verify: %v\n%s", err, out)
		}
		r := v.Items[0]
		if got := r.CutOff; (got == nil) != (removed == 0) || got != nil && got.Bundles != removed || r.Bundles != 3-removed+min(removed, 1) {
			t.Errorf("%+v, cut off %+v; want %d removed", r, got, removed)
		}
	}
	// What the store did not take in time waits in the spool for the next try.
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		spooled, err := filepath.Glob(filepath.Join(dir, "evidence-spool", "ev*"))
		if err == nil && len(spooled) == 0 {
			break
		}
		if err != nil || time.Now().After(end) {
			t.Fatalf("in the spool: %v, %v", spooled, err)
		}
	}
	verify(0, "--url", url)
	verify(0, "--store", store)
	stop()

	// The newest bundle stays, since the record names it. The other two are removed.
	url, _ = startSidecarProcess(t, dir, "--evidence-store", store, "--evidence-max-bytes", "1", "--chrome", browser)
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		var list struct{ Items []evidence.Manifest }
		get(t, url+"/v1/profiles/shop/evidence", &list)
		if len(list.Items) == 2 && list.Items[1].RecoveryReason == evidence.RetentionReason {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("nothing was removed: %+v", list)
		}
	}
	verify(2, "--url", url)
	verify(2, "--store", store)

	// Wrong credentials are reported at the start, and the secret is not printed.
	t.Setenv("AWS_SECRET_ACCESS_KEY", "hunter2hunter2")
	out, err := exec.Command("leasehold", "run", "--data-dir", t.TempDir(), "--listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0", "--evidence-store", store).CombinedOutput()
	if exitStatus(err) != exitUsage || !bytes.Contains(out, []byte("the secret key is not that of the access key")) || bytes.Contains(out, []byte("hunter2")) {
		t.Errorf("with a wrong secret: %v\n%s", err, out)
	}
}

func exitStatus(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return 0
}

// post sends a JSON body to the sidecar.
func post(t *testing.T, method, url, body string, into any) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode/100 != 2 {
		t.Fatalf("%s %s: %d, %v: %s", method, url, response.StatusCode, err, b)
	}
	if into != nil {
		if err := json.Unmarshal(b, into); err != nil {
			t.Fatal(err)
		}
	}
}
