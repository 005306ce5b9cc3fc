package monitor

import (
	"github.com/chromedp/cdproto/serviceworker"
	"github.com/chromedp/cdproto/target"
)

// listenForVersions returns the CDP sessions of pages on which it becomes of use to hear of
// the versions of service workers, now that a target was attached to: pages of browser contexts
// that have some. Elsewhere Chrome would read all registrations for nothing. The caller holds
// ps.mu.
func (ps *pages) listenForVersions(t *target.Info) (sessions []string) {
	in := string(t.BrowserContextID)
	if t.Type == typeServiceWorker {
		remember(ps.workersIn, in, true)
	}
	if !ps.workersIn[in] {
		return nil
	}
	for _, p := range ps.open {
		if p.context == in && !p.versions {
			p.versions = true
			sessions = append(sessions, p.SessionID)
		}
	}
	return sessions
}

// leaveRedundant leaves the service workers that their sites have unregistered. They are to do
// nothing any more, and would not end while they are watched.
func (m *Monitor) leaveRedundant(versions []*serviceworker.Version) {
	for _, v := range versions {
		if v.Status == serviceworker.VersionStatusRedundant && v.TargetID != "" {
			m.chrome.Leave(string(v.TargetID))
		}
	}
}
