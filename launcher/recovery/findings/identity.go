package findings

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"strings"
	"unicode"
)

// Identity says how likely it is that a cookie tells the site whose session a request is of.
type Identity int

// The values of CookieForm.Identity, the least likely first.
const (
	// IdentityNone is for what sites and scripts remember about a visitor: a theme, a consent,
	// a visitor's number.
	IdentityNone Identity = iota
	// IdentityMaybe is for a cookie that may be one. It counts only if the site itself removes
	// it, and no more likely cookie of the site is left.
	IdentityMaybe
	// IdentityLikely is for what looks like the proof of a session.
	IdentityLikely
)

// CookieForm is what is known of a cookie without its name and its value.
type CookieForm struct {
	// HTTPOnly says that no script can read it. Sites set that for what proves a session.
	HTTPOnly bool
	// Secure says that it is sent by https only, and Prefixed that its name begins with
	// __Host- or __Secure-, which makes the browser enforce that.
	Secure, Prefixed bool
	// Session says that it ends with the browser.
	Session bool
	// Partitioned says that it belongs to a site inside the pages of another one.
	Partitioned bool
	// BySite says that an answer of the site, which the launcher saw, set it.
	BySite bool
	Value  ValueForm
}

// Identity judges a cookie by its form. A list of names cannot do that: every site has its own
// names.
func (c CookieForm) Identity() Identity {
	switch {
	case c.Partitioned || c.Value == ValueEmpty:
		return IdentityNone
	case c.Value == ValueSigned:
		return IdentityLikely
	case c.HTTPOnly && c.Value == ValuePlain:
		return IdentityMaybe
	case c.HTTPOnly:
		return IdentityLikely
	case c.Value != ValueRandom:
		return IdentityNone
	case c.Prefixed && c.Secure:
		return IdentityLikely
	case c.Session || c.BySite:
		return IdentityMaybe
	}
	return IdentityNone
}

// ValueForm is the form of a cookie's value.
type ValueForm int

// The forms of values.
const (
	ValueEmpty ValueForm = iota
	// ValuePlain is a word, a small number, or a list of settings.
	ValuePlain
	// ValueMixed is anything else, such as user-42.
	ValueMixed
	// ValueRandom has a part that looks random, and is too long to be guessed.
	ValueRandom
	// ValueSigned is a JSON web token.
	ValueSigned
)

const (
	// minRandom is the length, in characters, of the shortest part that counts as random.
	minRandom = 16
	// maxPlain is the length of the longest word or number that counts as plain.
	maxPlain = 24
)

// FormOfValue returns the form of a cookie's value.
func FormOfValue(value string) ValueForm {
	value = strings.Trim(value, `"`)
	if decoded, err := url.QueryUnescape(value); err == nil {
		value = decoded
	}
	if value == "" {
		return ValueEmpty
	}
	if _, ok := claimsOf(value); ok {
		return ValueSigned
	}
	for part := range strings.FieldsFuncSeq(value, func(r rune) bool { return !randomRune(r) }) {
		if random(part) {
			return ValueRandom
		}
	}
	letters, digits, other := classes(value)
	switch {
	case strings.ContainsAny(value, "{}[]=&|:,; "): // settings
		return ValuePlain
	case len(value) <= maxPlain && other == 0 && (letters == 0 || digits == 0):
		return ValuePlain
	}
	return ValueMixed
}

// randomRune tells whether a character occurs in base64 (either kind), hexadecimal or UUIDs.
func randomRune(r rune) bool {
	return r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_+/", r))
}

// random tells whether a part of a value looks random: long, and mixing letters and digits, or
// upper and lower case as no word does.
func random(part string) bool {
	if len(part) < minRandom {
		return false
	}
	letters, digits, _ := classes(part)
	if letters > 0 && digits > 0 {
		return true
	}
	switches, upper := 0, false
	for i, r := range part {
		if u := unicode.IsUpper(r); i == 0 || u != upper {
			switches, upper = switches+1, u
		}
	}
	return switches > len(part)/4
}

// classes counts letters, digits and other characters, leaving out those that join words.
func classes(s string) (letters, digits, other int) {
	for _, r := range s {
		switch {
		case unicode.IsLetter(r):
			letters++
		case unicode.IsDigit(r):
			digits++
		case r != '-' && r != '_' && r != '.':
			other++
		}
	}
	return letters, digits, other
}

// SubjectOfValue returns the subject of a JSON web token, as the token itself names it: its
// claims iss and sub. It is empty for every other value. The token need not be proved to be
// genuine: two tokens that name different subjects are of different accounts.
func SubjectOfValue(value string) string {
	c, ok := claimsOf(strings.Trim(value, `"`))
	if !ok || len(c.Subject) == 0 || string(c.Subject) == "null" {
		return ""
	}
	return string(c.Issuer) + "\n" + string(c.Subject)
}

// claims are those claims of a JSON web token that say whose it is.
type claims struct {
	Issuer  json.RawMessage `json:"iss"`
	Subject json.RawMessage `json:"sub"`
}

// claimsOf reads a JSON web token: three parts in base64url, of which the first two are JSON
// objects, and the first names an algorithm.
func claimsOf(value string) (claims, bool) {
	var c claims
	parts := strings.Split(value, ".")
	if len(parts) != 3 || !strings.HasPrefix(value, "ey") {
		return c, false
	}
	var header struct {
		Algorithm string `json:"alg"`
	}
	for i, into := range []any{&header, &c} {
		b, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[i], "="))
		if err != nil || json.Unmarshal(b, into) != nil {
			return c, false
		}
	}
	return c, header.Algorithm != ""
}
