package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

// holding runs a test on a lease that was just granted.
func holding(t *testing.T, test func(b *bench, h *Holding)) {
	keeping(t, func(b *bench) {
		h := b.hold(Record{ProfileID: "p", Settings: Settings{MaxActiveRuns: 3}})
		defer h.Stop()
		test(b, h)
	})
}

// hold grants one more run of the record, and holds its lease.
func (b *bench) hold(r Record) *Holding {
	b.Helper()
	next, err := r.Grant(Request{SessionID: "s", LauncherID: "l", PresenceEpoch: b.k.Epoch(), TTL: ttl}, time.Now())
	if err != nil {
		b.Fatal(err)
	}
	b.s.mu.Lock()
	prev := b.s.records["p"]
	b.s.mu.Unlock()
	stored, err := b.s.Swap(b.Context(), prev, next)
	if err != nil {
		b.Fatal(err)
	}
	return Hold(b.Context(), stored.Record, next.Token, b.s, b.k)
}

// ended waits until the lease is lost, and returns the cause.
func (b *bench) ended(h *Holding) error {
	b.Helper()
	select {
	case <-h.Context().Done():
	case <-time.After(10 * time.Minute):
		b.Fatal("the lease is not lost")
	}
	if h.Fence().Check() == nil {
		b.Fatal("the fence is open although the lease is lost")
	}
	return context.Cause(h.Context())
}

func TestHoldingWritesProgressOnce(t *testing.T) {
	holding(t, func(b *bench, h *Holding) {
		before := b.s.writes
		for range 1000 {
			h.Report(Progress{LastKnownURL: "http://a/"})
			h.Report(Progress{LastKnownURL: "http://b/", LastKnownStep: "two"})
		}
		time.Sleep(time.Second)
		h.Stop()
		if r := b.s.record(); r.LastKnownURL != "http://b/" || r.LastKnownStep != "two" || b.s.writes > before+2 {
			t.Fatalf("url %q step %q after %d writes", r.LastKnownURL, r.LastKnownStep, b.s.writes-before)
		}
	})
}

func TestHoldingLeavesSettingsOfOthers(t *testing.T) {
	holding(t, func(b *bench, h *Holding) {
		h.Report(Progress{LastKnownURL: "http://b/"})
		time.Sleep(time.Second)
		b.s.change(t, func(r Record) (Record, error) { r.AccountID = "acme"; return r, nil })
		h.Report(Progress{LastKnownStep: "three"})
		time.Sleep(2 * timing.Renewal())
		if r := b.s.record(); r.AccountID != "acme" || r.LastKnownStep != "three" || r.LastKnownURL != "http://b/" {
			t.Fatalf("%+v", r)
		}
	})
}

func TestHoldingWritesProgressAfterAnOutage(t *testing.T) {
	holding(t, func(b *bench, h *Holding) {
		b.s.set(func(s *memory) { s.away = true })
		h.Report(Progress{LastKnownURL: "http://b/"})
		time.Sleep(12 * time.Second)
		b.s.set(func(s *memory) { s.away = false })
		time.Sleep(10 * time.Second)
		if r := b.s.record(); r.LastKnownURL != "http://b/" || h.Fence().Check() != nil {
			t.Fatalf("url %q, fence %v", r.LastKnownURL, h.Fence().Check())
		}
	})
}

// The page monitor reports each navigation.
func TestReportsDoNotWaitForTheStore(t *testing.T) {
	holding(t, func(b *bench, h *Holding) {
		b.s.set(func(s *memory) { s.hangs = true })
		begun := time.Now()
		for i := range 20 {
			h.Report(Progress{LastKnownURL: fmt.Sprint("http://", i, "/")})
			time.Sleep(100 * time.Millisecond)
		}
		h.Report(Progress{LastKnownStep: "last"})
		if waited := time.Since(begun) - 20*100*time.Millisecond; waited != 0 {
			t.Errorf("21 reports waited %s for a store that hangs", waited)
		}
		b.s.set(func(s *memory) { s.hangs = false })
		time.Sleep(timing.Renewal())
		if r := b.s.record(); r.LastKnownURL != "http://19/" || r.LastKnownStep != "last" {
			t.Errorf("url %q, step %q after the store came back", r.LastKnownURL, r.LastKnownStep)
		}
	})
}

func TestHoldingIsFencedByAHigherToken(t *testing.T) {
	fence := func(r Record) (Record, error) {
		r, err := r.Suspect("lease_expired", Sealed{}, noon)
		if err != nil {
			return r, err
		}
		return r.Quarantine(98, noon)
	}
	for name, show := range map[string]func(b *bench, h *Holding){
		"shown":             func(b *bench, h *Holding) { h.Observe(b.s.record()) },
		"found at a write":  func(_ *bench, h *Holding) { h.Report(Progress{LastKnownURL: "http://b/"}) },
		"shown with others": func(b *bench, h *Holding) { h.Observe(Record{ProfileID: "p"}); h.Observe(b.s.record()) },
	} {
		t.Run(name, func(t *testing.T) {
			holding(t, func(b *bench, h *Holding) {
				b.s.change(t, fence)
				show(b, h)
				var fenced *FencedError
				if err := b.ended(h); !errors.As(err, &fenced) || fenced.Current != 99 || fenced.Token != 1 {
					t.Fatalf("lost by %v, want token 99", err)
				}
				if r := b.s.record(); r.State != Quarantined || r.LastKnownURL != "" {
					t.Fatalf("the fenced holder wrote: %+v", r)
				}
				if b.k.Context().Err() != nil || b.k.Fence(2).Check() != nil {
					t.Fatal("the other leases of the launcher are lost with it")
				}
			})
		})
	}
}

func TestHoldingTakesASuspicionBack(t *testing.T) {
	holding(t, func(b *bench, h *Holding) {
		b.s.change(t, func(r Record) (Record, error) { return r.Suspect("lease_expired", Sealed{}, noon) })
		h.Observe(b.s.record())
		time.Sleep(10 * time.Second)
		if r := b.s.record(); r.State != Held || h.Fence().Check() != nil {
			t.Fatalf("state %s, fence %v", r.State, h.Fence().Check())
		}
	})
}

func TestHoldingWritesAgainWhatTheStoreForgot(t *testing.T) {
	for name, forget := range map[string]func(b *bench) func(){
		"wiped": (*bench).wiped,
		"set back to before the grant": func(b *bench) func() {
			return func() {
				b.s.set(func(s *memory) {
					s.records["p"] = Entry{Record: Record{ProfileID: "p", State: ManualReview, Sequence: 1}, Revision: 1}
				})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			holding(t, func(b *bench, h *Holding) {
				h.Report(Progress{LastKnownURL: "http://b/"})
				time.Sleep(time.Second)
				before := b.s.record()
				forget(b)()
				h.Observe(b.s.record())
				time.Sleep(time.Second)
				r := b.s.record()
				if r.State != Held || r.Token != before.Token || r.LastKnownURL != "http://b/" || r.Sequence < before.Sequence || len(r.Runs) != 1 || h.Fence().Check() != nil {
					t.Fatalf("%+v, fence %v", r, h.Fence().Check())
				}
			})
		})
	}
}

// TestNoNumberOfAnEventIsGivenTwice: the store goes back to earlier in the same lease. An event that got
// the number of another one would never come to the event stream.
func TestNoNumberOfAnEventIsGivenTwice(t *testing.T) {
	holding(t, func(b *bench, h *Holding) {
		back := b.s.back()
		b.s.change(t, func(r Record) (Record, error) { return r.Suspect("observed", Sealed{}, noon) })
		h.Observe(b.s.record())
		time.Sleep(time.Second)
		before := b.s.record()
		back()
		old := b.s.record()
		if old.State != Held || old.Token != before.Token || old.Sequence >= before.Sequence {
			t.Fatalf("it went back from %+v to %+v", before, old)
		}
		h.Observe(old)
		time.Sleep(time.Second)
		if r := b.s.record(); r.Sequence < before.Sequence || r.State != Held || h.Fence().Check() != nil {
			t.Errorf("the next event would have the number %d again: %d was given", r.Sequence+1, before.Sequence)
		}
	})
}

// The store forgot, and cannot be written to for a while: the holder tries more than
// once.
func TestHoldingWritesAgainAfterAnOutage(t *testing.T) {
	holding(t, func(b *bench, h *Holding) {
		b.s.set(func(s *memory) { clear(s.records); s.away = true })
		h.Observe(Record{ProfileID: "p"})
		time.Sleep(18 * time.Second)
		b.s.set(func(s *memory) { s.away = false })
		time.Sleep(10 * time.Second)
		if r := b.s.record(); r.State != Held || h.Fence().Check() != nil {
			t.Fatalf("%+v, fence %v", r, h.Fence().Check())
		}
	})
}

// Two runs share a Chrome, and the store goes back to before the second grant.
func TestHoldingsOfSeveralRuns(t *testing.T) {
	for name, first := range map[string]bool{"the older is shown first": true, "the newer is shown first": false} {
		t.Run(name, func(t *testing.T) {
			holding(t, func(b *bench, h *Holding) {
				back := b.s.back()
				second := b.hold(b.s.record())
				defer second.Stop()
				h.Observe(b.s.record())
				time.Sleep(time.Second)
				back()
				holdings := []*Holding{h, second}
				if !first {
					slices.Reverse(holdings)
				}
				for _, h := range holdings {
					h.Observe(b.s.record())
					time.Sleep(time.Second)
				}
				r := b.s.record()
				if got := b.tokens(r); !slices.Equal(got, []Token{1, 2}) || r.Token != 2 || h.Fence().Check() != nil || second.Fence().Check() != nil {
					t.Fatalf("runs %v under token %d, fences %v and %v", got, r.Token, h.Fence().Check(), second.Fence().Check())
				}
				b.s.change(t, func(r Record) (Record, error) { return r.EndRun(1, true, "lost", "", Sealed{}, noon) })
				h.Observe(b.s.record())
				second.Observe(b.s.record())
				if err := b.ended(h); !errors.As(err, new(*FencedError)) {
					t.Fatalf("the run that was taken out is lost by %v", err)
				}
				time.Sleep(time.Second)
				if second.Fence().Check() != nil {
					t.Fatal("the other run is lost with it")
				}
			})
		})
	}
}

func TestHoldingEndsWithThePresence(t *testing.T) {
	holding(t, func(b *bench, h *Holding) {
		b.s.closeBy(t, "other")
		if err := b.ended(h); !errors.Is(err, ErrExpired) {
			t.Fatalf("lost by %v, want ErrExpired", err)
		}
	})
}

// After a pause past the deadline nothing is written, neither progress nor a lease that
// the store forgot.
func TestHoldingWritesNothingAfterAPause(t *testing.T) {
	holding(t, func(b *bench, h *Holding) {
		b.s.set(func(s *memory) { clear(s.records) })
		b.ahead.Add(int64(time.Hour))
		h.Observe(Record{ProfileID: "p"})
		h.Report(Progress{LastKnownURL: "http://b/"})
		if err := b.ended(h); !errors.Is(err, ErrExpired) {
			t.Fatalf("lost by %v, want ErrExpired", err)
		}
		if r := b.s.record(); r.State != "" {
			t.Fatalf("a holder past its deadline wrote %+v", r)
		}
	})
}

func TestHoldingStop(t *testing.T) {
	holding(t, func(b *bench, h *Holding) {
		h.Stop()
		h.Report(Progress{LastKnownURL: "http://b/"}) // neither blocks nor writes
		h.Observe(Record{ProfileID: "p"})
		time.Sleep(time.Minute)
		if r := b.s.record(); r.LastKnownURL != "" || h.Fence().Check() != nil {
			t.Fatalf("url %q, fence %v: Stop ends the writes and leaves the fence", r.LastKnownURL, h.Fence().Check())
		}
	})
}

func TestContinue(t *testing.T) {
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	q := Request{SessionID: "s", LauncherID: "l", BootID: "b", PresenceEpoch: 3, TTL: ttl}
	held, err := Record{ProfileID: "p", Token: 41}.Grant(q, at)
	if err != nil {
		t.Fatal(err)
	}
	held.Outbox = nil
	with := func(change func(*Record, *Request)) (Record, Request) {
		r, next := held.Clone(), q
		next.PresenceEpoch = 4
		change(&r, &next)
		return r, next
	}
	for _, tt := range []struct {
		name   string
		change func(*Record, *Request)
		ok     bool
	}{
		{"the next stay of the same launcher", func(*Record, *Request) {}, true},
		{"some stay later", func(_ *Record, q *Request) { q.PresenceEpoch = 9 }, true},
		{"the same stay", func(_ *Record, q *Request) { q.PresenceEpoch = 3 }, false},
		{"an earlier stay", func(_ *Record, q *Request) { q.PresenceEpoch = 2 }, false},
		{"another launcher", func(_ *Record, q *Request) { q.LauncherID = "m" }, false},
		{"another boot", func(_ *Record, q *Request) { q.BootID = "c" }, false},
		{"an unknown boot", func(r *Record, q *Request) { r.BootID, q.BootID = "", "" }, false},
		{"suspected", func(r *Record, _ *Request) { r.State = SuspectedStale }, false},
		{"quarantined", func(r *Record, _ *Request) { r.State, r.Token, r.Runs = Quarantined, 43, nil }, false},
		{"available", func(r *Record, _ *Request) { r.State, r.Runs = Available, nil }, false},
		{"granted again", func(r *Record, _ *Request) { r.Token, r.Runs[0].Token = 43, 43 }, false},
		{"an old copy", func(r *Record, _ *Request) { r.Token, r.Runs[0].Token = 41, 41 }, false},
		{"several runs", func(r *Record, _ *Request) { r.Runs = append(r.Runs, Run{Token: 41}) }, false},
		{"a run was lost", func(r *Record, _ *Request) { r.LostRuns = []Run{{Token: 41}} }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, q := with(tt.change)
			next, err := r.Continue(42, q, at.Add(time.Minute))
			var fenced *FencedError
			if (err == nil) != tt.ok || !tt.ok && !errors.As(err, &fenced) {
				t.Fatalf("error %v", err)
			}
			if !tt.ok {
				return
			}
			if next.State != Held || next.Token != 42 || next.PresenceEpoch != q.PresenceEpoch || !next.ExpiresAt.After(r.ExpiresAt) || len(next.Outbox) != 0 || next.Sequence != r.Sequence {
				t.Errorf("%+v", next)
			}
			// The holder of the earlier stay can write nothing more.
			if _, err := next.Uphold(held, 42, Progress{}, at); err == nil {
				t.Error("the earlier stay still holds the lease")
			}
		})
	}
}
