package monitor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/chromedp/cdproto/target"
)

// Clients are the connections of the session whose browser is cleared.
type Clients interface {
	// Detach ends the connections' browser sessions in Chrome. Until then, requests
	// that they intercept are failed.
	Detach()
}

const (
	// detachAfter is how long pages may take to close before the clients are detached. The
	// clients may be the reason why the pages do not close.
	detachAfter = time.Second
	// firstRecheck is the first pause between two questions about what no event reports
	// reliably: the end of a browser context, and the end of a target, which may still be
	// listed after its event. The pauses grow up to recheck.
	firstRecheck = 2 * time.Millisecond
	recheck      = 20 * time.Millisecond
)

// Clear closes everything that a session has open in the browser, except one empty tab.
// It opens that tab first, because Chrome would drop the session cookies with the last
// tab. The clients are detached late, so that the requests that they intercept are
// failed, and not sent, while pages close. ended is called when all pages are closed; it may
// kill their renderers, and that of the empty tab, which is then replaced by another one. In
// the end the monitor forgets everything about the session. Clear returns an error if the
// browser cannot be as it was started.
func (m *Monitor) Clear(ctx context.Context, clients Clients, ended func(context.Context) error) error {
	if method := m.chrome.mux.Acts().Lasting(); method != "" {
		return fmt.Errorf("the worker used %s, and what that sets stays until the browser ends", method)
	}
	m.Closing() // until forget
	if err := m.tabs.clear(ctx, clients, ended); err != nil {
		return err
	}
	if m.chrome.mux.Dropped() > 0 {
		return errors.New("the browser did not take all that watches its pages")
	}
	m.forget()
	return nil
}

// clear does what Clear does in the browser.
func (ts *Tabs) clear(ctx context.Context, clients Clients, ended func(context.Context) error) error {
	kept, err := ts.openKept(ctx)
	if err != nil {
		return err
	}
	early, cancel := context.WithTimeout(ctx, detachAfter)
	defer cancel()
	if err := ts.closeOthers(early, kept, isAnything); err != nil && ctx.Err() != nil {
		return err
	}
	clients.Detach()
	if err := ts.disposeContexts(ctx); err != nil {
		return err
	}
	if err := ts.closeOthers(ctx, kept, isAnything); err != nil {
		return err
	}
	if err := ended(ctx); err != nil {
		return err
	}
	if kept, err = ts.openKept(ctx); err != nil {
		return err
	}
	if err := ts.closeOthers(ctx, kept, isAnything); err != nil {
		return err
	}
	return ts.awaitOnly(ctx, kept)
}

// openKept opens the tab that stays when all others are closed, and returns its target.
func (ts *Tabs) openKept(ctx context.Context) (string, error) {
	var created target.CreateTargetResult
	err := ts.chrome.Call(ctx, "", target.CommandCreateTarget, map[string]any{"url": blankPage, "background": true}, &created)
	return string(created.TargetID), err
}

// ClosePages closes the pages of a browser whose session is over, and returns when they are
// closed. The pages run their handlers for the end, but not those that could keep them open.
// First an empty tab is opened, because Chrome would drop the session cookies with the last tab
// of the profile's own context, and an existing tab may already be closing. Closing has to be
// called before.
func (ts *Tabs) ClosePages(ctx context.Context) error {
	kept, err := ts.openKept(ctx)
	if err != nil {
		return err
	}
	return ts.closeOthers(ctx, kept, isPage)
}

// CloseStopped closes the pages of a browser without letting one of them run anything more, and
// returns when they are closed. stop stops the processes in which they run; Chrome then waits half
// a second for what the pages do at their end. Closing has to be called before.
func (ts *Tabs) CloseStopped(ctx context.Context, stop func() error) error {
	kept, err := ts.openKept(ctx) // these may be the last tabs
	if err == nil {
		err = stop()
	}
	if err != nil {
		return err
	}
	return ts.closeOthers(ctx, kept, isPage)
}

func isPage(t *target.Info) bool { return t.Type == typePage }

// isAnything is for callers that also close service workers and the pages of extensions.
func isAnything(*target.Info) bool { return true }

// Quiet returns an error if the browser is not as Clear left it. What happened in it before the
// call is then reported.
func (ts *Tabs) Quiet(ctx context.Context) error {
	others, empty, err := ts.others(ctx, ts.pages.kept())
	switch {
	case err != nil:
		return err
	case len(others) > 0:
		return fmt.Errorf("%s was opened", describe(others[0].Type, others[0].URL))
	case !empty:
		return errors.New("its tab is not as it was left")
	}
	return ts.outbox.await(ctx)
}

// others lists what is open in the browser besides the kept tab. empty says that the
// kept tab is there and empty.
func (ts *Tabs) others(ctx context.Context, kept string) (others []*target.Info, empty bool, err error) {
	targets, err := ts.Targets(ctx)
	if err != nil {
		return nil, false, err
	}
	for _, t := range targets {
		if string(t.TargetID) == kept {
			empty = t.URL == blankPage
		} else {
			others = append(others, t)
		}
	}
	return others, empty, nil
}

// closeOthers closes everything but the kept tab for which meant returns true, and waits until
// it is closed. The pages' beforeunload handlers are not run.
func (ts *Tabs) closeOthers(ctx context.Context, kept string, meant func(*target.Info) bool) error {
	asked := map[target.ID]bool{}
	for wait := firstRecheck; ; wait = min(2*wait, recheck) {
		changed := ts.backlog.progress.next()
		others, _, err := ts.others(ctx, kept)
		others = slices.DeleteFunc(others, func(t *target.Info) bool { return !meant(t) })
		if err != nil || len(others) == 0 {
			return err
		}
		for _, t := range others {
			// Frames and dedicated workers close with their pages.
			if !asked[t.TargetID] && t.Type != typeIframe && t.Type != typeWorker {
				ts.chrome.Post("", target.CommandCloseTarget, map[string]target.ID{"targetId": t.TargetID})
				ts.chrome.Leave(string(t.TargetID)) // otherwise a service worker would not end
			}
			asked[t.TargetID] = true
		}
		select {
		case <-changed:
		case <-time.After(wait):
		case <-ctx.Done():
			return fmt.Errorf("%s does not close: %w", describe(others[0].Type, others[0].URL), context.Cause(ctx))
		}
	}
}

// disposeContexts ends every browser context but the profile's own.
func (ts *Tabs) disposeContexts(ctx context.Context) error {
	wait := firstRecheck
	for first := true; ; first = false {
		var r target.GetBrowserContextsResult
		if err := ts.chrome.Call(ctx, "", target.CommandGetBrowserContexts, nil, &r); err != nil {
			return err
		}
		if len(r.BrowserContextIDs) == 0 {
			return nil
		}
		if first {
			for _, c := range r.BrowserContextIDs {
				// A context may already be ending with the connection that made it.
				_ = ts.chrome.Call(ctx, "", target.CommandDisposeBrowserContext, map[string]any{"browserContextId": c}, nil)
			}
			continue
		}
		select {
		case <-time.After(wait):
			wait = min(2*wait, recheck)
		case <-ctx.Done():
			return fmt.Errorf("a browser context stays: %w", context.Cause(ctx))
		}
	}
}

// awaitOnly returns when the kept tab is the only page that is watched, and everything that the
// other pages did is reported.
func (ts *Tabs) awaitOnly(ctx context.Context, kept string) error {
	err := ts.backlog.progress.await(ctx, func() bool { return ts.pages.keep(kept) && ts.backlog.empty() })
	if err == nil {
		err = ts.outbox.await(ctx)
	}
	if err != nil {
		return fmt.Errorf("the pages' ends were not all seen: %w", err)
	}
	return nil
}

// forget forgets everything about a session that is over.
func (m *Monitor) forget() {
	m.still.forget()
	m.log.forget()
	m.console.Forget()
	m.navigations.forget()
	m.chrome.mux.ForgetActs()
	m.answers.forget()
	m.talk.forget()
	m.cookies.watch.forget()
	m.gets.forget()
	m.pages.forget()
	m.typing.reportAgain()
	m.unreported.forget()
	m.unlogged.CompareAndSwap(unloggedReported, unlogged)
}
