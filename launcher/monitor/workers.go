package monitor

import (
	"github.com/chromedp/cdproto/serviceworker"
	"github.com/chromedp/cdproto/target"
)

// listenForVersions takes in that the monitor was attached to a target. It returns the CDP
// sessions of pages that are to report the versions of service workers from now on: the pages of
// browser contexts in which a service worker was seen. In other contexts Chrome would read all
// registrations for nothing. The caller holds ps.mu.
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

// leaveRedundant leaves the service workers that their sites have unregistered or replaced. They
// have nothing more to do, and would not end while the monitor is attached to them.
func (m *Monitor) leaveRedundant(versions []*serviceworker.Version) {
	for _, v := range versions {
		if v.Status == serviceworker.VersionStatusRedundant && v.TargetID != "" {
			m.chrome.Leave(string(v.TargetID))
		}
	}
}
