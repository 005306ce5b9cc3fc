package monitor

import (
	"context"

	"github.com/chromedp/cdproto/target"

	"leasehold/lease"
)

// What is done to tabs in the name of a lease goes through its fence in the same step
// in which it is sent: a request that is held up over the end of its session cannot
// reach the browser of the next one. The error of a call that was refused wraps the
// fence's cause.

// OpenTab opens a tab and returns its target; url may be empty.
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

// OpenTabBehind opens an empty tab behind the others.
func (m *Monitor) OpenTabBehind(ctx context.Context, fence *lease.Fence) error {
	return m.observer.CallFenced(ctx, fence, "", target.CommandCreateTarget, map[string]any{"url": blankPage, "background": true}, nil)
}

// ActivateTab brings a tab to the front.
func (m *Monitor) ActivateTab(ctx context.Context, fence *lease.Fence, targetID string) error {
	return m.observer.CallFenced(ctx, fence, "", target.CommandActivateTarget, map[string]string{"targetId": targetID}, nil)
}

// CloseTab closes a tab.
func (m *Monitor) CloseTab(ctx context.Context, fence *lease.Fence, targetID string) error {
	return m.observer.CallFenced(ctx, fence, "", target.CommandCloseTarget, map[string]string{"targetId": targetID}, nil)
}
