package launcher

import (
	"encoding/json"
	"math"
	"net"
	"net/url"
	"sync"
	"sync/atomic"

	"golang.org/x/net/publicsuffix"

	"leasehold/cdpproxy"
	"leasehold/internal/boottime"
)

// documents are since when nobody's doing can be behind a document: what it sends
// before a worker acts again, it sends by itself. That is when a worker had it
// opened by its URL, which Chrome's answer to that command proves. Every other
// document of a page (by a link, a script, a form, from another page or a frame of
// it, its history, a reload), what it opened, and a frame in it, has what the one
// before it has: what a click leads to is still the click's.
//
// What is not known, or forgotten, is since never: not by itself. So is a page without
// an opener that nobody asked for: a click with Ctrl opens such.
//
// They know also which of them may have sent something that nobody saw. Chrome tells
// what a page sends when it is left for another one of its site, but not when it is
// left for another site, or its tab is closed; nor what a frame of another process
// sends when it goes. Then what was typed into them may be saved unseen.
type documents struct {
	// typed is when a worker last typed into a page, acted when it last did anything
	// on it, or on a frame of another process.
	typed, acted func(target string) boottime.Instant
	// made and navigated tell of pages, and of documents by their loader, whether a
	// client or the launcher had them opened by a URL.
	made, navigated func(id string) bool
	// ending says that the launcher itself closes the pages: with the browser, when
	// they send nothing any more, or after a release, which nobody judges.
	ending atomic.Bool

	mu      sync.Mutex
	pages   map[string]*opened          // by CDP session; frames of other processes have their page's
	targets map[string]*opened          // pages by target
	loaders map[string]boottime.Instant // documents by Chrome's loader id
	begun   map[string]boottime.Instant // navigations on their way, by loader id
	// unseen are the URLs of documents that were left so, until they are asked for.
	unseen []string
}

// opened is a page.
type opened struct {
	target, session string
	since           boottime.Instant
	// alone is when it came without an opener: since then, if somebody had it made.
	alone boottime.Instant
	// url is of the newest document, begun when it was on its way.
	url   string
	begun boottime.Instant
	// frames are those of other processes, by session.
	frames map[string]*framed
	// announced says that its first document is not its newest any more.
	announced bool
}

// framed is a frame of another process: its target, and where it is.
type framed struct{ target, url string }

// navigationEvents are those that documents follow.
var navigationEvents = []string{
	"Target.attachedToTarget", "Target.detachedFromTarget", "Page.frameStartedNavigating", "Page.frameNavigated",
}

func newDocuments() *documents {
	return &documents{
		typed: func(string) boottime.Instant { return math.MaxInt64 }, acted: func(string) boottime.Instant { return math.MaxInt64 },
		made: func(string) bool { return false }, navigated: func(string) bool { return false },
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
		FrameID string `json:"frameId"`
		Loader  string `json:"loaderId"`
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
			page = &opened{target: p.TargetInfo.TargetID, session: p.SessionID, alone: now}
		case p.TargetInfo.Type == "page":
			page = &opened{target: p.TargetInfo.TargetID, session: p.SessionID}
			if opener := d.targets[p.TargetInfo.OpenerID]; opener != nil {
				page.since = d.sinceOf(opener)
			}
		case p.TargetInfo.Type != "iframe" || page == nil:
			return // of workers nothing is known
		}
		remember(d.pages, p.SessionID, page)
		if page.session == p.SessionID {
			page.url, page.begun = p.TargetInfo.URL, now
			remember(d.targets, page.target, page)
		} else {
			if page.frames == nil {
				page.frames = map[string]*framed{}
			}
			page.frames[p.SessionID] = &framed{target: p.TargetInfo.TargetID, url: p.TargetInfo.URL}
		}
	case "Target.detachedFromTarget":
		gone := d.pages[p.SessionID]
		delete(d.pages, p.SessionID)
		if gone == nil {
			return
		}
		frame := gone.frames[p.SessionID]
		if gone.session == p.SessionID {
			if d.typedInto(gone) {
				d.missed(gone.url)
			}
			delete(d.targets, gone.target)
		} else if frame != nil && d.typedIntoFrame(gone, frame) {
			d.missed(frame.url)
		}
		delete(gone.frames, p.SessionID)
	case "Page.frameStartedNavigating":
		if page != nil && p.FrameID == page.target {
			remember(d.begun, p.Loader, now)
		}
	case "Page.frameNavigated":
		if page == nil {
			return
		}
		if p.Frame.ID == page.target {
			page.since, page.alone = d.sinceOf(page), 0
			if at, ok := d.begun[p.Frame.Loader]; ok && d.navigated(p.Frame.Loader) {
				page.since = at
			}
			if d.typedInto(page) && siteOf(page.url) != siteOf(p.Frame.URL) {
				d.missed(page.url)
			}
			for _, frame := range page.frames {
				// They go with the page, whatever it goes to.
				if d.typedIntoFrame(page, frame) && siteOf(page.url) == siteOf(p.Frame.URL) {
					d.missed(frame.url)
				}
			}
			page.url, page.begun = p.Frame.URL, d.begun[p.Frame.Loader]
			page.announced = true
			delete(d.begun, p.Frame.Loader)
		} else if frame := page.frames[event.Session]; frame != nil && frame.target == p.Frame.ID {
			if d.typedIntoFrame(page, frame) && siteOf(frame.url) != siteOf(p.Frame.URL) {
				d.missed(frame.url)
			}
			frame.url = p.Frame.URL
		}
		remember(d.loaders, p.Frame.Loader, d.sinceOf(page))
	}
}

// sinceOf is since of a page's newest document. Chrome answers who had a page made
// after it told of it, and before the page sends anything. The caller holds d.mu.
func (d *documents) sinceOf(p *opened) boottime.Instant {
	if p.alone != 0 && d.made(p.target) {
		return p.alone
	}
	return p.since
}

// missed notes that a document may have sent something unseen. The caller holds d.mu.
func (d *documents) missed(url string) {
	if !d.ending.Load() {
		d.unseen = append(d.unseen, url)
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
		return d.sinceOf(page)
	}
	return 0
}

// typedInto tells whether a worker typed into the newest document of a page, or
// into one of its frames.
func (d *documents) typedInto(p *opened) bool {
	if !worthNoting(p.url) {
		return false
	}
	if p.after(d.typed(p.target)) {
		return true
	}
	for _, frame := range p.frames {
		if p.after(d.typed(frame.target)) {
			return true
		}
	}
	return false
}

// typedIntoFrame tells whether a worker typed into a frame: on its own session, or on
// the page's, as most clients do, after it had looked for something in the frame.
func (d *documents) typedIntoFrame(p *opened, frame *framed) bool {
	return p.after(d.typed(frame.target)) || p.after(d.acted(frame.target)) && p.after(d.typed(p.target))
}

// after tells whether something was done at all, and since the newest document was on
// its way.
func (p *opened) after(at boottime.Instant) bool { return at != 0 && at >= p.begun }

// forget forgets what became of documents that are gone.
func (d *documents) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unseen = nil
	d.ending.Store(false)
	clear(d.loaders)
	clear(d.begun)
}

// left returns the URLs of documents that may have sent something unseen, once.
func (d *documents) left() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	unseen := d.unseen
	d.unseen = nil
	return unseen
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
