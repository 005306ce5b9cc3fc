package grant

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"leasehold/launcher/api"
	"leasehold/launcher/principal"
	"leasehold/launcher/session"
	"leasehold/launcher/slots"
	"leasehold/lease"
)

// tryReadAny makes one attempt to get an ephemeral session of any of the profiles that the
// manifest asks for. It prefers the profile with the fewest readers here, so that many readers
// spread over the accounts.
func (g *Service) tryReadAny(ctx context.Context, m api.Manifest, place *slots.Waiter, down *proxiesDown) (*session.Session, error) {
	found, err := g.fitting(ctx, m)
	if err != nil {
		return nil, err
	}
	if !m.WantsReadOnly() { // the session runs beside the lease
		by := principal.Of(ctx)
		found = slices.DeleteFunc(found, func(r lease.Record) bool { return !by.May(principal.Manage, r.ProfileID) })
	}
	if len(found) == 0 {
		return nil, noneFits(m)
	}
	readers := map[string]int{} // number of readers by profile
	for _, s := range g.host.Sessions.Living() {
		if s.Show().Ephemeral {
			readers[s.Profile()]++
		}
	}
	slices.SortFunc(found, func(a, b lease.Record) int {
		return cmp.Or(cmp.Compare(readers[a.ProfileID], readers[b.ProfileID]), strings.Compare(a.ProfileID, b.ProfileID))
	})
	counts := map[string]int{}
	for _, r := range found {
		p := g.unreadable(r, of(m, r))
		if p == nil && down.has(r) {
			counts[api.CodeBrowserStartFailed]++
			continue
		}
		if p == nil {
			s, err := g.tryRead(ctx, of(m, r), place)
			if err == nil || !errors.As(err, &p) || slices.Contains(endsReading, p.Code) && !ofProxy(p) || ctx.Err() != nil {
				return s, err
			}
			down.note(r, p)
		}
		counts[p.Code]++
	}
	return nil, down.explain(noneToRead(m, len(found), counts))
}

// endsReading are the refusals of one profile that end a search for any profile to read,
// because every other profile would be refused in the same way.
var endsReading = append([]string{api.CodeHostFull, api.CodeProfileStore}, ends...)

// noneToRead refuses an ephemeral session of any profile, and counts the reasons. Its code is
// the first of those that end by themselves, or else the most frequent one.
func noneToRead(m api.Manifest, n int, counts map[string]int) *api.Problem {
	codes := slices.Sorted(maps.Keys(counts))
	rank := func(code string) int {
		if i := slices.Index(reasons, code); i >= 0 {
			return i
		}
		return len(reasons)
	}
	code := slices.MinFunc(codes, func(a, b string) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(counts[b], counts[a]))
	})
	var parts []string
	for _, c := range codes {
		parts = append(parts, fmt.Sprintf("%d %s", counts[c], c))
	}
	return api.Refuse(code, "none of the %d profiles %s can be read (%s)", n, wanted(m), strings.Join(parts, ", ")).With("candidates", counts)
}
