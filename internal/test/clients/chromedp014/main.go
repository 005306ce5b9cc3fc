// Command chromedp014 is a worker that uses chromedp 0.14. It is a module of its own,
// because one build cannot contain that version and the one that the other tests use:
//
//	chromedp014 URL SITE DIR
//
// It performs these actions, and prints a line in the form of actions.mjs after each:
// connect, goto, click, evaluate, screenshot, intercept, download, newContext, lease,
// refused, close. It ends after one that fails. SITE is the test's web site, DIR is for
// files.
package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/fetch"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
)

func main() {
	url, site, dir := os.Args[1], os.Args[2], os.Args[3]
	allocator, stop := chromedp.NewRemoteAllocator(context.Background(), url)
	defer stop()
	ctx, cancel := chromedp.NewContext(allocator, chromedp.WithBrowserOption(chromedp.WithDialTimeout(0)))
	defer cancel()
	ctx, timeout := context.WithTimeout(ctx, time.Minute)
	defer timeout()

	do := func(action string, what func() (any, error)) {
		value, err := what()
		line := map[string]any{"action": action, "ok": err == nil, "value": value}
		if err != nil {
			line["error"] = err.Error()
		}
		if err := json.NewEncoder(os.Stdout).Encode(line); err != nil || line["ok"] == false {
			os.Exit(1)
		}
	}
	run := func(actions ...chromedp.Action) func() (any, error) {
		return func() (any, error) { return nil, chromedp.Run(ctx, actions...) }
	}

	do("connect", run())
	do("goto", run(chromedp.Navigate(site+"/form")))
	do("click", run(chromedp.Click("#go"), chromedp.WaitVisible("#clicked")))
	do("evaluate", func() (title any, err error) {
		return title, chromedp.Run(ctx, chromedp.Evaluate("document.title", &title))
	})
	do("screenshot", func() (any, error) {
		var picture []byte
		if err := chromedp.Run(ctx, chromedp.CaptureScreenshot(&picture)); err != nil {
			return nil, err
		}
		return nil, os.WriteFile(filepath.Join(dir, "shot.png"), picture, 0o600)
	})
	do("intercept", func() (text any, err error) {
		chromedp.ListenTarget(ctx, func(event any) {
			if e, ok := event.(*fetch.EventRequestPaused); ok {
				go func() {
					body := base64.StdEncoding.EncodeToString([]byte("intercepted"))
					_ = chromedp.Run(ctx, fetch.FulfillRequest(e.RequestID, 200).WithBody(body)) // the page shows the answer
				}()
			}
		})
		await := func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }
		return text, chromedp.Run(ctx,
			fetch.Enable().WithPatterns([]*fetch.RequestPattern{{URLPattern: "*/api*"}}),
			chromedp.Evaluate("fetch('/api').then((r) => r.text())", &text, await))
	})
	do("download", func() (any, error) {
		done := make(chan error, 1)
		chromedp.ListenTarget(ctx, func(event any) {
			if e, ok := event.(*browser.EventDownloadProgress); ok {
				switch e.State {
				case browser.DownloadProgressStateCompleted:
					done <- nil
				case browser.DownloadProgressStateCanceled:
					done <- errors.New("canceled")
				}
			}
		})
		if err := chromedp.Run(ctx,
			browser.SetDownloadBehavior(browser.SetDownloadBehaviorBehaviorAllow).WithDownloadPath(dir).WithEventsEnabled(true),
			chromedp.Click("#file"),
		); err != nil {
			return nil, err
		}
		select {
		case err := <-done:
			return nil, err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	do("newContext", func() (text any, err error) {
		// This is WithNewBrowserContext with a window for the tab. Without a window
		// today's Chrome answers "no browser is open", also on a port of its own.
		var id target.ID
		if err := chromedp.Run(ctx, chromedp.ActionFunc(func(ctx context.Context) error {
			ctx = cdp.WithExecutor(ctx, chromedp.FromContext(ctx).Browser)
			second, err := target.CreateBrowserContext().Do(ctx)
			if err != nil {
				return err
			}
			id, err = target.CreateTarget("about:blank").WithBrowserContextID(second).WithNewWindow(true).Do(ctx)
			return err
		})); err != nil {
			return nil, err
		}
		other, cancel := chromedp.NewContext(ctx, chromedp.WithTargetID(id))
		defer cancel()
		return text, chromedp.Run(other, chromedp.Navigate(site+"/form"), chromedp.Evaluate("document.cookie", &text))
	})
	do("lease", func() (lease any, err error) {
		return lease, chromedp.Run(ctx, chromedp.ActionFunc(func(ctx context.Context) error {
			return cdp.Execute(ctx, "Lease.getLease", nil, &lease)
		}))
	})
	do("refused", func() (any, error) {
		err := chromedp.Run(ctx, browser.Crash())
		if err == nil {
			return nil, errors.New("Browser.crash was not refused")
		}
		return err.Error(), nil
	})
	do("close", func() (any, error) { return nil, chromedp.Cancel(ctx) })
	if ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "the context of a closed browser lives on")
		os.Exit(1)
	}
}
