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

	"leasehold/launcher/api"
	"leasehold/lease"
)

// clientFlags are those of every command that asks a running sidecar.
type clientFlags struct {
	URL       string `name:"url" env:"LEASEHOLD_URL" default:"http://127.0.0.1:9333" placeholder:"URL" help:"The sidecar (default: ${default})."`
	TokenFile string `env:"LEASEHOLD_TOKEN_FILE" type:"path" placeholder:"FILE" help:"File with the token that the sidecar asks for."`
	JSON      bool   `name:"json" help:"Print JSON as the sidecar answers it."`
}

// requestTimeout bounds every request that does not wait for a lease. Ending a
// session closes a browser and stores evidence.
const requestTimeout = 2 * time.Minute

// maxAnswer bounds a JSON answer in memory.
const maxAnswer = 64 << 20

// client asks one sidecar.
type client struct {
	base  *url.URL
	token string
	http  *http.Client
}

func (f clientFlags) client() (*client, error) {
	base, err := url.Parse(f.URL)
	if err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" {
		return nil, exitWith(exitUsage, "--url %q: want a URL such as http://127.0.0.1:9333", f.URL)
	}
	c := &client{base: base, http: &http.Client{}}
	if f.TokenFile != "" {
		if c.token, err = readToken(f.TokenFile); err != nil {
			return nil, &exitError{exitUsage, err}
		}
	}
	return c, nil
}

// open sends a request and returns the answer of a 2xx; the caller closes its
// body. The errors are of exitUnreachable or, with a *api.Problem in them, of
// exitRefused.
func (c *client) open(ctx context.Context, method string, in any, path ...string) (*http.Response, error) {
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
	r, err := http.NewRequestWithContext(ctx, method, c.base.JoinPath(escaped...).String(), body)
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
		var e *url.Error
		if errors.As(err, &e) {
			err = e.Err
		}
		return nil, exitWith(exitUnreachable, "sidecar at %s: %w: is leasehold run running there (--url)?", c.base.Redacted(), err)
	}
	if response.StatusCode/100 == 2 {
		return response, nil
	}
	defer response.Body.Close()
	return nil, c.refusal(response)
}

// refusal makes the error of an answer that is not a 2xx.
func (c *client) refusal(response *http.Response) error {
	b, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	var p api.Problem
	if err == nil && json.Unmarshal(b, &p) == nil && p.Code != "" {
		return &exitError{exitRefused, &refusedError{problem: p, raw: b}}
	}
	return exitWith(exitUnreachable, "%s answered %s, which no leasehold would: what is --url?", c.base.Redacted(), response.Status)
}

// refusedError is the sidecar's problem, for people.
type refusedError struct {
	problem api.Problem
	raw     []byte
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

// ask sends a request and returns the JSON document that it was answered with.
func (c *client) ask(ctx context.Context, method string, in any, path ...string) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.askFor(ctx, method, in, path...)
}

// record asks for a profile's.
func (c *client) record(ctx context.Context, profile string) (lease.Record, error) {
	raw, err := c.ask(ctx, http.MethodGet, nil, "v1", "profiles", profile)
	if err != nil {
		return lease.Record{}, err
	}
	return read[lease.Record](raw)
}

// askFor is ask without a limit of its own.
func (c *client) askFor(ctx context.Context, method string, in any, path ...string) (json.RawMessage, error) {
	response, err := c.open(ctx, method, in, path...)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	b, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, exitWith(exitUnreachable, "sidecar at %s: answer: %w", c.base.Redacted(), err)
	}
	if response.StatusCode == http.StatusNoContent {
		return nil, nil
	}
	if !json.Valid(b) {
		return nil, exitWith(exitUnreachable, "%s answered something other than JSON: is a leasehold there (--url)?", c.base.Redacted())
	}
	return b, nil
}

// list is how the sidecar answers with several.
type list[T any] struct {
	Items []T `json:"items"`
}

// read decodes a document of the sidecar.
func read[T any](raw json.RawMessage) (T, error) {
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		return v, fmt.Errorf("answer of the sidecar: %w: is it of another version?", err)
	}
	return v, nil
}

// printProblem prints, where JSON was asked for, the problem that err holds as
// the document; the line for people goes to the standard error as always.
func (f clientFlags) printProblem(a *app, err error) error {
	var refused *refusedError
	if f.JSON && errors.As(err, &refused) {
		return errors.Join(err, a.printJSON(refused.raw))
	}
	return err
}

// printJSON prints one document.
func (a *app) printJSON(raw json.RawMessage) error {
	_, err := fmt.Fprintf(a.stdout, "%s\n", bytes.TrimSpace(raw))
	return err
}
