package launcher

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"leasehold/evidence"
	"leasehold/internal/test/fakechrome"
	"leasehold/launcher/api"
	"leasehold/launcher/browser"
	"leasehold/launcher/snapshots"
	"leasehold/lease"
)

// scripted are browsers of package fakechrome.
type scripted struct{ browser.Kernel }

func (scripted) Version(context.Context, string) (string, error) {
	return "Chromium 156.0.8078.79", nil
}

// reading is a launcher with a profile store, of scripted browsers.
type reading struct {
	*Launcher
	t        *testing.T
	store    *snapshots.Store
	leases   *hookedStore
	dir      string
	registry *prometheus.Registry
}

// startReading starts one that has no more than max browsers. change may change its options.
func startReading(t *testing.T, max int, change func(*Options)) *reading {
	t.Helper()
	dir := t.TempDir()
	mustIn(t)(os.Chmod(dir, 0o700))
	r := &reading{t: t, store: snapshots.New(snapshots.OpenDir(filepath.Join(dir, "store")), snapshots.NewKey()), dir: dir, registry: prometheus.NewRegistry()}
	o := optionsIn(t, dir, evidence.Keys{})
	o.Chrome, o.MaxBrowsers, o.ReconnectGrace, o.Processes, o.Metrics = fakechrome.Binary(t), max, time.Second, scripted{}, r.registry
	o.Snapshots, o.Retention = r.store, snapshots.Retention{Keep: 3}
	if change != nil {
		change(&o)
	}
	r.store, r.leases = o.Snapshots, hooked(&o)
	r.Launcher = runIn(t, o)
	return r
}

// profile stores the record of a profile that lives elsewhere.
func (r *reading) profile(change func(*lease.Record)) lease.Record {
	r.t.Helper()
	rec := lease.Record{ProfileID: "acct", State: lease.Available, Home: "elsewhere", Token: 7}
	rec.MaxActiveRuns = 1
	change(&rec)
	e, err := r.o.Store.Get(r.t.Context(), "acct")
	if errors.Is(err, lease.ErrNotFound) {
		e, err = lease.Entry{Record: lease.Record{ProfileID: "acct"}}, nil
	}
	if err == nil {
		e, err = r.o.Store.Swap(r.t.Context(), e, rec)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return e.Record
}

// snapshot seals a snapshot of a profile in the store, made by a Chrome of the version.
func (r *reading) snapshot(version string, token lease.Token, change func(dir string)) snapshots.Snapshot {
	r.t.Helper()
	from := userDataDir(r.t)
	if change != nil {
		change(from)
	}
	content, err := r.store.Read(r.t.Context(), "acct", from, snapshots.ReadOptions{Spool: r.t.TempDir()})
	if err != nil {
		r.t.Fatal(err)
	}
	made, err := r.store.Seal(r.t.Context(), content, snapshots.About{Token: token, LauncherID: "elsewhere", ChromeVersion: version, CreatedAt: time.Now()})
	if err != nil {
		r.t.Fatal(err)
	}
	return made
}

// held is a profile with a snapshot, whose next session a worker of another host has.
func (r *reading) held() lease.Record {
	s := r.snapshot("156.0.8078.79", 7, nil)
	return r.profile(func(rec *lease.Record) {
		rec.State, rec.LauncherID, rec.SessionID, rec.OwnerWorkerID, rec.TaskID, rec.Token = lease.Held, "elsewhere", "ses_there", "w", "t", 8
		rec.TTLSeconds = time.Hour.Seconds() // no launcher is there: nobody should notice meanwhile
		rec.SnapshotID, rec.SnapshotToken = s.ID, 7
	})
}

func (r *reading) read(change func(*api.Manifest)) (api.Session, error) {
	m := api.Manifest{ProfileID: "acct", WorkerID: "reader", Ephemeral: true}
	if change != nil {
		change(&m)
	}
	return r.Acquire(r.t.Context(), m)
}

// left lists what there is of ephemeral sessions on disk.
func (r *reading) left() (names []string) {
	r.t.Helper()
	for _, pattern := range []string{"readers/*", "readers/.leasehold/ses_*", "readers/.leasehold/session-cookies/*", "sessions/*", "profiles/*", "session-cookies/*"} {
		found, err := filepath.Glob(filepath.Join(r.dir, pattern))
		if err != nil {
			r.t.Fatal(err)
		}
		for _, f := range found {
			if name := filepath.Base(f); name != ".leasehold" && name != ".unpacked" {
				names = append(names, f)
			}
		}
	}
	return names
}

func (r *reading) end(s api.Session) {
	r.t.Helper()
	if _, err := r.Release(r.t.Context(), s.SessionID, api.Release{Write: api.Write{Token: s.Token}, Outcome: "read"}); err != nil {
		r.t.Error(err)
	}
}

func codeOf(err error) string {
	var p *api.Problem
	if errors.As(err, &p) {
		return p.Code
	}
	return fmt.Sprint(err)
}

// A hundred read one profile at once, which another host's worker has: each from a copy of its
// own, of one fetch. What they write is gone with them, and the profile's record is as it was.
func TestAHundredRead(t *testing.T) {
	r := startReading(t, 100, func(o *Options) { o.Timing.TTL = time.Hour }) // nobody is silent for too long while the others start
	before := r.held()
	const readers = 100
	sessions := make([]api.Session, readers)
	var work sync.WaitGroup
	for i := range readers {
		work.Go(func() {
			patient := func(m *api.Manifest) { m.Wait = api.Duration(5 * time.Minute) }
			s, err := r.read(patient)
			for codeOf(err) == api.CodeStoreUnavailable { // a hundred programs start: a busy host may be too slow to answer
				s, err = r.read(patient)
			}
			if err != nil {
				t.Error(err)
			}
			sessions[i] = s
		})
	}
	work.Wait()
	if t.Failed() {
		return
	}
	living, paths := r.Sessions(), map[string]bool{}
	for _, s := range living {
		if !s.Ephemeral || !s.ReadOnly || s.ProfileID != "acct" || s.Token != 7 || s.SnapshotID != before.SnapshotID {
			t.Fatalf("%+v", s)
		}
		path := filepath.Join(r.dir, "readers", s.SessionID)
		state, err := os.ReadFile(filepath.Join(path, "Local State"))
		if err != nil || len(state) == 0 {
			t.Fatalf("%v", err)
		}
		if err := os.WriteFile(filepath.Join(path, "Local State"), []byte(s.SessionID), 0o600); err != nil {
			t.Fatal(err)
		}
		paths[path] = true
	}
	if len(living) != readers || len(paths) != readers {
		t.Fatalf("%d sessions on %d copies", len(living), len(paths))
	}
	for path := range paths { // none of them is another's
		if state, err := os.ReadFile(filepath.Join(path, "Local State")); err != nil || string(state) != filepath.Base(path) {
			t.Errorf("%s: %q, %v", path, state, err)
		}
	}
	if n := r.metric("leasehold_reader_fetches_total"); n != 1 {
		t.Errorf("%v fetches for %d readers", n, readers)
	}
	if _, err := r.read(nil); codeOf(err) != api.CodeHostFull {
		t.Errorf("one more: %v", err)
	}
	if use := r.host.Slots.Use(); use.Places != readers {
		t.Errorf("%d places", use.Places)
	}
	for _, s := range sessions {
		work.Go(func() { r.end(s) })
	}
	work.Wait()
	if left := r.left(); len(left) > 0 || len(r.Sessions()) > 0 || r.host.Slots.Use().Places > 0 {
		t.Errorf("left: %d sessions, %v", len(r.Sessions()), left)
	}
	after, err := r.o.Store.Get(t.Context(), "acct")
	if err != nil || after.Record.Token != before.Token || after.Record.Sequence != before.Sequence || after.Record.SessionID != "ses_there" || after.Record.LastKnownURL != "" {
		t.Errorf("%+v, %v", after.Record, err)
	}
	if s, err := r.Session(sessions[0].SessionID); err != nil || s.State != api.SessionEnded || !s.Ephemeral || !strings.Contains(s.Ended, "released") {
		t.Errorf("%+v, %v", s, err)
	}
}

// metric is the sum of a metric's values over its labels.
func (r *reading) metric(name string) (sum float64) {
	r.t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}
