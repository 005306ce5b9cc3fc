package slots

import (
	"math"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/prometheus/client_golang/prometheus"

	"leasehold/internal/durable"
	"leasehold/launcher/api"
)

// diskRetry is after how many seconds a request that was refused for want of disk space
// should be tried again.
const diskRetry = 30

// diskProblem is the refusal of a browser while there is less disk space than it may
// need, nil if there is enough. A profile on a full disk would lose data.
func (t *Table) diskProblem() *api.Problem {
	if t.o.MinFreeDisk == 0 {
		return nil
	}
	for _, dir := range []string{t.o.Root.Dir(), t.o.DataDir} {
		free, err := durable.FreeSpace(dir)
		if err != nil {
			t.o.Log.Error().Err(err).Msg("disk not watched")
			continue
		}
		if free < t.o.MinFreeDisk {
			p := api.Refuse(api.CodeHostFull, "the disk of %s has %s left, and no browser is started below %s (--min-free-disk): make room", dir, humanize.IBytes(free), humanize.IBytes(t.o.MinFreeDisk)).
				With("reason", "disk").With("disk_free_bytes", free).With("disk_min_bytes", t.o.MinFreeDisk)
			p.RetryAfter = diskRetry
			return p
		}
	}
	return nil
}

// diskEvery is the time between two checks of the disk by WatchDisk.
const diskEvery = 15 * time.Second

// WatchDisk logs when disk space runs short and when there is enough again, until the
// table's context ends. It is needed because browsers that run go on writing.
func (t *Table) WatchDisk() {
	every := time.NewTicker(diskEvery)
	defer every.Stop()
	short := false
	for {
		p := t.diskProblem()
		switch {
		case p != nil && !short:
			t.o.Log.Warn().Msg(p.Detail)
		case p == nil && short:
			t.o.Log.Info().Msg("there is room on the disk again")
			t.Wake()
		}
		short = p != nil
		select {
		case <-every.C:
		case <-t.ctx.Done():
			return
		}
	}
}

// gauges are the table's metrics, which are read at each scrape.
func (t *Table) gauges() []prometheus.Collector {
	counted := func(name, help string, count func() int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			t.mu.Lock()
			defer t.mu.Unlock()
			return float64(count())
		})
	}
	space := func(name, help, dir string) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			free, err := durable.FreeSpace(dir)
			if err != nil {
				return math.NaN()
			}
			return float64(free)
		})
	}
	constant := func(name, help string, value float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return value })
	}
	limit := math.Inf(1)
	if t.places.max > 0 {
		limit = float64(t.places.max)
	}
	return []prometheus.Collector{
		counted("leasehold_browsers_warm", "Browsers that wait, without a session, for the next task of their profile.", t.countWarm),
		counted("leasehold_browsers", "Browsers that take a place on this host.", t.usedPlaces),
		counted("leasehold_queue", "Requests that wait for a place on this host.", func() int { return len(t.places.queue) }),
		constant("leasehold_browsers_limit", "Places for browsers on this host (--max-browsers); +Inf where there is no limit.", limit),
		space("leasehold_disk_free_bytes", "Space left where the profiles are.", t.o.Root.Dir()),
		space("leasehold_data_disk_free_bytes", "Space left where the data directory is.", t.o.DataDir),
		constant("leasehold_disk_min_free_bytes", "Space below which no browser is started, on either disk (--min-free-disk); 0 where there is no bound.", float64(t.o.MinFreeDisk)),
	}
}
