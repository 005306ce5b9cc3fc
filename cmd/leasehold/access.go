//go:build linux

package main

import (
	"crypto/tls"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"strings"

	"github.com/rs/zerolog"

	"leasehold/internal/tlsfiles"
	"leasehold/launcher/principal"
)

// This file is about who may reach the sidecar, and how callers are identified.

// validateListen refuses a listener that strangers could reach, or whose secrets could be read
// on the way.
func (c RunConfig) validateListen() error {
	host, err := splitAddress("--listen", c.Listen)
	switch {
	case err != nil:
		return err
	case c.MaxPeer < 0:
		return fmt.Errorf("--max-peer-connections %d: want 1 or more, or 0 for no limit", c.MaxPeer)
	case isLoopback(host):
		return nil
	case !c.provesOthers():
		return fmt.Errorf("--listen %s can be reached from other hosts: give --tokens or --token-file too, or listen on 127.0.0.1", c.Listen)
	case c.TLSCert == "" && !c.PlainText:
		return fmt.Errorf("--listen %s can be reached from other hosts, and tokens could be read on the way: give --tls-cert and --tls-key too, or --insecure-plaintext where something else encrypts", c.Listen)
	}
	return nil
}

// provesOthers tells whether there is a way to identify callers of other hosts.
func (c RunConfig) provesOthers() bool { return c.TokenFile != "" || c.Tokens != "" }

// notAdvertised is the --advertise-url of a sidecar that only workers of its own host use.
const notAdvertised = "none"

// validateAdvertised checks how others reach the sidecar.
func (c RunConfig) validateAdvertised() error {
	if err := c.validateShared(); err != nil || c.AdvertiseURL == "" || c.AdvertiseURL == notAdvertised {
		return err
	}
	u, err := url.Parse(c.AdvertiseURL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return fmt.Errorf("--advertise-url %q: want a URL such as https://browsers.example.com, without query or user", c.AdvertiseURL)
	}
	switch {
	case c.advertisesOthers() && !c.provesOthers():
		return fmt.Errorf("--advertise-url %s says that others reach the sidecar, and to the kernel whoever comes through a proxy is the proxy: give --tokens or --token-file too", c.AdvertiseURL)
	case u.Scheme == "http" && !isLoopback(u.Hostname()) && !c.PlainText:
		return fmt.Errorf("--advertise-url %s: tokens could be read on the way: want an https URL, or --insecure-plaintext where something else encrypts", c.AdvertiseURL)
	}
	return nil
}

// validateShared refuses an address that only this host can reach if other hosts share the
// NATS: the workers that they send to it would look for this sidecar on their own host.
func (c RunConfig) validateShared() error {
	if c.NATSURL == "" || c.natsIsHere() || c.AdvertiseURL == notAdvertised {
		return nil
	}
	told := c.AdvertiseURL
	if told == "" {
		told = c.scheme() + "://" + dialable(c.Listen)
	}
	if u, err := url.Parse(told); err != nil || !isLoopback(u.Hostname()) {
		return nil // an invalid one is refused elsewhere
	}
	return fmt.Errorf("--nats-url is on another host, and %s is what the sidecars there would send workers to, which is their own host: "+
		"give --advertise-url https://HOST:9333, by which they reach this one (with --listen, --tokens and TLS: docs/two-hosts.md), or --advertise-url none if workers of this host alone use it", told)
}

// advertised is the URL by which others reach the sidecar, as it is configured; "" for none.
func (c RunConfig) advertised() string {
	if c.AdvertiseURL == notAdvertised {
		return ""
	}
	return strings.TrimSuffix(c.AdvertiseURL, "/")
}

// advertisesOthers tells whether callers are expected through the advertised URL whose user the
// kernel cannot know: they are on other hosts, or behind a proxy that speaks TLS for the
// sidecar.
func (c RunConfig) advertisesOthers() bool {
	u, err := url.Parse(c.advertised())
	return c.advertised() != "" && (err != nil || !isLoopback(u.Hostname()) || u.Scheme == "https" && c.TLSCert == "")
}

// validateProofs checks the settings by which callers are identified.
func (c RunConfig) validateProofs() error {
	if (c.TLSCert == "") != (c.TLSKey == "") {
		return fmt.Errorf("--tls-cert and --tls-key go together: only one is given")
	}
	if c.ClientCA != "" && (c.TLSCert == "" || c.Tokens == "") {
		return fmt.Errorf("--client-ca: give --tls-cert and --tls-key too, and --tokens, whose list certificates says whose they are")
	}
	if err := c.validateAdvertised(); err != nil {
		return err
	}
	if _, _, err := c.peers(); err != nil {
		return err
	}
	if _, err := c.gate(zerolog.Nop()); err != nil {
		return err
	}
	_, err := c.tls(zerolog.Nop())
	return err
}

// peers reads --allow-uid and --trusted-proxy.
func (c RunConfig) peers() (users []principal.Principal, proxies []netip.Prefix, _ error) {
	for _, text := range c.AllowUID {
		p, err := principal.ParseUser(text)
		if err != nil {
			return nil, nil, fmt.Errorf("--allow-uid: %w", err)
		}
		for _, other := range users {
			if other.Name == p.Name {
				return nil, nil, fmt.Errorf("--allow-uid: user %d is named twice", *p.UID)
			}
		}
		users = append(users, p)
	}
	for _, text := range c.TrustedProxy {
		prefix, err := netip.ParsePrefix(text)
		if addr, addrErr := netip.ParseAddr(text); addrErr == nil {
			prefix, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if err != nil {
			return nil, nil, fmt.Errorf("--trusted-proxy %q: want addresses such as 10.0.0.0/8", text)
		}
		proxies = append(proxies, prefix.Masked())
	}
	return users, proxies, nil
}

// gate makes the gate that identifies callers. With --token-file callers have to show its API
// token, as that flag has always required; only --allow-uid makes an exception for a user.
func (c RunConfig) gate(log zerolog.Logger) (*principal.Gate, error) {
	g, err := principal.NewGate(principal.Options{
		Own: uint32(os.Geteuid()), Users: c.Users, OnlyNamedUsers: c.advertisesOthers() || c.TokenFile != "", Token: c.Token, File: c.Tokens, Log: log,
	})
	if err != nil {
		return nil, fmt.Errorf("--tokens: %w", err)
	}
	return g, nil
}

// tls is the TLS configuration of listeners; nil if they speak plain HTTP.
func (c RunConfig) tls(log zerolog.Logger) (*tls.Config, error) {
	if c.TLSCert == "" {
		return nil, nil
	}
	config, err := tlsfiles.Config(tlsfiles.Paths{Certificate: c.TLSCert, Key: c.TLSKey, ClientCA: c.ClientCA}, log)
	if err != nil {
		flags := "--tls-cert, --tls-key"
		if c.ClientCA != "" {
			flags += ", --client-ca"
		}
		return nil, fmt.Errorf("%s: %w", flags, err)
	}
	return config, nil
}

// scheme is the URL scheme of the sidecar's listeners.
func (c RunConfig) scheme() string {
	if c.TLSCert != "" {
		return "https"
	}
	return "http"
}

// url is the URL at which a person on this host reaches the sidecar.
func (s *service) url() string {
	if at := s.config.advertised(); at != "" {
		return at
	}
	return s.config.scheme() + "://" + dialable(s.listener.Addr().String())
}

// toldOthers is the URL that other sidecars send workers to; "" for none.
func (s *service) toldOthers() string {
	if s.config.AdvertiseURL == notAdvertised {
		return ""
	}
	return s.url()
}
