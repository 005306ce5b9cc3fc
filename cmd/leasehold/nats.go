//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"leasehold/internal/natsd"
	"leasehold/internal/tlsfiles"
	"leasehold/launcher/api"
	"leasehold/launcher/principal"
	"leasehold/lease/natskv"
)

const natsURLVariable = "LEASEHOLD_NATS_URL"

func (c RunConfig) natsTarget() natsd.Target {
	return natsd.Target{URL: c.NATSURL, Creds: c.NATSCreds, CA: c.NATSCA}
}

// natsIsOwn tells whether --nats-url is the address at which the embedded server would listen,
// which is so if a variable that was meant for leasehold watch is still set.
func (c RunConfig) natsIsOwn() bool {
	own := strings.Replace(dialable(c.NATSListen), "localhost:", "127.0.0.1:", 1)
	for one := range strings.SplitSeq(c.NATSURL, ",") {
		u, err := url.Parse(strings.TrimSpace(one))
		if err == nil && strings.Replace(u.Host, "localhost:", "127.0.0.1:", 1) == own {
			return true
		}
	}
	return false
}

// natsIsHere tells whether every server of --nats-url is on this host.
func (c RunConfig) natsIsHere() bool {
	for one := range strings.SplitSeq(c.NATSURL, ",") {
		u, err := url.Parse(strings.TrimSpace(one))
		if err != nil || !isLoopback(u.Hostname()) {
			return false
		}
	}
	return true
}

// refuseEmbedded refuses a --nats-url that leads to the NATS inside another sidecar.
func (c RunConfig) refuseEmbedded(nc *nats.Conn) error {
	if !natsd.Embedded(nc) {
		return nil
	}
	return fmt.Errorf("--nats-url %s is the NATS inside a sidecar, which serves subscribers only: several hosts share a NATS server of their own (docs/nats.md)", natsd.Redact(c.NATSURL))
}

func (c RunConfig) natsChoice(getenv func(string) string) string {
	switch {
	case c.NATSURL == "":
		return "the NATS inside this sidecar, since neither --nats-url nor " + natsURLVariable + " is given"
	case getenv(natsURLVariable) == c.NATSURL:
		return "the NATS of " + natsURLVariable
	}
	return "the NATS of --nats-url"
}

// connectNATS connects to the configured server, for which it waits until ctx ends, or starts the embedded one.
func (s *service) connectNATS(ctx context.Context) (err error) {
	c := s.config
	if c.NATSURL != "" {
		s.servers = c.natsServers(s.log)
		if s.nats, err = natsd.Await(ctx, c.natsTarget(), s.log, s.servers.Options()...); err != nil {
			return &exitError{exitNATS, err}
		}
		if err := c.refuseEmbedded(s.nats); err != nil {
			s.nats.Close()
			return &exitError{exitNATS, err}
		}
		s.natsURL = maskUser(c.NATSURL)
	} else {
		options, err := c.embeddedNATS(s.gate, s.log)
		if err != nil {
			return &exitError{exitUsage, err}
		}
		options.Reserve, options.Limits = s.reserve, s.limits()
		server, err := natsd.Start(options)
		var inUse *natsd.ListenError
		switch {
		case errors.As(err, &inUse):
			return &exitError{exitAddressInUse, fmt.Errorf("--nats-listen: %w", err)}
		case err != nil:
			return &exitError{exitDataDir, err}
		}
		s.embedded = server
		s.stops.add("embedded NATS", func() error { server.Shutdown(); return nil })
		if s.nats, err = server.Connect(); err != nil {
			return &exitError{exitNATS, err}
		}
		s.natsURL = server.ClientURL()
	}
	s.stops.add("NATS connection", func() error { s.nats.Close(); return nil })
	s.log.Info().Str("url", s.natsURL).Msg("leases and events are kept in " + c.natsChoice(os.Getenv))
	return nil
}

// natsServers are the servers of --nats-url, which have to be one store.
func (c RunConfig) natsServers(log zerolog.Logger) *natskv.Servers {
	return natskv.NewServers(natskv.ServersOptions{
		URL: c.NATSURL, Log: log.With().Str("component", "nats").Logger(),
		Dial: func(ctx context.Context, url string, more ...nats.Option) (*nats.Conn, error) {
			to := c.natsTarget()
			to.URL = url
			return natsd.Dial(ctx, to, zerolog.Nop(), append(more, nats.NoReconnect(), nats.IgnoreDiscoveredServers())...)
		},
	})
}

// compareNATS makes sure, now and from now on, that the servers of --nats-url are one store.
func (s *service) compareNATS(ctx context.Context) {
	if s.servers == nil {
		return
	}
	for _, err := range s.servers.Check(ctx, s.nats) {
		s.log.Warn().Str("component", "nats").Err(err).Msg("a NATS server cannot be reached")
	}
	s.stops.add("comparison of the NATS servers", background(func(ctx context.Context) { s.servers.Run(ctx, s.nats) }))
}

// storeDoubt says why leases may not be granted although the store answers: the servers of
// --nats-url are not one store.
func (s *service) storeDoubt() error {
	if s.servers == nil {
		return nil
	}
	problem := s.servers.Problem()
	if problem == nil {
		return nil
	}
	return natsProblem(problem).With("reason", api.ReasonServers)
}

// surveyNATS logs what could make the user's own NATS lose leases. The embedded one was checked
// at its start.
func (s *service) surveyNATS(ctx context.Context) {
	if s.config.NATSURL == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	for _, f := range natskv.Survey(ctx, s.nats) {
		level := zerolog.WarnLevel
		if f.Grade == natskv.Fine {
			level = zerolog.DebugLevel
		}
		s.log.WithLevel(level).Str("component", "nats").Str("check", f.Check).Str("grade", string(f.Grade)).Msg(f.Text)
	}
}

// embeddedNATS is how the embedded server is started. Those who may read every profile may
// subscribe: by an API token, or as a user of this host.
func (c RunConfig) embeddedNATS(gate *principal.Gate, log zerolog.Logger) (natsd.Options, error) {
	o := natsd.Options{Dir: filepath.Join(c.DataDir, natsDir), Listen: c.NATSListen, Log: log}
	// The events are about all profiles.
	reads := func(proofs principal.Proofs) (name string, ok bool) {
		p, err := gate.Identify(proofs)
		return p.Name, err == nil && p.Role.Has(principal.Read) && slices.Contains(p.Profiles, "*")
	}
	if c.provesOthers() {
		o.Authenticate = func(token string) (string, bool) { return reads(principal.Proofs{Tokens: []string{token}}) }
	}
	o.Admit = func(uid uint32) bool {
		_, ok := reads(principal.Proofs{UID: &uid})
		return ok
	}
	if host, err := splitAddress("--nats-listen", c.NATSListen); err != nil || isLoopback(host) {
		return o, err
	}
	var err error
	// Without the authorities of --client-ca: a subscriber shows a token.
	if o.TLS, err = tlsfiles.Config(tlsfiles.Paths{Certificate: c.TLSCert, Key: c.TLSKey}, log); err != nil {
		return o, fmt.Errorf("--tls-cert, --tls-key: %w", err)
	}
	return o, nil
}

// replicas is how many servers keep each lease. In a cluster there are three, so that no
// lease is lost with a server.
func (s *service) replicas() int { return replicasOf(s.nats, s.config.NATSReplicas) }

// replicasOf is how many copies a server keeps: the requested number, if any.
func replicasOf(nc *nats.Conn, asked int) int {
	switch {
	case asked > 0:
		return asked
	case nc.ConnectedClusterName() != "":
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
