package monitor

import (
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	cdppage "github.com/chromedp/cdproto/page"

	"leasehold/cdpproxy"
	"leasehold/launcher/recovery/decision"
)

// answered takes in the answer to a request, and judges it if it is a document's. The caller
// holds g.mu.
func (g *gets) answered(event cdpproxy.Event, now time.Time) *getWrite {
	key := [2]string{event.Session, requestID(event.Params)}
	a := g.open[key]
	if a == nil {
		return nil
	}
	var r struct {
		Timestamp float64 `json:"timestamp"`
		Response  struct {
			Status  int               `json:"status"`
			Mime    string            `json:"mimeType"`
			Headers map[string]string `json:"headers"`
		} `json:"response"`
	}
	if !decode(event, &r) {
		return nil
	}
	a.get.Status, a.mime, a.answered = r.Response.Status, r.Response.Mime, now
	if !a.document {
		a.head, a.bytes = a.offset+r.Timestamp*1e3, -1
		if s := g.scripts[a.loader]; s != nil {
			s.answers = append(s.answers, a)
			s.answers = s.answers[max(0, len(s.answers)-maxAnswered):]
		}
		for name, value := range r.Response.Headers {
			if n, err := strconv.Atoi(value); err == nil && strings.EqualFold(name, "Content-Length") {
				a.bytes = n
			}
		}
		if a.mayWrite {
			g.signal()
		}
		return nil
	}
	delete(g.open, key)
	return g.judge(a, now)
}

// judge judges the request for a document. A frame's first document comes with its page, and a
// navigation that a page makes by itself was not caused by anybody. The caller holds g.mu.
func (g *gets) judge(a *asked, now time.Time) *getWrite {
	n, byPage := g.requested[a.frame]
	delete(g.requested, a.frame)
	byPage = byPage && n.url == a.get.Asked
	opened, isPage := g.pages[a.frame]
	a.mayWrite = false // from here on the page that it shows tells what it is
	switch {
	case !isPage && a.get.From == "", byPage && (!a.prompted || slices.Contains(byItself, n.reason)):
		return nil
	}
	// What is not a page is fetched in order to be kept: it is a download.
	if a.get.Status == 200 && !strings.Contains(a.mime, "html") {
		return nil
	}
	a.get.Commanded = !byPage && !opened
	a.get.Form = byPage && n.reason == byForm
	form, isNoSearch := g.forms[a.session]
	delete(g.forms, a.session)
	a.get.Sets = a.get.Form && isNoSearch && now.Sub(form.at) < prompted && !(form.texts && a.typed)
	a.get.Shown = g.known[a.get.Final]
	switch sign := a.get.Sign(); sign {
	case "":
	case decision.Unjudged:
		return &getWrite{asked: a, sign: sign, why: mayHaveSet}
	default:
		return &getWrite{asked: a, sign: sign}
	}
	if isPage && a.get.Status == 200 && a.mime == "text/html" && decision.Keyed(a.get.Final) {
		before := g.notices[a.frame]
		a.mayWrite = true
		remember(g.notices, a.frame, a)
		if before != nil && before != a {
			return before.unjudged(pageGone)
		}
	}
	return nil
}

// Reasons of navigations that a page asked for.
const (
	byForm   = string(cdppage.ClientNavigationReasonFormSubmissionGet)
	byScript = string(cdppage.ClientNavigationReasonScriptInitiated)
)

// byItself are the reasons of navigations that were not caused by a press.
var byItself = []string{
	string(cdppage.ClientNavigationReasonMetaTagRefresh), string(cdppage.ClientNavigationReasonHTTPHeaderRefresh), string(cdppage.ClientNavigationReasonReload),
}

// finished takes in that an answer is complete, or that there is none. The caller holds
// g.mu.
func (g *gets) finished(event cdpproxy.Event, now time.Time) *getWrite {
	key := [2]string{event.Session, requestID(event.Params)}
	a := g.open[key]
	if a == nil {
		return nil
	}
	delete(g.open, key)
	var r struct {
		Timestamp float64 `json:"timestamp"`
		Length    float64 `json:"encodedDataLength"`
		Error     string  `json:"errorText"`
		Blocked   string  `json:"blockedReason"`
	}
	if !decode(event, &r) {
		return a.unjudged(noAnswerSeen)
	}
	if a.get.Status == 0 {
		if hasLeft(r.Blocked, r.Error) {
			g.takeOut(func(other *asked) bool { return other == a })
			return a.unjudged(noAnswerSeen)
		}
		a.mayWrite = false
		return nil
	}
	if a.document {
		return nil
	}
	if a.end = a.offset + r.Timestamp*1e3; event.Method == eventFinished {
		a.bytes = int(r.Length)
	}
	return g.toLook(a, now)
}

// toLook arranges that a script's GET is judged by what becomes of its page. The page is looked
// at once immediately, because it may soon be gone, and, if it shows nothing of the answer,
// again after it has had time to show it. The caller holds g.mu.
func (g *gets) toLook(a *asked, now time.Time) *getWrite {
	if !a.mayWrite || slices.ContainsFunc(parts, func(mime string) bool { return strings.Contains(a.mime, mime) }) {
		return nil
	}
	if look := g.due[a.frame]; look != nil && len(look.requests) >= maxToLook {
		return a.unjudged(tooMany)
	}
	a.final = now.Add(showTime)
	g.lookAt(a, now)
	return nil
}

// retry arranges that a request is looked at once more after a failed look. By then it is known
// that the document is gone, or else nobody can judge the request.
func (v *visit) retry(a *asked) []*getWrite {
	now := time.Now()
	switch {
	case a.failed.IsZero():
		a.failed = now
	case now.Sub(a.failed) >= lookTime:
		return one(a.unjudged(pageSilent))
	}
	a.final = now.Add(showTime)
	if a.document {
		v.notice = a
	} else {
		v.look.requests = append(v.look.requests, a)
	}
	return nil
}

// looked says that a visit is over, and arranges another look at what could not be judged yet.
// If that is not possible, it returns the reports about it.
func (g *gets) looked(v, again *visit) (lost []*getWrite) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for a := range v.all() {
		delete(g.looking, a)
	}
	for a := range again.all() {
		switch {
		case a.gone:
			lost = append(lost, one(a.left())...)
		case g.over:
			lost = append(lost, one(a.unjudged(notJudged))...)
		case a.document && g.notices[a.frame] != nil:
			lost = append(lost, one(a.unjudged(pageGone))...)
		case a.document:
			a.from = a.final
			remember(g.notices, a.frame, a)
		default:
			g.lookAt(a, a.final)
		}
	}
	g.signal()
	return lost
}

// isGone tells whether a request's document went away during the look. What was seen then may
// belong to another document.
func (g *gets) isGone(a *asked) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return a.gone
}

// lookAt arranges a look at a document for a script's GET, not earlier than from. The caller
// holds g.mu.
func (g *gets) lookAt(a *asked, from time.Time) {
	look := g.due[a.frame]
	if look == nil {
		look = &pageToLook{session: a.session, frame: a.frame, from: from}
		remember(g.due, a.frame, look)
	}
	if look.requests = append(look.requests, a); from.Before(look.from) {
		look.from = from
	}
	g.signal()
}

// leftUnread tells whether a page has had time to read a short answer, and has not read it.
// Chrome does not report such an answer as complete. The caller holds the mu of gets.
func (a *asked) leftUnread(now time.Time) bool {
	return a.mayWrite && !a.document && a.get.Status != 0 && a.bytes >= 0 && a.bytes <= maxAnswer && now.Sub(a.answered) >= showTime
}

// parts are the media types of what documents are made of. Fetching it only reads.
var parts = []string{"image/", "text/css", "javascript", "font", "video/", "audio/"}

// besides are the other answers to scripts of the same document that may also have caused what
// a look finds changed after the answer to a: those that came later, and those that came so
// shortly before that the page may have shown them at the same time.
func (g *gets) besides(a *asked) []besides {
	g.mu.Lock()
	defer g.mu.Unlock()
	var others []besides
	if s := g.scripts[a.loader]; s != nil {
		for _, o := range s.answers {
			if o != a && (o.end == 0 || max(o.head, o.end) > a.head-nearTime) {
				others = append(others, besides{o, o.head, o.end, o.unread || o.get.Status == 204 || o.get.Status == 205})
			}
		}
	}
	return others
}

// besides is another answer: when it came, when it was complete, and whether the page has
// nothing of it to show.
type besides struct {
	*asked
	head, end float64
	empty     bool
}

// nearTime is the longest time in ms between two answers that the page may show at the same
// time. It is called near in presses.js.
const nearTime = 100

func (g *gets) signal() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// underWay tells whether there is an unanswered request that somebody may have caused just now.
func (g *gets) underWay(now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, a := range g.open {
		if a.mayWrite && !a.document && now.Sub(a.at) < prompted && !a.leftUnread(now) {
			return true
		}
	}
	return false
}

// idle tells whether no document waits to be asked or looked at.
func (g *gets) idle(now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, a := range g.open {
		if a.leftUnread(now) {
			return g.over
		}
	}
	for _, a := range g.notices {
		if !a.from.IsZero() {
			return g.over
		}
	}
	return g.over || g.visiting == 0 && len(g.ask) == 0 && len(g.due) == 0
}

// visit is one document with the requests about which it has to be asked, or looked at.
type visit struct {
	session, frame string
	ask            []*asked
	look           *pageToLook
	notice         *asked
}

// all are the requests for which the document is looked at.
func (v *visit) all() iter.Seq[*asked] {
	return func(yield func(*asked) bool) {
		if v.look != nil {
			for _, a := range v.look.requests {
				if !yield(a) {
					return
				}
			}
		}
		if v.notice != nil {
			yield(v.notice)
		}
	}
}

// take returns the documents that have to be asked or looked at by now, and when the next one
// is due; zero if there is none. The caller calls visited for each of them. lost are the
// requests that cannot be judged.
func (g *gets) take(now time.Time) (visits []*visit, lost []*getWrite, next time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for key, a := range g.open {
		at := a.answered.Add(showTime)
		switch {
		case a.leftUnread(now):
			a.unread = true
			delete(g.open, key)
			lost = append(lost, one(g.toLook(a, a.answered))...)
		case a.mayWrite && !a.document && a.get.Status != 0 && now.Before(at) && (next.IsZero() || at.Before(next)):
			next = at
		}
	}
	byFrame := map[string]*visit{}
	of := func(session, frame string) *visit {
		if byFrame[frame] == nil {
			byFrame[frame] = &visit{session: session, frame: frame}
			visits = append(visits, byFrame[frame])
		}
		return byFrame[frame]
	}
	for frame, list := range g.ask {
		of(list[0].session, frame).ask = list
	}
	clear(g.ask)
	for frame, look := range g.due {
		switch {
		case !now.Before(look.from):
			of(look.session, frame).look = look
			delete(g.due, frame)
		case next.IsZero() || look.from.Before(next):
			next = look.from
		}
	}
	for frame, a := range g.notices {
		switch {
		case a.from.IsZero():
		case !now.Before(a.from):
			of(a.session, frame).notice = a
			delete(g.notices, frame)
		case next.IsZero() || a.from.Before(next):
			next = a.from
		}
	}
	for _, v := range visits {
		for a := range v.all() {
			g.looking[a] = true
		}
	}
	g.visiting += len(visits)
	return visits, lost, next
}

// visited says that one of the documents that take returned was asked and looked at.
func (g *gets) visited() {
	g.mu.Lock()
	g.visiting--
	g.mu.Unlock()
	g.signal()
}
