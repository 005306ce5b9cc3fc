package main

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"

	"leasehold/internal/natsd"
)

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

// checkNATS checks the URLs of one cluster, separated by commas, and that the files with
// the credentials and the certificates, if they are given, exist.
func checkNATS(to natsd.Target) error {
	for one := range strings.SplitSeq(to.URL, ",") {
		u, err := url.Parse(strings.TrimSpace(one))
		if err != nil || u.Host == "" || (u.Scheme != "nats" && u.Scheme != "tls" && u.Scheme != "ws" && u.Scheme != "wss") {
			// The URL is not quoted: it may contain a password.
			return fmt.Errorf("--nats-url: want nats://host:port, tls, ws or wss, several separated by commas")
		}
	}
	for flag, file := range map[string]string{"--nats-creds": to.Creds, "--nats-ca": to.CA} {
		if file == "" {
			continue
		}
		if _, err := os.Stat(file); err != nil {
			return fmt.Errorf("%s: %w", flag, err)
		}
	}
	return nil
}
