package launcher

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"leasehold/internal/boottime"
)

func TestHowLongTheStoreCouldNotBeUsed(t *testing.T) {
	now, registry := boottime.Instant(time.Hour), prometheus.NewPedanticRegistry()
	r := newReadiness(func() boottime.Instant { return now }, registry)
	shows := func(when string, want map[string]float64) {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if got := f.GetMetric()[0].GetGauge().GetValue(); got != want[f.GetName()] {
				t.Errorf("%s: %s is %v, want %v", when, f.GetName(), got, want[f.GetName()])
			}
		}
	}
	for _, step := range []struct {
		when            string
		up, ready, news bool
		took            time.Duration // since the step before
		down            time.Duration // what was found out is told with this
		shown           float64
	}{
		{when: "never yet", took: 2 * time.Second, news: true, down: 2 * time.Second, shown: 2},
		{when: "usable, with no presence yet", up: true, took: time.Second, news: true, down: 3 * time.Second},
		{when: "ready", up: true, ready: true, took: time.Minute},
		{when: "away", took: time.Second, news: true},
		{when: "still away", took: time.Minute, down: time.Minute, shown: 60},
		{when: "back", up: true, ready: true, took: time.Minute, news: true, down: 2 * time.Minute},
	} {
		now += boottime.Instant(step.took)
		news, down := r.found(step.up, step.ready)
		if news != step.news || down != step.down {
			t.Errorf("%s: news %v after %v; want %v after %v", step.when, news, down, step.news, step.down)
		}
		shows(step.when, map[string]float64{
			"leasehold_lease_store_up": oneIf(step.up), "leasehold_ready": oneIf(step.ready), "leasehold_lease_store_down_seconds": step.shown,
		})
	}
}

// TestAStoreThatHasJustAnsweredIsNotAsked whether it can be used.
func TestAStoreThatHasJustAnsweredIsNotAsked(t *testing.T) {
	away := errors.New("away")
	for name, tt := range map[string]struct {
		answered time.Duration // ago
		want     error
	}{
		"since the last check":     {5 * time.Second, nil},
		"before the last check":    {7 * time.Second, away},
		"not known when it did so": {-1, away},
	} {
		t.Run(name, func(t *testing.T) {
			l := &Launcher{o: Options{Ping: func(context.Context) error { return away }}}
			if tt.answered >= 0 {
				l.o.Reached = func(while time.Duration) bool { return tt.answered <= while }
			}
			if err := l.storeFound(t.Context()); (err == nil) != (tt.want == nil) {
				t.Errorf("the store: %v, want %v", err, tt.want)
			}
		})
	}
}
