package lease

import (
	"fmt"
	"time"
)

// Timing is how long a lease lives without a renewal, and what follows from it.
type Timing struct {
	TTL time.Duration
}

const (
	// driftBound is how far the rates of two hosts' clocks may differ: twice
	// what NTP may slew (5e-4).
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

// Renewal is the time between two renewals: a lease survives several that fail.
func (t Timing) Renewal() time.Duration { return t.TTL / 6 }

// Margin is how long before the end of the lease the holder stops: the time it
// has to close its connections and its Chrome.
func (t Timing) Margin() time.Duration { return min(t.TTL/6, 5*time.Second) }

// ObserverWait is how long another launcher watches one revision, on its own
// clock, before it may suspect the lease: longer than the TTL and twice the
// drift bound.
func (t Timing) ObserverWait() time.Duration {
	return time.Duration(float64(t.TTL)*(1+driftBound)/(1-driftBound)) + timerSlack
}

// Grace is how long, after a start or a step back of the store, no profile is
// granted whose directory another host could open too: the time in which holders
// that the store forgot say again what they hold, or stop. It exceeds
// ObserverWait by one more drift.
func (t Timing) Grace() time.Duration {
	return t.ObserverWait() + time.Duration(float64(t.TTL)*2*driftBound)
}
