package monitor

import (
	"bytes"
	"strings"
	"sync"

	"leasehold/cdpproxy"
	"leasehold/checkpoint/ledger"
	"leasehold/internal/boottime"
	"leasehold/launcher/look"
)

// talk remembers what the look at the open pages needs to know about their requests: when each
// CDP session sent its last one, and which answer to a navigation asked for HTTP
// authentication. The pipe's reader calls observe for every request, so almost nothing is
// parsed.
type talk struct {
	mu   sync.Mutex
	sent map[string]boottime.Instant // by session
	asks map[string]boottime.Instant // by session
}

func newTalk() *talk {
	return &talk{sent: map[string]boottime.Instant{}, asks: map[string]boottime.Instant{}}
}

var statusUnauthorized = [][]byte{[]byte(`"statusCode":401`), []byte(`"statusCode":407`)}

// observe takes in the event of a request, or of the headers of an answer.
func (t *talk) observe(event cdpproxy.Event, now boottime.Instant) {
	switch event.Method {
	case ledger.Sent:
		t.mu.Lock()
		remember(t.sent, event.Session, now)
		t.mu.Unlock()
	case ledger.Headers:
		if (bytes.Contains(event.Params, statusUnauthorized[0]) || bytes.Contains(event.Params, statusUnauthorized[1])) && prompts(event) {
			t.mu.Lock()
			remember(t.asks, event.Session, now)
			t.mu.Unlock()
		}
	}
}

// prompts tells whether an answer to a navigation makes the browser ask for a password. The id
// of a navigation's request is its loader's id, which contains no dot.
func prompts(event cdpproxy.Event) bool {
	var p struct {
		RequestID string            `json:"requestId"`
		Status    int               `json:"statusCode"`
		Headers   map[string]string `json:"headers"`
	}
	if !decode(event, &p) || strings.Contains(p.RequestID, ".") || p.Status != 401 && p.Status != 407 {
		return false
	}
	for name, value := range p.Headers {
		if !strings.EqualFold(name, "WWW-Authenticate") && !strings.EqualFold(name, "Proxy-Authenticate") {
			continue
		}
		scheme, _, _ := strings.Cut(strings.TrimSpace(value), " ")
		switch strings.ToLower(scheme) {
		case "basic", "digest", "ntlm", "negotiate":
			return true
		}
	}
	return false
}

// forget forgets everything about a session that is over.
func (t *talk) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.sent)
	clear(t.asks)
}

// of returns when a session sent its last request, and when it was last asked for HTTP
// authentication; zero means never.
func (t *talk) of(session string) (sent, asked boottime.Instant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sent[session], t.asks[session]
}

// count counts a page's new document as one that the session saw. The caller holds n.mu.
func (n *navigations) count(page *openPage, url string) {
	if !notBlank(url) || page.counted == url {
		return
	}
	page.counted, page.earlier = url, n.documents
	n.documents++
}

// ToLookAt returns the open pages, with what has to be known before they are looked at.
func (m *Monitor) ToLookAt() []look.Page {
	return m.pages.toLookAt(m.talk, m.chrome.mux.Acts().Offline)
}

// toLookAt is ToLookAt. offline tells whether a worker keeps a page offline.
func (ps *pages) toLookAt(talk *talk, offline func(target string) bool) []look.Page {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	sessions := map[string]string{} // by target
	for session, target := range ps.targets {
		sessions[target] = session
	}
	pages := make([]look.Page, 0, len(ps.open))
	for id, pg := range ps.open {
		p := look.Page{TargetID: id, Offline: offline(id), Leaving: func() bool { return ps.navigations.leaving(id) }}
		own := []string{pg.SessionID}
		for target, parent := range ps.frames {
			if ps.pageOf(target) == pg {
				p.Frames = append(p.Frames, look.Frame{TargetID: target, SessionID: sessions[target], Parent: parent})
				own = append(own, sessions[target])
			}
		}
		var sent boottime.Instant
		for _, session := range own {
			at, _ := talk.of(session)
			sent = max(sent, at)
		}
		typed, acted, begun, first := ps.navigations.used(id)
		p.First = first
		p.Typed, p.Acted, p.Silent = typed != 0 && typed >= begun, acted != 0 && acted >= begun, sent < typed
		if _, asked := talk.of(pg.SessionID); asked != 0 && asked >= begun {
			p.Authentication = pg.URL
		}
		pages = append(pages, p)
	}
	return pages
}

// used returns when a worker last typed into a page or its frames, when it last acted there,
// and when the navigation to the page's document began. first says that this document is the
// first one that the session saw.
func (n *navigations) used(target string) (typed, acted, begun boottime.Instant, first bool) {
	typed, acted = n.lastTyped(target), n.lastActed(target)
	n.mu.Lock()
	defer n.mu.Unlock()
	page := n.pages[target]
	if page == nil {
		return typed, acted, 0, false
	}
	for _, frame := range page.frames {
		typed, acted = max(typed, n.lastTyped(frame)), max(acted, n.lastActed(frame))
	}
	return typed, acted, page.begun, page.earlier == 0
}

// actedOn tells whether a worker has acted on a session's page, or on one of its frames, since
// the navigation to the page's document began, and whether it has typed there. If the page is
// not known, both are assumed.
func (n *navigations) actedOn(session string) (hasActed, hasTyped bool) {
	n.mu.Lock()
	page := n.sessions[session]
	n.mu.Unlock()
	if page == nil {
		return true, false
	}
	typed, acted, begun, _ := n.used(page.target)
	return max(typed, acted) != 0 && max(typed, acted) >= begun, typed != 0 && typed >= begun
}
