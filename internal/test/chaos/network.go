package chaos

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"

	"leasehold/internal/procfs"
)

// network connects the processes. If it is isolated, each endpoint is a network
// namespace with a link to the harness's namespace, which routes between them. A cut is
// a rule there that silently drops packets in one direction. Otherwise each endpoint is
// an address of the loopback interface, and nothing can be cut.
type network struct {
	isolated bool
	harness  string // the harness's address

	mu   sync.Mutex
	cuts int
}

// endpoint is where the processes of one host are in the network.
type endpoint struct {
	net  *network
	name string
	ip   string
}

// newNetwork prepares the harness's own endpoint. With isolated it has to run in
// namespaces of its own (see isolate).
func newNetwork(isolated bool) (*network, error) {
	if !isolated {
		// Runs at the same time get different addresses.
		return &network{harness: fmt.Sprintf("127.%d.%d.1", 1+os.Getpid()/256%250, os.Getpid()%256)}, nil
	}
	n := &network{isolated: true, harness: "10.99.0.1"}
	if err := os.MkdirAll("/run/netns", 0o755); err != nil {
		return nil, err
	}
	for _, c := range []string{
		"mount -t tmpfs none /run/netns", // named namespaces disappear with the harness
		"ip link set lo up",
		"ip addr add 10.99.0.1/32 dev lo",
	} {
		if err := run(c); err != nil {
			return nil, err
		}
	}
	return n, os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644)
}

// run runs a command line, which it splits at spaces. The error contains what the
// command printed.
func run(line string) error {
	fields := strings.Fields(line)
	if out, err := exec.Command(fields[0], fields[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", line, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// endpoint makes the endpoint with an index of a group: group 1 are the nodes, group 2
// the launchers.
func (n *network) endpoint(name string, group, index int) (*endpoint, error) {
	p := &endpoint{net: n, name: name}
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

// command returns a command line that runs a command at the endpoint. The command keeps
// the pid of the process that is started.
func (p *endpoint) command(args ...string) []string {
	if !p.net.isolated {
		return args
	}
	return append([]string{"nsenter", "--net=/run/netns/" + p.name, "--"}, args...)
}

// processes are the ids of all processes at the endpoint, which has to have a network of its own.
func (p *endpoint) processes() ([]int, error) {
	own, err := os.Stat("/run/netns/" + p.name)
	if err != nil {
		return nil, err
	}
	pids, err := procfs.PIDs()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(pids, func(pid int) bool {
		its, err := os.Stat(fmt.Sprintf("/proc/%d/ns/net", pid))
		return err != nil || !os.SameFile(own, its)
	}), nil
}

// cut drops the packets from one endpoint to others, until heal is called.
func (n *network) cut(from *endpoint, to ...*endpoint) (heal func() error, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cuts++
	priority := 100 + n.cuts
	heal = func() error {
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
	return heal, nil
}
