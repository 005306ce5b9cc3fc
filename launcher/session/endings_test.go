package session

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/internal/test/fakechrome"
	"leasehold/internal/test/rawcdp"
	"leasehold/launcher/api"
	"leasehold/lease"
)

// TestEndings goes through every way in which a session with a connected worker ends.
func TestEndings(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		room   roomOptions
		change func(*api.Manifest)
		do     func(r *room, s *Session, w *worker)
		how    string
		state  lease.State
		reason string // of the evidence
		code   int    // that an open connection is closed with; 0: the worker ended it
		says   string
		lost   bool // the worker is told by an event, too
	}{
		{
			name: "released", how: "released: done", state: lease.Available, reason: "done", code: cdpproxy.CloseNormal, says: "the session ended: done",
			do: func(r *room, s *Session, w *worker) {
				shown, err := s.Release(r.t.Context(), api.Release{Outcome: "succeeded", Reason: "done"})
				if err != nil || shown.State != api.SessionEnded || shown.Ended != "released: done" || shown.Connections != 0 {
					r.t.Errorf("%+v, %v", shown, err)
				}
				if rec := r.record(); rec.Outcome != "succeeded" || rec.State != lease.Available {
					r.t.Errorf("it is said before the profile is free: %+v", rec)
				}
			},
		}, {
			name: "Lease.release", how: "released: released", state: lease.Available, reason: api.ReasonReleased, code: cdpproxy.CloseNormal, says: "the session ended: released",
			do: func(r *room, s *Session, w *worker) {
				if m := w.call("Lease.release", "", map[string]any{"outcome": "failed"}); m.Error != nil {
					r.t.Errorf("%+v", m)
				}
			},
		}, {
			name: "Browser.close", how: "released: browser_close_requested", state: lease.Available, reason: api.ReasonBrowserClosed,
			code: cdpproxy.CloseNormal, says: "the session ended: browser_close_requested",
			do: func(r *room, s *Session, w *worker) {
				if m := w.call("Browser.close", "", nil); m.Error != nil {
					r.t.Errorf("%+v", m)
				}
			},
		}, {
			name: "a one-shot session's connection is closed", change: oneShot, how: "released: connection_closed", state: lease.Available, reason: api.ReasonClosed,
			do: func(r *room, s *Session, w *worker) { w.close() },
		}, {
			name: "the connection is closed, and nothing is heard any more", state: lease.Available,
			how: "lost (heartbeat_timeout), recovered: release", reason: api.ReasonHeartbeat,
			do: func(r *room, s *Session, w *worker) {
				w.close()
				r.await("the end of the connection", func() bool { return s.Show().Connections == 0 })
				s.life.update(func(f *facts) { f.seenAt = f.seenAt.Add(-time.Hour) })
			},
		}, {
			name: "dropped by a client that never closes properly", change: func(m *api.Manifest) { m.OnDrop = api.OnDropRelease },
			how: "released: connection_dropped", state: lease.Available, reason: api.ReasonDropReleases,
			do: func(r *room, s *Session, w *worker) { w.drop() },
		}, {
			name: "dropped, and nobody comes back", room: roomOptions{grace: short}, change: oneShot,
			how: "lost (connection_lost), recovered: release", state: lease.Available, reason: api.ReasonConnectionLost,
			do: func(r *room, s *Session, w *worker) { w.drop() },
		}, {
			name: "dropped, and released without a connection", change: oneShot, how: "released: done", state: lease.Available, reason: "done",
			do: func(r *room, s *Session, w *worker) {
				w.drop()
				r.await("the evidence of the loss", func() bool { return len(r.spooled()) == 1 })
				if _, err := s.Release(r.t.Context(), api.Release{Reason: "done"}); err != nil {
					r.t.Error(err)
				}
			},
		}, {
			name: "explicit heartbeats stop", change: func(m *api.Manifest) { m.Heartbeat = api.HeartbeatExplicit },
			how: "lost (heartbeat_timeout), recovered: release", state: lease.Available, reason: api.ReasonHeartbeat,
			code: cdpproxy.CloseQuarantined, says: "profile quarantined: heartbeat_timeout", lost: true,
			do: func(_ *room, s *Session, _ *worker) {
				s.life.update(func(f *facts) { f.seenAt = f.seenAt.Add(-time.Hour) })
			},
		}, {
			name: "its time is over", change: func(m *api.Manifest) { m.LockTimeoutSeconds = 60 },
			how: "lost (lock_timeout), recovered: release", state: lease.Available, reason: api.ReasonLockTimeout,
			code: cdpproxy.CloseQuarantined, says: "profile quarantined: lock_timeout", lost: true,
			do: func(_ *room, s *Session, _ *worker) {
				s.life.update(func(f *facts) { f.startedAt = f.startedAt.Add(-time.Hour) })
			},
		}, {
			name: "a higher token was granted", how: "fenced: the lease has another token by now: session ses_other has the profile", state: lease.Held,
			reason: api.ReasonLeaseLost, code: cdpproxy.CloseFenced, says: "token 1 superseded by 2", lost: true,
			do: func(r *room, s *Session, w *worker) {
				moved := r.movedOn(2)
				r.memory.Put(moved)
				s.Observe(moved)
			},
		}, {
			name: "the lease could not be renewed", how: "lost (lease_lost), recovered: release", state: lease.Available, reason: api.ReasonLeaseLost,
			code: cdpproxy.CloseExpired, says: "lease expired: it could not be renewed in time", lost: true,
			do: func(r *room, s *Session, w *worker) {
				r.memory.Do(func() {
					e := r.memory.Launchers["l"]
					r.memory.Revision++
					r.memory.Launchers["l"] = lease.PresenceEntry{Presence: e.Presence.Close("l", "other", e.Presence.Epoch, time.Now()), Revision: r.memory.Revision}
				})
				r.keeper.RenewNow()
			},
		}, {
			name: "the browser crashed", how: "lost (browser_crashed), recovered: ", state: lease.ManualReview, reason: api.ReasonBrowserCrashed,
			code: cdpproxy.CloseCrashed, says: "the browser crashed: signal killed", lost: true,
			do: func(r *room, s *Session, w *worker) { r.chromium.kill(s.Browser().PID()) },
		}, {
			name: "the browser hangs", room: roomOptions{hang: time.Second}, how: "lost (browser_hangs), recovered: manual_review", state: lease.ManualReview, reason: api.ReasonBrowserHangs,
			code: cdpproxy.CloseCrashed, says: "the browser hangs: no answer for 1s, its main thread waits", lost: true,
			do: func(r *room, s *Session, w *worker) {
				r.chromium.set(func() { r.chromium.silent["Browser.getVersion"] = true })
			},
		}, {
			name: "the launcher stops", how: "lost (launcher_shutdown), recovered: release", state: lease.Available, reason: api.ReasonShutdown,
			code: cdpproxy.CloseShuttingDown, says: "the launcher is shutting down", lost: true,
			do: func(r *room, s *Session, w *worker) {
				r.host.Drain()
				r.host.Drain() // it may be called again
			},
		}, {
			name: "a person closes the browser", change: byHand, how: "released: browser_close_requested", state: lease.Available, reason: api.ReasonBrowserClosed,
			code: cdpproxy.CloseNormal, says: "the session ended: browser_close_requested",
			do: func(r *room, s *Session, w *worker) { r.chromium.exit(true) },
		}, {
			name: "a person's browser crashed", change: byHand, how: "lost (browser_crashed), recovered: manual_review", state: lease.ManualReview,
			reason: api.ReasonBrowserCrashed, code: cdpproxy.CloseCrashed, says: "the browser crashed: signal killed", lost: true,
			do: func(r *room, s *Session, w *worker) { r.chromium.kill(s.Browser().PID()) },
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRoom(t, tt.room)
			change := tt.change
			if change == nil {
				change = func(*api.Manifest) {}
			}
			s := r.begin(task("one", change))
			w := r.connect(s)
			w.call("Lease.getLease", "", nil) // who uses the domain gets its events
			tt.do(r, s, w)
			code, says, events := w.end()
			f := r.over(s)
			if !strings.HasPrefix(f.Ended, tt.how) || f.Reason == "" || f.Evidence.EvidenceID == "" {
				t.Errorf("%+v\nwant %s", f, tt.how)
			}
			if code != tt.code && tt.code != 0 || !strings.HasPrefix(says, tt.says) {
				t.Errorf("the connection ended with %d %q, want %d %q", code, says, tt.code, tt.says)
			}
			told := slices.ContainsFunc(events, func(m rawcdp.Message) bool { return m.Method == "Lease.leaseLost" })
			if told != tt.lost {
				t.Errorf("told that the lease is lost: %v", told)
			}
			rec := r.record()
			if rec.State != tt.state {
				t.Errorf("the profile is %s (%s), want %s", rec.State, rec.Decision, tt.state)
			}
			if got := r.bundles(); !slices.Equal(got, []string{tt.reason}) {
				t.Errorf("evidence of %q, want one of %q", got, tt.reason)
			}
			if left := r.spooled(); len(left) > 0 {
				t.Errorf("bundles that are not sealed: %v", left)
			}
			released := strings.HasPrefix(f.Ended, "released")
			if shown, err := r.host.Show(s.ID()); err != nil || f.Released != released || shown.Released != released {
				t.Errorf("said to be released: %v, and to a client: %v, %v; it ended as %s", f.Released, shown.Released, err, f.Ended)
			}
			if r.counted("leasehold_session_ends_total", map[bool]string{true: "released", false: "recovered"}[released]) != 1 {
				t.Error("the end is not counted")
			}
			if floor, err := r.root.Floor(profile); err != nil || tt.state != lease.Held && floor != rec.Token {
				t.Errorf("floor %d, %v; the record has %d", floor, err, rec.Token)
			}
			if err := s.Fence().Check(); err == nil {
				t.Error("the fence is open")
			}
			select {
			case <-s.Browser().Exited():
			default:
				t.Error("the browser lives")
			}
			if err := r.lock().Unlock(); err != nil {
				t.Error(err)
			}
			if r.table.Find(profile) != nil || len(r.host.Living()) != 0 || r.counted("leasehold_sessions") != 0 {
				t.Error("the session is counted still")
			}
			r.await("its connection is not counted any more", func() bool { return r.counted("leasehold_connections") == 0 })
			if got := r.journal(s); got[len(got)-1] != "end" {
				t.Errorf("journal %q", got)
			}
		})
	}
}

// TestTheWorkerIsToldHowItsBrowserCrashed: also where its process needs longer for its end than for that
// of its pipe, as while a crash is dumped.
func TestTheWorkerIsToldHowItsBrowserCrashed(t *testing.T) {
	t.Parallel()
	r := newRoom(t, roomOptions{})
	leaving, err := os.Create(fakechrome.Leaving(r.path))
	if err == nil {
		err = unix.Flock(int(leaving.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	s := r.begin(task("one"))
	w := r.connect(s)
	r.chromium.exit(false)
	time.AfterFunc(1200*time.Millisecond, func() { _ = unix.Flock(int(leaving.Fd()), unix.LOCK_UN) })
	if code, says, _ := w.end(); code != cdpproxy.CloseCrashed || says != "the browser crashed: exit 0" {
		t.Errorf("the connection ended with %d %q", code, says)
	}
	r.over(s)
}

// TestEndsWithoutAConnection are those of sessions that no worker ever reached.
func TestEndsWithoutAConnection(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*api.Manifest)
		do     func(*Session) error
		how    string
		state  lease.State
	}{
		"one-shot": {oneShot, func(*Session) error { return nil }, "released: never_connected", lease.Available},
		"two-step": {func(*api.Manifest) {}, func(*Session) error { return nil }, "lost (heartbeat_timeout), recovered: release", lease.Available},
		// Tabs are opened, and steps named, over HTTP too.
		"one-shot, and it did something": {
			oneShot, func(s *Session) error { return s.Reports().Step(api.Step{Name: "pay", Sensitive: true}) }, "lost (worker_failed), recovered: manual_review", lease.ManualReview,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRoom(t, roomOptions{})
			s := r.begin(task("one", tt.change))
			if err := tt.do(s); err != nil {
				t.Error(err)
			}
			s.life.update(func(f *facts) { f.startedAt, f.seenAt = f.startedAt.Add(-time.Hour), f.seenAt.Add(-time.Hour) })
			if f := r.over(s); f.Ended != tt.how || r.record().State != tt.state {
				t.Errorf("%s, %s; want %s", f.Ended, r.record().State, tt.how)
			}
		})
	}
}

// TestAnEndWhileAPersonHasTheSession is judged, though its worker ends it in order: the worker
// cannot vouch for what the person was about to do.
func TestAnEndWhileAPersonHasTheSession(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		sent bool
		how  string
	}{
		"after a request":   {true, "lost (worker_failed), recovered: manual_review"},
		"without a request": {false, "released: connection_closed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, s := begun(t, task("one", oneShot))
			w := r.connect(s)
			if err := s.People().TakeOver(ann, api.TakeOver{}); err != nil {
				t.Fatal(err)
			}
			if tt.sent {
				s.Note(checkpoint.Entry{Kind: checkpoint.KindRequest, Method: "POST", URL: "https://shop.example/orders"})
			}
			w.close()
			if f := r.over(s); f.Ended != tt.how {
				t.Errorf("%s, want %s", f.Ended, tt.how)
			}
		})
	}
}

// TestCookiesThatAreNotKept are not lost in silence: a release without them is none.
func TestCookiesThatAreNotKept(t *testing.T) {
	t.Parallel()
	mute := func(r *room) error {
		r.chromium.set(func() { // it says them to the evidence, and then no more
			r.chromium.at["Storage.getCookies"] = func() { r.chromium.set(func() { r.chromium.silent["Storage.getCookies"] = true }) }
		})
		return nil
	}
	for name, tt := range map[string]struct {
		change func(*api.Manifest)
		do     func(*room) error
		why    string
	}{
		"the browser does not say them": {func(*api.Manifest) {}, mute, "no answer"},
		"the jar cannot be written": {func(*api.Manifest) {}, func(r *room) error {
			return os.Symlink("nowhere", filepath.Join(r.dir, "session-cookies"))
		}, "file exists"},
		"the jar is not used, and those that last are not known": {func(m *api.Manifest) { m.SessionCookies = api.CookiesDrop }, mute, "no answer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRoom(t, roomOptions{ask: 2 * time.Second})
			s := r.begin(task("one", tt.change))
			r.connect(s)
			r.chromium.set(func() {
				r.chromium.cookies = `[{"name":"sid","value":"1","domain":"shop.example","path":"/","expires":-1,"session":true}]`
			})
			if err := tt.do(r); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Release(t.Context(), api.Release{Outcome: "succeeded"}); err != nil {
				t.Error(err)
			}
			f := r.over(s)
			if rec := r.record(); f.InOrder || !strings.Contains(f.NotStored, tt.why) || rec.State != lease.ManualReview || rec.AtRest() {
				t.Errorf("it ended: %s; in order: %t, by %s, not stored: %q; the profile is %s", f.Ended, f.InOrder, f.CloseMethod, f.NotStored, rec.State)
			}
		})
	}
}

// TestASessionThatBeginsWhileTheLauncherDrains ends at once.
func TestASessionThatBeginsWhileTheLauncherDrains(t *testing.T) {
	t.Parallel()
	r := newRoom(t, roomOptions{})
	slot := r.occupy()
	r.host.Drain()
	s, err := r.grant(task("one"), slot, cold)
	if err != nil {
		t.Fatal(err)
	}
	if f := r.over(s); !strings.HasPrefix(f.Ended, "lost (launcher_shutdown)") {
		t.Errorf("%s", f.Ended)
	}
}

// TestAnEndThatTheStoreDoesNotTake goes on later, from what is on disk.
func TestAnEndThatTheStoreDoesNotTake(t *testing.T) {
	t.Parallel()
	r := newRoom(t, roomOptions{})
	s := r.begin(task("one"))
	r.memory.Do(func() { r.memory.Away = true })
	shown, err := s.Release(t.Context(), api.Release{Outcome: "succeeded", Reason: "done"})
	if err != nil || shown.Ended != "ended, and its recovery goes on: done" || shown.Released {
		t.Errorf("%+v, %v", shown, err)
	}
	f := r.over(s)
	r.memory.Do(func() { r.memory.Away = false })
	if !f.InOrder || f.Outcome != "succeeded" || f.Evidence.EvidenceID == "" || f.CloseMethod != "cdp" || f.Reason != "done" || r.record().State != lease.Held {
		t.Errorf("%+v, %s", f, r.record().State)
	}
	if err := r.lock().Unlock(); err != nil {
		t.Error(err)
	}
}

// TestAPersonsCookies are noted while the browser is there, and kept where it ends in
// order by itself: Chrome has none of them by then.
func TestAPersonsCookies(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		cookies string // of the manifest
		end     func(r *room, s *Session)
		kept    bool
	}{
		"closed by the person":             {api.CookiesKeep, func(r *room, _ *Session) { r.chromium.exit(true) }, true},
		"closed, and they are not wanted":  {api.CookiesDrop, func(r *room, _ *Session) { r.chromium.exit(true) }, false},
		"ended, and Chrome says: in crash": {api.CookiesKeep, func(r *room, _ *Session) { r.chromium.exit(false) }, false},
		"killed":                           {api.CookiesKeep, func(r *room, s *Session) { r.chromium.kill(s.Browser().PID()) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRoom(t, roomOptions{})
			r.chromium.set(func() {
				r.chromium.cookies = `[{"name":"sid","value":"1","domain":"shop.example","path":"/","secure":true,"session":true,"expires":-1}]`
			})
			noted := filepath.Join(r.dir, "session-cookies", profile+".json.noted")
			s := r.begin(task("one", byHand, func(m *api.Manifest) { m.SessionCookies = tt.cookies }))
			r.await("cookies are noted", func() bool { _, err := os.Stat(noted); return err == nil })
			if _, err := os.Stat(filepath.Join(r.dir, "session-cookies", profile+".json")); err == nil {
				t.Error("what is noted counts already")
			}
			tt.end(r, s)
			r.over(s)
			b, err := os.ReadFile(filepath.Join(r.dir, "session-cookies", profile+".json"))
			if tt.kept != (err == nil) || tt.kept && !strings.Contains(string(b), `"name":"sid"`) {
				t.Errorf("kept: %s, %v; want them kept: %v", b, err, tt.kept)
			}
			if _, err := os.Stat(noted); err == nil {
				t.Error("the notes stay")
			}
		})
	}
}

// TestNotesOfAnEarlierPersonsCookies that an end left behind are gone once another browser has started: whoever closes
// that one would get them.
func TestNotesOfAnEarlierPersonsCookies(t *testing.T) {
	t.Parallel()
	r := newRoom(t, roomOptions{})
	noted := filepath.Join(r.dir, "session-cookies", profile+".json.noted")
	if err := errors.Join(os.MkdirAll(filepath.Dir(noted), 0o700), os.WriteFile(noted, []byte("of another login"), 0o600)); err != nil {
		t.Fatal(err)
	}
	r.begin(task("one"))
	if _, err := os.Stat(noted); err == nil {
		t.Error("they stay")
	}
}
