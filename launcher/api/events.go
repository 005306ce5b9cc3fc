package api

import (
	"context"
	"time"

	"leasehold/lease"
)

// EventBatch is what comes next on an event stream: events, or news about the stream itself.
type EventBatch struct {
	Events []lease.Published
	// Through is the place after which the stream goes on behind this batch.
	Through lease.Place
	// Lost says that events before these are missing, and why.
	Lost lease.Loss
	// Store is not nil if the lease store has become readable or unreadable.
	Store *StoreNews
	// Ended says that the launcher ends, and the stream with it.
	Ended bool
}

// StoreNews tells since when the lease store cannot be read; the zero time: it can be read.
type StoreNews struct {
	Away time.Time
}

// EventFollower follows the event stream, in one goroutine.
type EventFollower interface {
	// Next waits for the next batch. Its only error is that of ctx.
	Next(ctx context.Context) (EventBatch, error)
	// Close ends following.
	Close()
}
