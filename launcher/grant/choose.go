package grant

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"leasehold/launcher/api"
	"leasehold/launcher/catalog"
	"leasehold/launcher/host"
	"leasehold/launcher/principal"
	"leasehold/launcher/queue"
	"leasehold/launcher/session"
	"leasehold/launcher/slots"
	"leasehold/lease"
)

// asking is one request for a lease, while it is being served.
type asking struct {
	ticket *queue.Ticket
	place  slots.Waiter // for a place on this host
	// last is the refusal of the latest attempt to get the profile that the request names.
	last *api.Problem
	// down are the proxies that kept it from a profile: a request for any tries their profiles no more for a while.
	down proxiesDown
}

// asks begins to serve a request.
func (g *Service) asks(ctx context.Context, m api.Manifest) *asking {
	by := principal.Of(ctx)
	want := lease.Waiter{
		ProfileID: m.ProfileID, Principal: m.Opener.Name, WorkerID: m.WorkerID, TaskID: m.TaskID, Priority: m.Priority, Shares: !m.Exclusive(), SignIn: signsIn(m),
	}
	if m.AnyProfile() {
		want.AccountID, want.Labels, want.Patterns = m.AccountID, m.Labels, by.Profiles
	}
	a := &asking{ticket: g.host.Queue.Ticket(want, m.Turn)}
	a.place.Entrant = a.ticket.Entrant()
	return a
}

// leave ends the request, with its result.
func (a *asking) leave(ctx context.Context, table *slots.Table, err error) {
	table.LeaveQueue(&a.place)
	how := queue.Refused
	var p *api.Problem
	switch {
	case err == nil:
		how = queue.Granted
	case ctx.Err() != nil:
		how = queue.Gone
	case errors.As(err, &p) && p.Code == api.CodeWaitTimeout:
		how = queue.TimedOut
	}
	a.ticket.Leave(how)
}

// tooMany refuses a request that would have to wait if too many wait already.
func (a *asking) tooMany(why *api.Problem) *api.Problem {
	p := api.Refuse(api.CodeHostFull, "too many requests wait at this launcher: ask again later; %s", why.Detail).With("reason", "queue")
	p.RetryAfter = 5
	return p
}

// isOf tells whether a session is on a profile that the request could be given.
func (g *Service) isOf(s *session.Session, m api.Manifest) bool {
	if !m.AnyProfile() {
		return true
	}
	r, known := g.host.Catalog.Record(s.Show().ProfileID)
	return known && (m.AccountID == "" || m.AccountID == r.AccountID) && queue.HasLabels(r.Labels, m.Labels)
}

// tryInTurn makes one attempt, unless this launcher knows of waiters that come first.
func (g *Service) tryInTurn(ctx context.Context, m api.Manifest, a *asking) (*session.Session, error) {
	a.place.Arrival.Store(a.ticket.Rank().Arrival)
	if m.AnyProfile() {
		return g.tryAny(ctx, m, a)
	}
	if r, known := g.host.Catalog.Record(m.ProfileID); known && a.last != nil {
		switch p := g.behind(r, m, a); {
		case p == nil:
		case a.last.Code == api.CodeHostFull: // no attempt is made to take a place now
			return nil, p
		default:
			return nil, a.last
		}
	}
	s, err := g.try(ctx, m, a)
	a.last = nil
	if p, ok := errors.AsType[*api.Problem](err); ok {
		a.last = p
	}
	return s, err
}

// free tells whether the task could have the profile now if nobody else waited for it.
func (g *Service) free(r lease.Record, m api.Manifest) bool {
	return g.joinable(r, m) || r.State.Free() && !time.Now().Before(g.host.Catalog.CoolUntil(lease.Entry{Record: r}))
}

// behind refuses a profile if other waiters for it come first. A person who takes it by hand
// does not wait.
func (g *Service) behind(r lease.Record, m api.Manifest, a *asking) *api.Problem {
	if m.ByHand != nil {
		return nil
	}
	ahead, others := g.host.Queue.Ahead(a.ticket, r, g.free(r, m))
	if ahead == 0 {
		return nil
	}
	p := api.Refuse(api.CodeConflict, "profile %s goes to those who waited for it: %d before this request; to queue, ask with wait", r.ProfileID, ahead).
		With("profile_id", r.ProfileID).With("reason", "queue").With("queue_position", ahead+1).With("queue_length", others).With("next_check_seconds", host.Soon)
	p.RetryAfter = host.Soon
	return p
}

// candidate is a profile that could be given to a request for any profile.
type candidate struct {
	lease.Record
	// here says that this launcher is the profile's home.
	here bool
	// why is the code of the refusal to expect for this profile; empty: none is known.
	why string
	// resumes says that the profile is kept for this very task; shares, that the task would
	// share the profile's browser with others.
	resumes, shares bool
}

// preferred is negative if a is to be tried before b. The order is: a profile that is kept for
// this task, then profiles of this host, then those that nobody uses, and of these the one that
// has rested longest.
func preferred(a, b candidate) int {
	return cmp.Or(
		-compareBool(a.resumes, b.resumes), -compareBool(a.here, b.here), compareBool(a.shares, b.shares),
		catalog.Since(a.Record).Compare(catalog.Since(b.Record)), strings.Compare(a.ProfileID, b.ProfileID))
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// whyNot is the code with which a profile in this state is refused to a task, as far as its
// record and its home tell; empty: it is free.
func whyNot(r lease.Record, m api.Manifest, joinable bool, home host.Capacity, now time.Time) string {
	switch r.State {
	case lease.Held, lease.SuspectedStale:
		if !joinable {
			return api.CodeConflict
		}
		if keepsOut(r, m) {
			return api.CodeSignedOut
		}
		return ""
	case lease.Quarantined, lease.Inspected:
		return api.CodeQuarantined
	case lease.ManualReview:
		return api.CodeInReview
	case lease.ResumePending:
		if r.TaskID != m.TaskID {
			return api.CodeResumePending
		}
	}
	switch {
	case now.Before(r.AvailableAfter):
		return api.CodeCoolingDown
	case keepsOut(r, m):
		return api.CodeSignedOut
	case !home.There:
		return api.CodeWrongHome
	case home.Full:
		return api.CodeHostFull
	}
	return ""
}

// fitting are the records of the profiles that the manifest asks for and that its principal may
// open, with the ends of their cooldowns by this host's clock.
func (g *Service) fitting(ctx context.Context, m api.Manifest) ([]lease.Record, error) {
	rows, complete, _ := g.host.Catalog.Rows()
	if !complete {
		entries, err := g.host.Store.List(ctx)
		if err != nil {
			return nil, err
		}
		rows = rows[:0]
		for _, e := range entries {
			rows = append(rows, catalog.NewRow(e))
		}
	}
	by := principal.Of(ctx)
	var found []lease.Record
	for _, row := range rows {
		r := row.Record
		r.AvailableAfter = row.CoolUntil
		if (m.AccountID == "" || m.AccountID == r.AccountID) && queue.HasLabels(r.Labels, m.Labels) && by.May(principal.Open, r.ProfileID) {
			found = append(found, r)
		}
	}
	return found, nil
}

// candidates are the profiles that the manifest asks for and that its principal may open, the
// preferred ones first.
func (g *Service) candidates(ctx context.Context, m api.Manifest) ([]candidate, error) {
	fitting, err := g.fitting(ctx, m)
	if err == nil {
		err = g.host.Root.There() // else no profile of this host would fit
	}
	if err != nil {
		return nil, err
	}
	hosts, now := g.host.Capacities(), time.Now()
	var found []candidate
	for _, r := range fitting {
		c := candidate{Record: r, here: r.Home == g.host.ID || r.Home == "", resumes: r.State == lease.ResumePending && r.TaskID == m.TaskID}
		if _, err := g.host.Root.Path(r.ProfileID); c.here && err != nil { // archived or removed
			continue
		}
		c.shares = g.joinable(r, m)
		c.why = whyNot(c.Record, m, c.shares, hosts[cmp.Or(r.Home, g.host.ID)], now)
		found = append(found, c)
	}
	slices.SortFunc(found, preferred)
	return found, nil
}

// ends are the refusals of one profile that end a search for any profile, because every other
// profile would be refused in the same way. A refusal because of the profile's proxy is none.
var ends = []string{api.CodeStoreUnavailable, api.CodeShuttingDown, api.CodeBrowserStartFailed, api.CodeInternal}

// tryAny makes one attempt to get any of the profiles that the manifest asks for. It tries
// those of this host in turn. If there is none, but there is a free one elsewhere, it sends the
// caller there. As the last resort it brings one here whose home is gone or full, if that one
// may move.
func (g *Service) tryAny(ctx context.Context, m api.Manifest, a *asking) (*session.Session, error) {
	found, err := g.candidates(ctx, m)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, noneFits(m)
	}
	var full *api.Problem // this host has no place
	for i := range found {
		c := &found[i]
		if c.why == api.CodeHostFull && c.here && full == nil {
			c.why = "" // the queue for places decides
		}
		switch {
		case c.why != "":
		case !c.here:
			if g.othersFirst(c, a) {
				continue
			}
			return nil, g.host.Patrol.Home(c.Record).With("profile_id", c.ProfileID).With("turn", a.ticket.HandOn(c.ProfileID))
		case full != nil && !c.shares: // a shared browser has its place
			c.why = api.CodeHostFull
		case a.down.has(c.Record):
			c.why = api.CodeBrowserStartFailed
		default:
			s, p, err := g.tryOne(ctx, m, c, a)
			if p == nil {
				return s, err
			}
			a.down.note(c.Record, p)
			if p.Code == api.CodeHostFull {
				full = p
			}
		}
	}
	if full == nil {
		if s, err := g.bringAny(ctx, m, found, a); s != nil || err != nil {
			return s, err
		}
	}
	return nil, a.down.explain(noneFree(m, found, full, time.Now()))
}

// noneFits refuses a request for any profile if no profile fits it.
func noneFits(m api.Manifest) *api.Problem {
	return api.Refuse(api.CodeUnknownProfile, "there is no profile %s that you may open: leasehold profiles lists them", wanted(m))
}

// othersFirst tells whether other waiters for the profile come first, and notes that.
func (g *Service) othersFirst(c *candidate, a *asking) bool {
	ahead, _ := g.host.Queue.Ahead(a.ticket, c.Record, true)
	if ahead > 0 {
		c.why = api.CodeConflict
	}
	return ahead > 0
}

// tryOne makes one attempt to get one of the profiles. It returns a session, or the refusal,
// which it also notes in the candidate, or an error that ends the search.
func (g *Service) tryOne(ctx context.Context, m api.Manifest, c *candidate, a *asking) (*session.Session, *api.Problem, error) {
	s, err := g.try(ctx, of(m, c.Record), a)
	var p *api.Problem
	if err == nil || !errors.As(err, &p) || slices.Contains(ends, p.Code) && !ofProxy(p) || ctx.Err() != nil {
		return s, nil, err
	}
	c.why = p.Code
	return nil, p, nil
}

// bringAny gets one of the profiles whose home is gone or has no place, if its owner lets it
// move. It returns neither a session nor an error if there is no such profile.
func (g *Service) bringAny(ctx context.Context, m api.Manifest, found []candidate, a *asking) (*session.Session, error) {
	for i := range found {
		c := &found[i]
		if !c.mayCome() || g.host.Snapshots == nil || a.down.has(c.Record) {
			continue
		}
		if g.othersFirst(c, a) {
			continue
		}
		s, p, err := g.tryOne(ctx, m, c, a)
		if p == nil {
			return s, err
		}
		a.down.note(c.Record, p)
		if p.Code == api.CodeProfileStore || p.Code == api.CodeHostFull { // the next one would fail in the same way
			break
		}
	}
	return nil, nil
}

// mayCome tells whether only the home keeps the profile from the task, because it is gone or
// has no place, and the profile may move.
func (c candidate) mayCome() bool {
	return !c.here && (c.why == api.CodeWrongHome || c.why == api.CodeHostFull) && c.MayMove() == nil
}

// of turns the manifest of a request for any profile into one for this profile.
func of(m api.Manifest, r lease.Record) api.Manifest {
	m.ProfileID, m.AccountID, m.Labels, m.Turn = r.ProfileID, r.AccountID, nil, ""
	return m
}

// wanted says in words what the manifest asks for instead of a profile.
func wanted(m api.Manifest) string {
	var parts []string
	if m.AccountID != "" {
		parts = append(parts, "of account "+m.AccountID)
	}
	if len(m.Labels) > 0 {
		parts = append(parts, "with labels "+strings.Join(m.Labels.Texts(), ","))
	}
	return strings.Join(parts, " ")
}

// reasons are the codes with which a request for any profile is refused when none is free. The
// first of them that applies to some profile is used.
var reasons = []string{
	api.CodeHostFull, api.CodeConflict, api.CodeCoolingDown, api.CodeQuarantined, api.CodeResumePending, api.CodeInReview, api.CodeSignedOut, api.CodeWrongHome,
}

// later is the number of seconds after which a caller should ask again for a profile whose
// holder may take any time.
const later = 5

// noneFree refuses a request for any profile, and says what keeps how many of them from it.
// full is this host's refusal if it has no place.
func noneFree(m api.Manifest, found []candidate, full *api.Problem, now time.Time) *api.Problem {
	counts := map[string]int{}
	next, free := 0, time.Time{}
	for _, c := range found {
		counts[c.why]++
		seconds := later
		if c.why == api.CodeCoolingDown {
			seconds = int(c.AvailableAfter.Sub(now).Seconds()) + 1
			if free.IsZero() || c.AvailableAfter.Before(free) {
				free = c.AvailableAfter
			}
		}
		if next == 0 || seconds < next {
			next = seconds
		}
	}
	code := found[0].why
	for _, r := range reasons {
		if counts[r] > 0 {
			code = r
			break
		}
	}
	var parts []string
	for _, r := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[r], r))
	}
	p := api.Refuse(code, "none of the %d profiles %s is free (%s); to queue, ask with wait", len(found), wanted(m), strings.Join(parts, ", "))
	for _, c := range found {
		if code == api.CodeConflict && c.why == code && c.State == lease.Held { // one of them, so that it can be asked who has it
			p.Detail += fmt.Sprintf("; %s is held by worker %s for task %s", c.ProfileID, c.OwnerWorkerID, c.TaskID)
			p = p.With("current_worker_id", c.OwnerWorkerID).With("current_task_id", c.TaskID)
			break
		}
	}
	if full != nil && code == api.CodeHostFull {
		for name, value := range full.More {
			p = p.With(name, value)
		}
		next = min(next, max(full.RetryAfter, host.Soon))
	}
	p = p.With("candidates", counts).With("next_check_seconds", next)
	if code == api.CodeCoolingDown {
		p = p.With("available_after", free.UTC())
	}
	p.RetryAfter = next
	return p
}
