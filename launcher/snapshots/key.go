package snapshots

import (
	"bufio"
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"leasehold/internal/durable"
	"leasehold/internal/privatefile"
)

// keyPrefix begins the line of a key file that has the key.
const keyPrefix = "LEASEHOLD-PROFILE-KEY-1-"

// secretSize is how many bytes a key has.
const secretSize = 32

// Key encrypts all profiles of a store. Each profile's own key is derived from it and the
// profile's id, so nothing of one profile passes for another's.
type Key struct{ secret [secretSize]byte }

// ReadKey reads a key file that WriteKey wrote. It refuses a file that other users may read.
// Its errors do not repeat what was read.
func ReadKey(path string) (*Key, error) {
	content, _, err := privatefile.Read(path)
	if err != nil {
		return nil, err
	}
	k, err := ParseKey(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return k, nil
}

// ParseKey reads the content of a key file: one line with the key; empty lines and lines that
// begin with # are skipped.
func ParseKey(content []byte) (*Key, error) {
	want := errors.New("want one line that begins with " + keyPrefix + ", as leasehold profiles keygen writes it")
	var key *Key
	for lines := bufio.NewScanner(bytes.NewReader(content)); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		text, ok := strings.CutPrefix(line, keyPrefix)
		secret, err := base64.RawURLEncoding.DecodeString(text)
		if !ok || err != nil || len(secret) != secretSize || key != nil {
			return nil, want
		}
		key = &Key{[secretSize]byte(secret)}
	}
	if key == nil {
		return nil, want
	}
	return key, nil
}

// NewKey makes a key.
func NewKey() *Key {
	k := &Key{}
	_, _ = rand.Read(k.secret[:]) // never fails
	return k
}

// WriteKey writes a new key to a new file that only its owner may read, and returns it. An
// existing file stays as it is.
func WriteKey(path string) (*Key, error) {
	k := NewKey()
	err := durable.Create(path, fmt.Appendf(nil, "# The key of the profiles in a store (leasehold run --profile-key). Without it they cannot be read.\n%s%s\n",
		keyPrefix, base64.RawURLEncoding.EncodeToString(k.secret[:])))
	if errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("%s is there already, and stays: profiles may be readable by it alone", path)
	}
	if err != nil {
		return nil, err
	}
	return k, nil
}

// derive returns a secret that is used for one purpose only.
func (k *Key) derive(purpose string) []byte {
	secret, err := hkdf.Key(sha256.New, k.secret[:], nil, "leasehold profiles 1: "+purpose, secretSize)
	if err != nil {
		panic(err) // only for a length that is never used
	}
	return secret
}

// id distinguishes a key from others, and reveals nothing about it.
func (k *Key) id() string { return hex.EncodeToString(k.derive("id of the key")[:8]) }

// codec encrypts one profile. Nonces are random: 2^32 objects may be encrypted with one key,
// and each profile has a key of its own.
type codec struct {
	profile string // folder of the profile's objects
	seal    cipher.AEAD
	names   []byte
	cuts    []byte
}

func (k *Key) of(profileID string) *codec {
	block, err := aes.NewCipher(k.derive("content of " + profileID))
	var seal cipher.AEAD
	if err == nil {
		seal, err = cipher.NewGCMWithRandomNonce(block)
	}
	if err != nil {
		panic(err) // only for a key of another length
	}
	return &codec{
		profile: hex.EncodeToString(k.derive("folder of " + profileID)[:nameSize]), seal: seal,
		names: k.derive("names of " + profileID), cuts: k.derive("cuts of " + profileID),
	}
}

// nameSize is how many bytes the name of an object has.
const nameSize = 20

// name is the name of a chunk: a keyed hash of its content, which reveals nothing about the
// content.
func (c *codec) name(content []byte) string {
	mac := hmac.New(sha256.New, c.names)
	mac.Write(content)
	return hex.EncodeToString(mac.Sum(nil)[:nameSize])
}

// encrypt encrypts an object for its purpose as, such as "head" or the name of a chunk.
func (c *codec) encrypt(as string, plain []byte) []byte {
	return c.seal.Seal(nil, nil, plain, []byte(as))
}

// decrypt reverses encrypt for the same profile and purpose. The error is ErrDamaged.
func (c *codec) decrypt(as string, stored []byte) ([]byte, error) {
	if len(stored) < c.seal.Overhead() {
		return nil, fmt.Errorf("%w: it was cut off: it has %d bytes", ErrDamaged, len(stored))
	}
	plain, err := c.seal.Open(nil, nil, stored, []byte(as))
	if err != nil {
		return nil, fmt.Errorf("%w: it was changed, cut off, or put in the place of another one", ErrDamaged)
	}
	return plain, nil
}
