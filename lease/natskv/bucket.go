package natskv

import (
	"encoding/json"
	"fmt"
	"regexp"

	"leasehold/lease"
)

type bucket struct {
	*stream
	// nonce returns the nonce in a value of the key. ok is false if no Store wrote that value.
	nonce func(key string, data []byte) (nonce string, ok bool)
}

func (b bucket) subject(key string) string { return keyPrefix(b.stream) + key }

// keyPrefix returns the part of a subject that comes before the key.
func keyPrefix(s *stream) string { return "$KV." + s.name[len("KV_"):] + "." }

// decodeRecord returns the record in a value of the key. It returns false for anything that no
// Store wrote, which is then ignored: a client can make the server publish an answer on any
// subject.
func decodeRecord(key string, data []byte) (lease.Record, bool) {
	var r lease.Record
	if json.Unmarshal(data, &r) != nil || r.Nonce == "" || lease.Key(r.ProfileID) != key {
		return lease.Record{}, false
	}
	return r, true
}

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

// launcherKey returns the launcher's id as it is written in keys, encoded like profile ids.
func launcherKey(launcher string) string { return lease.Key(launcher) }

// launcherID is the form of a launcher id. It is that of a profile id, so that an id is one
// part of a subject.
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
