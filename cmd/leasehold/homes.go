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
// there (moveTo), but show an API token only to sidecars that the user named: whoever gets the token
// can use it everywhere.

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

// homeIn is the address of a profile's home in a refusal, or "". If the request was for any profile, turn
// keeps its place in the queue there.
func homeIn(err error) (home, turn string) {
	var refused *refusedError
	if !errors.As(err, &refused) || refused.problem.Code != api.CodeWrongHome {
		return "", ""
	}
	home, _ = refused.problem.More["location"].(string)
	turn, _ = refused.problem.More["turn"].(string)
	return home, turn
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

// acquire asks for a session. A request for any profile may be sent on more than once, and takes its place
// in the queue along.
func (c *client) acquire(ctx context.Context, m api.Manifest) (json.RawMessage, error) {
	response, err := c.send(ctx, http.MethodPost, m, "v1", "sessions")
	for range maxFollowed {
		home, turn := homeIn(err)
		if home == "" || turn == "" && c.moved {
			break
		}
		if err := c.moveTo(home, err); err != nil {
			return nil, err
		}
		m.Turn = turn
		response, err = c.send(ctx, http.MethodPost, m, "v1", "sessions")
	}
	if err != nil {
		return nil, err
	}
	return c.document(response)
}

// maxFollowed is how many times a request for any profile is sent on to another sidecar.
const maxFollowed = 4
