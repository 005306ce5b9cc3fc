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
	// detachAfter is how long pages may take to close before the clients are detached.
	// The clients may be what keeps the pages from closing.
	detachAfter = time.Second
	// firstRecheck is the time between the first two questions about what no event reports
	// reliably: the end of a browser context, and that of a target, which may still be
	// listed after its event. It grows up to recheck.
	firstRecheck = 2 * time.Millisecond
	recheck      = 20 * time.Millisecond
)

// Clear closes everything that a session has open in the browser, except one empty tab.
// It opens that tab first, because Chrome would drop the session cookies with the last
// tab. The clients are detached late, so that the requests that they intercept are
// failed, and not sent, while pages close. In the end the monitor forgets everything
// about the session.
func (m *Monitor) Clear(ctx context.Context, clients Clients) error {
	m.Closing() // until forget
	kept, err := m.openKept(ctx)
	if err != nil {
		return err
	}
	early, cancel := context.WithTimeout(ctx, detachAfter)
	defer cancel()
	if err := m.closeOthers(early, kept, isAnything); err != nil && ctx.Err() != nil {
		return err
	}
	clients.Detach()
	if err := m.disposeContexts(ctx); err != nil {
		return err
	}
	if err := m.closeOthers(ctx, kept, isAnything); err != nil {
		return err
	}
	if err := m.awaitOnly(ctx, kept); err != nil {
		return err
	}
	if m.mux.Dropped() > 0 {
		return errors.New("the browser did not take all that watches its pages")
	}
	m.forget()
	return nil
}

// openKept opens the tab that stays when all others are closed, and returns its target.
func (m *Monitor) openKept(ctx context.Context) (string, error) {
	var created target.CreateTargetResult
	err := m.observer.Call(ctx, "", target.CommandCreateTarget, map[string]any{"url": blankPage, "background": true}, &created)
	return string(created.TargetID), err
}

// ClosePages closes the pages of a browser whose session is over, and returns when they are
// closed. Pages do what they do at their end, but are not asked whether they may be closed. An
// empty tab is opened first, because Chrome would drop the session cookies with the last one of
// the profile's own context; any that is there may be closing. Closing has to be called before.
func (m *Monitor) ClosePages(ctx context.Context) error {
	kept, err := m.openKept(ctx)
	if err != nil {
		return err
	}
	return m.closeOthers(ctx, kept, isPage)
}

// CloseUnloaded closes the tabs that wait for their first document, and returns when they are
// closed. Chromium 156 crashes as a whole when the renderer of one ends that owes a screenshot,
// and such a tab never draws one. They have nothing that could send something at their end.
func (m *Monitor) CloseUnloaded(ctx context.Context) error {
	m.mu.Lock()
	found := false
	for _, p := range m.pages {
		found = found || p.URL == ""
	}
	m.mu.Unlock()
	if !found {
		return nil
	}
	kept, err := m.openKept(ctx) // they may be the last ones
	if err != nil {
		return err
	}
	return m.closeOthers(ctx, kept, func(t *target.Info) bool { return isPage(t) && t.URL == "" })
}

func isPage(t *target.Info) bool { return t.Type == typePage }

// isAnything is for who closes service workers and extensions' own pages, too.
func isAnything(*target.Info) bool { return true }

// Quiet returns an error if the browser is not as Clear left it.
func (m *Monitor) Quiet(ctx context.Context) error {
	m.mu.Lock()
	kept := m.keptPage
	m.mu.Unlock()
	others, empty, err := m.others(ctx, kept)
	switch {
	case err != nil:
		return err
	case len(others) > 0:
		return fmt.Errorf("%s was opened", describe(others[0].Type, others[0].URL))
	case !empty:
		return errors.New("its tab is not as it was left")
	}
	return nil
}

// others lists what is open in the browser besides the kept tab. empty says that the
// kept tab is there and empty.
func (m *Monitor) others(ctx context.Context, kept string) (others []*target.Info, empty bool, err error) {
	targets, err := m.Targets(ctx)
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

// closeOthers closes what is meant of everything but the kept tab, and waits until it is closed.
// The pages' beforeunload handlers are not run.
func (m *Monitor) closeOthers(ctx context.Context, kept string, meant func(*target.Info) bool) error {
	asked := map[target.ID]bool{}
	for wait := firstRecheck; ; wait = min(2*wait, recheck) {
		changed := m.progress.next()
		others, _, err := m.others(ctx, kept)
		others = slices.DeleteFunc(others, func(t *target.Info) bool { return !meant(t) })
		if err != nil || len(others) == 0 {
			return err
		}
		for _, t := range others {
			// Frames and dedicated workers close with their pages.
			if !asked[t.TargetID] && t.Type != typeIframe && t.Type != typeWorker {
				m.observer.Post("", target.CommandCloseTarget, map[string]target.ID{"targetId": t.TargetID})
				m.observer.Leave(string(t.TargetID)) // a service worker would not end before
			}
			asked[t.TargetID] = true
		}
		select {
		case <-changed:
		case <-time.After(wait):
		case <-ctx.Done():
			return fmt.Errorf("%s does not close: %w", describe(others[0].Type, others[0].URL), ctx.Err())
		}
	}
}

// disposeContexts ends every browser context but the profile's own.
func (m *Monitor) disposeContexts(ctx context.Context) error {
	wait := firstRecheck
	for first := true; ; first = false {
		var r target.GetBrowserContextsResult
		if err := m.observer.Call(ctx, "", target.CommandGetBrowserContexts, nil, &r); err != nil {
			return err
		}
		if len(r.BrowserContextIDs) == 0 {
			return nil
		}
		if first {
			for _, c := range r.BrowserContextIDs {
				// A context may already be ending with the connection that made it.
				_ = m.observer.Call(ctx, "", target.CommandDisposeBrowserContext, map[string]any{"browserContextId": c}, nil)
			}
			continue
		}
		select {
		case <-time.After(wait):
			wait = min(2*wait, recheck)
		case <-ctx.Done():
			return fmt.Errorf("a browser context stays: %w", ctx.Err())
		}
	}
}

// awaitOnly returns when the kept tab is the only page that is watched, and everything
// that the others did is processed.
func (m *Monitor) awaitOnly(ctx context.Context, kept string) error {
	err := m.await(ctx, func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		if len(m.pages) != 1 || m.pages[kept] == nil {
			return false
		}
		m.keptPage = kept
		return m.pending.Load() == 0
	})
	if err != nil {
		return fmt.Errorf("the pages' ends were not all seen: %w", err)
	}
	return nil
}

// forget forgets everything about a session that is over.
func (m *Monitor) forget() {
	m.network.Forget()
	m.console.Forget()
	m.navigations.forget()
	m.mux.Forget()
	m.outcomes.forget()
	m.answers.forget()
	m.talk.forget()
	m.cookies.forget()
	m.gets.forget()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closing = 0
	clear(m.sent)
	clear(m.named)
	clear(m.sockets)
	clear(m.groups)
	clear(m.typed)
}
