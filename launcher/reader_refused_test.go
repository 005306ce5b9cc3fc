package launcher

import (
	"bytes"
	"context"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"leasehold/internal/procfs"
	"leasehold/internal/test/fakechrome"
	"leasehold/launcher/api"
	"leasehold/launcher/principal"
	"leasehold/launcher/proxies"
	"leasehold/launcher/snapshots"
	"leasehold/lease"
)

// unused says that nothing of an ephemeral session is here.
func (r *reading) unused() {
	r.t.Helper()
	if left, use := r.left(), r.host.Slots.Use(); len(left) > 0 || use.Places > 0 || use.Waiting > 0 || len(r.Sessions()) > 0 {
		r.t.Errorf("left: %v, %+v, %d sessions", left, use, len(r.Sessions()))
	}
}

// What cannot be read is refused by name, and nothing half is left of it.
func TestWhatCannotBeRead(t *testing.T) {
	r := startReading(t, 2, nil)
	refused := func(why, code, says string, change func(*api.Manifest)) {
		t.Helper()
		_, err := r.read(change)
		if codeOf(err) != code || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %s", why, err, code)
		}
		r.unused()
	}
	refused("no such profile", api.CodeUnknownProfile, "acct", nil)
	r.profile(func(*lease.Record) {})
	refused("no snapshot yet", api.CodeNoSnapshot, "ends in order", nil)

	yes := true
	for field, change := range map[string]func(*api.Manifest){
		"labels":                          func(m *api.Manifest) { m.Labels = lease.Labels{"a": "b"} },
		"requires_exclusive_profile_lock": func(m *api.Manifest) { m.RequiresExclusiveProfileLock = &yes },
		"create":                          func(m *api.Manifest) { m.Create = true },
		"resumable":                       func(m *api.Manifest) { m.Resumable = true },
		"keep_warm":                       func(m *api.Manifest) { m.KeepWarm = &yes },
		"human_review_on_lock_conflict":   func(m *api.Manifest) { m.HumanReviewOnLockConflict = true },
		"fence_header_origins":            func(m *api.Manifest) { m.FenceHeaderOrigins = []string{"https://a.test"} },
		"turn":                            func(m *api.Manifest) { m.Turn = "x" },
	} {
		refused(field, api.CodeInvalidRequest, field+": ", change)
	}

	newer := r.snapshot("157.0.1.2", 7, nil)
	r.profile(func(rec *lease.Record) {
		rec.SnapshotID, rec.SnapshotToken, rec.AccountID, rec.ProxyID = newer.ID, 7, "ann", "down"
	})
	refused("a snapshot of a newer Chrome", api.CodeBrowserOlder, "157.0.1.2", nil)
	refused("another account", api.CodeAccountMismatch, "ann", func(m *api.Manifest) { m.AccountID = "bob" })
	refused("another proxy", api.CodeProxyChanged, "down", func(m *api.Manifest) { m.ProxyID = "up" })

	fits := r.snapshot("156.0.8078.79", 8, nil)
	r.profile(func(rec *lease.Record) {
		rec.SnapshotID, rec.SnapshotToken, rec.Token, rec.ProxyID = fits.ID, 8, 8, "down"
	})
	refused("a proxy that is not there", api.CodeBrowserStartFailed, "nothing was started", nil)
	r.profile(func(rec *lease.Record) {
		rec.SnapshotID, rec.SnapshotToken, rec.Token, rec.ProxyID = fits.ID, 8, 8, "gone"
	})
	refused("a proxy that the configuration does not have", api.CodeBrowserStartFailed, "gone", nil)

	// It went out through a proxy, which the record does not name: not directly, then.
	proxied := r.snapshot("156.0.8078.79", 9, func(dir string) {
		if err := os.WriteFile(filepath.Join(dir, "leasehold_proxy"), []byte("gone"), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	r.profile(func(rec *lease.Record) { rec.SnapshotID, rec.SnapshotToken, rec.Token = proxied.ID, 9, 9 })
	refused("a proxy that was forgotten", api.CodeBrowserStartFailed, "gone", nil)

	mute := r.snapshot("156.0.8078.79", 10, func(dir string) { fakechrome.Direct(t, dir, fakechrome.Script{}) })
	r.profile(func(rec *lease.Record) { rec.SnapshotID, rec.SnapshotToken, rec.Token = mute.ID, 10, 10 })
	if s, err := r.read(nil); err != nil {
		t.Error(err)
	} else {
		r.end(s)
	}
	r.readers.Forget()
	damage(t, filepath.Join(r.dir, "store"))
	refused("damage", api.CodeSnapshotDamaged, "", nil)
	other := startReading(t, 2, func(o *Options) {
		o.Snapshots = snapshots.New(snapshots.OpenDir(filepath.Join(r.dir, "store")), snapshots.NewKey())
	})
	other.profile(func(rec *lease.Record) { rec.SnapshotID, rec.SnapshotToken, rec.Token = mute.ID, 10, 10 })
	if _, err := other.read(nil); codeOf(err) != api.CodeSnapshotUnusable {
		t.Errorf("another key: %v", err)
	}
	other.unused()
	if err := os.RemoveAll(filepath.Join(r.dir, "store")); err != nil {
		t.Fatal(err)
	}
	if _, err := r.read(nil); codeOf(err) == "" || strings.Contains(codeOf(err), "internal") {
		t.Errorf("no store: %v", err)
	}
	r.unused()
}

// damage cuts off what is stored of the profiles' content.
func damage(t *testing.T, store string) {
	t.Helper()
	n := 0
	err := filepath.WalkDir(store, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && strings.Contains(path, "chunks") {
			n++
			err = os.Truncate(path, 5)
		}
		return err
	})
	if err != nil || n == 0 {
		t.Fatalf("%d chunks, %v", n, err)
	}
}

// A launcher without a profile store has nothing to read.
func TestReadingNeedsAProfileStore(t *testing.T) {
	r := startReading(t, 2, func(o *Options) { o.Snapshots = nil })
	r.profile(func(*lease.Record) {})
	if _, err := r.read(nil); codeOf(err) != api.CodeNoProfileStore {
		t.Errorf("%v", err)
	}
	r.unused()
}

// A browser that does not start, and a host without room, leave nothing.
func TestAReaderThatDoesNotStart(t *testing.T) {
	r := startReading(t, 1, func(o *Options) { o.Chrome = "/bin/false" })
	r.held()
	if _, err := r.read(nil); codeOf(err) != api.CodeBrowserStartFailed {
		t.Errorf("%v", err)
	}
	r.unused()
	r.o.MinFreeDisk = 1 << 62
	full := startReading(t, 1, func(o *Options) { o.MinFreeDisk = 1 << 62 })
	full.held()
	if _, err := full.read(nil); codeOf(err) != api.CodeHostFull {
		t.Errorf("a full disk: %v", err)
	}
	full.unused()
}

// A reader takes a place, and who waits for one gets it when a reader ends.
func TestAReaderTakesAPlace(t *testing.T) {
	r := startReading(t, 1, nil)
	r.held()
	first, err := r.read(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.read(nil); codeOf(err) != api.CodeHostFull {
		t.Errorf("%v", err)
	}
	if _, err := r.read(func(m *api.Manifest) { m.Wait = api.Duration(20 * time.Millisecond) }); codeOf(err) != api.CodeWaitTimeout {
		t.Errorf("%v", err)
	}
	got := make(chan error, 1)
	var second api.Session
	go func() {
		var err error
		second, err = r.read(func(m *api.Manifest) { m.Wait = api.Duration(time.Minute) })
		got <- err
	}()
	for r.host.Slots.Use().Waiting == 0 {
		time.Sleep(time.Millisecond)
	}
	r.end(first)
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	r.end(second)
	r.unused()
}

// What a worker may do in an ephemeral session, and what has no meaning there.
func TestAReadersWrites(t *testing.T) {
	r := startReading(t, 2, nil)
	before := r.held()
	s, err := r.read(func(m *api.Manifest) { m.AllowedActions = []string{"look"} })
	if err != nil {
		t.Fatal(err)
	}
	ctx, w := principal.In(t.Context(), principal.Principal{Name: "ann", Role: principal.Admin, Profiles: principal.EveryProfile}), api.Write{Token: s.Token}
	for what, do := range map[string]func() error{
		"checkpoint": func() error { return r.Checkpoint(ctx, s.SessionID, api.Checkpoint{Write: w, Name: "c"}) },
		"ask":        func() error { _, err := r.Ask(ctx, s.SessionID, api.AskPerson{Write: w, Reason: "why"}); return err },
		"take over": func() error {
			_, err := r.TakeOver(ctx, s.SessionID, api.TakeOver{Write: w, Person: "ann"})
			return err
		},
	} {
		if err := do(); codeOf(err) != api.CodeEphemeral {
			t.Errorf("%s: %v", what, err)
		}
	}
	if shown, err := r.Heartbeat(ctx, s.SessionID, api.Heartbeat{Write: w, Step: "reading"}); err != nil || !shown.ExpiresAt.After(time.Now()) {
		t.Errorf("%+v, %v", shown, err)
	}
	if err := r.Step(ctx, s.SessionID, api.Step{Write: w, Name: "look", Action: "look"}); err != nil {
		t.Error(err)
	}
	if err := r.Step(ctx, s.SessionID, api.Step{Write: w, Name: "buy", Action: "buy"}); codeOf(err) != api.CodeActionNotAllowed {
		t.Errorf("error %v, want %s", err, api.CodeActionNotAllowed)
	}
	if _, err := r.Heartbeat(ctx, s.SessionID, api.Heartbeat{Write: api.Write{Token: 8}}); codeOf(err) != api.CodeStaleToken {
		t.Errorf("the token of who has the profile: %v", err)
	}
	if by := r.host.Sessions.OnProfile("acct"); by != nil {
		t.Errorf("%s is on the profile", by.ID())
	}
	r.end(s)
	r.unused()
	if _, err := r.Heartbeat(ctx, s.SessionID, api.Heartbeat{Write: w}); codeOf(err) != api.CodeSessionEnded {
		t.Errorf("%v", err)
	}
	// No write of its own, no event, no late write.
	if e, err := r.o.Store.Get(ctx, "acct"); err != nil || e.Record.Sequence != before.Sequence || e.Record.LastKnownStep != "" {
		t.Errorf("%+v, %v", e.Record, err)
	}
	if events, err := r.History(ctx, "acct"); err == nil && len(events) > 0 {
		t.Errorf("%+v", events)
	}
}

// A reader ends by itself when its worker is silent, and when its time is over.
func TestAReadersEndOfItsOwn(t *testing.T) {
	for name, change := range map[string]func(*api.Manifest){
		"silent":   func(m *api.Manifest) { m.Heartbeat = api.HeartbeatExplicit },
		"too long": func(m *api.Manifest) { m.LockTimeoutSeconds = 0.2 },
	} {
		t.Run(name, func(t *testing.T) {
			r := startReading(t, 1, func(o *Options) { o.Timing.TTL = 3 * time.Second })
			r.held()
			s, err := r.read(change)
			if err != nil {
				t.Fatal(err)
			}
			for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
				if shown, err := r.Session(s.SessionID); err != nil || shown.State == api.SessionEnded {
					break
				}
				if time.Now().After(deadline) {
					t.Fatal("it does not end")
				}
			}
			for r.host.Slots.Use().Places > 0 {
				time.Sleep(time.Millisecond)
			}
			r.unused()
		})
	}
}

// A launcher that ends, in order, ends its readers, too.
func TestReadersEndWithTheirLauncher(t *testing.T) {
	r := startReading(t, 3, func(o *Options) { o.LeaveOnExit = func() bool { return true } })
	r.held()
	for range 3 {
		if _, err := r.read(nil); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := r.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	r.unused()
	if unpacked, err := filepath.Glob(filepath.Join(r.dir, "readers/.unpacked/*")); err != nil || len(unpacked) > 0 {
		t.Errorf("unpacked snapshots: %v, %v", unpacked, err)
	}
}

// A reader that may send what it wants is not had while the account has to stand still, and ends
// when it has to. One that only reads stays.
func TestTheAccountStandsStillForReadersToo(t *testing.T) {
	r := startReading(t, 4, nil)
	snapshot := r.held()
	writes := false
	writing := func(m *api.Manifest) { m.ReadOnly = &writes }
	in := func(state lease.State) {
		r.profile(func(rec *lease.Record) {
			*rec = snapshot.Clone()
			rec.State, rec.Token = state, 9
			if state == lease.Held {
				rec.Token = 8
			}
		})
	}
	for state, code := range map[lease.State]string{
		lease.Quarantined: api.CodeQuarantined, lease.Inspected: api.CodeQuarantined, lease.SuspectedStale: api.CodeQuarantined,
		lease.ManualReview: api.CodeInReview, lease.ResumePending: api.CodeResumePending,
	} {
		in(state)
		if _, err := r.read(writing); codeOf(err) != code {
			t.Errorf("%s: %v, want %s", state, err, code)
		}
		s, err := r.read(nil)
		if err != nil {
			t.Fatalf("%s: %v", state, err)
		}
		r.end(s)
	}
	// A person holds it, before they decide.
	r.profile(func(rec *lease.Record) {
		*rec = snapshot.Clone()
		rec.State, rec.Token, rec.ByHand = lease.Held, 9, &lease.ByHand{Holder: "ann", Review: &lease.OpenReview{Reason: "connection_lost"}}
	})
	if _, err := r.read(writing); codeOf(err) != api.CodeInReview {
		t.Errorf("held out of a review: %v", err)
	}
	in(lease.Held)
	reader, err := r.read(nil)
	if err != nil {
		t.Fatal(err)
	}
	writer, err := r.read(writing)
	if err != nil || writer.ReadOnly {
		t.Fatalf("%+v, %v", writer, err)
	}
	in(lease.SuspectedStale)
	for deadline := time.Now().Add(time.Minute); r.host.Sessions.ByID(writer.SessionID) != nil; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it goes on")
		}
	}
	if s, err := r.Session(writer.SessionID); err != nil || !strings.Contains(s.Ended, "account_stands_still") {
		t.Errorf("%+v, %v", s, err)
	}
	if r.host.Sessions.ByID(reader.SessionID) == nil {
		t.Error("one that only reads ended, too")
	}
	r.end(reader)

	// What the profile says is not taken from it.
	in(lease.Held)
	r.profile(func(rec *lease.Record) {
		*rec = snapshot.Clone()
		rec.Token, rec.ReadOnly = 10, true
	})
	s, err := r.read(writing)
	if err != nil || !s.ReadOnly {
		t.Errorf("%+v, %v", s, err)
	}
	r.end(s)
	r.unused()
}

// The browser of a reader goes out as the profile's does, with the task's arguments.
func TestAReadersBrowser(t *testing.T) {
	proxy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	r := startReading(t, 1, func(o *Options) {
		file := filepath.Join(o.DataDir, "proxies-up.yaml")
		if err := os.WriteFile(file, []byte("up:\n  server: http://"+proxy.Addr().String()+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if o.Proxies, err = proxies.Load(file); err != nil {
			t.Fatal(err)
		}
	})
	rec := r.held()
	r.profile(func(to *lease.Record) {
		*to = rec.Clone()
		to.ProxyID = "up"
	})
	s, err := r.read(func(m *api.Manifest) { m.ChromeArgs = []string{"--window-size=700,500"} })
	if err != nil {
		t.Fatal(err)
	}
	line, err := procfs.CommandLine(r.host.Sessions.ByID(s.SessionID).Browser().PID())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{proxy.Addr().String(), "--window-size=700,500", "--user-data-dir=" + filepath.Join(r.dir, "readers", s.SessionID)} {
		if !bytes.Contains(line, []byte(want)) {
			t.Errorf("no %s in %q", want, line)
		}
	}
	r.end(s)
}
