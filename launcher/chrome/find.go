package chrome

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// binaries are tried in this order. The real binaries come before the names in PATH,
// where distributions put a shell script. Such a script adds flags of its own and of
// the host's administrator, and the flags of a profile have to stay the same. Google's
// script also keeps two helper processes, which would inherit the lock.
var binaries = []string{
	"/usr/lib/chromium/chromium",
	"/usr/lib/chromium-browser/chromium-browser",
	"/usr/lib64/chromium-browser/chromium-browser",
	"/opt/google/chrome/chrome",
	"chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome",
}

// NotFoundError says that no Chrome was found.
type NotFoundError struct {
	// Explicit is the binary that the user named, or empty.
	Explicit string
	// Looked lists the paths and names that were tried.
	Looked []string
	// Err says what is wrong with Explicit.
	Err error
}

func (e *NotFoundError) Error() string {
	if e.Explicit != "" {
		return fmt.Sprintf("chrome %s: %v; name the browser's binary with --chrome PATH", e.Explicit, e.Err)
	}
	return "no chrome found: looked for " + strings.Join(e.Looked, ", ") +
		"; install one (apt-get install chromium) or name its binary with --chrome PATH"
}

func (e *NotFoundError) Unwrap() error { return e.Err }

// Find returns the absolute path of the browser to start. It is explicit (a path, or a
// name in PATH) if that is given, else the first of the well-known ones that exists.
// The error is a *NotFoundError.
func Find(explicit string) (string, error) {
	if explicit != "" {
		path, err := executable(explicit)
		if err != nil {
			return "", &NotFoundError{Explicit: explicit, Err: err}
		}
		return path, nil
	}
	for _, name := range binaries {
		if path, err := executable(name); err == nil {
			return path, nil
		}
	}
	return "", &NotFoundError{Looked: append([]string(nil), binaries...), Err: os.ErrNotExist}
}

func executable(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", err
	}
	return filepath.Abs(path)
}
