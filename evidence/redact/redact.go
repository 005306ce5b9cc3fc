// Package redact removes from URLs what may be secret, and bounds the length of texts, before
// either becomes evidence. It knows nothing about bundles or browsers.
package redact

import (
	"net/url"
	"regexp"
	"strings"
	"unicode"
)

// Mark replaces a secret.
const Mark = "REDACTED"

// Clip returns the text or, if it is longer than most bytes, its beginning followed by three
// dots.
func Clip(s string, most int) string {
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}

// URL returns the URL without the secrets that it may carry.
//
//   - User and password are dropped.
//   - Query and fragment: every value is replaced by Mark, since a form that is sent
//     by GET puts there what was typed. Names stay, and so do anchors and routes in
//     the fragment, and numbers of at most eight digits (pages, steps, orders) unless
//     their name is that of a secret.
//   - Path: the values of parameters whose names are those of secrets (token, code,
//     password, key, session, auth, sig, ...), JSON web tokens, the same inside of
//     URLs in the path, and what looks like a secret: a sequence of sixteen or more letters
//     and digits with both among them. Other text in the path stays.
//   - What follows "data:" and "javascript:" is replaced.
//
// URL takes any text, and leaves its own results as they are.
func URL(raw string) string { return redactURL(raw, 0) }

// maxDepth is how many URLs may be nested in each other.
const maxDepth = 6

func redactURL(raw string, depth int) string {
	if depth > maxDepth {
		return Mark
	}
	// Browsers ignore tabs and line breaks in URLs, and white space around them.
	s := strings.Map(func(r rune) rune {
		if r == '\t' || r == '\n' || r == '\r' {
			return -1
		}
		return r
	}, strings.TrimFunc(strings.ToValidUTF8(raw, "\uFFFD"), func(r rune) bool { return r <= ' ' }))

	scheme, rest := splitScheme(s)
	switch strings.ToLower(scheme) {
	case "data:":
		if kind, _, ok := strings.Cut(rest, ","); ok && isMediaType(kind) {
			return scheme + kind + "," + Mark
		}
		return scheme + Mark
	case "javascript:", "vbscript:":
		return scheme + Mark
	case "blob:", "filesystem:", "view-source:":
		return scheme + redactURL(rest, depth+1)
	}
	rest, fragment, hasFragment := strings.Cut(rest, "#")
	rest, query, hasQuery := strings.Cut(rest, "?")
	host, rest := dropUser(strings.ToLower(scheme), rest)
	out := scheme + redactPairs(host, depth) + maskRandom(redactPairs(rest, depth))
	if hasQuery {
		out += "?" + redactQuery(query, nil)
	}
	if hasFragment {
		// Both #token=... and, in applications that keep their route in the
		// fragment, #/route?token=...
		route, params, hasParams := strings.Cut(fragment, "?")
		out += "#" + redactQuery(route, anchor)
		if hasParams {
			out += "?" + redactQuery(params, nil)
		}
	}
	return out
}

// anchor matches a part of a fragment that is not a value: an anchor or a route.
var anchor = regexp.MustCompile(`^[A-Za-z0-9_/!.:-]*$`)

// shortNumber matches numbers that are kept: an incident is often about one (an order, a page),
// and it does not look like a secret.
var shortNumber = regexp.MustCompile(`^[0-9]{1,8}$`)

// redactQuery replaces the values of name=value pairs. It also replaces what is not a pair,
// unless it matches allowed; nil allows nothing.
func redactQuery(query string, allowed *regexp.Regexp) string {
	if query == "" {
		return ""
	}
	pairs := strings.Split(query, "&")
	for i, pair := range pairs {
		name, value, ok := strings.Cut(pair, "=")
		switch {
		case ok && shortNumber.MatchString(value) && !secretName(unescape(name)):
			pairs[i] = maskRandom(name) + "=" + value
		case ok && value != "":
			pairs[i] = maskRandom(name) + "=" + Mark
		case ok:
			pairs[i] = maskRandom(pair)
		case allowed != nil && allowed.MatchString(pair):
			pairs[i] = maskRandom(pair)
		case pair != "":
			pairs[i] = Mark
		}
	}
	return strings.Join(pairs, "&")
}

// splitScheme cuts off a scheme with its colon ("https:"). Without one, scheme is
// empty.
func splitScheme(s string) (scheme, rest string) {
	for i, r := range s {
		switch {
		case r == ':' && i > 0:
			return s[:i+1], s[i+1:]
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z':
		case i > 0 && ('0' <= r && r <= '9' || r == '+' || r == '-' || r == '.'):
		default:
			return "", s
		}
	}
	return "", s
}

// isMediaType tells whether a text is made like the media type of a data URL.
func isMediaType(s string) bool {
	return len(s) < 100 && !strings.ContainsFunc(s, func(r rune) bool {
		return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("/+-.;=", r)
	})
}

// longWord matches sequences of letters and digits that are long enough for a secret. It
// also matches escapes (%2F), so that their digits are not taken for a part of the sequence.
var longWord = regexp.MustCompile(`%[0-9A-Fa-f]{2}|[0-9A-Za-z]{16,}`)

// maskRandom replaces sequences that look like secrets: those with both letters and digits.
func maskRandom(s string) string {
	return longWord.ReplaceAllStringFunc(s, func(word string) string {
		if word[0] != '%' && strings.ContainsAny(word, "0123456789") && strings.IndexFunc(word, unicode.IsLetter) >= 0 {
			return Mark
		}
		return word
	})
}

// dropUser splits what follows the scheme into the host, without user and password but with the
// slashes before it, and the path. Browsers treat backslashes as slashes, and need no slashes
// after the special schemes.
func dropUser(scheme, rest string) (host, path string) {
	host = strings.TrimLeft(rest, "/\\")
	slashes := rest[:len(rest)-len(host)]
	special := scheme == "http:" || scheme == "https:" || scheme == "ws:" || scheme == "wss:" || scheme == "ftp:"
	if len(slashes) < 2 && !special {
		return "", rest
	}
	end := strings.IndexAny(host, "/\\")
	if end < 0 {
		end = len(host)
	}
	return slashes + host[strings.LastIndexByte(host[:end], '@')+1:end], host[end:]
}

// pairSeparators stand between name=value pairs in hosts and paths.
const pairSeparators = "/\\;&"

// redactPairs applies redactPair to the parts of a text between separators.
func redactPairs(s string, depth int) string {
	if !strings.ContainsAny(s, "=") && !strings.Contains(s, "eyJ") && !strings.Contains(s, "%") {
		return s
	}
	var out strings.Builder
	for {
		end := strings.IndexAny(s, pairSeparators)
		if end < 0 {
			out.WriteString(redactPair(s, depth))
			return out.String()
		}
		out.WriteString(redactPair(s[:end], depth))
		out.WriteByte(s[end])
		s = s[end+1:]
	}
}

// redactPair replaces the value of a name=value pair if its name is that of a secret or the
// value contains one. It replaces a text that is not a pair if it is a JSON web token or hides
// pairs behind escapes.
func redactPair(pair string, depth int) string {
	name, value, ok := strings.Cut(pair, "=")
	if !ok {
		if decoded := unescape(pair); decoded != pair && strings.Contains(decoded, "=") {
			return redactValue(pair, depth)
		}
		if isJWT(pair) {
			return Mark
		}
		return pair
	}
	if value == "" {
		return pair
	}
	if secretName(unescape(name)) {
		return name + "=" + Mark
	}
	return name + "=" + redactValue(value, depth)
}

// redactValue redacts a value that is a URL or has pairs, and replaces one that is a
// secret.
func redactValue(value string, depth int) string {
	decoded := unescape(value)
	if isJWT(decoded) || !strings.ContainsAny(decoded, "/:?&=") && maskRandom(value) != value {
		return Mark
	}
	if clean := redactURL(decoded, depth+1); clean != decoded {
		return url.QueryEscape(clean)
	}
	return value
}

// unescape decodes percent escapes, or returns the text unchanged if they are malformed.
func unescape(s string) string {
	if d, err := url.QueryUnescape(s); err == nil {
		return d
	}
	return s
}

// isJWT recognizes a JSON web token, header.payload.signature: the header is base64url of a
// JSON object, and therefore begins with "eyJ".
func isJWT(s string) bool {
	return strings.HasPrefix(s, "eyJ") && strings.Count(s, ".") >= 2 && len(s) > 20
}

// The name of a parameter that carries a secret contains one of secretWords as a whole word, or
// one of secretParts anywhere.
var (
	secretWords = map[string]bool{
		"token": true, "code": true, "key": true, "auth": true, "sig": true, "sid": true, "sess": true, "pass": true,
		"pwd": true, "pw": true, "pin": true, "otp": true, "totp": true, "mfa": true, "jwt": true, "hmac": true,
		"ticket": true, "nonce": true, "state": true, "csrf": true, "xsrf": true, "cookie": true, "bearer": true,
		"assertion": true, "verifier": true, "challenge": true, "cvc": true, "cvv": true, "ssn": true, "card": true, "phone": true,
		"tel": true, "dob": true, "birthday": true,
	}
	secretParts = []string{
		"token", "passw", "passphrase", "passcode", "secret", "session", "sessid", "signature", "apikey", "accesskey",
		"privatekey", "credential", "authcode", "authoriz", "authenticat", "oauth", "samlresponse", "samlrequest", "otpcode",
	}
)

func secretName(name string) bool {
	var word, all []rune
	lower := false
	for _, r := range name {
		if unicode.IsUpper(r) && lower || !unicode.IsLetter(r) { // a word ends: aB, a_b
			if secretWords[string(word)] {
				return true
			}
			word = word[:0]
		}
		lower = unicode.IsLower(r)
		if unicode.IsLetter(r) {
			word = append(word, unicode.ToLower(r))
			all = append(all, unicode.ToLower(r))
		}
	}
	if secretWords[string(word)] {
		return true
	}
	for _, part := range secretParts {
		if strings.Contains(string(all), part) {
			return true
		}
	}
	return false
}
