// Package redact takes what may be secret out of URLs, and bounds the length of
// texts, before either becomes evidence. It knows nothing of bundles or browsers.
package redact

import (
	"net/url"
	"regexp"
	"strings"
	"unicode"
)

// Mark stands where a secret stood.
const Mark = "REDACTED"

// Clip returns the text, or where it is longer than most bytes its beginning with
// three dots behind it.
func Clip(s string, most int) string {
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}

// URL returns the URL without what it may carry of secrets. User and
// password are dropped. Every value in the query is replaced by REDACTED, and so is
// every value in the fragment: a form that is sent by GET puts what was typed
// there; names stay, and so do anchors and routes in the fragment, and numbers of
// at most eight digits (pages, steps, orders) under names that are not telling. In the path,
// the values of parameters with telling names (token, code, password, key, session,
// auth, sig, ...) and values that are JSON web tokens go, those inside of URLs in it
// too, and what looks like a token: sixteen or more letters and digits in a row,
// with both among them. So does what follows "data:" and "javascript:". Other text
// in the path stays. URL takes any text, and its own result unchanged.
func URL(raw string) string { return redactURL(raw, 0) }

// deepest is how many URLs may be packed into each other.
const deepest = 6

func redactURL(raw string, depth int) string {
	if depth > deepest {
		return Mark
	}
	// Browsers read URLs as if these were not there.
	s := strings.Map(func(r rune) rune {
		if r == '\t' || r == '\n' || r == '\r' {
			return -1
		}
		return r
	}, strings.TrimFunc(strings.ToValidUTF8(raw, "\uFFFD"), func(r rune) bool { return r <= ' ' }))

	scheme, rest := splitScheme(s)
	switch strings.ToLower(scheme) {
	case "data:":
		if kind, _, ok := strings.Cut(rest, ","); ok && mediaType(kind) {
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
	out := scheme + redactPairs(host, "/\\;&", depth) + maskTokens(redactPairs(rest, "/\\;&", depth))
	if hasQuery {
		out += "?" + redactQuery(query, nil)
	}
	if hasFragment {
		// #token=..., and #/route?token=... of applications that route there.
		route, params, hasParams := strings.Cut(fragment, "?")
		out += "#" + redactQuery(route, anchor)
		if hasParams {
			out += "?" + redactQuery(params, nil)
		}
	}
	return out
}

// anchor is what may stand in a fragment without being a value.
var anchor = regexp.MustCompile(`^[A-Za-z0-9_/!.:-]*$`)

// shortNumber is what an incident is often about, and no secret by its looks.
var shortNumber = regexp.MustCompile(`^[0-9]{1,8}$`)

// redactQuery leaves the names of pairs, and what is no pair if it may stay.
func redactQuery(query string, stays *regexp.Regexp) string {
	if query == "" {
		return ""
	}
	pairs := strings.Split(query, "&")
	for i, pair := range pairs {
		name, value, ok := strings.Cut(pair, "=")
		switch {
		case ok && shortNumber.MatchString(value) && !secretName(unescape(name)):
			pairs[i] = maskTokens(name) + "=" + value
		case ok && value != "":
			pairs[i] = maskTokens(name) + "=" + Mark
		case ok:
			pairs[i] = maskTokens(pair)
		case stays != nil && stays.MatchString(pair):
			pairs[i] = maskTokens(pair)
		case pair != "":
			pairs[i] = Mark
		}
	}
	return strings.Join(pairs, "&")
}

// splitScheme cuts "https:" off, or nothing.
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

func mediaType(s string) bool {
	return len(s) < 100 && !strings.ContainsFunc(s, func(r rune) bool {
		return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("/+-.;=", r)
	})
}

// tokens are runs of letters and digits long enough for a secret. Escapes are in
// it to be passed over: their digits belong to no run.
var tokens = regexp.MustCompile(`%[0-9A-Fa-f]{2}|[0-9A-Za-z]{16,}`)

// maskTokens replaces what looks like a token.
func maskTokens(s string) string {
	return tokens.ReplaceAllStringFunc(s, func(run string) string {
		if run[0] != '%' && strings.ContainsAny(run, "0123456789") && strings.IndexFunc(run, unicode.IsLetter) >= 0 {
			return Mark
		}
		return run
	})
}

// dropUser removes user and password from what follows the scheme, and cuts the
// host off. Browsers take backslashes for slashes, and need none after these
// schemes.
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

// redactPairs replaces the values of secret names in a text of name=value pairs
// between any of the separators.
func redactPairs(s, separators string, depth int) string {
	if !strings.ContainsAny(s, "=") && !strings.Contains(s, "eyJ") && !strings.Contains(s, "%") {
		return s
	}
	var out strings.Builder
	for {
		end := strings.IndexAny(s, separators)
		if end < 0 {
			out.WriteString(redactPair(s, depth))
			return out.String()
		}
		out.WriteString(redactPair(s[:end], depth))
		out.WriteByte(s[end])
		s = s[end+1:]
	}
}

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

// redactValue looks for a URL, or pairs, inside of a value.
func redactValue(value string, depth int) string {
	decoded := unescape(value)
	if isJWT(decoded) || !strings.ContainsAny(decoded, "/:?&=") && maskTokens(value) != value {
		return Mark
	}
	if clean := redactURL(decoded, depth+1); clean != decoded {
		return url.QueryEscape(clean)
	}
	return value
}

func unescape(s string) string {
	if d, err := url.QueryUnescape(s); err == nil {
		return d
	}
	return s
}

// isJWT recognises header.payload.signature, of which the first two are base64url
// of a JSON object.
func isJWT(s string) bool {
	return strings.HasPrefix(s, "eyJ") && strings.Count(s, ".") >= 2 && len(s) > 20
}

// secretWords make a parameter secret when they are a word of its name,
// secretParts wherever they stand in it.
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

// secretName tells whether a parameter of that name carries a secret.
func secretName(name string) bool {
	var word, all []rune
	lower := false
	for _, r := range name {
		if unicode.IsUpper(r) && lower || !unicode.IsLetter(r) { // aB, a_b
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
