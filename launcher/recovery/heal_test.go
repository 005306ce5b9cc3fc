package recovery_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"leasehold/checkpoint"
	"leasehold/internal/natsd"
	"leasehold/internal/signed"
	"leasehold/internal/test/fakechrome"
	"leasehold/internal/test/testkey"
	"leasehold/launcher/api"
	. "leasehold/launcher/recovery"
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
		{"newer, as after a grant", launcher, token + 1, false},
		{"much newer, as with an old floor", launcher, token + 5, true},
		{"older", launcher, token - 1, true},
		{"nothing", launcher, 0, true},
		{"older, nobody said whose", "", token - 1, true},
		{"older, another launcher's", "launcher-2", token - 1, false},
	} {
		kept := w.leases.record()
		kept.Home = tt.home
		w.must(w.lock.RaiseFloor(kept))
		if got, _, err := w.r.Forgot(lease.Record{ProfileID: profile, State: lease.Held, Token: tt.token}); got != tt.want || err != nil {
			t.Errorf("%s: %v, %v", tt.name, got, err)
		}
	}
	if got, _, err := w.r.Forgot(lease.Record{ProfileID: "never_used"}); got || err != nil {
		t.Errorf("never used: %v, %v", got, err)
	}
	w.must(os.WriteFile(filepath.Join(w.root.Dir(), ".leasehold", profile+".floor"), []byte("seven\n"), 0o600))
	if got, _, err := w.r.Forgot(w.leases.record()); !got || err != nil {
		t.Errorf("a damaged floor: %v, %v", got, err)
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
		{"forgotten altogether, it was free", steps1(free), func(w *world, _ lease.Record) { clear(w.leases.Records) }, lease.Available, token, 1, ""},
		{"forgotten altogether, it was in use", nil, func(w *world, _ lease.Record) { clear(w.leases.Records) }, lease.Quarantined, token + 1, 1, ""},
		{"an old copy, it was free", steps1(free), func(w *world, kept lease.Record) { w.old(kept) }, lease.Available, token, 1, ""},
		{"an old copy, it was in use", nil, func(w *world, kept lease.Record) { w.old(kept) }, lease.Quarantined, token + 1, 1, ""},
		{"nothing is forgotten", nil, func(*world, lease.Record) {}, lease.Held, token, 0, ""},
		{"somebody restated it meanwhile", nil, func(w *world, kept lease.Record) {
			w.old(kept)
			w.leases.Write = func(_, _ lease.Record, store func()) error {
				w.leases.Write = nil
				newer := kept.Clone()
				newer.Token = token + 1
				w.leases.Put(newer)
				return &lease.MovedError{Profile: profile}
			}
		}, lease.Held, token + 1, 0, ""},
		{"the store is away", nil, func(w *world, kept lease.Record) {
			w.old(kept)
			w.leases.Write = w.refusing(func(lease.Record) bool { return true })
		}, lease.Held, token - 1, 0, "the lease store forgot profile shop_018, token 7: " + lease.ErrUnavailable.Error()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.restate(tt.kept...)
			kept := w.leases.record()
			w.must(w.lock.RaiseFloor(kept))
			w.leases.Write = nil
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
	w.leases.Put(r)
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

// TestWhatCannotBeBelievedGoesToAPerson: whatever somebody did to a file that this host
// keeps of a profile, the profile is quarantined under a token above all that anybody
// names, and the recovery then takes it to a person, with a floor that is sealed again.
func TestWhatCannotBeBelievedGoesToAPerson(t *testing.T) {
	t.Parallel()
	free := func(r lease.Record) (lease.Record, error) {
		return r.Release(api.ReasonReleased, "succeeded", lease.Sealed{EvidenceID: "ev_1", SHA256: "5ha"}, time.Now())
	}
	// What the attacker of the security review wrote: a floor that says that the profile
	// is free.
	forged := `{"profile_id":"shop_018","state":"available","lease_token":50}`
	guard := func(w *world, kind string) string { return filepath.Join(w.root.Dir(), ".leasehold", profile+"."+kind) }
	write := func(w *world, kind, content string) { w.must(os.WriteFile(guard(w, kind), []byte(content), 0o600)) }
	for _, tt := range []struct {
		name   string
		damage func(w *world)
		token  lease.Token
		reason string
	}{
		{"the floor forged, as of a free profile", func(w *world) { write(w, "floor", "50\n"+forged+"\n") }, 51, lease.ReasonNotAuthentic},
		{"the floor of another profile", func(w *world) {
			write(w, "floor", string(testkey.Key.Sign(signed.Floor, "other", []byte("50\n"+forged+"\n"))))
		}, 51, lease.ReasonNotAuthentic},
		{"another file of the profile as its floor", func(w *world) {
			write(w, "floor", string(testkey.Key.Sign(signed.Browser, profile, []byte("50\n"+forged+"\n"))))
		}, 51, lease.ReasonNotAuthentic},
		{"the floor forged, with the highest number there is", func(w *world) { write(w, "floor", "18446744073709551615\n") }, token + 1, lease.ReasonNotAuthentic},
		{"the floor cut short", func(w *world) {
			b, err := os.ReadFile(guard(w, "floor"))
			w.must(err)
			write(w, "floor", string(b[:len(b)-9]))
		}, token + 1, lease.ReasonNotAuthentic},
		{"the floor empty", func(w *world) { write(w, "floor", "") }, token + 1, lease.ReasonNotAuthentic},
		{"the floor under a key that was lost", func(w *world) {
			write(w, "floor", string(signed.New([32]byte{1}).Sign(signed.Floor, profile, []byte("9\n"))))
		}, 10, lease.ReasonNotAuthentic},
		{"the floor forged, the store without a record", func(w *world) {
			write(w, "floor", "50\n")
			clear(w.leases.Records)
		}, 51, lease.ReasonNotAuthentic},
		{"the floor forged, the stream further on", func(w *world) {
			write(w, "floor", "50\n")
			w.leases.events = []lease.Event{{Token: 60, Sequence: 99}, {Token: 1 << 63, Sequence: 1}, {Token: 70}}
		}, 61, lease.ReasonNotAuthentic},
		{"an older floor put back", func(w *world) {
			earlier, err := os.ReadFile(guard(w, "floor"))
			w.must(err)
			w.restate(func(r lease.Record) (lease.Record, error) { r.Token += 4; return r, nil })
			w.must(w.lock.RaiseFloor(w.leases.record()), os.WriteFile(guard(w, "floor"), earlier, 0o600))
		}, token + 5, lease.ReasonRolledBack},
		{"the floor gone", func(w *world) { w.must(os.Remove(guard(w, "floor"))) }, token + 1, lease.ReasonRolledBack},
		{"the floor and the record put back to an older state, and not the profile store", func(w *world) {
			w.r = w.recoverer(func(o *Options) { o.Stored = func(string) lease.Token { return token + 1 } })
		}, token + 2, lease.ReasonRolledBack},
		{"the directory put back to an older state", func(w *world) {
			older := filepath.Join(w.t.TempDir(), "older")
			w.must(w.root.Store(profile), os.CopyFS(older, os.DirFS(w.path)), w.root.Store(profile))
			w.must(os.RemoveAll(w.path), os.CopyFS(w.path, os.DirFS(older)))
		}, token + 1, lease.ReasonRolledBack},
		{"the directory's mark forged", func(w *world) {
			w.must(w.root.Store(profile))
			write(w, "mark", "7\n")
		}, token + 1, lease.ReasonNotAuthentic},
		{"Chrome's lock of another host", func(w *world) { w.must(os.Symlink("elsewhere-7", filepath.Join(w.path, "SingletonLock"))) }, token + 1, lease.ReasonForeignLock},
		{"a browser's note forged", func(w *world) { write(w, "browser", `{"pid":1}`) }, token + 1, lease.ReasonNotAuthentic},
		{"cookies forged", func(w *world) {
			dir := filepath.Join(w.data, "session-cookies")
			w.must(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, profile+".json"), []byte("[]"), 0o600))
		}, token + 1, lease.ReasonNotAuthentic},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.restate(free)
			w.must(w.lock.RaiseFloor(w.leases.record()))
			w.leases.Write = nil
			tt.damage(w)
			if forgot, _, err := w.r.Forgot(w.recordOrNone()); !forgot || err != nil {
				t.Fatalf("it is believed: %v, %v", forgot, err)
			}
			got, err := w.r.Heal(t.Context(), profile)
			w.must(err)
			if got.State != lease.Quarantined || got.Reason != tt.reason || got.Token != tt.token || got.Home != launcher {
				t.Fatalf("%s because of %q under %d, home %q; want token %d because of %q", got.State, got.Reason, got.Token, got.Home, tt.token, tt.reason)
			}
			for _, e := range w.leases.events {
				if e.Token < lease.MaxClaim && got.Sequence <= e.Sequence {
					t.Errorf("sequence %d would not be published after %d", got.Sequence, e.Sequence)
				}
			}
			// As long as the files are as they are, this is not said again.
			if again, err := w.r.Heal(t.Context(), profile); err != nil || again.Token != got.Token {
				t.Errorf("healed again, under token %d: %v", again.Token, err)
			}
			// What the adopter does with a profile in quarantine.
			c := w.caseOf(Recover)
			c.File.SessionID, c.File.Reason = got.SessionID, got.Reason
			c.Sealed, c.Journal = nil, func() []checkpoint.Entry { return nil }
			_, err = w.r.Run(c)
			w.must(err, w.lock.ClearRunning())
			r := w.leases.record()
			if r.State != lease.ManualReview || r.Reason != tt.reason || r.Decision != lease.DecisionManualReview || r.EvidenceID == "" {
				t.Errorf("%s, decided %q because of %q, evidence %q", r.State, r.Decision, r.Reason, r.EvidenceID)
			}
			if floor, kept, err := w.root.Kept(profile); err != nil || floor != r.Token || kept.State != lease.ManualReview {
				t.Errorf("kept: %d, %s, %v", floor, kept.State, err)
			}
			if forgot, _, err := w.r.Forgot(r); forgot || err != nil {
				t.Errorf("after the decision: %v, %v", forgot, err)
			}
			counts := 1.0
			if tt.reason == lease.ReasonForeignLock { // of the launcher's own files, nothing is wrong
				counts = 0
			}
			if n := w.counted("leasehold_distrusted_total", tt.reason); n != counts {
				t.Errorf("%v are counted", n)
			}
			// After an approval it is as any other.
			w.restate(func(r lease.Record) (lease.Record, error) {
				return r.Reviewed(lease.Review{Decision: lease.ReviewApprove, Reviewer: "ann", TokenSeen: r.Token}, 0, time.Now())
			})
			if forgot, _, err := w.r.Forgot(w.leases.record()); forgot || err != nil {
				t.Errorf("after the approval: %v, %v", forgot, err)
			}
		})
	}
}

// recordOrNone is the profile's record, or one with nothing but its id.
func (w *world) recordOrNone() lease.Record {
	e, err := w.leases.Get(w.t.Context(), profile)
	if err != nil {
		return lease.Record{ProfileID: profile}
	}
	return e.Record
}

// TestWithTheStoreAwayNobodyGetsWhatCannotBeBelieved: it is refused with both reasons.
func TestWithTheStoreAwayNobodyGetsWhatCannotBeBelieved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must(os.WriteFile(filepath.Join(w.root.Dir(), ".leasehold", profile+".floor"), []byte("50\n"), 0o600))
	w.leases.Write = w.refusing(func(lease.Record) bool { return true })
	if _, err := w.r.Heal(t.Context(), profile); !errors.Is(err, lease.ErrUnavailable) || !errors.Is(err, signed.ErrNotAuthentic) {
		t.Errorf("%v", err)
	}
}

// TestADistrustIsKeptWhenTheStoreForgetsIt: the profile does not come out of it free.
func TestADistrustIsKeptWhenTheStoreForgetsIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.leases.Write = nil
	w.must(os.WriteFile(filepath.Join(w.root.Dir(), ".leasehold", profile+".floor"), []byte("50\n"), 0o600))
	got, err := w.r.Heal(t.Context(), profile)
	w.must(err, w.lock.Renew(got))
	clear(w.leases.Records)
	got, err = w.r.Heal(t.Context(), profile)
	if err != nil || got.State != lease.Quarantined || got.Reason != lease.ReasonNotAuthentic || got.Token != 52 {
		t.Errorf("%s because of %q under %d, %v", got.State, got.Reason, got.Token, err)
	}
}

// TestAHealedRecordIsAboveTheStream: its events would not be published below the last one
// that is on it.
func TestAHealedRecordIsAboveTheStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t) // the floor is token
	w.leases.Write = nil
	clear(w.leases.Records)
	w.leases.events = []lease.Event{{Token: token, Sequence: 4}, {Token: token + 1, Sequence: 9}} // a quarantine, of which the floor was not told
	got, err := w.r.Heal(t.Context(), profile)
	if err != nil || got.State != lease.Quarantined || got.Token != token+2 || got.Sequence <= 9 {
		t.Errorf("%s with token %d, sequence %d, %v", got.State, got.Token, got.Sequence, err)
	}
}

// TestTheFloorIsTheQuarantines, as soon as the profile is in quarantine: a store that
// forgets then offers no token that was used.
func TestTheFloorIsTheQuarantines(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.leases.Write = w.refusing(func(next lease.Record) bool { return next.State == lease.Inspected })
	if _, err := w.r.Run(w.caseOf(Recover)); !errors.Is(err, lease.ErrUnavailable) {
		t.Fatalf("error %v, want %v", err, lease.ErrUnavailable)
	}
	if floor, kept, err := w.root.Kept(profile); err != nil || floor != token+1 || kept.State != lease.Quarantined {
		t.Errorf("%d, %s, %v", floor, kept.State, err)
	}
}

func TestAQuarantineGoesAboveTheFloor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	kept := w.leases.record()
	kept.Token = 20
	w.must(w.lock.RaiseFloor(kept))
	if _, err := w.r.Run(w.caseOf(Recover)); err != nil {
		t.Fatal(err)
	}
	if r := w.leases.record(); r.Token != 21 {
		t.Errorf("token %d", r.Token)
	}
	if floor, err := w.root.Floor(profile); err != nil || floor != 21 {
		t.Errorf("floor %d, %v", floor, err)
	}
}
