package monitor

import (
	"context"

	"github.com/chromedp/cdproto/target"

	"leasehold/lease"
)

// A command on a tab is sent in the same step in which the fence of its lease is
// checked. So a request that is delayed until its session has ended cannot reach the
// browser of the next session. If the fence refuses it, the error wraps the fence's
// cause.

// OpenTab opens a tab and returns its target. url may be empty.
func (m *Monitor) OpenTab(ctx context.Context, fence *lease.Fence, url string) (*target.Info, error) {
	if url == "" {
		url = blankPage
	}
	var created target.CreateTargetResult
	if err := m.observer.CallFenced(ctx, fence, "", target.CommandCreateTarget, map[string]string{"url": url}, &created); err != nil {
		return nil, err
	}
	return &target.Info{TargetID: created.TargetID, Type: typePage, URL: url}, nil
}

// OpenFirstTab opens an empty tab in a browser that has just started without one, and returns
// when it is watched. No lease has a session in it yet.
func (m *Monitor) OpenFirstTab(ctx context.Context) error {
	if err := m.observer.Call(ctx, "", target.CommandCreateTarget, map[string]string{"url": blankPage}, nil); err != nil {
		return err
	}
	return m.AwaitPages(ctx)
}

// OpenTabBehind opens an empty tab behind the others.
func (m *Monitor) OpenTabBehind(ctx context.Context, fence *lease.Fence) error {
	return m.observer.CallFenced(ctx, fence, "", target.CommandCreateTarget, map[string]any{"url": blankPage, "background": true}, nil)
}

// ActivateTab brings a tab to the front.
func (m *Monitor) ActivateTab(ctx context.Context, fence *lease.Fence, targetID string) error {
	err := m.observer.CallFenced(ctx, fence, "", target.CommandActivateTarget, map[string]string{"targetId": targetID}, nil)
	if err == nil {
		m.mux.NoteActivated(targetID)
	}
	return err
}

// CloseTab closes a tab.
func (m *Monitor) CloseTab(ctx context.Context, fence *lease.Fence, targetID string) error {
	err := m.observer.CallFenced(ctx, fence, "", target.CommandCloseTarget, map[string]string{"targetId": targetID}, nil)
	if err == nil {
		m.observer.Leave(targetID) // a service worker would not end before
	}
	return err
}
