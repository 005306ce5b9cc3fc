package natskv

import (
	"slices"

	"leasehold/lease"
)

// memorySize is how many events a launcher remembers, for all profiles together: some
// megabytes, which is minutes of the events of a thousand busy profiles. A power cut makes a
// server that does not sync lose two minutes by default.
const memorySize = 8192

// memory has the last events about transitions that this launcher published, or saw in the
// outbox of a record. If an event stream goes back to an old copy, or is made anew, it gets
// them again from here. Its user has to lock it.
type memory struct {
	size     int
	profiles map[string][]remembered // sorted by their positions
	// arrivals are the events in the order in which they came, so that the oldest can be
	// dropped. Some of them have been dropped already.
	arrivals []arrival
	number   uint64 // of the last arrival
}

type remembered struct {
	lease.Event
	arrived uint64
	// published says that this launcher put the event on the stream; confirmed, that it or another
	// one did.
	published, confirmed bool
}

type arrival struct {
	profile string
	number  uint64
}

func newMemory(size int) *memory {
	return &memory{size: size, profiles: map[string][]remembered{}}
}

// isSame tells whether two events with the same position are about the same transition. After a
// record went back, another event may get the same position.
func isSame(a, b lease.Event) bool {
	return positionOf(a) == positionOf(b) && a.Event == b.Event && a.SessionID == b.SessionID && a.At.Equal(b.At)
}

// find returns the index of the event with a position, or where it would be.
func (m *memory) find(profile string, at position) (int, bool) {
	return slices.BinarySearchFunc(m.profiles[profile], at, func(r remembered, p position) int { return comparePosition(r.Event, p) })
}

func (m *memory) has(e lease.Event) bool {
	i, ok := m.find(e.ProfileID, positionOf(e))
	return ok && isSame(m.profiles[e.ProfileID][i].Event, e)
}

// isConfirmed tells whether the event is remembered as one that is on the stream. One that was only
// seen in an outbox is not.
func (m *memory) isConfirmed(e lease.Event) bool {
	i, _ := m.find(e.ProfileID, positionOf(e))
	return m.has(e) && m.profiles[e.ProfileID][i].confirmed
}

// add remembers an event, replacing another one with its position.
func (m *memory) add(e lease.Event) {
	if m.has(e) {
		return
	}
	m.number++
	new := remembered{Event: e, arrived: m.number}
	all := m.profiles[e.ProfileID]
	if i, ok := m.find(e.ProfileID, positionOf(e)); ok {
		all[i] = new
	} else {
		m.profiles[e.ProfileID] = slices.Insert(all, i, new)
	}
	m.arrivals = append(m.arrivals, arrival{e.ProfileID, m.number})
	for ; len(m.arrivals) > m.size; m.arrivals = m.arrivals[1:] {
		m.drop(m.arrivals[0])
	}
}

func (m *memory) drop(a arrival) {
	left := slices.DeleteFunc(m.profiles[a.profile], func(r remembered) bool { return r.arrived == a.number })
	if len(left) == 0 {
		delete(m.profiles, a.profile)
		return
	}
	m.profiles[a.profile] = left
}

func (m *memory) forget(e lease.Event) {
	if i, ok := m.find(e.ProfileID, positionOf(e)); ok {
		m.drop(arrival{e.ProfileID, m.profiles[e.ProfileID][i].arrived})
	}
}

// publish notes that this launcher put the event on the stream.
func (m *memory) publish(e lease.Event) {
	m.confirm(e)
	i, _ := m.find(e.ProfileID, positionOf(e))
	m.profiles[e.ProfileID][i].published = true
}

// confirm notes that the event is on the stream.
func (m *memory) confirm(e lease.Event) {
	m.add(e)
	i, _ := m.find(e.ProfileID, positionOf(e))
	m.profiles[e.ProfileID][i].confirmed = true
}

// between returns the last remembered event between the position last and e. Its number has to
// be between theirs, too: if a profile's transitions took two paths, because its record went
// back, an event of the other path does not count. Of two events with the same number, the
// later one counts.
func (m *memory) between(last position, e lease.Event) (lease.Event, bool) {
	var found *remembered
	all := m.profiles[e.ProfileID]
	for i := range all {
		r := &all[i]
		switch {
		case !positionOf(r.Event).after(last), !positionOf(e).after(positionOf(r.Event)):
		case r.Sequence <= last.sequence, r.Sequence >= e.Sequence:
		case found == nil, r.Sequence < found.Sequence, r.Sequence == found.Sequence && r.arrived > found.arrived:
			found = r
		}
	}
	if found == nil {
		return lease.Event{}, false
	}
	return found.Event, true
}

// maxMissing bounds how many lost events go into one record.
const maxMissing = 32

// missing returns the remembered events after number before that should have been in the outbox
// of the record and are not.
func (m *memory) missing(before uint64, next lease.Record, outbox []lease.Event) []lease.Event {
	if next.Sequence > maxMissing {
		before = max(before, next.Sequence-maxMissing)
	}
	there := map[uint64]bool{}
	for _, e := range outbox {
		there[e.Sequence] = true
	}
	found := map[uint64]remembered{}
	for _, r := range m.profiles[next.ProfileID] {
		n := r.Sequence
		if n > before && n <= next.Sequence && r.Token <= next.Token && !there[n] && r.arrived > found[n].arrived {
			found[n] = r
		}
	}
	var lost []lease.Event
	for _, r := range found {
		lost = append(lost, r.Event)
	}
	return lost
}

// lastPublished returns the last event of each profile that this launcher published.
func (m *memory) lastPublished() []lease.Event {
	var lasts []lease.Event
	for _, all := range m.profiles {
		for _, r := range slices.Backward(all) {
			if r.published {
				lasts = append(lasts, r.Event)
				break
			}
		}
	}
	return lasts
}
