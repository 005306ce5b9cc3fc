package bubble

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"leasehold/internal/test/smalldisk"
	"leasehold/internal/test/testlog"
	"leasehold/launcher/api"
	"leasehold/launcher/snapshots"
	"leasehold/lease"
)

// world is one seed's: hosts, their store and disks, and everything that happens.
type world struct {
	t        *testing.T
	seed     uint64
	begun    time.Time
	server   *server
	check    *checker
	hosts    []*host
	evidence string // the directory of the evidence store
	// snapshots is that of the profile store, and shareAway says that nobody reaches it.
	snapshots   string
	snapshotKey *snapshots.Key
	shareAway   atomic.Bool
	profiles    []string
	full        bool          // disks can be filled
	over        chan struct{} // closed when everything has come to its end
	said        testlog.Buffer

	asks sync.WaitGroup
	late sync.WaitGroup
	// choices are people's choices of a home that are not through.
	choices atomic.Int64
	// leaving are launchers that are ending in order.
	leaving sync.WaitGroup
	writes  atomic.Int64
	pids    atomic.Int64
	calm    atomic.Bool   // nothing goes wrong any more
	backAt  time.Duration // when the store could be reached again
	forgot  time.Duration // when it forgot something last

	mu      sync.Mutex
	rng     *rand.Rand
	all     []*process          // that were ever started
	chromes map[int]*fakeChrome // by pid
	links   []*link             // all that there ever were
	counts  map[string]int
	trace   []string
	wrong   []string
}

func (w *world) now() time.Duration { return time.Since(w.begun) }

func (w *world) count(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[what]++
}

// note keeps what happened, for people.
func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trace = append(w.trace, fmt.Sprintf("%9.3f ", w.now().Seconds())+fmt.Sprintf(format, args...))
}

// broken says that a promise is broken.
func (w *world) broken(rule, format string, args ...any) {
	w.note("BROKEN "+rule+": "+format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrong = append(w.wrong, fmt.Sprintf(rule+": "+format, args...))
}

// dice is true once in n times.
func (w *world) dice(n int) bool { return w.below(n) == 0 }

// mishap is dice while something may go wrong.
func (w *world) mishap(n int) bool { return w.dice(n) && !w.calm.Load() }

func (w *world) below(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rng.IntN(n)
}

// between draws a duration.
func (w *world) between(from, to time.Duration) time.Duration {
	return from + time.Duration(w.below(int(to-from)))
}

func (w *world) browsersOn(path string) (on []*fakeChrome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.chromes {
		if c.path == path {
			on = append(on, c)
		}
	}
	return on
}

// pathsOf are the directories of the profile on the hosts of a launcher.
func (w *world) pathsOf(profile, home string) (paths []string) {
	for _, h := range w.hosts {
		if h.id == home {
			paths = append(paths, filepath.Join(h.profiles, profile))
		}
	}
	return paths
}

// sealed tells whether a bundle of the session is stored, as the launcher sees it.
func (w *world) sealed(p *process, profile, session string) bool {
	all, err := p.archive.List(context.Background(), profile)
	for _, m := range all {
		if err == nil && m.SessionID == session && !m.IsPicture() {
			return true
		}
	}
	return false
}

// sealedBy is sealedSince for a process of any kind.
func (w *world) sealedBy(l *life, profile string, token lease.Token) bool {
	return w.sealedSince(l.host.p.Load(), profile, token)
}

// sealedSince tells whether a bundle of any session since the token is stored.
func (w *world) sealedSince(p *process, profile string, token lease.Token) bool {
	all, err := p.archive.List(context.Background(), profile)
	for _, m := range all {
		if err == nil && lease.Token(m.LeaseToken) >= token && !m.IsPicture() {
			return true
		}
	}
	return false
}

// sharedBy is how many runs may share a profile.
func (w *world) sharedBy(profile string) int {
	if strings.HasPrefix(profile, "shared") {
		return 3
	}
	return 1
}

// newWorld makes a world in a bubble. disk is a directory whose disks can be filled; empty:
// there is none.
func newWorld(t *testing.T, seed uint64, disk string) *world {
	w := &world{
		t: t, seed: seed, begun: time.Now(), rng: rand.New(rand.NewPCG(seed, 0)), chromes: map[int]*fakeChrome{}, counts: map[string]int{},
		profiles: []string{"p1", "p2", "shared1", "clone", roams}, full: disk != "", over: make(chan struct{}),
	}
	w.server, w.check = newServer(w), newChecker(w)
	dir, err := os.MkdirTemp(memory(), "bubble")
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	w.evidence = filepath.Join(dir, "evidence")
	w.snapshots, w.snapshotKey = filepath.Join(dir, "snapshots"), snapshots.NewKey()
	ids := []string{"alpha", "beta"}
	if seed%4 == 1 {
		ids = ids[:1]
	}
	for i, id := range ids {
		base := filepath.Join(dir, id)
		if disk != "" {
			base = filepath.Join(disk, id)
		}
		h := &host{w: w, id: id, data: filepath.Join(base, "data"), profiles: filepath.Join(base, "profiles"), ahead: time.Duration(i+1) * time.Hour, rate: []float64{0.0004, -0.0004}[i]}
		if seed%4 == 3 && i > 0 { // both launchers have one folder, on one host
			h.profiles = w.hosts[0].profiles
		}
		err := os.MkdirAll(base, 0o700)
		if err == nil && disk != "" { // in a mount namespace of the test's own
			err = unix.Mount("none", base, "tmpfs", 0, "mode=700,size=6m")
			t.Cleanup(func() { _ = unix.Unmount(base, unix.MNT_DETACH) })
		}
		if err == nil {
			err = os.MkdirAll(h.data, 0o700)
		}
		if err != nil {
			t.Fatal(err)
		}
		w.hosts = append(w.hosts, h)
	}
	return w
}

// memory is a directory where nothing has to be written to a disk; empty: there is none.
func memory() string {
	const shm = "/dev/shm"
	if unix.Access(shm, unix.W_OK) == nil {
		return shm
	}
	return ""
}

// begin starts a launcher and remembers it. Of the one before nothing goes on.
func (w *world) begin(h *host) {
	synctest.Wait()
	h.start()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, h.p.Load())
}

// play plays the schedule of the seed and then lets everything come to its end.
func (w *world) play(steps int) {
	for _, h := range w.hosts {
		w.begin(h)
	}
	time.Sleep(20 * time.Second) // the store is not young any more
	for range steps {
		w.act()
		time.Sleep(w.between(200*time.Millisecond, 6*time.Second))
		w.check.waitsTooLong()
		w.check.writesOn()
	}
	w.settle()
	w.end()
}

// end ends everything that is left in the world.
func (w *world) end() {
	w.mu.Lock()
	left := slices.Collect(maps.Values(w.chromes))
	w.mu.Unlock()
	for _, p := range w.all {
		p.die()
	}
	close(w.over)
	for _, c := range left {
		c.end(false)
	}
	w.asks.Wait()
	for _, p := range w.all {
		w.late.Go(p.ends)
	}
	w.late.Wait()
	time.Sleep(time.Minute) // what is left of dead launchers meets its end
	synctest.Wait()
}

// act does one thing by chance.
func (w *world) act() {
	h := w.hosts[w.below(len(w.hosts))]
	w.server.save()
	switch n := w.below(100); {
	case n < 56:
		w.asksFor(h)
	case n < 61:
		if p := h.living(); p != nil {
			w.asks.Go(func() {
				_, err := rpc(p, func() (api.Profile, error) {
					return p.launcher.CloneProfile(of(p), "p1", api.ProfileClone{To: "clone"})
				})
				if err == nil {
					w.count("clones")
				}
			})
		}
	case n < 63:
		w.crash()
	case n < 65:
		w.stir()
	case n < 69:
		if p := h.living(); p != nil && w.dice(2) {
			p.leaves()
		} else if p != nil {
			p.die()
		}
		if w.dice(3) {
			d := w.between(time.Minute, 150*time.Second)
			w.note("%s stays down for %v", h.id, d)
			h.restsUntil = w.now() + d
		}
	case n < 73:
		if p := h.living(); p != nil {
			p.stepsLeft.CompareAndSwap(0, int64(1+w.below(60)))
		}
	case n < 76:
		d := w.between(time.Second, 40*time.Second)
		w.note("%s is cut off for %v", h.id, d)
		w.count("partitions")
		h.cutUntil.Store(int64(w.now() + d))
	case n < 79:
		if p := h.living(); p != nil {
			d := w.between(5*time.Second, 40*time.Second)
			w.note("%s is paused for %v", h.id, d)
			w.count("pauses")
			p.pausedTill.Store(int64(w.now() + d))
		}
	case n < 82:
		w.estrange(h)
	case n < 84 && w.dice(3):
		w.snapshotsAway()
	case n < 84:
		w.storeAway()
	case n < 86:
		w.storeForgets()
	case n < 89:
		h.bad.Store([]int64{0, 15, 40}[w.below(3)])
	case n < 91:
		w.rehomes()
	case n < 93:
		w.travels(h)
	case n < 97 && w.full:
		w.fill(h)
	default:
		w.person()
	}
	for _, h := range w.hosts {
		if h.living() == nil && w.now() > h.restsUntil && !w.dice(3) {
			w.begin(h)
		}
	}
}

func (w *world) asksFor(h *host) {
	p := h.living()
	profile := w.profiles[w.below(len(w.profiles))]
	shares, warm := false, !w.dice(3)
	q := request{
		manifest: api.Manifest{ProfileID: profile, WorkerID: "w", TaskID: fmt.Sprint("task-", w.below(3)), Create: profile != "clone" && !w.dice(4), Resumable: w.dice(2), RequiresExclusiveProfileLock: &shares, KeepWarm: &warm},
		worksFor: w.between(2*time.Second, 40*time.Second), connects: w.dice(2), drops: w.dice(3), lost: w.dice(3), stubborn: w.dice(6), byHand: w.dice(9),
	}
	if w.dice(5) {
		q.manifest.ChromeArgs = []string{"--lang=de"}
	}
	if w.dice(3) {
		q.manifest.Wait = api.Duration(w.between(time.Second, 20*time.Second))
	}
	if profile == roams && w.dice(3) {
		w.asksToRead(p)
		return
	}
	if profile == roams {
		q.manifest.KeepWarm = new(bool)
		if q.manifest.Create && w.dice(2) {
			q.manifest.ProfileID, q.manifest.Labels, q.manifest.Create, q.byHand = "", lease.Labels{poolLabel: "*"}, false, false
			w.count("asked for any")
		}
	}
	if p == nil {
		return
	}
	w.count("asked")
	w.asks.Go(func() {
		if w.sharedBy(profile) > 1 && q.manifest.Create {
			runs := w.sharedBy(profile)
			_, _ = rpc(p, func() (api.Profile, error) { // refused while somebody has it
				return p.launcher.PutProfile(of(p), profile, api.ProfileSettings{MaxActiveRuns: &runs})
			})
		}
		if profile == roams {
			p.settles()
		}
		for {
			err := p.ask(q)
			if next, turn := w.sentOn(err); next != nil {
				w.count("sent on with a turn")
				q.manifest.Turn = turn
				err = next.ask(q)
				q.manifest.Turn = ""
			}
			if err != nil {
				w.note("%s: %s is not had: %v", h.id, profile, err)
				return
			}
			time.Sleep(w.between(0, 8*time.Second))
			if p = h.living(); p == nil || w.dice(3) || w.calm.Load() {
				return
			}
			w.count("asked again")
			q.byHand = w.dice(4)
		}
	})
}

// stir has something happen in a browser that waits for the next task.
func (w *world) stir() {
	w.mu.Lock()
	all := slices.Collect(maps.Values(w.chromes))
	w.mu.Unlock()
	for _, c := range all {
		c.stirs()
	}
}

// estrange has the host make a profile that the other one does not see, since it is cut off, or
// that it does. Then the store forgets it, and the other one asks for it: at once, or when its
// home is gone.
func (w *world) estrange(h *host) {
	if len(w.hosts) < 2 || w.hosts[0].profiles == w.hosts[1].profiles || h.living() == nil {
		return
	}
	other := w.hosts[0]
	if other == h {
		other = w.hosts[1]
	}
	profile := fmt.Sprint("new", len(w.profiles))
	w.profiles = append(w.profiles, profile)
	ask := func(h *host) {
		if p := h.living(); p != nil {
			q := request{manifest: api.Manifest{ProfileID: profile, WorkerID: "w", TaskID: "t", Create: true}, worksFor: 5 * time.Second}
			w.asks.Go(func() {
				if err := p.ask(q); err != nil {
					w.note("%s: %s is not had: %v", h.id, profile, err)
				}
			})
		}
	}
	w.note("%s alone makes %s", h.id, profile)
	w.count("profiles that one host has not seen")
	dies, sees := w.dice(2), w.dice(3)
	if !sees {
		other.cutUntil.Store(int64(w.now() + 20*time.Second))
	}
	ask(h)
	time.Sleep(18 * time.Second)
	if p := h.living(); p != nil && dies {
		p.die()
	}
	if dies {
		h.restsUntil = w.now() + 70*time.Second
	}
	w.server.loseBucket(true)
	time.Sleep(2500 * time.Millisecond)
	for range 7 {
		ask(other)
		time.Sleep(w.between(2*time.Second, 6*time.Second))
	}
}

func (w *world) crash() {
	w.mu.Lock()
	var one *fakeChrome
	for _, c := range w.chromes {
		if one == nil || c.pid < one.pid {
			one = c
		}
	}
	w.mu.Unlock()
	if one != nil {
		w.count("browsers crashed")
		w.note("the browser of token %d of %s crashes", one.newest(), one.profile)
		one.end(false)
	}
}

// recordOf is the record of a profile as the store has it.
func (w *world) recordOf(profile string) (r lease.Record) {
	w.server.do(func() {
		for _, e := range w.server.records {
			if e.Record.ProfileID == profile {
				r = e.Record
			}
		}
	})
	return r
}

func (w *world) storeAway() {
	w.count("store away")
	w.server.away.Store(true)
	d := w.between(time.Second, 30*time.Second)
	w.note("the store is away for %v", d)
	w.late.Go(func() {
		time.Sleep(d)
		w.server.away.Store(false)
		w.check.mu.Lock()
		w.backAt = w.now()
		w.check.mu.Unlock()
	})
}

func (w *world) storeForgets() {
	what := []string{"last writes lost", "store rolled back", "store wiped", "records lost alone", "presences lost alone"}[w.below(5)]
	w.count(what)
	w.note("%s", what)
	w.check.mu.Lock()
	w.forgot = w.now()
	w.check.mu.Unlock()
	switch what {
	case "last writes lost":
		w.server.goBack(0)
	case "store rolled back":
		w.server.goBack(w.between(10*time.Second, time.Minute))
	case "store wiped":
		w.server.wipe()
	case "records lost alone":
		w.server.loseBucket(true)
	case "presences lost alone":
		w.server.loseBucket(false)
	}
}

// fill fills the disk of a host for a while.
func (w *world) fill(h *host) {
	w.count("disks full")
	w.note("the disk of %s is full", h.id)
	h.full.Store(true)
	empty := smalldisk.Fill(w.t, filepath.Dir(h.data))
	time.Sleep(w.between(time.Second, 15*time.Second))
	empty()
	h.full.Store(false)
	w.note("the disk of %s has room again", h.id)
}

// aPerson marks the context of what a person states.
type aPerson struct{}

// person reviews what waits for a person, at any launcher.
func (w *world) person() {
	var waiting []lease.Record
	w.server.do(func() {
		for _, e := range w.server.records {
			if e.Record.State == lease.ManualReview {
				waiting = append(waiting, e.Record)
			}
		}
	})
	for _, r := range waiting {
		p := w.hosts[w.below(len(w.hosts))].living()
		if p == nil {
			continue
		}
		v := api.ReviewRequest{Write: api.Write{Token: r.Token}, Decision: lease.ReviewApprove, Reviewer: "ann"}
		if r.OtherHome != "" && r.ProfileID == "p1" {
			v.Home = r.OtherHome
		}
		w.asks.Go(func() {
			_, err := rpc(p, func() (api.Profile, error) {
				return p.launcher.Review(context.WithValue(of(p), aPerson{}, true), r.ProfileID, v)
			})
			if err == nil {
				w.count("reviews")
			}
		})
	}
}

// rehomes has a person give a free profile, or one that waits for a person, another home: in
// most cases one whose home is not there.
func (w *world) rehomes() {
	if len(w.hosts) < 2 || w.hosts[0].profiles == w.hosts[1].profiles {
		return
	}
	var all []lease.Record
	w.server.do(func() {
		for _, e := range w.server.records {
			if e.Record.State.Free() || e.Record.State == lease.ManualReview {
				all = append(all, e.Record)
			}
		}
	})
	for _, r := range all {
		for _, h := range w.hosts {
			if p := h.living(); p != nil && h.id != r.Home && !w.dice(3) {
				w.rehome(p, r, w.dice(2))
			}
		}
	}
}

// rehome has a person make a launcher the home.
func (w *world) rehome(p *process, r lease.Record, ask bool) {
	_, departed, err := p.root.Departed(r.ProfileID)
	left := err == nil && departed && w.dice(2)
	w.choices.Add(1)
	w.asks.Go(func() {
		defer w.choices.Add(-1)
		ctx, cancel := context.WithTimeout(context.WithValue(of(p), aPerson{}, true), 2*time.Minute)
		defer cancel()
		_, err := rpc(p, func() (api.Profile, error) {
			return p.launcher.RehomeProfile(ctx, r.ProfileID, api.ProfileRehome{
				Write: api.Write{Token: r.Token}, Left: left, Empty: !left, Person: "ann", Note: "why", AcceptLoss: true, AskHome: ask,
			})
		})
		w.note("a person makes %s the home of %s, token %d, asking its home: %v: %v", p.host.id, r.ProfileID, r.Token, ask, err)
		switch {
		case err == nil && ask:
			w.count("rehomed, its home asked or gone")
		case err == nil:
			w.count("rehomed away from a home that was gone")
		}
	})
}

// allCanBeHad asks for each profile at its home, once nothing goes wrong any more.
func (w *world) allCanBeHad() {
	var all []lease.Record
	w.server.do(func() {
		for _, e := range w.server.records {
			all = append(all, e.Record)
		}
	})
	for _, r := range all {
		for _, h := range w.hosts {
			if h.id != r.Home {
				continue
			}
			q := request{manifest: api.Manifest{ProfileID: r.ProfileID, WorkerID: "w", TaskID: r.TaskID, Create: true}, worksFor: time.Second}
			var err error
			for range 5 {
				q.manifest.TaskID = w.recordOf(r.ProfileID).TaskID // a request that still waited may have had it since
				if err = h.living().ask(q); err == nil {
					break
				}
				var refused *api.Problem
				if errors.As(err, &refused) && (refused.More["reason"] == api.ReasonDirectoryLeft || refused.More["reason"] == api.ReasonDirectoryMissing) {
					// A review chose this home, which had left its directory, or had none: a person says what it is.
					w.count("a directory that was left is had again by a person")
					w.rehome(h.living(), w.recordOf(r.ProfileID), true)
				}
				w.person() // one who still waited may have had it by hand, and left it
				time.Sleep(2 * timing.TTL)
				// The kernel keeps the lock of a file that another program looks at through /proc,
				// which takes as long as it takes: the bubble's time does not pass meanwhile.
				_ = unix.Nanosleep(&unix.Timespec{Nsec: 50e6}, nil)
			}
			if err != nil {
				w.broken("everything comes to an end", "%s, which is %s, cannot be had at its home: %v", r.ProfileID, r.State, err)
			}
		}
	}
	time.Sleep(20 * time.Second)
}

// settle ends all faults, and waits until every profile can be had again.
func (w *world) settle() {
	w.note("all faults end")
	w.calm.Store(true)
	for _, h := range w.hosts {
		h.bad.Store(0)
		h.cutUntil.Store(min(h.cutUntil.Load(), int64(w.now())))
		if p := h.living(); p != nil {
			p.stepsLeft.Store(0)
			p.pausedTill.Store(min(p.pausedTill.Load(), int64(w.now())))
		}
	}
	w.leaving.Wait()
	for _, h := range w.hosts {
		if h.living() == nil {
			w.begin(h)
		}
	}
	var left []string
	for range 60 { // also long enough for everybody to say what he remembers
		time.Sleep(10 * time.Second)
		w.person()
		left = nil
		w.server.do(func() {
			for _, e := range w.server.records {
				if s := e.Record.State; s != lease.Available && s != lease.ResumePending {
					left = append(left, fmt.Sprintf("%s is %s (%s, home %s)", e.Record.ProfileID, s, e.Record.Reason, e.Record.Home))
				}
				// Who asked may have been told that it is not known whether the profile comes.
				if q := e.Record.MoveRequest; q != nil {
					left = append(left, fmt.Sprintf("%s is asked for by %s", e.Record.ProfileID, q.To))
				}
			}
		})
		for _, h := range w.hosts {
			for _, profile := range w.profiles {
				for _, c := range w.browsersOn(filepath.Join(h.profiles, profile)) {
					if !c.waits() {
						left = append(left, fmt.Sprintf("%v is on %s", c, c.path))
					}
				}
			}
		}
		left = append(append(left, w.check.estranged()...), w.readersLeft()...)
		if !w.nobodyWaits() {
			left = append(left, "somebody is left in the queue")
		}
		if n := w.choices.Load(); n > 0 { // what they change is not to be had at the home of before
			left = append(left, fmt.Sprintf("%d choices of a home are not through", n))
		}
		if len(left) == 0 {
			w.allCanBeHad()
			return
		}
	}
	w.broken("everything comes to an end", "%s", strings.Join(left, "; "))
}
