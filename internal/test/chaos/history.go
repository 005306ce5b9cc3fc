package chaos

import (
	"bufio"
	"encoding/json"
	"os"
	"sync"
	"time"

	"leasehold/internal/boottime"
	"leasehold/launcher/api"
	"leasehold/lease"
)

// Kind says what an Entry is about.
type Kind string

// The kinds of entries.
const (
	// Granted: a worker got a profile, and read the answer that says so.
	Granted Kind = "granted"
	// Refused: a worker was refused; Text is the code.
	Refused Kind = "refused"
	// Asked: a worker asks for a profile, or for any that fits; Text says in which way.
	Asked Kind = "asked"
	// Found: a page found what sessions before left in the profile: Cookie and Stored are the
	// tokens that they wrote.
	Found Kind = "found"
	// Wrote: a page wrote its token where Found finds it.
	Wrote Kind = "wrote"
	// Moved: a record says that a profile came to another home; Text says how, Home is
	// the new home and Move the rest.
	Moved Kind = "moved"
	// NotMoved: a person's move was refused; Text is the code.
	NotMoved Kind = "not moved"
	// Opened: a browser runs that was not there before; Since is when it was started, Home is
	// the launcher whose disk its directory, Text, is on.
	Opened Kind = "opened"
	// Reader: a worker got an ephemeral session; Token is that of its snapshot.
	Reader Kind = "reader"
	// ReaderRefused: a worker did not get one, or could not release it; Text is the code.
	ReaderRefused Kind = "reader refused"
	// ReaderFound: what Found is, in a reader.
	ReaderFound Kind = "found by a reader"
	// ReaderRequest: what Requested is, of a reader; Text is the method.
	ReaderRequest Kind = "request of a reader"
	// ReaderEnded: the release of a reader was answered.
	ReaderEnded Kind = "reader ended"
	// Doubled: two browsers of one profile run in different places.
	Doubled Kind = "doubled"
	// Served: a request of the harness's own that waited was given a profile.
	Served Kind = "served"
	// Queued: a launcher showed a request that waits at another one.
	Queued Kind = "queued"
	// Checked: a person had the snapshots of a profile verified; Text is what came of it.
	Checked Kind = "checked"
	// Unknown: a worker got no answer; Text names what it asked for.
	Unknown Kind = "unknown"
	// Closed: a worker's websocket was closed; Text is the close code.
	Closed Kind = "closed"
	// Released: a release succeeded.
	Released Kind = "released"
	// Accepted: a write (heartbeat, checkpoint) succeeded.
	Accepted Kind = "accepted"
	// Fenced: a write was refused because of its token, or because its session had
	// ended.
	Fenced Kind = "fenced"
	// Requested: a browser's request reached the witness.
	Requested Kind = "request"
	// Published: a subscriber read an event.
	Published Kind = "event"
	// Missed: an event is on the stream, but was never delivered to the durable
	// subscriber.
	Missed Kind = "missed"
	// Epoch: the store was wiped or rolled back and serves again.
	Epoch Kind = "epoch"
	// Fault: a fault begins; Text is its kind.
	Fault Kind = "fault"
	// Healed: a fault is over; Text is its kind.
	Healed Kind = "healed"
	// Renewed: the launcher whose id a second one has too was seen alive in the store.
	Renewed Kind = "renewed"
	// SecondOpened: a second launcher of an id writes the presence of that id, and SecondWrote: a
	// record, to the subject Text.
	SecondOpened Kind = "presence of a second launcher"
	SecondWrote  Kind = "written by a second launcher"
	// SplitEnded: the launcher has ended whose servers were not one store.
	SplitEnded Kind = "no split any more"
	// Reviewed: a person approved a profile.
	Reviewed Kind = "reviewed"
	// Settled: all faults are healed, and every event of the last epoch was read.
	Settled Kind = "settled"
	// Broken: a violation that was found during the test run; Text begins with its kind and
	// a colon.
	Broken Kind = "broken"
)

// Entry is one observation. Which fields are set depends on its kind.
type Entry struct {
	// At is when it was observed, by the host's boot-time clock.
	At   boottime.Instant `json:"at"`
	Kind Kind             `json:"kind"`

	Profile  string      `json:"profile,omitempty"`
	Token    lease.Token `json:"token,omitempty"`
	Session  string      `json:"session,omitempty"`
	Worker   string      `json:"worker,omitempty"`
	Task     string      `json:"task,omitempty"`
	Launcher string      `json:"launcher,omitempty"`
	// Holder is the worker who has the profile, as a refusal says.
	Holder string `json:"holder,omitempty"`
	// Waited says that the request would have waited.
	Waited bool `json:"waited,omitempty"`
	// Since is when the request was sent whose answer came at At.
	Since boottime.Instant `json:"since,omitempty"`
	// ViaCDP says that a worker's command caused a request. Otherwise the page sent it
	// by itself.
	ViaCDP bool `json:"via_cdp,omitempty"`
	// Epoch counts the wipes and roll-backs of the store.
	Epoch int `json:"epoch,omitempty"`
	// Wall is the time at the beginning of an epoch or of a split, or at its end, as History.wall
	// tells it.
	Wall time.Time `json:"wall,omitzero"`
	// StreamSeq is the sequence of an event on its stream.
	StreamSeq uint64       `json:"stream_seq,omitempty"`
	Event     *lease.Event `json:"event,omitempty"`
	// Made is when the launcher made the event, without a jump of the wall clock.
	Made time.Time `json:"made,omitzero"`
	// Cookie and Stored are the tokens in the cookie and in the local storage of the web site;
	// zero: none.
	Cookie lease.Token `json:"cookie,omitempty"`
	Stored lease.Token `json:"stored,omitempty"`
	// Home is the launcher that became the home, or whose disk a directory is on.
	Home string      `json:"home,omitempty"`
	Move *lease.Move `json:"move,omitempty"`
	Text string      `json:"text,omitempty"`
}

// History collects the entries of a test run, and writes them to a file for people. Its
// methods are safe for concurrent use.
type History struct {
	begun time.Time // the wall clock's time at the instant since
	since boottime.Instant

	mu      sync.Mutex
	entries []Entry
	// left are the profiles whose home refused them last, since it has left their directory.
	left map[string]bool
	file *os.File
	out  *bufio.Writer
}

// NewHistory returns an empty history that is also written to path, one JSON
// object per line.
func NewHistory(path string) (*History, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	return &History{begun: time.Now().Round(0).UTC(), since: boottime.Now(), file: f, out: bufio.NewWriter(f), left: map[string]bool{}}, nil
}

// isLeft tells whether the profile was last refused since its home has left its directory, or has none.
func (h *History) isLeft(profile string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.left[profile]
}

// wall returns the time of an instant, as the wall clock would show it without its jumps.
func (h *History) wall(at boottime.Instant) time.Time { return h.begun.Add(at.Sub(h.since)) }

// made returns when an event was made that was read at an instant. One that seems to be made
// later than that was made while the wall clock was ahead, or by a launcher whose own one was.
func (h *History) made(e lease.Event, read boottime.Instant) time.Time {
	for _, ahead := range []time.Duration{clockAhead, wallJump} {
		if e.At.After(h.wall(read).Add(ahead / 2)) {
			return e.At.Add(-ahead)
		}
	}
	return e.At
}

// Add appends an entry. If At is zero, it is set to now.
func (h *History) Add(e Entry) {
	if e.At == 0 {
		e.At = boottime.Now()
	}
	b, err := json.Marshal(e)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.entries = append(h.entries, e)
	if e.Kind == Refused || e.Kind == Granted {
		h.left[e.Profile] = e.Kind == Refused && (e.Text == api.ReasonDirectoryLeft || e.Text == api.ReasonDirectoryMissing)
	}
	if err == nil {
		_, err = h.out.Write(append(b, '\n'))
	}
	if err != nil {
		h.entries = append(h.entries, Entry{At: e.At, Kind: Broken, Text: Harness + ": history not written: " + err.Error()})
	}
}

// Entries returns the entries so far, in the order in which they were added.
func (h *History) Entries() []Entry {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]Entry(nil), h.entries...)
}

// Close flushes and closes the file.
func (h *History) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.out.Flush(); err != nil {
		return err
	}
	return h.file.Close()
}
