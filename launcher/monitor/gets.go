package monitor

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/target"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/checkpoint/ledger"
	"leasehold/checkpoint/site"
	"leasehold/internal/boottime"
	"leasehold/launcher/recovery/findings"
)

// GETs follows the GETs of pages from the request to the answer, and reports those that may have
// changed something (see findings.SignOf), and those that came after the worker had acted. It goes by
// the browser's events alone. The pipe's reader calls observe with every request of every page, so
// little is parsed. What GETs knows is guarded by the mu of the request log.
type GETs struct {
	log         *requestLog
	pages       *pages
	navigations *navigations
	typing      *typing
	harmless    *harmless
	still       *Still
	sink        func(checkpoint.Entry)

	acted func() boottime.Instant // when a worker last acted on any page
	// actedOn tells whether a worker has acted on a session's page since the navigation to its
	// document began.
	actedOn func(session string) (acted, typed bool)

	// URLs here have no fragment: Chrome names a request without it, but with it what a link or a
	// script asks for, and what a document shows within.
	shown      map[string]string          // URL that a frame shows, by frame; a page's main frame has the target's id
	opened     map[string]bool            // targets that another page opened, until they ask for a document
	requested  map[string]navigation      // the last navigation that a frame's document asked for, by frame
	fresh      map[string]bool            // loaders of documents that are neither reloaded nor in a tab's history, until they are asked for
	anew       map[string]time.Time       // when a document asked to be loaded again, by frame
	last       map[string]*ledger.Request // the last request of a script that was answered with success, by frame
	dialogs    map[string]string          // type of the open dialog, by session
	agreed     map[string]*agreement      // the last confirm dialog that was answered with yes, by session
	unprompted map[string]map[string]bool // places that a document asked for before the worker acted on it, by loader
	after      map[string]bool            // documents of which a GET after an action was reported, by loader

	agreements chan *agreement // for followAgreements; what does not fit counts as just answered for as long as its document is there
}

// navigation is one that a frame's document asked for.
type navigation struct {
	url    string
	reason cdppage.ClientNavigationReason
}

// mayBeLed tells whether another page may have asked for it by a link, a form or a script; of window.open with
// the name of an open tab, Chrome says "other". What a document says in its header or markup, and a frame's first
// document, are the page's own.
func (n navigation) mayBeLed() bool {
	switch n.reason {
	case cdppage.ClientNavigationReasonAnchorClick, cdppage.ClientNavigationReasonScriptInitiated,
		cdppage.ClientNavigationReasonFormSubmissionGet, cdppage.ClientNavigationReasonFormSubmissionPost, cdppage.ClientNavigationReasonOther:
		return true
	}
	return false
}

// agreement is a confirm dialog that was answered with yes.
type agreement struct {
	session string
	wentOn  time.Time // when the page's script is known to have gone on; zero: it may not have
}

const (
	// prompted is the time after an act within which a web worker's request may follow from it.
	prompted = 5 * time.Second
	// agreeing is the time within which a request may follow from the answer to a dialog, after the
	// page's script has gone on.
	agreeing = time.Second
	// maxAgreements is how many answers may wait for followAgreements.
	maxAgreements = 64
	// reloading is the time after an answer within which a page may load itself anew because of it.
	reloading = 5 * time.Second
)

func newGETs(log *requestLog, ps *pages, n *navigations, ty *typing, h *harmless, s *Still, sink func(checkpoint.Entry)) *GETs {
	return &GETs{
		log: log, pages: ps, navigations: n, typing: ty, harmless: h, still: s, sink: sink,
		acted: func() boottime.Instant { return 0 }, actedOn: func(string) (bool, bool) { return true, false },
		shown: map[string]string{}, opened: map[string]bool{}, requested: map[string]navigation{}, fresh: map[string]bool{}, anew: map[string]time.Time{},
		last: map[string]*ledger.Request{}, dialogs: map[string]string{}, agreed: map[string]*agreement{}, unprompted: map[string]map[string]bool{}, after: map[string]bool{},
		agreements: make(chan *agreement, maxAgreements),
	}
}

// forget forgets everything about a session that is over, except what frames show.
func (g *GETs) forget() {
	g.log.mu.Lock()
	defer g.log.mu.Unlock()
	clear(g.requested)
	clear(g.fresh)
	clear(g.anew)
	clear(g.last)
	clear(g.agreed)
	clear(g.after)
	clear(g.unprompted)
}

// checkpointed has GETs after an action reported again: those after a checkpoint count for
// themselves.
func (g *GETs) checkpointed() {
	g.log.mu.Lock()
	defer g.log.mu.Unlock()
	clear(g.after)
}

// getEvents are the events, besides those of requests, that GETs follows.
var getEvents = []string{eventAttached, eventDetached, eventCrashed, eventFrameNavigated, eventNavigatedWithin, eventFrameRequested, eventFrameStarted, eventDialogOpening, eventDialogClosed}

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
	g.log.mu.Lock()
	found := g.ended(func(*ledger.Request) bool { return true })
	g.log.mu.Unlock()
	g.report(found)
}

// observe returns what a fact says about a GET. Facts and getEvents come in Chrome's order. The
// caller holds the log's mu.
func (g *GETs) observe(f ledger.Fact) []checkpoint.Entry {
	if f.Method == ledger.Sent {
		return g.sent(f)
	}
	get := f.Request.Get
	switch {
	case get == nil:
		return nil
	case f.Method == ledger.Carried && get.Unsent: // a hop of it was sent, which is told last
		get.Unsent = false
		return g.end(f.Request)
	case !get.Open:
		return nil
	}
	switch f.Method {
	case ledger.Answered:
		return g.answered(f)
	case ledger.Finished, ledger.Failed:
		return g.finished(f)
	case ledger.GivenUp:
		return g.end(f.Request)
	}
	return nil
}

func (g *GETs) observeEvent(event cdpproxy.Event, now time.Time) {
	g.report(g.entries(event, now))
}

func (g *GETs) entries(event cdpproxy.Event, now time.Time) []checkpoint.Entry {
	g.log.mu.Lock()
	defer g.log.mu.Unlock()
	switch event.Method {
	case eventFrameNavigated:
		return g.navigated(event)
	case eventCrashed:
		return g.ended(func(r *ledger.Request) bool { return r.Session == event.Session })
	case eventDetached:
		var p target.EventDetachedFromTarget
		if decode(event, &p) {
			return g.ended(func(r *ledger.Request) bool { return r.Session == string(p.SessionID) })
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

// eventTail is how many bytes at the end of ledger.Sent are searched for the type.
const eventTail = 256

var documentType = []byte(`"type":"Document"`)

// isDocument tells whether a request is for the document of a page or frame.
func isDocument(params []byte) bool {
	return bytes.Contains(params[max(0, len(params)-eventTail):], documentType)
}

// followed tells whether a request, given by its event, is one that somebody may have caused: for a
// document, or by a script. What the markup of a document loads is not. Of a picture Chrome says
// only whether the markup asked for it.
func followed(params []byte) bool {
	return isDocument(params) || bytes.Contains(params, byScript) ||
		bytes.Contains(params[max(0, len(params)-eventTail):], image) && !bytes.Contains(params, byMarkup)
}

// sent takes in that a page sent a request.
func (g *GETs) sent(f ledger.Fact) []checkpoint.Entry {
	kept := f.Request
	book := g.harmless.book()
	if kept.Hops[f.Hop].Unsafe || !followed(f.Params) && !book.JudgesGETs() {
		return nil
	}
	var r struct {
		DocumentURL string  `json:"documentURL"`
		Type        string  `json:"type"`
		FrameID     string  `json:"frameId"`
		Timestamp   float64 `json:"timestamp"` // as in request
		Gesture     bool    `json:"hasUserGesture"`
		Redirect    *struct {
			Status int `json:"status"`
		} `json:"redirectResponse"`
		Request struct {
			URL     string `json:"url"`
			Method  string `json:"method"`
			Headers struct {
				Referer string `json:"Referer"`
			} `json:"headers"`
		} `json:"request"`
	}
	if json.Unmarshal(f.Params, &r) != nil || r.Request.Method != "GET" || !strings.HasPrefix(r.Request.URL, "http") {
		return nil
	}
	writes := ""
	if book.JudgesGETs() {
		var known checkpoint.Entry
		if g.harmless.judge(&known, findings.Sent{Method: "GET", URL: r.Request.URL, Whole: true}, nil); known.Known == site.Write {
			writes = known.KnownBy
		}
	}
	if r.Redirect != nil && kept.Get != nil && kept.Get.Open {
		kept.Get.Redirects = append(kept.Get.Redirects, r.Redirect.Status)
		kept.Get.Final, kept.Get.Writes = r.Request.URL, cmp.Or(kept.Get.Writes, writes)
		return nil
	}
	if r.Redirect != nil || !followed(f.Params) {
		if writes != "" { // whoever caused it
			kept.Get = &ledger.Get{From: r.DocumentURL, Asked: r.Request.URL, Final: r.Request.URL, Writes: writes, Frame: r.FrameID, MadeAt: r.Timestamp, Open: true}
		}
		return nil
	}
	acted, _ := g.actedOn(f.Session)
	agreed := g.agreedOn(f.Session, f.At)
	switch {
	case kept.Document: // one that a command opened followed from no act
		r.DocumentURL = g.shown[r.FrameID]
		asked := g.requested[r.FrameID]
		if asked.url != r.Request.URL && r.Request.Headers.Referer != "" && g.fresh[kept.Loader] {
			// A document asked for it, in a process of which Chrome tells nothing any more: it had the
			// frame until a moment ago. A command gives no referrer.
			asked = navigation{r.Request.URL, cdppage.ClientNavigationReasonOther}
		}
		if asked.url != r.Request.URL {
			acted = false
		} else if asked.mayBeLed() {
			beside := g.navigations.beside(f.Session)
			agreed = agreed || slices.ContainsFunc(beside, func(p place) bool { return g.agreedOn(p.session, f.At) })
			if p, led := g.leader(beside, r.Request.URL); led && (!acted || findings.Site(r.DocumentURL) != findings.Site(r.Request.URL)) {
				acted, r.DocumentURL = true, g.shown[p.page]
			}
		}
		acted = acted || g.opened[r.FrameID]
		delete(g.requested, r.FrameID)
		delete(g.fresh, kept.Loader)
		delete(g.opened, r.FrameID)
	case r.FrameID == "": // nobody acts on a web worker itself
		acted = acted && boottime.Now()-g.acted() < boottime.Instant(prompted)
	}
	caused := acted
	if !kept.Document && g.byItself(kept.Loader, r.Request.URL, acted) {
		caused = false
	}
	kept.Get = &ledger.Get{
		From: r.DocumentURL, Asked: r.Request.URL, Final: r.Request.URL, Acted: caused, Agreed: caused && agreed,
		Frame: r.FrameID, MadeAt: r.Timestamp, Pressed: r.Type == "Image" && r.Gesture, Open: true, Writes: writes,
	}
	if !acted || !kept.Document && g.after[kept.Loader] {
		return nil
	}
	if !kept.Document {
		remember(g.after, kept.Loader, true)
	}
	return g.sentOnly(kept, g.entry(kept, checkpoint.KindGetAfter, ""))
}

// leader returns the one of the pages beside a page on which the worker has acted, and that may have loaded a
// URL in it, as a link does that names an open tab; if possible one of the site of that URL.
func (g *GETs) leader(beside []place, url string) (leader place, found bool) {
	for _, p := range beside {
		if acted, _ := g.actedOn(p.session); acted {
			leader, found = p, true
			if findings.Site(g.shown[p.page]) == findings.Site(url) {
				break
			}
		}
	}
	return leader, found
}

// byItself tells whether a document asked for a place before the worker had acted on it: then it asks
// again by itself, as a page does that polls. Numbers in the query do not count.
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

// answered takes in the answer to a request that is open.
func (g *GETs) answered(f ledger.Fact) []checkpoint.Entry {
	var r struct {
		Response struct {
			Status  int               `json:"status"`
			Mime    string            `json:"mimeType"`
			Headers map[string]string `json:"headers"`
		} `json:"response"`
	}
	if json.Unmarshal(f.Params, &r) != nil {
		return nil
	}
	get := f.Request.Get
	get.Open, get.Status, get.Answered = false, r.Response.Status, f.At
	get.Picture = get.Pressed && strings.HasPrefix(r.Response.Mime, "image/")
	for name, value := range r.Response.Headers {
		get.Empty = get.Empty || strings.EqualFold(name, "Content-Length") && value == "0"
	}
	if found := g.judged(f.Request); found != nil {
		return found
	}
	if get.Acted && !f.Request.Document && get.Status < 300 {
		remember(g.last, get.Frame, f.Request)
	}
	return nil
}

// finished takes in that a request has ended. Without an answer, its site may have got it all the
// same.
func (g *GETs) finished(f ledger.Fact) []checkpoint.Entry {
	var r struct {
		Error   string `json:"errorText"`
		Blocked string `json:"blockedReason"`
	}
	if json.Unmarshal(f.Params, &r) == nil && !hasLeft(r.Blocked, r.Error) && f.Request.Left == 0 {
		f.Request.Get.Open, f.Request.Get.Unsent = false, true
		return nil
	}
	return g.end(f.Request)
}

// navigated takes in that a frame shows another document, whose URL may be the one before: then
// the page may have loaded itself anew because of an answer.
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
	found := g.ended(func(r *ledger.Request) bool { return r.Get.Frame == frame && r.Loader != loader && !r.Document })
	if last != nil && p.Frame.URL == before && !anew.Before(last.Get.Answered) && anew.Sub(last.Get.Answered) <= reloading {
		last.Get.Reloaded = true
		found = append(found, g.judged(last)...)
	}
	return found
}

// ended are the reports about requests that will not be seen to be answered.
func (g *GETs) ended(which func(*ledger.Request) bool) []checkpoint.Entry {
	var found []checkpoint.Entry
	for r := range g.log.ledger.All() {
		if r.Get != nil && r.Get.Open && which(r) {
			found = append(found, g.end(r)...)
		}
	}
	return found
}

// end is the report about one such request.
func (g *GETs) end(r *ledger.Request) []checkpoint.Entry {
	r.Get.Open = false
	return g.judged(r)
}

// page takes in one of the other getEvents.
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
				remember(g.shown, id, withoutFragment(p.TargetInfo.URL))
			}
		}
	case eventNavigatedWithin:
		var p cdppage.EventNavigatedWithinDocument
		if decode(event, &p) {
			remember(g.shown, string(p.FrameID), withoutFragment(p.URL))
		}
	case eventFrameRequested:
		var p cdppage.EventFrameRequestedNavigation
		if decode(event, &p) {
			frame, where := string(p.FrameID), withoutFragment(p.URL)
			remember(g.requested, frame, navigation{where, p.Reason})
			if p.Reason == cdppage.ClientNavigationReasonReload || p.Reason == cdppage.ClientNavigationReasonScriptInitiated && where == g.shown[frame] {
				remember(g.anew, frame, now)
			}
		}
	case eventFrameStarted:
		var p cdppage.EventFrameStartedNavigating
		if decode(event, &p) && p.NavigationType == cdppage.FrameStartedNavigatingNavigationTypeDifferentDocument {
			remember(g.fresh, string(p.LoaderID), true)
		}
	case eventDialogOpening:
		var p cdppage.EventJavascriptDialogOpening
		if decode(event, &p) {
			remember(g.dialogs, event.Session, string(p.Type))
		}
	case eventDialogClosed:
		var p cdppage.EventJavascriptDialogClosed
		if decode(event, &p) && p.Result && g.dialogs[event.Session] == string(cdppage.DialogTypeConfirm) {
			a := &agreement{session: event.Session}
			remember(g.agreed, event.Session, a)
			select {
			case g.agreements <- a:
			default:
			}
		}
		delete(g.dialogs, event.Session)
	}
}

// withoutFragment is a URL as it is requested.
func withoutFragment(url string) string {
	url, _, _ = strings.Cut(url, "#")
	return url
}

// agreedOn tells whether somebody has just answered a confirm dialog with yes.
func (g *GETs) agreedOn(session string, now time.Time) bool {
	a := g.agreed[session]
	return a != nil && (a.wentOn.IsZero() || now.Sub(a.wentOn) < agreeing)
}

// followAgreements finds out when the scripts that asked have gone on, until ctx ends. A page answers
// a command when the script that was running is over.
func (g *GETs) followAgreements(ctx context.Context, chrome caller) {
	var asking sync.WaitGroup
	defer asking.Wait()
	for {
		select {
		case a := <-g.agreements:
			asking.Go(func() {
				_ = chrome.Call(ctx, a.session, "Page.getFrameTree", nil, nil) // an error as the reply does as well
				g.log.mu.Lock()
				defer g.log.mu.Unlock()
				a.wentOn = time.Now()
			})
		case <-ctx.Done():
			return
		}
	}
}

// judged is the report about a GET that may have changed something; nil for a read. What is not
// answered because the launcher itself ends the pages is not reported, see Closing.
func (g *GETs) judged(r *ledger.Request) []checkpoint.Entry {
	sign := findings.SignOf(*r.Get)
	if sign == "" || sign == findings.Unanswered && g.navigations.closing.Load() {
		return nil
	}
	return g.sentOnly(r, g.entry(r, checkpoint.KindGetWrite, sign))
}

// sentOnly is the report about a request. It comes later, or never, of one that has not left the browser
// because that stands still.
func (g *GETs) sentOnly(r *ledger.Request, e checkpoint.Entry) []checkpoint.Entry {
	if r.Left == 0 && r.Get.Status == 0 && len(r.Get.Redirects) == 0 && g.still.holds(e, r.Get.MadeAt) {
		if e.Kind == checkpoint.KindGetWrite {
			g.typing.reportAgain()
		}
		return nil
	}
	return []checkpoint.Entry{e}
}

func (g *GETs) entry(r *ledger.Request, kind checkpoint.Kind, sign findings.Sign) checkpoint.Entry {
	e := checkpoint.Entry{
		Kind: kind, Method: "GET", URL: r.Get.Asked, Name: string(sign), Target: g.pages.targetOn(r.Session),
	}
	g.harmless.judge(&e, findings.Sent{Method: e.Method, URL: e.URL, Whole: true}, nil)
	if r.Get.Writes != "" {
		e.Known, e.KnownBy = site.Write, r.Get.Writes
	}
	if kind == checkpoint.KindGetAfter {
		e.Shape = ""
	} else {
		e.Type = "Fetch"
		if r.Document {
			e.Type = "Document"
		}
	}
	return e
}
