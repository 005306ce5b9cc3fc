package proxies

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/elazarl/goproxy"
	"github.com/rs/zerolog"

	"leasehold/internal/connlimit"
	"leasehold/internal/peer"
)

// Relay is an HTTP proxy without credentials on the loopback interface, for one browser. It
// sends everything to one proxy server, with the credentials. What that server does not accept
// fails: the relay has no other way out.
type Relay struct {
	proxy     *Proxy
	log       zerolog.Logger
	server    *http.Server
	transport *http.Transport
	conns     *connections
	ctx       context.Context
	cancel    context.CancelFunc
	serving   sync.WaitGroup
	url       string
	reserved  *os.File // see Reserved; nil after Reopen: the browser has it

	mu       sync.Mutex
	closed   bool
	handlers sync.WaitGroup // requests that are being handled

	// refused are the credentials that were last logged as refused.
	refused atomic.Pointer[credentials]
}

const (
	// relayTries is how many addresses are tried for one browser.
	relayTries = 16
	// The ports of the relays are below the range from which the kernel chooses ports for
	// others.
	firstRelayPort, relayPorts = 10240, 20000
)

// relayAddress is the n-th choice of an address for a profile's directory. It is the same at
// every start, so that Chrome's command line is the same, too. It belongs to this directory
// alone: a browser whose launcher died must not find another profile's relay at the address
// that it knows.
func relayAddress(profileDir string, n int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "leasehold relay %d\x00%s", n, profileDir))
	port := firstRelayPort + binary.BigEndian.Uint16(sum[3:])%relayPorts
	// Other programs use addresses in 127.0.0.0/16.
	return fmt.Sprintf("127.%d.%d.%d:%d", 64+sum[0]%64, sum[1], 1+sum[2]%254, port)
}

// Uses tells whether a socket is one of the browser that was started with the proxy server, a
// Relay's URL.
type Uses func(s peer.Socket, server string) (bool, error)

// Open starts the relay for the browser on a profile's directory. The browser runs as the
// directory's owner, and uses tells which one it is.
func Open(p *Proxy, profileDir string, uses Uses, log zerolog.Logger) (*Relay, error) {
	uid, err := ownerOf(profileDir)
	if err != nil {
		return nil, fmt.Errorf("relay to proxy %s: %w", p, err)
	}
	var inUse error
	for n := range relayTries {
		r, err := openAt(p, relayAddress(profileDir, n), uid, uses, log)
		switch {
		case err == nil:
			return r, nil
		case errors.Is(err, syscall.EADDRINUSE):
			inUse = err
		default:
			return nil, fmt.Errorf("relay to proxy %s: %w", p, err)
		}
	}
	return nil, fmt.Errorf("relay to proxy %s: %w", p, inUse)
}

// openAt starts a relay at an address that nobody uses.
func openAt(p *Proxy, address string, uid uint32, uses Uses, log zerolog.Logger) (*Relay, error) {
	reserved, err := reserve(address)
	if err != nil {
		return nil, err
	}
	r, err := start(p, address, uid, uses, log)
	if err != nil {
		return nil, errors.Join(err, reserved.Close())
	}
	r.reserved = reserved
	return r, nil
}

// Reopen starts a relay at the address at which a browser that outlived its launcher expects
// it. server is what Relay.URL returned to that launcher. An address that does not belong to
// the profile's directory is refused.
func Reopen(p *Proxy, server, profileDir string, uses Uses, log zerolog.Logger) (*Relay, error) {
	address, found := strings.CutPrefix(server, schemeHTTP+"://")
	known := false
	for n := range relayTries {
		known = known || found && relayAddress(profileDir, n) == address
	}
	if !known {
		return nil, fmt.Errorf("relay to proxy %s: %q is no relay of %s", p, server, profileDir)
	}
	uid, err := ownerOf(profileDir)
	if err != nil {
		return nil, fmt.Errorf("relay to proxy %s: %w", p, err)
	}
	r, err := start(p, address, uid, uses, log)
	if err != nil {
		return nil, fmt.Errorf("relay to proxy %s: %w", p, err)
	}
	return r, nil
}

// ownerOf returns the user to whom a profile's directory belongs. The browser runs as that
// user.
func ownerOf(profileDir string) (uint32, error) {
	info, err := os.Lstat(profileDir)
	if err != nil {
		return 0, err
	}
	return info.Sys().(*syscall.Stat_t).Uid, nil
}

// relayConnections is the most connections of one browser. Chrome has 32 to a proxy, and one for
// each websocket.
const relayConnections = 512

// start serves a relay on an address, for a browser of the user.
func start(p *Proxy, address string, uid uint32, uses Uses, log zerolog.Logger) (*Relay, error) {
	r := &Relay{
		proxy: p, url: schemeHTTP + "://" + address, conns: &connections{open: map[*trackedConn]bool{}},
		log: log.With().Str("component", "relay").Str("proxy", p.id).Logger(),
	}
	l, err := connlimit.Listen(address, connlimit.Options{
		Peers: connlimit.NewPeers(relayConnections), Silent: true, ReusePort: true, Log: r.log,
		Admit: func(s peer.Socket, unknown error) error { return r.admit(s, unknown, uid, uses) },
	})
	if err != nil {
		return nil, err
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.transport = r.newTransport()
	r.server = &http.Server{
		Handler: r.countRequests(flushingHandler{r.newHandler()}), ReadHeaderTimeout: time.Minute,
		ErrorLog: stdlog.New(lineWriter{r.log}, "", 0),
	}
	r.serving.Go(func() {
		if err := r.server.Serve(&listener{l, r.conns}); !errors.Is(err, http.ErrServerClosed) {
			r.log.Error().Err(err).Msg("the relay ended: its browser is offline")
		}
	})
	r.log.Debug().Str("relay", r.url).Str("target", p.Server()).Msg("relay opened")
	return r, nil
}

// admit refuses whoever is not the relay's browser: they would use the proxy with the profile's
// credentials. Other browsers of this host may run as the same user.
func (r *Relay) admit(s peer.Socket, unknown error, uid uint32, uses Uses) error {
	if unknown != nil {
		return fmt.Errorf("it is not known whether it is the browser's: %w", unknown)
	}
	own := s.UID == uid
	var err error
	if own {
		own, err = uses(s, r.url)
	}
	if err == nil && !own {
		err = fmt.Errorf("it is not this profile's browser, but something of %s", peer.Name(s.UID))
	}
	return err
}

// newTransport makes the transport for requests that are not tunnelled.
func (r *Relay) newTransport() *http.Transport {
	p := r.proxy
	t := &http.Transport{
		DialContext: r.dialPlain, TLSHandshakeTimeout: connectTimeout,
		MaxIdleConnsPerHost: 32, IdleConnTimeout: 90 * time.Second,
		// Chrome gets the encoding that it asked for itself.
		DisableCompression: true,
	}
	if p.scheme == schemeSOCKS5 {
		return t
	}
	// A connection is reused only for the same proxy URL, which has the credentials in it.
	t.Proxy = func(*http.Request) (*url.URL, error) {
		upstream := &url.URL{Scheme: p.scheme, Host: p.address}
		if p.username != "" {
			upstream.User = url.UserPassword(p.username, string(p.credentials.Load().password))
		}
		return upstream, nil
	}
	if p.scheme == schemeHTTPS {
		t.DialTLSContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, connectTimeout)
			defer cancel()
			return p.connect(ctx, r.conns)
		}
	}
	return t
}

// newHandler makes the proxy that the browser talks to.
func (r *Relay) newHandler() http.Handler {
	h := goproxy.NewProxyHttpServer()
	h.Logger, h.Tr, h.KeepAcceptEncoding = printer{r.log}, r.transport, true
	h.NonproxyHandler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "this is a proxy for one browser", http.StatusBadRequest)
	})
	h.ConnectDial = nil // the default takes the proxy from the environment
	h.ConnectDialWithReq = func(_ *http.Request, _, target string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(r.ctx, connectTimeout)
		defer cancel()
		c, err := r.proxy.dial(ctx, r.conns, target)
		if err != nil {
			r.logFailure(err)
			return nil, errNotThrough
		}
		return c, nil
	}
	h.OnResponse().DoFunc(r.response)
	return h
}

// URL is the value for Chrome's --proxy-server.
func (r *Relay) URL() string { return r.url }

// Reserved is a socket that keeps the address for the relay's user as long as it is open. The
// browser inherits it: it goes on asking at that address when the launcher is gone, and nobody
// else may answer there. It is closed with the relay. It is nil for the nil Relay.
func (r *Relay) Reserved() *os.File {
	if r == nil {
		return nil
	}
	return r.reserved
}

// closeTimeout limits how long Close waits for connections to end.
const closeTimeout = 5 * time.Second

// Close closes every connection and waits until their users have ended. Closing the nil
// Relay does nothing.
func (r *Relay) Close() error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.cancel()
	err := r.server.Close()
	r.serving.Wait()
	r.conns.closeAll()
	r.transport.CloseIdleConnections()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		<-r.conns.ended()
		r.handlers.Wait()
	}()
	select {
	case <-ended:
	case <-time.After(closeTimeout):
		err = errors.Join(err, fmt.Errorf("relay to proxy %s: connections do not end", r.proxy))
	}
	if r.reserved != nil {
		if e := r.reserved.Close(); !errors.Is(e, os.ErrClosed) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// countRequests lets Close wait for requests. The server itself does not wait for those
// whose connection was hijacked.
func (r *Relay) countRequests(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		closed := r.closed
		if !closed {
			r.handlers.Add(1)
		}
		r.mu.Unlock()
		if closed {
			return // its connection is being closed
		}
		defer r.handlers.Done()
		h.ServeHTTP(w, req)
	})
}

// dialPlain opens a connection for requests that are not tunnelled: to the server
// itself if it is an HTTP proxy, and through it to the address if it is a SOCKS5 proxy.
func (r *Relay) dialPlain(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if r.proxy.scheme != schemeSOCKS5 {
		return r.conns.DialContext(ctx, network, address)
	}
	return r.proxy.dial(ctx, r.conns, address)
}

// errNotThrough is all that a browser is told of a failure. Its pages and workers can read that, and
// the error itself may have the server's address.
var errNotThrough = errors.New("the request did not get through the proxy")

// response replaces answers that the browser must not see by a 502: errors, and a 407, which
// would make it ask its user for credentials.
func (r *Relay) response(resp *http.Response, ctx *goproxy.ProxyCtx) *http.Response {
	err := ctx.Error
	if resp != nil && resp.StatusCode == http.StatusProxyAuthRequired {
		err = errCredentials
	}
	if err != nil {
		r.logFailure(err)
		return goproxy.NewResponse(ctx.Req, goproxy.ContentTypeText, http.StatusBadGateway, errNotThrough.Error()+"\n")
	}
	if resp != nil {
		// Otherwise net/http would add these headers if the site did not send them.
		for _, name := range []string{"Content-Type", "Date"} {
			if _, ok := resp.Header[name]; !ok {
				resp.Header[name] = nil
			}
		}
	}
	return resp
}

// isRefusal tells whether the server did not accept the credentials.
func isRefusal(err error) bool {
	// The SOCKS5 library has no error value for it.
	return errors.Is(err, errCredentials) || strings.Contains(err.Error(), "username/password authentication failed")
}

// logFailure logs why a connection through the server failed. Refused credentials are a
// warning, once for each password.
func (r *Relay) logFailure(err error) {
	switch {
	case err == nil || r.ctx.Err() != nil:
	case isRefusal(err):
		if used := r.proxy.credentials.Load(); r.refused.Swap(used) != used {
			r.log.Warn().Msg("the proxy refuses the credentials of the configuration")
		}
	default:
		r.log.Debug().Err(err).Msg("connection through the proxy failed")
	}
}

// flushingHandler flushes whatever its handler writes at once, so that the browser gets
// what a site sends when the site sends it.
type flushingHandler struct{ next http.Handler }

func (h flushingHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.next.ServeHTTP(&flushingWriter{w}, r)
}

type flushingWriter struct{ http.ResponseWriter }

func (f *flushingWriter) WriteHeader(status int) {
	f.ResponseWriter.WriteHeader(status)
	if status >= http.StatusOK {
		f.flush()
	}
}

func (f *flushingWriter) Write(b []byte) (int, error) {
	n, err := f.ResponseWriter.Write(b)
	f.flush()
	return n, err
}

// flush ignores the error: if the client is gone, Write returns that.
func (f *flushingWriter) flush() { _ = http.NewResponseController(f.ResponseWriter).Flush() }

// Hijack implements http.Hijacker, which goproxy asks for.
func (f *flushingWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(f.ResponseWriter).Hijack()
}

// printer and lineWriter are the loggers for goproxy and net/http.
type printer struct{ log zerolog.Logger }

func (p printer) Printf(format string, args ...any) {
	p.log.Debug().Msgf(strings.TrimSpace(format), args...)
}

type lineWriter struct{ log zerolog.Logger }

func (w lineWriter) Write(b []byte) (int, error) {
	w.log.Debug().Msg(strings.TrimSpace(string(b)))
	return len(b), nil
}
