package cdpproxy

import "encoding/json"

// A service worker to which somebody is attached does not end: not when it is closed, nor when
// its site has unregistered it. So the launcher's own observer leaves one that has to end. It
// stays as long as a client is attached, since the worker goes on for that time, too.

const serviceWorker = "service_worker"

// Leave has the observer leave the target, if that is a service worker, as soon as no client
// is attached to it. It returns at once.
func (o *Observer) Leave(target string) { o.session.mux.leave(target) }

func (m *Mux) leave(target string) {
	m.mu.Lock()
	for sessionID, c := range m.children {
		if s := m.owners[sessionID]; c.target == target && c.kind == serviceWorker && s != nil && s.token == 0 {
			m.leaving[sessionID], m.ending[target] = c, s.id
		}
	}
	m.mu.Unlock()
	m.lookAtWaiting()
}

// leaveFree leaves those service workers that are to end and to which no client is attached.
func (m *Mux) leaveFree() {
	m.mu.Lock()
	if len(m.leaving) == 0 { // nearly always
		m.mu.Unlock()
		return
	}
	used := map[string]bool{}
	for _, target := range m.clientTargets {
		used[target] = true
	}
	free := map[string]child{}
	for sessionID, c := range m.leaving {
		if !used[c.target] {
			free[sessionID] = c
			delete(m.leaving, sessionID)
		}
	}
	m.mu.Unlock()
	for sessionID, c := range free {
		m.post(oneWay(c.parent, "Target.detachFromTarget", map[string]string{"sessionId": sessionID}))
	}
}

// workerAttached is called when a CDP session on a service worker was opened. A client may have
// attached to one while the observer left it: then it has not ended, and the observer comes back.
func (m *Mux) workerAttached(s *ClientSession, sessionID string) {
	m.mu.Lock()
	c := m.children[sessionID]
	observer, ending := m.ending[c.target]
	left := ending && s.token != 0
	for _, still := range m.leaving {
		left = left && still.target != c.target
	}
	if ending && s.token == 0 {
		m.leaving[sessionID] = c
	}
	m.mu.Unlock()
	if left {
		m.post(oneWay(observer, "Target.attachToTarget", map[string]any{"targetId": c.target, "flatten": true}))
	}
}

// noteEnded forgets a service worker that has ended, as the observer is told.
func (m *Mux) noteEnded(msg []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.ending) == 0 {
		return
	}
	var e struct {
		Params struct {
			TargetID string `json:"targetId"`
		} `json:"params"`
	}
	if json.Unmarshal(msg, &e) == nil {
		delete(m.ending, e.Params.TargetID)
	}
}
