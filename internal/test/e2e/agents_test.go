package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"leasehold/internal/test/clients"
	"leasehold/lease"
)

// agent is a client that does the whole of a task as an agent does: it opens a page, reads
// it, fills a form, submits it, reads the answer, and keeps a picture.
type agent struct {
	name string
	// sample says that make test drives it, too. Of the others, the packages are large.
	sample bool
	// form is that of its URL in docs/clients.md, with more of the query in set.
	form byte
	set  string
	// start starts it, on a URL of that form, or for C on HOST:PORT.
	start func(t *testing.T, shop *shop, at string) *clients.Client
	// order does the task, and returns what was read before and after.
	order func(t *testing.T, c *clients.Client, shop *shop, picture string) (before, after string)
	// prepare opens the page, hang is a command that is in flight until the session ends, and
	// next is one after that. It is nil for a client that answers none, on Chrome's port neither.
	prepare    func(shop *shop) []clients.Action
	hang, next func(shop *shop) clients.Action
	// end is the action that ends the session, and reason what the record's reason matches then.
	end, reason string
	// inFlight is what the client says to the command in flight where it is not the reason, and
	// afterwards to the next one. Its process may end by itself, with the reason, where it dies.
	inFlight, afterwards string
	dies                 bool
}

// shop is a site for one agent's orders.
type shop struct {
	URL    string
	model  *model
	dir    string
	asked  chan struct{} // a value for each request that is never answered
	mu     sync.Mutex
	orders []string
}

const (
	formPage  = "Order 7"
	thanksFor = "Thank you, Ada"
)

func newShop(t *testing.T, m *model) *shop {
	t.Helper()
	s := &shop{model: m, dir: t.TempDir(), asked: make(chan struct{}, 16)}
	mux := http.NewServeMux()
	page := func(w http.ResponseWriter, body string) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = fmt.Fprintf(w, `<!doctype html><html lang="en"><meta name="viewport" content="width=device-width"><title>Shop</title>%s</html>`, body)
	}
	mux.HandleFunc("GET /order", func(w http.ResponseWriter, _ *http.Request) {
		page(w, `<h1>`+formPage+`</h1><form method="post"><p><label>Your name <input id="name" name="name"></label></p>
<p><label>Size <select id="size" name="size"><option>S</option><option>M</option></select></label></p><p><button id="send">Send order</button></p></form>`)
	})
	mux.HandleFunc("POST /order", func(w http.ResponseWriter, r *http.Request) {
		name := r.PostFormValue("name")
		s.mu.Lock()
		s.orders = append(s.orders, name+" "+r.PostFormValue("size"))
		s.mu.Unlock()
		page(w, "<h1>Thank you, "+regexp.MustCompile(`\W`).ReplaceAllString(name, "")+"</h1>")
	})
	mux.HandleFunc("/asked", func(_ http.ResponseWriter, r *http.Request) {
		s.asked <- struct{}{}
		<-r.Context().Done()
	})
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	s.URL = server.URL
	return s
}

// ordered checks that the shop got this one order.
func (s *shop) ordered(t *testing.T, want string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := strings.Join(s.orders, ", "); got != want {
		t.Errorf("the shop got the orders %q, want %q", got, want)
	}
	s.orders = nil
}

// everyClient reports whether the large clients are driven, too.
func everyClient() bool { return os.Getenv("LEASEHOLD_CLIENTS") == "all" }

// TestAgents drives the agents of docs/clients.md, unchanged: a sample in one browser or,
// with LEASEHOLD_CLIENTS=all (make clients-all), all of them, each in its own, and through
// the ends of their sessions.
func TestAgents(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	if !everyClient() {
		s, shop := start(t), newShop(t, m)
		ses := s.open(t, "sample", nil)
		for _, a := range agents {
			if a.sample {
				t.Run(a.name, func(t *testing.T) { a.work(t, shop, ses.CDPURL) })
			}
		}
		s.release(t, ses)
		s.until(t, "sample", lease.Available)
		return
	}
	n := startNATS(t)
	s := start(t, n.args()...)
	t.Run("Lighthouse by itself", func(t *testing.T) {
		t.Parallel()
		auditsByItself(t, s, newShop(t, m))
	})
	for _, frontend := range []string{"bundled", "npm"} {
		t.Run("DevTools, "+frontend, func(t *testing.T) {
			t.Parallel()
			devToolsWatch(t, s, newShop(t, m), frontend)
		})
	}
	for _, a := range agents {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			a.wholeTask(t, s, newShop(t, m))
		})
		for _, end := range endings(s, n.url()) {
			t.Run(a.name+", "+end.name, func(t *testing.T) {
				t.Parallel()
				a.seesTheEnd(t, s, newShop(t, m), end)
			})
		}
	}
}

// wholeTask does the task in a session of the agent's own, which the agent ends.
func (a agent) wholeTask(t *testing.T, s *sidecar, shop *shop) {
	profile := profileOf(a.name)
	query := "worker=agent&task=chat_7&wait=10s" + a.set
	var at string
	switch a.form {
	case 'A':
		at = s.oneShot(profile, query)
	case 'B':
		at = s.socket(profile, query)
	case 'C':
		ses := s.open(t, profile, map[string]any{"dedicated_port": true, "on_close": "release", "heartbeat": "explicit"})
		defer s.beat(t, profile)()
		at = ses.hostPort()
	}
	a.work(t, shop, at)
	if r := s.until(t, profile, lease.Available); !regexp.MustCompile(`^(` + a.reason + `)$`).MatchString(r.Reason) {
		t.Errorf("ended by %s, want %s", r.Reason, a.reason)
	}
	if got := names(s.events(t, profile)); got != "granted released" {
		t.Errorf("history: %s", got)
	}
}

func profileOf(name string) string {
	return regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower(name), "-")
}

func (a agent) work(t *testing.T, shop *shop, at string) {
	c := a.start(t, shop, at)
	c.Expect(t, "connect")
	picture := filepath.Join(picturesDir(t), profileOf(a.name)+".png")
	before, after := a.order(t, c, shop, picture)
	if !strings.Contains(before, formPage) || !strings.Contains(after, thanksFor) {
		t.Errorf("it read %q and %q, want %q and %q", before, after, formPage, thanksFor)
	}
	shop.ordered(t, "Ada S")
	isPicture(t, picture)
	c.Do(t, act(a.end))
	if err := c.Wait(); err != nil {
		t.Errorf("exit: %v: %s", err, c.Stderr())
	}
}

// picturesDir is where pictures are kept: for the test, or for a person who names a folder
// by LEASEHOLD_PICTURES.
func picturesDir(t *testing.T) string {
	if dir := os.Getenv("LEASEHOLD_PICTURES"); dir != "" {
		return dir
	}
	return t.TempDir()
}

func (s *sidecar) release(t *testing.T, ses twoStep) {
	t.Helper()
	if code := s.call(t, "DELETE", "/v1/sessions/"+ses.SessionID, map[string]any{"lease_token": ses.Token, "outcome": "succeeded"}, nil); code != http.StatusOK {
		t.Errorf("release: status %d", code)
	}
}

// ending is a way in which the launcher ends a session, and what it tells the client.
type ending struct {
	name, says string
	// silent says that the heartbeats stop.
	silent bool
	cause  func(t *testing.T, profile string, ses twoStep)
}

func endings(s *sidecar, natsURL string) []ending {
	return []ending{
		{name: "released", says: "the session ended: released", cause: func(t *testing.T, _ string, ses twoStep) { s.release(t, ses) }},
		{name: "no heartbeats", says: "profile quarantined: heartbeat_timeout", silent: true, cause: func(*testing.T, string, twoStep) {}},
		{name: "fenced", says: "superseded by", cause: func(t *testing.T, profile string, _ twoStep) { supersede(t, natsURL, profile) }},
	}
}

// seesTheEnd ends the agent's session while a command is in flight. The agent says so, to
// that command and to the next one, and its process ends when it is told to.
func (a agent) seesTheEnd(t *testing.T, s *sidecar, shop *shop, end ending) {
	profile := profileOf(a.name + " " + end.name)
	ses := s.open(t, profile, map[string]any{"heartbeat": "explicit", "dedicated_port": a.form == 'C'})
	stop := sync.OnceFunc(s.beat(t, profile))
	defer stop()
	at := ses.CDPURL
	switch a.form {
	case 'A':
		at = strings.NewReplacer("ws:", "http:", "/devtools/browser/"+profile, "").Replace(at)
	case 'C':
		at = ses.hostPort()
	}
	c := a.start(t, shop, at)
	c.Expect(t, "connect")
	for _, first := range a.prepare(shop) {
		c.Do(t, first)
	}
	c.Send(t, a.hang(shop))
	<-shop.asked
	if end.silent {
		stop()
	}
	end.cause(t, profile, ses)
	line, err := c.Next()
	if errors.Is(err, io.EOF) {
		if err := c.Wait(); !a.dies || !strings.Contains(c.Stderr(), end.says) {
			t.Errorf("its process ended: %v: %s; want %q", err, c.Stderr(), end.says)
		}
		return
	}
	if err != nil || line.OK || !strings.Contains(line.Error, end.says) && (a.inFlight == "" || !strings.Contains(line.Error, a.inFlight)) {
		t.Errorf("the command in flight shows %+v, %v; want %q", line, err, end.says)
	}
	if a.next != nil {
		c.Send(t, a.next(shop))
		if line, err := c.Next(); err != nil || line.OK || !regexp.MustCompile(a.afterwards).MatchString(line.Error) {
			t.Errorf("the next command shows %+v, %v; want %q", line, err, a.afterwards)
		}
	}
	c.Send(t, act("disconnect"))
	if err := c.Wait(); err != nil {
		t.Errorf("exit: %v: %s", err, c.Stderr())
	}
}

// asText is a JSON string's text.
func asText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return string(raw)
	}
	return s
}
