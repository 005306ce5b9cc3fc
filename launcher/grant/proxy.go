package grant

import (
	"cmp"
	"context"
	"time"

	"leasehold/launcher/api"
	"leasehold/launcher/profiles"
	"leasehold/launcher/proxies"
	"leasehold/launcher/slots"
	"leasehold/lease"
)

// proxyCheckTimeout bounds how long a proxy may take to answer before a grant.
const proxyCheckTimeout = 10 * time.Second

// mappingRefusal refuses a task whose account or proxy is not the profile's. Where the profile has
// none, the manifest sets it, if the task's principal may manage profiles, and give the account. But only a profile's
// first grant takes a proxy: a task must not move an account that has been seen without one.
func mappingRefusal(r lease.Record, m api.Manifest) *api.Problem {
	const who = "who may manage profiles sets it: PUT /v1/profiles/%s"
	switch {
	case m.AccountID == "" || m.AccountID == r.AccountID:
	case r.AccountID != "":
		return api.Refuse(api.CodeAccountMismatch, "profile %s belongs to account %s, not %s", r.ProfileID, r.AccountID, m.AccountID).With("account_id", r.AccountID)
	case !m.Opener.GivesAccount:
		return api.Refuse(api.CodeAccountMismatch, "profile %s has no account, and you do not give it %s; "+who, r.ProfileID, m.AccountID, r.ProfileID).With("account_id", "")
	}
	switch {
	case m.ProxyID == "" || m.ProxyID == r.ProxyID:
		return nil
	case r.ProxyID != "":
		return api.Refuse(api.CodeProxyChanged, "profile %s is mapped to proxy %s, not %s", r.ProfileID, r.ProxyID, m.ProxyID).With("proxy_id", r.ProxyID)
	case r.Token > 0:
		return api.Refuse(api.CodeProxyChanged, "profile %s was used without a proxy: to put it behind %s for good, PUT /v1/profiles/%s with this proxy_id", r.ProfileID, m.ProxyID, r.ProfileID).
			With("proxy_id", r.ProxyID)
	case !m.Opener.Manages:
		return api.Refuse(api.CodeProxyChanged, "profile %s has no proxy, and a worker does not give it %s; "+who, r.ProfileID, m.ProxyID, r.ProfileID).With("proxy_id", "")
	}
	return nil
}

// chooseProxy finds the proxy of the browser to be started, and connects to it once, since
// nothing is granted if it does not answer. It returns nil if the profile has no proxy.
func (g *Service) chooseProxy(ctx context.Context, r lease.Record, m api.Manifest, path string) (*proxies.Proxy, error) {
	id := cmp.Or(r.ProxyID, m.ProxyID)
	if g.host.Proxies == nil || id == "" {
		return nil, g.proxyForgotten(r, path)
	}
	p := g.host.Proxies.Find(id)
	switch {
	case p == nil && r.ProxyID == "":
		return nil, profiles.UnknownProxy(g.host.Proxies, id)
	case p == nil:
		return nil, api.Refuse(api.CodeBrowserStartFailed, "profile %s is mapped to proxy %s, which the configuration does not have: add it to the file of --proxies; without its proxy the profile is not opened", r.ProfileID, id).
			With("proxy_id", id)
	}
	ctx, cancel := context.WithTimeout(ctx, proxyCheckTimeout)
	defer cancel()
	if err := p.Check(ctx); err != nil {
		g.host.Log.Warn().Err(err).Str("profile", r.ProfileID).Msg("nothing was started, since the profile is not opened without its proxy")
		return nil, api.Refuse(api.CodeBrowserStartFailed, "proxy %s does not answer (the sidecar's log says why): nothing was started, since profile %s is not opened without its proxy", id, r.ProfileID).
			With("proxy_id", id)
	}
	return p, nil
}

// proxyForgotten refuses a profile that used a proxy before, if no proxies are configured any
// more or its record names none (for example in a copy).
func (g *Service) proxyForgotten(r lease.Record, path string) error {
	was, err := slots.LastProxy(path)
	if err != nil || was == "" {
		return err
	}
	why := "no proxies are configured: start the sidecar with the file that has it (--proxies)"
	if g.host.Proxies != nil {
		why = "its record names none: PUT /v1/profiles/" + r.ProfileID + " with the proxy_id that it is to have for good"
	}
	return api.Refuse(api.CodeBrowserStartFailed, "profile %s was opened through proxy %s, and %s; without its proxy the profile is not opened", r.ProfileID, was, why).
		With("proxy_id", was)
}

// ofProxy tells whether a profile was refused because its proxy cannot be had. One with another
// proxy may be opened all the same.
func ofProxy(p *api.Problem) bool {
	_, named := p.More["proxy_id"]
	return p.Code == api.CodeBrowserStartFailed && named
}

// proxyPause is how long a request for any profile does not ask a proxy again that did not answer.
const proxyPause = 30 * time.Second

// proxiesDown are the proxies because of which a request for any profile was refused some. The zero
// value has none.
type proxiesDown struct {
	at    map[string]time.Time // when each was asked last, by its id
	first *api.Problem
}

// has tells whether the profile is behind one that was asked a moment ago.
func (d *proxiesDown) has(r lease.Record) bool {
	at, ok := d.at[r.ProxyID]
	return ok && time.Since(at) < proxyPause
}

// note takes in why a profile was refused.
func (d *proxiesDown) note(r lease.Record, p *api.Problem) {
	if !ofProxy(p) {
		return
	}
	d.first = cmp.Or(d.first, p)
	if r.ProxyID != "" {
		if d.at == nil {
			d.at = map[string]time.Time{}
		}
		d.at[r.ProxyID] = time.Now()
	}
}

// explain names a proxy in the refusal of a request for which nothing but proxies were missing.
func (d *proxiesDown) explain(p *api.Problem) *api.Problem {
	if d.first == nil || p.Code != d.first.Code {
		return p
	}
	p = p.With("proxy_id", d.first.More["proxy_id"])
	p.Detail += "; " + d.first.Detail
	return p
}
