package chrome

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"leasehold/lease"
)

func TestArguments(t *testing.T) {
	plain := Options{ProfileDir: "/p/a"}
	for _, c := range []struct {
		name        string
		o           Options
		uid         int
		want, never []string
		warnings    int
	}{
		{"another folder", Options{ProfileDir: "/p/a", Folder: "Profile 1"}, 1000, []string{"--profile-directory=Profile 1"}, nil, 0},
		{"headed user", plain, 1000, []string{"--user-data-dir=/p/a", "--profile-directory=Default"}, []string{"--headless=new", "--no-sandbox", "--window-size=1280,800"}, 0},
		{"headless", Options{ProfileDir: "/p/a", Headless: true}, 1000, []string{"--headless=new", "--window-size=1280,800", "--screen-info={1920x1080}"}, []string{"--no-sandbox"}, 0},
		{"headless, sized", Options{ProfileDir: "/p/a", Headless: true, ExtraArgs: []string{"--window-size=800,600"}}, 1000, []string{"--window-size=800,600"}, []string{"--window-size=1280,800"}, 0},
		{"root", plain, 0, []string{"--no-sandbox"}, nil, 1},
		{"extra", Options{ProfileDir: "/p/a", ExtraArgs: []string{"--window-size=800,600", "--lang=de-DE"}}, 1000, []string{"--window-size=800,600", "--lang=de-DE"}, nil, 0},
	} {
		args, warnings, err := Arguments(c.o, c.uid)
		if err != nil || len(warnings) != c.warnings {
			t.Errorf("%s: %v, warnings %q", c.name, err, warnings)
		}
		for _, w := range append(c.want, "--remote-debugging-pipe", "--password-store=basic", "--no-startup-window", "--disable-blink-features=AutomationControlled") {
			if !slices.Contains(args, w) {
				t.Errorf("%s: want %s in %q", c.name, w, args)
			}
		}
		for _, n := range append(c.never, "--enable-automation", "--disable-extensions", "--disable-sync") {
			if slices.Contains(args, n) {
				t.Errorf("%s: want no %s in %q", c.name, n, args)
			}
		}
		if strings.Contains(strings.Join(args, " "), "remote-debugging-port") || slices.Contains(args, "about:blank") {
			t.Errorf("%s: %q", c.name, args)
		}
		port := OnPort(args)
		if len(port) != len(args)-1 || port[len(port)-1] != "about:blank" || !slices.Contains(port, "--remote-debugging-port=0") || slices.Contains(port, "--no-startup-window") {
			t.Errorf("%s, on a port: %q", c.name, port)
		}
	}
	proxied, _, err := Arguments(Options{ProfileDir: "/p/a", Proxy: "socks5://[2001:db8::1]:1080"}, 1000)
	for _, w := range []string{"--proxy-server=socks5://[2001:db8::1]:1080", "--proxy-bypass-list=<-loopback>", "--webrtc-ip-handling-policy=disable_non_proxied_udp"} {
		if err != nil || !slices.Contains(proxied, w) {
			t.Errorf("with a proxy: want %s in %q (%v)", w, proxied, err)
		}
	}
	for proxy, want := range map[string]string{
		"":                  "--proxy-server=http=direct://;https=direct://;socks=127.0.0.1:1",
		"http://10.0.0.1:3": "--proxy-server=http=http://10.0.0.1:3;https=http://10.0.0.1:3;socks=127.0.0.1:1",
	} {
		reads, _, err := Arguments(Options{ProfileDir: "/p/a", Proxy: proxy, ReadOnly: true}, 1000)
		for _, w := range []string{want, "--disable-blink-features=AutomationControlled,BackgroundFetch", "--proxy-bypass-list=<-loopback>", "--webrtc-ip-handling-policy=disable_non_proxied_udp"} {
			if err != nil || !slices.Contains(reads, w) {
				t.Errorf("read-only with proxy %q: want %s in %q (%v)", proxy, w, reads, err)
			}
		}
		if got := ProxyOf(strings.TrimPrefix(want, "--proxy-server=")); got != proxy {
			t.Errorf("the proxy of %s is %q, want %q", want, got, proxy)
		}
		if got := ProxyOf(proxy); got != proxy {
			t.Errorf("the proxy of %q is %q", proxy, got)
		}
	}
	for _, proxy := range []string{"http://u:secret@h:1", "h:1", "http://h", "http://h:1,direct://", "http://h:1;https=x:2", "direct://", "http://h:1 --no-sandbox", "http://h:1/"} {
		if _, _, err := Arguments(Options{ProfileDir: "/p/a", Proxy: proxy}, 1000); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("proxy %q: %v", proxy, err)
		}
	}
	for _, dir := range []string{"", "p", "/p/../p", "/p/"} {
		if _, _, err := Arguments(Options{ProfileDir: dir}, 1000); err == nil {
			t.Errorf("profile directory %q is accepted", dir)
		}
	}
}

// TestATemporaryDirectoryThatIsTooLongIsRefusedAtTheStart, and the longest that is accepted has room
// for what a browser makes there.
func TestATemporaryDirectoryThatIsTooLongIsRefusedAtTheStart(t *testing.T) {
	const longest = MaxTempDir - len("/leasehold-4294967295")
	for length, ok := range map[int]bool{longest: true, longest + 1: false} {
		temp := "/" + strings.Repeat("x", length-1)
		t.Setenv("TMPDIR", temp)
		if err := CheckTemp(); (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "want at most "+strconv.Itoa(longest)) {
			t.Errorf("%d bytes: %v", length, err)
		}
		if err := checkTempDir(temp+"/leasehold-4294967295", "/p/a"); (err == nil) != ok {
			t.Errorf("a browser's own directory below %d bytes: %v", length, err)
		}
	}
}

// TestArgumentsAreDocumented: docs/browsers.md lists exactly the arguments that
// browsers are started with, and those that a manifest may add.
func TestArgumentsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/browsers.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string][]string{}
	title := ""
	for line := range strings.Lines(string(page)) {
		if name, ok := strings.CutPrefix(line, "## "); ok {
			title, _, _ = strings.Cut(strings.TrimSpace(name), " (")
		}
		if cell, ok := strings.CutPrefix(line, "| `"); ok {
			arg, _, _ := strings.Cut(cell, "`")
			sections[title] = append(sections[title], arg)
		}
	}
	// The page leaves out the values that differ from profile to profile.
	names := func(o Options, uid int) []string {
		args, _, err := Arguments(o, uid)
		if err != nil {
			t.Fatal(err)
		}
		for i, arg := range args {
			for _, own := range []string{"--user-data-dir=", "--profile-directory=", "--proxy-server=", "--user-agent=", "--lang=", "--accept-lang=", "--window-size=", "--screen-info="} {
				if strings.HasPrefix(arg, own) {
					args[i] = own
				}
			}
		}
		return args
	}
	plain := names(Options{ProfileDir: "/p/a"}, 1000)
	sometimes := slices.DeleteFunc(names(Options{
		ProfileDir: "/p/a", Headless: true, Proxy: "http://h:1", ReadOnly: true, Version: "156.0.8078.108", Appearance: lease.Appearance{Locale: "de-DE", Viewport: "1366x768"},
	}, 0), func(arg string) bool { return slices.Contains(plain, arg) })
	for section, want := range map[string][]string{"Always": plain, "Sometimes": sometimes, "What a manifest may add": AllowedArgs()} {
		got := slices.Sorted(slices.Values(sections[section]))
		if want = slices.Sorted(slices.Values(want)); !slices.Equal(got, want) {
			t.Errorf("%s: documented are %q, there are %q", section, got, want)
		}
	}
}

func TestExtraArguments(t *testing.T) {
	for _, ok := range []string{
		"--window-size=1280,720", "--window-position=-10,0", "--lang=en", "--lang=zh-Hant-TW", "--force-device-scale-factor=1.5",
		"--user-agent=Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36", "--disable-gpu", "--mute-audio", "--autoplay-policy=no-user-gesture-required",
	} {
		if err := checkArgument(ok); err != nil {
			t.Errorf("%s: %v", ok, err)
		}
	}
	for _, bad := range []string{
		"", "--remote-debugging-port=9222", "--remote-debugging-port", "--user-data-dir=/x", "--proxy-server=x", "--disable-gpu=1", "--lang",
		"--lang=", "--lang=en --no-sandbox", "--window-size=1,2,3", "--user-agent=x --user-data-dir=/p/a", "--user-agent=a\x00b", "--user-agent=a\n",
		"--user-agent=" + strings.Repeat("x", 513), "--window-size=1,2\n", "-lang=en", "https://example.com", "--load-extension=/x", "--disable-web-security",
	} {
		_, _, err := Arguments(Options{ProfileDir: "/p/a", ExtraArgs: []string{bad}}, 1000)
		var wrong *ArgumentError
		if !errors.As(err, &wrong) || wrong.Argument != bad {
			t.Errorf("%.60q: %v", bad, err)
		} else if len(wrong.Allowed) == 0 || !strings.Contains(err.Error(), wrong.Allowed[0]) {
			t.Errorf("%.60q: the error does not say what is allowed: %v", bad, err)
		}
	}
	if !slices.IsSorted(AllowedArgs()) {
		t.Errorf("not sorted: %q", AllowedArgs())
	}
}

func TestTempDirIsApart(t *testing.T) {
	for _, c := range []struct {
		dir string
		ok  bool
	}{
		{"/run/leasehold/a", true},
		{"/p/a", false}, {"/p", false}, {"/", false}, {"/p/a/tmp", false}, {"/p/ab", true},
		{"relative", false}, {"/x/../y", false}, {filepath.Clean(os.TempDir()), false},
		{"/" + strings.Repeat("x", MaxTempDir-1), true}, {"/" + strings.Repeat("x", MaxTempDir), false},
	} {
		if err := checkTempDir(c.dir, "/p/a"); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.dir, err)
		}
	}
}

func TestHints(t *testing.T) {
	for _, c := range []struct {
		status, output string
		err            error
		want           string
	}{
		{"exit 127", "chrome: error while loading shared libraries: libnss3.so: cannot open", nil, "shared library"},
		{"signal trap", "FATAL:zygote_host_impl_linux.cc No usable sandbox! ...", nil, "chromium-sandbox"},
		{"exit 1", "ERROR: Missing X server or $DISPLAY", nil, "headless"},
		{"exit 21", "", nil, "another Chrome"},
		{"exit 21", "in use by another Chromium process (1467) on another computer (vm)", nil, "SingletonLock"},
		{"exit 0", "Opening in existing browser session.", nil, "another Chrome"},
		{"", "", fs.ErrNotExist, "--chrome"},
		{"", "", fs.ErrPermission, ""},
		{"exit 1", "something new", nil, ""},
	} {
		got := hintFor(c.status, c.output, c.err)
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s %q %v: got %q, want %q", c.status, c.output, c.err, got, c.want)
		}
	}
}

func TestFind(t *testing.T) {
	if path, err := Find(""); err != nil || !filepath.IsAbs(path) {
		t.Errorf("the host's own: %q, %v", path, err)
	}
	tool := filepath.Join(t.TempDir(), "chrome")
	if err := os.WriteFile(tool, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, explicit := range []string{tool, "/no/such/chrome", "no-such-chrome-in-path"} {
		_, err := Find(explicit)
		var missing *NotFoundError
		if !errors.As(err, &missing) || missing.Explicit != explicit || !strings.Contains(err.Error(), "--chrome") {
			t.Errorf("%s: %v", explicit, err)
		}
	}
	if err := os.Chmod(tool, 0o700); err != nil {
		t.Fatal(err)
	}
	if path, err := Find(tool); err != nil || path != tool {
		t.Errorf("explicit: %q, %v", path, err)
	}
	none := &NotFoundError{Looked: []string{"a", "b"}}
	if s := none.Error(); !strings.Contains(s, "a, b") || !strings.Contains(s, "apt-get install chromium") {
		t.Errorf("message: %s", s)
	}
}

func TestUserDataDirs(t *testing.T) {
	for _, c := range []struct {
		line string
		want []string
	}{
		{"chrome\x00--user-data-dir=/p/a\x00", []string{"/p/a"}},
		{"chrome\x00--user-data-dir=/p/a\x00--user-data-dir=/p/b\x00", []string{"/p/a", "/p/b"}},
		{"chrome --type=gpu --user-data-dir=/p/a\x00", nil},
		{"", nil},
	} {
		if got := userDataDirs([]byte(c.line)); !slices.Equal(got, c.want) {
			t.Errorf("%q: got %q", c.line, got)
		}
	}
}

func FuzzCheckArgument(f *testing.F) {
	for _, a := range []string{"--lang=en", "--user-agent=a b", "--disable-gpu", "--remote-debugging-port=1"} {
		f.Add(a)
	}
	f.Fuzz(func(t *testing.T, arg string) {
		if checkArgument(arg) != nil {
			return
		}
		if strings.Contains(arg[2:], " -") || strings.ContainsFunc(arg, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("%q is allowed and can pass for another argument", arg)
		}
		if strings.Contains(arg, "remote-debugging") && !strings.HasPrefix(arg, "--user-agent=") {
			t.Errorf("%q is allowed", arg)
		}
	})
}
