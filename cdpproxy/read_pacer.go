package cdpproxy

import (
	"time"
)

// A browser that writes many messages one by one pays for waking its reader each
// time, and so do the reader and the client. Where they come that fast, the pipe
// is left alone between reads.
const (
	hurryGap    = 300 * time.Microsecond // between reads, at most, to count as fast
	hurryReads  = 16                     // fast reads in a row
	hurryPause  = 150 * time.Microsecond // at first; it doubles while it is worth it
	longestRest = time.Millisecond
	hurryWindow = 16 // commands in flight from which on answers may wait as well
	// The launcher's own events wait for each other for ownRest at most, and where a
	// client awaits an answer, for no more than a part of what it has waited.
	ownRest = 2 * time.Millisecond
	ownPart = 8
)

// hurry tells when the browser's messages come fast.
type hurry struct {
	last  time.Time
	fast  int           // reads in a row
	rest  time.Duration // before each read; 0: none
	due   bool          // a rest is, before the next read
	taken bool          // it was
	asked time.Time     // when a client's last command was seen
}

// read notes a read of the pipe: how many messages it brought, whether there was an
// answer to a client among them, and anything that somebody may wait for: whatever is
// for a client, and answers to the launcher's own calls. A client that waits for an
// answer before it goes on is not kept waiting. What only the launcher listens to, the
// requests of a page that loads, is fetched together; a large message is not that.
func (h *hurry) read(messages int, answered, wanted bool, awaited int32) {
	now := time.Now()
	gap := now.Sub(h.last)
	fast := gap < hurryGap
	h.last = now
	switch {
	case !wanted && messages > 0 && now.Sub(h.asked) > ownPart*hurryPause && (gap < ownRest || h.taken && messages > 1):
		h.fast, h.rest = 0, min(ownRest, now.Sub(h.asked)/ownPart)
	case answered && awaited < hurryWindow:
		h.fast, h.rest = 0, 0
	case h.taken && messages < 2:
		h.fast, h.rest = 0, 0
	case h.taken && !answered:
		h.rest = min(2*h.rest, longestRest)
	case h.rest > 0:
		h.rest = hurryPause
	case fast:
		if h.fast++; h.fast >= hurryReads {
			h.rest = hurryPause
		}
	default:
		h.fast = 0
	}
	h.due, h.taken = h.rest > 0, false
}

// pause returns, once after each read, for how long the pipe is to be left alone.
func (h *hurry) pause() time.Duration {
	if !h.due {
		return 0
	}
	h.due, h.taken = false, true
	return h.rest
}
