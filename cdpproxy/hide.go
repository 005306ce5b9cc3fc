package cdpproxy

import (
	"bytes"
	"encoding/json"
	"slices"
)

// Quotes inside a title or a URL are escaped, so this can only be the member itself.
var (
	attachedTrue  = []byte(`"attached":true`)
	attachedFalse = []byte(`"attached":false`)
	// infoReply is the beginning, after the id, of Chrome's replies to Target.getTargets and
	// Target.getTargetInfo.
	infoReply = []byte(`,"result":{"targetInfo`)
)

// hideObserver returns an event about a target, or a reply that describes targets, as it would
// be if only clients were attached to targets, and without private pages. Since the launcher's observer is attached to
// every page, no page would look free otherwise, and a client that waits for a free one would
// wait for ever.
func (m *Mux) hideObserver(msg []byte, isReply bool) []byte {
	if isReply {
		if !bytes.Contains(msg[:min(len(msg), maxReplyHead)], infoReply) {
			return msg
		}
		msg = m.withoutPrivate(msg)
	} else if !bytes.HasPrefix(msg, targetCreatedEvent) && !bytes.HasPrefix(msg, targetChangedEvent) {
		return msg
	}
	if !bytes.Contains(msg, attachedTrue) {
		return msg
	}
	type info struct {
		TargetID string `json:"targetId"`
		Type     string `json:"type"`
		Attached bool   `json:"attached"`
	}
	type infos struct {
		TargetInfo  *info  `json:"targetInfo"`
		TargetInfos []info `json:"targetInfos"`
	}
	var e struct{ Params, Result infos }
	if json.Unmarshal(msg, &e) != nil {
		return msg
	}
	list := append(e.Params.TargetInfos, e.Result.TargetInfos...)
	for _, one := range []*info{e.Params.TargetInfo, e.Result.TargetInfo} {
		if one != nil {
			list = append(list, *one)
		}
	}
	clients := m.sessions.ofClients()
	var shown []byte
	for _, one := range list {
		if !one.Attached {
			continue
		}
		at := bytes.Index(msg, attachedTrue)
		if at < 0 {
			break // it was written in another form
		}
		value := attachedTrue
		// The client is attached to the target of the browser itself, by its own session. The
		// observer does not attach to tabs.
		if one.Type != "browser" && one.Type != "tab" && !clients[one.TargetID] {
			value = attachedFalse
		}
		shown = append(append(shown, msg[:at]...), value...)
		msg = msg[at+len(attachedTrue):]
	}
	return slices.Concat(shown, msg)
}

// hidesBrowser tells whether an event is about a browser target of the launcher's own. Chrome
// makes one for each browser session, and for the pipe itself. A client that asks for all
// targets is told of its own, and of other clients', as on a port. c.mu is held.
func (c *Conn) hidesBrowser(msg []byte) bool {
	created := bytes.HasPrefix(msg, targetCreatedEvent)
	switch {
	case created:
		if !bytes.Contains(msg, browserType) {
			return false
		}
	case len(c.unshown) == 0 || !bytes.HasPrefix(msg, targetChangedEvent) && !bytes.HasPrefix(msg, destroyedEvent):
		return false
	}
	var e struct {
		Params struct {
			TargetID   string `json:"targetId"`
			TargetInfo struct {
				TargetID string `json:"targetId"`
				Attached bool   `json:"attached"`
			} `json:"targetInfo"`
		} `json:"params"`
	}
	if json.Unmarshal(msg, &e) != nil {
		return false
	}
	if created && c.session.mux.sessions.isLaunchersBrowser(e.Params.TargetInfo.TargetID, e.Params.TargetInfo.Attached) {
		c.unshown[e.Params.TargetInfo.TargetID] = true
	}
	return c.unshown[e.Params.TargetInfo.TargetID] || c.unshown[e.Params.TargetID]
}
