package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/evidence"
)

// eyes are the launcher's own view of a browser: which pages are open and where
// they went, what they sent, and what stands in the way of a screenshot. They
// change nothing.
type eyes struct {
	observer *cdpproxy.Observer
	// record takes what was seen; the journal.
	record func(checkpoint.Entry)

	mu      sync.Mutex
	pages   map[string]*page  // by target
	targets map[string]string // target by CDP session
	sent    map[string]bool   // request ids that were recorded
	sockets map[string]bool
	own     string // the profile's own browser context: that of the first page
	closes  int    // pages that were asked to close and are still there
	ticks   uint64
}

type page struct {
	evidence.Page
	context string // the browser context
	seen    uint64 // when it last did something: the order of pages
}

// watched are the events that the eyes follow.
var watched = []string{
	"Target.attachedToTarget", "Target.detachedFromTarget", "Target.targetInfoChanged",
	"Page.frameNavigated", "Page.navigatedWithinDocument",
	"Page.javascriptDialogOpening", "Page.javascriptDialogClosed", "Inspector.targetCrashed",
}

// open attaches the eyes to a browser.
func openEyes(ctx context.Context, mux *cdpproxy.Mux, record func(checkpoint.Entry)) (*eyes, error) {
	o, err := mux.Observe(ctx, watched...)
	if err != nil {
		return nil, err
	}
	e := &eyes{
		observer: o, record: record,
		pages: map[string]*page{}, targets: map[string]string{}, sent: map[string]bool{}, sockets: map[string]bool{},
	}
	if err := o.Call(ctx, "", "Target.setDiscoverTargets", map[string]any{"discover": true}, nil); err != nil {
		return nil, err
	}
	if err := o.Call(ctx, "", "Target.setAutoAttach", autoAttach, nil); err != nil {
		return nil, err
	}
	return e, nil
}

// autoAttach makes each new target wait until the eyes are on it, and look lets
// it go at once: what a form sends into a new tab would be missed otherwise.
var autoAttach = map[string]any{"autoAttach": true, "waitForDebuggerOnStart": true, "flatten": true}

// watch follows the events, and what was sent, until the browser is gone and all
// of it is recorded, or the context ends.
func (e *eyes) watch(ctx context.Context, sent <-chan cdpproxy.Traffic) {
	var traffic sync.WaitGroup
	gone := make(chan struct{})
	traffic.Go(func() {
		for {
			select {
			case t := <-sent:
				e.sentBy(t)
			case <-gone:
				for {
					select {
					case t := <-sent:
						e.sentBy(t)
					default:
						return
					}
				}
			}
		}
	})
	for {
		events, err := e.observer.Next(ctx)
		if err != nil {
			break
		}
		for _, event := range events {
			e.see(event)
		}
	}
	close(gone)
	traffic.Wait()
}

func (e *eyes) see(event cdpproxy.Event) {
	var p struct {
		SessionID  string `json:"sessionId"`
		TargetInfo struct {
			TargetID string `json:"targetId"`
			Type     string `json:"type"`
			URL      string `json:"url"`
			Title    string `json:"title"`
			Context  string `json:"browserContextId"`
		} `json:"targetInfo"`
		Frame struct {
			ID       string `json:"id"`
			ParentID string `json:"parentId"`
			URL      string `json:"url"`
		} `json:"frame"`
		FrameID string `json:"frameId"`
		URL     string `json:"url"`
		Message string `json:"message"`
		Type    string `json:"type"`
	}
	if json.Unmarshal(event.Params, &p) != nil {
		return
	}
	e.mu.Lock()
	e.ticks++
	current := e.pages[e.targets[event.Session]]
	if current != nil && event.Method != "Target.targetInfoChanged" {
		current.seen = e.ticks
	}
	var entry *checkpoint.Entry
	switch event.Method {
	case "Target.attachedToTarget":
		e.targets[p.SessionID] = p.TargetInfo.TargetID
		if p.TargetInfo.Type == "page" {
			e.pages[p.TargetInfo.TargetID] = &page{seen: e.ticks, context: p.TargetInfo.Context, Page: evidence.Page{
				TargetID: p.TargetInfo.TargetID, SessionID: p.SessionID, Type: "page",
				URL: p.TargetInfo.URL, Title: p.TargetInfo.Title,
			}}
			if e.own == "" {
				e.own = p.TargetInfo.Context
			}
			if worthNoting(p.TargetInfo.URL) {
				entry = &checkpoint.Entry{Kind: checkpoint.KindURL, URL: p.TargetInfo.URL, Target: p.TargetInfo.TargetID}
			}
		}
	case "Target.detachedFromTarget":
		if e.pages[e.targets[p.SessionID]] != nil {
			e.closes = max(0, e.closes-1)
		}
		delete(e.pages, e.targets[p.SessionID])
		delete(e.targets, p.SessionID)
	case "Target.targetInfoChanged":
		if pg := e.pages[p.TargetInfo.TargetID]; pg != nil {
			pg.Title, pg.URL = p.TargetInfo.Title, p.TargetInfo.URL
		}
	case "Page.frameNavigated":
		if p.Frame.ParentID == "" && current != nil {
			current.URL, current.Crashed, current.Dialog = p.Frame.URL, false, ""
			entry = &checkpoint.Entry{Kind: checkpoint.KindURL, URL: p.Frame.URL, Target: current.TargetID}
		}
	case "Page.navigatedWithinDocument":
		if current != nil && p.FrameID == current.TargetID {
			current.URL = p.URL
			entry = &checkpoint.Entry{Kind: checkpoint.KindURL, URL: p.URL, Target: current.TargetID}
		}
	case "Page.javascriptDialogOpening":
		if current != nil {
			current.Dialog = p.Type + ": " + p.Message
			entry = &checkpoint.Entry{Kind: checkpoint.KindDialog, URL: p.URL, Name: p.Type, Target: current.TargetID}
		}
	case "Page.javascriptDialogClosed":
		if current != nil {
			current.Dialog = ""
		}
	case "Inspector.targetCrashed":
		if current != nil {
			current.Crashed = true
			entry = &checkpoint.Entry{Kind: checkpoint.KindCrash, URL: current.URL, Target: current.TargetID}
		}
	}
	e.mu.Unlock()
	if event.Method == "Target.attachedToTarget" {
		e.look(p.SessionID, p.TargetInfo.Type)
	}
	if entry != nil {
		entry.URL = evidence.RedactURL(entry.URL)
		e.record(*entry)
	}
}

// look turns on what the eyes need of a new target. Buffers are as small as they
// get: only the fact of a request matters.
func (e *eyes) look(session, kind string) {
	if kind == "page" {
		e.observer.Post(session, "Page.enable", nil)
		e.observer.Post(session, "Inspector.enable", nil)
	}
	e.observer.Post(session, "Network.enable", map[string]any{"maxTotalBufferSize": 1, "maxResourceBufferSize": 1})
	e.observer.Post(session, "Target.setAutoAttach", autoAttach)
	e.observer.Post(session, "Runtime.runIfWaitingForDebugger", nil)
}

func worthNoting(url string) bool { return url != "" && url != "about:blank" }

// sentBy records what a page sent, once however many peers were told of it.
func (e *eyes) sentBy(t cdpproxy.Traffic) {
	var p struct {
		RequestID string `json:"requestId"`
		Request   struct {
			URL    string `json:"url"`
			Method string `json:"method"`
		} `json:"request"`
	}
	if json.Unmarshal(t.Params, &p) != nil {
		return
	}
	entry := checkpoint.Entry{Kind: checkpoint.KindRequest, Method: p.Request.Method, URL: evidence.RedactURL(p.Request.URL)}
	e.mu.Lock()
	seen := e.sent
	if t.Method == "Network.webSocketFrameSent" {
		seen = e.sockets
		entry.Method, entry.Text = "WEBSOCKET", "the first message on a websocket"
	}
	known := seen[p.RequestID]
	seen[p.RequestID] = true
	e.mu.Unlock()
	if !known {
		e.record(entry)
	}
}

// open returns the pages, the one that did something last first.
func (e *eyes) open() []evidence.Page {
	e.mu.Lock()
	defer e.mu.Unlock()
	sorted := make([]*page, 0, len(e.pages))
	for _, p := range e.pages {
		sorted = append(sorted, p)
	}
	slices.SortFunc(sorted, func(a, b *page) int { return int(int64(b.seen) - int64(a.seen)) })
	pages := make([]evidence.Page, len(sorted))
	for i, p := range sorted {
		pages[i] = p.Page
		pages[i].Primary = i == 0
	}
	return pages
}

// closing notes that one more page is about to close, and tells whether the
// profile's own context keeps another one.
func (e *eyes) closing() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closes++
	n := -e.closes
	for _, p := range e.pages {
		if p.context == e.own {
			n++
		}
	}
	return n > 0
}

// settle waits a moment for the pages that are open already to be attached.
func (e *eyes) settle(ctx context.Context) error {
	var r struct {
		TargetInfos []struct {
			TargetID string `json:"targetId"`
			Type     string `json:"type"`
		} `json:"targetInfos"`
	}
	if err := e.observer.Call(ctx, "", "Target.getTargets", nil, &r); err != nil {
		return err
	}
	for {
		missing := false
		e.mu.Lock()
		for _, t := range r.TargetInfos {
			missing = missing || t.Type == "page" && e.pages[t.TargetID] == nil
		}
		e.mu.Unlock()
		if !missing {
			return nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return errors.New("not every page could be attached in time")
		}
	}
}
