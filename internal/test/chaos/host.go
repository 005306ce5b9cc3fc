package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
	serves   launcherPlan

	mu sync.Mutex
	odd
}

// odd is what is wrong with a launcher after its next start.
type odd struct {
	// shift is by how many seconds its boot-time clock is shifted.
	shift int
	// ahead says that its wall clock is.
	ahead bool
	// stranger is the URL of a further server that it takes for one of its store; empty: none.
	stranger string
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
	// image says that its disk is that of an image.
	image bool
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
	plan = append(plan, hostPlan{name: "far", image: c.Images, homed: []string{"far-1", "far.2"}, asked: []string{"far-1", "far.2", "own-1"}, workers: 3})
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

// callersToken is what all callers of the launchers have.
const callersToken = "chaos-callers-token"

// launcherPlan describes one launcher's process.
type launcherPlan struct {
	id, base, listen, dataDir, profilesDir, urls string
	places                                       int
}

// launcherFiles are the files in the harness's directory that all launchers use.
type launcherFiles struct{ token, temp string }

func newLauncherFiles(dir string) (launcherFiles, error) {
	f := launcherFiles{filepath.Join(dir, "token"), filepath.Join(dir, "t")} // a short path, since Chrome puts its socket below it
	return f, errors.Join(os.WriteFile(f.token, []byte(callersToken), 0o600), os.MkdirAll(f.temp, 0o700))
}

func (f launcherFiles) environment() []string {
	return []string{"TMPDIR=" + f.temp, "GORACE=atexit_sleep_ms=0"}
}

// command is the command line of a launcher.
func (f launcherFiles) command(c Config, snapshots *profileStore, l launcherPlan) []string {
	args := []string{
		c.Leasehold, "run", "--data-dir", l.dataDir, "--profiles-dir", l.profilesDir,
		"--listen", l.listen, "--token-file", f.token, "--advertise-url", l.base, "--insecure-plaintext",
		"--nats-url", l.urls, "--launcher-id", l.id, "--lease-ttl", c.TTL.String(), "--reconnect-grace", "500ms",
		"--cooldown", "0s", "--headless", "--log-format", "json",
	}
	if snapshots != nil {
		args = append(args, snapshots.arguments()...)
		args = append(args, "--max-browsers", fmt.Sprint(l.places), "--home-timeout", (5 * c.TTL).String())
	}
	return args
}

func newHosts(c Config, net *network, s *store, snapshots *profileStore, witnessURL, dir string) ([]*host, error) {
	files, err := newLauncherFiles(dir)
	if err != nil {
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
		data, err := newHostDisk(net.isolated, plan, dir)
		if err != nil {
			return nil, err
		}
		l := newLauncherPlan(p, data.path, plan.name, s.urls())
		l.places = plan.places
		if plan.shared {
			l.profilesDir = shared.path
		}
		h := &host{
			endpoint: p, data: data, sidecar: newSidecar(l.base, callersToken), profiles: plan.asked, homed: append(plan.homed, plan.roaming...), roaming: plan.roaming,
			shared: plan.shared, serves: l,
		}
		h.process = newProcess(plan.name, filepath.Join(c.LogDir, plan.name+".log"), func() []string {
			h.mu.Lock()
			defer h.mu.Unlock()
			now := l
			if h.stranger != "" {
				now.urls += "," + h.stranger
			}
			args := files.command(c, snapshots, now)
			if h.shift != 0 {
				clock := fmt.Sprint(h.shift)
				args = append([]string{"unshare", "--time", "--boottime", clock, "--monotonic", clock, "--"}, args...)
			}
			return p.command(args...)
		})
		h.begin = func(cmd *exec.Cmd) error {
			h.mu.Lock()
			defer h.mu.Unlock()
			if h.ahead {
				return startAhead(cmd, c.Leasehold, clockAhead)
			}
			return cmd.Start()
		}
		h.env = files.environment()
		for n := range plan.workers + plan.readers {
			w := workerConfig{
				ID: fmt.Sprintf("%s-w%d", plan.name, n+1), Seed: c.Seed + uint64(100*i+n), Launcher: l.base, Name: plan.name,
				Token: callersToken, Witness: witnessURL, Profiles: plan.asked, Reads: n >= plan.workers, Roams: !c.Short, TTL: c.TTL,
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

// newHostDisk makes the disk of a host, of which other launchers use nothing.
func newHostDisk(isolated bool, plan hostPlan, dir string) (*disk, error) {
	path := filepath.Join(dir, plan.name)
	if plan.image {
		return newImage(path)
	}
	return newDisk(isolated, path)
}

// newLauncherPlan is a launcher at an endpoint, with all that it has below a directory.
func newLauncherPlan(at *endpoint, dir, id, urls string) launcherPlan {
	address := fmt.Sprintf("%s:%d", at.ip, sidecarPort)
	return launcherPlan{
		id: id, base: "http://" + address, listen: address, dataDir: filepath.Join(dir, "d"), profilesDir: filepath.Join(dir, "profiles"), urls: urls,
	}
}

// is sets what is wrong with the launcher after its next start.
func (h *host) is(o odd) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.odd = o
}

// settled are the profiles that have their home here, and never get another one.
func (h *host) settled() []string {
	return slices.DeleteFunc(slices.Clone(h.homed), func(p string) bool { return slices.Contains(h.roaming, p) })
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
