package api

import (
	"context"
	"time"

	"leasehold/lease"
)

// EventBatch is what comes next on an event stream: events, or news about the stream itself.
type EventBatch struct {
	Events []lease.Published
	// Through is the place from which the stream goes on after this batch.
	Through lease.Place
	// Lost says that events before these are missing, and why.
	Lost lease.Loss
	// Store is not nil where it has changed whether the lease store can be read.
	Store *StoreNews
	// Ended says that the launcher ends, and with it the stream.
	Ended bool
}

// StoreNews says since when the lease store cannot be read; the zero time: it can.
type StoreNews struct {
	Away time.Time
}

// EventFollower is one who follows the event stream, in one goroutine.
type EventFollower interface {
	// Next waits for the next batch. The error is that of ctx.
	Next(ctx context.Context) (EventBatch, error)
	// Close ends following.
	Close()
}
