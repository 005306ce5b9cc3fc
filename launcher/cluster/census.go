package cluster

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"leasehold/lease"
)

// census counts the profiles of this host, and of the hosts that it stands in for, by the state of
// their lease, as the store last showed it. While the store cannot be reached, it keeps the earlier
// counts. It is a collector of metrics, and does not ask the store.
type census struct {
	home   string // this launcher
	states *prometheus.Desc
	waits  *prometheus.Desc
	// accounts counts the profiles by whether their account is signed in.
	accounts *prometheus.Desc

	mu    sync.Mutex
	stays map[string]stay // by profile
	// away are the launchers whose profiles this one counts beside its own, since they do not.
	away map[string]bool
	// before has the profiles that were shown before the view began again, and have not been
	// shown since.
	before map[string]bool
}

// stay is a profile's time in a state. If since is zero, it is not known.
type stay struct {
	home     string
	state    lease.State
	since    time.Time
	signedIn lease.SignedIn
}

// counted are the states of a record, in the order in which a recovery passes through them.
var counted = []lease.State{lease.Available, lease.Held, lease.SuspectedStale, lease.Quarantined, lease.Inspected, lease.ResumePending, lease.ManualReview}

// waiting are the states in which the profile's account waits for somebody: for its launcher,
// its task, or a person.
var waiting = []lease.State{lease.SuspectedStale, lease.Quarantined, lease.Inspected, lease.ResumePending, lease.ManualReview}

func newCensus(home string) *census {
	return &census{
		home: home, stays: map[string]stay{}, before: map[string]bool{},
		states:   prometheus.NewDesc("leasehold_profiles", "Profiles whose home is this launcher, by the state of their lease, as the lease store last showed it. The first launcher by name of those that are there counts those of homes that are away, too.", []string{"state"}, nil),
		accounts: prometheus.NewDesc("leasehold_accounts", "The profiles that leasehold_profiles counts, by whether their account is signed in.", []string{"signed_in"}, nil),
		waits:    prometheus.NewDesc("leasehold_profile_wait_seconds", "How long the profile has been out of use that has waited longest, by its state now; 0 where there is none. It is counted from the start of its recovery, and for suspected_stale from the loss of its worker.", []string{"state"}, nil),
	}
}

// see takes in a record that the store shows.
func (c *census) see(r lease.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.before, r.ProfileID)
	if r.State == "" {
		delete(c.stays, r.ProfileID)
		return
	}
	c.stays[r.ProfileID] = stay{r.Home, r.State, waitsSince(r), r.Public().SignedIn}
}

// standIn has the profiles of these launchers counted, too.
func (c *census) standIn(away map[string]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.away = away
}

// waitsSince is since when, by its record, a profile has been out of use; zero if the record
// does not say. A profile that is only suspected does not count yet: its recovery has not
// begun.
func waitsSince(r lease.Record) time.Time {
	if r.State == lease.SuspectedStale {
		return r.SuspectedAt
	}
	return r.RecoveryStartedAt
}

// begin notes that the store is about to show everything again.
func (c *census) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for profile := range c.stays {
		c.before[profile] = true
	}
}

// end notes that the store has shown everything. What it did not show is not in it.
func (c *census) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for profile := range c.before {
		delete(c.stays, profile)
	}
	clear(c.before)
}

// Describe implements prometheus.Collector.
func (c *census) Describe(to chan<- *prometheus.Desc) {
	to <- c.states
	to <- c.waits
	to <- c.accounts
}

// Collect implements prometheus.Collector.
func (c *census) Collect(to chan<- prometheus.Metric) {
	profiles, accounts, longest := c.count(time.Now())
	for _, state := range counted {
		to <- prometheus.MustNewConstMetric(c.states, prometheus.GaugeValue, float64(profiles[state]), string(state))
	}
	for _, is := range []lease.SignedIn{lease.SignedInYes, lease.SignedInNo, lease.SignedInUnknown} {
		to <- prometheus.MustNewConstMetric(c.accounts, prometheus.GaugeValue, float64(accounts[is]), string(is))
	}
	for _, state := range waiting {
		to <- prometheus.MustNewConstMetric(c.waits, prometheus.GaugeValue, longest[state].Seconds(), string(state))
	}
}

// count returns the number of profiles in each state and by whether they are signed in, and the longest wait in each. It compares
// the wall clock with times that other launchers may have written: the result is for people,
// and decides nothing.
func (c *census) count(now time.Time) (profiles map[lease.State]int, accounts map[lease.SignedIn]int, longest map[lease.State]time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	profiles, accounts, longest = map[lease.State]int{}, map[lease.SignedIn]int{}, map[lease.State]time.Duration{}
	for _, s := range c.stays {
		if s.home != c.home && !c.away[s.home] {
			continue
		}
		profiles[s.state]++
		accounts[s.signedIn]++
		if !s.since.IsZero() {
			longest[s.state] = max(longest[s.state], now.Sub(s.since))
		}
	}
	return profiles, accounts, longest
}
