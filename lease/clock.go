package lease

import (
	"context"
	"fmt"
	"sync"
	"time"

	"leasehold/internal/boottime"
)

// MaxClockError is how far this host's wall clock may be from what others say for an act that
// cannot be taken back, such as to remove what is older than something.
const MaxClockError = 5 * time.Minute

// ClockError says that the wall clock of this host is not to be believed.
type ClockError struct {
	// Wall is what it says, and Other is what the witness says.
	Wall, Other time.Time
	Witness     string
}

func (e *ClockError) Error() string {
	return fmt.Sprintf("this host's clock says %s, and by %s it is %s: nothing is removed for its age until they agree within %v: check the host's time (chronyc tracking, timedatectl)",
		e.Wall.UTC().Format(time.RFC3339), e.Witness, e.Other.UTC().Format(time.RFC3339), MaxClockError)
}

// ClockStore is the part of a store that knows the time.
type ClockStore interface {
	// Time returns the time by the store's own clock.
	Time(ctx context.Context) (time.Time, error)
	Presences(ctx context.Context) ([]PresenceEntry, error)
}

// Clock is the one place that says how late it is for acts that cannot be taken back. It believes
// this host's wall clock only as long as nothing speaks against it: the clock of the store, the
// heartbeats of other launchers, and this host's own boot-time clock, by which it sees that the
// wall clock was set while the process ran. A launcher that has gone silent says nothing of the
// time: one that is gone for good leaves its last heartbeat in the store. The methods are safe for
// concurrent use.
type Clock struct {
	LauncherID string
	Store      ClockStore
	// Shared says that the store runs on other hosts, too; otherwise it has this host's clock, and
	// proves nothing.
	Shared bool
	// Wall and Boot replace the host's clocks in tests.
	Wall func() time.Time
	Boot boottime.Clock

	mu sync.Mutex
	// offset is the wall clock minus the boot-time clock when it was last believed.
	offset time.Duration
	begun  bool
	// others knows which launchers have gone silent, by looks that began at first; nil before the
	// first look.
	others *Observer
	first  boottime.Instant
}

// Now returns the time. The error is a *ClockError if this host's clock is not to be believed,
// and otherwise says why that is not known: the store cannot be asked, or an old heartbeat may be
// that of a launcher that is gone.
func (c *Clock) Now(ctx context.Context) (time.Time, error) {
	store, err := c.Store.Time(ctx)
	if err != nil {
		return time.Time{}, err
	}
	presences, err := c.Store.Presences(ctx)
	if err != nil {
		return time.Time{}, err
	}
	wallOf, boot := c.Wall, c.Boot
	if wallOf == nil {
		wallOf = time.Now
	}
	if boot == nil {
		boot = boottime.Now
	}
	wall, now := wallOf().Round(0), boot()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.others == nil {
		c.others, c.first = NewObserver(c.LauncherID, 0), now
	}
	c.others.Presences(presences, now)
	if wrong := c.disagrees(wall, store, presences, now); wrong != nil {
		return time.Time{}, wrong
	}
	offset := time.Duration(wall.UnixNano()) - now.Sub(0)
	if moved := offset - c.offset; c.begun && !c.Shared && moved.Abs() > MaxClockError {
		return time.Time{}, &ClockError{Wall: wall, Other: wall.Add(-moved), Witness: "the time that has passed since it was last believed"}
	}
	c.offset, c.begun = offset, true
	return wall, nil
}

// disagrees says what speaks against a wall clock; nil: nothing does. Of the other launchers'
// heartbeats one that agrees is enough, since a launcher that was cut off has an old one. The
// caller holds c.mu.
func (c *Clock) disagrees(wall, store time.Time, presences []PresenceEntry, now boottime.Instant) error {
	if wall.Sub(store).Abs() > MaxClockError {
		return &ClockError{wall, store, "the lease store"}
	}
	var nearest *Presence
	for _, e := range presences {
		p := e.Presence
		if p.LauncherID == c.LauncherID || p.Closed || c.others.Silent(p.LauncherID, 0, now) {
			continue
		}
		if nearest == nil || wall.Sub(p.HeartbeatAt).Abs() < wall.Sub(nearest.HeartbeatAt).Abs() {
			nearest = &p
		}
	}
	if nearest == nil || wall.Sub(nearest.HeartbeatAt).Abs() <= MaxClockError+nearest.TTL() {
		return nil
	}
	if c.others.presences[nearest.LauncherID].since == c.first {
		return fmt.Errorf("the last heartbeat of launcher %s says %s, and whether that launcher is gone is known in %v at the latest: nothing is removed for its age until then",
			nearest.LauncherID, nearest.HeartbeatAt.UTC().Format(time.RFC3339), Timing{TTL: nearest.TTL()}.ObserverWait()-now.Sub(c.first))
	}
	return &ClockError{wall, nearest.HeartbeatAt, "the last heartbeat of launcher " + nearest.LauncherID}
}
