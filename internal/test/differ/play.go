package differ

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gobwas/ws"
)

// quiet is how long nothing may come before a script goes on after settle, and before it
// ends.
const quiet = 150 * time.Millisecond

// Play is what came of one script on one side.
type Play struct {
	conns  []*conn
	http   [][]byte
	values map[string]string
	// Failed says which step did not come to its end; nil if all did.
	Failed error
	host   string
	socket string         // the websocket URL of the browser
	added  map[string]int // how often each exception was left out of a message; set by streams
}

// player plays one script on one browser.
type player struct {
	browser *Browser
	play    *Play
	conns   map[string]*conn
	last    []byte // what was waited for last
}

// Run plays a script. An error is of the browser; that a step had no end is part of the
// play.
func (b *Browser) Run(s *Script, site *Site) (*Play, error) {
	p := &player{
		browser: b, conns: map[string]*conn{},
		play: &Play{values: map[string]string{"site": site.URL, "other": site.Other, "downloads": b.Downloads, "home": b.home}, host: b.host, socket: b.socket},
	}
	defer func() {
		for _, c := range p.play.conns {
			c.close()
		}
	}()
	for _, st := range s.steps {
		if err := p.step(st); err != nil {
			p.play.Failed = fmt.Errorf("%s: %w", st, err)
			if !errors.Is(err, errNothing) {
				return p.play, p.play.Failed
			}
			break
		}
	}
	p.settle()
	return p.play, nil
}

func (p *player) fill(text string) string { return fill(text, p.play.values) }

func (p *player) step(s step) error {
	c := p.conns[s.conn]
	session := p.fill(s.session)
	switch s.verb {
	case "tab":
		id, err := p.browser.tab(p.fill(s.words[1]))
		p.play.values[s.words[0]] = id
		return err
	case "open":
		url := p.browser.socket
		if len(s.words) > 0 {
			url = "ws://" + p.browser.host + "/devtools/page/" + p.fill(s.words[1])
		}
		c, err := dial(s.conn, url)
		if err != nil {
			return err
		}
		p.conns[s.conn] = c
		p.play.conns = append(p.play.conns, c)
		return nil
	case "let":
		value, err := look(p.last, s.words[1])
		if err != nil {
			return fmt.Errorf("%w: %w", errNothing, err)
		}
		p.play.values[s.words[0]] = value
		return nil
	case "http":
		return p.request(s.words[0], p.fill(s.words[1]))
	case "call":
		id, err := c.call(session, s.words[0], p.fill(s.text))
		if err != nil {
			return fmt.Errorf("%w: %w", errNothing, err)
		}
		return p.wait(c, id, "", nil)
	case "send":
		_, err := c.call(session, s.words[0], p.fill(s.text))
		return gone(err)
	case "raw":
		return gone(c.text(p.fill(s.text)))
	case "frame":
		return gone(c.frame(frameOf(s.words[0], p.fill(s.text))))
	case "wait":
		method := s.words[0]
		if _, err := strconv.Atoi(method); err == nil {
			method = "#" + method
		}
		var conditions []string
		for _, condition := range s.words[1:] {
			conditions = append(conditions, p.fill(condition))
		}
		return p.wait(c, method, session, conditions)
	case "close":
		code, reason := 1000, ""
		if len(s.words) > 0 {
			code, _ = strconv.Atoi(s.words[0]) // Parse has read it
			reason = strings.Join(s.words[1:], " ")
		}
		return gone(c.frame(ws.NewCloseFrame(ws.NewCloseFrameBody(ws.StatusCode(code), reason))))
	case "drop":
		c.close()
		return nil
	case "end":
		return gone(c.until(func() bool { return c.ended != "" }))
	case "settle":
		p.settle()
		return nil
	}
	return fmt.Errorf("no such step: %s", s.verb)
}

// gone makes an error of a connection one of the play: the other side may have ended it.
func gone(err error) error {
	if err == nil || errors.Is(err, errNothing) {
		return err
	}
	return fmt.Errorf("%w: %w", errNothing, err)
}

func (p *player) wait(c *conn, method, session string, conditions []string) error {
	m, err := c.wait(method, session, conditions)
	p.last = m.raw
	return err
}

func frameOf(kind, payload string) ws.Frame {
	op := map[string]ws.OpCode{
		"text": ws.OpText, "start": ws.OpText, "more": ws.OpContinuation, "last": ws.OpContinuation,
		"binary": ws.OpBinary, "ping": ws.OpPing, "pong": ws.OpPong,
	}[kind]
	return ws.NewFrame(op, kind != "start" && kind != "more", []byte(payload))
}

// settle waits until nothing has come for a while on any connection that is open.
func (p *player) settle() {
	began := time.Now()
	for time.Since(began) < patience {
		last := began
		for _, c := range p.play.conns {
			if at := c.quietSince(); at.After(last) {
				last = at
			}
		}
		rest := quiet - time.Since(last)
		if rest <= 0 {
			return
		}
		time.Sleep(rest)
	}
}

// request makes an HTTP request to the browser, and keeps what was answered: status,
// type, and the body without the space between the values of JSON.
func (p *player) request(method, path string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+p.browser.host+path, nil)
	if err != nil {
		return err
	}
	req.Close = true // Chrome answers HEAD with a body
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return gone(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return gone(err)
	}
	p.last = body
	var compact bytes.Buffer
	if json.Compact(&compact, body) == nil {
		body = compact.Bytes()
	}
	p.play.http = append(p.play.http,
		fmt.Appendf(nil, "%s %s: %d %s", method, path, resp.StatusCode, resp.Header.Get("Content-Type")), body)
	return nil
}
