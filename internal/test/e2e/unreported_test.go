package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"

	"leasehold/launcher/api"
	"leasehold/lease"
)

// lastWord is a way in which a page ends, with a POST or a message that no page reports.
type lastWord struct {
	name, script, method string // of the page, and the command that ends it
}

const atItsEnd = `addEventListener("pagehide",()=>navigator.sendBeacon(location.pathname+"/sent"))`

var lastWords = []lastWord{
	{"beacon", atItsEnd, "Page.close"},
	{"away", atItsEnd, "Page.navigate"},
	{"socket", `var socket=new WebSocket(location.href.replace("http","ws")+"/sent");addEventListener("pagehide",()=>socket.send("x"))`, "Page.close"},
}

// whatNoPageReports: pages end right before their worker is lost. Chrome gives a page that ends half a
// second, and what it wants to send may be withheld then; but whatever its site got of it is in the
// review. launcher/browser tests that each of twenty messages is.
func whatNoPageReports(t *testing.T, s *sidecar) {
	var mu sync.Mutex
	got := map[string]bool{}
	take := func(path string) {
		mu.Lock()
		defer mu.Unlock()
		got[path] = true
	}
	var sockets sync.WaitGroup // each ends with its page
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		way := slices.IndexFunc(lastWords, func(way lastWord) bool { return r.URL.Path == "/"+way.name })
		switch {
		case r.URL.Path == "/socket/sent":
			sockets.Add(1)
			defer sockets.Done()
			conn, _, _, err := ws.UpgradeHTTP(r, w)
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = conn.Close() }()
			if _, err := wsutil.ReadClientText(conn); err == nil {
				take(r.URL.Path)
			}
		case r.Method == http.MethodPost:
			take(r.URL.Path)
			w.WriteHeader(http.StatusNoContent)
		case way >= 0:
			fmt.Fprintf(w, `<title>page</title><body><script>%s</script>`, lastWords[way].script)
		default:
			fmt.Fprint(w, `<title>page</title>`)
		}
	}))
	t.Cleanup(site.Close)
	c := dial(t, s.socket("last-words", "worker=w&task=t"))
	stays, _ := c.visit(t, site.URL+"/stays")
	c.evaluate(t, stays, `fetch("/first",{method:"POST"}).then(()=>1)`) // so that a person decides in any case
	var sessions []string
	for _, way := range lastWords {
		session, _ := c.visit(t, site.URL+"/"+way.name)
		sessions = append(sessions, session)
		if way.name == "socket" {
			c.evaluate(t, session, `socket.readyState==1||new Promise(r=>socket.onopen=()=>r(1))`)
		}
	}
	for i, way := range lastWords {
		c.send(t, sessions[i], way.method, map[string]any{"url": "data:text/html,x"})
	}
	c.drop()
	s.until(t, "last-words", lease.ManualReview)
	site.Close() // nothing is on its way any more
	sockets.Wait()
	var found api.Inspection
	s.call(t, "GET", "/v1/profiles/last-words/inspection", nil, &found)
	t.Logf("the site got %v", got)
	if !got["/first"] {
		t.Error("the site got nothing")
	}
	for path := range got {
		if !slices.ContainsFunc(found.UnsafeRequests, func(r api.UnsafeRequest) bool {
			return strings.HasSuffix(r.URL, path) && r.Counts == "unsafe"
		}) {
			t.Errorf("%s: what the page sent is not in the review: %+v", path, found.UnsafeRequests)
		}
	}
}
