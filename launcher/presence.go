package launcher

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"leasehold/internal/boottime"
	"leasehold/internal/durable"
	"leasehold/launcher/api"
	"leasehold/launcher/profiledir"
	"leasehold/lease"
)

// presence is this launcher's proof of life in the store: opened, kept, and
// opened again after it was lost.
type presence struct {
	l *Launcher

	mu     sync.Mutex
	keeper *lease.Keeper // nil while there is none
	// dead says why there will be none any more.
	dead error
	// steady is since when the store is known to have forgotten nothing.
	steady boottime.Instant
}

// reopenPause is the time between two tries to open a presence.
const reopenPause = 500 * time.Millisecond

// attend keeps a presence open until the launcher ends. opened is closed when the
// first one is, or cannot be had at once.
func (p *presence) attend(opened chan<- struct{}) {
	l := p.l
	own := lease.Presence{LauncherID: l.o.ID, AdvertiseURL: l.o.AdvertiseURL, BootID: l.bootID}
	epoch := p.lastEpoch()
	tried := sync.OnceFunc(func() { close(opened) })
	for quiet := false; ; {
		k, err := lease.Keep(l.ctx, own, epoch, lease.KeeperOptions{
			Store: l.o.Store, Timing: l.o.Timing, Clock: boottime.Now, Expiring: l.expiring,
		})
		if err != nil {
			tried()
			if l.ctx.Err() != nil {
				return
			}
			if !quiet {
				quiet = true
				l.o.Log.Warn().Err(err).Msg("no presence in the lease store: nothing is granted")
			}
			select {
			case <-time.After(reopenPause):
				continue
			case <-l.ctx.Done():
				return
			}
		}
		quiet, epoch = false, k.Epoch()
		if err := durable.Replace(p.epochFile(), fmt.Appendf(nil, "%d\n", epoch)); err != nil {
			l.o.Log.Error().Err(err).Msg("the epoch is not kept: a store that goes back may make it a used one")
		}
		p.set(k, nil)
		tried()
		l.o.Log.Info().Uint64("epoch", epoch).Msg("presence opened")
		select {
		case <-k.Context().Done():
		case <-l.ctx.Done():
			p.close(k)
			return
		}
		err = context.Cause(k.Context())
		l.o.Log.Error().Err(err).Uint64("epoch", epoch).Msg("presence lost: every lease of this launcher is")
		k.Stop()
		if errors.Is(err, lease.ErrSuperseded) {
			p.set(nil, err)
			return
		}
		p.set(nil, nil)
	}
}

func (p *presence) epochFile() string { return filepath.Join(p.l.o.DataDir, "presence-epoch") }

// lastEpoch is the highest that this launcher opened, as far as is known.
func (p *presence) lastEpoch() uint64 {
	b, err := os.ReadFile(p.epochFile())
	if err != nil {
		return 0
	}
	epoch, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		p.l.o.Log.Warn().Err(err).Msg("the epoch that was kept cannot be read: the store's counts")
	}
	return epoch
}

func (p *presence) set(k *lease.Keeper, dead error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keeper, p.dead = k, dead
}

// close ends the presence with the launcher. Where browsers are left for the next
// one it stays, silent, so that nobody takes their leases at once.
func (p *presence) close(k *lease.Keeper) {
	p.set(nil, nil)
	if p.l.o.LeaveOnExit {
		k.Stop()
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	if err := k.Leave(ctx); err != nil {
		p.l.o.Log.Warn().Err(err).Msg("presence not closed: others wait until it expires")
	}
}

// current returns the keeper under which a lease may be granted now.
func (p *presence) current() (*lease.Keeper, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.dead != nil:
		return nil, api.Refuse(api.CodeStoreUnavailable, "%v", p.dead)
	case p.keeper == nil:
		q := api.Refuse(api.CodeStoreUnavailable, "the launcher has no presence in the lease store: check the NATS server; nothing is granted until it answers")
		q.RetryAfter = 2
		return nil, q
	}
	return p.keeper, nil
}

// unsettled notes that the store was away, lost, or went back.
func (p *presence) unsettled() {
	p.mu.Lock()
	p.steady = boottime.Now()
	k := p.keeper
	p.mu.Unlock()
	if k != nil {
		k.Hurry()
	}
}

// sharedReady refuses a profile whose directory another host could open, until
// every holder that the store may have forgotten had the time to say so. On this
// host's own disk the kernel's lock and the floor prove more.
func (p *presence) sharedReady(path string) *api.Problem {
	network := profiledir.NetworkFilesystem(path)
	if network.Answer == profiledir.No {
		return nil
	}
	p.mu.Lock()
	left := p.l.o.Timing.Grace() - boottime.Now().Sub(p.steady)
	p.mu.Unlock()
	if left <= 0 {
		return nil
	}
	q := api.Refuse(api.CodeStoreUnavailable,
		"the profile's directory may be open on another host (%s), and the lease store has been watched for too short a time: ask again in %v", network.How, left.Round(time.Second))
	q.RetryAfter = int(left.Seconds()) + 1
	return q
}

// expiring warns every worker that the leases could not be renewed for a while.
func (l *Launcher) expiring(left time.Duration) {
	l.o.Log.Warn().Dur("left", left).Msg("the leases could not be renewed: they will expire")
	for _, s := range l.living() {
		for _, c := range s.connections() {
			c.Notify("Lease.leaseExpiring", map[string]any{"lease_token": s.token, "seconds": left.Seconds()})
		}
	}
}
