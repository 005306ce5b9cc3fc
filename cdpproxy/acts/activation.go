package acts

import (
	"leasehold/cdpproxy/methods"
	"leasehold/internal/boottime"
)

// noteActivation notes which tab a command brings to the front.
func (a *Acts) noteActivation(at boottime.Instant, c Command) {
	switch string(c.Method) {
	case "Target.activateTarget":
		target := ""
		if methods.ReadMembers(c.Params, map[string]any{"targetId": &target}) {
			a.activate(target, at)
		}
	case "Page.bringToFront":
		target, _ := a.attached(c.Session)
		a.activate(target, at)
	}
}

// Activate notes that a tab is brought to the front now.
func (a *Acts) Activate(target string) { a.activate(target, boottime.Now()) }

func (a *Acts) activate(target string, at boottime.Instant) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.activated == nil || len(a.activated) >= maxNoted {
		a.activated = map[string]boottime.Instant{}
	}
	a.activated[target] = max(a.activated[target], at)
}

// Activated returns when a tab was last brought to the front; zero if it never was.
func (a *Acts) Activated(target string) boottime.Instant {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.activated[target]
}
