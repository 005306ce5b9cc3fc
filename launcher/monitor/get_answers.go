package monitor

import (
	"slices"
	"strconv"
	"strings"
	"time"

	cdppage "github.com/chromedp/cdproto/page"

	"leasehold/cdpproxy"
	"leasehold/internal/boottime"
	"leasehold/launcher/recovery/decision"
)

// answered takes in the answer to a request, and judges a document's. The caller holds
// g.mu.
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
		a.done, a.bytes = a.offset+r.Timestamp*1e3, -1
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

// judge judges a document's request. A frame's first document comes with its page, and
// what a page goes to by itself was caused by nobody. The caller holds g.mu.
func (g *gets) judge(a *asked, now time.Time) *getWrite {
	n, byPage := g.requested[a.frame]
	delete(g.requested, a.frame)
	byPage = byPage && n.url == a.get.Asked
	opened, isPage := g.pages[a.frame]
	acted := boottime.Now()-g.acted() < boottime.Instant(prompted)
	switch {
	case !isPage && a.get.From == "", byPage && (!acted || slices.Contains(byItself, n.reason)):
		return nil
	}
	// What is no page is fetched to be kept: a download.
	if a.get.Status == 200 && !strings.Contains(a.mime, "html") {
		return nil
	}
	a.get.Commanded = !byPage && !opened
	a.get.Form = byPage && n.reason == string(cdppage.ClientNavigationReasonFormSubmissionGet)
	a.get.Shown = g.known[a.get.Final]
	if sign := a.get.Sign(); sign != "" {
		return &getWrite{asked: a, sign: sign}
	}
	if isPage && a.get.Status == 200 && a.mime == "text/html" && decision.Keyed(a.get.Final) {
		remember(g.due, a.frame, &pageToLook{session: a.session, frame: a.frame, from: now.Add(showTime), document: a})
		g.signal()
	}
	return nil
}

// byItself are the reasons of navigations that nobody caused by pressing anything.
var byItself = []string{
	string(cdppage.ClientNavigationReasonMetaTagRefresh), string(cdppage.ClientNavigationReasonHTTPHeaderRefresh), string(cdppage.ClientNavigationReasonReload),
}

// finished takes in that an answer is complete, or that there is none. The caller holds
// g.mu.
func (g *gets) finished(event cdpproxy.Event, now time.Time) {
	key := [2]string{event.Session, requestID(event.Params)}
	a := g.open[key]
	if a == nil {
		return
	}
	delete(g.open, key)
	var r struct {
		Timestamp float64 `json:"timestamp"`
		Length    float64 `json:"encodedDataLength"`
	}
	if !decode(event, &r) || a.document {
		return
	}
	a.done, a.bytes = a.offset+r.Timestamp*1e3, int(r.Length)
	if s := g.scripts[a.loader]; s != nil {
		s.done = append(s.done, a.done)
		s.done = s.done[max(0, len(s.done)-maxDone):]
	}
	g.toLook(a, now)
}

// toLook has a script's GET judged by what becomes of its page. The caller holds g.mu.
func (g *gets) toLook(a *asked, now time.Time) {
	if !a.mayWrite || a.get.Status == 0 || slices.ContainsFunc(parts, func(mime string) bool { return strings.Contains(a.mime, mime) }) {
		return
	}
	look := g.due[a.frame]
	if look == nil {
		look = &pageToLook{session: a.session, frame: a.frame}
		remember(g.due, a.frame, look)
	}
	if len(look.requests) < maxToLook {
		look.requests = append(look.requests, a)
	}
	look.from = now.Add(showTime)
	g.signal()
}

// leftUnread tells whether a page has had time to read a short answer, and did not. Chrome
// does not report such an answer as complete. The caller holds the mu of gets.
func (a *asked) leftUnread(now time.Time) bool {
	return a.mayWrite && !a.document && a.get.Status != 0 && a.bytes >= 0 && a.bytes <= maxAnswer && now.Sub(a.answered) >= showTime
}

// parts are what documents are made of, which only reads.
var parts = []string{"image/", "text/css", "javascript", "font", "video/", "audio/"}

// after is when the next answer to a script of the same document came, in ms; 0 if none
// did.
func (g *gets) after(a *asked) float64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	next := 0.0
	if s := g.scripts[a.loader]; s != nil {
		for _, done := range s.done {
			if done > a.done && (next == 0 || done < next) {
				next = done
			}
		}
	}
	return next
}

func (g *gets) signal() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// underWay tells whether there is a request that somebody may just have caused, and that
// is not answered yet.
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

// take returns the documents that have to be looked at by now, or all of them, and when
// the next one is to be; zero if there is none.
func (g *gets) take(now time.Time, all bool) (looks []*pageToLook, next time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for key, a := range g.open {
		at := a.answered.Add(showTime)
		switch {
		case a.leftUnread(now):
			a.unread = true
			delete(g.open, key)
			g.toLook(a, a.answered)
		case a.mayWrite && !a.document && a.get.Status != 0 && now.Before(at) && (next.IsZero() || at.Before(next)):
			next = at
		}
	}
	for frame, look := range g.due {
		switch {
		case all || !now.Before(look.from):
			looks = append(looks, look)
			delete(g.due, frame)
		case next.IsZero() || look.from.Before(next):
			next = look.from
		}
	}
	return looks, next
}
