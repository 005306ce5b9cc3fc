package monitor

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/chromedp/cdproto/target"

	"leasehold/checkpoint"
	"leasehold/evidence/capture"
	"leasehold/internal/boottime"
)

type page struct {
	capture.Page
	context   string // id of the browser context
	opened    boottime.Instant
	lastEvent uint64 // the ticks of pages at its last event
	reported  string // the URL that was reported last
	early     bool   // reported came from the browser's session, and the page's own session has not confirmed it yet
	framed    bool   // frames of its document may have been reported
	looks     int    // number of times that its first document made learnNew look
	versions  bool   // its session tells of the versions of service workers
}

// pages knows which pages are open in the browser, and which targets and frames belong to
// them. Only the goroutine that processes events adds and removes pages; any goroutine may ask
// for them.
type pages struct {
	navigations *navigations

	mu         sync.Mutex
	open       map[string]*page  // by target
	targets    map[string]string // target by CDP session
	windows    map[string]string // for each window without a tab, the CDP session on it, by target; see typeOther
	frames     map[string]string // for each frame in a process of its own, the target that contains it
	ownContext string            // id of the profile's own browser context: the context of the first page
	workersIn  map[string]bool   // browser contexts in which a service worker was seen
	closing    map[string]bool   // pages that were asked to close, and have not ended, by target
	keptPage   string            // target id of the one page of a warm browser
	ticks      uint64            // counts events, to order pages by their last one, and to number dialogs
}

func newPages(n *navigations) *pages {
	return &pages{navigations: n, open: map[string]*page{}, targets: map[string]string{}, windows: map[string]string{}, frames: map[string]string{}, workersIn: map[string]bool{}, closing: map[string]bool{}}
}

func (ps *pages) first() (target, session string, _ error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for id, pg := range ps.open {
		return id, pg.SessionID, nil
	}
	return "", "", errors.New("no page is open")
}

// forget forgets which pages a session that is over has asked to close. All of them are
// closed, except the kept one.
func (ps *pages) forget() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	clear(ps.closing)
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

// committed is navigated for a page that has a new document. The frames of the old document are
// gone then, so the navigation is reported even if the URL is the same.
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
// nil if it is not known. The caller holds ps.mu.
func (ps *pages) pageOf(targetID string) *page {
	for range maxFrameDepth {
		if pg := ps.open[targetID]; pg != nil {
			return pg
		}
		targetID = ps.frames[targetID]
	}
	return nil
}

// targetOf is the target id of the page that contains a session's target, or the id of
// that target itself if the page is not known. The caller holds ps.mu.
func (ps *pages) targetOf(session string, containing *page) string {
	if containing != nil {
		return containing.TargetID
	}
	return ps.targets[session]
}

// targetOn is the target id of the page that contains a session's target, or the id of that
// target itself if the page is not known.
func (ps *pages) targetOn(session string) string {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.targetOf(session, ps.pageOf(ps.targets[session]))
}

// setOwnContext says which browser context is the profile's own.
func (ps *pages) setOwnContext(id string) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.ownContext = id
}

// keep notes that a page is the kept one, if no other page is open, and tells whether that is
// so.
func (ps *pages) keep(target string) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if len(ps.open) != 1 || ps.open[target] == nil {
		return false
	}
	ps.keptPage = target
	return true
}

// kept is the target of the last page for which keep returned true.
func (ps *pages) kept() string {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.keptPage
}

func (ps *pages) watched(targets []*target.Info) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return !slices.ContainsFunc(targets, func(t *target.Info) bool {
		return t.Type == typePage && ps.open[string(t.TargetID)] == nil
	})
}

// documents are the sessions on the documents of pages, and of their frames in processes of
// their own, by target.
func (ps *pages) documents() map[string]string {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	documents := map[string]string{}
	for session, target := range ps.targets {
		if ps.pageOf(target) != nil {
			documents[target] = session
		}
	}
	return documents
}

// Pages returns the open pages, the one with the latest event first.
func (m *Monitor) Pages() []capture.Page { return m.pages.list() }

func (ps *pages) list() []capture.Page {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	sorted := make([]*page, 0, len(ps.open))
	for _, p := range ps.open {
		sorted = append(sorted, p)
	}
	slices.SortFunc(sorted, func(a, b *page) int { return int(int64(b.lastEvent) - int64(a.lastEvent)) })
	pages := make([]capture.Page, len(sorted))
	for i, p := range sorted {
		pages[i] = p.Page
		pages[i].Primary, pages[i].Leaving = i == 0, ps.navigations.leaving(p.TargetID)
	}
	return pages
}

// Crashed tells whether a page's renderer has crashed.
func (m *Monitor) Crashed(targetID string) bool { return m.pages.crashed(targetID) }

func (ps *pages) crashed(targetID string) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.open[targetID]
	return p != nil && p.Page.Crashed
}

// Primary is the page with the latest event. It is false if no page is open.
func (m *Monitor) Primary() (capture.Page, bool) {
	if pages := m.Pages(); len(pages) > 0 {
		return pages[0], true
	}
	return capture.Page{}, false
}

// PageCloses says that a target is about to close, and tells whether a tab of the profile's
// own context stays open that nobody has asked to close. A window without a tab is none: it closes
// with the tab that it belongs to.
func (m *Monitor) PageCloses(target string) (another bool) { return m.pages.closes(target) }

func (ps *pages) closes(target string) (another bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	remember(ps.closing, target, true)
	for id, p := range ps.open {
		another = another || p.context == ps.ownContext && !ps.closing[id] && ps.windows[id] == ""
	}
	return another
}

// AwaitWatched returns when all pages that were open at the call are watched.
func (ts *Tabs) AwaitWatched(ctx context.Context) error {
	targets, err := ts.Targets(ctx)
	if err != nil {
		return err
	}
	if err := ts.backlog.progress.await(ctx, func() bool { return ts.pages.watched(targets) }); err != nil {
		return errors.New("not every page could be attached in time")
	}
	return nil
}

// ByUse is Targets as a client may see them, in the order of Chrome's own list: the targets of the
// page that was opened or brought to the front last come first, and workers come last. It does not
// know which tab Chrome brings to the front when the front tab is closed.
func (ts *Tabs) ByUse(ctx context.Context) ([]*target.Info, error) {
	list, err := ts.Targets(ctx)
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(t *target.Info) bool {
		return ts.chrome.mux.IsPrivate(string(t.TargetID), string(t.OpenerID), string(t.ParentFrameID))
	})
	used := ts.pages.used(list, ts.chrome.mux.Acts().Activated)
	slices.SortStableFunc(list, func(a, b *target.Info) int { return cmp.Compare(used[b], used[a]) })
	return list, nil
}

// used returns when the pages that targets belong to were opened, or activated last.
func (ps *pages) used(targets []*target.Info, activated func(target string) boottime.Instant) map[*target.Info]boottime.Instant {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	used := map[*target.Info]boottime.Instant{}
	for _, t := range targets {
		switch pg := ps.pageOf(string(t.TargetID)); {
		case pg != nil:
			used[t] = max(pg.opened, activated(pg.TargetID))
		case t.Type == typePage: // the page was opened just now
			used[t] = math.MaxInt64
		}
	}
	return used
}

// Targets lists what is open in the browser, without parts of the browser's own user
// interface.
func (ts *Tabs) Targets(ctx context.Context) ([]*target.Info, error) {
	var r target.GetTargetsResult
	if err := ts.chrome.Call(ctx, "", target.CommandGetTargets, nil, &r); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(r.TargetInfos, func(t *target.Info) bool {
		return t.Type == "browser" || t.Type == "tab" || t.Type == "browser_ui"
	}), nil
}
