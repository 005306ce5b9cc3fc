package acts

import (
	"bytes"
	"time"

	"leasehold/cdpproxy/methods"
	"leasehold/internal/boottime"
)

// CookieCommand is a client's command that read or wrote cookies of the profile's own
// browser context.
type CookieCommand struct {
	Method        string
	Reads, Writes bool
}

// cookieCommandEvery is the least time between two reports of the same method: how often a
// client asks does not matter.
const cookieCommandEvery = time.Second

// noteCookies reports a command that reads or writes cookies.
func (a *Acts) noteCookies(at boottime.Instant, c Command) {
	reads, writes := methods.CookieUse(c.Method, c.Params)
	if !reads && !writes {
		return
	}
	in := contextOf(c.Method, c.Params)
	if in == "" {
		_, in = a.attached(c.Session)
	}
	if a.reports(at, string(c.Method), in) {
		a.cookies(CookieCommand{string(c.Method), reads, writes})
	}
}

// reports tells whether a command on the cookies of a browser context is reported, and notes it.
func (a *Acts) reports(at boottime.Instant, method, in string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	last, before := a.reported[method]
	if a.made[in] || before && at.Sub(last) < cookieCommandEvery {
		return false
	}
	if a.reported == nil {
		a.reported = map[string]boottime.Instant{}
	}
	a.reported[method] = at
	return true
}

// contextOf is the browser context that a command names, if it does. Of any other method Chrome ignores that
// parameter.
func contextOf(method, params []byte) string {
	switch string(method) {
	case "Storage.getCookies", "Storage.setCookies", "Storage.clearCookies":
	default:
		return ""
	}
	if !bytes.Contains(params, []byte(`"browserContextId"`)) {
		return ""
	}
	named := ""
	if !methods.ReadMembers(params, map[string]any{"browserContextId": &named}) {
		return ""
	}
	return named
}

// MadeContext notes a browser context that a client's command has made.
func (a *Acts) MadeContext(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.made == nil || len(a.made) >= maxNoted {
		a.made = map[string]bool{}
	}
	a.made[id] = true
}
