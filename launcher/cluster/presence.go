package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"leasehold/internal/boottime"
	"leasehold/internal/durable"
	"leasehold/internal/ownpath"
	"leasehold/internal/signed"
	"leasehold/launcher/api"
	"leasehold/launcher/profiledir"
	"leasehold/lease"
)

// PresenceOptions are what a Presence works with.
type PresenceOptions struct {
	LauncherID, BootID string
	// AdvertiseURL is where workers of other hosts reach this launcher, if they do.
	AdvertiseURL string
	DataDir      string
	Key          *signed.Key // signs what is kept in DataDir
	Timing       lease.Timing
	Store        lease.Store
	// Doubt returns why nothing may be granted or changed although the store can be reached: it
	// may not be the only one. nil: there is never a reason.
	Doubt func() error
	// Report is what the launcher reports about its host with each renewal; nil: nothing.
	Report func() lease.HostReport
	// SharedStore says that launchers of other hosts may use the store too.
	SharedStore bool
	// Newcomer says that this launcher remembers nothing of the store.
	Newcomer bool
	// LeaveOnExit tells, once the launcher ends, whether it leaves browsers to the next one. Nil:
	// it does not.
	LeaveOnExit func() bool
	Clock       boottime.Clock // nil: the host's
	Log         zerolog.Logger
}

// Presence is this launcher's proof of life in the store: it is opened, kept, and opened again
// after a loss. All leases of the launcher depend on it.
type Presence struct {
	o    PresenceOptions
	ctx  context.Context
	pace pace

	mu     sync.Mutex
	keeper *lease.Keeper // nil while there is none
	// refusal says why there is none, where the store is not the reason.
	refusal *api.Problem
	// stays are the epochs of this launcher's own stays, with the time at which each was opened:
	// those of this process and, without a time, that of the process before it if it is known.
	stays map[uint64]time.Time
	// sent is the last presence that this process sent to the store. If that had no answer, it may be
	// stored all the same.
	sent lease.Presence
	// before is what is known of the presence of the launcher's earlier process.
	before lastStay
	// steady is since when the store is known not to have forgotten anything.
	steady boottime.Instant
	// young is since when the store may lack profiles that others remember; seen says that the
	// store was seen at all.
	young boottime.Instant
	seen  bool
	// number is the number of the store that was last seen.
	number uint64
	// home is since when this launcher's word about its own profiles counts again after it was
	// away; zero: it was never away long enough for that to matter.
	home boottime.Instant
}

// NewPresence returns a presence that is kept until ctx ends, by Keep.
func NewPresence(ctx context.Context, o PresenceOptions) *Presence {
	if o.Clock == nil {
		o.Clock = boottime.Now
	}
	p := &Presence{o: o, ctx: ctx, pace: pace{profiles: map[string]*ownPace{}}, stays: map[uint64]time.Time{}, steady: o.Clock()}
	if o.Newcomer {
		p.young = p.steady
	}
	return p
}

// reopenPause is the time between two tries to open a presence.
const reopenPause = 500 * time.Millisecond

// Keep keeps a presence open until the launcher ends. opened is closed when the first presence
// is open, or the first attempt has failed. expiring is called when the leases have not been renewed for
// a while, with the time that they have left.
func (p *Presence) Keep(opened chan<- struct{}, expiring func(left time.Duration)) {
	own := lease.Presence{LauncherID: p.o.LauncherID, AdvertiseURL: p.o.AdvertiseURL, BootID: p.o.BootID}
	epoch := p.lastEpoch()
	tried := sync.OnceFunc(func() { close(opened) })
	before := p.lastStay()
	p.mu.Lock()
	p.before = before
	if before.BootID != "" {
		p.stays[before.Epoch] = time.Time{}
	}
	p.mu.Unlock()
	store := lease.Store(opening{p.o.Store, p})
	if p.o.Report != nil {
		store = reporting{store, p.o.LauncherID, p.o.Report}
	}
	for quiet := false; ; {
		last, err := p.awaitSilence(epoch, tried)
		var k *lease.Keeper
		if err == nil {
			k, err = lease.Keep(p.ctx, own, last.presence, max(epoch, last.leases), lease.KeeperOptions{
				Store: store, Timing: p.o.Timing, Clock: p.o.Clock, Expiring: expiring,
			})
		}
		if err != nil {
			tried()
			if p.ctx.Err() != nil {
				return
			}
			if !quiet {
				quiet = true
				p.o.Log.Warn().Err(err).Msg("no presence in the lease store: nothing is granted")
			}
			select {
			case <-time.After(reopenPause):
				continue
			case <-p.ctx.Done():
				return
			}
		}
		quiet, epoch = false, k.Epoch()
		if err := durable.Replace(p.epochFile(), fmt.Appendf(nil, "%d\n", epoch)); err != nil {
			p.o.Log.Error().Err(err).Msg("the epoch is not kept: a store that goes back may make it a used one")
		}
		p.cameBack(before)
		before = lastStay{}
		p.set(k, nil)
		tried()
		p.o.Log.Info().Uint64("epoch", epoch).Msg("presence opened")
		if p.follow(k) {
			p.close(k)
			return
		}
		err = context.Cause(k.Context())
		p.o.Log.Error().Err(err).Uint64("epoch", epoch).Msg("presence lost: every lease of this launcher is")
		k.Stop()
		p.set(nil, nil)
	}
}

// lastStay is what the next launcher has to know about this one's presence: until when its
// leases count, on the boot-time clock. It survives the launcher, but not the host.
type lastStay struct {
	BootID string `json:"boot_id"`
	// Directory is the identity of the data directory. In a copy of the directory, the stay is
	// that of another launcher, which may still run.
	Directory string           `json:"directory"`
	Epoch     uint64           `json:"epoch"`
	Deadline  boottime.Instant `json:"deadline"`
}

func (p *Presence) stayFile() string { return stayFile(p.o.DataDir) }

func stayFile(dataDir string) string { return filepath.Join(dataDir, "presence-stay.json") }

// follow keeps the deadline on disk while the presence lives. It returns true if the launcher
// ends first.
func (p *Presence) follow(k *lease.Keeper) (ends bool) {
	directory, err := ownpath.Identity(p.o.DataDir)
	if err != nil {
		p.o.Log.Warn().Err(err).Msg("the data directory cannot be told from a copy of it")
	}
	for {
		if err := p.keepStay(lastStay{p.o.BootID, directory, k.Epoch(), k.Deadline()}); err != nil {
			p.o.Log.Warn().Err(err).Msg("the deadline is not kept: a restart of the launcher may end its sessions")
		}
		select {
		case <-k.Moved():
		case <-k.Context().Done():
			return false
		case <-p.ctx.Done():
			return true
		}
	}
}

// keepStay does not sync the file: if the host goes down, so do its browsers.
func (p *Presence) keepStay(s lastStay) error {
	b, err := json.Marshal(s)
	next := p.stayFile() + ".new"
	if err == nil {
		err = os.WriteFile(next, p.o.Key.Sign(signed.Stay, p.o.LauncherID, b), 0o600)
	}
	if err == nil {
		err = os.Rename(next, p.stayFile())
	}
	return err
}

// lastStay is that of the earlier process of this launcher; the zero value if nothing is known,
// if the file cannot be trusted, or if this is a copy of the directory. Then its sessions do not
// go on.
func (p *Presence) lastStay() lastStay {
	var s lastStay
	b, err := os.ReadFile(p.stayFile())
	if err == nil {
		b, err = p.o.Key.Open(signed.Stay, p.o.LauncherID, b)
	}
	if err != nil || json.Unmarshal(b, &s) != nil || s.BootID == "" || s.BootID != p.o.BootID {
		return lastStay{}
	}
	if here, err := ownpath.Identity(p.o.DataDir); err != nil || s.Directory != here {
		p.o.Log.Warn().Str("directory", p.o.DataDir).Msg("the data directory is a copy of the one that a launcher used since this host was started: its sessions do not go on here; is that launcher running still?")
		return lastStay{}
	}
	return s
}

// Continues tells whether a lease that was granted in the epoch has not expired since the
// earlier launcher ended.
func (p *Presence) Continues(epoch uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.before.BootID != "" && p.before.Epoch == epoch && p.o.Clock() < p.before.Deadline
}

func (p *Presence) epochFile() string { return filepath.Join(p.o.DataDir, "presence-epoch") }

// lastEpoch is the highest epoch that this launcher is known to have opened.
func (p *Presence) lastEpoch() uint64 {
	b, err := os.ReadFile(p.epochFile())
	if err != nil {
		return 0
	}
	epoch, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		p.o.Log.Warn().Err(err).Msg("the epoch that was kept cannot be read: the store's counts")
		return 0
	}
	return epoch
}

// cameBack notes that a presence was opened. before is the stay before it, as far as its end is
// known: a launcher that renews in time was never silent long enough for one of its profiles to
// get another home meanwhile.
func (p *Presence) cameBack(before lastStay) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if before.BootID == "" || p.o.Clock() >= before.Deadline {
		p.home = p.o.Clock()
	}
}

// ReasonAway is the value of "reason" in the refusal of a profile whose home was away.
const ReasonAway = "home_was_away"

// HomeReady refuses profiles of this host for a while after this launcher was away from a store
// that it shares. Meanwhile another launcher may have become their home, and the store may have
// gone back to a state before that: a launcher that knows says so within the grant delay.
func (p *Presence) HomeReady() *api.Problem {
	if !p.o.SharedStore {
		return nil
	}
	p.mu.Lock()
	left := p.o.Timing.GrantDelay() - p.o.Clock().Sub(p.home)
	if p.home == 0 {
		left = 0
	}
	p.mu.Unlock()
	if left <= 0 {
		return nil
	}
	q := api.Refuse(api.CodeStoreUnavailable,
		"this launcher was away for longer than the lease TTL, and another one may have become the home of this profile: it is granted here in %v at the earliest; ask again then, or with wait", left.Round(time.Second)).
		With("reason", ReasonAway)
	q.RetryAfter = int(left.Seconds()) + 1
	return q
}

// set notes under which keeper leases may be granted from now on; nil: there is none, for the
// reason that refusal gives.
func (p *Presence) set(k *lease.Keeper, refusal *api.Problem) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keeper, p.refusal = k, refusal
	if k != nil {
		p.stays[k.Epoch()] = k.OpenedAt()
	}
}

// close ends the presence with the launcher. If browsers are left for the next one, the
// presence stays, without renewals, so that nobody takes their leases at once.
func (p *Presence) close(k *lease.Keeper) {
	p.set(nil, nil)
	if p.o.LeaveOnExit != nil && p.o.LeaveOnExit() {
		k.Stop()
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	if err := k.Leave(ctx); err != nil {
		p.o.Log.Warn().Err(err).Msg("presence not closed: others wait until it expires")
	}
}

// Current returns the keeper under which a lease may be granted now.
func (p *Presence) Current() (*lease.Keeper, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.refusal != nil:
		return nil, p.refusal
	case p.keeper == nil:
		q := api.Refuse(api.CodeStoreUnavailable, "the launcher has no presence in the lease store: check the NATS server; nothing is granted until it answers")
		q.RetryAfter = 2
		return nil, q
	}
	return p.keeper, nil
}

// StoreReset notes that the store was away, lost, or went back.
func (p *Presence) StoreReset() {
	p.mu.Lock()
	p.steady = p.o.Clock()
	k := p.keeper
	p.mu.Unlock()
	if k != nil {
		k.RenewNow()
	}
}

// SharedReady refuses a profile whose directory another host could open, until every holder
// that the store may have forgotten has had time to say so. On this host's own disk, the
// kernel's lock and the floor prove more.
func (p *Presence) SharedReady(path string) *api.Problem {
	network := profiledir.NetworkFilesystem(path)
	if network.Answer == profiledir.No {
		return nil
	}
	p.mu.Lock()
	left := p.o.Timing.GrantDelay() - p.o.Clock().Sub(p.steady)
	p.mu.Unlock()
	if left <= 0 {
		return nil
	}
	q := api.Refuse(api.CodeStoreUnavailable,
		"the profile's directory may be open on another host (%s), and the lease store has been watched for too short a time: ask again in %v", network.How, left.Round(time.Second))
	q.RetryAfter = int(left.Seconds()) + 1
	return q
}

// Epoch is the epoch of this launcher's presence; ok is false while it has none.
func (p *Presence) Epoch() (epoch uint64, ok bool) {
	k, err := p.Current()
	if err != nil {
		return 0, false
	}
	return k.Epoch(), true
}
