package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"leasehold/internal/boottime"
	"leasehold/internal/natsd"
	"leasehold/lease"
	"leasehold/lease/natskv"
)

// bucketStream is the stream of the lease bucket.
const bucketStream = "KV_" + natskv.Bucket

// node is one nats-server.
type node struct {
	*process
	endpoint *endpoint
	dir      *disk
	config   string
}

func (n *node) url() string { return fmt.Sprintf("nats://%s:%d", n.endpoint.ip, clientPort) }

func (n *node) storeDir() string { return filepath.Join(n.dir.path, "jetstream") }

// store is the NATS server or cluster that the launchers share.
type store struct {
	nodes []*node
	// stranger is a server that stands alone.
	stranger *stranger
	history  *History
	dir      string

	mu    sync.Mutex
	epoch int
	wall  time.Time
}

const clientPort, routePort = 4222, 6222

func newStore(c Config, net *network, h *History, dir string) (*store, error) {
	s := &store{history: h, dir: dir}
	for i := range c.Nodes {
		n, err := newNode(c, net, dir, fmt.Sprintf("n%d", i+1), i+1)
		if err != nil {
			return nil, err
		}
		s.nodes = append(s.nodes, n)
	}
	alone, err := newNode(c, net, dir, "stranger", c.Nodes+1)
	if err != nil {
		return nil, err
	}
	s.stranger = &stranger{alone}
	err = os.WriteFile(alone.config, []byte(alone.settings()), 0o600)
	return s, errors.Join(err, s.each(func(n *node) error {
		return os.WriteFile(n.config, []byte(n.settings()+s.cluster(n)), 0o600)
	}))
}

func newNode(c Config, net *network, dir, name string, index int) (*node, error) {
	p, err := net.endpoint(name, 1, index)
	if err != nil {
		return nil, err
	}
	d, err := newDisk(net.isolated, filepath.Join(dir, p.name))
	if err != nil {
		return nil, err
	}
	n := &node{endpoint: p, dir: d, config: filepath.Join(dir, p.name+".conf")}
	n.process = newProcess(p.name, filepath.Join(c.LogDir, p.name+".log"), func() []string {
		return p.command(c.NATSServer, "-c", n.config)
	})
	return n, nil
}

// settings are the node's own, and cluster is what joins it with the others, if there are any.
func (n *node) settings() string {
	return fmt.Sprintf(`
server_name: %s
listen: %s:%d
jetstream { store_dir: %q, sync_interval: always, max_file_store: 8GB, max_memory_store: 64MB }
`, n.endpoint.name, n.endpoint.ip, clientPort, n.dir.path)
}

func (s *store) cluster(n *node) string {
	if len(s.nodes) == 1 {
		return ""
	}
	var routes []string
	for _, other := range s.nodes {
		routes = append(routes, fmt.Sprintf("nats://%s:%d", other.endpoint.ip, routePort))
	}
	return fmt.Sprintf("cluster { name: chaos, listen: %s:%d, routes: [%s] }\n", n.endpoint.ip, routePort, strings.Join(routes, ", "))
}

// urls are the URLs for clients, separated by commas.
func (s *store) urls() string {
	var urls []string
	for _, n := range s.nodes {
		urls = append(urls, n.url())
	}
	return strings.Join(urls, ",")
}

func (s *store) endpoints() []*endpoint {
	var endpoints []*endpoint
	for _, n := range s.nodes {
		endpoints = append(endpoints, n.endpoint)
	}
	return endpoints
}

func (s *store) each(f func(*node) error) error {
	var errs []error
	for _, n := range s.nodes {
		errs = append(errs, f(n))
	}
	return errors.Join(errs...)
}

// connect opens a connection of the harness's own.
func (s *store) connect(ctx context.Context) (*nats.Conn, jetstream.JetStream, error) {
	return connect(ctx, s.urls())
}

func connect(ctx context.Context, urls string) (*nats.Conn, jetstream.JetStream, error) {
	nc, err := natsd.Dial(ctx, natsd.Target{URL: urls}, zerolog.Nop())
	if err != nil {
		return nil, nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return nil, nil, err
	}
	return nc, js, nil
}

// ready waits until JetStream answers.
func (s *store) ready(ctx context.Context) error { return ready(ctx, s.urls()) }

func ready(ctx context.Context, urls string) error {
	for {
		err := func() error {
			ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
			defer cancel()
			nc, js, err := connect(ctx, urls)
			if err != nil {
				return err
			}
			defer nc.Close()
			_, err = js.AccountInfo(ctx)
			return err
		}()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("nats is not ready: %w", err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// replicate gives every stream a replica on each node, as an operator of a cluster
// does. The launchers create their streams with one.
func (s *store) replicate(ctx context.Context) error {
	if len(s.nodes) == 1 {
		return nil
	}
	nc, js, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer nc.Close()
	streams := js.ListStreams(ctx)
	for info := range streams.Info() {
		if c := info.Config; c.Replicas < len(s.nodes) {
			c.Replicas = len(s.nodes)
			if _, err := js.UpdateStream(ctx, c); err != nil {
				return err
			}
		}
	}
	return streams.Err()
}

// generation returns the epoch, and the wall clock's time at its beginning.
func (s *store) generation() (int, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.epoch, s.wall
}

// beginEpoch begins a new epoch.
func (s *store) beginEpoch(how string) {
	s.mu.Lock()
	s.epoch++
	s.wall = s.history.wall(boottime.Now())
	e := Entry{Kind: Epoch, Epoch: s.epoch, Wall: s.wall, Text: how}
	s.mu.Unlock()
	s.history.Add(e)
}

// wipe stops every node, and deletes what the nodes stored.
func (s *store) wipe() error {
	return s.setBack("wiped", func(n *node) error { return os.RemoveAll(n.storeDir()) })
}

// copy copies what the nodes have stored now, as a power failure would leave it.
func (s *store) copy() error {
	err := s.each(func(n *node) error { return n.signal(syscall.SIGSTOP) })
	if err == nil {
		err = s.each(func(n *node) error {
			kept := filepath.Join(s.dir, n.endpoint.name+".copy")
			return errors.Join(os.RemoveAll(kept), run("cp -a "+n.storeDir()+" "+kept))
		})
	}
	return errors.Join(err, s.each(func(n *node) error { return n.signal(syscall.SIGCONT) }))
}

// rollBack replaces what the nodes have stored by the copy.
func (s *store) rollBack() error {
	return s.setBack("rolled back", func(n *node) error {
		return errors.Join(os.RemoveAll(n.storeDir()), run("cp -a "+filepath.Join(s.dir, n.endpoint.name+".copy")+" "+n.storeDir()))
	})
}

func (s *store) setBack(how string, change func(*node) error) error {
	err := s.each((*node).kill)
	if err == nil {
		err = s.each(change)
	}
	err = errors.Join(err, s.each((*node).start))
	ctx, cancel := context.WithTimeout(context.Background(), healTime)
	defer cancel()
	err = errors.Join(err, s.ready(ctx))
	s.beginEpoch(how)
	return err
}

// deleteStreams deletes streams of the launchers through the API, as a person might do
// by mistake. It tries again while the cluster elects a leader.
func (s *store) deleteStreams(ctx context.Context, names ...string) error {
	ctx, cancel := context.WithTimeout(ctx, healTime)
	defer cancel()
	nc, js, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer nc.Close()
	for _, name := range names {
		for {
			limited, cancel := context.WithTimeout(ctx, 5*time.Second)
			err := js.DeleteStream(limited, name)
			cancel()
			if err == nil || errors.Is(err, jetstream.ErrStreamNotFound) {
				break
			}
			if ctx.Err() != nil {
				return fmt.Errorf("delete stream %s: %w", name, err)
			}
			sleep(ctx, 200*time.Millisecond)
		}
	}
	s.beginEpoch("deleted " + strings.Join(names, " and "))
	return nil
}

// stranger is a server that stands alone, as one does whose configuration lacks the cluster.
type stranger struct{ *node }

// begin starts it, with nothing stored.
func (s *stranger) begin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, healTime)
	defer cancel()
	return errors.Join(os.RemoveAll(s.storeDir()), s.start(), ready(ctx, s.url()))
}

// held are the leases that are stored at it.
func (s *stranger) held(ctx context.Context) (held []lease.Record, err error) {
	ctx, cancel := context.WithTimeout(ctx, healTime)
	defer cancel()
	nc, js, err := connect(ctx, s.url())
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	kv, err := js.KeyValue(ctx, natskv.Bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	keys, err := kv.Keys(ctx)
	if errors.Is(err, jetstream.ErrNoKeysFound) {
		return nil, nil
	}
	for _, key := range keys {
		e, getErr := kv.Get(ctx, key)
		if getErr != nil {
			return nil, getErr
		}
		var r lease.Record
		if err := json.Unmarshal(e.Value(), &r); err != nil {
			return nil, fmt.Errorf("record of %s: %w", key, err)
		}
		if r.State == lease.Held {
			held = append(held, r)
		}
	}
	return held, err
}
