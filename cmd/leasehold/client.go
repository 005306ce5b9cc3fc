package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"leasehold/launcher/agents"
	"leasehold/launcher/api"
)

// connectTimeout limits how long a NATS or a store may take to answer at first.
const connectTimeout = 15 * time.Second

// clientFlags are the flags of every command that asks a running sidecar.
type clientFlags struct {
	URL       string `name:"url" env:"LEASEHOLD_URL" default:"http://127.0.0.1:9333" placeholder:"URL" help:"The sidecar (default: ${default})."`
	TokenFile string `env:"LEASEHOLD_TOKEN_FILE" type:"path" placeholder:"FILE" help:"File with the API token that the sidecar asks for."`
	// TrustHome are the patterns described in homes.go.
	TrustHome []string `name:"trust-home" env:"LEASEHOLD_TRUST_HOME" placeholder:"URL" help:"Sidecars of other hosts that are shown the API token, too, where a profile lives there, such as https://*.example.com:9333; several by commas (default: none)."`
	JSON      bool     `name:"json" help:"Print JSON as the sidecar answers it."`
}

// requestTimeout limits every request but those that wait for a lease, for a person, or for a
// profile's directory to be read or to come. It is long because ending a session closes a
// browser and stores evidence.
const requestTimeout = 2 * time.Minute

// maxAnswer limits the size of a JSON answer, in bytes.
const maxAnswer = 64 << 20

// client sends requests to one sidecar, or to a profile's home if that sidecar says that
// another one is the home.
type client struct {
	*sidecarAt
	query string // goes with every request
	token string
	trust []homePattern
	http  *http.Client
}

// sidecarAt is the sidecar that a client and its copies now ask. It may change only before
// anything runs beside the first request.
type sidecarAt struct {
	base *url.URL
	// moved says that this sidecar is a profile's home, and was named by another sidecar.
	moved bool
}

// with returns a client whose requests have these parameters, and no others.
func (c *client) with(parameters url.Values) *client {
	other := *c
	other.query = parameters.Encode()
	return &other
}

func (f clientFlags) client() (*client, error) {
	base, err := url.Parse(f.URL)
	if err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" {
		return nil, exitWith(exitUsage, "--url %q: want a URL such as http://127.0.0.1:9333", f.URL)
	}
	c := &client{sidecarAt: &sidecarAt{base: base}, http: &http.Client{}}
	c.trust = []homePattern{{base.Scheme, strings.ToLower(base.Hostname()), portOf(base)}} // which a home may name, too
	for _, text := range f.TrustHome {
		pattern, err := parseHomePattern(text)
		if err != nil {
			return nil, &exitError{exitUsage, fmt.Errorf("--trust-home: %w", err)}
		}
		c.trust = append(c.trust, pattern)
	}
	if f.TokenFile != "" {
		if c.token, err = readToken(f.TokenFile); err != nil {
			return nil, &exitError{exitUsage, err}
		}
	}
	return c, nil
}

// withSidecar calls do with a client and with a context that SIGINT and SIGTERM end. With
// --json it also prints the problem if the sidecar refused.
func (f clientFlags) withSidecar(a *app, do func(ctx context.Context, sidecar *client) error) error {
	sidecar, err := f.client()
	if err != nil {
		return err
	}
	ctx, stop := interruptible()
	defer stop()
	return f.printProblem(a, do(ctx, sidecar))
}

// printProblem prints, with --json, the problem that err contains as the sidecar sent it.
// The line for people is printed to the standard error in any case.
func (f clientFlags) printProblem(a *app, err error) error {
	var refused *refusedError
	if f.JSON && errors.As(err, &refused) {
		return errors.Join(err, a.printJSON(refused.raw))
	}
	return err
}

// open sends a request. It returns the answer if its status is 2xx; the caller closes the body.
// Other errors are those of unanswered, or have the exit code exitRefused and a *refusedError. A
// request about a profile of another host is sent to that host.
func (c *client) open(ctx context.Context, method string, in any, path ...string) (*http.Response, error) {
	response, err := c.send(ctx, method, in, path...)
	if home, _ := homeIn(err); home != "" && !c.moved {
		if err := c.moveTo(home, err); err != nil {
			return nil, err
		}
		return c.send(ctx, method, in, path...)
	}
	return response, err
}

// send sends a request to the sidecar that the client asks now.
func (c *client) send(ctx context.Context, method string, in any, path ...string) (*http.Response, error) {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return nil, fmt.Errorf("body of %s: %w", method, err)
		}
		body = bytes.NewReader(b)
	}
	escaped := make([]string, len(path))
	for i, p := range path {
		escaped[i] = url.PathEscape(p)
	}
	target := c.base.JoinPath(escaped...)
	if c.query != "" {
		target.RawQuery = c.query
	}
	r, err := http.NewRequestWithContext(ctx, method, target.String(), body)
	if err != nil {
		return nil, exitWith(exitUsage, "request to %s: %w", c.base.Redacted(), err)
	}
	if in != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := c.http.Do(r)
	if err != nil {
		return nil, c.unanswered(r, err)
	}
	if response.StatusCode/100 == 2 {
		return response, nil
	}
	defer response.Body.Close()
	return nil, c.refusal(response)
}

// unanswered is the error for a request whose answer did not come, or not all of it.
func (c *client) unanswered(r *http.Request, err error) error {
	ctx, outcome := r.Context(), ""
	if r.Method != http.MethodGet {
		outcome = "; it may be done all the same"
		if _, rest, ok := strings.Cut(r.URL.Path, "/v1/profiles/"); ok {
			profile, _, _ := strings.Cut(rest, "/")
			outcome += ": leasehold show " + profile
		}
	}
	interrupted, _ := errors.AsType[*interruptedError](context.Cause(ctx))
	switch {
	case interrupted != nil:
		return exitWith(interrupted.exitCode(), "%w before the sidecar at %s answered%s", interrupted, c.base.Redacted(), outcome)
	case ctx.Err() != nil:
		return exitWith(exitFailure, "sidecar at %s: %w%s", c.base.Redacted(), context.Cause(ctx), outcome)
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	return exitWith(exitUnreachable, "sidecar at %s: %w: is leasehold run running there (--url)?", c.base.Redacted(), err)
}

// content is what a response has, in bytes.
func (c *client) content(response *http.Response) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, c.unanswered(response.Request, fmt.Errorf("answer: %w", err))
	}
	return b, nil
}

// refusal is the error for an answer whose status is not 2xx.
func (c *client) refusal(response *http.Response) error {
	b, err := c.content(response)
	if err != nil {
		return err
	}
	var p api.Problem
	if json.Unmarshal(b, &p) == nil && p.Code != "" {
		return &exitError{exitRefused, &refusedError{problem: p, raw: b}}
	}
	return exitWith(exitUnreachable, "%s answered %s, which no leasehold would: what is --url?", c.base.Redacted(), response.Status)
}

// refusedError is a problem in the sidecar's answer, as text for people.
type refusedError struct {
	problem api.Problem
	raw     []byte // as the sidecar sent it
}

func (e *refusedError) Error() string {
	var more strings.Builder
	for _, name := range slices.Sorted(maps.Keys(e.problem.More)) {
		fmt.Fprintf(&more, " %s=%v", name, e.problem.More[name])
	}
	if e.problem.RetryAfter > 0 {
		fmt.Fprintf(&more, " retry_after_seconds=%d", e.problem.RetryAfter)
	}
	text := "refused: " + e.problem.Error()
	if more.Len() > 0 {
		text += " (" + more.String()[1:] + ")"
	}
	return text
}

func (e *refusedError) Unwrap() error { return &e.problem }

func refusedWith(err error, code string) bool {
	var refused *refusedError
	return errors.As(err, &refused) && refused.problem.Code == code
}

func withinRequestTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, requestTimeout, fmt.Errorf("no answer in %v", requestTimeout))
}

// ask sends a request, waits for requestTimeout at most, and returns the JSON document of
// the answer.
func (c *client) ask(ctx context.Context, method string, in any, path ...string) (json.RawMessage, error) {
	ctx, cancel := withinRequestTimeout(ctx)
	defer cancel()
	return c.askFor(ctx, method, in, path...)
}

func (c *client) record(ctx context.Context, profile string) (api.Profile, error) {
	raw, err := c.ask(ctx, http.MethodGet, nil, "v1", "profiles", profile)
	if err != nil {
		return api.Profile{}, err
	}
	return read[api.Profile](raw)
}

// askFor does what ask does, without a time limit of its own. It returns nil for an answer
// without content.
func (c *client) askFor(ctx context.Context, method string, in any, path ...string) (json.RawMessage, error) {
	response, err := c.open(ctx, method, in, path...)
	if err != nil {
		return nil, err
	}
	return c.document(response)
}

// document is the JSON document of an answer, or nil if it has no content.
func (c *client) document(response *http.Response) (json.RawMessage, error) {
	defer response.Body.Close()
	b, err := c.content(response)
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusNoContent {
		return nil, nil
	}
	if !json.Valid(b) {
		return nil, exitWith(exitUnreachable, "%s answered something other than JSON: is a leasehold there (--url)?", c.base.Redacted())
	}
	return b, nil
}

// Ask implements agents.Sidecar.
func (c *client) Ask(ctx context.Context, method string, query url.Values, in any, path ...string) (body []byte, mediaType string, err error) {
	response, err := c.with(query).open(ctx, method, in, path...)
	if err != nil {
		return nil, "", err
	}
	defer response.Body.Close()
	if body, err = c.content(response); err != nil {
		return nil, "", err
	}
	return body, response.Header.Get("Content-Type"), nil
}

// Acquire implements agents.Sidecar. Each session has a client of its own, since each profile may
// live on another host.
func (c *client) Acquire(ctx context.Context, m api.Manifest) (api.Session, agents.Sidecar, error) {
	own := *c
	own.sidecarAt = &sidecarAt{base: c.base, moved: c.moved}
	raw, err := own.acquire(ctx, m)
	if err != nil {
		return api.Session{}, nil, err
	}
	s, err := read[api.Session](raw)
	return s, &own, err
}

// list is the document with which the sidecar answers a request for several items: one page of
// them.
type list[T any] struct {
	Items []T     `json:"items"`
	Next  *string `json:"next"`
	// Truncated says of a history that its oldest events have been removed.
	Truncated bool `json:"truncated"`
	// StaleSince says, for a list of profiles, since when the sidecar cannot reach the lease
	// store.
	StaleSince time.Time `json:"stale_since"`
}

// askAll asks for all pages of a list. It returns the first answer, with the items of the other
// pages added to its own.
func (c *client) askAll(ctx context.Context, path ...string) (json.RawMessage, error) {
	raw, err := c.ask(ctx, http.MethodGet, nil, path...)
	if err != nil {
		return nil, err
	}
	page, err := read[list[json.RawMessage]](raw)
	if err != nil || page.Next == nil {
		return raw, err
	}
	all := page.Items
	for page.Next != nil {
		next := *page.Next
		parameters, _ := url.ParseQuery(c.query) // the client's own
		parameters.Set("next", next)
		more, err := c.with(parameters).ask(ctx, http.MethodGet, nil, path...)
		if err == nil {
			page, err = read[list[json.RawMessage]](more)
		}
		if err != nil {
			return nil, err
		}
		if page.Next != nil && *page.Next == next || len(page.Items) == 0 && page.Next != nil {
			return nil, exitWith(exitUnreachable, "the list of %s does not end: the sidecar answers one page again and again", strings.Join(path, "/"))
		}
		all = append(all, page.Items...)
	}
	var whole map[string]any
	if err := json.Unmarshal(raw, &whole); err != nil {
		return nil, err
	}
	whole["items"], whole["next"] = all, nil
	return json.Marshal(whole)
}

// read decodes a document that the sidecar sent.
func read[T any](raw json.RawMessage) (T, error) {
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		return v, fmt.Errorf("answer of the sidecar: %w: is it of another version?", err)
	}
	return v, nil
}
