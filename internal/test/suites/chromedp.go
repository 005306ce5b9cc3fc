package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// chromedpVersion is the version of chromedp in go.mod.
const chromedpVersion = "0.22.1"

// chromedpPart is a part of a test that navigates to a scheme that nobody knows. The
// sidecar refuses it by an error of the command, and Chrome by one of the navigation.
const chromedpPart = "^TestRunResponse$/^NavigateBadProtocol$"

// prepareChromedp prepares chromedp's tests. They start wspipe in place of Chrome, which
// speaks with them over the pipe that they expect.
func prepareChromedp(ctx context.Context, p *place) (player, error) {
	dir, err := p.once("chromedp-"+chromedpVersion, func(dir string) error {
		if err := p.module(ctx, p.source, "github.com/chromedp/chromedp", chromedpVersion, dir); err != nil {
			return err
		}
		const files = `"file://" + path.Join(wd, "testdata")`
		if err := replace(filepath.Join(dir, "chromedp_test.go"), files, `os.Getenv("SUITES_PAGES") + path.Join(wd, "testdata")`); err != nil {
			return err
		}
		_, err := must(ctx, dir, "go", "test", "-c", "-o", "chromedp.test", ".")
		return err
	})
	if err != nil {
		return nil, err
	}
	// headless_shell is the first name that chromedp looks for.
	browser := filepath.Join(p.work, "chromedp-browser")
	if _, err := must(ctx, p.source, "go", "build", "-o", filepath.Join(browser, "headless_shell"), "leasehold/internal/test/clients/wspipe"); err != nil {
		return nil, fmt.Errorf("wspipe: %w", err)
	}
	served, err := servePages(dir)
	if err != nil {
		return nil, err
	}
	return &goSuite{
		dir: dir, binary: filepath.Join(dir, "chromedp.test"), pages: served, limit: 30 * time.Minute,
		args: []string{"-test.skip", chromedpPart},
		env:  []string{"PATH=" + browser + ":" + os.Getenv("PATH"), "WSPIPE_CHROME=" + p.chrome, "SUITES_PAGES=" + served.url},
	}, nil
}
