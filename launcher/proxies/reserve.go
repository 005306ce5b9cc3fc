package proxies

import (
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// reserve returns a socket that is bound to an address of the loopback interface, and does not
// listen. As long as it is open, in whatever process, nobody can listen at the address but this
// user, with SO_REUSEPORT: the kernel refuses every other user, also at the wildcard addresses.
// The error is EADDRINUSE if the address is taken, be it by this user.
func reserve(address string) (*os.File, error) {
	// Without SO_REUSEPORT this user's own sockets are in the way, too. What is left of closed
	// connections is not.
	alone, err := bind(address, unix.SO_REUSEADDR)
	if err != nil {
		return nil, err
	}
	if err := alone.Close(); err != nil {
		return nil, err
	}
	return bind(address, unix.SO_REUSEPORT)
}

// bind returns a TCP socket with the option that is bound to the address.
func bind(address string, option int) (*os.File, error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	f := os.NewFile(uintptr(fd), address)
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, 1); err != nil {
		_ = f.Close() // nothing was written
		return nil, os.NewSyscallError("setsockopt", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}); err != nil {
		_ = f.Close()
		return nil, os.NewSyscallError("bind "+address, err)
	}
	return f, nil
}
