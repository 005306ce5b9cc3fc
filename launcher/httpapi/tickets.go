package httpapi

import (
	"maps"
	"slices"
	"sync"
	"time"

	"leasehold/internal/id"
	"leasehold/launcher/api"
	"leasehold/launcher/principal"
)

// A ticket is put into the URLs that are sent to a client which showed its API token in the
// query. Clients print, store and pass on such URLs, so the token itself is not repeated there.
// The ticket opens or joins the one session for which it was made, in the name of the principal
// who has the API token.

const (
	// ticketLife is how long an unused ticket is valid. A ticket that opened a session is valid
	// until that session is over.
	ticketLife = 10 * time.Minute
	// maxTickets bounds the number of tickets of one principal; see shelf.
	maxTickets = 1024
)

type ticket struct {
	who      principal.Principal
	manifest api.Manifest
	// refusal is set if the query was not a valid manifest: it is the answer to whoever uses
	// the ticket.
	refusal *api.Problem
	// apiToken is the hash of the API token that was shown. It is needed if the client is
	// redirected to another launcher.
	apiToken principal.TokenHash
	expires  time.Time
	session  string // the session that it opened; "" if none yet
}

// tickets are the tickets of one server, by their secrets. They end with the process: a client
// that comes back after that has to ask for the URL again.
type tickets struct {
	most int // of one principal; see shelf

	mu  sync.Mutex
	all shelf
}

func newTickets(most int) *tickets { return &tickets{most: most, all: shelf{}} }

// shelf has tickets by their secrets. Each principal has a bounded number of them: nobody's
// tickets go because of somebody else's.
type shelf map[string]ticket

// put adds a ticket under a new secret. A principal who has most of them loses another one of
// their own: one that is over, else the oldest that has opened no living session, else the oldest
// of a session that has a newer one, too. Each living session keeps one.
func (all shelf) put(t ticket, most int, now time.Time, living func(sessionID string) bool) (secret string) {
	own := slices.DeleteFunc(slices.Collect(maps.Keys(all)), func(secret string) bool { return all[secret].who.Name != t.who.Name })
	if len(own) >= most {
		slices.SortFunc(own, func(a, b string) int { return all[a].expires.Compare(all[b].expires) })
		newest := map[string]string{} // secrets, by living session
		for _, secret := range own {
			switch has := all[secret]; {
			case has.session != "" && living(has.session):
				newest[has.session] = secret
			case !now.Before(has.expires):
				delete(all, secret)
			}
		}
		kept := slices.DeleteFunc(own, func(secret string) bool { _, there := all[secret]; return !there })
		unused := slices.IndexFunc(kept, func(secret string) bool { return newest[all[secret].session] == "" })
		older := slices.IndexFunc(kept, func(secret string) bool { return newest[all[secret].session] != secret })
		switch {
		case len(kept) < most:
		case unused >= 0:
			delete(all, kept[unused])
		case older >= 0:
			delete(all, kept[older])
		}
	}
	secret = id.Secret()
	all[secret] = t
	return secret
}

func (ts *tickets) issue(t ticket, now time.Time, living func(sessionID string) bool) string {
	t.expires = now.Add(ticketLife)
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.all.put(t, ts.most, now, living)
}

func (t ticket) good(now time.Time, living func(string) bool) bool {
	return now.Before(t.expires) || t.session != "" && living(t.session)
}

// find returns the ticket with this secret, if it is still valid.
func (ts *tickets) find(secret string, now time.Time, living func(string) bool) (ticket, bool) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t, ok := ts.all[secret]
	if ok && !t.good(now, living) {
		delete(ts.all, secret)
		ok = false
	}
	return t, ok
}

func (ts *tickets) opened(secret, sessionID string) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if t, ok := ts.all[secret]; ok {
		t.session = sessionID
		ts.all[secret] = t
	}
}

// living tells whether a session is not over.
func (c *call) living(sessionID string) bool {
	s, err := c.svc.Session(sessionID)
	return err == nil && s.State != api.SessionEnded
}

// newTicket makes a ticket for the manifest of a caller who showed an API token in the query.
func (c *call) newTicket(m api.Manifest) string {
	return c.tickets.issue(ticket{who: c.who, manifest: m, apiToken: principal.Hash(c.apiTokens[0])}, time.Now(), c.living)
}

// refusingTicket makes a ticket that opens nothing, for a caller who showed an API token in a
// query that is not a valid manifest.
func (c *call) refusingTicket(why *api.Problem) string {
	return c.tickets.issue(ticket{who: c.who, refusal: why}, time.Now(), c.living)
}

// useTicket finds the ticket in the path, if there is one, and makes the call one of the
// ticket's principal, with the rights which that principal has now. A principal who has been
// removed from the file of API tokens is refused.
func (c *call) useTicket() (t ticket, ok bool, err error) {
	t, ok = c.tickets.find(c.param("capability"), time.Now(), c.living)
	if !ok && c.route.websocket && c.o.Referrals != nil {
		t, ok = c.o.Referrals.use(c.param("capability"), time.Now())
	}
	if !ok {
		return t, false, nil
	}
	who, known := c.o.Gate.Known(t.who)
	if !known {
		return t, true, c.unknown(&principal.UnknownError{Detail: "this URL was made for " + t.who.Name + ", who is not known any more", WrongToken: true})
	}
	c.take(who)
	if t.refusal != nil {
		return t, true, t.refusal
	}
	c.ticket = &t
	return t, true, nil
}
