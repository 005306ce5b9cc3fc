package peer

import (
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMain plays the other end in a process of another user: it connects from one
// address to another and stays until its input ends.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "connect" {
		from := &net.TCPAddr{}
		if os.Args[2] != "" {
			from = net.TCPAddrFromAddrPort(netip.MustParseAddrPort(os.Args[2]))
		}
		c, err := (&net.Dialer{LocalAddr: from, Timeout: 10 * time.Second}).Dial("tcp", os.Args[3])
		if err != nil {
			os.Stderr.WriteString(err.Error())
			os.Exit(1)
		}
		_, _ = os.Stdin.Read(make([]byte, 1))
		_ = c.Close()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// connectAs makes a connection to l in a process of the user, and returns this side of
// it and a function that ends the process.
func connectAs(t *testing.T, uid uint32, from string, l net.Listener) (net.Conn, func()) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "connect", from, l.Addr().String())
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("a process of user %d: %v (these tests run as root)", uid, err)
	}
	end := func() { _ = in.Close(); _ = cmd.Wait() }
	t.Cleanup(end)
	_ = l.(*net.TCPListener).SetDeadline(time.Now().Add(30 * time.Second))
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c, end
}

func listen(t *testing.T, address string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func TestTheKernelTellsTheUser(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		l := listen(t, address)
		for _, uid := range []uint32{65534, 12345, 0} {
			c, _ := connectAs(t, uid, "", l)
			if got, err := UID(c); err != nil || got != uid {
				t.Errorf("%s: user %d, error %v; want %d", address, got, err, uid)
			}
		}
	}
}

// An IPv4 client of a listener on all addresses has an IPv4 socket; this side's is an
// IPv6 one.
func TestBothFamiliesOnOneListener(t *testing.T) {
	l := listen(t, ":0")
	_, port, _ := net.SplitHostPort(l.Addr().String())
	four, err := net.Dial("tcp4", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	defer four.Close()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got, err := UID(c); err != nil || got != uint32(os.Getuid()) {
		t.Errorf("user %d, error %v; want %d", got, err, os.Getuid())
	}
}

// An IPv6 socket connects to an IPv4 address by the address that IPv6 has for it: Java does that.
func TestAnIPv6SocketThatTalksIPv4(t *testing.T) {
	l := listen(t, "127.0.0.1:0")
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	to := &unix.SockaddrInet6{Port: l.Addr().(*net.TCPAddr).Port, Addr: netip.MustParseAddr("::ffff:127.0.0.1").As16()}
	if err := unix.Connect(fd, to); err != nil {
		t.Fatal(err)
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var info unix.Stat_t
	if err := unix.Fstat(fd, &info); err != nil {
		t.Fatal(err)
	}
	if got, err := Of(c); err != nil || got != (Socket{UID: uint32(os.Getuid()), Inode: uint32(info.Ino)}) {
		t.Errorf("%+v, error %v; want inode %d", got, err, info.Ino)
	}
}

// Two users may have sockets with the same two ports, on other addresses of the
// loopback interface.
func TestTheAddressCountsNotThePortAlone(t *testing.T) {
	l := listen(t, "127.0.0.1:0")
	first, _ := connectAs(t, 65534, "", l)
	port := strconv.Itoa(first.RemoteAddr().(*net.TCPAddr).Port)
	second, _ := connectAs(t, 12345, "127.0.0.2:"+port, l)
	for _, c := range []struct {
		conn net.Conn
		want uint32
	}{{first, 65534}, {second, 12345}} {
		if got, err := UID(c.conn); err != nil || got != c.want {
			t.Errorf("%s: user %d, error %v; want %d", c.conn.RemoteAddr(), got, err, c.want)
		}
	}
}

// After the peer's end the kernel knows no user, and would say 0, which is root.
func TestAPeerThatLeftHasNoUser(t *testing.T) {
	l := listen(t, "127.0.0.1:0")
	c, end := connectAs(t, 65534, "", l)
	end()
	for range 100 { // its socket goes through FIN_WAIT2, and is nobody's from the start
		if uid, err := UID(c); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("user %d, error %v; want none", uid, err)
		}
	}
	// Somebody listens on the port that the peer had.
	other := c.RemoteAddr().String()
	_ = c.(*net.TCPConn).SetLinger(0)
	_ = c.Close()
	listen(t, other)
	if uid, err := UID(c); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a listening socket is taken for the peer: user %d, error %v", uid, err)
	}
}

func TestAPeerOfAnotherHostHasNoUser(t *testing.T) {
	for _, addresses := range [][2]string{{"192.0.2.1:9", "127.0.0.1:80"}, {"127.0.0.1:80", "192.0.2.1:9"}, {"[2001:db8::1]:9", "[::1]:80"}} {
		_, err := at(netip.MustParseAddrPort(addresses[0]), netip.MustParseAddrPort(addresses[1]))
		if !errors.Is(err, ErrNotLocal) {
			t.Errorf("%v: %v", addresses, err)
		}
	}
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if _, err := UID(a); !errors.Is(err, ErrNotLocal) {
		t.Errorf("a pipe: %v", err)
	}
}
