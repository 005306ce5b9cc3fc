package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"leasehold/launcher/agents"
	"leasehold/launcher/api"
	"leasehold/launcher/principal"
)

func mcpRoutes() []route {
	var all []route
	for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete} {
		all = append(all, route{method: method, pattern: "/mcp", access: forRole(principal.Read, principal.Use), changes: true, serve: serveMCP})
	}
	return all
}

// serveMCP hands a request to the agents' host. What an agent does there it does by requests to
// this server, with the credentials of its newest request.
func serveMCP(c *call) error {
	if c.o.Agents == nil {
		return api.Refuse(api.CodeNotFound, "this launcher serves no agents")
	}
	r := c.r.WithContext(agents.From(c.r.Context(), agents.Caller{Name: c.who.Name, Sidecar: &within{c.server, c.r, c.apiTokens}}))
	if c.r.Method == http.MethodPost {
		b, err := c.body()
		if err != nil {
			return err
		}
		r.Body = io.NopCloser(bytes.NewReader(b))
	} else {
		c.log() // the line in the log does not wait for the stream's end
	}
	c.o.Agents.ServeHTTP(c.w, r)
	return nil
}

// within asks this server as the sender of a request would over the network: every check is made
// again. It implements agents.Sidecar.
type within struct {
	server *server
	from   *http.Request
	tokens []string
}

func (s *within) Ask(ctx context.Context, method string, query url.Values, in any, path ...string) (body []byte, mediaType string, err error) {
	var sent []byte
	if in != nil {
		if sent, err = encode(in); err != nil {
			return nil, "", fmt.Errorf("body of %s: %w", method, err)
		}
	}
	u := &url.URL{Scheme: "http", Host: s.from.Host, RawQuery: query.Encode()}
	escaped := make([]string, len(path))
	for i, p := range path {
		escaped[i] = url.PathEscape(p)
	}
	u = u.JoinPath(escaped...)
	for _, key := range []any{userKey{}, http.LocalAddrContextKey} {
		ctx = context.WithValue(ctx, key, s.from.Context().Value(key))
	}
	r, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(sent))
	if err != nil {
		return nil, "", err
	}
	r.RemoteAddr, r.TLS = s.from.RemoteAddr, s.from.TLS
	for name, values := range s.from.Header {
		if name == "Origin" || name == "Sec-Fetch-Site" || ofProxy(name) {
			r.Header[name] = values
		}
	}
	for _, token := range s.tokens {
		r.Header.Add("Authorization", "Bearer "+token)
	}
	r.Header.Set("Content-Type", "application/json")
	w := &kept{header: http.Header{}}
	s.server.ServeHTTP(w, r)
	if w.status/100 == 2 {
		return w.body.Bytes(), w.header.Get("Content-Type"), nil
	}
	var p api.Problem
	if err := json.Unmarshal(w.body.Bytes(), &p); err != nil || p.Code == "" {
		return nil, "", api.Refuse(api.CodeInternal, "the launcher answered status %d: its log says why", w.status)
	}
	return nil, "", &p
}

func (s *within) Acquire(ctx context.Context, m api.Manifest) (api.Session, agents.Sidecar, error) {
	body, _, err := s.Ask(ctx, http.MethodPost, nil, m, "v1", "sessions")
	var granted api.Session
	if err == nil {
		err = json.Unmarshal(body, &granted)
	}
	return granted, s, err
}

// kept is a ResponseWriter that keeps the answer.
type kept struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *kept) Header() http.Header { return w.header }

func (w *kept) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}

func (w *kept) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(b)
}
