package natskv

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"leasehold/lease"
)

func TestEventsThatAreNotPublishedAreCounted(t *testing.T) {
	t.Parallel()
	srv := start(t, t.TempDir())
	p := startProxy(t, srv)
	s := open(t, dialPlain(t, p.url()))
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(s.pub.gauges()...)
	figures := func() (events, age float64) {
		t.Helper()
		families, err := registry.Gather()
		if err != nil || len(families) != 2 {
			t.Fatalf("families %v, error %v; want two", families, err)
		}
		return families[0].GetMetric()[0].GetGauge().GetValue(), families[1].GetMetric()[0].GetGauge().GetValue()
	}
	held := swapped(t, s, none("p"), granted(t, none("p"), "t"))
	flushed(t, s)
	if events, age := figures(); events != 0 || age != 0 {
		t.Errorf("all are published: %v events, of %v seconds", events, age)
	}

	p.set(func(p *proxy) { p.loseRequest = times(-1, "leasehold.") })
	released, err := held.Record.Release("done", "ok", lease.Sealed{}, time.Now().Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	swapped(t, s, held, released)
	if events, age := figures(); events < 1 || int(events) > len(released.Outbox) || age < 3600 || age > 7200 {
		t.Errorf("the stream takes none: %v events, of %v seconds; want those of an hour ago", events, age)
	}

	p.set(func(p *proxy) { p.loseRequest = times(0, "") })
	soon(t, func() error {
		if events, age := figures(); events != 0 || age != 0 {
			return fmt.Errorf("the stream takes them again: %v events, of %v seconds", events, age)
		}
		return nil
	})
}
