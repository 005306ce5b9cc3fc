package chrome

import (
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"strings"
	"syscall"
)

// StartError says why a browser did not start.
type StartError struct {
	Binary string
	// ExitStatus is what Browser.ExitStatus returns; empty if the binary never ran,
	// or still runs.
	ExitStatus string
	// Output is the end of what the browser printed, at most 2 KiB.
	Output string
	// Hint says what to do, if the failure is a known one; else it is empty.
	Hint string
	// Err is the error that the launcher met.
	Err error
}

func (e *StartError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "chrome %s did not start", e.Binary)
	if e.ExitStatus != "" {
		fmt.Fprintf(&b, " (%s)", e.ExitStatus)
	}
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	if e.Hint != "" {
		fmt.Fprintf(&b, "; %s", e.Hint)
	}
	if e.Output != "" {
		fmt.Fprintf(&b, "; it printed last:\n%s", e.Output)
	}
	return b.String()
}

func (e *StartError) Unwrap() error { return e.Err }

// hints say what to do about known failures, by what Chrome (or the loader) prints.
var hints = []struct{ text, hint string }{
	{"error while loading shared libraries", "a shared library is missing: install the packages that the browser depends on (apt-get install chromium brings them)"},
	{"No usable sandbox", "allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1, or an AppArmor profile for the binary), or install the setuid sandbox (apt-get install chromium-sandbox)"},
	{"Running as root without --no-sandbox", "run the launcher as a user that is not root"},
	{"Missing X server or $DISPLAY", "there is no display: start it headless, or set DISPLAY to a running X server (Xvfb will do)"},
	{"cannot open display", "there is no display: start it headless, or set DISPLAY to a running X server (Xvfb will do)"},
	{"on another computer", "the profile's SingletonLock was written on another host: docs/runbook.md says what to do (a lock of another host)"},
	{"ProcessSingleton", "another Chrome has the profile open: close it"},
	{"Opening in existing browser session", "another Chrome has the profile open: close it"},
	{"Socket path too long", "the temporary directory's path is too long: choose a shorter one"},
	{"No space left on device", "the disk is full: make room"},
}

// exitProfileInUse is the exit status of a Chrome that finds another one running on
// its profile.
const exitProfileInUse = "exit 21"

func hintFor(status, output string, err error) string {
	for _, h := range hints {
		if strings.Contains(output, h.text) {
			return h.hint
		}
	}
	switch {
	case status == exitProfileInUse:
		return "another Chrome has the profile open: close it"
	case errors.Is(err, syscall.ENOEXEC):
		return "the binary is for another architecture, or not a program"
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return "name an existing binary with --chrome PATH"
	case errors.Is(err, syscall.EACCES):
		return "the binary has to be executable for this user, and its file system not mounted noexec"
	}
	return ""
}

// NotSameError says that no process with the pid runs, or that it is not the browser
// that was to be adopted.
type NotSameError struct {
	Identity Identity
	// Proof names the proof that failed: boot, alive, start_time, group or profile.
	Proof string
	// Detail says what was expected and found.
	Detail string
}

func (e *NotSameError) Error() string {
	return fmt.Sprintf("pid %d is not the browser that was started: %s (%s)", e.Identity.PID, e.Detail, e.Proof)
}
