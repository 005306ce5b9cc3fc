package natskv

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/rs/zerolog"

	"leasehold/lease"
)

// casInput is a swap as porcupine sees it: from the revision and the value that were read
// to a value that only this client writes.
type casInput struct {
	from     uint64
	was, now string
}

type casOutcome int

const (
	casStored casOutcome = iota
	casMoved
	casUnknown
)

// casResult is the outcome of a swap, with its revision if it was stored.
type casResult struct {
	casOutcome
	revision uint64
}

// cell is the content of the store. guess says that its revision is not known, because it
// was written by a swap whose outcome the client never learnt.
type cell struct {
	value    string
	revision uint64
	guess    bool
}

// is tells whether the cell can be what the swap expects, and whether it can be something
// else.
func (c cell) is(in casInput) (can, cannot bool) {
	switch {
	case in.was != c.value:
		return false, true
	case in.was == "": // no record, or one that was never written
		return true, c.guess
	case c.guess:
		return true, true
	}
	return c.revision == in.from, c.revision != in.from
}

// casRegister is the model of one key. A swap whose outcome the client never learnt may
// have happened at any time since, or never, or its revision was used up by a write of the
// same value.
func casRegister() porcupine.Model {
	return (&porcupine.NondeterministicModel{
		Init: func() []any { return []any{cell{}} },
		Step: func(state, input, output any) []any {
			in, out, c := input.(casInput), output.(casResult), state.(cell)
			can, cannot := c.is(in)
			switch {
			case out.casOutcome == casStored && can:
				return []any{cell{value: in.now, revision: out.revision}}
			case out.casOutcome == casMoved && cannot:
				return []any{c}
			case out.casOutcome == casUnknown && can:
				return []any{c, cell{value: in.now, guess: true}, cell{value: in.was, guess: true}}
			case out.casOutcome == casUnknown:
				return []any{c}
			}
			return nil
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
	}).ToModel()
}

// historyOf records operations of several clients.
type historyOf struct {
	start time.Time
	mu    sync.Mutex
	ops   []porcupine.Operation
}

func (h *historyOf) swap(client int, in casInput, do func() (uint64, error)) {
	call := time.Since(h.start).Nanoseconds()
	revision, err := do()
	op := porcupine.Operation{ClientId: client, Input: in, Call: call, Return: time.Since(h.start).Nanoseconds()}
	var moved *lease.MovedError
	var presence *lease.PresenceMovedError
	switch {
	case err == nil:
		op.Output = casResult{casStored, revision}
	case errors.As(err, &moved), errors.As(err, &presence):
		op.Output = casResult{casOutcome: casMoved}
	default:
		// It may still be on its way, so it ends only with the test.
		op.Output, op.Return = casResult{casOutcome: casUnknown}, int64(1<<62)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, op)
}

func (h *historyOf) check(t *testing.T) (unknown int) {
	t.Helper()
	// A client has one operation at a time. An operation whose outcome is unknown
	// therefore gets a client of its own.
	for i := range h.ops {
		if h.ops[i].Output.(casResult).casOutcome == casUnknown {
			unknown++
			h.ops[i].ClientId = 1000 + i
		}
	}
	if res := porcupine.CheckOperationsTimeout(casRegister(), h.ops, 30*time.Second); res != porcupine.Ok {
		t.Errorf("%d swaps are not those of a compare-and-swap register: %v", len(h.ops), res)
	}
	return unknown
}

// believed is what a client believes about a key.
type believed interface {
	// at returns the revision and the value of the key, as the client believes.
	at() (uint64, string)
	// swap writes a value over that. After it, the client believes in the entry that
	// was stored, or in the one that the refusal has.
	swap(ctx context.Context, s *Store, value string) (uint64, error)
	read(ctx context.Context, s *Store) error
}

type believedRecord struct{ lease.Entry }

func (b *believedRecord) at() (uint64, string) { return b.Revision, b.Record.LastKnownStep }

func (b *believedRecord) swap(ctx context.Context, s *Store, value string) (uint64, error) {
	next := b.Record.Clone()
	next.LastKnownStep = value
	stored, err := s.Swap(ctx, b.Entry, next)
	var moved *lease.MovedError
	if err == nil {
		b.Entry = stored
	} else if errors.As(err, &moved) && moved.Current != nil {
		b.Entry = *moved.Current
	}
	return stored.Revision, err
}

func (b *believedRecord) read(ctx context.Context, s *Store) error {
	e, err := s.Get(ctx, "p")
	if errors.Is(err, lease.ErrNotFound) {
		e, err = none("p"), nil
	}
	if err == nil {
		b.Entry = e
	}
	return err
}

type believedPresence struct{ lease.PresenceEntry }

func (b *believedPresence) at() (uint64, string) { return b.Revision, b.Presence.BootID }

func (b *believedPresence) swap(ctx context.Context, s *Store, value string) (uint64, error) {
	stored, err := s.SwapPresence(ctx, b.PresenceEntry, lease.Presence{LauncherID: "l", BootID: value})
	var moved *lease.PresenceMovedError
	if err == nil {
		b.PresenceEntry = stored
	} else if errors.As(err, &moved) && moved.Current != nil {
		b.PresenceEntry = *moved.Current
	}
	return stored.Revision, err
}

func (b *believedPresence) read(ctx context.Context, s *Store) error {
	stored, err := s.Presence(ctx, "l")
	if err == nil {
		b.PresenceEntry = stored
	}
	return err
}

// swapper tries n swaps of a key, each from what it believes about the key.
func swapper(ctx context.Context, t *testing.T, h *historyOf, s *Store, b believed, client, n int, limit func() time.Duration) {
	for i := range n {
		revision, value := b.at()
		next := fmt.Sprintf("c%d.%d", client, i)
		var err error
		h.swap(client, casInput{revision, value, next}, func() (uint64, error) {
			ctx, cancel := context.WithTimeout(ctx, limit())
			defer cancel()
			revision, err = b.swap(ctx, s, next)
			return revision, err
		})
		if errors.Is(err, lease.ErrUnavailable) {
			err = b.read(ctx, s)
		}
		if kind := kindOf(err); kind != "ok" && kind != "moved" {
			t.Errorf("error %v, want none or one of a moved revision", err)
		}
	}
}

// Several launchers lose some of their requests and answers. The results of Swap are always
// those that a single register would have given. Two of three calls have the time to settle
// their writes, the others give up.
func TestSwapsAreLinearizable(t *testing.T) {
	t.Run("record", func(t *testing.T) {
		testLinearizable(t, func() believed { return &believedRecord{none("p")} })
	})
	t.Run("presence", func(t *testing.T) {
		testLinearizable(t, func() believed { return &believedPresence{} })
	})
}

func testLinearizable(t *testing.T, nothing func() believed) {
	const clients, tries = 4, 150
	// Calls in a hurry end before their request does, and on a busy host all of them stay unknown.
	const try, hurry = 200 * time.Millisecond, 30 * time.Millisecond
	srv := start(t, t.TempDir())
	h := &historyOf{start: time.Now()}
	var proxies []*proxy
	var wg sync.WaitGroup
	for c := range clients {
		p := startProxy(t, srv)
		proxies = append(proxies, p)
		s := openWith(t, dialPlain(t, p.url()), Options{Log: zerolog.Nop(), tryTime: try})
		p.set(func(p *proxy) {
			p.loseRequest = func(subject string) bool { return strings.HasPrefix(subject, "$KV.") && rand.N(30) == 0 }
			p.loseAnswer = func(subject string) bool { return strings.HasPrefix(subject, "$KV.") && rand.N(10) == 0 }
		})
		wg.Go(func() {
			swapper(t.Context(), t, h, s, nothing(), c, tries, func() time.Duration {
				if rand.N(3) == 0 {
					return hurry
				}
				return 10 * time.Second
			})
		})
	}
	wg.Wait()
	lost := 0
	for _, p := range proxies {
		lost += p.lostCount()
		p.set(func(p *proxy) { p.loseRequest, p.loseAnswer = times(0, ""), times(0, "") })
	}
	unknown := h.check(t)
	if unknown == 0 || lost == 0 || 2*unknown > len(h.ops) {
		t.Errorf("of %d swaps %d stayed unknown and %d messages were lost: not the faults that the test is about", len(h.ops), unknown, lost)
	}
	t.Logf("%d swaps, %d unknown, %d messages lost", len(h.ops), unknown, lost)
}

// On three replicated servers, where writes in quick succession are refused because another
// write is in flight, and where leaders change, nothing is lost or granted twice.
func TestCluster(t *testing.T) {
	servers := startCluster(t)
	h := &historyOf{start: time.Now()}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // a busy machine takes its time
	defer cancel()
	var stores []*Store
	for _, url := range servers {
		s, err := Open(ctx, dialPlain(t, url), Options{Replicas: 3, Log: zerolog.New(zerolog.NewTestWriter(t)), LauncherID: "test"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		stores = append(stores, s)
	}
	watch := watchOf(t, stores[1], func(s lease.Sight) {
		if s.Stepped {
			t.Error("a new leader was taken for a store that was lost")
		}
	})
	var wg sync.WaitGroup
	var done atomic.Bool
	for c, s := range stores {
		wg.Go(func() {
			swapper(ctx, t, h, s, &believedRecord{none("p")}, c, 60, func() time.Duration { return 10 * time.Second })
		})
	}
	stepdowns := 0
	var admin sync.WaitGroup
	admin.Go(func() {
		for !done.Load() {
			if _, err := stores[0].nc.Request("$JS.API.STREAM.LEADER.STEPDOWN."+"KV_"+Bucket, nil, time.Second); err == nil {
				stepdowns++
			}
			time.Sleep(200 * time.Millisecond) // a leader has to have some time to lead
		}
	})
	wg.Wait()
	done.Store(true)
	admin.Wait()
	unknown := h.check(t)
	if stepdowns == 0 {
		t.Error("no leader stepped down")
	}
	t.Logf("%d swaps, %d unknown, %d leaders stepped down", len(h.ops), unknown, stepdowns)

	// Launchers make transitions in turn, each right after the other. All their events
	// arrive, once and in order.
	entry := none("chain")
	want := []string{}
	for i := range 20 {
		var next lease.Record
		var err error
		if i%2 == 0 {
			next = granted(t, entry, "t")
			want = append(want, fmt.Sprintf("granted/%d/%d", i/2+1, i+1))
		} else {
			next, err = entry.Record.Release("done", "ok", lease.Sealed{}, t0)
			want = append(want, fmt.Sprintf("released/%d/%d", i/2+1, i+1))
		}
		if err == nil {
			entry, err = stores[i%len(stores)].Swap(ctx, entry, next)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	watch.await("chain/available/10")
	for _, s := range stores {
		if err := s.Flush(ctx); err != nil {
			t.Fatal(err)
		}
	}
	wantHistory(t, stores[0], "chain", want...)
}
