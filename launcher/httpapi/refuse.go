package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"leasehold/launcher/api"
)

// statusClientGone is for the log: the client left before it was answered.
const statusClientGone = 499

var errGone = errors.New("the client left")

// gone reports whether the client has left, so that nobody would read an answer.
func (c *call) gone() bool { return c.r.Context().Err() != nil }

// refuse answers with the problem that err is or wraps. The text of other errors does not leave
// the host.
func (c *call) refuse(err error) {
	if errors.Is(err, errGone) || (errors.Is(err, context.Canceled) && c.gone()) {
		c.hangUp()
		return
	}
	p := c.problem(err)
	if p.RetryAfter > 0 {
		c.w.Header().Set("Retry-After", strconv.Itoa(p.RetryAfter))
	}
	if c.upgrade && p.Code == api.CodeWrongHome {
		p = c.redirect(p)
	}
	if c.o.Refused != nil && c.route.page && strings.Contains(c.r.Header.Get("Accept"), "text/html") {
		c.o.Refused(c.w, c.r, p)
		return
	}
	c.w.Header().Set("Content-Type", "application/problem+json")
	body, err := encode(p)
	if err != nil {
		c.o.Log.Error().Err(err).Str("code", p.Code).Msg("refusal cannot be encoded")
		body = []byte("{}\n")
	}
	if c.upgrade && c.refuseUpgrade(p, body) {
		return
	}
	c.w.WriteHeader(p.Status)
	_, _ = c.w.Write(body) // a client that is gone needs no answer
}

// hangUp closes the connection of a client that has left.
func (c *call) hangUp() {
	c.w.status = statusClientGone
	if conn, _, err := http.NewResponseController(c.w).Hijack(); err == nil {
		_ = conn.Close() // nobody is there to see an error
	} else {
		c.w.ResponseWriter.WriteHeader(statusClientGone)
	}
}

// redirect turns a wrong_home refusal into a redirect to the profile's home, if the launcher
// knows where that is. No API token is sent there: clients drop the Authorization header on a
// redirect, and in a query the token would end up in logs. A caller who showed one gets a
// referral instead.
func (c *call) redirect(p *api.Problem) *api.Problem {
	location, _ := p.More["location"].(string)
	if location == "" {
		return p
	}
	path, query := c.r.URL.EscapedPath(), c.r.URL.RawQuery
	if c.ticket != nil || len(c.apiTokens) > 0 {
		home, _ := p.More["home_launcher"].(string)
		referred, err := c.refer(home, p)
		if err != nil {
			c.o.Log.Warn().Err(err).Str("principal", c.who.Name).Str("home", home).Msg("caller cannot be sent on to the profile's home")
			told := *p
			told.Detail += fmt.Sprintf(". Connect there with your token: a URL for it could not be had (%v)", err)
			return &told
		}
		path, query = referred, ""
	} else if turn, ok := p.More["turn"].(string); ok {
		asked, _ := url.ParseQuery(query) // it was parsed before
		asked.Set("turn", turn)
		query = asked.Encode()
	}
	to, err := redirectTo(location, path, query)
	if err != nil {
		c.o.Log.Warn().Err(err).Msg("home of the profile cannot be redirected to")
		return p
	}
	c.w.Header().Set("Location", to)
	moved := *p
	moved.Status = http.StatusTemporaryRedirect
	return &moved
}

// problem returns the refusal in an error. An error without one is logged, and answered as
// internal_error.
func (c *call) problem(err error) *api.Problem {
	p, ok := api.ProblemIn(err)
	if !ok {
		c.o.Log.Error().Err(err).Str("route", c.route.method+" "+c.route.pattern).Msg("request failed")
		return api.Refuse(api.CodeInternal, "the launcher could not do it: its log says why")
	}
	if http.StatusText(p.Status) == "" || p.Status < 400 {
		c.o.Log.Error().Str("code", p.Code).Int("status", p.Status).Msg("refusal without a status")
		q := *p
		q.Status = http.StatusInternalServerError
		return &q
	}
	return p
}

const (
	// maxReason bounds the reason phrase, in bytes, because clients print the whole status
	// line.
	maxReason = 200
	// refusalTimeout bounds the writing of a refusal; lingerTimeout, the wait until the client
	// has read it and closes.
	refusalTimeout = 5 * time.Second
	lingerTimeout  = 500 * time.Millisecond
)

// refuseUpgrade writes the refusal with its reason in the status line, which net/http cannot
// do. It returns false if net/http does not hand over the connection.
func (c *call) refuseUpgrade(p *api.Problem, body []byte) bool {
	conn, _, err := http.NewResponseController(c.w).Hijack()
	if err != nil {
		return false
	}
	defer conn.Close()
	c.w.status = p.Status
	h := c.w.Header().Clone()
	h.Set("Connection", "close")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	var b bytes.Buffer
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", p.Status, reasonPhrase(p.Error()))
	_ = h.Write(&b) // a bytes.Buffer accepts everything
	b.WriteString("\r\n")
	b.Write(body)
	_ = conn.SetDeadline(time.Now().Add(refusalTimeout))
	if _, err := conn.Write(b.Bytes()); err != nil {
		return true
	}
	// Closing the connection while bytes of the client are unread would reset it, and the
	// client could lose the answer.
	if half, ok := conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		_ = conn.SetReadDeadline(time.Now().Add(lingerTimeout))
		_, _ = io.Copy(io.Discard, io.LimitReader(conn, maxBody))
	}
	return true
}

var _ interface{ CloseWrite() error } = (*net.TCPConn)(nil)

// reasonPhrase makes a text fit for a status line: ASCII without control characters, and not
// too long.
func reasonPhrase(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, text)
	if len(text) > maxReason {
		text = text[:maxReason-3] + "..."
	}
	return text
}
