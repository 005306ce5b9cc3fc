package monitor

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
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
