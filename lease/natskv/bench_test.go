package natskv

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"leasehold/internal/natsd"
	"leasehold/lease"
)

// patience is the time limit of a call in place of callTime, since a shared machine may be
// slow.
const patience = time.Minute

// benchStores runs the benchmark on an embedded server, and on three servers that replicate.
// All are in this process and sync every write.
func benchStores(b *testing.B, run func(b *testing.B, s *Store)) {
	for name, connect := range map[string]func(b *testing.B) (*nats.Conn, int){
		"embedded": func(b *testing.B) (*nats.Conn, int) {
			srv, err := natsd.Start(natsd.Options{Dir: b.TempDir(), Log: zerolog.Nop()})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(srv.Shutdown)
			nc, err := srv.Connect()
			if err != nil {
				b.Fatal(err)
			}
			return nc, 1
		},
		"three": func(b *testing.B) (*nats.Conn, int) {
			nc, err := natsd.Dial(b.Context(), natsd.Target{URL: startCluster(b)[0]}, zerolog.Nop())
			if err != nil {
				b.Fatal(err)
			}
			return nc, 3
		},
	} {
		b.Run(name, func(b *testing.B) {
			nc, replicas := connect(b)
			b.Cleanup(nc.Close)
			ctx, cancel := context.WithTimeout(b.Context(), 30*time.Second)
			defer cancel()
			s, err := Open(ctx, nc, Options{Replicas: replicas, Log: zerolog.Nop()})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(s.Close)
			run(b, s)
		})
	}
}

func request(task string) lease.Request {
	return lease.Request{SessionID: "session", WorkerID: "worker-7", TaskID: task, LauncherID: "launcher", BootID: "boot", PresenceEpoch: 1, TTL: 30 * time.Second}
}

// BenchmarkGrant measures what a grant needs from the store: to read the record, and to swap
// in the granted one.
func BenchmarkGrant(b *testing.B) {
	benchStores(b, func(b *testing.B, s *Store) {
		i := 0
		for b.Loop() {
			i++
			_, err := lease.Change(b.Context(), s, "p"+strconv.Itoa(i), func(e lease.Entry) (lease.Record, error) { return e.Record.Grant(request("t"), time.Now()) })
			if err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkRenewal measures one renewal of a presence.
func BenchmarkRenewal(b *testing.B) {
	benchStores(b, func(b *testing.B, s *Store) {
		p := lease.PresenceEntry{}
		own := lease.Presence{LauncherID: "launcher", BootID: "boot", TTLSeconds: 30}
		next := p.Presence.Open(own, 0, time.Now())
		for b.Loop() {
			var err error
			if p, err = s.SwapPresence(b.Context(), p, next); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkPresences measures one read of the presences of a hundred launchers.
func BenchmarkPresences(b *testing.B) {
	benchStores(b, func(b *testing.B, s *Store) {
		each(b, 100, 8, func(i int) error {
			l := lease.Presence{LauncherID: "launcher-" + strconv.Itoa(i), TTLSeconds: 30}
			return second2(s.SwapPresence(b.Context(), lease.PresenceEntry{}, l.Open(l, 0, time.Now())))
		})
		for b.Loop() {
			if all, err := s.Presences(b.Context()); err != nil || len(all) != 100 {
				b.Fatalf("%d presences, error %v; want 100", len(all), err)
			}
		}
	})
}

// BenchmarkTransition measures a grant or a release, until its event is on the stream.
func BenchmarkTransition(b *testing.B) {
	benchStores(b, func(b *testing.B, s *Store) {
		entry := none("p")
		for b.Loop() {
			next, err := entry.Record.Grant(request("t"), time.Now())
			if entry.Record.State == lease.Held {
				next, err = entry.Record.Release("done", "ok", lease.Sealed{}, time.Now())
			}
			if err == nil {
				entry, err = s.Swap(b.Context(), entry, next)
			}
			if err == nil {
				err = s.Flush(b.Context())
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkHeldLeases compares two ways to renew the 10 000 leases of one launcher every 5 s,
// which a TTL of 30 s needs: by its presence, and each by itself. Each takes ten seconds in
// real time, so it is run with -benchtime 1x. It reports the writes per second, the share of
// one core that client and server use together, and how many of the two rounds took longer
// than 5 s. "sustained" reports how many writes per second the store takes without pauses,
// and how much processor time each costs.
func BenchmarkHeldLeases(b *testing.B) {
	const leases, every, rounds = 10_000, 5 * time.Second, 2
	benchStores(b, func(b *testing.B, s *Store) {
		entries := make([]lease.Entry, leases)
		each(b, leases, 256, func(i int) error {
			ctx, cancel := context.WithTimeout(b.Context(), patience)
			defer cancel()
			p := "p" + strconv.Itoa(i)
			r, err := lease.Record{ProfileID: p}.Grant(request("task"), time.Now())
			if err == nil {
				r.Outbox = nil // as if its events were published
				entries[i], err = s.Swap(ctx, none(p), r)
			}
			return err
		})
		renew := func(i int) (err error) {
			next := entries[i].Record
			ctx, cancel := context.WithTimeout(b.Context(), patience)
			defer cancel()
			next.HeartbeatAt, next.ExpiresAt = time.Now().UTC(), time.Now().Add(30*time.Second).UTC()
			entries[i], err = s.Swap(ctx, entries[i], next)
			return err
		}
		presence, err := s.SwapPresence(b.Context(), lease.PresenceEntry{}, lease.Presence{}.Open(lease.Presence{LauncherID: "launcher", TTLSeconds: 30}, 0, time.Now()))
		if err != nil {
			b.Fatal(err)
		}
		for _, way := range []struct {
			name   string
			writes int
			renew  func(i int) error
		}{
			{"presence", 1, func(int) (err error) {
				ctx, cancel := context.WithTimeout(b.Context(), patience)
				defer cancel()
				presence, err = s.SwapPresence(ctx, presence, presence.Presence)
				return err
			}},
			{"each", leases, renew},
		} {
			b.Run(way.name, func(b *testing.B) {
				for b.Loop() {
					before, began, late := cpu(b), time.Now(), 0
					for range rounds {
						start := time.Now()
						each(b, way.writes, 256, way.renew)
						if took := time.Since(start); took > every {
							late++
						} else {
							time.Sleep(every - took)
						}
					}
					took := time.Since(began)
					b.ReportMetric(float64(rounds*way.writes)/took.Seconds(), "writes/s")
					b.ReportMetric(100*float64(cpu(b)-before)/float64(took), "%core")
					b.ReportMetric(float64(late), "late-rounds")
				}
			})
		}
		b.Run("sustained", func(b *testing.B) {
			for b.Loop() {
				start, before := time.Now(), cpu(b)
				each(b, leases, 256, renew)
				took := time.Since(start)
				b.ReportMetric(leases/took.Seconds(), "writes/s")
				b.ReportMetric(float64((cpu(b)-before).Microseconds())/leases, "cpu-µs/write")
			}
		})
	})
}

// each calls do with 0 to n-1, in several goroutines.
func each(b *testing.B, n, workers int, do func(i int) error) {
	b.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	failed := make([]error, workers)
	for w := range workers {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && failed[w] == nil; i = int(next.Add(1)) - 1 {
				if err := do(i); err != nil {
					failed[w] = fmt.Errorf("%d: %w", i, err)
				}
			}
		})
	}
	wg.Wait()
	if err := errors.Join(failed...); err != nil {
		b.Fatal(err)
	}
}

// cpu returns the processor time that this process has used.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
