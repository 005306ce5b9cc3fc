// Package catalog has the record of every profile in memory, as the lease store last showed it.
// Lists of profiles are made from it: filtered, sorted, counted, and page by page, without
// reading ten thousand records from the store.
//
// Its content is a hint, like every read of the store. This launcher's own writes are in it at
// once, those of others as soon as the watch shows them.
package catalog

import (
	"context"
	"strings"
	"sync"
	"time"

	"leasehold/launcher/api"
	"leasehold/lease"
)

// Row is a profile in a list. It is never changed after it was made.
type Row struct {
	Record lease.Record
	// Gone says that the profile's directory is not on the disk of this launcher, its home.
	Gone bool
	// NotNow says that its home is away, or has no place, or that other waiters for it come
	// first.
	NotNow bool
	// Hands says what people have to do with its living session on this host.
	Hands api.InHands
	// CoolUntil is Catalog.CoolUntil of the entry.
	CoolUntil time.Time
	// text is what words are searched in.
	text string
}

// NewRow returns the row of a record, in the form that clients see.
func NewRow(e lease.Entry) *Row {
	r := e.Record.Public()
	text := strings.Join([]string{
		r.ProfileID, r.AccountID, r.ProxyID, r.OwnerWorkerID, r.TaskID, r.LastKnownURL, r.LastKnownStep, string(r.State), spaced(string(r.State)),
		r.Reason, spaced(r.Reason), r.Home, holder(r), strings.Join(r.Labels.Texts(), "\n"),
	}, "\n")
	return &Row{Record: r, CoolUntil: coolUntil(e, time.Now()), text: strings.ToLower(text)}
}

// coolUntil is the end of an entry's cooldown, on the monotonic clock; zero if it has none.
func coolUntil(e lease.Entry, now time.Time) time.Time {
	if e.Record.AvailableAfter.IsZero() {
		return time.Time{}
	}
	return now.Add(e.Record.Cooldown() - max(e.Age, 0))
}

func spaced(name string) string { return strings.ReplaceAll(name, "_", " ") }

func holder(r lease.Record) string {
	if r.ByHand == nil {
		return ""
	}
	return r.ByHand.Holder
}

// seen is a row with what distinguishes it from an earlier one.
type seen struct {
	row      *Row
	revision uint64
	// round is the round in which the watch showed it.
	round uint64
}

// Catalog has the rows. Its methods may be called concurrently.
type Catalog struct {
	mu   sync.Mutex
	rows map[string]seen // by profile
	// round counts how often the watch began again. complete says that it has shown every
	// record since it last began; ever, that it has done so at least once.
	round          uint64
	complete, ever bool
	changes        uint64        // number of changes of all rows
	changed        chan struct{} // closed and replaced when a row changes
}

// New returns an empty catalog.
func New() *Catalog { return &Catalog{rows: map[string]seen{}, changed: make(chan struct{})} }

// Rows returns all rows, in no order. complete says that there are no others. If complete is
// false but known is true, there may be others, or some rows may be older than what is in the
// store.
func (c *Catalog) Rows() (rows []*Row, complete, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	rows = make([]*Row, 0, len(c.rows))
	for _, s := range c.rows {
		rows = append(rows, s.row)
	}
	return rows, c.complete, c.ever
}

// Records are the records of all rows: see Rows.
func (c *Catalog) Records() []lease.Record {
	rows, _, _ := c.Rows()
	records := make([]lease.Record, len(rows))
	for i, r := range rows {
		records[i] = r.Record
	}
	return records
}

// Record returns the record of a profile; false if it was never seen.
func (c *Catalog) Record(profile string) (lease.Record, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.rows[profile]
	if !ok {
		return lease.Record{}, false
	}
	return s.row.Record, true
}

// CoolUntil is the end of an entry's cooldown, to be compared with time.Now; zero if it has none.
// What was left of it when it was first seen here is counted from then on the monotonic clock: the
// end in the record is a time of whichever clock its writer had, and this host's may be set
// meanwhile.
func (c *Catalog) CoolUntil(e lease.Entry) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.coolUntilLocked(e)
}

func (c *Catalog) coolUntilLocked(e lease.Entry) time.Time {
	r := e.Record
	if s, ok := c.rows[r.ProfileID]; ok && s.row.Record.Token == r.Token && s.row.Record.AvailableAfter.Equal(r.AvailableAfter) {
		return s.row.CoolUntil
	}
	return coolUntil(e, time.Now())
}

// Changed is closed when a row changes.
func (c *Catalog) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// Version returns a number that is another one after the record of a profile was changed; of the
// empty profile, after any was. changed is closed at the next change of any record.
func (c *Catalog) Version(profile string) (version uint64, changed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if profile == "" {
		return c.changes, c.changed
	}
	return c.rows[profile].revision, c.changed
}

// see takes in what the watch shows.
func (c *Catalog) see(s lease.Sight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case s.Fresh:
		c.round++
		c.complete = false
	case s.Complete:
		c.complete, c.ever = true, true
		for profile, s := range c.rows {
			if s.round != c.round {
				delete(c.rows, profile)
			}
		}
		c.wake()
	default:
		c.note(s.Entry)
	}
}

// written takes in a write of this launcher.
func (c *Catalog) written(e lease.Entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note(e)
}

// note takes in an entry, unless a later one is known since the watch began: the watch may have shown one
// before the answer to this write came, and it shows earlier ones after an own write was taken in. The
// caller holds mu.
func (c *Catalog) note(e lease.Entry) {
	if before := c.rows[e.Record.ProfileID]; before.round < c.round || before.revision <= e.Revision {
		c.put(e)
	}
}

func (c *Catalog) put(e lease.Entry) {
	if e.Record.State == "" {
		delete(c.rows, e.Record.ProfileID)
	} else {
		row := NewRow(e)
		row.CoolUntil = c.coolUntilLocked(e)
		c.rows[e.Record.ProfileID] = seen{row, e.Revision, c.round}
	}
	c.wake()
}

func (c *Catalog) wake() {
	c.changes++
	close(c.changed)
	c.changed = make(chan struct{})
}

// Watched returns the store with a catalog that follows its watch, and the writes that go
// through it.
func Watched(s lease.Store, c *Catalog) lease.Store { return &watched{s, c} }

type watched struct {
	lease.Store
	c *Catalog
}

// Watch shows the catalog everything before it shows it to its caller.
func (w *watched) Watch(ctx context.Context, see func(lease.Sight)) error {
	return w.Store.Watch(ctx, func(s lease.Sight) {
		w.c.see(s)
		see(s)
	})
}

// Swap shows the catalog what was stored.
func (w *watched) Swap(ctx context.Context, prev lease.Entry, next lease.Record) (lease.Entry, error) {
	e, err := w.Store.Swap(ctx, prev, next)
	if err == nil {
		w.c.written(e)
	}
	return e, err
}
