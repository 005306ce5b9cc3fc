package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const travelProfile = "travels"

// travel is a folder for a NATS server of this process, and for a profile store.
type travel struct {
	dir  string
	nats *server.Server
}

// newTravel starts the server, and makes the key of the store.
func newTravel(binary string) (_ *travel, err error) {
	v := &travel{}
	if v.dir, err = os.MkdirTemp("", "leasehold-bench-travel-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, v.stop())
		}
	}()
	if v.nats, err = server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: filepath.Join(v.dir, "nats"), SyncAlways: true, NoSigs: true, NoLog: true,
	}); err != nil {
		return nil, err
	}
	v.nats.Start()
	if !v.nats.ReadyForConnections(answerTimeout) {
		return nil, errors.New("the NATS server does not start")
	}
	if out, err := exec.Command(binary, "profiles", "keygen", v.key()).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("profiles keygen: %w: %s", err, out)
	}
	return v, nil
}

func (v *travel) key() string { return filepath.Join(v.dir, "key") }

// store are the arguments for a launcher with the profile store.
func (v *travel) store() []string {
	return []string{"--profile-store", "file://" + filepath.Join(v.dir, "store"), "--profile-key", v.key()}
}

func (v *travel) stop() error {
	if v.nats != nil {
		v.nats.Shutdown()
		v.nats.WaitForShutdown()
	}
	return os.RemoveAll(v.dir)
}

// moves measures the time from the request for a move to the first CDP answer at the new home,
// beside a cold start of the same profile at its home. There are two launchers on one NATS
// server and one profile store in a folder; both are there, so that the old home is asked and
// gives the profile up. The profile goes to and fro.
func moves(o options, binary string) (_ []result, err error) {
	v, err := newTravel(binary)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, v.stop()) }()
	var hosts []*sidecar
	for _, id := range []string{"host-a", "host-b"} {
		s, err := startSidecar(binary, o.chrome, append(v.store(), "--nats-url", v.nats.ClientURL(), "--launcher-id", id, "--lease-ttl", "6s")...)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, s.stop()) }()
		hosts = append(hosts, s)
	}
	if err := hosts[0].makeProfile(travelProfile); err != nil {
		return nil, err
	}
	var t taken
	var asked []float64
	for round := range o.rounds + 1 {
		home, other := hosts[round%2], hosts[(round+1)%2]
		cold, err := home.first(fmt.Sprintf("cold-%d", round), travelProfile, false)
		if err != nil {
			return nil, err
		}
		token, err := home.sealed(travelProfile)
		if err != nil {
			return nil, err
		}
		begun := time.Now()
		if err := other.rest(http.MethodPost, "/v1/profiles/"+travelProfile+"/move", map[string]any{"lease_token": token, "person": "bench"}, nil); err != nil {
			return nil, err
		}
		there := ms(begun)
		started, err := other.first(fmt.Sprintf("moved-%d", round), travelProfile, false)
		if err != nil {
			return nil, err
		}
		if _, err := other.sealed(travelProfile); err != nil {
			return nil, err
		}
		if round > 0 {
			t.add(float64(cold.Nanoseconds())/1e6, there+float64(started.Nanoseconds())/1e6, 0)
			asked = append(asked, there)
		}
	}
	return []result{
		t.result("move to another launcher, to its first CDP answer, p50 (port: cold start at home)", "ms", 3),
		{Name: "the move alone, p50", Unit: "ms", Value: median(asked)},
	}, nil
}

// makeProfile makes a profile, when the store is no longer young.
func (s *sidecar) makeProfile(profile string) error {
	var err error
	for deadline := time.Now().Add(answerTimeout); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if err = s.rest(http.MethodPut, "/v1/profiles/"+profile, map[string]any{"mobility": "free"}, nil); err == nil {
			return nil
		}
	}
	return err
}

// sealed waits for a snapshot of the profile as it is now, and returns its token.
func (s *sidecar) sealed(profile string) (uint64, error) {
	for deadline := time.Now().Add(answerTimeout); ; time.Sleep(5 * time.Millisecond) {
		var r struct {
			Token         uint64 `json:"lease_token"`
			SnapshotToken uint64 `json:"snapshot_token"`
			State         string `json:"state"`
		}
		if err := s.rest(http.MethodGet, "/v1/profiles/"+profile, nil, &r); err != nil {
			return 0, err
		}
		switch {
		case r.State == "available" && r.SnapshotToken == r.Token:
			return r.Token, nil
		case time.Now().After(deadline):
			return 0, fmt.Errorf("profile %s is %s with token %d, and its newest snapshot is of %d", profile, r.State, r.Token, r.SnapshotToken)
		}
	}
}

// ballastFile is the size of the files that a large profile has beside Chrome's own: one that sites'
// data has.
const ballastFile = 450_000

// largeSnapshots measures what snapshots of a profile of 300 MB hold up: the release after which
// one is made, and the next grant, which is asked for at once, while it is made. Beside it is a
// launcher without a profile store ("port"). Rounds alternate.
func largeSnapshots(o options, binary string) (_ []result, err error) {
	v, err := newTravel(binary)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, v.stop()) }()
	var sides []*sidecar
	for _, args := range [][]string{nil, v.store()} {
		s, err := startSidecar(binary, o.chrome, args...)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, s.stop()) }()
		if _, err := s.first("first", travelProfile, false); err != nil {
			return nil, err
		}
		if err := fill(filepath.Join(s.profileDir(travelProfile), "Default", "ballast"), o.ballast); err != nil {
			return nil, err
		}
		sides = append(sides, s)
	}
	page, web, err := serve(servePage)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, web.Close()) }()
	var released, granted taken
	for round := range o.rounds + 1 {
		var end, next [2]float64
		for k := range sides {
			i := (k + round) % len(sides)
			s := sides[i]
			on, err := s.open(travelProfile, page, nil)
			if err != nil {
				return nil, err
			}
			begun := time.Now()
			if err := s.rest(http.MethodDelete, fmt.Sprintf("/v1/sessions/%s?lease_token=%d&outcome=succeeded", on.id, on.token), nil, nil); err != nil {
				return nil, err
			}
			end[i] = ms(begun)
			_ = on.client.net.Close() // the launcher has closed it
			d, err := s.first(fmt.Sprintf("next-%d", round), travelProfile, false)
			if err != nil {
				return nil, err
			}
			next[i] = float64(d.Nanoseconds()) / 1e6
			if i == 1 && round == 0 {
				// The first snapshot has all of the profile in it.
				if _, err := s.sealed(travelProfile); err != nil {
					return nil, err
				}
			}
		}
		if round > 0 {
			released.add(end[0], end[1], 0)
			granted.add(next[0], next[1], 0)
		}
	}
	return []result{
		released.result("snapshot of 300 MB: the release before it, p50 (port: no profile store)", "ms", 0),
		granted.result("snapshot of 300 MB: the next grant, at once, p50 (port: no profile store)", "ms", 0),
	}, nil
}

// fill makes so much of them, half of which can be compressed away, as of databases.
func fill(dir string, mib int) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	random := rand.NewChaCha8([32]byte{})
	b := make([]byte, ballastFile)
	for n := range mib << 20 / ballastFile {
		for page := range slices.Chunk(b, 4096) {
			_, _ = random.Read(page[:len(page)/2]) // it never fails
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%06d.ldb", n)), b, 0o600); err != nil {
			return err
		}
	}
	return nil
}
