// Package natstest has clients of NATS servers for tests, and servers that fail in the ways that
// tests want.
package natstest

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// Connect connects to the server at the URL until the test ends. A server on a busy machine may
// take longer than the 2 s that a client waits by itself.
func Connect(t testing.TB, url string, options ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url, append(options, nats.Timeout(time.Minute))...)
	if err != nil {
		t.Fatalf("connecting to %s: %v", url, err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// Forgetful is a server whose answers are lost while Silent is true, although the connection stays.
type Forgetful struct {
	nats.InProcessConnProvider
	Silent *atomic.Bool
}

// InProcessConn implements nats.InProcessConnProvider.
func (f Forgetful) InProcessConn() (net.Conn, error) {
	c, err := f.InProcessConnProvider.InProcessConn()
	return forgetfulConn{c, f.Silent}, err
}

type forgetfulConn struct {
	net.Conn
	silent *atomic.Bool
}

// Read implements net.Conn.
func (c forgetfulConn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if err != nil || !c.silent.Load() {
			return n, err
		}
	}
}
