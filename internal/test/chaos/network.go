package chaos

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
)

// network is where the processes stand. Isolated, each place is a network
// namespace with one link to the harness's own, which routes between them; a cut
// is a rule there that drops what goes from one to another, silently and in one
// direction. Otherwise each place is an address of the loopback interface, and
// nothing can be cut.
type network struct {
	isolated bool
	harness  string // its address

	mu   sync.Mutex
	cuts int
}

// place is one host.
type place struct {
	net  *network
	name string
	ip   string
}

// newNetwork prepares the harness's own place. It has to run in namespaces made
// for it (see isolate), if isolated.
func newNetwork(isolated bool) (*network, error) {
	if !isolated {
		// Runs at the same time get addresses of their own.
		return &network{harness: fmt.Sprintf("127.%d.%d.1", 1+os.Getpid()/256%250, os.Getpid()%256)}, nil
	}
	n := &network{isolated: true, harness: "10.99.0.1"}
	if err := os.MkdirAll("/run/netns", 0o755); err != nil {
		return nil, err
	}
	for _, c := range []string{
		"mount -t tmpfs none /run/netns", // named namespaces vanish with the harness
		"ip link set lo up",
		"ip addr add 10.99.0.1/32 dev lo",
	} {
		if err := run(c); err != nil {
			return nil, err
		}
	}
	return n, os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644)
}

// run runs a command line without quoting, and returns what it printed as its
// error.
func run(line string) error {
	fields := strings.Fields(line)
	if out, err := exec.Command(fields[0], fields[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", line, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// place makes the n-th place of a group: nodes are 1, launchers 2.
func (n *network) place(name string, group, index int) (*place, error) {
	p := &place{net: n, name: name}
	if !n.isolated {
		p.ip = strings.TrimSuffix(n.harness, "1") + strconv.Itoa(group*20+index)
		return p, nil
	}
	p.ip = fmt.Sprintf("10.99.%d.%d", group, index)
	for _, c := range []string{
		"ip netns add NAME",
		"ip link add NAME type veth peer name eth0 netns NAME",
		"ip addr add 10.99.0.1 peer IP dev NAME",
		"ip link set NAME up",
		"ip -n NAME link set lo up",
		"ip -n NAME addr add IP/32 dev eth0",
		"ip -n NAME link set eth0 up",
		"ip -n NAME route add 10.99.0.1 dev eth0",
		"ip -n NAME route add default via 10.99.0.1",
	} {
		if err := run(strings.NewReplacer("NAME", name, "IP", p.ip).Replace(c)); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// command prefixes a command so that it runs in the place. The process is the
// command itself, under the same pid.
func (p *place) command(args ...string) []string {
	if !p.net.isolated {
		return args
	}
	return append([]string{"nsenter", "--net=/run/netns/" + p.name, "--"}, args...)
}

// cut drops what goes from one place to others, until the function that it
// returns is called.
func (n *network) cut(from *place, to ...*place) (mend func() error, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cuts++
	priority := 100 + n.cuts
	mend = func() error {
		for range to {
			if err := run(fmt.Sprintf("ip rule del prio %d", priority)); err != nil {
				return err
			}
		}
		return nil
	}
	for _, t := range to {
		if err := run(fmt.Sprintf("ip rule add from %s to %s prio %d blackhole", from.ip, t.ip, priority)); err != nil {
			return nil, err
		}
	}
	return mend, nil
}
