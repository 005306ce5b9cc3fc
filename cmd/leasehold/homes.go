package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"leasehold/launcher/api"
)

// If a sidecar is asked about a profile of another host, it answers with that host's address
// (421). It has the address from NATS, where every launcher can write one. So the commands go
// there, but show an API token only to sidecars that the user named: whoever gets the token can
// use it everywhere.

// homePattern describes sidecars that may be shown the API token.
type homePattern struct {
	scheme, host, port string // a host such as *.example.com means every host below it
}

// parseHomePattern reads a URL without a path, whose host may begin with "*.".
func parseHomePattern(text string) (homePattern, error) {
	u, err := url.Parse(strings.TrimSuffix(text, "/"))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Path != "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil ||
		strings.Contains(strings.TrimPrefix(u.Hostname(), "*."), "*") {
		return homePattern{}, fmt.Errorf("%q: want URLs without a path, such as https://host-2.example.com:9333 or https://*.example.com:9333", text)
	}
	return homePattern{u.Scheme, strings.ToLower(u.Hostname()), portOf(u)}, nil
}

func portOf(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}

func (p homePattern) matches(u *url.URL) bool {
	host := strings.ToLower(u.Hostname())
	below, many := strings.CutPrefix(p.host, "*")
	return p.scheme == u.Scheme && p.port == portOf(u) && (p.host == host || many && strings.HasSuffix(host, below) && len(host) > len(below))
}

// homeIn is the address of a profile's home in a refusal, or "".
func homeIn(err error) string {
	var refused *refusedError
	if !errors.As(err, &refused) || refused.problem.Code != api.CodeWrongHome {
		return ""
	}
	home, _ := refused.problem.More["location"].(string)
	return home
}

// moveTo makes the client ask the home of a profile from now on. refusal is the answer of the
// sidecar that it asked so far. The error says why the home is not asked, and what to do.
func (c *client) moveTo(home string, refusal error) error {
	u, err := url.Parse(home)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return refusal
	}
	trusted := false
	for _, p := range c.trust {
		trusted = trusted || p.matches(u)
	}
	origin := (&url.URL{Scheme: u.Scheme, Host: u.Host}).String()
	switch {
	case trusted:
	case c.token != "":
		return notAsked(refusal, "the token is shown there only if you say so: --trust-home %s, or --url %s to ask that sidecar itself", origin, home)
	case u.Scheme == "http" && c.base.Scheme == "https":
		return notAsked(refusal, "it would be asked without TLS: --trust-home %s, if that is all right", origin)
	}
	c.base, c.moved = &url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}, true
	return nil
}

// notAsked is the refusal with one more reason. For --json it stays the same.
func notAsked(refusal error, format string, args ...any) error {
	return &exitError{exitRefused, fmt.Errorf("%w; %s", refusal, fmt.Sprintf(format, args...))}
}

// acquire asks for a session. A request for any profile is sent on to the sidecar that has one, and
// the client asks that one from then on.
func (c *client) acquire(ctx context.Context, m api.Manifest) (json.RawMessage, error) {
	raw, err := c.askFor(ctx, http.MethodPost, m, "v1", "sessions")
	for range maxFollowed {
		next, turn := elsewhere(c.base, err)
		if next == nil || ctx.Err() != nil {
			break
		}
		c.base, m.Turn = next, turn
		raw, err = c.askFor(ctx, http.MethodPost, m, "v1", "sessions")
	}
	return raw, err
}

// maxFollowed is how many times a request for any profile is sent on to another sidecar.
const maxFollowed = 4

// elsewhere is where a request for any profile has to go on, and what keeps its place there;
// nil if the refusal does not say so. An API token is not shown over a less protected
// connection than before.
func elsewhere(from *url.URL, err error) (_ *url.URL, turn string) {
	var refused *refusedError
	if !errors.As(err, &refused) || refused.problem.Code != api.CodeWrongHome {
		return nil, ""
	}
	location, _ := refused.problem.More["location"].(string)
	turn, _ = refused.problem.More["turn"].(string)
	to, wrong := url.Parse(location)
	if wrong != nil || turn == "" || to.Host == "" || to.Scheme != "https" && to.Scheme != from.Scheme {
		return nil, ""
	}
	return to, turn
}
