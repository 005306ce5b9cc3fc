package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"leasehold/internal/test/freeport"
)

// roleNode is the first argument of this test program where it is to be a NATS server, with the
// path of its configuration. It costs nothing to build, other than nats-server itself, whose
// code it runs.
const roleNode = "nats-server"

// serveNode is a nats-server until it is killed, or its standard input is closed: the test that
// started it has ended then.
func serveNode(config string) {
	o, err := server.ProcessConfigFile(config)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	o.NoSigs = true
	s, err := server.NewServer(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	s.ConfigureLogger()
	s.Start()
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// natsNode is one node of a cluster of NATS servers, each a process of its own.
type natsNode struct {
	URL    string
	config string
	cmd    *exec.Cmd
	stdin  io.Closer
}

// natsNodes starts a cluster of three nodes, which end with the test.
func natsNodes(t *testing.T) []*natsNode {
	t.Helper()
	const count = 3
	dir := t.TempDir()
	ports := freeport.Take(t, 2*count)
	var routes []string
	for i := range count {
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", ports[count+i]))
	}
	var nodes []*natsNode
	for i := range count {
		n := &natsNode{URL: fmt.Sprintf("nats://127.0.0.1:%d", ports[i]), config: filepath.Join(dir, fmt.Sprintf("n%d.conf", i+1))}
		text := fmt.Sprintf(`server_name: n%[1]d
listen: "127.0.0.1:%[2]d"
jetstream { store_dir: %[3]q, sync_interval: always }
cluster { name: demo, listen: "127.0.0.1:%[4]d", routes: [%[5]s] }
log_file: %[6]q
`, i+1, ports[i], filepath.Join(dir, fmt.Sprintf("n%d", i+1)), ports[count+i], strings.Join(routes, ", "), n.config+".log")
		if err := os.WriteFile(n.config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { n.kill(t) })
		n.start(t)
		nodes = append(nodes, n)
	}
	return nodes
}

// start starts the node, with what it stored.
func (n *natsNode) start(t *testing.T) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	n.cmd = exec.Command(self, roleNode, n.config)
	n.cmd.Stderr = os.Stderr
	if n.stdin, err = n.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := n.cmd.Start(); err != nil {
		t.Fatal(err)
	}
}

// kill ends the node by SIGKILL.
func (n *natsNode) kill(t *testing.T) {
	t.Helper()
	if n.cmd == nil || n.cmd.ProcessState != nil {
		return
	}
	if err := errors.Join(n.cmd.Process.Kill(), n.stdin.Close()); err != nil {
		t.Error(err)
	}
	_ = n.cmd.Wait() // that it was killed
}

// clusterURL are the addresses of all nodes, as launchers want them.
func clusterURL(nodes []*natsNode) string {
	var urls []string
	for _, n := range nodes {
		urls = append(urls, n.URL)
	}
	return strings.Join(urls, ",")
}

// awaitNodes waits until JetStream of the cluster answers through each of the nodes, so that a
// launcher finds it at once.
func awaitNodes(t *testing.T, nodes []*natsNode) {
	t.Helper()
	for _, n := range nodes {
		eventually(t, "the NATS cluster at "+n.URL, func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			nc, err := nats.Connect(n.URL)
			if err != nil {
				return err
			}
			defer nc.Close()
			js, err := jetstream.New(nc)
			if err == nil {
				_, err = js.AccountInfo(ctx)
			}
			return err
		})
	}
}
