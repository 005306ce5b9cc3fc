package monitor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"leasehold/checkpoint"
	"leasehold/checkpoint/ledger"
	"leasehold/evidence/capture"
)

// name gives a request a name, to which its answer refers. If a redirect led to the request, name
// returns the answer to the request before it. The caller holds the log's mu.
func (rs *requests) name(kept *ledger.Request, r request, e *checkpoint.Entry) (before *checkpoint.Entry) {
	if kept.Name != "" && r.Redirect != nil {
		before = &checkpoint.Entry{
			Kind: checkpoint.KindAnswer, Request: kept.Name, Method: kept.Method, URL: kept.LastURL, Type: r.Type, Status: r.Redirect.Status,
		}
	}
	rs.namesGiven++
	e.Request = fmt.Sprint(rs.prefix, "-r", rs.namesGiven)
	kept.Name, kept.Method, kept.LastURL = e.Request, e.Method, e.URL
	kept.MadeAt, kept.Counted, kept.Withheld = r.Timestamp, false, 0
	return before
}

// answered reports an answer. It ignores an answer to an unsafe request that was not reported.
func (rs *requests) answered(a answer) {
	e := a.entry
	if a.id != "" {
		var kept ledger.Request
		rs.log.mu.Lock()
		if r := rs.log.ledger.Lookup(a.id); r != nil {
			kept = *r
			switch {
			case a.unsent:
				rs.unreported.uncount(r)
			case a.left && r.Name != "":
				rs.unreported.count(r)
			}
		}
		rs.log.mu.Unlock()
		if kept.Name != "" {
			e.Request, e.Method = kept.Name, kept.Method
			if e.URL == "" {
				e.URL = kept.LastURL
			}
		} else if e.Status == 0 {
			return
		}
	}
	if e.Kind != "" {
		rs.sink(e)
	}
}

// hearTimeout bounds how long HearAnswers waits, in time that the host gives (capture.Patience). An
// answer that Chrome does not report in that time counts as missing.
const hearTimeout = 300 * time.Millisecond

// HearAnswers returns when everything that pages sent before the call, and all answers that
// they had received, are reported. Chrome reports an answer to each of its clients separately,
// so a worker may know of an answer that the launcher has not heard of yet. A command sent on a
// CDP session is answered after the earlier events of that session.
func (m *Monitor) HearAnswers(ctx context.Context) {
	if m.chrome.Observer == nil {
		return
	}
	ctx, cancel := capture.Patience(ctx, hearTimeout)
	defer cancel()
	var asking sync.WaitGroup
	for _, session := range m.answers.waiting() {
		asking.Go(func() {
			// Web workers have no such command. An error as the reply does as well.
			_ = m.chrome.Call(ctx, session, "Page.getFrameTree", nil, nil)
		})
	}
	asking.Wait()
	_ = m.CatchUp(ctx) // what is not processed in time counts as unanswered
}

// waiting are the sessions of the unsafe requests that have not been answered.
func (a *answers) waiting() []string {
	a.log.mu.Lock()
	defer a.log.mu.Unlock()
	sessions := map[string]bool{}
	for r := range a.log.ledger.All() {
		if r.Pending {
			sessions[r.Session] = true
		}
	}
	return slices.Collect(maps.Keys(sessions))
}
