package launcher

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"leasehold/launcher/api"
)

// maxQueue is how many requests may wait for a place on the host.
const maxQueue = 256

// ticket is a request that waits, or may come to wait, for a place on the host.
type ticket struct {
	// ready says that a place is all that it waits for: one whose profile is in
	// use keeps its turn, and holds up nobody.
	ready bool
}

// places are the browsers that this host may run, and who waits for one: the first
// who came is the first served. The zero value has no limit. Its methods are
// called with the launcher's mutex held.
type places struct {
	max   int // zero: no limit
	queue []*ticket
	// held is how long sessions had their places lately: a moving average, zero
	// while there was none.
	held time.Duration
}

// ahead counts the requests that a place is due to before t.
func (q *places) ahead(t *ticket) int {
	n := 0
	for _, other := range q.queue {
		if other == t {
			break
		}
		if other.ready {
			n++
		}
	}
	return n
}

// free tells whether t may have a place now that used are taken.
func (q *places) free(t *ticket, used int) bool {
	return q.max == 0 || used+q.ahead(t) < q.max
}

// wait puts t into the queue, if it is not in it. It is false where the queue is
// full.
func (q *places) wait(t *ticket) bool {
	if !slices.Contains(q.queue, t) {
		if len(q.queue) >= maxQueue {
			return false
		}
		q.queue = append(q.queue, t)
	}
	t.ready = true
	return true
}

// leave takes t out of the queue; it is true where others come nearer by that.
func (q *places) leave(t *ticket) bool {
	nearer := t.ready && slices.Contains(q.queue, t)
	q.queue = slices.DeleteFunc(q.queue, func(other *ticket) bool { return other == t })
	t.ready = false
	return nearer
}

// observe counts a session's stay.
func (q *places) observe(stay time.Duration) {
	if q.held == 0 {
		q.held = stay
		return
	}
	q.held += (stay - q.held) / 8
}

// estimate is how long the request with ahead others before it waits for a place,
// if sessions last as long as they did lately. Since are the ages of those that
// live. It is false where no session has ended yet.
func (q *places) estimate(since []time.Duration, ahead int) (time.Duration, bool) {
	if q.held == 0 || len(since) == 0 {
		return 0, false
	}
	ends := make([]time.Duration, len(since))
	for i, age := range since {
		ends[i] = max(q.held-age, time.Second) // one that is late may end any moment
	}
	var at time.Duration
	for range ahead + 1 {
		next := 0
		for i := range ends {
			if ends[i] < ends[next] {
				next = i
			}
		}
		at = ends[next]
		ends[next] += q.held
	}
	return at, true
}

// takePlace gives an occupied profile a place on this host for its browser, or
// says why not.
func (l *Launcher) takePlace(o *openProfile, t *ticket) *api.Problem {
	if p := l.diskProblem(); p != nil {
		return p
	}
	for {
		l.mu.Lock()
		now := time.Now()
		since := l.taken(now)
		had, free := !o.placed.IsZero(), l.places.free(t, len(since))
		if !had && free {
			o.placed = now
		}
		l.mu.Unlock()
		switch {
		case had || free:
			return nil
		case !l.makeRoom(o, t):
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.places.full(t, since)
		}
	}
}

// taken lists how long the places of this host are taken. The caller holds l.mu.
func (l *Launcher) taken(now time.Time) []time.Duration {
	var since []time.Duration
	for _, all := range []map[string]*openProfile{l.profiles, l.warm} {
		for _, o := range all {
			if !o.placed.IsZero() {
				since = append(since, now.Sub(o.placed))
			}
		}
	}
	return since
}

// countPlace counts the browser of an earlier launcher, which nobody asks for.
func (l *Launcher) countPlace(profile string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if o := l.profiles[profile]; o != nil {
		o.placed = time.Now()
	}
}

// full refuses for want of a place, with where in the queue the request stands, or
// would, and for how long.
func (q *places) full(t *ticket, since []time.Duration) *api.Problem {
	ahead := q.ahead(t)
	text := "not known yet"
	p := api.Refuse(api.CodeHostFull, "").With("reason", "browsers").With("max_browsers", q.max).With("browsers", len(since)).
		With("queue_position", ahead+1).With("queue_length", len(q.queue))
	p.RetryAfter = 5
	if wait, known := q.estimate(since, ahead); known {
		seconds := int(math.Ceil(wait.Seconds()))
		p = p.With("estimated_wait_seconds", seconds)
		p.RetryAfter = min(max(seconds, 1), 300)
		text = "about " + (time.Duration(seconds) * time.Second).String()
	}
	p.Detail = fmt.Sprintf("all %d browsers of this host are in use: place %d in the queue, wait %s; to queue, ask with wait", q.max, ahead+1, text)
	return p
}

// queueUp keeps the turn of a request that was refused with p and goes on waiting.
// It returns the problem of a queue that is full.
func (l *Launcher) queueUp(t *ticket, p *api.Problem) *api.Problem {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.Code == api.CodeHostFull {
		if !l.places.wait(t) {
			q := p.With("queue_length", len(l.places.queue))
			q.Detail = fmt.Sprintf("all %d browsers of this host are in use, and its queue is full with %d requests: ask again later", l.places.max, len(l.places.queue))
			return q
		}
	} else if t.ready {
		t.ready = false
		l.wake()
	}
	return nil
}

// leaveQueue ends a request's wait.
func (l *Launcher) leaveQueue(t *ticket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.places.leave(t) {
		l.wake()
	}
}

// freeDisk is how many bytes an unprivileged process may still write at path.
func freeDisk(path string) (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, fmt.Errorf("free space of %s: %w", path, err)
	}
	return st.Bavail * uint64(st.Bsize), nil
}

// diskRetry is when, in seconds, a host without space is to be asked again.
const diskRetry = 30

// diskProblem refuses a browser while there is less space than it may need: a
// profile on a full disk loses what it should keep.
func (l *Launcher) diskProblem() *api.Problem {
	if l.o.MinFreeDisk == 0 {
		return nil
	}
	for _, dir := range []string{l.o.Root.Dir(), l.o.DataDir} {
		free, err := freeDisk(dir)
		if err != nil {
			l.o.Log.Error().Err(err).Msg("disk not watched")
			continue
		}
		if free < l.o.MinFreeDisk {
			p := api.Refuse(api.CodeHostFull, "the disk of %s has %s left, and no browser is started below %s (--min-free-disk): make room", dir, humanize.IBytes(free), humanize.IBytes(l.o.MinFreeDisk)).
				With("reason", "disk").With("disk_free_bytes", free).With("disk_min_bytes", l.o.MinFreeDisk)
			p.RetryAfter = diskRetry
			return p
		}
	}
	return nil
}

// diskEvery is how often the disk is looked at while nobody asks.
const diskEvery = 15 * time.Second

// watchDisk says when the disk runs short, and when it does not any more: the
// browsers that run go on writing.
func (l *Launcher) watchDisk() {
	every := time.NewTicker(diskEvery)
	defer every.Stop()
	short := false
	for {
		p := l.diskProblem()
		switch {
		case p != nil && !short:
			l.o.Log.Warn().Msg(p.Detail)
		case p == nil && short:
			l.o.Log.Info().Msg("there is room on the disk again")
			l.mu.Lock()
			l.wake()
			l.mu.Unlock()
		}
		short = p != nil
		select {
		case <-every.C:
		case <-l.ctx.Done():
			return
		}
	}
}

// hostMetrics are read when they are asked for.
func (l *Launcher) hostMetrics() []prometheus.Collector {
	counted := func(name, help string, count func() int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			l.mu.Lock()
			defer l.mu.Unlock()
			return float64(count())
		})
	}
	return []prometheus.Collector{
		l.warmMetrics(),
		counted("leasehold_browsers", "Browsers that take a place on this host.", func() int { return len(l.taken(time.Now())) }),
		counted("leasehold_queue", "Requests that wait for a place on this host.", func() int { return len(l.places.queue) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "leasehold_disk_free_bytes", Help: "Space left where the profiles are."}, func() float64 {
			free, err := freeDisk(l.o.Root.Dir())
			if err != nil {
				return math.NaN()
			}
			return float64(free)
		}),
	}
}
