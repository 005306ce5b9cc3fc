package monitor

import (
	"context"
	"encoding/json"
	"time"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
)

// LearnCookies takes in the account's cookies at the grant: the result of Storage.getCookies,
// or the reason why there is none. From then on the monitor reports what becomes of these
// cookies. If they are not known, nobody can tell at the end.
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

// learnCookies asks for the browser's cookies whenever a new page gets its first document,
// until gone is closed: Chrome begins to load that document before anybody can listen to its
// requests.
func (m *Monitor) learnCookies(gone <-chan struct{}) {
	for {
		select {
		case <-m.newPage:
		case <-gone:
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), learnTimeout)
		var result json.RawMessage
		err := m.observer.Call(ctx, "", "Storage.getCookies", nil, &result)
		cancel()
		if err == nil {
			err = m.cookies.learn(result, false, time.Now())
		}
		// A cookie that came and went meanwhile was seen by nobody. While the browser stands
		// still no cookie comes, so none was missed.
		if err != nil && !m.still.stands() {
			m.cookies.missed("those that a new page brought could not be read: " + err.Error())
		}
	}
}

// firstLooks is how often learnCookies looks at a new page: no event tells which of the page's
// first events comes with its first document.
const firstLooks = 4

// firstDocument tells learnCookies about a page that may have its first document now. The
// caller holds m.mu.
func (m *Monitor) firstDocument(pg *page) {
	if pg == nil || pg.looks >= firstLooks || !notBlank(pg.URL) {
		return
	}
	pg.looks++
	select {
	case m.newPage <- struct{}{}:
	default: // learnCookies is about to look anyway
	}
}

// CompareCookies reports every change of the account's cookies that was not made by a site's
// answer, and that the cookies were read. result is the result of Storage.getCookies; problem
// is the reason why there is none.
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
	foreign := func() bool { return m.foreign(event.Session) }
	if event.Method == eventHeaders {
		m.report(m.cookies.observeAnswer(event, foreign, time.Now()))
		return
	}
	typed := func() bool { return m.navigations.typedOn(event.Session) }
	m.report(m.cookies.observeRequest(event, typed, foreign, time.Now()))
}

// foreign tells whether a session's page is in a browser context that a client made. The
// cookies of such a context are not the account's.
func (m *Monitor) foreign(session string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	pg := m.pageOf(m.targets[session])
	return pg != nil && m.ownContext != "" && pg.context != m.ownContext
}

// typedOn tells whether a worker has typed into the page of a session, or into one of its
// frames, since the page's document began.
func (n *navigations) typedOn(session string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	page := n.sessions[session]
	return page != nil && n.typedInto(page)
}

// cookieCommand takes in a client's command that concerns cookies. It does not block.
func (m *Monitor) cookieCommand(t cdpproxy.Traffic) {
	m.cookies.command(*t.Cookies)
	m.queue(heard{traffic: t}) // if there is no room, the next thing to be processed reports the command
}
