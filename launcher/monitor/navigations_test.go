package monitor

import (
	"fmt"
	"slices"
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

// TestUnseenDocuments: documents that a worker typed into and that ended in a way that
// hides what they send at the end.
func TestUnseenDocuments(t *testing.T) {
	const opened = "page S T\nstarts S T L1\ngoes S T L1 http://notes.example/7\n"
	const inFrame = opened + "frame S2 S F\nstarts S2 F L1\ngoes S2 F L1 http://pay.example/\n"
	const pay = "http://pay.example/"
	const note = "http://notes.example/7"
	for _, tt := range []struct {
		name, script string
		unseen       []string
	}{
		{"left for its own site", opened + "types T\nstarts S T L2\ngoes S T L2 http://www.notes.example/\n", nil},
		{"left for another site", opened + "types T\nstarts S T L2\ngoes S T L2 http://other.example/\n", []string{note}},
		{"left for another scheme", opened + "types T\nstarts S T L2\ngoes S T L2 https://notes.example/\n", []string{note}},
		{"left for nothing", opened + "types T\nstarts S T L2\ngoes S T L2 about:blank\n", []string{note}},
		{"left untouched", opened + "starts S T L2\ngoes S T L2 http://other.example/\n", nil},
		{"typed into the one before", "types T\n" + opened + "starts S T L2\ngoes S T L2 http://other.example/\n", nil},
		{"typed while it was left", opened + "starts S T L2\ntypes T\ngoes S T L2 http://other.example/\n", []string{note}},
		{"another page was typed into", opened + "types X\nstarts S T L2\ngoes S T L2 http://other.example/\n", nil},
		{"a frame was typed into", opened + "frame S2 S F\ntypes F\nstarts S T L2\ngoes S T L2 http://other.example/\n", []string{note}},
		{"a frame was left", opened + "types T\nstarts S F L2\ngoes S F L2 http://other.example/\n", nil},
		{"closed", opened + "types T\ncloses S\n", []string{note}},
		{"closed untouched", opened + "closes S\n", nil},
		{"closed after the launcher began to", opened + "types T\nends\ncloses S\n", nil},
		{"closed before the launcher began to", opened + "types T\ncloses S\nends\n", []string{note}},
		{"a popup that closes itself", opened + "page P Q T\nstarts P Q L2\ngoes P Q L2 http://notes.example/8\ntypes Q\ncloses P\n", []string{"http://notes.example/8"}},
		{"a typed frame goes", inFrame + "types F\ncloses S2\n", []string{pay}},
		{"another frame goes", inFrame + "types X\ncloses S2\n", nil},
		{"a frame goes, and the page was typed into", inFrame + "types T\ncloses S2\n", nil},
		{"typed on the page, for a frame that was looked into", inFrame + "acts F\ntypes T\ncloses S2\n", []string{pay}},
		{"the page goes on in its site, then the frame", inFrame + "types F\nstarts S T L2\ngoes S T L2 http://notes.example/9\ncloses S2\n", []string{pay}},
		{"the frame, then the page", inFrame + "types F\nstarts S T L2\ncloses S2\ngoes S T L2 http://notes.example/9\n", []string{pay}},
		{"the frame goes to another site", inFrame + "types F\ngoes S2 F L2 http://other.example/\n", []string{pay}},
		{"typed in the page before", inFrame + "types F\nstarts S T L2\ngoes S T L2 http://notes.example/9\nframe S3 S F\ncloses S3\n", []string{pay}},
		{"searched, and closed what was found", opened + "types T\nstarts S T L2\ngoes S T L2 http://notes.example/found\ncloses S\n", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNavigations()
			observeScript(t, n, tt.script)
			if unseen := n.takeUnseen(); !slices.Equal(unseen, tt.unseen) {
				t.Errorf("unseen %v, want %v", unseen, tt.unseen)
			}
			if unseen := n.takeUnseen(); len(unseen) > 0 {
				t.Errorf("once more: %v", unseen)
			}
		})
	}
}

func TestSiteOf(t *testing.T) {
	for a, b := range map[string]string{
		"https://www.shop.example/x":    "https://shop.example/",
		"https://a.shop.co.uk":          "https://b.shop.co.uk/",
		"http://127.0.0.1:9/":           "http://127.0.0.1:10/",
		"https://[::1]:9/":              "https://[::1]/",
		"http://localhost/":             "http://localhost:8080/x",
		"https://ann.github.io/profile": "https://ann.github.io/",
	} {
		if siteOf(a) != siteOf(b) {
			t.Errorf("%s and %s: %s, %s", a, b, siteOf(a), siteOf(b))
		}
	}
	for a, b := range map[string]string{
		"https://shop.example/":  "http://shop.example/",
		"https://a.co.uk/":       "https://b.co.uk/",
		"http://127.0.0.1/":      "http://10.0.0.1/",
		"https://ann.github.io/": "https://bob.github.io/",
		"about:blank":            "https://shop.example/",
		"https://myshop.example": "https://shop.example",
	} {
		if siteOf(a) == siteOf(b) {
			t.Errorf("%s and %s are one site: %s", a, b, siteOf(a))
		}
	}
}
