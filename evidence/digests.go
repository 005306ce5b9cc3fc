package evidence

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"leasehold/evidence/redact"
)

// DigestsPart is the name of the part that Digests.Part makes, of kind
// KindDigests.
const DigestsPart = "digests.json"

// Digests show whether an account's cookies have changed, without revealing them: names and values
// are HMAC-SHA-256, cut to 16 bytes, under the profile's secret (Archive.Salt).
type Digests struct {
	// Key distinguishes digests under different secrets, which cannot be compared.
	Key string `json:"key"`
	// Cookies are all cookies of the browser's own context, by domain. If they could not be
	// read, CookiesMissing says why.
	Cookies        map[string]ItemDigests `json:"cookies"`
	CookiesMissing string                 `json:"cookies_missing,omitempty"`

	salt []byte
}

// ItemDigests are the digests of the cookies of one domain, sorted.
type ItemDigests struct {
	Count int          `json:"count"`
	Items []ItemDigest `json:"items"`
}

// ItemDigest is the digest of one cookie.
type ItemDigest struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// minSalt is the length, in bytes, of the shortest secret.
const minSalt = 16

func checkSalt(salt []byte) error {
	if len(salt) < minSalt {
		return fmt.Errorf("a salt of %d bytes: want %d or more", len(salt), minSalt)
	}
	return nil
}

// keyedHash is HMAC-SHA-256 over the fields. Each is preceded by its length, so that no
// two lists of fields have the same bytes.
func keyedHash(salt []byte, fields ...string) []byte {
	h := hmac.New(sha256.New, salt)
	for _, field := range fields {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(field))))
		h.Write([]byte(field))
	}
	return h.Sum(nil)
}

// NewDigests starts digests under a profile's secret of 16 bytes or more. Until
// SetCookies is called its cookies are missing.
func NewDigests(salt []byte) (*Digests, error) {
	if err := checkSalt(salt); err != nil {
		return nil, fmt.Errorf("digests: %w", err)
	}
	d := &Digests{Cookies: map[string]ItemDigests{}, CookiesMissing: "they were not asked for", salt: salt}
	d.Key = d.hash("key")
	return d, nil
}

// hash is the first half of keyedHash, in hex.
func (d *Digests) hash(fields ...string) string {
	return hex.EncodeToString(keyedHash(d.salt, fields...)[:16])
}

// SetCookies sets the digests of the cookies from the result of Storage.getCookies, or from the
// error instead of it. A cookie is identified by its name, path and partition. Its expiry is
// not part of its value.
func (d *Digests) SetCookies(result json.RawMessage, err error) {
	var cookies []digestedCookie
	if err == nil {
		cookies, err = decodeCookies(result)
	}
	if err != nil {
		d.Cookies, d.CookiesMissing = map[string]ItemDigests{}, redact.Clip(err.Error(), 300)
		return
	}
	items := map[string][]ItemDigest{}
	for _, c := range cookies {
		items[c.Domain] = append(items[c.Domain], ItemDigest{
			Name: d.hash("cookie", c.Name, c.Path, string(c.PartitionKey)), Value: d.hash("value", c.Value),
		})
	}
	d.Cookies, d.CookiesMissing = map[string]ItemDigests{}, ""
	for domain, list := range items {
		d.Cookies[domain] = sortedItems(list)
	}
}

func sortedItems(items []ItemDigest) ItemDigests {
	slices.SortFunc(items, func(a, b ItemDigest) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Value, b.Value)) })
	if items == nil {
		items = []ItemDigest{}
	}
	return ItemDigests{len(items), items}
}

// Part returns the digests as the part's content.
func (d *Digests) Part() ([]byte, error) {
	content, err := encodeJSON(d, " ")
	if err != nil {
		return nil, fmt.Errorf("digests: %w", err)
	}
	return content, nil
}

// The answers of Changed, as in an inspection.
const (
	ChangedYes     = "yes"
	ChangedNo      = "no"
	ChangedUnknown = "unknown"
)

// Changed compares the contents of two DigestsPart parts. The answer is yes if anything that
// was read both times differs, no if everything was read both times and is the same, and
// unknown otherwise: also if a content is nil or cannot be parsed, or if the two are under
// different secrets. how says why, without a name or value of the account's.
func Changed(before, after []byte) (answer, how string) {
	a, err := readDigests(before)
	if err != nil {
		return ChangedUnknown, "the state before: " + err.Error()
	}
	b, err := readDigests(after)
	if err != nil {
		return ChangedUnknown, "the state after: " + err.Error()
	}
	if a.Key != b.Key {
		return ChangedUnknown, "the two states were digested under different secrets"
	}
	if missing := cmp.Or(a.CookiesMissing, b.CookiesMissing); missing != "" {
		return ChangedUnknown, redact.Clip("cookies: "+missing, 500)
	}
	// All cookies were read: a domain that is not listed has none.
	var changed []string
	for _, domain := range keys(a.Cookies, b.Cookies) {
		if !slices.Equal(a.Cookies[domain].Items, b.Cookies[domain].Items) {
			changed = append(changed, "cookies of "+domain)
		}
	}
	if len(changed) > 0 {
		return ChangedYes, redact.Clip(strings.Join(changed, ", "), 500)
	}
	return ChangedNo, fmt.Sprintf("the digests of %d cookie domains are the same", len(a.Cookies))
}

func readDigests(content []byte) (*Digests, error) {
	if len(content) == 0 {
		return nil, errors.New("there are no digests")
	}
	var d Digests
	if err := json.Unmarshal(content, &d); err != nil || d.Key == "" || d.Cookies == nil {
		return nil, errors.New("the digests cannot be read")
	}
	return &d, nil
}

// keys returns the keys of both maps, sorted.
func keys[V any](a, b map[string]V) []string {
	union := map[string]bool{}
	for _, m := range []map[string]V{a, b} {
		for key := range m {
			union[key] = true
		}
	}
	return slices.Sorted(maps.Keys(union))
}
