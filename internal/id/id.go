// Package id makes the names that Leasehold hands out: sortable ones for
// records, and capabilities that nobody can guess.
package id

import (
	"crypto/rand"
	"encoding/base64"

	"github.com/oklog/ulid/v2"
)

// New returns prefix, an underscore and a ULID: unique, and sorted by the time
// it was made.
func New(prefix string) string { return prefix + "_" + ulid.Make().String() }

// Secret returns 256 random bits, safe in a URL path: a capability.
func Secret() string {
	var b [32]byte
	// crypto/rand.Read never fails; it ends the process where the kernel
	// has no randomness to give.
	_, _ = rand.Read(b[:])
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// Mask shortens a capability for logs: enough to tell two apart, too little to
// use.
func Mask(capability string) string {
	if len(capability) <= 4 {
		return "..."
	}
	return capability[:4] + "..."
}
