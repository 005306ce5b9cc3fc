// Package connlimit bounds the connections of an HTTP server: how many one peer has, and how
// many there are when file descriptors run out. A refused client is told so.
//
// A connection that becomes a websocket no longer counts for its peer: it then belongs to a
// session, which ends it.
package connlimit

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"leasehold/internal/descriptors"
	"leasehold/internal/peer"
)

// Options of a Listener.
type Options struct {
	// PerPeer is the most connections of one peer; zero: no limit. A peer is a user of this
	// host if the kernel knows it, and otherwise an address.
	PerPeer int
	// Silent closes refused connections without an answer, which is needed for TLS.
	Silent bool
	Log    zerolog.Logger
}

// Listener accepts connections within the bounds. Its State has to be the server's
// ConnState.
type Listener struct {
	net.Listener
	o        Options
	refusing sync.WaitGroup
	words    chan struct{} // holds one element for each refusal that is being told

	mu     sync.Mutex
	unused map[net.Conn]struct{} // on which no request was sent yet
	ending bool
	peers  map[net.Conn]string
	count  map[string]int
	told   time.Time // when a refusal was last logged
}

// Bounds of refusals, so that they cost little.
const (
	tellTime = 250 * time.Millisecond
	tellMost = 16
	logEvery = 10 * time.Second
)

// New bounds the connections of a listener.
func New(l net.Listener, o Options) *Listener {
	return &Listener{Listener: l, o: o, words: make(chan struct{}, tellMost), unused: map[net.Conn]struct{}{}, peers: map[net.Conn]string{}, count: map[string]int{}}
}

// Accept returns the next connection that is within the bounds.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if err := l.admit(c); err != nil {
			l.refuse(c, err)
			continue
		}
		return c, nil
	}
}

// Close closes the listener, and returns when every refusal is told.
func (l *Listener) Close() error {
	err := l.Listener.Close()
	l.refusing.Wait()
	return err
}

// tooManyError says that a peer has as many connections as it may have.
type tooManyError struct {
	peer string
	most int
}

func (e *tooManyError) Error() string {
	return fmt.Sprintf("%s has %d connections already, and may have no more (--max-peer-connections): close some, or wait until idle ones are closed", e.peer, e.most)
}

// admit counts a connection, or returns why it is refused.
func (l *Listener) admit(c net.Conn) error {
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
	if l.o.PerPeer == 0 {
		return nil
	}
	from := peerOf(c)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count[from] >= l.o.PerPeer {
		return &tooManyError{from, l.o.PerPeer}
	}
	l.count[from]++
	l.peers[c] = from
	return nil
}

// peerOf names who is at the other end.
func peerOf(c net.Conn) string {
	if uid, err := peer.UID(c); err == nil {
		return fmt.Sprintf("user %d of this host", uid)
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
	l.ending = true
	for c := range l.unused {
		_ = c.Close() // the server sees that
	}
}

// State is for http.Server.ConnState.
func (l *Listener) State(c net.Conn, state http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.unused, c)
	switch state {
	case http.StateNew:
		if l.unused[c] = struct{}{}; l.ending {
			_ = c.Close() // the server sees that
		}
		return
	case http.StateActive, http.StateIdle:
		return
	}
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	from, ok := l.peers[c]
	if !ok {
		return
	}
	delete(l.peers, c)
	if l.count[from]--; l.count[from] == 0 {
		delete(l.count, from)
	}
}

// refuse closes a connection, and says why, if that can be done quickly.
func (l *Listener) refuse(c net.Conn, why error) {
	l.mu.Lock()
	silent := time.Since(l.told) < logEvery
	if !silent {
		l.told = time.Now()
	}
	l.mu.Unlock()
	if !silent {
		l.o.Log.Warn().Err(why).Str("peer", c.RemoteAddr().String()).Msg("connection refused")
	}
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
	l.refusing.Go(func() {
		defer func() { <-l.words }()
		tell(c, why)
	})
}

// tell answers a connection whose request is not served. It reads the request first: otherwise
// closing would reset the connection, and the answer would be lost.
func tell(c net.Conn, why error) {
	defer c.Close()
	status, code := http.StatusServiceUnavailable, "too_few_descriptors"
	var many *tooManyError
	if errors.As(why, &many) {
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
