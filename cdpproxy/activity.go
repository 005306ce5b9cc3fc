package cdpproxy

import (
	"bytes"
	"encoding/json"

	"leasehold/internal/boottime"
)

// Effect judges a client's command by its method and its parameters, which are JSON or empty.
// acts says that the command can make the page do something, rather than only load it or look
// at it. types says that it enters text into the page.
//
// It is called on the data path, with every command on its way to the browser, for several
// connections at once. It must not block, and must not keep the slices.
type Effect func(method, params []byte) (acts, types bool)

// noteActivity notes when clients acted on pages, and typed into them. Connections may report
// out of order: the latest time is kept.
func (m *Mux) noteActivity(at boottime.Instant, sent ...stagedCommand) {
	for i := range sent {
		m.noteConditions(sent[i].command)
		m.noteCookies(at, &sent[i])
		acts, types := m.effect(sent[i].method, sent[i].params)
		if !acts {
			continue
		}
		m.mu.Lock()
		m.lastActed.Store(max(m.lastActed.Load(), int64(at)))
		target := m.clientTargets[string(sent[i].sessionID)]
		noteTime(&m.actedAt, target, at)
		if types {
			noteTime(&m.typedAt, target, at)
		}
		m.mu.Unlock()
	}
}

// noteCall notes a command of the launcher's own that is sent on behalf of a lease, as
// noteActivity does for clients' commands: a person who took over acts on pages by such
// commands.
func (m *Mux) noteCall(msg []byte) {
	if cmd, bad := scan(msg); bad == nil {
		m.noteActivity(boottime.Now(), stagedCommand{command: cmd})
	}
}

// maxNoted is how many targets or documents are noted in one map. A full map is emptied. The
// next act then counts as done on every target.
const maxNoted = 4096

// noteTime notes when something was done on a target; "" is an unknown one. The caller holds
// m.mu of the Mux.
func noteTime(times *map[string]boottime.Instant, target string, at boottime.Instant) {
	if *times == nil || len(*times) >= maxNoted {
		full := *times != nil
		*times = map[string]boottime.Instant{}
		if full {
			target = ""
		}
	}
	(*times)[target] = max((*times)[target], at)
}

// contextReply is how Chrome's reply to Target.createBrowserContext begins, after the id. Pages
// cannot influence that.
var contextReply = []byte(`,"result":{"browserContextId":"`)

// maxReplyHead is the number of bytes within which a reply has its id and the beginning of its
// result.
const maxReplyHead = 48

// noteContext notes from a reply which browser context a command made.
func (m *Mux) noteContext(msg []byte) {
	if !bytes.Contains(msg[:min(len(msg), maxReplyHead)], contextReply) {
		return
	}
	var r struct {
		Result struct {
			Context string `json:"browserContextId"`
		} `json:"result"`
	}
	if json.Unmarshal(msg, &r) != nil || r.Result.Context == "" {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.freshContexts) >= maxNoted {
		clear(m.freshContexts)
	}
	m.freshContexts[r.Result.Context] = true
	m.cookieCommands.madeContext(r.Result.Context)
}

// Forget makes Typed and ActedOn forget everything. It is called when the pages that clients had
// are gone.
func (m *Mux) Forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.typedAt, m.actedAt = nil, nil
	clear(m.freshContexts)
	m.cookieCommands = cookieCommands{}
}

// Acted returns when a client last sent a command that acts (see Effect) on any page.
// Zero is never.
func (m *Mux) Acted() boottime.Instant { return boottime.Instant(m.lastActed.Load()) }

// Typed returns when a client last entered text into the page with that target id, or
// into an unknown one. Zero is never.
func (m *Mux) Typed(target string) boottime.Instant {
	m.mu.Lock()
	defer m.mu.Unlock()
	return max(m.typedAt[target], m.typedAt[""])
}

// ActedOn returns when a client last sent a command that acts (see Effect) on the target
// with that id, or on an unknown one. Zero is never.
func (m *Mux) ActedOn(target string) boottime.Instant {
	m.mu.Lock()
	defer m.mu.Unlock()
	return max(m.actedAt[target], m.actedAt[""])
}
