package browser

import (
	"errors"
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
	"leasehold/internal/test/testchrome"
)

// newTalker is a site whose pages send a last word on a websocket when they are closed: then none is
// left that would report it. over has for each page whether it did, once its websocket is closed.
func newTalker(t *testing.T) (url string, over <-chan bool) {
	t.Helper()
	ended := make(chan bool, 1)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/socket/") {
			_, _ = fmt.Fprint(w, `<title>page</title><link rel="icon" href="data:,"><script>
const socket = new WebSocket(location.href.replace("http", "ws").replace("page", "socket"))
socket.onopen = () => document.title = "talks " + location.pathname
addEventListener("pagehide", () => socket.send("x"))
</script>`)
			return
		}
		conn, _, _, err := ws.UpgradeHTTP(r, w)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		_, err = wsutil.ReadClientText(conn)
		ended <- err == nil
	}))
	t.Cleanup(site.Close)
	return site.URL, ended
}

// TestALastWordIsNeverMissed: what the network service sent right before it is stopped is known, before
// it could be killed with a log that is in its memory alone.
func TestALastWordIsNeverMissed(t *testing.T) {
	h := newHost(t, Options{})
	b := h.start()
	url, over := newTalker(t)
	// On a busy host a page may be over before it has sent anything: then another one is closed.
	for round, words := 0, 0; words < 20; round++ {
		path := fmt.Sprintf("/page/%d", round)
		h.open(b, url+path)
		h.titles(b, "talks "+path)
		if err := b.Monitor().Observer().Call(t.Context(), h.page(b, url+path).SessionID, "Page.close", nil, nil); err != nil {
			t.Fatal(err)
		}
		select {
		case said := <-over:
			if !said {
				continue
			}
			words++
		case <-time.After(testchrome.Patience):
			t.Fatal("the page is not closed")
		}
		b.StandStill(h.options.Log)
		if !b.Still() || b.still.unseen != nil {
			t.Fatalf("it stands still: %v; what it sent is not known: %v", b.Still(), b.still.unseen)
		}
		b.Monitor().ReportAlone() // as when the browser is gone
		if err := b.Monitor().Reported(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.mu.Lock()
		if !slices.ContainsFunc(h.entries, func(e checkpoint.Entry) bool {
			return e.Method == checkpoint.Websocket && strings.HasSuffix(e.URL, strings.Replace(path, "page", "socket", 1))
		}) {
			t.Errorf("the message of %s is not known", path)
		}
		h.mu.Unlock()
		b.GoOn(h.options.Log)
	}
	if _, err := b.Close(profile, nil, h.options.Log); err != nil {
		t.Error(err)
	}
}

// TestALastMomentThatIsNotKnownCounts as one unsafe request, if the network service is killed with it.
func TestALastMomentThatIsNotKnownCounts(t *testing.T) {
	h, site := newHost(t, Options{}), newWriter(t)
	b := h.start()
	h.open(b, site.URL+"/quiet")
	h.titles(b, "quiet")
	if err := b.netLog.Close(); err != nil { // from now on nobody reads it
		t.Fatal(err)
	}
	b.StandStill(h.options.Log)
	if !b.Still() || b.still.unseen == nil || h.methods()[checkpoint.Unseen] != 0 {
		t.Errorf("it stands still: %v; what it sent is not known: %v; and %v is reported", b.Still(), b.still.unseen, h.methods())
	}
	if err := errors.Join(b.FreePages(t.Context()), b.EndPages(t.Context(), h.options.Log), b.Monitor().Reported(t.Context())); err != nil {
		t.Fatal(err)
	}
	if got := h.methods()[checkpoint.Unseen]; got != 1 {
		t.Errorf("%d entries say that something may have been sent, want 1", got)
	}
	if _, err := b.Close(profile, nil, h.options.Log); err != nil {
		t.Error(err)
	}
}
