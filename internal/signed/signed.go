// Package signed authenticates the files that a launcher writes for itself and reads back as
// truth: somebody who can write files as the launcher's user, but cannot read its key, cannot
// make one that passes. A signature covers the content, the kind of file and what the file is
// about, so a file of another profile or kind does not pass either. An older file of the same
// kind and name does pass: a signature does not tell when it was made.
package signed

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
)

// Kind is a kind of file.
type Kind string

// The kinds.
const (
	Floor      Kind = "floor"      // of a profile: the token floor and the copy of the record
	Browser    Kind = "browser"    // of a profile: the note of its running browser
	Mark       Kind = "mark"       // of a profile: the mark that its directory has inside
	Left       Kind = "left"       // of a profile: what its last browser left in the files of the account
	Departure  Kind = "departure"  // of a profile: that its directory was left for another home
	Arrival    Kind = "arrival"    // of a profile: the directory that is to come into its place
	Aside      Kind = "aside"      // of a profile: that its directory was put aside, or removed
	Archived   Kind = "archived"   // of an archived directory: the session cookies that belong to it
	Session    Kind = "session"    // of a session: its file
	PipeLog    Kind = "ledger"     // of a session: each line of the pipe log of its browser
	NetLog     Kind = "netlog"     // of a session: the types of events in the NetLog of its browser
	Digests    Kind = "digests"    // of a session: digests of the account's state at its grant
	Cookies    Kind = "cookies"    // of a profile: its session cookies
	Lasting    Kind = "lasting"    // of a profile: the persistent cookies of a warm browser
	Still      Kind = "still"      // of a session: the cookies of its browser, which stands still
	Inspection Kind = "inspection" // of a profile: what its last recovery found
	Incident   Kind = "incident"   // of an incident, by its evidence: what its recovery found
	Answers    Kind = "answers"    // of a profile: what sites answered about its account, and digests of it
	Baselines  Kind = "baselines"  // of a session: what sites answered about its account while it lived
	Stay       Kind = "stay"       // of a launcher: its last presence
	Owners     Kind = "owners"     // of a launcher: the browser users to whom profiles may belong
	Roster     Kind = "roster"     // of a launcher: each line of what it remembers of profiles
)

// ErrNotAuthentic says that a file does not have the signature that this launcher would have
// given it: it was damaged, or somebody else wrote it.
var ErrNotAuthentic = errors.New("it is not as this launcher wrote it")

// Key makes and checks signatures. Its methods may be called concurrently.
type Key struct{ secret [size]byte }

// size is the length of a key in bytes.
const size = 32

// New returns the key with this secret.
func New(secret [size]byte) *Key { return &Key{secret} }

// A signed file begins with a line that consists of this word, a space, and the signature in
// hexadecimal. The content follows.
const (
	magic  = "leasehold-signed-1"
	header = len(magic) + 1 + 2*sha256.Size + 1
)

// HeaderSize is the number of bytes by which a signed file is longer than its content.
const HeaderSize = header

// mac is a new hash of everything except the content.
func (k *Key) mac(kind Kind, name string) hash.Hash {
	h := hmac.New(sha256.New, k.secret[:])
	h.Write([]byte(magic))
	for _, part := range []string{string(kind), name} {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		h.Write(length[:])
		h.Write([]byte(part))
	}
	return h
}

// Sign returns the content with its signature in front of it. name says what the file is
// about: a profile's or session's id.
func (k *Key) Sign(kind Kind, name string, content []byte) []byte {
	h := k.mac(kind, name)
	h.Write(content)
	said := make([]byte, 0, header+len(content))
	said = append(said, magic...)
	said = append(said, ' ')
	said = hex.AppendEncode(said, h.Sum(nil))
	said = append(said, '\n')
	return append(said, content...)
}

// Open checks the signature of a file and returns its content. Its error is ErrNotAuthentic.
func (k *Key) Open(kind Kind, name string, said []byte) ([]byte, error) {
	content, ok := cut(said)
	if !ok {
		return nil, fmt.Errorf("%w: it has no signature", ErrNotAuthentic)
	}
	if !hmac.Equal(k.Sign(kind, name, content)[:header], said[:header]) {
		return nil, fmt.Errorf("%w: its signature is not that of this content, of a %s of %s, under this launcher's key", ErrNotAuthentic, kind, name)
	}
	return content, nil
}

// cut returns what follows the first line of a signed file, and whether it has one.
func cut(b []byte) (content []byte, ok bool) {
	if len(b) < header || !bytes.HasPrefix(b, []byte(magic+" ")) || b[header-1] != '\n' {
		return nil, false
	}
	return b[header:], true
}

// Claimed returns what a file says, without its signature if it has one, and whether it has.
// Nothing was verified, so it may only make a launcher more careful.
func Claimed(b []byte) (content []byte, hasSignature bool) {
	if content, ok := cut(b); ok {
		return content, true
	}
	return b, false
}

// Chain signs the lines of a file that is appended to. Each signature covers its own line and
// all lines before it, so none can be changed, added, moved or removed; only the last ones can
// be cut off. The zero Chain is not valid. It is not safe for concurrent use.
type Chain struct {
	mac  hash.Hash // keyed with the chain's own secret
	last [chainSize]byte
}

// chainSize is the length of a line's signature in bytes.
const chainSize = 16

// Chain returns the chain of a file without lines.
func (k *Key) Chain(kind Kind, name string) *Chain {
	return &Chain{mac: hmac.New(sha256.New, k.mac(kind, name).Sum(nil))}
}

// Next returns the signature of the next line, in hexadecimal.
func (c *Chain) Next(line string) string {
	c.mac.Reset()
	c.mac.Write(c.last[:])
	c.mac.Write([]byte(line))
	var sum [sha256.Size]byte
	copy(c.last[:], c.mac.Sum(sum[:0]))
	return hex.EncodeToString(c.last[:])
}
