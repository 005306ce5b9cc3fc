package witness

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"leasehold/checkpoint/site"
	"leasehold/launcher/accountcheck"
	"leasehold/launcher/api"
	"leasehold/launcher/recovery"
	"leasehold/launcher/recovery/findings"
	"leasehold/launcher/recovery/table"
)

// Account asks the sites themselves what became of an account. It implements recovery.Checker.
type Account struct {
	AccountChecker
	Memory accountcheck.Memory
	// Settle is how long an account may take until nothing of what was sent is still under way; zero:
	// defaultSettle.
	Settle time.Duration
}

// AccountChecker asks sites with a browser of its own; accountcheck.Checker does.
type AccountChecker interface {
	Run(ctx context.Context, r accountcheck.Request) (accountcheck.Found, error)
}

const defaultSettle = 3 * time.Second

// Check asks the sites of the session, as its worker's browser would ask them.
func (a Account) Check(ctx context.Context, c recovery.Closed, log zerolog.Logger) (recovery.Checked, error) {
	r, m := c.Record, c.File.Manifest
	kept, err := a.Memory.Load(c.Profile)
	if err != nil {
		log.Warn().Err(err).Msg("what sites say now is compared with nothing")
	}
	digest := a.Memory.Digest(c.Profile)
	compared := func(answers []site.Answer) (all []site.Compared) {
		for _, one := range answers {
			all = append(all, site.Compare(one, kept[one.ID()], digest))
		}
		return all
	}
	request := accountcheck.Request{
		Profile: c.Profile, Path: c.Path, Lock: c.Lock, Token: r.Token, Check: r.SessionCheck, Sites: c.Sites, ProxyID: r.ProxyID,
		Headless: m.Headless, Args: m.ChromeArgs, Memory: r.BrowserMemory, Appearance: r.Appearance, KeepCookies: m.SessionCookies != api.CookiesDrop, Log: log,
		Questions: c.Questions(), Task: c.Task(), Settle: a.Settle,
		Again: func(first []site.Answer) (again []site.Question) {
			for _, one := range compared(first) {
				if one.Equal && !one.Identity && !one.Opens {
					again = append(again, one.Question)
				}
			}
			return again
		},
	}
	if request.Settle == 0 {
		request.Settle = defaultSettle
	}
	found, err := a.Run(ctx, request)
	facts, unchanged, says := findings.Asked(compared(found.Answers), compared(found.Again))
	checked := recovery.Checked{Facts: facts, Unchanged: unchanged, Says: says, SignedIn: a.Memory.SignedIn(r, c.Sites, found.Session, found.Answers, false)}
	if r.SessionCheck != nil {
		checked.Facts = append(checked.Facts, sessionFact(found.Session))
	}
	if len(found.Answers) > 0 {
		checked.Keep = func() error { return a.Memory.Keep(c.Profile, a.Memory.Own(c.Profile, latest(found)), time.Now()) }
	}
	return checked, err
}

func latest(f accountcheck.Found) []site.Answer {
	last := map[string]site.Answer{}
	for _, one := range f.Again {
		last[one.ID()] = one
	}
	var all []site.Answer
	for _, one := range f.Answers {
		if again, ok := last[one.ID()]; ok {
			one = again
		}
		all = append(all, one)
	}
	return all
}

func sessionFact(r accountcheck.Result) table.Fact {
	failed := map[accountcheck.Answer]table.Answer{accountcheck.SignedIn: table.No, accountcheck.SignedOut: table.Yes}[r.Answer]
	if failed == "" {
		failed = table.Unknown
	}
	return table.Fact{Name: table.SessionCheckFailed, Answer: failed, How: r.How}
}
