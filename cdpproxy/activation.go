package cdpproxy

import "leasehold/internal/boottime"

// noteActivation notes from a client's command which tab it brings to the front. session is
// the CDP session that the command is for.
func (m *Mux) noteActivation(session string, c command) {
	switch string(c.method) {
	case "Target.activateTarget":
		target := ""
		if readExact(c.params, members{"targetId": &target}) {
			m.NoteActivated(target)
		}
	case "Page.bringToFront":
		m.NoteActivated(m.clientTarget(session))
	}
}

// clientTarget is the target of a client's CDP session; empty if it is not known.
func (m *Mux) clientTarget(session string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.clientTargets[session]
}

// NoteActivated notes that a tab is brought to the front now.
func (m *Mux) NoteActivated(target string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.activated == nil || len(m.activated) >= maxNoted {
		m.activated = map[string]boottime.Instant{}
	}
	m.activated[target] = boottime.Now()
}

// ActivatedAt returns when a tab was last brought to the front; zero if it never was.
func (m *Mux) ActivatedAt(target string) boottime.Instant {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.activated[target]
}
