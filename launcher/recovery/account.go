package recovery

import (
	"context"

	"github.com/rs/zerolog"

	"leasehold/checkpoint"
	"leasehold/launcher/api"
	"leasehold/launcher/recovery/table"
	"leasehold/lease"
)

// Checker asks a site whether the account of a profile is still signed in, with a browser of its
// own. An error says that this browser did not end in order.
type Checker interface {
	Check(ctx context.Context, c Closed, log zerolog.Logger) (table.Fact, error)
}

// compareCookies makes the browser report what became of the account's cookies, if that could
// not be found out at the capture. The browser is about to be closed, and has its network.
func (s *steps) compareCookies() {
	if s.Journal == nil { // nobody judges this session
		return
	}
	read := false
	for _, e := range s.Journal() {
		if e.Cookie != nil && (e.Cookie.What == checkpoint.CookiesRead || e.Cookie.What == checkpoint.CookiesUnread) {
			read = e.Cookie.What == checkpoint.CookiesRead
		}
	}
	if read || !s.driven() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	s.Browser.CompareCookies(ctx)
}

// unchecked is the fact about the session check before one was made.
func unchecked(r lease.Record) table.Fact {
	f := table.Fact{Name: table.SessionCheckFailed, Answer: table.No, How: "the profile has no session check"}
	if r.SessionCheck != nil {
		f.How = "not made yet"
	}
	return f
}

// check makes the profile's session check and decides again, if the profile would otherwise be
// let go. The worker's browser and its pages are gone. The check has a browser of its own, so
// the witnesses are asked once more, for what that may have left behind.
func (s *steps) check(c Closed, shown *api.Inspection, found table.Inspection, decided table.Decision) (table.Inspection, table.Decision) {
	unmade := table.Fact{Name: table.SessionCheckFailed, Answer: table.Unknown}
	switch {
	case c.Record.SessionCheck == nil:
		return found, decided
	case decided.Outcome == table.ManualReview:
		unmade.How = "not made: a person decides anyway, and finds the profile as it was left"
		return found.With(unmade), decided
	case s.r.o.Checker == nil:
		unmade.How = "nobody here can make it"
		found = found.With(unmade)
		return found, table.Decide(found, s.r.o.ReviewWhen...)
	}
	fact, err := s.r.o.Checker.Check(context.Background(), c, s.Log)
	if err != nil {
		s.Log.Error().Err(err).Msg("the browser of the session check did not close in order")
	}
	s.takeStored(err)
	found = s.inspect(s.closedWith(c.Record, err), shown).With(fact)
	return found, table.Decide(found, s.r.o.ReviewWhen...)
}
