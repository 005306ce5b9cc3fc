package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"leasehold/launcher/chrome"
	"leasehold/lease"
)

// cookies returns the cookies that the site gets from a profile.
func (s *sidecar) cookies(t *testing.T, web *site, profile, task string) string {
	t.Helper()
	c := dial(t, s.socket(profile, "worker=w&wait=30s&task="+task))
	session, _ := c.visit(t, web.URL+"/")
	got := c.evaluate(t, session, "document.cookie.split('; ').sort().join() + '|' + localStorage.getItem('k')")
	c.close(t)
	c.ended(t)
	s.until(t, profile, lease.Available)
	return got
}

// TestProfilesComeAndGo creates a profile, copies it, archives it, and imports it
// again.
func TestProfilesComeAndGo(t *testing.T) {
	t.Parallel()
	s, web := start(t), newSite(t)
	run := func(args ...string) string {
		t.Helper()
		out, errs, code := s.cli(t, append([]string{"profiles"}, args...)...)
		if code != 0 {
			t.Fatalf("profiles %v: %d %s", args, code, errs)
		}
		return out
	}
	run("create", "acct", "--account", "store-18", "--max-active-runs", "2", "--harmless-request", "POST https://shop.example/search kind=a,b")
	words := []string{"gazebo"}
	for request, want := range map[string]int{
		"POST https://shop.example/search kind=a,b": 200, "PUT https://shop.example/draft": 400, "POST https://shop.example/checkout/search": 200,
	} {
		if code := s.call(t, "PUT", "/v1/profiles/acct", map[string]any{"harmless_requests": []string{request}, "sensitive_words": words}, nil); code != want {
			t.Errorf("harmless_requests %s: status %d, want %d", request, code, want)
		}
	}
	c := dial(t, s.socket("acct", "worker=w&task=1"))
	session, _ := c.visit(t, web.URL+"/")
	c.evaluate(t, session, "document.cookie='s=1'; document.cookie='p=1; max-age=86400'; localStorage.setItem('k','v')")
	if out, errs, code := s.cli(t, "profiles", "clone", "acct", "--to", "copy"); code != 8 || !strings.Contains(errs, "held") {
		t.Errorf("a copy of what is in use: %d %s %s", code, out, errs)
	}
	c.close(t)
	c.ended(t)
	s.until(t, "acct", lease.Available)

	run("clone", "acct", "--to", "copy")
	if r := s.record(t, "copy"); r.AccountID != "store-18" || r.State != lease.Available || r.Token != 0 ||
		len(r.HarmlessRequests) != 1 || !slices.Equal(r.SensitiveWords, words) {
		t.Errorf("the copy: %+v", r)
	}
	const all = `"p=1,s=1|v"`
	if got := s.cookies(t, web, "copy", "2"); got != all {
		t.Errorf("the copy has %s", got)
	}
	aside := strings.TrimSpace(run("archive", "copy"))
	_, path, _ := strings.Cut(aside, " in ")
	if fi, err := os.Stat(path); err != nil || !fi.IsDir() {
		t.Fatalf("%s: %v", aside, err)
	}
	if r := s.record(t, "copy"); r.Reason != "archived" || r.Token != 1 {
		t.Errorf("put aside: %+v", r)
	}
	var problem map[string]any
	if code := s.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": "copy", "create": true}, &problem); code != 404 || !strings.Contains(fmt.Sprint(problem["detail"]), path) {
		t.Errorf("a session on what was put aside: %d %v", code, problem)
	}
	run("import", "copy", "--from", path, "--account", "store-18")
	if r := s.record(t, "copy"); r.Reason == "archived" || r.Token != 2 {
		t.Errorf("brought back: %+v", r)
	}
	if got := s.cookies(t, web, "copy", "3"); !strings.Contains(got, "p=1") || !strings.Contains(got, "|v") {
		t.Errorf("brought back, it has %s", got)
	}

	// Only a clone can be removed, and a clone that came back from the archive is none
	// any more.
	for _, kept := range []string{"acct", "copy"} {
		if out, errs, code := s.cli(t, "profiles", "remove-clone", kept); code != 8 || !strings.Contains(errs, "not made by cloning") {
			t.Errorf("%s was removed: %d %s %s", kept, code, out, errs)
		}
	}
	run("clone", "acct", "--to", "thrown-away")
	if code := s.call(t, "POST", "/v1/profiles/thrown-away/remove-clone", map[string]any{"lease_token": 1}, nil); code != 409 {
		t.Errorf("removed with a token that it does not have: %d", code)
	}
	if out := run("remove-clone", "thrown-away"); out != "thrown-away: removed, a clone of acct\n" {
		t.Errorf("removed: %s", out)
	}
	left, err := filepath.Glob(filepath.Join(s.Dir, "profiles", "*thrown-away*"))
	hidden, hiddenErr := filepath.Glob(filepath.Join(s.Dir, "profiles", ".leasehold", ".removed*"))
	cookies, cookiesErr := filepath.Glob(filepath.Join(s.Dir, "session-cookies", "*thrown*"))
	if len(left)+len(hidden)+len(cookies) > 0 || err != nil || hiddenErr != nil || cookiesErr != nil {
		t.Errorf("left: %v %v %v", left, hidden, cookies)
	}
	if r := s.record(t, "thrown-away"); r.Reason != "removed" || r.Token != 0 {
		t.Errorf("its record: %+v", r)
	}
	if code := s.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": "thrown-away"}, nil); code != 404 {
		t.Errorf("a session on what was removed: %d", code)
	}
	if r := s.record(t, "acct"); r.State != lease.Available || r.Reason == "removed" {
		t.Errorf("the original: %+v", r)
	}
	if list := run(); !strings.Contains(list, "acct") || !strings.Contains(list, "copy") {
		t.Errorf("listed: %s", list)
	}
}

func TestDirectoriesThatAreRefused(t *testing.T) {
	t.Parallel()
	imports := t.TempDir()
	s := start(t, "--import-root", imports)
	profiles := filepath.Join(s.Dir, "profiles")
	ask := func(profile string, status int, says string) map[string]any {
		t.Helper()
		var problem map[string]any
		if code := s.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": profile}, &problem); code != status || !strings.Contains(fmt.Sprint(problem["detail"]), says) {
			t.Errorf("%s: %d %v, want %d with %q", profile, code, problem, status, says)
		}
		return problem
	}
	for _, dir := range []string{"open", "mine"} {
		if err := os.Mkdir(filepath.Join(profiles, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(profiles, "open"), 0o777); err != nil {
		t.Fatal(err)
	}
	ask("open", 400, "chmod go-w")
	if err := os.Symlink(t.TempDir(), filepath.Join(profiles, "linked")); err != nil {
		t.Fatal(err)
	}
	ask("linked", 400, "symlink")
	var problem map[string]any
	empty, inside, out := filepath.Join(imports, "empty"), filepath.Join(imports, "inside"), filepath.Join(imports, "out")
	if err := errors.Join(os.Mkdir(empty, 0o700), os.Symlink(empty, inside), os.Symlink(t.TempDir(), out)); err != nil {
		t.Fatal(err)
	}
	for from, says := range map[string]string{"relative": "absolute", empty: "Local State", inside: "link"} {
		if code := s.call(t, "POST", "/v1/profiles/new/import", map[string]any{"from": from}, &problem); code != 400 || problem["field"] != "from" || !strings.Contains(fmt.Sprint(problem["detail"]), says) {
			t.Errorf("import from %s: %d %v", from, code, problem)
		}
	}
	for from, says := range map[string]string{
		t.TempDir(): "is below none of --import-root", out: "is below none of --import-root", imports + "/../x": "is below none of --import-root", "/": "is the sidecar's own",
		filepath.Join(profiles, "mine"): "is the sidecar's own", s.Dir: "is the sidecar's own",
	} {
		if code := s.call(t, "POST", "/v1/profiles/new/import", map[string]any{"from": from}, &problem); code != 403 || !strings.Contains(fmt.Sprint(problem["detail"]), says) {
			t.Errorf("import from %s: %d %v", from, code, problem)
		}
	}

	// A person's own Chrome, which has the directory under another name.
	named := filepath.Join(t.TempDir(), "mine")
	if err := os.Symlink(filepath.Join(profiles, "mine"), named); err != nil {
		t.Fatal(err)
	}
	pid := ownChrome(t, named, filepath.Join(profiles, "mine"))
	p := ask("mine", 409, fmt.Sprintf("pid %d, since 20", pid))
	if p["code"] != "profile_lock_conflict" || p["pid"] != float64(pid) || p["since"] == nil {
		t.Errorf("%v", p)
	}
}

// ownChrome starts a person's Chrome on a directory, which the kernel knows as dir, and
// returns its process once it has the directory. It ends with the test.
func ownChrome(t *testing.T, named, dir string) (pid int) {
	t.Helper()
	binary, err := chrome.Find("")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	own := exec.CommandContext(ctx, binary, "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--user-data-dir="+named, "about:blank")
	own.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	own.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	own.Cancel = func() error { return syscall.Kill(-own.Process.Pid, syscall.SIGKILL) }
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	own.ExtraFiles = []*os.File{in, out} // a pipe on which nothing is sent
	if err := own.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_, _, _ = own.Wait(), in.Close(), out.Close()
	})
	eventually(t, "Chrome to have the profile", func() error {
		for _, name := range []string{"SingletonLock", "Local State"} {
			if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
				return err
			}
		}
		fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", own.Process.Pid))
		for _, fd := range fds {
			if to, _ := os.Readlink(fd); strings.HasPrefix(to, dir+"/") {
				return nil
			}
		}
		return fmt.Errorf("none of its %d files is the profile's (%w)", len(fds), cmp.Or(err, os.ErrNotExist))
	})
	return own.Process.Pid
}
