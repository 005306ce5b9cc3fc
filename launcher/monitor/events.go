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
	"leasehold/evidence"
	"leasehold/evidence/capture"
	"leasehold/internal/boottime"
)

// CDP's names of the events that the monitor handles.
const (
	eventAttached         = "Target.attachedToTarget"
	eventDetached         = "Target.detachedFromTarget"
	eventInfoChanged      = "Target.targetInfoChanged"
	eventDestroyed        = "Target.targetDestroyed"
	eventFrameStarted     = "Page.frameStartedNavigating"
	eventFrameNavigated   = "Page.frameNavigated"
	eventNavigatedWithin  = "Page.navigatedWithinDocument"
	eventFrameRequested   = "Page.frameRequestedNavigation"
	eventContentLoaded    = "Page.domContentEventFired"
	eventDownload         = "Page.downloadWillBegin"
	eventDialogOpening    = "Page.javascriptDialogOpening"
	eventDialogClosed     = "Page.javascriptDialogClosed"
	eventCrashed          = "Inspector.targetCrashed"
	eventStorageAdded     = "DOMStorage.domStorageItemAdded"
	eventStorageUpdated   = "DOMStorage.domStorageItemUpdated"
	eventStorageRemoved   = "DOMStorage.domStorageItemRemoved"
	eventStorageCleared   = "DOMStorage.domStorageItemsCleared"
	eventLogEntry         = "Log.entryAdded"
	eventWebSocketCreated = "Network.webSocketCreated"
	eventRequest          = "Network.requestWillBeSent"
	eventResponse         = "Network.responseReceived"
	eventFinished         = "Network.loadingFinished"
	eventFailed           = "Network.loadingFailed"
	eventVersionUpdated   = "ServiceWorker.workerVersionUpdated"
)

// Chrome's types of targets, as far as the monitor distinguishes them.
const (
	typePage   = "page"
	typeIframe = "iframe" // a frame in a process of its own
	typeWorker = "worker" // a dedicated worker

	typeServiceWorker = "service_worker"
)

// process handles one of watchedEvents.
func (m *Monitor) process(event cdpproxy.Event) {
	var entries []checkpoint.Entry
	var first func() // called before the entries are reported
	m.mu.Lock()
	m.ticks++
	// current is the page that the session is attached to, nil if its target is no
	// page. containing is that page, or the page that the session's frame is in.
	current := m.pages[m.targets[event.Session]]
	containing := m.pageOf(m.targets[event.Session])
	if current != nil && event.Method != eventInfoChanged {
		current.lastEvent = m.ticks
	}
	report := func(entry *checkpoint.Entry) {
		if entry != nil {
			entries = append(entries, *entry)
		}
	}
	switch event.Method {
	case eventAttached:
		var p target.EventAttachedToTarget
		if decode(event, &p) && p.TargetInfo != nil {
			report(m.attached(event.Session, string(p.SessionID), p.TargetInfo))
			listening := m.listenForVersions(p.TargetInfo)
			first = func() {
				m.enable(&p)
				for _, session := range listening {
					m.observer.Post(session, "ServiceWorker.enable", nil)
				}
			}
		}
	case eventDetached:
		var p target.EventDetachedFromTarget
		if decode(event, &p) {
			m.detached(string(p.SessionID))
			first = m.reportUnseen
		}
	case eventInfoChanged:
		var p target.EventTargetInfoChanged
		if decode(event, &p) && p.TargetInfo != nil {
			report(m.infoChanged(p.TargetInfo))
			m.firstDocument(m.pages[string(p.TargetInfo.TargetID)])
		}
	case eventDestroyed: // nothing to report: Clear waits for this event
	case eventVersionUpdated:
		var p serviceworker.EventWorkerVersionUpdated
		if decode(event, &p) {
			first = func() { m.leaveRedundant(p.Versions) }
		}
	case eventFrameNavigated:
		var p cdppage.EventFrameNavigated
		if decode(event, &p) && p.Frame != nil {
			// The root frame in another process has no parent either, but its session's
			// target is no page.
			if p.Frame.ParentID == "" && current != nil {
				current.URL, current.Crashed, current.Dialog = p.Frame.URL, false, ""
				report(current.committed(p.Frame.URL))
				m.firstDocument(current)
			} else {
				report(frameEntry(containing, p.Frame.URL))
			}
			first = m.reportUnseen
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
				form := checkpoint.Entry{Kind: checkpoint.KindForm, Method: strings.ToUpper(method), URL: p.URL, Target: m.targetOf(event.Session, containing)}
				report(&form)
				report(postElsewhere(form, p.Disposition))
			}
		}
	case eventDownload: // Page.downloadWillBegin, which cdproto has no more, has the same members
		var p browser.EventDownloadWillBegin
		if decode(event, &p) {
			report(&checkpoint.Entry{Kind: checkpoint.KindDownload, URL: p.URL, Target: m.targetOf(event.Session, containing)})
		}
	case eventDialogOpening:
		var p cdppage.EventJavascriptDialogOpening
		if decode(event, &p) && current != nil {
			current.Dialog = string(p.Type) + ": " + p.Message
			report(&checkpoint.Entry{Kind: checkpoint.KindDialog, URL: p.URL, Name: string(p.Type), Target: current.TargetID})
		}
	case eventDialogClosed:
		if current != nil {
			current.Dialog = ""
		}
	case eventCrashed:
		if current != nil && !m.navigations.closing.Load() { // the launcher itself ends them
			current.Crashed = true
			report(&checkpoint.Entry{Kind: checkpoint.KindCrash, URL: current.URL, Target: current.TargetID})
		}
	case eventStorageAdded, eventStorageUpdated, eventStorageRemoved, eventStorageCleared:
		// All four events have this member.
		var p domstorage.EventDomStorageItemsCleared
		if decode(event, &p) && p.StorageID != nil {
			report(storageEntry(p.StorageID))
			// Only the fact of a change matters.
			m.observer.Post(event.Session, "DOMStorage.disable", nil)
		}
	}
	m.mu.Unlock()
	if first != nil {
		first()
	}
	for _, entry := range entries {
		m.sink(entry)
	}
}

// attached adds a new target. parent is the session on which it was reported. The
// caller holds m.mu.
func (m *Monitor) attached(parent, session string, t *target.Info) *checkpoint.Entry {
	id := string(t.TargetID)
	m.targets[session] = id
	switch t.Type {
	case typeIframe:
		m.frames[id] = m.targets[parent]
		return frameEntry(m.pageOf(id), t.URL)
	case typePage:
		m.pages[id] = &page{
			opened: boottime.Now(), lastEvent: m.ticks, context: string(t.BrowserContextID), framed: notBlank(t.URL),
			Page: capture.Page{TargetID: id, SessionID: session, Type: typePage, URL: t.URL, Title: t.Title},
		}
		if m.ownContext == "" {
			m.ownContext = string(t.BrowserContextID)
		}
		return m.pages[id].navigated(t.URL, true)
	}
	return nil
}

// detached removes a target whose session ended. The caller holds m.mu.
func (m *Monitor) detached(session string) {
	id := m.targets[session]
	if m.pages[id] != nil {
		m.closing = max(0, m.closing-1)
	}
	delete(m.frames, id)
	delete(m.pages, id)
	delete(m.targets, session)
}

// infoChanged updates a target as the browser's own session describes it. The caller
// holds m.mu.
func (m *Monitor) infoChanged(t *target.Info) *checkpoint.Entry {
	if pg := m.pages[string(t.TargetID)]; pg != nil {
		pg.Title, pg.URL = t.Title, t.URL
		return pg.navigated(pg.URL, true)
	}
	if t.Type == typeIframe {
		return frameEntry(m.pageOf(string(t.TargetID)), t.URL)
	}
	return nil
}

// postElsewhere is the request of a form that is posted into another tab or window, as
// by a click with Ctrl or Shift. The browser sends it before that tab can be watched,
// so no session gets an event about it. Where a session does get one, as with
// target=_blank, the request is reported twice, which does no harm.
func postElsewhere(form checkpoint.Entry, disposition cdppage.ClientNavigationDisposition) *checkpoint.Entry {
	if form.Method != http.MethodPost || disposition == cdppage.ClientNavigationDispositionCurrentTab {
		return nil
	}
	return &checkpoint.Entry{Kind: checkpoint.KindRequest, Method: form.Method, URL: form.URL, Type: "Document", Target: form.Target}
}

// storageEntry reports that a page changed its storage.
func storageEntry(s *domstorage.StorageID) *checkpoint.Entry {
	area := evidence.SessionStorage
	if s.IsLocalStorage {
		area = evidence.LocalStorage
	}
	return &checkpoint.Entry{Kind: checkpoint.KindStorage, URL: cmp.Or(s.SecurityOrigin, string(s.StorageKey)), Name: area}
}

// enable turns on the events of a new target, and lets it run. Chrome's network buffers
// are small: only the few words that answer a write matter.
func (m *Monitor) enable(attached *target.EventAttachedToTarget) {
	session, kind := string(attached.SessionID), attached.TargetInfo.Type
	if kind == typePage {
		m.observer.Post(session, "Inspector.enable", nil)
	}
	if kind == typePage || kind == typeIframe {
		m.observer.Post(session, "Page.enable", nil)
		m.observer.Post(session, "DOMStorage.enable", nil)
		m.watchPresses(session)
		m.watchTyping(session, string(attached.TargetInfo.TargetID))
	}
	m.observer.Post(session, "Log.enable", nil)
	m.observer.Post(session, "Network.enable", map[string]any{"maxTotalBufferSize": maxAnswers, "maxResourceBufferSize": maxKept})
	m.observer.Post(session, "Target.setAutoAttach", autoAttach)
	if attached.WaitingForDebugger {
		m.observer.LetRun(session, string(attached.TargetInfo.TargetID))
	}
}
