package chrome_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"leasehold/internal/procfs"
	"leasehold/internal/runas"
	"leasehold/internal/test/testchrome"
	"leasehold/launcher/chrome"
)

var browserUser = runas.User{UID: stranger, GID: stranger}

// userWorld is a world whose browser has a user of its own. The sidecar's directories are as
// they are then: that user can pass through, and the profile is its own.
func userWorld(t *testing.T, confined bool) world {
	t.Helper()
	w := newWorld(t, confined)
	w.options.User = &browserUser
	data := filepath.Dir(filepath.Dir(w.options.ProfileDir))
	for at := filepath.Dir(w.options.ProfileDir); at != "/" && at != os.TempDir(); at = filepath.Dir(at) {
		if err := os.Chmod(at, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Chmod(filepath.Join(data, "sessions"), 0o711), browserUser.Own(w.options.ProfileDir), browserUser.Own(w.root)); err != nil {
		t.Fatal(err)
	}
	return w
}

// status returns fields of a process's status file.
func status(t *testing.T, pid int) map[string]string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]string{}
	for line := range strings.SplitSeq(string(b), "\n") {
		name, value, _ := strings.Cut(line, ":")
		fields[name] = strings.Join(strings.Fields(value), " ")
	}
	return fields
}

// A sidecar that is root has browsers of another user: every process is that user's, with
// Chrome's own sandbox, and the sidecar's files are out of its reach even where Landlock does
// not confine it.
func TestABrowserOfAnotherUser(t *testing.T) {
	for _, confined := range []bool{true, false} {
		t.Run(fmt.Sprintf("confined=%t", confined), func(t *testing.T) {
			w, url := userWorld(t, confined), site(t)
			d := testchrome.Drive(t, w.options)
			_, page := d.Open(url)
			if got := d.Eval(page, "document.title"); got != "site" {
				t.Errorf("the page is %q", got)
			}
			checkUser(t, d)
			for name, path := range w.secrets {
				secret, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if got := upload(t, d, page, path); strings.Contains(got, strings.TrimSpace(string(secret))) {
					t.Errorf("%s: the page got %.40q", name, got)
				}
			}
			if !confined {
				return
			}
			checkNeighbours(t, d.Browser().PID(), w)
			checkCrashDump(t, d, w.options.DumpDir)
			if !download(t, d, page, w.root) {
				t.Error("a download into a directory of the user did not arrive")
			}
			// The next launcher adopts it, and closes it in order.
			temp := d.Browser().TempDir()
			b, err := chrome.Adopt(d.Browser().Identity(), chrome.AdoptOptions{ProfileDir: w.options.ProfileDir, TempDir: temp, OutputFile: w.options.OutputFile})
			if err != nil {
				t.Fatal(err)
			}
			testchrome.CloseAtEnd(t, b)
			if method, err := b.Close(t.Context(), d.Ask, testchrome.Unhurried); method != chrome.ClosedByCDP || err != nil {
				t.Errorf("closed by %s, %v", method, err)
			}
			if _, err := os.Lstat(temp); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("its temporary directory stays: %v", err)
			}
			again := testchrome.Drive(t, w.options)
			_, page = again.Open(url + "/again")
			if got := again.Eval(page, "document.cookie"); got != "login=ana" {
				t.Errorf("cookies of the next start: %q", got)
			}
		})
	}
}

// checkUser looks at all processes of a browser.
func checkUser(t *testing.T, d *testchrome.Driver) {
	t.Helper()
	processes, err := d.Browser().Processes()
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]bool{}
	for _, p := range processes {
		line, err := procfs.CommandLine(p.PID)
		if err != nil {
			continue
		}
		kind := "main"
		if _, after, ok := strings.Cut(string(line), "--type="); ok {
			kind = strings.FieldsFunc(after, func(r rune) bool { return r == 0 || r == ' ' })[0]
		}
		kinds[kind] = true
		if strings.Contains(string(line), "--no-sandbox") {
			t.Errorf("%s has no sandbox: %q", kind, line)
		}
		var s map[string]string
		until(t, fmt.Sprintf("%s %d has begun or is over", kind, p.PID), func() bool { // a renderer enters its sandbox when it begins
			if now, err := procfs.Read(p.PID); err != nil || !now.Same(p) || !now.Alive() {
				s = nil
				return true
			}
			s = status(t, p.PID)
			return kind != "renderer" || s["Seccomp"] == "2"
		})
		if s == nil {
			continue
		}
		for field, want := range map[string]string{"Uid": "54321 54321 54321 54321", "Gid": "54321 54321 54321 54321", "Groups": ""} {
			if s[field] != want {
				t.Errorf("%s has %s %q, want %q", kind, field, s[field], want)
			}
		}
		// A zygote and a renderer have rights in a user namespace of their own alone.
		if kind == "main" && (s["CapEff"] != "0000000000000000" || s["CapPrm"] != s["CapEff"] || s["CapAmb"] != s["CapEff"]) {
			t.Errorf("%s has capabilities: %v", kind, s)
		}
		if kind == "renderer" && (!nested("NSpid:\t"+strings.ReplaceAll(s["NSpid"], " ", "\t")+"\n") || s["Seccomp"] != "2") {
			t.Errorf("the renderer is not in Chrome's sandbox: NSpid %s, Seccomp %s", s["NSpid"], s["Seccomp"])
		}
	}
	for _, kind := range []string{"main", "zygote", "renderer", "gpu-process", "utility"} {
		if !kinds[kind] {
			t.Errorf("no %s among %v", kind, kinds)
		}
	}
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", d.Browser().PID()))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(environ), "HOME="+d.Browser().TempDir()+"/home\x00") || strings.Contains(string(environ), modeVar) {
		t.Errorf("environment %q", environ)
	}
}

// checkNeighbours plays a process of the browser's user, and one of a third user.
func checkNeighbours(t *testing.T, pid int, w world) {
	t.Helper()
	for _, uid := range []uint32{stranger, stranger + 1} {
		try := func(command string, args ...string) error {
			cmd := exec.Command("/bin/sh", append([]string{"-c", command, "sh"}, args...)...)
			cmd.Dir, cmd.Env = "/", []string{"PATH=" + os.Getenv("PATH")}
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
			return cmd.Run()
		}
		for name, path := range w.secrets {
			if try(`: < "$1"`, path) == nil {
				t.Errorf("uid %d reads the %s", uid, name)
			}
			if try(`: >> "$1"`, path) == nil {
				t.Errorf("uid %d writes the %s", uid, name)
			}
		}
		data := filepath.Dir(filepath.Dir(w.options.ProfileDir))
		for _, dir := range []string{data, filepath.Join(data, "profiles"), filepath.Join(data, "sessions")} {
			if try(`ls "$1"`, dir) == nil {
				t.Errorf("uid %d lists %s", uid, dir)
			}
		}
		// The ends of the launcher's pipe, opened by name.
		for fd := 3; fd <= 6; fd++ {
			end := fmt.Sprintf("/proc/%d/fd/%d", pid, fd)
			if try(`: < "$1"`, end) == nil || try(`: >> "$1"`, end) == nil {
				t.Errorf("uid %d opens %s", uid, end)
			}
		}
		// What a debugger could do.
		if memory := fmt.Sprintf("/proc/%d/mem", pid); uid != stranger && try(`: < "$1"`, memory) == nil {
			t.Errorf("uid %d opens %s", uid, memory)
		}
		cookies := filepath.Join(w.options.ProfileDir, "Local State")
		if err := try(`: < "$1"`, cookies); (err == nil) != (uid == stranger) {
			t.Errorf("uid %d on the profile: %v", uid, err)
		}
	}
}

// The browser that describes its protocol is that user's, too.
func TestABrowserOfAnotherUserDescribesItself(t *testing.T) {
	binary, err := chrome.Find("")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := chrome.Describe(t.Context(), binary, filepath.Join(t.TempDir(), "tmp"), &chrome.Confinement{}, &browserUser)
	if err != nil || !strings.Contains(string(raw), `"domains"`) {
		t.Errorf("%.300q, %v", raw, err)
	}
}

// Who cannot run the browser, or get to its directories, is told why.
func TestCheckUser(t *testing.T) {
	binary, err := chrome.Find("")
	if err != nil {
		t.Fatal(err)
	}
	if err := chrome.CheckUser(t.Context(), binary, browserUser, os.TempDir()); err != nil {
		t.Errorf("%s: %v", binary, err)
	}
	dir := t.TempDir()
	hidden := filepath.Join(dir, "chrome")
	if err := errors.Join(os.WriteFile(hidden, []byte("#!/bin/sh\n"), 0o700), os.Chmod(filepath.Dir(dir), 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := chrome.CheckUser(t.Context(), hidden, browserUser); err == nil || !strings.Contains(err.Error(), "cannot run "+hidden) || !errors.Is(err, unix.EACCES) {
		t.Errorf("a binary of root alone: %v", err)
	}
	if err := os.Chmod(filepath.Dir(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := chrome.CheckUser(t.Context(), binary, browserUser, dir); err == nil || !strings.Contains(err.Error(), "chmod o+x "+filepath.Dir(dir)+",") {
		t.Errorf("below a directory of root: %v", err)
	}
}
