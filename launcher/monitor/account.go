package monitor

import (
	"context"
	"encoding/json"
	"time"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
)

// LearnCookies takes in the account's cookies at the grant: the result of
// Storage.getCookies, or why there is none. What becomes of them is reported from then on.
// Where they are not known, nobody can tell at the end.
func (m *Monitor) LearnCookies(result json.RawMessage, problem error) error {
	if problem == nil {
		problem = m.cookies.learn(result, true, time.Now())
	}
	if problem != nil {
		m.cookies.missed("those at the grant could not be read: " + problem.Error())
	}
	return problem
}

// learnTimeout bounds how long the browser may take to show its cookies.
const learnTimeout = 2 * time.Second

// learnCookies learns the browser's cookies whenever a new page has its first document, until
// gone is closed: Chrome begins to load that before anybody can listen.
func (m *Monitor) learnCookies(gone <-chan struct{}) {
	for {
		select {
		case <-m.newPage:
		case <-gone:
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), learnTimeout)
		var result json.RawMessage
		err := m.chrome.Call(ctx, "", "Storage.getCookies", nil, &result)
		cancel()
		if err == nil {
			err = m.cookies.learn(result, false, time.Now())
		}
		// One that came meanwhile, and went, was seen by nobody. While the browser stands still
		// none comes, and nobody is told of any.
		if err != nil && !m.still.stands() {
			m.cookies.missed("those that a new page brought could not be read: " + err.Error())
		}
	}
}

// firstLooks is how often learnCookies looks for a new page: nothing tells which of its first
// events comes when its first document is there.
const firstLooks = 4

// mayHaveDocument tells whether a page, unless it is nil, may have its first document now, so
// that learnCookies looks. The caller holds the mu of pages.
func (pg *page) mayHaveDocument() bool {
	if pg == nil || pg.looks >= firstLooks || !notBlank(pg.URL) {
		return false
	}
	pg.looks++
	return true
}

// documentCame tells learnCookies that a page may have its first document.
func (m *Monitor) documentCame() {
	select {
	case m.newPage <- struct{}{}:
	default: // it is going to look
	}
}

// CompareCookies reports what became of the account's cookies that no answer of a site did,
// and that they were read. result is that of Storage.getCookies, and problem why there is
// none.
func (m *Monitor) CompareCookies(result json.RawMessage, problem error) {
	m.report(m.cookies.takeCommands())
	m.report(m.cookies.compare(result, problem, time.Now()))
}

func (m *Monitor) report(entries []checkpoint.Entry) {
	for _, e := range entries {
		m.sink(e)
	}
}

// cookieEvent takes in a request, or the headers of its answer. The pipe's reader calls it.
func (m *Monitor) cookieEvent(event cdpproxy.Event) {
	foreign := func() bool { return m.pages.foreign(event.Session) }
	if event.Method == eventHeaders {
		m.report(m.cookies.observeAnswer(event, foreign, time.Now()))
		return
	}
	typed := func() bool { return m.navigations.typedOn(event.Session) }
	m.report(m.cookies.observeRequest(event, typed, foreign, time.Now()))
}

// foreign tells whether a session's page is in a browser context that a client made, whose
// cookies are not the account's.
func (ps *pages) foreign(session string) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	pg := ps.pageOf(ps.targets[session])
	return pg != nil && ps.ownContext != "" && pg.context != ps.ownContext
}

// typedOn tells whether a worker typed into the page that a session is attached to, or into
// a frame of it, since its document began.
func (n *navigations) typedOn(session string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	page := n.sessions[session]
	return page != nil && n.typedInto(page)
}

// cookieCommand takes in a client's command on cookies. It does not block.
func (m *Monitor) cookieCommand(t cdpproxy.Traffic) {
	m.cookies.command(*t.Cookies)
	m.backlog.queue(heard{traffic: t}) // where there is no room, whatever is processed next reports it
}
