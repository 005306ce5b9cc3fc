package natsd

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"leasehold/internal/peer"
)

// The server does not listen. Its own listener would take a descriptor for everybody who connects
// and says nothing, until none is left for the leases. This process listens instead (package
// connlimit), and passes what a subscriber sends and gets through a pipe in memory.

// caller is who is at the other end of a connection to the server.
type caller struct {
	launcher bool     // this process itself
	addr     net.Addr // a subscriber's
	// socket is a subscriber's socket on this host, unless it is not known who made that.
	socket  peer.Socket
	unknown error
}

// introduced is a connection to the server of which the gate knows who is at its other end. It
// begins with the server's greeting.
type introduced struct {
	net.Conn
	greeting []byte // what the server sent first
	ahead    io.Reader
	forget   func()
}

func (c *introduced) Read(b []byte) (int, error) { return c.ahead.Read(b) }

// Close also forgets who was there, if the server has not asked for it.
func (c *introduced) Close() error {
	c.forget()
	return c.Conn.Close()
}

// greetingTime limits how long the server may take to greet.
const greetingTime = 10 * time.Second

// dial opens a connection to the server that runs now. The gate recognizes the caller by the
// nonce in the server's greeting, which is another one for each connection.
func (s *Server) dial(who caller) (*introduced, error) {
	s.mu.Lock()
	srv, gate := s.srv, s.gate
	s.mu.Unlock()
	if srv == nil {
		return nil, errRestarting
	}
	c, err := srv.InProcessConn()
	if err != nil {
		return nil, err
	}
	in, err := greet(c, gate, who)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("greeting of the embedded nats server: %w", err), c.Close())
	}
	return in, nil
}

func greet(c net.Conn, gate *gate, who caller) (*introduced, error) {
	if err := c.SetReadDeadline(time.Now().Add(greetingTime)); err != nil {
		return nil, err
	}
	r := bufio.NewReader(c)
	line, err := r.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	var info struct{ Nonce string }
	if err := json.Unmarshal(bytes.TrimPrefix(line, []byte("INFO ")), &info); err != nil {
		return nil, err
	}
	if info.Nonce == "" {
		return nil, fmt.Errorf("it has no nonce: %.200q", line)
	}
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		return nil, err
	}
	gate.expect(info.Nonce, who)
	return &introduced{Conn: c, greeting: line, ahead: io.MultiReader(bytes.NewReader(line), r), forget: func() { gate.take(info.Nonce) }}, nil
}

// acceptPause is the pause after the listener failed: there may be no descriptor.
const acceptPause = 100 * time.Millisecond

// accept serves subscribers until the listener is closed, and returns when all of them are gone.
func (s *Server) accept() {
	var serving sync.WaitGroup
	defer serving.Wait()
	for {
		c, err := s.listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			s.log.Warn().Err(err).Msg("the listener for subscribers")
			select {
			case <-time.After(acceptPause):
			case <-s.stop:
			}
			continue
		}
		serving.Go(func() {
			defer s.listener.Release(c)
			if err := s.carry(c); err != nil {
				s.log.Debug().Err(err).Str("peer", c.RemoteAddr().String()).Msg("a subscriber's connection")
			}
		})
	}
}

// Welcome has prepare called before each subscriber is greeted, and now if one was greeted before.
// Whoever would wait longer than patience is not greeted. One for whom prepare fails is greeted all the
// same.
func (s *Server) Welcome(patience time.Duration, prepare func(context.Context) error) {
	s.mu.Lock()
	s.welcome, s.patience = prepare, patience
	early := s.early
	s.mu.Unlock()
	if early {
		s.work.Go(func() { _ = s.prepare() })
	}
}

// prepare returns an error if what a subscriber needs is not there yet.
func (s *Server) prepare() error {
	s.mu.Lock()
	welcome, patience := s.welcome, s.patience
	s.early = s.early || welcome == nil
	s.mu.Unlock()
	if welcome == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	err := welcome(ctx)
	if ctx.Err() != nil {
		return fmt.Errorf("what subscribers need is not there after %v: %w", patience, err)
	}
	if err != nil {
		s.log.Warn().Err(err).Msg("a subscriber is greeted, and may lack events for a while")
	}
	return nil
}

// carry passes a subscriber's bytes on to the server, and back, until one of them ends. It closes
// the connection.
func (s *Server) carry(conn net.Conn) error {
	defer conn.Close()
	who := caller{addr: conn.RemoteAddr()}
	if who.socket, who.unknown = peer.Of(conn); !s.loopback {
		who.unknown = peer.ErrNotLocal
	}
	if err := s.prepare(); err != nil {
		return err
	}
	to, err := s.dial(who)
	if err != nil {
		return err
	}
	defer to.Close()
	stop := context.AfterFunc(s.ctx, func() { _ = conn.Close() })
	defer stop()
	c := conn
	if s.o.TLS != nil {
		if c, err = s.secure(conn, to); err != nil {
			return err
		}
	}
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(c, to) // the end of either side ends both
		_ = c.Close()
	})
	_, _ = io.Copy(to, c)
	_ = to.Close()
	back.Wait()
	return nil
}

// secure greets a subscriber by TLS: as NATS has it, the greeting itself is plain, and says that
// a handshake has to follow.
func (s *Server) secure(c net.Conn, to *introduced) (net.Conn, error) {
	var info map[string]json.RawMessage
	if err := json.Unmarshal(bytes.TrimPrefix(to.greeting, []byte("INFO ")), &info); err != nil {
		return nil, err
	}
	info["tls_required"] = json.RawMessage("true")
	b, err := json.Marshal(info)
	if err != nil {
		return nil, err
	}
	if _, err := io.CopyN(io.Discard, to, int64(len(to.greeting))); err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(c, "INFO %s\r\n", b); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(s.ctx, tlsTime)
	defer cancel()
	over := tls.Server(c, s.o.TLS)
	return over, over.HandshakeContext(ctx)
}
