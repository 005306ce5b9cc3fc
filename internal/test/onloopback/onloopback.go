// Package onloopback asks the kernel what is under way to a server of a test.
package onloopback

import (
	"fmt"
	"net/netip"
	"net/url"

	"github.com/prometheus/procfs"
)

// UnderWay returns how many bytes were written to the loopback server at the URL, and are not read
// by it yet. A connection that it has not accepted yet counts as one.
func UnderWay(server string) (bytes uint64, err error) {
	u, err := url.Parse(server)
	if err != nil {
		return 0, err
	}
	at, err := netip.ParseAddrPort(u.Host)
	if err != nil {
		return 0, fmt.Errorf("%s: the host has to be an address with a port: %w", server, err)
	}
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, err
	}
	sockets, err := fs.NetTCP()
	if err != nil {
		return 0, err
	}
	for _, s := range sockets {
		if s.LocalPort == uint64(at.Port()) {
			bytes += s.RxQueue
		}
		if s.RemPort == uint64(at.Port()) {
			bytes += s.TxQueue
		}
	}
	return bytes, nil
}
