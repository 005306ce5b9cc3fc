package chrome_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"leasehold/internal/confine"
	"leasehold/internal/procfs"
	"leasehold/internal/test/testchrome"
	"leasehold/launcher/chrome"
)

// world is a host with a sidecar's directories, a secret in each, and a root that a
// session may use.
type world struct {
	options chrome.Options
	root    string // may be read and written
	secrets map[string]string
	hidden  []string // directories into which nothing may be written
}

func newWorld(t *testing.T, confined bool) world {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := world{root: filepath.Join(base, "root"), secrets: map[string]string{}}
	data := filepath.Join(base, "data")
	dir := func(names ...string) string {
		path := filepath.Join(names...)
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, at := range map[string]string{
		"NATS address":     filepath.Join(dir(data, "nats"), "admin.url"),
		"floor of another": filepath.Join(dir(data, "profiles", ".leasehold"), "other.floor"),
		"cookies":          filepath.Join(dir(data, "profiles", "other", "Default"), "Cookies"),
		"key in the home":  filepath.Join(dir(base, "home", ".ssh"), "id_ed25519"),
	} {
		if err := os.WriteFile(at, []byte("SECRET of "+name), 0o600); err != nil {
			t.Fatal(err)
		}
		w.secrets[name] = at
	}
	w.secrets["shadow"] = "/etc/shadow"
	w.hidden = []string{filepath.Join(base, "home", ".ssh"), filepath.Join(data, "profiles", ".leasehold"), filepath.Join(data, "profiles", "other")}
	o := testchrome.Options(t)
	o.ProfileDir = dir(data, "profiles", "own")
	o.DumpDir = dir(data, "sessions", "dumps")
	dir(w.root)
	if confined {
		o.Confinement = &chrome.Confinement{ReadWrite: []string{w.root}}
	}
	w.options = o
	return w
}

// site is a page with a field for a file and a link to download.
func site(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/download":
			w.Header().Set("Content-Disposition", `attachment; filename="planted"`)
			fmt.Fprint(w, "PLANTED")
		default:
			w.Header().Set("Set-Cookie", "login=ana; Max-Age=86400")
			fmt.Fprint(w, `<!doctype html><title>site</title><input type=file><a href=/download download>get</a><p style="font:40px sans-serif">Text</p>`)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// upload has the page read a file that is put into its field, as a script of the page
// would. It returns the text that the page got, or how that failed.
func upload(t *testing.T, d *testchrome.Driver, session, path string) string {
	t.Helper()
	var found struct {
		Result struct {
			ObjectID string `json:"objectId"`
		} `json:"result"`
	}
	d.Must(session, "Runtime.evaluate", map[string]any{"expression": "document.querySelector('input')"}, &found)
	if err := d.Call(t.Context(), session, "DOM.setFileInputFiles", map[string]any{"objectId": found.Result.ObjectID, "files": []string{path}}, nil); err != nil {
		return err.Error()
	}
	return d.Eval(session, "document.querySelector('input').files[0].text().catch(e => 'refused: ' + e.name)")
}

// download saves the site's download into a directory, and tells whether it arrived.
func download(t *testing.T, d *testchrome.Driver, session, dir string) bool {
	t.Helper()
	d.Must("", "Browser.setDownloadBehavior", map[string]any{"behavior": "allow", "downloadPath": dir, "eventsEnabled": true}, nil)
	d.Must(session, "Runtime.evaluate", map[string]any{"expression": "document.querySelector('a').click()", "userGesture": true}, nil)
	deadline := time.After(testchrome.Patience)
	for {
		select {
		case m := <-d.Events("", "Browser.downloadProgress"):
			var progress struct{ State string }
			if err := json.Unmarshal(m.Params, &progress); err != nil {
				t.Fatal(err)
			}
			if progress.State == "inProgress" {
				continue
			}
			b, err := os.ReadFile(filepath.Join(dir, "planted"))
			return err == nil && string(b) == "PLANTED"
		case <-deadline:
			t.Fatalf("the download into %s did not end", dir)
		}
	}
}

// list opens a directory in a new tab, and returns the text of its listing, or of what
// there is instead.
func list(t *testing.T, d *testchrome.Driver, dir string) string {
	t.Helper()
	_, tab := d.Open("about:blank")
	var asked time.Time
	until(t, "a listing, or its refusal", func() bool {
		// A new tab's own document may come after a navigation, and end it. And Chromium never
		// ends the load of some listings, about one in sixty on a busy machine, though all of
		// them is there: nothing tells when, so they are asked for again.
		if d.Eval(tab, "location.href") == "about:blank" || time.Since(asked) > listedWithin {
			asked = time.Now()
			var went struct{ ErrorText string }
			d.Must(tab, "Page.navigate", map[string]any{"url": "file://" + dir}, &went)
			if went.ErrorText != "" && went.ErrorText != "net::ERR_ABORTED" {
				return true // refused; another navigation would end that of the error page
			}
		}
		return d.Eval(tab, "location.href !== 'about:blank' && document.readyState === 'complete'") == "true"
	})
	return d.Eval(tab, "document.documentElement.innerText")
}

// listedWithin is far longer than the load of a listing takes that ends.
const listedWithin = 5 * time.Second

// A worker that got past every other check drives the browser itself. What it may not
// have, it has where the browser is not confined: that shows that the attack is real.
func TestAConfinedBrowserReachesNoOtherFile(t *testing.T) {
	for _, confined := range []bool{true, false} {
		t.Run(fmt.Sprintf("confined=%t", confined), func(t *testing.T) {
			w := newWorld(t, confined)
			url := site(t)
			d := testchrome.Drive(t, w.options)
			_, page := d.Open(url)
			for name, path := range w.secrets {
				secret, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				got := upload(t, d, page, path)
				if read := strings.TrimSpace(got) == strings.TrimSpace(string(secret)); read == confined {
					t.Errorf("%s: the page got %.40q", name, got)
				}
				shown := list(t, d, filepath.Dir(path))
				if read := strings.Contains(shown, filepath.Base(path)); read == confined {
					t.Errorf("listing of %s: %.100q", filepath.Dir(path), shown)
				}
			}
			for _, dir := range w.hidden {
				_, page := d.Open(url)
				if arrived := download(t, d, page, dir); arrived == confined {
					t.Errorf("downloaded into %s: %t", dir, arrived)
				}
				if _, err := os.Lstat(filepath.Join(dir, "planted")); errors.Is(err, os.ErrNotExist) != confined {
					t.Errorf("in %s afterwards: %v", dir, err)
				}
			}
		})
	}
}

// TestAConfinedBrowserWorks is what a task needs of a browser.
func TestAConfinedBrowserWorks(t *testing.T) {
	w := newWorld(t, true)
	url := site(t)
	mine := filepath.Join(w.root, "mine.txt")
	if err := os.WriteFile(mine, []byte("my upload"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := testchrome.Drive(t, w.options)
	_, page := d.Open(url)
	if got := upload(t, d, page, mine); got != "my upload" {
		t.Errorf("uploaded %q", got)
	}
	// A directory that appears after the browser's start is below the root, too.
	later := filepath.Join(w.root, "made", "later")
	if err := os.MkdirAll(later, 0o700); err != nil {
		t.Fatal(err)
	}
	if !download(t, d, page, later) {
		t.Error("the download into a root did not arrive")
	}
	checkPictures(t, d, page)
	for name, expression := range map[string]string{
		"WebGL":     "document.createElement('canvas').getContext('webgl').getParameter(0x1F02).length > 0",
		"IndexedDB": "new Promise((y, n) => { const r = indexedDB.open('x'); r.onsuccess = () => y(true); r.onerror = () => n(r.error) })",
		"audio":     "new OfflineAudioContext(1, 4410, 44100).startRendering().then(b => b.length == 4410)",
		"fonts":     "document.fonts.load('20px sans-serif').then(() => { const c = document.createElement('canvas').getContext('2d'); c.font = '20px serif'; const a = c.measureText('WWWiii').width; c.font = '20px monospace'; return a > 0 && a != c.measureText('WWWiii').width })",
		"OPFS":      "navigator.storage.getDirectory().then(d => d.getFileHandle('f', {create: true})).then(f => f.createWritable()).then(w => w.write('x').then(() => w.close())).then(() => true)",
	} {
		if got := d.Eval(page, expression); got != "true" {
			t.Errorf("%s: %s", name, got)
		}
	}
	checkExtension(t, d, url)
	checkCrashDump(t, d, w.options.DumpDir)
	closeByCDP(t, d)

	again := testchrome.Drive(t, w.options)
	_, page = again.Open(url + "/again")
	if got := again.Eval(page, "document.cookie"); got != "login=ana" {
		t.Errorf("cookies of the next start: %q", got)
	}
}

// checkPictures takes a screenshot and prints. A page without fonts has no ink.
func checkPictures(t *testing.T, d *testchrome.Driver, page string) {
	t.Helper()
	d.Drawn(page)
	var shot, blank, printed struct{ Data string }
	d.Must(page, "Page.captureScreenshot", nil, &shot)
	d.Must(page, "Runtime.evaluate", map[string]any{"expression": "document.querySelector('p').remove()"}, nil)
	d.Drawn(page)
	d.Must(page, "Page.captureScreenshot", nil, &blank)
	if len(shot.Data) < len(blank.Data)+500 {
		t.Errorf("the screenshot has %d bytes, and %d without its text", len(shot.Data), len(blank.Data))
	}
	d.Must(page, "Page.printToPDF", nil, &printed)
	if b, err := base64.StdEncoding.DecodeString(printed.Data); err != nil || !strings.HasPrefix(string(b), "%PDF") {
		t.Errorf("printed: %v", err)
	}
}

// checkExtension installs an extension from the profile's own directory.
func checkExtension(t *testing.T, d *testchrome.Driver, url string) {
	t.Helper()
	dir := filepath.Join(d.Browser().ProfileDir(), "extension")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"manifest.json": `{"manifest_version": 3, "name": "x", "version": "1", "content_scripts": [{"matches": ["<all_urls>"], "js": ["x.js"]}]}`,
		"x.js":          `document.documentElement.dataset.extended = 'yes'`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d.Must("", "Extensions.loadUnpacked", map[string]any{"path": dir}, nil)
	_, page := d.Open(url)
	// Chrome runs it when it comes to it, which may be after the document is loaded.
	const extended = `new Promise((done) => (function see() {
		const is = document.documentElement.dataset.extended
		is ? done(is) : setTimeout(see, 10)
	})())`
	if got := d.Eval(page, extended); got != "yes" {
		t.Errorf("the extension's script on a page: %q", got)
	}
}

// checkCrashDump crashes a renderer and waits for its minidump.
func checkCrashDump(t *testing.T, d *testchrome.Driver, dir string) {
	t.Helper()
	_, page := d.Open("about:blank")
	d.Post(page, "Page.navigate", map[string]any{"url": "chrome://crash"})
	until(t, "a crash dump in "+dir, func() bool {
		found, err := filepath.Glob(filepath.Join(dir, "*", "*.dmp"))
		return err == nil && len(found) > 0
	})
}

func closeByCDP(t *testing.T, d *testchrome.Driver) {
	t.Helper()
	if method, err := d.Browser().Close(t.Context(), d.Ask, testchrome.Unhurried); method != chrome.ClosedByCDP || err != nil {
		t.Errorf("closed by %s, %v", method, err)
	}
}

// Every process of a confined browser is, and its helper left nothing behind: the main
// process has the pid, group and descriptors of one that is not confined.
func TestAConfinedBrowserIsStartedAsAnyOther(t *testing.T) {
	shape := func(confined bool) string {
		w := newWorld(t, confined)
		b := testchrome.Start(t, w.options)
		version(t, testchrome.NewClient(b, 0))
		p, err := procfs.Read(b.PID())
		if err != nil {
			t.Fatal(err)
		}
		line, err := procfs.CommandLine(b.PID())
		if err != nil {
			t.Fatal(err)
		}
		environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", b.PID()))
		if err != nil {
			t.Fatal(err)
		}
		var ends []string
		for fd := 0; fd <= 7; fd++ {
			to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", b.PID(), fd))
			kind, _, _ := strings.Cut(to, ":")
			if err != nil || fd < 3 {
				kind = fmt.Sprint(err == nil)
			}
			ends = append(ends, kind)
		}
		limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", b.PID()))
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("%t %q %q %q\n%s", p.Group == b.PID(), line, environ, ends[:7], limits)
		text = strings.ReplaceAll(text, w.options.ProfileDir, "PROFILE")
		return strings.ReplaceAll(strings.ReplaceAll(text, w.options.DumpDir, "DUMPS"), b.TempDir(), "TEMP")
	}
	if confined, free := shape(true), shape(false); confined != free {
		t.Errorf("confined:\n%s\nfree:\n%s", confined, free)
	}
}

// As a user that is not root the browser has its own sandbox, which the confinement
// must leave as it is.
func TestTheBrowsersOwnSandboxStandsInAConfinedBrowser(t *testing.T) {
	asStranger(t, "sandboxed")
}

// The same user, whose launcher is undumpable, can have its protocol described.
func TestAUserThatIsNotRootHasTheProtocolDescribed(t *testing.T) {
	asStranger(t, "describer")
}

// playDescriber runs as a user.
func playDescriber() error {
	if err := confine.MakeUndumpable(); err != nil {
		return err
	}
	binary, err := chrome.Find("")
	if err != nil {
		return err
	}
	for _, c := range []*chrome.Confinement{{}, nil} {
		raw, err := chrome.Describe(context.Background(), binary, filepath.Join(os.Getenv("HOME"), "tmp"), c, nil)
		if err != nil || !strings.Contains(string(raw), `"domains"`) {
			return fmt.Errorf("confined %t: %.300q, %w", c != nil, raw, err)
		}
	}
	return nil
}

// asStranger runs this binary in a mode as a user that is not root.
func asStranger(t *testing.T, mode string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "leasehold-user-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chown(dir, stranger, stranger); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Dir = dir
	cmd.Env = []string{modeVar + "=" + mode, "HOME=" + dir, "TMPDIR=" + dir, "PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stranger, Gid: stranger}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}

// stranger is a user that is not root.
const stranger = 54321

// playSandboxed runs as a user: it starts a confined browser and looks at its renderers.
func playSandboxed() error {
	binary, err := chrome.Find("")
	if err != nil {
		return err
	}
	dir := os.Getenv("HOME")
	o := chrome.Options{
		Binary: binary, ProfileDir: filepath.Join(dir, "profile"), Headless: true, OutputFile: filepath.Join(dir, "chrome.log"),
		Confinement: &chrome.Confinement{ReadWrite: []string{dir + "/root"}},
	}
	if err := os.Mkdir(o.ProfileDir, 0o700); err != nil {
		return err
	}
	b, err := chrome.Start(context.Background(), o)
	if err != nil {
		return err
	}
	defer b.Close(context.Background(), nil, chrome.CloseTimeouts{Interrupt: time.Nanosecond}) //nolint:errcheck // it is killed
	if _, err := testchrome.NewClient(b, 0).Call("Target.createTarget", map[string]string{"url": "about:blank"}); err != nil {
		return b.StartFailure(err)
	}
	own, err := os.Readlink("/proc/self/ns/user")
	if err != nil {
		return err
	}
	deadline := time.Now().Add(testchrome.Patience)
	for time.Now().Before(deadline) {
		processes, err := b.Processes()
		if err != nil {
			return err
		}
		for _, p := range processes {
			line, err := procfs.CommandLine(p.PID)
			if err != nil || !strings.Contains(string(line), "--type=renderer") {
				continue
			}
			if strings.Contains(string(line), "--no-sandbox") {
				return fmt.Errorf("the renderer has no sandbox: %q", line)
			}
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID))
			if err != nil {
				continue
			}
			// A renderer is in a namespace of pids of its own, and filters system calls.
			if nested(string(status)) && strings.Contains(string(status), "Seccomp:\t2") {
				return nil
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	return fmt.Errorf("no renderer is in its sandbox; own namespace %s; chrome printed:\n%s", own, b.OutputTail(4<<10))
}

// nested tells whether a process has a pid in more than one namespace.
func nested(status string) bool {
	for line := range strings.Lines(status) {
		if rest, ok := strings.CutPrefix(line, "NSpid:"); ok {
			return len(strings.Fields(rest)) > 1
		}
	}
	return false
}

// A confined browser listens on no TCP port, connects to no other port than its
// proxy's, and reaches no process outside. It is asked by a program in its place.
func TestWhatAConfinedProgramCannotReach(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	allowed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer allowed.Close()
	abstract, err := net.Listen("unix", "@leasehold-test-"+fmt.Sprint(os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	defer abstract.Close()
	for _, confined := range []bool{true, false} {
		w := newWorld(t, confined)
		w.options.Binary = testBinary(t)
		w.options.Proxy = "http://" + allowed.Addr().String()
		t.Setenv(modeVar, "intruder")
		t.Setenv("TEST_TARGETS", strings.Join([]string{listener.Addr().String(), allowed.Addr().String(), abstract.Addr().String(), fmt.Sprint(os.Getpid())}, ","))
		b := testchrome.Start(t, w.options)
		wait(t, b.Exited(), "the exit")
		want := "bind: true\nconnect elsewhere: true\nconnect to the proxy: true\nabstract socket: true\nsignal: true\nmemory: true\npipe: true\n"
		if confined {
			want = strings.Replace(strings.ReplaceAll(want, "true", "false"), "proxy: false", "proxy: true", 1)
		}
		if got := b.OutputTail(4 << 10); got != want {
			t.Errorf("confined=%t:\n%swant:\n%s", confined, got, want)
		}
	}
}

// playIntruder tries what a browser that was broken into would try.
func playIntruder() {
	targets := strings.Split(os.Getenv("TEST_TARGETS"), ",")
	connects := func(network, address string) bool {
		c, err := net.Dial(network, address)
		if err == nil {
			err = c.Close()
		}
		return err == nil
	}
	var pid int
	fmt.Sscan(targets[3], &pid) //nolint:errcheck // zero then
	opens := func(format string) bool {
		f, err := os.Open(fmt.Sprintf(format, pid))
		if err == nil {
			err = f.Close()
		}
		return err == nil
	}
	binds := func() bool {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return false
		}
		defer unix.Close(fd) //nolint:errcheck // a test's
		return unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}) == nil
	}
	fmt.Println("bind:", binds())
	fmt.Println("connect elsewhere:", connects("tcp", targets[0]))
	fmt.Println("connect to the proxy:", connects("tcp", targets[1]))
	fmt.Println("abstract socket:", connects("unix", targets[2]))
	fmt.Println("signal:", unix.Kill(pid, syscall.SIGCONT) == nil)
	fmt.Println("memory:", opens("/proc/%d/mem"))
	fmt.Println("pipe:", opens("/proc/%d/fd/1"))
}

func TestWhatExposesADirectory(t *testing.T) {
	w := newWorld(t, true)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(w.root, link); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		root, dir, want string
	}{
		{w.root, filepath.Join(w.root, "data"), w.root},
		{w.root, filepath.Join(w.root, "not", "there"), w.root},
		{w.root, w.root, w.root},
		{link, filepath.Join(w.root, "data"), link},
		{w.root, filepath.Join(link, "data"), w.root},
		{filepath.Join(w.root, "data"), w.root, ""},
		{w.root, w.options.ProfileDir, ""},
		{w.root, "/usr/share/leasehold", "/usr/share"},
	} {
		got, err := chrome.Confinement{ReadWrite: []string{c.root}}.Exposes(w.options.Binary, c.dir, false)
		if err != nil || got != c.want {
			t.Errorf("root %s exposes %s by %q, %v: want %q", c.root, c.dir, got, err, c.want)
		}
		if c.want == "/usr/share" { // browsers only read there
			c.want = ""
		}
		if got, err = (chrome.Confinement{ReadWrite: []string{c.root}}).Exposes(w.options.Binary, c.dir, true); err != nil || got != c.want {
			t.Errorf("root %s exposes %s to changes by %q, %v: want %q", c.root, c.dir, got, err, c.want)
		}
	}
}
