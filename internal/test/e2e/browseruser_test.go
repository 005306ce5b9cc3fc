package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"leasehold/lease"
)

// chromeUser is the browser user of these tests: no other test's.
const chromeUser = 54777

// ownerOf is the user that a path belongs to.
func ownerOf(t *testing.T, path string) uint32 {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Uid
}

// openTo lists what a user can read or write of the files below a directory, and which
// directories he can list.
func openTo(t *testing.T, uid uint32, dir string) []string {
	t.Helper()
	var paths []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it was removed meanwhile
		}
		if path != dir && err == nil && (d.Type().IsRegular() || d.IsDir()) {
			paths = append(paths, path[len(dir)+1:])
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/sh", "-c", `while read -r f; do { [ -r "$f" ] || [ -w "$f" ]; } && echo "$f"; done; true`)
	cmd.Stdin, cmd.Dir = strings.NewReader(strings.Join(paths, "\n")+"\n"), dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return slices.Collect(strings.FieldsFuncSeq(string(out), func(r rune) bool { return r == '\n' }))
}

// TestABrowserUser: a sidecar that is root runs its browsers as another user, is killed, and
// goes on.
func TestABrowserUser(t *testing.T) {
	t.Parallel()
	// The user has to be able to pass through the directory of this test.
	if err := os.Chmod(filepath.Dir(t.TempDir()), 0o755); err != nil {
		t.Fatal(err)
	}
	user := fmt.Sprintf("%d:%d", chromeUser, chromeUser)
	s, site := start(t, "--reconnect-grace", "30s", "--browser-user", user), filesSite(t)
	ses := s.open(t, "shop", nil)
	c := dial(t, s.here(t, ses.CDPURL))
	page, target := c.visit(t, site+"/")
	c.evaluate(t, page, `document.cookie = "login=ana; max-age=86400", window.kept = "here"`)
	pids := s.browsers(t)
	if len(pids) == 0 {
		t.Fatal("no browser runs")
	}
	for _, pid := range pids {
		if uid := ownerOf(t, fmt.Sprintf("/proc/%d/task", pid)); uid != chromeUser {
			t.Errorf("the browser %d is of uid %d", pid, uid)
		}
	}
	// Downloads without a place go to the exchange directory, which is that user's.
	c.get(t, page, "report.txt")
	arrives(t, ses.Exchange, "report.txt")
	var protocol []byte
	if code := s.call(t, "GET", "/profiles/shop/json/protocol", nil, &protocol); code != http.StatusOK || !bytes.Contains(protocol, []byte(`"Browser"`)) {
		t.Errorf("/json/protocol: %d %.200s", code, protocol)
	}
	// Neither that user nor a third one reads, lists or writes what the sidecar keeps.
	for _, uid := range []uint32{chromeUser, chromeUser + 1} {
		reached := openTo(t, uid, s.Dir)
		for _, of := range reached {
			if uid != chromeUser || !strings.HasPrefix(of, "profiles/shop") && !strings.Contains(of, ".dumps") {
				t.Errorf("uid %d reads or writes %s", uid, of)
			}
		}
		if uid == chromeUser && !slices.Contains(reached, "profiles/shop/Local State") {
			t.Errorf("the browser's own user reaches %q", reached)
		}
	}

	s.kill(t)
	c.drop()
	s.launch(t)
	c = dial(t, s.here(t, ses.CDPURL))
	page = c.attach(t, target)
	if got := c.evaluate(t, page, "window.kept + document.cookie"); got != `"herelogin=ana"` {
		t.Errorf("after the sidecar was killed the page has %s", got)
	}
	s.end(t, ses)
}

// end releases a session, and waits for its profile.
func (s *sidecar) end(t *testing.T, ses twoStep) {
	t.Helper()
	if code := s.call(t, "DELETE", "/v1/sessions/"+ses.SessionID, map[string]any{"lease_token": ses.Token, "outcome": "succeeded"}, nil); code != http.StatusOK {
		t.Fatalf("release: %d", code)
	}
	s.until(t, "shop", lease.Available)
}

// Settings that cannot work are refused, each with what to do.
func TestWrongBrowserUsers(t *testing.T) {
	t.Parallel()
	program, err := os.Open(binary) // others cannot get to it by name
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	closed := t.TempDir()
	if err := os.Chmod(filepath.Dir(closed), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		as   uint32
		user string
		says string
	}{
		{0, "no-such-user", `--browser-user: there is no user "no-such-user": make one`},
		{0, "root", "--browser-user: root is uid 0, which may do everything: want a user that nothing else runs as"},
		{0, "54777", "--browser-user: there is no user with uid 54777: make one (useradd --system), or give its group too, as 54777:GID"},
		{54001, "54001:54001", "--browser-user: 54001:54001 is uid 54001, as which the sidecar runs itself"},
		{54001, "54777:54777", "--browser-user 54777:54777: to run programs as another user the sidecar has to be root, or to have CAP_SETUID, CAP_SETGID, CAP_CHOWN,"},
		{0, "54777:54777", "--browser-user 54777:54777: uid 54777 cannot pass through " + filepath.Dir(closed) + ", on the way to "},
	} {
		cmd := exec.Command("/proc/self/fd/3", "run", "--data-dir", filepath.Join(closed, "data"), "--browser-user", c.user, "--listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0")
		cmd.Dir, cmd.ExtraFiles = "/", []*os.File{program}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: c.as, Gid: c.as}}
		out, err := cmd.CombinedOutput()
		if err == nil || cmd.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), c.says) {
			t.Errorf("uid %d with %s: %v, %s", c.as, c.user, err, out)
		}
	}
}
