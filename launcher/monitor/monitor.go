// Package monitor watches what the pages of one browser do: where they navigate, what they
// send, store, print and ask, and which of them are open. It reports the entries of a session's
// journal, and changes nothing in the pages. If a session has rules about what its pages may
// send, the guard enforces them.
package monitor

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/checkpoint/ledger"
	"leasehold/checkpoint/shape"
	"leasehold/checkpoint/site"
	"leasehold/evidence/recorder"
	"leasehold/evidence/redact"
	"leasehold/internal/boottime"
	"leasehold/launcher/recovery/findings"
	"leasehold/lease"
)

// Monitor is the launcher's own view of one browser. It consists of parts, each of which owns
// its state, and passes to them what Chrome reports. Its methods are safe for concurrent use.
//
// The parts are used by three kinds of goroutines. The reader of the browser's pipe calls
// Traffic and readerEvent: neither of them, nor anything that they call, may block. Watch runs
// the others: one processes the events about pages (process), one processes what waits in the
// backlog (processHeard), three ask Chrome (one about cookies, and two about what is typed
// into), and one passes on what all of them report (outbox). Only that one may
// wait for a disk. Callers in other packages use the exported methods.
//
// The monitor has no lock. Each part has one lock or none. A goroutine that holds the lock of
// one part may take the lock of another only in this order:
//
//	requestLog -> cookieWatch -> pages -> navigations, talk
//	requestLog -> Still -> unreported
//
// The locks of the mux come after all of these. No part calls sink while it holds its lock.
type Monitor struct {
	chrome *link
	outbox *outbox
	sink   func(checkpoint.Entry) // into the outbox

	// The parts of the evidence about the network and the console.
	token   atomic.Uint64 // of the newest run; both parts name it
	log     *requestLog
	console recorder.Console

	// What is known of the browser.
	navigations *navigations
	pages       *pages
	answers     *answers
	talk        *talk
	gets        *GETs
	harmless    *harmless
	downloads   *Downloads

	// What reports entries to sink, and asks Chrome.
	requests   *requests
	unreported *unreported
	netLog     *netLog
	typing     *typing
	still      *Still
	guard      *Guard
	cookies    *Cookies
	tabs       *Tabs

	backlog      *backlog
	place        map[string]any // where pages find that they are; nil: what the browser finds out
	lastOverflow time.Time      // when the backlog was full; used by the pipe's reader alone
	dropped      atomic.Uint64  // commands that the mux dropped and that were reported since the last checkpoint
	unlogged     atomic.Uint32  // whether there is no NetLog
}

// link is the monitor's connection to the browser, which its parts share: the launcher's own
// session, and the mux. Both are nil until Attach.
type link struct {
	*cdpproxy.Observer
	mux *cdpproxy.Mux
}

// caller makes CDP calls on the launcher's own sessions. A link is one.
type caller interface {
	Call(ctx context.Context, session, method string, params, result any) error
	Post(session, method string, params any)
}

// maxKnown bounds how many documents, requests and groups are remembered. One that was
// forgotten is never taken for harmless.
const maxKnown = 4096

// New returns a monitor that reports to the function to, which gets every entry with its time.
// While Watch runs, only one goroutine of it calls that function, which may wait for a disk. The
// monitor sees nothing until Attach.
func New(to func(checkpoint.Entry)) *Monitor {
	out := newOutbox(to)
	sink := out.report
	n := newUnreported()
	m := &Monitor{
		unreported: n, netLog: newNetLog(),
		chrome: &link{}, outbox: out, sink: sink, backlog: newBacklog(), log: &requestLog{},
		navigations: newNavigations(), talk: newTalk(), harmless: &harmless{}, downloads: newDownloads(),
	}
	m.answers = newAnswers(m.log, m.navigations)
	m.pages = newPages(m.navigations)
	m.still, m.guard = newStill(m.log, n, sink), newGuard(m.chrome, m.harmless, sink)
	m.typing = newTyping(m.chrome, m.pages, sink)
	m.requests = newRequests(m.log, m.still, m.typing, m.harmless, n, sink)
	m.cookies = newCookies(m.chrome, m.pages, m.navigations, m.still, sink)
	m.gets = newGETs(m.log, m.pages, m.navigations, m.typing, m.harmless, m.still, sink)
	m.tabs = newTabs(m.chrome, m.pages, m.backlog, m.outbox)
	return m
}

// accuracy is how exact a place is that pages are given, in meters: what a radio network tells.
const accuracy = 30

// SetPlace has all pages find that they are there, in degrees, if they may ask. It is called before
// Attach.
func (m *Monitor) SetPlace(latitude, longitude float64) {
	m.place = map[string]any{"latitude": latitude, "longitude": longitude, "accuracy": accuracy}
}

// KeepPlace gives the open pages their place again, after a client has left: Chrome drops a place with
// the session that set it, also one that was set since by another.
func (m *Monitor) KeepPlace() {
	if m.place == nil {
		return
	}
	for _, page := range m.Pages() {
		m.chrome.Post(page.SessionID, overridePlace, m.place)
	}
}

const overridePlace = "Emulation.setGeolocationOverride"

// watchedEvents are the events that the monitor processes in its own goroutine.
var watchedEvents = []string{
	eventAttached, eventDetached, eventInfoChanged, eventDestroyed,
	eventFrameNavigated, eventNavigatedWithin, eventFrameRequested, eventDownload,
	eventDialogOpening, eventDialogClosed, eventCrashed,
	eventStorageAdded, eventStorageUpdated, eventStorageRemoved, eventStorageCleared,
	eventVersionUpdated,
}

// readerEvents are the events that the pipe's reader handles at once: those for the recorders,
// and those that show what caused a request. The monitor does not enable the Runtime domain,
// since pages can detect that.
var readerEvents = slices.Concat([]string{eventLogEntry, eventPaused, eventWebTransport, eventBindingCalled}, navigationEvents, getEvents, endings, downloadEvents, ledger.Events)

// Attach begins to observe the browser behind the mux. It is called once, before
// Watch.
func (m *Monitor) Attach(ctx context.Context, mux *cdpproxy.Mux) error {
	m.chrome.mux = mux
	m.navigations.follow(mux)
	m.gets.acted, m.gets.actedOn = mux.Acts().Last, m.navigations.actedOn
	var err error
	if m.chrome.Observer, err = mux.Listen(ctx, m.readerEvent, readerEvents, watchedEvents...); err != nil {
		return err
	}
	// A browser that starts is slow to take a command, so all are sent before the first reply.
	var sent []*cdpproxy.SentCall
	for _, c := range []struct {
		method string
		params any
	}{
		{"Browser.setDownloadBehavior", tellDownloads},
		{"Target.setDiscoverTargets", map[string]any{"discover": true}},
		{"Target.setAutoAttach", autoAttach},
	} {
		call, err := m.chrome.Send("", c.method, c.params)
		if err != nil {
			return err
		}
		defer call.Forget()
		sent = append(sent, call)
	}
	for _, call := range sent {
		if err := call.Wait(ctx, nil); err != nil {
			return err
		}
	}
	return nil
}

// autoAttach pauses each new target until enable has turned on its events. Otherwise the
// request of a form that opens a new tab would be missed.
var autoAttach = map[string]any{"autoAttach": true, "waitForDebuggerOnStart": true, "flatten": true}

// Observer makes CDP calls of the launcher's own. It is nil before Attach.
func (m *Monitor) Observer() *cdpproxy.Observer { return m.chrome.Observer }

// Guard acts on what pages send.
func (m *Monitor) Guard() *Guard { return m.guard }

// Still follows what pages send while the browser stands still.
func (m *Monitor) Still() *Still { return m.still }

// Cookies reports what becomes of the account's cookies.
func (m *Monitor) Cookies() *Cookies { return m.cookies }

// GETs follows the GETs of pages.
func (m *Monitor) GETs() *GETs { return m.gets }

// Downloads follows what pages download.
func (m *Monitor) Downloads() *Downloads { return m.downloads }

// Tabs opens and closes pages, and lists what is open.
func (m *Monitor) Tabs() *Tabs { return m.tabs }

// Attribute names the run to which everything seen from now on belongs, and the requests that
// the profile's owner declares harmless. A request is judged by the declarations that were in
// force when it was sent.
func (m *Monitor) Attribute(token lease.Token, harmless []string) {
	m.token.Store(uint64(token))
	m.harmless.declare(harmless)
}

// KnowSites makes the monitor judge requests by what is known of sites, too: each by what is known
// when it is sent.
func (m *Monitor) KnowSites(sites site.Source) { m.harmless.sites.Store(&sites) }

// harmless are the requests that the profile's owner declared harmless, and what is known of sites.
// The zero value has none.
type harmless struct {
	list  atomic.Pointer[[]findings.Harmless]
	sites atomic.Pointer[site.Source]
}

// book is what is known of sites now.
func (h *harmless) book() *site.Book {
	if sites := h.sites.Load(); sites != nil {
		return sites.Book()
	}
	return nil
}

// judge puts into an entry what is known of the request, and its shape.
func (h *harmless) judge(e *checkpoint.Entry, sent findings.Sent, headers map[string]string) {
	r := shape.Request{Method: sent.Method, URL: sent.URL, Headers: headers, Body: sent.Body, Whole: sent.Whole}
	book := h.book()
	r.Show = book.Show(r.URL)
	e.Shape, e.Declared = shapeOf(r), h.declared(sent)
	v := book.Judge(r, e.Shape)
	e.Known, e.KnownBy, e.Repeatable, e.Plain = v.Is, v.Line, v.Repeatable, site.Plain(r)
}

func (h *harmless) declare(texts []string) {
	var list []findings.Harmless
	for _, text := range texts {
		if one, err := findings.ParseHarmless(text); err == nil { // the settings of a profile accept only texts that can be parsed
			list = append(list, one)
		}
	}
	h.list.Store(&list)
}

// declared is the declaration that covers what was sent; empty if none does.
func (h *harmless) declared(sent findings.Sent) string {
	if list := h.list.Load(); list != nil {
		return findings.Declared(*list, sent)
	}
	return ""
}

// Network is the part of a bundle about the network.
func (m *Monitor) Network() []byte { return m.log.part() }

// Console is the part of a bundle about the console.
func (m *Monitor) Console() []byte { return m.console.Part() }

// Traffic takes in an event about what a page sent or printed. The pipe's reader calls it, so
// it never blocks.
func (m *Monitor) Traffic(t cdpproxy.Traffic) {
	switch {
	case t.Cookies != nil:
		m.cookies.watch.command(*t.Cookies)
		m.backlog.queue(heard{traffic: t}) // where there is no room, whatever is processed next reports it
		return
	case t.Kept != nil:
		m.answers.keptBack(*t.Kept)
		return
	case t.Rewritten != nil:
		m.answers.rewritten(t.Rewritten.RequestID)
		if !m.backlog.queue(heard{traffic: t}) {
			m.requests.rewritten(t)
		}
		return
	}
	if t.Method == eventMessageSent {
		m.still.message(boottime.Now())
	}
	if slices.Contains(recorder.ConsoleEvents, t.Method) {
		m.console.See(time.Now(), m.token.Load(), t.Method, t.Params)
		return
	}
	if !m.backlog.queue(heard{traffic: t}) {
		m.overflowed()
	}
}

// overflowed reports that something could not be recorded. The pipe's reader calls it.
func (m *Monitor) overflowed() {
	if time.Since(m.lastOverflow) > time.Second { // one unrecorded unsafe request counts as much as many
		m.lastOverflow = time.Now()
		m.sink(checkpoint.Entry{Kind: checkpoint.KindRequest, Method: "MANY", Text: "more requests at once than could be recorded"})
	}
}

// readerEvent handles one of readerEvents. The pipe's reader calls it.
func (m *Monitor) readerEvent(event cdpproxy.Event) {
	if event.Method == eventPaused || event.Method == eventWebTransport {
		m.guard.observe(event)
		return
	}
	if event.Method == eventBindingCalled {
		m.scriptTold(event)
		return
	}
	if slices.Contains(downloadEvents, event.Method) {
		m.downloads.observe(event)
		return
	}
	e := ledger.Event{Session: event.Session, Method: event.Method, Params: event.Params, At: time.Now(), Boot: boottime.Now(), Token: m.token.Load()}
	found := m.answers.replaced(event)
	var gets, cookies []checkpoint.Entry
	m.log.take(e, func(f ledger.Fact) {
		found = append(found, m.answers.observe(f)...)
		gets = append(gets, m.gets.observe(f)...)
		cookies = append(cookies, m.cookies.observe(f)...)
		m.still.observe(f)
		m.unreported.observe(f)
	})
	for _, a := range found {
		if !m.backlog.queue(heard{answer: &a}) && a.id == "" { // without an entry, an unsafe request (which has an id) counts as unanswered
			m.overflowed()
		}
	}
	m.gets.report(gets)
	reportAll(m.sink, cookies)
	if slices.Contains(endings, event.Method) && !m.navigations.closing.Load() { // else the launcher ends them, so that they send nothing
		m.still.ends()
	}
	if slices.Contains(navigationEvents, event.Method) {
		m.navigations.observe(event, e.Boot)
	}
	if event.Method == ledger.Sent && isDocument(event.Params) {
		m.navigations.requested(event)
	}
	if event.Method == eventFrameNavigated {
		m.typing.watchNewDocument(event)
	}
	if slices.Contains(getEvents, event.Method) {
		m.gets.observeEvent(event, e.At)
	}
	m.talk.observe(event, e.Boot)
	m.console.See(e.At, e.Token, event.Method, event.Params)
}

// Watch processes events and traffic until the browser is gone and all of it is
// reported, or the context ends.
func (m *Monitor) Watch(ctx context.Context) {
	var passing sync.WaitGroup
	ended := make(chan struct{})
	passing.Go(func() { m.outbox.passOn(ended) })
	defer passing.Wait()
	defer close(ended)
	var traffic sync.WaitGroup
	gone := make(chan struct{})
	traffic.Go(func() { m.backlog.workOff(gone, m.processHeard) })
	traffic.Go(func() { m.cookies.learnNew(gone) })
	looking, stopLooking := context.WithCancel(ctx)
	defer stopLooking()
	traffic.Go(func() { m.typing.bindDocuments(looking) })
	traffic.Go(func() { m.typing.findClosedRoots(looking) })
	traffic.Go(func() { m.reportAloneInTime(looking) })
	traffic.Go(func() { m.gets.followAgreements(looking, m.chrome) })
	for {
		events, err := m.chrome.Next(ctx)
		if err != nil {
			break
		}
		for _, event := range events {
			m.process(event)
			m.backlog.processed()
		}
		m.reportUnwatched()
	}
	m.reportUnwatched()
	close(gone)
	stopLooking()
	traffic.Wait()
}

func (m *Monitor) processHeard(h heard) {
	m.cookies.reportCommands()
	switch {
	case h.answer != nil:
		m.requests.answered(*h.answer)
	case h.told != nil:
		m.typing.fieldTyped(*h.told, time.Now())
	case h.traffic.Rewritten != nil:
		m.requests.rewritten(h.traffic)
	case h.traffic.Cookies == nil:
		m.requests.observe(h.traffic)
	}
}

// StopScripts has no script run in the open pages any more, also not one that waits for something. It
// does not wait: whatever Chrome is told after it, it does when the pages have been told.
func (m *Monitor) StopScripts() {
	for _, session := range m.pages.documents() {
		m.chrome.Post(session, "Emulation.setScriptExecutionDisabled", map[string]bool{"value": true})
		m.chrome.Post(session, "Runtime.terminateExecution", nil)
	}
}

// ScriptsStopped waits until no script of the open pages runs any more, as StopScripts told them, and returns
// false if ctx ends before: a page that waits for something does not answer. One with a dialog is not asked.
func (m *Monitor) ScriptsStopped(ctx context.Context) bool {
	// Chrome evaluates an expression when no script runs. By then it has done what the page was told before. That
	// may have been the end of another session on the page, which lets scripts run again (Chromium 156): so the
	// page is told once more.
	commands := []struct {
		method string
		params map[string]any
	}{
		{"Runtime.evaluate", map[string]any{"expression": "0", "silent": true}},
		{"Emulation.setScriptExecutionDisabled", map[string]any{"value": true}},
		{"Runtime.evaluate", map[string]any{"expression": "0", "silent": true}},
	}
	var asking sync.WaitGroup
	for _, p := range m.Pages() {
		if p.Crashed || p.Dialog != "" || p.SessionID == "" {
			continue
		}
		asking.Go(func() {
			for _, c := range commands {
				_ = m.chrome.Call(ctx, p.SessionID, c.method, c.params, nil) // an error is an answer, too: of a page that is gone
			}
		})
	}
	asking.Wait()
	return ctx.Err() == nil
}

// CatchUp returns when everything that came before the call is processed and reported: events, and
// what pages sent.
func (m *Monitor) CatchUp(ctx context.Context) error {
	all := m.chrome.Queued()
	if err := m.backlog.progress.await(ctx, func() bool { return m.backlog.caughtUp(all) }); err != nil {
		return err
	}
	return m.Reported(ctx)
}

// Reported returns when the sink has everything that was reported before the call.
func (m *Monitor) Reported(ctx context.Context) error { return m.outbox.await(ctx) }

// reportUnwatched reports what keeps the monitor from knowing what pages sent: commands did not reach
// the browser because it did not read them for a long time, so that there may be a page whose events
// were never turned on; or Chrome's NetLog cannot be read.
func (m *Monitor) reportUnwatched() {
	if n := m.chrome.mux.Dropped(); m.dropped.Swap(n) != n {
		m.sink(unseenEntry("the browser did not take what turns a page's events on: what it sent is not known"))
	}
	m.reportUnlogged()
}

func (m *Monitor) reportUnlogged() {
	if m.unlogged.CompareAndSwap(unlogged, unloggedReported) {
		m.sink(unseenEntry("Chrome's NetLog cannot be read: what pages do not report themselves is not known"))
	}
}

// unseenEntry stands for requests that nobody could see.
func unseenEntry(why string) checkpoint.Entry {
	return checkpoint.Entry{Kind: checkpoint.KindRequest, Method: checkpoint.Unseen, Text: why}
}

// The values of Monitor.unlogged.
const (
	logged           = iota // or it is not known yet that it is not
	unlogged                // there is no NetLog, and that is to be reported
	unloggedReported        // since the last checkpoint
)

// Unlogged says that what the network service sends is not known.
func (m *Monitor) Unlogged() { m.unlogged.Store(unlogged) }

// Checkpointed says that the task named a checkpoint. Requests after a checkpoint are
// counted separately, so messages on a websocket that was reported before are reported
// again, and so are refusals, fields that are typed into, GETs after an action, and the fact that
// a page may be unwatched.
func (m *Monitor) Checkpointed() {
	m.log.forgetMessages()
	m.dropped.Store(0)
	m.unlogged.CompareAndSwap(unloggedReported, unlogged)
	m.answers.reportAgain()
	m.typing.reportAgain()
	m.gets.checkpointed()
}

// Closing says that from now on the launcher itself closes the pages. What they send then is
// not reported: while the browser closes they can send nothing any more, and after a release
// nobody judges it.
func (m *Monitor) Closing() { m.navigations.closing.Store(true) }

// LearnContext asks the browser which context is the profile's own. Until then the context of
// the first page is taken for it; in a browser that was adopted, that may be a client's.
func (m *Monitor) LearnContext(ctx context.Context) error {
	var r struct {
		Default string `json:"defaultBrowserContextId"`
	}
	if err := m.chrome.Call(ctx, "", "Target.getBrowserContexts", nil, &r); err != nil {
		return err
	}
	if r.Default != "" {
		m.pages.setOwnContext(r.Default)
	}
	return nil
}

// remember puts an entry into a map. If the map is full, it is emptied first.
func remember[K comparable, V any](known map[K]V, key K, value V) {
	if len(known) >= maxKnown {
		clear(known)
	}
	known[key] = value
}

// decode parses an event's parameters into params, and tells whether it could.
func decode(event cdpproxy.Event, params any) bool {
	return json.Unmarshal(event.Params, params) == nil
}

// describe names a target for errors and logs, without the secrets that a URL may
// contain.
func describe(kind, url string) string {
	return fmt.Sprintf("a %s at %s", kind, checkpoint.Clip(redact.URL(url)))
}
