package readers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"leasehold/internal/durable"
	"leasehold/launcher/snapshots"
)

// The newest snapshot of a profile is fetched once for all sessions that begin on it at about
// the same time. It is unpacked into a directory from which their copies are made. No browser
// is started there.

const (
	// cacheName is the name of the folder with the unpacked snapshots. No profile has that
	// name.
	cacheName = ".unpacked"
	// cacheIdle is how long an unused unpacked snapshot is kept.
	cacheIdle = 5 * time.Minute
	// cacheMax is how many unused ones are kept, whatever their age.
	cacheMax = 8
	// fetchTimeout bounds how long fetching a snapshot may take.
	fetchTimeout = 5 * time.Minute
)

// Unpacked is a snapshot in a directory of this host.
type Unpacked struct {
	Snapshot snapshots.Snapshot
	Dir      string
	Bytes    uint64
	// Extra are the files that were kept with the profile.
	Extra map[string][]byte
}

type cacheKey struct{ profile, snapshot string }

// unpacking is a snapshot that is unpacked, or being fetched.
type unpacking struct {
	done chan struct{} // closed when the snapshot is there, or err says why not
	got  *Unpacked
	err  error

	// The cache's mutex guards these.
	users int
	since time.Time // when the last user left it
}

type cache struct {
	o   Options
	dir string
	now func() time.Time

	// ctx is that of the fetches, which outlive their callers, but not run.
	ctx  context.Context
	stop context.CancelFunc

	fetches *prometheus.CounterVec // by result

	wake chan struct{} // has room for one: something may have to be removed

	mu     sync.Mutex
	held   map[cacheKey]*unpacking
	places uint64 // directories that were ever given to a fetch
	work   sync.WaitGroup
}

func newCache(o Options, dir string) *cache {
	c := &cache{
		o: o, dir: dir, now: time.Now, wake: make(chan struct{}, 1), held: map[cacheKey]*unpacking{},
		fetches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "leasehold_reader_fetches_total", Help: "Snapshots that were brought here for ephemeral sessions, by result.",
		}, []string{"result"}),
	}
	c.ctx, c.stop = context.WithCancel(context.Background())
	o.Metrics.MustRegister(c.fetches, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "leasehold_reader_cache_bytes", Help: "Size of the unpacked snapshots from which ephemeral sessions are copied.",
	}, func() float64 { return float64(c.bytes()) }))
	return c
}

// empty removes what an earlier launcher has unpacked: it may be incomplete.
func (c *cache) empty() error { return os.RemoveAll(c.dir) }

func (c *cache) bytes() (n uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, u := range c.held {
		if u.got != nil {
			n += u.got.Bytes
		}
	}
	return n
}

// unpack returns the snapshot, and keeps it until release is called. Callers that want the same
// one wait for one fetch, which goes on even if the first of them leaves.
func (c *cache) unpack(ctx context.Context, profile, snapshot string) (*Unpacked, func(), error) {
	key := cacheKey{profile, snapshot}
	c.mu.Lock()
	u := c.held[key]
	if u == nil {
		u = &unpacking{done: make(chan struct{})}
		c.held[key] = u
		c.work.Go(func() { c.fetch(key, u) })
	}
	u.users++
	c.mu.Unlock()
	select {
	case <-u.done:
	case <-ctx.Done():
	}
	err := context.Cause(ctx) // who is gone gets nothing, even if the snapshot is here
	if err == nil {
		err = u.err
	}
	if err != nil {
		c.leave(u)
		return nil, nil, err
	}
	return u.got, sync.OnceFunc(func() { c.leave(u) }), nil
}

func (c *cache) leave(u *unpacking) {
	c.mu.Lock()
	u.users--
	u.since = c.now()
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// fetch fetches a snapshot. If that fails, the snapshot is forgotten, so that the next caller
// tries again.
func (c *cache) fetch(key cacheKey, u *unpacking) {
	ctx, cancel := context.WithTimeout(c.ctx, fetchTimeout)
	defer cancel()
	got, err := c.bring(ctx, key)
	var space *snapshots.NoSpaceError
	if (errors.As(err, &space) || durable.Full(err)) && c.tidy(true) > 0 {
		got, err = c.bring(ctx, key)
	}
	result := "fetched"
	c.mu.Lock()
	if u.got, u.err = got, err; err != nil {
		result = "failed"
		delete(c.held, key)
	}
	c.mu.Unlock()
	c.fetches.WithLabelValues(result).Inc()
	close(u.done)
}

func (c *cache) bring(ctx context.Context, key cacheKey) (*Unpacked, error) {
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return nil, err
	}
	begun := time.Now()
	c.mu.Lock()
	c.places++
	dir := filepath.Join(c.dir, fmt.Sprint(key.profile, "@", key.snapshot, ".", c.places)) // an earlier one may be being removed
	c.mu.Unlock()
	ours, err := c.o.Chrome(ctx)
	if err != nil {
		return nil, err
	}
	got, err := c.o.Snapshots.Fetch(ctx, key.profile, key.snapshot, dir, snapshots.FetchOptions{Chrome: ours, KeepFree: c.o.KeepFree})
	if err != nil {
		return nil, err
	}
	c.o.Log.Info().Str("profile", key.profile).Str("snapshot", key.snapshot).Uint64("bytes", got.Bytes).Dur("took", time.Since(begun)).Msg("snapshot unpacked for ephemeral sessions")
	return &Unpacked{Snapshot: got.Snapshot, Dir: dir, Bytes: got.Bytes, Extra: got.Extra}, nil
}

// run removes unused snapshots until ctx ends. Then it ends the fetches that are under way, and
// removes everything.
func (c *cache) run(ctx context.Context) {
	for {
		c.tidy(false)
		var timer <-chan time.Time
		if at, any := c.next(); any {
			timer = time.After(at.Sub(c.now()))
		}
		select {
		case <-c.wake:
		case <-timer:
		case <-ctx.Done():
			c.stop()
			c.work.Wait()
			if err := c.empty(); err != nil {
				c.o.Log.Warn().Err(err).Msg("unpacked snapshots are not removed: the next launcher removes them")
			}
			return
		}
	}
}

// next is when the next unused snapshot has to be removed.
func (c *cache) next() (at time.Time, any bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, u := range c.held {
		if due := u.since.Add(cacheIdle); u.got != nil && u.users == 0 && (!any || due.Before(at)) {
			at, any = due, true
		}
	}
	return at, any
}

// tidy removes unused unpacked snapshots: those that are too old, those that were replaced by a
// later one of the same profile, and the oldest if there are too many; with all, every one. It
// returns how many it removed.
func (c *cache) tidy(all bool) int {
	c.mu.Lock()
	var unused []cacheKey
	for key, u := range c.held {
		if u.got != nil && u.users == 0 {
			unused = append(unused, key)
		}
	}
	slices.SortFunc(unused, func(a, b cacheKey) int {
		return cmp.Or(c.held[b].since.Compare(c.held[a].since), cmp.Compare(a.snapshot, b.snapshot))
	})
	var gone []*Unpacked
	for i, key := range unused {
		u := c.held[key]
		if all || i >= cacheMax || !c.now().Before(u.since.Add(cacheIdle)) || c.replaced(key) {
			gone = append(gone, u.got)
			delete(c.held, key)
		}
	}
	c.mu.Unlock()
	for _, u := range gone {
		if err := os.RemoveAll(u.Dir); err != nil {
			c.o.Log.Warn().Err(err).Str("profile", u.Snapshot.ProfileID).Msg("an unpacked snapshot is not removed: the next launcher removes it")
		}
	}
	return len(gone)
}

// replaced tells whether a later snapshot of the profile was fetched. The caller holds c.mu.
func (c *cache) replaced(key cacheKey) bool {
	own := c.held[key].got.Snapshot
	for other, u := range c.held {
		if other.profile == key.profile && u.got != nil && u.got.Snapshot.Token > own.Token {
			return true
		}
	}
	return false
}
