package chrome

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"leasehold/internal/cgroup"
)

// Options say which browser to start, and how.
type Options struct {
	// Binary is what Find returned.
	Binary string
	// ProfileDir is the profile's directory: absolute, without symlinks (what
	// profiledir.Root.Path returns), existing.
	ProfileDir string
	// TempDir becomes the browser's TMPDIR: absolute, at most MaxTempDir bytes,
	// created 0700, removed by Close. Empty stands for a fresh one under the
	// host's temporary directory; Browser.TempDir tells which.
	TempDir string
	// Headless starts the browser without windows; else DISPLAY has to name an
	// X server (or WAYLAND_DISPLAY a compositor).
	Headless bool
	// Proxy, if given, is where all traffic goes: scheme://host:port, http, https
	// or socks5, without credentials. Empty leaves it to the host's settings.
	Proxy string
	// ExtraArgs are further arguments, each of them in AllowedArgs.
	ExtraArgs []string
	// Lock, if given, is inherited by the browser's main process: what is
	// flocked on it stays locked until that has ended.
	Lock *os.File
	// Group, if given, is the control group that the browser is started in, with all
	// that it starts. Whoever made it removes it after Close: crash handlers may
	// outlive the browser for a moment.
	Group *cgroup.Group
	// DumpDir, if given, is an existing directory for the minidumps of the browser's
	// processes that crash, which hold what they had in memory. Empty leaves them to
	// the browser: one directory for all profiles of the user.
	DumpDir string
	// OutputFile receives what the browser prints; it is created 0600 and
	// emptied. It is not bounded. Empty: the output is thrown away.
	OutputFile string
}

// MaxTempDir is the longest TempDir in bytes: Chrome aborts when the path of its
// singleton socket does not fit into a socket address.
const MaxTempDir = 107 - len("/org.chromium.Chromium.XXXXXX/SingletonSocket")

// allowedArgs is what ExtraArgs may have. What is not here could open another way to drive the browser,
// change its proxy, use another directory, weaken its sandbox, or make the
// profile's data unreadable to the next start.
var allowedArgs = []struct {
	name  string
	value *regexp.Regexp // nil: takes none
}{
	{"--autoplay-policy=", regexp.MustCompile(`^[a-z-]{1,60}$`)},
	{"--disable-background-timer-throttling", nil},
	{"--disable-backgrounding-occluded-windows", nil},
	{"--disable-dev-shm-usage", nil},
	{"--disable-gpu", nil},
	{"--disable-renderer-backgrounding", nil},
	{"--force-color-profile=", regexp.MustCompile(`^[a-z0-9-]{1,40}$`)},
	{"--force-device-scale-factor=", regexp.MustCompile(`^[0-9]{1,2}(\.[0-9]{1,4})?$`)},
	{"--hide-scrollbars", nil},
	{"--lang=", regexp.MustCompile(`^[A-Za-z]{2,3}([_-][A-Za-z0-9]{2,8})*$`)},
	{"--mute-audio", nil},
	{"--start-maximized", nil},
	// Chrome hands it on to its helpers, whose command lines are joined with
	// spaces: it must not be able to look like another argument there.
	{"--user-agent=", regexp.MustCompile(`^[!-~]+( [!-,.-~][!-~]*)*$`)},
	{"--window-position=", regexp.MustCompile(`^-?[0-9]{1,5},-?[0-9]{1,5}$`)},
	{"--window-size=", regexp.MustCompile(`^[0-9]{1,5},[0-9]{1,5}$`)},
}

// AllowedArgs returns the arguments that Options.ExtraArgs may have, sorted. A
// name that ends with = takes a value.
func AllowedArgs() []string {
	names := make([]string, len(allowedArgs))
	for i, a := range allowedArgs {
		names[i] = a.name
	}
	return names
}

// ArgumentError says that an extra argument is not allowed, or its value is not.
type ArgumentError struct {
	Argument string
	// Allowed is AllowedArgs, or the one that the argument is, if only its
	// value is wrong.
	Allowed []string
}

func (e *ArgumentError) Error() string {
	if len(e.Allowed) == 1 {
		return fmt.Sprintf("chrome argument %.200q: the value is not one that %s takes", e.Argument, e.Allowed[0])
	}
	return fmt.Sprintf("chrome argument %.200q is not allowed: want one of %s", e.Argument, strings.Join(e.Allowed, ", "))
}

// proxyServer is one server: Chrome takes lists and rules, which are not wanted.
var proxyServer = regexp.MustCompile(`^(http|https|socks5)://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}$`)

// checkArgument returns an *ArgumentError unless the argument is allowed.
func checkArgument(arg string) error {
	name, value, valued := strings.Cut(arg, "=")
	if valued {
		name += "="
	}
	for _, a := range allowedArgs {
		switch {
		case a.name != name:
		case a.value == nil || len(value) <= 512 && a.value.MatchString(value):
			return nil
		default:
			return &ArgumentError{Argument: arg, Allowed: []string{a.name}}
		}
	}
	return &ArgumentError{Argument: arg, Allowed: AllowedArgs()}
}

// Arguments returns the command line for a browser that user uid starts, without
// the binary, and what the user should be warned of. It is the same for the same
// options always: flags that come and go make Chrome lose stored data. The error
// is an *ArgumentError for an extra argument that is not allowed.
func Arguments(o Options, uid int) (args, warnings []string, err error) {
	if !filepath.IsAbs(o.ProfileDir) || filepath.Clean(o.ProfileDir) != o.ProfileDir {
		return nil, nil, fmt.Errorf("profile directory %q: want an absolute, clean path", o.ProfileDir)
	}
	args = []string{
		// The only way in: fd 3 and 4. No debugging port, ever.
		"--remote-debugging-pipe",
		"--user-data-dir=" + o.ProfileDir,
		// Without it a fresh profile opens a welcome page over the task's.
		"--no-first-run",
		// Without it a headed browser asks to become the default one.
		"--no-default-browser-check",
		// Without it a screenshot of a background tab hangs.
		"--enable-features=CDPScreenshotNewSurface",
		// Without both nobody sees what a page sends when it is left for
		// another one of its site: a draft that it saves, for one.
		"--disable-features=RenderDocument",
		"--disable-back-forward-cache",
		// Traffic of the browser's own would go out on the account's proxy.
		"--disable-background-networking",
		// A component that changes in the middle of a task changes the browser.
		"--disable-component-update",
		// After a crash, no bubble over the page that offers to open its tabs.
		"--hide-crash-restore-bubble",
		// One key store for ever: cookies written under another are unreadable,
		// and a keyring may ask for a password that nobody is there to type.
		"--password-store=basic",
	}
	// Left out on purpose, since the profile stands for a real account:
	// --enable-automation, --disable-extensions, --disable-sync, --disable-quic
	// and --disable-features=ThirdPartyStoragePartitioning.
	if o.Headless {
		// The same browser without windows; the old mode had another storage.
		args = append(args, "--headless=new")
	}
	if o.Proxy != "" {
		if !proxyServer.MatchString(o.Proxy) {
			return nil, nil, errors.New("proxy: want scheme://host:port, one of http, https and socks5, and no credentials")
		}
		args = append(args,
			"--proxy-server="+o.Proxy,
			// Loopback, too: else a page would reach this host around the proxy.
			"--proxy-bypass-list=<-loopback>",
			// WebRTC would look up names and send UDP by itself, and show the
			// host's address to whoever asks.
			"--webrtc-ip-handling-policy=disable_non_proxied_udp",
		)
	}
	if uid == 0 {
		// Chrome refuses to start as root with its sandbox.
		args = append(args, "--no-sandbox")
		warnings = append(warnings, "chrome runs as root and therefore without its sandbox: a page that breaks out of its renderer has this host; run the launcher as another user")
	}
	for _, arg := range o.ExtraArgs {
		if err := checkArgument(arg); err != nil {
			return nil, nil, err
		}
		args = append(args, arg)
	}
	// One tab that loads nothing. It also keeps the session cookies alive, which
	// Chrome drops with the last tab.
	return append(args, "about:blank"), warnings, nil
}
