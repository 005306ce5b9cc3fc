package natskv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"leasehold/internal/natsd"
	"leasehold/internal/test/leaks"
	"leasehold/lease"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// start runs a server for the test. Who speaks to it through inProcess or a proxy is a
// launcher.
func start(t *testing.T, dir string) *natsd.Server {
	t.Helper()
	s, err := natsd.Start(natsd.Options{Dir: dir, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	return s
}

func inProcess(t *testing.T, s *natsd.Server) *nats.Conn {
	t.Helper()
	nc, err := s.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func open(t *testing.T, nc *nats.Conn) *Store {
	t.Helper()
	return openWith(t, nc, Options{Log: zerolog.Nop(), LauncherID: "test"})
}

func openWith(t *testing.T, nc *nats.Conn, o Options) *Store {
	t.Helper()
	s, err := Open(patient(t), nc, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// lateAnswer is how long a store of a test waits for an answer before it asks again: on a busy host an
// answer may be late, and a server that deletes a stream may give none.
const lateAnswer = 10 * time.Second

// single returns a store on a server of its own.
func single(t *testing.T) *Store {
	t.Helper()
	return openWith(t, inProcess(t, start(t, t.TempDir())), Options{Log: zerolog.Nop(), LauncherID: "test", tryTime: lateAnswer})
}

// patient is a context for one call, which without a deadline would end after a few seconds: a busy
// machine may take longer.
func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

var t0 = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func granted(t *testing.T, e lease.Entry, task string) lease.Record {
	t.Helper()
	r, err := e.Record.Grant(lease.Request{SessionID: "s", WorkerID: "w", TaskID: task, LauncherID: "l", TTL: 30 * time.Second}, t0)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func none(profile string) lease.Entry { return lease.Entry{Record: lease.Record{ProfileID: profile}} }

func swapped(t *testing.T, s *Store, prev lease.Entry, next lease.Record) lease.Entry {
	t.Helper()
	e, err := s.Swap(patient(t), prev, next)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func flushed(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Flush(patient(t)); err != nil {
		t.Fatal(err)
	}
}

// wantHistory compares the events of the profile with want, where each stands as
// "name/token/sequence".
func wantHistory(t *testing.T, s *Store, profile string, want ...string) {
	t.Helper()
	events, err := s.History(patient(t), profile)
	if err != nil {
		t.Fatal(err)
	}
	got := []string{}
	for _, e := range events {
		got = append(got, fmt.Sprintf("%s/%d/%d", e.Event, e.Token, e.Sequence))
	}
	if !slices.Equal(got, want) {
		t.Errorf("history of %s:\n got %q\nwant %q", profile, got, want)
	}
}

func leaseSubject(key string) string { return "$KV." + Bucket + "." + key }

// bucketOf returns a bucket as the tool of an operator sees it.
func bucketOf(t *testing.T, s *Store, name string) jetstream.KeyValue {
	t.Helper()
	kv, err := s.leases.js.KeyValue(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return kv
}

// rawPut writes a record and publishes none of its events, as a launcher does that crashes
// right after the write.
func rawPut(t *testing.T, s *Store, r lease.Record) {
	t.Helper()
	if r.Nonce == "" {
		r.Nonce = "of a crashed launcher"
	}
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bucketOf(t, s, Bucket).Put(t.Context(), lease.Key(r.ProfileID), b); err != nil {
		t.Fatal(err)
	}
}

func TestSwapAndGet(t *testing.T) {
	s := single(t)
	ctx := t.Context()
	const p = "profile.us_018"
	if _, err := s.Get(ctx, p); !errors.Is(err, lease.ErrNotFound) || !strings.Contains(err.Error(), p) {
		t.Errorf("get of nothing: %v", err)
	}
	first := swapped(t, s, none(p), granted(t, none(p), "task_1"))
	if first.Revision == 0 || first.Record.Nonce == "" || first.Record.Token != 1 {
		t.Errorf("stored: %+v", first)
	}
	got, err := s.Get(ctx, p)
	if err != nil || got.Revision != first.Revision || got.Record.Nonce != first.Record.Nonce || got.Record.TaskID != "task_1" {
		t.Errorf("get: %+v, %v; want %+v", got, err, first)
	}
	second := swapped(t, s, first, first.Record)
	if second.Revision <= first.Revision || second.Record.Nonce == first.Record.Nonce {
		t.Errorf("second swap: %+v after %+v", second, first)
	}

	// Swaps over an entry that is not the current one.
	for name, prev := range map[string]lease.Entry{"older revision": first, "no record": none(p)} {
		_, err := s.Swap(ctx, prev, granted(t, none(p), "late"))
		var moved *lease.MovedError
		if !errors.As(err, &moved) || moved.Profile != p || moved.Current == nil || moved.Current.Revision != second.Revision || moved.Current.Record.Nonce != second.Record.Nonce {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A swap over a revision that the profile never had.
	_, err = s.Swap(ctx, lease.Entry{Record: lease.Record{ProfileID: "p2"}, Revision: 99}, granted(t, none("p2"), "x"))
	var moved *lease.MovedError
	if !errors.As(err, &moved) || moved.Current == nil || moved.Current.Revision != 0 || moved.Current.Record.ProfileID != "p2" {
		t.Errorf("a lost record: %v", err)
	}

	for name, err := range map[string]error{
		"get":      second2(s.Get(ctx, "..")),
		"swap":     second2(s.Swap(ctx, none("a b"), lease.Record{ProfileID: "a b"})),
		"other":    second2(s.Swap(ctx, second, granted(t, none("p3"), "x"))),
		"history":  second2(s.History(ctx, "a/b")),
		"announce": s.Announce(ctx, lease.Event{Event: lease.EventConflict}),
		"sequence": s.Announce(ctx, lease.Event{Event: lease.EventConflict, ProfileID: p, Sequence: 1}),
	} {
		if err == nil || errors.Is(err, lease.ErrUnavailable) || errors.Is(err, lease.ErrNotFound) {
			t.Errorf("%s: %v, want the argument refused", name, err)
		}
	}
}

func second2[T any](_ T, err error) error { return err }

func TestRecordTooLong(t *testing.T) {
	s := single(t)
	r := granted(t, none("p"), "t")
	r.SensitiveWords = []string{strings.Repeat("x", maxValue)} // more settings than anybody can set
	if _, err := s.Swap(patient(t), none("p"), r); err == nil || errors.Is(err, lease.ErrUnavailable) || !strings.Contains(err.Error(), "bytes") {
		t.Errorf("a record that is too long: %v", err)
	}
}

func TestList(t *testing.T) {
	s := single(t)
	if all, err := s.List(patient(t)); err != nil || all == nil || len(all) != 0 {
		t.Errorf("empty: %v, %v", all, err)
	}
	const n = 300 // more than a watcher buffers
	want := map[string]uint64{}
	for i := range n {
		p := "p." + strconv.Itoa(i)
		want[p] = swapped(t, s, none(p), granted(t, none(p), "t")).Revision
	}
	if err := bucketOf(t, s, Bucket).Delete(t.Context(), lease.Key("p.7")); err != nil {
		t.Fatal(err)
	}
	delete(want, "p.7")
	if _, err := bucketOf(t, s, Bucket).Put(t.Context(), "foreign", []byte("no record")); err != nil {
		t.Fatal(err)
	}
	all, err := s.List(patient(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if want[e.Record.ProfileID] != e.Revision {
			t.Errorf("%s: revision %d, want %d", e.Record.ProfileID, e.Revision, want[e.Record.ProfileID])
		}
		delete(want, e.Record.ProfileID)
	}
	if len(want) > 0 || len(all) != n-1 {
		t.Errorf("%d listed; missing: %v", len(all), want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.List(ctx); !errors.Is(err, lease.ErrUnavailable) {
		t.Errorf("canceled: %v", err)
	}
}

func TestRacingSwapsHaveOneWinner(t *testing.T) {
	srv := start(t, t.TempDir())
	stores := []*Store{open(t, inProcess(t, srv)), open(t, inProcess(t, srv)), open(t, inProcess(t, srv))}
	prev := none("p")
	for range 50 {
		var wg sync.WaitGroup
		won := make(chan lease.Entry, len(stores))
		for _, s := range stores {
			wg.Go(func() {
				next := prev.Record
				next.Token++
				switch e, err := s.Swap(patient(t), prev, next); {
				case err == nil:
					won <- e
				case !errors.As(err, new(*lease.MovedError)):
					t.Errorf("error %v, want a *lease.MovedError", err)
				}
			})
		}
		wg.Wait()
		if len(won) != 1 {
			t.Fatalf("%d winners", len(won))
		}
		prev = <-won
	}
}

func TestDeletedRecord(t *testing.T) {
	s := single(t)
	held := swapped(t, s, none("p"), granted(t, none("p"), "t"))
	if err := bucketOf(t, s, Bucket).Delete(t.Context(), "p"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(patient(t), "p"); !errors.Is(err, lease.ErrNotFound) {
		t.Errorf("get: %v", err)
	}
	// The holder learns that there is no record, and can write one.
	_, err := s.Swap(patient(t), held, held.Record)
	var moved *lease.MovedError
	if !errors.As(err, &moved) || moved.Current == nil || moved.Current.Revision != 0 || moved.Current.Record.ProfileID != "p" {
		t.Fatalf("renewal over a deleted record: %v", err)
	}
	lost, err := moved.Current.Record.Heal(held.Record, held.Record.Token, t0)
	if err != nil {
		t.Fatal(err)
	}
	e := swapped(t, s, *moved.Current, lost)
	if e.Revision <= held.Revision || e.Record.Token <= held.Record.Token {
		t.Errorf("over the marker: %+v", e)
	}
	flushed(t, s)
	wantHistory(t, s, "p", "granted/1/1", "quarantined/2/2", "expired/2/3")
}

// A client can have the server write an answer over a record. That is no record, and the
// one below it still counts.
func TestForeignValueIsNoRecord(t *testing.T) {
	s := single(t)
	held := swapped(t, s, none("p"), granted(t, none("p"), "t"))
	flushed(t, s)
	for _, subject := range []string{leaseSubject("p"), "leasehold.recovery.p.available"} {
		if err := s.nc.PublishRequest("$JS.API.INFO", subject, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	var top lease.Entry
	soon(t, func() (err error) {
		if top, err = s.Get(patient(t), "p"); err == nil && top.Revision <= held.Revision {
			return fmt.Errorf("revision %d, no answer of the server yet", top.Revision)
		}
		return err
	})
	if top.Record.Nonce != held.Record.Nonce {
		t.Errorf("get: %+v", top)
	}
	if all, err := s.List(patient(t)); err != nil || len(all) != 1 || all[0].Revision != top.Revision {
		t.Errorf("list: %v, %v", all, err)
	}
	_, err := s.Swap(patient(t), held, held.Record)
	var moved *lease.MovedError
	if !errors.As(err, &moved) || moved.Current == nil || moved.Current.Record.Nonce != held.Record.Nonce {
		t.Fatalf("renewal: %v", err)
	}
	released, err := moved.Current.Record.Release("done", "ok", lease.Sealed{}, t0)
	if err != nil {
		t.Fatal(err)
	}
	swapped(t, s, *moved.Current, released)
	flushed(t, s)
	wantHistory(t, s, "p", "granted/1/1", "released/1/2")

	// The bytes of an event are no record either.
	b, err := json.Marshal(released.Outbox[0])
	if _, ok := decodeRecord("p", b); err != nil || ok {
		t.Errorf("an event taken for a record (%v)", err)
	}
	// Where all values that are kept are foreign, a person has to repair the key.
	for range history + 1 {
		if _, err := bucketOf(t, s, Bucket).Put(t.Context(), "p", []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Get(patient(t), "p"); err == nil || errors.Is(err, lease.ErrNotFound) || errors.Is(err, lease.ErrUnavailable) || !strings.Contains(err.Error(), "hold nothing") {
		t.Errorf("nothing but foreign values: %v", err)
	}
}

func TestEventsOfTransitions(t *testing.T) {
	s := single(t)
	sub, err := s.nc.SubscribeSync("leasehold.>")
	if err != nil {
		t.Fatal(err)
	}
	prev := swapped(t, s, none("p.1"), granted(t, none("p.1"), "t"))
	suspected, err := prev.Record.Suspect("heartbeat_timeout", lease.Sealed{}, t0)
	if err != nil {
		t.Fatal(err)
	}
	prev = swapped(t, s, prev, suspected)
	if err := s.Announce(patient(t), lease.Event{Event: lease.EventConflict, ProfileID: "p.1", Token: 1, At: t0}); err != nil {
		t.Fatal(err)
	}
	flushed(t, s)
	quarantined, err := prev.Record.Quarantine(0, t0)
	if err != nil {
		t.Fatal(err)
	}
	prev = swapped(t, s, prev, quarantined)
	if len(prev.Record.Outbox) != 2 {
		t.Errorf("outbox: %d events, want the 2 that are not known to be published", len(prev.Record.Outbox))
	}
	flushed(t, s)
	if prev = swapped(t, s, prev, prev.Record); len(prev.Record.Outbox) != 0 {
		t.Errorf("outbox after everything was published: %v", prev.Record.Outbox)
	}
	wantHistory(t, s, "p.2")

	want := map[string][2]string{
		"leasehold.lease.p=2E1.granted":            {"p.1.1.1", "1"},
		"leasehold.recovery.p=2E1.suspected_stale": {"p.1.1.2", "1"},
		"leasehold.conflict.p=2E1":                 {"", "1"},
		"leasehold.recovery.p=2E1.quarantined":     {"p.1.2.3", "2"},
		"leasehold.lease.p=2E1.expired":            {"p.1.2.4", "2"},
	}
	for range len(want) {
		m, err := sub.NextMsg(30 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		w, ok := want[m.Subject]
		delete(want, m.Subject)
		msgID := m.Header.Get("Nats-Msg-Id")
		if !ok || m.Header.Get("Leasehold-Token") != w[1] || msgID == "" || w[0] != "" && msgID != w[0] {
			t.Errorf("message on %s: %v", m.Subject, m.Header)
		}
		var e lease.Event
		if err := json.Unmarshal(m.Data, &e); err != nil || e.ProfileID != "p.1" || e.Subject() != m.Subject {
			t.Errorf("event on %s: %s", m.Subject, m.Data)
		}
	}
	events, err := s.History(patient(t), "p.1")
	var names []string
	for _, e := range events {
		if e.Event != lease.EventConflict {
			names = append(names, e.Event)
		}
	}
	if err != nil || len(events) != 5 || !slices.Equal(names, []string{"granted", "suspected_stale", "quarantined", "expired"}) {
		t.Errorf("history: %v, %v", names, err)
	}
}

// A launcher that crashes between the swap and the publication leaves the events in the
// record. However many launchers publish them afterwards, each event appears once.
func TestOutboxOfACrashedLauncher(t *testing.T) {
	srv := start(t, t.TempDir())
	s := open(t, inProcess(t, srv))
	crashed := func(profile string) lease.Record {
		r := granted(t, none(profile), "t")
		r, err := r.Suspect("heartbeat_timeout", lease.Sealed{}, t0)
		if err != nil {
			t.Fatal(err)
		}
		if r, err = r.Quarantine(0, t0); err != nil {
			t.Fatal(err)
		}
		return r
	}
	flushed(t, s) // its publisher has read the outboxes once
	const n = 20
	for i := range n {
		r := crashed("p" + strconv.Itoa(i))
		rawPut(t, s, r)
		// Some had published their first events before.
		for _, e := range r.Outbox[:i%len(r.Outbox)] {
			b, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.events.js.Publish(t.Context(), e.Subject(), b); err != nil {
				t.Fatal(err)
			}
		}
	}
	var wg sync.WaitGroup
	for range 3 {
		other := open(t, inProcess(t, srv))
		wg.Go(func() { flushed(t, other) })
	}
	wg.Go(func() {
		s.pub.sweep()
		flushed(t, s)
	})
	wg.Wait()
	for i := range n {
		wantHistory(t, s, "p"+strconv.Itoa(i), "granted/1/1", "suspected_stale/1/2", "quarantined/2/3", "expired/2/4")
	}
	s.pub.sweep()
	flushed(t, s)
	wantHistory(t, s, "p0", "granted/1/1", "suspected_stale/1/2", "quarantined/2/3", "expired/2/4")
}

// Events that another launcher left unpublished while this one was away are published when
// this one is back.
func TestReconnectPublishesWhatOthersDidNot(t *testing.T) {
	srv := start(t, t.TempDir())
	p := startProxy(t, srv)
	s, admin := open(t, dialPlain(t, p.url())), inProcess(t, srv)
	flushed(t, s)
	changes := s.nc.StatusChanged(nats.RECONNECTING)
	mend := p.cut()
	<-changes
	r := granted(t, none("p"), "t")
	r.Nonce = "of a crashed launcher"
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	events, err := admin.SubscribeSync("leasehold.lease.p.granted")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Request(leaseSubject("p"), b, 30*time.Second); err != nil {
		t.Fatal(err)
	}
	mend()
	if _, err := events.NextMsg(30 * time.Second); err != nil {
		t.Errorf("the event of the record: %v", err)
	}
}

// A launcher comes back with events of which another launcher has published some meanwhile.
func TestLatePublisherAddsNothing(t *testing.T) {
	late := single(t)
	first := swapped(t, late, none("p"), granted(t, none("p"), "t"))
	flushed(t, late)
	released, err := first.Record.Release("done", "ok", lease.Sealed{}, t0)
	if err != nil {
		t.Fatal(err)
	}
	again := granted(t, lease.Entry{Record: released}, "t2")
	for _, e := range again.Outbox[1:] {
		// Without a message id, as if the server had forgotten it long ago.
		b, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := late.events.js.Publish(t.Context(), e.Subject(), b); err != nil {
			t.Fatal(err)
		}
	}
	for _, outbox := range [][]lease.Event{released.Outbox, again.Outbox} {
		late.pub.enqueue("p", outbox)
		flushed(t, late)
		wantHistory(t, late, "p", "granted/1/1", "released/1/2", "granted/2/3")
	}
}

func TestServerRestart(t *testing.T) {
	dir := t.TempDir()
	srv := start(t, dir)
	p := startProxy(t, srv)
	s := open(t, dialPlain(t, p.url()))
	held := swapped(t, s, none("p"), granted(t, none("p"), "t"))
	flushed(t, s)
	if err := s.Ping(t.Context()); err != nil || !s.nc.IsConnected() {
		t.Errorf("ping: %v", err)
	}
	away := s.nc.StatusChanged(nats.RECONNECTING)
	srv.Shutdown()
	<-away

	// A write that gives up while the server is away never takes effect. One that had no time to
	// try is made again with more.
	var short context.Context // of the last one; it is over after that
	limit := 150 * time.Millisecond
	soon(t, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		t.Cleanup(cancel)
		short, limit = ctx, 2*limit
		_, err := s.Swap(ctx, none("given_up"), granted(t, none("given_up"), "t"))
		if !errors.Is(err, lease.ErrUnavailable) {
			t.Errorf("swap without a server: %v", err)
		}
		if !errors.Is(err, nats.ErrReconnectBufExceeded) {
			return fmt.Errorf("swap without a server: %w", err)
		}
		return nil
	})
	for name, err := range map[string]error{
		"get": second2(s.Get(short, "p")), "list": second2(s.List(short)), "history": second2(s.History(short, "p")),
		"announce": s.Announce(short, lease.Event{Event: lease.EventConflict, ProfileID: "announced"}), "ping": s.Ping(short),
	} {
		if !errors.Is(err, lease.ErrUnavailable) {
			t.Errorf("%s without a server: %v", name, err)
		}
	}
	if s.nc.IsConnected() {
		t.Error("connected to nothing")
	}

	// A call that waits is carried out when the server is back, and its events follow.
	released, err := held.Record.Release("done", "ok", lease.Sealed{}, t0)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := s.Swap(patient(t), held, released)
		done <- err
	}()
	p.serve(start(t, dir))
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	flushed(t, s)
	wantHistory(t, s, "p", "granted/1/1", "released/1/2")
	wantHistory(t, s, "announced", "profile_lock_conflict/0/0")
	if _, err := s.Get(patient(t), "given_up"); !errors.Is(err, lease.ErrNotFound) {
		t.Errorf("the write that was given up: %v", err)
	}
}

func TestFlushSaysWhatIsNotPublished(t *testing.T) {
	srv := start(t, t.TempDir())
	p := startProxy(t, srv)
	s := open(t, dialPlain(t, p.url()))
	flushed(t, s)
	over, end := context.WithCancel(t.Context())
	end()
	for range 64 {
		if err := s.Flush(over); err != nil {
			t.Fatalf("all is published: %v", err)
		}
	}
	p.set(func(p *proxy) { p.loseRequest = times(-1, "leasehold.") })
	held := swapped(t, s, none("p"), granted(t, none("p"), "t"))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := s.Flush(ctx); !errors.Is(err, lease.ErrUnavailable) || !strings.Contains(err.Error(), "1 events") {
		t.Errorf("flush: %v", err)
	}
	s.Close() // it gives up after closeTime
	if len(held.Record.Outbox) != 1 {
		t.Fatalf("outbox: %v", held.Record.Outbox)
	}
	next := open(t, inProcess(t, srv))
	flushed(t, next)
	wantHistory(t, next, "p", "granted/1/1")
}

func TestUnansweredSwapIsSettled(t *testing.T) {
	for name, tt := range map[string]struct {
		lose func(p *proxy)
		// over says that another write follows the one whose answer is lost, before
		// its sender asks again.
		over bool
	}{
		"request lost":              {lose: func(p *proxy) { p.loseRequest = times(1, leaseSubject("")) }},
		"answer lost":               {lose: func(p *proxy) { p.loseAnswer = times(1, leaseSubject("")) }},
		"answer lost, written over": {lose: func(p *proxy) { p.loseAnswer = times(1, leaseSubject("")) }, over: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := start(t, t.TempDir())
			p := startProxy(t, srv)
			s, other := open(t, dialPlain(t, p.url())), open(t, inProcess(t, srv))
			before := swapped(t, s, none("p"), granted(t, none("p"), "t"))
			released, err := before.Record.Release("done", "ok", lease.Sealed{}, t0)
			if err != nil {
				t.Fatal(err)
			}
			p.set(tt.lose)
			var over lease.Entry
			if tt.over {
				p.set(func(p *proxy) {
					p.onLost = func() {
						// The write is stored by now, though its sender does not know.
						e, err := other.Get(patient(t), "p")
						if err == nil {
							over, err = other.Swap(patient(t), e, granted(t, e, "t2"))
						}
						if err != nil {
							t.Error(err)
						}
					}
				})
			}
			after := swapped(t, s, before, released)
			if p.lostCount() != 1 {
				t.Fatalf("the proxy lost %d, want 1", p.lostCount())
			}
			if after.Record.State != lease.Available || after.Revision != before.Revision+1 {
				t.Errorf("settled: %+v", after)
			}
			want := []string{"granted/1/1", "released/1/2"}
			if tt.over {
				want = append(want, "granted/2/3")
				var moved *lease.MovedError
				if _, err := s.Swap(patient(t), after, after.Record); !errors.As(err, &moved) || moved.Current == nil || moved.Current.Record.Nonce != over.Record.Nonce {
					t.Errorf("after the other write: %v", err)
				}
			}
			flushed(t, other)
			flushed(t, s)
			wantHistory(t, other, "p", want...)
		})
	}
}

// The bucket keeps only a number of writes of each key. If it dropped the write in question,
// Swap does not guess.
func TestUnansweredSwapThatWasDropped(t *testing.T) {
	for name, first := range map[string]bool{"first record": true, "later record": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := start(t, t.TempDir())
			p := startProxy(t, srv)
			s, other := open(t, dialPlain(t, p.url())), open(t, inProcess(t, srv))
			prev := none("p")
			if !first {
				prev = swapped(t, s, prev, granted(t, prev, "t"))
			}
			p.set(func(p *proxy) {
				p.loseAnswer = times(1, leaseSubject(""))
				p.onLost = func() {
					e, err := other.Get(patient(t), "p")
					for i := 0; err == nil && i < history; i++ {
						e, err = other.Swap(patient(t), e, e.Record)
					}
					if err != nil {
						t.Error(err)
					}
				}
			})
			next := prev.Record
			next.Token++
			if _, err := s.Swap(patient(t), prev, next); !errors.Is(err, lease.ErrUnavailable) || !errors.Is(err, errUntraceable) {
				t.Errorf("swap: %v", err)
			}
		})
	}
}

// A swap whose answer is lost, and whose time ends, is reported as unknown. Its event is
// published all the same.
func TestUnknownSwapKeepsItsEvent(t *testing.T) {
	srv := start(t, t.TempDir())
	p := startProxy(t, srv)
	s := open(t, dialPlain(t, p.url()))
	flushed(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	p.set(func(p *proxy) {
		p.loseAnswer = times(1, leaseSubject(""))
		p.onLost = cancel
	})
	if _, err := s.Swap(ctx, none("p"), granted(t, none("p"), "t")); !errors.Is(err, lease.ErrUnavailable) {
		t.Fatalf("swap: %v", err)
	}
	flushed(t, s)
	wantHistory(t, s, "p", "granted/1/1")
	// The record shows that it was stored.
	if e, err := s.Get(patient(t), "p"); err != nil || e.Record.State != lease.Held {
		t.Errorf("get: %+v, %v", e, err)
	}
}

func TestOpenRefusesDrift(t *testing.T) {
	for name, tt := range map[string]struct {
		change  func(bucket, events *jetstream.StreamConfig)
		setting string
	}{
		"ttl":           {func(b, _ *jetstream.StreamConfig) { b.MaxAge = time.Hour }, "max_age (TTL)"},
		"history":       {func(b, _ *jetstream.StreamConfig) { b.MaxMsgsPerSubject = 1 }, "max_msgs_per_subject (history)"},
		"max bytes":     {func(b, _ *jetstream.StreamConfig) { b.MaxBytes = 1 << 30 }, "max_bytes"},
		"value size":    {func(b, _ *jetstream.StreamConfig) { b.MaxMsgSize = 1000 }, "max_msg_size"},
		"direct":        {func(b, _ *jetstream.StreamConfig) { b.AllowDirect = false }, "allow_direct"},
		"memory":        {func(b, _ *jetstream.StreamConfig) { b.Storage = jetstream.MemoryStorage }, "storage"},
		"async":         {func(b, _ *jetstream.StreamConfig) { b.PersistMode = jetstream.AsyncPersistMode }, "persist_mode"},
		"key ttl":       {func(b, _ *jetstream.StreamConfig) { b.AllowMsgTTL = true }, "allow_msg_ttl"},
		"max messages":  {func(b, _ *jetstream.StreamConfig) { b.MaxMsgs = 10 }, "max_msgs"},
		"subjects":      {func(_, e *jetstream.StreamConfig) { e.Subjects = e.Subjects[1:] }, "subjects"},
		"window":        {func(_, e *jetstream.StreamConfig) { e.Duplicates = time.Second }, "duplicate_window"},
		"work queue":    {func(_, e *jetstream.StreamConfig) { e.Retention = jetstream.WorkQueuePolicy }, "retention"},
		"events memory": {func(_, e *jetstream.StreamConfig) { e.Storage = jetstream.MemoryStorage }, "storage"},
	} {
		t.Run(name, func(t *testing.T) {
			nc := inProcess(t, start(t, t.TempDir()))
			bucket, events := leasesConfig(), eventsConfig(0)
			tt.change(&bucket, &events)
			js, err := jetstream.New(nc)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range []jetstream.StreamConfig{bucket, events} {
				if _, err := js.CreateStream(t.Context(), c); err != nil {
					t.Fatal(err)
				}
			}
			_, err = Open(t.Context(), nc, Options{Log: zerolog.Nop()})
			var drift *DriftError
			if !errors.As(err, &drift) || drift.Setting != tt.setting || !strings.Contains(err.Error(), "leasehold_") {
				t.Errorf("open: %v, want drift of %s", err, tt.setting)
			}
		})
	}
}

// TestEventsAboutASiteAreNoneOfAProfile, even one with the site's name.
func TestEventsAboutASiteAreNoneOfAProfile(t *testing.T) {
	s := open(t, inProcess(t, start(t, t.TempDir())))
	prev := swapped(t, s, none("shop"), granted(t, none("shop"), "t"))
	flushed(t, s)
	changed := lease.Event{Event: lease.EventSiteChanged, Site: "shop", Revision: 7, Requests: 2, At: t0}
	if err := s.Announce(patient(t), changed); err != nil {
		t.Fatal(err)
	}
	next, err := prev.Record.Release("done", "ok", lease.Sealed{}, t0)
	if err != nil {
		t.Fatal(err)
	}
	swapped(t, s, prev, next)
	flushed(t, s)
	history, err := s.History(patient(t), "shop")
	if err != nil || slices.ContainsFunc(history, func(e lease.Event) bool { return e.Site != "" }) || len(history) < 2 {
		t.Errorf("%v, %+v", err, history)
	}
	page, err := s.EventsAfter(t.Context(), lease.Place{})
	if err != nil || !slices.ContainsFunc(page.Events, func(e lease.Published) bool { return e.Event.Site == "shop" && e.Kind() == "site" && e.Revision == 7 }) {
		t.Errorf("%v, %+v", err, page.Events)
	}
}

// TestEventsOfPersonsComeBetweenTransitions: they have subjects that look like those of
// transitions, and no place in their order. Each transition is on the stream once, whichever
// launcher publishes it.
func TestEventsOfPersonsComeBetweenTransitions(t *testing.T) {
	server := start(t, t.TempDir())
	one, other := open(t, inProcess(t, server)), open(t, inProcess(t, server))
	at := none("p")
	for i := range 6 {
		s := []*Store{one, other}[i/2%2]
		next, err := at.Record.Release("done", "ok", lease.Sealed{}, t0)
		if i%2 == 0 {
			next, err = granted(t, at, "t"), nil
		}
		if err != nil {
			t.Fatal(err)
		}
		at = swapped(t, s, at, next)
		flushed(t, s)
		person := lease.Event{Event: []string{lease.EventAsked, lease.EventTaken, lease.EventHandedBack}[i%3], ProfileID: "p", Token: at.Record.Token}
		if err := s.Announce(patient(t), person); err != nil {
			t.Fatal(err)
		}
	}
	other.pub.restart() // it forgets what was on the stream
	flushed(t, other)
	history, err := one.History(t.Context(), "p")
	if err != nil {
		t.Fatal(err)
	}
	var sequences []uint64
	persons := 0
	for _, e := range history {
		if e.Sequence > 0 {
			sequences = append(sequences, e.Sequence)
		} else {
			persons++
		}
	}
	for i, n := range sequences {
		if n != uint64(i+1) {
			t.Fatalf("the transitions on the stream are %v", sequences)
		}
	}
	if persons != 6 || len(sequences) != 6 {
		t.Errorf("%d events of persons, %d transitions", persons, len(sequences))
	}
}

func TestOpenHardensAndIsRepeatable(t *testing.T) {
	nc := inProcess(t, start(t, t.TempDir()))
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	// A bucket as other tools make it.
	kv, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: Bucket, History: 64})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		openWith(t, nc, Options{Log: zerolog.Nop(), tryTime: time.Minute})
		stream, err := js.Stream(t.Context(), "KV_"+Bucket)
		if err != nil {
			t.Fatal(err)
		}
		if c := stream.CachedInfo().Config; !c.DenyPurge || c.AllowRollup || !c.DenyDelete || c.MaxMsgsPerSubject != 64 {
			t.Errorf("bucket: %+v", c)
		}
		if err := stream.Purge(t.Context()); err == nil {
			t.Error("the bucket could be purged")
		}
		if err := kv.Purge(t.Context(), "p"); err == nil {
			t.Error("a record could be purged")
		}
	}
}

func TestOpenRefusesWhatCannotKeepLeases(t *testing.T) {
	srv := start(t, t.TempDir())
	buffering, err := srv.Connect(nats.ReconnectBufSize(1 << 20))
	if err != nil {
		t.Fatal(err)
	}
	defer buffering.Close()
	if _, err := Open(t.Context(), buffering, Options{Log: zerolog.Nop()}); err == nil || !strings.Contains(err.Error(), "ReconnectBufSize(-1)") {
		t.Errorf("a connection that keeps writes for later: %v", err)
	}
	if _, err := Open(t.Context(), inProcess(t, srv), Options{Replicas: 3, Log: zerolog.Nop()}); err == nil || !strings.Contains(err.Error(), "replicas") {
		t.Errorf("three replicas on one server: %v", err)
	}
	for version, ok := range map[string]bool{"2.15.2": true, "2.12.0": true, "3.0.0-beta.1": true, "2.11.9": false, "1.99.0": false, "": false, "x": false} {
		if err := checkVersion(version); (err == nil) != ok {
			t.Errorf("server version %q: %v", version, err)
		}
	}
}
