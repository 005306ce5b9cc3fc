package monitor

import (
	"encoding/json"
	"strings"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/checkpoint/ledger"
	"leasehold/checkpoint/shape"
	"leasehold/evidence/redact"
	"leasehold/internal/boottime"
	"leasehold/internal/id"
	"leasehold/launcher/recovery/findings"
)

// requests reports what pages sent, and what it was answered. The goroutine that processes the
// backlog calls observe and answered.
type requests struct {
	log        *requestLog
	still      *Still
	typing     *typing
	harmless   *harmless
	unreported *unreported
	sink       func(checkpoint.Entry)
	prefix     string // of the names of requests

	namesGiven int // number of names given to requests; the mu of the log guards it
}

func newRequests(log *requestLog, s *Still, ty *typing, h *harmless, n *unreported, sink func(checkpoint.Entry)) *requests {
	return &requests{log: log, still: s, typing: ty, harmless: h, unreported: n, sink: sink, prefix: id.New("g")}
}

// observe reports what a page sent, by the event of a request or of a message on a websocket.
// It reports each request once, even if several client sessions got an event about it.
func (rs *requests) observe(t cdpproxy.Traffic) {
	var r request
	if json.Unmarshal(t.Params, &r) != nil {
		return
	}
	message := r.Message != nil
	entry, sent := r.entry(rs.log.socketURL(r.RequestID), rs.harmless)
	var again bool // an earlier event was about the same request or message
	var before *checkpoint.Entry
	rs.log.mu.Lock()
	kept := rs.log.ledger.Known(r.RequestID)
	if message {
		again = kept.Message(r.Timestamp)
	} else if again = kept.Report(hop(sent.Method, sent.URL)); !again { // a redirect has the same id, but is a request of its own
		before = rs.name(kept, r, &entry)
	}
	if again && !message {
		rs.log.mu.Unlock()
		return
	}
	withheld, forGood := rs.still.withholds(entry, r.Timestamp, again)
	switch {
	case again || forGood:
	case withheld:
		kept.Withheld++
	case message: // nothing takes one back
		rs.unreported.page(sent.Method, sent.URL, r.Timestamp)
	default:
		rs.unreported.count(kept)
	}
	rs.log.mu.Unlock()
	if before != nil {
		rs.sink(*before)
	}
	if forGood && !again {
		rs.sink(withheldEntry(entry))
	}
	if message && !withheld && rs.log.reported(r.RequestID, entry) {
		return
	}
	rs.typing.reportAgain()
	if !withheld {
		rs.sink(entry)
	}
}

// hop is what the ledger knows a reported hop by.
func hop(method, url string) string { return method + " " + url }

// rewritten reports a request that a worker let go with another URL, method or body. What it was
// before was sent by nobody, whether that was reported already or is reported later: the network
// service reports the pause, and the page's process the request.
func (rs *requests) rewritten(t cdpproxy.Traffic) {
	w := t.Rewritten
	r := request{RequestID: w.RequestID, FrameID: w.FrameID, Type: w.Type, Timestamp: chromeClock(boottime.Monotonic())}
	r.Request.URL, r.Request.Method, r.Request.Headers = w.URL, w.Method, w.Headers
	r.Request.Body, r.Request.HasBody = w.Body, w.HasBody
	entry, _ := r.entry("", rs.harmless)
	entry.Text = "a worker changed it before it was sent"
	rs.log.mu.Lock()
	kept := &ledger.Request{}
	if r.RequestID != "" {
		kept = rs.log.ledger.Known(r.RequestID)
	}
	was := checkpoint.Entry{
		Kind: checkpoint.KindAnswer, Request: kept.Name, Method: kept.Method, URL: kept.LastURL, Type: w.Type, Failed: entry.Text, Ended: true, Blocked: true,
	}
	rs.unreported.uncount(kept)
	_ = rs.name(kept, r, &entry) // without a redirect there is no answer before it
	rs.unreported.count(kept)
	if w.Unsent.Method != "" {
		kept.Report(hop(w.Unsent.Method, w.Unsent.URL))
	}
	rs.log.mu.Unlock()
	rs.typing.reportAgain()
	if was.Request != "" {
		rs.sink(was)
	}
	rs.sink(entry)
}

// request has the members of Network.requestWillBeSent and Network.webSocketFrameSent
// that are needed. These events come for all traffic, so nothing else of them is
// decoded.
type request struct {
	RequestID string `json:"requestId"`
	LoaderID  string `json:"loaderId"`
	FrameID   string `json:"frameId"`
	Type      string `json:"type"`
	// Timestamp is in seconds on the kernel's CLOCK_MONOTONIC.
	Timestamp float64 `json:"timestamp"`
	Gesture   bool    `json:"hasUserGesture"`
	Request   struct {
		URL     string            `json:"url"`
		Method  string            `json:"method"`
		Headers map[string]string `json:"headers"`
		Body    string            `json:"postData"`
		HasBody bool              `json:"hasPostData"`
	} `json:"request"`
	// Redirect is the answer to the request before, which redirected to this one.
	Redirect *struct {
		URL    string `json:"url"`
		Status int    `json:"status"`
	} `json:"redirectResponse"`
	Message *struct {
		Opcode int    `json:"opcode"`
		Data   string `json:"payloadData"`
	} `json:"response"`
}

// entry returns the journal's entry for the request, with what is known of it, and the content by
// which the request is judged. The content is never stored. socketURL is the URL of the websocket if
// it is a message.
func (r request) entry(socketURL string, known *harmless) (checkpoint.Entry, findings.Sent) {
	if r.Message != nil {
		sent := findings.Sent{Method: checkpoint.Websocket, URL: socketURL, Body: r.Message.Data, Whole: r.Message.Opcode == textMessage}
		e := checkpoint.Entry{Kind: checkpoint.KindRequest, Method: sent.Method, URL: sent.URL, Text: "messages on a websocket"}
		known.judge(&e, sent, nil)
		return e, sent
	}
	sent := findings.Sent{
		Method: r.Request.Method, URL: r.Request.URL, Body: r.Request.Body, Whole: r.Request.Body != "" || !r.Request.HasBody,
		Form: findings.IsForm(r.Request.Headers), Overridden: findings.IsOverridden(r.Request.Headers),
	}
	e := checkpoint.Entry{
		Kind: checkpoint.KindRequest, Method: sent.Method, URL: sent.URL,
		Type: r.Type, Gesture: r.Gesture, Redirected: r.Redirect != nil,
	}
	known.judge(&e, sent, r.Request.Headers)
	if findings.IsQuery(sent) {
		e.Name = checkpoint.GraphQLQuery
	}
	return e, sent
}

// shapeOf is the shape of a request. What is no identifier by its looks, and is nevertheless a
// secret, is left out of its path, too.
func shapeOf(r shape.Request) string {
	place, _, _ := strings.Cut(redact.URL(r.URL), "?")
	place, _, _ = strings.Cut(strings.ReplaceAll(place, redact.Mark, "0"), "#")
	if _, query, has := strings.Cut(r.URL, "?"); has {
		query, _, _ = strings.Cut(query, "#")
		place += "?" + query
	}
	r.URL = place
	return shape.Of(r)
}

// textMessage is the opcode of a websocket's text message.
const textMessage = 1
