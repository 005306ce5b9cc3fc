package monitor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/chromedp/cdproto/target"
)

// Clients are the connections of a session whose browser is cleared.
type Clients interface {
	// AwaitEnd returns when the end of every connection was reported.
	AwaitEnd(ctx context.Context) error
	// Detach ends their browser sessions. What they intercepted was failed as long
	// as they were there.
	Detach()
}

const (
	// detachAfter is when clients are detached from pages that do not close, since
	// those clients may be what holds the pages.
	detachAfter = time.Second
	// recheck is the time between two looks at what no event may tell of: the end of
	// a browser context, and a target that is still listed when its end is told.
	recheck = 20 * time.Millisecond
)

// Clear closes everything that a session has open in the browser but one empty tab,
// which it opens first: with the last tab Chrome would drop the session cookies. The
// clients are detached last, since what they intercepted is failed for as long as
// there is a page that could ask for it. Then it forgets all of the session.
func (m *Monitor) Clear(ctx context.Context, clients Clients) error {
	m.Closing() // until forget
	var created target.CreateTargetResult
	err := m.observer.Call(ctx, "", target.CommandCreateTarget, map[string]any{"url": blankPage, "background": true}, &created)
	if err != nil {
		return err
	}
	kept := string(created.TargetID)
	if err := clients.AwaitEnd(ctx); err != nil {
		return fmt.Errorf("connections do not end: %w", err)
	}
	early, cancel := context.WithTimeout(ctx, detachAfter)
	defer cancel()
	if err := m.closeOthers(early, kept); err != nil && ctx.Err() != nil {
		return err
	}
	clients.Detach()
	if err := m.disposeContexts(ctx); err != nil {
		return err
	}
	if err := m.closeOthers(ctx, kept); err != nil {
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

// Quiet returns an error where the browser is not as Clear left it.
func (m *Monitor) Quiet(ctx context.Context) error {
	m.mu.Lock()
	kept := m.kept
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

// others lists what is open in the browser besides the tab that is kept, and tells
// whether that tab is there and empty.
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

// closeOthers closes everything but the tab that is kept, and waits until it is gone.
// No page is asked whether it wants to be left.
func (m *Monitor) closeOthers(ctx context.Context, kept string) error {
	asked := map[target.ID]bool{}
	for {
		changed := m.progress.next()
		others, _, err := m.others(ctx, kept)
		if err != nil || len(others) == 0 {
			return err
		}
		for _, t := range others {
			// Frames and dedicated workers close with their pages.
			if !asked[t.TargetID] && t.Type != typeIframe && t.Type != typeWorker {
				m.observer.Post("", target.CommandCloseTarget, map[string]target.ID{"targetId": t.TargetID})
			}
			asked[t.TargetID] = true
		}
		select {
		case <-changed:
		case <-time.After(recheck):
		case <-ctx.Done():
			return fmt.Errorf("%s does not close: %w", describe(others[0].Type, others[0].URL), ctx.Err())
		}
	}
}

// disposeContexts ends every browser context but the profile's own.
func (m *Monitor) disposeContexts(ctx context.Context) error {
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
				// One may be ending already, with the connection that made it.
				_ = m.observer.Call(ctx, "", target.CommandDisposeBrowserContext, map[string]any{"browserContextId": c}, nil)
			}
			continue
		}
		select {
		case <-time.After(recheck):
		case <-ctx.Done():
			return fmt.Errorf("a browser context stays: %w", ctx.Err())
		}
	}
}

// awaitOnly returns when the tab that is kept is the only page that is watched, and
// everything that was reported of the others is processed.
func (m *Monitor) awaitOnly(ctx context.Context, kept string) error {
	err := m.await(ctx, func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		if len(m.pages) != 1 || m.pages[kept] == nil {
			return false
		}
		m.kept = kept
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
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closing = 0
	clear(m.sent)
	clear(m.sockets)
	clear(m.groups)
}
