package acts

import (
	"bytes"
	"encoding/json"

	"leasehold/cdpproxy/methods"
)

// conditionsCommand is the prefix of the commands that take a page offline:
// Network.emulateNetworkConditions and Network.emulateNetworkConditionsByRule.
var conditionsCommand = []byte("Network.emulateNetworkConditions")

// noteConditions notes whether a command takes its target offline, or online again.
func (a *Acts) noteConditions(c Command) {
	if !bytes.HasPrefix(c.Method, conditionsCommand) {
		return
	}
	offline, rules := false, []json.RawMessage{}
	if !methods.ReadMembers(c.Params, map[string]any{"offline": &offline, "matchedNetworkConditions": &rules}) {
		return
	}
	for _, rule := range rules {
		off := false
		if !methods.ReadMembers(rule, map[string]any{"offline": &off}) {
			return
		}
		offline = offline || off
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !offline {
		delete(a.offline, string(c.Session))
		return
	}
	if a.offline == nil || len(a.offline) >= maxNoted {
		a.offline = map[string]bool{}
	}
	a.offline[string(c.Session)] = true
}

// Offline tells whether a client keeps the target with that id from the network. Chrome
// ends that with the client's CDP session.
func (a *Acts) Offline(target string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for session := range a.offline {
		if on, _ := a.attached([]byte(session)); on == target {
			return true
		}
	}
	return false
}
