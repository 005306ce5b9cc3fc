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

// Digests tell whether an account's state changed, without telling what it is:
// names and values are HMAC-SHA-256 under the profile's secret (Archive.Salt).
type Digests struct {
	// Key tells digests under different secrets apart; those never compare.
	Key string `json:"key"`
	// Cookies are all of the browser's own context, by domain. Where they
	// could not be had, CookiesMissing says why.
	Cookies        map[string]ItemDigests `json:"cookies"`
	CookiesMissing string                 `json:"cookies_missing,omitempty"`
	// Storage is local and session storage by origin and area, as far as it
	// was read: "https://shop.example local".
	Storage map[string]ItemDigests `json:"storage"`
	// StorageMissing says by the same names what could not be read, and why.
	StorageMissing map[string]string `json:"storage_missing,omitempty"`

	salt []byte
}

// ItemDigests are those of one domain or origin, sorted.
type ItemDigests struct {
	Count int          `json:"count"`
	Items []ItemDigest `json:"items"`
}

// ItemDigest is one cookie or one stored item.
type ItemDigest struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// The areas of storage.
const (
	LocalStorage   = "local"
	SessionStorage = "session"
)

// NewDigests starts digests under a profile's secret of 16 bytes or more. Until
// SetCookies is called its cookies are missing.
func NewDigests(salt []byte) (*Digests, error) {
	if len(salt) < 16 {
		return nil, fmt.Errorf("digests: a salt of %d bytes: want 16 or more", len(salt))
	}
	d := &Digests{
		Cookies: map[string]ItemDigests{}, CookiesMissing: "they were not asked for",
		Storage: map[string]ItemDigests{}, StorageMissing: map[string]string{}, salt: salt,
	}
	d.Key = d.hash("key")
	return d, nil
}

// hash is over the parts, each with its length in front.
func (d *Digests) hash(parts ...string) string {
	h := hmac.New(sha256.New, d.salt)
	for _, part := range parts {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		h.Write([]byte(part))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// SetCookies takes over the result of Storage.getCookies. A cookie is named by
// its name, path and partition; when it ends is no part of its value.
func (d *Digests) SetCookies(cookies json.RawMessage, err error) {
	var r struct {
		Cookies []digestedCookie `json:"cookies"`
	}
	if err == nil {
		if err = json.Unmarshal(cookies, &r); err != nil {
			err = fmt.Errorf("not the result of Storage.getCookies: %w", err)
		}
	}
	if err != nil {
		d.Cookies, d.CookiesMissing = map[string]ItemDigests{}, redact.Clip(err.Error(), 300)
		return
	}
	items := map[string][]ItemDigest{}
	for _, c := range r.Cookies {
		items[c.Domain] = append(items[c.Domain], ItemDigest{
			Name: d.hash("cookie", c.Name, c.Path, string(c.PartitionKey)), Value: d.hash("value", c.Value),
		})
	}
	d.Cookies, d.CookiesMissing = map[string]ItemDigests{}, ""
	for domain, list := range items {
		d.Cookies[domain] = sortedItems(list)
	}
}

// SetStorage takes over an origin's items in one area, as DOMStorage's
// getDOMStorageItems returns them in "entries".
func (d *Digests) SetStorage(origin, area string, entries [][]string, err error) {
	name := origin + " " + area
	delete(d.Storage, name)
	delete(d.StorageMissing, name)
	if err != nil {
		d.StorageMissing[name] = redact.Clip(err.Error(), 300)
		return
	}
	var items []ItemDigest
	for _, e := range entries {
		if len(e) == 2 {
			items = append(items, ItemDigest{Name: d.hash("item", e[0]), Value: d.hash("value", e[1])})
		}
	}
	d.Storage[name] = sortedItems(items)
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
	b, err := json.MarshalIndent(d, "", " ")
	if err != nil {
		return nil, fmt.Errorf("digests: %w", err)
	}
	return append(b, '\n'), nil
}

// The answers of Changed, in the words of an inspection.
const (
	ChangedYes     = "yes"
	ChangedNo      = "no"
	ChangedUnknown = "unknown"
)

// Changed compares the contents of two DigestsPart parts. The answer is yes where
// anything that was read both times differs, no where all of it was read both
// times and is the same, and unknown otherwise: also where a content is nil or
// not to be read, or the two are under different secrets. how says why, without a
// name or value of the account's.
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
	var changed, unknown []string
	switch {
	case a.CookiesMissing != "" || b.CookiesMissing != "":
		unknown = append(unknown, "cookies: "+cmp.Or(a.CookiesMissing, b.CookiesMissing))
	default:
		// All cookies were read: a domain that is not there has none.
		for _, domain := range keys(a.Cookies, b.Cookies) {
			if !slices.Equal(a.Cookies[domain].Items, b.Cookies[domain].Items) {
				changed = append(changed, "cookies of "+domain)
			}
		}
	}
	for _, name := range keys(a.Storage, b.Storage) {
		x, before := a.Storage[name]
		y, after := b.Storage[name]
		switch {
		case !before || !after:
			unknown = append(unknown, "storage of "+name+" was read only once")
		case !slices.Equal(x.Items, y.Items):
			changed = append(changed, "storage of "+name)
		}
	}
	for _, name := range keys(a.StorageMissing, b.StorageMissing) {
		_, before := a.Storage[name]
		_, after := b.Storage[name]
		if !before && !after {
			unknown = append(unknown, "storage of "+name+" could not be read")
		}
	}
	switch {
	case len(changed) > 0:
		return ChangedYes, redact.Clip(strings.Join(changed, ", "), 500)
	case len(unknown) > 0:
		return ChangedUnknown, redact.Clip(strings.Join(unknown, ", "), 500)
	}
	return ChangedNo, fmt.Sprintf("the digests of %d cookie domains and %d storage areas are the same", len(a.Cookies), len(a.Storage))
}

func readDigests(content []byte) (*Digests, error) {
	if len(content) == 0 {
		return nil, errors.New("there are no digests")
	}
	var d Digests
	if err := json.Unmarshal(content, &d); err != nil || d.Key == "" || d.Cookies == nil || d.Storage == nil {
		return nil, errors.New("the digests cannot be read")
	}
	return &d, nil
}

// keys are those of both maps, sorted.
func keys[V any](a, b map[string]V) []string {
	all := maps.Clone(a)
	if all == nil {
		all = map[string]V{}
	}
	maps.Copy(all, b)
	return slices.Sorted(maps.Keys(all))
}
