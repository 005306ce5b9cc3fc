package lease

import (
	"fmt"
	"time"
)

// Presence is the stored proof that a launcher is alive. The leases that the launcher holds
// depend on it, so that one write renews them all. Its times are UTC, and are meant for people.
type Presence struct {
	LauncherID string `json:"launcher_id"`
	// Epoch is the number of the launcher's stay. A stay begins when a launcher opens its
	// presence, and lasts until the presence is closed or opened again, each time with a higher
	// epoch. Each lease names the epoch in which it was granted.
	Epoch uint64 `json:"epoch"`
	// Closed says that the stay is over: the launcher itself ended it, or another launcher that
	// saw no renewal for too long. A stay never goes on after that.
	Closed bool `json:"closed,omitempty"`
	// AdvertiseURL is where workers of other hosts reach the launcher.
	AdvertiseURL string  `json:"advertise_url,omitempty"`
	BootID       string  `json:"boot_id,omitempty"`
	TTLSeconds   float64 `json:"ttl_seconds"`

	OpenedAt    time.Time `json:"opened_at"`
	HeartbeatAt time.Time `json:"heartbeat_at"`
	ExpiresAt   time.Time `json:"expires_at"`
	ClosedAt    time.Time `json:"closed_at,omitzero"`
	// ClosedBy is the id of the launcher that closed it.
	ClosedBy string `json:"closed_by,omitempty"`

	// Host is what the launcher reported about its host with the heartbeat.
	Host HostReport `json:"host,omitzero"`

	// Nonce is unique to the write that stored this presence.
	Nonce string `json:"nonce,omitempty"`
}

// HostReport is what a launcher reports about its host. It is meant for people, and is a hint
// when any fitting profile is chosen; no rule of the lease reads it.
type HostReport struct {
	Name string `json:"name,omitempty"`
	// Places is how many browsers the host may run; zero: no limit. Browsers is how many places
	// are taken; Warm, by how many browsers that wait for their profile's next task; and
	// Waiting, how many requests wait for a place.
	Places   int `json:"places,omitempty"`
	Browsers int `json:"browsers,omitempty"`
	Warm     int `json:"warm,omitempty"`
	Waiting  int `json:"waiting,omitempty"`
	// MemoryTotal and MemoryAvailable are in bytes; zero: not known.
	MemoryTotal     uint64 `json:"memory_total_bytes,omitempty"`
	MemoryAvailable uint64 `json:"memory_available_bytes,omitempty"`
}

// PresenceEntry is a presence with the revision of the write that stored it. The zero entry
// means that there is none.
type PresenceEntry struct {
	Presence Presence
	Revision uint64
}

// EndedFrom tells whether this entry only ends the stay of before, and was written by another
// launcher that saw no renewal. Such an entry is no sign of life of the launcher itself.
func (p PresenceEntry) EndedFrom(before PresenceEntry) bool {
	now, then := p.Presence, before.Presence
	return now.Closed && !then.Closed && now.ClosedBy != now.LauncherID && now.Epoch == then.Epoch && now.LauncherID == then.LauncherID && p.Revision > before.Revision
}

// TTL is how long the presence is valid without a renewal.
func (p Presence) TTL() time.Duration { return time.Duration(p.TTLSeconds * float64(time.Second)) }

// Open returns the presence that begins a stay of the launcher that own describes, to replace
// p, the last one stored under the same id. epoch is the highest epoch that the launcher itself
// remembers: a store that went back may only know a lower one.
func (p Presence) Open(own Presence, epoch uint64, now time.Time) Presence {
	own.Epoch = max(p.Epoch, epoch) + 1
	own.OpenedAt = now.UTC()
	return own.renew(now)
}

func (p Presence) renew(now time.Time) Presence {
	p.HeartbeatAt, p.ExpiresAt = now.UTC(), now.Add(p.TTL()).UTC()
	return p
}

// Close returns the presence that ends the launcher's stay, as closed by the launcher by. epoch
// is that of a lease of the stay, because p has a lower epoch or is empty if the store lost the
// presence or went back.
func (p Presence) Close(launcher, by string, epoch uint64, now time.Time) Presence {
	p.LauncherID, p.Epoch = launcher, max(p.Epoch, epoch)
	p.Closed, p.ClosedAt, p.ClosedBy = true, now.UTC(), by
	return p
}

// Carries tells whether the held lease r depends on this presence and is kept alive by it.
func (p Presence) Carries(r Record) bool {
	return !p.Closed && p.LauncherID == r.LauncherID && p.Epoch == r.PresenceEpoch
}

// Live returns a held record as readers see it: with the heartbeat and the expiry of the
// presence that it depends on.
func (r Record) Live(p Presence) Record {
	if r.State == Held && p.Carries(r) && p.HeartbeatAt.After(r.HeartbeatAt) {
		r.HeartbeatAt, r.ExpiresAt = p.HeartbeatAt, p.ExpiresAt
	}
	return r
}

// allows returns nil if the stay of own may go on while the store has p. Otherwise it returns
// an ErrExpired that says why not.
func (p Presence) allows(own Presence) error {
	switch {
	case p.Epoch > own.Epoch:
		return fmt.Errorf("%w: %w: %s, epoch %d after %d", ErrExpired, ErrSuperseded, own.LauncherID, p.Epoch, own.Epoch)
	case p.Epoch == own.Epoch && p.Closed:
		return fmt.Errorf("%w: launcher %s saw no renewal for too long", ErrExpired, p.ClosedBy)
	case p.Epoch == own.Epoch && !p.OpenedAt.Equal(own.OpenedAt): // the store forgot, and somebody opened the same epoch
		return fmt.Errorf("%w: %w: %s, epoch %d a second time", ErrExpired, ErrSuperseded, own.LauncherID, p.Epoch)
	}
	return nil // the same; or missing or older: the store forgot, and the next renewal restores it
}
