// Package natstest has NATS servers that fail in the ways that tests want.
package natstest

import (
	"net"
	"sync/atomic"

	"github.com/nats-io/nats.go"
)

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
