package natskv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"leasehold/internal/natsd"
	"leasehold/internal/test/natstest"
	"leasehold/lease"
)

// served returns a server that subscribers can reach, and a store on it.
func served(t *testing.T, dir, listen string) (*natsd.Server, *Store) {
	t.Helper()
	srv, err := natsd.Start(natsd.Options{Dir: dir, Listen: listen, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Shutdown)
	return srv, open(t, inProcess(t, srv))
}

// subscriber connects as a subscriber of this host does: without anything to show.
func subscriber(t *testing.T, srv *natsd.Server) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	nc := natstest.Connect(t, srv.ClientURL(), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return nc, js
}

// happens puts one more granted event of the profile on the stream.
func happens(t *testing.T, s *Store, profile string) {
	t.Helper()
	swapped(t, s, none(profile), granted(t, none(profile), "t"))
	flushed(t, s)
}

// grants returns the profiles of the next n messages of a consumer, which are grants.
func grants(t *testing.T, c jetstream.Consumer, n int) []string {
	t.Helper()
	var got []string
	for range n {
		m, err := c.Next(jetstream.FetchMaxWait(30 * time.Second))
		if err != nil {
			t.Fatalf("after %q: %v", got, err)
		}
		var e lease.Event
		if err := json.Unmarshal(m.Data(), &e); err != nil || m.Subject() != e.Subject() {
			t.Errorf("on %s: %v", m.Subject(), err)
		}
		got = append(got, e.ProfileID)
		if err := m.DoubleAck(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return got
}

// What client libraries do to read the events works for subscribers: plain subscriptions,
// and consumers of each kind.
func TestSubscribersReadTheEvents(t *testing.T) {
	srv, s := served(t, t.TempDir(), "127.0.0.1:0")
	nc, js := subscriber(t, srv)
	plain, err := nc.SubscribeSync("leasehold.>")
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	happens(t, s, "p1")
	happens(t, s, "p2")
	for _, want := range []string{"leasehold.lease.p1.granted", "leasehold.lease.p2.granted"} {
		m, err := plain.NextMsg(30 * time.Second)
		if err != nil || m.Subject != want {
			t.Errorf("plain subscription: %+v, %v; want %s", m, err, want)
		}
	}
	if n, _, err := plain.Pending(); n != 0 || err != nil {
		t.Errorf("plain subscription: %d more, %v", n, err)
	}
	for name, config := range map[string]jetstream.ConsumerConfig{
		"durable":   {Durable: "mine", AckPolicy: jetstream.AckExplicitPolicy},
		"ephemeral": {AckPolicy: jetstream.AckExplicitPolicy, FilterSubject: "leasehold.lease.>"},
	} {
		c, err := js.CreateOrUpdateConsumer(t.Context(), Stream, config)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := grants(t, c, 2); !slices.Equal(got, []string{"p1", "p2"}) {
			t.Errorf("%s consumer: %q", name, got)
		}
	}
	ordered, err := js.OrderedConsumer(t.Context(), Stream, jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	batch, err := ordered.Fetch(2)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for m := range batch.Messages() {
		got = append(got, m.Subject())
	}
	if want := []string{"leasehold.lease.p1.granted", "leasehold.lease.p2.granted"}; !slices.Equal(got, want) || batch.Error() != nil {
		t.Errorf("ordered consumer: %q, %v", got, batch.Error())
	}
	old, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	push, err := old.SubscribeSync("leasehold.lease.>", nats.BindStream(Stream), nats.OrderedConsumer())
	if err != nil {
		t.Fatal(err)
	}
	if m, err := push.NextMsg(30 * time.Second); err != nil || m.Subject != "leasehold.lease.p1.granted" {
		t.Errorf("push consumer: %+v, %v", m, err)
	}
	stream, err := js.Stream(t.Context(), Stream)
	if err != nil {
		t.Fatal(err)
	}
	if m, err := stream.GetLastMsgForSubject(t.Context(), "leasehold.lease.p2.granted"); err != nil || m.Sequence != 2 {
		t.Errorf("last message: %+v, %v", m, err)
	}
}

// A durable subscriber that was away, during a restart of the server too, gets what it
// missed, in order.
func TestASubscriberThatWasAwayCatchesUp(t *testing.T) {
	dir := t.TempDir()
	srv, s := served(t, dir, "127.0.0.1:0")
	happens(t, s, "p1")
	nc, js := subscriber(t, srv)
	c, err := js.CreateOrUpdateConsumer(t.Context(), Stream, jetstream.ConsumerConfig{Durable: "audit", AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		t.Fatal(err)
	}
	if got := grants(t, c, 1); got[0] != "p1" {
		t.Errorf("first: %q", got)
	}
	nc.Close()
	happens(t, s, "p2")
	s.Close()
	s.nc.Close()
	srv.Shutdown()

	srv, s = served(t, dir, "127.0.0.1:0")
	happens(t, s, "p3")
	_, js = subscriber(t, srv)
	if c, err = js.Consumer(t.Context(), Stream, "audit"); err != nil {
		t.Fatal(err)
	}
	if got := grants(t, c, 2); !slices.Equal(got, []string{"p2", "p3"}) {
		t.Errorf("after the absence: %q", got)
	}
}

// contents returns the subjects and bodies of a stream, with their sequences.
func contents(ctx context.Context, js jetstream.JetStream) (got []string, err error) {
	stream, err := js.Stream(ctx, Stream)
	if err != nil {
		return nil, err
	}
	for seq := max(stream.CachedInfo().State.FirstSeq, 1); seq <= stream.CachedInfo().State.LastSeq; seq++ {
		m, err := stream.GetMsg(ctx, seq)
		if err != nil {
			return nil, fmt.Errorf("message %d: %w", seq, err)
		}
		got = append(got, fmt.Sprintf("%d %s %s", seq, m.Subject, m.Data))
	}
	return got, nil
}

// copied waits until the copy has all that the event stream has, and returns that. A copy
// that was removed is made again meanwhile.
func copied(t *testing.T, s *Store, subscriber jetstream.JetStream) []string {
	t.Helper()
	events, err := contents(t.Context(), s.events.js)
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(30 * time.Second)
	for {
		got, err := contents(t.Context(), subscriber)
		if err == nil && slices.Equal(got, events) {
			return events
		}
		if len(got) > len(events) || time.Now().After(deadline) {
			t.Fatalf("the event stream has\n%s\nand its copy\n%s\n%v", strings.Join(events, "\n"), strings.Join(got, "\n"), err)
		}
		s.copier.look()
		time.Sleep(20 * time.Millisecond)
	}
}

// tricks are the ways in which a client can have a server publish on a subject of its
// choice, or try to.
func tricks() map[string]func(t *testing.T, nc *nats.Conn, target string) {
	config := func(name, deliver string, more string) []byte {
		return fmt.Appendf(nil, `{"stream_name":%q,"config":{"name":%q,"deliver_subject":%q,"ack_policy":"none","inactive_threshold":60000000000%s}}`, Stream, name, deliver, more)
	}
	return map[string]func(t *testing.T, nc *nats.Conn, target string){
		"reply subject of each question": func(t *testing.T, nc *nats.Conn, target string) {
			for question, body := range map[string]string{
				"$JS.API.INFO": "", "$JS.API.STREAM.INFO." + Stream: "", "$JS.API.STREAM.NAMES": "", "$JS.API.STREAM.LIST": "",
				"$JS.API.STREAM.MSG.GET." + Stream: `{"seq":1}`, "$JS.API.DIRECT.GET." + Stream: `{"seq":1}`,
				"$JS.API.DIRECT.GET." + Stream + ".leasehold.lease.p1.granted": "",
				"$JS.API.CONSUMER.NAMES." + Stream:                             "", "$JS.API.CONSUMER.LIST." + Stream: "",
				"$JS.API.CONSUMER.CREATE." + Stream + ".asked":   string(config("asked", "", "")),
				"$JS.API.CONSUMER.INFO." + Stream + ".asked":     "",
				"$JS.API.CONSUMER.MSG.NEXT." + Stream + ".asked": `{"batch":10,"no_wait":true}`,
				"$JS.API.CONSUMER.RESET." + Stream + ".asked":    `{"seq":1}`,
				"$JS.API.NO.SUCH.QUESTION":                       "x",
			} {
				if err := nc.PublishRequest(question, target, []byte(body)); err != nil {
					t.Fatal(err)
				}
			}
		},
		"question with headers": func(t *testing.T, nc *nats.Conn, target string) {
			m := nats.NewMsg("$JS.API.STREAM.MSG.GET." + Stream)
			m.Reply, m.Data = target, []byte(`{"seq":1}`)
			for _, h := range [][2]string{
				{"Nats-Msg-Id", "x"}, {"Nats-Stream-Source", "leasehold_events 9 > >"}, {"Nats-Last-Stream", "9"}, {"Nats-Last-Consumer", "9"},
				{"Nats-Trace-Dest", target}, {"Nats-Rollup", "all"}, {"Nats-Schedule", "@at 2020-01-01T00:00:00Z"}, {"Nats-Schedule-Target", target},
			} {
				m.Header.Set(h[0], h[1])
			}
			if err := nc.PublishMsg(m); err != nil {
				t.Fatal(err)
			}
		},
		"deliver subject of a consumer": func(t *testing.T, nc *nats.Conn, target string) {
			for name, more := range map[string]string{
				"evil": "", "beating": `,"flow_control":true,"idle_heartbeat":100000000`, "quick": `,"rate_limit_bps":1000000`,
				// The name of the consumer that feeds the copy, which is not in this account.
				natsd.FeedConsumer: "",
			} {
				if err := nc.PublishRequest("$JS.API.CONSUMER.CREATE."+Stream+"."+name, "_INBOX.x", config(name, target, more)); err != nil {
					t.Fatal(err)
				}
				durable := strings.Replace(string(config(name+"2", target, more)), `"name"`, `"durable_name"`, 1)
				if err := nc.PublishRequest("$JS.API.CONSUMER.DURABLE.CREATE."+Stream+"."+name+"2", "_INBOX.x", []byte(durable)); err != nil {
					t.Fatal(err)
				}
			}
		},
		"acknowledgement": func(t *testing.T, nc *nats.Conn, target string) {
			for _, ack := range []string{"+ACK", "-NAK", "+WPI", `+NXT {"batch":5}`, "+TERM forged"} {
				for _, consumer := range []string{"asked", natsd.FeedConsumer} {
					if err := nc.PublishRequest("$JS.ACK."+Stream+"."+consumer+".1.1.1.1.0", target, []byte(ack)); err != nil {
						t.Fatal(err)
					}
				}
			}
		},
		"publishing it": func(t *testing.T, nc *nats.Conn, target string) {
			forged := []byte(`{"event":"forged"}`)
			if err := nc.Publish(target, forged); err != nil {
				t.Fatal(err)
			}
			if err := nc.PublishRequest(target, "$JS.ACK."+Stream+"."+natsd.FeedConsumer+".1.99.99.1.0", forged); err != nil {
				t.Fatal(err)
			}
		},
		"stream that captures or republishes": func(t *testing.T, nc *nats.Conn, target string) {
			for _, c := range []string{
				fmt.Sprintf(`{"name":"evil","subjects":["x"],"republish":{"src":">","dest":%q},"storage":"memory"}`, target),
				fmt.Sprintf(`{"name":"evil2","subjects":[%q],"storage":"memory"}`, target),
				fmt.Sprintf(`{"name":%q,"subjects":[%q],"storage":"file"}`, Stream, target),
			} {
				var name struct{ Name string }
				if err := json.Unmarshal([]byte(c), &name); err != nil {
					t.Fatal(err)
				}
				for _, api := range []string{"$JS.API.STREAM.CREATE.", "$JS.API.STREAM.UPDATE.", natsd.SubscribersAPI + ".STREAM.CREATE."} {
					if err := nc.PublishRequest(api+name.Name, "_INBOX.x", []byte(c)); err != nil {
						t.Fatal(err)
					}
				}
			}
		},
	}
}

// Whatever a subscriber has the server publish, for it or by mistake, the event stream and
// its copy have the events and nothing else, the leases are untouched, and the next event
// still comes. What a subscriber can do is to have its own account's copy removed, by an
// empty answer that the server takes for that request; then the copy is made again.
func TestNoSubscriberPutsAMessageOnTheStream(t *testing.T) {
	targets := []string{
		"leasehold.recovery.p1.available", "leasehold.lease.p1.granted", natsd.FeedSubject, leaseSubject("p1"),
		natsd.LaunchersAPI + ".CONSUMER.RESET." + Stream + "." + natsd.FeedConsumer,
		"$JS.FC." + Stream + "." + natsd.FeedConsumer + ".abcd",
		natsd.SubscribersAPI + ".STREAM.DELETE." + Stream, "$JS.API.STREAM.DELETE." + Stream,
		"$JS.API.CONSUMER.CREATE." + Stream, "$JS.API.CONSUMER.DELETE." + Stream + "." + natsd.FeedConsumer,
	}
	for name, trick := range tricks() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv, s := served(t, t.TempDir(), "127.0.0.1:0")
			held := swapped(t, s, none("p1"), granted(t, none("p1"), "t"))
			flushed(t, s)
			happens(t, s, "p2")
			nc, js := subscriber(t, srv)
			before := copied(t, s, js)
			for _, target := range targets {
				trick(t, nc, target)
			}
			if err := nc.Flush(); err != nil {
				t.Fatal(err)
			}
			happens(t, s, "p3")
			after := copied(t, s, js)
			if len(after) != len(before)+1 || !slices.Equal(after[:len(before)], before) || !strings.Contains(after[len(before)], " leasehold.lease.p3.granted ") {
				t.Errorf("before\n%s\nafter\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
			}
			bucket, err := s.leases.js.Stream(t.Context(), "KV_"+Bucket)
			if err != nil {
				t.Fatal(err)
			}
			if got := bucket.CachedInfo().State.LastSeq; got != 3 {
				t.Errorf("the bucket has %d writes, want the launcher's 3", got)
			}
			if e, err := s.Get(patient(t), "p1"); err != nil || e.Revision != held.Revision {
				t.Errorf("the lease: %+v, %v", e, err)
			}
		})
	}
}

// copyInfo returns what the server says of the copy, which the store may just be making again.
func copyInfo(t *testing.T, s *Store) (info *jetstream.StreamInfo) {
	t.Helper()
	soon(t, func() error {
		stream, err := s.copier.js.Stream(t.Context(), Stream)
		if err == nil {
			info = stream.CachedInfo()
		}
		return err
	})
	return info
}

// On a server of the launcher's own nothing is copied until somebody subscribes. The first
// subscriber finds all events that were there before, and the copy is kept from then on, for a
// launcher that is started later too.
func TestTheCopyIsMadeForTheFirstSubscriber(t *testing.T) {
	dir := t.TempDir()
	own := func() (*natsd.Server, *Store) {
		srv, err := natsd.Start(natsd.Options{Dir: dir, Listen: "127.0.0.1:0", Log: zerolog.Nop()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(srv.Shutdown)
		s := openWith(t, inProcess(t, srv), Options{Log: zerolog.Nop(), LauncherID: "test", OwnServer: true})
		srv.Welcome(time.Minute, s.CopyEvents)
		return srv, s
	}
	srv, s := own()
	happens(t, s, "p1")
	happens(t, s, "p2")
	if _, err := s.copier.js.Stream(t.Context(), Stream); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("nobody has subscribed, and the copy is there: %v", err)
	}
	if _, err := s.events.js.Consumer(t.Context(), Stream, natsd.FeedConsumer); !errors.Is(err, jetstream.ErrConsumerNotFound) {
		t.Errorf("nobody has subscribed, and the copy is fed: %v", err)
	}
	_, js := subscriber(t, srv)
	want, err := contents(t.Context(), s.events.js)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := contents(t.Context(), js); err != nil || len(want) != 2 || !slices.Equal(got, want) {
		t.Errorf("as soon as the subscriber is greeted, the copy has %q, %v; want %q", got, err, want)
	}
	audit, err := js.CreateOrUpdateConsumer(t.Context(), Stream, jetstream.ConsumerConfig{Durable: "audit", AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		t.Fatal(err)
	}
	happens(t, s, "p3")
	if got := grants(t, audit, 3); !slices.Equal(got, []string{"p1", "p2", "p3"}) {
		t.Errorf("the first subscriber gets %q", got)
	}
	s.Close()
	s.nc.Close()
	srv.Shutdown()

	_, s = own()
	happens(t, s, "p4")
	soon(t, func() error {
		if got := copyInfo(t, s).State.LastSeq; got != 4 {
			return fmt.Errorf("after a restart, without a subscriber, the copy ends at %d, want 4", got)
		}
		return nil
	})
}

// What is wrong with the copy is mended; after that it has what the event stream has.
func TestTheCopyIsMended(t *testing.T) {
	for name, tt := range map[string]struct {
		fault func(t *testing.T, s *Store)
		// anew says that the copy is made again.
		anew bool
	}{
		"nothing":          {fault: func(*testing.T, *Store) {}},
		"consumer deleted": {fault: func(t *testing.T, s *Store) { deleteFeed(t, s) }},
		"another age": {anew: true, fault: func(t *testing.T, s *Store) {
			origin, err := s.refresh(t.Context(), s.events)
			if err != nil {
				t.Fatal(err)
			}
			old := s.copier.config(origin)
			old.MaxAge = time.Hour
			soon(t, func() error {
				if err := s.copier.js.DeleteStream(t.Context(), Stream); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
					return err
				}
				return second2(s.copier.js.CreateStream(t.Context(), old))
			})
		}},
		"copy deleted": {anew: true, fault: func(t *testing.T, s *Store) {
			if err := s.copier.js.DeleteStream(t.Context(), Stream); err != nil {
				t.Fatal(err)
			}
		}},
		"an event passed over": {anew: true, fault: func(t *testing.T, s *Store) {
			made := copyInfo(t, s).Created
			for n := 0; ; n++ {
				deleteFeed(t, s)
				happens(t, s, fmt.Sprint("passed_over_", n))
				late := feedConfig()
				late.DeliverPolicy, late.OptStartSeq = jetstream.DeliverByStartSequencePolicy, s.events.highestSeen()+1
				_, err := s.events.js.CreatePushConsumer(t.Context(), Stream, late)
				if err == nil {
					break
				}
				// The store looks at the feed from time to time, and may have mended it first.
				if !errors.Is(err, jetstream.ErrConsumerExists) {
					t.Fatalf("error %v, want %v", err, jetstream.ErrConsumerExists)
				}
			}
			happens(t, s, "later")
			soon(t, func() error {
				// The store may see it first here too, and make the copy again.
				if info := copyInfo(t, s); info.State.NumDeleted == 0 && info.Created.Equal(made) {
					return errors.New("the mirror did not pass over anything")
				}
				return nil
			})
		}},
		"event stream deleted": {anew: true, fault: func(t *testing.T, s *Store) {
			deleteStream(t, s.events)
			soon(t, func() error { return second2(s.refresh(t.Context(), s.events)) })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv, s := served(t, t.TempDir(), "127.0.0.1:0")
			_, js := subscriber(t, srv)
			happens(t, s, "p1")
			happens(t, s, "p2")
			copied(t, s, js)
			made := copyInfo(t, s).Created
			tt.fault(t, s)
			happens(t, s, "p3")
			other := &copier{s: s, js: s.copier.js} // as another launcher has one: the store's looks meanwhile
			soon(t, func() error { return other.keep(t.Context()) })
			got := copied(t, s, js)
			if !strings.Contains(strings.Join(got, "\n"), ".p3.granted") {
				t.Errorf("copied: %q", got)
			}
			info := copyInfo(t, s)
			if again := !info.Created.Equal(made); again != tt.anew {
				t.Errorf("the copy was made again: %v, want %v", again, tt.anew)
			}
			if info.Config.MaxAge != 0 {
				t.Errorf("events leave the copy after %v", info.Config.MaxAge)
			}
		})
	}
}

// soon does it until it succeeds: a server that is busy may refuse to make a stream whose
// directory it is still removing.
func soon(t *testing.T, do func() error) {
	t.Helper()
	err := do()
	for end := time.Now().Add(time.Minute); err != nil && time.Now().Before(end); err = do() {
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func deleteFeed(t *testing.T, s *Store) {
	t.Helper()
	if err := s.events.js.DeleteConsumer(t.Context(), Stream, natsd.FeedConsumer); err != nil {
		t.Fatal(err)
	}
}

// A replicated stream may end below its copy while its leader catches up; another may not.
func TestWhenACopyFits(t *testing.T) {
	made := time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)
	stream := func(last uint64, replicas int, created time.Time) *jetstream.StreamInfo {
		return &jetstream.StreamInfo{Created: created, Config: jetstream.StreamConfig{Replicas: replicas}, State: jetstream.StreamState{LastSeq: last}}
	}
	copyWith := func(last uint64) *jetstream.StreamInfo {
		return &jetstream.StreamInfo{Config: jetstream.StreamConfig{Metadata: map[string]string{copyOf: "2026-11-22T09:00:00Z"}}, State: jetstream.StreamState{LastSeq: last}}
	}
	gap := copyWith(5)
	gap.State.NumDeleted = 1
	from := func(first uint64, s *jetstream.StreamInfo) *jetstream.StreamInfo {
		s.State.FirstSeq, s.State.Msgs = first, s.State.LastSeq+1-first
		return s
	}
	c := &copier{}
	for _, step := range []struct {
		name   string
		have   *jetstream.StreamInfo
		origin *jetstream.StreamInfo
		at     time.Duration
		want   bool
	}{
		{"behind", copyWith(4), stream(5, 1, made), 0, true},
		{"with a gap", gap, stream(5, 1, made), 0, false},
		{"ahead of one server", copyWith(6), stream(5, 1, made), 0, false},
		{"of another stream", copyWith(4), stream(5, 1, made.Add(time.Second)), 0, false},
		{"caught up", copyWith(5), stream(5, 3, made), 0, true},
		{"without the first event", from(3, copyWith(5)), from(1, stream(5, 1, made)), 0, true},
		{"which is too old next", from(3, copyWith(5)), from(2, stream(5, 1, made)), lacksTime, true},
		{"and the one after it", from(3, copyWith(5)), from(3, stream(5, 1, made)), lacksTime, true},
		{"without the first ones again", from(4, copyWith(5)), from(3, stream(5, 1, made)), 2 * lacksTime, true},
		{"still without them", from(4, copyWith(5)), from(3, stream(5, 1, made)), 3 * lacksTime, false},
		{"of a stream that has none", from(6, copyWith(5)), from(6, stream(5, 1, made)), 4 * lacksTime, true},
		{"ahead of a new leader", copyWith(6), stream(5, 3, made), time.Second, true},
		{"still ahead", copyWith(6), stream(5, 3, made), doubtTime, true},
		{"ahead for too long", copyWith(6), stream(5, 3, made), time.Second + doubtTime, false},
	} {
		if got := c.fits(step.have, step.origin, made.Add(step.at)); got != step.want {
			t.Errorf("%s: %v, want %v", step.name, got, step.want)
		}
	}
}

// A stream of somebody else under the copy's name is not touched, and the error says so.
func TestAStreamThatIsNoCopyIsKept(t *testing.T) {
	_, s := served(t, t.TempDir(), "127.0.0.1:0")
	soon(t, func() error {
		// The store looks at the copy from time to time, and may have made it again first.
		if err := s.copier.js.DeleteStream(t.Context(), Stream); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return err
		}
		_, err := s.copier.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: Stream, Subjects: []string{"mine"}})
		return err
	})
	if err := s.copier.keep(t.Context()); !errors.Is(err, errCopy) || !strings.Contains(err.Error(), "remove it") {
		t.Errorf("keep: %v", err)
	}
	if got := copyInfo(t, s).Config.Subjects; !slices.Equal(got, []string{"mine"}) {
		t.Errorf("subjects: %q", got)
	}
}
