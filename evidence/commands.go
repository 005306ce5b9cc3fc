package evidence

import (
	"encoding/json"
	"regexp"
	"time"
)

// CommandsPart is the name of the part that Commands makes, of kind KindCommands.
const CommandsPart = "commands.json"

// How many commands are kept, and up to how many bytes of one's parameters are.
const (
	keptCommands = 200
	keptParams   = 2 << 10
)

// Commands records the last CDP commands that workers sent. The zero value is
// ready; its methods may be called at the same time, and Record is cheap enough
// for the data path: it copies, and leaves the reading to Part.
type Commands struct{ ring ring[command] }

type command struct {
	at      time.Time
	token   uint64
	session string
	method  string
	params  []byte
	bytes   int
}

// Record notes a command: when, under which lease token, on which CDP session
// (empty for the browser's own) and with which parameters, JSON as it was sent.
// Nothing of params is kept by reference.
func (c *Commands) Record(at time.Time, token uint64, session, method string, params []byte) {
	c.ring.add(keptCommands, func(e *command) {
		e.at, e.token, e.session, e.method, e.bytes = at, token, clip(session, 64), clip(method, 100), len(params)
		e.params = e.params[:0]
		if len(params) <= keptParams {
			e.params = append(e.params, params...)
		}
	})
}

// CommandEntry is one command in the part.
type CommandEntry struct {
	At         time.Time `json:"at"`
	LeaseToken uint64    `json:"lease_token"`
	Session    string    `json:"cdp_session,omitempty"`
	Method     string    `json:"method"`
	// Params has the names of all parameters, and the values of those that
	// hold nothing of the account's.
	Params map[string]any `json:"params,omitempty"`
	// Bytes is the size of the parameters as they were sent.
	Bytes int `json:"params_bytes"`
}

// Part returns what was recorded, redacted: {"total","dropped","entries"}, oldest
// first.
func (c *Commands) Part() []byte {
	c.ring.mu.Lock()
	defer c.ring.mu.Unlock()
	var entries []CommandEntry
	c.ring.each(func(e *command) {
		entries = append(entries, CommandEntry{
			At: e.at.UTC(), LeaseToken: e.token, Session: word(e.session), Method: methodName(e.method),
			Params: redactParams(e.params), Bytes: e.bytes,
		})
	})
	return encodeRecorded(c.ring.total, entries)
}

var domainMethod = regexp.MustCompile(`^[A-Za-z]{1,40}\.[A-Za-z0-9]{1,60}$`)

func methodName(s string) string {
	if domainMethod.MatchString(s) {
		return s
	}
	return redacted
}

// Parameters whose values are kept: if they are one word, a URL (redacted), or
// true or false. Not among them, on purpose: key, code, text and the key codes of
// Input, from which typed text could be read; expressions; and coordinates, which
// tell what was typed on a keypad that a page shows.
var (
	keptWords = map[string]bool{
		"type": true, "button": true, "format": true, "targetId": true, "frameId": true, "sessionId": true,
		"requestId": true, "browserContextId": true, "loaderId": true, "errorReason": true, "transitionType": true,
		"patternType": true, "behavior": true, "media": true, "state": true, "outcome": true,
	}
	keptURLs  = map[string]bool{"url": true, "referrer": true, "origin": true, "documentURL": true}
	keptFlags = map[string]bool{
		"enabled": true, "discover": true, "autoAttach": true, "waitForDebuggerOnStart": true, "flatten": true, "accept": true,
		"ignoreCache": true, "awaitPromise": true, "returnByValue": true, "userGesture": true, "background": true, "newWindow": true,
		"bypass": true, "offline": true, "safe": true, "idempotent": true, "sensitive": true,
	}
)

// redactParams returns the parameters by name. Only names that a protocol could
// have are written; what is within a value is not.
func redactParams(raw []byte) map[string]any {
	var params map[string]json.RawMessage
	if len(raw) == 0 || json.Unmarshal(raw, &params) != nil {
		return nil
	}
	kept := map[string]any{}
	for name, value := range params {
		var text string
		var flag bool
		switch {
		case keptWords[name] && json.Unmarshal(value, &text) == nil:
			kept[name] = word(text)
		case keptURLs[name] && json.Unmarshal(value, &text) == nil:
			kept[name] = bareURL(text)
		case keptFlags[name] && json.Unmarshal(value, &flag) == nil:
			kept[name] = flag
		default:
			kept[word(name)] = redacted
		}
	}
	return kept
}
