package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gobwas/ws"

	"leasehold/internal/test/rawcdp"
)

// patience bounds waits that are over much sooner unless something is broken.
const patience = 90 * time.Second

// socket is a connection on which whatever goes wrong fails the test.
type socket struct{ *rawcdp.Conn }

// dial opens a websocket, which is dropped at the end of the test.
func dial(t *testing.T, address string) *socket {
	t.Helper()
	return dialBy(t, ws.Dialer{}, address)
}

// dialBy is dial by a dialer with settings of its own.
func dialBy(t *testing.T, d ws.Dialer, address string) *socket {
	t.Helper()
	conn, err := rawcdp.Dial(t.Context(), d, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Drop()
		for range conn.Got {
		}
	})
	return &socket{conn}
}

// send sends a command on a session, or on the connection's own if that is empty, and
// returns its id.
func (c *socket) send(t *testing.T, session, method string, params any) int {
	t.Helper()
	id, err := c.Send(session, method, params)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// next returns the first message that fits, of those kept and those to come.
func (c *socket) next(t *testing.T, what string, fits func(rawcdp.Message) bool) rawcdp.Message {
	t.Helper()
	m, err := c.Next(t.Context(), what, fits)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// answer waits for the answer to a command.
func (c *socket) answer(t *testing.T, id int) rawcdp.Message {
	t.Helper()
	m, err := c.Answer(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// call sends a command, and decodes its result unless result is nil. An error in the
// answer fails the test.
func (c *socket) call(t *testing.T, session, method string, params, result any) {
	t.Helper()
	if err := c.Call(t.Context(), session, method, params, result); err != nil {
		t.Fatal(err)
	}
}

// fails sends a command that has to be refused, and returns the error.
func (c *socket) fails(t *testing.T, session, method string, params any) rawcdp.Error {
	t.Helper()
	m := c.answer(t, c.send(t, session, method, params))
	if m.Error == nil {
		t.Fatalf("%s %v: want an error, got %s", method, params, m.Result)
	}
	return *m.Error
}

// event waits for an event and decodes its parameters.
func (c *socket) event(t *testing.T, method string, params any) {
	t.Helper()
	m := c.next(t, method, func(m rawcdp.Message) bool { return m.Method == method })
	if params != nil {
		if err := json.Unmarshal(m.Params, params); err != nil {
			t.Fatalf("%s: %v", method, err)
		}
	}
}

// ended waits for the end, and returns the close frame's code and reason, or 0 if there
// was none. Messages before it are kept.
func (c *socket) ended(t *testing.T) (code int, reason string) {
	t.Helper()
	code, reason, err := c.Ended(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return code, reason
}

// close ends the connection with a close handshake.
func (c *socket) close(t *testing.T) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// drop ends the connection without a close handshake.
func (c *socket) drop() { c.Drop() }

// page opens a tab, in a browser context if one is named, and returns the session on
// it.
func (c *socket) page(t *testing.T, address, context string) (session, target string) {
	t.Helper()
	params := map[string]any{"url": address}
	if context != "" {
		params["browserContextId"] = context
	}
	var made struct{ TargetID string }
	c.call(t, "", "Target.createTarget", params, &made)
	return c.attach(t, made.TargetID), made.TargetID
}

func (c *socket) attach(t *testing.T, target string) (session string) {
	t.Helper()
	var attached struct{ SessionID string }
	c.call(t, "", "Target.attachToTarget", map[string]any{"targetId": target, "flatten": true}, &attached)
	return attached.SessionID
}

// loaded waits until the page is at the address. A new tab is at about:blank first, and
// expressions are evaluated there until then.
func (c *socket) loaded(t *testing.T, session, address string) {
	t.Helper()
	eventually(t, address+" to load", func() error {
		if at := c.evaluate(t, session, "document.readyState + ' ' + location.href"); at != strconv.Quote("complete "+address) {
			return errors.New(at)
		}
		return nil
	})
}

// visit opens a tab at the address, waits until it is loaded, and returns the session
// on it.
func (c *socket) visit(t *testing.T, address string) (session, target string) {
	t.Helper()
	session, target = c.page(t, address, "")
	c.loaded(t, session, address)
	return session, target
}

// evaluate returns the value of an expression in a page, as JSON.
func (c *socket) evaluate(t *testing.T, session, expression string) string {
	t.Helper()
	var r struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	c.call(t, session, "Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true}, &r)
	if r.ExceptionDetails != nil {
		t.Fatalf("%s: %s", expression, r.ExceptionDetails)
	}
	return string(r.Result.Value)
}

// emptyPDF is a document with one empty page.
func emptyPDF() string {
	doc, table := "%PDF-1.4\n", "xref\n0 4\n0000000000 65535 f \n"
	for i, object := range []string{"<</Type/Catalog/Pages 2 0 R>>", "<</Type/Pages/Kids[3 0 R]/Count 1>>", "<</Type/Page/Parent 2 0 R/MediaBox[0 0 200 200]>>"} {
		table += fmt.Sprintf("%010d 00000 n \n", len(doc))
		doc += fmt.Sprintf("%d 0 obj%sendobj\n", i+1, object)
	}
	return fmt.Sprintf("%s%strailer<</Size 4/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF", doc, table, len(doc))
}

// clientSite serves the pages on which the clients are tested.
func clientSite(t *testing.T) (address string) {
	t.Helper()
	mux := http.NewServeMux()
	page := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, `<!doctype html><title>form</title><style>a, button { display: block }</style>
<button id="go" onclick="document.title='clicked'; this.insertAdjacentHTML('afterend', '<p id=clicked>done</p>')">go</button>
<a id="file" href="/file">file</a><input type=file id=input multiple>
<script>async function chosen() { return (await Promise.all([...input.files].map(async f => f.name + "=" + await f.text()))).join() }</script>`)
	}
	mux.HandleFunc("/form", page)
	mux.HandleFunc("/paper.pdf", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/pdf")
		_, _ = io.WriteString(w, emptyPDF())
	})
	mux.HandleFunc("/paper", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, `<!doctype html><title>paper</title><embed src="/paper.pdf" type="application/pdf" width=300 height=300>`)
	})
	mux.HandleFunc("/api", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "from the server") })
	mux.HandleFunc("/file", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Disposition", `attachment; filename="report.txt"`)
		w.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(w, "a report")
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

// twoStep is the answer to POST /v1/sessions.
type twoStep struct {
	SessionID string `json:"session_id"`
	Token     uint64 `json:"lease_token"`
	CDPURL    string `json:"cdp_url"`
	Dedicated string `json:"dedicated_url"`
	Exchange  string `json:"exchange_dir"`
}

// open opens a session by POST /v1/sessions. more has the members besides the profile's
// name.
func (s *sidecar) open(t *testing.T, profile string, more map[string]any) twoStep {
	t.Helper()
	body := map[string]any{"profile_id": profile, "worker_id": "worker-7", "task_id": "task_1", "create": true}
	for k, v := range more {
		body[k] = v
	}
	var ses twoStep
	if code := s.call(t, "POST", "/v1/sessions", body, &ses); code != http.StatusCreated {
		t.Fatalf("session on %s: status %d", profile, code)
	}
	return ses
}

// hostPort is the address of a session's own port.
func (ses twoStep) hostPort() string { return strings.TrimPrefix(ses.Dedicated, "http://") }
