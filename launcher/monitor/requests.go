package monitor

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/internal/id"
	"leasehold/launcher/recovery/decision"
)

// requests reports what pages sent, and what it was answered. The goroutine that processes the
// backlog calls observe and answered.
type requests struct {
	navigations *navigations
	outcomes    *outcomes
	still       *Still
	typing      *typing
	harmless    *harmless
	sink        func(checkpoint.Entry)
	prefix      string // of the names of requests and groups

	mu         sync.Mutex
	reported   map[[2]string]bool // requests that were reported, by id and URL
	sockets    map[[2]string]bool // websockets that were reported since the last checkpoint, by id and declaration
	named      map[string]named   // the last reported request of each id
	namesGiven int                // number of names given to requests
	groups     map[[32]byte]*group
	grouped    int // number of groups that were ever made
}

func newRequests(n *navigations, o *outcomes, s *Still, ty *typing, h *harmless, sink func(checkpoint.Entry)) *requests {
	return &requests{
		navigations: n, outcomes: o, still: s, typing: ty, harmless: h, sink: sink, prefix: id.New("g"),
		reported: map[[2]string]bool{}, sockets: map[[2]string]bool{}, named: map[string]named{}, groups: map[[32]byte]*group{},
	}
}

// forget forgets the requests of a session that is over.
func (rs *requests) forget() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	clear(rs.reported)
	clear(rs.named)
	clear(rs.sockets)
	clear(rs.groups)
}

// checkpointed forgets which websockets were reported: the next message on each is reported
// again.
func (rs *requests) checkpointed() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	clear(rs.sockets)
}

// observe reports what a page sent, by the event of a request or of a message on a websocket.
// It reports each request once, even if several client sessions got an event about it.
func (rs *requests) observe(t cdpproxy.Traffic) {
	var r request
	if json.Unmarshal(t.Params, &r) != nil {
		return
	}
	entry, sent := r.entry(rs.outcomes)
	entry.Declared = rs.harmless.declared(sent)
	entry.Unprompted = !r.Gesture && t.Acted < rs.navigations.unpromptedSince(r.LoaderID, r.FrameID)
	message := sent.Method == checkpoint.Websocket
	if message && rs.withheld(entry, r) {
		return
	}
	rs.mu.Lock()
	reported, key := rs.reported, [2]string{r.RequestID, sent.Method + " " + sent.URL} // a redirect has the same id, but is a request of its own
	if message {
		reported, key[1] = rs.sockets, entry.Declared
	}
	known := reported[key]
	remember(reported, key, true)
	if key, ok := r.groupKey(); ok && !known {
		rs.group(key).add(r, &entry, rs.outcomes)
	}
	var before *checkpoint.Entry
	if !known && r.Message == nil {
		before = rs.name(r, &entry)
	}
	rs.mu.Unlock()
	if !known {
		rs.typing.reportAgain()
	}
	if before != nil {
		rs.sink(*before)
	}
	if !known && (message || !rs.withheld(entry, r)) {
		rs.sink(entry)
	}
}

// rewritten reports a request that a worker let go with another URL, method or body. What it was
// before was sent by nobody, whether that was reported already or is reported later: the network
// service reports the pause, and the page's process the request.
func (rs *requests) rewritten(t cdpproxy.Traffic) {
	w := t.Rewritten
	r := request{RequestID: w.RequestID, FrameID: w.FrameID, Type: w.Type}
	r.Request.URL, r.Request.Method, r.Request.Headers = w.URL, w.Method, w.Headers
	r.Request.Body, r.Request.HasBody = w.Body, w.HasBody
	entry, sent := r.entry(rs.outcomes)
	entry.Declared = rs.harmless.declared(sent)
	entry.Text = "a worker changed it before it was sent"
	rs.mu.Lock()
	was, known := rs.named[r.RequestID]
	_ = rs.name(r, &entry) // without a redirect there is no answer before it
	if w.Unsent.Method != "" {
		remember(rs.reported, [2]string{r.RequestID, w.Unsent.Method + " " + w.Unsent.URL}, true)
	}
	rs.mu.Unlock()
	rs.typing.reportAgain()
	if known && r.RequestID != "" {
		rs.sink(checkpoint.Entry{
			Kind: checkpoint.KindAnswer, Request: was.name, Method: was.method, URL: was.url, Type: w.Type, Failed: entry.Text, Ended: true, Blocked: true,
		})
	}
	rs.sink(entry)
}

// withheld tells whether a request or message is withheld because the browser stood still when
// a page made it.
func (rs *requests) withheld(entry checkpoint.Entry, r request) bool {
	socket := ""
	if entry.Method == checkpoint.Websocket {
		socket = r.RequestID
	}
	if !rs.still.withholds(entry, r.Timestamp, socket) {
		return false
	}
	if rs.still.ended() {
		rs.sink(withheldEntry(entry))
	}
	return true
}

// group returns the group of the requests that have this key. The caller holds rs.mu.
func (rs *requests) group(key [32]byte) *group {
	g := rs.groups[key]
	if g == nil {
		rs.grouped++
		g = &group{name: fmt.Sprint(rs.prefix, "-", rs.grouped)}
		remember(rs.groups, key, g)
	}
	return g
}

// group are the requests of one document that are identical byte by byte.
type group struct {
	name       string
	unanswered []string // ids of requests without an answer so far
	succeeded  int      // how many requests were answered with success
	// prompted says that one of the requests followed from an act of a worker before they were
	// polling. polls says that they were polling before any did.
	prompted, polls bool
}

// add counts one more request, and adds to its entry what is known of the group.
func (g *group) add(r request, entry *checkpoint.Entry, outcomes *outcomes) {
	entry.Group = g.name
	if entry.Unprompted = g.mayPoll(*entry); entry.Unprompted {
		entry.Repeat = g.repetition(r.RequestID, outcomes)
		g.polls = g.polls || entry.Repeat >= decision.PollingFrom
	}
}

// mayPoll tells whether one more request may be polling. A page starts polling by
// itself, so requests that it repeats after somebody acted are polling only if they
// were polling before.
func (g *group) mayPoll(e checkpoint.Entry) bool {
	may := !e.Gesture && (e.Unprompted && !g.prompted || g.polls)
	g.prompted = g.prompted || !may
	return may
}

// repetition counts one more request, and returns its number: 1 plus how many requests before
// it were answered with success.
func (g *group) repetition(id string, outcomes *outcomes) int {
	g.unanswered = slices.DeleteFunc(g.unanswered, func(id string) bool {
		success, known := outcomes.of(id)
		if success {
			g.succeeded++
		}
		return known
	})
	if len(g.unanswered) < maxUnanswered {
		g.unanswered = append(g.unanswered, id)
	}
	return g.succeeded + 1
}

// maxUnanswered bounds how many requests of a group are remembered until they are
// answered.
const maxUnanswered = 16

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

// entry returns the journal's entry for the request, and the content by which the request is
// judged. The content is never stored.
func (r request) entry(outcomes *outcomes) (checkpoint.Entry, decision.Sent) {
	if r.Message != nil {
		sent := decision.Sent{Method: checkpoint.Websocket, URL: outcomes.socketURL(r.RequestID), Body: r.Message.Data, Whole: r.Message.Opcode == textMessage}
		return checkpoint.Entry{Kind: checkpoint.KindRequest, Method: sent.Method, URL: sent.URL, Text: "messages on a websocket"}, sent
	}
	sent := decision.Sent{Method: r.Request.Method, URL: r.Request.URL, Body: r.Request.Body, Whole: r.Request.Body != "" || !r.Request.HasBody, Form: decision.IsForm(r.Request.Headers)}
	e := checkpoint.Entry{Kind: checkpoint.KindRequest, Method: sent.Method, URL: sent.URL, Type: r.Type, Gesture: r.Gesture, Redirected: r.Redirect != nil}
	if r.policyReport() {
		e.Name = checkpoint.PolicyReport
	}
	if r.Type == "Ping" && r.Request.Headers["Content-Type"] == "text/ping" {
		e.Name = checkpoint.LinkPing
	}
	return e, sent
}

// policyReport tells whether the browser itself sent the request, to report that a page
// violated its policy. No script can send requests of these types: its fetches and beacons have
// types of their own.
func (r request) policyReport() bool {
	if r.Type == "CSPViolationReport" {
		return true
	}
	media, _, _ := strings.Cut(r.Request.Headers["Content-Type"], ";")
	return r.Type == "Other" && (media == "application/csp-report" || media == "application/reports+json")
}

// textMessage is the opcode of a websocket's text message.
const textMessage = 1

// groupKey is the same for equal requests that scripts of one document send. It is
// false for other requests, and if the request is not completely known. The key is
// never stored.
func (r request) groupKey() (key [32]byte, ok bool) {
	if r.Type != "XHR" && r.Type != "Fetch" || r.Request.Body == "" && r.Request.HasBody || r.LoaderID == "" {
		return key, false
	}
	b, err := json.Marshal([]string{r.LoaderID, r.Type, r.Request.Method, r.Request.URL, r.Request.Body})
	return sha256.Sum256(b), err == nil
}
