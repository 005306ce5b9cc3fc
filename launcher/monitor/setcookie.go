package monitor

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"
)

// cookieAnswer is the part of an answer's headers that matters for cookies.
type cookieAnswer struct {
	status  int
	lines   []string // the Set-Cookie values that Chrome accepted
	cleared bool     // Clear-Site-Data says that all cookies are to be removed
}

// empty tells whether an answer changes no cookie.
func (a cookieAnswer) empty() bool { return len(a.lines) == 0 && !a.cleared }

// parseCookieAnswer reads the parameters of ledger.Headers. It is cheap for an answer that
// changes no cookie.
func parseCookieAnswer(params json.RawMessage) cookieAnswer {
	if !bytes.Contains(params, []byte("ookie")) && !bytes.Contains(params, []byte("OOKIE")) && !bytes.Contains(bytes.ToLower(params), []byte("clear-site-data")) {
		return cookieAnswer{}
	}
	var p struct {
		Headers map[string]string `json:"headers"`
		Status  int               `json:"statusCode"`
		Blocked []struct {
			Line string `json:"cookieLine"`
		} `json:"blockedCookies"`
	}
	if json.Unmarshal(params, &p) != nil {
		return cookieAnswer{}
	}
	a := cookieAnswer{status: p.Status}
	for name, value := range p.Headers {
		switch http.CanonicalHeaderKey(name) {
		case "Set-Cookie":
			for line := range bytes.Lines([]byte(value)) { // Chrome puts one header on each line
				text := string(bytes.TrimSpace(line))
				refused := slices.ContainsFunc(p.Blocked, func(b struct {
					Line string `json:"cookieLine"`
				}) bool {
					return b.Line == text
				})
				if text != "" && !refused {
					a.lines = append(a.lines, text)
				}
			}
		case "Clear-Site-Data":
			a.cleared = a.cleared || bytes.Contains([]byte(value), []byte(`"cookies"`)) || bytes.Contains([]byte(value), []byte(`"*"`))
		}
	}
	return a
}

// parseSetCookie parses a Set-Cookie line as Chrome does (RFC 6265, 5.2). Package http refuses names and
// values that a server should not send, and takes quotes off a value, of which they are a part.
func parseSetCookie(line string) (c *http.Cookie, ok bool) {
	pair, attributes, _ := strings.Cut(fromLatin1(line), ";")
	name, value, named := strings.Cut(pair, "=")
	if !named {
		name, value = "", pair
	}
	c, err := http.ParseSetCookie("x=x;" + attributes)
	if err != nil {
		return nil, false
	}
	c.Name, c.Value = strings.Trim(name, " \t"), strings.Trim(value, " \t")
	return c, c.Name != "" || c.Value != ""
}

// fromLatin1 is the text in UTF-8 that was taken for one in Latin-1, as Chrome's events take headers. Any
// other text stays as it is.
func fromLatin1(text string) string {
	b := make([]byte, 0, len(text))
	for _, r := range text {
		if r > 0xff {
			return text
		}
		b = append(b, byte(r))
	}
	if !utf8.Valid(b) {
		return text
	}
	return string(b)
}
