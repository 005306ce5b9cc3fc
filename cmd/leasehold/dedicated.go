//go:build linux

package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"

	"github.com/rs/zerolog"

	"leasehold/internal/connlimit"
	"leasehold/launcher/httpapi"
)

// dedicatedPorts gives sessions loopback ports of their own.
type dedicatedPorts struct {
	log     zerolog.Logger
	tls     *tls.Config                               // nil: plain HTTP; set before open is called
	handler func(sessionID, addr string) http.Handler // set before open is called
	limits  connlimit.Options                         // set before open is called
}

// open serves a session on addr, or on a free port if it is empty. It returns the URL, and
// a function that closes the port. It is for launcher.Options.Dedicated.
func (d *dedicatedPorts) open(sessionID, addr string) (string, func(), error) {
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	l, err := connlimit.Listen(addr, d.limits)
	if err != nil {
		return "", nil, fmt.Errorf("dedicated port: %w", err)
	}
	server := &http.Server{
		Handler: d.handler(sessionID, l.Addr().String()), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
		ConnState: l.State, ConnContext: httpapi.ConnContext,
	}
	// A browser's connections end with it. The port goes on for a moment, while the evidence is
	// stored: a client that kept a connection to it would find it still open.
	server.SetKeepAlivesEnabled(false)
	failed := func(err error) { d.log.Error().Err(err).Str("session", sessionID).Msg("dedicated port") }
	url := "http://" + l.Addr().String()
	var listener net.Listener = l
	if d.tls != nil {
		url = "https://" + l.Addr().String()
		listener = tls.NewListener(listener, d.tls)
	}
	served := goServe(server, listener, failed)
	return url, func() {
		if err := server.Close(); err != nil {
			failed(err)
		}
		<-served
	}, nil
}

// listen listens on a TCP address. The error names the flag to change.
func listen(flag, address string, o connlimit.Options) (*connlimit.Listener, error) {
	l, err := connlimit.Listen(address, o)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, exitWith(exitAddressInUse, "%s %s is in use by another process: stop that one, or give another address", flag, address)
	case err != nil:
		return nil, exitWith(exitUsage, "%s: %w", flag, err)
	}
	return l, nil
}
