package session

import (
	"slices"
	"strings"
	"testing"
	"time"

	"leasehold/cdpproxy"
	"leasehold/launcher/api"
)

// TestAnExposedPageIsNoWorker: the connection on which a page speaks is no sign of the worker's life,
// and what it has in the browser stays until the worker's own is known to have ended: until the
// evidence is there, if the worker was lost.
func TestAnExposedPageIsNoWorker(t *testing.T) {
	t.Parallel()
	r := newRoom(t, roomOptions{grace: time.Hour})
	s := r.begin(task("one"))
	w := r.connect(s)                                                             // B2
	w.call("Target.createTarget", "", map[string]any{"url": "about:blank"})       // T1
	expose := map[string]any{"targetId": "T1"}                                    // B3 looks at the page,
	if m := w.call("Target.exposeDevToolsProtocol", "", expose); m.Error != nil { // and B4 is the page's own
		t.Fatalf("%+v", m.Error)
	}
	if n := len(s.clients.connected()); n != 2 || s.Show().Connections != 1 {
		t.Fatalf("%d connections can be cut, %d are the worker's; want 2 and 1", n, s.Show().Connections)
	}
	// The scripted browser has no network service, and so the log tells of each try to stop it.
	stated := s.still.mayBeLost() // as at the end of the worker's connection
	if !strings.Contains(r.log.String(), "the browser does not stand still") {
		t.Error("the worker's last connection has ended, and the browser is not made to stand still")
	}
	stated()
	w.drop()
	r.await("the evidence of the loss", func() bool { return len(r.spooled()) == 1 })
	if n := len(s.clients.connected()); n != 0 {
		t.Errorf("%d connections go on", n)
	}
	if left := r.detached("B2", "B4"); left != "" {
		t.Errorf("%s of the lost worker are closed before its session is decided", left)
	}
	if _, err := s.Release(t.Context(), api.Release{Outcome: "failed"}); err != nil {
		t.Fatal(err)
	}
}

// TestAnExposedDocumentLeavesNothing: when it has ended, or its connection alone was cut, what that had in the browser
// is ended, too, while the worker's own goes on. A request that it had paused is failed before, and not sent.
func TestAnExposedDocumentLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(r *room, s *Session){
		"gone": func(r *room, _ *Session) {
			r.chromium.say(`{"method":"Runtime.executionContextsCleared","params":{},"sessionId":"B3-T1"}`)
		},
		"crashed": func(r *room, _ *Session) {
			r.chromium.say(`{"method":"Inspector.targetCrashed","params":{},"sessionId":"B3-T1"}`)
		},
		"cut, since it does not read": func(_ *room, s *Session) {
			for _, conn := range s.clients.connected() {
				for _, exposed := range conn.Exposed() {
					exposed.Cut(cdpproxy.CloseTooSlow, "the client does not read")
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRoom(t, roomOptions{})
			s := r.begin(task("one"))
			w := r.connect(s)                                                             // B2
			w.call("Target.createTarget", "", map[string]any{"url": "about:blank"})       // T1
			expose := map[string]any{"targetId": "T1"}                                    // B3 looks at the page,
			if m := w.call("Target.exposeDevToolsProtocol", "", expose); m.Error != nil { // and B4 is the page's own
				t.Fatalf("%+v", m.Error)
			}
			from := len(r.chromium.commands())
			r.chromium.pause("B4", "r1")
			end(r, s)
			r.await("the end of what the page's connection had open", func() bool { return r.detached("B4") == "B4" })
			if got := r.chromium.told(from, "Fetch.failRequest"); !slices.Equal(got, []string{"Fetch.failRequest B4"}) {
				t.Errorf("failed before: %q", got)
			}
			if m := w.call("Browser.getVersion", "", nil); m.Error != nil || r.detached("B2") != "" || len(s.clients.connected()) != 1 {
				t.Errorf("the worker's own connection: %+v; %d are open", m.Error, len(s.clients.connected()))
			}
		})
	}
}

// detached are those of the browser sessions that the launcher has closed.
func (r *room) detached(sessions ...string) string {
	var found []string
	for _, m := range r.chromium.all() {
		for _, id := range sessions {
			if m.Method == "Target.detachFromTarget" && strings.Contains(string(m.Params), `"`+id+`"`) {
				found = append(found, id)
			}
		}
	}
	return strings.Join(found, " ")
}
