package bubble

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"leasehold/internal/procfs"
	"leasehold/internal/test/failed"
	"leasehold/internal/test/smalldisk"
	"leasehold/launcher/snapshots"
)

// seeds are those to play.
func seeds(t *testing.T, usual int) (all []uint64) {
	number := func(name string) (uint64, bool) {
		n, err := strconv.ParseUint(os.Getenv(name), 10, 64)
		if err != nil && os.Getenv(name) != "" {
			t.Fatalf("%s: %v", name, err)
		}
		return n, err == nil
	}
	if one, ok := number("LEASEHOLD_SEED"); ok {
		return []uint64{one}
	}
	n := uint64(usual)
	if more, ok := number("LEASEHOLD_SEEDS"); ok {
		n = more
	}
	for seed := range n {
		all = append(all, seed+1)
	}
	return all
}

// everything is what happened, and what the launchers logged.
func (w *world) everything() string { return strings.Join(w.trace, "\n") + "\n" + w.said.String() }

// keep writes everything into a file, since a seed may not bring it again, and returns what is said of it.
func (w *world) keep(t *testing.T) string {
	t.Helper()
	path := filepath.Join(failed.Dir(t), fmt.Sprintf("seed-%d.log", w.seed))
	if err := os.WriteFile(path, []byte(w.everything()), 0o600); err != nil {
		t.Fatal(err)
	}
	return "everything that happened is in " + path + "; its end:\n" + failed.End(strings.Join(w.trace, "\n"), 20)
}

// longest is by how many times more seeds than usual are played until everything wanted has
// happened.
const longest = 8

// fewer is by what factor fewer seeds are usual.
var fewer = 1

// playAll plays seeds, and more while something wanted has not happened in any of them.
func playAll(t *testing.T, usual, steps int, disk string, wanted ...string) {
	if fewer > 1 {
		usual, wanted = max(usual/fewer, 1), nil
	}
	counts := map[string]int{}
	missing := func(what string) bool { return counts[what] == 0 }
	all := seeds(t, usual)
	for i := 0; i < len(all) || len(all) > 1 && i < longest*len(all) && slices.ContainsFunc(wanted, missing); i++ {
		seed := uint64(i + 1)
		if i < len(all) {
			seed = all[i]
		}
		stuck := time.AfterFunc(5*time.Minute, func() {
			fmt.Fprintf(os.Stderr, "%s: seed %d does not go on: its clock stands still while something waits for a mutex, or works\n", t.Name(), seed)
		})
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, seed, disk)
			w.play(steps)
			w.counts["writes without room"] = strings.Count(w.said.String(), unix.ENOSPC.Error())
			for what, n := range w.counts {
				counts[what] += n
			}
			if len(w.wrong) > 0 {
				t.Errorf("seed %d: %s\n%s", seed, strings.Join(w.wrong, "\n"), w.keep(t))
			} else if os.Getenv("LEASEHOLD_SEED") != "" {
				t.Log(w.everything())
			}
		})
		stuck.Stop()
		if t.Failed() {
			break
		}
	}
	var shown []string
	for what, n := range counts {
		shown = append(shown, strconv.Itoa(n)+" "+what)
	}
	slices.SortFunc(shown, func(a, b string) int {
		return cmp.Compare(strings.TrimLeft(a, "0123456789 "), strings.TrimLeft(b, "0123456789 "))
	})
	t.Log(strings.Join(shown, ", "))
	if len(all) > 1 && !t.Failed() {
		for _, what := range wanted {
			if missing(what) {
				t.Errorf("never: %s", what)
			}
		}
	}
}

// always is what has to have happened in the usual seeds, or nothing was shown.
var always = []string{
	"grants", "grants beside others", "grants by hand", "writes", "messages", "browsers started", "browsers crashed", "clones", "reviews", "sessions released",
	"to held", "to suspected_stale", "to quarantined", "to inspected", "to available", "to resume_pending", "to manual_review", "events",
	"leases written again", "presences closed by others", "runs lost beside others", "connections dropped",
	"browsers left warm", "browsers handed over", "warm browsers disturbed", "browsers closed by signals",
	"launchers killed", "launchers that left", "launchers killed at a step", "launchers killed between start and note", "browsers adopted", "sessions that went on", "leases that went on", "looks at a browser without its worker",
	"guard killed", "browsers adopted by the guard", "browsers closed by the guard",
	"refused: unknown_profile", "refused: wrong_home", "refused: browser_start_failed", "profiles made anew elsewhere", "homes contested", "homes changed", "rehomed, its home asked or gone", "rehomed away from a home that was gone",
	"moved by itself", "moved by an operator", "asked for any", "waiters stored", "waiters seen elsewhere", "snapshots unanswered",
	"ephemeral sessions", "messages of readers", "copies left to the guard", "copies left to the next launcher", "ephemeral sessions that could write when the account had to stand still",
	"partitions", "pauses", "store away", "last writes lost", "store rolled back", "store wiped", "records lost alone", "presences lost alone",
	"calls lost", "calls unanswered", "calls late", "stale reads",
}

// processes is where browsers show themselves in the place of /proc.
var processes string

// outsideBubbles has the compressor of snapshots make what all goroutines of the program share. What
// is made in a bubble cannot be used in the next one.
func outsideBubbles(dir string) error {
	err := snapshots.New(snapshots.OpenDir(dir), snapshots.NewKey()).Raise(context.Background(), "p", 1)
	return errors.Join(err, os.RemoveAll(dir))
}

func TestMain(m *testing.M) {
	var err error
	if processes, err = os.MkdirTemp(memory(), "processes"); err == nil {
		err = errors.Join(stat(1, 0), os.WriteFile(filepath.Join(processes, "meminfo"), []byte("MemTotal: 8000000 kB\nMemAvailable: 4000000 kB\n"), 0o600))
	}
	if err != nil {
		panic(err)
	}
	if err := outsideBubbles(filepath.Join(processes, "snapshots")); err != nil {
		panic(err)
	}
	procfs.Mount(processes)
	code := m.Run()
	if err := os.RemoveAll(processes); err != nil {
		panic(err)
	}
	os.Exit(code)
}

func TestThePromisesHold(t *testing.T) {
	playAll(t, 14, 90, "", always...)
}

func TestThePromisesHoldWhereDisksFill(t *testing.T) {
	dir := smalldisk.Run(t, "1m")
	if dir == "" {
		return
	}
	playAll(t, 4, 90, dir, "disks full", "writes without room", "grants", "to quarantined", "to available", "to manual_review")
}
