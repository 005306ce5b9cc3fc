package principal

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"leasehold/lease"
)

// TokenFileName is the name of the principal that shows the API token of --token-file.
const TokenFileName = "token-file"

type known struct {
	tokens       []tokenEntry
	certificates []certificateEntry
}

type tokenEntry struct {
	sum TokenHash
	p   Principal
}

type certificateEntry struct {
	subject string
	p       Principal
}

type fileEntry struct {
	Name     string   `yaml:"name"`
	SHA256   string   `yaml:"sha256"`
	Subject  string   `yaml:"subject"`
	Role     string   `yaml:"role"`
	Profiles []string `yaml:"profiles"`
	// MaxPriority is the highest priority of its requests.
	MaxPriority int `yaml:"max_priority"`
}

// name is the form of a name in the file. It contains no colon, so that it is never the name of
// a user.
var name = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// CheckName returns nil if a principal of the file may have this name.
func CheckName(text string) error {
	if !name.MatchString(text) {
		return fmt.Errorf("name %q: want 1 to 64 of A-Z a-z 0-9 . _ -", text)
	}
	if text == TokenFileName {
		return fmt.Errorf("name %q: that is who shows the token of --token-file", text)
	}
	return nil
}

// parse reads the file of --tokens. Its errors quote no line of it.
func parse(b []byte) (known, error) {
	var file struct {
		Tokens       []fileEntry `yaml:"tokens"`
		Certificates []fileEntry `yaml:"certificates"`
	}
	if err := yaml.UnmarshalWithOptions(b, &file, yaml.Strict()); err != nil && !errors.Is(err, io.EOF) {
		// The lines after the first one quote the file.
		first, _, _ := strings.Cut(strings.TrimSpace(err.Error()), "\n")
		return known{}, fmt.Errorf("want a list tokens with name, sha256, role and profiles, or certificates with subject in place of sha256: %s", first)
	}
	var k known
	same := map[string]Principal{}
	add := func(list string, i int, e fileEntry) (Principal, error) {
		where := fmt.Sprintf("%s, entry %d", list, i+1)
		err := CheckName(e.Name)
		if err != nil {
			return Principal{}, fmt.Errorf("%s: %w", where, err)
		}
		role, err := ParseRole(e.Role)
		var profiles Patterns
		if err == nil {
			profiles, err = ParsePatterns(e.Profiles)
		}
		if err == nil && (e.MaxPriority < lease.MinPriority || e.MaxPriority > lease.MaxPriority) {
			err = fmt.Errorf("max_priority %d: want %d to %d", e.MaxPriority, lease.MinPriority, lease.MaxPriority)
		}
		if err != nil {
			return Principal{}, fmt.Errorf("%s (%s): %w", where, e.Name, err)
		}
		p := Principal{Name: e.Name, Role: role, Profiles: profiles, MaxPriority: e.MaxPriority}
		if other, ok := same[e.Name]; ok && (other.Role != p.Role || other.MaxPriority != p.MaxPriority || !slices.Equal(other.Profiles, p.Profiles)) {
			return Principal{}, fmt.Errorf("%s (%s): another entry of this name has another role, other profiles or another max_priority: one name is one principal", where, e.Name)
		}
		same[e.Name] = p
		return p, nil
	}
	for i, e := range file.Tokens {
		p, err := add("tokens", i, e)
		if err != nil {
			return known{}, err
		}
		s, err := hex.DecodeString(e.SHA256)
		if err != nil || len(s) != sha256.Size || e.Subject != "" {
			return known{}, fmt.Errorf("tokens, entry %d (%s): want sha256, the SHA-256 of the token as 64 hexadecimal digits: leasehold token new prints it", i+1, e.Name)
		}
		p.Proof = "its token"
		entry := tokenEntry{TokenHash(s), p}
		if slices.ContainsFunc(k.tokens, func(t tokenEntry) bool { return t.sum == entry.sum && t.p.Name != p.Name }) {
			return known{}, fmt.Errorf("tokens, entry %d (%s): another principal has the same token", i+1, e.Name)
		}
		k.tokens = append(k.tokens, entry)
	}
	for i, e := range file.Certificates {
		p, err := add("certificates", i, e)
		if err != nil {
			return known{}, err
		}
		if e.Subject == "" || e.SHA256 != "" {
			return known{}, fmt.Errorf("certificates, entry %d (%s): want subject, the common name of the certificate, or a URI that it is for", i+1, e.Name)
		}
		if slices.ContainsFunc(k.certificates, func(c certificateEntry) bool { return c.subject == e.Subject }) {
			return known{}, fmt.Errorf("certificates, entry %d (%s): subject %q is named twice", i+1, e.Name, e.Subject)
		}
		p.Proof = "its certificate"
		k.certificates = append(k.certificates, certificateEntry{e.Subject, p})
	}
	return k, nil
}

// ofToken finds the principal of an API token. It compares all of them, so that the time it
// takes reveals nothing.
func (k known) ofToken(token string) (p Principal, ok bool) {
	s := Hash(token)
	for _, t := range k.tokens {
		if subtle.ConstantTimeCompare(t.sum[:], s[:]) == 1 {
			p, ok = t.p, true
		}
	}
	return p, ok
}

// ofCertificate finds the principal of a certificate that was verified before. A certificate
// that matches two principals is nobody's.
func (k known) ofCertificate(c *x509.Certificate) (Principal, error) {
	var subjects []string
	for _, u := range c.URIs {
		subjects = append(subjects, u.String())
	}
	if c.Subject.CommonName != "" {
		subjects = append(subjects, c.Subject.CommonName)
	}
	var found []Principal
	for _, e := range k.certificates {
		if slices.Contains(subjects, e.subject) && !slices.ContainsFunc(found, func(p Principal) bool { return p.Name == e.p.Name }) {
			found = append(found, e.p)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return Principal{}, fmt.Errorf("your certificate is that of %s and of %s: which one are you?", found[0].Name, found[1].Name)
	}
	return Principal{}, fmt.Errorf("your certificate is for %q, which no entry of certificates in the file of --tokens names as its subject", subjects)
}

// Hash is the SHA-256 of an API token, as the file has it in hexadecimal.
func Hash(token string) TokenHash { return sha256.Sum256([]byte(token)) }
