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

// navigations answers two questions about documents.
//
// The first: since when can nothing that a document sends be a worker's doing, as
// long as no worker acts again? A document that a worker had opened by its URL, which
// Chrome's answer to that command proves, is free of earlier acts from the moment that
// navigation began. Every other document inherits the instant of the document that it
// came from: the one before it in its page (after a link, a script, a form, the
// history, a reload), its opener, or the page that a frame is in. So what a click
// leads to still counts as the click's. Where the instant is not known, or was
// forgotten, it is zero, and the document is never taken to act by itself. That holds
// for a page without an opener that nobody asked for, too: a click with Ctrl opens such
// pages.
//
// The second: which documents may have sent something that nobody saw? Chrome tells
// what a page sends when it is left for another page of its site, but not when it is
// left for another site, nor when its tab closes, nor what a frame of another process
// sends when it ends. Text that was typed there may be saved without a trace.
type navigations struct {
	// typed is when a worker last typed into a page or a frame of another process,
	// acted when it last did anything there.
	typed, acted func(target string) boottime.Instant
	// made tells of a page, and loaded of a document by its loader, whether a client or
	// the launcher had it opened by a URL.
	made, loaded func(id string) bool
	// closing says that the launcher itself closes the pages.
	closing atomic.Bool

	mu       sync.Mutex
	sessions map[string]*openPage        // by CDP session; frames of other processes have their page's
	pages    map[string]*openPage        // by target
	loaders  map[string]boottime.Instant // documents by Chrome's loader id: the answer to the first question
	started  map[string]boottime.Instant // navigations that are under way, by loader id
	unseen   []string                    // URLs: the answers to the second question since it was last asked
}

// openPage is a page with the document that it shows.
type openPage struct {
	target, session string
	since           boottime.Instant // see navigations
	// appeared is when a page without an opener came. If it turns out that somebody
	// had it made, that is its since. Zero once the page has navigated.
	appeared boottime.Instant
	url      string
	begun    boottime.Instant  // when the document was on its way
	frames   map[string]*frame // of other processes, by session
	// navigated says that the page shows another document than its first.
	navigated bool
}

// frame is a frame of another process.
type frame struct{ target, url string }

// navigationEvents are the events that navigations follows.
var navigationEvents = []string{eventAttached, eventDetached, eventFrameStarted, eventFrameNavigated}

// newNavigations knows of no worker's acts: each counts as just done, until follow.
func newNavigations() *navigations {
	justNow := func(string) boottime.Instant { return math.MaxInt64 }
	no := func(string) bool { return false }
	return &navigations{
		typed: justNow, acted: justNow, made: no, loaded: no,
		sessions: map[string]*openPage{}, pages: map[string]*openPage{},
		loaders: map[string]boottime.Instant{}, started: map[string]boottime.Instant{},
	}
}

// follow takes what workers do from the mux. It comes before any event.
func (n *navigations) follow(mux *cdpproxy.Mux) {
	n.typed, n.acted, n.made, n.loaded = mux.Typed, mux.ActedOn, mux.Made, mux.Navigated
}

// see takes one of navigationEvents, in the order in which Chrome told them.
func (n *navigations) see(event cdpproxy.Event, now boottime.Instant) {
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
		}
	case eventFrameNavigated:
		var p cdppage.EventFrameNavigated
		if page := n.sessions[event.Session]; page != nil && decode(event, &p) && p.Frame != nil {
			n.committed(page, event.Session, string(p.Frame.ID), string(p.Frame.LoaderID), p.Frame.URL)
		}
	}
}

// attached takes in a new page, or a frame of another process. parent is the session
// that it was told on. Of workers nothing is known. The caller holds n.mu.
func (n *navigations) attached(parent, session string, t *target.Info, now boottime.Instant) {
	id := string(t.TargetID)
	switch t.Type {
	case typePage:
		page := &openPage{target: id, session: session, url: t.URL, begun: now}
		if t.OpenerID == "" {
			page.appeared = now
		} else if opener := n.pages[string(t.OpenerID)]; opener != nil {
			page.since = n.sinceOf(opener)
		}
		remember(n.sessions, session, page)
		remember(n.pages, id, page)
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

// detached takes in the end of a page or frame. The caller holds n.mu.
func (n *navigations) detached(session string) {
	page := n.sessions[session]
	delete(n.sessions, session)
	if page == nil {
		return
	}
	if page.session == session {
		if n.typedInto(page) {
			n.mayHaveSent(page.url)
		}
		delete(n.pages, page.target)
	} else if f := page.frames[session]; f != nil && n.typedIntoFrame(page, f) {
		n.mayHaveSent(f.url)
	}
	delete(page.frames, session)
}

// committed takes in that a frame of a page shows another document. The caller holds
// n.mu.
func (n *navigations) committed(page *openPage, session, frameID, loader, url string) {
	if frameID == page.target {
		page.since, page.appeared = n.sinceOf(page), 0
		if at, ok := n.started[loader]; ok && n.loaded(loader) {
			page.since = at
		}
		if n.typedInto(page) && siteOf(page.url) != siteOf(url) {
			n.mayHaveSent(page.url)
		}
		for _, f := range page.frames {
			// They end with the page's document, wherever the page goes.
			if n.typedIntoFrame(page, f) && siteOf(page.url) == siteOf(url) {
				n.mayHaveSent(f.url)
			}
		}
		page.url, page.begun = url, n.started[loader]
		page.navigated = true
		delete(n.started, loader)
	} else if f := page.frames[session]; f != nil && f.target == frameID {
		if n.typedIntoFrame(page, f) && siteOf(f.url) != siteOf(url) {
			n.mayHaveSent(f.url)
		}
		f.url = url
	}
	remember(n.loaders, loader, n.sinceOf(page))
}

// sinceOf is the instant of a page's document. Chrome answers who had a page made
// after it told of the page, and before the page sends anything. The caller holds n.mu.
func (n *navigations) sinceOf(p *openPage) boottime.Instant {
	if p.appeared != 0 && n.made(p.target) {
		return p.appeared
	}
	return p.since
}

// selfSince returns since when nothing that a document sends can be a worker's doing,
// where no worker acts again; zero: not known. The first document of a new page is
// told by no event of its own; its frame is named like the target.
func (n *navigations) selfSince(loader, frameID string) boottime.Instant {
	n.mu.Lock()
	defer n.mu.Unlock()
	if at, ok := n.loaders[loader]; ok {
		return at
	}
	if page := n.pages[frameID]; page != nil && !page.navigated {
		return n.sinceOf(page)
	}
	return 0
}

// mayHaveSent notes a document that may have sent something unseen. The caller holds
// n.mu.
func (n *navigations) mayHaveSent(url string) {
	if !n.closing.Load() {
		n.unseen = append(n.unseen, url)
	}
}

// takeUnseen returns the URLs of documents that may have sent something unseen, each
// once.
func (n *navigations) takeUnseen() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	unseen := n.unseen
	n.unseen = nil
	return unseen
}

// typedInto tells whether a worker typed into a page's document, or into a frame of
// it. The caller holds n.mu.
func (n *navigations) typedInto(p *openPage) bool {
	if !worthNoting(p.url) {
		return false
	}
	if p.after(n.typed(p.target)) {
		return true
	}
	for _, f := range p.frames {
		if p.after(n.typed(f.target)) {
			return true
		}
	}
	return false
}

// typedIntoFrame tells whether a worker typed into a frame: on the frame's own
// session, or, as most clients do, on the page's after it had looked for something in
// the frame. The caller holds n.mu.
func (n *navigations) typedIntoFrame(p *openPage, f *frame) bool {
	return p.after(n.typed(f.target)) || p.after(n.acted(f.target)) && p.after(n.typed(p.target))
}

// after tells whether something was done at all, and since the page's document was on
// its way.
func (p *openPage) after(at boottime.Instant) bool { return at != 0 && at >= p.begun }

// forget forgets what became of documents that are gone.
func (n *navigations) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.unseen = nil
	n.closing.Store(false)
	clear(n.loaders)
	clear(n.started)
}

// siteOf is a URL's scheme and registered domain, or its host where there is no such
// domain. What has no host is a site of its own.
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
