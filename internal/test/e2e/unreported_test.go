package e2e

import (
	"fmt"
	"net"
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

const atItsEnd = `addEventListener("pagehide",()=>navigator.sendBeacon(location.pathname+"/sent"))`

type lastWord struct {
	name, script string // of the page
	end          func(t *testing.T, c *socket, session, target, elsewhere string)
}

// lastWords are ways in which a page ends, each with a POST or a message that its site gets and no page
// reports.
var lastWords = []lastWord{
	{"beacon", atItsEnd, closeTarget},
	{"keepalive", `addEventListener("pagehide",()=>fetch(location.pathname+"/sent",{method:"POST",keepalive:true}))`, closeTarget},
	{"close", atItsEnd, func(t *testing.T, c *socket, session, _, _ string) { c.send(t, session, "Page.close", nil) }},
	{"away", atItsEnd, func(t *testing.T, c *socket, session, _, elsewhere string) {
		c.send(t, session, "Page.navigate", map[string]any{"url": elsewhere})
	}},
	{"data", atItsEnd, func(t *testing.T, c *socket, session, _, _ string) {
		c.send(t, session, "Page.navigate", map[string]any{"url": "data:text/html,x"})
	}},
	{"later", `window.fetchLater?fetchLater(location.pathname+"/sent",{method:"POST"}):` + atItsEnd, closeTarget},
	{"socket", `var socket=new WebSocket(location.href.replace("http","ws")+"/sent");addEventListener("pagehide",()=>socket.send("x"))`, closeTarget},
	{"frame", `const f=document.createElement("iframe");f.src=document.currentScript.dataset.other+location.pathname+"/inside";document.body.append(f)`,
		func(t *testing.T, c *socket, session, _, _ string) {
			c.send(t, session, "Runtime.evaluate", map[string]any{"expression": `document.querySelector("iframe").remove()`})
		}},
}

func closeTarget(t *testing.T, c *socket, _, target, _ string) {
	c.send(t, "", "Target.closeTarget", map[string]any{"targetId": target})
}

// TestWhatNoPageReportsIsKnown: what pages send while they end is in the review, each of it, also
// what another launcher was told.
func TestWhatNoPageReportsIsKnown(t *testing.T) {
	t.Parallel()
	s := start(t, "--reconnect-grace", "30s")
	got := make(chan string, 16)
	framed := make(chan bool, 1)
	var other string
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
		case strings.HasSuffix(r.URL.Path, "/inside"):
			fmt.Fprintf(w, `<body><script>%s</script>`, strings.Replace(atItsEnd, "location.pathname", `"/frame"`, 1))
			framed <- true
		case way >= 0:
			fmt.Fprintf(w, `<title>page</title><body><script data-other="%s">%s</script>`, other, lastWords[way].script)
		default:
			fmt.Fprint(w, `<title>page</title>`)
		}
	}))
	t.Cleanup(site.Close)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(site.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	other = "http://localhost:" + port
	address := s.open(t, "shop", map[string]any{"expected_domains": []string{"127.0.0.1", "localhost"}}).CDPURL
	c := dial(t, address)
	c.visit(t, site.URL+"/stays")
	for i, way := range lastWords {
		if i == len(lastWords)/2 {
			s.noted(t, "shop", "what no page reported", i, func(e checkpoint.Entry) bool { return strings.HasSuffix(e.URL, "/sent") })
			s.kill(t)
			s.launch(t)
			c = dial(t, s.here(t, address))
		}
		session, target := c.visit(t, site.URL+"/"+way.name)
		switch way.name {
		case "socket":
			c.call(t, session, "Runtime.evaluate", map[string]any{"expression": `socket.readyState==1||new Promise(r=>socket.onopen=r)`, "awaitPromise": true}, nil)
		case "frame":
			<-framed
			c.call(t, session, "Runtime.evaluate", map[string]any{"expression": `new Promise(r=>setTimeout(r,300))`, "awaitPromise": true}, nil)
		}
		way.end(t, c, session, target, other+"/elsewhere")
		select {
		case path := <-got:
			if path != "/"+way.name+"/sent" {
				t.Fatalf("%s: the site got %s", way.name, path)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s: the site got nothing", way.name)
		}
	}
	c.drop()
	s.until(t, "shop", lease.ManualReview)
	var found api.Inspection
	s.call(t, "GET", "/v1/profiles/shop/inspection", nil, &found)
	for _, way := range lastWords {
		if !slices.ContainsFunc(found.UnsafeRequests, func(r api.UnsafeRequest) bool {
			return strings.HasSuffix(r.URL, "/"+way.name+"/sent") && r.Counts == "unsafe"
		}) {
			t.Errorf("%s: what the page sent is not in the review: %+v", way.name, found.UnsafeRequests)
		}
	}
}
