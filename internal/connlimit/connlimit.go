// Package connlimit is how a sidecar listens: it bounds how many connections one peer has at all
// listeners together, leaves the last file descriptors alone, and refuses peers who are not
// served there. Nothing else in a sidecar listens (a test of this package checks that).
//
// At an HTTP server a client that has too many is told so, and a connection that becomes a
// websocket no longer counts for its peer: it then belongs to a session, which ends it.
package connlimit

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"leasehold/internal/descriptors"
	"leasehold/internal/peer"
)

// Peers counts the connections that each peer has, at every listener that it is given to. A peer
// is a user of this host if the kernel knows it, and otherwise an address.
type Peers struct {
	most int // zero: no limit

	mu    sync.Mutex
	count map[string]int
}

// NewPeers bounds the connections of one peer by a number, or zero for no limit, and in any case
// by half of the descriptors that the process may have.
func NewPeers(most int) *Peers { return &Peers{most: most, count: map[string]int{}} }

// add counts a connection, or returns why it is refused.
func (p *Peers) add(name string) error {
	limit, err := descriptors.Limit()
	if err != nil {
		return err
	}
	most := int(min(limit/2, 1<<30))
	if p.most > 0 {
		most = min(most, p.most)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.count[name] >= most {
		return &tooManyError{name, most}
	}
	p.count[name]++
	return nil
}

func (p *Peers) remove(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.count[name]--; p.count[name] == 0 {
		delete(p.count, name)
	}
}

// Options of a Listener.
type Options struct {
	// Peers bounds the connections of each peer.
	Peers *Peers
	// Admit, if given, returns why a peer is not served. It gets the peer's socket, or the error
	// of peer.Of. It may take some time, and is called for several connections at once.
	Admit func(peer.Socket, error) error
	// Silent closes connections that are too many without an answer, which is needed for TLS,
	// and for what is not HTTP. Who is not admitted gets no answer anywhere.
	Silent bool
	// ReusePort lets the listener share its address with other sockets of the same user that
	// have SO_REUSEPORT.
	ReusePort bool
	Log       zerolog.Logger
}

// Listener accepts connections within the bounds. Each of them is released when it has ended: an
// HTTP server does that by State, as its ConnState; others call Release.
type Listener struct {
	net.Listener
	o        Options
	begin    sync.Once
	accepted chan result
	done     chan struct{} // closed by Close
	ending   sync.Once
	work     sync.WaitGroup
	words    chan struct{} // holds one element for each refusal that is being told

	mu          sync.Mutex
	unused      map[net.Conn]struct{} // on which no request was sent yet
	closeUnused bool
	peers       map[net.Conn]string
	told        time.Time // when a refusal was last logged
}

// result is what the listener below returned.
type result struct {
	conn net.Conn
	err  error
}

// Bounds of refusals, so that they cost little.
const (
	tellTime = 250 * time.Millisecond
	tellMost = 16
	logEvery = 10 * time.Second
)

// Listen listens on a TCP address.
func Listen(address string, o Options) (*Listener, error) {
	var config net.ListenConfig
	if o.ReusePort {
		config.Control = reusePort
	}
	l, err := config.Listen(context.Background(), "tcp", address)
	if err != nil {
		return nil, err
	}
	return &Listener{
		Listener: l, o: o, accepted: make(chan result), done: make(chan struct{}), words: make(chan struct{}, tellMost),
		unused: map[net.Conn]struct{}{}, peers: map[net.Conn]string{},
	}, nil
}

func reusePort(_, _ string, c syscall.RawConn) error {
	var set error
	err := c.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
	return errors.Join(err, set)
}

// Accept returns the next connection that is within the bounds and admitted.
func (l *Listener) Accept() (net.Conn, error) {
	l.begin.Do(func() { l.work.Go(l.accept) })
	select {
	case r := <-l.accepted:
		return r.conn, r.err
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// accept takes in connections until the listener is closed. Admitting one does not hold up others.
func (l *Listener) accept() {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			if !l.hand(result{err: err}) || errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		}
		socket, unknown := peer.Of(c)
		if err := l.count(c, socket, unknown); err != nil {
			l.refuse(c, err)
			continue
		}
		l.work.Go(func() {
			if l.o.Admit != nil {
				if err := l.o.Admit(socket, unknown); err != nil {
					l.log(c, err)
					l.drop(c)
					return
				}
			}
			if !l.hand(result{conn: c}) {
				l.drop(c)
			}
		})
	}
}

// hand gives a result to a caller of Accept. It returns false if the listener is closed.
func (l *Listener) hand(r result) bool {
	select {
	case l.accepted <- r:
		return true
	case <-l.done:
		return false
	}
}

// drop ends a connection that nobody got.
func (l *Listener) drop(c net.Conn) {
	l.Release(c)
	_ = c.Close() // nobody is there to see an error
}

// Close closes the listener, and returns when every refusal is told.
func (l *Listener) Close() error {
	l.ending.Do(func() { close(l.done) })
	err := l.Listener.Close()
	l.begin.Do(func() {}) // no accept begins any more
	l.work.Wait()
	return err
}

// tooManyError says that a peer has as many connections as it may have.
type tooManyError struct {
	peer string
	most int
}

func (e *tooManyError) Error() string {
	return fmt.Sprintf("%s has %d connections already, and may have no more (--max-peer-connections, or half of the file descriptors): "+
		"close some, or wait until idle ones are closed", e.peer, e.most)
}

// count counts a connection for its peer, or returns why it is refused.
func (l *Listener) count(c net.Conn, socket peer.Socket, unknown error) error {
	if tcp, ok := c.(*net.TCPConn); ok {
		raw, err := tcp.SyscallConn()
		if err != nil {
			return err
		}
		var short error
		if err := raw.Control(func(fd uintptr) { short = descriptors.ForEvidence.Check(fd) }); err != nil || short != nil {
			return errors.Join(err, short)
		}
	}
	if l.o.Peers == nil {
		return nil
	}
	from := peerName(c, socket, unknown)
	if err := l.o.Peers.add(from); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.peers[c] = from
	return nil
}

// Release says that a connection has ended, or belongs to somebody who bounds it.
func (l *Listener) Release(c net.Conn) {
	l.mu.Lock()
	from, ok := l.peers[c]
	delete(l.peers, c)
	l.mu.Unlock()
	if ok {
		l.o.Peers.remove(from)
	}
}

// peerName names who is at the other end.
func peerName(c net.Conn, socket peer.Socket, unknown error) string {
	if unknown == nil {
		return fmt.Sprintf("user %d of this host", socket.UID)
	}
	host, _, err := net.SplitHostPort(c.RemoteAddr().String())
	if err != nil {
		return c.RemoteAddr().String()
	}
	return host
}

// CloseUnused closes connections on which no request was sent yet, including those that come
// later. Clients open some in advance, and http.Server.Shutdown would wait for them.
func (l *Listener) CloseUnused() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closeUnused = true
	for c := range l.unused {
		_ = c.Close() // the server sees that
	}
}

// State is for http.Server.ConnState.
func (l *Listener) State(c net.Conn, state http.ConnState) {
	l.mu.Lock()
	delete(l.unused, c)
	if state == http.StateNew {
		if l.unused[c] = struct{}{}; l.closeUnused {
			_ = c.Close() // the server sees that
		}
	}
	l.mu.Unlock()
	if state != http.StateClosed && state != http.StateHijacked {
		return
	}
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	l.Release(c)
}

// log says why a peer is refused, every now and then.
func (l *Listener) log(c net.Conn, why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.told) >= logEvery {
		l.told = now
		l.o.Log.Warn().Err(why).Str("peer", c.RemoteAddr().String()).Str("listener", l.Addr().String()).Msg("connection refused")
	}
}

// refuse closes a connection, and says why, if that can be done quickly.
func (l *Listener) refuse(c net.Conn, why error) {
	l.log(c, why)
	select {
	case l.words <- struct{}{}:
	default:
		_ = c.Close()
		return
	}
	if l.o.Silent {
		<-l.words
		_ = c.Close()
		return
	}
	l.work.Go(func() {
		defer func() { <-l.words }()
		tell(c, why)
	})
}

// tell answers a connection whose request is not served. It reads the request first: otherwise
// closing would reset the connection, and the answer would be lost.
func tell(c net.Conn, why error) {
	defer c.Close()
	status, code := http.StatusServiceUnavailable, "too_few_descriptors"
	if _, ok := errors.AsType[*tooManyError](why); ok {
		status, code = http.StatusTooManyRequests, "too_many_connections"
	}
	body, err := json.Marshal(map[string]any{
		"type": "urn:leasehold:problem:" + code, "title": http.StatusText(status), "status": status, "code": code, "detail": why.Error(),
	})
	if err != nil || c.SetDeadline(time.Now().Add(tellTime)) != nil {
		return
	}
	_, err = fmt.Fprintf(c, "HTTP/1.1 %d %s\r\nContent-Type: application/problem+json\r\nContent-Length: %d\r\nRetry-After: 5\r\nConnection: close\r\n\r\n%s",
		status, http.StatusText(status), len(body), body)
	if half, ok := c.(interface{ CloseWrite() error }); ok && err == nil && half.CloseWrite() == nil {
		_, _ = c.Read(make([]byte, 4<<10))
	}
}
