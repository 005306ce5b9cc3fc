package lease

import (
	"math"
	"sync/atomic"

	"leasehold/internal/boottime"
)

// Fence is the gate that every write of a holder has to pass. It is open while the token is
// current and the holder's deadline has not passed. Once shut, it never opens again. Check
// costs one reading of the clock and two atomic loads.
type Fence struct {
	token    Token
	clock    boottime.Clock
	deadline *atomic.Int64 // shared by all leases of a stay
	cause    atomic.Pointer[error]
	over     *Fence // the fence that this one is under; nil: none
}

// Open returns a fence that no deadline shuts. It is for a session on a copy of a profile, which
// holds no lease and writes nothing that a lease protects. token is the token of the session
// after which the copied snapshot was made.
func Open(token Token) *Fence {
	deadline := &atomic.Int64{}
	deadline.Store(math.MaxInt64)
	return &Fence{token: token, clock: boottime.Now, deadline: deadline}
}

// Under returns a fence that is open only while f is open, and that can also be shut by itself.
// It is for somebody who writes under the lease for only a part of its time.
func (f *Fence) Under() *Fence {
	return &Fence{token: f.token, clock: f.clock, deadline: f.deadline, over: f}
}

// Token is the token that the fence guards.
func (f *Fence) Token() Token { return f.token }

// Check returns nil if a write may pass now. Otherwise it returns the cause with which the
// fence was shut, which is ErrExpired if the deadline has passed.
func (f *Fence) Check() error {
	_, err := f.CheckAt()
	return err
}

// CheckAt is Check, and also returns the time that it read from the clock: zero if the fence
// was shut already.
func (f *Fence) CheckAt() (boottime.Instant, error) {
	if cause := f.cause.Load(); cause != nil {
		return 0, *cause
	}
	if f.over != nil {
		return f.over.CheckAt()
	}
	now := f.clock()
	if int64(now) >= f.deadline.Load() {
		f.Shut(ErrExpired)
		return now, *f.cause.Load()
	}
	return now, nil
}

// Shut shuts the fence for good. Only the first cause is kept.
func (f *Fence) Shut(cause error) { f.cause.CompareAndSwap(nil, &cause) }

// Cause returns the cause with which the fence was shut, or nil if it was not.
func (f *Fence) Cause() error {
	if cause := f.cause.Load(); cause != nil {
		return *cause
	}
	if f.over != nil {
		return f.over.Cause()
	}
	return nil
}

// Deadline is when the fence shuts by itself.
func (f *Fence) Deadline() boottime.Instant { return boottime.Instant(f.deadline.Load()) }
