package natsd

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
)

func start(t *testing.T, dir, listen string) *Server {
	t.Helper()
	s, err := Start(Options{Dir: dir, Listen: listen, Log: zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.InfoLevel)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	return s
}

func connected(t *testing.T, nc *nats.Conn, err error) *nats.Conn {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func jets(t *testing.T, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func must[T any](t *testing.T, v T, err error) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func bucket(t *testing.T, js jetstream.JetStream, name string) jetstream.KeyValue {
	t.Helper()
	kv, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: name, History: 8})
	return must(t, kv, err)
}

func TestInProcessServerKeepsItsData(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "nats")
	for restart := range 2 {
		s := start(t, dir, "")
		if s.ClientURL() != "" {
			t.Errorf("ClientURL is %q for a server that does not listen", s.ClientURL())
		}
		nc, err := s.Connect()
		kv := bucket(t, jets(t, connected(t, nc, err)), "b")
		if restart == 0 {
			_, err := kv.Put(t.Context(), "k", []byte("v"))
			must(t, 0, err)
		} else {
			e, err := kv.Get(t.Context(), "k")
			if got := string(must(t, e, err).Value()); got != "v" {
				t.Errorf("value after the restart: %q", got)
			}
		}
		nc.Close()
		s.Shutdown()
		s.Shutdown() // again is harmless
	}
}

func TestEveryWriteIsSynced(t *testing.T) {
	jsz, err := start(t, t.TempDir(), "").srv.Jsz(nil)
	if c := must(t, jsz, err).Config; !c.SyncAlways {
		t.Errorf("JetStream configuration: %+v", c)
	}
}

func TestListenErrors(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, l, err)
	defer func() { _ = l.Close() }()
	addr := l.Addr().String()

	dir := t.TempDir()
	_, err = Start(Options{Dir: dir, Listen: addr, Log: zerolog.Nop()})
	var le *ListenError
	if !errors.As(err, &le) || le.Addr != addr || !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "--nats-listen") {
		t.Errorf("a port in use: %v", err)
	}
	start(t, dir, "") // the directory is free again
	for _, listen := range []string{"4333", "127.0.0.1:x", ":4333", "127.0.0.1:70000", "127.0.0.1:-1"} {
		if _, err := Start(Options{Dir: t.TempDir(), Listen: listen, Log: zerolog.Nop()}); err == nil || !strings.Contains(err.Error(), listen) {
			t.Errorf("listen %q: %v", listen, err)
		}
	}
}

// A fatal message of the server does not end the process.
func TestFatalIsNoExit(t *testing.T) {
	b := &logBridge{log: zerolog.Nop()}
	b.Fatalf("cannot read %d", 1)
	b.Fatalf("later")
	if b.fatal() != "cannot read 1" {
		t.Errorf("fatal: %q", b.fatal())
	}
}

func TestDirErrors(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	must(t, 0, os.WriteFile(file, nil, 0o600))
	for _, bad := range []string{file, filepath.Join(file, "below"), "/proc/nats"} {
		if _, err := Start(Options{Dir: bad, Log: zerolog.Nop()}); err == nil || !strings.Contains(err.Error(), bad) || !strings.Contains(err.Error(), "--data-dir") {
			t.Errorf("directory %s: %v", bad, err)
		}
	}
	// What the server itself finds unusable is an error, and does not end the process.
	must(t, 0, os.WriteFile(filepath.Join(dir, "jetstream"), nil, 0o600))
	if _, err := Start(Options{Dir: dir, Log: zerolog.Nop()}); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("a file where the store should be: %v", err)
	}

	used := t.TempDir()
	start(t, used, "")
	var in *DirInUseError
	if _, err := Start(Options{Dir: used, Log: zerolog.Nop()}); !errors.As(err, &in) {
		t.Errorf("a directory in use: %v", err)
	}
}

// lateContext ends later than its deadline, as a context may whose timer a busy host looks at late.
type lateContext struct {
	context.Context
	deadline time.Time
}

func (c lateContext) Deadline() (time.Time, bool) { return c.deadline, true }

// TestTheCallersTimeEndsAConnect: then that is over when Dial says so, and not only the time for a server.
func TestTheCallersTimeEndsAConnect(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // it answers nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	for name, d := range map[string]time.Duration{"while it waits": 20 * time.Millisecond, "before": 0} {
		late, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		ctx := lateContext{late, time.Now().Add(d)}
		if _, err := Dial(ctx, Target{URL: "nats://" + l.Addr().String()}, zerolog.Nop()); !errors.Is(ctx.Err(), context.DeadlineExceeded) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v, while the context says %v", name, err, ctx.Err())
		}
	}
}

func TestDial(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, l, err)
	gone := l.Addr().String()
	must(t, 0, l.Close())
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tt := range map[string]struct {
		ctx        context.Context
		url, creds string
		want       string
	}{
		"unreachable":      {t.Context(), "nats://u:topsecret@" + gone, "", "nats://u:***@" + gone + " cannot be reached"},
		"token":            {t.Context(), "nats://topsecret@" + gone, "", "nats://***@" + gone},
		"list":             {t.Context(), "nats://u:topsecret@" + gone + ", nats://u:topsecret@" + gone, "", "check --nats-url"},
		"not a URL":        {t.Context(), "nats://u:topsecret@h:port", "", "***@h:port"},
		"no creds file":    {t.Context(), "nats://" + gone, "/nonexistent", "--nats-creds"},
		"no time left":     {canceled, "nats://" + gone, "", "canceled"},
		"no scheme":        {t.Context(), "u:topsecret@" + gone, "", "cannot be reached"},
		"control in a URL": {t.Context(), "nats://u:top\x00topsecret@" + gone, "", "not a URL"},
	} {
		t.Run(name, func(t *testing.T) {
			nc, err := Dial(tt.ctx, Target{URL: tt.url, Creds: tt.creds}, zerolog.Nop())
			if err == nil {
				nc.Close()
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "topsecret") {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

// TestAwait: a server that does not come is named, and one that refuses is not asked again.
func TestAwait(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, l, err)
	gone := l.Addr().String()
	must(t, 0, l.Close())
	soon, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if nc, err := Await(soon, Target{URL: "nats://u:topsecret@" + gone}, zerolog.Nop()); err == nil || !strings.Contains(err.Error(), gone+" cannot be reached: ") || soon.Err() == nil {
		t.Errorf("%v, %v, and its time is over: %v", nc, err, soon.Err())
	}
	refusing, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, Authorization: "another", NoSigs: true, NoLog: true})
	must(t, refusing, err)
	refusing.Start()
	defer func() { refusing.Shutdown(); refusing.WaitForShutdown() }()
	if nc, err := Await(t.Context(), Target{URL: refusing.ClientURL()}, zerolog.Nop()); err == nil || !strings.Contains(err.Error(), "refuses the credentials") {
		t.Errorf("%v, %v", nc, err)
	}
	if nc, err := Await(t.Context(), Target{URL: strings.Replace(refusing.ClientURL(), "nats", "tls", 1)}, zerolog.Nop()); err == nil || !strings.Contains(err.Error(), "cannot be used") {
		t.Errorf("%v, %v", nc, err)
	}
}

// A write that is refused while the server is away must not be stored when it is back. The
// connection itself comes back.
func TestConnectionKeepsNothingForLater(t *testing.T) {
	dir := t.TempDir()
	s := &restarted{srv: start(t, dir, "")}
	nc, err := nats.Connect("", append(connOptions(zerolog.Nop()), nats.InProcessServer(s))...)
	connected(t, nc, err)
	kv := bucket(t, jets(t, nc), "b")
	changes := nc.StatusChanged(nats.RECONNECTING, nats.CONNECTED)
	s.server().Shutdown()
	if got := <-changes; got != nats.RECONNECTING {
		t.Fatalf("status %v", got)
	}
	if _, err := kv.Put(t.Context(), "k", []byte("late")); !errors.Is(err, nats.ErrReconnectBufExceeded) {
		t.Errorf("put while the server is away: %v", err)
	}
	s.serve(start(t, dir, ""))
	if got := <-changes; got != nats.CONNECTED {
		t.Fatalf("status %v", got)
	}
	if _, err := kv.Get(t.Context(), "k"); !errors.Is(err, jetstream.ErrKeyNotFound) {
		t.Errorf("the write came late: %v", err)
	}
}

// restarted is a server that is another one after a restart.
type restarted struct {
	mu  sync.Mutex
	srv *Server
}

func (r *restarted) server() *Server {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.srv
}

func (r *restarted) serve(s *Server) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.srv = s
}

// InProcessConn implements nats.InProcessConnProvider.
func (r *restarted) InProcessConn() (net.Conn, error) { return r.server().InProcessConn() }

// TestAnIdleSubscriptionTakesLittleMemory: nats.go's default would take 512 KiB for each.
func TestAnIdleSubscriptionTakesLittleMemory(t *testing.T) {
	s, err := Start(Options{Dir: t.TempDir(), Log: zerolog.Nop()})
	must(t, s, err)
	defer s.Shutdown()
	nc, err := s.Connect()
	connected(t, nc, err)
	if n := nc.Opts.SubChanLen; n != answerLen {
		t.Errorf("there is room for %d messages, want %d", n, answerLen)
	}
}
