package slots

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"leasehold/checkpoint"
	"leasehold/launcher/api"
)

// TestManyWantFewBrowsers has several goroutines want the same profiles, with their
// browsers, on a host with fewer places than profiles, while browsers that wait are
// closed for all kinds of reasons. One session has a browser at a time, the host never
// runs more than it may, everybody gets a turn, and nothing is left.
func TestManyWantFewBrowsers(t *testing.T) {
	t.Parallel()
	const (
		places = 2
		asking = 5
		visits = 6
	)
	profiles := []string{"a", "b", "c"}
	seed := rand.Uint64()
	defer func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	}()
	h := newHost(t, Options{KeepWarmIdle: 300 * time.Millisecond, KeepWarmMax: places, MaxBrowsers: places})
	sessions := map[string]*atomic.Int32{}
	for _, p := range profiles {
		sessions[p] = &atomic.Int32{}
	}
	quit := make(chan struct{})
	var all, around sync.WaitGroup
	for n := range asking {
		all.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(n)))
			for range visits {
				h.visit(profiles[random.IntN(len(profiles))], random, sessions)
			}
		})
	}
	around.Go(func() {
		random := rand.New(rand.NewPCG(seed, asking))
		for {
			select {
			case <-quit:
				return
			case <-time.After(time.Duration(random.IntN(20)) * time.Millisecond):
			}
			profile := profiles[random.IntN(len(profiles))]
			switch s := h.table.Find(profile); random.IntN(3) {
			case 0:
				h.table.CoolProfile(profile, WarmSetting)
			case 1:
				if s != nil {
					s.Note(checkpoint.Entry{Kind: checkpoint.KindURL, URL: "https://shop.example/"})
				}
			case 2:
				h.table.Wake()
			}
		}
	})
	all.Wait()
	close(quit)
	around.Wait()
	for {
		busy, changed := h.table.Drain()
		if busy == 0 {
			break
		}
		<-changed
	}
	h.work.Wait()
	if n := h.counted("leasehold_browsers", "") + h.counted("leasehold_queue", ""); n != 0 {
		t.Errorf("%v places or turns are left", n)
	}
	t.Logf("%d visits with %d browsers", asking*visits, len(h.started))
}

// visit is one session: it waits for the profile and for a place, uses the browser that
// is warm or starts one, and leaves it open or closes it.
func (h *host) visit(profile string, random *rand.Rand, sessions map[string]*atomic.Int32) {
	var turn Waiter
	defer h.table.LeaveQueue(&turn)
	patience := time.After(time.Minute)
	var s *Slot
	for s == nil {
		changed := h.table.Changed()
		p := api.Refuse(api.CodeConflict, "")
		if s = h.table.OccupyNext(h.t.Context(), profile, &turn); s != nil {
			if p = s.TakePlace(&turn); p == nil {
				break
			}
			s.Vacate()
			s = nil
		}
		if full := h.table.QueueUp(&turn, p); full != nil {
			h.t.Error(full)
			return
		}
		select {
		case <-changed:
		case <-patience:
			h.t.Errorf("%s: nobody wakes who waits for it", profile)
			return
		}
	}
	if n := sessions[profile].Add(1); n != 1 {
		h.t.Errorf("%d sessions have %s", n, profile)
	}
	// Once the slot is given up another session may begin.
	over := func(give func()) {
		sessions[profile].Add(-1)
		give()
	}
	switch {
	case s.IsWarm() && random.IntN(4) == 0: // it changed its mind
		over(s.Vacate)
		return
	case s.IsWarm() && (s.Disturbed() != "" || random.IntN(6) == 0):
		s.CloseWarm(WarmMismatch, "")
	case s.IsWarm():
		s.HandOver()
	}
	if s.Browser() == nil {
		h.start(s, fmt.Sprintf("ses_%s_%d", profile, random.Uint32()))
	}
	var one run
	s.Enter(&one)
	time.Sleep(time.Duration(random.IntN(3)) * time.Millisecond)
	if !s.Leave(&one) {
		h.t.Errorf("%s has two runs", profile)
	}
	if random.IntN(3) > 0 {
		over(func() { s.Park("ses_" + profile) })
		return
	}
	h.close(s)
	over(s.End)
}
