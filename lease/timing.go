package lease

import (
	"fmt"
	"time"
)

// Timing is how long a lease is valid without a renewal. Other times follow from that.
type Timing struct {
	TTL time.Duration
}

const (
	// driftBound is how far the clock rates of two hosts may differ: twice the
	// rate at which NTP may slew a clock (5e-4).
	driftBound = 1e-3
	// timerSlack covers timers that fire late.
	timerSlack = time.Second

	minTTL, maxTTL = time.Second, time.Hour
)

// Validate refuses a timing that cannot be kept safely, and says why.
func (t Timing) Validate() error {
	switch {
	case t.TTL < minTTL:
		return fmt.Errorf("lease TTL %v: want at least %v, or a moment's load on the host would expire leases", t.TTL, minTTL)
	case t.TTL > maxTTL:
		return fmt.Errorf("lease TTL %v: want at most %v, or a lost host would hold its profiles for longer", t.TTL, maxTTL)
	}
	return nil
}

// Renewal is the time between two renewals. Several of them may fail before a lease
// expires.
func (t Timing) Renewal() time.Duration { return t.TTL / 6 }

// Margin is how long before the end of the lease its holder stops. In that time it
// closes its connections and its Chrome.
func (t Timing) Margin() time.Duration { return min(t.TTL/6, 5*time.Second) }

// ObserverWait is how long another launcher, by its own clock, has to see no change
// before it may suspect a lease: longer than the TTL and twice the drift bound.
func (t Timing) ObserverWait() time.Duration {
	return time.Duration(float64(t.TTL)*(1+driftBound)/(1-driftBound)) + timerSlack
}

// GrantDelay is how long nothing is granted on profile directories that another host could
// open, too, after a launcher has started or the store went back. In that time a holder that
// the store forgot either writes its lease again or stops. It is longer than ObserverWait by
// one more drift bound.
func (t Timing) GrantDelay() time.Duration {
	return t.ObserverWait() + time.Duration(float64(t.TTL)*2*driftBound)
}
