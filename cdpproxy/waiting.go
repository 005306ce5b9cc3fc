package cdpproxy

import "fmt"

// A new target waits for its debugger on each session that asked for that, and the first
// session that lets it run lets it run for all: this is so for the empty document of a popup,
// and for a worker. So the launcher's own observer must be the last.

// LetRun lets the target of one of the observer's CDP sessions, which waits for its debugger,
// run as soon as no client keeps it waiting. It returns at once.
func (o *Observer) LetRun(session string) {
	o.session.mux.sessions.letRun(session)
	o.session.mux.lookAtWaiting()
}

// lookID is the id of the command that lookAtWaiting sends. No call has this id.
const lookID = 1<<30 + 1

var lookCommand = fmt.Appendf(nil, `{"id":%d,"method":"Browser.getVersion","params":{}}`, lookID)

// lookAtWaiting arranges that letRunFree is called, if any target is to run or to be left, after everything
// was read that the browser reported about targets before its answer. A client may have been
// attached to a target of which the observer heard first.
func (m *Mux) lookAtWaiting() {
	if m.sessions.anyWaiting() {
		m.post(lookCommand)
	}
}

// lookIfLetRun looks at the waiting targets if one of the commands lets a target run: what it posts
// is written behind them.
func (m *Mux) lookIfLetRun(sent ...stagedCommand) {
	for i := range sent {
		if string(sent[i].method) == letRunCommand {
			m.lookAtWaiting()
			return
		}
	}
}

const letRunCommand = "Runtime.runIfWaitingForDebugger"

// letRunFree lets those targets run that no client keeps waiting, and leaves those service
// workers to which no client is attached.
func (m *Mux) letRunFree() {
	waiting := map[string]bool{}
	for _, s := range m.sessions.owners() {
		s.addWaiting(waiting)
	}
	for _, session := range m.sessions.free(waiting) {
		m.post(oneWay(session, letRunCommand, nil))
	}
	m.leaveFree()
}

// addWaiting adds the targets that wait for the session's client; "" for one to which it is not
// attached yet. Nothing waits for a client that was fenced.
func (s *ClientSession) addWaiting(waiting map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.observer != nil || s.fenced || s.freed {
		return
	}
	for _, target := range s.waitingForDebugger {
		waiting[target] = true
	}
}

func (o *openSessions) letRun(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s := o.byID[id]; s != nil {
		s.letRun = true
	}
}

// anyWaiting tells whether any target is to run or to be left.
func (o *openSessions) anyWaiting() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.byID {
		if s.letRun || s.leaving {
			return true
		}
	}
	return false
}

// free returns the sessions whose targets are to run, and are not among those that wait. They run
// from now on.
func (o *openSessions) free(waiting map[string]bool) (ids []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for id, s := range o.byID {
		if s.letRun && !waiting[s.target] && !waiting[""] {
			ids = append(ids, id)
			s.letRun = false
		}
	}
	return ids
}
