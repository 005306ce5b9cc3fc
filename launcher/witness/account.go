package witness

import (
	"context"

	"github.com/rs/zerolog"

	"leasehold/launcher/accountcheck"
	"leasehold/launcher/api"
	"leasehold/launcher/recovery"
	"leasehold/launcher/recovery/table"
)

// Account asks the site itself whether the account is still signed in. It implements
// recovery.Checker.
type Account struct{ SessionChecker }

// SessionChecker makes the session checks of profiles; accountcheck.Checker does.
type SessionChecker interface {
	Run(ctx context.Context, r accountcheck.Request) (accountcheck.Result, error)
}

// Check makes the session check of the profile, as its worker's browser would make it.
func (a Account) Check(ctx context.Context, c recovery.Closed, log zerolog.Logger) (table.Fact, error) {
	r, m := c.Record, c.File.Manifest
	result, err := a.Run(ctx, accountcheck.Request{
		Profile: c.Profile, Path: c.Path, Lock: c.Lock, Token: r.Token, Check: *r.SessionCheck, ProxyID: r.ProxyID,
		Headless: m.Headless, Args: m.ChromeArgs, Memory: r.BrowserMemory, KeepCookies: m.SessionCookies != api.CookiesDrop, Log: log,
	})
	failed := map[accountcheck.Answer]table.Answer{accountcheck.SignedIn: table.No, accountcheck.SignedOut: table.Yes}[result.Answer]
	if failed == "" {
		failed = table.Unknown
	}
	return table.Fact{Name: table.SessionCheckFailed, Answer: failed, How: result.How}, err
}
