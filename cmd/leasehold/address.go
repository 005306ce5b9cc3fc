package main

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"

	"leasehold/internal/connlimit"
)

// splitAddress returns the host of host:port.
func splitAddress(flag, address string) (host string, err error) {
	host, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return "", fmt.Errorf("%s %q: want host:port such as 127.0.0.1:9333", flag, address)
	}
	return host, nil
}

// isLoopback tells whether an address with this host part can be reached from this host
// only. A name other than localhost could stand for any address.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// dialable is an address at which a listener can be reached from this host.
func dialable(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return listen
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
