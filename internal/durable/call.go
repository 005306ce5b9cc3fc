package durable

import (
	"context"
	"fmt"
)

// Calls are the calls on one file system that may hang, such as one of another host. A system
// call cannot be ended: one that hangs stays, and only its caller goes on. So there is a limit
// to how many may be under way.
type Calls struct{ under chan struct{} }

// maxCalls is how many calls may be under way on one file system.
const maxCalls = 16

// NewCalls returns the calls on a file system, of which none is under way.
func NewCalls() Calls { return Calls{make(chan struct{}, maxCalls)} }

// Call returns what do returns, or the context's error as soon as that has ended: do may then
// still go on, and have its effect later.
func Call[T any](ctx context.Context, c Calls, do func() (T, error)) (T, error) {
	var none T
	away := func() (T, error) {
		return none, fmt.Errorf("the file system does not answer: %w", context.Cause(ctx))
	}
	if ctx.Err() != nil {
		return none, context.Cause(ctx)
	}
	select {
	case c.under <- struct{}{}:
	case <-ctx.Done():
		return away()
	}
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		defer func() { <-c.under }()
		value, err := do()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return away()
	}
}
