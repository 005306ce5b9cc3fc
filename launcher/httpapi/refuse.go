package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"leasehold/launcher/api"
)

// statusClientGone is for the log: the client left before its answer.
const statusClientGone = 499

// errGone says that the client left.
var errGone = errors.New("the client left")

// gone tells whether the client has left: nobody reads an answer then.
func (c *call) gone() bool { return c.r.Context().Err() != nil }

// refuse answers with the problem that err is. Nothing of another error than a
// problem leaves the host.
func (c *call) refuse(err error) {
	if errors.Is(err, errGone) || (errors.Is(err, context.Canceled) && c.gone()) {
		c.w.status = statusClientGone
		if conn, _, err := http.NewResponseController(c.w).Hijack(); err == nil {
			_ = conn.Close() // nobody is there to be told
		} else {
			c.w.ResponseWriter.WriteHeader(statusClientGone)
		}
		return
	}
	p := c.problem(err)
	h := c.w.Header()
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(p.RetryAfter))
	}
	if location, _ := p.More["location"].(string); c.upgrade && p.Code == api.CodeWrongHome && location != "" {
		if to, err := redirectTo(location, c.r); err == nil {
			moved := *p
			moved.Status = http.StatusTemporaryRedirect
			p = &moved
			h.Set("Location", to)
		} else {
			c.o.Log.Warn().Err(err).Msg("home of the profile cannot be redirected to")
		}
	}
	h.Set("Content-Type", "application/problem+json")
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

// problem finds the refusal in an error.
func (c *call) problem(err error) *api.Problem {
	var p *api.Problem
	if !errors.As(err, &p) {
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
	// maxReason bounds the reason phrase, in bytes: clients print the status
	// line in full.
	maxReason = 200
	// refusalTimeout bounds the writing of a refused upgrade, lingerTimeout the
	// wait for the client to have read it.
	refusalTimeout = 5 * time.Second
	lingerTimeout  = 500 * time.Millisecond
)

// refuseUpgrade writes the refusal with its reason in the status line, which
// net/http has no way to do. It returns false where the connection cannot be had.
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
	_ = h.Write(&b) // a bytes.Buffer takes everything
	b.WriteString("\r\n")
	b.Write(body)
	_ = conn.SetDeadline(time.Now().Add(refusalTimeout))
	if _, err := conn.Write(b.Bytes()); err != nil {
		return true
	}
	// Closing on bytes that were not read would reset the connection, and could
	// take the answer with it.
	if half, ok := conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		_ = conn.SetReadDeadline(time.Now().Add(lingerTimeout))
		_, _ = io.Copy(io.Discard, io.LimitReader(conn, maxBody))
	}
	return true
}

var _ interface{ CloseWrite() error } = (*net.TCPConn)(nil)

// reasonPhrase keeps of a text what may stand in a status line.
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
