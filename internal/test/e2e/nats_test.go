package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"leasehold/internal/test/freeport"
	"leasehold/internal/test/testchrome"
	"leasehold/launcher/api"
	"leasehold/lease"
)

// natsServer is a NATS server outside the sidecar, which can be stopped and started
// again with what it stored.
type natsServer struct {
	dir    string
	port   int
	server *server.Server
}

// startNATS starts one, which ends with the test.
func startNATS(t *testing.T) *natsServer {
	t.Helper()
	n := &natsServer{dir: filepath.Join(t.TempDir(), "nats"), port: freeport.Take(t, 1)[0]} // which nobody else gets while it is stopped
	n.start(t)
	t.Cleanup(n.stop)
	return n
}

func (n *natsServer) url() string { return fmt.Sprint("nats://127.0.0.1:", n.port) }

// args are those of a sidecar that has its store there. In a store that is young, or whose launcher is
// gone, something is only granted when a lease would be over. So theirs are short, though not so short
// that a busy host loses one.
func (n *natsServer) args(more ...string) []string {
	return append([]string{"--nats-url", n.url(), "--lease-ttl", "15s"}, more...)
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
}

func (n *natsServer) stop() {
	n.server.Shutdown()
	n.server.WaitForShutdown()
}

// knowsWhileNATSIsAway shows what the sidecar says of a profile that it has, by itself: over REST,
// in the console and on the command line. What a person decides is refused, with the reason.
func (s *sidecar) knowsWhileNATSIsAway(t *testing.T, held api.Profile) {
	t.Helper()
	id := held.ProfileID
	eventually(t, "503 for a new grant", func() error {
		var problem map[string]any
		code := s.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": "other", "create": true}, &problem)
		if code != 503 || problem["code"] != "lease_store_unavailable" {
			return fmt.Errorf("%d %v", code, problem)
		}
		return nil
	})
	if r := s.record(t, id); r.StaleSince.IsZero() || r.State != lease.Held || r.Token != held.Token || r.SessionID != held.SessionID || r.LastKnownURL != held.LastKnownURL {
		t.Errorf("the record while NATS is away: %+v", r)
	}
	var problem map[string]any
	if code := s.call(t, "GET", "/v1/profiles/nobody", nil, &problem); code != 404 {
		t.Errorf("a profile that nobody saw: %d %v", code, problem)
	}
	page, err := http.Get(s.URL + "/console/" + id)
	if err != nil {
		t.Fatal(err)
	}
	defer page.Body.Close()
	body, err := io.ReadAll(page.Body)
	if err != nil || page.StatusCode != 200 || !bytes.Contains(body, []byte("cannot be reached since")) || !bytes.Contains(body, []byte("task <b><bdi>task_1</bdi>")) {
		t.Errorf("the page: %d, %v: %s", page.StatusCode, err, body)
	}
	out, err := exec.Command(binary, "show", id, "--url", s.URL).CombinedOutput()
	for _, want := range []string{"held by worker-7 for task task_1", "cannot reach NATS since", "the history cannot be read"} {
		if err != nil || !bytes.Contains(out, []byte(want)) {
			t.Errorf("leasehold show, without %q: %v\n%s", want, err, out)
		}
	}
	if out, err = exec.Command(binary, "profiles", "--url", s.URL).CombinedOutput(); err != nil || !bytes.Contains(out, []byte("cannot reach NATS since")) {
		t.Errorf("leasehold profiles: %v\n%s", err, out)
	}
	for route, in := range map[string]map[string]any{
		"review": {"lease_token": held.Token, "decision": "approve", "reviewer": "Ada"}, "hold": {"lease_token": held.Token, "holder": "Ada"},
	} {
		code := s.call(t, "POST", "/v1/profiles/"+id+"/"+route, in, &problem)
		if detail, _ := problem["detail"].(string); code != 503 || problem["code"] != "lease_store_unavailable" || !strings.Contains(detail, "nothing more is granted or decided until it answers") {
			t.Errorf("%s while NATS is away: %d %v", route, code, problem)
		}
	}
}
