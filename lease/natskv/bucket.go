package natskv

import (
	"encoding/json"
	"fmt"
	"regexp"

	"leasehold/lease"
)

// bucket is one of the two KV buckets.
type bucket struct {
	*stream
	// nonce returns the nonce in a value of the key, if a Store wrote it.
	nonce func(key string, data []byte) (string, bool)
}

func (b bucket) subject(key string) string { return keyPrefix(b.stream) + key }

// keyPrefix is what the subjects of the bucket on a stream begin with.
func keyPrefix(s *stream) string { return "$KV." + s.name[len("KV_"):] + "." }

// decodeRecord returns the record in a value of the key, if a Store wrote it.
// Anything else that stands there (a server can be made to publish its answers on
// any subject) is not a record and changes nothing.
func decodeRecord(key string, data []byte) (lease.Record, bool) {
	var r lease.Record
	if json.Unmarshal(data, &r) != nil || r.Nonce == "" || lease.Key(r.ProfileID) != key {
		return lease.Record{}, false
	}
	return r, true
}

// decodePresence is decodeRecord for presences.
func decodePresence(key string, data []byte) (lease.Presence, bool) {
	var p lease.Presence
	if json.Unmarshal(data, &p) != nil || p.Nonce == "" || launcherKey(p.LauncherID) != key {
		return lease.Presence{}, false
	}
	return p, true
}

func recordNonce(key string, data []byte) (string, bool) {
	r, ok := decodeRecord(key, data)
	return r.Nonce, ok
}

func presenceNonce(key string, data []byte) (string, bool) {
	p, ok := decodePresence(key, data)
	return p.Nonce, ok
}

// launcherKey is the launcher's name in keys, encoded as those of profiles are.
func launcherKey(launcher string) string { return lease.Key(launcher) }

// launcherID has the form of a profile id, so that it is one token of a subject.
var launcherID = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$`)

func checkLauncherID(id string) error {
	if launcherID.MatchString(id) {
		return nil
	}
	if len(id) > 140 {
		id = id[:140] + "..."
	}
	return fmt.Errorf("launcher id %q: want 1 to 128 of A-Z a-z 0-9 . _ - and no dot in front", id)
}
