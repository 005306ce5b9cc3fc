package natskv

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"leasehold/internal/natsd"
	"leasehold/internal/test/freeport"
)

// serversAt returns the servers of the URLs, and a launcher's connection to them with a store.
func serversAt(t *testing.T, urls ...string) (*Servers, *nats.Conn) {
	t.Helper()
	s, nc, _ := storeAt(t, urls...)
	return s, nc
}

// storeAt is serversAt with the store.
func storeAt(t *testing.T, urls ...string) (*Servers, *nats.Conn, *Store) {
	t.Helper()
	all := strings.Join(urls, ",")
	s := NewServers(ServersOptions{URL: all, Log: zerolog.Nop(), Dial: func(ctx context.Context, url string, more ...nats.Option) (*nats.Conn, error) {
		return natsd.Dial(ctx, natsd.Target{URL: url}, zerolog.Nop(), append(more, nats.NoReconnect(), nats.IgnoreDiscoveredServers())...)
	}})
	nc, err := natsd.Dial(t.Context(), natsd.Target{URL: all}, zerolog.Nop(), append(s.Options(), nats.Timeout(time.Minute))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return s, nc, open(t, nc)
}

// alone starts a server that is in no cluster, at a port, with the files in dir.
func alone(t *testing.T, name string, port int, dir string) *server.Server {
	t.Helper()
	s := serve(t, &server.Options{ServerName: name, Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: dir, SyncAlways: true, NoSigs: true, NoLog: true})
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the server did not start")
	}
	return s
}

// eventually waits until is holds.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never: " + what)
		}
	}
}

// Two servers that are no cluster have two stores, and the message names both.
func TestTwoServersThatAreNoClusterAreFound(t *testing.T) {
	a, b := alone(t, "first", server.RANDOM_PORT, t.TempDir()), alone(t, "second", server.RANDOM_PORT, t.TempDir())
	s, nc := serversAt(t, a.ClientURL(), b.ClientURL())
	var problem error
	eventually(t, "two standalone servers are no store", func() bool {
		s.Check(t.Context(), nc)
		problem = s.Problem()
		return problem != nil
	})
	for _, want := range []string{a.ClientURL(), b.ClientURL(), "server first", "server second", "are not one store"} {
		if !strings.Contains(problem.Error(), want) {
			t.Errorf("%q, want it to name %q", problem, want)
		}
	}
	b.Shutdown()
	if s.Check(t.Context(), nc); s.Problem() != nil && nc.ConnectedServerName() == "first" {
		t.Errorf("with one of them gone for good: %v", s.Problem())
	}
}

// A server that cannot be reached, or that never answers, is told, and differs from none.
func TestAServerThatCannotBeReachedDiffersFromNone(t *testing.T) {
	mute, err := net.Listen("tcp", "127.0.0.1:0") // it takes connections, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	a := alone(t, "first", server.RANDOM_PORT, t.TempDir())
	s, nc := serversAt(t, a.ClientURL())
	for _, one := range []string{"nats://127.0.0.1:1", "nats://" + mute.Addr().String(), "nats://nobody.invalid:4222"} {
		s.urls = append(s.urls, NewServers(ServersOptions{URL: one}).urls...)
	}
	unasked := s.Check(t.Context(), nc)
	if s.Problem() != nil || len(unasked) != 3 {
		t.Errorf("problem %v, not compared %v", s.Problem(), unasked)
	}
}

// The servers of one cluster are one store, whichever the connection goes to.
func TestAClusterIsOneStore(t *testing.T) {
	urls := startCluster(t)
	s, nc := serversAt(t, urls...)
	for range urls {
		eventually(t, "all are compared", func() bool {
			unasked := s.Check(t.Context(), nc)
			if s.Problem() != nil {
				t.Fatalf("the servers of a cluster are not one store: %v", s.Problem())
			}
			return len(unasked) == 0
		})
		connected := nc.StatusChanged(nats.CONNECTED)
		if err := nc.ForceReconnect(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-connected:
		case <-time.After(time.Minute):
			t.Fatalf("the connection does not go to another server of the cluster: %v", nc.LastError())
		}
	}
}

// The connection of a launcher does not go to a server that has another store, and both are named.
// When its own server is back, with or without what it had, everything goes on.
func TestAConnectionDoesNotGoToAnotherStore(t *testing.T) {
	ports := freeport.Take(t, 2)
	dir := t.TempDir()
	a := alone(t, "first", ports[0], dir)
	s, nc, store := storeAt(t, a.ClientURL())
	s.urls = NewServers(ServersOptions{URL: a.ClientURL() + fmt.Sprint(",nats://127.0.0.1:", ports[1])}).urls
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx, nc) }()
	defer func() { cancel(); <-done }()
	s.Check(t.Context(), nc)

	b := alone(t, "second", ports[1], t.TempDir())
	if err := nc.SetServerPool([]string{a.ClientURL(), b.ClientURL()}); err != nil {
		t.Fatal(err)
	}
	a.Shutdown()
	a.WaitForShutdown()
	eventually(t, "both are named", func() bool {
		p := s.Problem()
		return p != nil && strings.Contains(p.Error(), "server first") && strings.Contains(p.Error(), "server second")
	})
	if nc.IsConnected() {
		t.Errorf("the connection went to %s", nc.ConnectedServerName())
	}
	b.Shutdown()
	a = alone(t, "first", ports[0], dir)
	eventually(t, "the connection is back, and nothing speaks against it", func() bool { return nc.IsConnected() && s.Problem() == nil })
	a.Shutdown()
	a.WaitForShutdown()
	alone(t, "first", ports[0], t.TempDir()) // as if all was lost
	eventually(t, "the connection is back although its server lost everything", func() bool { return nc.IsConnected() && s.Problem() == nil })
	// A server that is shut down while it makes a stream leaves goroutines behind.
	if err := store.prepare(t.Context()); err != nil {
		t.Error(err)
	}
	store.Close()
	nc.Close()
}

// What two servers say of themselves decides whether they are one store. One that is too old for
// leases is none.
func TestWhatMakesServersOneStore(t *testing.T) {
	at := time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC)
	in := func(id, cluster string, told bool, made time.Time) Server {
		return Server{URL: "nats://" + id, Address: id, ID: id, Name: id, Version: "2.14.0", Cluster: cluster, Told: told, Made: made}
	}
	for name, tt := range map[string]struct {
		a, b       Server
		one, still bool // asked at the same time; b asked after a was gone
	}{
		"one server at two addresses":             {in("a", "", true, at), in("a", "", true, at), true, true},
		"two in no cluster":                       {in("a", "", true, at), in("b", "", true, at.Add(1)), false, false},
		"one with a copy of the other's files":    {in("a", "", true, at), in("b", "", true, at), false, true},
		"one without leases":                      {in("a", "", true, at), in("b", "", true, time.Time{}), false, false},
		"two that do not answer, in no cluster":   {in("a", "", false, at), in("b", "", false, at), false, false},
		"a cluster":                               {in("a", "c", true, at), in("b", "c", true, at), true, true},
		"a cluster whose bucket was made anew":    {in("a", "c", true, at), in("b", "c", true, at.Add(1)), false, true},
		"a cluster that elects":                   {in("a", "c", true, at), in("b", "c", false, time.Time{}), true, true},
		"two clusters, joined by a gateway":       {in("a", "c", true, at), in("b", "d", true, at), true, true},
		"two clusters":                            {in("a", "c", true, at), in("b", "d", true, at.Add(1)), false, false},
		"two clusters, or accounts, without any":  {in("a", "c", true, at), in("b", "d", true, time.Time{}), false, false},
		"another cluster that does not answer":    {in("a", "c", true, at), in("b", "d", false, time.Time{}), true, false},
		"a server without a cluster, and one in":  {in("a", "", true, at), in("b", "c", true, at.Add(1)), false, false},
		"a leaf, which has the store of the hub":  {in("a", "", true, at), in("b", "leaf", true, at), true, true},
		"two that never had any, in two clusters": {in("a", "c", true, time.Time{}), in("b", "d", true, time.Time{}), true, false},
	} {
		if one := areOne([]Server{tt.a, tt.b}) == nil; one != tt.one {
			t.Errorf("%s: one store %v, want %v", name, one, tt.one)
		}
		if still := isStill(tt.b, tt.a); still != tt.still {
			t.Errorf("%s: still %v, want %v", name, still, tt.still)
		}
	}
	old := in("a", "", true, at)
	old.Version = "2.11.9"
	if err := areOne([]Server{old}); err == nil || !strings.Contains(err.Error(), "want 2.12 or newer: upgrade it") {
		t.Errorf("a server that is too old: %v", err)
	}
}
