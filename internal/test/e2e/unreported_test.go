package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"

	"leasehold/checkpoint"
	"leasehold/launcher/api"
	"leasehold/lease"
)

// lastWord is a way in which a page ends, with a POST or a message that its site gets and no page reports.
type lastWord struct {
	name, script, method string // of the page, and the command that ends it
}

const atItsEnd = `addEventListener("pagehide",()=>navigator.sendBeacon(location.pathname+"/sent"))`

var lastWords = []lastWord{
	{"beacon", atItsEnd, "Page.close"},
	{"away", atItsEnd, "Page.navigate"},
	{"socket", `var socket=new WebSocket(location.href.replace("http","ws")+"/sent");addEventListener("pagehide",()=>socket.send("x"))`, "Page.close"},
}

// whatNoPageReports: what pages send while they end is in the review, each of it. launcher/monitor tests
// what is made of the browser's log of its network.
func whatNoPageReports(t *testing.T, s *sidecar) {
	got := make(chan string, 16)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		way := slices.IndexFunc(lastWords, func(way lastWord) bool { return r.URL.Path == "/"+way.name })
		switch {
		case r.URL.Path == "/socket/sent":
			conn, _, _, err := ws.UpgradeHTTP(r, w)
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = conn.Close() }()
			if _, err := wsutil.ReadClientText(conn); err == nil {
				got <- r.URL.Path
			}
		case r.Method == http.MethodPost:
			got <- r.URL.Path
			w.WriteHeader(http.StatusNoContent)
		case way >= 0:
			fmt.Fprintf(w, `<title>page</title><body><script>%s</script>`, lastWords[way].script)
		default:
			fmt.Fprint(w, `<title>page</title>`)
		}
	}))
	t.Cleanup(site.Close)
	c := dial(t, s.socket("last-words", "worker=w&task=t"))
	c.visit(t, site.URL+"/stays")
	for _, way := range lastWords {
		// Chrome gives a page that ends half a second: on a busy host it may be over before it has sent
		// anything, and is no page that this test is about. So another one ends, until the site got it.
		for sent, tries := false, 0; !sent; tries++ {
			if tries == 9 {
				t.Fatalf("%s: %d pages ended, and the site got nothing of them", way.name, tries)
			}
			session, _ := c.visit(t, site.URL+"/"+way.name)
			if way.name == "socket" {
				c.evaluate(t, session, `socket.readyState==1||new Promise(r=>socket.onopen=()=>r(1))`)
			}
			c.send(t, session, way.method, map[string]any{"url": "data:text/html,x"})
			for waiting := true; waiting && !sent; {
				select {
				case path := <-got:
					sent = path == "/"+way.name+"/sent"
				case <-time.After(patience / 9):
					waiting = false
				}
			}
		}
		s.noted(t, "last-words", "what was sent by "+way.name, 1, func(e checkpoint.Entry) bool { return strings.HasSuffix(e.URL, "/"+way.name+"/sent") })
	}
	c.drop()
	s.until(t, "last-words", lease.ManualReview)
	var found api.Inspection
	s.call(t, "GET", "/v1/profiles/last-words/inspection", nil, &found)
	for _, way := range lastWords {
		if !slices.ContainsFunc(found.UnsafeRequests, func(r api.UnsafeRequest) bool {
			return strings.HasSuffix(r.URL, "/"+way.name+"/sent") && r.Counts == "unsafe"
		}) {
			t.Errorf("%s: what the page sent is not in the review: %+v", way.name, found.UnsafeRequests)
		}
	}
}
