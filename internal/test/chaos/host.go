package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"leasehold/launcher/api"
	"leasehold/lease"
)

// host is one launcher with its workers.
type host struct {
	*process
	*sidecar
	endpoint *endpoint
	data     *disk
	profiles []string // that its workers ask for
	homed    []string // that are created here, so that this is their home
	roaming  []string // of these the ones that may get another home
	shared   bool     // its profiles are on the disk that two launchers share
	workers  []*process

	mu sync.Mutex
	// shift is by how many seconds its boot-time clock is shifted.
	shift int
}

// hostPlan describes a host. With shared it uses the profiles directory that two
// launchers have in common. There only the kernel's lock and the floor separate them
// when the store forgets.
type hostPlan struct {
	name    string
	shared  bool
	homed   []string
	roaming []string
	asked   []string
	workers int
	// readers are as many more workers, which only read.
	readers int
	// places is how many browsers the host may have; zero: any number.
	places int
}

// The names of the two hosts that share a folder of profiles, and of its disk.
const (
	leftHost, rightHost = "left", "right"
	sharedDisk          = "shared"
)

func (c Config) plan() []hostPlan {
	plan := []hostPlan{
		{name: "own", homed: []string{"own-1", "own-2"}, asked: []string{"own-1", "own-2", "left-1"}, workers: 3},
		{name: leftHost, shared: true, homed: []string{"left-1"}, asked: []string{"left-1", "right-1"}, workers: 2},
		{name: rightHost, shared: true, homed: []string{"right-1"}, asked: []string{"left-1", "right-1"}, workers: 2},
	}
	if c.Short {
		return plan
	}
	plan = append(plan, hostPlan{name: "far", homed: []string{"far-1", "far.2"}, asked: []string{"far-1", "far.2", "own-1"}, workers: 3})
	// Profiles that move: a host that has few places is left when others come first.
	plan[0].roaming, plan[0].places, plan[0].readers = []string{"free-1", "free-2"}, 3, 1
	plan[1].roaming, plan[1].readers = []string{"free-3"}, 1
	plan[3].roaming, plan[3].places, plan[3].readers = []string{"free.4"}, 3, 1
	for i := range plan {
		plan[i].asked = append(plan[i].asked, "free-1", "free-2", "free-3", "free.4")
	}
	return plan
}

const sidecarPort = 9333

func newHosts(c Config, net *network, s *store, snapshots *profileStore, witnessURL, dir string) ([]*host, error) {
	const token = "chaos-callers-token"
	tokenFile := filepath.Join(dir, "token")
	temp := filepath.Join(dir, "t") // a short path, since Chrome puts its socket below it
	if err := errors.Join(os.WriteFile(tokenFile, []byte(token), 0o600), os.MkdirAll(temp, 0o700)); err != nil {
		return nil, err
	}
	shared, err := newDisk(net.isolated, filepath.Join(dir, sharedDisk))
	if err != nil {
		return nil, err
	}
	var hosts []*host
	for i, plan := range c.plan() {
		p, err := net.endpoint(plan.name, 2, i+1)
		if err != nil {
			return nil, err
		}
		data, err := newDisk(net.isolated, filepath.Join(dir, plan.name))
		if err != nil {
			return nil, err
		}
		profiles := filepath.Join(data.path, "profiles")
		if plan.shared {
			profiles = shared.path
		}
		base := fmt.Sprintf("http://%s:%d", p.ip, sidecarPort)
		h := &host{endpoint: p, data: data, sidecar: newSidecar(base, token), profiles: plan.asked, homed: append(plan.homed, plan.roaming...), roaming: plan.roaming, shared: plan.shared}
		h.process = newProcess(plan.name, filepath.Join(c.LogDir, plan.name+".log"), func() []string {
			args := []string{
				c.Leasehold, "run", "--data-dir", filepath.Join(data.path, "d"), "--profiles-dir", profiles,
				"--listen", fmt.Sprintf("%s:%d", p.ip, sidecarPort), "--token-file", tokenFile, "--advertise-url", base, "--insecure-plaintext",
				"--nats-url", s.urls(), "--launcher-id", plan.name, "--lease-ttl", c.TTL.String(), "--reconnect-grace", "500ms",
				"--cooldown", "0s", "--headless", "--log-format", "json",
			}
			if snapshots != nil {
				args = append(args, snapshots.arguments()...)
				args = append(args, "--max-browsers", fmt.Sprint(plan.places), "--home-timeout", (5 * c.TTL).String())
			}
			h.mu.Lock()
			defer h.mu.Unlock()
			if h.shift != 0 {
				clock := fmt.Sprint(h.shift)
				args = append([]string{"unshare", "--time", "--boottime", clock, "--monotonic", clock, "--"}, args...)
			}
			return p.command(args...)
		})
		h.env = []string{"TMPDIR=" + temp, "GORACE=atexit_sleep_ms=0"}
		for n := range plan.workers + plan.readers {
			w := workerConfig{
				ID: fmt.Sprintf("%s-w%d", plan.name, n+1), Seed: c.Seed + uint64(100*i+n), Launcher: base, Name: plan.name,
				Token: token, Witness: witnessURL, Profiles: plan.asked, Reads: n >= plan.workers, Roams: !c.Short, TTL: c.TTL,
			}
			b, err := json.Marshal(w)
			if err != nil {
				return nil, err
			}
			process := newProcess(w.ID, filepath.Join(c.LogDir, w.ID+".log"), func() []string { return p.command(c.Self) })
			process.env = []string{roleVariable + "=" + roleWorker, configVariable + "=" + string(b), "GORACE=atexit_sleep_ms=0"}
			h.workers = append(h.workers, process)
		}
		hosts = append(hosts, h)
	}
	return hosts, nil
}

// shiftClock sets by how many seconds the boot-time clock is shifted after the next
// start.
func (h *host) shiftClock(seconds int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.shift = seconds
}

// create makes a profile, as soon as the store is old enough for that.
func (h *host) create(ctx context.Context, profile string) error {
	for deadline := time.Now().Add(readyTime); ; sleep(ctx, 200*time.Millisecond) {
		err := h.settle(ctx, profile)
		if err == nil || ctx.Err() != nil || time.Now().After(deadline) {
			return err
		}
	}
}

// settle states the settings of a profile, and makes it if there is none.
func (h *host) settle(ctx context.Context, profile string) error {
	settings := map[string]any{}
	if strings.HasPrefix(profile, roamPrefix) {
		settings = map[string]any{"mobility": lease.MobilityFree, "labels": map[string]string{roamLabel: profile}, "account_id": roamAccount}
	}
	return h.call(ctx, readyTime, http.MethodPut, "/v1/profiles/"+profile, settings, nil)
}

// roamPrefix begins the names of the profiles that may move.
const roamPrefix = "free"

// sharesWith tells whether the host has its profiles in the folder of another launcher.
func (h *host) sharesWith(launcher string) bool {
	return h.shared && (launcher == leftHost || launcher == rightHost)
}

// queue lists the requests that wait, as the launcher sees them.
func (h *host) queue(ctx context.Context) ([]api.Waiting, error) {
	var list struct{ Items []api.Waiting }
	err := h.call(ctx, callTime, http.MethodGet, "/v1/queue", nil, &list)
	return list.Items, err
}

// ready waits until /readyz answers 200.
func (h *host) ready(ctx context.Context) error {
	for {
		err := h.call(ctx, 3*time.Second, http.MethodGet, "/readyz", nil, nil)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("launcher %s: /readyz: %w", h.endpoint.name, err)
		}
		sleep(ctx, 200*time.Millisecond)
	}
}

func (h *host) records(ctx context.Context) ([]lease.Record, error) {
	var list struct{ Items []lease.Record }
	err := h.call(ctx, callTime, http.MethodGet, "/v1/profiles", nil, &list)
	return list.Items, err
}

// review approves the host's profiles that wait for a person.
func (h *host) review(ctx context.Context, history *History) {
	records, err := h.records(ctx)
	if err != nil {
		return // the launcher is away
	}
	for _, r := range records {
		if r.State != lease.ManualReview || r.Home != h.endpoint.name {
			continue
		}
		req := api.ReviewRequest{Write: api.Write{Token: r.Token}, Decision: lease.ReviewApprove, Reviewer: "harness"}
		if h.call(ctx, callTime, http.MethodPost, "/v1/profiles/"+r.ProfileID+"/review", req, nil) == nil {
			history.Add(Entry{Kind: Reviewed, Profile: r.ProfileID, Token: r.Token})
		}
	}
}

// startWorkers starts the host's workers. stopWorkers asks them to end their sessions,
// and kills those that do not.
func (h *host) startWorkers() error {
	for _, w := range h.workers {
		if err := w.start(); err != nil {
			return err
		}
	}
	return nil
}

func (h *host) stopWorkers() {
	var all sync.WaitGroup
	for _, w := range h.workers {
		all.Go(func() { _ = w.finish(20 * time.Second) }) // a worker that does not end is killed
	}
	all.Wait()
}
