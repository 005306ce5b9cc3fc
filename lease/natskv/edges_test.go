package natskv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"leasehold/lease"
)

// TestALostRequestIsNotWhatAnotherWrote: the request never came to the server, and before
// it is sent again another launcher writes over the same revision. That write is not taken
// for the one without an answer.
func TestALostRequestIsNotWhatAnotherWrote(t *testing.T) {
	t.Parallel()
	srv := start(t, t.TempDir())
	p := startProxy(t, srv)
	s, other := open(t, dialPlain(t, p.url())), open(t, inProcess(t, srv))
	held := swapped(t, s, none("p"), granted(t, none("p"), "t"))
	first := times(1, leaseSubject(""))
	wrote := make(chan lease.Entry, 1)
	p.set(func(p *proxy) {
		p.loseRequest = func(subject string) bool {
			if !first(subject) {
				return false
			}
			// Before the first one can send its request again.
			suspected, err := held.Record.Suspect("lease_expired", lease.Sealed{}, t0)
			if err == nil {
				var e lease.Entry
				e, err = other.Swap(patient(t), held, suspected)
				wrote <- e
			}
			if err != nil {
				t.Error(err)
			}
			return true
		}
	})
	_, err := s.Swap(patient(t), held, released(t, held))
	var moved *lease.MovedError
	if want := <-wrote; !errors.As(err, &moved) || moved.Current == nil || moved.Current.Record.Nonce != want.Record.Nonce || moved.Current.Record.State != lease.SuspectedStale {
		t.Errorf("%v, want the other's write", err)
	}
}

// TestAValueIsOfItsKey: the record of one profile is none of another, and what has no nonce
// was written by no launcher.
func TestAValueIsOfItsKey(t *testing.T) {
	t.Parallel()
	value := func(v any) []byte {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	record, presence := lease.Record{ProfileID: "p.1", Nonce: "n"}, lease.Presence{LauncherID: "l.1", Nonce: "n"}
	for key, want := range map[string]bool{"p=2E1": true, "p": false, "p.1": false, "q": false} {
		if _, ok := decodeRecord(key, value(record)); ok != want {
			t.Errorf("a record under %s: %v", key, ok)
		}
	}
	for key, want := range map[string]bool{"l=2E1": true, "l": false, "m": false} {
		if _, ok := decodePresence(key, value(presence)); ok != want {
			t.Errorf("a presence under %s: %v", key, ok)
		}
	}
	record.Nonce, presence.Nonce = "", ""
	_, ok1 := decodeRecord("p=2E1", value(record))
	if _, ok2 := decodePresence("l=2E1", value(presence)); ok1 || ok2 {
		t.Errorf("without a nonce: %v, %v", ok1, ok2)
	}
}

// TestADeletedRecordDoesNotComeBack when something foreign is written over its marker.
func TestADeletedRecordDoesNotComeBack(t *testing.T) {
	t.Parallel()
	s := single(t)
	swapped(t, s, none("p"), granted(t, none("p"), "t"))
	kv := bucketOf(t, s, Bucket)
	if err := kv.Delete(t.Context(), "p"); err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Put(t.Context(), "p", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if e, err := s.Get(patient(t), "p"); err == nil || !strings.Contains(err.Error(), "hold nothing") {
		t.Errorf("%+v, %v", e, err)
	}
}

// TestALossIsCountedOnce: what was seen before it says nothing of the stream after it, and a
// doubt that was settled begins anew.
func TestALossIsCountedOnce(t *testing.T) {
	t.Parallel()
	made := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	info := func(created time.Time, replicas int, last uint64) *jetstream.StreamInfo {
		return &jetstream.StreamInfo{Created: created, Config: jetstream.StreamConfig{Replicas: replicas}, State: jetstream.StreamState{LastSeq: last}}
	}
	st := &stream{}
	for i, answer := range []*jetstream.StreamInfo{info(made, 1, 9), info(made, 1, 4), info(made, 1, 4), info(made.Add(1), 1, 0), info(made.Add(1), 1, 0)} {
		lost := st.compare(answer, st.highestSeen(), made)
		if want := i == 1 || i == 3; lost != want || st.highestSeen() != answer.State.LastSeq {
			t.Errorf("answer %d: lost %v, and seen up to %d", i, lost, st.highestSeen())
		}
	}
	st = &stream{}
	now := made
	for i, last := range []uint64{9, 8, 9, 8, 8} { // two doubts, each shorter than the time that counts
		if st.compare(info(made, 3, last), st.highestSeen(), now) {
			t.Errorf("answer %d is a loss", i)
		}
		now = now.Add(doubtTime * 2 / 3)
	}
}

// TestARecordKeepsItsKey: a store that was made anew uses revisions again, so that the record
// of one profile may stand at the revision that another one had. Nothing that was read of the
// one is written over the other. The same holds for the presences of launchers.
func TestARecordKeepsItsKey(t *testing.T) {
	t.Parallel()
	s := single(t)
	ctx := t.Context()
	p := swapped(t, s, none("p"), granted(t, none("p"), "t"))
	l, err := s.SwapPresence(ctx, lease.PresenceEntry{}, lease.Presence{LauncherID: "l"})
	if err != nil {
		t.Fatal(err)
	}
	deleteStream(t, s.leases.stream)
	deleteStream(t, s.hosts.stream)
	q := swapped(t, s, none("q"), granted(t, none("q"), "t"))
	m, err := s.SwapPresence(ctx, lease.PresenceEntry{}, lease.Presence{LauncherID: "m"})
	if err != nil {
		t.Fatal(err)
	}
	if q.Revision != p.Revision || m.Revision != l.Revision {
		t.Fatalf("revisions %d and %d, before %d and %d", q.Revision, m.Revision, p.Revision, l.Revision)
	}
	if e, err := s.Swap(ctx, p, released(t, q)); err == nil || !strings.Contains(err.Error(), "cannot replace the record of p") {
		t.Errorf("over p's record, stored as q's: %+v, %v", e, err)
	}
	if e, err := s.SwapPresence(ctx, l, lease.Presence{LauncherID: "m"}); err == nil || !strings.Contains(err.Error(), "cannot replace the one of l") {
		t.Errorf("over l's presence, stored as m's: %+v, %v", e, err)
	}
	now, err := s.Get(ctx, "q")
	there, err2 := s.Presence(ctx, "m")
	if err = errors.Join(err, err2); err != nil || now.Record.Nonce != q.Record.Nonce || there.Presence.Nonce != m.Presence.Nonce {
		t.Errorf("%+v, %+v, %v", now, there, err)
	}
}

// TestAnOutboxKeepsWhatWaits: while the event stream takes nothing, each transition leaves the
// events before it in the record, so that they outlive a launcher that crashes.
func TestAnOutboxKeepsWhatWaits(t *testing.T) {
	t.Parallel()
	srv := start(t, t.TempDir())
	p := startProxy(t, srv)
	s := open(t, dialPlain(t, p.url()))
	flushed(t, s)
	p.set(func(p *proxy) { p.loseRequest = times(-1, "leasehold.") })
	held := swapped(t, s, none("p"), granted(t, none("p"), "t"))
	swapped(t, s, held, released(t, held))
	next := open(t, inProcess(t, srv))
	flushed(t, next)
	wantHistory(t, next, "p", "granted/1/1", "released/1/2")
	p.set(func(p *proxy) { p.loseRequest = times(0, "") })
}

// TestAReplicaThatIsBehindIsAskedAgain: a server of a cluster may put a reader on a replica that does
// not have what is on the stream already. Here it says that there is nothing.
func TestAReplicaThatIsBehindIsAskedAgain(t *testing.T) {
	t.Parallel()
	srv := start(t, t.TempDir())
	p := startProxy(t, srv)
	s := open(t, dialPlain(t, p.url()))
	held := swapped(t, s, none("p"), granted(t, none("p"), "t"))
	swapped(t, s, held, released(t, held))
	flushed(t, s)
	behind := 2
	p.set(func(p *proxy) {
		p.forge = func(subject string) string {
			if !strings.HasPrefix(subject, "$JS.API.CONSUMER.CREATE."+Stream+".") || behind == 0 {
				return ""
			}
			behind--
			return fmt.Sprintf(`{"type":"io.nats.jetstream.api.v1.consumer_create_response","stream_name":%q,"name":"behind","config":{"ack_policy":"none","filter_subjects":["a","b","c"]},"num_pending":0}`, Stream)
		}
	})
	wantHistory(t, s, "p", "granted/1/1", "released/1/2")
	p.set(func(p *proxy) {
		if behind != 0 {
			t.Errorf("the replica that is behind was asked %d times too few", behind)
		}
	})
}

// TestNothingIsMissingWhereAReplicaIsBehind: a watch whose reader is on such a replica does not say that
// it has shown everything. A launcher would take for lost what the replica does not have.
func TestNothingIsMissingWhereAReplicaIsBehind(t *testing.T) {
	t.Parallel()
	srv := start(t, t.TempDir())
	p := startProxy(t, srv)
	s := open(t, dialPlain(t, p.url()))
	writer := open(t, inProcess(t, srv))
	swapped(t, writer, none("p"), granted(t, none("p"), "t"))
	for _, err := range []error{
		second2(writer.refresh(t.Context(), writer.queue)), // the watches make these two
		second2(writer.refresh(t.Context(), writer.sites)),
		second2(writer.PutWaiter(patient(t), lease.Waiter{ID: "w", LauncherID: "a"})),
		second2(writer.PutSite(patient(t), lease.SiteEntry{Name: "shop", Data: []byte("{}")})),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for stream, watch := range map[string]func(ctx context.Context, see func(fresh, complete bool)) error{
		s.leases.name: func(ctx context.Context, see func(bool, bool)) error {
			return s.Watch(ctx, func(l lease.Sight) { see(l.Fresh, l.Complete) })
		},
		s.queue.name: func(ctx context.Context, see func(bool, bool)) error {
			return s.WatchWaiters(ctx, func(l lease.WaiterSight) { see(l.Fresh, l.Complete) })
		},
		s.sites.name: func(ctx context.Context, see func(bool, bool)) error {
			return s.WatchSites(ctx, func(l lease.SiteSight) { see(l.Fresh, l.Complete) })
		},
	} {
		behind := 1
		p.set(func(p *proxy) {
			p.forge = func(subject string) string {
				if !strings.HasPrefix(subject, "$JS.API.CONSUMER.CREATE."+stream+".") || behind == 0 {
					return ""
				}
				behind--
				return fmt.Sprintf(`{"type":"io.nats.jetstream.api.v1.consumer_create_response","stream_name":%q,"name":"behind","config":{"ack_policy":"none","filter_subjects":["a"]},"num_pending":0}`, stream)
			}
			p.loseRequest = times(-1, "$JS.API.CONSUMER.MSG.NEXT."+stream+".behind") // nothing comes from there
		})
		ctx, stop := context.WithCancel(t.Context())
		shown := 0
		err := watch(ctx, func(fresh, complete bool) {
			switch {
			case fresh:
				shown = 0
			case complete:
				stop()
			default:
				shown++
			}
		})
		stop()
		p.set(func(*proxy) {
			if err != nil || shown != 1 || behind != 0 {
				t.Errorf("%s: %d shown before everything was, want 1; a replica that is behind was asked %d times too few; %v", stream, shown, behind, err)
			}
		})
	}
}

// TestAWatchNoticesWhatOnlyAPollShows: the watch has its connection and its consumer, and still
// begins anew where it missed the bucket's last message, or the bucket went back.
func TestAWatchNoticesWhatOnlyAPollShows(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fault func(p *proxy, made time.Time)
		// late says that the fault comes after the bucket's last message, which a poll before
		// that would not miss.
		late bool
		want string
	}{
		"a lost message": {func(p *proxy, _ time.Time) { p.pending[leaseSubject("last")] = true }, false, "fresh"},
		"an older copy of the bucket": {func(p *proxy, made time.Time) {
			once := times(1, "$JS.API.STREAM.INFO.KV_"+Bucket)
			p.forge = func(subject string) string {
				if !once(subject) {
					return ""
				}
				return fmt.Sprintf(`{"type":"io.nats.jetstream.api.v1.stream_info_response","config":{"name":"KV_%s","num_replicas":1},"created":%q,"state":{"last_seq":1}}`, Bucket, made.Format(time.RFC3339Nano))
			}
		}, true, "stepped"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := start(t, t.TempDir())
			p := startProxy(t, srv)
			s := open(t, dialPlain(t, p.url()))
			// Who writes is told nothing by way of the proxy: a store that waited long for its
			// answer reads what became of the record, and would lose the message in the watch's place.
			writer := open(t, inProcess(t, srv))
			w := watchOf(t, s, nil)
			w.await("complete") // a watch that begins later has the record among the first ones
			grantedLater(t, writer, "first")
			w.await("first/held/1")
			info, err := s.refresh(t.Context(), s.leases.stream)
			if err != nil {
				t.Fatal(err)
			}
			write := func() { swapped(t, writer, none("last"), granted(t, none("last"), "t")) }
			if tt.late {
				write()
				w.await("last/held/1") // the store knows of it only by its watch
			}
			p.set(func(p *proxy) { tt.fault(p, info.Created) })
			if !tt.late {
				write()
			}
			w.await(tt.want, "last/held/1")
		})
	}
}
