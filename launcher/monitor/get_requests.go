package monitor

import (
	"bytes"
	"slices"
	"strings"
	"time"
	"unicode"

	"leasehold/cdpproxy"
	"leasehold/internal/boottime"
	"leasehold/launcher/recovery/decision"
)

// maxTail is the number of bytes at the end of a request's event within which its type is
// found.
const maxTail = 256

var (
	followedTypes = [][]byte{[]byte(`"type":"Document"`), []byte(`"type":"Fetch"`), []byte(`"type":"XHR"`), []byte(`"type":"Image"`)}
	// Requests of these types are not judged. They only count as GETs after an action.
	otherTypes = [][]byte{[]byte(`"type":"Script"`), []byte(`"type":"EventSource"`)}
)

// sent takes in that a page sent a request. It returns a report if that is the first GET of a
// document since the worker acted on it.
func (g *gets) sent(event cdpproxy.Event, now time.Time) *getWrite {
	tail := event.Params[max(0, len(event.Params)-maxTail):]
	isOf := func(types [][]byte) bool {
		return slices.ContainsFunc(types, func(t []byte) bool { return bytes.Contains(tail, t) })
	}
	acted, typed := false, false
	followed := isOf(followedTypes)
	if followed || isOf(otherTypes) {
		acted, typed = g.actedOn(event.Session)
	}
	if !followed && !acted {
		return nil
	}
	var r struct {
		RequestID   string  `json:"requestId"`
		LoaderID    string  `json:"loaderId"`
		DocumentURL string  `json:"documentURL"`
		Type        string  `json:"type"`
		FrameID     string  `json:"frameId"`
		Timestamp   float64 `json:"timestamp"`
		Redirect    *struct {
			Status int `json:"status"`
		} `json:"redirectResponse"`
		Request struct {
			URL    string `json:"url"`
			Method string `json:"method"`
		} `json:"request"`
	}
	if !decode(event, &r) || !strings.HasPrefix(r.Request.URL, "http") {
		return nil
	}
	key := [2]string{event.Session, r.RequestID}
	if a := g.open[key]; r.Redirect != nil {
		if a != nil {
			a.get.Redirects = append(a.get.Redirects, r.Redirect.Status)
			a.get.Final = r.Request.URL
			a.get.Detour = a.get.Detour || siteOf(r.Request.URL) != siteOf(a.get.Asked)
			a.mayWrite = a.mayWrite && r.Request.Method == "GET"
		}
		return nil
	}
	a := &asked{
		document: r.Type == "Document", mayWrite: r.Request.Method == "GET",
		session: event.Session, frame: r.FrameID, loader: r.LoaderID, id: r.RequestID, at: now,
		offset: wallOffset(),
	}
	a.sent = a.offset + r.Timestamp*1e3
	a.get = decision.Get{From: r.DocumentURL, Asked: r.Request.URL, Final: r.Request.URL, Document: a.document, Agreed: g.agreedOn(event.Session, now)}
	a.prompted = boottime.Now()-g.acted() < boottime.Instant(prompted)
	report := g.afterAction(a, acted)
	switch {
	case a.document && !a.mayWrite, !followed:
		return report
	case a.document:
		a.get.From = g.shown[r.FrameID]
		// A page that is navigating away answers no questions. If this request is never
		// answered, the reason for the navigation is all that is known: a link reads, and so
		// does a search.
		n := g.requested[r.FrameID]
		a.typed = typed
		a.search = n.url == a.get.Asked && n.reason == byForm && typed
		a.touched = acted && (n.reason == byScript || n.reason == byForm && !typed)
		a.mayWrite = a.prompted && n.url == a.get.Asked && a.touched
	case a.mayWrite && a.frame != "" && g.fresh(a): // requests of web workers have no document to ask
		a.touched = acted
		if list := g.ask[a.frame]; len(list) < maxToLook {
			remember(g.ask, a.frame, append(list, a))
			g.signal()
		}
	default:
		a.mayWrite = false
	}
	remember(g.open, key, a)
	return report
}

// afterAction reports a GET of a page on which the worker had acted, unless one of the same
// document was reported before. A document counts that the page itself, and no command, went
// to, and one that another page opened. The caller holds g.mu.
func (g *gets) afterAction(a *asked, acted bool) *getWrite {
	switch {
	case !a.mayWrite:
		return nil
	case a.document:
		if !g.pages[a.frame] && (!acted || g.requested[a.frame].url != a.get.Asked) {
			return nil
		}
	case !acted, a.frame == "" && !a.prompted: // nobody acts on a web worker itself
		return nil
	case g.after[a.loader]:
		return nil
	default:
		remember(g.after, a.loader, true)
	}
	return &getWrite{asked: a, sign: afterAction}
}

// checkpointed has GETs after an action reported again: those after a checkpoint count for
// themselves.
func (g *gets) checkpointed() {
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.after)
}

// sentForm is a form that was sent by GET, with or without text fields.
type sentForm struct {
	at    time.Time
	texts bool
}

// formSent takes in that a form by GET, which is not a search, was sent on a session's page.
func (g *gets) formSent(session string, texts bool, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	remember(g.forms, session, sentForm{now, texts})
}

// agreedOn tells whether somebody has just answered a confirm dialog with yes. The caller holds
// g.mu.
func (g *gets) agreedOn(session string, now time.Time) bool {
	at, ok := g.agreed[session]
	return ok && now.Sub(at) < agreeing
}

// fresh tells whether a script's GET may follow from a press: it goes to the page's own site,
// and its document makes this request for the first time. A repeated request, as in polling or
// for the next piece of a list, only reads. The caller holds g.mu.
func (g *gets) fresh(a *asked) bool {
	s := g.scripts[a.loader]
	if s == nil {
		s = &scripted{places: map[string]bool{}}
		remember(g.scripts, a.loader, s)
	}
	where, query, _ := strings.Cut(a.get.Asked, "?")
	where += "?" + strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, query)
	known := s.places[where]
	remember(s.places, where, true)
	return !known && a.prompted && siteOf(a.get.Asked) == siteOf(a.get.From)
}
