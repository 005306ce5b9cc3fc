package chaos

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"leasehold/internal/test/built"
	"leasehold/internal/test/failed"
)

// TestMain also runs the worker and the harness, which are processes of their own.
func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	if role == "" {
		os.Exit(m.Run())
	}
	if err := play(role, []byte(os.Getenv(configVariable))); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func play(role string, config []byte) error {
	switch role {
	case roleWorker:
		var c workerConfig
		if err := json.Unmarshal(config, &c); err != nil {
			return err
		}
		return runWorker(c)
	case roleRun:
		var c Config
		if err := json.Unmarshal(config, &c); err != nil {
			return err
		}
		found, err := Run(c, os.Stdout)
		if err == nil && len(found) > 0 {
			err = fmt.Errorf("%d violations", len(found))
		}
		return err
	default:
		return fmt.Errorf("%s=%s: want %s or %s", roleVariable, role, roleWorker, roleRun)
	}
}

// programs are the paths of the programs of a test run. They are built once for all of them.
type programs struct{ self, leasehold, natsServer string }

// buildPrograms builds them, the sidecar with the race detector if it is to run for long.
func buildPrograms(t *testing.T, long bool) programs {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	p := programs{self, os.Getenv("CHAOS_LEASEHOLD"), filepath.Join(bin, "nats-server")}
	builds := [][]string{{"build", "-o", p.natsServer, "github.com/nats-io/nats-server/v2"}}
	switch {
	case p.leasehold != "":
	case long:
		p.leasehold = filepath.Join(bin, "leasehold")
		builds = append(builds, []string{"build", "-race", "-o", p.leasehold, "leasehold/cmd/leasehold"})
	default:
		if p.leasehold, err = built.Leasehold(); err != nil {
			t.Fatal(err)
		}
	}
	for _, build := range builds {
		if out, err := exec.Command("go", build...).CombinedOutput(); err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(build, " "), err, out)
		}
	}
	return p
}

// runs makes a test run in a process of its own, and logs its table.
func runs(t *testing.T, c Config, p programs) {
	t.Helper()
	runtime.LockOSThread() // the kernel ends the test run's process when this thread ends
	defer runtime.UnlockOSThread()
	c.Self, c.Leasehold, c.NATSServer = p.self, p.leasehold, p.natsServer
	c.LogDir = failed.Dir(t)
	cmd, isolated := isolate(p.self)
	c.Isolated, c.Images = isolated, isolated && mountsImages()
	possible := c.Possible()
	c.Faults = slices.DeleteFunc(slices.Clone(c.Faults), func(f string) bool { return !slices.Contains(possible, f) })
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(os.Environ(), roleVariable+"="+roleRun, configVariable+"="+string(b), "GORACE=atexit_sleep_ms=0")
	out, err := cmd.CombinedOutput()
	t.Logf("\n%s", out)
	if err != nil {
		t.Fatalf("%v: logs and history are in %s; again with: make chaos SEED=%d NODES=%d", err, c.LogDir, c.Seed, c.Nodes)
	}
	if err := os.RemoveAll(c.LogDir); err != nil {
		t.Error(err)
	}
}

// seed is the seed in CHAOS_SEED, or one from the clock.
func seed(t *testing.T) uint64 {
	t.Helper()
	given := os.Getenv("CHAOS_SEED")
	if given == "" {
		return uint64(time.Now().UnixNano())
	}
	n, err := strconv.ParseUint(given, 10, 64)
	if err != nil {
		t.Fatalf("CHAOS_SEED: %v", err)
	}
	return n
}

// TestChaos makes a short test run, in which each of some faults happens once. With CHAOS_DURATION, which make chaos sets, it makes a
// long one.
func TestChaos(t *testing.T) {
	if os.Getenv("CHAOS_DURATION") != "" {
		runs(t, longForm(t), buildPrograms(t, true))
		return
	}
	runs(t, Config{
		Seed: seed(t), Here: Here{Nodes: 3}, TTL: 4 * time.Second, Short: true,
		Faults: []string{KillWorker, KillLauncher, StopLauncher, NoInodes, ShiftedClock, KillStore, CutBothWays, CutNodes, RolledBack},
	}, buildPrograms(t, false))
}

// longForm is the test run that the variables of make chaos describe.
func longForm(t *testing.T) Config {
	t.Helper()
	c := Config{Seed: seed(t)}
	var err error
	if c.TTL, err = time.ParseDuration(cmp.Or(os.Getenv("CHAOS_TTL"), "3s")); err != nil {
		t.Fatalf("CHAOS_TTL: %v", err)
	}
	if c.Duration, err = time.ParseDuration(os.Getenv("CHAOS_DURATION")); err != nil {
		t.Fatalf("CHAOS_DURATION: %v", err)
	}
	switch n := os.Getenv("CHAOS_NODES"); n {
	case "", "1":
		c.Nodes = 1
	case "3":
		c.Nodes = 3
	default:
		t.Fatalf("CHAOS_NODES=%s: want 1 or 3", n)
	}
	var without []string
	if list := os.Getenv("CHAOS_WITHOUT"); list != "" {
		without = strings.Split(list, ";")
	}
	all := Here{Isolated: true, Images: true, Nodes: 3}.Possible()
	for _, w := range without {
		if !slices.Contains(all, w) {
			t.Fatalf("CHAOS_WITHOUT: %q is no fault: want some of %q, separated by semicolons", w, all)
		}
	}
	c.Faults = slices.DeleteFunc(all, func(f string) bool { return slices.Contains(without, f) })
	return c
}
