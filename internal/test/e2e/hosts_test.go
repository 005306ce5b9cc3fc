package e2e

import (
	"bytes"
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
	"leasehold/internal/test/clients"
	"leasehold/lease"
)

// pair starts two launchers on one NATS server.
func pair(t *testing.T, args ...string) (home, other *sidecar) {
	t.Helper()
	return pairOn(t, startNATS(t), args...)
}

// pairOn is pair on a server of the test.
func pairOn(t *testing.T, n *natsServer, args ...string) (home, other *sidecar) {
	t.Helper()
	home, other = &sidecar{client: http.DefaultClient, young: true}, &sidecar{client: http.DefaultClient, young: true}
	home.begin(t, append(n.args(args...), "--launcher-id", "home")...)
	other.begin(t, append(n.args(args...), "--launcher-id", "other")...)
	for _, s := range []*sidecar{home, other} { // which wait at the same time
		s.young = false
		s.awaitGrantDelay(t)
	}
	return home, other
}

// TestWorkersAreSentHome: whoever asks another launcher gets the home's address over REST, and is
// redirected there by a websocket, with the token where each client can put it; also who asks for
// whichever profile fits. TestTwoHosts does it with the token in a header of the discovery.
func TestWorkersAreSentHome(t *testing.T) {
	t.Parallel()
	const token = "0123456789-the-token-of-both-hosts"
	file := filepath.Join(t.TempDir(), "token")
	write(t, file, []byte(token+"\n"))
	home, other := pair(t, append(warmly, "--allow-uid", fmt.Sprintf("%d=admin", os.Geteuid()), "--token-file", file)...)
	home.label(t, "far", map[string]string{"region": "us"})
	home.call(t, "PUT", "/v1/profiles/far", map[string]any{"keep_warm": true}, nil)
	headers := `{"Authorization":"Bearer ` + token + `"}`
	asked := strings.Replace(other.URL, "http", "ws", 1)
	for i, c := range []struct {
		script, url string
		args        []string
	}{
		{clients.Puppeteer, other.socket("far", "worker=w&task=0&wait=30s&token="+token), nil},
		{clients.Playwright, asked + "/any/devtools/browser/?worker=w&task=1&labels=region:us&wait=30s", []string{headers}},
	} {
		other.awaitFree(t, "far")
		var problem map[string]any
		eventually(t, "the home's address", func() error {
			code := other.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": "far", "create": true}, &problem)
			if code != 421 || problem["code"] != "wrong_home" || problem["home_launcher"] != "home" || problem["location"] != home.URL {
				return fmt.Errorf("%d %v, want location %s", code, problem, home.URL)
			}
			return nil
		})
		worker := clients.Start(t, c.script, append([]string{c.url, clients.Interactive}, c.args...)...)
		worker.Expect(t, "connect")
		if r := home.record(t, "far"); r.State != lease.Held || r.LauncherID != "home" || r.TaskID != fmt.Sprint(i) || r.Principal != "token-file" {
			t.Errorf("%s %s: %+v", c.script, c.url, r)
		}
		if shown := other.record(t, "far"); shown.ExpiresAt.Before(time.Now()) {
			t.Errorf("the other launcher shows a lease that ended at %v", shown.ExpiresAt)
		}
		if code := other.call(t, "GET", "/v1/sessions?profile_id=far", nil, &problem); code != 421 || problem["location"] != home.URL {
			t.Errorf("the sessions of far at the other launcher: %d %v", code, problem)
		}
		if i == 0 {
			askedElsewhere(t, home, other, "far")
		}
		worker.Do(t, act("disconnect"))
		home.until(t, "far", lease.Available)
	}
	for _, s := range []*sidecar{home, other} {
		log, err := os.ReadFile(s.stderr.Name())
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(log, []byte(token)) || regexp.MustCompile(`/s/[A-Za-z0-9_-]{20,}`).Match(log) {
			t.Error("a log has a secret")
		}
	}
	if log, _ := os.ReadFile(other.stderr.Name()); bytes.Count(log, []byte("caller sent on to the profile's home")) < 2 {
		t.Error("the log does not say that the callers were sent on")
	}
}

// askedElsewhere has a person asked for and a session taken over at a sidecar that does not have
// it: the commands go on at the home.
func askedElsewhere(t *testing.T, home, other *sidecar, profile string) {
	t.Helper()
	run := func(args ...string) (*exec.Cmd, *bytes.Buffer) {
		var out bytes.Buffer
		cmd := exec.CommandContext(t.Context(), binary, append(args, "--url", other.URL)...)
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd, &out
	}
	until := func(what string, is func(now handed) bool) {
		t.Helper()
		eventually(t, what, func() error {
			var all struct{ Items []handed }
			if code := home.call(t, "GET", "/v1/sessions?profile_id="+profile, nil, &all); code != 200 || len(all.Items) != 1 || !is(all.Items[0]) {
				return fmt.Errorf("%d %+v", code, all)
			}
			return nil
		})
	}
	ask, said := run("ask", "the code", "--profile", profile, "--wait", "5m")
	until("the request", func(now handed) bool { return now.Ask != nil && now.Ask.Reason == "the code" })
	take, url := run("take", profile, "--person", "Ann")
	until("the person", func(now handed) bool { return now.Person != nil && now.Person.Name == "Ann" })
	back, out := run("take", profile, "--person", "Ann", "--hand-back", "--note", "typed it")
	if err := back.Wait(); err != nil {
		t.Errorf("handing back: %v, %s", err, out)
	}
	if err := ask.Wait(); err != nil || said.String() != "answered by Ann: typed it\n" {
		t.Errorf("the worker hears: %v, %s", err, said)
	}
	if err := take.Wait(); err != nil || !strings.Contains(url.String(), profile+" is yours: "+home.URL+"/console/"+profile+"/live") {
		t.Errorf("the person hears: %v, %s", err, url)
	}
}

// TestTheStoreForgets: the store is wiped, and later goes back, while one profile is in
// use and another waits for a person. The first session goes on, the second profile
// still waits, and no token is granted twice.
func TestTheStoreForgets(t *testing.T) {
	t.Parallel()
	n := startNATS(t)
	s, web := start(t, append(n.args("--lease-ttl", "30s"), warmly...)...), newSite(t) // its store is away for some seconds

	lost := dial(t, s.socket("judged", "worker=w&task=t"))
	page, _ := lost.visit(t, web.URL+"/shop")
	lost.evaluate(t, page, `document.querySelector("button").click()`)
	eventually(t, "the POST", func() error {
		if web.Posts.Load() == 0 {
			return fmt.Errorf("no POST")
		}
		return nil
	})
	old := filepath.Join(t.TempDir(), "old")
	n.stop()
	if err := os.CopyFS(old, os.DirFS(n.dir)); err != nil {
		t.Fatal(err)
	}
	n.start(t)
	lost.drop()
	judged := s.until(t, "judged", lease.ManualReview)

	c := dial(t, s.socket("used", "worker=w&task=t&keep_warm=true"))
	page, _ = c.page(t, "about:blank", "")
	held := s.record(t, "used")
	for _, how := range []string{"wiped", "rolled back"} {
		n.stop()
		if err := os.RemoveAll(n.dir); err != nil {
			t.Fatal(err)
		}
		if how == "rolled back" {
			if err := os.CopyFS(n.dir, os.DirFS(old)); err != nil {
				t.Fatal(err)
			}
		}
		n.start(t)
		eventually(t, how+": the records to be back", func() error {
			if r := s.record(t, "used"); !r.StaleSince.IsZero() || r.State != lease.Held || r.Token != held.Token || r.SessionID != held.SessionID {
				return fmt.Errorf("used: %s, token %d, as of %v", r.State, r.Token, r.StaleSince)
			}
			if r := s.record(t, "judged"); !r.StaleSince.IsZero() || r.State != lease.ManualReview || r.Token != judged.Token || r.EvidenceID != judged.EvidenceID {
				return fmt.Errorf("judged: %s, token %d of %d, evidence %s", r.State, r.Token, judged.Token, r.EvidenceID)
			}
			return nil
		})
		if sum := c.evaluate(t, page, "1+1"); sum != "2" {
			t.Errorf("%s: the worker is disturbed: 1+1 is %s", how, sum)
		}
		var problem map[string]any
		if code := s.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": "judged"}, &problem); code != 423 {
			t.Errorf("%s: a profile that waits for a person: %d %v", how, code, problem)
		}
	}
	c.close(t)
	c.ended(t)
	s.until(t, "used", lease.Available)
	dial(t, s.socket("used", "worker=w&task=t2&wait=60s")).call(t, "", "Browser.getVersion", nil, nil)
	if r := s.record(t, "used"); r.Token != held.Token+1 {
		t.Errorf("token %d, want %d", r.Token, held.Token+1)
	}
}

// pause stops the sidecar's process, and returns when none of its threads runs any more.
func (s *sidecar) pause(t *testing.T) {
	t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the sidecar to stand still", func() error {
		threads, err := procfs.Threads(s.cmd.Process.Pid)
		for _, thread := range threads {
			if err == nil && thread.State != 'T' {
				err = fmt.Errorf("thread %d is in state %c", thread.PID, thread.State)
			}
		}
		return err
	})
}

// TestAPausedLauncherSendsNothing: commands that a worker sent while the launcher was
// paused for longer than its lease do not reach the browser when it goes on.
func TestAPausedLauncherSendsNothing(t *testing.T) {
	t.Parallel()
	home, other := pair(t)
	web := newSite(t)
	c := dial(t, home.socket("paused", "worker=w&task=t"))
	page, _ := c.visit(t, web.URL+"/")
	held := home.record(t, "paused")
	home.pause(t)
	late := c.send(t, page, "Runtime.evaluate", map[string]any{"expression": "fetch('/late', {method: 'POST'})"})
	r := other.until(t, "paused", lease.Quarantined)
	if err := home.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if m, err := c.Answer(t.Context(), late); err == nil && m.Error == nil {
		t.Errorf("a command of a lease that was taken passed: %s", m.Result)
	}
	home.until(t, "paused", lease.Available, lease.ManualReview)
	if web.Posts.Load() != 0 {
		t.Error("the late command reached the page")
	}
	if r.Token != held.Token+1 {
		t.Errorf("token %d after %d", r.Token, held.Token)
	}
	if left := home.browsers(t); len(left) != 0 {
		t.Errorf("browsers are left: %v", left)
	}
}
