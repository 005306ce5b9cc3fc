package monitor

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/domstorage"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/serviceworker"
	"github.com/chromedp/cdproto/target"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/evidence/capture"
	"leasehold/internal/boottime"
)

// CDP's names of the events that the monitor handles.
const (
	eventAttached        = "Target.attachedToTarget"
	eventDetached        = "Target.detachedFromTarget"
	eventInfoChanged     = "Target.targetInfoChanged"
	eventDestroyed       = "Target.targetDestroyed"
	eventFrameStarted    = "Page.frameStartedNavigating"
	eventFrameNavigated  = "Page.frameNavigated"
	eventFrameDetached   = "Page.frameDetached"
	eventNavigatedWithin = "Page.navigatedWithinDocument"
	eventFrameRequested  = "Page.frameRequestedNavigation"
	eventDownload        = "Page.downloadWillBegin"
	eventDialogOpening   = "Page.javascriptDialogOpening"
	eventDialogClosed    = "Page.javascriptDialogClosed"
	eventCrashed         = "Inspector.targetCrashed"
	eventStorageAdded    = "DOMStorage.domStorageItemAdded"
	eventStorageUpdated  = "DOMStorage.domStorageItemUpdated"
	eventStorageRemoved  = "DOMStorage.domStorageItemRemoved"
	eventStorageCleared  = "DOMStorage.domStorageItemsCleared"
	eventLogEntry        = "Log.entryAdded"
	eventVersionUpdated  = "ServiceWorker.workerVersionUpdated"
)

// Chrome's types of targets, as far as the monitor distinguishes them.
const (
	typePage   = "page"
	typeIframe = "iframe" // a frame in a process of its own
	typeWorker = "worker" // a dedicated worker
	// typeOther is that of a window without a tab, such as the one that a payment opens, which Chrome calls a
	// page as soon as it has a document; and of a page in no window, which stays one. Either counts as a page
	// as soon as it has a document of the web.
	typeOther = capture.TypeOther

	typeServiceWorker = "service_worker"
)

func (m *Monitor) process(event cdpproxy.Event) {
	seen := m.pages.observe(event)
	if seen.document != "" && !m.navigations.firstReported(seen.document) {
		m.cookies.documentCame()
	}
	switch {
	case seen.attached != nil:
		m.enable(seen.attached)
		for _, session := range seen.listening {
			m.chrome.Post(session, "ServiceWorker.enable", nil)
		}
	case seen.versions != nil:
		m.leaveRedundant(seen.versions)
	case seen.stored: // only the fact of a change matters
		m.chrome.Post(event.Session, "DOMStorage.disable", nil)
	}
	reportAll(m.sink, seen.entries)
}

// pageEvent is what one event says about the pages, and what has to be done before its entries
// are reported.
type pageEvent struct {
	entries  []checkpoint.Entry
	attached *target.EventAttachedToTarget // the events of a new target are to be turned on
	// listening are the sessions of pages that are to tell of the versions of service workers,
	// and versions are those that one tells of.
	listening []string
	versions  []*serviceworker.Version
	document  string // the target of a page that may have its first document; empty if none has
	stored    bool   // the session's page changed its storage
}

func (ps *pages) observe(event cdpproxy.Event) (seen pageEvent) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.ticks++
	// current is the page that the session is attached to, or nil if its target is not a page.
	// containing is that page, or else the page that contains the session's frame.
	current := ps.open[ps.targets[event.Session]]
	containing := ps.pageOf(ps.targets[event.Session])
	if current != nil && event.Method != eventInfoChanged {
		current.lastEvent = ps.ticks
	}
	report := func(entry *checkpoint.Entry) {
		if entry != nil {
			seen.entries = append(seen.entries, *entry)
		}
	}
	switch event.Method {
	case eventAttached:
		var p target.EventAttachedToTarget
		if decode(event, &p) && p.TargetInfo != nil {
			report(ps.attached(event.Session, string(p.SessionID), p.TargetInfo))
			seen.attached = &p
			seen.listening = ps.listenForVersions(p.TargetInfo)
		}
	case eventDetached:
		var p target.EventDetachedFromTarget
		if decode(event, &p) {
			report(ps.detached(string(p.SessionID)))
		}
	case eventInfoChanged:
		var p target.EventTargetInfoChanged
		if decode(event, &p) && p.TargetInfo != nil {
			report(ps.infoChanged(p.TargetInfo))
			seen.document = ps.open[string(p.TargetInfo.TargetID)].withDocument()
		}
	case eventDestroyed: // nothing to report: Clear waits for this event
	case eventVersionUpdated:
		var p serviceworker.EventWorkerVersionUpdated
		if decode(event, &p) {
			seen.versions = p.Versions
		}
	case eventFrameNavigated:
		var p cdppage.EventFrameNavigated
		if decode(event, &p) && p.Frame != nil {
			// The root frame in another process has no parent either, but its session's
			// target is no page.
			if p.Frame.ParentID == "" && current != nil {
				current.URL, current.Crashed, current.Dialog = p.Frame.URL, false, ""
				report(current.committed(p.Frame.URL))
				seen.document = current.withDocument()
			} else {
				report(frameEntry(containing, p.Frame.URL))
			}
		}
	case eventNavigatedWithin:
		var p cdppage.EventNavigatedWithinDocument
		if decode(event, &p) {
			if current != nil && string(p.FrameID) == current.TargetID {
				current.URL = p.URL
				report(current.navigated(p.URL, false))
			} else {
				report(frameEntry(containing, p.URL))
			}
		}
	case eventFrameRequested:
		var p cdppage.EventFrameRequestedNavigation
		if decode(event, &p) {
			if method, ok := strings.CutPrefix(string(p.Reason), "formSubmission"); ok {
				form := checkpoint.Entry{Kind: checkpoint.KindForm, Method: strings.ToUpper(method), URL: p.URL, Target: ps.targetOf(event.Session, containing)}
				report(&form)
				report(postElsewhere(form, p.Disposition))
			}
		}
	case eventDownload: // Page.downloadWillBegin has the same members; cdproto no longer has that event
		var p browser.EventDownloadWillBegin
		if decode(event, &p) {
			report(&checkpoint.Entry{Kind: checkpoint.KindDownload, URL: p.URL, Target: ps.targetOf(event.Session, containing)})
		}
	case eventDialogOpening:
		var p cdppage.EventJavascriptDialogOpening
		if decode(event, &p) && current != nil {
			current.Dialog = string(p.Type) + ": " + p.Message
			current.DialogNumber = ps.ticks
			report(&checkpoint.Entry{Kind: checkpoint.KindDialog, URL: p.URL, Name: string(p.Type), Target: current.TargetID})
		}
	case eventDialogClosed:
		if current != nil {
			current.Dialog = ""
		}
	case eventCrashed:
		if current != nil && !ps.navigations.closing.Load() { // the launcher itself ends the pages
			current.Crashed = true
			report(&checkpoint.Entry{Kind: checkpoint.KindCrash, URL: current.URL, Target: current.TargetID})
		}
	case eventStorageAdded, eventStorageUpdated, eventStorageRemoved, eventStorageCleared:
		// All four events have this member.
		var p domstorage.EventDomStorageItemsCleared
		if decode(event, &p) && p.StorageID != nil {
			report(storageEntry(p.StorageID))
			seen.stored = true
		}
	}
	return seen
}

// attached adds a new target. parent is the session on which it was reported. The
// caller holds ps.mu.
func (ps *pages) attached(parent, session string, t *target.Info) *checkpoint.Entry {
	id := string(t.TargetID)
	ps.targets[session] = id
	switch t.Type {
	case typeIframe:
		ps.frames[id] = ps.targets[parent]
		return frameEntry(ps.pageOf(id), t.URL)
	case typeOther:
		ps.windows[id] = session
		return ps.infoChanged(t)
	case typePage:
		return ps.opened(session, t)
	}
	return nil
}

// opened adds a page. The caller holds ps.mu.
func (ps *pages) opened(session string, t *target.Info) *checkpoint.Entry {
	pg := &page{
		opened: boottime.Now(), lastEvent: ps.ticks, context: string(t.BrowserContextID), framed: notBlank(t.URL),
		Page: capture.Page{TargetID: string(t.TargetID), SessionID: session, Type: t.Type, URL: t.URL, Title: t.Title},
	}
	ps.open[pg.TargetID] = pg
	if ps.ownContext == "" {
		ps.ownContext = pg.context
	}
	return pg.navigated(t.URL, true)
}

// detached removes a target whose session ended, and reports that its page is closed. The caller holds
// ps.mu.
func (ps *pages) detached(session string) (closed *checkpoint.Entry) {
	id := ps.targets[session]
	if pg := ps.open[id]; pg != nil && pg.SessionID == session && pg.reported != "" && !ps.navigations.closing.Load() {
		closed = &checkpoint.Entry{Kind: checkpoint.KindClosed, Target: id}
	}
	delete(ps.closing, id)
	delete(ps.frames, id)
	delete(ps.open, id)
	delete(ps.windows, id)
	delete(ps.targets, session)
	return closed
}

// infoChanged updates a target as the browser's own session describes it. The caller
// holds ps.mu.
func (ps *pages) infoChanged(t *target.Info) *checkpoint.Entry {
	if pg := ps.open[string(t.TargetID)]; pg != nil {
		pg.Type, pg.Title, pg.URL = t.Type, t.Title, t.URL
		return pg.navigated(pg.URL, true)
	}
	switch session := ps.windows[string(t.TargetID)]; {
	case t.Type == typeIframe:
		return frameEntry(ps.pageOf(string(t.TargetID)), t.URL)
	case session != "" && (t.Type == typePage || strings.HasPrefix(t.URL, "http")):
		return ps.opened(session, t)
	}
	return nil
}

// postElsewhere is the request of a form that is submitted into another tab or window, for
// example by a click with Ctrl or Shift. The browser sends it before that tab can be watched,
// so no session gets an event about it. In cases where a session does get one, as with
// target=_blank, the request is reported twice, which does no harm.
func postElsewhere(form checkpoint.Entry, disposition cdppage.ClientNavigationDisposition) *checkpoint.Entry {
	if form.Method != http.MethodPost || disposition == cdppage.ClientNavigationDispositionCurrentTab {
		return nil
	}
	return &checkpoint.Entry{Kind: checkpoint.KindRequest, Method: form.Method, URL: form.URL, Type: "Document", Target: form.Target}
}

// storageEntry reports that a page changed its storage.
func storageEntry(s *domstorage.StorageID) *checkpoint.Entry {
	area := "session"
	if s.IsLocalStorage {
		area = "local"
	}
	return &checkpoint.Entry{Kind: checkpoint.KindStorage, URL: cmp.Or(s.SecurityOrigin, string(s.StorageKey)), Name: area}
}

// enable turns on the events of a new target, and lets it run. Chrome keeps no answers for the
// launcher, which needs none.
func (m *Monitor) enable(attached *target.EventAttachedToTarget) {
	session, kind := string(attached.SessionID), attached.TargetInfo.Type
	if kind == typePage || kind == typeOther {
		m.chrome.Post(session, "Inspector.enable", nil)
		if m.place != nil { // counts for all frames of the tab
			m.chrome.Post(session, overridePlace, m.place)
		}
	}
	if kind == typePage || kind == typeOther || kind == typeIframe {
		m.chrome.Post(session, "Page.enable", nil)
		m.chrome.Post(session, "DOMStorage.enable", nil)
		m.typing.runIn(session)
		m.typing.watch(session, string(attached.TargetInfo.TargetID))
	}
	m.chrome.Post(session, "Log.enable", nil)
	m.chrome.Post(session, "Network.enable", map[string]any{"maxTotalBufferSize": 1, "maxResourceBufferSize": 1})
	m.chrome.Post(session, "Target.setAutoAttach", autoAttach)
	if attached.WaitingForDebugger {
		m.chrome.LetRun(session)
	}
}
