package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"leasehold/internal/natsd"
)

// checkNATS checks the URLs of one cluster, separated by commas, and that the file with
// the credentials, if one is given, exists.
func checkNATS(urls, creds string) error {
	for one := range strings.SplitSeq(urls, ",") {
		u, err := url.Parse(strings.TrimSpace(one))
		if err != nil || u.Host == "" || (u.Scheme != "nats" && u.Scheme != "tls" && u.Scheme != "ws" && u.Scheme != "wss") {
			// The URL is not quoted: it may contain a password.
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

// connectNATS connects to the configured server, or starts the embedded one.
func (s *service) connectNATS(ctx context.Context) (err error) {
	c := s.config
	if c.NATSURL != "" {
		ctx, cancel := context.WithTimeout(ctx, connectTimeout)
		defer cancel()
		if s.nats, err = natsd.Dial(ctx, c.NATSURL, c.NATSCreds, s.log); err != nil {
			return &exitError{exitNATS, err}
		}
		s.natsURL = maskUser(c.NATSURL)
	} else {
		server, err := natsd.Start(natsd.Options{Dir: filepath.Join(c.DataDir, natsDir), Listen: c.NATSListen, Log: s.log})
		var inUse *natsd.ListenError
		switch {
		case errors.As(err, &inUse):
			return &exitError{exitAddressInUse, fmt.Errorf("--nats-listen: %w", err)}
		case err != nil:
			return &exitError{exitDataDir, err}
		}
		s.stops.add("embedded NATS", func() error { server.Shutdown(); return nil })
		if s.nats, err = server.Connect(); err != nil {
			return &exitError{exitNATS, err}
		}
		s.natsURL = server.ClientURL()
	}
	s.stops.add("NATS connection", func() error { s.nats.Close(); return nil })
	return nil
}

// replicas is how many servers keep each lease. In a cluster there are three, so that no
// lease is lost with a server.
func (s *service) replicas() int {
	switch {
	case s.config.NATSReplicas > 0:
		return s.config.NATSReplicas
	case s.nats.ConnectedClusterName() != "":
		return 3
	}
	return 1
}

// maskUser removes the credentials from a list of URLs.
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
