package model

import "time"

// Fault is a kind of thing that goes wrong.
type Fault string

// The faults.
const (
	Crash     Fault = "launcher killed"
	Reboot    Fault = "host rebooted"
	Pause     Fault = "launcher paused"
	Freeze    Fault = "host frozen"
	WallJump  Fault = "wall clock jumped"
	Partition Fault = "host cut off"
	Away      Fault = "store away"
	Restart   Fault = "store restarted"
	Lost      Fault = "acknowledged writes lost"
	Back      Fault = "store rolled back"
	Wiped     Fault = "store wiped"
	Storm     Fault = "bad network"
)

// AllFaults lists all faults.
var AllFaults = []Fault{Crash, Reboot, Pause, Freeze, WallJump, Partition, Away, Restart, Lost, Back, Wiped, Storm}

// plan schedules the first fault of each kind.
func (w *World) plan() {
	for _, f := range AllFaults {
		if mean := w.o.Faults[f]; mean > 0 {
			w.next(f, mean)
		}
	}
}

// next schedules the next fault of the kind, and the ones after it.
func (w *World) next(f Fault, mean time.Duration) {
	w.after(time.Duration(w.rng.ExpFloat64()*float64(mean)), func() {
		w.strike(f, w.hosts[w.rng.IntN(len(w.hosts))])
		w.next(f, mean)
	})
}

// soon lets, with the given probability, one or two faults happen to the host very soon. It is
// called at moments at which a fault is especially dangerous.
func (w *World) soon(h *host, chance float64) {
	if !w.chance(chance) {
		return
	}
	at := w.upTo(200 * time.Millisecond)
	var kinds []Fault
	for _, f := range AllFaults {
		if w.o.Faults[f] > 0 {
			kinds = append(kinds, f)
		}
	}
	for range 1 + w.rng.IntN(2) {
		if len(kinds) > 0 {
			f := kinds[w.rng.IntN(len(kinds))]
			w.after(at, func() { w.strike(f, h) })
			at += w.upTo(200 * time.Millisecond)
		}
	}
}

// strike lets the fault happen to the host, or to the store.
func (w *World) strike(f Fault, h *host) {
	s := &w.server
	w.counts[string(f)]++
	switch f {
	case Crash, Reboot:
		if h.p == nil {
			return
		}
		w.logf("%s: %s", h.id, f)
		h.p.die()
		h.p = nil
		if f == Reboot {
			for _, p := range keys(w.dirs) {
				for _, c := range append([]*chrome(nil), w.dirs[p].chrome...) {
					if c.host == h {
						c.end()
					}
				}
			}
			h.started = w.now
		}
		w.after(w.upTo(90*time.Second), func() { w.launch(h) })
	case Pause:
		if h.p != nil {
			d := w.upTo(3 * w.o.TTL)
			w.logf("%s: launcher paused for %v", h.id, d)
			h.p.paused = w.now + int64(d)
		}
	case Freeze:
		d := w.upTo(3 * w.o.TTL)
		w.logf("%s: frozen for %v", h.id, d)
		h.frozen = w.now + int64(d)
	case WallJump:
		h.wall += w.upTo(4*time.Hour) - 2*time.Hour
		w.logf("%s: wall clock jumps to %v off", h.id, h.wall)
	case Partition:
		if h.cutOff {
			return
		}
		d := w.o.Cuts[0] + w.upTo(w.o.Cuts[1]-w.o.Cuts[0])
		w.logf("%s: cut off for %v", h.id, d)
		h.cutOff = true
		w.after(d, func() {
			w.logf("%s: connected again", h.id)
			h.cutOff = false
		})
	case Away:
		if s.away {
			return
		}
		d := w.upTo(2 * w.o.TTL)
		w.logf("store: away for %v", d)
		s.away = true
		w.after(d, func() {
			w.logf("store: back")
			s.away = false
			w.restart()
		})
	case Restart:
		w.logf("store: restarted")
		w.restart()
	case Lost:
		n := 1 + w.rng.Uint64N(4)*w.rng.Uint64N(2)
		w.logf("store: restarted, and the last %d writes are lost", n)
		w.goBack(n, false)
	case Back:
		n := w.rng.Uint64N(200)
		w.logf("store: rolled back by %d writes", n)
		w.goBack(n, false)
	case Wiped:
		w.logf("store: wiped")
		w.goBack(0, true)
	case Storm:
		h.storm = w.now + int64(w.upTo(2*time.Minute))
		w.logf("%s: bad network until %.1fs", h.id, float64(h.storm)/1e9)
	}
}
