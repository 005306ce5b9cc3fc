package natsd

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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

// dialAdmin connects to the server in dir as another launcher of this host may: with
// the URL in admin.url.
func dialAdmin(t *testing.T, dir string) (*nats.Conn, error) {
	t.Helper()
	b, err := os.ReadFile(AdminURLFile(dir))
	return Dial(t.Context(), strings.TrimSpace(string(must(t, b, err))), "", zerolog.Nop())
}

func TestInProcessServerKeepsItsData(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "nats")
	for restart := range 2 {
		s := start(t, dir, "")
		if s.ClientURL() != "" {
			t.Errorf("ClientURL is %q for a server that does not listen", s.ClientURL())
		}
		if _, err := os.Stat(AdminURLFile(dir)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("admin.url of a server that does not listen: %v", err)
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

// The port may be taken between the probe and the server's own attempt to listen. The
// server then logs a fatal message.
func TestFatalIsNoExit(t *testing.T) {
	b := &logBridge{log: zerolog.Nop()}
	b.Fatalf("cannot listen on %d", 1)
	b.Fatalf("later")
	if b.fatal() != "cannot listen on 1" {
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

func TestAdminURL(t *testing.T) {
	dir := t.TempDir()
	s := start(t, dir, "127.0.0.1:0")
	info, err := os.Stat(AdminURLFile(dir))
	if m := must(t, info, err).Mode(); m != 0o600 {
		t.Errorf("admin.url has mode %v", m)
	}
	b, err := os.ReadFile(AdminURLFile(dir))
	first := strings.TrimSpace(string(must(t, b, err)))
	u, err := url.Parse(first)
	if must(t, u, err); u.Scheme != "nats" || u.User.Username() != "leasehold" || "nats://"+u.Host != s.ClientURL() {
		t.Errorf("admin.url of %s holds %s", s.ClientURL(), u.Redacted())
	}
	nc, err := dialAdmin(t, dir)
	bucket(t, jets(t, connected(t, nc, err)), "by_admin")
	nc.Close()
	s.Shutdown()

	// The next start keeps the password, so that connected launchers come back, but
	// not if others can read the file.
	s = start(t, dir, u.Host)
	nc, err = Dial(t.Context(), first, "", zerolog.Nop())
	connected(t, nc, err).Close()
	s.Shutdown()
	must(t, 0, os.Chmod(AdminURLFile(dir), 0o644))
	start(t, dir, u.Host)
	_, err = Dial(t.Context(), first, "", zerolog.Nop())
	password, _ := u.User.Password()
	if !errors.Is(err, nats.ErrAuthorization) || strings.Contains(err.Error(), password) {
		t.Errorf("with a password that was open to others: %v", err)
	}
}

// anonymous starts a server with a bucket, an object and the event stream. It returns a
// connection with all permissions and one without credentials, over TCP; denied waits for
// the next refusal on the latter.
func anonymous(t *testing.T) (admin, anon *nats.Conn, denied func() error) {
	t.Helper()
	s := start(t, t.TempDir(), "127.0.0.1:0")
	nc, err := s.Connect()
	admin = connected(t, nc, err)
	js := jets(t, admin)
	kv := bucket(t, js, "leasehold_leases")
	_, err = kv.Put(t.Context(), "p1", []byte("one"))
	must(t, 0, err)
	events := eventsOf(t, admin)
	_, err = events.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "leasehold_events", AllowDirect: true,
		Subjects: []string{"leasehold.recovery.*.*", "leasehold.lease.*.*", "leasehold.conflict.*", "leasehold.late_write.*"},
	})
	must(t, 0, err)
	for _, state := range []string{"quarantined", "inspected"} {
		ack, err := events.Publish(t.Context(), "leasehold.recovery.p1."+state, []byte(state))
		if must(t, ack, err).Stream != "leasehold_events" {
			t.Errorf("stored on %s", ack.Stream)
		}
	}
	obs, err := js.CreateObjectStore(t.Context(), jetstream.ObjectStoreConfig{Bucket: "evidence"})
	must(t, obs, err)
	_, err = obs.PutBytes(t.Context(), "part", bytes.Repeat([]byte("x"), 300<<10))
	must(t, 0, err)

	refused := make(chan error, 16)
	nc, err = nats.Connect(s.ClientURL(), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
	anon = connected(t, nc, err)
	return admin, anon, func() error {
		select {
		case err := <-refused:
			return err
		case <-time.After(10 * time.Second):
			return errors.New("nothing was refused")
		}
	}
}

// eventsOf returns the JetStream of the event stream as a launcher reaches it.
func eventsOf(t *testing.T, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.NewWithAPIPrefix(nc, EventsAPI(nc))
	return must(t, js, err)
}

// All that client libraries do to read the event stream works without credentials, and with
// those of a launcher.
func TestEventsAreRead(t *testing.T) {
	admin, anon, _ := anonymous(t)
	for name, tt := range map[string]struct {
		nc *nats.Conn
		js jetstream.JetStream
	}{"anonymous": {anon, jets(t, anon)}, "launcher": {admin, eventsOf(t, admin)}} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			sub, err := tt.nc.SubscribeSync("leasehold.>")
			must(t, sub, err)
			must(t, 0, tt.nc.Flush())
			_, err = jets(t, admin).Publish(ctx, "leasehold.conflict.p1", []byte(name))
			must(t, 0, err)
			m, err := sub.NextMsgWithContext(ctx)
			if must(t, m, err).Subject != "leasehold.conflict.p1" || string(m.Data) != name {
				t.Errorf("core subscription: %s %q", m.Subject, m.Data)
			}
			if n, _, err := sub.Pending(); err != nil || n != 0 {
				t.Errorf("core subscription: %d more, %v", n, err)
			}

			stream, err := tt.js.Stream(ctx, "leasehold_events")
			info := must(t, stream, err).CachedInfo()
			last, err := stream.GetLastMsgForSubject(ctx, "leasehold.recovery.p1.inspected")
			if got := string(must(t, last, err).Data); got != "inspected" || info.State.Msgs < 3 {
				t.Errorf("%d messages, last %q", info.State.Msgs, got)
			}
			found, err := tt.js.StreamNameBySubject(ctx, "leasehold.recovery.p1.inspected")
			if must(t, found, err) != "leasehold_events" {
				t.Errorf("stream of the subject: %s", found)
			}
			cons, err := tt.js.CreateConsumer(ctx, "leasehold_events", jetstream.ConsumerConfig{FilterSubject: "leasehold.recovery.>", AckPolicy: jetstream.AckNonePolicy})
			batch, err := must(t, cons, err).Fetch(2)
			must(t, 0, err)
			var got []string
			for m := range batch.Messages() {
				got = append(got, string(m.Data()))
			}
			if batch.Error() != nil || !slices.Equal(got, []string{"quarantined", "inspected"}) {
				t.Errorf("consumer: %q, %v", got, batch.Error())
			}
			ordered, err := tt.js.OrderedConsumer(ctx, "leasehold_events", jetstream.OrderedConsumerConfig{})
			messages, err := must(t, ordered, err).Messages()
			must(t, 0, err)
			defer messages.Stop()
			next, err := messages.Next(jetstream.NextContext(ctx))
			if got := string(must(t, next, err).Data()); got != "quarantined" {
				t.Errorf("ordered consumer: %q", got)
			}
		})
	}

	// A durable consumer with acknowledgements, and a push consumer, without credentials.
	durable, err := jets(t, anon).CreateConsumer(t.Context(), "leasehold_events", jetstream.ConsumerConfig{Durable: "mine", AckPolicy: jetstream.AckExplicitPolicy})
	must(t, durable, err)
	for _, want := range []string{"quarantined", "inspected"} {
		m, err := durable.Next()
		if got := string(must(t, m, err).Data()); got != want {
			t.Errorf("durable consumer: %q, want %q", got, want)
		}
		must(t, 0, m.DoubleAck(t.Context()))
	}
	old, err := anon.JetStream()
	must(t, 0, err)
	push, err := old.SubscribeSync("leasehold.recovery.>", nats.BindStream("leasehold_events"), nats.OrderedConsumer())
	must(t, push, err)
	m, err := push.NextMsgWithContext(t.Context())
	if got := string(must(t, m, err).Data); got != "quarantined" {
		t.Errorf("push consumer: %q", got)
	}
}

// A client can have the server publish on subjects on which it may not publish itself, but
// not on those of the leases.
func TestAnonymousDoesNotReachLeases(t *testing.T) {
	admin, anon, _ := anonymous(t)
	const lease = "$KV.leasehold_leases.p1"
	js := jets(t, anon)
	for _, subject := range []string{"$JS.API.INFO", "$JS.API.STREAM.INFO.leasehold_events", "$JS.API.STREAM.NAMES"} {
		must(t, 0, anon.PublishRequest(subject, lease, nil))
	}
	cons, err := js.CreateConsumer(t.Context(), "leasehold_events", jetstream.ConsumerConfig{Name: "c"})
	must(t, cons, err)
	must(t, 0, anon.PublishRequest("$JS.API.CONSUMER.MSG.NEXT.leasehold_events.c", lease, []byte("1")))
	answer, err := anon.Request("$JS.API.CONSUMER.CREATE.leasehold_events.evil", []byte(`{"stream_name":"leasehold_events","config":{"name":"evil",`+
		`"deliver_subject":"`+lease+`","ack_policy":"none","inactive_threshold":60000000000}}`), 10*time.Second)
	if must(t, answer, err); strings.Contains(string(answer.Data), `"error"`) {
		t.Fatalf("the server refuses what the test is about: %s", answer.Data)
	}
	// By the end of these requests the consumer has delivered.
	evil, err := js.PushConsumer(t.Context(), "leasehold_events", "evil")
	must(t, evil, err)
	for range 20 {
		info, err := evil.Info(t.Context())
		must(t, info, err)
	}
	ajs := jets(t, admin)
	stream, err := ajs.Stream(t.Context(), "KV_leasehold_leases")
	if got := must(t, stream, err).CachedInfo().State.LastSeq; got != 1 {
		t.Errorf("the bucket has %d messages, want the launcher's one", got)
	}
	names := js.StreamNames(t.Context())
	var got []string
	for name := range names.Name() {
		got = append(got, name)
	}
	if names.Err() != nil || !slices.Equal(got, []string{"leasehold_events"}) {
		t.Errorf("streams that are seen: %q, %v", got, names.Err())
	}
}

func TestAnonymousChangesNothing(t *testing.T) {
	admin, anon, denied := anonymous(t)
	js := jets(t, anon)
	for name, try := range map[string]func(context.Context) error{
		"event": func(ctx context.Context) error {
			_, err := js.Publish(ctx, "leasehold.recovery.p1.available", nil)
			return err
		},
		"stream delete": func(ctx context.Context) error { return js.DeleteStream(ctx, "leasehold_events") },
		"stream update": func(ctx context.Context) error {
			_, err := js.UpdateStream(ctx, jetstream.StreamConfig{Name: "leasehold_events", Subjects: []string{"x"}})
			return err
		},
		"stream create": func(ctx context.Context) error {
			_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "mine", Subjects: []string{"x"}})
			return err
		},
		"purge": func(ctx context.Context) error {
			s, err := js.Stream(ctx, "leasehold_events")
			if err == nil {
				err = s.Purge(ctx)
			}
			return err
		},
		"message delete": func(ctx context.Context) error {
			s, err := js.Stream(ctx, "leasehold_events")
			if err == nil {
				err = s.DeleteMsg(ctx, 1)
			}
			return err
		},
		"kv put":        func(context.Context) error { return anon.Publish("$KV.leasehold_leases.p1", []byte("forged")) },
		"object put":    func(context.Context) error { return anon.Publish("$O.evidence.M.x", []byte("forged")) },
		"forged answer": func(context.Context) error { return anon.Publish("_R_.x", nil) },
		"subscription to the admin's answers": func(context.Context) error {
			sub, err := anon.SubscribeSync("_LEASEHOLD_INBOX.>")
			if err == nil {
				err = sub.Unsubscribe()
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			// The errors of nats.go differ; what counts is that the server refuses.
			_ = try(ctx)
			if err := denied(); !errors.Is(err, nats.ErrPermissionViolation) {
				t.Errorf("want a permission violation, got %v", err)
			}
		})
	}
	ajs := jets(t, admin)
	s, err := eventsOf(t, admin).Stream(t.Context(), "leasehold_events")
	if got := must(t, s, err).CachedInfo().State.Msgs; got != 2 {
		t.Errorf("the stream holds %d messages, want 2", got)
	}
	e, err := bucket(t, ajs, "leasehold_leases").Get(t.Context(), "p1")
	if got := string(must(t, e, err).Value()); got != "one" {
		t.Errorf("the lease is %q", got)
	}
}

func TestAnonymousIsForLoopbackOnly(t *testing.T) {
	for host, want := range map[string]bool{
		"127.0.0.1": true, "127.8.8.8": true, "::1": true, "localhost": true,
		"0.0.0.0": false, "::": false, "10.0.0.1": false, "example.org": false, "": false,
	} {
		opts, err := serverOptions(t.TempDir(), host, 4333, "secret")
		if got := must(t, opts, err).NoAuthUser != ""; got != want {
			t.Errorf("anonymous users on %q: %v", host, got)
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
			nc, err := Dial(tt.ctx, tt.url, tt.creds, zerolog.Nop())
			if err == nil {
				nc.Close()
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "topsecret") {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

// A write that is refused while the server is away must not be stored when it is back. The
// connection itself comes back.
func TestConnectionKeepsNothingForLater(t *testing.T) {
	dir := t.TempDir()
	s := start(t, dir, "127.0.0.1:0")
	nc, err := dialAdmin(t, dir)
	connected(t, nc, err)
	kv := bucket(t, jets(t, nc), "b")
	changes := nc.StatusChanged(nats.RECONNECTING, nats.CONNECTED)
	addr := strings.TrimPrefix(s.ClientURL(), "nats://")
	s.Shutdown()
	if got := <-changes; got != nats.RECONNECTING {
		t.Fatalf("status %v", got)
	}
	if _, err := kv.Put(t.Context(), "k", []byte("late")); !errors.Is(err, nats.ErrReconnectBufExceeded) {
		t.Errorf("put while the server is away: %v", err)
	}
	start(t, dir, addr)
	if got := <-changes; got != nats.CONNECTED {
		t.Fatalf("status %v", got)
	}
	if _, err := kv.Get(t.Context(), "k"); !errors.Is(err, jetstream.ErrKeyNotFound) {
		t.Errorf("the write came late: %v", err)
	}
}
