package recovery_test

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

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"leasehold/internal/natsd"
	"leasehold/internal/test/fakechrome"
	"leasehold/internal/test/testkey"
	"leasehold/launcher/api"
	. "leasehold/launcher/recovery"
	"leasehold/launcher/recovery/table"
	"leasehold/launcher/roster"
	"leasehold/lease"
	"leasehold/lease/natskv"
)

// remembers gives the world a recoverer whose launcher has seen the records.
func (w *world) remembers(seen ...lease.Record) {
	w.t.Helper()
	r := w.rosterOf(seen...)
	w.r = w.recoverer(func(o *Options) { o.Roster = r })
}

// rosterOf is the roster of a launcher that has seen these records.
func (w *world) rosterOf(seen ...lease.Record) *roster.Roster {
	w.t.Helper()
	r, err := roster.Open(roster.Options{DataDir: w.data, Key: testkey.Key, Log: zerolog.Nop()})
	w.must(err)
	for _, rec := range seen {
		r.See(rec)
	}
	return r
}

// TestRestating is what a launcher says in the store of a profile that it remembers, and
// when it says nothing.
func TestRestating(t *testing.T) {
	t.Parallel()
	far := lease.Record{ProfileID: profile, State: lease.Available, Home: "far", Token: 5, AccountID: "store_18", ProxyID: "px"}
	anew := lease.Record{ProfileID: profile, State: lease.Available, Home: "nearby", Token: 1}
	older := far
	older.Token = 4
	mine := lease.Record{ProfileID: profile, State: lease.Available, Home: launcher, Token: token}
	for name, tt := range map[string]struct {
		seen   lease.Record
		kept   bool // by this launcher as the home, as world has it
		stored lease.Record
		want   lease.Record
	}{
		"it agrees":                    {far, false, far, far},
		"nothing is remembered":        {lease.Record{}, false, anew, anew},
		"forgotten altogether":         {far, false, lease.Record{}, lease.Record{State: lease.Quarantined, Home: "far", Token: 9, RememberedBy: launcher, Reason: lease.ReasonRecordLost}},
		"an older copy":                {far, false, older, lease.Record{State: lease.Quarantined, Home: "far", Token: 9, RememberedBy: launcher, Reason: lease.ReasonRecordLost}},
		"made anew":                    {far, false, anew, lease.Record{State: lease.Quarantined, Home: "far", OtherHome: "nearby", HomeToken: 10, Token: 10, Reason: lease.ReasonContested}},
		"its own, forgotten":           {mine, true, lease.Record{}, lease.Record{}},
		"its own, made anew":           {lease.Record{}, true, anew, lease.Record{State: lease.Quarantined, Home: launcher, OtherHome: "nearby", HomeToken: 10, Token: 10, Reason: lease.ReasonContested}},
		"its own, made anew, and seen": {mine, true, anew, lease.Record{State: lease.Quarantined, Home: launcher, OtherHome: "nearby", HomeToken: 10, Token: 10, Reason: lease.ReasonContested}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.leases.Write = nil
			if !tt.kept {
				w.must(os.Remove(filepath.Join(w.root.Dir(), ".leasehold", profile+".floor")))
			}
			w.remembers(tt.seen)
			clear(w.leases.Records)
			if tt.stored.State != "" {
				w.leases.Put(tt.stored)
			}
			w.leases.events = []lease.Event{{Token: 9, Sequence: 33}}
			for range 2 { // once is enough
				w.must(w.r.Restate(t.Context(), profile))
			}
			got := w.recordOrNone()
			if got.State != tt.want.State || got.Home != tt.want.Home || got.OtherHome != tt.want.OtherHome || got.Token != tt.want.Token || got.HomeToken != tt.want.HomeToken ||
				got.RememberedBy != tt.want.RememberedBy || got.Reason != tt.want.Reason {
				t.Errorf("%+v, want %+v", got, tt.want)
			}
			if changed := got.State == lease.Quarantined; changed && got.Sequence <= 33 {
				t.Errorf("sequence %d would not be published", got.Sequence)
			}
			if tt.kept && got.OtherHome != "" && got.AccountID != "store_18" {
				t.Errorf("what its home kept is not in it: %+v", got)
			}
			if got.RememberedBy != "" && (got.AccountID != "store_18" || got.ProxyID != "px") {
				t.Errorf("it lost its account or proxy: %+v", got)
			}
		})
	}
}

// TestTheRosterIsAFloor: what a launcher saw of its own profiles counts where neither the
// store nor the disk says it.
func TestTheRosterIsAFloor(t *testing.T) {
	t.Parallel()
	of := func(state lease.State, t lease.Token) lease.Record {
		return lease.Record{ProfileID: profile, State: state, Home: launcher, Token: t, AccountID: "store_18", ProxyID: "px", Sequence: 70}
	}
	for name, tt := range map[string]struct {
		floor  bool // it is there, and says token
		seen   lease.Record
		state  lease.State
		token  lease.Token
		reason string
	}{
		"never had a lease":                        {false, of(lease.Available, 0), lease.Available, 0, ""},
		"granted, and killed before the floor":     {false, of(lease.Held, 1), lease.Quarantined, 2, lease.ReasonRecordLost},
		"the floor is gone, and the record, too":   {false, of(lease.Available, 9), lease.Quarantined, 10, lease.ReasonRolledBack},
		"an old floor, and no record":              {true, of(lease.Available, token+5), lease.Quarantined, token + 6, lease.ReasonRolledBack},
		"a token was granted that the floor lacks": {true, of(lease.Held, token+1), lease.Quarantined, token + 2, lease.ReasonRecordLost},
		"as far above the floor as a crash leaves": {true, of(lease.Held, token+lease.FloorLag), lease.Quarantined, token + lease.FloorLag + 1, lease.ReasonRecordLost},
		"one further":             {true, of(lease.Held, token+lease.FloorLag+1), lease.Quarantined, token + lease.FloorLag + 2, lease.ReasonRolledBack},
		"the floor says the same": {true, of(lease.Held, token), lease.Quarantined, token + 1, lease.ReasonRecordLost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.leases.Write = nil
			if !tt.floor {
				w.must(os.Remove(filepath.Join(w.root.Dir(), ".leasehold", profile+".floor")))
			}
			w.remembers(tt.seen)
			clear(w.leases.Records)
			shown, ok := w.r.Forgotten(lease.Record{ProfileID: profile})
			if !ok || shown.State != tt.state || shown.Token != tt.token || shown.Reason != tt.reason {
				t.Errorf("shown as %s with token %d because of %q", shown.State, shown.Token, shown.Reason)
			}
			got, err := w.r.Heal(t.Context(), profile)
			if err != nil || got.State != tt.state || got.Token != tt.token || got.Reason != tt.reason || got.AccountID != "store_18" || !tt.floor && got.ProxyID != "px" {
				t.Errorf("%+v, %v", got, err)
			}
			if shown.Sequence <= 70 || got.Sequence <= 70 {
				t.Errorf("the events get numbers that were used: %d, %d", shown.Sequence, got.Sequence)
			}
		})
	}
}

// TestWhatNobodyProvedIsNeitherStatedNorAFloor: a roster that was damaged names profiles. The
// store is not told of them, and no token is raised for them.
func TestWhatNobodyProvedIsNeitherStatedNorAFloor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.leases.Write = nil
	w.must(os.WriteFile(filepath.Join(w.data, "roster"), fmt.Appendf(nil, "00 {\"profile_id\":%q,\"home\":%q,\"lease_token\":50,\"state\":\"held\"}\n00 {\"profile_id\":\"other\",\"home\":\"far\",\"lease_token\":50,\"state\":\"held\"}\n", profile, launcher), 0o600))
	w.remembers()
	if k := w.r.Remembers("other"); !k.Unproved {
		t.Fatalf("%+v", k)
	}
	w.must(w.r.Restate(t.Context(), "other"))
	if _, err := w.leases.Get(t.Context(), "other"); !errors.Is(err, lease.ErrNotFound) {
		t.Errorf("stated: %v", err)
	}
	clear(w.leases.Records)
	if got, err := w.r.Heal(t.Context(), profile); err != nil || got.Token != token+1 || got.Reason != lease.ReasonRecordLost {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestAContestedSessionStopsAtOnce: somebody else is the home while it ends. Its browser is
// closed, after its evidence, and the record is left to that one.
func TestAContestedSessionStopsAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.leases.Write = nil
	w.open(fakechrome.Script{})
	w.restate(func(r lease.Record) (lease.Record, error) {
		return r.Contest(lease.Known{ProfileID: profile, Home: "far", Token: 20}, lease.Record{}, 0, 0, time.Now())
	})
	contested := w.leases.record()
	e, err := w.r.Run(w.caseOf(Recover))
	if err != nil || e.File.Evidence.EvidenceID == "" || !w.gone() {
		t.Errorf("%+v, %v; gone: %v", e, err, w.gone())
	}
	if r := w.leases.record(); r.State != contested.State || r.Token != contested.Token || r.Home != "far" {
		t.Errorf("%+v", r)
	}
	if floor, kept, err := w.root.Kept(profile); err != nil || floor != token || kept.Home != launcher {
		t.Errorf("kept: %d of %s, %v", floor, kept.Home, err)
	}
}

// TestAContestGoesToAPerson, although the profile is in order and nothing was done with it.
func TestAContestGoesToAPerson(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.tidy()
	w.restate(func(r lease.Record) (lease.Record, error) {
		anew := lease.Record{ProfileID: profile, State: lease.Held, Home: "nearby", Token: 1, Sequence: 1}
		return anew.Contest(r.Known(), r, 0, 0, time.Now())
	})
	c := w.caseOf(Recover)
	c.File.Reason = lease.ReasonContested
	if _, err := w.r.Run(c); err != nil {
		t.Fatal(err)
	}
	if r := w.leases.record(); r.State != lease.ManualReview || r.Reason != lease.ReasonContested || r.OtherHome != "nearby" || r.Home != launcher {
		t.Errorf("%+v", r)
	}
	i, err := w.r.Inspection(w.leases.record())
	w.must(err)
	flag := slices.IndexFunc(i.Facts, func(f api.Fact) bool { return f.Name == table.ReviewFlag })
	if f := i.Facts[flag]; f.Answer != "yes" || !strings.Contains(f.How, launcher) || !strings.Contains(f.How, "nearby") {
		t.Errorf("why: %+v", f)
	}
}

// realStore is a lease store on a NATS server of the test's own.
func realStore(t *testing.T) (*natskv.Store, *nats.Conn, jetstream.JetStream) {
	t.Helper()
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
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return openStore(t, nc), nc, js
}

func openStore(t *testing.T, nc *nats.Conn) *natskv.Store {
	t.Helper()
	store, err := natskv.Open(t.Context(), nc, natskv.Options{Log: zerolog.Nop(), LauncherID: launcher})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store
}

// losing is a store whose bucket of records is lost before a record is stored in a state.
type losing struct {
	lease.Store
	js jetstream.JetStream
	at lease.State
}

func (l *losing) Swap(ctx context.Context, prev lease.Entry, next lease.Record) (lease.Entry, error) {
	if next.State == l.at {
		l.at = ""
		if err := l.js.DeleteStream(ctx, "KV_leasehold_leases"); err != nil {
			return lease.Entry{}, err
		}
	}
	return l.Store.Swap(ctx, prev, next)
}

// TestABucketLostDuringARecovery: it is deleted, alone, before each of the steps. Nobody is
// shown a profile that is free before it was inspected, and the recovery that is made up
// for it comes to the same end, each of its transitions published once and in order.
func TestABucketLostDuringARecovery(t *testing.T) {
	t.Parallel()
	for _, at := range []lease.State{lease.SuspectedStale, lease.Quarantined, lease.Inspected, lease.ManualReview} {
		t.Run(string(at), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			store, _, js := realStore(t)
			granted, err := lease.Record{ProfileID: profile, Token: token - 1, Home: launcher}.Grant(lease.Request{SessionID: session, LauncherID: launcher, TTL: time.Minute}, time.Now())
			w.must(err)
			stored, err := store.Swap(t.Context(), lease.Entry{Record: lease.Record{ProfileID: profile}}, granted)
			w.must(err, w.lock.RaiseFloor(stored.Record), store.Flush(t.Context()))
			w.wrote = true // so a person decides
			w.r = w.recoverer(func(o *Options) { o.Store = &losing{Store: store, js: js, at: at} })
			c := w.caseOf(Recover)
			c.File.Reason = api.ReasonNotClosed
			_, first := w.r.Run(c)
			if shown, ok := w.r.Forgotten(lease.Record{ProfileID: profile}); ok && shown.State.Free() {
				t.Errorf("shown as %s", shown.State)
			}
			// What the patrol has done, once it sees that there is no record.
			e, err := store.Get(t.Context(), profile)
			if err != nil && !errors.Is(err, lease.ErrNotFound) {
				t.Fatal(err)
			}
			if e.Record.State.Free() && e.Record.State != "" {
				t.Fatalf("%+v after %v", e.Record, first)
			}
			e.Record.ProfileID = profile
			if forgot, _, err := w.r.Forgot(e.Record); !forgot || err != nil {
				t.Fatalf("nobody goes on: %v, %v", forgot, err)
			}
			healed, err := w.r.Heal(t.Context(), profile)
			w.must(err)
			if healed.State != lease.Quarantined || healed.Token <= token {
				t.Fatalf("%+v", healed)
			}
			c = w.caseOf(Recover)
			c.File.Reason = api.ReasonNotClosed
			_, err = w.r.Run(c)
			w.must(err, store.Flush(t.Context()))
			end, err := store.Get(t.Context(), profile)
			w.must(err)
			if end.Record.State.Free() && end.Record.EvidenceID == "" || end.Record.Unfinished() {
				t.Errorf("%+v", end.Record)
			}
			events, err := store.History(t.Context(), profile)
			w.must(err)
			var last lease.Event
			for _, e := range events {
				if e.Token < last.Token || e.Token == last.Token && e.Sequence <= last.Sequence || e.Sequence != last.Sequence+1 {
					t.Errorf("event %s (%d, %d) after %s (%d, %d)", e.Event, e.Token, e.Sequence, last.Event, last.Token, last.Sequence)
				}
				last = e
			}
			if last.Sequence != end.Record.Sequence {
				t.Errorf("the last event is %d, of %d", last.Sequence, end.Record.Sequence)
			}
		})
	}
}

// TestAnOutboxSurvivesItsBucket: a launcher is killed after it stored a transition, before
// its event was published, and the bucket is lost, too. The home's own copy has the event.
func TestAnOutboxSurvivesItsBucket(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	store, nc, js := realStore(t)
	granted, err := lease.Record{ProfileID: profile, Token: token - 1, Home: launcher}.Grant(lease.Request{SessionID: session, LauncherID: launcher, TTL: time.Minute}, time.Now())
	w.must(err)
	granted.Nonce = "of a launcher that was killed"
	b, err := json.Marshal(granted)
	w.must(err)
	store.Close()
	_, err = js.Publish(t.Context(), "$KV.leasehold_leases."+profile, b)
	w.must(err, w.lock.RaiseFloor(granted), js.DeleteStream(t.Context(), "KV_leasehold_leases"))
	store = openStore(t, nc)
	w.r = w.recoverer(func(o *Options) { o.Store = store })
	_, err = w.r.Heal(t.Context(), profile)
	w.must(err, store.Flush(t.Context()))
	events, err := store.History(t.Context(), profile)
	w.must(err)
	if len(events) != 3 || events[0].Event != lease.EventGranted || events[0].Token != token || events[1].Event != "quarantined" {
		t.Errorf("%+v", events)
	}
}
