// Package sockets asks the kernel for the TCP sockets of this network namespace.
package sockets

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
)

// Socket is a row of /proc/net/tcp or tcp6.
type Socket struct {
	Port, RemotePort uint64
	Listening        bool
	Unsent, Unread   uint64 // bytes in the kernel
	Inode            string
}

// All returns the TCP sockets, those of IPv6 included.
func All() ([]Socket, error) {
	var sockets []Socket
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, err := os.ReadFile(table)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		rows := strings.Split(strings.TrimSpace(string(b)), "\n")
		for _, row := range rows[1:] {
			s, err := parse(row)
			if err != nil {
				return nil, fmt.Errorf("%s: %q: %w", table, row, err)
			}
			sockets = append(sockets, s)
		}
	}
	return sockets, nil
}

// Man page proc_pid_net(5).
func parse(row string) (s Socket, err error) {
	const local, remote, state, queues, inode, listen = 1, 2, 3, 4, 9, "0A"
	f := strings.Fields(row)
	if len(f) <= inode {
		return s, fmt.Errorf("%d fields, want more than %d", len(f), inode)
	}
	s.Listening, s.Inode = f[state] == listen, f[inode]
	for _, n := range []struct {
		field  string
		second bool
		into   *uint64
	}{{f[local], true, &s.Port}, {f[remote], true, &s.RemotePort}, {f[queues], false, &s.Unsent}, {f[queues], true, &s.Unread}} {
		text, after, _ := strings.Cut(n.field, ":")
		if n.second {
			text = after
		}
		if *n.into, err = strconv.ParseUint(text, 16, 64); err != nil {
			return s, err
		}
	}
	return s, nil
}

// UnderWay returns how many bytes were written to the server at the URL, and are not read by it
// yet. A connection that it has not accepted yet counts as one.
func UnderWay(server string) (bytes uint64, err error) {
	u, err := url.Parse(server)
	if err != nil {
		return 0, err
	}
	at, err := netip.ParseAddrPort(u.Host)
	if err != nil {
		return 0, fmt.Errorf("%s: the host has to be an address with a port: %w", server, err)
	}
	sockets, err := All()
	for _, s := range sockets {
		if s.Port == uint64(at.Port()) {
			bytes += s.Unread
		}
		if s.RemotePort == uint64(at.Port()) {
			bytes += s.Unsent
		}
	}
	return bytes, err
}
