package browser

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"leasehold/internal/boottime"
	"leasehold/internal/procfs"
	"leasehold/launcher/api"
)

// probes is a series of readings of a browser, one a second unless after is set.
type probes []struct {
	n     int           // how many times the reading is repeated
	after time.Duration // since the reading before; zero for a second
	probe probe
	cpu   uint64 // used since the reading before
	heard bool   // its pipe brought something since the reading before
}

func (all probes) hang() hang {
	var h hang
	var now probe
	for _, l := range all {
		for range max(l.n, 1) {
			gap := l.after
			if gap == 0 {
				gap = time.Second
			}
			next := l.probe
			next.at, next.cpu, next.reads = now.at.Add(gap), now.cpu+l.cpu, now.reads
			if l.heard {
				next.reads++
			}
			now = next
			h = h.next(now)
		}
	}
	return h
}

func TestHang(t *testing.T) {
	const bound = 10 * time.Second
	waits, stopped := probe{asked: true, state: 'S'}, probe{asked: true, state: 'T'}
	for _, c := range []struct {
		name   string
		probes probes
		want   string // a part of the failure's detail; empty for no failure
	}{
		{"nothing asked", probes{{n: 100, probe: probe{state: 'S'}}}, ""},
		{"stopped", probes{{n: 11, probe: stopped}}, "no answer for 10s, its process is stopped"},
		{"stopped, not long enough", probes{{n: 10, probe: stopped}}, ""},
		{"waits", probes{{n: 11, probe: waits}}, "no answer for 10s, its main thread waits"},
		{"answered in between", probes{{n: 10, probe: waits}, {probe: probe{state: 'S'}}, {n: 10, probe: waits}}, ""},
		{"said something in between", probes{{n: 10, probe: waits}, {probe: waits, heard: true}, {n: 9, probe: waits}}, ""},
		{"the launcher is behind", probes{{n: 100, probe: probe{asked: true, state: 'S', behind: true}}}, ""},
		{"the launcher is behind, and it is stopped", probes{{n: 100, probe: probe{asked: true, state: 'T', behind: true}}}, ""},
		{"the launcher is behind, and it runs", probes{{n: 100, probe: probe{asked: true, state: 'R', behind: true}, cpu: 100}}, ""},
		{"the launcher was behind in between", probes{{n: 10, probe: waits}, {probe: probe{asked: true, state: 'S', behind: true}}, {n: 10, probe: waits}}, ""},
		{"the launcher was behind, long ago", probes{{n: 5, probe: probe{asked: true, state: 'S', behind: true}}, {n: 12, probe: waits}}, "its main thread waits"},
		{"a thread works", probes{{n: 100, probe: probe{asked: true, state: 'S', working: true}}}, ""},
		{"waits for a disk", probes{{n: 100, probe: probe{asked: true, state: 'D'}}}, ""},
		{"gets no processor", probes{{n: 100, probe: probe{asked: true, state: 'R'}}}, ""},
		{"gets little of it", probes{{n: 100, probe: probe{asked: true, state: 'R'}, cpu: 5}}, ""},
		{"runs and runs", probes{{n: 11, probe: probe{asked: true, state: 'R'}, cpu: 100}}, "no answer while its main thread ran for 10s"},
		{"a debugger has it", probes{{n: 100, probe: probe{asked: true, state: 't'}}}, ""},
		{"the launcher stood still", probes{{n: 9, probe: stopped}, {after: time.Hour, probe: stopped}}, ""},
		{"the launcher stood still and it ran", probes{{n: 2, probe: waits}, {after: time.Hour, probe: waits, cpu: 200000}, {n: 5, probe: waits}}, ""},
		{"everything is slow", probes{{n: 100, after: 3 * time.Second, probe: waits}}, ""},
		{"everything is slow, and it is stopped", probes{{n: 11, after: 3 * time.Second, probe: stopped}}, "no answer for 10s, its process is stopped"},
		{"still and busy do not add up", probes{{n: 9, probe: waits}, {n: 9, probe: probe{asked: true, state: 'R'}, cpu: 100}}, ""},
	} {
		f, failed := c.probes.hang().verdict(bound)
		switch {
		case !failed && c.want != "":
			t.Errorf("%s: not noticed", c.name)
		case failed && (c.want == "" || !strings.Contains(f.Detail, c.want) || len(f.Detail) > 123 || f.Reason != api.ReasonBrowserHangs):
			t.Errorf("%s: %+v", c.name, f)
		}
	}
	if f, failed := (probes{{n: 1000, probe: stopped}}).hang().verdict(0); failed {
		t.Errorf("without a bound: %+v", f)
	}
}

// TestProbeOf: a browser is waiting only if none of its threads and processes works.
func TestProbeOf(t *testing.T) {
	all := func(states string) (ps []procfs.Process) {
		for i, s := range []byte(states) {
			ps = append(ps, procfs.Process{PID: 10 + i, State: s, CPU: uint64(i + 3)})
		}
		return ps
	}
	for _, c := range []struct {
		threads, tree string // the main thread's state first
		working       bool
	}{
		{"S", "S", false}, {"S", "", false}, {"SSS", "SSSS", false}, {"SSR", "S", true}, {"SDS", "S", true},
		{"S", "SSR", true}, {"S", "SD", true}, {"S", "SZTt", false}, {"T", "TS", false},
		{"S", "R", false}, // the main process, read a moment later
		{"R", "RS", false},
	} {
		l := probeOf(all(c.threads), all(c.tree))
		if !l.asked || l.state != c.threads[0] || l.cpu != 3 || l.working != c.working {
			t.Errorf("%s %s: %+v", c.threads, c.tree, l)
		}
	}
}

// TestASlowMachineIsNoHang: whatever a machine does, a browser is given up only if it
// was asked something, and either stood still for the bound in readings that came in
// time, or its main thread ran for that long.
func TestASlowMachineIsNoHang(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const bound = 5 * time.Second
		var h hang
		now := probe{at: boottime.Instant(rapid.Int64Range(0, 1e15).Draw(t, "at"))}
		var still time.Duration // since the last sign of life, counted by the test itself
		var ran uint64
		for range rapid.IntRange(1, 60).Draw(t, "probes") {
			next := probe{
				asked: rapid.IntRange(0, 20).Draw(t, "asked") > 0, working: rapid.Bool().Draw(t, "working"), behind: rapid.IntRange(0, 30).Draw(t, "behind") == 0,
				state: rapid.SampledFrom([]byte("SSSSTRDtZ")).Draw(t, "state"),
			}
			gap := time.Duration(rapid.SampledFrom([]int{900, 1000, 1100, 1900, 2500, 90000}).Draw(t, "gap")) * time.Millisecond
			used := uint64(rapid.SampledFrom([]int{0, 0, 0, 1, 80, 100}).Draw(t, "cpu"))
			next.at, next.cpu, next.reads = now.at.Add(gap), now.cpu+used, now.reads
			if rapid.IntRange(0, 15).Draw(t, "heard") == 0 {
				next.reads++
			}
			if !next.asked || !now.asked || next.reads != now.reads || next.behind || now.behind {
				still, ran = 0, 0
			} else if gap > 2*probeEvery {
				if used == 0 && next.state == 'T' && now.state == 'T' { // it was stopped at both ends, and for at least this long
					still += probeEvery
				}
			} else {
				ran += used
				if used == 0 && (next.state == 'T' || next.state == 'S' && !next.working) {
					still += gap
				}
			}
			now = next
			h = h.next(now)
			wanted := still >= bound || procfs.Ticks(ran) >= bound
			f, failed := h.verdict(bound)
			if failed != wanted {
				t.Fatalf("still %v, ran %d: %+v", still, ran, f)
			}
			if failed {
				return // a browser is given up only once
			}
		}
	})
}

func TestExcess(t *testing.T) {
	const limit = 1 << 30
	type r struct {
		second int
		used   uint64
	}
	for _, c := range []struct {
		name  string
		limit uint64
		all   []r
		want  bool
	}{
		{"below", limit, []r{{0, 5}, {3, limit}, {6, limit}, {9, limit}, {12, limit}}, false},
		{"above for long", limit, []r{{0, limit + 1}, {2, limit + 1}, {4, limit + 9}, {6, limit + 1}}, true},
		{"at the bound", limit, []r{{0, limit + 1}, {1, limit + 1}, {3, limit + 9}, {5, limit + 1}}, true},
		{"not long enough", limit, []r{{0, limit + 1}, {1, limit + 1}, {2, limit + 1}, {3, limit + 1}, {4, limit + 1}}, false},
		{"not seen often enough", limit, []r{{0, limit + 1}, {60, limit + 1}, {120, limit + 1}}, false},
		{"went down in between", limit, []r{{0, limit + 1}, {2, limit + 1}, {4, limit}, {5, limit + 1}, {6, limit + 1}, {8, limit + 1}, {9, limit + 1}}, false},
		{"no limit", 0, []r{{0, limit}, {20, limit}, {40, limit}, {60, limit}}, false},
	} {
		var e excess
		for _, one := range c.all {
			e = e.next(c.limit, reading{boottime.Instant(0).Add(time.Duration(one.second) * time.Second), one.used})
		}
		f, failed := e.verdict(c.limit)
		if failed != c.want || failed && (!strings.Contains(f.Detail, "1.0 GiB") || len(f.Detail) > 123) {
			t.Errorf("%s: %+v", c.name, f)
		}
	}
	if f := oomKilled(limit); f.Reason != api.ReasonBrowserMemory || len(f.Detail) > 123 || !strings.Contains(f.Detail, "1.0 GiB") {
		t.Errorf("%+v", f)
	}
}

// TestMemoryLimit: a profile may lower the host's limit, but not raise it.
func TestMemoryLimit(t *testing.T) {
	for _, c := range []struct{ host, profile, want uint64 }{{0, 0, 0}, {0, 5, 5}, {3, 5, 3}, {5, 3, 3}, {5, 0, 5}} {
		d := NewDriver(t.Context(), &sync.WaitGroup{}, Options{Memory: c.host, Metrics: prometheus.NewRegistry()})
		if got := d.MemoryLimit(c.profile); got != c.want {
			t.Errorf("host %d, profile %d: %d, want %d", c.host, c.profile, got, c.want)
		}
	}
}

// TestMemoryOf: pages that two processes share count once.
func TestMemoryOf(t *testing.T) {
	var ps []procfs.Process
	for range 2 {
		cmd := exec.Command("/bin/cat")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // it was killed
		})
		// Once it has answered it is loaded, and its memory grows no more.
		if _, err := in.Write([]byte{'x'}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		p, err := procfs.Read(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		ps = append(ps, p)
	}
	ps = append(ps, procfs.Process{PID: 1 << 30}) // a process that has ended
	rss, how, shares := memoryOf(ps, 1<<40)
	if how != "rss" || rss == 0 || shares != nil {
		t.Errorf("below what is enough: %d %s %v", rss, how, shares)
	}
	used, how, shares := memoryOf(ps, 0)
	if how != "pss" || used == 0 || used >= rss || len(shares) != 2 || shares[0].Bytes+shares[1].Bytes != used {
		t.Errorf("%d of %d %s %v", used, rss, how, shares)
	}
	if os.Getuid() != 0 {
		// Process 1 belongs to another user, so the kernel shows less of its memory.
		if used, how, shares := memoryOf([]procfs.Process{{PID: 1}}, 0); how != "private" || used == 0 || len(shares) != 1 {
			t.Errorf("of another's: %d %s %v", used, how, shares)
		}
	}
}
