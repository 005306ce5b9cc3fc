package session

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/internal/boottime"
	"leasehold/internal/test/rawcdp"
	"leasehold/launcher/api"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/sessionfile"
	"leasehold/lease"
)

func TestFactsLeft(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	f := sessionfile.File{AcquiredAt: now.Add(-time.Hour)}
	for _, tt := range []struct {
		name               string
		connections        []string
		connected, dropped bool
	}{
		{"nobody ever connected", nil, false, false},
		{"connected", []string{"opened"}, true, true},
		{"two, and one closed", []string{"opened", "opened", "closed"}, true, true},
		{"closed", []string{"opened", "closed"}, true, false},
		{"both closed", []string{"opened", "opened", "closed", "closed"}, true, false},
		{"dropped, in the grace", []string{"opened", "dropped"}, true, true},
		{"left by the launcher", []string{"opened", "cut"}, true, true},
		{"back at another launcher, and closed there", []string{"opened", connectionsOver, "opened", "closed"}, true, false},
		{"back at another launcher", []string{"opened", connectionsOver, "opened"}, true, true},
		{"not back yet at another launcher", []string{"opened", connectionsOver}, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			entries := []checkpoint.Entry{{Kind: checkpoint.KindStart}, {Kind: checkpoint.KindURL, Name: "opened"}}
			for _, name := range tt.connections {
				entries = append(entries, checkpoint.Entry{Kind: checkpoint.KindConnection, Name: name})
			}
			got := factsLeft(f, entries, now, 0)
			if got.connected != tt.connected || got.dropped != tt.dropped || got.left != tt.dropped || got.connections != 0 || !got.startedAt.Equal(f.AcquiredAt) || !got.seenAt.Equal(now) {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestAnUpgradeThatIsCancelledCountsAsAConnection for the next launcher: it comes and goes. Otherwise its end would be
// taken for that of another one.
func TestAnUpgradeThatIsCancelledCountsAsAConnection(t *testing.T) {
	t.Parallel()
	r := newRoom(t, roomOptions{})
	s := r.begin(task("one"))
	first := r.connect(s)
	cancelled, err := s.Connect(t.Context(), "", true)
	if err != nil {
		t.Fatal(err)
	}
	cancelled.Cancel()
	last := r.connect(s)
	leaves := func(w *worker, left int) facts {
		w.close()
		r.await("the connection has ended", func() bool { return s.Show().Connections == left })
		entries, err := checkpoint.Read(r.files.Journal(s.ID()))
		if err != nil {
			t.Fatal(err)
		}
		return factsLeft(s.file.get(), entries, time.Now(), s.h.o.Clock())
	}
	if f := leaves(first, 1); !f.connected || !f.dropped {
		t.Errorf("with a connection that is open still: %+v, want it dropped", f)
	}
	if f := leaves(last, 0); !f.connected || f.dropped {
		t.Errorf("with none: %+v, want it closed", f)
	}
}

// TestTheAgeOfASessionFollowsNoWallClock: a launcher that goes on with a session counts its
// longest life by the boot-time clock, however the wall clock was set meanwhile.
func TestTheAgeOfASessionFollowsNoWallClock(t *testing.T) {
	now, boot := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), boottime.Instant(50*time.Hour)
	for _, set := range []time.Duration{0, 48 * time.Hour, -48 * time.Hour} {
		f := sessionfile.File{AcquiredAt: now.Add(set - time.Hour), Begun: boot.Add(-time.Hour)}
		if got := now.Sub(factsLeft(f, nil, now, boot).startedAt); got != time.Hour {
			t.Errorf("the wall clock was set by %v: the session is %v old, want an hour", -set, got)
		}
	}
}

// left is a room with a session that a launcher left to the next one, which runs. do comes
// before the end of the first.
func left(t *testing.T, o roomOptions, m api.Manifest, do func(r *room, s *Session)) (*room, *Session) {
	t.Helper()
	r := newRoom(t, roomOptions{leave: true})
	s := r.begin(m)
	do(r, s)
	r.restart(o)
	return r, s
}

// adopt is what package adopt does with the session of the record that an earlier
// launcher left.
func (r *room) adopt(change func(*Resumption)) (*Session, error) {
	r.t.Helper()
	slot := r.table.Occupy(profile)
	slot.Recovers()
	rec := r.record()
	// A process that another test forks has the files of this one for a moment.
	var lock *profiledir.Lock
	var err error
	r.await("the lock", func() bool {
		lock, err = r.root.Adopt(profile)
		return !errors.Is(err, profiledir.ErrLocked)
	})
	if err != nil {
		r.t.Fatal(err)
	}
	running, ok, err := r.root.Running(profile)
	if err != nil || !ok {
		r.t.Fatal(ok, err)
	}
	b := r.driver.Adopt(running, r.path, lease.Appearance{}, slot.Note, r.host.o.Log)
	if b == nil || !b.HasPipeLog() {
		r.t.Fatal("the browser cannot be adopted")
	}
	slot.Place()
	f, known := r.host.File(rec.SessionID)
	if !known {
		r.t.Fatal("the session's file is not known")
	}
	take := Resumption{
		Record: rec, Path: r.path, Slot: slot, Lock: lock, Browser: b, StartedFor: running.SessionID, Keeper: r.keeper,
		Request: r.host.Request(f.Manifest, rec.SessionID, r.keeper, 0), Continues: func() bool { return true },
	}
	change(&take)
	s, err := r.host.Resume(take)
	if err != nil { // it is recovered then; here it is only closed
		if _, closeErr := b.Close(profile, nil, r.host.o.Log); closeErr != nil {
			r.t.Error(closeErr)
		}
		if unlockErr := lock.Unlock(); unlockErr != nil {
			r.t.Error(unlockErr)
		}
		slot.Vacate()
	}
	return s, err
}

// TestABrowserIsLeftToTheNextLauncher: nothing is decided, and no evidence taken.
func TestABrowserIsLeftToTheNextLauncher(t *testing.T) {
	t.Parallel()
	r := newRoom(t, roomOptions{leave: true})
	s := r.begin(task("one"))
	w, gone := r.connect(s), r.connect(s)
	w.call("Lease.getLease", "", nil) // who uses the domain gets its events
	gone.drop()
	r.host.Drain()
	code, says, events := w.end()
	if code != cdpproxy.CloseShuttingDown || says != "the launcher is shutting down: the browser stays for the next one" {
		t.Errorf("%d %q", code, says)
	}
	if slices.ContainsFunc(events, func(m rawcdp.Message) bool { return m.Method == "Lease.leaseLost" }) {
		t.Error("told that the lease is lost")
	}
	r.over(s)
	f, err := r.files.Read(s.ID())
	if err != nil || f.Reason != "" || f.Ended != "" || f.Evidence.EvidenceID != "" {
		t.Errorf("%+v, %v", f, err)
	}
	select {
	case <-s.Browser().Exited():
		t.Error("the browser is closed")
	default:
	}
	if rec := r.record(); rec.State != lease.Held || rec.Token != 1 || len(r.bundles()) != 0 || len(r.spooled()) != 0 {
		t.Errorf("%+v, %v, %v", rec, r.bundles(), r.spooled())
	}
	if _, err := r.host.Lookup(s.ID()); problem(err) != api.CodeShuttingDown {
		t.Errorf("the session, before the next launcher: %v", err)
	}
	if r.table.Find(profile) != nil {
		t.Error("the profile is not given up")
	}
	if err := s.Fence().Check(); problem(err) != api.CodeShuttingDown {
		t.Errorf("a command that comes too late: %v", err)
	}
	r.restart(roomOptions{})
	next, err := r.adopt(func(*Resumption) {})
	if err != nil {
		t.Fatal(err)
	}
	next.Resumed()
}

// TestASessionThatIsLeftHasNotEnded: whoever waits in it, or comes before it is left, is told what they are told who
// come later. A worker that hears that its session has ended gives it up for good, and sends no heartbeats.
func TestASessionThatIsLeftHasNotEnded(t *testing.T) {
	t.Parallel()
	r := newRoom(t, roomOptions{leave: true})
	s := r.begin(task("one"))
	ask, told := api.AskPerson{Reason: "r", Wait: api.Duration(time.Hour)}, map[string]error{}
	waits, state := r.asked(t.Context(), s, ask), ""
	if _, err := s.Attend(func() { // its end has begun
		state = s.Show().State
		_, told["a write"] = r.host.ForWrite(t.Context(), s.ID(), s.Token(), "step")
		_, told["a connection"] = s.Connect(t.Context(), "", true)
		_, told["an ask"] = s.Asks().Ask(t.Context(), ask)
		_, told["an action on a page"] = s.Monitor()
		_, told["a viewer"] = s.Attend(func() {})
		told["a person"] = s.People().PersonIs(ann)
	}); err != nil {
		t.Fatal(err)
	}
	r.host.Drain()
	r.over(s)
	told["the ask that waited"] = r.receive(waits).err
	_, told["a release"] = s.Release(t.Context(), api.Release{})
	_, told["who comes later"] = r.host.Lookup(s.ID())
	for what, err := range told {
		if problem(err) != api.CodeShuttingDown {
			t.Errorf("%s: %v, want %s", what, err, api.CodeShuttingDown)
		}
	}
	if len(told) != 9 || state != api.SessionServing || r.counted("leasehold_asks_total", api.CodeShuttingDown) != 1 {
		t.Errorf("%d were told; it is shown as %q; asks that ended with it: %v", len(told), state, r.counted("leasehold_asks_total", api.CodeShuttingDown))
	}
	r.restart(roomOptions{})
	next, err := r.adopt(func(*Resumption) {})
	if err != nil {
		t.Fatal(err)
	}
	next.Resumed()
}

// TestAConnectionThatEndsAfterItsSessionWasLeft, since its client is slow to answer, is no entry that was lost: the next
// launcher notes the end of all connections.
func TestAConnectionThatEndsAfterItsSessionWasLeft(t *testing.T) {
	t.Parallel()
	r := newRoom(t, roomOptions{leave: true})
	s := r.begin(task("one"))
	r.connect(s)
	late, err := s.Connect(t.Context(), "", true) // its websocket is not served yet
	if err != nil {
		t.Fatal(err)
	}
	r.host.Drain()
	r.over(s)
	late.Cancel()
	if said := r.log.String(); strings.Contains(said, "journal entry lost") || s.file.get().Unseen {
		t.Errorf("it counts as lost:\n%s", said)
	}
	r.restart(roomOptions{})
	next, err := r.adopt(func(*Resumption) {})
	if err != nil {
		t.Fatal(err)
	}
	next.Resumed()
	if f := next.life.known(); !f.connected || !f.left {
		t.Errorf("the worker that was connected: %+v", f)
	}
}

// TestASessionGoesOn in the next launcher, and its worker with it: same id, token and
// capability, and nothing of its old client in the way.
func TestASessionGoesOn(t *testing.T) {
	t.Parallel()
	var capability, page string
	r, was := left(t, roomOptions{}, task("one", oneShot, openedBy(1000)), func(r *room, s *Session) {
		capability = s.Show().Capability
		w := r.connect(s)
		page = w.attach()
		w.call("Fetch.enable", page, nil)
		w.call("Lease.checkpoint", "", map[string]any{"name": "a"})
		r.chromium.pause(page, "R1")
		for m := range w.Got {
			if m.Method == "Fetch.requestPaused" {
				break
			}
		}
	})
	r.await("the launcher leaves no paused request", func() bool { return slices.Contains(r.chromium.commands(), "Fetch.failRequest "+page) })
	early := make(chan error)
	go func() { // while nobody knows what becomes of it
		_, err := r.host.ByCapability(capability)
		early <- err
	}()
	from := len(r.chromium.commands())
	s, err := r.adopt(func(*Resumption) {})
	if err != nil {
		t.Fatal(err)
	}
	if f, err := r.files.Read(was.ID()); err != nil || !f.Unseen || f.Reason != "" {
		t.Errorf("what nobody saw is not known: %+v, %v", f, err)
	}
	select {
	case err := <-early:
		t.Fatalf("answered before it is known: %v", err)
	default:
	}
	s.Resumed()
	r.host.Known(s.ID()) // as package adopt says
	if err := <-early; err != nil {
		t.Errorf("who waited for it: %v", err)
	}
	again, err := r.host.ByCapability(capability)
	if err != nil || again != s || s.ID() != was.ID() || s.Token() != was.Token() || s.Show().Capability != capability || !s.manifest.OneShot {
		t.Errorf("%v, %v", again, err)
	}
	opener, other := anAdmin, anAdmin
	opener.Name, other.Name = "uid:1000", "uid:1001"
	if r.host.Of(opener, profile, "w", "one", false) != s || r.host.Of(other, profile, "w", "one", false) != nil || r.host.Of(anAdmin, profile, "w", "one", false) != nil {
		t.Error("it is not that of who opened it, or of more than that one")
	}
	if show := s.Show(); show.Principal != "uid:1000" || show.OpenerUID == nil || *show.OpenerUID != 1000 {
		t.Errorf("opened by %q, %v", show.Principal, show.OpenerUID)
	}
	if rec := r.record(); rec.State != lease.Held || rec.Token != 1 || rec.PresenceEpoch != r.keeper.Epoch() {
		t.Errorf("%+v", rec)
	}
	if floor, kept, err := r.root.Kept(profile); err != nil || floor != 1 || kept.PresenceEpoch != r.keeper.Epoch() {
		t.Errorf("%d, %+v, %v", floor, kept, err)
	}
	slot := r.table.Find(profile)
	if slot.StartedFor() != s.ID() || slot.Fit() != nil || slot.Browser() != s.Browser() {
		t.Errorf("the slot: %s, %+v", slot.StartedFor(), slot.Fit())
	}
	// What the old launcher itself had open is closed, the old client's is not touched
	// before its worker is back.
	told := r.chromium.told(from, "Target.detachFromTarget", "Target.setAutoAttach", "Runtime.runIfWaitingForDebugger")
	told = slices.DeleteFunc(told, func(m string) bool { return strings.Contains(m, " B3") }) // the new monitor's own
	if !slices.Equal(told, []string{"Target.detachFromTarget"}) {
		t.Errorf("%q", told)
	}
	from = len(r.chromium.commands())
	w := r.connect(s)
	r.await("nothing is in its way", func() bool { return len(r.chromium.told(from, "Target.detachFromTarget")) > 0 })
	if got := r.chromium.told(from, "Target.detachFromTarget", "Target.setAutoAttach"); !slices.Equal(got, []string{"Target.setAutoAttach B2", "Target.detachFromTarget B2"}) {
		t.Errorf("for the worker that is back: %q", got)
	}
	w.close()
	f := r.over(s)
	if f.Ended != "released: connection_closed" || !f.Unseen || r.record().State != lease.Available || r.record().LastSafeCheckpoint != "a" {
		t.Errorf("%+v, %+v", f, r.record())
	}
	want := []string{"start one", "connection opened", "checkpoint a", "connection " + connectionsOver, "connection opened", "connection closed", "end"}
	got := slices.DeleteFunc(r.journal(s), func(e string) bool {
		// The old launcher noted the end of its connection if that came before it left.
		return strings.HasPrefix(e, "picture") || e == "connection "+connectionCut
	})
	if !slices.Equal(got, want) {
		t.Errorf("journal %q, want %q", got, want)
	}
}

// TestNobodyComesBackToASessionThatGoesOn: the launcher's restart is named as the loss, and
// a person looks, since nobody watched for a while.
func TestNobodyComesBackToASessionThatGoesOn(t *testing.T) {
	t.Parallel()
	r, _ := left(t, roomOptions{grace: short}, task("one"), func(r *room, s *Session) { r.connect(s) })
	s, err := r.adopt(func(take *Resumption) { take.DropCookies = true })
	if err != nil {
		t.Fatal(err)
	}
	s.Resumed()
	f := r.over(s)
	if f.Ended != "lost (launcher_restarted), recovered: manual_review" || !slices.Equal(r.bundles(), []string{api.ReasonLauncherRestart}) || r.record().State != lease.ManualReview {
		t.Errorf("%+v, %v, %s", f, r.bundles(), r.record().State)
	}
}

// TestAWorkerHasItsTimeToComeBackOnceItCan: resuming a session may take longer than its worker has to come back, or to
// send its next heartbeat, and nobody reaches the session before it is resumed.
func TestAWorkerHasItsTimeToComeBackOnceItCan(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		m       api.Manifest
		does    func(r *room, s *Session)
		verdict verdict
	}{
		"it was connected":    {task("one"), func(r *room, s *Session) { r.connect(s) }, interrupted},
		"it sends heartbeats": {task("one", func(m *api.Manifest) { m.Heartbeat = api.HeartbeatExplicit }), func(*room, *Session) {}, stay},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _ := left(t, roomOptions{}, tt.m, tt.does)
			s, err := r.adopt(func(*Resumption) {})
			if err != nil {
				t.Fatal(err)
			}
			s.life.update(func(f *facts) { // as if that had taken an hour
				f.seenAt = f.seenAt.Add(-time.Hour)
				if !f.endedAt.IsZero() {
					f.endedAt = f.endedAt.Add(-time.Hour)
				}
			})
			s.Resumed()
			if got := s.life.ruling(time.Now()); got.verdict != tt.verdict {
				t.Fatalf("as soon as it can be reached: %+v, want verdict %d", got, tt.verdict)
			}
			r.connect(s).close()
		})
	}
}

// TestASessionThatGoesOnHasItsCookies: a launcher that was killed while it started the browser had not put
// the session cookies of the last one in, which the jar still has. The session does not go on without
// them: its worker would find the account signed out, and the cookies that it gets then would not be kept.
func TestASessionThatGoesOnHasItsCookies(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		m        api.Manifest
		handover bool
		restored bool
	}{
		"killed at the start":     {m: task("one"), restored: true},
		"they were to be dropped": {m: task("one", func(m *api.Manifest) { m.SessionCookies = api.CookiesDrop })},
		"killed in a handover":    {m: task("one"), handover: true}, // the warm browser has them, or newer ones
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _ := left(t, roomOptions{}, tt.m, func(*room, *Session) {})
			jar, from := r.savedCookies(), len(r.chromium.commands())
			s, err := r.adopt(func(take *Resumption) { take.DropCookies = tt.handover })
			if err != nil {
				t.Fatal(err)
			}
			if got := r.chromium.told(from, "Storage.setCookies"); (len(got) > 0) != tt.restored {
				t.Errorf("cookies were put in by %q, want it to be %v", got, tt.restored)
			}
			if _, err := os.Stat(jar); err == nil {
				t.Error("the jar has them still: the next ones would not be kept")
			}
			s.Resumed()
		})
	}
}

// TestASessionThatCannotGoOn leaves the lease as it was, for its recovery.
func TestASessionThatCannotGoOn(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		m      api.Manifest
		before func(r *room)
		take   func(*Resumption)
		says   string
		is     error
	}{
		"its lease expired meanwhile": {
			m: task("one"), take: func(take *Resumption) { take.Continues = func() bool { return false } }, says: "lease expired", is: lease.ErrExpired,
		},
		"it would end at once": {
			m: task("one", func(m *api.Manifest) { m.LockTimeoutSeconds = 60 }), says: "it would end at once: lock_timeout",
			before: func(r *room) {
				for id, f := range r.host.ended {
					f.Begun = f.Begun.Add(-time.Hour)
					r.host.ended[id] = f
				}
			},
		},
		"its profile moved on": { // after the record was read
			m: task("one"), take: func(take *Resumption) { take.Record.Token-- }, says: "token 0 superseded by 1",
		},
		"its journal cannot be read": {
			m: task("one"), says: "journal",
			before: func(r *room) {
				for id := range r.host.ended {
					if err := errors.Join(os.Remove(r.files.Journal(id)), os.Mkdir(r.files.Journal(id), 0o700)); err != nil {
						r.t.Error(err)
					}
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _ := left(t, roomOptions{}, tt.m, func(*room, *Session) {})
			if tt.before != nil {
				tt.before(r)
			}
			was := r.record()
			take := tt.take
			if take == nil {
				take = func(*Resumption) {}
			}
			s, err := r.adopt(take)
			if err == nil || !strings.Contains(err.Error(), tt.says) || tt.is != nil && !errors.Is(err, tt.is) {
				t.Fatalf("%v, %v; want %s", s, err, tt.says)
			}
			if now := r.record(); now.PresenceEpoch != was.PresenceEpoch || now.Token != was.Token || now.State != was.State {
				t.Errorf("%+v\nwas %+v", now, was)
			}
			if len(r.host.Living()) != 0 {
				t.Error("it lives")
			}
		})
	}
}
