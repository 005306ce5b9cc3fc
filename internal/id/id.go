// Package id makes the ids that Leasehold gives out: sortable ids of records, and
// capabilities that nobody can guess.
package id

import (
	"crypto/rand"
	"encoding/base64"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
)

// New returns prefix, an underscore and a ULID. It is unique, and ids with the same
// prefix sort by the time when they were made.
func New(prefix string) string { return prefix + "_" + ulid.Make().String() }

// Made is when an id of New was made; the zero time if it is no such id.
func Made(id string) time.Time {
	_, text, _ := strings.Cut(id, "_")
	u, err := ulid.ParseStrict(text)
	if err != nil {
		return time.Time{}
	}
	return u.Timestamp()
}

// Secret returns a capability: 256 random bits as text that needs no escaping in a URL
// path.
func Secret() string {
	var b [32]byte
	// crypto/rand.Read never returns an error: if the kernel has no randomness, it
	// ends the process.
	_, _ = rand.Read(b[:])
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// Mask shortens a capability for logs. What is left distinguishes it from others, and
// does not let anybody use it.
func Mask(capability string) string {
	if len(capability) <= 4 {
		return "..."
	}
	return capability[:4] + "..."
}
