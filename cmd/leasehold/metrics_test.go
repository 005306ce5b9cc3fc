package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"leasehold/internal/test/pagetable"
	"leasehold/launcher/chrome"
	"leasehold/launcher/fileroots"
	"leasehold/launcher/snapshots"
)

var update = flag.Bool("update", false, "write docs/metrics.md")

const metricsPage = "../../docs/metrics.md"

// foreignMetrics are those of the Prometheus client library that the page names.
var foreignMetrics = []string{"go_goroutines", "go_memstats_alloc_bytes", "process_cpu_seconds_total", "process_max_fds", "process_open_fds", "process_resident_memory_bytes", "process_start_time_seconds"}

// wired returns a sidecar's parts as serve makes them, up to the launcher, which is not
// started.
func wired(t *testing.T) *service {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := soundConfig()
	c.DataDir, c.ProfilesDir, c.NATSListen = filepath.Join(dir, "data"), filepath.Join(dir, "profiles"), "127.0.0.1:0"
	// With a profile store, so that its metrics are there.
	c.ProfileStore, c.ProfileKey = "file://"+filepath.Join(dir, "store"), filepath.Join(dir, "key")
	if _, err := snapshots.WriteKey(c.ProfileKey); err != nil {
		t.Fatal(err)
	}
	if c, err = c.Complete(environment()); err != nil {
		t.Fatal(err)
	}
	s := newService(c, zerolog.Nop(), (&app{}).dropped)
	t.Cleanup(func() {
		if err := s.stops.run(); err != nil {
			t.Error(err)
		}
	})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	s.chrome, err = chrome.Find("")
	must(err)
	s.gate, err = c.gate(s.log)
	must(err)
	must(s.claimDataDir())
	s.launcherID, err = ownID(c)
	must(err)
	must(s.openKept())
	s.files, err = fileroots.New(fileroots.Options{Private: []string{c.DataDir, s.root.Dir()}, DataDir: c.DataDir})
	must(err)
	s.stops.add("exchange directories", func() error { s.files.Close(); return nil })
	s.listener, err = listen("--listen", "127.0.0.1:0", s.limits())
	must(err)
	s.stops.add("listener", s.listener.Close)
	must(s.openStores(t.Context()))
	must(s.newLauncher())
	s.stops.add("launcher", func() error { return s.launcher.Stop(context.WithoutCancel(t.Context())) })
	return s
}

// described is a metric as it describes itself.
type described struct{ name, kind, help, labels string }

var descriptor = regexp.MustCompile(`^Desc\{fqName: "([^"]+)", help: "((?:[^"\\]|\\.)*)", .*constLabels: \{.*\}, variableLabels: \{(.*)\}\}$`)

// registered are the metrics of a sidecar, by name.
func registered(t *testing.T, s *service) map[string]described {
	t.Helper()
	kinds := map[string]string{}
	families, err := s.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		kinds[f.GetName()] = strings.ToLower(f.GetType().String())
	}
	descriptors := make(chan *prometheus.Desc)
	go func() {
		defer close(descriptors)
		s.metrics.Describe(descriptors)
	}()
	all := map[string]described{}
	for d := range descriptors {
		parts := descriptor.FindStringSubmatch(d.String())
		if parts == nil {
			t.Errorf("not understood: %s", d)
			continue
		}
		name, kind := parts[1], kinds[parts[1]]
		if kind == "" && strings.HasSuffix(name, "_total") {
			kind = "counter" // nothing was counted yet, so nothing is shown
		}
		if strings.HasPrefix(name, "leasehold_") && kind == "" {
			t.Errorf("%s: it is neither shown nor named as a counter", name)
		}
		help := strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(parts[2])
		all[name] = described{name, kind, help, parts[3]}
	}
	return all
}

// unit is what a metric's number counts.
func (d described) unit() string {
	switch {
	case strings.HasSuffix(d.name, "_seconds"):
		return "seconds"
	case strings.HasSuffix(d.name, "_bytes"):
		return "bytes"
	case d.name == "leasehold_ready", d.name == "leasehold_lease_store_up", d.name == "leasehold_proxies_up_to_date":
		return "0 or 1"
	}
	return "count"
}

func (d described) row() string {
	labels := "-"
	if d.labels != "" {
		labels = "`" + strings.ReplaceAll(d.labels, ",", "`, `") + "`"
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s | %s |\n", d.name, cmp.Or(d.kind, "?"), d.unit(), labels, d.help)
}

// metricsTables are those of docs/metrics.md, by their names there.
func metricsTables(t *testing.T, all map[string]described) map[string]string {
	var own, foreign strings.Builder
	own.WriteString("| metric | kind | unit | labels | meaning |\n| --- | --- | --- | --- | --- |\n")
	names := []string{}
	for name := range all {
		if strings.HasPrefix(name, "leasehold_") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		own.WriteString(all[name].row())
	}
	foreign.WriteString("| metric | kind | meaning |\n| --- | --- | --- |\n")
	for _, name := range foreignMetrics {
		d, ok := all[name]
		if !ok {
			t.Errorf("%s is not registered", name)
		}
		fmt.Fprintf(&foreign, "| `%s` | %s | %s |\n", name, d.kind, d.help)
	}
	return map[string]string{"metrics": own.String(), "process": foreign.String()}
}

func TestThePageShowsTheMetrics(t *testing.T) {
	all := registered(t, wired(t))
	for name, d := range all {
		if strings.HasPrefix(name, "leasehold_") && (!strings.HasSuffix(d.help, ".") || strings.Contains(d.help, "|")) {
			t.Errorf("%s: %q, want sentences without |", name, d.help)
		}
	}
	for name, want := range metricsTables(t, all) {
		if err := pagetable.Compare(metricsPage, name, want, *update); err != nil {
			t.Error(err)
		}
	}
}

// A launcher says what it knows while its NATS is away.
func TestMetricsAreShownWhileNATSIsAway(t *testing.T) {
	s := wired(t)
	s.launcher.Start()
	value := func(name string) float64 {
		t.Helper()
		families, err := s.metrics.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == name {
				return f.GetMetric()[0].GetGauge().GetValue()
			}
		}
		t.Fatalf("%s is not shown", name)
		return 0
	}
	becomes := func(name string, want float64) {
		t.Helper()
		for patience := time.Now().Add(time.Minute); value(name) != want; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(patience) {
				t.Fatalf("%s is %v, want %v", name, value(name), want)
			}
		}
	}
	becomes("leasehold_ready", 1)
	becomes("leasehold_lease_store_up", 1)
	s.nats.Close()
	becomes("leasehold_lease_store_up", 0)
	becomes("leasehold_ready", 0)
	if down := value("leasehold_lease_store_down_seconds"); down <= 0 {
		t.Errorf("it has been away for %v seconds", down)
	}
	for _, name := range []string{"leasehold_profiles", "leasehold_profile_wait_seconds", "leasehold_evidence_spool_bundles", "leasehold_events_unpublished", "leasehold_browsers"} {
		if got := value(name); got != 0 {
			t.Errorf("%s is %v", name, got)
		}
	}
}
