package cdpproxy

import (
	"encoding/json"
)

type pausedRequest struct{ sessionID, requestID string }

// disposal is a paused request that a command in flight lets go of. It counts as
// paused again where the command is refused.
type continuedRequest struct {
	request pausedRequest
	auth    bool
}

func (p *Peer) requestPaused(r pausedRequest, auth bool) {
	p.mu.Lock()
	fenced := p.fenced
	if !fenced {
		p.paused[r] = auth
	}
	p.mu.Unlock()
	if fenced {
		p.mux.post(failing(r, auth))
		return
	}
	p.mux.ledger.append(linePaused, r.sessionID, r.requestID, kindOfPause(auth))
}

// clientCommand keeps the tables that follow from what the client says.
func (p *Peer) trackCommand(c command, session string) *continuedRequest {
	switch string(c.method) {
	case "Fetch.continueRequest", "Fetch.continueResponse", "Fetch.continueWithAuth", "Fetch.failRequest", "Fetch.fulfillRequest":
		var params struct {
			RequestID string `json:"requestId"`
		}
		if len(c.params) > 0 && json.Unmarshal(c.params, &params) == nil && params.RequestID != "" {
			r := pausedRequest{session, params.RequestID}
			p.mu.Lock()
			defer p.mu.Unlock()
			if auth, ok := p.paused[r]; ok {
				delete(p.paused, r)
				return &continuedRequest{r, auth}
			}
		}
	case "Runtime.runIfWaitingForDebugger":
		p.mu.Lock()
		delete(p.waitingForDebugger, session)
		p.mu.Unlock()
	}
	return nil
}

// restore takes back what a refused command would have disposed of.
func (p *Peer) restorePaused(d *continuedRequest) {
	if d != nil {
		p.requestPaused(d.request, d.auth)
	}
}

// failing is the command that ends a paused request without sending it. Nothing
// else does: closing the target, the session or the browser sends it.
func failing(r pausedRequest, auth bool) []byte {
	if auth {
		return oneWay(r.sessionID, "Fetch.continueWithAuth", map[string]any{
			"requestId": r.requestID, "authChallengeResponse": map[string]string{"response": "CancelAuth"},
		})
	}
	return oneWay(r.sessionID, "Fetch.failRequest", map[string]string{"requestId": r.requestID, "errorReason": "Aborted"})
}
