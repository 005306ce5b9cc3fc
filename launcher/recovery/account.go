package recovery

import (
	"context"

	"github.com/rs/zerolog"

	"leasehold/checkpoint"
	"leasehold/checkpoint/site"
	"leasehold/launcher/api"
	"leasehold/launcher/recovery/findings"
	"leasehold/launcher/recovery/table"
	"leasehold/lease"
)

// Checker asks sites about the account of a profile, with a browser of its own.
type Checker interface {
	// Check makes the session check of the profile, if it has one, and asks what the files about sites
	// ask. An error says that its browser did not end in order.
	Check(ctx context.Context, c Closed, log zerolog.Logger) (Checked, error)
}

// Checked is what sites said about an account.
type Checked struct {
	Facts []table.Fact
	// SignedIn is what they said about whether the account is signed in.
	SignedIn lease.Checked
	// Unchanged are the questions whose answers are what they were before the session, and
	// UnchangedSinceSafe those whose answers are what they were at its last safe checkpoint.
	Unchanged, UnchangedSinceSafe []site.Question
	// Says is what they said, in words for the person who decides.
	Says []string
	// Keep remembers the answers, as those of an account that nobody uses; nil: there are none. It
	// comes after the decision: until then they are what is compared.
	Keep func() error
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

// unchecked are the facts about what sites say of the account, before anything was asked. why is the
// reason if nothing will be.
func unchecked(c Closed, why string) []table.Fact {
	f := table.Fact{Name: table.SessionCheckFailed, Answer: table.No, How: "the profile has no session check"}
	switch {
	case c.Record.SessionCheck == nil:
	case why == "":
		f.How = "not made yet"
	default:
		f.Answer, f.How = table.Unknown, why
	}
	return append(findings.Unasked(c.Questions(), why), f)
}

// check asks sites about the account, and decides again: if the profile would otherwise be let go,
// and if what sites say may let it go, or tell the person who decides what became of the account. The
// worker's browser and its pages are gone. The check has a browser of its own, so the witnesses are
// asked once more, for what that may have left behind.
func (s *steps) check(c Closed, shown *api.Inspection, found table.Inspection, decided table.Decision) (table.Inspection, table.Decision) {
	questions := len(c.Questions())
	why := ""
	switch {
	case c.Record.SessionCheck == nil && questions == 0:
		return found, decided
	case decided.Outcome == table.ManualReview && (questions == 0 || !table.Whole(found)):
		why = "not made: a person decides anyway, and finds the profile as it was left"
	case s.r.o.Checker == nil:
		why = "nobody here can make it"
	}
	if why != "" {
		found = found.With(unchecked(c, why)...)
		return found, table.Decide(found, s.r.o.ReviewWhen...)
	}
	checked, err := s.r.o.Checker.Check(context.Background(), c, s.Log)
	if err != nil {
		s.Log.Error().Err(err).Msg("the browser that asked about the account did not close in order")
	}
	s.takeStored(err)
	s.answers, s.signedIn = checked.Keep, checked.SignedIn
	shown.Account = checked.Says
	c = s.closedWith(c.Record, err)
	c.Unchanged, c.UnchangedSinceSafe = checked.Unchanged, checked.UnchangedSinceSafe
	s.judged, s.asked = c, true
	found = s.inspect(c, shown).With(checked.Facts...)
	return found, table.Decide(found, s.r.o.ReviewWhen...)
}
