package monitor

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/chromedp/cdproto/target"

	"leasehold/checkpoint"
	"leasehold/evidence/capture"
)

// page is an open page.
type page struct {
	capture.Page
	context string // the browser context
	seen    uint64 // when it last did something, in ticks
	noted   string // the last URL that was reported
	early   bool   // the browser's session told of noted before the page's own
	framed  bool   // frames may have been reported of its document
}

// navigated is the entry for a page that went to a URL; nil where that is reported
// already. The page's own session tells of each navigation, but it may be enabled too
// late for the first one of a new page. The browser's session tells of that: early.
func (pg *page) navigated(url string, early bool) *checkpoint.Entry {
	if url == pg.noted && (early || pg.early) || early && !worthNoting(url) {
		pg.early = pg.early && early
		return nil
	}
	pg.noted, pg.early = url, early
	return &checkpoint.Entry{Kind: checkpoint.KindURL, URL: url, Target: pg.TargetID}
}

// committed is navigated for a page that has a new document, and with it none of
// the frames of the one before. That is reported even where the URL is known already.
func (pg *page) committed(url string) *checkpoint.Entry {
	entry := pg.navigated(url, false)
	if entry == nil && pg.framed {
		entry = &checkpoint.Entry{Kind: checkpoint.KindURL, URL: url, Target: pg.TargetID}
	}
	if entry != nil {
		entry.Committed = true
	}
	pg.framed = false
	return entry
}

func worthNoting(url string) bool { return url != "" && url != blankPage }

// blankPage is the URL of an empty tab.
const blankPage = "about:blank"

// frameEntry is the entry for a frame inside a page; nil where the page is not known.
// Text is the page's URL, by which the frame is judged.
func frameEntry(pg *page, url string) *checkpoint.Entry {
	if pg == nil || !strings.HasPrefix(url, "http") {
		return nil
	}
	pg.framed = true
	return &checkpoint.Entry{Kind: checkpoint.KindFrame, URL: url, Text: pg.URL, Target: pg.TargetID}
}

// maxFrameDepth bounds how deep frames are followed.
const maxFrameDepth = 32

// pageOf is the page that a target is, or is a frame of at whatever depth; nil where
// it is not known. The caller holds m.mu.
func (m *Monitor) pageOf(targetID string) *page {
	for range maxFrameDepth {
		if pg := m.pages[targetID]; pg != nil {
			return pg
		}
		targetID = m.frames[targetID]
	}
	return nil
}

// targetOf is the page that contains a session's target, or that target itself where
// the page is not known. The caller holds m.mu.
func (m *Monitor) targetOf(session string, containing *page) string {
	if containing != nil {
		return containing.TargetID
	}
	return m.targets[session]
}

// Pages returns the open pages, the one that did something last first.
func (m *Monitor) Pages() []capture.Page {
	m.mu.Lock()
	defer m.mu.Unlock()
	sorted := make([]*page, 0, len(m.pages))
	for _, p := range m.pages {
		sorted = append(sorted, p)
	}
	slices.SortFunc(sorted, func(a, b *page) int { return int(int64(b.seen) - int64(a.seen)) })
	pages := make([]capture.Page, len(sorted))
	for i, p := range sorted {
		pages[i] = p.Page
		pages[i].Primary = i == 0
	}
	return pages
}

// Primary is the page that did something last; false where none is open.
func (m *Monitor) Primary() (capture.Page, bool) {
	if pages := m.Pages(); len(pages) > 0 {
		return pages[0], true
	}
	return capture.Page{}, false
}

// PageCloses says that one more page is about to close, and tells whether another
// one of the profile's own context stays open.
func (m *Monitor) PageCloses() (another bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closing++
	n := -m.closing
	for _, p := range m.pages {
		if p.context == m.own {
			n++
		}
	}
	return n > 0
}

// AwaitPages returns when the pages that are open already are watched.
func (m *Monitor) AwaitPages(ctx context.Context) error {
	targets, err := m.Targets(ctx)
	if err != nil {
		return err
	}
	err = m.await(ctx, func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return !slices.ContainsFunc(targets, func(t *target.Info) bool {
			return t.Type == typePage && m.pages[string(t.TargetID)] == nil
		})
	})
	if err != nil {
		return errors.New("not every page could be attached in time")
	}
	return nil
}

// Targets lists what is open in the browser. Surfaces of the browser itself, which
// are no pages of a site, are left out.
func (m *Monitor) Targets(ctx context.Context) ([]*target.Info, error) {
	var r target.GetTargetsResult
	if err := m.observer.Call(ctx, "", target.CommandGetTargets, nil, &r); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(r.TargetInfos, func(t *target.Info) bool {
		return t.Type == "browser" || t.Type == "tab" || t.Type == "browser_ui"
	}), nil
}
