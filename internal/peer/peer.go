// Package peer asks the kernel whose socket is at the other end of a connection on this host.
package peer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// ErrNotLocal says that the other end of a connection is not on this host's loopback, so that
// this host's kernel does not know its user.
var ErrNotLocal = errors.New("the peer is not on this host's loopback interface")

// Socket is a socket of this host, as the kernel knows it.
type Socket struct {
	// UID is the user who made it.
	UID uint32
	// Inode is its number, which links it to the processes that have it open.
	Inode uint32
}

// Of returns the socket at the other end of c, a TCP connection on the loopback interface. The
// error is ErrNotLocal for any other connection, and fs.ErrNotExist if the other end is closed
// already, since the kernel then forgets the user.
func Of(c net.Conn) (Socket, error) {
	local, ok := c.LocalAddr().(*net.TCPAddr)
	remote, ok2 := c.RemoteAddr().(*net.TCPAddr)
	if !ok || !ok2 {
		return Socket{}, ErrNotLocal
	}
	return at(remote.AddrPort(), local.AddrPort())
}

// UID returns the user of the socket at the other end of c, with the errors of Of.
func UID(c net.Conn) (uint32, error) {
	s, err := Of(c)
	return s.UID, err
}

// Name is how logs name a user: "uid 1000".
func Name(uid uint32) string { return fmt.Sprintf("uid %d", uid) }

// at is Of for the two addresses of a connection: that of the other end, local, and this one's,
// remote. The latter has to be the exact address of the connection and not a wildcard: somebody
// else may have a socket with the same ports.
func at(local, remote netip.AddrPort) (Socket, error) {
	local = netip.AddrPortFrom(local.Addr().Unmap(), local.Port())
	remote = netip.AddrPortFrom(remote.Addr().Unmap(), remote.Port())
	// A packet with a loopback address at either end cannot have come over a wire: the kernel
	// drops such packets.
	if !local.Addr().IsLoopback() || !remote.Addr().IsLoopback() {
		return Socket{}, ErrNotLocal
	}
	// An IPv6 socket that talks IPv4 is found by its IPv4 addresses.
	question := request(local, remote)
	answer, err := ask(question)
	if errors.Is(err, unix.ENOENT) {
		return Socket{}, gone(local)
	}
	if err != nil {
		return Socket{}, fmt.Errorf("user of the peer %s: asking the kernel (sock_diag): %w", local, err)
	}
	return read(answer, question, local)
}

func gone(local netip.AddrPort) error {
	return fmt.Errorf("user of the peer %s: its socket is closed: %w", local, fs.ErrNotExist)
}

// The layout of struct inet_diag_req_v2 and struct inet_diag_msg, from linux/inet_diag.h.
// Both contain a struct inet_diag_sockid: ports and addresses, in network byte order, the
// interface and a cookie.
const (
	requestLen  = 56
	requestID   = 8 // where the socket's id begins
	answerLen   = 72
	answerID    = 4
	addressLen  = 36 // both ports and both addresses: the id without interface and cookie
	answerUID   = 64
	answerInode = 68

	stateListen = 10 // TCP_LISTEN of linux/tcp_states.h
)

// request asks for one socket by all four parts of its address. A dump with a filter
// would not do: the kernel filters by ports only, and somebody may have a socket with
// the same ports on another address of the loopback interface.
func request(local, remote netip.AddrPort) []byte {
	b := make([]byte, requestLen)
	b[0] = unix.AF_INET
	if local.Addr().Is6() {
		b[0] = unix.AF_INET6
	}
	b[1] = unix.IPPROTO_TCP
	binary.NativeEndian.PutUint32(b[4:], ^uint32(0)) // any state
	id := b[requestID:]
	binary.BigEndian.PutUint16(id[0:], local.Port())
	binary.BigEndian.PutUint16(id[2:], remote.Port())
	copy(id[4:20], local.Addr().AsSlice())
	copy(id[20:36], remote.Addr().AsSlice())
	for i := 40; i < 48; i++ {
		id[i] = 0xff // no cookie
	}
	return b
}

// read checks that the answer is about the socket in question, and returns it. A
// listening socket is not an answer: the kernel names one on that port if there is no
// connection. A socket without an inode no longer belongs to a process, and the kernel reports
// user 0 for it.
func read(answer, question []byte, local netip.AddrPort) (Socket, error) {
	if len(answer) < answerLen {
		return Socket{}, fmt.Errorf("user of the peer %s: the kernel answered with %d bytes, want %d", local, len(answer), answerLen)
	}
	id, asked := answer[answerID:answerID+addressLen], question[requestID:requestID+addressLen]
	// The kernel finds an IPv6 socket that talks IPv4, and names its addresses as IPv6 has them.
	mapped := answer[0] == unix.AF_INET6 && question[0] == unix.AF_INET
	same := string(id[:4]) == string(asked[:4]) && address(id[4:20], answer[0]) == address(asked[4:20], question[0]) &&
		address(id[20:36], answer[0]) == address(asked[20:36], question[0]) && (answer[0] == question[0] || mapped)
	inode := binary.NativeEndian.Uint32(answer[answerInode:])
	if !same || inode == 0 || answer[1] == stateListen {
		return Socket{}, gone(local)
	}
	return Socket{UID: binary.NativeEndian.Uint32(answer[answerUID:]), Inode: inode}, nil
}

// address reads an address of a socket's family.
func address(b []byte, family byte) netip.Addr {
	if family == unix.AF_INET {
		b = b[:4]
	}
	a, _ := netip.AddrFromSlice(b)
	return a.Unmap()
}
