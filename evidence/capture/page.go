package capture

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"leasehold/evidence"
	"leasehold/evidence/redact"
)

type pageCapture struct {
	caller Caller
	page   Page
	bundle *evidence.Bundle
	limits Limits
	number int // one-based number of the page, used in the names of parts
}

// capture adds the page's parts to the bundle, and returns what was found.
func (p pageCapture) capture(ctx context.Context) evidence.PageResult {
	r := evidence.PageResult{
		TargetID: p.page.TargetID, URL: p.page.URL, Title: p.page.Title,
		Dialog: redact.Clip(p.page.Dialog, 2000), Crashed: p.page.Crashed, Primary: p.page.Primary,
	}
	reason := obstacle(p.page, p.limits)
	switch {
	case p.number > p.limits.Pages:
		reason = fmt.Sprintf("not captured: only the first %d pages are", p.limits.Pages)
	case ctx.Err() != nil:
		reason = "not captured: the time for all pages was used up"
	case p.page.SessionID != "" && p.limits.Silent == "":
		p.locate(ctx, &r)
		if p.limits.Still && p.onItsWay(ctx) {
			p.page.Unseen = true
			reason = "the page was being loaded when its worker was lost, and had drawn nothing yet"
		}
	}
	r.URL, r.CommittedURL = redact.Clip(redact.URL(r.URL), 2000), redact.Clip(redact.URL(r.CommittedURL), 2000)

	// A page draws when its next frame is due. If nothing waits for the network, the rest is
	// requested meanwhile.
	var early *asked
	endLook := func(Page, []byte, string) {}
	beginLook := func() {
		if p.limits.Look != nil {
			endLook = p.limits.Look(ctx, p.number, p.page)
		}
	}
	var image, html []byte
	missing := reason
	if reason == "" {
		if !p.limits.Still {
			early = p.ask(ctx)
			beginLook()
		}
		image, missing, p.page.Undrawn = p.screenshot(ctx)
		if missing != "" && p.limits.Crashed != nil && p.limits.Crashed(p.page.TargetID) {
			p.page.Crashed, r.Crashed = true, true
			reason = obstacle(p.page, p.limits)
			missing = reason
		}
	}
	if early == nil {
		beginLook()
	}
	var looking sync.WaitGroup
	unseen := missing // this is changed below
	looking.Go(func() { endLook(p.page, image, unseen) })
	defer looking.Wait()
	r.Screenshot, r.Missing = p.add(fmt.Sprintf("screenshot-%d.jpg", p.number), evidence.KindScreenshot, "image/jpeg", image, missing)

	d := dom{hideTyped: unreadTitle}
	switch {
	case reason != "":
		early.drop()
	case missing != "" && !p.page.Undrawn:
		early.drop()
		missing = "not asked for: the page did not answer"
	default:
		var ok bool
		if d, ok = early.answer(); !ok {
			d = p.dom(ctx)
		}
		html, missing = d.html, d.missing
	}
	r.Title = d.hideTyped(r.Title)
	r.DOM, r.DOMMissing = p.add(fmt.Sprintf("dom-%d.html", p.number), evidence.KindDOM, "text/html; charset=utf-8", html, missing)
	r.Title = redact.Clip(redactTitle(r.Title), 500)
	return r
}

// asked is a DOM part that is requested while the page draws; nil: it is not requested.
type asked struct {
	stop  context.CancelFunc
	ended chan struct{}
	dom   dom
}

// ask requests the page's DOM part.
func (p pageCapture) ask(ctx context.Context) *asked {
	ctx, stop := context.WithCancel(ctx)
	a := &asked{stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(a.ended)
		a.dom = p.dom(ctx)
	}()
	return a
}

func (a *asked) drop() {
	if a != nil {
		a.stop()
		<-a.ended
	}
}

// answer returns the part. A failure does not count, since the page was asked before it was drawn:
// ok says whether there is a part; otherwise it has to be requested now.
func (a *asked) answer() (_ dom, ok bool) {
	if a == nil {
		return dom{}, false
	}
	defer a.stop()
	<-a.ended
	return a.dom, a.dom.missing == ""
}

// obstacle says why a page cannot answer, so that it need not be asked; empty if it can. Chrome
// does not reply while a dialog is open, nor without a renderer: a call would only wait until
// its time is up.
func obstacle(page Page, limits Limits) string {
	switch {
	case limits.Silent != "":
		return limits.Silent
	case page.Crashed:
		return "the page's renderer crashed"
	case page.Dialog != "":
		return "a dialog is open, and blocks the page; its text is in the manifest"
	case page.Type != "" && page.Type != "page" && page.Type != TypeOther:
		return "not a page but a target of type " + page.Type
	case page.SessionID == "":
		return "the observer is not attached to the page"
	}
	return ""
}

// add adds a part to the bundle, or the reason why it is missing. It returns the
// part's name or that reason.
func (p pageCapture) add(name, kind, mediaType string, content []byte, missing string) (part, reason string) {
	if missing == "" {
		err := p.bundle.Add(name, kind, mediaType, content)
		if err == nil {
			return name, ""
		}
		missing = err.Error()
	}
	p.bundle.AddMissing(name, kind, missing)
	return "", missing
}

// call is Caller.Call, bounded by the limit for one part.
func (p pageCapture) call(ctx context.Context, session, method string, params, result any) error {
	return Patiently(ctx, p.limits.Part, func(ctx context.Context) error {
		return p.caller.Call(ctx, session, method, params, result)
	})
}

// locate finds out where the page is. The browser process answers both questions, even if the
// page is busy.
func (p pageCapture) locate(ctx context.Context, r *evidence.PageResult) {
	var target struct {
		TargetInfo struct {
			URL   string `json:"url"`
			Title string `json:"title"`
		} `json:"targetInfo"`
	}
	if p.call(ctx, "", "Target.getTargetInfo", map[string]any{"targetId": p.page.TargetID}, &target) == nil {
		r.URL, r.Title = target.TargetInfo.URL, target.TargetInfo.Title
	}
	var history struct {
		CurrentIndex int `json:"currentIndex"`
		Entries      []struct {
			URL string `json:"url"`
		} `json:"entries"`
	}
	if p.call(ctx, p.page.SessionID, "Page.getNavigationHistory", nil, &history) == nil &&
		history.CurrentIndex >= 0 && history.CurrentIndex < len(history.Entries) {
		r.CommittedURL = history.Entries[history.CurrentIndex].URL
	}
}

// answerTime is how long a page of a browser that stands still may take to say how far it has
// come, in time that the host gives (Patience). A page that waits for the network may not answer at all.
const answerTime = 300 * time.Millisecond

// stoppedUnpainted is an expression that tells whether a page whose loading was stopped had drawn
// nothing by then. Its readyState is "complete" in any case, but the load event of a document that
// was stopped never comes.
const stoppedUnpainted = `!performance.getEntriesByType("paint").length && location.href != "about:blank" &&
	!performance.getEntriesByType("navigation").some((n) => n.loadEventStart)`

// onItsWay tells whether a page has drawn nothing yet because its browser stands still. It
// stops the loading, for which the page would wait for ever.
func (p pageCapture) onItsWay(ctx context.Context) bool {
	says := func(expression string) (yes bool, err error) {
		err = Patiently(ctx, answerTime, func(ctx context.Context) (err error) {
			yes, err = says(ctx, p.caller, p.page.SessionID, expression)
			return err
		})
		return yes, err
	}
	onItsWay, err := says(unpainted)
	if err == nil && !onItsWay && !p.page.Leaving {
		return false
	}
	_ = p.call(ctx, p.page.SessionID, "Page.stopLoading", nil, nil) // if this fails, the page does not answer, which is noted
	if err != nil {
		// Now the page may answer, and is complete as far as it has come.
		onItsWay, _ = says(stoppedUnpainted)
	}
	return onItsWay
}

// redactTitle redacts a title that is the page's URL without its scheme. Chrome shows that if a
// page has no title of its own.
func redactTitle(title string) string {
	switch {
	case strings.HasPrefix(title, "data:"):
		return redact.URL(title)
	case strings.ContainsAny(title, " \t\n") || !strings.ContainsAny(title, "?#"):
		return title
	}
	return strings.TrimPrefix(redact.URL("http://"+title), "http://")
}
