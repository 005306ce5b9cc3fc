package cdpproxy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"sync"

	"leasehold/cdpproxy/methods"
)

// openSessions are the CDP sessions that are open on the pipe, as far as the browser has reported.
type openSessions struct {
	mu   sync.Mutex
	byID map[string]*openSession
	last uint64 // see openSession.number
	// own says that the browser session that attach opens is the launcher's own.
	own bool
	// privileged says that a client was ever attached to one of Chrome's own pages.
	privileged bool
	// ending are service workers that were to be left and have not ended, each with the observer's
	// browser session.
	ending map[string]string
}

// openSession is one CDP session: a browser session, or one opened under it.
type openSession struct {
	owner  *ClientSession // nil: it is only just being opened
	parent string         // the CDP session that it was reported on
	target string
	kind   string // as Chrome names the target's type
	number uint64 // later ones have higher numbers; 0: nothing was reported of its target

	client     bool   // its owner is a client, and it was opened since this launcher has the pipe
	context    string // the browser context of a client's target
	privileged bool   // a client's target is one of Chrome's own pages
	browser    string // the browser target of a client's connection, if this is its browser session

	letRun  bool // see Observer.LetRun
	leaving bool // see Observer.Leave
}

// session returns what is known of a CDP session, for a change. The caller holds o.mu.
func (o *openSessions) session(id string) *openSession {
	s := o.byID[id]
	if s == nil {
		if o.byID == nil {
			o.byID = map[string]*openSession{}
		}
		s = &openSession{}
		o.byID[id] = s
	}
	return s
}

// add adds a browser session, or one that an earlier launcher left open.
func (o *openSessions) add(id string, owner *ClientSession) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.session(id).owner = owner
}

// opened adds a session under another one.
func (o *openSessions) opened(id, parent string, owner *ClientSession, t targetInfo) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.session(id)
	o.last++
	s.owner, s.parent, s.target, s.kind, s.number = owner, parent, t.TargetID, t.Type, o.last
	if s.client = owner.token != 0 && !owner.inherited; s.client { // the launcher's own sessions have none
		s.context, s.privileged = t.Context, methods.Privileged(t.URL)
		o.privileged = o.privileged || s.privileged
	}
}

// forget forgets a session that has ended, with all sessions that were opened under it: Chrome only
// reports the end of the first. It returns them, that one first.
func (o *openSessions) forget(id string) (ended []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	ended = []string{id}
	for i := 0; i < len(ended); i++ {
		for under, s := range o.byID {
			if s.parent == ended[i] {
				ended = append(ended, under)
			}
		}
		delete(o.byID, ended[i])
	}
	return ended
}

// ownerOf is the client session that a message of a CDP session belongs to; nil: it has ended.
func (o *openSessions) ownerOf(id []byte) *ClientSession {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s := o.byID[string(id)]; s != nil {
		return s.owner
	}
	return nil
}

// owns tells whether the CDP session was opened under the client session, and whether its
// target is one of Chrome's own pages.
func (o *openSessions) owns(s *ClientSession, id []byte) (own, privileged bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	found := o.byID[string(id)]
	own = found != nil && found.owner == s
	return own, own && found.privileged
}

// get is what is known of a CDP session; zero if it is not open.
func (o *openSessions) get(id string) openSession {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s := o.byID[id]; s != nil {
		return *s
	}
	return openSession{}
}

// isOpen tells whether a CDP session is open; "" is the root.
func (o *openSessions) isOpen(id string) bool { return id == "" || o.get(id).owner != nil }

// attached returns the target of a client's CDP session, and its browser context. Both are empty for
// any other session.
func (o *openSessions) attached(id []byte) (target, context string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s := o.byID[string(id)]; s != nil && s.client {
		return s.target, s.context
	}
	return "", ""
}

// ofClients are the targets that clients are attached to.
func (o *openSessions) ofClients() map[string]bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.used()
}

// used is ofClients for a caller that holds o.mu.
func (o *openSessions) used() map[string]bool {
	targets := map[string]bool{}
	for _, s := range o.byID {
		if s.client {
			targets[s.target] = true
		}
	}
	return targets
}

// owners are the client sessions that have anything open.
func (o *openSessions) owners() []*ClientSession {
	o.mu.Lock()
	defer o.mu.Unlock()
	seen := map[*ClientSession]bool{}
	for _, s := range o.byID {
		if s.owner != nil {
			seen[s.owner] = true
		}
	}
	return slices.Collect(maps.Keys(seen))
}

// openedChild is a CDP session that is open under a client session.
type openedChild struct {
	sessionID string
	openSession
}

// under returns the CDP sessions that are open under a client session, the latest first.
func (o *openSessions) under(owner *ClientSession) []openedChild {
	o.mu.Lock()
	defer o.mu.Unlock()
	var list []openedChild
	for id, s := range o.byID {
		if s.owner == owner && id != owner.id {
			list = append(list, openedChild{id, *s})
		}
	}
	slices.SortFunc(list, func(a, b openedChild) int { return cmp.Compare(b.number, a.number) })
	return list
}

// noteURL takes in that a target has another URL: clients that are attached to it may use
// it unless that is one of Chrome's own pages.
func (o *openSessions) noteURL(msg []byte) {
	var e struct {
		Params struct {
			TargetInfo targetInfo `json:"targetInfo"`
		} `json:"params"`
	}
	if json.Unmarshal(msg, &e) != nil {
		return
	}
	privileged := methods.Privileged(e.Params.TargetInfo.URL)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.privileged = o.privileged || privileged; !o.privileged {
		return
	}
	for _, s := range o.byID {
		if s.client && s.target == e.Params.TargetInfo.TargetID {
			s.privileged = privileged
		}
	}
}

var browserType = []byte(`"type":"browser"`)

// opening says whether attach opens a browser session for the launcher itself now.
func (o *openSessions) opening(own bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.own = own
}

// noteBrowserSession notes the target of a browser session that attach opens for a client,
// from the event with which Chrome tells of it. The loop calls it.
func (o *openSessions) noteBrowserSession(msg []byte) {
	var e struct {
		Params struct {
			SessionID  string     `json:"sessionId"`
			TargetInfo targetInfo `json:"targetInfo"`
		} `json:"params"`
	}
	if !bytes.HasPrefix(msg, attachedEvent) || !bytes.Contains(msg, browserType) || json.Unmarshal(msg, &e) != nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.own {
		o.session(e.Params.SessionID).browser = e.Params.TargetInfo.TargetID
	}
}

// isLaunchersBrowser tells whether a browser target that a client is told of is the launcher's
// own, or of a client that has vanished. One to which nobody is attached yet is the one that is
// being opened just now.
func (o *openSessions) isLaunchersBrowser(target string, attached bool) bool {
	o.mu.Lock()
	if !attached {
		defer o.mu.Unlock()
		return o.own
	}
	var its, user *ClientSession // whose it is, and who is attached to it
	for _, s := range o.byID {
		switch {
		case s.client && s.target == target:
			user = s.owner
		case s.browser != "" && s.browser == target:
			its = s.owner
		}
	}
	o.mu.Unlock()
	of := cmp.Or(user, its)
	if of == nil {
		return true
	}
	of.mu.Lock()
	defer of.mu.Unlock()
	return of.fenced
}
