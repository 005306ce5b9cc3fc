package slots

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/prometheus/client_golang/prometheus"

	"leasehold/internal/descriptors"
	"leasehold/internal/durable"
	"leasehold/launcher/api"
)

const (
	// roomTimeout bounds how long the disks may take to take a file.
	roomTimeout = 5 * time.Second
	// minFreeFiles is how many files a disk has to have left for a browser. A new profile has
	// some two hundred.
	minFreeFiles = 2000
)

// Short is the refusal of every browser while this host lacks what a session writes, in the words
// that are for its worker; nil if it lacks nothing. A place is not counted. A profile on a full disk
// would lose data.
func (t *Table) Short() *api.Problem {
	if err := descriptors.ForSessions.Probe(); err != nil {
		return api.HostShort("descriptors", err)
	}
	ctx, cancel := context.WithTimeout(t.ctx, roomTimeout)
	defer cancel()
	p, err := durable.Call(ctx, t.disks, func() (*api.Problem, error) {
		if err := t.o.Root.There(); err != nil {
			return nil, err
		}
		if p := t.diskShort(); p != nil {
			return p, nil
		}
		for _, dir := range t.o.Dirs {
			if err := durable.Takes(dir); err != nil {
				return nil, err
			}
		}
		if t.o.Ready == nil {
			return nil, nil
		}
		return nil, t.o.Ready()
	})
	if err != nil && !errors.As(err, &p) {
		p = api.HostShort(api.ReasonFiles, err)
	}
	return p
}

// diskShort is the refusal where a disk has too little space or too few inodes left.
func (t *Table) diskShort() *api.Problem {
	for _, dir := range []string{t.o.Root.Dir(), t.o.DataDir} {
		free, err := durable.FreeSpace(dir)
		if err != nil {
			return api.HostShort(api.ReasonFiles, err)
		}
		var p *api.Problem
		switch {
		case free.Bytes < t.o.MinFreeDisk:
			p = api.Refuse(api.CodeHostFull, "the disk of %s has %s left, and no browser is started below %s (--min-free-disk): make room", dir, humanize.IBytes(free.Bytes), humanize.IBytes(t.o.MinFreeDisk))
		case free.Files < minFreeFiles:
			p = api.Refuse(api.CodeHostFull, "the disk of %s has inodes for %d more files, and no browser is started below %d: remove files", dir, free.Files, minFreeFiles)
		default:
			continue
		}
		p = p.With("reason", "disk").With("disk_free_bytes", free.Bytes).With("disk_min_bytes", t.o.MinFreeDisk)
		p.RetryAfter = api.ShortRetry
		return p
	}
	return nil
}

// roomEvery is the time between two checks of the room by WatchRoom.
const roomEvery = 15 * time.Second

// WatchRoom logs when something that browsers need runs short and when there is enough again, until
// the table's context ends. It is needed because browsers that run go on writing.
func (t *Table) WatchRoom() {
	every := time.NewTicker(roomEvery)
	defer every.Stop()
	short := false
	for {
		p := t.Short()
		switch {
		case p != nil && !short:
			t.o.Log.Warn().Msg(p.Detail)
		case p == nil && short:
			t.o.Log.Info().Msg("browsers can be started again: this host has what they need")
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
			return float64(free.Bytes)
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
		counted("leasehold_queue", "Requests that wait for a place on this host.", t.places.waiting),
		constant("leasehold_browsers_limit", "Places for browsers on this host (--max-browsers); +Inf where there is no limit.", limit),
		space("leasehold_disk_free_bytes", "Space left where the profiles are.", t.o.Root.Dir()),
		space("leasehold_data_disk_free_bytes", "Space left where the data directory is.", t.o.DataDir),
		constant("leasehold_disk_min_free_bytes", "Space below which no browser is started, on either disk (--min-free-disk); 0 where there is no bound.", float64(t.o.MinFreeDisk)),
	}
}
