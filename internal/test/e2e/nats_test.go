package e2e

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"leasehold/internal/test/clients"
	"leasehold/internal/test/testchrome"
	"leasehold/lease"
)

// natsServer is a NATS server outside the sidecar, which can be stopped and started
// again with what it stored.
type natsServer struct {
	dir    string
	port   int
	server *server.Server
}

func (n *natsServer) start(t *testing.T) {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: n.port, JetStream: true, StoreDir: n.dir, SyncAlways: true, NoSigs: true, NoLog: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	if !s.ReadyForConnections(testchrome.Patience) {
		t.Fatal("the NATS server does not start")
	}
	n.server = s
	if addr := s.Addr(); addr != nil {
		if _, err := fmt.Sscanf(addr.String(), "127.0.0.1:%d", &n.port); err != nil {
			t.Fatal(err)
		}
	}
}

func (n *natsServer) stop() {
	n.server.Shutdown()
	n.server.WaitForShutdown()
}

// TestNATSIsAway: without NATS nothing is granted, and the holder stops by its own
// clock. When NATS is back, everything works again, including recovery.
func TestNATSIsAway(t *testing.T) {
	t.Parallel()
	n := &natsServer{dir: t.TempDir(), port: -1}
	n.start(t)
	defer func() { n.stop() }()
	s, web := start(t, "--nats-url", fmt.Sprintf("nats://127.0.0.1:%d", n.port), "--lease-ttl", "4s"), newSite(t)
	c := clients.Start(t, clients.Playwright, s.oneShot("away", "worker=w&task=t"), clients.Interactive)
	c.Expect(t, "connect")
	c.Do(t, act("goto", "url", web.URL+"/"))
	held := s.record(t, "away")

	n.stop()
	eventually(t, "503 for a new grant", func() error {
		var problem map[string]any
		code := s.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": "other", "create": true}, &problem)
		if code != 503 || problem["code"] != "lease_store_unavailable" {
			return fmt.Errorf("%d %v", code, problem)
		}
		return nil
	})
	eventually(t, "the holder to stop", func() error {
		if left := s.browsers(t); len(left) != 0 {
			return fmt.Errorf("browsers %v", left)
		}
		return nil
	})
	c.Send(t, act("evaluate", "expression", "1"))
	if line, err := c.Next(); err == nil && line.OK {
		t.Error("a command passed after the lease expired")
	}

	n.start(t)
	r := s.until(t, "away", lease.Available, lease.ManualReview)
	if r.Token != held.Token+1 || r.EvidenceID == "" || r.Reason != "lease_lost" {
		t.Errorf("%+v", r)
	}
	s.screenshot(t, "away")
	eventually(t, "a grant", func() error {
		var ses map[string]any
		if code := s.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": "other", "create": true}, &ses); code != 201 {
			return fmt.Errorf("%d %v", code, ses)
		}
		return nil
	})
}
