// Package monitor watches what the pages of one browser do: where they navigate, what
// they send, store, print and ask, and which of them are open. It reports the entries
// of a session's journal, and changes nothing in the pages. Where a session is to keep
// to rules about what its pages send, the guard enforces them.
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
	"leasehold/evidence/recorder"
	"leasehold/evidence/redact"
	"leasehold/internal/boottime"
	"leasehold/internal/id"
	"leasehold/launcher/recovery/decision"
	"leasehold/lease"
)

// Monitor is the launcher's own view of one browser. Its methods are safe for
// concurrent use.
type Monitor struct {
	observer *cdpproxy.Observer
	mux      *cdpproxy.Mux
	sink     func(checkpoint.Entry)

	// The evidence's part about the network, and that about the console.
	token   atomic.Uint64 // of the newest run; both parts name it
	network recorder.Network
	console recorder.Console

	navigations *navigations
	outcomes    *outcomes
	answers     *answers
	talk        *talk
	cookies     *cookieWatch
	newPage     chan struct{} // one place: a page has its first document
	gets        *gets
	still       still
	groupPrefix string // of the names of request groups
	// harmless are the requests that the profile's owner declared harmless.
	harmless atomic.Pointer[[]decision.Harmless]
	rules    atomic.Pointer[Rules] // see Enforce

	traffic      chan heard   // what pages sent, and was answered, and is not processed yet
	pending      atomic.Int64 // how many of them
	documents    chan frameDocument
	closedRoots  chan closedRoot
	lastOverflow time.Time     // when traffic was full; used by the pipe's reader alone
	processed    atomic.Uint64 // how many of the observer's events were processed
	progress     broadcast     // signalled after each event and each request

	mu         sync.Mutex
	pages      map[string]*page   // by target
	targets    map[string]string  // target by CDP session
	frames     map[string]string  // for each frame in a process of its own, the target it is in
	workersIn  map[string]bool    // browser contexts in which a service worker was seen
	sent       map[[2]string]bool // requests that were reported, by id and URL
	named      map[string]named   // the last of the requests that were reported, by id
	namesGiven int                // to requests
	sockets    map[[2]string]bool // websockets that were reported since the last checkpoint, by id and declaration
	groups     map[[32]byte]*group
	typed      map[documentField]time.Time // when it was reported, since something was sent or the last checkpoint
	grouped    int                         // groups that were ever made
	ownContext string                      // id of the profile's own browser context: that of the first page
	closing    int                         // pages that were asked to close and are still open
	keptPage   string                      // target id of the one page of a warm browser
	ticks      uint64                      // counts events, to order pages by their last one
	dropped    uint64                      // commands that the mux dropped and that were reported since the last checkpoint
}

// trafficBacklog is how many requests of pages may wait to be processed.
const trafficBacklog = 1024

// maxKnown bounds how many documents, requests and groups are remembered. One that was
// forgotten is never taken for harmless.
const maxKnown = 4096

// New returns a monitor that reports to sink. Several goroutines call sink. The monitor
// sees nothing until Attach.
func New(sink func(checkpoint.Entry)) *Monitor {
	return &Monitor{
		sink: sink, groupPrefix: id.New("g"), navigations: newNavigations(), outcomes: newOutcomes(), answers: newAnswers(), talk: newTalk(),
		cookies: newCookieWatch(), newPage: make(chan struct{}, 1), gets: newGets(),
		traffic: make(chan heard, trafficBacklog), named: map[string]named{},
		pages: map[string]*page{}, targets: map[string]string{}, frames: map[string]string{},
		workersIn: map[string]bool{}, sent: map[[2]string]bool{}, sockets: map[[2]string]bool{}, groups: map[[32]byte]*group{},
		typed: map[documentField]time.Time{}, documents: make(chan frameDocument, maxDocuments), closedRoots: make(chan closedRoot, maxClosedRoots),
	}
}

// watchedEvents are the events that the monitor processes in its own goroutine.
var watchedEvents = []string{
	eventAttached, eventDetached, eventInfoChanged, eventDestroyed,
	eventFrameNavigated, eventNavigatedWithin, eventFrameRequested, eventDownload,
	eventDialogOpening, eventDialogClosed, eventCrashed,
	eventStorageAdded, eventStorageUpdated, eventStorageRemoved, eventStorageCleared,
	eventVersionUpdated,
}

// readerEvents are the events that the pipe's reader handles at once: those for the
// recorders, and those that show what caused a request. The monitor does not enable the
// Runtime domain, since pages can detect that.
var readerEvents = slices.Concat([]string{eventLogEntry, eventWebSocketCreated, eventRequestExtra, eventPaused, eventWebTransport, eventHeaders, eventBindingCalled}, navigationEvents, getEvents, recorder.NetworkEvents)

// Attach begins to observe the browser behind the mux. It is called once, before
// Watch.
func (m *Monitor) Attach(ctx context.Context, mux *cdpproxy.Mux) error {
	m.mux = mux
	m.navigations.follow(mux)
	m.gets.acted, m.gets.actedOn = mux.Acted, m.navigations.actedOn
	var err error
	if m.observer, err = mux.Listen(ctx, m.readerEvent, readerEvents, watchedEvents...); err != nil {
		return err
	}
	if err := m.observer.Call(ctx, "", "Target.setDiscoverTargets", map[string]any{"discover": true}, nil); err != nil {
		return err
	}
	return m.observer.Call(ctx, "", "Target.setAutoAttach", autoAttach, nil)
}

// autoAttach pauses each new target until enable has turned on its events. Otherwise the
// request of a form that opens a new tab would be missed.
var autoAttach = map[string]any{"autoAttach": true, "waitForDebuggerOnStart": true, "flatten": true}

// Observer makes CDP calls of the launcher's own. It is nil before Attach.
func (m *Monitor) Observer() *cdpproxy.Observer { return m.observer }

// Attribute names the run to which everything seen from now on belongs, and the
// requests that the profile's owner declares harmless. A request is judged by the
// declarations at the time when it was sent.
func (m *Monitor) Attribute(token lease.Token, harmless []string) {
	m.token.Store(uint64(token))
	var list []decision.Harmless
	for _, text := range harmless {
		if h, err := decision.ParseHarmless(text); err == nil { // a profile's settings accept no text that cannot be parsed
			list = append(list, h)
		}
	}
	m.harmless.Store(&list)
}

// Network is the part of a bundle about the network.
func (m *Monitor) Network() []byte { return m.network.Part() }

// Console is the part of a bundle about the console.
func (m *Monitor) Console() []byte { return m.console.Part() }

// Traffic takes an event about what a page sent or printed. The pipe's reader calls it,
// so it never blocks.
func (m *Monitor) Traffic(t cdpproxy.Traffic) {
	switch {
	case t.Cookies != nil:
		m.cookieCommand(t)
		return
	case t.Kept != nil:
		m.answers.keptBack(*t.Kept)
		return
	}
	if t.Method == eventMessageSent {
		m.still.observe(t.Method, t.Params, boottime.Now())
	}
	if slices.Contains(recorder.ConsoleEvents, t.Method) {
		m.console.See(time.Now(), m.token.Load(), t.Method, t.Params)
		return
	}
	if !m.queue(heard{traffic: t}) {
		m.overflowed()
	}
}

// overflowed reports that something could not be recorded. The pipe's reader calls it.
func (m *Monitor) overflowed() {
	if time.Since(m.lastOverflow) > time.Second { // one unsafe request counts as much as many
		m.lastOverflow = time.Now()
		m.sink(checkpoint.Entry{Kind: checkpoint.KindRequest, Method: "MANY", Text: "more requests at once than could be recorded"})
	}
}

// readerEvent handles one of readerEvents. The pipe's reader calls it.
func (m *Monitor) readerEvent(event cdpproxy.Event) {
	if event.Method == eventPaused || event.Method == eventWebTransport {
		m.guard(event)
		return
	}
	if event.Method == eventBindingCalled {
		m.scriptTold(event)
		return
	}
	for _, a := range m.answers.observe(event, m.navigations) {
		if !m.queue(heard{answer: &a}) && a.id == "" { // that to an unsafe request, which has an id, counts as none
			m.overflowed()
		}
	}
	if slices.Contains(navigationEvents, event.Method) {
		m.navigations.observe(event, boottime.Now())
	}
	if event.Method == eventFrameNavigated {
		m.watchNewDocument(event)
	}
	m.reportGets(m.gets.observe(event, time.Now()))
	if slices.Contains(navigationEvents, event.Method) || slices.Contains(getEvents, event.Method) {
		return
	}
	if event.Method == eventRequestExtra {
		return
	}
	if event.Method == eventHeaders || event.Method == eventRequest {
		m.cookieEvent(event)
	}
	m.talk.observe(event, boottime.Now())
	m.still.observe(event.Method, event.Params, boottime.Now())
	if m.outcomes.observe(event); event.Method == eventWebSocketCreated || event.Method == eventHeaders {
		return
	}
	now, token := time.Now(), m.token.Load()
	m.network.See(now, token, event.Session, event.Method, event.Params)
	m.console.See(now, token, event.Method, event.Params)
}

// Watch processes events and traffic until the browser is gone and all of it is
// processed, or the context ends.
func (m *Monitor) Watch(ctx context.Context) {
	var traffic sync.WaitGroup
	gone := make(chan struct{})
	traffic.Go(func() { m.processTraffic(gone) })
	traffic.Go(func() { m.learnCookies(gone) })
	looking, stopLooking := context.WithCancel(ctx)
	defer stopLooking()
	traffic.Go(func() { m.lookAtPages(looking) })
	traffic.Go(func() { m.bindDocuments(looking) })
	traffic.Go(func() { m.findClosedRoots(looking) })
	for {
		events, err := m.observer.Next(ctx)
		if err != nil {
			break
		}
		for _, event := range events {
			m.process(event)
			m.processed.Add(1)
			m.progress.signal()
		}
		m.reportDropped()
	}
	m.reportDropped()
	close(gone)
	stopLooking()
	traffic.Wait()
}

// processTraffic reports what pages sent, until gone is closed and everything is
// processed.
func (m *Monitor) processTraffic(gone <-chan struct{}) {
	process := func(h heard) {
		m.report(m.cookies.takeCommands())
		switch {
		case h.answer != nil:
			m.answered(*h.answer)
		case h.told != nil:
			m.fieldTyped(*h.told, time.Now())
		case h.traffic.Cookies == nil:
			m.requestSent(h.traffic)
		}
		m.pending.Add(-1)
		m.progress.signal()
	}
	for {
		select {
		case t := <-m.traffic:
			process(t)
		case <-gone:
			for {
				select {
				case t := <-m.traffic:
					process(t)
				default:
					return
				}
			}
		}
	}
}

// CatchUp returns when everything that came before the call is processed: events, what
// pages sent, and what has to be looked at in them.
func (m *Monitor) CatchUp(ctx context.Context) error {
	m.JudgeGETs(ctx)
	all := m.observer.Queued()
	return m.await(ctx, func() bool { return m.processed.Load() >= all && m.pending.Load() == 0 })
}

// await returns when reached returns true, or the context ends. It calls reached again
// after each event and each request that was processed.
func (m *Monitor) await(ctx context.Context, reached func() bool) error {
	for {
		changed := m.progress.next()
		if reached() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// reportUnseen reports the documents that may have sent something unobserved.
func (m *Monitor) reportUnseen() {
	for _, u := range m.navigations.takeUnseen() {
		m.sink(checkpoint.Entry{Kind: checkpoint.KindRequest, Method: checkpoint.Unseen, URL: u,
			Text: "typed into, and left for another site or closed: what it sent then is not known"})
	}
}

// reportDropped reports that commands did not reach the browser because it did not read
// them for a long time. Then there may be a page whose events were never turned on.
func (m *Monitor) reportDropped() {
	n := m.mux.Dropped()
	m.mu.Lock()
	more := n != m.dropped
	m.dropped = n
	m.mu.Unlock()
	if more {
		m.sink(checkpoint.Entry{Kind: checkpoint.KindRequest, Method: checkpoint.Unseen,
			Text: "the browser did not take what turns a page's events on: what it sent is not known"})
	}
}

// Checkpointed says that the task named a checkpoint. Requests after a checkpoint are
// counted separately, so messages on a websocket that was reported before are reported
// again, and so are fields that are typed into, and the fact that a page may be unwatched.
func (m *Monitor) Checkpointed() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.sockets)
	clear(m.typed)
	m.dropped = 0
}

// Closing says that the launcher itself closes the pages from now on. What they may
// send then is not reported: when the browser closes they send nothing any more, and
// after a release nobody judges it.
func (m *Monitor) Closing() { m.navigations.closing.Store(true) }

// LearnContext asks the browser which context is the profile's own. Until then the
// context of the first page counts as such, which may be a client's in a browser that
// was adopted.
func (m *Monitor) LearnContext(ctx context.Context) error {
	var r struct {
		Default string `json:"defaultBrowserContextId"`
	}
	if err := m.observer.Call(ctx, "", "Target.getBrowserContexts", nil, &r); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.Default != "" {
		m.ownContext = r.Default
	}
	return nil
}

// remember puts an entry into a map. A map that is full is emptied first.
func remember[K comparable, V any](known map[K]V, key K, value V) {
	if len(known) >= maxKnown {
		clear(known)
	}
	known[key] = value
}

// decode parses an event's parameters into params, and tells whether that was possible.
func decode(event cdpproxy.Event, params any) bool {
	return json.Unmarshal(event.Params, params) == nil
}

// broadcast wakes every goroutine that waits for the next signal. The zero value is
// ready for use.
type broadcast struct{ waiting atomic.Pointer[chan struct{}] }

// next returns a channel that the next signal closes.
func (b *broadcast) next() <-chan struct{} {
	for {
		if c := b.waiting.Load(); c != nil {
			return *c
		}
		c := make(chan struct{})
		if b.waiting.CompareAndSwap(nil, &c) {
			return c
		}
	}
}

// signal wakes everybody who waits. It costs next to nothing while nobody does.
func (b *broadcast) signal() {
	if b.waiting.Load() == nil {
		return
	}
	if c := b.waiting.Swap(nil); c != nil {
		close(*c)
	}
}

// describe names a target for errors and logs, without the secrets that a URL may
// contain.
func describe(kind, url string) string {
	return fmt.Sprintf("a %s at %s", kind, checkpoint.Clip(redact.URL(url)))
}
