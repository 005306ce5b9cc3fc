package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"leasehold/internal/procfs"
	"leasehold/internal/test/freeport"
)

// Users of the units in deploy, which no other test has.
const (
	serviceUser       = 54778
	serviceChromeUser = 54779
)

// unitHost is a systemd that has one unit, with the sidecar that the unit runs.
type unitHost struct {
	*sidecar
	first int // pid of its first process
}

// boot starts a systemd with a unit of deploy.
func boot(t *testing.T, unit string) *unitHost {
	t.Helper()
	work, err := os.MkdirTemp("", "")
	if err != nil {
		t.Fatal(err)
	}
	// The users have to be able to pass through, to read the program.
	if err := os.Chmod(work, 0o755); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	cmd := exec.Command("unshare", "--mount", "testdata/systemd.sh", work, filepath.Join("../../../deploy", unit), binary,
		fmt.Sprint("leasehold:", serviceUser), fmt.Sprint("leasehold-chrome:", serviceChromeUser))
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ports := freeport.Take(t, 2)
	h := &unitHost{sidecar: &sidecar{
		Dir: "/var/lib/leasehold", client: http.DefaultClient,
		URL: fmt.Sprint("http://127.0.0.1:", ports[0]), NATS: fmt.Sprint("nats://127.0.0.1:", ports[1]),
	}}
	t.Cleanup(func() {
		log, _ := os.ReadFile(h.path("/run/leasehold.log"))
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		err := cmd.Wait()
		if err != nil || t.Failed() {
			t.Errorf("%s: %v\n%s\nthe sidecar's log:\n%s", cmd, err, said.Bytes(), log)
		}
		if err := os.RemoveAll(work); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "systemd", func() error {
		h.first = cmd.Process.Pid
		for range 2 { // unshare, and the first process of its namespace
			children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", h.first))
			if err != nil {
				return err
			}
			if _, err := fmt.Sscan(string(children), &h.first); err != nil {
				return fmt.Errorf("process %d has no child: %w", h.first, err)
			}
		}
		_, err := h.systemctl("show", "--property=Version")
		return err
	})
	return h
}

// path is a path of the host.
func (h *unitHost) path(name string) string { return fmt.Sprintf("/proc/%d/root%s", h.first, name) }

func (h *unitHost) systemctl(args ...string) (string, error) {
	cmd := exec.Command("nsenter", append([]string{"--target", fmt.Sprint(h.first), "--mount", "--pid", "--cgroup", "systemctl"}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("systemctl %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), err
}

// browsers and guards are those of this host: one that another test has booted has the same directories.
func (h *unitHost) browsers(t *testing.T) []int { t.Helper(); return h.own(t, h.sidecar.browsers(t)) }

func (h *unitHost) guards(t *testing.T) []int { t.Helper(); return h.own(t, h.sidecar.guards(t)) }

func (h *unitHost) own(t *testing.T, pids []int) []int {
	t.Helper()
	namespace, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", h.first))
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(pids, func(pid int) bool {
		of, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
		return err != nil || of != namespace
	})
}

// does has systemd do something with the unit.
func (h *unitHost) does(t *testing.T, args ...string) {
	t.Helper()
	if _, err := h.systemctl(append(args, "leasehold.service")...); err != nil {
		t.Fatal(err)
	}
}

// property is what systemd knows of the unit.
func (h *unitHost) property(t *testing.T, name string) string {
	t.Helper()
	value, err := h.systemctl("show", "--property="+name, "--value", "leasehold.service")
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// settings writes the file with the service's environment.
func (h *unitHost) settings(t *testing.T, onExit string) {
	t.Helper()
	env := fmt.Sprintf("LEASEHOLD_LISTEN=%s\nLEASEHOLD_NATS_LISTEN=%s\nLEASEHOLD_LEASE_TTL=90s\nLEASEHOLD_RECONNECT_GRACE=60s\nLEASEHOLD_ON_EXIT=%s\n",
		strings.TrimPrefix(h.URL, "http://"), strings.TrimPrefix(h.NATS, "nats://"), onExit)
	if err := os.WriteFile(h.path("/etc/leasehold.env"), []byte(env), 0o600); err != nil {
		t.Fatal(err)
	}
}

// awaitReady waits until the service is ready under a main process.
func (h *unitHost) awaitReady(t *testing.T, after string) (pid string) {
	t.Helper()
	eventually(t, "the service to be ready", func() error {
		if pid = h.property(t, "MainPID"); pid == after || pid == "0" {
			return fmt.Errorf("its main process is %s, and was %s", pid, after)
		}
		resp, err := h.client.Get(h.URL + "/readyz")
		if err != nil {
			return err
		}
		if err := resp.Body.Close(); err != nil || resp.StatusCode != 200 {
			return errors.Join(err, errors.New(resp.Status))
		}
		return nil
	})
	return pid
}

// TestTheUnitsOfSystemd runs the units of deploy under a real systemd, with all that they forbid.
// The browser outlives a launcher that is killed, and one that is restarted for an upgrade, and
// the worker goes on with its page; stopping the service closes it in order.
func TestTheUnitsOfSystemd(t *testing.T) {
	for unit, browserUser := range map[string]uint32{"leasehold.service": serviceUser, "leasehold-browser-user.service": serviceChromeUser} {
		t.Run(unit, func(t *testing.T) {
			h, web := boot(t, unit), newSite(t)
			h.settings(t, "leave")
			h.does(t, "start")
			launcher := h.awaitReady(t, "")

			ses := h.open(t, "shop", nil)
			c := dial(t, ses.CDPURL)
			page, target := c.visit(t, web.URL+"/form")
			c.evaluate(t, page, `window.kept = "here"`)
			before := h.browsers(t)
			if len(before) != 1 {
				t.Fatalf("browsers %v, want one", before)
			}
			h.isConfined(t, before[0], browserUser)
			defer h.closesInOrder(t)
			exchanged := filepath.Join(ses.Exchange, "order.csv")
			if err := os.WriteFile(fmt.Sprintf("/proc/%d/root%s", before[0], exchanged), []byte("1"), 0o600); err != nil {
				t.Fatal(err)
			}
			// sees checks that a launcher, the browser, and a worker beside them have the file that was exchanged.
			sees := func(launcher string) {
				t.Helper()
				for who, root := range map[string]string{"the launcher": h.path("/proc/" + launcher + "/root"), "the browser": fmt.Sprintf("/proc/%d/root", before[0]), "a worker": h.path("")} {
					if _, err := os.Stat(root + exchanged); err != nil {
						t.Errorf("%s: %v", who, err)
					}
				}
			}
			if browserUser != serviceUser {
				h.settings(t, "close")
				h.does(t, "restart") // the one that ends leaves its browser
				sees(h.awaitReady(t, launcher))
				dial(t, ses.CDPURL) // by then the next one has taken it over: what it has not, it leaves, too
				return
			}
			for dir, shared := range map[string]bool{"/var/cache/leasehold/worker": true, "/tmp/worker": false} { // docs/restrictions.md
				if err := h.downloads(t, c, page, before[0], dir); (err == nil) != shared {
					t.Errorf("a worker that has Chrome download into %s: %v; it shares that with Chrome: %v", dir, err, shared)
				}
			}

			goesOn := func(how string) {
				t.Helper()
				if after := h.browsers(t); fmt.Sprint(after) != fmt.Sprint(before) {
					t.Fatalf("browsers %v, after the launcher was %s %v", before, how, after)
				}
				c := dial(t, ses.CDPURL)
				page := c.attach(t, target)
				if got := c.evaluate(t, page, "window.kept"); got != `"here"` {
					t.Errorf("after the launcher was %s, the page has %s", how, got)
				}
			}
			h.does(t, "kill", "--kill-whom=main", "--signal=KILL")
			launcher = h.awaitReady(t, launcher)
			if n := h.property(t, "NRestarts"); n != "1" {
				t.Errorf("systemd restarted it %s times, want 1", n)
			}
			goesOn("killed")
			sees(launcher)

			h.settings(t, "close") // the one that ends now still leaves its browser
			h.does(t, "restart")
			sees(h.awaitReady(t, launcher))
			goesOn("restarted")
		})
	}
}

// downloads has a browser download a file into a directory, and returns why a worker beside it has no such file.
func (h *unitHost) downloads(t *testing.T, c *socket, page string, browser int, dir string) error {
	t.Helper()
	file := filepath.Join(dir, "order.csv")
	c.call(t, "", "Browser.setDownloadBehavior", map[string]any{"behavior": "allow", "downloadPath": dir}, nil)
	c.evaluate(t, page, `Object.assign(document.createElement("a"), {href: URL.createObjectURL(new Blob(["1"])), download: "order.csv"}).click()`)
	eventually(t, file, func() error {
		_, err := os.Stat(fmt.Sprintf("/proc/%d/root%s", browser, file))
		return err
	})
	_, err := os.Stat(h.path(file))
	return err
}

// closesInOrder: stopping the service closes its browser.
func (h *unitHost) closesInOrder(t *testing.T) {
	t.Helper()
	h.does(t, "stop")
	if state, result := h.property(t, "ActiveState"), h.property(t, "Result"); state != "inactive" || result != "success" {
		t.Errorf("the stopped service is %s (%s), want inactive (success)", state, result)
	}
	eventually(t, "everything that it started ends", func() error {
		if browsers, guards := h.browsers(t), h.guards(t); len(browsers)+len(guards) > 0 {
			return fmt.Errorf("browsers %v, guards %v", browsers, guards)
		}
		return nil
	})
	log, err := os.ReadFile(h.path("/run/leasehold.log"))
	if closed := bytes.Count(log, []byte(`"rung":"cdp"`)); err != nil || closed != 1 {
		t.Errorf("the log says %d times that a browser was closed in order, want 1 (%v)", closed, err)
	}
}

// isConfined checks that a browser is the user's, has its own sandbox, and cannot get rights.
func (h *unitHost) isConfined(t *testing.T, pid int, user uint32) {
	t.Helper()
	if uid := ownerOf(t, fmt.Sprintf("/proc/%d/task", pid)); uid != user {
		t.Errorf("the browser is of uid %d, want %d", uid, user)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil || !strings.Contains(string(status), "NoNewPrivs:\t1\n") {
		t.Errorf("it can get rights (%v)", err)
	}
	line, err := procfs.CommandLine(pid)
	if err != nil || bytes.Contains(line, []byte("--no-sandbox")) {
		t.Errorf("it runs without its sandbox: %q (%v)", line, err)
	}
}
