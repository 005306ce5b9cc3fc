package connlimit_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"leasehold/internal/connlimit"
	"leasehold/internal/descriptors"
)

// patience bounds waits that end sooner unless something is broken.
const patience = time.Minute

func TestMain(m *testing.M) {
	if os.Getenv("CONNLIMIT_SERVER") != "" {
		if err := few(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// serve serves until the test ends. A request for /upgrade hijacks the connection.
func serve(t *testing.T, perPeer int, idle time.Duration) string {
	t.Helper()
	l, err := connlimit.Listen("127.0.0.1:0", connlimit.Options{Peers: connlimit.NewPeers(perPeer), Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/upgrade" {
				c, _, err := w.(http.Hijacker).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
				_, _ = io.Copy(io.Discard, c)
				_ = c.Close()
			}
		}),
		ConnState: l.State, IdleTimeout: idle,
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close(); <-done })
	return l.Addr().String()
}

// ask opens a connection, asks on it, and returns it with the answer.
func ask(t *testing.T, address, path string) (net.Conn, *http.Response) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c, again(t, c, path)
}

func again(t *testing.T, c net.Conn, path string) *http.Response {
	t.Helper()
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", path); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(patience))
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// One more connection than a peer may have is refused with a sentence. Websockets, and
// what was closed, do not count.
func TestPerPeer(t *testing.T) {
	address := serve(t, 3, 0)
	for range 5 {
		if _, r := ask(t, address, "/upgrade"); r.StatusCode != 101 {
			t.Fatalf("status %d", r.StatusCode)
		}
	}
	var held []net.Conn
	for range 3 {
		c, r := ask(t, address, "/")
		if r.StatusCode != 200 {
			t.Fatalf("status %d", r.StatusCode)
		}
		held = append(held, c)
	}
	_, r := ask(t, address, "/")
	body, err := io.ReadAll(r.Body)
	if want := fmt.Sprintf("user %d of this host has 3 connections", os.Getuid()); err != nil || r.StatusCode != 429 || !strings.Contains(string(body), want) || !strings.Contains(string(body), "--max-peer-connections") {
		t.Errorf("%d %s, %v; want 429 and %q", r.StatusCode, body, err, want)
	}
	if r := again(t, held[0], "/"); r.StatusCode != 200 {
		t.Errorf("one that is open: status %d", r.StatusCode)
	}
	_ = held[1].Close()
	makesRoom(t, address)
}

// Idle connections are closed, and make room.
func TestIdle(t *testing.T) {
	address := serve(t, 1, 50*time.Millisecond)
	c, _ := ask(t, address, "/")
	if _, err := io.ReadAll(c); err != nil { // until the server closes it
		t.Fatal(err)
	}
	makesRoom(t, address)
}

// makesRoom fails unless there is soon room for a connection.
func makesRoom(t *testing.T, address string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		_, r := ask(t, address, "/")
		if r.StatusCode == 200 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("status %d", r.StatusCode)
		}
	}
}

// few is a server in a process that may have few descriptors. It prints its address, and
// writes a file whenever it is told to by a line on its standard input.
func few() error {
	limit := unix.Rlimit{Cur: 120, Max: 120}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	l, err := connlimit.Listen("127.0.0.1:0", connlimit.Options{Log: zerolog.Nop()})
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	server := &http.Server{ConnState: l.State, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	go func() { _ = server.Serve(l) }()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var open []*os.File // as many as sealing a bundle needs, and more
		var err error
		for i := range 20 {
			f, fail := os.Create(filepath.Join(lines.Text(), strconv.Itoa(i)))
			open, err = append(open, f), errors.Join(err, fail)
		}
		fmt.Println("written", err, "/ start", descriptors.ForSessions.Probe())
		for _, f := range open {
			_ = f.Close()
		}
	}
	return nil
}

// Where connections take all descriptors that they may, they are refused with a sentence,
// and files can still be written.
func TestFewDescriptors(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "CONNLIMIT_SERVER=1")
	cmd.Stderr = os.Stderr
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
	defer func() { _ = in.Close(); _ = cmd.Wait() }()
	lines := bufio.NewScanner(out)
	lines.Scan()
	address := lines.Text()
	served, refused := 0, 0
	for range 150 {
		_, r := ask(t, address, "/")
		if r.StatusCode == 200 {
			served++
			continue
		}
		body, err := io.ReadAll(r.Body)
		if err != nil || r.StatusCode != 503 || !strings.Contains(string(body), "too few file descriptors are left") {
			t.Fatalf("%d %s, %v", r.StatusCode, body, err)
		}
		refused++
	}
	if served < 50 || refused < 20 {
		t.Errorf("%d served, %d refused", served, refused)
	}
	if _, err := fmt.Fprintln(in, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	lines.Scan()
	if got := lines.Text(); !strings.HasPrefix(got, "written <nil> / start too few file descriptors are left") {
		t.Errorf("the server says %q", got)
	}
}

// TestUnused: a server that ends waits for no connection on which nothing was ever asked,
// whether it came before or comes meanwhile. One that is asked something on stays.
func TestUnused(t *testing.T) {
	l, err := connlimit.Listen("127.0.0.1:0", connlimit.Options{Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	came := make(chan http.ConnState, 10)
	server := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), ConnState: func(c net.Conn, state http.ConnState) {
		l.State(c, state)
		came <- state
	}}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	defer func() { _ = server.Close(); <-done }()
	unused := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetReadDeadline(time.Now().Add(patience))
		return c
	}
	ended := func(c net.Conn) {
		t.Helper()
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("an unused connection is open: %v", err)
		}
	}
	used, _ := ask(t, l.Addr().String(), "/")
	for range 3 { // new, active, idle
		<-came
	}
	before := unused()
	<-came
	l.CloseUnused()
	ended(before)
	ended(unused())
	if r := again(t, used, "/"); r.StatusCode != 200 {
		t.Errorf("a connection that was used: status %d", r.StatusCode)
	}
}

// TestOnlyThisPackageListens: whatever else listened in a sidecar would have none of the bounds.
// doctor only tries whether an address is free.
func TestOnlyThisPackageListens(t *testing.T) {
	listens := regexp.MustCompile(`\bnet\.(Listen|ListenTCP|ListenUnix|ListenPacket|ListenUDP|FileListener)\(|ListenAndServe|net\.ListenConfig`)
	allowed := []string{"cmd/leasehold/doctor.go", "internal/connlimit/connlimit.go"}
	root := "../.."
	found := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name == "internal/test" || name == "docs" || name != "." && strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		b, err := os.ReadFile(path)
		if err == nil && listens.Match(b) {
			if found++; !slices.Contains(allowed, name) {
				t.Errorf("%s listens: use connlimit.Listen", name)
			}
		}
		return err
	})
	if err != nil || found < len(allowed) {
		t.Errorf("%d files listen, %v", found, err)
	}
}
