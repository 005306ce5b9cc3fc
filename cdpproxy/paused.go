package cdpproxy

import (
	"encoding/json"
	"slices"
)

// pausedRequest names a request that a client has paused by the Fetch domain.
type pausedRequest struct{ sessionID, requestID string }

// continuedRequest is a paused request that a command in flight continues, fulfills or fails.
// If the fence or the browser refuses the command, it counts as paused again.
type continuedRequest struct {
	request pausedRequest
	auth    bool   // it waits for credentials
	kept    string // its id in the Network domain, if the command prevents it from being sent
}

// KeptRequest is an unsafe request that a client had paused before it was sent. Back says that
// the client failed it, or answered it itself, so that it never leaves the browser; otherwise
// such a command was refused after all.
type KeptRequest struct {
	RequestID string // in the Network domain
	Back      bool
}

// unsentRequest has the members of Fetch.requestPaused that are about a request which was not
// sent.
type unsentRequest struct {
	NetworkID string          `json:"networkId"`
	Status    int             `json:"responseStatusCode"`
	Error     json.RawMessage `json:"responseErrorReason"`
	Request   struct {
		Method string `json:"method"`
	} `json:"request"`
}

// noteUnsent notes an unsafe request that is paused before it is sent.
func (s *ClientSession) noteUnsent(r pausedRequest, u unsentRequest, auth bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.unsent, r)
	if auth || s.fenced || u.NetworkID == "" || u.Status != 0 || u.Error != nil || slices.Contains(safeMethods[:], u.Request.Method) {
		return
	}
	if s.unsent == nil || len(s.unsent) >= maxNoted {
		s.unsent = map[pausedRequest]string{}
	}
	s.unsent[r] = u.NetworkID
}

// keepsBack tells whether a command prevents a paused request from being sent. An answer that
// is a redirect does not, because the browser follows it.
func keepsBack(method string, status int) bool {
	return method == "Fetch.failRequest" || method == "Fetch.fulfillRequest" && (status < 300 || status > 399)
}

// requestPaused is called when a request waits for the client: for credentials, if auth
// is set.
func (s *ClientSession) requestPaused(r pausedRequest, auth bool) {
	s.mu.Lock()
	fenced := s.fenced
	if !fenced {
		s.paused[r] = auth
	}
	s.mu.Unlock()
	if fenced {
		s.mux.post(failCommand(r, auth))
		return
	}
	s.mux.ledger.append(linePaused, r.sessionID, r.requestID, kindOfPause(auth))
}

// trackCommand updates what is paused and what waits for a debugger by a command of the
// client. It returns the request that the command continues, or nil.
func (s *ClientSession) trackCommand(c command, sessionID string) *continuedRequest {
	switch string(c.method) {
	case "Fetch.continueRequest", "Fetch.continueResponse", "Fetch.continueWithAuth", "Fetch.failRequest", "Fetch.fulfillRequest":
		var params struct {
			RequestID string `json:"requestId"`
			Status    int    `json:"responseCode"`
		}
		if len(c.params) > 0 && json.Unmarshal(c.params, &params) == nil && params.RequestID != "" {
			r := pausedRequest{sessionID, params.RequestID}
			s.mu.Lock()
			defer s.mu.Unlock()
			if auth, ok := s.paused[r]; ok {
				delete(s.paused, r)
				unsent := s.unsent[r]
				delete(s.unsent, r)
				if unsent == "" || !keepsBack(string(c.method), params.Status) {
					return &continuedRequest{r, auth, ""}
				}
				s.mux.traffic(Traffic{Kept: &KeptRequest{unsent, true}})
				return &continuedRequest{r, auth, unsent}
			}
		}
	case letRunCommand:
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
	s.requestPaused(c.request, c.auth)
	if c.kept != "" {
		s.mux.traffic(Traffic{Kept: &KeptRequest{c.kept, false}})
	}
}

// resolved forgets a request that the launcher itself had paused.
func (s *ClientSession) resolved(r pausedRequest) {
	s.mu.Lock()
	delete(s.paused, r)
	s.mu.Unlock()
	s.mux.ledger.append(lineSettled, r.sessionID, r.requestID)
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
