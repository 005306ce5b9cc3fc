package witness

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"leasehold/checkpoint"
	"leasehold/checkpoint/site"
	"leasehold/launcher/accountcheck"
	"leasehold/launcher/api"
	"leasehold/launcher/recovery"
	"leasehold/launcher/recovery/findings"
	"leasehold/launcher/recovery/table"
	"leasehold/launcher/sessionfile"
)

// Account asks the sites themselves what became of an account. It implements recovery.Checker.
type Account struct {
	AccountChecker
	Memory accountcheck.Memory
	// Files has what sites answered while sessions lived.
	Files sessionfile.Dir
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
	baselines, safe, err := a.baselines(c)
	if err != nil {
		log.Warn().Err(err).Msg("what sites say now is compared with what they said at rest")
	}
	granted := c.File.Token // that of the first of the runs: before it the profile was at rest
	for _, run := range c.Lost {
		granted = min(granted, run.File.Token)
	}
	since := func(answers []site.Answer, checkpoint uint64) []site.Compared {
		return a.Memory.Compare(c.Profile, granted, answers, kept, baselines, checkpoint)
	}
	request := accountcheck.Request{
		Profile: c.Profile, Path: c.Path, Lock: c.Lock, Token: r.Token, Check: r.SessionCheck, Sites: c.Sites, ProxyID: r.ProxyID,
		Headless: m.Headless, Args: m.ChromeArgs, Memory: r.BrowserMemory, Appearance: r.Appearance, ReadOnly: r.ReadOnly || m.WantsReadOnly(), KeepCookies: m.SessionCookies != api.CookiesDrop, Log: log,
		Questions: c.Questions(), Task: c.Task(), Settle: a.Settle,
		Again: func(first []site.Answer) (again []site.Question) {
			sinceSafe := since(first, safe)
			for i, one := range since(first, 0) {
				if (one.Equal || sinceSafe[i].Equal) && !one.Identity && !one.Opens {
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
	told := func(checkpoint uint64) findings.Told {
		return findings.Told{First: since(found.Answers, checkpoint), Again: since(found.Again, checkpoint)}
	}
	says := findings.Asked(told(0), told(safe))
	checked := recovery.Checked{Facts: says.Facts, Unchanged: says.Unchanged, UnchangedSinceSafe: says.UnchangedSinceSafe, Says: says.Says, SignedIn: a.Memory.SignedIn(r, c.Sites, found.Session, found.Answers, false)}
	if r.SessionCheck != nil {
		checked.Facts = append(checked.Facts, sessionFact(found.Session))
	}
	if len(found.Answers) > 0 {
		checked.Keep = func() error {
			return a.Memory.Keep(c.Profile, r.Token, a.Memory.Own(c.Profile, latest(found)), time.Now())
		}
	}
	return checked, err
}

// baselines are what sites said while the session lived, and the number of its last safe checkpoint; 0:
// none was named. The answer at the grant is also that at the checkpoint from which its task went on. Of several
// runs that were lost none is resumed, and what one asked says nothing of the others.
func (a Account) baselines(c recovery.Closed) (all []site.Baseline, safe uint64, err error) {
	if len(c.Lost) > 0 {
		return nil, 0, nil
	}
	all, err = a.Files.ReadBaselines(c.File.SessionID)
	named := checkpoint.Summarize(c.Journal).LastSafe
	if named == nil {
		return all, 0, err
	}
	if named.ResumeFrom != "" {
		for _, b := range all {
			if b.Checkpoint == 0 {
				b.Checkpoint, b.Name = named.Seq, named.Name
				all = append(all, b)
			}
		}
	}
	return all, named.Seq, err
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
