package cdpproxy

import (
	"time"
)

// A browser that writes many messages one by one pays for waking its reader each
// time, and so do the reader and the client. Where they come that fast, the pipe
// is left alone between reads.
const (
	fastGap         = 300 * time.Microsecond // between reads, at most, to count as fast
	fastReadsInARow = 16                     // fast reads in a row
	firstDelay      = 150 * time.Microsecond // at first; it doubles while it is worth it
	longestDelay    = time.Millisecond
	manyInFlight    = 16 // commands in flight from which on answers may wait as well
	// The launcher's own events wait for each other for ownRest at most, and where a
	// client awaits an answer, for no more than a part of what it has waited.
	launcherDelay = 2 * time.Millisecond
	launcherShare = 8
)

// hurry tells when the browser's messages come fast.
type readPacer struct {
	lastRead    time.Time
	fastReads   int           // reads in a row
	delay       time.Duration // before each read; 0: none
	delayDue    bool          // a rest is, before the next read
	delayTaken  bool          // it was
	lastCommand time.Time     // when a client's last command was seen
}

// read notes a read of the pipe: how many messages it brought, whether there was an
// answer to a client among them, and anything that somebody may wait for: whatever is
// for a client, and answers to the launcher's own calls. A client that waits for an
// answer before it goes on is not kept waiting. What only the launcher listens to, the
// requests of a page that loads, is fetched together; a large message is not that.
func (h *readPacer) afterRead(messages int, answered, wanted bool, awaited int32) {
	now := time.Now()
	gap := now.Sub(h.lastRead)
	fast := gap < fastGap
	h.lastRead = now
	switch {
	case !wanted && messages > 0 && now.Sub(h.lastCommand) > launcherShare*firstDelay && (gap < launcherDelay || h.delayTaken && messages > 1):
		h.fastReads, h.delay = 0, min(launcherDelay, now.Sub(h.lastCommand)/launcherShare)
	case answered && awaited < manyInFlight:
		h.fastReads, h.delay = 0, 0
	case h.delayTaken && messages < 2:
		h.fastReads, h.delay = 0, 0
	case h.delayTaken && !answered:
		h.delay = min(2*h.delay, longestDelay)
	case h.delay > 0:
		h.delay = firstDelay
	case fast:
		if h.fastReads++; h.fastReads >= fastReadsInARow {
			h.delay = firstDelay
		}
	default:
		h.fastReads = 0
	}
	h.delayDue, h.delayTaken = h.delay > 0, false
}

// pause returns, once after each read, for how long the pipe is to be left alone.
func (h *readPacer) nextDelay() time.Duration {
	if !h.delayDue {
		return 0
	}
	h.delayDue, h.delayTaken = false, true
	return h.delay
}
