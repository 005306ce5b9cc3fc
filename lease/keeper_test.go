package lease

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"leasehold/internal/boottime"
)

func TestKeeperRenews(t *testing.T) {
	keeping(t, func(b *bench) {
		f := b.k.Fence(1)
		time.Sleep(time.Hour)
		b.k.Stop()
		if err := f.Check(); err != nil {
			t.Fatalf("after an hour of renewals: %v", err)
		}
		if want := int(time.Hour / timing.Renewal()); b.s.writes < want-2 || b.s.writes > want+2 {
			t.Errorf("%d writes in an hour, want about %d", b.s.writes, want)
		}
		if b.expiring.Load() != 0 {
			t.Error("it warned although nothing was wrong")
		}
	})
}

func TestKeeperStopsBeforeOthersMayAct(t *testing.T) {
	keeping(t, func(b *bench) {
		f := b.k.Fence(1)
		time.Sleep(12 * time.Second)
		b.s.set(func(s *memory) { s.away = true })
		if err := b.lost(); !errors.Is(err, ErrExpired) {
			t.Fatalf("lost by %v, want ErrExpired", err)
		}
		if f.Check() == nil {
			t.Fatal("the fence is open although the presence is lost")
		}
		if b.clock() > b.latest() {
			t.Fatalf("stopped %v after its deadline", b.clock().Sub(b.latest()))
		}
		if b.expiring.Load() == 0 {
			t.Error("nobody was warned")
		}
	})
}

// The store applies what it is sent, but no answer arrives. A renewal that is not known
// to be stored does not count.
func TestKeeperOnAHalfOpenConnection(t *testing.T) {
	keeping(t, func(b *bench) {
		f := b.k.Fence(1)
		time.Sleep(time.Second)
		first := b.latest()
		b.s.set(func(s *memory) { s.silent = true })
		if err := b.lost(); !errors.Is(err, ErrExpired) || f.Check() == nil {
			t.Fatalf("lost by %v, fence %v", err, f.Check())
		}
		if b.clock() > first {
			t.Fatalf("stopped %v after the deadline of the last renewal that was answered", b.clock().Sub(first))
		}
	})
}

func TestKeeperSurvivesAShortOutage(t *testing.T) {
	keeping(t, func(b *bench) {
		f := b.k.Fence(1)
		for i := range 6 {
			b.s.set(func(s *memory) { s.away, s.silent = i%2 == 0, i%2 == 1 })
			time.Sleep(15 * time.Second)
			b.s.set(func(s *memory) { s.away, s.silent = false, false })
			time.Sleep(20 * time.Second)
		}
		if err := f.Check(); err != nil {
			t.Fatal(err)
		}
	})
}

// An answer that arrives after the deadline does not count, even if the timer that
// ends the renewal fires late.
func TestKeeperAnswerAfterTheDeadline(t *testing.T) {
	keeping(t, func(b *bench) {
		f := b.k.Fence(1)
		b.s.set(func(s *memory) { s.silent = true })
		time.Sleep(timing.Renewal() + time.Second) // a renewal is applied but not answered
		b.ahead.Add(int64(ttl))
		if f.Check() == nil {
			t.Fatal("the fence is open after the deadline")
		}
		b.s.set(func(s *memory) { s.silent = false })
		if err := b.lost(); !errors.Is(err, ErrExpired) {
			t.Fatalf("lost by %v, want ErrExpired", err)
		}
		if f.Check() == nil || b.k.Fence(2).Check() == nil {
			t.Fatal("the late answer opened a fence")
		}
	})
}

// While the host sleeps or the process is stopped, the boot-time clock goes on, and
// timers fire late. The fence refuses writes before anything else has noticed.
func TestFenceAfterAPause(t *testing.T) {
	for name, pause := range map[string]time.Duration{"just past the deadline": ttl - timing.Margin(), "for an hour": time.Hour} {
		t.Run(name, func(t *testing.T) {
			keeping(t, func(b *bench) {
				f := b.k.Fence(1)
				if f.Check() != nil {
					t.Fatal("shut from the start")
				}
				b.ahead.Add(int64(pause))
				if err := f.Check(); !errors.Is(err, ErrExpired) {
					t.Fatalf("the fence says %v after a pause of %v, before any timer fired", err, pause)
				}
				if b.k.Context().Err() != nil {
					t.Fatal("a timer fired: not the case that the test is about")
				}
				if err := b.lost(); !errors.Is(err, ErrExpired) {
					t.Fatalf("lost by %v, want ErrExpired", err)
				}
			})
		})
	}
}

func TestPauseBeforeTheDeadlineIsHarmless(t *testing.T) {
	keeping(t, func(b *bench) {
		f := b.k.Fence(1)
		for range 10 {
			b.ahead.Add(int64(ttl / 2))
			time.Sleep(2 * timing.Renewal())
		}
		if err := f.Check(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestKeeperClosedByAnother(t *testing.T) {
	keeping(t, func(b *bench) {
		f := b.k.Fence(1)
		time.Sleep(time.Second)
		b.s.closeBy(t, "other")
		if err := b.lost(); !errors.Is(err, ErrExpired) || f.Check() == nil {
			t.Fatalf("lost by %v, fence %v", err, f.Check())
		}
		if p := b.s.presence(); !p.Closed || p.ClosedBy != "other" {
			t.Fatalf("the presence was opened again: %+v", p)
		}
	})
}

func TestKeeperOpenedAgainByAnotherProcess(t *testing.T) {
	keeping(t, func(b *bench) {
		f := b.k.Fence(1)
		time.Sleep(time.Second)
		before, err := b.s.Presence(t.Context(), "l")
		if err != nil {
			t.Fatal(err)
		}
		second, err := Keep(t.Context(), Presence{LauncherID: "l"}, before, 0, b.options())
		if err != nil {
			t.Fatal(err)
		}
		defer second.Stop()
		if second.Epoch() <= b.k.Epoch() {
			t.Fatalf("epoch %d after %d", second.Epoch(), b.k.Epoch())
		}
		if err := b.lost(); !errors.Is(err, ErrSuperseded) || f.Check() == nil {
			t.Fatalf("lost by %v, fence %v", err, f.Check())
		}
		time.Sleep(time.Minute)
		if err := second.Fence(1).Check(); err != nil || b.s.presence().Epoch != second.Epoch() {
			t.Fatalf("the second: %v", err)
		}
	})
}

// Somebody writes the presence without ending the stay. The refusal of the next renewal
// may or may not have the current entry.
func TestKeeperMoved(t *testing.T) {
	for _, noCurrent := range []bool{false, true} {
		keeping(t, func(b *bench) {
			b.s.set(func(s *memory) {
				s.noCurrent = noCurrent
				s.revision++
				e := s.presences["l"]
				e.Revision = s.revision
				s.presences["l"] = e
			})
			before := b.s.presence().HeartbeatAt
			time.Sleep(2 * timing.Renewal())
			if b.k.Context().Err() != nil || !b.s.presence().HeartbeatAt.After(before) {
				t.Fatalf("without the current entry %v: not renewed over the other write", noCurrent)
			}
		})
	}
}

func TestKeeperStoreGoesBack(t *testing.T) {
	for name, back := range map[string]func(b *bench) func(){
		"wiped": (*bench).wiped,
		"to an older heartbeat": func(b *bench) func() {
			back := b.s.back()
			time.Sleep(time.Minute)
			return back
		},
	} {
		t.Run(name, func(t *testing.T) {
			keeping(t, func(b *bench) {
				f := b.k.Fence(1)
				back := back(b)
				back()
				before := time.Now()
				b.k.RenewNow()
				time.Sleep(time.Second)
				p := b.s.presence()
				if f.Check() != nil || p.Epoch != b.k.Epoch() || p.HeartbeatAt.Before(before) {
					t.Fatalf("fence %v, presence %+v: want the presence written again at once", f.Check(), p)
				}
			})
		})
	}
}

func (b *bench) wiped() func() {
	return func() { b.s.set(func(s *memory) { clear(s.presences); clear(s.records) }) }
}

// A store that went back to before the launcher's last restart has an earlier epoch
// than the launcher remembers. The next stay has a higher one than both.
func TestKeepRemembersItsEpoch(t *testing.T) {
	keeping(t, func(b *bench) {
		b.k.Stop()
		b.s.set(func(s *memory) { clear(s.presences) })
		k, err := Keep(t.Context(), Presence{LauncherID: "l"}, PresenceEntry{}, 7, b.options())
		if err != nil {
			t.Fatal(err)
		}
		defer k.Stop()
		if k.Epoch() != 8 {
			t.Fatalf("epoch %d, want 8", k.Epoch())
		}
	})
}

// A presence that was written since the caller read it is not replaced: its launcher lives.
func TestKeepReplacesOnlyWhatWasRead(t *testing.T) {
	keeping(t, func(b *bench) {
		before, err := b.s.Presence(t.Context(), "l")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * timing.Renewal())
		_, err = Keep(t.Context(), Presence{LauncherID: "l"}, before, 0, b.options())
		var moved *PresenceMovedError
		if !errors.As(err, &moved) || b.s.presence().Epoch != b.k.Epoch() || b.k.Context().Err() != nil {
			t.Fatalf("%v, epoch %d is stored", err, b.s.presence().Epoch)
		}
	})
}

func TestLeave(t *testing.T) {
	keeping(t, func(b *bench) {
		f := b.k.Fence(1)
		b.s.applied = func() {
			if f.Check() == nil {
				t.Error("the presence is closed in the store, and the fence is open")
			}
		}
		if err := b.k.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		if p := b.s.presence(); !p.Closed || p.ClosedBy != "l" || p.Epoch != b.k.Epoch() {
			t.Fatalf("%+v", p)
		}
	})
}

func TestLeaveWhatIsOverAlready(t *testing.T) {
	keeping(t, func(b *bench) {
		b.s.closeBy(t, "other")
		if err := b.lost(); err == nil {
			t.Fatal("not lost")
		}
		if err := b.k.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		if p := b.s.presence(); p.ClosedBy != "other" {
			t.Fatalf("%+v", p)
		}
	})
}

func TestFenceNeverOpensAgain(t *testing.T) {
	now := boottime.Instant(0)
	clock := func() boottime.Instant { return now }
	stay := Begin(PresenceEntry{Presence: Presence{LauncherID: "l", Epoch: 1}}, 0, timing, clock)
	f, untouched := stay.Fence(3), stay.Fence(4)
	if f.Check() != nil || f.Token() != 3 || f.Cause() != nil {
		t.Fatal("shut before its deadline")
	}
	now = stay.Deadline()
	if !errors.Is(f.Check(), ErrExpired) || !errors.Is(f.Cause(), ErrExpired) {
		t.Fatal("open at its deadline")
	}
	now--
	if f.Check() == nil {
		t.Fatal("it opened again")
	}
	if untouched.Check() != nil {
		t.Fatal("another fence was shut with it")
	}
	untouched.Shut(&FencedError{Profile: "p", Token: 4, Current: 5})
	untouched.Shut(ErrExpired)
	var fenced *FencedError
	if !errors.As(untouched.Check(), &fenced) || fenced.Current != 5 {
		t.Fatalf("%v: want the first cause", untouched.Check())
	}
	if f.Deadline() != stay.Deadline() {
		t.Fatalf("the fence shuts at %v, the stay ends at %v", f.Deadline(), stay.Deadline())
	}
}

// The deadline is counted from before the send, however late the answer comes.
func TestDeadlineIsCountedFromTheSend(t *testing.T) {
	now := boottime.Instant(0)
	stay := Begin(PresenceEntry{Presence: Presence{LauncherID: "l", Epoch: 1}}, now, timing, func() boottime.Instant { return now })
	lifetime := boottime.Instant(ttl - timing.Margin())
	if stay.Deadline() != lifetime {
		t.Fatalf("deadline %v", stay.Deadline())
	}
	sent := boottime.Instant(5 * time.Second)
	now = lifetime - 1
	prev, next, err := stay.Next(noon)
	if err != nil || prev.Presence.Epoch != next.Epoch {
		t.Fatalf("epochs %d and %d, error %v; want the same", prev.Presence.Epoch, next.Epoch, err)
	}
	if err := stay.Renewed(PresenceEntry{Presence: next, Revision: 2}, sent); err != nil || stay.Deadline() != sent+lifetime {
		t.Fatalf("%v, deadline %v, want %v", err, stay.Deadline(), sent+lifetime)
	}
	now = sent + lifetime
	if err := stay.Renewed(PresenceEntry{Presence: next, Revision: 3}, now-1); !errors.Is(err, ErrExpired) || stay.Deadline() != sent+lifetime {
		t.Fatalf("an answer at the deadline: %v, deadline %v", err, stay.Deadline())
	}
}

// slowStore is a store whose requests take a while on their way, and whose answers
// do too.
type slowStore struct {
	*memory
	clock boottime.Clock
	// sends counts the calls of SwapPresence; sentAt is when the last one began.
	sends, sentAt atomic.Int64
}

const slowness = 2 * time.Second

func (s *slowStore) SwapPresence(ctx context.Context, prev PresenceEntry, next Presence) (PresenceEntry, error) {
	s.sentAt.Store(int64(s.clock()))
	s.sends.Add(1)
	time.Sleep(slowness)
	stored, err := s.memory.SwapPresence(ctx, prev, next)
	time.Sleep(slowness)
	return stored, err
}

// Others count their wait from when the store applied a write, which can be right
// after it was sent. A keeper therefore counts its deadline from before the send,
// never from the answer: when it opens its presence, and at every renewal.
func TestKeeperCountsFromBeforeTheSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, s: newMemory(), start: time.Now()}
		store := &slowStore{memory: b.s, clock: b.clock}
		options := b.options()
		options.Store = store
		k, err := Keep(t.Context(), Presence{LauncherID: "l"}, PresenceEntry{}, 0, options)
		if err != nil {
			t.Fatal(err)
		}
		defer k.Stop()
		want := func(writes int64, what string) {
			t.Helper()
			latest := boottime.Instant(store.sentAt.Load()).Add(timing.TTL - timing.Margin())
			if n := store.sends.Load(); n != writes {
				t.Fatalf("%s: %d writes were sent, want %d", what, n, writes)
			}
			if k.Deadline() != latest {
				t.Errorf("%s: the deadline is %v later than one that is counted from before the send", what, k.Deadline().Sub(latest))
			}
		}
		want(1, "opened")
		for n := range int64(3) {
			time.Sleep(timing.Renewal() + 2*slowness)
			synctest.Wait()
			want(n+2, "renewed")
		}
	})
}

func TestTimings(t *testing.T) {
	for _, ttl := range []time.Duration{0, time.Millisecond, 2 * time.Hour} {
		if (Timing{TTL: ttl}).Validate() == nil {
			t.Errorf("TTL %v is taken", ttl)
		}
	}
	for _, ttl := range []time.Duration{time.Second, 30 * time.Second, time.Hour} {
		x := Timing{TTL: ttl}
		if err := x.Validate(); err != nil {
			t.Error(err)
		}
		drift := time.Duration(2 * driftBound * float64(ttl))
		if x.ObserverWait() <= ttl+drift {
			t.Errorf("TTL %v: observers wait %v, not longer than TTL and twice the drift", ttl, x.ObserverWait())
		}
		if x.GrantDelay() < x.ObserverWait()+drift {
			t.Errorf("TTL %v: a grant delay of %v does not exceed the wait %v by one more drift", ttl, x.GrantDelay(), x.ObserverWait())
		}
		if x.Renewal() <= 0 || x.Margin() <= 0 || x.Renewal()+x.Margin() >= ttl/2 {
			t.Errorf("TTL %v: renewal %v, margin %v", ttl, x.Renewal(), x.Margin())
		}
	}
}

// TestEachRenewalIsTold to who waits for it.
func TestEachRenewalIsTold(t *testing.T) {
	keeping(t, func(b *bench) {
		for range 10 {
			before := b.k.Deadline()
			if <-b.k.Moved(); b.k.Deadline() <= before {
				t.Fatal("the deadline has not moved")
			}
		}
	})
}
