package httpapi

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"time"

	"leasehold/launcher/api"
	"leasehold/lease"
)

const (
	// maxBody bounds a request's body in bytes, the data of a checkpoint included.
	maxBody = 1 << 20
	// bodyTimeout bounds how long a client may take to send its body.
	bodyTimeout = 30 * time.Second
)

// restRoutes are the routes under /v1.
func restRoutes() []route {
	return slices.Concat(sessionRoutes(), profileRoutes(), evidenceRoutes(), eventRoutes(), siteRoutes())
}

// v1 is a route under /v1.
func v1(method, path string, a access, serve handler) route {
	return route{method: method, pattern: "/v1" + path, access: a, serve: serve}
}

// read serves a request that asks the Service about one item. id takes the item's name from the
// path; answer sends what the Service returns.
func read[Out any](
	id func(*call) (string, error),
	ask func(api.Service, context.Context, string) (Out, error),
	answer func(*call, Out) error,
) handler {
	return func(c *call) error {
		name, err := id(c)
		if err != nil {
			return err
		}
		out, err := ask(c.svc, c.r.Context(), name)
		if err != nil {
			return err
		}
		return answer(c, out)
	}
}

// write serves a request that makes the Service do something to one item. id takes the item's
// name from the path, body reads what is to be done, and answer sends what the Service returns.
func write[In, Out any](
	id func(*call) (string, error),
	body func(*call) (In, error),
	do func(api.Service, context.Context, string, In) (Out, error),
	answer func(*call, Out) error,
) handler {
	return func(c *call) error {
		name, err := id(c)
		if err != nil {
			return err
		}
		in, err := body(c)
		if err != nil {
			return err
		}
		out, err := do(c.svc, c.r.Context(), name, in)
		if err != nil {
			return err
		}
		return answer(c, out)
	}
}

// required reads a JSON body. what names the body in refusals.
func required[In any](what string) func(*call) (In, error) {
	return func(c *call) (in In, err error) {
		b, err := c.body()
		if err == nil {
			err = api.DecodeBody(b, &in, what)
		}
		return in, err
	}
}

// optional reads a JSON body; without one it returns the zero value.
func optional[In any](what string) func(*call) (In, error) {
	return func(c *call) (in In, err error) {
		b, err := c.body()
		if err == nil && len(b) > 0 {
			err = api.DecodeBody(b, &in, what)
		}
		return in, err
	}
}

// tokened is a body that carries the lease token of a session.
type tokened interface{ LeaseToken() lease.Token }

// withToken refuses a body without a lease token.
func withToken[In tokened](body func(*call) (In, error)) func(*call) (In, error) {
	return func(c *call) (In, error) {
		in, err := body(c)
		if err == nil && in.LeaseToken() == 0 {
			err = api.Invalid("lease_token", "every write carries the lease_token that the session was granted with")
		}
		return in, err
	}
}

// body reads the request's body, which is JSON. It refuses a form or plain text, which a page
// of another origin may send without asking first.
func (c *call) body() ([]byte, error) {
	if c.r.ContentLength != 0 {
		given := c.r.Header.Get("Content-Type")
		if mediaType, _, err := mime.ParseMediaType(given); err != nil || mediaType != "application/json" {
			p := api.Invalid("", "the body has Content-Type %q: want application/json", clip(given))
			p.Status = http.StatusUnsupportedMediaType
			return nil, p
		}
	}
	control := http.NewResponseController(c.w)
	_ = control.SetReadDeadline(time.Now().Add(bodyTimeout)) // if it cannot be set, the server's own limit applies
	b, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, maxBody))
	_ = control.SetReadDeadline(time.Time{})
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		p := api.Invalid("", "the body has more than %d bytes", maxBody)
		p.Status = http.StatusRequestEntityTooLarge
		return nil, p
	case err != nil && c.gone():
		return nil, errGone
	case err != nil:
		return nil, api.Invalid("", "the body cannot be read to its end")
	}
	return b, nil
}

// answerWith answers with what the Service returned, as it is.
func answerWith[Out any](status int) func(*call, Out) error {
	return func(c *call, out Out) error { return c.json(status, out) }
}

// orEmpty replaces nil, which would be null in JSON, by an empty list.
func orEmpty[T any](items []T) []T {
	if items == nil {
		return []T{}
	}
	return items
}
