package recovery

import (
	"context"
	"slices"

	"leasehold/checkpoint"
	"leasehold/launcher/accountcheck"
	"leasehold/launcher/api"
	"leasehold/launcher/recovery/table"
	"leasehold/lease"
)

// SessionChecker makes the session checks of profiles; accountcheck.Checker does.
type SessionChecker interface {
	Run(ctx context.Context, r accountcheck.Request) (accountcheck.Result, error)
}

// compareCookies makes the monitor report what became of the account's cookies, if that could
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
	if read || !s.Browser.Driven() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), cookiesTimeout)
	defer cancel()
	s.Browser.Monitor().Cookies().Compare(s.Browser.Cookies(ctx))
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
// the directory is inspected once more for what that may have left behind.
func (s *steps) check(r lease.Record, found table.Inspection, decided table.Decision) (table.Inspection, table.Decision) {
	switch {
	case r.SessionCheck == nil:
		return found, decided
	case decided.Outcome == table.ManualReview:
		return with(found, table.Fact{Name: table.SessionCheckFailed, Answer: table.Unknown, How: "not made: a person decides anyway, and finds the profile as it was left"}), decided
	case s.r.o.Checker == nil:
		found = with(found, table.Fact{Name: table.SessionCheckFailed, Answer: table.Unknown, How: "nobody here can make it"})
		return found, table.Decide(found, s.r.o.ReviewWhen...)
	}
	m := s.File.Manifest
	result, err := s.r.o.Checker.Run(context.Background(), accountcheck.Request{
		Profile: s.Profile, Path: s.Path, Lock: s.Lock, Token: r.Token, Check: *r.SessionCheck, ProxyID: r.ProxyID,
		Headless: m.Headless, Args: m.ChromeArgs, Memory: r.BrowserMemory, KeepCookies: m.SessionCookies != api.CookiesDrop, Log: s.Log,
	})
	if err != nil {
		s.Log.Error().Err(err).Msg("the browser of the session check did not close in order")
	}
	failed := map[accountcheck.Answer]table.Answer{accountcheck.SignedIn: table.No, accountcheck.SignedOut: table.Yes}[result.Answer]
	if failed == "" {
		failed = table.Unknown
	}
	found = with(found, table.Fact{Name: table.SessionCheckFailed, Answer: failed, How: result.How})
	s.takeStored(err)
	found = with(with(found, s.directoryFacts(err)...), s.stillFacts()...)
	return found, table.Decide(found, s.r.o.ReviewWhen...)
}

// with is a copy of an inspection in which facts are replaced or added.
func with(found table.Inspection, facts ...table.Fact) table.Inspection {
	found = slices.Clone(found)
	for _, f := range facts {
		if i := slices.IndexFunc(found, func(o table.Fact) bool { return o.Name == f.Name }); i >= 0 {
			found[i] = f
		} else {
			found = append(found, f)
		}
	}
	return found
}
