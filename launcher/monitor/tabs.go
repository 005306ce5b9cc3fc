package monitor

import (
	"context"

	"github.com/chromedp/cdproto/target"

	"leasehold/lease"
)

// Tabs acts on the tabs of one browser: it opens, closes and lists them. It has no state and
// no lock of its own: which pages are open, and which one is kept, is known by pages.
type Tabs struct {
	chrome  *link
	pages   *pages
	backlog *backlog
	outbox  *outbox
}

func newTabs(chrome *link, ps *pages, b *backlog, o *outbox) *Tabs {
	return &Tabs{chrome: chrome, pages: ps, backlog: b, outbox: o}
}

// A command on a tab is sent in the same step in which the fence of its lease is checked. So a
// request that is delayed until its session has ended cannot reach the browser of the next
// session. If the fence refuses the command, the error wraps the fence's cause.

// Open opens a tab and returns its target. url may be empty.
func (ts *Tabs) Open(ctx context.Context, fence *lease.Fence, url string) (*target.Info, error) {
	if url == "" {
		url = blankPage
	}
	var created target.CreateTargetResult
	if err := ts.chrome.CallFenced(ctx, fence, "", target.CommandCreateTarget, map[string]string{"url": url}, &created); err != nil {
		return nil, err
	}
	return &target.Info{TargetID: created.TargetID, Type: typePage, URL: url}, nil
}

// OpenFirst opens an empty tab in a browser that has just started without one, and returns
// when it is watched. No lease has a session in it yet.
func (ts *Tabs) OpenFirst(ctx context.Context) error {
	if err := ts.chrome.Call(ctx, "", target.CommandCreateTarget, map[string]string{"url": blankPage}, nil); err != nil {
		return err
	}
	return ts.AwaitWatched(ctx)
}

// FitWindow gives the window of a browser that has one empty tab the size by which its page has so many
// CSS pixels.
func (ts *Tabs) FitWindow(ctx context.Context, width, height int) error {
	id, session, err := ts.pages.first()
	if err != nil {
		return err
	}
	var window struct {
		WindowID int                         `json:"windowId"`
		Bounds   struct{ Width, Height int } `json:"bounds"`
	}
	if err := ts.chrome.Call(ctx, "", "Browser.getWindowForTarget", map[string]string{"targetId": id}, &window); err != nil {
		return err
	}
	var now struct {
		CSSLayoutViewport struct{ ClientWidth, ClientHeight int } `json:"cssLayoutViewport"`
	}
	if err := ts.chrome.Call(ctx, session, "Page.getLayoutMetrics", nil, &now); err != nil {
		return err
	}
	wider, higher := width-now.CSSLayoutViewport.ClientWidth, height-now.CSSLayoutViewport.ClientHeight
	if wider == 0 && higher == 0 {
		return nil
	}
	return ts.chrome.Call(ctx, "", "Browser.setWindowBounds", map[string]any{
		"windowId": window.WindowID, "bounds": map[string]int{"width": window.Bounds.Width + wider, "height": window.Bounds.Height + higher},
	}, nil)
}

// OpenBehind opens an empty tab behind the others.
func (ts *Tabs) OpenBehind(ctx context.Context, fence *lease.Fence) error {
	return ts.chrome.CallFenced(ctx, fence, "", target.CommandCreateTarget, map[string]any{"url": blankPage, "background": true}, nil)
}

// Activate brings a tab to the front.
func (ts *Tabs) Activate(ctx context.Context, fence *lease.Fence, targetID string) error {
	err := ts.chrome.CallFenced(ctx, fence, "", target.CommandActivateTarget, map[string]string{"targetId": targetID}, nil)
	if err == nil {
		ts.chrome.mux.Acts().Activate(targetID)
	}
	return err
}

// Close closes a tab.
func (ts *Tabs) Close(ctx context.Context, fence *lease.Fence, targetID string) error {
	err := ts.chrome.CallFenced(ctx, fence, "", target.CommandCloseTarget, map[string]string{"targetId": targetID}, nil)
	if err == nil {
		ts.chrome.Leave(targetID) // otherwise a service worker would not end
	}
	return err
}
