package chrome_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"leasehold/internal/cgroup"
	"leasehold/internal/confine"
	"leasehold/internal/procfs"
	"leasehold/internal/test/otheruser"
	"leasehold/internal/test/sockets"
	"leasehold/internal/test/testchrome"
	"leasehold/internal/test/testkey"
	"leasehold/launcher/chrome"
	"leasehold/launcher/profiledir"
)

// modeVar makes the test binary behave as another program: a launcher that is going
// to be killed, or a browser that does not start.
const modeVar = "CHROME_TEST_MODE"

func TestMain(m *testing.M) {
	confine.Main()
	switch mode := os.Getenv(modeVar); mode {
	case "":
		goleak.VerifyTestMain(m)
	case "launcher":
		os.Exit(playLauncher())
	case "sandboxed":
		if err := playSandboxed(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	case "neighbour":
		playNeighbour()
	case "describer":
		if err := playDescriber(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	case "intruder":
		playIntruder()
	case "exits":
		fmt.Println(strings.Repeat("early ", 1000))
		fmt.Fprintln(os.Stderr, "x: error while loading shared libraries: libnope.so")
		os.Exit(1)
	default:
		panic("unknown mode " + mode)
	}
}

func TestTalksOnThePipeAndListensNowhere(t *testing.T) {
	b := testchrome.Start(t, testchrome.Options(t))
	c := testchrome.NewClient(b, 0)
	waitUntilRunning(t, c, b)

	p, err := procfs.Read(b.PID())
	if err != nil || p.Group != b.PID() || p.StartTime != b.Identity().StartTime {
		t.Errorf("process %+v (%v), identity %+v", p, err, b.Identity())
	}
	sockets := listeningSockets(t)
	family := 0
	for _, p := range members(t, b.PID()) {
		family++
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.PID))
		if err != nil {
			continue
		}
		for _, e := range entries {
			target, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", p.PID, e.Name()))
			if err == nil && sockets[target] {
				t.Errorf("pid %d listens on TCP: %s", p.PID, target)
			}
		}
	}
	if family < 3 || len(sockets) == 0 && family == 0 {
		t.Errorf("only %d processes were looked at", family)
	}
}

func TestCloseMethods(t *testing.T) {
	nothing := func(context.Context) error { return nil }
	short := 100 * time.Millisecond
	for _, c := range []struct {
		name    string
		prepare func(*testing.T, *chrome.Browser)
		ask     func(*testchrome.Client) func(context.Context) error
		bounds  chrome.CloseTimeouts
		method  chrome.CloseMethod
		status  string
		clean   profiledir.Answer
	}{
		{
			name: "cdp", method: chrome.ClosedByCDP, status: "exit 0", clean: profiledir.Yes,
			ask:    func(c *testchrome.Client) func(context.Context) error { return c.Ask },
			bounds: testchrome.Unhurried,
		},
		{
			name: "sigint, the browser does not end when asked", method: chrome.ClosedByInterrupt, status: "exit 0", clean: profiledir.Yes,
			ask:    func(*testchrome.Client) func(context.Context) error { return nothing },
			bounds: chrome.CloseTimeouts{Ask: short, Interrupt: testchrome.Patience},
		},
		{
			name: "sigint, the browser cannot be asked", method: chrome.ClosedByInterrupt, status: "exit 0", clean: profiledir.Yes,
			bounds: chrome.CloseTimeouts{Interrupt: testchrome.Patience},
		},
		{
			name: "sigkill, the browser is stopped", method: chrome.ClosedByKill, status: "signal killed", clean: profiledir.No,
			prepare: func(t *testing.T, b *chrome.Browser) { stop(t, b.PID()) },
			ask:     func(*testchrome.Client) func(context.Context) error { return nothing },
			bounds:  chrome.CloseTimeouts{Ask: short, Interrupt: short},
		},
		{
			name: "at once, which asks nothing", method: chrome.ClosedByKill, status: "signal killed", clean: profiledir.No,
			ask: func(*testchrome.Client) func(context.Context) error {
				return func(context.Context) error { t.Error("it was asked"); return nil }
			},
			bounds: chrome.CloseTimeouts{AtOnce: true},
		},
		{
			name: "already exited", method: chrome.AlreadyExited, status: "signal killed", clean: profiledir.No,
			prepare: func(t *testing.T, b *chrome.Browser) {
				send(t, b.PID(), unix.SIGKILL)
				wait(t, b.Exited(), "the exit")
			},
			ask: func(*testchrome.Client) func(context.Context) error {
				return func(context.Context) error { t.Error("a browser that has exited was asked"); return nil }
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			root, o := profile(t)
			b := testchrome.Start(t, o)
			client := testchrome.NewClient(b, 0)
			waitUntilRunning(t, client, b)
			if c.prepare != nil {
				c.prepare(t, b)
			}
			var ask func(context.Context) error
			if c.ask != nil {
				ask = c.ask(client)
			}
			method, err := b.Close(t.Context(), ask, c.bounds)
			if err != nil || method != c.method || b.ExitStatus() != c.status {
				t.Errorf("method %s, %s, %v: want %s, %s", method, b.ExitStatus(), err, c.method, c.status)
			}
			wait(t, b.Exited(), "Exited")
			if again, err := b.Close(t.Context(), nil, c.bounds); again != method || err != nil {
				t.Errorf("closed again: %s, %v", again, err)
			}
			if left := members(t, b.PID()); len(left) > 0 {
				t.Errorf("still there: %+v", left)
			}
			if _, err := os.Stat(b.TempDir()); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("temporary directory: %v", err)
			}
			in, err := root.Inspect("p")
			if err != nil || in.ClosedCleanly.Answer != c.clean || in.InUse.Answer != profiledir.No {
				t.Errorf("inspection %+v, %v: want closed cleanly %s", in, err, c.clean)
			}
			if c.method == chrome.ClosedByCDP && in.Singleton.Present.Answer != profiledir.No {
				t.Errorf("SingletonLock is left: %+v", in.Singleton)
			}
			if c.status == "signal killed" && (in.Singleton.PID != b.PID() || in.Singleton.SameHost.Answer != profiledir.Yes || in.Singleton.OwnerAlive.Answer != profiledir.No) {
				t.Errorf("singleton of a killed browser: %+v", in.Singleton)
			}
		})
	}
}

func TestCloseStopsWithItsContextAndGoesOn(t *testing.T) {
	b := testchrome.Start(t, testchrome.Options(t))
	version(t, testchrome.NewClient(b, 0))
	stop(t, b.PID())
	ctx, cancel := context.WithCancel(t.Context())
	asked := func(ctx context.Context) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	}
	if method, err := b.Close(ctx, asked, chrome.CloseTimeouts{}); method != chrome.ClosedByCDP || !errors.Is(err, context.Canceled) {
		t.Errorf("cut short: %s, %v", method, err)
	}
	if p, err := procfs.Read(b.PID()); err != nil || p.State != 'T' {
		t.Errorf("the browser was touched: %+v, %v", p, err)
	}
	if method, err := b.Close(t.Context(), nil, chrome.CloseTimeouts{Interrupt: time.Millisecond}); method != chrome.ClosedByKill || err != nil {
		t.Errorf("gone on: %s, %v", method, err)
	}
}

func TestTheBrowserKeepsTheLockAndTheAddressOfItsProxy(t *testing.T) {
	root, o := profile(t)
	lock, err := root.Lock("p")
	if err != nil {
		t.Fatal(err)
	}
	address, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if o.ProxySocket, err = address.(*net.TCPListener).File(); err != nil {
		t.Fatal(err)
	}
	o.Lock = lock.File()
	b := testchrome.Start(t, o)
	c := testchrome.NewClient(b, 0)
	waitUntilRunning(t, c, b)
	if err := errors.Join(lock.Unlock(), address.Close(), o.ProxySocket.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := otheruser.Listen(otheruser.UID, address.Addr().String()); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("another user listens at the address of the browser's proxy: %v", err)
	}
	if _, err := root.Lock("p"); !errors.Is(err, profiledir.ErrLocked) {
		t.Errorf("lock beside the browser: %v", err)
	}
	in, err := root.Inspect("p")
	if err != nil || in.Locked.Answer != profiledir.Yes || in.InUse.Answer != profiledir.Yes ||
		in.Singleton.OwnerAlive.Answer != profiledir.Yes || in.Singleton.PID != b.PID() || in.ClosedCleanly.Answer != profiledir.No {
		t.Errorf("inspection of a running one: %+v, %v", in, err)
	}
	var mains, helpers int
	for _, p := range in.Processes {
		switch {
		case !p.Main:
			helpers++
		case p.PID == b.PID() && p.StartTime == b.Identity().StartTime:
			mains++
		default:
			t.Errorf("foreign: %+v", p)
		}
	}
	if mains != 1 || helpers < 3 {
		t.Errorf("%d main processes, %d helpers: %+v", mains, helpers, in.Processes)
	}
	busy, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := root.WaitUnused(busy, "p"); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), fmt.Sprint(b.PID())) {
		t.Errorf("unused while it runs: %v", err)
	}

	if method, err := b.Close(t.Context(), c.Ask, testchrome.Unhurried); method != chrome.ClosedByCDP || err != nil {
		t.Fatalf("closed by %v, error %v; want %v", method, err, chrome.ClosedByCDP)
	}
	if err := root.WaitUnused(t.Context(), "p"); err != nil {
		t.Error(err)
	}
	again, err := root.Lock("p")
	if err != nil {
		t.Fatalf("lock after its exit: %v", err)
	}
	if err := again.Unlock(); err != nil {
		t.Error(err)
	}
	l, err := otheruser.Listen(otheruser.UID, address.Addr().String())
	if err != nil {
		t.Fatalf("the address after its exit: %v", err)
	}
	_ = l.Close() // nothing was written
}

func TestStartFailures(t *testing.T) {
	t.Run("exits", func(t *testing.T) {
		t.Setenv(modeVar, "exits")
		o := testchrome.Options(t)
		o.Binary = testBinary(t)
		b := testchrome.Start(t, o)
		wait(t, b.Exited(), "the exit")
		err := b.StartFailure(io.EOF)
		if err.ExitStatus != "exit 1" || !strings.Contains(err.Output, "libnope") || len(err.Output) != 2<<10 ||
			!strings.Contains(err.Hint, "shared library") || !errors.Is(err, io.EOF) || !strings.Contains(err.Error(), o.Binary) {
			t.Errorf("got %+v", err)
		}
		if method, err := b.Close(t.Context(), nil, chrome.CloseTimeouts{}); method != chrome.AlreadyExited || err != nil {
			t.Errorf("close: %s, %v", method, err)
		}
	})
	t.Run("profile in use", func(t *testing.T) {
		o := testchrome.Options(t)
		version(t, testchrome.NewClient(testchrome.Start(t, o), 0))
		o.OutputFile += ".second"
		o.TempDir = filepath.Join(os.TempDir(), fmt.Sprintf("leasehold-test-%d", os.Getpid()))
		b := testchrome.Start(t, o)
		wait(t, b.Exited(), "the exit")
		if err := b.StartFailure(io.EOF); err.ExitStatus != "exit 21" || !strings.Contains(err.Hint, "another Chrome") {
			t.Errorf("got %+v", err)
		}
	})
	for name, c := range map[string]struct {
		change func(*chrome.Options)
		want   string
	}{
		"no binary":       {func(o *chrome.Options) { o.Binary = "/no/such/chrome" }, "--chrome"},
		"no program":      {func(o *chrome.Options) { o.Binary = writeFile(t, "\x00\x01", 0o700) }, "not a program"},
		"no profile":      {func(o *chrome.Options) { o.ProfileDir += "-missing" }, "existing directory"},
		"output":          {func(o *chrome.Options) { o.OutputFile = "/no/such/dir/log" }, "output"},
		"temp in profile": {func(o *chrome.Options) { o.TempDir = o.ProfileDir + "/tmp" }, "apart"},
	} {
		t.Run(name, func(t *testing.T) {
			o := testchrome.Options(t)
			c.change(&o)
			_, err := chrome.Start(t.Context(), o)
			var failure *chrome.StartError
			if !errors.As(err, &failure) || failure.Binary != o.Binary || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v", err)
			}
		})
	}
	t.Run("context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := chrome.Start(ctx, testchrome.Options(t)); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

func TestDeadlinesOnThePipe(t *testing.T) {
	b := testchrome.Start(t, testchrome.Options(t))
	version(t, testchrome.NewClient(b, 0))
	if err := b.Events().SetReadDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Events().Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read: %v", err)
	}
	stop(t, b.PID())
	if err := b.Commands().SetWriteDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Commands().Write(make([]byte, 4<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("write to a browser that does not read: %v", err)
	}
}

// TestABrowserThatIsEndingIsNotSignalled: the answer to Browser.close may be lost with the pipe, and the
// browser may take longer than one that does not answer is given.
func TestABrowserThatIsEndingIsNotSignalled(t *testing.T) {
	b := testchrome.Start(t, testchrome.Options(t))
	c := testchrome.NewClient(b, 0)
	version(t, c)
	ask := func(context.Context) error {
		stop(t, b.PID())
		time.AfterFunc(1500*time.Millisecond, func() {
			_ = unix.Kill(b.PID(), unix.SIGCONT)
			_ = c.Ask(t.Context())
		})
		return io.EOF
	}
	if method, err := b.Close(t.Context(), ask, testchrome.Unhurried); method != chrome.ClosedByCDP || err != nil {
		t.Errorf("close: %s, %v", method, err)
	}
}

func TestDetachLeavesTheBrowserForAdoption(t *testing.T) {
	o := testchrome.Options(t)
	first, err := chrome.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	version(t, testchrome.NewClient(first, 0))
	if err := first.Detach(); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Close(t.Context(), nil, chrome.CloseTimeouts{}); err == nil {
		t.Error("a detached browser was closed")
	}
	b, err := chrome.Adopt(first.Identity(), adoptOptions(o, first.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	testchrome.CloseAtEnd(t, b)
	c := testchrome.NewClient(b, 1000)
	version(t, c)
	if method, err := b.Close(t.Context(), c.Ask, testchrome.Unhurried); method != chrome.ClosedByCDP || err != nil || b.ExitStatus() != "unknown" {
		t.Errorf("close: %s, %v, %s", method, err, b.ExitStatus())
	}
	reap(t, first.PID())
}

// launched is what the launcher that is going to be killed prints.
type launched struct {
	Identity chrome.Identity
	Options  chrome.Options
}

// playLauncher is the program of a launcher that starts a browser, sends it all of a command but the
// zero byte at its end, and is then killed.
func playLauncher() int {
	var o chrome.Options
	if err := json.Unmarshal([]byte(os.Getenv(modeVar+"_OPTIONS")), &o); err != nil {
		panic(err)
	}
	root, err := profiledir.Open(filepath.Dir(o.ProfileDir), testkey.Key)
	if err != nil {
		panic(err)
	}
	lock, err := root.Lock(filepath.Base(o.ProfileDir))
	if err != nil {
		panic(err)
	}
	o.Lock = lock.File()
	b, err := chrome.Start(context.Background(), o)
	if err != nil {
		panic(err)
	}
	c := testchrome.NewClient(b, 0)
	if _, err := c.Call("Target.createTarget", map[string]any{"url": "data:text/html,<title>still here</title>"}); err != nil {
		panic(err)
	}
	if _, err := b.Commands().WriteString(`{"id":77,"method":"Target.createTarget","params":{"url":"data:text/html,<title>not wanted</title>"}}`); err != nil {
		panic(err)
	}
	o.Lock, o.TempDir = nil, b.TempDir()
	if err := json.NewEncoder(os.Stdout).Encode(launched{b.Identity(), o}); err != nil {
		panic(err)
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // until it is killed
	return 0
}

// orphan returns a browser whose launcher was killed with SIGKILL.
func orphan(t testing.TB, o chrome.Options) launched {
	t.Helper()
	options, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(testBinary(t))
	cmd.Env = append(os.Environ(), modeVar+"=launcher", modeVar+"_OPTIONS="+string(options))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var l launched
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &l)
	}
	if killed := cmd.Process.Kill(); err != nil || killed != nil {
		t.Fatalf("%v; killing it: %v; waiting: %v", err, killed, cmd.Wait())
	}
	if err := cmd.Wait(); err == nil {
		t.Fatal("the launcher was not killed")
	}
	return l
}

func TestAdoptAfterTheLauncherWasKilled(t *testing.T) {
	root, o := profile(t)
	l := orphan(t, o)
	if _, err := root.Lock("p"); !errors.Is(err, profiledir.ErrLocked) {
		t.Fatalf("the orphan does not have the lock: %v", err)
	}
	lock, err := root.Adopt("p")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Unlock() }()
	if _, err := root.Adopt("p"); !errors.Is(err, profiledir.ErrLocked) {
		t.Errorf("adopted twice: %v", err)
	}
	if err := lock.Retake(); !errors.Is(err, profiledir.ErrLocked) {
		t.Errorf("retaken from a living browser: %v", err)
	}
	b, err := chrome.Adopt(l.Identity, adoptOptions(o, l.Options.TempDir))
	if err != nil {
		t.Fatal(err)
	}
	testchrome.CloseAtEnd(t, b)
	c := testchrome.NewClient(b, 1000)
	version(t, c)
	targets, err := c.Call("Target.getTargets", nil)
	if err != nil || !bytes.Contains(targets, []byte("still here")) {
		t.Errorf("the page is gone: %s, %v", targets, err)
	}
	if bytes.Contains(targets, []byte("not wanted")) {
		t.Errorf("what the launcher before had not sent to the end was done: %s", targets)
	}
	method, err := b.Close(t.Context(), c.Ask, testchrome.Unhurried)
	if method != chrome.ClosedByCDP || err != nil || b.ExitStatus() != "unknown" {
		t.Errorf("close: %s, %v, %s", method, err, b.ExitStatus())
	}
	if _, err := os.Stat(l.Options.TempDir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("temporary directory: %v", err)
	}
	if err := lock.Retake(); err != nil || lock.File() == nil {
		t.Errorf("retaken after its end: %v", err)
	}
	in, err := root.Inspect("p")
	if err != nil || in.Locked.Answer != profiledir.No || in.ClosedCleanly.Answer != profiledir.Yes {
		t.Errorf("inspection: %+v, %v", in, err)
	}
}

func TestABrowserIsNotToldTheSidecarsSecrets(t *testing.T) {
	t.Setenv("AWS_SECRET_ACCESS_KEY", "of the evidence store")
	t.Setenv("LEASEHOLD_NATS_URL", "nats://user:secret@host")
	t.Setenv("FOR_BROWSERS", "x")
	b, err := chrome.Start(t.Context(), testchrome.Options(t))
	if err != nil {
		t.Fatal(err)
	}
	testchrome.CloseAtEnd(t, b)
	version(t, testchrome.NewClient(b, 0))
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", b.PID()))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(environ, []byte("AWS_")) || bytes.Contains(environ, []byte("LEASEHOLD_")) || !bytes.Contains(environ, []byte("FOR_BROWSERS=x")) {
		t.Errorf("%q, want all but the sidecar's own", bytes.ReplaceAll(environ, []byte{0}, []byte(" ")))
	}
}

// TestNobodyOpensThePipe: whoever may look into /proc cannot open what the launcher drives
// the browser by.
func TestNobodyOpensThePipe(t *testing.T) {
	b, err := chrome.Start(t.Context(), testchrome.Options(t))
	if err != nil {
		t.Fatal(err)
	}
	testchrome.CloseAtEnd(t, b)
	version(t, testchrome.NewClient(b, 0))
	dir := fmt.Sprintf("/proc/%d/fd", b.PID())
	fds, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	sockets := 0
	for _, fd := range fds {
		number, err := strconv.Atoi(fd.Name())
		if err != nil || number < 3 || number > 6 {
			continue
		}
		sockets++
		for _, how := range []int{os.O_RDONLY, os.O_WRONLY, os.O_RDWR} {
			f, err := os.OpenFile(filepath.Join(dir, fd.Name()), how|unix.O_NONBLOCK, 0)
			if !errors.Is(err, unix.ENXIO) {
				t.Errorf("opening descriptor %s: %v", fd.Name(), err)
			}
			if err == nil {
				f.Close()
			}
		}
	}
	if sockets != 4 {
		t.Errorf("%d descriptors of the pipe, want 4", sockets)
	}
}

func TestAttachCanOnlyClose(t *testing.T) {
	_, o := profile(t)
	l := orphan(t, o)
	b, err := chrome.Attach(l.Identity, adoptOptions(o, l.Options.TempDir))
	if err != nil {
		t.Fatal(err)
	}
	testchrome.CloseAtEnd(t, b)
	if b.Commands() != nil || b.Events() != nil {
		t.Error("there is a pipe")
	}
	stop(t, b.PID())
	if method, err := b.Close(t.Context(), nil, chrome.CloseTimeouts{Interrupt: 50 * time.Millisecond}); method != chrome.ClosedByKill || err != nil {
		t.Errorf("close: %s, %v", method, err)
	}
}

// TestInAGroup: all processes of a browser that is started in a control group are in
// it, its crash handlers too. The browser is adopted with its group, and killed by it.
func TestInAGroup(t *testing.T) {
	host, err := cgroup.Here()
	if err != nil {
		t.Fatalf("%v: the tests need cgroup v2, hybrid or not", err)
	}
	base := filepath.Join(host.Mount, host.Own, fmt.Sprintf("leasehold-chrome-test-%d", os.Getpid()))
	if err := os.Mkdir(base, 0o755); errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS) {
		// Where no group can be made, the plan has to say so.
		if _, err := host.Plan(); err == nil {
			t.Error("no group can be made, and the plan does not say so")
		}
		t.Logf("this user may not make groups in %s: no browser is started in one", host.Mount)
		return
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(base); err != nil {
			t.Error(err)
		}
	})
	group := makeGroup(t, filepath.Join(base, "browser-one"))
	o := testchrome.Options(t)
	o.Group, o.DumpDir = group, t.TempDir()
	first, err := chrome.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	waitUntilRunning(t, testchrome.NewClient(first, 0), first)
	inside, err := group.Processes()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range members(t, first.PID()) {
		if p.Alive() && !slices.Contains(inside, p.PID) {
			t.Errorf("process %d is not in the group", p.PID)
		}
	}
	handlers := 0
	for _, pid := range inside {
		line, err := procfs.CommandLine(pid)
		if err == nil && bytes.Contains(line, []byte("--database="+o.DumpDir)) {
			handlers++
		}
	}
	if handlers == 0 {
		t.Error("no crash handler with the folder for dumps")
	}
	if err := first.Detach(); err != nil {
		t.Fatal(err)
	}
	ao := adoptOptions(o, first.TempDir())
	ao.Group = base + "/browser-another"
	other, err := chrome.Adopt(first.Identity(), ao)
	if err != nil || other.Group() != nil || len(other.Warnings()) != 1 {
		t.Fatalf("adopted with a group that is not its own: %v, %v", other.Warnings(), err)
	}
	if err := other.Detach(); err != nil {
		t.Fatal(err)
	}
	ao.Group = group.Dir()
	b, err := chrome.Adopt(first.Identity(), ao)
	if err != nil {
		t.Fatal(err)
	}
	stop(t, b.PID())
	method, err := b.Close(t.Context(), nil, chrome.CloseTimeouts{Interrupt: 50 * time.Millisecond})
	if method != chrome.ClosedByGroupKill || !method.Killed() || err != nil {
		t.Errorf("close: %s, %v", method, err)
	}
	reap(t, first.PID())
	if err := b.Group().Remove(testchrome.Patience); err != nil {
		t.Error(err)
	}
}

// makeGroup makes a browser's control group without limits. cgroup.Open wants a process
// that is in the group, so one runs there until it is opened.
func makeGroup(t *testing.T, dir string) *cgroup.Group {
	t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: fd}
	if err := errors.Join(cmd.Start(), unix.Close(fd)); err != nil {
		t.Fatal(err)
	}
	group, err := cgroup.Open(dir, cmd.Process.Pid)
	if killed := cmd.Process.Kill(); err != nil || killed != nil {
		t.Fatalf("%v; killing it: %v", err, killed)
	}
	_ = cmd.Wait() // it was killed
	return group
}

func TestCloseEndsAHelperThatOutlivesTheBrowser(t *testing.T) {
	for name, begin := range map[string]func(testing.TB, chrome.Options) *chrome.Browser{
		"started": testchrome.Start,
		"adopted": func(t testing.TB, o chrome.Options) *chrome.Browser {
			l := orphan(t, o)
			b, err := chrome.Adopt(l.Identity, adoptOptions(o, l.Options.TempDir))
			if err != nil {
				t.Fatal(err)
			}
			testchrome.CloseAtEnd(t, b)
			return b
		},
	} {
		t.Run(name, func(t *testing.T) {
			root, o := profile(t)
			b := begin(t, o)
			// A helper that is still starting would end with the browser.
			waitUntilRunning(t, testchrome.NewClient(b, 1000), b)
			stop(t, helper(t, b.PID(), "network.mojom.NetworkService"))
			send(t, b.PID(), unix.SIGKILL)
			wait(t, b.Exited(), "the exit")
			if locked, err := root.Locked("p"); locked || err != nil {
				t.Errorf("the helper has the lock: %v", err)
			}
			if in, err := root.Inspect("p"); err != nil || in.InUse.Answer != profiledir.Yes {
				t.Errorf("the helper is not seen: %+v, %v", in.InUse, err)
			}
			if method, err := b.Close(t.Context(), nil, chrome.CloseTimeouts{Kill: 2 * time.Second}); method != chrome.ClosedByKill || err != nil {
				t.Errorf("close: %s, %v", method, err)
			}
			if err := root.WaitUnused(t.Context(), "p"); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAdoptRefusesAnother(t *testing.T) {
	o := testchrome.Options(t)
	b := testchrome.Start(t, o)
	version(t, testchrome.NewClient(b, 0))
	self, err := procfs.Read(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	dead := exec.Command("/bin/true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	right := b.Identity()
	for _, c := range []struct {
		proof  string
		change func(*chrome.Identity, *chrome.AdoptOptions)
	}{
		{"boot", func(id *chrome.Identity, _ *chrome.AdoptOptions) { id.BootID = "another" }},
		{"boot", func(id *chrome.Identity, _ *chrome.AdoptOptions) { id.BootID = "" }},
		{"start_time", func(id *chrome.Identity, _ *chrome.AdoptOptions) { id.StartTime++ }},
		{"start_time", func(id *chrome.Identity, _ *chrome.AdoptOptions) { id.PID = os.Getpid() }},
		{"alive", func(id *chrome.Identity, _ *chrome.AdoptOptions) { id.PID = dead.Process.Pid }},
		{"alive", func(id *chrome.Identity, _ *chrome.AdoptOptions) { id.PID = 0 }},
		{"profile", func(_ *chrome.Identity, o *chrome.AdoptOptions) { o.ProfileDir += "x" }},
		{"profile", func(_ *chrome.Identity, o *chrome.AdoptOptions) { o.ProfileDir = filepath.Dir(o.ProfileDir) }},
		{"group", func(id *chrome.Identity, _ *chrome.AdoptOptions) {
			zygote, err := procfs.Read(helper(t, b.PID(), "--type=zygote"))
			if err != nil {
				t.Fatal(err)
			}
			id.PID, id.StartTime = zygote.PID, zygote.StartTime
		}},
	} {
		id, ao := right, adoptOptions(o, "")
		c.change(&id, &ao)
		_, err := chrome.Adopt(id, ao)
		var wrong *chrome.NotSameError
		if !errors.As(err, &wrong) || wrong.Proof != c.proof || wrong.Identity != id {
			t.Errorf("%s: %v", c.proof, err)
		}
	}
	if now, err := procfs.Read(os.Getpid()); err != nil || now.StartTime != self.StartTime {
		t.Fatalf("start time %v, error %v; want %v", now.StartTime, err, self.StartTime)
	}
	if err := tryVersion(testchrome.NewClient(b, 10)); err != nil {
		t.Errorf("the refusals disturbed the browser: %v", err)
	}
}

func TestAdoptSaysThatThePipeIsGone(t *testing.T) {
	// A process that passes every proof, but has no pipes.
	dir := t.TempDir()
	cmd := exec.Command("/bin/sh", "-c", "echo up; read line", "sh", "--user-data-dir="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// The kernel shows a command line only some time after the process was started.
	if _, err := out.Read(make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	p, err := procfs.Read(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	id := chrome.Identity{PID: p.PID, StartTime: p.StartTime, BootID: bootID(t)}
	_, err = chrome.Adopt(id, chrome.AdoptOptions{ProfileDir: dir})
	var wrong *chrome.NotSameError
	if err == nil || errors.As(err, &wrong) || !strings.Contains(err.Error(), "debugging pipe") {
		t.Errorf("adopt: %v", err)
	}
	b, err := chrome.Attach(id, chrome.AdoptOptions{ProfileDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	in.Close()
	wait(t, b.Exited(), "the exit")
	if method, err := b.Close(t.Context(), nil, chrome.CloseTimeouts{}); method != chrome.AlreadyExited || err != nil {
		t.Errorf("close: %s, %v", method, err)
	}
	_ = cmd.Wait() // read meets the end of its input and fails
}

func profile(t *testing.T) (*profiledir.Root, chrome.Options) {
	t.Helper()
	root, err := profiledir.Open(filepath.Join(t.TempDir(), "profiles"), testkey.Key)
	if err != nil {
		t.Fatal(err)
	}
	o := testchrome.Options(t)
	if o.ProfileDir, err = root.Create("p"); err != nil {
		t.Fatal(err)
	}
	return root, o
}

func adoptOptions(o chrome.Options, tempDir string) chrome.AdoptOptions {
	return chrome.AdoptOptions{ProfileDir: o.ProfileDir, TempDir: tempDir, OutputFile: o.OutputFile}
}

func version(t *testing.T, c *testchrome.Client) {
	t.Helper()
	if err := tryVersion(c); err != nil {
		t.Fatal(err)
	}
}

func tryVersion(c *testchrome.Client) error {
	got, err := c.Call("Browser.getVersion", nil)
	if err == nil && !bytes.Contains(got, []byte("Chrom")) {
		err = fmt.Errorf("version %s", got)
	}
	return err
}

// waitUntilRunning waits until the browser has its helpers and has noted in its profile
// that it runs.
func waitUntilRunning(t *testing.T, c *testchrome.Client, b *chrome.Browser) {
	t.Helper()
	version(t, c)
	if _, err := c.Call("Storage.getCookies", nil); err != nil { // the network service answers it
		t.Fatal(err)
	}
	helper(t, b.PID(), "network.mojom.NetworkService")
	until(t, "Variations has the running browser's note", func() bool {
		note, err := os.ReadFile(filepath.Join(b.ProfileDir(), "Variations"))
		return err == nil && bytes.Contains(note, []byte(`exited_cleanly":false`))
	})
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(testchrome.Patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", testchrome.Patience, what)
		}
	}
}

func wait(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(testchrome.Patience):
		t.Fatalf("not within %v: %s", testchrome.Patience, what)
	}
}

func send(t *testing.T, pid int, sig unix.Signal) {
	t.Helper()
	if err := unix.Kill(pid, sig); err != nil {
		t.Fatal(err)
	}
}

// stop stops the process and returns when it is stopped.
func stop(t *testing.T, pid int) {
	t.Helper()
	send(t, pid, unix.SIGSTOP)
	until(t, "the process is stopped", func() bool {
		p, err := procfs.Read(pid)
		return err == nil && p.State == 'T'
	})
}

// reap waits for a child that nobody waits for after Detach.
func reap(t *testing.T, pid int) {
	t.Helper()
	if _, err := unix.Wait4(pid, nil, 0, nil); err != nil {
		t.Error(err)
	}
}

func members(t *testing.T, pgid int) []procfs.Process {
	t.Helper()
	all, err := procfs.List()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(p procfs.Process) bool { return p.Group != pgid || !p.Alive() })
}

// helper waits for a process of the group, other than its leader, that has text on its
// command line, and returns its pid.
func helper(t *testing.T, pgid int, text string) (pid int) {
	t.Helper()
	until(t, text+" runs", func() bool {
		for _, p := range members(t, pgid) {
			if line, err := procfs.CommandLine(p.PID); err == nil && p.PID != pgid && bytes.Contains(line, []byte(text)) {
				pid = p.PID
			}
		}
		return pid != 0
	})
	return pid
}

// listeningSockets returns, for every listening TCP socket of this network namespace,
// the target of the links to it in /proc/*/fd.
func listeningSockets(t *testing.T) map[string]bool {
	t.Helper()
	listening := map[string]bool{}
	open, err := sockets.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range open {
		if s.Listening {
			listening["socket:["+s.Inode+"]"] = true
		}
	}
	return listening
}

func testBinary(t testing.TB) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func writeFile(t *testing.T, content string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func bootID(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}
