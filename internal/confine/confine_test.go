package confine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"leasehold/internal/test/freeport"
)

// modeVar makes the test binary behave as a program that is confined.
const modeVar = "LEASEHOLD_CONFINE_TEST_MODE"

func TestMain(m *testing.M) {
	Main()
	switch os.Getenv(modeVar) {
	case "":
		goleak.VerifyTestMain(m)
	case "tries":
		tries(os.Args[1])
	case "threads":
		fmt.Println(threadsRead(os.Args[1]))
	case "serves":
		serve()
	case "as", "as, ruled":
		out, err := play(os.Getenv(modeVar) == "as, ruled", os.Args[1])
		if err != nil {
			panic(err)
		}
		fmt.Print(out)
	}
}

// program is this binary in a mode, under rules that let it run.
func program(mode string, args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	if path, err := os.Executable(); err == nil {
		cmd.Path = path
	}
	cmd.Env = []string{modeVar + "=" + mode, "GORACE=atexit_sleep_ms=0"}
	return cmd
}

// base lets a Go program run.
func base(t *testing.T) []Path {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return []Path{{path, Read | Execute}, {"/lib", ReadOnly | Execute}, {"/lib64", ReadOnly | Execute}, {"/usr/lib", ReadOnly | Execute}, {"/etc/ld.so.cache", Read}, {"/proc", ReadOnly}, {"/sys", ReadOnly}, {"/dev/null", Read | Write}}
}

// tries prints which of the things it can do in a directory.
func tries(dir string) {
	in := func(name string) string { return filepath.Join(dir, name) }
	var can []string
	for _, one := range []struct {
		what string
		do   func() error
	}{
		{"read", func() error { _, err := os.ReadFile(in("file")); return err }},
		{"list", func() error { _, err := os.ReadDir(dir); return err }},
		{"run", func() error { return exec.Command(in("program")).Run() }},
		{"write", func() error {
			f, err := os.OpenFile(in("file"), os.O_WRONLY, 0)
			if err == nil {
				err = f.Close()
			}
			return err
		}},
		{"truncate", func() error { return os.Truncate(in("file"), 2) }},
		{"make", func() error { return os.Mkdir(in("made"), 0o700) }},
		{"move", func() error { return os.Rename(in("file"), in("sub/file")) }},
		{"link", func() error { return os.Symlink("file", in("link")) }},
		{"socket", func() error { return bindUnix(in("socket")) }},
	} {
		if one.do() == nil {
			can = append(can, one.what)
		}
	}
	fmt.Println(strings.Join(can, " "))
}

func bindUnix(path string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: path}), unix.Close(fd))
}

// field is a directory to try things in.
func field(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"file": "text", "program": "#!/bin/true\n", "sub/other": ""} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestAccess(t *testing.T) {
	for _, c := range []struct {
		access Access
		want   string
	}{
		{0, ""},
		{Read, "read"},
		{List, "list"},
		{ReadOnly, "read list"},
		{ReadOnly | Execute, "read list run"},
		{Write, "write truncate"},
		{ReadWrite, "read list write truncate make move"},
		{ReadWrite | Link, "read list write truncate make move link socket"},
	} {
		dir := field(t)
		paths := append(base(t), Path{"/bin", ReadOnly | Execute}, Path{"/usr/bin", ReadOnly | Execute}, Path{dir, c.access}, Path{filepath.Join(dir, "missing"), ReadWrite})
		if got := run(t, program("tries", dir), Rules{Paths: paths}); got != c.want {
			t.Errorf("%07b: can %q, want %q", c.access, got, c.want)
		}
	}
}

// run runs a program under rules and returns what it printed.
func run(t *testing.T, cmd *exec.Cmd, r Rules) string {
	t.Helper()
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := Start(t.Context(), cmd, r); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	return strings.TrimSpace(out.String())
}

// A rule for one file is for that file alone.
func TestOneFile(t *testing.T) {
	dir := field(t)
	if got := run(t, program("tries", dir), Rules{Paths: append(base(t), Path{filepath.Join(dir, "file"), ReadWrite})}); got != "read write truncate" {
		t.Errorf("can %q", got)
	}
}

// Each thread of the program is restricted, also those that it makes later.
func TestEveryThread(t *testing.T) {
	dir := field(t)
	if got := run(t, program("threads", filepath.Join(dir, "file")), Rules{Paths: base(t)}); got != "0 of 16" {
		t.Errorf("threads that could read the file: %s", got)
	}
}

func threadsRead(path string) string {
	const threads = 16
	could, held := make(chan bool), make(chan struct{})
	for range threads {
		go func() {
			runtime.LockOSThread()
			_, err := os.ReadFile(path)
			could <- err == nil
			<-held // so that each has a thread of its own
		}()
	}
	n := 0
	for range threads {
		if <-could {
			n++
		}
	}
	close(held)
	return fmt.Sprintf("%d of %d", n, threads)
}

func TestWhyAProgramDoesNotStart(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(broken, []byte{0, 1}, 0o700); err != nil {
		t.Fatal(err)
	}
	everything := Rules{Paths: []Path{{"/", ReadOnly | Execute}}}
	for _, c := range []struct {
		name, path string
		rules      Rules
		want       error
	}{
		{"missing", "/no/such/program", everything, fs.ErrNotExist},
		{"no program", broken, everything, syscall.ENOEXEC},
		{"not allowed", "/bin/true", Rules{}, syscall.EACCES},
	} {
		cmd := exec.Command(c.path)
		var failed *StartError
		if err := Start(t.Context(), cmd, c.rules); !errors.Is(err, c.want) || !errors.As(err, &failed) || failed.Path != c.path || failed.Confining {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if cmd.ProcessState == nil && cmd.Process != nil {
			t.Errorf("%s: nobody waited for the process", c.name)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Start(ended, exec.Command("/bin/sleep", "60"), everything); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
}

// A program in a network of its own is reached by the socket that comes with it, and by
// nobody on the host.
func TestOffline(t *testing.T) {
	port := freeport.Take(t, 1)[0] // on which nobody listens in the host's network
	cmd := program("serves", strconv.Itoa(port))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	socket, err := StartOffline(t.Context(), cmd, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	var host bool
	if _, err := fmt.Fscan(out, &host); err != nil {
		t.Fatal(err)
	}
	if host {
		t.Error("it reaches the host's network")
	}
	if c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
		t.Error("its port is reached from the host", c.Close())
	}
	if err := unix.Connect(int(socket.Fd()), &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	c, err := net.FileConn(socket)
	if err != nil {
		t.Fatalf("%v; closing the socket: %v", err, socket.Close())
	}
	defer c.Close()
	if err := errors.Join(socket.Close(), c.SetDeadline(time.Now().Add(30*time.Second))); err != nil {
		t.Fatal(err)
	}
	said := make([]byte, 5)
	if n, err := c.Read(said); err != nil || string(said[:n]) != "hello" {
		t.Errorf("it said %q, %v", said[:n], err)
	}
}

func serve() {
	l, err := net.Listen("tcp", "127.0.0.1:"+os.Args[1])
	if err != nil {
		panic(err)
	}
	_, err = net.DialTimeout("udp", "192.0.2.1:9", time.Second) // it needs a route
	fmt.Println(err == nil)
	c, err := l.Accept()
	if err != nil {
		panic(err)
	}
	_, _ = c.Write([]byte("hello"))
	time.Sleep(time.Minute) // until it is killed
}

func TestWhatAKernelLeavesOpen(t *testing.T) {
	for abi, want := range map[int]string{
		2: "Landlock ABI 2, which does not cover truncating files, TCP ports, the control of devices, signals and abstract Unix sockets",
		4: "Landlock ABI 4, which does not cover the control of devices, signals and abstract Unix sockets",
		6: "Landlock ABI 6",
		9: "Landlock ABI 9",
	} {
		if got := (Kernel{ABI: abi}).String(); got != want {
			t.Errorf("ABI %d: %s", abi, got)
		}
	}
	if k, err := Probe(); err != nil || k.ABI < leastABI {
		t.Errorf("%v, %v: these tests need Landlock (Linux 5.19 or later)", k, err)
	}
}
