package monitor

import (
	"context"
	"encoding/json"
	"time"

	"leasehold/checkpoint"
	"leasehold/checkpoint/ledger"
	"leasehold/evidence/capture"
)

// Cookies reports what becomes of the account's cookies. Its methods may be called concurrently.
type Cookies struct {
	chrome      caller
	watch       *cookieWatch
	pages       *pages
	navigations *navigations
	still       *Still
	sink        func(checkpoint.Entry)
	newPage     chan struct{} // has room for one; signalled when a page has its first document
}

func newCookies(chrome caller, ps *pages, n *navigations, s *Still, sink func(checkpoint.Entry)) *Cookies {
	return &Cookies{
		chrome: chrome, watch: newCookieWatch(), pages: ps, navigations: n, still: s, sink: sink, newPage: make(chan struct{}, 1),
	}
}

// Learn takes in the account's cookies at the grant: the result of Storage.getCookies,
// or the reason why there is none. From then on the monitor reports what becomes of these
// cookies. If they are not known, nobody can tell at the end. The function that it returns does what
// takes time, and has to be called: until it has returned, what becomes of cookies waits for it.
func (c *Cookies) Learn(result json.RawMessage, problem error) (learn func()) {
	learned := c.watch.begin()
	return func() {
		defer learned()
		if problem == nil {
			problem = c.watch.learn(result, true, time.Now())
		}
		if problem != nil {
			c.watch.missed("those at the grant could not be read: " + problem.Error())
		}
	}
}

// learnTimeout bounds how long the browser may take to show its cookies, in time that the host gives
// (capture.Patience).
const learnTimeout = 2 * time.Second

// learnNew asks for the browser's cookies whenever a new page gets a first document that Chrome began to load
// before anybody could listen to its requests, until gone is closed.
func (c *Cookies) learnNew(gone <-chan struct{}) {
	for {
		select {
		case <-c.newPage:
		case <-gone:
			return
		}
		ctx, cancel := capture.Patience(context.Background(), learnTimeout)
		var result json.RawMessage
		err := c.chrome.Call(ctx, "", "Storage.getCookies", nil, &result)
		cancel()
		if err == nil {
			err = c.watch.learn(result, false, time.Now())
		}
		// A cookie that came and went meanwhile was seen by nobody. While the browser stands
		// still no cookie comes, so none was missed.
		if err != nil && !c.still.stands() {
			c.watch.missed("those that a new page brought could not be read: " + err.Error())
		}
	}
}

// firstLooks is how often learnNew looks at a new page: no event tells which of the page's
// first events comes with its first document.
const firstLooks = 4

// withDocument is the page's target if the page, unless it is nil, may have its first document now, so
// that learnNew looks; otherwise it is empty. The caller holds the mu of pages.
func (pg *page) withDocument() string {
	if pg == nil || pg.looks >= firstLooks || !notBlank(pg.URL) {
		return ""
	}
	pg.looks++
	return pg.TargetID
}

// documentCame tells learnNew that a page may have its first document.
func (c *Cookies) documentCame() {
	select {
	case c.newPage <- struct{}{}:
	default: // learnNew is about to look anyway
	}
}

// Compare reports every change of the account's cookies that was not made by a site's
// answer, and that the cookies were read. result is the result of Storage.getCookies; problem
// is the reason why there is none.
func (c *Cookies) Compare(result json.RawMessage, problem error) {
	c.reportCommands()
	reportAll(c.sink, c.watch.compare(result, problem, time.Now()))
}

func (c *Cookies) reportCommands() { reportAll(c.sink, c.watch.takeCommands()) }

func reportAll(sink func(checkpoint.Entry), entries []checkpoint.Entry) {
	for _, e := range entries {
		sink(e)
	}
}

// observe returns what a fact about a request says about cookies.
func (c *Cookies) observe(f ledger.Fact) []checkpoint.Entry {
	typed := func() bool { return c.navigations.typedOn(f.Session) }
	foreign := func() bool { return c.pages.foreign(f.Session) }
	return c.watch.observe(f, typed, foreign, f.At)
}

// foreign tells whether a session's page is in a browser context that a client made. The
// cookies of such a context are not the account's.
func (ps *pages) foreign(session string) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	pg := ps.pageOf(ps.targets[session])
	return pg != nil && ps.ownContext != "" && pg.context != ps.ownContext
}

// typedOn tells whether a worker has typed into the page of a session, or into one of its
// frames, since the page's document began.
func (n *navigations) typedOn(session string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	page := n.sessions[session]
	return page != nil && n.typedInto(page)
}
