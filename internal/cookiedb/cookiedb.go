// Package cookiedb reads the database in which a Chrome that has ended left its cookies, and
// compares it with the cookies that the browser had.
package cookiedb

import (
	"bytes"
	"cmp"
	"crypto/aes"
	"crypto/cipher"
	"crypto/pbkdf2"
	"crypto/sha1" //nolint:gosec // Chrome's choice
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// Cookie is a persistent cookie.
type Cookie struct {
	// Domain begins with a dot if subdomains get the cookie, too.
	Domain, Name, Path string
	Value              string
	Expires            time.Time
	// Updated is when the cookie was last set; the zero value if that is not known.
	Updated time.Time
	// Unread says that the value cannot be read.
	Unread bool
}

type identity struct{ domain, name, path string }

func (c Cookie) identity() identity { return identity{c.Domain, c.Name, c.Path} }

// near is how far two notes of one time may be apart: Chrome tells it in seconds, and keeps it in
// microseconds.
const near = 2 * time.Second

// Lost compares the cookies that a browser had at a time with those that it left in its
// database when it ended, after that time. It returns one that is not there, or not with this
// value, and why; nil if there is none. A cookie that was set again meanwhile is not lost, nor
// is one whose time was over before ended.
func Lost(had, left []Cookie, at, ended time.Time) (lost *Cookie, why string) {
	stored := map[identity][]Cookie{}
	for _, c := range left {
		stored[c.identity()] = append(stored[c.identity()], c) // one for each partition
	}
	for _, c := range had {
		if c.Expires.Before(ended.Add(near)) {
			continue
		}
		same := func(s Cookie) bool {
			if s.Updated.After(at) {
				return true
			}
			if s.Unread || !utf8.ValidString(s.Value) {
				return s.Expires.Sub(c.Expires).Abs() < near
			}
			return s.Value == c.Value
		}
		switch found := stored[c.identity()]; {
		case len(found) == 0:
			return &c, "it is not in the database"
		case !slices.ContainsFunc(found, same):
			return &c, "the database has an older one"
		}
	}
	return nil, ""
}

// Read reads the persistent cookies from the content of the database.
func Read(file []byte) (cookies []Cookie, err error) {
	d, err := openDatabase(file)
	if err != nil {
		return nil, err
	}
	version := ""
	err = d.table("meta", func(row map[string]any) {
		if row["key"] == "version" {
			version, _ = row["value"].(string)
		}
	})
	if err != nil {
		return nil, err
	}
	// From version 24 on, the hash of the domain stands before each encrypted value.
	hashed := cmp.Or(cmp.Compare(len(version), 2), strings.Compare(version, "24")) >= 0
	err = d.table("cookies", func(row map[string]any) {
		if row["is_persistent"] != int64(1) {
			return
		}
		c := Cookie{Expires: chromeTime(row["expires_utc"]), Updated: chromeTime(row["last_update_utc"])}
		c.Domain, _ = row["host_key"].(string)
		c.Name, _ = row["name"].(string)
		c.Path, _ = row["path"].(string)
		c.Value, _ = row["value"].(string)
		if encrypted, _ := row["encrypted_value"].([]byte); len(encrypted) > 0 {
			value, err := decrypt(encrypted)
			if sum := sha256.Sum256([]byte(c.Domain)); err == nil && hashed {
				if value, hashed = bytes.CutPrefix(value, sum[:]); !hashed {
					err, hashed = errKey, true
				}
			}
			c.Value, c.Unread = string(value), err != nil
		}
		cookies = append(cookies, c)
	})
	return cookies, err
}

// chromeTime is a time in microseconds since 1601.
func chromeTime(v any) time.Time {
	n, ok := v.(int64)
	if !ok || n == 0 {
		return time.Time{}
	}
	const epoch = 11644473600 // seconds from 1601 to 1970
	return time.UnixMicro(n - epoch*1e6)
}

var errKey = errors.New("encrypted under another key")

// key is the key under which Chrome encrypts cookies where it uses no keyring of the desktop
// (--password-store=basic). It is the same everywhere.
var key = sync.OnceValues(func() (cipher.Block, error) {
	k, err := pbkdf2.Key(sha1.New, "peanuts", []byte("saltysalt"), 1, aes.BlockSize)
	if err != nil {
		return nil, err
	}
	return aes.NewCipher(k)
})

func decrypt(encrypted []byte) ([]byte, error) {
	text, known := bytes.CutPrefix(encrypted, []byte("v10"))
	block, err := key()
	if err != nil {
		return nil, err
	}
	if !known || len(text) == 0 || len(text)%aes.BlockSize != 0 {
		return nil, errKey
	}
	plain := make([]byte, len(text))
	cipher.NewCBCDecrypter(block, bytes.Repeat([]byte(" "), aes.BlockSize)).CryptBlocks(plain, text)
	pad := int(plain[len(plain)-1])
	if pad == 0 || pad > aes.BlockSize || pad > len(plain) {
		return nil, fmt.Errorf("%w: it ends with %d", errKey, pad)
	}
	return plain[:len(plain)-pad], nil
}
