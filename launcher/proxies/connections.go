package proxies

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"leasehold/internal/connlimit"
)

// connections are all connections that a relay has open, to the browser and to the server. The
// goroutine that opened one closes it. closeAll makes that happen: after it closes a socket,
// the connection fails for its user.
type connections struct {
	mu     sync.Mutex
	closed bool // closeAll was called: no more are opened
	open   map[*trackedConn]bool
	users  sync.WaitGroup // one for each open connection
}

type trackedConn struct {
	*net.TCPConn
	owner *connections
	ended func() // called once, when it is closed
}

// Close ends the connection for its user.
func (t *trackedConn) Close() error {
	err := t.TCPConn.Close()
	t.owner.mu.Lock()
	defer t.owner.mu.Unlock()
	if t.owner.open[t] {
		delete(t.owner.open, t)
		t.ended()
		t.owner.users.Done()
	}
	return err
}

var errRelayClosed = errors.New("the relay is closed")

func (s *connections) track(c net.Conn, ended func()) (net.Conn, error) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("%T: want a TCP connection", c), c.Close())
	}
	t := &trackedConn{tcp, s, ended}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.Join(errRelayClosed, c.Close())
	}
	s.open[t] = true
	s.users.Add(1)
	return t, nil
}

// DialContext opens a connection to a server.
func (s *connections) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return s.track(c, func() {})
}

// closeAll closes the socket of every connection, and refuses new connections from now
// on.
func (s *connections) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for t := range s.open {
		_ = t.TCPConn.Close() // its user closes it again
	}
}

// ended returns a channel that is closed when every user has closed its connection.
func (s *connections) ended() <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.users.Wait()
	}()
	return done
}

// listener tracks the connections that it accepts.
type listener struct {
	*connlimit.Listener
	conns *connections
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if t, err := l.conns.track(c, func() { l.Release(c) }); err == nil {
			return t, nil
		}
		l.Release(c)
	}
}
