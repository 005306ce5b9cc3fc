package cdpproxy

import (
	"bytes"
	"encoding/json"

	"github.com/gobwas/ws"

	"leasehold/cdpproxy/methods"
)

var destroyedEvent = []byte(`{"method":"Target.targetDestroyed",`)

// noteTarget notes which targets the client is told about. The caller holds c.mu.
func (c *Conn) noteTarget(parsed browserMessage, msg []byte) {
	created := bytes.HasPrefix(msg, targetCreatedEvent)
	if !created && !bytes.HasPrefix(msg, destroyedEvent) {
		return
	}
	var e struct {
		Params struct {
			TargetID   string `json:"targetId"`
			TargetInfo struct {
				TargetID string `json:"targetId"`
			} `json:"targetInfo"`
		} `json:"params"`
	}
	if json.Unmarshal(msg, &e) != nil {
		return
	}
	on := string(parsed.sessionID)
	if !created {
		delete(c.discovered[on], e.Params.TargetID)
		return
	}
	if c.discovered[on] == nil {
		c.discovered[on] = map[string]bool{}
	}
	c.discovered[on][e.Params.TargetInfo.TargetID] = true
}

// discoverCommand turns a session's events about targets on and off.
const discoverCommand = "Target.setDiscoverTargets"

// noteDiscovery notes a command that turns them off. The caller holds c.mu.
func (c *Conn) noteDiscovery(cmd command) {
	discover := true
	if methods.ReadMembers(cmd.params, map[string]any{"discover": &discover}) && !discover {
		if c.undiscovering == nil {
			c.undiscovering = map[inFlight]bool{}
		}
		c.undiscovering[inFlight{c.target(cmd), cmd.id}] = true
	}
}

// discoveryAnswered forgets the targets that a session was told about, once Chrome has answered
// the command that ends it. The caller holds c.mu.
func (c *Conn) discoveryAnswered(parsed browserMessage) {
	key := inFlight{string(parsed.sessionID), parsed.id}
	if !c.undiscovering[key] {
		return
	}
	delete(c.undiscovering, key)
	if !parsed.isError {
		delete(c.discovered, key.sessionID)
	}
}

// tellTargets queues the events with which Chrome tells a client about the end of its sessions,
// the latest first, and about the end of the targets that it knows: many clients wait for these
// events, and not for the end of the connection. The caller holds c.mu.
func (c *Conn) tellTargets() {
	for _, opened := range c.session.mux.sessions.under(c.session) {
		if opened.kind == "page" || opened.kind == "iframe" {
			c.tell(opened.sessionID, "Inspector.detached", map[string]string{"reason": "Render process gone."})
		}
		if opened.sessionID == c.session.defaultID {
			c.out.add(ws.OpText, targetClosedEvent)
			continue
		}
		c.tell(opened.parent, "Target.detachedFromTarget", map[string]string{"sessionId": opened.sessionID, "targetId": opened.target})
		for on, targets := range c.discovered {
			if targets[opened.target] {
				delete(targets, opened.target)
				c.tell(on, "Target.targetDestroyed", map[string]string{"targetId": opened.target})
			}
		}
	}
	for on, targets := range c.discovered {
		if !c.session.mux.sessions.isOpen(on) {
			continue
		}
		for target := range targets {
			c.tell(on, "Target.targetDestroyed", map[string]string{"targetId": target})
		}
	}
	c.discovered = nil
}

// targetClosedEvent is the last event that a connection to one target gets from Chrome.
var targetClosedEvent = []byte(`{"method":"Inspector.detached","params":{"reason":"target_closed"}}`)

// tell queues an event of the launcher's own on a CDP session. The caller holds c.mu.
func (c *Conn) tell(sessionID, method string, params map[string]string) {
	if sessionID == c.session.defaultID {
		sessionID = ""
	}
	msg, err := json.Marshal(struct {
		Method    string            `json:"method"`
		Params    map[string]string `json:"params"`
		SessionID string            `json:"sessionId,omitempty"`
	}{method, params, sessionID})
	if err == nil { // strings can always be marshalled
		c.out.add(ws.OpText, msg)
	}
}

// endWithTarget ends a connection to one target as Chrome does when the target is closed: with
// an event, and without a close frame. Only the loop calls it, holding c.mu.
func (c *Conn) endWithTarget() {
	c.out.add(ws.OpText, targetClosedEvent)
	c.closeFrames, c.targetClosed, c.cut = false, true, true
	c.forgetPending()
	c.startEndTimeout()
	c.flushLater()
}

// hides tells whether the client must not see a CDP session: the browser session of a
// connection to one target.
func (s *ClientSession) hides(sessionID []byte) bool {
	return s.defaultID != s.id && string(sessionID) == s.id
}

func (s *ClientSession) targetClosed(msg []byte) bool {
	var e struct {
		Params struct {
			SessionID string `json:"sessionId"`
		} `json:"params"`
	}
	return bytes.HasPrefix(msg, detachedEvent) && json.Unmarshal(msg, &e) == nil && e.Params.SessionID == s.defaultID
}
