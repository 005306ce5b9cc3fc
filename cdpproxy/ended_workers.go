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
	m.sessions.leave(target)
	m.lookAtWaiting()
}

func (o *openSessions) leave(target string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.byID {
		if s.target == target && s.kind == serviceWorker && s.owner.token == 0 {
			s.leaving = true
			if o.ending == nil {
				o.ending = map[string]string{}
			}
			o.ending[target] = s.owner.id
		}
	}
}

// leaveFree leaves those service workers that are to end and to which no client is attached.
func (m *Mux) leaveFree() {
	for _, free := range m.sessions.leavable() {
		m.post(oneWay(free.parent, "Target.detachFromTarget", map[string]string{"sessionId": free.sessionID}))
	}
}

// leavable returns the sessions on such service workers. They are left from now on.
func (o *openSessions) leavable() (list []openedChild) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.ending) == 0 { // nearly always
		return nil
	}
	used := o.used()
	for id, s := range o.byID {
		if s.leaving && !used[s.target] {
			list = append(list, openedChild{id, *s})
			s.leaving = false
		}
	}
	return list
}

// workerAttached is called when a CDP session on a service worker was opened. A client may have
// attached to one while the observer left it: then it has not ended, and the observer comes back.
func (m *Mux) workerAttached(s *ClientSession, sessionID string) {
	if target, observer := m.sessions.workerAttached(s, sessionID); observer != "" {
		m.post(oneWay(observer, "Target.attachToTarget", map[string]any{"targetId": target, "flatten": true}))
	}
}

// workerAttached returns the target of a service worker to which a client was attached, and the
// browser session of the observer that had left it; empty if none had.
func (o *openSessions) workerAttached(s *ClientSession, id string) (target, observer string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	target = o.session(id).target
	observer, ending := o.ending[target]
	switch {
	case !ending:
		return target, ""
	case s.token == 0:
		o.session(id).leaving = true
		return target, ""
	}
	for _, still := range o.byID {
		if still.leaving && still.target == target {
			return target, ""
		}
	}
	return target, observer
}

// noteEnded forgets a service worker that has ended, as the observer is told.
func (o *openSessions) noteEnded(msg []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.ending) == 0 {
		return
	}
	var e struct {
		Params struct {
			TargetID string `json:"targetId"`
		} `json:"params"`
	}
	if json.Unmarshal(msg, &e) == nil {
		delete(o.ending, e.Params.TargetID)
	}
}
