package recorder

import (
	"cmp"
	"regexp"
	"slices"
	"time"

	"leasehold/evidence/redact"
	"leasehold/internal/boottime"
)

// CommandsPart is the name of the part that Commands makes, of kind
// evidence.KindCommands.
const CommandsPart = "commands.json"

// keptCommands is how many commands are kept.
const keptCommands = 200

// Commands records the last CDP commands that workers sent. Their parameters are not recorded:
// those are expressions, typed keys and credentials. The zero value is ready; its methods are
// safe for concurrent use.
type Commands struct{ ring ring[CommandEntry] }

// CommandEntry is one command in the part.
type CommandEntry struct {
	// Passed is when it passed the fence, by which the entries are in order: At, the same by the wall clock,
	// is only nearly exact.
	Passed     boottime.Instant `json:"-"`
	At         time.Time        `json:"at"`
	LeaseToken uint64           `json:"lease_token"`
	// Target and Session say what it was sent to; both are empty for the browser
	// itself.
	Target  string `json:"target_id,omitempty"`
	Session string `json:"cdp_session,omitempty"`
	Method  string `json:"method"`
}

// Record adds commands, and counts earlier ones that were dropped without being recorded.
func (c *Commands) Record(dropped int, sent ...CommandEntry) {
	for _, e := range sent {
		e.At, e.Target, e.Session, e.Method = e.At.UTC(), cleanID(e.Target), cleanID(e.Session), cleanMethod(e.Method)
		c.ring.add(keptCommands, e)
	}
	c.ring.addDropped(dropped)
}

// Part returns what was recorded: {"total","dropped","entries"}, oldest first.
func (c *Commands) Part() []byte {
	entries, total := c.ring.last()
	// They were recorded connection by connection.
	slices.SortStableFunc(entries, func(a, b CommandEntry) int { return cmp.Compare(a.Passed, b.Passed) })
	return encodePart(total, entries)
}

var methodPattern = regexp.MustCompile(`^[A-Za-z]{1,40}\.[A-Za-z0-9]{1,60}$`)

// cleanMethod returns a text that could be the name of a CDP method, and redact.Mark for any
// other text.
func cleanMethod(s string) string {
	if methodPattern.MatchString(s) {
		return s
	}
	return redact.Mark
}
