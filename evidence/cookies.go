package evidence

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
)

// CookiesDigestName is the name of the part that CookieDigest makes, of kind
// KindCookiesDigest.
const CookiesDigestName = "cookies_digest.json"

// CookieDigests is the content of that part.
type CookieDigests struct {
	Cookies int `json:"cookies"`
	// Digest is over all cookies, and differs if any of them does.
	Digest string `json:"digest"`
	// Domains has the same of each cookie domain, as Chrome names it.
	Domains map[string]DomainDigest `json:"domains"`
}

// DomainDigest is about the cookies of one domain.
type DomainDigest struct {
	Cookies int    `json:"cookies"`
	Digest  string `json:"digest"`
}

// CookieDigest makes the part that tells whether a profile's cookies changed
// without telling what they are. cookies is the result of Storage.getCookies; a
// digest is HMAC-SHA-256, hex, over the sorted names, domains, paths, partitions
// and values. The salt is the profile's own and secret (Archive.Salt): at least
// 16 bytes, so that nobody who reads the evidence can try values out. Only
// digests under one salt compare.
func CookieDigest(cookies json.RawMessage, salt []byte) ([]byte, error) {
	if len(salt) < 16 {
		return nil, fmt.Errorf("cookie digest: a salt of %d bytes: want 16 or more", len(salt))
	}
	var r struct {
		Cookies []digestedCookie `json:"cookies"`
	}
	if err := json.Unmarshal(cookies, &r); err != nil {
		return nil, fmt.Errorf("cookie digest: not the result of Storage.getCookies: %w", err)
	}
	slices.SortFunc(r.Cookies, func(a, b digestedCookie) int {
		return cmp.Or(cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Path, b.Path),
			cmp.Compare(string(a.PartitionKey), string(b.PartitionKey)), cmp.Compare(a.Value, b.Value))
	})
	d := CookieDigests{Cookies: len(r.Cookies), Digest: digest(r.Cookies, salt), Domains: map[string]DomainDigest{}}
	for rest := r.Cookies; len(rest) > 0; {
		domain := rest[0].Domain
		n := slices.IndexFunc(rest, func(c digestedCookie) bool { return c.Domain != domain })
		if n < 0 {
			n = len(rest)
		}
		d.Domains[domain] = DomainDigest{Cookies: n, Digest: digest(rest[:n], salt)}
		rest = rest[n:]
	}
	b, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("cookie digest: %w", err)
	}
	return append(b, '\n'), nil
}

type digestedCookie struct {
	Name         string          `json:"name"`
	Value        string          `json:"value"`
	Domain       string          `json:"domain"`
	Path         string          `json:"path"`
	PartitionKey json.RawMessage `json:"partitionKey"`
}

func digest(cookies []digestedCookie, salt []byte) string {
	h := hmac.New(sha256.New, salt)
	for _, c := range cookies {
		for _, field := range []string{c.Name, c.Domain, c.Path, string(c.PartitionKey), c.Value} {
			// With its length in front, no two lists read the same.
			h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(field))))
			h.Write([]byte(field))
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}
