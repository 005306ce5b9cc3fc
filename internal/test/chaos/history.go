package chaos

import (
	"bufio"
	"encoding/json"
	"os"
	"sync"
	"time"

	"leasehold/internal/boottime"
	"leasehold/lease"
)

// Kind says what an Entry tells of.
type Kind string

// The kinds of entries.
const (
	// Granted: a worker read the answer to its request for a profile.
	Granted Kind = "granted"
	// Refused: a worker was refused; Text is the code.
	Refused Kind = "refused"
	// Unknown: a worker got no answer; Text is to what.
	Unknown Kind = "unknown"
	// Closed: a websocket ended under a worker; Text is the close code.
	Closed Kind = "closed"
	// Released: a release was answered with success.
	Released Kind = "released"
	// Accepted: a write (heartbeat, checkpoint) was answered with success.
	Accepted Kind = "accepted"
	// Fenced: a write was refused because of its token or its session's end.
	Fenced Kind = "fenced"
	// Requested: a browser's request reached the witness.
	Requested Kind = "request"
	// Published: an event as a subscriber read it.
	Published Kind = "event"
	// Missed: an event that stands on the stream and that the durable
	// subscriber was never given.
	Missed Kind = "missed"
	// Epoch: the store was wiped or rolled back and serves again.
	Epoch Kind = "epoch"
	// Fault: a fault begins; Text is its kind.
	Fault Kind = "fault"
	// Healed: it is over.
	Healed Kind = "healed"
	// Reviewed: a person approved a profile.
	Reviewed Kind = "reviewed"
	// Settled: all is healed, and every event of the last epoch was read.
	Settled Kind = "settled"
	// Broken: a promise that is judged on the spot; Text begins with the kind
	// of the violation and a colon.
	Broken Kind = "broken"
)

// Entry is one thing that somebody saw. Which fields are set depends on its kind.
type Entry struct {
	// At is when it was seen, by the process that saw it, on the host's
	// boot-time clock.
	At   boottime.Instant `json:"at"`
	Kind Kind             `json:"kind"`

	Profile  string      `json:"profile,omitempty"`
	Token    lease.Token `json:"token,omitempty"`
	Session  string      `json:"session,omitempty"`
	Worker   string      `json:"worker,omitempty"`
	Launcher string      `json:"launcher,omitempty"`
	// Since is when what was answered at At had been asked for.
	Since boottime.Instant `json:"since,omitempty"`
	// ViaCDP says of a request that a worker's command made it; else the page
	// did by itself.
	ViaCDP bool `json:"via_cdp,omitempty"`
	// Epoch counts the wipes and roll-backs of the store.
	Epoch int `json:"epoch,omitempty"`
	// Wall is the host's wall clock at the begin of an epoch.
	Wall time.Time `json:"wall,omitzero"`
	// StreamSeq is where an event stands on its stream.
	StreamSeq uint64       `json:"stream_seq,omitempty"`
	Event     *lease.Event `json:"event,omitempty"`
	Text      string       `json:"text,omitempty"`
}

// History collects entries from everywhere, and writes them to a file for people.
type History struct {
	mu      sync.Mutex
	entries []Entry
	file    *os.File
	out     *bufio.Writer
}

// NewHistory returns an empty history that is also written to path, one JSON
// object per line.
func NewHistory(path string) (*History, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	return &History{file: f, out: bufio.NewWriter(f)}, nil
}

// Add appends an entry; At is now, unless it is set.
func (h *History) Add(e Entry) {
	if e.At == 0 {
		e.At = boottime.Now()
	}
	b, err := json.Marshal(e)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.entries = append(h.entries, e)
	if err == nil {
		_, err = h.out.Write(append(b, '\n'))
	}
	if err != nil {
		h.entries = append(h.entries, Entry{At: e.At, Kind: Broken, Text: Harness + ": history not written: " + err.Error()})
	}
}

// Entries returns what was added so far, in that order.
func (h *History) Entries() []Entry {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]Entry(nil), h.entries...)
}

// Close writes the rest to the file.
func (h *History) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.out.Flush(); err != nil {
		return err
	}
	return h.file.Close()
}
