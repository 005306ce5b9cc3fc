package cdpproxy

import (
	"fmt"
	"strings"
	"testing"

	"leasehold/cdpproxy/methods"
	"leasehold/lease"
)

// hears checks whether a client counts as one that hears what every page does.
func (b *offline) hears(t *testing.T, want bool) {
	t.Helper()
	if _, err := b.mux.KeepPrivate(methods.RefuseSignIn()); (err != nil) != want {
		t.Errorf("that a client hears what is private: %v, want %v", err, want)
	}
}

// TestWhoIsRefusedToHear: a command to hear what every page does counts from before it is sent until it is
// known that it failed, whatever else the client sends.
func TestWhoIsRefusedToHear(t *testing.T) {
	sends := func(id int, method string) string { return fmt.Sprintf(`{"id":%d,"method":%q}`, id, method) }
	succeeds := func(id int) string { return fmt.Sprintf(`{"id":%d,"result":{},"sessionId":"S"}`, id) }
	fails := func(id int) string {
		return fmt.Sprintf(`{"id":%d,"error":{"code":-32000,"message":"no"},"sessionId":"S"}`, id)
	}
	const start, end, fetch, other = "Tracing.start", "Tracing.end", "Fetch.enable", "DOM.enable"
	const named = `{"id":1,"method":"DOM.enable","sessionId":"S"}` // which a client need not name
	for name, tt := range map[string]struct {
		said  []string // by the client and the browser, one after the other
		heard bool
	}{
		"not answered":                         {[]string{sends(1, start)}, true},
		"succeeded":                            {[]string{sends(1, start), succeeds(1)}, true},
		"refused":                              {[]string{sends(1, start), fails(1)}, false},
		"refused, and then not":                {[]string{sends(1, start), fails(1), sends(2, start), succeeds(2)}, true},
		"to accept every certificate, refused": {[]string{sends(1, ignoreCertificates), fails(1)}, false},
		"refused while it is on":               {[]string{sends(1, start), succeeds(1), sends(2, start), fails(2)}, true},
		"refused, and the first not answered":  {[]string{sends(1, start), sends(2, start), fails(2)}, true},
		"the first answered last":              {[]string{sends(1, start), sends(2, start), fails(2), succeeds(1)}, true},
		"both refused":                         {[]string{sends(1, start), sends(2, start), fails(2), fails(1)}, false},
		"another domain's refused":             {[]string{sends(1, start), sends(2, fetch), fails(2)}, true},
		"ended before it is answered":          {[]string{sends(1, start), sends(2, end), succeeds(1)}, false},
		"begun again before it is answered":    {[]string{sends(1, start), sends(2, end), sends(3, start), fails(1)}, true},
		"another one with its id, later":       {[]string{sends(1, start), succeeds(1), sends(1, other), fails(1)}, true},
		"another one with its id, after it":    {[]string{sends(1, start), sends(1, other), fails(1)}, true},
		"another one with its id, before it":   {[]string{sends(1, other), sends(1, start), fails(1)}, true},
		"another one by its session, after":    {[]string{sends(1, start), named, fails(1)}, true},
		"another one by its session, before":   {[]string{named, sends(1, start), fails(1)}, true},
		"the id of the launcher's commands":    {[]string{sends(ownID, start), fails(ownID)}, true},
		"another session's refused":            {[]string{sends(1, start), strings.Replace(fails(1), `"S"`, `"P"`, 1)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newOffline(t)
			c := b.conn()
			c.session.conn = c
			for _, msg := range tt.said {
				if !strings.Contains(msg, `"method"`) {
					b.mux.route([]byte(msg))
					continue
				}
				c.dispatch([]byte(msg), true)
				c.offloading.Wait()
				c.commit()
			}
			b.hears(t, tt.heard)
		})
	}
}

// TestWhatIsNotSentIsNotHeard: a command that does not reach the browser, or a CDP session that has ended,
// makes nobody hear anything.
func TestWhatIsNotSentIsNotHeard(t *testing.T) {
	const start = `{"id":1,"method":"Fetch.enable"}`
	for name, send := range map[string]func(b *offline, c *Conn){
		"the fence is shut": func(_ *offline, c *Conn) {
			c.fence.Shut(lease.ErrExpired)
			c.handleOffloaded([]byte(start), false)
		},
		"the connection was cut": func(_ *offline, c *Conn) {
			c.Cut(CloseFenced, "the lease is lost")
			c.handleOffloaded([]byte(start), false)
		},
		"a page of the launcher's own does not close": func(b *offline, c *Conn) {
			b.mux.privacy.hidden = map[string]bool{"T": true}
			b.mux.endCause = ErrBrowserGone
			c.handleOffloaded([]byte(start), false)
			b.mux.privacy.hidden, b.mux.endCause = nil, nil
		},
		"its session has ended": func(b *offline, c *Conn) {
			c.handleOffloaded([]byte(`{"id":1,"method":"Fetch.enable","sessionId":"B"}`), false)
			b.mux.route([]byte(`{"id":1,"error":{"code":-32001,"message":"Session with given id not found."}}`))
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newOffline(t)
			c := b.conn()
			c.session.conn, c.ctx = c, t.Context()
			send(b, c)
			b.hears(t, false)
		})
	}
}
