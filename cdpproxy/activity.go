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

// Chrome's replies to Target.createTarget and Page.navigate begin like this, after the id.
// Pages cannot influence that.
var (
	madeReply      = []byte(`,"result":{"targetId":"`)
	navigatedReply = []byte(`,"result":{"frameId":"`)
	contextReply   = []byte(`,"result":{"browserContextId":"`)
)

// maxReplyHead is the number of bytes within which a reply has its id and the beginning of its
// result.
const maxReplyHead = 48

// noteOpened notes from a reply which page a command made, or which document it loaded.
func (m *Mux) noteOpened(msg []byte) {
	head := msg[:min(len(msg), maxReplyHead)]
	if bytes.Contains(head, contextReply) {
		m.noteContext(msg)
		return
	}
	made := bytes.Contains(head, madeReply)
	if !made && !bytes.Contains(head, navigatedReply) {
		return
	}
	var r struct {
		Result struct {
			TargetID string `json:"targetId"`
			LoaderID string `json:"loaderId"`
		} `json:"result"`
	}
	if json.Unmarshal(msg, &r) != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.made == nil || len(m.made) >= maxNoted {
		m.made = map[string]bool{}
	}
	if m.navigated == nil || len(m.navigated) >= maxNoted {
		m.navigated = map[string]bool{}
	}
	if made {
		m.made[r.Result.TargetID] = true
	} else if r.Result.LoaderID != "" {
		m.navigated[r.Result.LoaderID] = true
	}
}

// noteContext notes the browser context that a command made.
func (m *Mux) noteContext(msg []byte) {
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

// Made tells whether a page, given its target's id, was made by a command of a client or of the
// launcher.
func (m *Mux) Made(target string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.made[target]
}

// Navigated tells whether a document, given its loader's id, was loaded by a command that named
// its URL.
func (m *Mux) Navigated(loader string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.navigated[loader]
}

// Forget makes Made, Navigated, Typed and ActedOn forget everything. It is called when the
// pages that clients had are gone.
func (m *Mux) Forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.typedAt, m.actedAt, m.made, m.navigated = nil, nil, nil, nil
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
