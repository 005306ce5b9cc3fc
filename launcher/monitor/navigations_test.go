package monitor

import (
	"fmt"
	"strings"
	"testing"

	"leasehold/cdpproxy"
	"leasehold/internal/boottime"
)

// observeScript makes n observe the events of a script, one a line, at successive instants:
//
//	page S T [OPENER]     a page T, on session S      frame S PARENT T   one of another process
//	starts S FRAME LOADER         goes S FRAME LOADER [URL]   closes S
//	types T    acts T    ends    the launcher closes the browser
func observeScript(t *testing.T, n *navigations, script string) boottime.Instant {
	t.Helper()
	typed, acted := map[string]boottime.Instant{}, map[string]boottime.Instant{}
	n.lastTyped = func(target string) boottime.Instant { return typed[target] }
	n.lastActed = func(target string) boottime.Instant { return acted[target] }
	var now boottime.Instant = 100
	for line := range strings.Lines(script) {
		w := append(strings.Fields(line), "", "", "", "")
		if w[0] == "" {
			continue
		}
		now += 10
		or := func(s, otherwise string) string {
			if s == "" {
				return otherwise
			}
			return s
		}
		e := cdpproxy.Event{Session: w[1]}
		switch w[0] {
		case "page":
			e.Session, e.Method = "", "Target.attachedToTarget"
			e.Params = fmt.Appendf(nil, `{"sessionId":%q,"targetInfo":{"targetId":%q,"type":"page","openerId":%q}}`, w[1], w[2], w[3])
		case "frame":
			e.Session, e.Method = w[2], "Target.attachedToTarget"
			e.Params = fmt.Appendf(nil, `{"sessionId":%q,"targetInfo":{"targetId":%q,"type":"iframe"}}`, w[1], w[3])
		case "worker":
			e.Session, e.Method = w[2], "Target.attachedToTarget"
			e.Params = fmt.Appendf(nil, `{"sessionId":%q,"targetInfo":{"targetId":%q,"type":"worker"}}`, w[1], w[3])
		case "starts":
			e.Method, e.Params = "Page.frameStartedNavigating", fmt.Appendf(nil, `{"frameId":%q,"loaderId":%q,"navigationType":"differentDocument"}`, w[2], w[3])
		case "ends":
			n.closing.Store(true)
			continue
		case "acts":
			acted[w[1]] = now
			continue
		case "goes":
			e.Method, e.Params = "Page.frameNavigated", fmt.Appendf(nil, `{"frame":{"id":%q,"loaderId":%q,"url":%q}}`, w[2], w[3], or(w[4], "http://a.example/"))
		case "closes":
			e.Session, e.Method, e.Params = "", "Target.detachedFromTarget", fmt.Appendf(nil, `{"sessionId":%q}`, w[1])
		case "types":
			typed[w[1]] = now
			continue
		default:
			t.Fatalf("%q is no event", line)
		}
		n.observe(e, now)
	}
	return now
}
