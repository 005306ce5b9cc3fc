package cdpproxy

import "time"

// A browser that writes many messages one by one has to wake the loop each time, which costs
// the browser, the loop and the client. While messages come that fast, the loop waits for a
// moment before each read of the pipe, and reads several at once.
const (
	fastGap         = 300 * time.Microsecond // a read counts as fast if it follows the last one within this
	fastReadsInARow = 16                     // after so many fast reads the delay begins
	firstDelay      = 150 * time.Microsecond // the delay doubles while several messages come together
	longestDelay    = time.Millisecond
	manyInFlight    = 16 // with so many commands of clients in flight, replies may be delayed as well

	// Reads that only bring events for the launcher are delayed by at most launcherDelay, and
	// by no more than one part in launcherShare of the time since a client's last command,
	// since its reply may come next.
	launcherDelay = 2 * time.Millisecond
	launcherShare = 8
)

// readPacer decides how long the pipe is left alone before the next read.
type readPacer struct {
	lastRead    time.Time
	fastReads   int           // fast reads in a row
	delay       time.Duration // before each read; 0: none
	delayDue    bool          // the next read is to be delayed
	delayTaken  bool          // the next read was delayed
	lastCommand time.Time     // when the loop last saw that a client's command was sent
}

// afterRead is called after each read of the pipe. messages is how many messages the read
// brought, and inFlight is how many commands of clients are in flight. replied says that a
// reply to a client was among the messages; wanted, that somebody may be waiting for one of
// them: any message for a client, or a reply to the launcher's own call. A client that waits
// for a reply before it goes on is not delayed. Events that only the launcher receives, such as
// the requests of a page that loads, are read together. A read in the middle of a large message
// brings no message, and does not count as such a read.
func (p *readPacer) afterRead(messages int, replied, wanted bool, inFlight int32) {
	now := time.Now()
	gap := now.Sub(p.lastRead)
	fast := gap < fastGap
	p.lastRead = now
	switch {
	case !wanted && messages > 0 && now.Sub(p.lastCommand) > launcherShare*firstDelay && (gap < launcherDelay || p.delayTaken && messages > 1):
		p.fastReads, p.delay = 0, min(launcherDelay, now.Sub(p.lastCommand)/launcherShare)
	case replied && inFlight < manyInFlight:
		p.fastReads, p.delay = 0, 0
	case p.delayTaken && messages < 2:
		p.fastReads, p.delay = 0, 0
	case p.delayTaken && !replied:
		p.delay = min(2*p.delay, longestDelay)
	case p.delay > 0:
		p.delay = firstDelay
	case fast:
		if p.fastReads++; p.fastReads >= fastReadsInARow {
			p.delay = firstDelay
		}
	default:
		p.fastReads = 0
	}
	p.delayDue, p.delayTaken = p.delay > 0, false
}

// nextDelay returns for how long the pipe is to be left alone before the next read. It
// returns 0 when it is called again before that.
func (p *readPacer) nextDelay() time.Duration {
	if !p.delayDue {
		return 0
	}
	p.delayDue, p.delayTaken = false, true
	return p.delay
}
