package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// natsArg as the first argument makes this program run as one NATS server of a cluster: its number, the
// ports of all for each other, and the folder for its files follow.
const natsArg = "nats-server"

const (
	natsServers = 3
	// fleetWorkers is how many grants are asked for at the same time, and launchers started; fleetMakers is
	// how many profiles are made, which mostly waits for disks.
	fleetWorkers, fleetMakers = 4, 16
	// lostSessions is how many sessions a launcher has that dies.
	lostSessions = 20
)

// natsServer runs until its standard input ends.
func natsServer(number, ports, dir string) error {
	i, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	var routes []*url.URL
	all := strings.Split(ports, ",")
	for _, port := range all {
		routes = append(routes, &url.URL{Scheme: "nats", Host: "127.0.0.1:" + port})
	}
	own, err := strconv.Atoi(all[i])
	if err != nil {
		return err
	}
	s, err := server.NewServer(&server.Options{
		ServerName: "n" + number, Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: dir, SyncAlways: true, NoSigs: true, NoLog: true,
		Cluster: server.ClusterOpts{Name: "bench", Host: "127.0.0.1", Port: own}, Routes: routes,
	})
	if err != nil {
		return err
	}
	s.Start()
	for deadline := time.Now().Add(answerTimeout); !s.ReadyForConnections(time.Second) || !s.JetStreamIsCurrent(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			return errors.New("the NATS cluster does not form")
		}
	}
	fmt.Println(s.ClientURL())
	_, err = io.Copy(io.Discard, os.Stdin)
	s.Shutdown()
	return err
}

// fleet is some launchers with scripted browsers, and the NATS servers that they share. Each is a process.
type fleet struct {
	dir       string
	servers   []*exec.Cmd
	stdins    []io.Closer
	urls      []string
	launchers []*sidecar
}

func startFleet(binary string, n int) (_ *fleet, err error) {
	f := &fleet{launchers: make([]*sidecar, n)}
	if f.dir, err = os.MkdirTemp("", "leasehold-bench-fleet-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.stop())
		}
	}()
	if err := f.startServers(); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return f, parallel(n, fleetWorkers, func(i int) (err error) {
		f.launchers[i], err = startSidecar(binary, self+" "+fakeArg, "--nats-url", strings.Join(f.urls, ","), "--launcher-id", fmt.Sprintf("fleet-%d", i))
		return err
	})
}

func (f *fleet) startServers() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	var ports []string
	var free []net.Listener // all at once, so that the ports differ
	for range natsServers {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		free = append(free, l)
		_, port, err := net.SplitHostPort(l.Addr().String())
		if err != nil {
			return err
		}
		ports = append(ports, port)
	}
	for _, l := range free {
		if err := l.Close(); err != nil {
			return err
		}
	}
	var outs []io.Reader
	for i := range natsServers {
		cmd := exec.Command(self, natsArg, strconv.Itoa(i), strings.Join(ports, ","), filepath.Join(f.dir, strconv.Itoa(i)))
		cmd.Stderr = os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		in, err := cmd.StdinPipe()
		if err != nil {
			return err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		f.servers, f.stdins, outs = append(f.servers, cmd), append(f.stdins, in), append(outs, out)
	}
	for _, out := range outs {
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			return fmt.Errorf("a NATS server ended before it was ready: %w", err)
		}
		f.urls = append(f.urls, strings.TrimSpace(line))
	}
	return nil
}

func (f *fleet) stop() error {
	var err error
	var mu sync.Mutex
	_ = parallel(len(f.launchers), fleetMakers, func(i int) error {
		if s := f.launchers[i]; s != nil {
			stopped := s.stop()
			mu.Lock()
			defer mu.Unlock()
			err = errors.Join(err, stopped)
		}
		return nil
	})
	for i, cmd := range f.servers {
		err = errors.Join(err, f.stdins[i].Close(), cmd.Wait())
	}
	return errors.Join(err, os.RemoveAll(f.dir))
}

// parallel calls do with 0 to n-1, in some goroutines, until one fails.
func parallel(n, workers int, do func(i int) error) error {
	var next atomic.Int64
	var all sync.WaitGroup
	errs := make([]error, workers)
	var failed atomic.Bool
	for w := range errs {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && !failed.Load(); i = int(next.Add(1)) - 1 {
				if errs[w] = do(i); errs[w] != nil {
					failed.Store(true)
				}
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// spent is the CPU time of the NATS servers and of the launchers, without the browsers.
func (f *fleet) spent() (nats, launchers time.Duration) {
	all := processes()
	for _, cmd := range f.servers {
		nats += all[cmd.Process.Pid].cpu
	}
	for _, s := range f.launchers {
		launchers += all[s.cmd.Process.Pid].cpu
	}
	return nats, launchers
}

// disk is the size of the servers' files, in bytes.
func (f *fleet) disk() (size float64, err error) {
	err = filepath.WalkDir(f.dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			if info, err := d.Info(); err == nil { // it may be gone
				size += float64(info.Size())
			}
		}
		return nil
	})
	return size, err
}

// fleets measures what many launchers on one NATS of three servers cost, for several numbers of them.
func fleets(o options, binary string) (results []result, _ error) {
	for _, size := range strings.Split(o.fleets, ",") {
		n, err := strconv.Atoi(size)
		if err == nil && n < 2 {
			err = errors.New("want two launchers or more, since one of them dies")
		}
		if err != nil {
			return nil, fmt.Errorf("-fleets: %w", err)
		}
		of, err := fleetOf(o, binary, n)
		if err != nil {
			return nil, fmt.Errorf("%d launchers: %w", n, err)
		}
		results = append(results, of...)
	}
	return results, nil
}

// fleetOf makes the profiles, has the launchers do nothing for a while, asks for grants, each of which is
// released, and then kills a launcher that has sessions, and waits until all of them are in
// quarantine, or decided.
func fleetOf(o options, binary string, n int) (_ []result, err error) {
	f, err := startFleet(binary, n)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.stop()) }()
	name := func(i int) string { return fmt.Sprintf("fleet-%d", i) }
	if err := f.launchers[0].makeProfile(name(0)); err != nil { // the store is young for a while
		return nil, err
	}
	if err := parallel(o.profiles, fleetMakers, func(i int) error { return f.launchers[i%n].makeProfile(name(i)) }); err != nil {
		return nil, err
	}
	time.Sleep(settleTime)
	diskBefore, err := f.disk()
	if err != nil {
		return nil, err
	}
	nats, launchers := f.spent()
	time.Sleep(steadyTime)
	natsAfter, launchersAfter := f.spent()
	disk, err := f.disk()
	if err != nil {
		return nil, err
	}
	memory := 0.0
	for _, cmd := range f.servers {
		memory += pssOf(cmd.Process.Pid)
	}
	grants, err := f.grants(o, name)
	if err != nil {
		return nil, err
	}
	natsBusy, _ := f.spent()
	lost, err := f.death(o, name)
	if err != nil {
		return nil, err
	}
	perSecond := func(d time.Duration) float64 { return d.Seconds() * 1e3 / steadyTime.Seconds() }
	of := fmt.Sprintf("fleet of %d launchers, %d profiles: ", n, o.profiles)
	return []result{
		{Name: of + "grant, p50", Unit: "ms", Value: median(grants)},
		{Name: of + "grant, p99", Unit: "ms", Value: grants[(len(grants)-1)*99/100]},
		{Name: of + "death of a launcher to the last of its profiles in quarantine", Unit: "s", Value: lost.Seconds()},
		{Name: of + "CPU of the three NATS servers, nobody asks", Unit: "ms/s", Value: perSecond(natsAfter - nats)},
		{Name: of + "CPU of a launcher, nobody asks", Unit: "ms/s", Value: perSecond(launchersAfter-launchers) / float64(n)},
		{Name: of + "CPU of NATS for a grant and its release", Unit: "ms", Value: (natsBusy - natsAfter).Seconds() * 1e3 / float64(len(grants))},
		{Name: of + "memory of the three NATS servers", Unit: "MB", Value: memory * 1024 / 1e6},
		{Name: of + "disk of the three NATS servers", Unit: "MB", Value: disk / 1e6},
		{Name: of + "what the disk grows by, nobody asks", Unit: "kB/s", Value: (disk - diskBefore) / 1e3 / steadyTime.Seconds()},
	}, nil
}

// grants asks for sessions on all launchers in turn, and releases each. It returns the times in ms, the
// shortest first.
func (f *fleet) grants(o options, name func(int) string) ([]float64, error) {
	took := make([]float64, o.grants)
	err := parallel(o.grants, fleetWorkers, func(i int) error {
		// Two workers never ask for the same profile, unless there are hardly any.
		profile := i % o.profiles
		on := f.launchers[profile%len(f.launchers)]
		begun := time.Now()
		g, err := on.grant(name(profile))
		if err != nil {
			return err
		}
		took[i] = ms(begun)
		return on.release(g)
	})
	slices.Sort(took)
	return took, err
}

// death kills a launcher with sessions, and returns how long it took until another one says of all of
// their profiles that they are in quarantine, or decided. Of pinned profiles nobody but their home decides more.
func (f *fleet) death(o options, name func(int) string) (time.Duration, error) {
	victim, witness := f.launchers[0], f.launchers[1]
	var held []string
	for i := 0; i < o.profiles && len(held) < lostSessions; i += len(f.launchers) {
		if _, err := victim.grant(name(i)); err != nil {
			return 0, err
		}
		held = append(held, name(i))
	}
	begun := time.Now()
	if err := victim.kill(); err != nil {
		return 0, err
	}
	for _, profile := range held {
		for deadline := begun.Add(2 * answerTimeout); ; time.Sleep(20 * time.Millisecond) {
			var r struct{ State string }
			if err := witness.rest(http.MethodGet, "/v1/profiles/"+profile, nil, &r); err != nil {
				return 0, err
			}
			if r.State != "held" && r.State != "suspected_stale" {
				break
			}
			if time.Now().After(deadline) {
				return 0, fmt.Errorf("profile %s is %s, %v after its launcher died; want it quarantined, or decided", profile, r.State, time.Since(begun))
			}
		}
	}
	return time.Since(begun), nil
}
