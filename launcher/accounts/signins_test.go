package accounts

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"leasehold/checkpoint/site"
	"leasehold/launcher/accountcheck"
	"leasehold/launcher/api"
	"leasehold/launcher/slots"
	"leasehold/lease"
)

// askedHost is a host with profiles whose accounts are checked.
type askedHost struct {
	mu      sync.Mutex
	records map[string]lease.Record
	full    bool
	running int
	most    int
	// checks are the profiles in the order of their checks.
	checks []string
	// fails has the errors of checks, and hangs is how long one takes.
	fails map[string]error
	hangs time.Duration
	says  lease.SignedIn
}

func (h *askedHost) known() []lease.Record {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Values(h.records))
}

func (h *askedHost) room() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.full
}

func (h *askedHost) check(ctx context.Context, profile string) error {
	h.mu.Lock()
	h.running++
	h.most = max(h.most, h.running)
	h.checks = append(h.checks, profile)
	h.mu.Unlock()
	select {
	case <-time.After(h.hangs):
	case <-ctx.Done():
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.running--
	if err := h.fails[profile]; err != nil {
		return err
	}
	h.records[profile] = h.records[profile].Checked(lease.Checked{SignedIn: h.says}, time.Now())
	return nil
}

// after returns the checks after a while, and how many there were.
func (h *askedHost) after(d time.Duration) string {
	time.Sleep(d)
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	slices.Sort(h.checks)
	done := strings.Join(h.checks, " ")
	h.checks = nil
	return done
}

func (h *askedHost) change(how func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	how()
}

// TestAccountsAreCheckedOnSchedule: after a session, then every now and then, an hour after a check that
// did not find it signed in, and never while there is no room.
func TestAccountsAreCheckedOnSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		used := lease.Record{State: lease.Available, SessionID: "s", Token: 3, ReleasedAt: time.Now(), Settings: lease.Settings{CheckEvery: lease.Duration(15 * time.Minute)}}
		h := &askedHost{records: map[string]lease.Record{}, fails: map[string]error{}, says: lease.SignedInYes, hangs: time.Second}
		add := func(id string, r lease.Record) { r.ProfileID = id; h.records[id] = r }
		add("a", used)
		held := used
		held.State = lease.Held
		add("held", held)
		s := &signIns{known: h.known, room: h.room, check: h.check, log: zerolog.Nop(), ended: make(chan ended), busy: map[string]bool{}, later: map[string]time.Time{}}
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() {
			defer close(over)
			s.run(ctx)
		}()
		expect := func(when string, d time.Duration, want string) {
			t.Helper()
			if got := h.after(d); got != want {
				t.Errorf("%s: checked %q, want %q", when, got, want)
			}
		}
		expect("just released", 29*time.Second, "")
		expect("half a minute later", 20*time.Second, "a")
		expect("within check_every", 14*time.Minute, "")
		expect("after check_every", 4*time.Minute, "a")
		h.change(func() { h.says = lease.SignedInNo })
		expect("it is signed out", 18*time.Minute, "a")
		expect("within an hour of that", 40*time.Minute, "")
		expect("an hour after that", 30*time.Minute, "a")
		h.change(func() { h.full, h.says = true, lease.SignedInYes })
		expect("a full host", 2*time.Hour, "")
		h.change(func() { h.full = false })
		expect("a place", time.Minute, "a")

		h.change(func() { h.fails["a"] = api.Refuse(api.CodeStoreUnavailable, "away") })
		time.Sleep(20 * time.Minute)
		h.change(func() { h.fails["a"] = slots.ErrWanted; h.checks = nil })
		expect("somebody wants the profile", 4*time.Minute, "a a a")
		h.change(func() { delete(h.records, "a"); h.hangs = 10 * time.Minute })

		h.change(func() {
			for _, id := range []string{"b", "c", "d", "e", "f", "g"} {
				add(id, used)
			}
		})
		if got := h.after(5 * time.Minute); len(strings.Fields(got)) != checksAtOnce {
			t.Errorf("a site that hangs: checked %q, want %d of them", got, checksAtOnce)
		}
		cancel()
		<-over
		if h.most != checksAtOnce || h.running != 0 {
			t.Errorf("%d checks at a time, %d after the end", h.most, h.running)
		}
	})
}

// TestACheckThatFails is tried again in an hour, and one that was refused in a minute.
func TestACheckThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &signIns{log: zerolog.Nop(), busy: map[string]bool{"p": true}, later: map[string]time.Time{}}
		for err, want := range map[error]time.Duration{errors.New("the browser did not close"): checkFailed, slots.ErrWanted: checkRefused} {
			s.over(ended{"p", err})
			if got := time.Until(s.later["p"]); got != want || s.busy["p"] {
				t.Errorf("%v: again in %v, want %v", err, got, want)
			}
		}
		if s.over(ended{"p", nil}); len(s.later) != 0 {
			t.Error("a check that was made is made again")
		}
	})
}

// TestWhoTellsSomethingElseEachTimeIsNoIdentity: trying a file says so, of the identity as of a probe.
func TestWhoTellsSomethingElseEachTimeIsNoIdentity(t *testing.T) {
	told := func(values string) site.Answer {
		return site.Answer{Question: site.Question{Ask: site.Ask{URL: "https://shop.example/me"}}, State: site.Told, Picked: site.Picked{Values: values, Text: values, Whole: true}}
	}
	for again, want := range map[string]string{"ann": "", "session 2": "changes by itself, or by being asked: then session 2"} {
		first := told("ann")
		got := tried(accountcheck.Found{Answers: []site.Answer{first}, Again: []site.Answer{told(again)}})
		if len(got) != 1 || got[0].Name != "identity" || !strings.Contains(strings.Join(got[0].Problems, "; "), want) || want == "" && len(got[0].Problems) > 0 {
			t.Errorf("%s: %+v, want %q", again, got, want)
		}
	}
}
