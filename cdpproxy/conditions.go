package cdpproxy

import (
	"bytes"
	"encoding/json"
)

// conditionsCommand is the prefix of the commands that take a page offline:
// Network.emulateNetworkConditions and Network.emulateNetworkConditionsByRule.
var conditionsCommand = []byte("Network.emulateNetworkConditions")

// noteConditions notes whether a client's command takes its target offline, or online again.
// The caller must not hold m.mu of the Mux.
func (m *Mux) noteConditions(c command) {
	if !bytes.HasPrefix(c.method, conditionsCommand) {
		return
	}
	offline, rules := false, []json.RawMessage{}
	if !readExact(c.params, members{"offline": &offline, "matchedNetworkConditions": &rules}) {
		return
	}
	for _, rule := range rules {
		off := false
		if !readExact(rule, members{"offline": &off}) {
			return
		}
		offline = offline || off
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !offline {
		delete(m.offline, string(c.sessionID))
		return
	}
	if m.offline == nil || len(m.offline) >= maxNoted {
		m.offline = map[string]bool{}
	}
	m.offline[string(c.sessionID)] = true
}

// Offline tells whether a client keeps the target with that id from the network. Chrome
// ends that with the client's CDP session.
func (m *Mux) Offline(target string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for session := range m.offline {
		if m.clientTargets[session] == target {
			return true
		}
	}
	return false
}
