package chrome

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"leasehold/internal/cgroup"
	"leasehold/internal/runas"
	"leasehold/lease"
)

// Options say which browser to start, and how.
type Options struct {
	// Binary is what Find returned.
	Binary string
	// ProfileDir is the profile's directory: absolute, without symlinks (what
	// profiledir.Root.Path returns), existing.
	ProfileDir string
	// Folder is the folder of the Chrome profile in ProfileDir that is opened; empty means
	// Default.
	Folder string
	// TempDir becomes the browser's TMPDIR: absolute, at most MaxTempDir bytes,
	// created 0700, removed by Close. If it is empty, Start makes one under the
	// host's temporary directory; Browser.TempDir returns its path.
	TempDir string
	// Headless starts the browser without windows. A browser with windows needs
	// DISPLAY to name an X server (or WAYLAND_DISPLAY a compositor).
	Headless bool
	// Proxy, if given, is the proxy of all traffic: scheme://host:port with the
	// scheme http, https or socks5, without credentials. If it is empty, the host's
	// settings apply.
	Proxy string
	// ReadOnly starts a browser whose pages cannot open a websocket, nor send by WebRTC
	// or Background Fetch: what the DevTools protocol cannot stop. Without Proxy it goes
	// out directly, whatever the host's settings say.
	ReadOnly bool
	// Version is the browser's; empty: not known. A browser without windows says to sites that it is
	// Chrome of this version, as one with windows does.
	Version string
	// Appearance is what sites see of the browser, whatever ExtraArgs say.
	Appearance lease.Appearance
	// ExtraArgs are further arguments, each of them in AllowedArgs.
	ExtraArgs []string
	// Lock, if given, is a file that the browser's main process inherits. A flock on
	// it lasts until that process has ended.
	Lock *os.File
	// ProxySocket, if given, is a file that the browser's main process inherits: as long as it
	// is open, no other user can listen at the address of Proxy.
	ProxySocket *os.File
	// Group, if given, is the control group in which the browser and everything that
	// it starts run. Close does not remove it, since crash handlers may outlive the
	// browser for a moment: whoever made the group does.
	Group *cgroup.Group
	// DumpDir, if given, is an existing directory for the minidumps of the browser's
	// processes that crash. A minidump contains parts of the process's memory. If it
	// is empty, the browser uses one directory for all profiles of the user.
	DumpDir string
	// OutputFile receives what the browser prints. It is created with mode 0600, or
	// truncated, and may grow without limit. If it is empty, the output is discarded.
	OutputFile string
	// Confinement, if given, has the kernel confine the browser to what it needs.
	Confinement *Confinement
	// User, if given, is the browser user: as whom the browser runs instead of the
	// launcher's own user. ProfileDir belongs to it; TempDir, DumpDir and all above
	// ProfileDir it can pass through.
	User *runas.User
}

// MaxTempDir is the greatest length of TempDir in bytes: Chrome aborts when the path
// of its singleton socket does not fit into a socket address.
const MaxTempDir = 107 - len("/org.chromium.Chromium.XXXXXX/SingletonSocket")

// allowedArgs are the arguments that ExtraArgs may have. Others could let somebody else
// drive the browser, change its proxy, use another directory, weaken its sandbox, or
// make the profile's data unreadable to the next start.
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
	// Chrome passes it to its helpers, whose command lines are joined with spaces.
	// There it must not look like another argument.
	{"--user-agent=", regexp.MustCompile(`^[!-~]+( [!-,.-~][!-~]*)*$`)},
	{"--window-position=", regexp.MustCompile(`^-?[0-9]{1,5},-?[0-9]{1,5}$`)},
	{"--window-size=", regexp.MustCompile(`^[0-9]{1,5},[0-9]{1,5}$`)},
}

// AllowedArgs returns the names of the arguments that Options.ExtraArgs may have,
// sorted. A name that ends with = takes a value.
func AllowedArgs() []string {
	names := make([]string, len(allowedArgs))
	for i, a := range allowedArgs {
		names[i] = a.name
	}
	return names
}

// ArgumentError says that an extra argument, or its value, is not allowed.
type ArgumentError struct {
	Argument string
	// Allowed is AllowedArgs. If only the value is wrong, it is the name of the
	// argument alone.
	Allowed []string
}

func (e *ArgumentError) Error() string {
	if len(e.Allowed) == 1 {
		return fmt.Sprintf("chrome argument %.200q: the value is not one that %s takes", e.Argument, e.Allowed[0])
	}
	return fmt.Sprintf("chrome argument %.200q is not allowed: want one of %s", e.Argument, strings.Join(e.Allowed, ", "))
}

// proxyServer is one server. Chrome would also take lists and rules.
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

// noWebsockets is where the websockets of a read-only browser are sent: to a port of this
// host that only root could listen on, and where nobody does.
const noWebsockets = "127.0.0.1:1"

// proxyRules is the value of --proxy-server. For websockets, and for them alone, Chrome
// prefers the rule for SOCKS to those for HTTP.
func proxyRules(o Options) string {
	if !o.ReadOnly {
		return o.Proxy
	}
	way := o.Proxy
	if way == "" {
		way = "direct://"
	}
	return "http=" + way + ";https=" + way + ";socks=" + noWebsockets
}

// hostProxies are the variables by which Chrome finds the host's own proxy.
var hostProxies = []string{"http_proxy", "https_proxy", "all_proxy", "auto_proxy", "socks_server"}

// HostProxy names the variable by which a browser of the user (nil: this process's own) goes out through the host's own
// proxy if it is started without Proxy and not ReadOnly; empty: none is set.
func HostProxy(as *runas.User) (string, error) {
	env, err := environmentOf(as, os.TempDir())
	for _, variable := range env {
		if name, value, _ := strings.Cut(variable, "="); value != "" && slices.Contains(hostProxies, strings.ToLower(name)) {
			return name, err
		}
	}
	return "", err
}

// ProxyOf returns the Options.Proxy of a browser that was started with this value of
// --proxy-server.
func ProxyOf(value string) string {
	rule, rest, ok := strings.Cut(value, ";")
	if way, first := strings.CutPrefix(rule, "http="); ok && first && strings.Contains(rest, noWebsockets) {
		if way == "direct://" {
			return ""
		}
		return way
	}
	return value
}

const (
	// NoStartupWindow is the argument of a browser that starts without a window.
	NoStartupWindow = "--no-startup-window"

	noBlinkFeatures = "--disable-blink-features="
)

// OnPort returns the arguments of the same browser on a debugging port of its choice, and
// with its first tab: what pages of a browser on a pipe are compared with.
func OnPort(args []string) []string {
	args = slices.DeleteFunc(slices.Clone(args), func(arg string) bool {
		return arg == NoStartupWindow || arg == noBlinkFeatures+"AutomationControlled"
	})
	args[slices.Index(args, "--remote-debugging-pipe")] = "--remote-debugging-port=0"
	return append(args, "about:blank")
}

// Arguments returns the command line, without the binary, for a browser that user uid
// starts, and warnings for the user. The same options always give the same command
// line: when flags differ from start to start, Chrome loses stored data. The error is
// an *ArgumentError for an extra argument that is not allowed.
func Arguments(o Options, uid int) (args, warnings []string, err error) {
	if !filepath.IsAbs(o.ProfileDir) || filepath.Clean(o.ProfileDir) != o.ProfileDir {
		return nil, nil, fmt.Errorf("profile directory %q: want an absolute, clean path", o.ProfileDir)
	}
	args = []string{
		// Chrome is driven through fd 3 and 4, and never through a debugging port.
		"--remote-debugging-pipe",
		// What the network service sends, whoever asked for it.
		"--log-net-log=/proc/self/fd/" + strconv.Itoa(fdNetLog),
		"--user-data-dir=" + o.ProfileDir,
		// Without it Chrome opens the one of its own profiles in there that was used last.
		"--profile-directory=" + cmp.Or(o.Folder, "Default"),
		// Without it a new profile opens a welcome page over the task's page.
		"--no-first-run",
		// Its first tab would show a bar about one of the other arguments, which makes that
		// page lower than all others. The launcher opens the first tab itself.
		NoStartupWindow,
		// Without it a headed browser asks to become the default one.
		"--no-default-browser-check",
		// Without it taking a screenshot of a background tab hangs.
		"--enable-features=CDPScreenshotNewSurface",
		// Without RenderDocument and the back-forward cache off, the launcher does not
		// see what a page sends when another page of its site replaces it, such as a
		// draft that it saves. The other two are lists below the address bar: Chrome
		// would load them as pages of its own at each start, also without a window.
		"--disable-features=RenderDocument,WebUIOmniboxPopup,WebUIOmniboxAimPopup",
		"--disable-back-forward-cache",
		// The browser's own traffic would go through the account's proxy.
		"--disable-background-networking",
		// A component that is updated during a task changes the browser.
		"--disable-component-update",
		// After a crash, Chrome would offer to restore its tabs in a bubble over the
		// page.
		"--hide-crash-restore-bubble",
		// Always the same key store: cookies that were written with another one are
		// unreadable. A keyring may ask for a password, and nobody is there to type
		// it.
		"--password-store=basic",
	}
	// These are left out on purpose, since the profile is that of a real account:
	// --enable-automation, --disable-extensions, --disable-sync, --disable-quic
	// and --disable-features=ThirdPartyStoragePartitioning.
	if o.Headless {
		// The same browser without windows. The old headless mode stored data
		// differently.
		args = append(args, "--headless=new")
		if major, _, ok := strings.Cut(o.Version, "."); ok {
			args = append(args, "--user-agent=Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/"+major+".0.0.0 Safari/537.36")
		}
	}
	if o.Proxy != "" {
		if !proxyServer.MatchString(o.Proxy) {
			return nil, nil, errors.New("proxy: want scheme://host:port, one of http, https and socks5, and no credentials")
		}
		args = append(args, "--proxy-server="+proxyRules(o))
	} else if o.ReadOnly {
		args = append(args, "--proxy-server="+proxyRules(o))
	}
	// Pages would see navigator.webdriver, which Chrome sets for a browser that is driven
	// through a pipe, and not for one with a port.
	features := "AutomationControlled"
	if o.ReadOnly {
		features += ",BackgroundFetch"
	}
	args = append(args, noBlinkFeatures+features)
	if o.Proxy != "" || o.ReadOnly {
		args = append(args,
			// Loopback goes through the proxy too. Otherwise a page could reach this
			// host directly.
			"--proxy-bypass-list=<-loopback>",
			// WebRTC would resolve names and send UDP without the proxy, and tell
			// any page the host's address.
			"--webrtc-ip-handling-policy=disable_non_proxied_udp",
		)
	}
	if uid == 0 {
		// Chrome refuses to start as root with its sandbox.
		args = append(args, "--no-sandbox")
		warnings = append(warnings, "chrome runs as root and therefore without its sandbox: a page that breaks out of its renderer has this host; name another user with --browser-user, or run the launcher as one")
	}
	for _, arg := range o.ExtraArgs {
		if err := checkArgument(arg); err != nil {
			return nil, nil, err
		}
		args = append(args, arg)
	}
	return append(args, appearance(o)...), warnings, nil
}

// appearance are the arguments for Options.Appearance; the time zone is in the environment.
func appearance(o Options) (args []string) {
	if languages := o.Appearance.Languages(); len(languages) > 0 {
		args = append(args, "--lang="+o.Appearance.Locale, "--accept-lang="+strings.Join(languages, ","))
	}
	width, height, ok := o.Appearance.Size()
	sized := slices.ContainsFunc(o.ExtraArgs, func(arg string) bool { return strings.HasPrefix(arg, "--window-size=") })
	switch {
	case !ok && (!o.Headless || sized):
		return args
	case !ok:
		width, height = usualWidth, usualHeight
	}
	args = append(args, fmt.Sprintf("--window-size=%d,%d", width, height))
	if o.Headless { // its screen would be smaller than its window
		args = append(args, fmt.Sprintf("--screen-info={%dx%d}", max(width, leastScreenWidth), max(height+toolBars, leastScreenHeight)))
	}
	return args
}

// A screen that many have, in pixels, a window that Chrome opens on one, and more than what a window has
// above its page. Without windows, Chrome's own are 800x600 and 780x580, which nobody has.
const (
	usualWidth        = 1280
	usualHeight       = 800
	leastScreenWidth  = 1920
	leastScreenHeight = 1080
	toolBars          = 200
)
