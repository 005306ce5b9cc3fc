package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"leasehold/checkpoint"
	"leasehold/internal/natsd"
	"leasehold/internal/signed"
	"leasehold/internal/test/fakechrome"
	"leasehold/internal/test/testkey"
	"leasehold/launcher/api"
	"leasehold/launcher/chrome"
	"leasehold/launcher/slots"
	"leasehold/lease"
	"leasehold/lease/natskv"
)

// savedCookies puts session cookies of the profile's last browser into the jar.
func (r *room) savedCookies() (path string) {
	r.t.Helper()
	dir := filepath.Join(r.dir, "session-cookies")
	path = filepath.Join(dir, profile+".json")
	cookies := testkey.Key.Sign(signed.Cookies, profile, []byte(`[{"name":"sid","value":"1","url":"https://shop.example/"}]`))
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(path, cookies, 0o600)); err != nil {
		r.t.Fatal(err)
	}
	return path
}

// TestAColdStart: the session's file is on disk before the lease is granted, the floor is
// raised before Chrome runs, and the cookies of the last browser are put back.
func TestAColdStart(t *testing.T) {
	t.Parallel()
	for _, cookies := range []string{api.CookiesKeep, api.CookiesDrop} {
		t.Run(cookies, func(t *testing.T) {
			t.Parallel()
			r := newRoom(t, roomOptions{})
			jar := r.savedCookies()
			recorded := false
			r.memory.Do(func() {
				r.memory.Write = func(_, next lease.Record, store func()) error {
					if f, err := r.files.Read(next.SessionID); err == nil && next.State == lease.Held && f.Token == next.Token && f.CapabilityHash != "" && f.Reason == "" {
						recorded = true
					}
					store()
					return nil
				}
			})
			r.chromium.set(func() {
				r.chromium.at["Target.attachToBrowserTarget"] = func() {
					floor, kept, err := r.root.Kept(profile)
					if err != nil || floor != 1 || kept.State != lease.Held || kept.Token != 1 {
						t.Errorf("when Chrome runs the floor is %d, %+v, %v", floor, kept, err)
					}
				}
			})
			s := r.begin(task("one", func(m *api.Manifest) { m.SessionCookies, m.DedicatedPort = cookies, true }))
			r.memory.Do(func() { r.memory.Write = nil })
			r.chromium.set(func() { clear(r.chromium.at) })
			if !recorded {
				t.Error("the lease was granted before the session's file was written")
			}
			restored := slices.Contains(r.chromium.commands(), "Storage.setCookies B1")
			if restored != (cookies == api.CookiesKeep) {
				t.Errorf("cookies were put back: %v", restored)
			}
			if _, err := os.Stat(jar); err == nil {
				t.Error("the jar has the cookies still")
			}
			f, err := r.files.Read(s.ID())
			if err != nil || f.Dedicated != "127.0.0.1:4711/" || *s.Show().DedicatedURL != "http://127.0.0.1:4711/" {
				t.Errorf("%+v, %v", f, err)
			}
			s.opening.noting.Wait()
			if b, err := r.files.ReadDigests(s.ID()); err != nil || !json.Valid(b) {
				t.Errorf("digests of the account's state: %s, %v", b, err)
			}
			running, ok, err := r.root.Running(profile)
			if err != nil || !ok || running.SessionID != s.ID() || running.PID != s.Browser().PID() || running.Token != 1 {
				t.Errorf("the browser for the next launcher: %+v, %v", running, err)
			}
			slot := r.table.Find(profile)
			if slot.StartedFor() != s.ID() || slot.Fit() == nil || slot.State() != slots.Serving || slot.Browser() != s.Browser() {
				t.Errorf("the slot: %s, %+v", slot.StartedFor(), slot.Fit())
			}
			if e := s.recording.entries(); len(e) == 0 || e[0].Kind != checkpoint.KindStart || e[0].Name != "one" || e[0].Text != "w" {
				t.Errorf("journal: %+v", e)
			}
		})
	}
}

// TestAStartThatFails leaves everything as it was, or ends the granted lease with what is
// to be known of it.
func TestAStartThatFails(t *testing.T) {
	t.Parallel()
	t.Run("the session cannot be recorded", func(t *testing.T) {
		t.Parallel()
		r := newRoom(t, roomOptions{})
		if err := os.RemoveAll(filepath.Join(r.dir, "sessions")); err != nil {
			t.Fatal(err)
		}
		slot := r.occupy()
		_, err := r.grant(task("one"), slot, cold)
		if problem(err) != api.CodeBrowserStartFailed || !strings.Contains(err.Error(), "cannot be recorded") {
			t.Errorf("%v", err)
		}
		if r.record().State != lease.Available || len(r.chromium.commands()) > 0 {
			t.Errorf("granted all the same: %+v", r.record())
		}
		if err := slot.Lock().Unlock(); err != nil {
			t.Error(err)
		}
		slot.Vacate()
	})
	t.Run("the store does not answer", func(t *testing.T) {
		t.Parallel()
		r := newRoom(t, roomOptions{})
		var sessionID string
		r.memory.Do(func() {
			r.memory.Write = func(_, next lease.Record, _ func()) error {
				sessionID = next.SessionID
				return lease.ErrUnavailable
			}
		})
		slot := r.occupy()
		if _, err := r.grant(task("one"), slot, cold); !errors.Is(err, lease.ErrUnavailable) {
			t.Errorf("%v", err)
		}
		f, err := r.files.Read(sessionID)
		if err != nil || f.Reason != api.ReasonUnanswered || f.Ended != "" {
			t.Errorf("for whoever recovers it: %+v, %v", f, err)
		}
		if _, err := r.host.Lookup(sessionID); problem(err) != api.CodeSessionEnded {
			t.Errorf("%v", err)
		}
		for _, tt := range []struct {
			record lease.Record
			left   int
		}{
			{lease.Record{SessionID: "before", Token: f.Token - 1}, 1}, // it may come yet
			{lease.Record{SessionID: sessionID, Token: f.Token}, 1},    // it is to be recovered
			{lease.Record{SessionID: "other", Token: f.Token, Runs: []lease.Run{{SessionID: sessionID}}}, 1},
			{lease.Record{SessionID: "other", Token: f.Token}, 0},
		} {
			err := r.host.ForgetUngranted(func(string) lease.Record { return tt.record })
			if left, loadErr := r.files.Load(); err != nil || loadErr != nil || len(left) != tt.left {
				t.Errorf("%+v: %d files are left, want %d: %v, %v", tt.record, len(left), tt.left, err, loadErr)
			}
		}
		if _, err := r.host.Lookup(sessionID); problem(err) != api.CodeUnknownSession {
			t.Errorf("%v", err)
		}
		if err := slot.Lock().Unlock(); err != nil {
			t.Error(err)
		}
		slot.Vacate()
	})
	t.Run("somebody else got it", func(t *testing.T) {
		t.Parallel()
		r := newRoom(t, roomOptions{})
		slot := r.occupy()
		s := r.host.New(task("one"), lease.Record{ProfileID: profile, SessionID: "ses_1", Token: 1}, r.path, slot, "secret")
		if err := (Cold{}).Prepare(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		s.Unmade()
		if left, err := r.files.Load(); err != nil || len(left) > 0 {
			t.Errorf("%+v, %v", left, err)
		}
		if _, err := r.host.Lookup("ses_1"); problem(err) != api.CodeUnknownSession {
			t.Errorf("%v", err)
		}
		if err := slot.Lock().Unlock(); err != nil {
			t.Error(err)
		}
		slot.Vacate()
	})
	for name, tt := range map[string]struct {
		prepare func(r *room, s *Session)
		says    string
		started bool // a browser
		method  string
	}{
		"the browser does not start": {
			func(r *room, _ *Session) {
				socket := fakechrome.Socket(filepath.Join(r.dir, "profiles", profile))
				if err := errors.Join(os.Rename(socket, socket+".away"), os.WriteFile(socket, nil, 0o600)); err != nil {
					r.t.Error(err)
				}
			}, "connect", true, "already_exited"},
		"the lease expired while the disk was slow": {func(_ *room, s *Session) { s.Fence().Shut(lease.ErrExpired) }, "lease expired", false, "already_exited"},
		"its cookies cannot be put back": {
			func(r *room, _ *Session) {
				path := r.savedCookies()
				if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
					r.t.Error(err)
				}
			}, "session cookies of p", true, "cdp"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRoom(t, roomOptions{})
			var s *Session
			started := hooked{Start: Cold{}, before: func(of *Session) { s = of; tt.prepare(r, of) }}
			slot := r.occupy()
			_, err := r.grant(task("one"), slot, func(lease.Record) Start { return started })
			if err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Fatalf("%v, want %s", err, tt.says)
			}
			refused := s.UndoGrant(err)
			slot.Vacate()
			var p *api.Problem
			if !errors.As(refused, &p) || p.Code != api.CodeBrowserStartFailed || !strings.Contains(p.Detail, tt.says) {
				t.Errorf("%v", refused)
			}
			if output, ok := p.More["output"].(string); name == "the browser does not start" && (!ok || !strings.Contains(output, "connect")) {
				t.Errorf("what Chrome said is not passed on: %+v", p.More)
			}
			f := r.over(s)
			if f.Ended != api.ReasonStartFailed || f.Reason != api.ReasonStartFailed || f.CloseMethod != tt.method || f.InOrder {
				t.Errorf("%+v", f)
			}
			if rec := r.record(); rec.State != lease.Available || rec.Token != 1 || rec.Reason != api.ReasonStartFailed || !slices.Equal(r.bundles(), []string{api.ReasonStartFailed}) {
				t.Errorf("%+v, %v", rec, r.bundles())
			}
			if (r.counted("leasehold_browser_closes_total", tt.method) == 1) != tt.started || len(r.host.Living()) != 0 {
				t.Errorf("browser started: want %v", tt.started)
			}
			if _, ok, err := r.root.Running(profile); ok || err != nil {
				t.Errorf("a browser runs for the next launcher, %v", err)
			}
			socket := fakechrome.Socket(filepath.Join(r.dir, "profiles", profile))
			_ = os.Rename(socket+".away", socket)
			_ = os.RemoveAll(filepath.Join(r.dir, "session-cookies"))
			r.begin(task("two")) // the lock is free
		})
	}
}

// hooked is a start with something that happens before its second step.
type hooked struct {
	Start
	before func(*Session)
}

func (h hooked) Open(ctx context.Context, s *Session) error {
	h.before(s)
	return h.Start.Open(ctx, s)
}

// TestRunsOnOneBrowser: each has its token, journal and end; what the pages do is in both
// journals, and the last one to end decides about the profile.
func TestRunsOnOneBrowser(t *testing.T) {
	t.Parallel()
	shared := func(m *api.Manifest) { m.RequiresExclusiveProfileLock = new(false) }
	for _, lost := range []bool{false, true} {
		r := newRoom(t, roomOptions{runs: 3})
		one := r.begin(task("one", shared))
		two, err := r.join(task("two", shared))
		if err != nil {
			t.Fatal(err)
		}
		if one.Token() != 1 || two.Token() != 2 || two.Browser() != one.Browser() {
			t.Fatalf("%d and %d", one.Token(), two.Token())
		}
		if floor, err := r.root.Floor(profile); err != nil || floor != 2 {
			t.Errorf("floor %d, %v", floor, err)
		}
		r.chromium.say(`{"method":"Page.frameNavigated","params":{"frame":{"id":"T0","url":"https://shop.example/"}},"sessionId":"B1-T0"}`)
		for _, s := range []*Session{one, two} {
			r.await("both journals have it", func() bool { return s.recording.latest(lease.Record{}).LastKnownURL == "https://shop.example/" })
		}
		w := r.connect(one)
		page := w.attach()

		// A third one does not get to serve, and is as if it had not been.
		var s *Session
		_, err = r.grant(task("three", shared), r.table.Find(profile), func(lease.Record) Start {
			return hooked{Start: Join{Begun: time.Now()}, before: func(of *Session) { s = of; of.Fence().Shut(lease.ErrExpired) }}
		})
		if !errors.Is(err, lease.ErrExpired) {
			t.Fatalf("error %v, want %v", err, lease.ErrExpired)
		}
		s.UndoRun(err)
		if rec := r.record(); len(rec.Runs) != 2 || len(rec.LostRuns) != 0 || rec.Token != 3 || rec.State != lease.Held {
			t.Errorf("%+v", rec)
		}
		if f, err := r.files.Read(s.ID()); err != nil || f.Ended != api.ReasonStartFailed || f.Evidence.EvidenceID != "" {
			t.Errorf("%+v, %v", f, err)
		}

		if lost {
			one.life.update(func(f *facts) { f.connections, f.seenAt = 0, f.seenAt.Add(-time.Hour) })
		} else if _, err := one.Release(t.Context(), api.Release{Outcome: "ok", Reason: "done"}); err != nil {
			t.Fatal(err)
		}
		w.end()
		f := r.over(one)
		want := map[bool]string{false: "released: done", true: "lost (heartbeat_timeout): inspected when the other runs of the profile end"}[lost]
		if f.Ended != want || f.CloseMethod != "" {
			t.Errorf("%s (%s), want %s", f.Ended, f.CloseMethod, want)
		}
		rec := r.record()
		if rec.State != lease.Held || len(rec.Runs) != 1 || rec.Runs[0].Token != 2 || (len(rec.LostRuns) == 1) != lost {
			t.Errorf("%+v", rec)
		}
		slot := r.table.Find(profile)
		if slot.State() != slots.Serving || slot.Joinable() == lost || (len(slot.Lost()) == 1) != lost {
			t.Errorf("%s, joinable %v, lost %v", slot.State(), slot.Joinable(), slot.Lost())
		}
		if err := two.Fence().Check(); err != nil || two.life.isEnding() {
			t.Errorf("the other run: %v", err)
		}
		if _, err := two.Release(t.Context(), api.Release{Outcome: "ok"}); err != nil {
			t.Fatal(err)
		}
		f = r.over(two)
		want = map[bool]string{false: "released: released", true: "lost (run_lost), recovered: "}[lost]
		if !strings.HasPrefix(f.Ended, want) || f.CloseMethod != "cdp" || len(r.bundles()) != 2 {
			t.Errorf("%+v, %v; want %s", f, r.bundles(), want)
		}
		_ = page
	}
}

// TestRunsThatShareServices: a run that joins another one does not take the token from the
// services that the other one named. They get the newest one.
func TestRunsThatShareServices(t *testing.T) {
	t.Parallel()
	r := newRoom(t, roomOptions{runs: 3})
	shares := func(origins ...string) func(*api.Manifest) {
		return func(m *api.Manifest) {
			m.RequiresExclusiveProfileLock, m.FenceHeaderOrigins = new(false), origins
		}
	}
	const queue, till = "https://queue.example", "https://till.example"
	one := r.begin(task("one", shares(queue)))
	for i, tt := range []struct{ names, want []string }{{nil, []string{queue}}, {[]string{till, queue}, []string{queue, till}}} {
		next, err := r.join(task(fmt.Sprint("joins ", i), shares(tt.names...)))
		if err != nil {
			t.Fatal(err)
		}
		if rules := one.Browser().Monitor().Guard().Rules(); !slices.Equal(rules.TokenOrigins, tt.want) || rules.Token != next.Token() {
			t.Errorf("after a run that names %v: %+v", tt.names, rules)
		}
	}
}

// TestABrowserThatDoesNotStartKeepsNoCookies: the session cookies of the last session were put into a browser
// that crashes before its start is over. No session had it, and the next one has the cookies.
func TestABrowserThatDoesNotStartKeepsNoCookies(t *testing.T) {
	t.Parallel()
	r := newRoom(t, roomOptions{})
	jar := r.savedCookies()
	r.chromium.set(func() {
		r.chromium.silent["Target.createTarget"] = true // its first tab does not open
		r.chromium.at["Storage.getCookies"] = func() { r.chromium.exit(false) }
	})
	var s *Session
	slot := r.occupy()
	_, err := r.grant(task("one"), slot, func(lease.Record) Start { return hooked{Start: Cold{}, before: func(of *Session) { s = of }} })
	if err == nil || !slices.Contains(r.chromium.commands(), "Storage.setCookies B1") {
		t.Fatalf("%v, and the browser was told %q", err, r.chromium.commands())
	}
	_ = s.UndoGrant(err)
	slot.Vacate()
	if got := r.record(); got.State != lease.Available {
		t.Errorf("%+v", got)
	}
	if _, err := os.Stat(jar); err != nil {
		t.Errorf("the account is signed out: %v", err)
	}
	r.chromium.set(func() { clear(r.chromium.silent); clear(r.chromium.at) })
	from := len(r.chromium.commands())
	r.begin(task("two"))
	if !slices.ContainsFunc(r.chromium.commands()[from:], func(m string) bool { return strings.HasPrefix(m, "Storage.setCookies") }) {
		t.Error("the next session does not have the cookies")
	}
	if _, err := os.Stat(jar); err == nil {
		t.Error("the jar has cookies that a browser uses")
	}
}

// TestForgedCookiesGoToAPerson: they are not put into the account's browser, and stay for
// the person to see.
func TestForgedCookiesGoToAPerson(t *testing.T) {
	t.Parallel()
	for name, forged := range map[string][]byte{
		"written by somebody else": []byte(`[{"name":"sid","value":"evil","url":"https://shop.example/"}]`),
		"of another profile":       testkey.Key.Sign(signed.Cookies, "other", []byte(`[{"name":"sid","value":"1","url":"https://shop.example/"}]`)),
		"cut short":                testkey.Key.Sign(signed.Cookies, profile, []byte(`[{"name":"sid"`))[:90],
		"empty":                    {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRoom(t, roomOptions{})
			path := r.savedCookies()
			if err := os.WriteFile(path, forged, 0o600); err != nil {
				t.Fatal(err)
			}
			var s *Session
			started := hooked{Start: Cold{}, before: func(of *Session) { s = of }}
			slot := r.occupy()
			_, err := r.grant(task("one"), slot, func(lease.Record) Start { return started })
			if !errors.Is(err, signed.ErrNotAuthentic) {
				t.Fatalf("started with them: %v", err)
			}
			_ = s.UndoGrant(err)
			slot.Vacate()
			if got := r.record(); got.State != lease.ManualReview || got.Reason != lease.ReasonNotAuthentic || got.Token != 2 || got.EvidenceID == "" {
				t.Errorf("%+v", got)
			}
			if told := r.chromium.told(0, "Storage.setCookies"); len(told) != 0 {
				t.Errorf("the browser was told %v", told)
			}
			if b, err := os.ReadFile(path + ".refused"); err != nil || string(b) != string(forged) {
				t.Errorf("set aside: %q, %v", b, err)
			}
			if err := r.jar.Check(profile); err != nil {
				t.Errorf("after that: %v", err)
			}
		})
	}
}

// TestARealBrowser is the whole way with Chromium and a store on NATS: a cold start, the
// session cookies of the last browser, a worker's commands, and the release.
func TestARealBrowser(t *testing.T) {
	t.Parallel()
	binary, err := chrome.Find("")
	if err != nil {
		t.Fatal(err)
	}
	server, err := natsd.Start(natsd.Options{Dir: t.TempDir(), Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	nc, err := server.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	store, err := natskv.Open(t.Context(), nc, natskv.Options{Log: zerolog.Nop(), LauncherID: "l"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	r := newRoom(t, roomOptions{binary: binary, store: store})
	r.savedCookies()
	s := r.begin(task("one"))
	w := r.connect(s)
	var version struct{ Product string }
	if err := json.Unmarshal(w.call("Browser.getVersion", "", nil).Result, &version); err != nil || !strings.Contains(version.Product, "/") {
		t.Errorf("%+v, %v", version, err)
	}
	if got := string(w.call("Storage.getCookies", "", nil).Result); !strings.Contains(got, `"sid"`) {
		t.Errorf("cookies: %s", got)
	}
	w.call("Lease.checkpoint", "", map[string]any{"name": "seen"})
	w.send("Browser.close", "", nil)
	w.end()
	f := r.over(s)
	if f.Ended != "released: browser_close_requested" || f.CloseMethod != "cdp" {
		t.Errorf("%+v", f)
	}
	rec := r.record()
	m := r.manifest(f.Evidence.EvidenceID)
	missing := map[string]string{}
	for _, p := range m.Parts {
		if p.Missing != "" {
			missing[p.Name] = p.Missing
		}
	}
	if rec.State != lease.Available || rec.Token != 1 || rec.EvidenceID != m.EvidenceID || rec.LastSafeCheckpoint != "seen" || len(m.Pages) != 1 ||
		missing["journal.jsonl"] != "" || missing["commands.json"] != "" || missing["digests.json"] != "" {
		t.Errorf("%+v\n%+v\nmissing %v", rec, m, missing)
	}
	if b, err := os.ReadFile(filepath.Join(r.dir, "session-cookies", profile+".json")); err != nil || !strings.Contains(string(b), `"sid"`) {
		t.Errorf("the next browser's cookies: %s, %v", b, err)
	}
	if _, err := r.host.Lookup(s.ID()); problem(err) != api.CodeSessionEnded {
		t.Errorf("%v", err)
	}
}
