package monitor

import (
	"bytes"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/target"

	"leasehold/cdpproxy"
	"leasehold/internal/boottime"
	"leasehold/launcher/recovery/decision"
)

// gets follows the GETs of pages that somebody caused, from the request to what became of
// it, so that decision.Get can be asked whether one looks like a write. Documents are
// judged by events alone when they are answered. What a script asks for is judged by what
// changed in its page: it waits in due until presses has looked there.
//
// The pipe's reader calls observe with every request of every page, so little is parsed.
type gets struct {
	acted func() boottime.Instant // when a worker last acted on any page
	wake  chan struct{}           // has room for one: something was added to due

	mu        sync.Mutex
	shown     map[string]string      // URL that a frame shows, by frame. A page's main frame has the target's id
	pages     map[string]bool        // by target: whether another page opened it
	known     map[string]bool        // URLs of documents that were shown
	requested map[string]navigation  // by frame: the navigation that its document asked for last
	anew      map[string]time.Time   // when a document asked to be loaded anew, by frame
	open      map[[2]string]*asked   // by session and request
	dialogs   map[string]string      // type of the open dialog, by session
	agreed    map[string]time.Time   // when a confirm dialog was answered with yes, by session
	scripts   map[string]*scripted   // what scripts of a document asked for, by its loader
	due       map[string]*pageToLook // by frame
}

// navigation is one that a document asked for.
type navigation struct {
	url    string
	reason string
}

// asked is a request under way.
type asked struct {
	get            decision.Get
	document       bool
	mayWrite       bool // it is a GET that somebody may have caused; of others only the answer's time matters
	session, frame string
	loader, id     string
	mime           string
	bytes          int  // of the answer, with its headers once it is complete; negative if not known
	unread         bool // the page has not read the answer, so it cannot have shown it
	at, answered   time.Time
	sent, done     float64 // wall clock, ms
	offset         float64 // of the wall clock to the events' timestamps, ms
}

// scripted is what scripts of one document asked for.
type scripted struct {
	places map[string]bool // URLs, without the numbers in their queries
	done   []float64       // when the last answers came, ms
}

// pageToLook is a document that has to be looked at.
type pageToLook struct {
	session, frame string
	from           time.Time // not earlier, unless nothing more will come
	requests       []*asked
	document       *asked // the document's own request, if it may be a notice
}

const (
	// prompted is within which time after somebody acted a navigation may follow from it.
	prompted = 5 * time.Second
	// agreeing is within which time a request may follow from the answer to a dialog. The
	// page's script goes on at once.
	agreeing = time.Second
	// reloading is within which time after an answer a page may load itself anew for it.
	reloading = time.Second
	// showTime is how long a page may take to show an answer.
	showTime = 150 * time.Millisecond
	// maxToLook bounds how many requests of one document wait to be judged.
	maxToLook = 32
	// maxDone is how many answers' times of one document are remembered.
	maxDone = 64
)

func newGets() *gets {
	return &gets{
		acted: func() boottime.Instant { return 0 }, wake: make(chan struct{}, 1),
		shown: map[string]string{}, pages: map[string]bool{}, known: map[string]bool{}, requested: map[string]navigation{}, anew: map[string]time.Time{},
		open: map[[2]string]*asked{}, dialogs: map[string]string{}, agreed: map[string]time.Time{},
		scripts: map[string]*scripted{}, due: map[string]*pageToLook{},
	}
}

// forget forgets everything about a session that is over, but for what frames show.
func (g *gets) forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.known)
	clear(g.requested)
	clear(g.anew)
	clear(g.open)
	clear(g.agreed)
	clear(g.scripts)
	clear(g.due)
}

// getEvents are the events that gets follows besides those of requests.
var getEvents = []string{eventAttached, eventFrameNavigated, eventNavigatedWithin, eventFrameRequested, eventDialogOpening, eventDialogClosed}

// getWrite is a GET that looks like a write.
type getWrite struct {
	*asked
	sign decision.Sign
	text string // what was pressed, if that is known
}

// observe takes the events of requests and getEvents, in Chrome's order. It returns a
// request that looks like a write by what is known now, nil if there is none.
func (g *gets) observe(event cdpproxy.Event, now time.Time) *getWrite {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch event.Method {
	case eventRequest:
		g.sent(event, now)
	case eventResponse:
		return g.answered(event, now)
	case eventFinished, eventFailed:
		g.finished(event, now)
	case eventFrameNavigated:
		return g.navigated(event, now)
	default:
		g.page(event, now)
	}
	return nil
}

// navigated takes in that a frame shows another document. Where a script asked for
// something, and loaded its own page anew when the answer came, nothing of the answer can
// have been shown.
func (g *gets) navigated(event cdpproxy.Event, now time.Time) *getWrite {
	var p cdppage.EventFrameNavigated
	if !decode(event, &p) || p.Frame == nil || !notBlank(p.Frame.URL) {
		return nil
	}
	frame, before := string(p.Frame.ID), g.shown[string(p.Frame.ID)]
	anew, byPage := g.anew[frame]
	delete(g.anew, frame)
	delete(g.agreed, event.Session)
	remember(g.shown, frame, p.Frame.URL)
	remember(g.known, p.Frame.URL, true)
	look := g.due[frame]
	if look != nil && look.document != nil && look.document.loader == string(p.Frame.LoaderID) {
		return nil
	}
	delete(g.due, frame) // the page that would have shown the answers is gone
	var last *asked
	if look != nil && len(look.requests) > 0 {
		last = look.requests[len(look.requests)-1]
	}
	for key, a := range g.open {
		if a.frame == frame && a.mayWrite && !a.document && a.get.Status != 0 {
			last = a
			delete(g.open, key)
		}
	}
	if last == nil || !byPage || p.Frame.URL != before || last.get.Status < 200 || last.get.Status > 299 || anew.Sub(last.answered) > reloading {
		return nil
	}
	return &getWrite{asked: last, sign: decision.Reloaded}
}

// page takes one of getEvents but those of navigations. The caller holds g.mu.
func (g *gets) page(event cdpproxy.Event, now time.Time) {
	switch event.Method {
	case eventAttached:
		var p target.EventAttachedToTarget
		if decode(event, &p) && p.TargetInfo != nil && p.TargetInfo.Type == typePage {
			id, opener := string(p.TargetInfo.TargetID), string(p.TargetInfo.OpenerID)
			remember(g.pages, id, opener != "")
			if opener != "" {
				remember(g.shown, id, g.shown[opener])
			} else if notBlank(p.TargetInfo.URL) {
				remember(g.shown, id, p.TargetInfo.URL)
			}
		}
	case eventNavigatedWithin:
		var p cdppage.EventNavigatedWithinDocument
		if decode(event, &p) {
			remember(g.shown, string(p.FrameID), p.URL)
		}
	case eventFrameRequested:
		var p cdppage.EventFrameRequestedNavigation
		if decode(event, &p) {
			frame := string(p.FrameID)
			remember(g.requested, frame, navigation{url: p.URL, reason: string(p.Reason)})
			if p.Reason == cdppage.ClientNavigationReasonReload || p.Reason == cdppage.ClientNavigationReasonScriptInitiated && p.URL == g.shown[frame] {
				remember(g.anew, frame, now)
			}
		}
	case eventDialogOpening:
		var p cdppage.EventJavascriptDialogOpening
		if decode(event, &p) {
			remember(g.dialogs, event.Session, string(p.Type))
		}
	case eventDialogClosed:
		var p cdppage.EventJavascriptDialogClosed
		if decode(event, &p) && p.Result && g.dialogs[event.Session] == string(cdppage.DialogTypeConfirm) {
			remember(g.agreed, event.Session, now)
		}
		delete(g.dialogs, event.Session)
	}
}

// maxTail is within how many bytes from its end the event of a request has its type.
const maxTail = 256

var followedTypes = [][]byte{[]byte(`"type":"Document"`), []byte(`"type":"Fetch"`), []byte(`"type":"XHR"`), []byte(`"type":"Image"`)}

// sent takes in that a page sent a request.
func (g *gets) sent(event cdpproxy.Event, now time.Time) {
	tail := event.Params[max(0, len(event.Params)-maxTail):]
	if !slices.ContainsFunc(followedTypes, func(t []byte) bool { return bytes.Contains(tail, t) }) {
		return
	}
	var r struct {
		RequestID   string  `json:"requestId"`
		LoaderID    string  `json:"loaderId"`
		DocumentURL string  `json:"documentURL"`
		Type        string  `json:"type"`
		FrameID     string  `json:"frameId"`
		WallTime    float64 `json:"wallTime"`
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
		return
	}
	key := [2]string{event.Session, r.RequestID}
	if a := g.open[key]; r.Redirect != nil {
		if a != nil {
			a.get.Redirects = append(a.get.Redirects, r.Redirect.Status)
			a.get.Final = r.Request.URL
			a.get.Detour = a.get.Detour || siteOf(r.Request.URL) != siteOf(a.get.Asked)
			a.mayWrite = a.mayWrite && r.Request.Method == "GET"
		}
		return
	}
	a := &asked{
		document: r.Type == "Document", mayWrite: r.Request.Method == "GET",
		session: event.Session, frame: r.FrameID, loader: r.LoaderID, id: r.RequestID, at: now,
		sent: r.WallTime * 1e3, offset: (r.WallTime - r.Timestamp) * 1e3,
	}
	a.get = decision.Get{From: r.DocumentURL, Asked: r.Request.URL, Final: r.Request.URL, Document: a.document, Agreed: g.agreedOn(event.Session, now)}
	switch {
	case a.document && !a.mayWrite:
		return
	case a.document:
		a.get.From = g.shown[r.FrameID]
	case a.mayWrite:
		a.mayWrite = g.fresh(a)
	}
	remember(g.open, key, a)
}

// agreedOn tells whether somebody has just answered a question with yes. The caller holds
// g.mu.
func (g *gets) agreedOn(session string, now time.Time) bool {
	at, ok := g.agreed[session]
	return ok && now.Sub(at) < agreeing
}

// fresh tells whether a script's GET may follow from a press: it goes to the page's own
// site, and its document asks so for the first time. What was asked for before, as polling
// and the next piece of a list are, reads. The caller holds g.mu.
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
	return !known && boottime.Now()-g.acted() < boottime.Instant(prompted) && siteOf(a.get.Asked) == siteOf(a.get.From)
}
