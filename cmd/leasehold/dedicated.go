package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/rs/zerolog"
)

// dedicatedPorts give sessions a loopback port of their own.
type dedicatedPorts struct {
	log     zerolog.Logger
	handler func(sessionID, addr string) http.Handler
}

func (d *dedicatedPorts) open(sessionID, addr string) (string, func(), error) {
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return "", nil, fmt.Errorf("dedicated port: %w", err)
	}
	server := &http.Server{Handler: d.handler(sessionID, l.Addr().String()), ReadHeaderTimeout: 10 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			d.log.Error().Err(err).Str("session", sessionID).Msg("dedicated port")
		}
	}()
	return "http://" + l.Addr().String(), func() {
		if err := server.Close(); err != nil {
			d.log.Error().Err(err).Str("session", sessionID).Msg("dedicated port")
		}
		<-done
	}, nil
}
