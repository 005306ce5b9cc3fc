package cdpproxy

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

// cookieCommands is what is noted about such commands. Mux.mu guards it.
type cookieCommands struct {
	told     map[string]boottime.Instant // when it was last reported, by method
	contexts map[string]bool             // browser contexts that clients made, whose cookies are not the account's
}

// noteCookies reports a command that reads or writes cookies.
func (m *Mux) noteCookies(at boottime.Instant, cmd *stagedCommand) {
	reads, writes := methods.CookieUse(cmd.method, cmd.params)
	if !reads && !writes {
		return
	}
	named := contextOf(cmd.params)
	m.mu.Lock()
	if named == "" {
		named = m.contexts[string(cmd.sessionID)]
	}
	last, before := m.cookieCommands.told[string(cmd.method)]
	tell := !m.cookieCommands.contexts[named] && (!before || at.Sub(last) >= cookieCommandEvery)
	if tell {
		if m.cookieCommands.told == nil {
			m.cookieCommands.told = map[string]boottime.Instant{}
		}
		m.cookieCommands.told[string(cmd.method)] = at
	}
	m.mu.Unlock()
	if tell {
		m.traffic(Traffic{Cookies: &CookieCommand{string(cmd.method), reads, writes}})
	}
}

// contextOf is the browser context that a command's parameters name, if they do.
func contextOf(params []byte) string {
	if !bytes.Contains(params, []byte(`"browserContextId"`)) {
		return ""
	}
	named := ""
	if !readExact(params, members{"browserContextId": &named}) {
		return ""
	}
	return named
}

// madeContext notes a browser context that a client's command has made. The caller holds m.mu.
func (c *cookieCommands) madeContext(id string) {
	if c.contexts == nil || len(c.contexts) >= maxNoted {
		c.contexts = map[string]bool{}
	}
	c.contexts[id] = true
}
