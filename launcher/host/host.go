// Package host is what the products of a launcher share: grant, travel, profiles, accounts, people,
// workers and bundles. It knows who this launcher is, which of its profiles may be opened, and how what
// the packages below say is told to a caller. It begins nothing, and decides nothing about a lease.
package host

import (
	"errors"
	"os"

	"github.com/rs/zerolog"

	"leasehold/evidence"
	"leasehold/internal/procfs"
	"leasehold/launcher/accountcheck"
	"leasehold/launcher/api"
	"leasehold/launcher/browser"
	"leasehold/launcher/catalog"
	"leasehold/launcher/cluster"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/proxies"
	"leasehold/launcher/queue"
	"leasehold/launcher/recovery"
	"leasehold/launcher/session"
	"leasehold/launcher/sessionfile"
	"leasehold/launcher/sites"
	"leasehold/launcher/slots"
	"leasehold/launcher/snapshots"
	"leasehold/lease"
)

// Host is this launcher on its host. A field is here because more than one product needs it; what only
// one needs is in the options of that one. Nothing of it changes once the launcher is made.
type Host struct {
	ID        string
	DataDir   string
	Root      *profiledir.Root
	Jar       sessionfile.Jar
	Store     lease.Store
	Archive   *evidence.Archive
	Snapshots *snapshots.Store // nil: there is no profile store
	Slots     *slots.Table
	Driver    *browser.Driver
	Recoverer *recovery.Recoverer
	Announcer *session.Announcer
	Sessions  *session.Registry
	Presence  *cluster.Presence
	Patrol    *cluster.Patrol
	Catalog   *catalog.Catalog
	Queue     *queue.Queue
	Answers   accountcheck.Memory
	Sites     *sites.Shelf
	Proxies   *proxies.Set // nil: proxy ids are only labels of something that is arranged elsewhere
	// MaxBrowsers is how many browsers there may be at a time; zero: no limit.
	MaxBrowsers int
	// SharedReady refuses, with an api.Problem, a directory that another host could have open: see
	// cluster.Presence.SharedReady.
	SharedReady func(path string) error
	Log         zerolog.Logger
}

// Granting returns the presence under which a lease may be granted now, or a profile be made or
// moved here. What is held already goes on without it.
func (h *Host) Granting() (*lease.Keeper, error) {
	if err := h.Presence.Doubt(); err != nil {
		return nil, err
	}
	return h.Presence.Current()
}

// Capacity is what is known of a launcher from whose profiles one is chosen.
type Capacity struct {
	// There says that the launcher renews its presence; Full, that it has no place.
	There, Full bool
}

// Capacities are those of all known launchers, by their ids.
func (h *Host) Capacities() map[string]Capacity {
	all := map[string]Capacity{}
	for _, other := range h.Patrol.Hosts() {
		all[other.LauncherID] = Capacity{other.Here, IsFull(other.Host.Places, other.Host.Browsers, other.Host.Warm)}
	}
	use := h.Slots.Use()
	all[h.ID] = Capacity{true, IsFull(h.MaxBrowsers, use.Places, use.Warm)}
	return all
}

// IsFull tells whether a host has no place for one more browser. A warm one makes room.
func IsFull(places, browsers, warm int) bool { return places > 0 && browsers-warm >= places }

// Report is what a launcher tells the others about its host, in its presence. places is how many
// browsers it may have.
func Report(table *slots.Table, places int) lease.HostReport {
	use := table.Use()
	r := lease.HostReport{Places: places, Browsers: use.Places, Warm: use.Warm, Waiting: use.Waiting}
	r.Name, _ = os.Hostname() // on an error the name stays empty
	if m, err := procfs.ReadHostMemory(); err == nil {
		r.MemoryAvailable, r.MemoryTotal = m.Available, m.Total
	}
	return r
}

// Problem turns an error of the packages below into a refusal.
func Problem(err error) error {
	if p, ok := api.ProblemIn(err); ok {
		return p
	}
	var damaged *profiledir.DamagedError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, lease.ErrUnavailable):
		q := api.Refuse(api.CodeStoreUnavailable, "%v: check the NATS server; what it was asked to store may be stored, and nothing more is granted or decided until it answers", err)
		q.RetryAfter = 2
		return q
	case errors.As(err, &damaged):
		q := api.Refuse(api.CodeQuarantined, "%v: the profile is put before a person", err).With("state", lease.Quarantined).With("reason", lease.ReasonNotAuthentic)
		q.RetryAfter = 2
		return q
	default:
		return err
	}
}

// OlderBrowser refuses what a newer browser than this host's wrote.
func OlderBrowser(err error, ours, theirs string) *api.Problem {
	return api.Refuse(api.CodeBrowserOlder, "%v", err).With("browser_version", ours).With("profile_version", theirs)
}

// Shown is a profile as this launcher shows it: its record with what its living session knows already,
// the heartbeat of the launcher that has the lease, the end of a cooldown by this host's clock, and
// why a free profile has no directory; and what this launcher sees beside it.
func (h *Host) Shown(r lease.Record) api.Profile {
	r.AvailableAfter = h.Catalog.CoolUntil(lease.Entry{Record: r}).UTC()
	p := api.Profile{}
	if _, since, silent := h.Patrol.Silent(r.Home); silent && r.Home != "" {
		p.HomeSilentSince = since.UTC()
	}
	s, other := h.Sessions.ByID(r.SessionID), h.Patrol.Other(r.LauncherID)
	if s != nil && r.State == lease.Held {
		r = s.Latest(r)
		r.ExpiresAt = s.Show().ExpiresAt
		p.Record = r
		return p
	}
	if r.State == lease.Available && r.Home == h.ID {
		_, missing := h.Root.Path(r.ProfileID)
		switch _, err := h.Root.Place(r.ProfileID); {
		case errors.Is(err, profiledir.ErrArchived):
			r.Reason = api.ReasonArchived
		case errors.Is(err, profiledir.ErrMissing):
			r.Reason = api.ReasonDirectoryMissing
		case err == nil && errors.Is(missing, profiledir.ErrNoProfile):
			r.Reason = api.ReasonRemoved
		}
		p.WarmSince = h.Slots.WarmSince(r.ProfileID)
	}
	p.Record = r.Live(other)
	return p
}
