// Package capture asks a browser, through a Caller, what its pages show: screenshots and DOM
// snapshots of all pages for a bundle of evidence, and single pictures of a living session.
//
// No DOM part contains what is in a page's fields or was typed into the page. Typed text of
// fewer than four characters is left out of its field, but not searched for elsewhere. A
// screenshot shows what the screen shows.
package capture

import (
	"context"
	"sync"
	"time"

	"leasehold/evidence"
)

// Caller sends CDP commands, with the session "" to the observer's own browser
// session, and decodes their results. It returns when ctx ends, answered or not.
type Caller interface {
	Call(ctx context.Context, sessionID, method string, params, result any) error
}

// TypeOther is the type of a page in no window.
const TypeOther = "other"

// Page is what the observer knows of a target before it is captured.
type Page struct {
	TargetID string
	// SessionID is the observer's session on the target; empty if it has none.
	SessionID string
	Type      string // as Chrome names it: page, iframe, TypeOther, ...
	// URL is empty for a tab that waits for its first document.
	URL   string
	Title string
	// Dialog is the text of the open dialog; empty if there is none.
	Dialog string
	// DialogNumber tells the open dialog from all others of the browser.
	DialogNumber uint64
	Crashed      bool
	// Primary marks the page that was used last.
	Primary bool
	// Leaving says that the page is navigating to another document.
	Leaving bool
	// Unseen says that the page is being loaded and was never visible: it has not drawn
	// anything yet, and will not. The capture finds this out.
	Unseen bool
	// Undrawn says that the page answers, but Chrome gives no image of it. The capture finds
	// this out.
	Undrawn bool
}

// Limits bound a capture. Zero values are the defaults.
type Limits struct {
	Part     time.Duration // for one answer of one page, in time that the host gives (Patience); 1.5 s
	Total    time.Duration // for all pages, counted in the same way; 10 s
	Pages    int           // how many pages are captured; 64
	Parallel int           // how many at the same time; 4
	DOMBytes int           // size of one page's DOM part; 2 MiB
	// Still says that nothing comes from the network any more. A page that is being loaded, or
	// is navigating to another document, would neither draw nor answer until the document is
	// there. So its loading is stopped, after it is known where it was going.
	Still bool
	// LeaveBusy leaves a page alone that is too busy to draw, since somebody else is using it.
	// Otherwise its running script is terminated.
	LeaveBusy bool
	// Free frees pages whose scripts wait for an answer of the network, which never comes in a browser
	// that stands still; nil: that cannot be. It is called if a page's script cannot be terminated.
	Free func(ctx context.Context) error
	// Look is called for each page, and begins to look at it; it may be nil. number is the
	// page's number, from one on. The returned function is called once and ends the look: with
	// the page as it was found when it was drawn, and its screenshot, or the reason why there
	// is none.
	Look func(ctx context.Context, number int, page Page) (end func(page Page, image []byte, missing string))
	// Crashed tells whether a page's renderer has crashed by now; it may be nil. It is asked
	// about a page that did not answer: on a busy host Chrome reports a crash late.
	Crashed func(targetID string) bool
	// Silent says why the browser as a whole does not answer; it may be empty. Then no page is
	// asked, and this is the reason of each missing part.
	Silent string
}

func (l Limits) orDefaults() Limits {
	setDefault(&l.Part, 1500*time.Millisecond)
	setDefault(&l.Total, 10*time.Second)
	setDefault(&l.Pages, 64)
	setDefault(&l.Parallel, 4)
	setDefault(&l.DOMBytes, 2<<20)
	return l
}

func setDefault[T ~int | ~int64](v *T, value T) {
	if *v <= 0 {
		*v = value
	}
}

// Pages adds screenshots and DOM snapshots of the pages to the bundle, and names them in its
// manifest. It changes nothing on a page that answers. The running script of a page that does
// not draw is terminated, so that the page can be seen, unless limits.LeaveBusy is set. What
// could not be captured is a missing part with the reason. The results are in the order of
// pages. When Pages returns, everything that it started has ended.
func Pages(ctx context.Context, c Caller, pages []Page, b *evidence.Bundle, limits Limits) []evidence.PageResult {
	limits = limits.orDefaults()
	ctx, cancel := Patience(ctx, limits.Total)
	defer cancel()
	results := make([]evidence.PageResult, len(pages))
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(limits.Parallel, len(pages)) {
		workers.Go(func() {
			for i := range next {
				p := pageCapture{caller: c, page: pages[i], bundle: b, limits: limits, number: i + 1}
				results[i] = p.capture(ctx)
			}
		})
	}
	for i := range pages {
		next <- i
	}
	close(next)
	workers.Wait()
	b.SetPages(results)
	return results
}
