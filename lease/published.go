package lease

import (
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Place is a place on the event stream: just after one of its messages. A reader that has read
// up to it continues from there.
type Place struct {
	// Sequence is the message's number on the stream; zero: before the first one.
	Sequence uint64
	// Check is computed from the message, so that a stream that was made again, or went back to
	// an old copy, is not taken for the one that was read; zero: not known.
	Check uint32
}

// PlaceNow stands for the end of the stream, wherever that is.
var PlaceNow = Place{Sequence: math.MaxUint64}

// PlaceOf returns the place after the message with this sequence and data.
func PlaceOf(sequence uint64, data []byte) Place {
	return Place{sequence, max(crc32.ChecksumIEEE(data), 1)}
}

// String returns the place as clients carry it: "4711-9fa3c2d1", or "4711" without a check.
func (p Place) String() string {
	if p.Check == 0 {
		return strconv.FormatUint(p.Sequence, 10)
	}
	return fmt.Sprintf("%d-%08x", p.Sequence, p.Check)
}

// ParsePlace reads what String writes.
func ParsePlace(text string) (Place, error) {
	number, check, checked := strings.Cut(text, "-")
	sequence, err := strconv.ParseUint(number, 10, 64)
	var sum uint64
	if err == nil && checked {
		sum, err = strconv.ParseUint(check, 16, 32)
	}
	p := Place{sequence, uint32(sum)}
	if err != nil || sequence >= PlaceNow.Sequence || p.String() != text {
		return Place{}, fmt.Errorf("place %q: want an id as the event stream gives it, or 0 for its beginning", clip(text))
	}
	return p, nil
}

// Published is an event as it is on the event stream.
type Published struct {
	Event
	// Data is the event as it was published: JSON in one line.
	Data  []byte
	Place Place
}

// Delivery is an event for a receiver that has to confirm it.
type Delivery struct {
	Published
	// Tries is how often it was delivered, with this time.
	Tries int
	// Done confirms it. If it fails, the event is delivered again.
	Done func() error
	// Again has it delivered again after a time.
	Again func(after time.Duration) error
}

// Loss says why events that came after a place are not on the stream.
type Loss string

// The losses.
const (
	// NothingLost: every event since the place is there.
	NothingLost Loss = ""
	// LostOldest: the oldest events were removed, as they are after some time, or when the
	// stream is full.
	LostOldest Loss = "left"
	// LostStream: the stream is not the one to which the place belongs, or went back to an old
	// copy. Some of its events may have been read before.
	LostStream Loss = "stream_reset"
)

// EventPage is a part of the event stream that was read.
type EventPage struct {
	Events []Published
	// Through is the place up to which the stream was read. It is after the last of Events, or
	// further, if the stream has messages that are not events.
	Through Place
	// Lost says what is missing before Events, which then begin with the first event that is
	// kept.
	Lost Loss
}

// EventKinds are the kinds of events: the second part of their subjects.
var EventKinds = []string{"recovery", "lease", "conflict", "late_write", "person", "account", "site"}

// Kind is the kind of the event, one of EventKinds.
func (e Event) Kind() string {
	subject := strings.Split(e.Subject(), ".")
	return subject[min(1, len(subject)-1)]
}

// IsEventKind tells whether this is a kind of event.
func IsEventKind(kind string) bool { return slices.Contains(EventKinds, kind) }
