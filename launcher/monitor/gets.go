package monitor

import (
	"slices"
	"sync"
	"time"

	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/target"

	"leasehold/cdpproxy"
	"leasehold/internal/boottime"
	"leasehold/launcher/recovery/decision"
)

// gets follows the GETs of pages that somebody caused, from the request to its effect, so that
// decision.Get can tell whether one looks like a write. A request for a document is judged by
// events alone, when it is answered. A script's request is judged by its page: presses.go asks
// the page what was pressed before the request, and later what changed when the answer came;
// until then the request waits in due. If its page goes away or does not answer before that,
// the GET is reported as one that nobody can judge, unless nobody had done anything on the
// page.
//
// The pipe's reader calls observe with every request of every page, so little is parsed.
type gets struct {
	acted func() boottime.Instant // when a worker last acted on any page
	// actedOn tells whether a worker has acted on a session's page since the navigation to its
	// document began, and whether it has typed into the page.
	actedOn func(session string) (acted, typed bool)
	wake    chan struct{} // has room for one; signalled when something is added to ask or due

	mu        sync.Mutex
	shown     map[string]string      // URL that a frame shows, by frame; a page's main frame has the target's id
	pages     map[string]bool        // by target: whether another page opened it
	known     map[string]bool        // URLs of documents that were shown
	requested map[string]navigation  // the last navigation that a frame's document asked for, by frame
	anew      map[string]time.Time   // when a document asked to be reloaded, by frame
	open      map[[2]string]*asked   // by session and request
	forms     map[string]sentForm    // the last form that was sent and is no search, by session
	dialogs   map[string]string      // type of the open dialog, by session
	agreed    map[string]time.Time   // when a confirm dialog was answered with yes, by session
	scripts   map[string]*scripted   // what scripts of a document asked for, by its loader
	after     map[string]bool        // documents of which a GET after an action was reported, by loader
	ask       map[string][]*asked    // by frame: requests for which it is not known yet what was pressed before
	due       map[string]*pageToLook // by frame
	notices   map[string]*asked      // documents that may be mere notices, by frame
	looking   map[*asked]bool        // requests whose pages are being looked at
	visiting  int                    // documents that are being asked or looked at
	over      bool                   // pages are not asked any more
}

// navigation is a navigation that a document asked for.
type navigation struct {
	url    string
	reason string
}

// asked is a request that is under way or not judged yet.
type asked struct {
	get            decision.Get
	document       bool
	mayWrite       bool // it is a GET that somebody may have caused; of other requests only the time of the answer matters
	session, frame string
	loader, id     string
	mime           string
	bytes          int       // size of the answer, with its headers once it is complete; negative if not known
	unread         bool      // the page has not read the answer, so it cannot have shown it
	prompted       bool      // a worker acted on some page shortly before
	touched        bool      // a worker had acted on its page since the page showed its document
	control        bool      // it followed from a press on something that is neither a link nor a field
	gone, reloaded bool      // during the look its document went away, or reloaded itself
	typed          bool      // a worker had typed on its page
	search         bool      // a form sent it, and a worker had typed on its page
	failed         time.Time // when a look failed for the first time
	name           string
	body           *answerBody
	at, answered   time.Time
	final          time.Time // by when the page has had time to show the answer
	from           time.Time // for a document: when it is looked at; zero as long as no frame shows it
	sent, head     float64   // when it was sent and answered, wall clock, ms
	end            float64   // when its answer was complete; 0 if it is not
	offset         float64   // of the wall clock from the events' timestamps, ms
}

// scripted is what the scripts of one document requested.
type scripted struct {
	places  map[string]bool // URLs, without the numbers in their queries
	answers []*asked        // the latest requests that were answered
}

// pageToLook is a document that has to be looked at.
type pageToLook struct {
	session, frame string
	from           time.Time // not before this time
	requests       []*asked
}

const (
	// prompted is the time after an act within which a navigation may follow from it.
	prompted = 5 * time.Second
	// agreeing is the time after the answer to a dialog within which a request may follow from
	// it. The page's script goes on at once.
	agreeing = time.Second
	// reloading is the time after an answer that is not judged yet within which a page may
	// reload itself because of it.
	reloading = 5 * time.Second
	// showTime is how long a page may take to show an answer, in addition to the timers that
	// are pending in it: see presses.js.
	showTime = 150 * time.Millisecond
	// maxToLook bounds how many requests of one document wait to be judged.
	maxToLook = 256
	// maxAnswered is how many answers of one document are remembered.
	maxAnswered = 64
)

// Why a GET could not be judged.
const (
	pageGone     = "its page was gone before it could be seen what became of it"
	noAnswerSeen = "its answer never came"
	notComplete  = "its answer was never complete"
	pageSilent   = "its page did not tell what became of it"
	tooMany      = "its page asked for more at once than could be looked at"
	notRead      = "its answer could not be read"
	answersMixed = "what its page showed may have come with another answer"
	fewShown     = "its page showed a value or two, which asking may have made"
	mayHaveSet   = "a form that is no search asked for it, and may have set something"
	notJudged    = "its page ended before it could be seen what became of it"
)

func newGets() *gets {
	return &gets{
		acted: func() boottime.Instant { return 0 }, actedOn: func(string) (bool, bool) { return true, false }, wake: make(chan struct{}, 1),
		shown: map[string]string{}, pages: map[string]bool{}, known: map[string]bool{}, requested: map[string]navigation{}, anew: map[string]time.Time{},
		open: map[[2]string]*asked{}, forms: map[string]sentForm{}, dialogs: map[string]string{}, agreed: map[string]time.Time{},
		scripts: map[string]*scripted{}, after: map[string]bool{}, ask: map[string][]*asked{}, due: map[string]*pageToLook{}, notices: map[string]*asked{}, looking: map[*asked]bool{},
	}
}

// forget forgets everything about a session that is over, except what frames show.
func (g *gets) forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.known)
	clear(g.requested)
	clear(g.anew)
	clear(g.open)
	clear(g.agreed)
	clear(g.forms)
	clear(g.scripts)
	clear(g.after)
	clear(g.ask)
	clear(g.due)
	clear(g.notices)
}

// afterAction stands in place of a sign: nothing says that the GET wrote, but its page was one on
// which the worker had acted.
const afterAction decision.Sign = "after_action"

// getEvents are the events, besides those of requests, that gets follows.
var getEvents = []string{eventAttached, eventDetached, eventCrashed, eventContentLoaded, eventFrameNavigated, eventNavigatedWithin, eventFrameRequested, eventDialogOpening, eventDialogClosed}

// getWrite is a GET that looks like a write, that nobody can judge, or that came after an action.
type getWrite struct {
	*asked
	sign decision.Sign // or afterAction
	text string        // what was pressed, if that is known
	why  string        // why it could not be judged
}

// observe takes in the events of requests and getEvents, in Chrome's order. It returns the
// requests that look like writes by what is known now, those that can no longer be judged, and
// those that came after an action.
func (g *gets) observe(event cdpproxy.Event, now time.Time) []*getWrite {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch event.Method {
	case eventRequest:
		return one(g.sent(event, now))
	case eventResponse:
		return one(g.answered(event, now))
	case eventFinished, eventFailed:
		return one(g.finished(event, now))
	case eventFrameNavigated:
		return g.navigated(event, now)
	case eventCrashed:
		return g.giveUp(pageGone, func(a *asked) bool { return a.session == event.Session })
	case eventDetached:
		var p target.EventDetachedFromTarget
		if decode(event, &p) {
			return g.giveUp(pageGone, func(a *asked) bool { return a.session == string(p.SessionID) })
		}
	default:
		g.page(event, now)
	}
	return nil
}

// one is a list with w, or an empty list if w is nil.
func one(w *getWrite) []*getWrite {
	if w == nil {
		return nil
	}
	return []*getWrite{w}
}

// navigated takes in that a frame shows another document: the page that would have shown the
// answers is gone. If a script made a request, and reloaded its own page when the answer came,
// then nothing of the answer can have been shown.
func (g *gets) navigated(event cdpproxy.Event, now time.Time) []*getWrite {
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
	if d := g.notices[frame]; d != nil && d.loader == string(p.Frame.LoaderID) {
		d.final = now.Add(showTime)
		d.from = d.final
		g.signal()
	}
	left := func(a *asked) bool {
		return a.frame == frame && a.loader != string(p.Frame.LoaderID) && !a.underWayTo(frame)
	}
	gone := g.takeOut(left)
	for a := range g.looking {
		if left(a) {
			a.gone = true
			gone = append(gone, a)
		}
	}
	var last *asked
	for _, a := range gone {
		if !a.document && a.get.Status != 0 && (last == nil || a.answered.After(last.answered)) {
			last = a
		}
	}
	if last != nil && byPage && p.Frame.URL == before && last.get.Status >= 200 && last.get.Status <= 299 && anew.Sub(last.answered) <= reloading {
		last.reloaded = true
	}
	var found []*getWrite
	for _, a := range gone {
		if !g.looking[a] { // otherwise the goroutine that looks at its page reports it
			found = append(found, one(a.left())...)
		}
	}
	return found
}

// left is the report about a request whose document is gone.
func (a *asked) left() *getWrite {
	if a.reloaded {
		return &getWrite{asked: a, sign: decision.Reloaded}
	}
	return a.unjudged(pageGone)
}

// underWayTo tells whether a request for a document that a frame is to show is not answered
// yet.
func (a *asked) underWayTo(frame string) bool {
	return a.document && a.frame == frame && a.get.Status == 0
}

// takeOut forgets those requests for which which returns true, out of all that somebody may
// have caused and that are not judged yet. It returns each of them once. The caller holds g.mu.
func (g *gets) takeOut(which func(*asked) bool) []*asked {
	var out []*asked
	take := func(a *asked) bool {
		if !a.mayWrite || !which(a) {
			return false
		}
		if !slices.Contains(out, a) {
			out = append(out, a)
		}
		return true
	}
	for key, a := range g.open {
		if take(a) {
			delete(g.open, key)
		}
	}
	for frame, list := range g.ask {
		if g.ask[frame] = slices.DeleteFunc(list, take); len(g.ask[frame]) == 0 {
			delete(g.ask, frame)
		}
	}
	for frame, look := range g.due {
		if look.requests = slices.DeleteFunc(look.requests, take); len(look.requests) == 0 {
			delete(g.due, frame)
		}
	}
	for frame, a := range g.notices {
		if take(a) {
			delete(g.notices, frame)
		}
	}
	return out
}

// giveUp stops judging the requests for which which returns true. The caller holds g.mu.
func (g *gets) giveUp(why string, which func(*asked) bool) []*getWrite {
	var found []*getWrite
	for _, a := range g.takeOut(which) {
		found = append(found, one(a.unjudged(why))...)
	}
	return found
}

// unjudged is the report that a request can no longer be judged. It is nil if there is nothing
// to fear: the request followed from nothing that somebody did on its page, or what is known
// about it is enough.
func (a *asked) unjudged(why string) *getWrite {
	if a.search {
		return nil
	}
	if a.document && a.get.Status != 0 { // a page, which may have been a notice
		return &getWrite{asked: a, sign: decision.Unjudged, why: why}
	}
	if !a.mayWrite || !a.control && !a.touched {
		return nil
	}
	if !a.document {
		p := &decision.Pressed{}
		_, p.Values, p.Lost = a.values()
		a.get.Pressed = p
	}
	switch {
	case a.get.Status == 0 && why == pageGone:
		why = noAnswerSeen + ", and its page was gone"
	case a.get.Status == 0:
		why = noAnswerSeen
	case a.end == 0 && !a.unread && why != pageGone && !a.document:
		why = notComplete
	}
	a.get.Unseen = why
	sign := a.get.Sign()
	if sign == "" {
		return nil
	}
	if !a.control { // it may not have followed from anybody's act
		sign = decision.Unjudged
	}
	if sign != decision.Unjudged {
		why = ""
	}
	return &getWrite{asked: a, sign: sign, text: a.name, why: why}
}

// page takes in one of getEvents other than those of navigations. The caller holds g.mu.
func (g *gets) page(event cdpproxy.Event, now time.Time) {
	switch event.Method {
	case eventContentLoaded:
		for _, d := range g.notices { // a page that is meant to be read shows it by now, and may soon be gone
			if d.session == event.Session && !d.from.IsZero() {
				d.from = now
				g.signal()
			}
		}
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
