package monitor

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"strings"

	"github.com/chromedp/cdproto/target"

	"leasehold/checkpoint"
	"leasehold/evidence/capture"
	"leasehold/internal/boottime"
)

// page is an open page.
type page struct {
	capture.Page
	context   string // id of the browser context
	opened    boottime.Instant
	lastEvent uint64 // Monitor.ticks at its last event
	reported  string // the URL that was reported last
	early     bool   // reported came from the browser's session, and the page's own has not confirmed it yet
	framed    bool   // frames of its document may have been reported
	looks     int    // how often its first document had the cookies looked at
	versions  bool   // its session tells of the versions of service workers
}

// navigated is the entry for a page that went to a URL, nil if that is reported
// already. The page's own session reports every navigation, except that it may be
// enabled too late for the first one of a new page. The browser's session reports that
// one as well; early says that the URL comes from there.
func (pg *page) navigated(url string, early bool) *checkpoint.Entry {
	if url == pg.reported && (early || pg.early) || early && !notBlank(url) {
		pg.early = pg.early && early
		return nil
	}
	pg.reported, pg.early = url, early
	return &checkpoint.Entry{Kind: checkpoint.KindURL, URL: url, Target: pg.TargetID}
}

// committed is navigated for a page that has a new document. The frames of the old
// document are gone then, so the navigation is reported even if the URL is the same.
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

func notBlank(url string) bool { return url != "" && url != blankPage }

// blankPage is the URL of an empty tab.
const blankPage = "about:blank"

// frameEntry is the entry for a frame inside a page, nil if the page is not known. Its
// Text is the page's URL, which is needed to judge the frame.
func frameEntry(pg *page, url string) *checkpoint.Entry {
	if pg == nil || !strings.HasPrefix(url, "http") {
		return nil
	}
	pg.framed = true
	return &checkpoint.Entry{Kind: checkpoint.KindFrame, URL: url, Text: pg.URL, Target: pg.TargetID}
}

// maxFrameDepth is how many levels of frames are followed up to their page.
const maxFrameDepth = 32

// pageOf is the page that a target is, or that the target's frame is in at any depth;
// nil if it is not known. The caller holds m.mu.
func (m *Monitor) pageOf(targetID string) *page {
	for range maxFrameDepth {
		if pg := m.pages[targetID]; pg != nil {
			return pg
		}
		targetID = m.frames[targetID]
	}
	return nil
}

// targetOf is the target id of the page that contains a session's target, or the id of
// that target itself if the page is not known. The caller holds m.mu.
func (m *Monitor) targetOf(session string, containing *page) string {
	if containing != nil {
		return containing.TargetID
	}
	return m.targets[session]
}

// Pages returns the open pages, the one with the latest event first.
func (m *Monitor) Pages() []capture.Page {
	m.mu.Lock()
	defer m.mu.Unlock()
	sorted := make([]*page, 0, len(m.pages))
	for _, p := range m.pages {
		sorted = append(sorted, p)
	}
	slices.SortFunc(sorted, func(a, b *page) int { return int(int64(b.lastEvent) - int64(a.lastEvent)) })
	pages := make([]capture.Page, len(sorted))
	for i, p := range sorted {
		pages[i] = p.Page
		pages[i].Primary, pages[i].Leaving = i == 0, m.navigations.leaving(p.TargetID)
	}
	return pages
}

// Crashed tells whether a page's renderer has crashed.
func (m *Monitor) Crashed(targetID string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pages[targetID]
	return p != nil && p.Page.Crashed
}

// Primary is the page with the latest event. It is false if no page is open.
func (m *Monitor) Primary() (capture.Page, bool) {
	if pages := m.Pages(); len(pages) > 0 {
		return pages[0], true
	}
	return capture.Page{}, false
}

// PageCloses says that one more page is about to close, and tells whether another page
// of the profile's own context stays open.
func (m *Monitor) PageCloses() (another bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closing++
	n := -m.closing
	for _, p := range m.pages {
		if p.context == m.ownContext {
			n++
		}
	}
	return n > 0
}

// AwaitPages returns when all pages that were open at the call are watched.
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

// TargetsByUse is Targets in the order of Chrome's own list: what belongs to the page that was
// opened or brought to the front last comes first, and workers come last. It does not know
// which tab Chrome brings to the front when the one in front is closed.
func (m *Monitor) TargetsByUse(ctx context.Context) ([]*target.Info, error) {
	list, err := m.Targets(ctx)
	if err != nil {
		return nil, err
	}
	used := map[*target.Info]boottime.Instant{}
	m.mu.Lock()
	for _, t := range list {
		switch pg := m.pageOf(string(t.TargetID)); {
		case pg != nil:
			used[t] = max(pg.opened, m.mux.ActivatedAt(pg.TargetID))
		case t.Type == typePage: // it was opened just now
			used[t] = math.MaxInt64
		}
	}
	m.mu.Unlock()
	slices.SortStableFunc(list, func(a, b *target.Info) int { return cmp.Compare(used[b], used[a]) })
	return list, nil
}

// Targets lists what is open in the browser, without parts of the browser's own user
// interface.
func (m *Monitor) Targets(ctx context.Context) ([]*target.Info, error) {
	var r target.GetTargetsResult
	if err := m.observer.Call(ctx, "", target.CommandGetTargets, nil, &r); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(r.TargetInfos, func(t *target.Info) bool {
		return t.Type == "browser" || t.Type == "tab" || t.Type == "browser_ui"
	}), nil
}
