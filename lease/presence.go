package lease

import (
	"fmt"
	"time"
)

// Presence is the proof that a launcher is there. Its held leases hang on it, so
// that one write renews them all. Times are UTC and for people.
type Presence struct {
	LauncherID string `json:"launcher_id"`
	// Epoch numbers the launcher's stays: it rises each time that a launcher
	// opens its presence, and leases name the one they were granted in.
	Epoch uint64 `json:"epoch"`
	// Closed says that the stay is over: by the launcher itself, or by another
	// that saw it silent for too long. It never opens again.
	Closed bool `json:"closed,omitempty"`
	// AdvertiseURL is where workers of other hosts reach the launcher.
	AdvertiseURL string  `json:"advertise_url,omitempty"`
	BootID       string  `json:"boot_id,omitempty"`
	TTLSeconds   float64 `json:"ttl_seconds"`

	OpenedAt    time.Time `json:"opened_at"`
	HeartbeatAt time.Time `json:"heartbeat_at"`
	ExpiresAt   time.Time `json:"expires_at"`
	ClosedAt    time.Time `json:"closed_at,omitzero"`
	// ClosedBy is the launcher that closed it.
	ClosedBy string `json:"closed_by,omitempty"`

	// Nonce is unique to the write that stored this presence.
	Nonce string `json:"nonce,omitempty"`
}

// PresenceEntry is a presence with the revision of the write that stored it; zero
// is no presence.
type PresenceEntry struct {
	Presence Presence
	Revision uint64
}

// TTL is how long the presence lives without a renewal.
func (p Presence) TTL() time.Duration { return time.Duration(p.TTLSeconds * float64(time.Second)) }

// Open begins a stay of the launcher that own describes, over whatever stay of
// the same id was there before. epoch is the highest that the launcher itself
// remembers, for a store that went back.
func (p Presence) Open(own Presence, epoch uint64, now time.Time) Presence {
	own.Epoch = max(p.Epoch, epoch) + 1
	own.OpenedAt = now.UTC()
	return own.renew(now)
}

func (p Presence) renew(now time.Time) Presence {
	p.HeartbeatAt, p.ExpiresAt = now.UTC(), now.Add(p.TTL()).UTC()
	return p
}

// Close ends the stay. epoch is the one of a lease that hangs on it, for a store
// that lost the presence or went back.
func (p Presence) Close(launcher, by string, epoch uint64, now time.Time) Presence {
	p.LauncherID, p.Epoch = launcher, max(p.Epoch, epoch)
	p.Closed, p.ClosedAt, p.ClosedBy = true, now.UTC(), by
	return p
}

// Carries tells whether a held lease still hangs on this presence.
func (p Presence) Carries(r Record) bool {
	return !p.Closed && p.LauncherID == r.LauncherID && p.Epoch == r.PresenceEpoch
}

// Live returns a held record with the heartbeat and end of the presence that
// carries it: what a reader is shown.
func (r Record) Live(p Presence) Record {
	if r.State == Held && p.Carries(r) && p.HeartbeatAt.After(r.HeartbeatAt) {
		r.HeartbeatAt, r.ExpiresAt = p.HeartbeatAt, p.ExpiresAt
	}
	return r
}

// against tells whether the stay that own stands for may go on, where the store
// holds p.
func (p Presence) against(own Presence) error {
	switch {
	case p.Epoch > own.Epoch:
		return fmt.Errorf("%w: %w: %s, epoch %d after %d", ErrExpired, ErrSuperseded, own.LauncherID, p.Epoch, own.Epoch)
	case p.Epoch == own.Epoch && p.Closed:
		return fmt.Errorf("%w: launcher %s saw no renewal for too long", ErrExpired, p.ClosedBy)
	}
	return nil // missing, or older: the store went back, and the stay is stated again
}
