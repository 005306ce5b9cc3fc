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
	if a.reports(at, string(c.Method), a.cookieContext(c)) {
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

// cookieContext is the browser context whose cookies a command is about; empty: the profile's own. With these methods of
// Storage that is the one that the command names, if any, whatever page it is sent on. With others it is the page's, and
// Chrome ignores that parameter.
func (a *Acts) cookieContext(c Command) (in string) {
	switch string(c.Method) {
	case "Storage.getCookies", "Storage.setCookies", "Storage.clearCookies":
		if bytes.Contains(c.Params, []byte(`"browserContextId"`)) && !methods.ReadMembers(c.Params, map[string]any{"browserContextId": &in}) {
			return ""
		}
	default:
		_, in = a.attached(c.Session)
	}
	return in
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
