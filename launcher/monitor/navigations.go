package monitor

import (
	"encoding/json"
	"math"
	"sync"
	"sync/atomic"

	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/target"

	"leasehold/cdpproxy"
	"leasehold/internal/boottime"
)

// navigations knows which documents pages show, and since when, to tell what a worker did in them.
type navigations struct {
	// lastTyped is when a worker last typed into a page or a frame of another process,
	// lastActed when it last did anything there.
	lastTyped, lastActed func(target string) boottime.Instant
	// closing says that the launcher itself closes the pages.
	closing atomic.Bool

	mu       sync.Mutex
	sessions map[string]*openPage        // by CDP session; the session of a frame in another process leads to its page
	pages    map[string]*openPage        // by target
	started  map[string]boottime.Instant // when navigations under way began, by loader id
	// documents is the number of documents that the session saw; see count.
	documents int
}

type openPage struct {
	target, session string
	// group is the target of the first of those pages that can lead each other elsewhere: a page, and
	// those that it opened and that can reach it.
	group  string
	url    string
	begun  boottime.Instant  // when the navigation to the document began
	frames map[string]string // targets of frames in other processes, by session
	// navigated says that the page no longer shows its first document.
	navigated bool
	// leaving says that a navigation to another document has begun, and that none has finished
	// since.
	leaving bool
	// first is what is known of the requests for the page's first document.
	first firstDocument
	// counted is the URL of the document that was counted last; earlier is the number of
	// documents that the session saw before it.
	counted string
	earlier int
}

// firstDocument tells whether all requests for a page's first document were reported: Chrome begins to load that
// of a page that another one opens before anybody can listen.
type firstDocument int

const (
	firstNotBegun firstDocument = iota // as far as is known
	firstReported
	firstMissed
)

var navigationEvents = []string{eventAttached, eventDetached, eventInfoChanged, eventFrameStarted, eventFrameNavigated}

// newNavigations returns navigations that do not know yet what workers do. Until follow is
// called, it is assumed that a worker has just done everything.
func newNavigations() *navigations {
	justNow := func(string) boottime.Instant { return math.MaxInt64 }
	return &navigations{
		lastTyped: justNow, lastActed: justNow,
		sessions: map[string]*openPage{}, pages: map[string]*openPage{},
		started: map[string]boottime.Instant{},
	}
}

// follow gets from the mux what workers do. It is called before the first event.
func (n *navigations) follow(mux *cdpproxy.Mux) {
	n.lastTyped, n.lastActed = mux.Acts().Typed, mux.Acts().On
}

// observe takes in one of navigationEvents. They have to come in Chrome's order.
func (n *navigations) observe(event cdpproxy.Event, now boottime.Instant) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch event.Method {
	case eventAttached:
		var p target.EventAttachedToTarget
		if decode(event, &p) && p.TargetInfo != nil {
			n.attached(event.Session, string(p.SessionID), p.TargetInfo, now)
		}
	case eventDetached:
		var p target.EventDetachedFromTarget
		if decode(event, &p) {
			n.detached(string(p.SessionID))
		}
	case eventInfoChanged:
		var p target.EventTargetInfoChanged
		if decode(event, &p) && p.TargetInfo != nil {
			if page := n.pages[string(p.TargetInfo.TargetID)]; page != nil {
				page.shows(p.TargetInfo.URL)
			}
		}
	case eventFrameStarted:
		var p cdppage.EventFrameStartedNavigating
		if page := n.sessions[event.Session]; page != nil && decode(event, &p) && string(p.FrameID) == page.target {
			remember(n.started, string(p.LoaderID), now)
			page.leaving = page.leaving || p.NavigationType != cdppage.FrameStartedNavigatingNavigationTypeSameDocument
		}
	case eventFrameNavigated:
		var p cdppage.EventFrameNavigated
		if page := n.sessions[event.Session]; page != nil && decode(event, &p) && p.Frame != nil {
			n.committed(page, string(p.Frame.ID), string(p.Frame.LoaderID), p.Frame.URL)
		}
	}
}

// requested takes in that Chrome reports a request for a document.
func (n *navigations) requested(event cdpproxy.Event) {
	var p struct {
		FrameID          string          `json:"frameId"`
		RedirectResponse json.RawMessage `json:"redirectResponse"`
	}
	if !decode(event, &p) {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	page := n.sessions[event.Session]
	if page == nil || page.first != firstNotBegun || p.FrameID != page.target {
		return
	}
	page.first = firstReported
	if p.RedirectResponse != nil { // to a request that was not reported
		page.first = firstMissed
	}
}

// shows takes in that the page has a document with this URL. If no request for it was reported, it was sent before
// the monitor listened.
func (p *openPage) shows(url string) {
	if p.first == firstNotBegun && notBlank(url) {
		p.first = firstMissed
	}
}

// firstReported tells whether all requests for a page's first document were reported.
func (n *navigations) firstReported(target string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	page := n.pages[target]
	return page != nil && page.first == firstReported
}

// leaving tells whether a page is navigating to another document.
func (n *navigations) leaving(target string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	page := n.pages[target]
	return page != nil && page.leaving
}

// attached adds a new page, or a frame of another process. parent is the session on
// which it was reported. Web workers are not followed. The caller holds n.mu.
func (n *navigations) attached(parent, session string, t *target.Info, now boottime.Instant) {
	id := string(t.TargetID)
	switch t.Type {
	case typePage, typeOther:
		page := &openPage{target: id, session: session, group: id, url: t.URL, begun: now}
		if opener := string(t.OpenerID); opener != "" && t.CanAccessOpener {
			page.group = opener
			if o := n.pages[opener]; o != nil {
				page.group = o.group
			}
		}
		if page.shows(t.URL); t.OpenerID != "" { // which may lead it elsewhere before anybody listens
			page.first = firstMissed
		}
		remember(n.sessions, session, page)
		remember(n.pages, id, page)
		n.count(page, t.URL)
	case typeIframe:
		page := n.sessions[parent]
		if page == nil {
			return
		}
		remember(n.sessions, session, page)
		if page.frames == nil {
			page.frames = map[string]string{}
		}
		page.frames[session] = id
	}
}

// beside are the sessions and targets of the other pages that can lead a session's page elsewhere.
func (n *navigations) beside(session string) (pages []place) {
	n.mu.Lock()
	defer n.mu.Unlock()
	page := n.sessions[session]
	if page == nil {
		return nil
	}
	for _, other := range n.pages {
		if other != page && other.group == page.group {
			pages = append(pages, place{page: other.target, session: other.session})
		}
	}
	return pages
}

// detached removes a page or frame that ended. The caller holds n.mu.
func (n *navigations) detached(session string) {
	page := n.sessions[session]
	delete(n.sessions, session)
	if page == nil {
		return
	}
	if page.session == session {
		delete(n.pages, page.target)
	}
	delete(page.frames, session)
}

// committed notes that a page shows another document now, if the frame is its main one. The caller
// holds n.mu.
func (n *navigations) committed(page *openPage, frameID, loader, url string) {
	if frameID != page.target {
		return
	}
	page.shows(url)
	if page.navigated {
		page.counted = "" // the same URL again is a new document
	}
	n.count(page, url)
	page.url, page.begun = url, n.started[loader]
	page.navigated, page.leaving = true, false
	delete(n.started, loader)
}

// typedInto tells whether a worker typed into a page's document, or into one of its
// frames. The caller holds n.mu.
func (n *navigations) typedInto(p *openPage) bool {
	if !notBlank(p.url) {
		return false
	}
	if p.after(n.lastTyped(p.target)) {
		return true
	}
	for _, target := range p.frames {
		if p.after(n.lastTyped(target)) {
			return true
		}
	}
	return false
}

// after tells whether something was done after the navigation to the page's document
// began. Zero means that it was never done.
func (p *openPage) after(at boottime.Instant) bool { return at != 0 && at >= p.begun }

// forget forgets the documents of a session that is over.
func (n *navigations) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.documents = 0
	n.closing.Store(false)
	clear(n.started)
}
