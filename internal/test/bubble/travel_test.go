package bubble

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"leasehold/internal/objects"
	"leasehold/launcher/api"
	"leasehold/lease"
)

// roams is the profile that may move by itself, with its snapshots; it is asked for by its label,
// too. Its browsers never wait for the next task: what they leave is on the disk at the release.
const roams = "free1"

// poolLabel is the name of its label.
const poolLabel = "pool"

// keptFile is where a browser writes its token when it ends in order: it stands for what an
// account has.
var keptFile = filepath.Join("Default", "Kept")

// keep writes the browser's token.
func (c *fakeChrome) keep() {
	_ = os.WriteFile(filepath.Join(c.path, keptFile), []byte(strconv.FormatUint(uint64(c.newest()), 10)), 0o600)
}

// keptIn is the token that is kept in a directory; zero: none.
func keptIn(dir string) lease.Token {
	b, err := os.ReadFile(filepath.Join(dir, keptFile))
	if err != nil {
		return 0
	}
	token, _ := strconv.ParseUint(string(b), 10, 64) // nobody else writes it
	return lease.Token(token)
}

// share is the store of snapshots as one launcher has it: a folder of all hosts, over a network.
type share struct {
	objects.Objects
	p *process
}

var errShare = errors.New("the folder of snapshots cannot be reached")

// reach waits as long as a call takes, and tells why it fails.
func (s share) reach(ctx context.Context) error {
	s.p.rests()
	if !sleep(ctx, s.p.w.between(time.Millisecond, 60*time.Millisecond)) {
		return context.Cause(ctx)
	}
	s.p.rests()
	switch {
	case s.p.dead.Load():
		return errGone
	case s.p.host.cut(), s.p.w.shareAway.Load():
		s.p.w.count("snapshots out of reach")
		return errShare
	}
	return nil
}

func (s share) Get(ctx context.Context, key string) (content []byte, version string, err error) {
	if err := s.reach(ctx); err != nil {
		return nil, "", err
	}
	return s.Objects.Get(ctx, key)
}

// Put may write and not be answered.
func (s share) Put(ctx context.Context, key string, content []byte, version string) error {
	if err := s.reach(ctx); err != nil {
		return err
	}
	err := s.Objects.Put(ctx, key, content, version)
	if err == nil && s.p.w.mishap(100) {
		s.p.w.count("snapshots unanswered")
		return errShare
	}
	return err
}

func (s share) Delete(ctx context.Context, key string) error {
	if err := s.reach(ctx); err != nil {
		return err
	}
	return s.Objects.Delete(ctx, key)
}

func (s share) List(ctx context.Context, prefix string) ([]string, error) {
	if err := s.reach(ctx); err != nil {
		return nil, err
	}
	return s.Objects.List(ctx, prefix)
}

// snapshotsAway has nobody reach the store of snapshots for a while.
func (w *world) snapshotsAway() {
	w.shareAway.Store(true)
	w.late.Go(func() {
		time.Sleep(w.between(time.Second, 30*time.Second))
		w.shareAway.Store(false)
	})
}

// settles states the settings of the profile that roams, where its home is asked.
func (p *process) settles() {
	free, labels := lease.MobilityFree, lease.Labels{poolLabel: "x"}
	_, _ = rpc(p, func() (api.Profile, error) { // refused while somebody has it
		return p.launcher.PutProfile(of(p), roams, api.ProfileSettings{Mobility: &free, Labels: &labels})
	})
}

// sentOn is the launcher that a request for any profile is sent on to, and its turn; nil: it is
// not, or that one is not there.
func (w *world) sentOn(err error) (to *process, turn string) {
	var refused *api.Problem
	if !errors.As(err, &refused) {
		return nil, ""
	}
	turn, _ = refused.More["turn"].(string)
	home, _ := refused.More["home_launcher"].(string)
	for _, h := range w.hosts {
		if h.id == home && refused.Code == api.CodeWrongHome && turn != "" {
			to = h.living()
		}
	}
	return to, turn
}

// moves has an operator move the profile that roams to a host.
func (w *world) moves(h *host) {
	p, r := h.living(), w.recordOf(roams)
	if p == nil || r.Home == h.id || len(w.hosts) < 2 || w.hosts[0].profiles == w.hosts[1].profiles {
		return
	}
	w.asks.Go(func() {
		ctx, cancel := context.WithTimeout(of(p), 2*time.Minute)
		defer cancel()
		_, err := rpc(p, func() (api.Profile, error) {
			return p.launcher.MoveProfile(ctx, roams, api.ProfileMove{Write: api.Write{Token: r.Token}, Person: operator})
		})
		w.note("an operator moves %s to %s, token %d: %v", roams, h.id, r.Token, err)
	})
}

// travels has a session end in order on a host, and then that host die, or an operator move the
// profile, while others ask for it elsewhere, and read it.
func (w *world) travels(h *host) {
	if len(w.hosts) < 2 || w.hosts[0].profiles == w.hosts[1].profiles {
		return
	}
	for _, one := range w.hosts { // at its home, if it has one
		if one.id == w.recordOf(roams).Home {
			h = one
		}
	}
	other := w.hosts[0]
	if other == h {
		other = w.hosts[1]
	}
	ask := func(h *host) {
		p := h.living()
		if p == nil {
			return
		}
		w.asks.Go(func() {
			p.settles()
			q := request{manifest: api.Manifest{ProfileID: roams, WorkerID: "w", TaskID: "t", Create: true, KeepWarm: new(bool)}, worksFor: 3 * time.Second}
			if err := p.ask(q); err != nil {
				w.note("%s: %s is not had: %v", h.id, roams, err)
			}
		})
	}
	ask(h)
	time.Sleep(w.between(15*time.Second, 40*time.Second))
	w.asksToRead(h.living())
	w.asksToRead(other.living())
	time.Sleep(w.between(0, 5*time.Second))
	if p := h.living(); p != nil && w.dice(2) {
		p.die()
		h.restsUntil = w.now() + 70*time.Second
	} else {
		w.moves(other)
	}
	for range 7 {
		ask(other)
		w.asksToRead(other.living())
		time.Sleep(w.between(2*time.Second, 8*time.Second))
	}
	if w.dice(2) {
		w.moves(h)
		w.losesTheMove(h)
	}
}

// losesTheMove has a launcher die as soon as the profile has come to it, perhaps before its
// directory is in its place, and the store forget that.
func (w *world) losesTheMove(h *host) {
	for range 200 {
		p := h.living()
		if w.recordOf(roams).Home == h.id && p != nil {
			w.count("moves that were forgotten")
			p.die()
			time.Sleep(w.between(0, 3*time.Second))
			w.server.loseBucket(true)
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// operator is who moves profiles without a loss.
const operator = "operator"

// The promises about profiles that travel.
const (
	notPast   = "a profile moves only with all that was done"
	notOlder  = "what ended in order is had again at the next home"
	staysHome = "a profile stays with a home that is there and has a place"
)

// travelled checks a profile that came to another home, of which p was the record. c.mu is held.
func (c *checker) travelled(t *truth, p, n lease.Record) {
	switch m := n.Moved; {
	case p.State == "": // its new home states again what the store forgot
	case m.Person != "" && m.Person != operator:
		t.begins() // a person said what it has now
	case m.Directory != lease.DirectorySnapshot || p.Token != m.SnapshotToken || p.State != lease.Available:
		c.w.broken(notPast, "%s, %s with token %d, came to %s with %s of token %d", n.ProfileID, p.State, p.Token, n.Home, m.Directory, m.SnapshotToken)
	case t.highest > m.SnapshotToken:
		c.w.broken(notPast, "%s came to %s with a snapshot of token %d, and token %d was granted", n.ProfileID, n.Home, m.SnapshotToken, t.highest)
	case m.Person == operator:
		c.w.count("moved by an operator")
	case c.couldSay(p.Home):
		c.w.broken(staysHome, "%s came to %s by itself, and its home %s is there", n.ProfileID, n.Home, p.Home)
	default:
		c.w.count("moved by itself")
	}
}

// endedInOrder notes what has to be there the next time. c.mu is held.
func (c *checker) endedInOrder(t *truth, n lease.Record) {
	if n.ProfileID != roams || !n.AtRest() || c.w.full {
		return
	}
	for _, path := range c.w.pathsOf(n.ProfileID, n.Home) {
		kept := keptIn(path) // a session whose browser did not start leaves nothing
		t.inOrder, t.orderly = max(t.inOrder, kept), append(t.orderly, kept)
	}
}

// snapshotted checks a record that names another snapshot.
func (c *checker) snapshotted(by *process, n lease.Record) {
	c.w.count("snapshots named")
	if d, left, err := by.root.Departed(n.ProfileID); err == nil && left && !d.Pending && n.Home == by.host.id {
		c.w.broken(notOpened, "%s names snapshot %s of %s, whose directory it left to %s under token %d", by.host.id, n.SnapshotID, n.ProfileID, d.Home, d.Token)
	}
}

// hasAll checks the directory on which a browser is started. c.mu is held.
func (c *checker) hasAll(t *truth, b *fakeChrome) {
	if b.profile != roams || c.w.full || t.left[b.path] != 0 {
		return
	}
	if kept := keptIn(b.path); kept < t.inOrder {
		c.w.broken(notOlder, "token %d opens %s, which has what token %d left, and token %d ended in order", b.token, b.path, kept, t.inOrder)
	}
}

// PutWaiter is part of lease.WaiterStore.
func (c *client) PutWaiter(ctx context.Context, w lease.Waiter) (uint64, error) {
	return call(ctx, c, func() (uint64, error) {
		c.revision++
		c.waiters[w.LauncherID+" "+w.ID] = lease.WaiterEntry{Waiter: w, Revision: c.revision}
		c.p.w.count("waiters stored")
		c.tell()
		return c.revision, nil
	})
}

// DropWaiter is part of lease.WaiterStore.
func (c *client) DropWaiter(ctx context.Context, launcher, id string) error {
	_, err := call(ctx, c, func() (struct{}, error) {
		delete(c.waiters, launcher+" "+id)
		c.tell()
		return struct{}{}, nil
	})
	return err
}

// WatchWaiters is part of lease.WaiterStore.
func (c *client) WatchWaiters(ctx context.Context, see func(lease.WaiterSight)) error {
	shown := map[string]lease.WaiterEntry{}
	for number := uint64(0); c.arrivesEver(ctx); {
		c.mu.Lock()
		now, changed, fresh := maps.Clone(c.waiters), c.changed, number != c.number
		number = c.number
		c.mu.Unlock()
		if fresh {
			see(lease.WaiterSight{Fresh: true})
			clear(shown)
		}
		for key, e := range now {
			if shown[key].Revision != e.Revision {
				if e.Waiter.LauncherID != c.p.host.id {
					c.p.w.count("waiters seen elsewhere")
				}
				see(lease.WaiterSight{Entry: e})
			}
		}
		for key, e := range shown {
			if _, there := now[key]; !there {
				see(lease.WaiterSight{Entry: lease.WaiterEntry{Waiter: lease.Waiter{LauncherID: e.Waiter.LauncherID, ID: e.Waiter.ID}}, Gone: true})
			}
		}
		if fresh {
			see(lease.WaiterSight{Complete: true})
		}
		shown = now
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// nobodyWaits tells whether the queue is empty, as it has to be when nobody asks any more.
func (w *world) nobodyWaits() bool {
	empty := false
	w.server.do(func() { empty = len(w.server.waiters) == 0 })
	return empty
}
