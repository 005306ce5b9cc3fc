// Package testkey has the key by which the tests signature what a launcher keeps on disk.
package testkey

import "leasehold/internal/signed"

// Key is the same for all launchers of a test: they share a data directory.
var Key = signed.New([32]byte{'t', 'e', 's', 't'})
