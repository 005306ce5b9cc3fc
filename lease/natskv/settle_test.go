package natskv

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"leasehold/lease"
)

// A request is delayed in the network until after its sender gave up. It must not be stored
// when it arrives.
func TestGivenUpWriteNeverComesLate(t *testing.T) {
	for name, tt := range map[string]struct {
		subject string
		// first writes the value that the key has before, and write sends the request
		// that is delayed.
		first, write func(ctx context.Context, s *Store) error
		read         func(s *Store) (state, error)
		want         state
		reconnect    bool
	}{
		"record":                     {subject: leaseSubject("p"), first: grantOf("p"), write: releaseOf("p"), read: recordState, want: state{2, "held"}},
		"record, after a reconnect":  {subject: leaseSubject("p"), first: grantOf("p"), write: releaseOf("p"), read: recordState, want: state{2, "held"}, reconnect: true},
		"first record":               {subject: leaseSubject("p"), write: grantOf("p"), read: recordState},
		"presence":                   {subject: "$KV." + Hosts + ".l", first: presenceOf("boot-1"), write: presenceOf("boot-2"), read: presenceState, want: state{2, "boot-1"}},
		"presence after a reconnect": {subject: "$KV." + Hosts + ".l", first: presenceOf("boot-1"), write: presenceOf("boot-2"), read: presenceState, want: state{2, "boot-1"}, reconnect: true},
		"first presence":             {subject: "$KV." + Hosts + ".l", write: presenceOf("boot-2"), read: presenceState},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := start(t, t.TempDir())
			p := startProxy(t, srv)
			s, other := open(t, dialPlain(t, p.url())), open(t, inProcess(t, srv))
			if tt.first != nil {
				if err := tt.first(t.Context(), s); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			p.set(func(p *proxy) {
				first := times(1, tt.subject)
				p.delay = func(subject string) bool {
					chosen := first(subject)
					if chosen {
						cancel() // its sender gives up
					}
					return chosen
				}
			})
			if err := tt.write(ctx, s); !errors.Is(err, lease.ErrUnavailable) {
				t.Fatalf("the write that is delayed: %v", err)
			}
			if tt.reconnect {
				changes := s.nc.StatusChanged(nats.CONNECTED)
				p.leave()
				<-changes
			}
			flushed(t, s)
			p.deliver()
			if got, err := tt.read(other); err != nil || got != tt.want {
				t.Errorf("after the late delivery: %+v, %v; want %+v", got, err, tt.want)
			}
		})
	}
}

func grantOf(profile string) func(context.Context, *Store) error {
	return func(ctx context.Context, s *Store) error {
		r, err := lease.Record{ProfileID: profile}.Grant(lease.Request{SessionID: "s", LauncherID: "l", TTL: 30 * time.Second}, t0)
		if err == nil {
			_, err = s.Swap(ctx, none(profile), r)
		}
		return err
	}
}

func releaseOf(profile string) func(context.Context, *Store) error {
	return func(ctx context.Context, s *Store) error {
		e, err := s.Get(ctx, profile)
		if err != nil {
			return err
		}
		r, err := e.Record.Release("done", "ok", lease.Sealed{}, t0)
		if err == nil {
			_, err = s.Swap(ctx, e, r)
		}
		return err
	}
}

func presenceOf(boot string) func(context.Context, *Store) error {
	return func(ctx context.Context, s *Store) error {
		p, err := s.Presence(ctx, "l")
		if err == nil {
			_, err = s.SwapPresence(ctx, p, p.Presence.Open(lease.Presence{LauncherID: "l", BootID: boot, TTLSeconds: 30}, 0, t0))
		}
		return err
	}
}

// state is the revision and the content of a key.
type state struct {
	revision uint64
	what     string
}

func recordState(s *Store) (state, error) {
	e, err := s.Get(context.Background(), "p")
	if errors.Is(err, lease.ErrNotFound) {
		err = nil
	}
	return state{e.Revision, string(e.Record.State)}, err
}

func presenceState(s *Store) (state, error) {
	p, err := s.Presence(context.Background(), "l")
	return state{p.Revision, p.Presence.BootID}, err
}

// While too many writes are unsettled, further ones are refused.
func TestTooManyUnsettledWrites(t *testing.T) {
	srv := start(t, t.TempDir())
	p := startProxy(t, srv)
	s := open(t, dialPlain(t, p.url()))
	away := s.nc.StatusChanged(nats.RECONNECTING)
	mend := p.cut()
	<-away
	for i := range 2 * maxUnsettled {
		s.settler.add(&write{bucket: s.leases, key: "p" + strconv.Itoa(i/2), create: true})
	}
	if n, _ := s.settler.unsettled(); n != maxUnsettled {
		t.Errorf("%d writes to settle, want one of each revision: %d", n, maxUnsettled)
	}
	_, err := s.Swap(patient(t), none("q"), granted(t, none("q"), "t"))
	if !errors.Is(err, lease.ErrUnavailable) || !strings.Contains(err.Error(), "too many") {
		t.Errorf("swap: %v", err)
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.Flush(short); !errors.Is(err, lease.ErrUnavailable) || !strings.Contains(err.Error(), "writes not settled") {
		t.Errorf("flush: %v", err)
	}
	mend()
	flushed(t, s)
	swapped(t, s, none("q"), granted(t, none("q"), "t"))
}

// The sender of a write that was not answered learns that it was not stored, once nobody can store
// it any more; and never that of one that was stored.
func TestTheSenderLearnsThatAWriteWasDropped(t *testing.T) {
	for name, tt := range map[string]struct {
		// lose makes the write go without an answer, and its sender give up.
		lose func(p *proxy, give func())
		want int
	}{
		"the request is lost": {func(p *proxy, give func()) {
			first := times(1, leaseSubject(""))
			p.set(func(p *proxy) {
				p.loseRequest = func(subject string) bool {
					chosen := first(subject)
					if chosen {
						give()
					}
					return chosen
				}
			})
		}, 1},
		"the answer is lost": {func(p *proxy, give func()) {
			p.set(func(p *proxy) { p.loseAnswer, p.onLost = times(1, leaseSubject("")), give })
		}, 0},
		"it was not sent": {func(_ *proxy, give func()) { give() }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := start(t, t.TempDir())
			p := startProxy(t, srv)
			s := open(t, dialPlain(t, p.url()))
			flushed(t, s)
			before := swapped(t, s, none("p"), granted(t, none("p"), "t"))
			flushed(t, s)
			released, err := before.Record.Release("done", "ok", lease.Sealed{}, t0)
			if err != nil {
				t.Fatal(err)
			}
			told := make(chan struct{}, 2)
			before.Dropped = func() { told <- struct{}{} }
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			mend := func() {}
			if name == "it was not sent" {
				away := s.nc.StatusChanged(nats.RECONNECTING)
				mend = p.cut()
				<-away
			}
			tt.lose(p, cancel)
			if _, err := s.Swap(ctx, before, released); !errors.Is(err, lease.ErrUnavailable) {
				t.Fatalf("swap: %v", err)
			}
			mend()
			flushed(t, s)
			if tt.want > 0 {
				<-told
			}
			s.Close() // nobody is told any more
			if len(told) > 0 {
				t.Error("told without being so, or twice")
			}
			if e, err := open(t, inProcess(t, srv)).Get(t.Context(), "p"); err != nil || (e.Record.State == lease.Available) != (tt.want == 0) {
				t.Errorf("%s, %v", e.Record.State, err)
			}
		})
	}
}

// A settlement that the server refuses for good ends: it does not count against later writes.
func TestARefusedSettlementEnds(t *testing.T) {
	s := single(t)
	flushed(t, s)
	s.settler.add(&write{bucket: s.leases, key: "p", expected: 7, before: func() ([]byte, error) { return make([]byte, 2*maxValue), nil }})
	flushed(t, s)
	swapped(t, s, none("p"), granted(t, none("p"), "t"))
}
