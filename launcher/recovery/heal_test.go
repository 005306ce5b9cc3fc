package recovery

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"leasehold/internal/natsd"
	"leasehold/internal/test/fakechrome"
	"leasehold/launcher/api"
	"leasehold/lease"
	"leasehold/lease/natskv"
)

// TestWhatTheStoreForgot is answered by the floor: for this launcher's own profiles.
func TestWhatTheStoreForgot(t *testing.T) {
	t.Parallel()
	w := newWorld(t) // the floor is token
	for _, tt := range []struct {
		name  string
		home  string // of the record that was kept
		token lease.Token
		want  bool
	}{
		{"as it is", launcher, token, false},
		{"newer", launcher, token + 5, false},
		{"older", launcher, token - 1, true},
		{"nothing", launcher, 0, true},
		{"older, nobody said whose", "", token - 1, true},
		{"older, another launcher's", "launcher-2", token - 1, false},
	} {
		kept := w.leases.record()
		kept.Home = tt.home
		w.must(w.lock.Keep(kept))
		if got, err := w.r.Forgot(lease.Record{ProfileID: profile, Token: tt.token}); got != tt.want || err != nil {
			t.Errorf("%s: %v, %v", tt.name, got, err)
		}
	}
	if got, err := w.r.Forgot(lease.Record{ProfileID: "never_used"}); got || err != nil {
		t.Errorf("never used: %v, %v", got, err)
	}
	w.must(os.WriteFile(filepath.Join(w.root.Dir(), ".leasehold", profile+".floor"), []byte("seven\n"), 0o600))
	if _, err := w.r.Forgot(w.leases.record()); err == nil {
		t.Error("a damaged floor is none")
	}
	if _, err := w.r.Heal(t.Context(), profile); err == nil || !strings.Contains(err.Error(), "token floor") {
		t.Errorf("healed by a damaged floor: %v", err)
	}
}

// TestHeal restates what the store forgot: what was free as it was, what was in use as
// quarantined, under a token that nobody had.
func TestHeal(t *testing.T) {
	t.Parallel()
	free := func(r lease.Record) (lease.Record, error) {
		return r.Release(api.ReasonReleased, "succeeded", lease.Sealed{EvidenceID: "ev_1", SHA256: "5ha"}, time.Now())
	}
	for _, tt := range []struct {
		name   string
		kept   []func(lease.Record) (lease.Record, error) // what happened to the session's record before it was kept
		stored func(w *world, kept lease.Record)
		state  lease.State
		token  lease.Token
		heals  float64
		err    string
	}{
		{"forgotten altogether, it was free", steps1(free), func(w *world, _ lease.Record) { clear(w.leases.entries) }, lease.Available, token, 1, ""},
		{"forgotten altogether, it was in use", nil, func(w *world, _ lease.Record) { clear(w.leases.entries) }, lease.Quarantined, token + 1, 1, ""},
		{"an old copy, it was free", steps1(free), func(w *world, kept lease.Record) { w.old(kept) }, lease.Available, token, 1, ""},
		{"an old copy, it was in use", nil, func(w *world, kept lease.Record) { w.old(kept) }, lease.Quarantined, token + 1, 1, ""},
		{"nothing is forgotten", nil, func(*world, lease.Record) {}, lease.Held, token, 0, ""},
		{"somebody restated it meanwhile", nil, func(w *world, kept lease.Record) {
			w.old(kept)
			w.leases.write = func(_, _ lease.Record, store func()) error {
				w.leases.write = nil
				newer := kept.Clone()
				newer.Token = token + 3
				w.leases.put(newer)
				return &lease.MovedError{Profile: profile}
			}
		}, lease.Held, token + 3, 0, ""},
		{"the store is away", nil, func(w *world, kept lease.Record) {
			w.old(kept)
			w.leases.write = w.refusing(func(lease.Record) bool { return true })
		}, lease.Held, token - 1, 0, "the lease store forgot profile shop_018, token 7: " + lease.ErrUnavailable.Error()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.restate(tt.kept...)
			kept := w.leases.record()
			w.must(w.lock.Keep(kept))
			w.leases.write = nil
			tt.stored(w, kept)
			got, err := w.r.Heal(t.Context(), profile)
			if (err == nil) != (tt.err == "") || err != nil && err.Error() != tt.err {
				t.Fatalf("%v, want %q", err, tt.err)
			}
			r := w.leases.record()
			if r.State != tt.state || r.Token != tt.token || err == nil && (got.State != r.State || got.Token != r.Token) {
				t.Errorf("stored as %s with %d, returned as %s with %d; want %s with %d", r.State, r.Token, got.State, got.Token, tt.state, tt.token)
			}
			if n := w.counted("leasehold_heals_total", ""); n != tt.heals {
				t.Errorf("%v heals are counted", n)
			}
			if tt.heals > 0 && (r.Home != launcher || r.AccountID != kept.AccountID || r.EvidenceID != kept.EvidenceID || r.Sequence <= kept.Sequence) {
				t.Errorf("%+v, of which was kept %+v", r, kept)
			}
			if quarantined := r.State == lease.Quarantined; quarantined != (r.Reason == lease.ReasonRecordLost) {
				t.Errorf("%s because of %q", r.State, r.Reason)
			}
		})
	}
}

func steps1(step func(lease.Record) (lease.Record, error)) []func(lease.Record) (lease.Record, error) {
	return []func(lease.Record) (lease.Record, error){step}
}

// old puts an earlier state of a record into the store.
func (w *world) old(r lease.Record) {
	r = r.Clone()
	r.Token, r.State, r.Sequence = r.Token-1, lease.Held, r.Sequence-1
	w.leases.put(r)
}

// TestARecoveryOnTheRealStore is what a subscriber of the events sees of it.
func TestARecoveryOnTheRealStore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
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
	store, err := natskv.Open(t.Context(), nc, natskv.Options{Log: zerolog.Nop(), LauncherID: launcher})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	granted, err := lease.Record{ProfileID: profile, Token: token - 1}.Grant(lease.Request{SessionID: session, LauncherID: launcher, TTL: time.Minute}, time.Now())
	w.must(err)
	if _, err := store.Swap(t.Context(), lease.Entry{Record: lease.Record{ProfileID: profile}}, granted); err != nil {
		t.Fatal(err)
	}
	w.open(fakechrome.Script{})
	e, err := w.recoverer(func(o *Options) { o.Store = store }).Run(w.caseOf(Recover))
	if err != nil || e.How != "lost (connection_lost), recovered: release" {
		t.Fatalf("%+v, %v", e, err)
	}
	w.must(store.Flush(t.Context()))
	events, err := store.History(t.Context(), profile)
	w.must(err)
	var names []string
	for i, event := range events {
		names = append(names, event.Event)
		if event.Sequence != uint64(i+1) || i > 0 && event.EvidenceID != e.File.Evidence.EvidenceID {
			t.Errorf("event %d: %+v", i+1, event)
		}
	}
	if want := []string{"granted", "suspected_stale", "quarantined", "expired", "inspected", "available"}; !slices.Equal(names, want) {
		t.Errorf("a subscriber sees %v, want %v", names, want)
	}
}
