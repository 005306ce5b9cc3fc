// Package natsd is a launcher's side of NATS: the embedded server that a launcher runs if
// it was not given the URL of one (Start), and connections with the options that leases
// need (Server.Connect, Dial).
//
// What is promised of the embedded server: JetStream writes are on the disk before they
// are acknowledged; only one process at a time uses a directory; a server that cannot
// start says why instead of ending the process. A server that could not write, because its
// disk was full or failed, takes no writes for as long as it runs, so it is replaced by
// another one on the same directory, as soon as that disk takes writes again: connections
// are interrupted, and everything acknowledged is there (Server.Problem, watch.go). Only this process reaches leases, presences
// and evidence; there is no password for them. Who connects over TCP is a subscriber: this
// process's own user and root, as the kernel proves them, or who shows an API token.
// Nobody else is let in.
//
// Subscribers are in an account of their own, which has a copy of the event stream and
// nothing else. One account would not be enough: NATS does not check where an answer goes,
// so any client can have the server publish on a subject on which the client itself may not
// (by the reply subject of a request, or the deliver subject of a consumer). Such a message
// stays in the account, and the copy is a mirror, which stores nothing but what the event
// stream has.
//
// What is not promised: by the same means a subscriber can have an answer of the server
// delivered to plain subscriptions of other subscribers, and it can delete their consumers,
// and the copy itself, which a launcher then makes again. Whoever has to be sure reads the
// stream, by a consumer.
package natsd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"leasehold/internal/connlimit"
	"leasehold/internal/durable"
)

// Options of an embedded server.
type Options struct {
	// Dir is the directory of the server's files. It is made if it is missing.
	Dir string
	// Listen is the host:port where subscribers connect; port 0 means a free one. If
	// it is empty, only this process can connect. Users are known on a loopback
	// address only; elsewhere every subscriber needs an API token.
	Listen string
	// Authenticate returns whose API token it is. It is called for each connection that shows
	// one; if it is nil, such a connection is refused.
	Authenticate func(token string) (name string, ok bool)
	// Admit tells which other users of this host may subscribe without an API token,
	// besides this process's own and root; nil: none.
	Admit func(uid uint32) (ok bool)
	// TLS is the configuration with which subscribers are served; nil is plain text.
	TLS *tls.Config
	// Limits bounds the connections of subscribers.
	Limits connlimit.Options
	// Reserve is space that the server is given when its disk is full; nil: none.
	Reserve *durable.Reserve
	Log     zerolog.Logger
}

// Server is a running embedded NATS server.
type Server struct {
	o        Options
	log      zerolog.Logger
	lock     *os.File
	listener *connlimit.Listener // nil: only this process connects
	loopback bool                // it listens on a loopback address

	mu   sync.Mutex
	srv  *server.Server // nil while another one is being started
	gate *gate          // of srv
	// welcome is called before a subscriber is greeted, who waits for it no longer than patience; early
	// says that one was greeted without.
	welcome  func(context.Context) error
	patience time.Duration
	early    bool
	// problem is why nothing can be written; nil while it can.
	problem error
	said    string        // an error in the server's log that was not looked at yet
	spoke   chan struct{} // has an element when said was set

	ctx    context.Context // ends with Shutdown
	cancel context.CancelFunc
	stop   <-chan struct{} // of ctx
	work   sync.WaitGroup
	once   sync.Once // of Shutdown
}

// ListenError says that the server cannot listen on the address Addr.
type ListenError struct {
	Addr string
	Err  error
}

func (e *ListenError) Error() string {
	if errors.Is(e.Err, syscall.EADDRINUSE) {
		return fmt.Sprintf("nats server cannot listen on %s: the port is in use: stop what uses it, or choose another with --nats-listen", e.Addr)
	}
	return fmt.Sprintf("nats server cannot listen on %s: %v: choose another address with --nats-listen", e.Addr, e.Err)
}

func (e *ListenError) Unwrap() error { return e.Err }

// DirInUseError says that another process runs a server on the directory.
type DirInUseError struct{ Dir string }

func (e *DirInUseError) Error() string {
	return fmt.Sprintf("nats directory %s is in use by another launcher: stop it, or choose another --data-dir", e.Dir)
}

const (
	// serverName is the name by which an embedded server is recognized.
	serverName = "leasehold_embedded"

	// startTime limits the start. It has to be enough for the server to read its
	// streams again after a crash.
	startTime = time.Minute
	// inProcessPing is the time between two pings inside the process, where no connection is lost
	// without notice.
	inProcessPing = 5 * time.Minute
	// tlsTime limits a subscriber's TLS handshake.
	tlsTime = 5 * time.Second
	// maxStore, in bytes, is more than any disk has. Without it the server would
	// reserve a part of the free space, and refuse renewals once that is used up.
	maxStore = 1 << 50
)

// Start starts a server and waits until it accepts connections. The caller ends it with
// Shutdown. Errors: *ListenError, *DirInUseError, and others that say why the server cannot
// use its directory.
func Start(o Options) (_ *Server, err error) {
	lock, err := lockDir(o.Dir)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{o: o, log: o.Log, lock: lock, ctx: ctx, cancel: cancel, stop: ctx.Done(), spoke: make(chan struct{}, 1)}
	defer func() {
		if err != nil {
			s.Shutdown()
		}
	}()
	if err := s.listen(); err != nil {
		return nil, err
	}
	if s.srv, s.gate, err = s.boot(); err != nil {
		return nil, err
	}
	s.work.Go(s.watch)
	if s.listener != nil {
		s.work.Go(s.accept)
	}
	return s, nil
}

// listen opens the port for subscribers, if there is one.
func (s *Server) listen() (err error) {
	if s.o.Listen == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(s.o.Listen)
	if err == nil && host == "" {
		err = fmt.Errorf("want a host, as in 127.0.0.1:%s", port)
	}
	if err == nil {
		s.o.Limits.Silent = true // a refusal would be HTTP
		s.listener, err = connlimit.Listen(s.o.Listen, s.o.Limits)
	}
	if err != nil {
		return &ListenError{Addr: s.o.Listen, Err: err}
	}
	addr, ok := s.listener.Addr().(*net.TCPAddr)
	s.loopback = ok && addr.IP.IsLoopback()
	return nil
}

func (s *Server) boot() (*server.Server, *gate, error) {
	hushProcess()
	setServerClock()
	gate := newGate(s.o)
	opts, err := serverOptions(s.o.Dir, gate)
	if err != nil {
		return nil, nil, err
	}
	srv, err := server.NewServer(opts)
	if err != nil {
		return nil, nil, fmt.Errorf("nats server in %s: %w", s.o.Dir, err)
	}
	gate.srv = srv
	bridge := &logBridge{log: s.o.Log.With().Str("component", "nats").Logger(), trouble: s.hear}
	srv.SetLoggerV2(bridge, false, false, false)
	srv.Start()
	changeRateLimitLogInterval(srv, logInterval)
	if err := s.started(srv, bridge); err != nil {
		srv.Shutdown()
		srv.WaitForShutdown()
		return nil, nil, err
	}
	return srv, gate, nil
}

// started waits until the server accepts connections. The error says why the server did
// not start, or that it does not sync what it acknowledges.
func (s *Server) started(srv *server.Server, bridge *logBridge) error {
	o := s.o
	if fatal := bridge.fatal(); fatal != "" {
		return fmt.Errorf("nats server in %s: %s", o.Dir, fatal)
	}
	if !srv.ReadyForConnections(startTime) {
		return fmt.Errorf("nats server in %s: not ready after %v: look at its warnings in the log", o.Dir, startTime)
	}
	jsz, err := srv.Jsz(nil)
	if err != nil {
		return fmt.Errorf("nats server in %s: ask for its settings: %w", o.Dir, err)
	}
	if jsz.Disabled || !jsz.Config.SyncAlways {
		return fmt.Errorf("nats server in %s: does not sync every write to the disk, so acknowledged leases could be lost", o.Dir)
	}
	return nil
}

func serverOptions(dir string, gate *gate) (*server.Options, error) {
	opts := &server.Options{
		ServerName:                 serverName,
		DontListen:                 true,
		AlwaysEnableNonce:          true,
		JetStream:                  true,
		StoreDir:                   dir,
		SyncAlways:                 true,
		JetStreamMaxStore:          maxStore,
		DisableJetStreamBanner:     true,
		NoSigs:                     true,
		CustomClientAuthentication: gate,
	}
	if err := opts.ProcessConfigString(accountsConfig); err != nil {
		return nil, fmt.Errorf("nats accounts: %w", err)
	}
	return opts, nil
}

// Embedded tells whether the connection leads to the embedded server of some sidecar. There
// a connection over TCP is a subscriber's.
func Embedded(nc *nats.Conn) bool { return nc.ConnectedServerName() == serverName }

// ClientURL is the URL where subscribers connect. It is empty if the server does not listen.
func (s *Server) ClientURL() string {
	switch {
	case s.listener == nil:
		return ""
	case s.o.TLS != nil:
		return "tls://" + s.listener.Addr().String()
	}
	return "nats://" + s.listener.Addr().String()
}

// Connect opens a connection inside the process, as the launcher and with the options of
// Dial. The connection ends with the server.
func (s *Server) Connect(opts ...nats.Option) (*nats.Conn, error) {
	all := append(connOptions(s.log), nats.InProcessServer(s), nats.PingInterval(inProcessPing))
	nc, err := nats.Connect("", append(all, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("connect to the embedded nats server: %w", err)
	}
	return nc, nil
}

// errRestarting says that there is no server at the moment.
var errRestarting = errors.New("the embedded nats server is being started again")

// InProcessConn implements nats.InProcessConnProvider. The user of the connection is the
// launcher.
func (s *Server) InProcessConn() (net.Conn, error) { return s.dial(caller{launcher: true}) }

// current is the running server; nil while another one is being started.
func (s *Server) current() *server.Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.srv
}

// Shutdown stops the server and waits until its files are closed. The caller closes all
// connections before. Shutdown may be called more than once.
func (s *Server) Shutdown() {
	s.once.Do(func() {
		s.cancel()
		if s.listener != nil {
			_ = s.listener.Close() // nothing was written to it
		}
		s.work.Wait()
		if srv := s.current(); srv != nil {
			srv.Shutdown()
			srv.WaitForShutdown()
		}
		_ = s.lock.Close()
	})
}
