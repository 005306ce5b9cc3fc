package principal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
)

// Two sidecars that know the same API token can tell each other that a caller showed it,
// without sending the token: both have its hash in their files.

// TokenHash is the SHA-256 of an API token. API tokens are long and random, so a fast hash
// gives nobody a way to guess them. The hash itself does not open anything.
type TokenHash [sha256.Size]byte

// Vouch returns a MAC of the message, which says that an API token with this hash was shown for
// it. Another sidecar checks it with Vouched.
func (h TokenHash) Vouch(message []byte) []byte {
	mac := hmac.New(sha256.New, h.key("vouch"))
	_, _ = mac.Write(message) // a hash accepts everything
	return mac.Sum(nil)
}

func (h TokenHash) key(purpose string) []byte {
	key, err := hkdf.Key(sha256.New, h[:], nil, "leasehold "+purpose, sha256.Size)
	if err != nil {
		panic(err) // this length is allowed
	}
	return key
}

// Seal encrypts a text for those who know the hash. about says what the text is about, and has
// to be the same in Unseal.
func (h TokenHash) Seal(text, about []byte) []byte { return h.aead().Seal(nil, nil, text, about) }

var errSeal = errors.New("it was not sealed for this token")

// Unseal returns the text that Seal encrypted.
func (h TokenHash) Unseal(sealed, about []byte) ([]byte, error) {
	text, err := h.aead().Open(nil, nil, sealed, about)
	if err != nil {
		return nil, errSeal
	}
	return text, nil
}

func (h TokenHash) aead() cipher.AEAD {
	block, err := aes.NewCipher(h.key("seal"))
	if err == nil {
		var aead cipher.AEAD
		if aead, err = cipher.NewGCMWithRandomNonce(block); err == nil {
			return aead
		}
	}
	panic(fmt.Sprintf("a key of the right size is refused: %v", err))
}

// Vouched returns the principal whose API token was shown for the message, according to another
// sidecar's Vouch, with the role and profiles that it has here; and the hash of the token.
func (g *Gate) Vouched(message, mac []byte) (p Principal, hash TokenHash, ok bool) {
	for _, t := range g.current().tokens {
		if subtle.ConstantTimeCompare(t.sum.Vouch(message), mac) == 1 {
			p, hash, ok = t.p, t.sum, true
		}
	}
	return p, hash, ok
}
