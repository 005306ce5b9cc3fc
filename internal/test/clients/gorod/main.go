// Command gorod is a worker that uses go-rod. It is a module of its own because of its
// dependencies:
//
//	gorod URL SITE DIR
//
// It performs these actions, and prints a line in the form of actions.mjs after each:
// connect, goto, click, evaluate, screenshot, intercept, download, newContext, lease,
// refused, close. It ends after one that fails. SITE is the test's web site, DIR is for
// files.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/go-rod/rod"
	"github.com/go-rod/rod/lib/proto"
)

func main() {
	url, site, dir := os.Args[1], os.Args[2], os.Args[3]
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	browser := rod.New().ControlURL(url).Context(ctx)
	var page *rod.Page

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
	evaluate := func(page *rod.Page, js string) (any, error) {
		result, err := page.Eval(js)
		if err != nil {
			return nil, err
		}
		return result.Value.Val(), nil
	}
	click := func(selector string) error {
		element, err := page.Element(selector)
		if err != nil {
			return err
		}
		return element.Click(proto.InputMouseButtonLeft, 1)
	}

	do("connect", func() (any, error) { return nil, browser.Connect() })
	do("goto", func() (_ any, err error) {
		if page, err = browser.Page(proto.TargetCreateTarget{URL: site + "/form"}); err != nil {
			return nil, err
		}
		return nil, page.WaitLoad()
	})
	do("click", func() (any, error) { return nil, click("#go") })
	do("evaluate", func() (any, error) { return evaluate(page, "() => document.title") })
	do("screenshot", func() (any, error) {
		picture, err := page.Screenshot(false, nil)
		if err != nil {
			return nil, err
		}
		return nil, os.WriteFile(filepath.Join(dir, "shot.png"), picture, 0o600)
	})
	do("intercept", func() (any, error) {
		router := page.HijackRequests()
		if err := router.Add("*/api*", "", func(h *rod.Hijack) { h.Response.SetBody("intercepted") }); err != nil {
			return nil, err
		}
		go router.Run()
		text, err := evaluate(page, "() => fetch('/api').then((r) => r.text())")
		return text, errors.Join(err, router.Stop())
	})
	do("download", func() (any, error) {
		wait := browser.WaitDownload(dir)
		if err := click("#file"); err != nil {
			return nil, err
		}
		info := wait()
		// The file is stored under its GUID.
		return info.SuggestedFilename, os.Rename(filepath.Join(dir, info.GUID), filepath.Join(dir, info.SuggestedFilename))
	})
	do("newContext", func() (any, error) {
		other, err := browser.Incognito()
		if err != nil {
			return nil, err
		}
		page, err := other.Page(proto.TargetCreateTarget{URL: site + "/form"})
		if err != nil {
			return nil, err
		}
		if err := page.WaitLoad(); err != nil {
			return nil, err
		}
		return evaluate(page, "() => document.cookie")
	})
	do("lease", func() (any, error) {
		result, err := page.Call(ctx, string(page.SessionID), "Lease.getLease", nil)
		return json.RawMessage(result), err
	})
	do("refused", func() (any, error) {
		err := proto.BrowserCrash{}.Call(browser)
		if err == nil {
			return nil, errors.New("Browser.crash was not refused")
		}
		return err.Error(), nil
	})
	do("close", func() (any, error) {
		if err := browser.Close(); err != nil {
			return nil, err
		}
		// go-rod panics on a close frame, so the end has to come without one.
		for {
			if _, err := (proto.BrowserGetVersion{}).Call(browser); err != nil {
				return nil, nil
			}
		}
	})
}
