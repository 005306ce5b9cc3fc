package session

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"leasehold/cdpproxy"
	"leasehold/launcher/api"
)

// TestAConnectionsEndAndTheFactsChangeInOneStep: whoever sees a connection among those
// that ended sees the facts of its end, too. Otherwise the session would take it for one
// that it goes on without, and close what its worker will come back to.
func TestAConnectionsEndAndTheFactsChangeInOneStep(t *testing.T) {
	t.Parallel()
	r := newRoom(t, roomOptions{})
	s := r.begin(task("one"))
	w := r.connect(s)
	r.await("connected", func() bool { return s.Show().Connections == 1 })
	var stated atomic.Bool
	seen := make(chan bool)
	s.life.mu.Lock() // the facts cannot change now
	w.drop()
	go func() {
		for {
			if ended := s.clients.snapshot(func() {}); len(ended) > 0 {
				seen <- stated.Load()
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	select {
	case <-seen:
		t.Error("the end is seen before the facts state it")
		s.life.mu.Unlock()
		return
	case <-time.After(100 * time.Millisecond):
	}
	stated.Store(true)
	s.life.mu.Unlock()
	if !<-seen {
		t.Error("the end is seen before the facts state it")
	}
	if f := s.life.known(); f.connections != 0 || !f.connected || !f.dropped || f.endedAt.IsZero() {
		t.Errorf("%+v", f)
	}
}

// TestNothingIsCapturedOfAWorkerThatIsBack: a client that reconnects while the browser is made to stand
// still works on as it was. If it goes again, that is a loss like any other.
func TestNothingIsCapturedOfAWorkerThatIsBack(t *testing.T) {
	t.Parallel()
	r := newRoom(t, roomOptions{})
	s := r.begin(task("one"))
	w := r.connect(s)
	page := w.attach()
	v := &serving{s: s}
	from := len(r.chromium.commands())
	v.workerIsGone(api.ReasonConnectionLost)
	if got := r.chromium.told(from, "Page.captureScreenshot", "Page.stopLoading"); v.bundle != nil || !v.lost || len(got) > 0 {
		t.Errorf("captured %v, lost %v, by %q", v.bundle != nil, v.lost, got)
	}
	v.workerIsBack()
	if w.call("Page.enable", page, nil); v.lost {
		t.Error("the worker is back, and counts as lost")
	}
	w.drop()
	r.await("the capture", func() bool { return len(r.chromium.told(from, "Page.captureScreenshot")) > 0 })
}

// TestAVanishedClient: what it had paused is failed before anything is captured, and what
// stands in the way of the worker is removed when that is back. Its evidence is dropped.
func TestAVanishedClient(t *testing.T) {
	t.Parallel()
	r := newRoom(t, roomOptions{})
	s := r.begin(task("one"))
	w := r.connect(s)
	page := w.attach()
	w.call("Fetch.enable", page, nil)
	r.chromium.pause(page, "R1")
	r.chromium.attached("B2", tab{"T9", "about:blank"}, true) // a popup that waits for the client's debugger
	for m := range w.Got {
		if m.Method == "Target.attachedToTarget" && strings.Contains(string(m.Params), "T9") {
			break
		}
	}
	from := len(r.chromium.commands())
	w.drop()
	r.await("the capture", func() bool { return len(r.chromium.told(from, "Page.captureScreenshot")) > 0 })
	r.chromium.pause(page, "R2") // while nobody is there
	r.await("what pauses now is failed, too", func() bool { return len(r.chromium.told(from, "Fetch.failRequest")) == 2 })
	got := r.chromium.told(from, "Fetch.failRequest", "Page.captureScreenshot", "Target.setAutoAttach", "Target.detachFromTarget", "Runtime.runIfWaitingForDebugger")
	want := []string{"Fetch.failRequest " + page, "Page.captureScreenshot B1-T0", "Fetch.failRequest " + page}
	if !slices.Equal(got, want) {
		t.Errorf("while the worker was away: %q, want %q", got, want)
	}
	begun := r.spooled()
	if len(begun) != 1 {
		t.Errorf("bundles that are not sealed: %v", begun)
	}
	if s.life.isEnding() {
		t.Error("it ends within the grace")
	}

	from = len(r.chromium.commands())
	back := r.connect(s)
	r.await("the worker is back", func() bool { return len(r.spooled()) == 0 })
	back.call("Browser.getVersion", "", nil)
	r.await("nothing is in its way", func() bool { return len(r.chromium.told(from, "Target.detachFromTarget")) == 2 })
	got = r.chromium.told(from, "Target.setAutoAttach", "Runtime.runIfWaitingForDebugger", "Target.detachFromTarget")
	want = []string{"Target.setAutoAttach B2", "Runtime.runIfWaitingForDebugger B2-T9", "Target.detachFromTarget B2", "Target.detachFromTarget B2"}
	if !slices.Equal(got, want) {
		t.Errorf("for the worker that is back: %q, want %q", got, want)
	}
	if slices.Contains(r.chromium.told(0, "Target.detachFromTarget"), "Target.detachFromTarget") {
		t.Error("the client session is closed: its contexts end with it")
	}
	if bundles := r.bundles(); len(bundles) != 0 {
		t.Errorf("evidence of a loss that was none: %v", bundles)
	}

	// In the end nothing is left of either connection.
	from = len(r.chromium.commands())
	if _, err := s.Release(t.Context(), api.Release{Outcome: "ok", Reason: "done"}); err != nil {
		t.Fatal(err)
	}
	if f := r.over(s); f.Ended != "released: done" || !slices.Equal(r.bundles(), []string{"done"}) {
		t.Errorf("%+v, %v", f, r.bundles())
	}
	r.await("no client session is left", func() bool {
		s.clients.mu.Lock()
		defer s.clients.mu.Unlock()
		return s.clients.ended == nil && s.clients.returned == nil
	})
	wantJournal := []string{"start one", "connection opened", "connection dropped", "connection opened", "end"}
	got = slices.DeleteFunc(r.journal(s), func(e string) bool { return e == "connection cut" }) // before the end, or too late for it
	if !slices.Equal(got, wantJournal) {
		t.Errorf("journal %q, want %q", got, wantJournal)
	}
	if part, err := r.archive.Part(t.Context(), s.file.get().Evidence.EvidenceID, "commands.json"); err != nil || !strings.Contains(string(part), "Fetch.enable") ||
		!strings.Contains(string(part), "Browser.getVersion") {
		t.Errorf("the last commands of both connections: %s, %v", part, err)
	}
}

// TestAClientThatVanishesDuringTheCapture: a worker that is back while the loss of its first connection
// is still being captured, and is lost again before that is done, is lost like any other. What its second
// connection had paused is failed before anything is resumed for the third, and the evidence is of what the
// second one left.
func TestAClientThatVanishesDuringTheCapture(t *testing.T) {
	t.Parallel()
	r := newRoom(t, roomOptions{})
	s := r.begin(task("one"))
	w := r.connect(s)
	r.chromium.set(func() { r.chromium.silent["Page.captureScreenshot"] = true })
	from := len(r.chromium.commands())
	w.drop()
	r.await("the capture", func() bool { return len(r.chromium.told(from, "Page.captureScreenshot")) > 0 })
	first := r.spooled()
	again := r.connect(s)
	page := again.attach()
	again.call("Fetch.enable", page, nil)
	r.chromium.pause(page, "R1")
	for m := range again.Got {
		if m.Method == "Fetch.requestPaused" {
			break
		}
	}
	again.drop()
	r.await("it is gone again", func() bool { return s.life.known().connections == 0 })
	for _, m := range r.chromium.all()[from:] { // the capture of the first loss comes to its end
		if m.Method == "Page.captureScreenshot" {
			r.chromium.answer(m)
		}
	}
	r.chromium.set(func() { r.chromium.silent["Page.captureScreenshot"] = false })
	r.await("what it had paused is failed", func() bool {
		return slices.Contains(r.chromium.told(from, "Fetch.failRequest"), "Fetch.failRequest "+page)
	})
	r.await("another capture", func() bool {
		begun := r.spooled()
		return len(begun) == 1 && begun[0] != first[0]
	})
	if got := r.chromium.told(from, "Target.detachFromTarget"); len(got) > 0 {
		t.Errorf("sent by %q: what it had paused would be sent", got)
	}
	third := r.connect(s)
	r.await("the worker is back", func() bool { return len(r.spooled()) == 0 })
	third.call("Browser.getVersion", "", nil)
}

// large sends a command for which the browser's pipe has no room at once, and fails the test if it does not pass.
func (w *worker) large(page, when string) {
	w.t.Helper()
	if m := w.call("Page.enable", page, map[string]any{"padding": strings.Repeat("x", 16<<20)}); m.Error != nil {
		w.t.Errorf("a large command, %s: %s", when, m.Error.Message)
	}
}

// TestALossThatCouldNotBeCaptured is one all the same: a worker that comes back in time finds everything as it was,
// and writes what it likes.
func TestALossThatCouldNotBeCaptured(t *testing.T) {
	t.Parallel()
	r := newRoom(t, roomOptions{cut: time.Nanosecond})
	s := r.begin(task("one"))
	w := r.connect(s)
	w.attach()
	spool := filepath.Join(r.dir, "spool")
	if err := os.Rename(spool, spool+".away"); err != nil {
		t.Fatal(err)
	}
	from := len(r.chromium.commands())
	w.drop()
	r.await("the capture", func() bool { return strings.Contains(r.log.String(), "evidence cannot be written") })
	back := r.connect(s)
	r.await("what stands in the worker's way is removed", func() bool { return len(r.chromium.told(from, "Target.detachFromTarget")) > 0 })
	if err := os.Rename(spool+".away", spool); err != nil {
		t.Fatal(err)
	}
	if got := r.chromium.told(from, "Target.detachFromTarget"); !slices.Equal(got, []string{"Target.detachFromTarget B2"}) {
		t.Errorf("%q: the client session is closed, and its contexts end with it", got)
	}
	back.large(back.attach(), "of the worker that is back")
}

// TestALostRunLimitsNobodyElse: a browser that several runs share gets the large commands of those that work in it,
// also if they joined after the loss.
func TestALostRunLimitsNobodyElse(t *testing.T) {
	t.Parallel()
	shared := func(m *api.Manifest) { m.RequiresExclusiveProfileLock = new(false) }
	for name, joinsLater := range map[string]bool{"it was there": false, "it joins after the loss": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRoom(t, roomOptions{runs: 2, cut: time.Nanosecond})
			one := r.begin(task("one", shared))
			var other *worker
			join := func() {
				two, err := r.join(task("two", shared))
				if err != nil {
					t.Fatal(err)
				}
				other = r.connect(two)
			}
			if !joinsLater {
				join()
			}
			lost := r.connect(one)
			from := len(r.chromium.commands())
			lost.drop()
			r.await("the capture", func() bool { return len(r.chromium.told(from, "Page.captureScreenshot")) > 0 })
			if joinsLater {
				join()
			}
			other.large(other.attach(), "while another run's worker is lost")
			if one.life.isEnding() {
				t.Error("it has ended by then")
			}
		})
	}
}

// TestAConnectionThatEndsAsItsWorkerComesBack: run saw that the worker is back, and the worker loses that
// connection before what stands in its way is removed. What the connection had paused is failed first.
func TestAConnectionThatEndsAsItsWorkerComesBack(t *testing.T) {
	t.Parallel()
	r := newRoom(t, roomOptions{})
	s := r.begin(task("one"))
	w := r.connect(s)
	page := w.attach()
	w.call("Fetch.enable", page, nil)
	r.chromium.pause(page, "R1")
	for m := range w.Got {
		if m.Method == "Fetch.requestPaused" {
			break
		}
	}
	from := len(r.chromium.commands())
	s.clients.mu.Lock()
	for conn := range s.clients.conns {
		s.clients.leave(conn) // it ended, and run has not seen that yet
	}
	s.clients.mu.Unlock()
	s.clients.release()
	r.await("nothing is in its way", func() bool { return len(r.chromium.told(from, "Target.detachFromTarget")) > 0 })
	if got := r.chromium.told(from, "Fetch.failRequest", "Target.detachFromTarget"); got[0] != "Fetch.failRequest "+page {
		t.Errorf("%q: what the connection had paused is sent", got)
	}
}

// TestABrowserWithOnlyLostWorkersStandsStill: of two runs each is one that the other's loss does not stop,
// until both workers are lost, or the one that is there has left the browser to the one that is lost.
func TestABrowserWithOnlyLostWorkersStandsStill(t *testing.T) {
	t.Parallel()
	notExclusive := func(m *api.Manifest) { m.RequiresExclusiveProfileLock = new(false) }
	for name, then := range map[string]func(*worker){
		"both are lost":      (*worker).drop,
		"the other one left": (*worker).close,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRoom(t, roomOptions{runs: 2})
			one := r.begin(task("one", notExclusive, oneShot))
			two, err := r.join(task("two", notExclusive, oneShot))
			if err != nil {
				t.Fatal(err)
			}
			// The scripted browser has no network service, and so the log tells of each try to stop it.
			tried := func() int { return strings.Count(r.log.String(), "the browser does not stand still") }
			lost, there := r.connect(one), r.connect(two)
			from := len(r.chromium.commands())
			lost.drop()
			r.await("the capture", func() bool { return len(r.chromium.told(from, "Page.captureScreenshot")) > 0 })
			if tried() > 0 {
				t.Error("it stands still, although a run works in it")
			}
			then(there)
			r.await("it stands still", func() bool { return tried() > 0 })
			if one.life.isEnding() {
				t.Error("the first run has ended by then")
			}
		})
	}
}

// TestAWorkerIsBackInABrowserThatDidNotStandStill: that it could not is over with the loss, so that its pages may
// still send something when the worker ends its session.
func TestAWorkerIsBackInABrowserThatDidNotStandStill(t *testing.T) {
	t.Parallel()
	r := newRoom(t, roomOptions{})
	s := r.begin(task("one"))
	w := r.connect(s)
	w.drop() // the scripted browser has no network service
	r.await("the loss", s.browser.AskedStill)
	r.connect(s)
	r.await("the browser goes on", func() bool { return !s.browser.AskedStill() })
}

// TestAConnectionThatTheSessionGoesOnWithout is fenced and closed at once.
func TestAConnectionThatTheSessionGoesOnWithout(t *testing.T) {
	t.Parallel()
	r := newRoom(t, roomOptions{})
	s := r.begin(task("one"))
	stays, goes := r.connect(s), r.connect(s)
	page := goes.attach()
	goes.call("Fetch.enable", page, nil)
	r.chromium.pause(page, "R1")
	for m := range goes.Got {
		if m.Method == "Fetch.requestPaused" {
			break
		}
	}
	from := len(r.chromium.commands())
	goes.drop()
	r.await("its client session is closed", func() bool {
		s.clients.mu.Lock()
		defer s.clients.mu.Unlock()
		return len(s.clients.conns) == 1 && len(s.clients.ended) == 0 && len(r.chromium.told(from, "Target.detachFromTarget")) == 1
	})
	if got, want := r.chromium.told(from, "Fetch.failRequest", "Target.detachFromTarget", "Page.captureScreenshot"), []string{"Fetch.failRequest " + page, "Target.detachFromTarget"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if m := stays.call("Browser.getVersion", "", nil); m.Error != nil || s.Show().Connections != 1 || s.life.isEnding() {
		t.Errorf("the other connection: %+v", m)
	}
}

// TestAReleaseDoesNotWaitForTheClient: its connection was cut. Whether it reads that is its
// own affair, and the browser stays warm without it.
func TestAReleaseDoesNotWaitForTheClient(t *testing.T) {
	t.Parallel()
	r := newRoom(t, roomOptions{warm: true, keep: new(true)})
	s := r.begin(task("one"))
	pid := s.Browser().PID()
	silent, err := s.Connect(t.Context(), "", true) // it reads nothing, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	from := len(r.chromium.commands())
	if _, err := s.Release(t.Context(), api.Release{Outcome: "succeeded"}); err != nil {
		t.Fatal(err)
	}
	if r.table.WarmSince(profile).IsZero() {
		t.Error("the browser did not stay open")
	}
	detached := r.chromium.told(from, "Target.detachFromTarget")
	if len(detached) != 1 {
		t.Errorf("client sessions that were detached: %q", detached)
	}
	next, slot, err := r.takeWarm(task("two"), func(*Session) {})
	if err != nil || next.Browser().PID() != pid {
		t.Fatalf("the next task's browser: %v", err)
	}
	silent.Cancel() // now it ends
	if got := r.chromium.told(from, "Target.detachFromTarget"); len(got) != 1 || slot.IsWarm() {
		t.Errorf("what came too late did something in the next task's browser: %q", got)
	}
}

// TestAConnectionThatEndsAfterItsSession leaves nothing in the browser, which the next
// session may have, and does nothing to it when it ends.
func TestAConnectionThatEndsAfterItsSession(t *testing.T) {
	t.Parallel()
	r := newRoom(t, roomOptions{runs: 2})
	shared := func(m *api.Manifest) { m.RequiresExclusiveProfileLock = new(false) }
	s := r.begin(task("one", shared))
	if _, err := r.join(task("two", shared)); err != nil {
		t.Fatal(err)
	}
	late, err := s.Connect(t.Context(), "", true) // its websocket is not served yet
	if err != nil {
		t.Fatal(err)
	}
	from := len(r.chromium.commands())
	if _, err := s.Release(t.Context(), api.Release{}); err != nil {
		t.Fatal(err)
	}
	if late.Session().SessionID != s.ID() {
		t.Error("of another session")
	}
	late.Cancel()
	if got := r.chromium.told(from, "Target.detachFromTarget"); len(got) != 1 {
		t.Errorf("%q", got)
	}
	if got := r.journal(s); got[len(got)-1] != "end" {
		t.Errorf("the journal of a session that is over: %q", got)
	}
	if s.file.get().Unseen {
		t.Error("what comes too late counts as unseen")
	}
}

func TestConnectToATarget(t *testing.T) {
	t.Parallel()
	r := newRoom(t, roomOptions{})
	s := r.begin(task("one"))
	if _, err := s.Connect(t.Context(), "T7", true); problem(err) != api.CodeNotFound || !strings.Contains(err.Error(), "has no target T7") {
		t.Errorf("a target that is not there: %v", err)
	}
	c, err := s.Connect(t.Context(), "T0", true)
	if err != nil {
		t.Fatal(err)
	}
	if s.Show().Connections != 1 {
		t.Errorf("%+v", s.Show())
	}
	c.Cancel()
	if s.Show().Connections != 0 {
		t.Errorf("%+v", s.Show())
	}
	// The end that comes while a connection opens cuts it, and no end is missed.
	for _, end := range []struct {
		leaves       bool
		code         int
		says, refuse string
	}{
		{false, cdpproxy.CloseNormal, "the session ended", api.CodeSessionEnded},
		{true, cdpproxy.CloseShuttingDown, browserStays, api.CodeShuttingDown},
	} {
		opening := make(chan struct{})
		r.chromium.set(func() {
			r.chromium.at["Target.attachToBrowserTarget"] = func() {
				s.life.beginEnd(end.leaves)
				close(opening)
			}
		})
		w := r.connect(s)
		<-opening
		if code, reason, _ := w.end(); code != end.code || reason != end.says {
			t.Errorf("%+v: %d %s", end, code, reason)
		}
		if _, err := s.Connect(t.Context(), "", true); problem(err) != end.refuse {
			t.Errorf("a session that ends, %+v: %v", end, err)
		}
		undoEnd(s)
	}
	r.chromium.set(func() { clear(r.chromium.at) })
}

// TestTheLastPageIsReplaced: Chrome drops the session cookies with the last tab.
func TestTheLastPageIsReplaced(t *testing.T) {
	t.Parallel()
	r := newRoom(t, roomOptions{})
	s := r.begin(task("one"))
	w := r.connect(s)
	// seen waits until the monitor knows these pages, and no others.
	seen := func(want ...string) {
		t.Helper()
		r.await("the monitor has seen "+strings.Join(want, " "), func() bool {
			var known []string
			for _, p := range s.Browser().Monitor().Pages() {
				known = append(known, p.TargetID)
			}
			slices.Sort(known)
			return slices.Equal(known, want)
		})
	}
	for i := range 3 { // T0, then the one that replaced it, and so on
		from := len(r.chromium.commands())
		w.call("Target.closeTarget", "", map[string]any{"targetId": fmt.Sprint("T", i)})
		got := []string{}
		for _, m := range r.chromium.commands()[from:] {
			if m == "Target.createTarget B1" || m == "Target.closeTarget B2" {
				got = append(got, m)
			}
		}
		if want := []string{"Target.createTarget B1", "Target.closeTarget B2"}; !slices.Equal(got, want) {
			t.Errorf("closing T%d: %q, want %q", i, got, want)
		}
		seen(fmt.Sprint("T", i+1))
	}
	w.call("Target.createTarget", "", map[string]any{"url": "about:blank"})
	seen("T3", "T4")
	from := len(r.chromium.commands())
	w.call("Target.closeTarget", "", map[string]any{"targetId": "T4"})
	if slices.Contains(r.chromium.commands()[from:], "Target.createTarget B1") {
		t.Error("a page that is not the last was replaced")
	}
}
