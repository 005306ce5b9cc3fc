package evidence

import (
	"cmp"
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
	// Domains has the same for each cookie domain, as Chrome writes it.
	Domains map[string]DomainDigest `json:"domains"`
}

// DomainDigest is about the cookies of one domain.
type DomainDigest struct {
	Cookies int    `json:"cookies"`
	Digest  string `json:"digest"`
}

// CookieDigest makes the part that shows whether a profile's cookies have changed without
// revealing them. cookies is the result of Storage.getCookies. A digest is HMAC-SHA-256, in
// hex, over the sorted names, domains, paths, partitions and values. The salt is the profile's
// own secret (Archive.Salt), of 16 bytes or more, so that a reader of the evidence cannot try
// out values. Only digests under the same salt can be compared.
func CookieDigest(cookies json.RawMessage, salt []byte) ([]byte, error) {
	if err := checkSalt(salt); err != nil {
		return nil, fmt.Errorf("cookie digest: %w", err)
	}
	list, err := decodeCookies(cookies)
	if err != nil {
		return nil, fmt.Errorf("cookie digest: %w", err)
	}
	slices.SortFunc(list, func(a, b digestedCookie) int {
		return cmp.Or(cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Path, b.Path),
			cmp.Compare(string(a.PartitionKey), string(b.PartitionKey)), cmp.Compare(a.Value, b.Value))
	})
	d := CookieDigests{Cookies: len(list), Digest: cookiesDigest(list, salt), Domains: map[string]DomainDigest{}}
	for rest := list; len(rest) > 0; {
		domain := rest[0].Domain
		n := slices.IndexFunc(rest, func(c digestedCookie) bool { return c.Domain != domain })
		if n < 0 {
			n = len(rest)
		}
		d.Domains[domain] = DomainDigest{Cookies: n, Digest: cookiesDigest(rest[:n], salt)}
		rest = rest[n:]
	}
	content, err := encodeJSON(d, "  ")
	if err != nil {
		return nil, fmt.Errorf("cookie digest: %w", err)
	}
	return content, nil
}

type digestedCookie struct {
	Name         string          `json:"name"`
	Value        string          `json:"value"`
	Domain       string          `json:"domain"`
	Path         string          `json:"path"`
	PartitionKey json.RawMessage `json:"partitionKey"`
}

// decodeCookies reads the result of Storage.getCookies.
func decodeCookies(raw json.RawMessage) ([]digestedCookie, error) {
	var r struct {
		Cookies []digestedCookie `json:"cookies"`
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, fmt.Errorf("not the result of Storage.getCookies: %w", err)
	}
	return r.Cookies, nil
}

func cookiesDigest(cookies []digestedCookie, salt []byte) string {
	var fields []string
	for _, c := range cookies {
		fields = append(fields, c.Name, c.Domain, c.Path, string(c.PartitionKey), c.Value)
	}
	return hex.EncodeToString(keyedHash(salt, fields...))
}
