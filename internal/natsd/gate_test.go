package natsd

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/big"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"leasehold/internal/connlimit"
	"leasehold/internal/peer"
	"leasehold/internal/test/otheruser"
)

// TestMain plays another user too, who makes silent connections. And it is a server that may have
// few descriptors.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) == 3 && os.Args[1] == "silent":
		silent(os.Args[2], 1500)
	case len(os.Args) == 3 && os.Args[1] == "few":
		if err := few(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	default:
		goleak.VerifyTestMain(m)
	}
}

// user connects to servers as a user. Tests run as root for that.
type user uint32

func (u user) Dial(_, address string) (net.Conn, error) { return otheruser.Dial(uint32(u), address) }

// subscribe subscribes to everything, as a user.
func (u user) subscribe(url string) error {
	nc, err := nats.Connect(url, nats.SetCustomDialer(u), nats.Timeout(time.Minute))
	if err != nil {
		return err
	}
	defer nc.Close()
	_, err = nc.SubscribeSync("leasehold.>")
	return errors.Join(err, nc.Flush())
}

// record is a log of several servers.
type record struct {
	mu   sync.Mutex
	text []byte
}

func (r *record) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.text = append(r.text, b...)
	return len(b), nil
}

// take returns what was written since it was called last.
func (r *record) take() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := string(r.text)
	r.text = nil
	return text
}

func knows(token string) (string, bool) { return "ana", token == "right-token" }

func TestWhoIsLetIn(t *testing.T) {
	const stranger = 65534
	var log record
	served := map[string]*Server{}
	for name, o := range map[string]Options{
		"plain":  {Listen: "127.0.0.1:0"},
		"tokens": {Listen: "127.0.0.1:0", Authenticate: knows},
		"users":  {Listen: "127.0.0.1:0", Admit: func(uid uint32) bool { return uid == stranger }},
		"all":    {Listen: "0.0.0.0:0", Authenticate: knows},
	} {
		o.Dir, o.Log = t.TempDir(), zerolog.New(&log)
		s, err := Start(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Shutdown)
		served[name] = s
	}
	own := uint32(os.Geteuid())
	for _, tt := range []struct {
		server string
		uid    uint32
		user   string // what stands before the host in the URL
		why    string // why it is refused, as the log says; empty where it is let in
	}{
		{"plain", own, "", ""},
		{"plain", stranger, "", "is uid 65534, not the sidecar's user, root"},
		{"users", stranger, "", ""},
		{"users", 12345, "", "is uid 12345"},
		{"plain", stranger, "right-token@", "none is configured"},
		{"plain", own, "right-token@", "none is configured"},
		{"plain", own, "leasehold:password@", "only tokens are taken"},
		{"tokens", own, "", ""},
		{"tokens", own, "right-token@", ""},
		{"tokens", own, "wrong-token@", "not known"},
		{"tokens", stranger, "right-token@", ""},
		{"tokens", stranger, "wrong-token@", "not known"},
		{"tokens", stranger, "", "is uid 65534"},
		{"tokens", stranger, "right-token:x@", "only tokens are taken"},
		{"all", own, "", "it shows no token"},
		{"all", stranger, "right-token@", ""},
	} {
		log.take()
		_, port, _ := net.SplitHostPort(strings.TrimPrefix(served[tt.server].ClientURL(), "nats://"))
		err := user(tt.uid).subscribe("nats://" + tt.user + "127.0.0.1:" + port)
		if refused := err != nil && strings.Contains(err.Error(), "Authorization Violation"); refused != (tt.why != "") || !refused && err != nil {
			t.Errorf("%s, uid %d with %q: refused %v, %v", tt.server, tt.uid, tt.user, refused, err)
		}
		if text := log.take(); !strings.Contains(text, tt.why) || strings.Contains(text, "-token@") || strings.Contains(text, "wrong-token") {
			t.Errorf("%s, uid %d with %q: the log says %q, want %q", tt.server, tt.uid, tt.user, text, tt.why)
		}
	}
}

// A sidecar that is not root's serves its user and root, as far as the kernel knows who it is.
func TestASidecarOfAUserServesThatUserAndRoot(t *testing.T) {
	g := newGate(Options{})
	g.uid = 12345
	for uid, want := range map[uint32]string{12345: "uid 12345", 0: "uid 0", 65534: ""} {
		if name, why := g.subscriber(caller{socket: peer.Socket{UID: uid}}, &server.ClientOpts{}); name != want || (why == "") != (want != "") {
			t.Errorf("uid %d: %q, refused %q", uid, name, why)
		}
	}
	// Of a peer that left, the user is 0, which is root.
	if name, why := g.subscriber(caller{unknown: fs.ErrNotExist}, &server.ClientOpts{}); name != "" || why == "" {
		t.Errorf("nobody knows who: %q, refused %q", name, why)
	}
}

// greeted is a connection of which only the nonce is known.
type greeted struct {
	server.ClientAuthentication
	nonce string
}

func (g greeted) GetNonce() []byte { return []byte(g.nonce) }

// Who connects by none of the ways of this process is nobody, and not the launcher.
func TestWhoWasNotGreetedIsNobody(t *testing.T) {
	s := start(t, t.TempDir(), "")
	nc, err := s.Connect() // one who was
	connected(t, nc, err)
	for _, nonce := range []string{"", "another"} {
		if s.gate.Check(greeted{nonce: nonce}) {
			t.Errorf("nonce %q is let in", nonce)
		}
	}
}

// silent opens connections, says nothing on them, and opens those again that are closed. It prints
// a line when it has tried all of them.
func silent(address string, number int) {
	var tried atomic.Int64
	for range number {
		go func() {
			for first := true; ; first = false {
				c, err := net.Dial("tcp", address)
				if first && tried.Add(1) == int64(number) {
					fmt.Println("all")
				}
				if err == nil {
					_, _ = io.Copy(io.Discard, c) // until it is closed
					_ = c.Close()
				}
				time.Sleep(20 * time.Millisecond) // else it takes the processors, too
			}
		}()
	}
	_, _ = os.Stdin.Read(make([]byte, 1))
}

// few is a server in a process that may have as many descriptors as is usual. It prints its
// address, and for each line that it gets whether it stores a value, and can open files.
func few(dir string) error {
	limit := unix.Rlimit{Cur: 1024, Max: 1024}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	s, err := Start(Options{Dir: dir, Listen: "127.0.0.1:0", Limits: connlimit.Options{Peers: connlimit.NewPeers(0), Log: zerolog.Nop()}, Log: zerolog.Nop()})
	if err != nil {
		return err
	}
	defer s.Shutdown()
	nc, err := s.Connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	kv, err := js.CreateKeyValue(context.Background(), jetstream.KeyValueConfig{Bucket: "b"})
	fmt.Println(s.ClientURL())
	for lines := bufio.NewScanner(os.Stdin); err == nil && lines.Scan(); {
		_, err = kv.Put(context.Background(), "k", []byte("v"))
		for range 90 {
			f, fail := os.Open("/dev/null")
			err = errors.Join(err, fail)
			defer f.Close()
		}
		fmt.Println(err)
	}
	return err
}

// Another user who opens connections without end, and says nothing, takes neither the descriptors
// that leases need, nor the connections of others.
func TestSilentConnectionsTakeNothing(t *testing.T) {
	srv := exec.CommandContext(t.Context(), "/proc/self/exe", "few", t.TempDir())
	srv.Stderr = os.Stderr
	tell, err := srv.StdinPipe()
	must(t, tell, err)
	out, err := srv.StdoutPipe()
	must(t, out, err)
	must(t, 0, srv.Start())
	defer func() { _ = tell.Close(); _ = srv.Wait() }()
	answers := bufio.NewScanner(out)
	answers.Scan()
	url := answers.Text()

	stranger := exec.CommandContext(t.Context(), "/proc/self/exe", "silent", strings.TrimPrefix(url, "nats://"))
	stranger.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	stranger.Dir = "/"
	end, err := stranger.StdinPipe()
	must(t, end, err)
	said, err := stranger.StdoutPipe()
	must(t, said, err)
	must(t, 0, stranger.Start())
	defer func() { _ = end.Close(); _ = stranger.Wait() }()
	if !bufio.NewScanner(said).Scan() {
		t.Fatal("the stranger ended")
	}
	for range 3 {
		must(t, 0, second(fmt.Fprintln(tell)))
		if answers.Scan(); answers.Text() != "<nil>" {
			t.Errorf("the server says %q", answers.Text())
		}
		nc, err := nats.Connect(url, nats.Timeout(time.Minute)) // the stranger's refused ones come first
		must(t, nc, err).Close()
	}
}

func second[T any](_ T, err error) error { return err }

// What a browser can send to a port, from a page, is not taken for NATS.
func TestAPageDoesNotSpeakNATS(t *testing.T) {
	s := start(t, t.TempDir(), "127.0.0.1:0")
	const nats = "CONNECT {}\r\nSUB leasehold.> 1\r\nPING\r\n"
	for _, first := range []string{
		"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: text/plain\r\n\r\n",
		"GET /?\r\n HTTP/1.1\r\n\r\n", "PUT / HTTP/1.1\r\n\r\n", "PUB / HTTP/1.1\r\n\r\n", "SUB / HTTP/1.1\r\n\r\n", "OPTIONS * HTTP/1.1\r\n\r\n",
		"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
	} {
		c, err := net.Dial("tcp", strings.TrimPrefix(s.ClientURL(), "nats://"))
		must(t, c, err)
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		_, _ = c.Write([]byte(first + nats))
		var answer bytes.Buffer
		_, _ = answer.ReadFrom(c) // until the server closes
		_ = c.Close()
		if got := answer.String(); strings.Contains(got, "PONG\r\n") || strings.Contains(got, "+OK\r\n") || strings.Contains(got, "101 ") || !strings.Contains(got, "-ERR") {
			t.Errorf("%q is answered %q", first, got)
		}
	}
}

func TestSubscribersAreServedByTLS(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, key, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, der, err)
	cert, err := x509.ParseCertificate(der)
	roots := x509.NewCertPool()
	roots.AddCert(must(t, cert, err))
	s, err := Start(Options{
		Dir: t.TempDir(), Listen: "127.0.0.1:0", Authenticate: knows, Log: zerolog.Nop(),
		TLS: &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: tls.VersionTLS12},
	})
	must(t, s, err)
	t.Cleanup(s.Shutdown)
	nc, err := nats.Connect(s.ClientURL(), nats.Timeout(time.Minute), nats.Token("right-token"), nats.Secure(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}))
	connected(t, nc, err)
	nc, err = s.Connect()
	bucket(t, jets(t, connected(t, nc, err)), "b")
	if nc, err := nats.Connect(s.ClientURL(), nats.Token("right-token")); err == nil {
		nc.Close()
		t.Error("a client that does not know the certificate's maker is connected")
	}
}

// Each row is asked of the server itself, which answers, or refuses.
func TestWhatASubscriberMayDo(t *testing.T) {
	s := start(t, t.TempDir(), "127.0.0.1:0")
	nc, err := nats.Connect(s.ClientURL(), nats.Timeout(time.Minute), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	connected(t, nc, err)
	for _, tt := range []struct {
		op, subject string
		want        bool
	}{
		{"sub", "leasehold.>", true}, {"sub", "leasehold.lease.p.granted", true}, {"sub", "_INBOX.x", true},
		{"sub", ">", false}, {"sub", "$KV.>", false}, {"sub", "$SYS.>", false}, {"sub", "$JS.>", false}, {"sub", "$JS.EVENT.>", false},
		{"sub", FeedSubject, false}, {"sub", "$LEASEHOLD.>", false}, {"sub", "_R_.>", false},
		{"pub", "$JS.API.INFO", true}, {"pub", "$JS.API.STREAM.INFO.leasehold_events", true}, {"pub", "$JS.API.STREAM.MSG.GET.leasehold_events", true},
		{"pub", "$JS.API.DIRECT.GET.leasehold_events.leasehold.lease.p.granted", true}, {"pub", "$JS.API.CONSUMER.CREATE.leasehold_events", true},
		{"pub", "$JS.API.CONSUMER.CREATE.leasehold_events.mine.leasehold.lease.>", true}, {"pub", "$JS.API.CONSUMER.DURABLE.CREATE.leasehold_events.mine", true},
		{"pub", "$JS.API.CONSUMER.INFO.leasehold_events.mine", true}, {"pub", "$JS.API.CONSUMER.MSG.NEXT.leasehold_events.mine", true},
		{"pub", "$JS.API.CONSUMER.DELETE.leasehold_events.mine", true}, {"pub", "$JS.ACK.leasehold_events.mine.1.1.1.1.0", true},
		{"pub", "leasehold.recovery.p.available", false}, {"pub", "leasehold.x", false}, {"pub", FeedSubject, false}, {"pub", "x", false},
		{"pub", "_INBOX.x", false}, {"pub", "_R_.x", false}, {"pub", "$KV.leasehold_leases.p", false}, {"pub", "$O.leasehold_evidence.M.x", false},
		{"pub", "$JS.API.STREAM.CREATE.mine", false}, {"pub", "$JS.API.STREAM.UPDATE.leasehold_events", false}, {"pub", "$JS.API.STREAM.DELETE.leasehold_events", false},
		{"pub", "$JS.API.STREAM.PURGE.leasehold_events", false}, {"pub", "$JS.API.STREAM.MSG.DELETE.leasehold_events", false},
		{"pub", "$JS.API.STREAM.SNAPSHOT.leasehold_events", false}, {"pub", "$JS.API.STREAM.RESTORE.leasehold_events", false},
		{"pub", "$JS.API.STREAM.INFO.KV_leasehold_leases", false}, {"pub", "$JS.API.STREAM.MSG.GET.KV_leasehold_leases", false},
		{"pub", "$JS.API.CONSUMER.CREATE.KV_leasehold_leases", false}, {"pub", SubscribersAPI + ".STREAM.DELETE.leasehold_events", false},
		{"pub", LaunchersAPI + ".CONSUMER.RESET.leasehold_events." + FeedConsumer, false},
		{"pub", "$JS.FC.leasehold_events." + FeedConsumer + ".abcd", false}, {"pub", "$SYS.REQ.SERVER.PING", false},
	} {
		subject, before := tt.subject, nc.LastError()
		if tt.op == "sub" {
			sub, err := nc.SubscribeSync(subject)
			must(t, 0, nc.Flush())
			_ = must(t, sub, err).Unsubscribe()
		} else {
			must(t, 0, nc.Publish(subject, nil))
		}
		must(t, 0, nc.Flush())
		// The server refuses before it answers the flush. Error handlers are called later.
		refusal := nc.LastError()
		got := refusal == before
		if !got && (!errors.Is(refusal, nats.ErrPermissionViolation) || !strings.Contains(refusal.Error(), `"`+subject+`"`)) {
			t.Errorf("%s %s: %v", tt.op, subject, refusal)
		}
		if got != tt.want {
			t.Errorf("%s %s: allowed %v, want %v", tt.op, subject, got, tt.want)
		}
	}
}

// A subscriber is greeted when what its account has to have is prepared, or cannot be. Who was
// greeted before anybody could prepare it has that done later. Who would wait too long is not greeted.
func TestASubscriberIsGreetedWhenAllIsPrepared(t *testing.T) {
	s, err := Start(Options{Dir: t.TempDir(), Listen: "127.0.0.1:0", Log: zerolog.Nop()})
	must(t, s, err)
	defer s.Shutdown()
	nc, err := nats.Connect(s.ClientURL(), nats.Timeout(time.Minute))
	connected(t, nc, err)
	asked, answer := make(chan struct{}), make(chan error)
	s.Welcome(time.Hour, func(context.Context) error {
		asked <- struct{}{}
		return <-answer
	})
	<-asked // for the one who is there
	answer <- nil

	greeted := make(chan error)
	connect := func() {
		nc, err := nats.Connect(s.ClientURL(), nats.Timeout(time.Minute))
		if err == nil {
			nc.Close()
		}
		greeted <- err
	}
	go connect()
	<-asked
	select {
	case err := <-greeted:
		t.Fatalf("greeted before all was prepared: %v", err)
	case answer <- errors.New("nothing can be prepared"):
	}
	if err := <-greeted; err != nil {
		t.Errorf("nothing could be prepared, and the subscriber is kept out: %v", err)
	}
	s.Welcome(time.Millisecond, func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	})
	go connect()
	if err := <-greeted; err == nil {
		t.Error("greeted though what it needs is not there")
	}
}
