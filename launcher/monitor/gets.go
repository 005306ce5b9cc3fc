package monitor

import (
	"bytes"
	"strings"
	"sync"
	"time"
	"unicode"

	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/target"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/internal/boottime"
	"leasehold/internal/reads"
	"leasehold/launcher/recovery/decision"
)

// GETs follows the GETs of pages from the request to the answer, and reports those that may have
// changed something (see decision.Get), and those that came after the worker had acted. It goes by
// the browser's events alone. The pipe's reader calls observe with every request of every page, so
// little is parsed.
type GETs struct {
	pages       *pages
	navigations *navigations
	typing      *typing
	harmless    *harmless
	sink        func(checkpoint.Entry)

	acted func() boottime.Instant // when a worker last acted on any page
	// actedOn tells whether a worker has acted on a session's page since the navigation to its
	// document began.
	actedOn func(session string) (acted, typed bool)

	mu         sync.Mutex
	shown      map[string]string          // URL that a frame shows, by frame; a page's main frame has the target's id
	opened     map[string]bool            // targets that another page opened, until they ask for a document
	requested  map[string]string          // the last navigation that a frame's document asked for, by frame
	anew       map[string]time.Time       // when a document asked to be loaded again, by frame
	open       map[[2]string]*asked       // by session and request
	last       map[string]*asked          // the last request of a script that was answered with success, by frame
	dialogs    map[string]string          // type of the open dialog, by session
	agreed     map[string]time.Time       // when a confirm dialog was answered with yes, by session
	unprompted map[string]map[string]bool // places that a document asked for before the worker acted on it, by loader
	after      map[string]bool            // documents of which a GET after an action was reported, by loader
}

// asked is a GET that is not answered yet, or the last that was.
type asked struct {
	get            decision.Get
	document       bool
	picture        bool // it asks for a picture, and followed from a press
	session, frame string
	loader         string
	answered       time.Time
}

const (
	// prompted is the time after an act within which a web worker's request may follow from it.
	prompted = 5 * time.Second
	// agreeing is the time after the answer to a dialog within which a request may follow from
	// it. The page's script goes on at once.
	agreeing = time.Second
	// reloading is the time after an answer within which a page may load itself anew because of it.
	reloading = 5 * time.Second
)

func newGETs(ps *pages, n *navigations, ty *typing, h *harmless, sink func(checkpoint.Entry)) *GETs {
	return &GETs{
		pages: ps, navigations: n, typing: ty, harmless: h, sink: sink,
		acted: func() boottime.Instant { return 0 }, actedOn: func(string) (bool, bool) { return true, false },
		shown: map[string]string{}, opened: map[string]bool{}, requested: map[string]string{}, anew: map[string]time.Time{},
		open: map[[2]string]*asked{}, last: map[string]*asked{}, dialogs: map[string]string{}, agreed: map[string]time.Time{}, unprompted: map[string]map[string]bool{}, after: map[string]bool{},
	}
}

// forget forgets everything about a session that is over, except what frames show.
func (g *GETs) forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.requested)
	clear(g.anew)
	clear(g.open)
	clear(g.last)
	clear(g.agreed)
	clear(g.after)
	clear(g.unprompted)
}

// checkpointed has GETs after an action reported again: those after a checkpoint count for
// themselves.
func (g *GETs) checkpointed() {
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.after)
}

// getEvents are the events, besides those of requests, that GETs follows.
var getEvents = []string{eventAttached, eventDetached, eventCrashed, eventFrameNavigated, eventNavigatedWithin, eventFrameRequested, eventDialogOpening, eventDialogClosed}

// observe takes in the events of requests and getEvents, in Chrome's order.
func (g *GETs) observe(event cdpproxy.Event, now time.Time) {
	g.report(g.entries(event, now))
}

func (g *GETs) report(entries []checkpoint.Entry) {
	for _, e := range entries {
		if e.Kind == checkpoint.KindGetWrite {
			g.typing.reportAgain()
		}
		g.sink(e)
	}
}

// GiveUp reports the GETs that are not answered yet, because their pages end, or are not watched
// any more.
func (g *GETs) GiveUp() {
	g.mu.Lock()
	found := g.ended(func(*asked) bool { return true })
	g.mu.Unlock()
	g.report(found)
}

// entries are those about an event.
func (g *GETs) entries(event cdpproxy.Event, now time.Time) []checkpoint.Entry {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch event.Method {
	case eventRequest:
		return g.sent(event, now)
	case eventResponse:
		return g.answered(event, now)
	case eventFinished, eventFailed:
		return g.finished(event)
	case eventFrameNavigated:
		return g.navigated(event)
	case eventCrashed:
		return g.ended(func(a *asked) bool { return a.session == event.Session })
	case eventDetached:
		var p target.EventDetachedFromTarget
		if decode(event, &p) {
			return g.ended(func(a *asked) bool { return a.session == string(p.SessionID) })
		}
	default:
		g.page(event, now)
	}
	return nil
}

var (
	byScript = []byte(`"initiator":{"type":"script"`)
	byMarkup = []byte(`"initiator":{"type":"parser"`)
	image    = []byte(`"type":"Image"`)
)

// followed tells whether a request, given by its event, is one that somebody may have caused: for a
// document, or by a script. What the markup of a document loads is not. Of a picture Chrome says
// only whether the markup asked for it.
func followed(params []byte) bool {
	return isDocument(params) || bytes.Contains(params, byScript) ||
		bytes.Contains(params[max(0, len(params)-eventTail):], image) && !bytes.Contains(params, byMarkup)
}

// sent takes in that a page sent a request. The caller holds g.mu.
func (g *GETs) sent(event cdpproxy.Event, now time.Time) []checkpoint.Entry {
	if !followed(event.Params) || !reads.Event(event.Params) {
		return nil
	}
	var r struct {
		RequestID   string `json:"requestId"`
		LoaderID    string `json:"loaderId"`
		DocumentURL string `json:"documentURL"`
		Type        string `json:"type"`
		FrameID     string `json:"frameId"`
		Gesture     bool   `json:"hasUserGesture"`
		Redirect    *struct {
			Status int `json:"status"`
		} `json:"redirectResponse"`
		Request struct {
			URL    string `json:"url"`
			Method string `json:"method"`
		} `json:"request"`
	}
	if !decode(event, &r) || r.Request.Method != "GET" || !strings.HasPrefix(r.Request.URL, "http") {
		return nil
	}
	key := [2]string{event.Session, r.RequestID}
	if r.Redirect != nil {
		if a := g.open[key]; a != nil {
			a.get.Redirects = append(a.get.Redirects, r.Redirect.Status)
			a.get.Final = r.Request.URL
		}
		return nil
	}
	acted, _ := g.actedOn(event.Session)
	document := r.Type == "Document"
	a := &asked{document: document, session: event.Session, frame: r.FrameID, loader: r.LoaderID}
	switch {
	case document: // one that a command opened followed from no act
		acted = g.opened[r.FrameID] || acted && g.requested[r.FrameID] == r.Request.URL
		r.DocumentURL = g.shown[r.FrameID]
		delete(g.requested, r.FrameID)
		delete(g.opened, r.FrameID)
	case a.frame == "": // nobody acts on a web worker itself
		acted = acted && boottime.Now()-g.acted() < boottime.Instant(prompted)
	}
	a.picture = r.Type == "Image" && r.Gesture
	caused := acted
	if !document && g.byItself(a.loader, r.Request.URL, acted) {
		caused = false
	}
	a.get = decision.Get{From: r.DocumentURL, Asked: r.Request.URL, Final: r.Request.URL, Acted: caused, Agreed: caused && g.agreedOn(event.Session, now)}
	remember(g.open, key, a)
	if !acted || !document && g.after[a.loader] {
		return nil
	}
	if !document {
		remember(g.after, a.loader, true)
	}
	return []checkpoint.Entry{g.entry(a, checkpoint.KindGetAfter, "")}
}

// byItself tells whether a document asked for a place before the worker had acted on it: then it asks
// again by itself, as a page does that polls. Numbers in the query do not count. The caller holds
// g.mu.
func (g *GETs) byItself(loader, raw string, acted bool) bool {
	where, query, _ := strings.Cut(raw, "?")
	where += "?" + strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, query)
	asked := g.unprompted[loader]
	if !acted {
		if asked == nil {
			asked = map[string]bool{}
			remember(g.unprompted, loader, asked)
		}
		remember(asked, where, true)
	}
	return asked[where]
}

// answered takes in the answer to a request. The caller holds g.mu.
func (g *GETs) answered(event cdpproxy.Event, now time.Time) []checkpoint.Entry {
	key := [2]string{event.Session, requestID(event.Params)}
	a := g.open[key]
	if a == nil {
		return nil
	}
	var r struct {
		Response struct {
			Status  int               `json:"status"`
			Mime    string            `json:"mimeType"`
			Headers map[string]string `json:"headers"`
		} `json:"response"`
	}
	if !decode(event, &r) {
		return nil
	}
	delete(g.open, key)
	a.get.Status, a.answered = r.Response.Status, now
	a.get.Picture = a.picture && strings.HasPrefix(r.Response.Mime, "image/")
	for name, value := range r.Response.Headers {
		a.get.Empty = a.get.Empty || strings.EqualFold(name, "Content-Length") && value == "0"
	}
	if found := g.judged(a); found != nil {
		return found
	}
	if a.get.Acted && !a.document && a.get.Status < 300 {
		remember(g.last, a.frame, a)
	}
	return nil
}

// finished takes in that a request has ended. Without an answer, its site may have got it all the
// same. The caller holds g.mu.
func (g *GETs) finished(event cdpproxy.Event) []checkpoint.Entry {
	key := [2]string{event.Session, requestID(event.Params)}
	a := g.open[key]
	if a == nil {
		return nil
	}
	delete(g.open, key)
	var r struct {
		Error   string `json:"errorText"`
		Blocked string `json:"blockedReason"`
	}
	if decode(event, &r) && !hasLeft(r.Blocked, r.Error) {
		return nil
	}
	return g.judged(a)
}

// navigated takes in that a frame shows another document, whose URL may be the one before: then
// the page may have loaded itself anew because of an answer. The caller holds g.mu.
func (g *GETs) navigated(event cdpproxy.Event) []checkpoint.Entry {
	var p cdppage.EventFrameNavigated
	if !decode(event, &p) || p.Frame == nil || !notBlank(p.Frame.URL) {
		return nil
	}
	frame, loader := string(p.Frame.ID), string(p.Frame.LoaderID)
	before, last, anew := g.shown[frame], g.last[frame], g.anew[frame]
	delete(g.last, frame)
	delete(g.anew, frame)
	delete(g.agreed, event.Session)
	remember(g.shown, frame, p.Frame.URL)
	found := g.ended(func(a *asked) bool { return a.frame == frame && a.loader != loader && !a.document })
	if last != nil && p.Frame.URL == before && !anew.Before(last.answered) && anew.Sub(last.answered) <= reloading {
		last.get.Reloaded = true
		found = append(found, g.judged(last)...)
	}
	return found
}

// ended are the reports about requests that will not be seen to be answered. The caller holds g.mu.
func (g *GETs) ended(which func(*asked) bool) []checkpoint.Entry {
	var found []checkpoint.Entry
	for key, a := range g.open {
		if which(a) {
			delete(g.open, key)
			found = append(found, g.judged(a)...)
		}
	}
	return found
}

// page takes in one of the other getEvents. The caller holds g.mu.
func (g *GETs) page(event cdpproxy.Event, now time.Time) {
	switch event.Method {
	case eventAttached:
		var p target.EventAttachedToTarget
		if decode(event, &p) && p.TargetInfo != nil && p.TargetInfo.Type == typePage {
			id, opener := string(p.TargetInfo.TargetID), string(p.TargetInfo.OpenerID)
			if opener != "" {
				remember(g.opened, id, true)
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
			remember(g.requested, frame, p.URL)
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

// agreedOn tells whether somebody has just answered a confirm dialog with yes. The caller holds
// g.mu.
func (g *GETs) agreedOn(session string, now time.Time) bool {
	at, ok := g.agreed[session]
	return ok && now.Sub(at) < agreeing
}

// judged is the report about a GET that may have changed something; nil for a read. What is not
// answered because the launcher itself ends the pages is not reported, see Closing. The caller
// holds g.mu.
func (g *GETs) judged(a *asked) []checkpoint.Entry {
	sign := a.get.Sign()
	if sign == "" || sign == decision.Unanswered && g.navigations.closing.Load() {
		return nil
	}
	return []checkpoint.Entry{g.entry(a, checkpoint.KindGetWrite, sign)}
}

func (g *GETs) entry(a *asked, kind checkpoint.Kind, sign decision.Sign) checkpoint.Entry {
	e := checkpoint.Entry{
		Kind: kind, Method: "GET", URL: a.get.Asked, Name: string(sign), Target: g.pages.targetOn(a.session),
		Declared: g.harmless.declared(decision.Sent{Method: "GET", URL: a.get.Asked, Whole: true}),
	}
	if kind == checkpoint.KindGetWrite {
		e.Shape = shapeOf(decision.Sent{Method: e.Method, URL: e.URL, Whole: true}, nil)
		e.Type = "Fetch"
		if a.document {
			e.Type = "Document"
		}
	}
	return e
}
