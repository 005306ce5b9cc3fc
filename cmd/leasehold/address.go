package main

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
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

// isLoopback tells whether nobody but this host can reach an address of the
// host. Names other than localhost could mean anything.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// dialable is the address under which a listener can be reached from this host.
func dialable(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return listen
}

// serverURL is where a person on this host reaches the sidecar.
func serverURL(c RunConfig, addr string) string {
	if c.AdvertiseURL != "" {
		return strings.TrimSuffix(c.AdvertiseURL, "/")
	}
	scheme := "http"
	if c.TLSCert != "" {
		scheme = "https"
	}
	host, port, err := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsUnspecified() {
		addr = net.JoinHostPort("127.0.0.1", port)
	}
	return scheme + "://" + addr
}

// listen opens a TCP port, or says which flag to change.
func listen(flag, address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, exitWith(exitAddressInUse, "%s %s is in use by another process: stop that one, or give another address", flag, address)
	case err != nil:
		return nil, exitWith(exitUsage, "%s: %w", flag, err)
	}
	return l, nil
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
