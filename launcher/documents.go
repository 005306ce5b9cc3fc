package launcher

import (
	"encoding/json"
	"math"
	"net"
	"net/url"
	"slices"
	"sync"

	"golang.org/x/net/publicsuffix"

	"leasehold/cdpproxy"
	"leasehold/internal/boottime"
)

// documents are since when nobody's doing can be behind a document: what it sends
// before a worker acts again, it sends by itself. That is when a worker had it
// opened by its URL. A document that a page went to (a link, a script, a form, its
// history, a reload), that it opened, or that is a frame in it, has what the one
// before it has: what a click leads to is still the click's.
//
// What is not known, or forgotten, is since never: not by itself.
//
// They know also which of them may have sent something that nobody saw. Chrome tells
// what a page sends when it is left for another one of its site, but not when it is
// left for another site, or its tab is closed: then pages that were typed into may
// save what was typed.
type documents struct {
	// typed is when a worker last typed into a page.
	typed func(target string) boottime.Instant

	mu      sync.Mutex
	pages   map[string]*opened          // by CDP session; frames of other processes have their page's
	targets map[string]*opened          // pages by target
	loaders map[string]boottime.Instant // documents by Chrome's loader id
	begun   map[string]boottime.Instant // navigations on their way, by loader id
	// unseen are the URLs of documents that were left so, closed of those whose tab
	// is gone, by its session, until they are asked for.
	unseen []string
	closed map[string]string
}

// opened is a page.
type opened struct {
	target, session string
	since           boottime.Instant
	// url is of the newest document, begun when it was on its way.
	url   string
	begun boottime.Instant
	// frames are those of other processes, by target.
	frames []string
	// announced says that its first document is not its newest any more.
	announced bool
	// going says that the page itself asked for what it goes to next.
	going bool
}

// navigationEvents are those that documents follow.
var navigationEvents = []string{
	"Target.attachedToTarget", "Target.detachedFromTarget", "Page.frameRequestedNavigation", "Page.frameStartedNavigating", "Page.frameNavigated",
}

func newDocuments() *documents {
	return &documents{
		typed: func(string) boottime.Instant { return math.MaxInt64 }, closed: map[string]string{},
		pages: map[string]*opened{}, targets: map[string]*opened{}, loaders: map[string]boottime.Instant{}, begun: map[string]boottime.Instant{},
	}
}

// hear takes one of navigationEvents, in their order.
func (d *documents) hear(event cdpproxy.Event, now boottime.Instant) {
	var p struct {
		SessionID  string `json:"sessionId"`
		TargetInfo struct {
			TargetID string `json:"targetId"`
			Type     string `json:"type"`
			OpenerID string `json:"openerId"`
			URL      string `json:"url"`
		} `json:"targetInfo"`
		Frame struct {
			ID     string `json:"id"`
			Loader string `json:"loaderId"`
			URL    string `json:"url"`
		} `json:"frame"`
		FrameID     string `json:"frameId"`
		Loader      string `json:"loaderId"`
		Navigation  string `json:"navigationType"`
		Disposition string `json:"disposition"`
	}
	if json.Unmarshal(event.Params, &p) != nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	page := d.pages[event.Session]
	switch event.Method {
	case "Target.attachedToTarget":
		switch {
		case p.TargetInfo.Type == "page" && p.TargetInfo.OpenerID == "":
			page = &opened{target: p.TargetInfo.TargetID, session: p.SessionID, since: now}
		case p.TargetInfo.Type == "page":
			page = &opened{target: p.TargetInfo.TargetID, session: p.SessionID, going: true}
			if opener := d.targets[p.TargetInfo.OpenerID]; opener != nil {
				page.since = opener.since
			}
		case p.TargetInfo.Type != "iframe" || page == nil:
			return // of workers nothing is known
		}
		remember(d.pages, p.SessionID, page)
		if page.session == p.SessionID {
			page.url, page.begun = p.TargetInfo.URL, now
			remember(d.targets, page.target, page)
		} else if len(page.frames) < maxKnown {
			page.frames = append(page.frames, p.TargetInfo.TargetID)
		}
	case "Target.detachedFromTarget":
		if gone := d.pages[p.SessionID]; gone != nil && gone.session == p.SessionID {
			if d.typedInto(gone) {
				remember(d.closed, p.SessionID, gone.url)
			}
			delete(d.targets, gone.target)
		}
		delete(d.pages, p.SessionID)
	case "Page.frameRequestedNavigation":
		if page != nil && p.FrameID == page.target && p.Disposition == "currentTab" {
			page.going = true
		}
	case "Page.frameStartedNavigating":
		if page == nil || p.FrameID != page.target {
			return
		}
		if p.Navigation != "differentDocument" && p.Navigation != "sameDocument" && p.Navigation != "historySameDocument" {
			page.going = true // reload, restore, history
		}
		remember(d.begun, p.Loader, now)
	case "Page.frameNavigated":
		if page == nil {
			return
		}
		if p.Frame.ID == page.target {
			// What the worker did while it was on its way may have led elsewhere.
			if at, ok := d.begun[p.Frame.Loader]; ok && !page.going {
				page.since = at
			}
			if d.typedInto(page) && siteOf(page.url) != siteOf(p.Frame.URL) {
				d.unseen = append(d.unseen, page.url)
			}
			page.url, page.begun = p.Frame.URL, d.begun[p.Frame.Loader]
			page.going, page.announced = false, true
			delete(d.begun, p.Frame.Loader)
		}
		remember(d.loaders, p.Frame.Loader, page.since)
	}
}

// since returns since when nobody's doing can be behind a document. The first one of
// a new page is not announced: its frame is named like the target.
func (d *documents) since(loader, frame string) boottime.Instant {
	d.mu.Lock()
	defer d.mu.Unlock()
	if at, ok := d.loaders[loader]; ok {
		return at
	}
	if page := d.targets[frame]; page != nil && !page.announced {
		return page.since
	}
	return 0
}

// typedInto tells whether a worker typed into the newest document of a page, or
// into one of its frames.
func (d *documents) typedInto(p *opened) bool {
	into := func(target string) bool {
		at := d.typed(target)
		return at != 0 && at >= p.begun
	}
	return worthNoting(p.url) && (into(p.target) || slices.ContainsFunc(p.frames, into))
}

// forget forgets what became of documents that are gone.
func (d *documents) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unseen = nil
	clear(d.closed)
	clear(d.loaders)
	clear(d.begun)
}

// left returns the URLs of documents that may have sent something unseen, once, and
// that of one whose tab is gone.
func (d *documents) left(session string) (unseen []string, closed string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	unseen, closed = d.unseen, d.closed[session]
	d.unseen = nil
	delete(d.closed, session)
	return unseen, closed
}

// siteOf is scheme and registered domain, or the host where there is none. What has
// no host is a site of its own.
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
