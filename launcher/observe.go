package launcher

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/evidence"
	"leasehold/evidence/capture"
	"leasehold/evidence/recorder"
	"leasehold/internal/boottime"
	"leasehold/internal/id"
	"leasehold/launcher/recovery"
)

// eyes are the launcher's own view of a browser: which pages are open and where
// they went, what they sent, and what stands in the way of a screenshot. They
// change nothing.
type eyes struct {
	observer *cdpproxy.Observer
	mux      *cdpproxy.Mux
	// record takes what was seen; the journal.
	record func(checkpoint.Entry)

	// What the bundle has of the network and the console, under the token of
	// the newest run.
	token   atomic.Uint64
	network recorder.Network
	console recorder.Console

	documents *documents
	posts     *posts
	name      string // of its groups
	// harmless are the declarations of the profile's owner.
	harmless atomic.Pointer[[]recovery.Harmless]

	// told counts what pages sent, recorded what of it sentBy is done with.
	told, recorded atomic.Int64
	followed       atomic.Uint64 // the observer's events that were seen to

	mu      sync.Mutex
	pages   map[string]*page   // by target
	targets map[string]string  // target by CDP session
	frames  map[string]string  // frames in processes of their own: the target that each is in, by its own
	sent    map[[2]string]bool // requests that were recorded, by id and URL
	sockets map[[2]string]bool // websockets that were recorded, since the last checkpoint, by id and declaration
	groups  map[[32]byte]*group
	grouped int    // ever
	own     string // the profile's own browser context: that of the first page
	closes  int    // pages that were asked to close and are still there
	kept    string // the one page of a warm browser
	ticks   uint64
	dropped uint64 // of the mux's own commands; recorded since the last checkpoint
}

type page struct {
	capture.Page
	context string // the browser context
	seen    uint64 // when it last did something: the order of pages
	noted   string // the last URL that was recorded
	early   bool   // it was recorded before the page's own event of it came
	framed  bool   // frames may have been recorded of its document
}

// went is an entry for a page that went to a URL, once. The page's own session tells
// of that, but not of the first navigation of a new page, where that is faster than
// what turns the events on; the browser's session then does, early.
func (pg *page) went(url string, early bool) *checkpoint.Entry {
	if url == pg.noted && (early || pg.early) || early && !worthNoting(url) {
		pg.early = pg.early && early
		return nil
	}
	pg.noted, pg.early = url, early
	return &checkpoint.Entry{Kind: checkpoint.KindURL, URL: url, Target: pg.TargetID}
}

// committed is went for a page that has another document, without the frames of the
// one before: that is said even where the URL is known already.
func (pg *page) committed(url string) *checkpoint.Entry {
	entry := pg.went(url, false)
	if entry == nil && pg.framed {
		entry = &checkpoint.Entry{Kind: checkpoint.KindURL, URL: url, Target: pg.TargetID}
	}
	if entry != nil {
		entry.Committed = true
	}
	pg.framed = false
	return entry
}

// watched are the events that the eyes follow.
var watched = []string{
	"Target.attachedToTarget", "Target.detachedFromTarget", "Target.targetInfoChanged",
	"Page.frameNavigated", "Page.navigatedWithinDocument", "Page.frameRequestedNavigation", "Page.downloadWillBegin",
	"Page.javascriptDialogOpening", "Page.javascriptDialogClosed", "Inspector.targetCrashed",
	"DOMStorage.domStorageItemAdded", "DOMStorage.domStorageItemUpdated", "DOMStorage.domStorageItemRemoved", "DOMStorage.domStorageItemsCleared",
}

// heard are the events that the pipe's reader hands over at once: for the
// recorders, and for what a request comes of. Runtime is not among the domains that
// the eyes turn on: pages can tell that it is.
var heard = slices.Concat([]string{"Log.entryAdded", "Network.webSocketCreated"}, navigationEvents, recorder.NetworkEvents)

// maxKnown bounds what is remembered of documents, requests and groups. Of what is
// forgotten nothing is taken for harmless.
const maxKnown = 4096

// hear is called by the pipe's reader.
func (e *eyes) hear(event cdpproxy.Event) {
	if slices.Contains(navigationEvents, event.Method) {
		e.documents.hear(event, boottime.Now())
		return
	}
	if e.posts.hear(event); event.Method == "Network.webSocketCreated" {
		return
	}
	now, token := time.Now(), e.token.Load()
	e.network.See(now, token, event.Session, event.Method, event.Params)
	e.console.See(now, token, event.Method, event.Params)
}

// remember keeps a map from growing without bound: when it is full it forgets all.
func remember[K comparable, V any](m map[K]V, key K, value V) {
	if len(m) >= maxKnown {
		clear(m)
	}
	m[key] = value
}

func newEyes(record func(checkpoint.Entry)) *eyes {
	return &eyes{
		record: record, name: id.New("g"), documents: newDocuments(), posts: newPosts(),
		pages: map[string]*page{}, targets: map[string]string{}, frames: map[string]string{}, sent: map[[2]string]bool{}, sockets: map[[2]string]bool{}, groups: map[[32]byte]*group{},
	}
}

// attach opens the eyes on a browser.
func (e *eyes) attach(ctx context.Context, mux *cdpproxy.Mux) error {
	var err error
	e.mux = mux
	e.documents.typed, e.documents.acted, e.documents.made, e.documents.navigated = mux.Typed, mux.ActedOn, mux.Made, mux.Navigated
	if e.observer, err = mux.Listen(ctx, e.hear, heard, watched...); err != nil {
		return err
	}
	o := e.observer
	if err := o.Call(ctx, "", "Target.setDiscoverTargets", map[string]any{"discover": true}, nil); err != nil {
		return err
	}
	return o.Call(ctx, "", "Target.setAutoAttach", autoAttach, nil)
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
			e.followed.Add(1)
		}
		e.overlooked()
	}
	e.overlooked()
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
		FrameID     string `json:"frameId"`
		Reason      string `json:"reason"`
		Disposition string `json:"disposition"`
		URL         string `json:"url"`
		Message     string `json:"message"`
		Type        string `json:"type"`
		Storage     struct {
			Origin string `json:"securityOrigin"`
			Key    string `json:"storageKey"`
			Local  bool   `json:"isLocalStorage"`
		} `json:"storageId"`
	}
	if json.Unmarshal(event.Params, &p) != nil {
		return
	}
	e.mu.Lock()
	e.ticks++
	// current is nil on the sessions of others than pages; in is the page of a frame,
	// too.
	current, in := e.pages[e.targets[event.Session]], e.pageOf(e.targets[event.Session])
	if current != nil && event.Method != "Target.targetInfoChanged" {
		current.seen = e.ticks
	}
	var entry, also *checkpoint.Entry
	switch event.Method {
	case "Target.attachedToTarget":
		e.targets[p.SessionID] = p.TargetInfo.TargetID
		if p.TargetInfo.Type == "iframe" {
			e.frames[p.TargetInfo.TargetID] = e.targets[event.Session]
			entry = e.frameIn(e.pageOf(p.TargetInfo.TargetID), p.TargetInfo.URL)
		}
		if p.TargetInfo.Type == "page" {
			e.pages[p.TargetInfo.TargetID] = &page{seen: e.ticks, context: p.TargetInfo.Context, framed: worthNoting(p.TargetInfo.URL), Page: capture.Page{
				TargetID: p.TargetInfo.TargetID, SessionID: p.SessionID, Type: "page",
				URL: p.TargetInfo.URL, Title: p.TargetInfo.Title,
			}}
			if e.own == "" {
				e.own = p.TargetInfo.Context
			}
			entry = e.pages[p.TargetInfo.TargetID].went(p.TargetInfo.URL, true)
		}
	case "Target.detachedFromTarget":
		if e.pages[e.targets[p.SessionID]] != nil {
			e.closes = max(0, e.closes-1)
		}
		delete(e.frames, e.targets[p.SessionID])
		delete(e.pages, e.targets[p.SessionID])
		delete(e.targets, p.SessionID)
	case "Target.targetInfoChanged":
		if pg := e.pages[p.TargetInfo.TargetID]; pg != nil {
			pg.Title, pg.URL = p.TargetInfo.Title, p.TargetInfo.URL
			entry = pg.went(pg.URL, true)
		} else if p.TargetInfo.Type == "iframe" {
			entry = e.frameIn(e.pageOf(p.TargetInfo.TargetID), p.TargetInfo.URL)
		}
	case "Page.frameNavigated":
		// In its own session the root of another process's frames has no parent.
		if p.Frame.ParentID == "" && current != nil {
			current.URL, current.Crashed, current.Dialog = p.Frame.URL, false, ""
			entry = current.committed(p.Frame.URL)
		} else {
			entry = e.frameIn(in, p.Frame.URL)
		}
	case "Page.navigatedWithinDocument":
		if current != nil && p.FrameID == current.TargetID {
			current.URL = p.URL
			entry = current.went(p.URL, false)
		} else {
			entry = e.frameIn(in, p.URL)
		}
	case "Page.frameRequestedNavigation":
		if method, ok := strings.CutPrefix(p.Reason, "formSubmission"); ok {
			entry = &checkpoint.Entry{Kind: checkpoint.KindForm, Method: strings.ToUpper(method), URL: p.URL, Target: e.targetOf(event.Session, in)}
			also = elsewhere(*entry, p.Disposition)
		}
	case "Page.downloadWillBegin":
		entry = &checkpoint.Entry{Kind: checkpoint.KindDownload, URL: p.URL, Target: e.targetOf(event.Session, in)}
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
	default: // of DOMStorage
		area := evidence.SessionStorage
		if p.Storage.Local {
			area = evidence.LocalStorage
		}
		entry = &checkpoint.Entry{Kind: checkpoint.KindStorage, URL: cmp.Or(p.Storage.Origin, p.Storage.Key), Name: area}
		// One change is as good as many.
		e.observer.Post(event.Session, "DOMStorage.disable", nil)
	}
	e.mu.Unlock()
	if event.Method == "Target.attachedToTarget" {
		e.look(p.SessionID, p.TargetInfo.Type)
	}
	if event.Method == "Page.frameNavigated" || event.Method == "Target.detachedFromTarget" {
		e.missed()
	}
	for _, entry := range []*checkpoint.Entry{entry, also} {
		if entry != nil {
			e.record(*entry)
		}
	}
}

// targetOf is the page that a session is of, or its own target where that is not
// known. The caller holds e.mu.
func (e *eyes) targetOf(session string, in *page) string {
	if in != nil {
		return in.TargetID
	}
	return e.targets[session]
}

// elsewhere is the request of a form that is posted into another tab or window, which
// its worker wanted (a click with Ctrl or Shift): the browser sends it before anybody
// can look into the tab, so that no session is told of it. Where one is, as of
// target=_blank, it counts twice, which is as much as once.
func elsewhere(form checkpoint.Entry, disposition string) *checkpoint.Entry {
	if form.Method != http.MethodPost || disposition == "currentTab" {
		return nil
	}
	return &checkpoint.Entry{Kind: checkpoint.KindRequest, Method: form.Method, URL: form.URL, Type: "Document", Target: form.Target}
}

// pageOf is the page that a frame in a process of its own belongs to, at whatever
// depth; nil where it is not known. The caller holds e.mu.
func (e *eyes) pageOf(target string) *page {
	for range maxFrameDepth {
		if pg := e.pages[target]; pg != nil {
			return pg
		}
		target = e.frames[target]
	}
	return nil
}

// maxFrameDepth bounds how deep frames are followed.
const maxFrameDepth = 32

// frameIn is an entry for a frame inside a page, which record judges: Text is the
// page's URL.
func (e *eyes) frameIn(pg *page, url string) *checkpoint.Entry {
	if pg == nil || !strings.HasPrefix(url, "http") {
		return nil
	}
	pg.framed = true
	return &checkpoint.Entry{Kind: checkpoint.KindFrame, URL: url, Text: pg.URL, Target: pg.TargetID}
}

// missed records where pages may have sent something unseen.
func (e *eyes) missed() {
	for _, u := range e.documents.left() {
		e.record(checkpoint.Entry{Kind: checkpoint.KindRequest, Method: checkpoint.Unseen, URL: u,
			Text: "typed into, and left for another site or closed: what it sent then is not known"})
	}
}

// overlooked records that commands did not reach the browser, because it did not read
// for long: there may be a page that nobody looked at.
func (e *eyes) overlooked() {
	n := e.mux.Dropped()
	e.mu.Lock()
	more := n != e.dropped
	e.dropped = n
	e.mu.Unlock()
	if more {
		e.record(checkpoint.Entry{Kind: checkpoint.KindRequest, Method: checkpoint.Unseen,
			Text: "the browser did not take what turns a page's events on: what it sent is not known"})
	}
}

// look turns on what the eyes need of a new target. Buffers are as small as they
// get: only the fact of a request matters.
func (e *eyes) look(session, kind string) {
	if kind == "page" {
		e.observer.Post(session, "Inspector.enable", nil)
	}
	if kind == "page" || kind == "iframe" {
		e.observer.Post(session, "Page.enable", nil)
		e.observer.Post(session, "DOMStorage.enable", nil)
	}
	e.observer.Post(session, "Log.enable", nil)
	e.observer.Post(session, "Network.enable", map[string]any{"maxTotalBufferSize": 1, "maxResourceBufferSize": 1})
	e.observer.Post(session, "Target.setAutoAttach", autoAttach)
	e.observer.Post(session, "Runtime.runIfWaitingForDebugger", nil)
}

// printed takes what a page printed, as a client's own session was told of it.
func (e *eyes) printed(t cdpproxy.Traffic) {
	e.console.See(time.Now(), e.token.Load(), t.Method, t.Params)
}

func worthNoting(url string) bool { return url != "" && url != "about:blank" }

// group are requests that are the same to the byte, from the same document.
type group struct {
	name     string
	waiting  []string // ids of those whose answer is not known
	answered int      // with success
	// prompted says that one came of what a worker did before they were polling, polls
	// that they were before that.
	prompted, polls bool
}

// sentBy records what a page sent, once however many peers were told of it.
func (e *eyes) sentBy(t cdpproxy.Traffic) {
	defer e.recorded.Add(1)
	var p request
	if json.Unmarshal(t.Params, &p) != nil {
		return
	}
	entry, sent := p.entry(e.posts)
	if declared := e.harmless.Load(); declared != nil {
		entry.Declared = recovery.Declared(*declared, sent)
	}
	entry.Unprompted = !p.Gesture && t.Acted < e.documents.since(p.LoaderID, p.FrameID)
	e.mu.Lock()
	seen, what := e.sent, [2]string{p.RequestID, sent.Method + " " + sent.URL} // a redirect is a request of its own
	if sent.Method == checkpoint.Websocket {
		seen, what[1] = e.sockets, entry.Declared
	}
	known := seen[what]
	remember(seen, what, true)
	if key, ok := p.same(); ok && !known {
		g := e.groups[key]
		if g == nil {
			e.grouped++
			g = &group{name: fmt.Sprint(e.name, "-", e.grouped)}
			remember(e.groups, key, g)
		}
		entry.Group = g.name
		if entry.Unprompted = g.takes(entry); entry.Unprompted {
			entry.Repeat = g.next(p.RequestID, e.posts)
			g.polls = g.polls || entry.Repeat >= recovery.PollingFrom
		}
	}
	e.mu.Unlock()
	if !known {
		e.record(entry)
	}
}

// takes tells whether one more may be polling: a page begins by itself, and what it
// goes on with after somebody acted is polling only if it was that before.
func (g *group) takes(e checkpoint.Entry) bool {
	takes := !e.Gesture && (e.Unprompted && !g.prompted || g.polls)
	g.prompted = g.prompted || !takes
	return takes
}

// next counts one more, and returns how many there are with those that had been
// answered with success.
func (g *group) next(id string, p *posts) int {
	g.waiting = slices.DeleteFunc(g.waiting, func(id string) bool {
		ok, known := p.answer(id)
		if ok {
			g.answered++
		}
		return known
	})
	if len(g.waiting) < maxWaiting {
		g.waiting = append(g.waiting, id)
	}
	return g.answered + 1
}

// maxWaiting bounds how many requests of a group are asked after.
const maxWaiting = 16

// request is what is read of Network.requestWillBeSent, and of
// Network.webSocketFrameSent.
type request struct {
	RequestID string `json:"requestId"`
	LoaderID  string `json:"loaderId"`
	FrameID   string `json:"frameId"`
	Type      string `json:"type"`
	Gesture   bool   `json:"hasUserGesture"`
	Request   struct {
		URL     string            `json:"url"`
		Method  string            `json:"method"`
		Headers map[string]string `json:"headers"`
		Body    string            `json:"postData"`
		HasBody bool              `json:"hasPostData"`
	} `json:"request"`
	Message *struct {
		Opcode int    `json:"opcode"`
		Data   string `json:"payloadData"`
	} `json:"response"`
}

// entry returns what is recorded of it, and what it is judged by, which stays in
// memory.
func (r request) entry(p *posts) (checkpoint.Entry, recovery.Sent) {
	if r.Message != nil {
		sent := recovery.Sent{Method: checkpoint.Websocket, URL: p.socket(r.RequestID), Body: r.Message.Data, Whole: r.Message.Opcode == textMessage}
		return checkpoint.Entry{Kind: checkpoint.KindRequest, Method: sent.Method, URL: sent.URL, Text: "messages on a websocket"}, sent
	}
	sent := recovery.Sent{Method: r.Request.Method, URL: r.Request.URL, Body: r.Request.Body, Whole: r.Request.Body != "" || !r.Request.HasBody, Form: recovery.IsForm(r.Request.Headers)}
	e := checkpoint.Entry{Kind: checkpoint.KindRequest, Method: sent.Method, URL: sent.URL, Type: r.Type, Gesture: r.Gesture}
	if r.Type == "Ping" && r.Request.Headers["Content-Type"] == "text/ping" {
		e.Name = checkpoint.LinkPing
	}
	return e, sent
}

// textMessage is the opcode of a websocket's text.
const textMessage = 1

// same is equal for requests of scripts that are the same, in one document; false
// for others, and where not all of it is known. It stays in memory.
func (r request) same() (key [32]byte, ok bool) {
	if r.Type != "XHR" && r.Type != "Fetch" || r.Request.Body == "" && r.Request.HasBody || r.LoaderID == "" {
		return key, false
	}
	b, err := json.Marshal([]string{r.LoaderID, r.Type, r.Request.Method, r.Request.URL, r.Request.Body})
	return sha256.Sum256(b), err == nil
}

// checkpointed has messages on websockets recorded again that were recorded
// before, and that a page may have gone unwatched: the task named a point, and what
// comes after it counts anew.
func (e *eyes) checkpointed() {
	e.mu.Lock()
	defer e.mu.Unlock()
	clear(e.sockets)
	e.dropped = 0
}

// open returns the pages, the one that did something last first.
func (e *eyes) open() []capture.Page {
	e.mu.Lock()
	defer e.mu.Unlock()
	sorted := make([]*page, 0, len(e.pages))
	for _, p := range e.pages {
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

// primary is the page that did something last, if one is open.
func (e *eyes) primary() (capture.Page, bool) {
	if pages := e.open(); len(pages) > 0 {
		return pages[0], true
	}
	return capture.Page{}, false
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
