package evidence

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"leasehold/evidence/redact"
)

// Caller sends CDP commands, with the session "" to the observer's own browser
// session, and decodes their results. It returns when ctx ends, answered or not.
type Caller interface {
	Call(ctx context.Context, sessionID, method string, params, result any) error
}

// Page is what the observer knows of a target before it is captured.
type Page struct {
	TargetID string
	// SessionID is the observer's session on the target; empty if it has none.
	SessionID string
	Type      string // as Chrome names it: page, iframe, ...
	URL       string
	Title     string
	// Dialog is the text of the dialog that is open; empty if none is.
	Dialog  string
	Crashed bool
	// Primary marks the page that was used last.
	Primary bool
}

// Limits bound a capture. Zero values are the defaults.
type Limits struct {
	Part     time.Duration // for one part of one page; 1.5 s
	Total    time.Duration // for all pages; 10 s
	Pages    int           // how many pages are captured; 64
	Parallel int           // how many at the same time; 4
	DOMBytes int           // size of one page's DOM part; 2 MiB
	// LeaveBusy leaves a page that is too busy to draw as it is: somebody else is
	// using it.
	LeaveBusy bool
	// Silent says why the browser as a whole answers nothing: no page is asked then.
	Silent string
}

func (l Limits) orDefaults() Limits {
	set(&l.Part, 1500*time.Millisecond)
	set(&l.Total, 10*time.Second)
	set(&l.Pages, 64)
	set(&l.Parallel, 4)
	set(&l.DOMBytes, 2<<20)
	return l
}

func set[T ~int | ~int64](v *T, otherwise T) {
	if *v <= 0 {
		*v = otherwise
	}
}

// Capture adds screenshots and DOM snapshots of the pages to the bundle, and the
// results to its manifest. It changes nothing on a page that answers; one that
// does not has its running script terminated, so that it can be seen, unless the
// limits say to leave it. What cannot
// be had is a missing part with the reason. Results are in the order of pages; it
// returns when everything it started has ended.
func Capture(ctx context.Context, c Caller, pages []Page, b *Bundle, limits Limits) []PageResult {
	limits = limits.orDefaults()
	ctx, cancel := context.WithTimeout(ctx, limits.Total)
	defer cancel()
	results := make([]PageResult, len(pages))
	next := make(chan int)
	var running sync.WaitGroup
	for range min(limits.Parallel, len(pages)) {
		running.Go(func() {
			for i := range next {
				s := shot{c: c, page: pages[i], b: b, limits: limits, n: i + 1}
				results[i] = s.take(ctx, i < limits.Pages)
			}
		})
	}
	for i := range pages {
		next <- i
	}
	close(next)
	running.Wait()
	b.SetPages(results)
	return results
}

// shot captures one page.
type shot struct {
	c      Caller
	page   Page
	b      *Bundle
	limits Limits
	n      int // one-based place among the pages, in the parts' names
}

func (s shot) take(ctx context.Context, wanted bool) PageResult {
	r := PageResult{
		TargetID: s.page.TargetID, URL: s.page.URL, Title: s.page.Title,
		Dialog: redact.Clip(s.page.Dialog, 2000), Crashed: s.page.Crashed, Primary: s.page.Primary,
	}
	why := s.obstacle()
	switch {
	case !wanted:
		why = fmt.Sprintf("not captured: only the first %d pages are", s.limits.Pages)
	case ctx.Err() != nil:
		why = "not captured: the time for all pages was used up"
	case s.page.SessionID != "" && s.limits.Silent == "":
		s.locate(ctx, &r)
	}
	r.URL, r.CommittedURL = redact.Clip(redact.URL(r.URL), 2000), redact.Clip(redact.URL(r.CommittedURL), 2000)

	name := fmt.Sprintf("screenshot-%d.jpg", s.n)
	image, missing := []byte(nil), why
	if why == "" {
		image, missing = s.screenshot(ctx)
	}
	r.Screenshot, r.Missing = s.keep(name, KindScreenshot, "image/jpeg", image, missing)

	name = fmt.Sprintf("dom-%d.html", s.n)
	var dom []byte
	switch {
	case why != "":
		missing = why
	case missing != "":
		missing = "not asked for: the page did not answer"
	default:
		var typed func(string) string
		if dom, typed, missing = s.dom(ctx); typed != nil {
			r.Title = typed(r.Title)
		}
	}
	r.DOM, r.DOMMissing = s.keep(name, KindDOM, "text/html; charset=utf-8", dom, missing)
	r.Title = redact.Clip(redactTitle(r.Title), 500)
	return r
}

// obstacle says why a page cannot answer; asking would only wait. Measured:
// neither with a dialog open nor without a renderer does Chrome reply.
func (s shot) obstacle() string {
	switch {
	case s.limits.Silent != "":
		return s.limits.Silent
	case s.page.Crashed:
		return "the page's renderer crashed"
	case s.page.Dialog != "":
		return "a dialog is open, and blocks the page; its text is in the manifest"
	case s.page.Type != "" && s.page.Type != "page":
		return "not a page but a target of type " + s.page.Type
	case s.page.SessionID == "":
		return "the observer is not attached to the page"
	}
	return ""
}

// keep adds a part, or why it is missing, and returns its name or that reason.
func (s shot) keep(name, kind, mediaType string, content []byte, missing string) (part, why string) {
	if missing == "" {
		err := s.b.Add(name, kind, mediaType, content)
		if err == nil {
			return name, ""
		}
		missing = err.Error()
	}
	s.b.AddMissing(name, kind, missing)
	return "", missing
}

func (s shot) call(ctx context.Context, session, method string, params, result any) error {
	ctx, cancel := context.WithTimeout(ctx, s.limits.Part)
	defer cancel()
	return s.c.Call(ctx, session, method, params, result)
}

// locate asks the browser process, which answers whatever the page does.
func (s shot) locate(ctx context.Context, r *PageResult) {
	var target struct {
		TargetInfo struct {
			URL   string `json:"url"`
			Title string `json:"title"`
		} `json:"targetInfo"`
	}
	if s.call(ctx, "", "Target.getTargetInfo", map[string]any{"targetId": s.page.TargetID}, &target) == nil {
		r.URL, r.Title = target.TargetInfo.URL, target.TargetInfo.Title
	}
	var history struct {
		CurrentIndex int `json:"currentIndex"`
		Entries      []struct {
			URL string `json:"url"`
		} `json:"entries"`
	}
	if s.call(ctx, s.page.SessionID, "Page.getNavigationHistory", nil, &history) == nil &&
		history.CurrentIndex >= 0 && history.CurrentIndex < len(history.Entries) {
		r.CommittedURL = history.Entries[history.CurrentIndex].URL
	}
}

// How often, and how soon again, Chrome is asked for a picture that it refused.
const (
	drawTries = 3
	drawPause = 50 * time.Millisecond
)

// screenshot returns a JPEG of what the page shows. A page that is too busy to
// draw has its script terminated and gets a second chance.
// So has one that Chrome refuses to draw: it does so for a moment while a dialog
// opens or a frame is swapped.
func (s shot) screenshot(ctx context.Context) (image []byte, missing string) {
	image, err := s.draw(ctx)
	for tries := 1; tries < drawTries && err != nil && ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded); tries++ {
		time.Sleep(drawPause)
		image, err = s.draw(ctx)
	}
	if err == nil {
		return image, ""
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		return nil, "Chrome gave no screenshot: " + err.Error()
	}
	missing = fmt.Sprintf("the page drew nothing within %v", s.limits.Part)
	if s.limits.LeaveBusy {
		return nil, missing
	}
	if err := s.call(ctx, s.page.SessionID, "Runtime.terminateExecution", nil, nil); err != nil {
		return nil, missing + ", and its script could not be terminated: " + err.Error()
	}
	if image, err = s.draw(ctx); err != nil {
		return nil, missing + ", nor after its script was terminated: " + err.Error()
	}
	return image, ""
}

func (s shot) draw(ctx context.Context) ([]byte, error) {
	var r struct {
		Data []byte `json:"data"`
	}
	// Neither a clip nor captureBeyondViewport: both fire resize in the page.
	params := map[string]any{"format": "jpeg", "quality": 70}
	if err := s.call(ctx, s.page.SessionID, "Page.captureScreenshot", params, &r); err != nil {
		return nil, err
	}
	if len(r.Data) == 0 {
		return nil, errors.New("the image is empty")
	}
	return r.Data, nil
}

// dom returns a redacted snapshot, and what takes typed text out of the title.
func (s shot) dom(ctx context.Context) (content []byte, typed func(string) string, missing string) {
	var snap snapshot
	frames, why, err := s.large(ctx)
	switch {
	case err != nil:
	case why != "":
		snap, err = s.beginning(ctx, frames)
		snap.why = why
	default:
		params := map[string]any{"computedStyles": []string{editableStyle}}
		err = s.call(ctx, s.page.SessionID, "DOMSnapshot.captureSnapshot", params, &snap)
	}
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			return nil, nil, fmt.Sprintf("the page did not answer within %v", s.limits.Part)
		}
		return nil, nil, "Chrome gave no snapshot: " + err.Error()
	}
	if len(snap.Documents) == 0 {
		return nil, nil, "the snapshot is empty"
	}
	html, scrub := snap.redact(s.limits.DOMBytes)
	if snap.bare {
		return []byte(html), func(string) string { return redact.Mark }, ""
	}
	return []byte(html), scrub.Replace, ""
}

// redactTitle redacts a title that is the page's URL without its scheme: what
// Chrome shows where a page has none of its own.
func redactTitle(title string) string {
	switch {
	case strings.HasPrefix(title, "data:"):
		return redact.URL(title)
	case strings.ContainsAny(title, " \t\n") || !strings.ContainsAny(title, "?#"):
		return title
	}
	return strings.TrimPrefix(redact.URL("http://"+title), "http://")
}
