package lease

import (
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Place is a place on the event stream: just behind one of its messages. Whoever read up to
// there goes on from there.
type Place struct {
	// Sequence is the message's number on the stream; zero: before the first one.
	Sequence uint64
	// Check is made of what the message says, so that a stream which was made again, or went
	// back to an old copy, is not taken for the one that was read; zero: not known.
	Check uint32
}

// PlaceNow stands for the end of the stream, wherever that is.
var PlaceNow = Place{Sequence: math.MaxUint64}

// PlaceOf returns the place behind the message with a sequence and data.
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

// Published is an event as it stands on the event stream.
type Published struct {
	Event
	// Data is the event as it was published: JSON in one line.
	Data  []byte
	Place Place
}

// Loss says why events that came after a place are not on the stream.
type Loss string

// The losses.
const (
	// NothingLost: every event since the place is there.
	NothingLost Loss = ""
	// LostOldest: the oldest have left, as they do after their time, or where the stream is
	// full.
	LostOldest Loss = "left"
	// LostStream: the stream is not the one that the place is on, or went back to an old
	// copy. Some of its events may have been read before.
	LostStream Loss = "stream_reset"
)

// EventPage is what was read of the event stream.
type EventPage struct {
	Events []Published
	// Through is the place up to which the stream was read. It is behind the last of Events,
	// or further, where something stands on the stream that is no event.
	Through Place
	// Lost says what is missing before Events. Then they begin with the first one that is
	// kept.
	Lost Loss
}

// EventKinds are the kinds of events: the second part of their subjects.
var EventKinds = []string{"recovery", "lease", "conflict", "late_write", "person"}

// Kind is the kind of the event, one of EventKinds.
func (e Event) Kind() string {
	subject := strings.Split(e.Subject(), ".")
	return subject[min(1, len(subject)-1)]
}

// IsEventKind tells whether there are events of the kind.
func IsEventKind(kind string) bool { return slices.Contains(EventKinds, kind) }
