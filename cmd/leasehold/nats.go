package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"leasehold/internal/natsd"
)

// checkNATS looks at the URLs of one cluster, separated by commas, and at the
// file with the credentials, if there is one.
func checkNATS(urls, creds string) error {
	for one := range strings.SplitSeq(urls, ",") {
		u, err := url.Parse(strings.TrimSpace(one))
		if err != nil || u.Host == "" || (u.Scheme != "nats" && u.Scheme != "tls" && u.Scheme != "ws" && u.Scheme != "wss") {
			// Not the URL itself: it may hold a password.
			return fmt.Errorf("--nats-url: want nats://host:port, tls, ws or wss, several separated by commas")
		}
	}
	if creds == "" {
		return nil
	}
	if _, err := os.Stat(creds); err != nil {
		return fmt.Errorf("--nats-creds: %w", err)
	}
	return nil
}

// connectNATS starts the embedded server, or connects to the one that is given.
func connectNATS(ctx context.Context, c RunConfig, started *stops, log zerolog.Logger) (*nats.Conn, string, error) {
	if c.NATSURL != "" {
		ctx, cancel := context.WithTimeout(ctx, connectTimeout)
		defer cancel()
		nc, err := natsd.Dial(ctx, c.NATSURL, c.NATSCreds, log)
		if err != nil {
			return nil, "", &exitError{exitNATS, err}
		}
		started.add("NATS connection", func() error { nc.Close(); return nil })
		return nc, maskUser(c.NATSURL), nil
	}
	server, err := natsd.Start(natsd.Options{Dir: filepath.Join(c.DataDir, "nats"), Listen: c.NATSListen, Log: log})
	var inUse *natsd.ListenError
	switch {
	case errors.As(err, &inUse):
		return nil, "", &exitError{exitAddressInUse, fmt.Errorf("--nats-listen: %w", err)}
	case err != nil:
		return nil, "", &exitError{exitDataDir, err}
	}
	started.add("embedded NATS", func() error { server.Shutdown(); return nil })
	nc, err := server.Connect()
	if err != nil {
		return nil, "", &exitError{exitNATS, err}
	}
	started.add("NATS connection", func() error { nc.Close(); return nil })
	return nc, server.ClientURL(), nil
}

// replicas is how many servers keep the leases: one that is lost must not lose
// them where there are others.
func replicas(c RunConfig, nc *nats.Conn) int {
	switch {
	case c.NATSReplicas > 0:
		return c.NATSReplicas
	case nc.ConnectedClusterName() != "":
		return 3
	}
	return 1
}

// maskUser leaves the credentials out of a list of URLs.
func maskUser(list string) string {
	urls := strings.Split(list, ",")
	for i, one := range urls {
		if u, err := url.Parse(strings.TrimSpace(one)); err == nil {
			u.User = nil
			urls[i] = u.String()
		}
	}
	return strings.Join(urls, ",")
}
