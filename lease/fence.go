package lease

import (
	"sync/atomic"

	"leasehold/internal/boottime"
)

// Fence is the gate in front of everything a holder writes. It is open while the
// token is current and the holder's deadline lies ahead, and never opens again
// once it is shut. Check costs one reading of the clock and two loads.
type Fence struct {
	token    Token
	clock    boottime.Clock
	deadline *atomic.Int64 // shared by all leases of a presence
	cause    atomic.Pointer[error]
}

// NewFence returns an open fence for the token that shuts at the deadline.
func NewFence(token Token, deadline boottime.Instant, clock boottime.Clock) *Fence {
	var at atomic.Int64
	at.Store(int64(deadline))
	return &Fence{token: token, clock: clock, deadline: &at}
}

// Token is the token that the fence guards.
func (f *Fence) Token() Token { return f.token }

// Check returns nil if a write may pass now, else why not: the cause that the
// fence was shut with, or ErrExpired.
func (f *Fence) Check() error {
	_, err := f.CheckAt()
	return err
}

// CheckAt is Check, and tells when: the reading of the clock that it took. It is
// zero where the fence was shut already.
func (f *Fence) CheckAt() (boottime.Instant, error) {
	if cause := f.cause.Load(); cause != nil {
		return 0, *cause
	}
	now := f.clock()
	if int64(now) >= f.deadline.Load() {
		f.Shut(ErrExpired)
		return now, *f.cause.Load()
	}
	return now, nil
}

// Shut closes the fence for good. The first cause stays.
func (f *Fence) Shut(cause error) { f.cause.CompareAndSwap(nil, &cause) }

// Cause returns what the fence was shut with, or nil.
func (f *Fence) Cause() error {
	if cause := f.cause.Load(); cause != nil {
		return *cause
	}
	return nil
}

// Deadline is when the fence shuts by itself.
func (f *Fence) Deadline() boottime.Instant { return boottime.Instant(f.deadline.Load()) }
