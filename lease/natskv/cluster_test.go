package natskv

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"leasehold/internal/natsd"
	"leasehold/internal/test/freeport"
)

// startCluster runs three clustered servers in this process, synced at every
// write, and returns their URLs.
func startCluster(t testing.TB) []string {
	t.Helper()
	const n = 3
	var routes []*url.URL
	ports := freeport.Take(t, n)
	for _, port := range ports {
		routes = append(routes, &url.URL{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", port)})
	}
	var servers []*server.Server
	var urls []string
	for i := range n {
		servers = append(servers, serve(t, &server.Options{
			ServerName: fmt.Sprintf("n%d", i), Host: "127.0.0.1", Port: server.RANDOM_PORT,
			JetStream: true, StoreDir: t.TempDir(), SyncAlways: true, NoSigs: true, NoLog: true,
			Cluster: server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: ports[i]}, Routes: routes,
		}))
	}
	awaitCluster(t, servers)
	for _, s := range servers {
		urls = append(urls, s.ClientURL())
	}
	return urls
}

// serve runs a server until the test ends.
func serve(t testing.TB, o *server.Options) *server.Server {
	t.Helper()
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	return s
}

// awaitCluster waits until the servers are one cluster.
func awaitCluster(t testing.TB, servers []*server.Server) {
	t.Helper()
	for _, s := range servers {
		if !s.ReadyForConnections(30 * time.Second) {
			t.Fatal("a server of the cluster is not ready")
		}
	}
	deadline := time.Now().Add(30 * time.Second)
	for _, s := range servers {
		for !s.JetStreamIsCurrent() || len(s.JetStreamClusterPeers()) < len(servers) && s.JetStreamIsLeader() {
			if time.Now().After(deadline) {
				t.Fatal("the cluster did not form")
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
}

func dialPlain(t *testing.T, url string) *nats.Conn {
	t.Helper()
	nc, err := natsd.Dial(t.Context(), natsd.Target{URL: url}, zerolog.Nop(), nats.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}
