package cdpproxy_test

import (
	"encoding/json"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/gobwas/ws/wsutil"

	"leasehold/cdpproxy"
	"leasehold/internal/test/testchrome"
)

var flat = map[string]any{"flatten": true}

// sent waits until the browser got n commands, and returns them all.
func (s *scripted) sent(n int) (got []asked) {
	s.t.Helper()
	for end := time.Now().Add(testchrome.Patience); len(got) < n; time.Sleep(time.Millisecond) {
		if got = append(got, s.heard()...); time.Now().After(end) {
			s.t.Fatalf("the browser got %+v, want %d commands", got, n)
		}
	}
	return got
}

// until returns the commands that the browser gets up to the next one of the method.
func (s *scripted) until(method string) (got []asked) {
	s.t.Helper()
	for {
		for i, a := range s.later {
			if a.Method == method {
				got = append(got, s.later[:i+1]...)
				s.later = s.later[i+1:]
				return got
			}
		}
		got = append(got, s.later...)
		s.later = s.sent(1)
	}
}

// await returns the next command of the method that the browser gets.
func (s *scripted) await(method string) asked {
	s.t.Helper()
	got := s.until(method)
	return got[len(got)-1]
}

const gone = `{"id":%d,"error":{"code":-32001,"message":"Session with given id not found."}}`

// isGone tells whether a message answers as Chrome answers on a session that has ended.
func isGone(m message, id int) bool {
	return m.ID == id && m.Error != nil && m.Error.Code == -32001 && m.SessionID == ""
}

// TestCommandsOnEndedSessionsAreAnswered: Chrome reports the end of the first session only,
// and its answers name none. They settle no call of anybody else.
func TestCommandsOnEndedSessionsAreAnswered(t *testing.T) {
	s := script(t)
	o := observe(t, s)                             // B1
	c := connect(t, s.mux, open(), &handler{})     // B2
	other := connect(t, s.mux, open(), &handler{}) // B3
	c.call("Target.attachToTarget", "", flat)
	other.call("Target.attachToTarget", "", flat)
	s.say(`{"method":"Target.attachedToTarget","params":{"sessionId":"C","targetInfo":{"targetId":"T"},"waitingForDebugger":false},"sessionId":"B2-page"}`)
	s.say(`{"method":"Target.attachedToTarget","params":{"sessionId":"P","targetInfo":{"targetId":"T"},"waitingForDebugger":false},"sessionId":"B1"}`)
	if m, err := c.next(); err != nil || m.Method != "Target.attachedToTarget" {
		t.Fatalf("%+v, %v", m, err)
	}
	s.heard()

	// A call of the launcher's, and commands of clients with its id.
	root := make(chan error, 1)
	go func() { root <- s.mux.Call(t.Context(), "Debugger.pause", nil, nil) }()
	id := int(s.await("Debugger.pause").ID)
	c.id, other.id = id-1, id-1
	c.send("Debugger.pause", "C", nil)
	other.send("Debugger.pause", "B3-page", nil)
	observed := make(chan error, 1)
	go func() { observed <- o.Call(t.Context(), "P", "Debugger.pause", nil, nil) }()
	var ofObserver asked
	for _, a := range s.sent(3) {
		if a.SessionID == "P" {
			ofObserver = a
		}
	}

	s.say(`{"method":"Target.detachedFromTarget","params":{"sessionId":"B2-page","targetId":"T"},"sessionId":"B2"}`)
	s.say(`{"method":"Target.detachedFromTarget","params":{"sessionId":"P","targetId":"T"},"sessionId":"B1"}`)
	s.say(gone, id)
	s.say(gone, ofObserver.ID)
	if m, err := c.next(); err != nil || m.Method != "Target.detachedFromTarget" {
		t.Errorf("%+v, %v", m, err)
	}
	if m, err := c.next(); err != nil || !isGone(m, id) {
		t.Errorf("a command in flight on a session below the one that ended: %+v, %v", m, err)
	}
	var failed *cdpproxy.Error
	if err := <-observed; !errors.As(err, &failed) || failed.Code != -32001 {
		t.Errorf("the launcher's own: %v", err)
	}
	for _, session := range []string{"C", "B2-page"} {
		if m := c.call("Runtime.enable", session, nil); !isGone(m, c.id) {
			t.Errorf("on %s: %+v", session, m)
		}
	}
	select {
	case err := <-root:
		t.Errorf("a call on the root was settled: %v", err)
	default:
	}
	s.say(`{"id":%d,"result":{}}`, id)
	s.say(`{"id":%d,"result":{},"sessionId":"B3-page"}`, id)
	if m, err := other.next(); err != nil || m.ID != id || m.Error != nil || m.SessionID != "B3-page" {
		t.Errorf("the other client got %+v, %v", m, err)
	}
	if err := <-root; err != nil {
		t.Error(err)
	}
	c.works()
}

// TestATargetWaitsForItsClient: the first session that lets it run lets it run for all.
func TestATargetWaitsForItsClient(t *testing.T) {
	const waits = `{"method":"Target.attachedToTarget","params":{"sessionId":%q,"targetInfo":{"targetId":%q,"type":%q},"waitingForDebugger":true},"sessionId":%q}`
	const run = "Runtime.runIfWaitingForDebugger"
	for _, tt := range []struct {
		name string
		kind string // of the client's target; empty: it has none
		// frees ends the client's wait.
		frees func(s *scripted, c *client)
	}{
		{"no client", "", nil},
		{"the client lets it run", "page", func(_ *scripted, c *client) { c.send(run, "C-T", nil) }},
		{"the client lets it run while the browser is kept private", "page", func(s *scripted, c *client) {
			shut(c.t, s.mux, false)
			c.send(run, "C-T", nil)
		}},
		{"the client is gone from it", "page", func(s *scripted, _ *client) {
			s.say(`{"method":"Target.detachedFromTarget","params":{"sessionId":"C-T","targetId":"T"},"sessionId":"B2"}`)
		}},
		{"the client is fenced", "page", func(_ *scripted, c *client) { c.conn.ClientSession().Fence() }},
		{"the client is let go of", "page", func(_ *scripted, c *client) { _ = c.conn.ClientSession().Close(c.t.Context()) }},
		{"its tab waits for the client", "tab", func(s *scripted, c *client) {
			s.say(waits, "C-T-page", "T", "page", "C-T")
			c.send(run, "C-T", nil)
			s.await("Browser.getVersion")
			c.send(run, "C-T-page", nil)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := script(t)
			o := observe(t, s)
			c := connect(t, s.mux, open(), &handler{})
			s.say(waits, "O-T", "T", "page", "B1")
			if tt.kind != "" {
				id := "T"
				if tt.kind == "tab" {
					id = "the tab of T"
				}
				s.say(waits, "C-T", id, tt.kind, "B2")
			}
			c.call("Runtime.enable", "", nil) // its answer comes behind the sessions
			o.LetRun("O-T")
			s.await("Browser.getVersion")
			if tt.frees != nil {
				c.call("Runtime.enable", "", nil) // its answer comes behind that of the question
				o.Post("O-T", "Marker.set", nil)
				if got := s.until("Marker.set"); slices.ContainsFunc(got, func(a asked) bool { return a.Method == run }) {
					t.Fatalf("the client's wait is over: %+v", got)
				}
				tt.frees(s, c)
			}
			for s.await(run).SessionID != "O-T" {
			}
		})
	}
}

// TestAConnectionEndsWithItsTarget as on Chrome's own port: with an event, and without a close
// frame. It counts as one that its client closed.
func TestAConnectionEndsWithItsTarget(t *testing.T) {
	s := script(t)
	conn, err := s.mux.Connect(t.Context(), "T", open(), &handler{}, true)
	if err != nil {
		t.Fatal(err)
	}
	c := serve(t, conn)
	c.send("Debugger.pause", "", nil)
	s.await("Debugger.pause")
	s.say(`{"method":"Target.targetCreated","params":{"targetInfo":{"targetId":"U"}},"sessionId":"B1"}`) // not the client's to see
	s.say(`{"method":"Target.detachedFromTarget","params":{"sessionId":"B1-page","targetId":"T"},"sessionId":"B1"}`)
	if m, err := c.next(); err != nil || m.Method != "Inspector.detached" || string(m.Params) != `{"reason":"target_closed"}` || m.SessionID != "" {
		t.Errorf("%+v, %v", m, err)
	}
	if rest, err := io.ReadAll(c.net); err != nil || len(rest) != 0 {
		t.Errorf("behind it %q, %v", rest, err)
	}
	if err := c.net.Close(); err != nil {
		t.Error(err)
	}
	if end := <-c.end; end != (cdpproxy.End{Clean: true}) {
		t.Errorf("%+v", end)
	}
}

// TestTheEndOfASessionTellsOfItsTargets in Chrome's order: many clients wait for that, and not
// for the end of the connection.
func TestTheEndOfASessionTellsOfItsTargets(t *testing.T) {
	s := script(t)
	c := connect(t, s.mux, open(), &handler{})
	for _, event := range []string{
		`{"method":"Target.targetCreated","params":{"targetInfo":{"targetId":"T"}},"sessionId":"B1"}`,
		`{"method":"Target.targetCreated","params":{"targetInfo":{"targetId":"V"}},"sessionId":"B1"}`,
		`{"method":"Target.targetCreated","params":{"targetInfo":{"targetId":"gone"}},"sessionId":"B1"}`,
		`{"method":"Target.targetDestroyed","params":{"targetId":"gone"},"sessionId":"B1"}`,
		`{"method":"Target.attachedToTarget","params":{"sessionId":"S","targetInfo":{"targetId":"T","type":"page"},"waitingForDebugger":false},"sessionId":"B1"}`,
		`{"method":"Target.attachedToTarget","params":{"sessionId":"W","targetInfo":{"targetId":"U","type":"worker"},"waitingForDebugger":false},"sessionId":"S"}`,
	} {
		s.say("%s", event)
		if _, err := c.next(); err != nil {
			t.Fatal(err)
		}
	}
	c.conn.Cut(cdpproxy.CloseNormal, "over")
	type told struct {
		method, session string
		params          string
	}
	for _, want := range []told{
		{"Target.detachedFromTarget", "S", `{"sessionId":"W","targetId":"U"}`},
		{"Inspector.detached", "S", `{"reason":"Render process gone."}`},
		{"Target.detachedFromTarget", "", `{"sessionId":"S","targetId":"T"}`},
		{"Target.targetDestroyed", "", `{"targetId":"T"}`},
		{"Target.targetDestroyed", "", `{"targetId":"V"}`},
	} {
		m, err := c.next()
		if err != nil {
			t.Fatal(err)
		}
		if got := (told{m.Method, m.SessionID, string(m.Params)}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	if _, err := c.next(); err == nil {
		t.Error("more than the close frame")
	}
}

// TestWhoTurnedDiscoveryOffIsNotToldOfEnds as with Chrome, which sends no event about targets
// once it has answered that.
func TestWhoTurnedDiscoveryOffIsNotToldOfEnds(t *testing.T) {
	s := script(t)
	c := connect(t, s.mux, open(), &handler{})
	for _, discover := range []bool{true, false} {
		s.say(`{"method":"Target.targetCreated","params":{"targetInfo":{"targetId":"T"}},"sessionId":"B1"}`)
		if m, err := c.next(); err != nil || m.Method != "Target.targetCreated" {
			t.Fatalf("%+v, %v", m, err)
		}
		c.call("Target.setDiscoverTargets", "", map[string]any{"discover": discover})
	}
	c.conn.Cut(cdpproxy.CloseNormal, "over")
	if m, err := c.next(); err == nil {
		t.Errorf("it is told %+v", m)
	}
}

// TestASessionThatIsEmpty is the connection's own, as for Chrome.
func TestASessionThatIsEmpty(t *testing.T) {
	s := script(t)
	c := connect(t, s.mux, open(), &handler{})
	write := func(msg string) {
		t.Helper()
		if err := wsutil.WriteClientText(c.net, []byte(msg)); err != nil {
			t.Fatal(err)
		}
	}
	for _, msg := range []string{
		`{"id":1,"method":"Runtime.enable","sessionId":""}`,
		`{ "sessionId" : "" , "params" : {"a":"<\u00e9>"}, "method":"Runtime.enable", "id":1 }`,
	} {
		write(msg)
		if m, err := c.next(); err != nil || m.ID != 1 || m.Error != nil || m.SessionID != "" {
			t.Errorf("%s: %+v, %v", msg, m, err)
		}
		if got := s.await("Runtime.enable"); got.SessionID != "B1" {
			t.Errorf("%s: the browser got %+v", msg, got)
		}
	}
	var params struct{ A string }
	write(`{"id":2,"method":"Debugger.pause","sessionId":"","params":{"a":"<\u00e9>"}}`)
	if got := s.await("Debugger.pause"); json.Unmarshal(got.Params, &params) != nil || params.A != "<é>" {
		t.Errorf("the browser got %s", got.Params)
	}
}
