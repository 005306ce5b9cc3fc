package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"leasehold/internal/confine"
	"leasehold/internal/natsd"
	"leasehold/lease/natskv"
)

// leakChecked runs the tests and then looks for goroutines that they left.
type leakChecked struct{ m *testing.M }

func (l leakChecked) Run() int {
	code := l.m.Run()
	if code != 0 {
		return code
	}
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// TestMain makes the test binary behave as the real command in the scripts.
func TestMain(m *testing.M) {
	confine.Main()
	testscript.Main(leakChecked{m}, map[string]func(){"leasehold": main})
}

// TestScripts runs the command lines of testdata/script as a user would. They talk to a
// server that answers with the documented JSON ($LEASEHOLD_URL, its log in $WORK/requests)
// and to the sidecar's own NATS.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			requests := filepath.Join(env.WorkDir, "requests")
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("USER", "ana")
			// A browser's temporary directory has a short path, and that of the script is long.
			short, err := os.MkdirTemp("", "s")
			if err != nil {
				return err
			}
			env.Defer(func() { _ = os.RemoveAll(short) })
			env.Setenv("SHORT", short)
			home := startFakeSidecar(env, requests+"-at-home", "")
			url := startFakeSidecar(env, requests, home)
			env.Setenv("HOME_URL", home)
			env.Setenv("LEASEHOLD_URL", url)
			env.Setenv("ADDR", strings.TrimPrefix(url, "http://"))
			// The race detector would sleep for a second at each exit.
			env.Setenv("GORACE", "atexit_sleep_ms=0")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":   exits,
			"nats":    startNATS,
			"bundles": makeBundles,
		},
		RequireExplicitExec: true,
	})
}

// exits CODE COMMAND [ARGS]: runs the command, which has to exit with the code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND [ARGS]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%s: %v", args[1], err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("%v: exit code %d, want %d", args[1:], got, want)
	}
}

// nats [SUBJECT JSON]...: starts the sidecar's NATS server ($NATS), with the messages on
// its event stream.
func startNATS(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args)%2 != 0 {
		ts.Fatalf("usage: nats [SUBJECT JSON]...")
	}
	server, err := natsd.Start(natsd.Options{Dir: ts.MkAbs("nats"), Listen: "127.0.0.1:0", Log: zerolog.Nop()})
	ts.Check(err)
	ts.Defer(server.Shutdown)
	ts.Setenv("NATS", server.ClientURL())
	ts.Setenv("NATS_ADDR", strings.TrimPrefix(server.ClientURL(), "nats://"))
	ts.Check(publish(server, args...))
}

// publish puts messages on the event stream, given as pairs of a subject and a message.
func publish(server *natsd.Server, messages ...string) error {
	conn, err := server.Connect()
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	store, err := natskv.Open(ctx, conn, natskv.Options{Log: zerolog.Nop()})
	if err != nil {
		return err
	}
	defer store.Close()
	for i := 0; i < len(messages); i += 2 {
		if _, err := js.Publish(ctx, messages[i], []byte(messages[i+1])); err != nil {
			return err
		}
	}
	return nil
}

// TestWatchSurvivesRestart restarts NATS in the middle of a watch.
func TestWatchSurvivesRestart(t *testing.T) {
	options := natsd.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0", Log: zerolog.Nop()}
	server, err := natsd.Start(options)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { server.Shutdown() }()
	options.Listen = strings.TrimPrefix(server.ClientURL(), "nats://")
	if err := publish(server, "leasehold.lease.p.granted", `{"event":"granted","lease_token":1}`); err != nil {
		t.Fatal(err)
	}
	out, in := io.Pipe()
	code := make(chan int, 1)
	var stderr bytes.Buffer
	go func() {
		code <- cli([]string{"watch", "p", "--all", "--count", "2", "--json", "--timeout", "90s", "--nats-url", server.ClientURL()},
			strings.NewReader(""), in, &stderr)
		in.Close()
	}()
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != `{"event":"granted","lease_token":1}` {
		t.Errorf("first line: %q", lines.Text())
	}
	server.Shutdown()
	if server, err = natsd.Start(options); err != nil {
		t.Fatal(err)
	}
	if err := publish(server, "leasehold.lease.p.released", `{"event":"released","lease_token":1}`); err != nil {
		t.Fatal(err)
	}
	if !lines.Scan() || lines.Text() != `{"event":"released","lease_token":1}` {
		t.Errorf("line after the restart: %q", lines.Text())
	}
	if got := <-code; got != exitDone {
		t.Errorf("exit code %d, want 0: %s", got, stderr.String())
	}
}

// TestAWatchThatIsInterrupted: a signal is how a watch without --count ends. With it, what a script does
// next would be done without the events.
func TestAWatchThatIsInterrupted(t *testing.T) {
	server, err := natsd.Start(natsd.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0", Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Shutdown()
	if err := publish(server, "leasehold.lease.p.granted", `{"event":"granted","lease_token":1}`); err != nil {
		t.Fatal(err)
	}
	for count, want := range map[string]int{"0": exitDone, "2": exitSignal + int(syscall.SIGTERM)} {
		out, in := io.Pipe()
		code := make(chan int, 1)
		var stderr bytes.Buffer
		go func() {
			code <- cli([]string{"watch", "p", "--all", "--count", count, "--json", "--nats-url", server.ClientURL()}, strings.NewReader(""), in, &stderr)
			in.Close()
		}()
		if lines := bufio.NewScanner(out); !lines.Scan() {
			t.Error("no event was printed")
		}
		if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if got := <-code; got != want {
			t.Errorf("--count %s: exit code %d, want %d: %s", count, got, want, stderr.String())
		}
	}
}
