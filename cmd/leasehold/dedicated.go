package main

import (
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/rs/zerolog"

	"leasehold/internal/connlimit"
)

// dedicatedPorts gives sessions loopback ports of their own.
type dedicatedPorts struct {
	log     zerolog.Logger
	handler func(sessionID, addr string) http.Handler // set before open is called
	// idle and limits bound the connections of each port.
	idle   time.Duration
	limits connlimit.Options
}

// open serves a session on addr, or on a free port if it is empty. It returns the URL, and
// a function that closes the port. It is for launcher.Options.Dedicated.
func (d *dedicatedPorts) open(sessionID, addr string) (string, func(), error) {
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return "", nil, fmt.Errorf("dedicated port: %w", err)
	}
	bounded := connlimit.New(l, d.limits)
	server := &http.Server{
		Handler: d.handler(sessionID, l.Addr().String()), ReadHeaderTimeout: headerTimeout, IdleTimeout: d.idle, ConnState: bounded.State,
	}
	failed := func(err error) { d.log.Error().Err(err).Str("session", sessionID).Msg("dedicated port") }
	served := goServe(server, bounded, failed)
	return "http://" + l.Addr().String(), func() {
		if err := server.Close(); err != nil {
			failed(err)
		}
		<-served
	}, nil
}
