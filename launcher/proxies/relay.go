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
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/elazarl/goproxy"
	"github.com/rs/zerolog"
)

// Relay is an HTTP proxy without credentials on the loopback interface, for one
// browser. All that comes in goes to one server, with its credentials, and
// nowhere else: what the server does not take fails.
type Relay struct {
	proxy  *Proxy
	log    zerolog.Logger
	server *http.Server
	tr     *http.Transport
	conns  *connections
	ctx    context.Context
	cancel context.CancelFunc
	served sync.WaitGroup
	url    string

	mu       sync.Mutex
	closed   bool
	handlers sync.WaitGroup

	refusal sync.Once // the credentials' refusal is said once
}

const (
	// relayTries is how many addresses are tried for one browser.
	relayTries = 16
	// Ports of relays: below those that the kernel gives to whoever asks for
	// any.
	firstRelayPort, relayPorts = 10240, 20000
)

// relayAddress is the n-th choice for a profile's directory. It is the same at
// every start, so that Chrome's command line is, and nobody else's: a browser whose
// launcher died must not reach another profile's relay at the address it knows.
func relayAddress(profileDir string, n int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "leasehold relay %d\x00%s", n, profileDir))
	port := firstRelayPort + binary.BigEndian.Uint16(sum[3:])%relayPorts
	// 127.0.0.0/16 is where everybody else is.
	return fmt.Sprintf("127.%d.%d.%d:%d", 64+sum[0]%64, sum[1], 1+sum[2]%254, port)
}

// Open starts the relay of the browser on a profile's directory.
func Open(p *Proxy, profileDir string, log zerolog.Logger) (*Relay, error) {
	var busy error
	for n := range relayTries {
		l, err := net.Listen("tcp4", relayAddress(profileDir, n))
		switch {
		case err == nil:
			return start(p, l, log), nil
		case errors.Is(err, syscall.EADDRINUSE):
			busy = err
		default:
			return nil, fmt.Errorf("relay to proxy %s: %w", p, err)
		}
	}
	return nil, fmt.Errorf("relay to proxy %s: %w", p, busy)
}

// Reopen starts a relay where a browser that outlived its launcher looks for it:
// server is what Relay.URL returned to that launcher.
func Reopen(p *Proxy, server, profileDir string, log zerolog.Logger) (*Relay, error) {
	address, ours := strings.CutPrefix(server, schemeHTTP+"://")
	if ours {
		ours = false
		for n := range relayTries {
			ours = ours || relayAddress(profileDir, n) == address
		}
	}
	if !ours {
		return nil, fmt.Errorf("relay to proxy %s: %q is no relay of %s", p, server, profileDir)
	}
	l, err := net.Listen("tcp4", address)
	if err != nil {
		return nil, fmt.Errorf("relay to proxy %s: %w", p, err)
	}
	return start(p, l, log), nil
}

func start(p *Proxy, l net.Listener, log zerolog.Logger) *Relay {
	r := &Relay{
		proxy: p, url: schemeHTTP + "://" + l.Addr().String(), conns: &connections{open: map[*tracked]bool{}},
		log: log.With().Str("component", "relay").Str("proxy", p.id).Logger(),
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.tr = &http.Transport{
		DialContext: r.dialPlain, TLSClientConfig: p.tlsConfig(), TLSHandshakeTimeout: connectTimeout,
		MaxIdleConnsPerHost: 32, IdleConnTimeout: 90 * time.Second,
		// What Chrome says it takes is what it gets.
		DisableCompression: true,
	}
	if p.scheme != schemeSOCKS5 {
		upstream := &url.URL{Scheme: p.scheme, Host: p.address}
		if p.username != "" {
			upstream.User = url.UserPassword(p.username, string(p.password))
		}
		r.tr.Proxy = http.ProxyURL(upstream)
	}
	h := goproxy.NewProxyHttpServer()
	h.Logger, h.Tr, h.KeepAcceptEncoding = printer{r.log}, r.tr, true
	h.NonproxyHandler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "this is a proxy for one browser", http.StatusBadRequest)
	})
	h.ConnectDial = nil // it would be the environment's
	h.ConnectDialWithReq = func(_ *http.Request, _, target string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(r.ctx, connectTimeout)
		defer cancel()
		c, err := p.dial(ctx, r.conns, target)
		r.note(err)
		return c, err
	}
	h.OnResponse().DoFunc(r.response)
	r.server = &http.Server{
		Handler: r.counted(immediate{h}), ReadHeaderTimeout: time.Minute,
		ErrorLog: stdlog.New(lineWriter{r.log}, "", 0),
	}
	r.served.Go(func() {
		if err := r.server.Serve(&listener{l, r.conns}); !errors.Is(err, http.ErrServerClosed) {
			r.log.Error().Err(err).Msg("the relay ended: its browser is offline")
		}
	})
	r.log.Debug().Str("relay", r.url).Str("target", p.Server()).Msg("relay opened")
	return r
}

// URL is what Chrome's --proxy-server has to be.
func (r *Relay) URL() string { return r.url }

// closeTimeout bounds how long connections that were cut may take to end.
const closeTimeout = 5 * time.Second

// Close cuts every connection and waits for them to end. The nil Relay has none.
func (r *Relay) Close() error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.cancel()
	err := r.server.Close()
	r.served.Wait()
	r.conns.cut()
	r.tr.CloseIdleConnections()
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
	return err
}

// counted lets Close wait for requests: the server does not wait for those whose
// connection was taken over.
func (r *Relay) counted(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		closed := r.closed
		if !closed {
			r.handlers.Add(1)
		}
		r.mu.Unlock()
		if closed {
			return // its connection is being cut
		}
		defer r.handlers.Done()
		h.ServeHTTP(w, req)
	})
}

// dialPlain is for requests that are not tunnelled: to the server itself where it
// is an HTTP proxy, through it where it is not.
func (r *Relay) dialPlain(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if r.proxy.scheme != schemeSOCKS5 {
		return r.conns.DialContext(ctx, network, address)
	}
	return r.proxy.dial(ctx, r.conns, address)
}

// response changes what a browser must not see: a 407, which would make it ask for
// credentials, and our own errors.
func (r *Relay) response(resp *http.Response, ctx *goproxy.ProxyCtx) *http.Response {
	err := ctx.Error
	if resp != nil && resp.StatusCode == http.StatusProxyAuthRequired {
		err = errCredentials
	}
	if err != nil {
		r.note(err)
		return goproxy.NewResponse(ctx.Req, goproxy.ContentTypeText, http.StatusBadGateway, fmt.Sprintf("proxy %s: %v\n", r.proxy.id, err))
	}
	if resp != nil {
		// The server would make up what the site did not say.
		for _, name := range []string{"Content-Type", "Date"} {
			if _, ok := resp.Header[name]; !ok {
				resp.Header[name] = nil
			}
		}
	}
	return resp
}

// note logs what went wrong with the server, refused credentials as a warning.
func (r *Relay) note(err error) {
	switch {
	case err == nil || r.ctx.Err() != nil:
	// The SOCKS5 library has no error of its own for it.
	case errors.Is(err, errCredentials), strings.Contains(err.Error(), "username/password authentication failed"):
		r.refusal.Do(func() { r.log.Warn().Msg("the proxy refuses the credentials of the configuration") })
	default:
		r.log.Debug().Err(err).Msg("connection through the proxy failed")
	}
}

// immediate passes on what a site sends when it does, not when there is more.
type immediate struct{ next http.Handler }

func (i immediate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.next.ServeHTTP(&flushing{w}, r)
}

type flushing struct{ http.ResponseWriter }

func (f *flushing) WriteHeader(status int) {
	f.ResponseWriter.WriteHeader(status)
	if status >= http.StatusOK {
		f.flush()
	}
}

func (f *flushing) Write(b []byte) (int, error) {
	n, err := f.ResponseWriter.Write(b)
	f.flush()
	return n, err
}

func (f *flushing) flush() { _ = http.NewResponseController(f.ResponseWriter).Flush() } // a client that is gone shows in Write

// Hijack implements http.Hijacker, which goproxy asks for.
func (f *flushing) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(f.ResponseWriter).Hijack()
}

// printer and lineWriter are where the libraries say what they saw.
type printer struct{ log zerolog.Logger }

func (p printer) Printf(format string, args ...any) {
	p.log.Debug().Msgf(strings.TrimSpace(format), args...)
}

type lineWriter struct{ log zerolog.Logger }

func (w lineWriter) Write(b []byte) (int, error) {
	w.log.Debug().Msg(strings.TrimSpace(string(b)))
	return len(b), nil
}

// connections are all that a relay has open, to either side. Who opened one closes
// it; cut only makes that happen.
type connections struct {
	mu   sync.Mutex
	shut bool
	open map[*tracked]bool
	all  sync.WaitGroup
}

// tracked is one of them.
type tracked struct {
	*net.TCPConn
	of *connections
}

// Close ends the connection for its user.
func (t *tracked) Close() error {
	err := t.TCPConn.Close()
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	if t.of.open[t] {
		delete(t.of.open, t)
		t.of.all.Done()
	}
	return err
}

var errShut = errors.New("the relay is closed")

func (s *connections) track(c net.Conn) (net.Conn, error) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("%T: want a TCP connection", c), c.Close())
	}
	t := &tracked{tcp, s}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shut {
		return nil, errors.Join(errShut, c.Close())
	}
	s.open[t] = true
	s.all.Add(1)
	return t, nil
}

// DialContext opens a connection to a server.
func (s *connections) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return s.track(c)
}

func (s *connections) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shut = true
	for t := range s.open {
		_ = t.TCPConn.Close() // its user closes it again
	}
}

func (s *connections) ended() <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.all.Wait()
	}()
	return done
}

// listener tracks what it accepts.
type listener struct {
	net.Listener
	conns *connections
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if t, err := l.conns.track(c); err == nil {
			return t, nil
		}
	}
}
