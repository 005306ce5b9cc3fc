package monitor

import (
	"math"
	"net"
	"net/url"
	"sync"
	"sync/atomic"

	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/target"
	"golang.org/x/net/publicsuffix"

	"leasehold/cdpproxy"
	"leasehold/internal/boottime"
)

// navigations knows which documents pages show, and which of them may have sent something
// unobserved. Chrome reports what a page sends while it navigates to another page of its own site.
// It does not report what the page sends while it navigates to another site, or while its tab
// closes, or what a frame of another process sends when it ends. Text that a worker typed there
// may be saved without a trace.
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
	unseen    []string // documents that may have sent something unobserved: URLs, until takeUnseen
}

// openPage is a page with the document that it shows.
type openPage struct {
	target, session string
	url             string
	begun           boottime.Instant  // when the navigation to the document began
	frames          map[string]*frame // frames in other processes, by session
	// navigated says that the page no longer shows its first document.
	navigated bool
	// leaving says that a navigation to another document has begun, and that none has finished
	// since.
	leaving bool
	// counted is the URL of the document that was counted last; earlier is the number of
	// documents that the session saw before it.
	counted string
	earlier int
}

// frame is a frame of another process.
type frame struct{ target, url string }

// navigationEvents are the events that navigations follows.
var navigationEvents = []string{eventAttached, eventDetached, eventFrameStarted, eventFrameNavigated}

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
	n.lastTyped, n.lastActed = mux.Typed, mux.ActedOn
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
	case eventFrameStarted:
		var p cdppage.EventFrameStartedNavigating
		if page := n.sessions[event.Session]; page != nil && decode(event, &p) && string(p.FrameID) == page.target {
			remember(n.started, string(p.LoaderID), now)
			page.leaving = page.leaving || p.NavigationType != cdppage.FrameStartedNavigatingNavigationTypeSameDocument
		}
	case eventFrameNavigated:
		var p cdppage.EventFrameNavigated
		if page := n.sessions[event.Session]; page != nil && decode(event, &p) && p.Frame != nil {
			n.committed(page, event.Session, string(p.Frame.ID), string(p.Frame.LoaderID), p.Frame.URL)
		}
	}
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
	case typePage:
		page := &openPage{target: id, session: session, url: t.URL, begun: now}
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
			page.frames = map[string]*frame{}
		}
		page.frames[session] = &frame{target: id, url: t.URL}
	}
}

// detached removes a page or frame that ended. The caller holds n.mu.
func (n *navigations) detached(session string) {
	page := n.sessions[session]
	delete(n.sessions, session)
	if page == nil {
		return
	}
	if page.session == session {
		if n.typedInto(page) {
			n.addUnseen(page.url)
		}
		delete(n.pages, page.target)
	} else if f := page.frames[session]; f != nil && n.typedIntoFrame(page, f) {
		n.addUnseen(f.url)
	}
	delete(page.frames, session)
}

// committed notes that a frame of a page shows another document now. The caller holds
// n.mu.
func (n *navigations) committed(page *openPage, session, frameID, loader, url string) {
	if frameID == page.target {
		if n.typedInto(page) && siteOf(page.url) != siteOf(url) {
			n.addUnseen(page.url)
		}
		for _, f := range page.frames {
			// The frames end with the page's document. If the page goes to another site, the
			// page itself was added above.
			if n.typedIntoFrame(page, f) && siteOf(page.url) == siteOf(url) {
				n.addUnseen(f.url)
			}
		}
		if page.navigated {
			page.counted = "" // the same URL again is a new document
		}
		n.count(page, url)
		page.url, page.begun = url, n.started[loader]
		page.navigated, page.leaving = true, false
		delete(n.started, loader)
	} else if f := page.frames[session]; f != nil && f.target == frameID {
		if n.typedIntoFrame(page, f) && siteOf(f.url) != siteOf(url) {
			n.addUnseen(f.url)
		}
		f.url = url
	}
}

// addUnseen notes a document that may have sent something unobserved. The caller holds
// n.mu.
func (n *navigations) addUnseen(url string) {
	if !n.closing.Load() {
		n.unseen = append(n.unseen, url)
	}
}

// takeUnseen returns the URLs of documents that may have sent something unobserved, and
// forgets them.
func (n *navigations) takeUnseen() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	unseen := n.unseen
	n.unseen = nil
	return unseen
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
	for _, f := range p.frames {
		if p.after(n.lastTyped(f.target)) {
			return true
		}
	}
	return false
}

// typedIntoFrame tells whether a worker typed into a frame. It may have done so on the
// frame's own session. Most clients type on the page's session, after they looked for
// an element on the frame's. The caller holds n.mu.
func (n *navigations) typedIntoFrame(p *openPage, f *frame) bool {
	return p.after(n.lastTyped(f.target)) || p.after(n.lastActed(f.target)) && p.after(n.lastTyped(p.target))
}

// after tells whether something was done after the navigation to the page's document
// began. Zero means that it was never done.
func (p *openPage) after(at boottime.Instant) bool { return at != 0 && at >= p.begun }

// forget forgets the documents of a session that is over.
func (n *navigations) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.unseen, n.documents = nil, 0
	n.closing.Store(false)
	clear(n.started)
}

// siteOf is a URL's scheme and registrable domain, or its host if it has no such
// domain. A URL without a host is a site of its own.
func siteOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Hostname() == "" {
		return raw
	}
	domain, err := publicsuffix.EffectiveTLDPlusOne(u.Hostname())
	if err != nil || net.ParseIP(u.Hostname()) != nil {
		domain = u.Hostname()
	}
	return u.Scheme + "://" + domain
}
