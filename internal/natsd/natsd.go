// Package natsd is a launcher's side of NATS: the embedded server that a launcher runs if
// it was not given the URL of one (Start), and connections with the options that leases
// need (Server.Connect, Dial).
//
// What is promised of the embedded server: JetStream writes are on the disk before they
// are acknowledged; only one process at a time uses a directory; a server that cannot
// start says why instead of ending the process. Subscribers on a loopback address need no
// credentials. They are in an account of their own, which has the event stream and nothing
// else. One account would not be enough: NATS does not check where an answer goes, so any
// client can have the server publish on a subject on which the client itself may not (by
// the reply subject of a request, or the deliver subject of a consumer). Nothing passes
// between accounts.
//
// What is not promised: by the same means a hostile process of this host can put messages
// on the event stream that are no events, and can delete the consumers of other
// subscribers. Readers can recognise such messages; lease/natskv ignores them. Where local
// users are not trusted, the server should not listen at all.
package natsd

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"github.com/rs/zerolog"
	"golang.org/x/crypto/bcrypt"
)

// Options of an embedded server.
type Options struct {
	// Dir is the directory of the server's files: the streams, and admin.url. It is
	// made if it is missing.
	Dir string
	// Listen is the host:port where subscribers connect; port 0 means a free one. If
	// it is empty, only this process can connect. Subscribers without credentials are
	// let in on loopback addresses only. Others connect with the URL in admin.url, and
	// need EventsAPI for anything but plain subscriptions.
	Listen string
	Log    zerolog.Logger
}

// Server is a running embedded NATS server.
type Server struct {
	srv      *server.Server
	password string
	url      string
	log      zerolog.Logger
	lock     *os.File
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
	return fmt.Sprintf("nats directory %s is in use by another launcher: stop it, choose another --data-dir, or connect to it with the URL in %s",
		e.Dir, filepath.Join(e.Dir, adminFile))
}

const (
	adminUser = "leasehold"
	// serverName is the name by which launchers recognise an embedded server.
	serverName = "leasehold_embedded"

	// launchersAccount has the leases and the evidence, and subscribersAccount the
	// event stream. Launchers publish events into the latter as if it were their own
	// account, and reach its JetStream below eventsAPI.
	launchersAccount, subscribersAccount = "LAUNCHERS", "SUBSCRIBERS"
	eventsAPI                            = "$JS.leasehold_events.API"

	// startTime limits the start. It has to be enough for the server to read its
	// streams again after a crash.
	startTime = time.Minute
	// maxStore, in bytes, is more than any disk has. Without it the server would
	// reserve a part of the free space, and refuse renewals once that is used up.
	maxStore = 1 << 50
)

// Start starts a server and waits until it accepts connections. The caller ends it with
// Shutdown. Errors: *ListenError, *DirInUseError, and others that say why the server cannot
// use its directory.
func Start(o Options) (_ *Server, err error) {
	host, port, err := splitListen(o.Listen)
	if err != nil {
		return nil, err
	}
	lock, err := lockDir(o.Dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = lock.Close()
		}
	}()
	// The server only logs that it cannot listen, so that is tried before.
	if err := probeListen(o.Listen); err != nil {
		return nil, err
	}
	password, err := adminPassword(o.Dir)
	if err != nil {
		return nil, err
	}
	opts, err := serverOptions(o.Dir, host, port, password)
	if err != nil {
		return nil, err
	}
	srv, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("nats server in %s: %w", o.Dir, err)
	}
	bridge := &logBridge{log: o.Log.With().Str("component", "nats").Logger()}
	srv.SetLoggerV2(bridge, false, false, false)
	s := &Server{srv: srv, password: password, log: o.Log, lock: lock}

	srv.Start()
	if err := s.started(o, bridge); err != nil {
		srv.Shutdown()
		srv.WaitForShutdown()
		return nil, err
	}
	if o.Listen != "" {
		s.url = "nats://" + srv.Addr().String()
	}
	if err := writeAdminURL(o.Dir, s.url, password); err != nil {
		srv.Shutdown()
		srv.WaitForShutdown()
		return nil, err
	}
	return s, nil
}

// started waits until the server accepts connections. The error says why the server did
// not start, or that it does not sync what it acknowledges.
func (s *Server) started(o Options, bridge *logBridge) error {
	if fatal := bridge.fatal(); fatal != "" {
		if err := probeListen(o.Listen); err != nil && s.srv.Addr() == nil {
			return err
		}
		return fmt.Errorf("nats server in %s: %s", o.Dir, fatal)
	}
	if !s.srv.ReadyForConnections(startTime) {
		return fmt.Errorf("nats server in %s: not ready after %v: look at its warnings in the log", o.Dir, startTime)
	}
	jsz, err := s.srv.Jsz(nil)
	if err != nil {
		return fmt.Errorf("nats server in %s: ask for its settings: %w", o.Dir, err)
	}
	if jsz.Disabled || !jsz.Config.SyncAlways {
		return fmt.Errorf("nats server in %s: does not sync every write to the disk, so acknowledged leases could be lost", o.Dir)
	}
	return nil
}

func serverOptions(dir, host string, port int, password string) (*server.Options, error) {
	// The password has 256 random bits, so an expensive hash would not make it harder
	// to guess, but would slow down each connection.
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	if err != nil {
		return nil, fmt.Errorf("nats admin password: %w", err)
	}
	opts := &server.Options{
		ServerName:             serverName,
		Host:                   host,
		Port:                   port,
		DontListen:             host == "",
		JetStream:              true,
		StoreDir:               dir,
		SyncAlways:             true,
		JetStreamMaxStore:      maxStore,
		DisableJetStreamBanner: true,
		NoSigs:                 true,
	}
	if err := opts.ProcessConfigString(accounts()); err != nil {
		return nil, fmt.Errorf("nats accounts: %w", err)
	}
	launchers, subscribers := account(opts, launchersAccount), account(opts, subscribersAccount)
	opts.Users = []*server.User{{Username: adminUser, Password: string(hash), Account: launchers}}
	if loopback(host) {
		// The anonymous user is one with a key, because for one with a password
		// the server would warn that the password is no hash. Nobody keeps the private
		// half of the key.
		pair, err := nkeys.CreateUser()
		if err != nil {
			return nil, fmt.Errorf("nats anonymous user: %w", err)
		}
		anonymous, err := pair.PublicKey()
		if err != nil {
			return nil, fmt.Errorf("nats anonymous user: %w", err)
		}
		pair.Wipe()
		opts.Nkeys = []*server.NkeyUser{{Nkey: anonymous, Account: subscribers, Permissions: readOnly()}}
		opts.NoAuthUser = anonymous
	}
	return opts, nil
}

// accounts returns the part of the server's configuration that keeps subscribers and
// launchers apart. "response: stream" lets an answer to a launcher be several messages.
func accounts() string {
	imports, exports := "", ""
	for _, subject := range []string{"leasehold.recovery.*.*", "leasehold.lease.*.*", "leasehold.conflict.*", "leasehold.late_write.*"} {
		imports += fmt.Sprintf("{service: {account: %s, subject: %q}}\n", subscribersAccount, subject)
		exports += fmt.Sprintf("{service: %q, accounts: [%s]}\n", subject, launchersAccount)
	}
	return fmt.Sprintf(`accounts {
  %[1]s { jetstream: enabled, imports: [
    %[3]s {service: {account: %[2]s, subject: "$JS.API.>"}, to: "%[5]s.>"} ] }
  %[2]s { jetstream: enabled, exports: [
    %[4]s {service: "$JS.API.>", response: stream, accounts: [%[1]s]} ] }
}`, launchersAccount, subscribersAccount, imports, exports, eventsAPI)
}

func account(o *server.Options, name string) *server.Account {
	return o.Accounts[slices.IndexFunc(o.Accounts, func(a *server.Account) bool { return a.Name == name })]
}

// EventsAPI returns the API prefix under which a launcher with this connection reaches the
// JetStream of the event stream.
func EventsAPI(nc *nats.Conn) string {
	if nc.ConnectedServerName() == serverName {
		return eventsAPI
	}
	return "$JS.API"
}

// readOnly returns the permissions of anonymous subscribers: what clients need to read the
// event stream, and nothing that changes it.
func readOnly() *server.Permissions {
	return &server.Permissions{
		Publish: &server.SubjectPermission{Allow: []string{
			"$JS.API.INFO",
			"$JS.API.STREAM.INFO.>", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.LIST",
			"$JS.API.STREAM.MSG.GET.>", "$JS.API.DIRECT.GET.>",
			"$JS.API.CONSUMER.>", "$JS.ACK.>", "$JS.FC.>",
			"_INBOX.>",
		}},
		Subscribe: &server.SubjectPermission{Allow: []string{"leasehold.>", "_INBOX.>"}},
	}
}

// ClientURL is the URL where subscribers connect, without credentials. It is empty if the
// server does not listen.
func (s *Server) ClientURL() string { return s.url }

// Connect opens a connection inside the process, with all permissions and the options of
// Dial. The connection ends with the server.
func (s *Server) Connect(opts ...nats.Option) (*nats.Conn, error) {
	all := append(connOptions(s.log), adminInbox(),
		nats.InProcessServer(s.srv), nats.UserInfo(adminUser, s.password))
	nc, err := nats.Connect("", append(all, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("connect to the embedded nats server: %w", err)
	}
	return nc, nil
}

// Shutdown stops the server and waits until its files are closed. The caller closes all
// connections before. Shutdown may be called more than once.
func (s *Server) Shutdown() {
	s.srv.Shutdown()
	s.srv.WaitForShutdown()
	_ = s.lock.Close()
}

// splitListen returns the host and the port of Options.Listen, as the server wants them.
func splitListen(listen string) (host string, port int, err error) {
	if listen == "" {
		return "", 0, nil
	}
	host, p, err := net.SplitHostPort(listen)
	if err != nil {
		return "", 0, fmt.Errorf("nats listen address %q: want host:port, as in 127.0.0.1:4333: %w", listen, err)
	}
	port, err = strconv.Atoi(p)
	if err != nil || port < 0 || port > 65535 {
		return "", 0, fmt.Errorf("nats listen address %q: want a port from 0 to 65535", listen)
	}
	if host == "" {
		return "", 0, fmt.Errorf("nats listen address %q: want a host, as in 127.0.0.1:%d", listen, port)
	}
	if port == 0 {
		port = server.RANDOM_PORT
	}
	return host, port, nil
}

// loopback tells whether host can be reached from this host only. A name other than
// localhost does not count, since it may come to stand for another address.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// probeListen returns a *ListenError if the address cannot be listened on now.
func probeListen(listen string) error {
	if listen == "" {
		return nil
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return &ListenError{Addr: listen, Err: err}
	}
	return l.Close()
}
