package cdpproxy

import (
	"encoding/base64"
	"encoding/json"
	"maps"

	"leasehold/cdpproxy/methods"
	"leasehold/internal/reads"
	"leasehold/lease"
)

// pausedRequest names a request that a client has paused by the Fetch domain.
type pausedRequest struct{ sessionID, requestID string }

// pause is what is known of a paused request.
type pause struct {
	auth   bool // it waits for credentials
	person bool // it paused while a person had the session
}

// continuedRequest is a paused request that a command in flight continues, fulfills or fails.
// If the fence or the browser refuses the command, it counts as paused again.
type continuedRequest struct {
	request pausedRequest
	pause   pause
	kept    string // its id in the Network domain, if the command prevents it from being sent
	// rewritten is what was paused, if the command changes it; nil: it does not.
	rewritten *unsentRequest
}

// KeptRequest is an unsafe request that a client had paused before it was sent. Back says that
// the client failed it, or answered it itself, so that it never leaves the browser; otherwise
// such a command was refused after all.
type KeptRequest struct {
	RequestID string // in the Network domain
	Back      bool
}

// RewrittenRequest is an unsafe request as a client lets it go: it had paused it, and gave it
// another URL, method or body. Chrome reports only what it was before.
type RewrittenRequest struct {
	RequestID     string // in the Network domain; it may be empty
	FrameID, Type string // as in Fetch.requestPaused
	URL           string
	Method        string // UnknownMethod if the command can be read in more than one way
	Headers       map[string]string
	// Body is what the client sends instead of the request's own body. It is empty, and HasBody
	// set, if it did not change that.
	Body    string
	HasBody bool
	// Unsent is the request as it was paused, which nobody sends. Chrome may report it later than
	// the pause. It is empty if the request may go out as it was.
	Unsent struct{ Method, URL string }
}

// UnknownMethod stands for the method of a request that may have any.
const UnknownMethod = "UNKNOWN"

// unsentRequest has the members of Fetch.requestPaused that are about a request which was not
// sent.
type unsentRequest struct {
	NetworkID string          `json:"networkId"`
	FrameID   string          `json:"frameId"`
	Type      string          `json:"resourceType"`
	Status    int             `json:"responseStatusCode"`
	Error     json.RawMessage `json:"responseErrorReason"`
	Request   struct {
		URL     string            `json:"url"`
		Method  string            `json:"method"`
		Headers map[string]string `json:"headers"`
		HasBody bool              `json:"hasPostData"`
	} `json:"request"`
}

// unsafe tells whether the request may change something.
func (u unsentRequest) unsafe() bool { return !reads.Paused(u.Request.Method, u.Request.Headers) }

// asItIs is the request without a change.
func (u unsentRequest) asItIs() RewrittenRequest {
	return RewrittenRequest{
		RequestID: u.NetworkID, FrameID: u.FrameID, Type: u.Type,
		URL: u.Request.URL, Method: u.Request.Method, Headers: u.Request.Headers, HasBody: u.Request.HasBody,
	}
}

// noteUnsent notes a request that is paused before it is sent.
func (s *ClientSession) noteUnsent(r pausedRequest, u unsentRequest, auth bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.unsent, r)
	if auth || s.fenced || u.Status != 0 || u.Error != nil {
		return
	}
	if s.unsent == nil || len(s.unsent) >= maxNoted {
		s.unsent = map[pausedRequest]unsentRequest{}
	}
	s.unsent[r] = u
}

// continuation is what a client's command says about a paused request whose pause it ends.
type continuation struct {
	method    string // of the command
	requestID string
	status    int // of the answer that it gives to the request
	// changes are the members that replace something of the request, by name. They are nil, and
	// unclear is set, if another parser could read the command in a different way.
	changes map[string]string
	unclear bool
}

func endsPause(method []byte) bool {
	switch string(method) {
	case "Fetch.continueRequest", "Fetch.continueResponse", "Fetch.continueWithAuth", "Fetch.failRequest", "Fetch.fulfillRequest":
		return true
	}
	return false
}

// readContinuation reads a command that ends the pause of a request.
func readContinuation(c command) continuation {
	e := continuation{method: string(c.method)}
	members, ok := methods.Members(c.params)
	if ok {
		e.requestID, ok = methods.Text(members["requestId"])
	}
	if status, given := members["responseCode"]; ok && given {
		ok = json.Unmarshal(status, &e.status) == nil
	}
	e.changes = map[string]string{}
	for _, name := range []string{"url", "method", "postData"} {
		raw, given := members[name]
		if !ok || !given {
			continue
		}
		e.changes[name], ok = methods.Text(raw)
	}
	if body, given := e.changes["postData"]; ok && given {
		raw, err := base64.StdEncoding.DecodeString(body)
		e.changes["postData"], ok = string(raw), err == nil
	}
	if _, given := members["headers"]; ok && given {
		e.changes["headers"] = ""
	}
	if !ok {
		var lenient struct {
			RequestID string `json:"requestId"`
		}
		_ = json.Unmarshal(c.params, &lenient) // Chrome may understand nothing of it either
		e.requestID, e.changes, e.unclear = lenient.RequestID, nil, true
	}
	return e
}

// keepsBack tells whether the command prevents a request from being sent. An answer that is a
// redirect does not, because the browser follows it.
func (e continuation) keepsBack() bool {
	return !e.unclear && (e.method == "Fetch.failRequest" || e.method == "Fetch.fulfillRequest" && (e.status < 300 || e.status > 399))
}

// rewrites returns the request as it is sent, if the command lets it go with a change and it is
// unsafe then. A change of headers alone is none.
func (e continuation) rewrites(u unsentRequest) *RewrittenRequest {
	if e.method != "Fetch.continueRequest" {
		return nil
	}
	w := u.asItIs()
	w.Unsent.Method, w.Unsent.URL = u.Request.Method, u.Request.URL
	if e.unclear {
		w.Method = UnknownMethod
		return &w
	}
	changed := false
	for name, value := range e.changes {
		switch name {
		case "url":
			changed, w.URL = changed || value != w.URL, value
		case "method":
			changed, w.Method = changed || value != w.Method, value
		case "postData":
			changed, w.Body, w.HasBody = true, value, value != ""
		case "headers":
			w.Headers = nil
		}
	}
	if w.Method == "" { // it is not known what was paused
		w.Method = UnknownMethod
	}
	if !changed || reads.Method(w.Method) {
		return nil
	}
	return &w
}

// requestPaused is called when a request waits for the client: for credentials, if auth
// is set.
func (s *ClientSession) requestPaused(r pausedRequest, auth bool) {
	s.mu.Lock()
	person := s.conn != nil && s.conn.taken.on()
	s.mu.Unlock()
	s.waits(r, pause{auth, person})
}

// waits notes a paused request, or fails it after Fence.
func (s *ClientSession) waits(r pausedRequest, p pause) {
	s.mu.Lock()
	fenced := s.fenced
	if !fenced {
		s.paused[r] = p
	}
	s.mu.Unlock()
	if fenced {
		s.mux.postPauseEnd(failCommand(r, p.auth))
		return
	}
	s.mux.pipeLog.append(linePaused, r.sessionID, r.requestID, kindOfPause(p.auth))
}

// trackCommand updates what is paused and what waits for a debugger by a command of the
// client. It returns the request that the command continues, or nil.
func (s *ClientSession) trackCommand(c command, sessionID string) *continuedRequest {
	switch {
	case endsPause(c.method):
		e := readContinuation(c)
		r := pausedRequest{sessionID, e.requestID}
		s.mu.Lock()
		defer s.mu.Unlock()
		p, ok := s.paused[r]
		if !ok {
			if w := e.rewrites(unsentRequest{}); w != nil && e.unclear { // Chrome may read another id in it
				s.mux.traffic(Traffic{Rewritten: w})
			}
			return nil
		}
		delete(s.paused, r)
		u := s.unsent[r]
		delete(s.unsent, r)
		if u.NetworkID != "" && u.unsafe() && e.keepsBack() {
			s.mux.traffic(Traffic{Kept: &KeptRequest{u.NetworkID, true}})
			return &continuedRequest{request: r, pause: p, kept: u.NetworkID}
		}
		if w := e.rewrites(u); w != nil {
			s.mux.traffic(Traffic{Rewritten: w})
			return &continuedRequest{request: r, pause: p, rewritten: &u}
		}
		return &continuedRequest{request: r, pause: p}
	case string(c.method) == letRunCommand:
		s.mu.Lock()
		delete(s.waitingForDebugger, sessionID)
		s.mu.Unlock()
	}
	return nil
}

// restorePaused makes a request count as paused again after its command was refused. With nil
// it does nothing.
func (s *ClientSession) restorePaused(c *continuedRequest) {
	if c == nil {
		return
	}
	s.waits(c.request, c.pause)
	if c.kept != "" {
		s.mux.traffic(Traffic{Kept: &KeptRequest{c.kept, false}})
	}
	if c.rewritten != nil {
		s.noteUnsent(c.request, *c.rewritten, c.pause.auth)
		if c.rewritten.unsafe() { // it may be sent as it was after all
			w := c.rewritten.asItIs()
			s.mux.traffic(Traffic{Rewritten: &w})
		}
	}
}

// letGoOfPerson lets a paused request go as it is, if it is the person's: the client's command
// for it, on the CDP session of that id, was refused, and without another one it would hang.
func (s *ClientSession) letGoOfPerson(fence *lease.Fence, c command, sessionID string) {
	if !endsPause(c.method) {
		return
	}
	r := pausedRequest{sessionID, readContinuation(c).requestID}
	s.mu.Lock()
	p := s.paused[r]
	s.mu.Unlock()
	if p.person {
		s.letGo(fence, r, p)
	}
}

// letGoOfPersons lets all requests go as they are that paused while a person had the session.
func (s *ClientSession) letGoOfPersons(t *Takeover) {
	s.mu.Lock()
	conn := s.conn
	paused := maps.Clone(s.paused)
	s.mu.Unlock()
	if conn == nil || conn.taken != t {
		return
	}
	for r, p := range paused {
		if p.person {
			s.letGo(conn.fence, r, p)
		}
	}
}

// letGo lets a paused request go as it is. It stays paused where the fence is shut.
func (s *ClientSession) letGo(fence *lease.Fence, r pausedRequest, p pause) {
	msg := oneWay(r.sessionID, "Fetch.continueRequest", map[string]string{"requestId": r.requestID})
	if p.auth {
		msg = oneWay(r.sessionID, "Fetch.continueWithAuth", map[string]any{
			"requestId": r.requestID, "authChallengeResponse": map[string]string{"response": "Default"},
		})
	}
	if s.mux.send(fence, msg) == nil {
		s.resolved(r)
	}
}

// resolved forgets a request that the launcher itself let go, or had paused.
func (s *ClientSession) resolved(r pausedRequest) {
	s.mu.Lock()
	delete(s.paused, r)
	delete(s.unsent, r)
	s.mu.Unlock()
	s.mux.pipeLog.append(lineSettled, r.sessionID, r.requestID)
}

// failCommand is the command that ends a paused request without sending it. Nothing else does:
// closing the target, the session or the browser would send the request.
func failCommand(r pausedRequest, auth bool) []byte {
	if auth {
		return oneWay(r.sessionID, "Fetch.continueWithAuth", map[string]any{
			"requestId": r.requestID, "authChallengeResponse": map[string]string{"response": "CancelAuth"},
		})
	}
	return oneWay(r.sessionID, "Fetch.failRequest", map[string]string{"requestId": r.requestID, "errorReason": "Aborted"})
}
