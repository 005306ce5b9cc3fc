package profiles

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"leasehold/launcher/api"
	"leasehold/launcher/catalog"
	"leasehold/launcher/host"
	"leasehold/lease"
)

// pingTimeout bounds how long a list waits to learn whether the store can be reached.
const pingTimeout = time.Second

// askTimeout bounds how long to wait for the store when an answer from memory is possible too.
const askTimeout = 5 * time.Second

// ListProfiles lists the profiles that have a record or a directory here, from memory.
func (ps *Service) ListProfiles(ctx context.Context, q api.ProfileQuery) (api.ProfilePage, error) {
	rows, stale, err := ps.rows(ctx)
	if err != nil {
		return api.ProfilePage{}, err
	}
	page := catalog.List(rows, q, time.Now())
	page.Stale = stale
	for i, r := range page.Items {
		page.Items[i] = ps.host.Shown(r.Record).Public()
	}
	if q.WithAccounts {
		book := ps.host.Sites.Book()
		for _, r := range page.Items {
			care := page.Accounts[r.ProfileID]
			if care.Asked = ps.host.Answers.CanBeAsked(r.Record, book); !care.Asked {
				care.NextCheck = time.Time{}
			}
			page.Accounts[r.ProfileID] = care
		}
	}
	return page, nil
}

// rows are the rows of all profiles, and since when the store cannot be reached.
func (ps *Service) rows(ctx context.Context) (rows []*catalog.Row, stale time.Time, err error) {
	rows, complete, known := ps.host.Catalog.Rows()
	stale = ps.storeAway(ctx)
	if !complete && stale.IsZero() { // the watch has not begun yet
		entries, err := ps.host.Store.List(ctx)
		switch {
		case err == nil:
			rows = rows[:0]
			for _, e := range entries {
				rows = append(rows, catalog.NewRow(e))
			}
		case !known:
			return nil, stale, host.Problem(err)
		default:
			stale = time.Now()
		}
	}
	if !stale.IsZero() && !known {
		return nil, stale, host.Problem(lease.ErrUnavailable)
	}
	rows, err = ps.withDirectories(rows)
	return ps.withPeople(ps.withHosts(rows)), stale, err
}

// withPeople marks the profiles whose living session here was taken over by a person, or whose
// worker asks for a person.
func (ps *Service) withPeople(rows []*catalog.Row) []*catalog.Row {
	hands := map[string]api.InHands{}
	for _, s := range ps.host.Sessions.Living() {
		if shown := s.Show(); shown.Ask != nil || shown.Person != nil {
			hands[shown.ProfileID] = hands[shown.ProfileID].Or(shown)
		}
	}
	if len(hands) == 0 {
		return rows
	}
	for i, r := range rows {
		if of, ok := hands[r.Record.ProfileID]; ok {
			marked := *r
			marked.Hands = of
			rows[i] = &marked
		}
	}
	return rows
}

// withHosts marks the free profiles that cannot be granted now all the same, because their home
// is away or full, or because other requests wait for them.
func (ps *Service) withHosts(rows []*catalog.Row) []*catalog.Row {
	hosts := ps.host.Capacities()
	for i, r := range rows {
		home := hosts[cmp.Or(r.Record.Home, ps.host.ID)]
		warm := home.Full && r.Record.Home == ps.host.ID && !ps.host.Slots.WarmSince(r.Record.ProfileID).IsZero()
		if r.Record.State == lease.Available && (!home.There || home.Full && !warm || ps.host.Queue.Wanted(r.Record)) {
			marked := *r
			marked.NotNow = true
			rows[i] = &marked
		}
	}
	return rows
}

// withDirectories adds the profiles that have a directory here but no record, and marks those
// of this host whose directory is gone.
func (ps *Service) withDirectories(rows []*catalog.Row) ([]*catalog.Row, error) {
	dirs, err := ps.host.Root.List()
	if err != nil {
		return nil, err
	}
	unknown := make(map[string]bool, len(dirs))
	for _, d := range dirs {
		unknown[d] = true
	}
	for i, r := range rows {
		here := unknown[r.Record.ProfileID]
		delete(unknown, r.Record.ProfileID)
		if !here && r.Record.Home == ps.host.ID && r.Record.State == lease.Available {
			gone := *r
			gone.Gone = true
			rows[i] = &gone
		}
	}
	for d := range unknown {
		r, err := ps.noRecord(d)
		if err != nil {
			return nil, err
		}
		rows = append(rows, catalog.NewRow(lease.Entry{Record: r.Record}))
	}
	return rows, nil
}

// remembered returns a profile as this launcher saw it last, completed with what
// its own living session knows. It is called after the store could not be asked; away is that
// failure.
func (ps *Service) remembered(ctx context.Context, profileID string, away error) (api.Profile, error) {
	last, seen := ps.host.Catalog.Record(profileID)
	stale := ps.storeAway(ctx)
	if stale.IsZero() { // the store is back, or was only slow
		r, err := ps.stored(ctx, profileID)
		if !unavailable(err) {
			return r, err
		}
		stale = time.Now()
	}
	var known api.Profile
	var err error
	switch _, _, all := ps.host.Catalog.Rows(); {
	case seen:
		known = ps.host.Shown(last).Public()
	case !all: // not all of the store has been seen yet: it may have a record
		return api.Profile{}, away
	default:
		if known, err = ps.unseen(profileID); err != nil {
			return api.Profile{}, err
		}
	}
	known.StaleSince = stale.UTC()
	return known, nil
}

// storeAway is the time since which the store cannot be reached; zero: it can be reached.
func (ps *Service) storeAway(ctx context.Context) time.Time {
	asking, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	reached := ps.o.Ping(asking) == nil
	return ps.reach.note(reached || ctx.Err() != nil, time.Now()) // a caller who left did not wait for the answer
}

// Changes tells when lists of profiles may have changed.
func (ps *Service) Changes() api.Changes {
	return api.Changes{Changed: ps.host.Catalog.Changed(), Over: ps.o.Over}
}

// Hosts lists the launchers on the store, as far as this one has seen them, by their ids.
func (ps *Service) Hosts(ctx context.Context) (api.Hosts, error) {
	rows, _, _ := ps.host.Catalog.Rows()
	states := map[string]map[lease.State]int{}
	for _, r := range rows {
		of := states[r.Record.Home]
		if of == nil {
			of = map[lease.State]int{}
			states[r.Record.Home] = of
		}
		of[r.Record.State]++
	}
	hosts := api.Hosts{Items: ps.host.Patrol.Hosts(), Stale: ps.storeAway(ctx)}
	if !slices.ContainsFunc(hosts.Items, func(h api.Host) bool { return h.LauncherID == ps.host.ID }) {
		hosts.Items = append(hosts.Items, api.Host{Presence: lease.Presence{LauncherID: ps.host.ID, AdvertiseURL: ps.o.AdvertiseURL}})
	}
	for i := range hosts.Items {
		h := &hosts.Items[i]
		if h.LauncherID == ps.host.ID {
			h.Own, h.Here, h.Host = true, true, host.Report(ps.host.Slots, ps.host.MaxBrowsers)
		}
		if h.States = states[h.LauncherID]; h.States == nil {
			h.States = map[lease.State]int{}
		}
	}
	slices.SortFunc(hosts.Items, func(a, b api.Host) int { return strings.Compare(a.LauncherID, b.LauncherID) })
	return hosts, nil
}

// Queue lists the requests that wait, as far as this launcher knows them.
func (ps *Service) Queue(context.Context) ([]api.Waiting, error) {
	waiting := []api.Waiting{}
	for _, w := range ps.host.Queue.Show() {
		waiting = append(waiting, api.Waiting{
			ProfileID: w.ProfileID, AccountID: w.AccountID, Labels: w.Labels, WorkerID: w.WorkerID, TaskID: w.TaskID, Principal: w.Principal,
			Priority: w.Priority, LauncherID: w.LauncherID, Since: w.Since.UTC(), Position: w.Ahead + 1, Profiles: len(w.Profiles),
			Candidates: w.Profiles, Own: w.LauncherID == ps.host.ID, Arrival: w.Arrived,
		})
	}
	return waiting, nil
}

// reach remembers since when the store cannot be reached.
type reach struct {
	mu   sync.Mutex
	away time.Time
}

// note takes in whether the store can be reached now, and returns since when it cannot.
func (r *reach) note(reached bool, now time.Time) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case reached:
		r.away = time.Time{}
	case r.away.IsZero():
		r.away = now
	}
	return r.away
}

// patience is how long to wait for the store where an answer from memory is possible too. It is
// shorter if the store could not be reached the last time.
func (r *reach) patience() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.away.IsZero() {
		return askTimeout
	}
	return pingTimeout
}
