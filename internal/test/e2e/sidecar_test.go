package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	ossignal "os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"leasehold/internal/procfs"
	"leasehold/internal/test/built"
	"leasehold/internal/test/failed"
	"leasehold/internal/test/fakechrome"
	"leasehold/internal/test/s3test"
	"leasehold/launcher/api"
	"leasehold/lease"
)

var binary string

func TestMain(m *testing.M) {
	// Under nohup the sidecars would inherit that SIGHUP is ignored. A signal that is
	// waited for has its default effect in what is started.
	ossignal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	code, err := build(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func build(m *testing.M) (_ int, err error) {
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": s3test.AccessKey, "AWS_SECRET_ACCESS_KEY": s3test.SecretKey, "AWS_SESSION_TOKEN": ""} {
		if err := os.Setenv(name, value); err != nil { // for the sidecars whose store is an S3 server of the test
			return 1, err
		}
	}
	// The chaos test, which runs the same parts with more going on at once, always has a
	// sidecar with the race detector. Here that would take a seventh of the suite's
	// processor time, so it is for those who ask for it.
	if os.Getenv("LEASEHOLD_RACE") != "" {
		var dir string
		if dir, err = os.MkdirTemp("", "leasehold-e2e-"); err != nil {
			return 1, err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		binary = filepath.Join(dir, "leasehold")
		if out, err := exec.Command("go", "build", "-race", "-o", binary, "leasehold/cmd/leasehold").CombinedOutput(); err != nil {
			return 1, fmt.Errorf("building: %w\n%s", err, out)
		}
		// Otherwise a program built with the race detector sleeps for a second before it
		// ends.
		if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
			return 1, err
		}
	} else if binary, err = built.Leasehold(); err != nil {
		return 1, err
	}
	// While one test waits, for a lease to end or a client to connect, others have the processors.
	// With more of them side by side all only take longer.
	flag.Parse()
	const tests = "test.parallel"
	asked := false
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == tests })
	if !asked {
		if err := flag.Set(tests, "3"); err != nil {
			return 1, err
		}
	}
	return m.Run(), nil
}

// sidecar is a running sidecar.
type sidecar struct {
	URL, NATS string
	Dir       string
	args      []string
	// client is who the test is to the sidecar.
	client *http.Client
	// young says that a test wants a store that was just made.
	young bool
	// through is a program that starts the sidecar; empty for none.
	through string
	cmd     *exec.Cmd
	done    chan struct{}
	stderr  *os.File
}

// start starts a sidecar on free ports, and waits until it is ready. If the test fails, what the
// sidecar leaves is kept (internal/test/failed).
func start(t *testing.T, args ...string) *sidecar {
	t.Helper()
	return startFor(t, http.DefaultClient, args...)
}

// fakeBrowsers are the arguments of a sidecar whose browsers are scripted (internal/test/fakechrome), for
// a test that looks at no page: a real one takes some seconds of a processor to start and end.
func fakeBrowsers(t *testing.T) []string {
	t.Helper()
	return []string{"--chrome", fakechrome.Binary(t), "--browser-sandbox", "off"}
}

// startFor is start for a test that is another client.
func startFor(t *testing.T, client *http.Client, args ...string) *sidecar {
	t.Helper()
	return (&sidecar{client: client}).begin(t, args...)
}

// begin starts a sidecar for the first time.
func (s *sidecar) begin(t *testing.T, args ...string) *sidecar {
	t.Helper()
	s.Dir = t.TempDir()
	s.args = append([]string{
		"run", "--data-dir", s.Dir, "--listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0",
		"--lease-ttl", "90s", "--reconnect-grace", "1s", "--cooldown", "0s", "--log-format", "json", "--log-level", "debug", "--headless",
	}, args...)
	s.launch(t)
	t.Cleanup(func() {
		left := failed.Sidecar{Name: filepath.Base(s.Dir), URL: s.URL, Client: s.client, DataDir: s.Dir, Log: s.stderr.Name()}
		left.Answers(t)
		s.stop(t)
		eventually(t, "everything that it started ends", func() error {
			if browsers, guards := s.browsers(t), s.guards(t); len(browsers)+len(guards) > 0 {
				return fmt.Errorf("browsers %v, guards %v", browsers, guards)
			}
			return nil
		})
		left.Files(t)
	})
	return s
}

var (
	readyLine = regexp.MustCompile(`^leasehold is ready at (\S+)`)
	natsURL   = regexp.MustCompile(`events: (\S+)\)`)
)

func (s *sidecar) launch(t *testing.T) {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(s.Dir, "stderr.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	s.stderr = log
	s.cmd = exec.Command(binary, s.args...)
	if s.through != "" {
		s.cmd = exec.Command(s.through, append([]string{binary}, s.args...)...)
	}
	s.cmd.Stderr = log
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.done = make(chan struct{})
	ready := make(chan string, 1)
	go func() {
		defer close(s.done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if readyLine.MatchString(lines.Text()) {
				ready <- lines.Text()
			}
		}
		_ = s.cmd.Wait() // the status is checked after done
	}()
	select {
	case line := <-ready:
		s.URL = readyLine.FindStringSubmatch(line)[1]
		s.NATS = natsURL.FindStringSubmatch(line)[1]
	case <-s.done:
		b, _ := os.ReadFile(log.Name())
		t.Fatalf("the sidecar ended: %v\n%s", s.cmd.ProcessState, b)
	case <-time.After(patience):
		t.Fatalf("the sidecar is not ready after %v", patience)
	}
	eventually(t, "readyz", func() error {
		resp, err := s.client.Get(s.URL + "/readyz")
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		if resp.StatusCode != 200 {
			return errors.New(resp.Status)
		}
		return nil
	})
	if slices.Contains(s.args, "--nats-url") && !s.young {
		s.awaitGrantDelay(t)
	}
}

// awaitGrantDelay waits until the sidecar makes profiles, and does something with them. In a store
// that it shares, which is young in a test, it waits for what other launchers may know.
func (s *sidecar) awaitGrantDelay(t *testing.T) {
	t.Helper()
	first := fmt.Sprint("first-", time.Now().UnixNano())
	for _, step := range [][2]string{{"PUT", "/v1/profiles/" + first}, {"POST", "/v1/profiles/" + first + "/archive"}} {
		eventually(t, "a store that is no longer young", func() error {
			var problem map[string]any
			if code := s.call(t, step[0], step[1], map[string]any{}, &problem); code != 200 {
				return fmt.Errorf("%d %v", code, problem)
			}
			return nil
		})
	}
}

// kill ends the sidecar by SIGKILL.
func (s *sidecar) kill(t *testing.T) {
	t.Helper()
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-s.done
}

// stop drains the sidecar, which has to end with exit status 0.
func (s *sidecar) stop(t *testing.T) {
	t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); errors.Is(err, os.ErrProcessDone) {
		return
	}
	select {
	case <-s.done:
		if code := s.cmd.ProcessState.ExitCode(); code != 0 {
			t.Errorf("SIGTERM: exit status %d, want 0", code)
		}
	case <-time.After(patience):
		_ = s.cmd.Process.Kill()
		t.Errorf("the sidecar did not drain in %v", patience)
	}
}

// cli runs a client command against the sidecar.
func (s *sidecar) cli(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), "LEASEHOLD_URL="+s.URL, "LEASEHOLD_NATS_URL="+s.NATS)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// call makes a REST request, and decodes the answer into result unless that is nil. It
// returns the status.
func (s *sidecar) call(t *testing.T, method, path string, body, result any) int {
	t.Helper()
	var r io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		r = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, r)
	if err != nil {
		t.Fatal(err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if result != nil {
		if raw, ok := result.(*[]byte); ok {
			*raw = b
		} else if err := json.Unmarshal(b, result); err != nil {
			t.Fatalf("%s %s: %d %s: %v", method, path, resp.StatusCode, b, err)
		}
	}
	return resp.StatusCode
}

func (s *sidecar) record(t *testing.T, profile string) api.Profile {
	t.Helper()
	var r api.Profile
	if code := s.call(t, "GET", "/v1/profiles/"+profile, nil, &r); code != 200 {
		t.Fatalf("profile %s: status %d", profile, code)
	}
	return r
}

// until waits until the profile is in one of the states.
func (s *sidecar) until(t *testing.T, profile string, states ...lease.State) api.Profile {
	t.Helper()
	var r api.Profile
	eventually(t, fmt.Sprintf("%s to be %v", profile, states), func() error {
		r = s.record(t, profile)
		for _, state := range states {
			if r.State == state {
				return nil
			}
		}
		return fmt.Errorf("it is %s (%s)", r.State, r.Reason)
	})
	return r
}

// events returns the profile's history, oldest first.
func (s *sidecar) events(t *testing.T, profile string) []lease.Event {
	t.Helper()
	var h struct{ Items []lease.Event }
	if code := s.call(t, "GET", "/v1/profiles/"+profile+"/history", nil, &h); code != 200 {
		t.Fatalf("history of %s: status %d", profile, code)
	}
	return h.Items
}

func names(events []lease.Event) string {
	var n []string
	for _, e := range events {
		n = append(n, e.Event)
	}
	return strings.Join(n, " ")
}

// oneShot is the one-shot URL for Playwright.
func (s *sidecar) oneShot(profile, query string) string {
	return s.URL + "/profiles/" + profile + "?create=true&" + query
}

func (s *sidecar) socket(profile, query string) string {
	return strings.Replace(s.URL, "http", "ws", 1) + "/devtools/browser/" + profile + "?create=true&" + query
}

// eventually waits until try returns no error. What takes longer is looked at less often: a look at
// all processes, or at a sidecar's answer, takes processor time from what is waited for.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	deadline := time.Now().Add(90 * time.Second)
	for pause := 20 * time.Millisecond; ; pause = min(pause*5/4, 300*time.Millisecond) {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited for %s: %v", what, err)
		}
		time.Sleep(pause)
	}
}

// site is a web site whose POSTs are counted.
type site struct {
	URL   string
	Posts atomic.Int64
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			s.Posts.Add(1)
		}
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, `<!doctype html><title>page %s</title><h1>%s</h1><p>cookies: %s</p>
<button onclick="fetch('/api',{method:'POST',body:'x'})">buy</button><a href="/next">next</a>`,
			url.PathEscape(r.URL.Path), url.PathEscape(r.URL.Path), url.QueryEscape(r.Header.Get("Cookie")))
	}))
	t.Cleanup(server.Close)
	s.URL = server.URL
	return s
}

// browsers returns the pids of the main Chrome processes on the sidecar's profiles. A
// process that one of them has just forked has its command line, too, and is none.
func (s *sidecar) browsers(t *testing.T) []int {
	t.Helper()
	return running(t, func(line []byte) bool {
		return bytes.Contains(line, []byte("--user-data-dir="+s.Dir)) && bytes.Contains(line, []byte("--remote-debugging-pipe")) && !bytes.Contains(line, []byte("--type="))
	})
}

// guards returns the pids of the guards of the sidecar's data directory.
func (s *sidecar) guards(t *testing.T) []int {
	t.Helper()
	return running(t, func(line []byte) bool {
		return bytes.Contains(line, []byte("\x00guard\x00--data-dir\x00"+s.Dir+"\x00"))
	})
}

// running returns the pids of the living processes for whose command line wanted is true, without
// those whose parent is one of them. The arguments in a command line are ended by zero bytes.
func running(t *testing.T, wanted func(line []byte) bool) []int {
	t.Helper()
	all, err := procfs.List()
	if err != nil {
		t.Fatal(err)
	}
	found := map[int]procfs.Process{}
	for _, p := range all {
		if line, err := procfs.CommandLine(p.PID); err == nil && p.Alive() && wanted(line) {
			found[p.PID] = p
		}
	}
	var pids []int
	for pid, p := range found {
		if _, forked := found[p.Parent]; !forked {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}
