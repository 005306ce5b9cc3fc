package recorder

import (
	"regexp"
	"slices"
	"time"

	"leasehold/evidence/redact"
)

// CommandsPart is the name of the part that Commands makes, of kind
// evidence.KindCommands.
const CommandsPart = "commands.json"

const keptCommands = 200

// Commands records the last CDP commands that workers sent, without their
// parameters: those are expressions, typed keys and credentials. The zero value is
// ready; its methods may be called at the same time.
type Commands struct{ ring ring[CommandEntry] }

// CommandEntry is one command in the part.
type CommandEntry struct {
	At         time.Time `json:"at"`
	LeaseToken uint64    `json:"lease_token"`
	// Target and Session say what it was sent to; both are empty for the browser
	// itself.
	Target  string `json:"target_id,omitempty"`
	Session string `json:"cdp_session,omitempty"`
	Method  string `json:"method"`
}

// Record notes commands, and that missed more came before them that nobody kept.
func (c *Commands) Record(missed int, sent ...CommandEntry) {
	for _, e := range sent {
		e.At, e.Target, e.Session, e.Method = e.At.UTC(), ident(e.Target), ident(e.Session), methodName(e.Method)
		c.ring.add(keptCommands, func(kept *CommandEntry) { *kept = e })
	}
	c.ring.mu.Lock()
	defer c.ring.mu.Unlock()
	c.ring.total += missed
}

// Part returns what was recorded: {"total","dropped","entries"}, oldest first.
func (c *Commands) Part() []byte {
	c.ring.mu.Lock()
	defer c.ring.mu.Unlock()
	var entries []CommandEntry
	c.ring.each(func(e *CommandEntry) { entries = append(entries, *e) })
	// Each connection's were recorded in a row.
	slices.SortStableFunc(entries, func(a, b CommandEntry) int { return a.At.Compare(b.At) })
	return encodeRecorded(c.ring.total, entries)
}

var domainMethod = regexp.MustCompile(`^[A-Za-z]{1,40}\.[A-Za-z0-9]{1,60}$`)

func methodName(s string) string {
	if domainMethod.MatchString(s) {
		return s
	}
	return redact.Mark
}
