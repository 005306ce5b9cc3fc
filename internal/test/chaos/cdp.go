package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"

	"leasehold/launcher/api"
	"leasehold/lease"
)

// cdpClient is a minimal client that drives a page over a launcher's websocket, one
// command at a time.
type cdpClient struct {
	conn   net.Conn
	header http.Header // of the upgrade's answer
	page   string      // the CDP session of its page
	id     int
}

const (
	dialTime = 40 * time.Second
	callTime = 10 * time.Second
)

// redirect is the answer that sends a worker to another launcher.
type redirect struct{ location string }

func (r *redirect) Error() string { return "another launcher has it: " + r.location }

// dial opens a websocket within the limit. A refusal is returned as an *api.Problem, and a
// redirect as a *redirect.
func dial(ctx context.Context, rawURL, token string, limit time.Duration) (*cdpClient, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c := &cdpClient{header: http.Header{}}
	var refused error
	d := ws.Dialer{
		Header: ws.HandshakeHeaderHTTP{"Authorization": {"Bearer " + token}},
		OnHeader: func(key, value []byte) error {
			c.header.Add(string(key), string(value))
			return nil
		},
		OnStatusError: func(_ int, _ []byte, r io.Reader) { refused = refusal(r) },
	}
	conn, buffered, _, err := d.Dial(ctx, rawURL)
	switch {
	case refused != nil:
		return nil, refused
	case err != nil:
		return nil, err
	}
	c.conn = conn
	if buffered != nil { // it is empty, since the client sends first
		ws.PutReader(buffered)
	}
	return c, nil
}

// refusal reads an answer other than 101.
func refusal(r io.Reader) error {
	resp, err := http.ReadResponse(bufio.NewReader(r), nil)
	if err != nil {
		return nil // the dialer returns an error of its own
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusTemporaryRedirect {
		return &redirect{resp.Header.Get("Location")}
	}
	b, err := io.ReadAll(resp.Body)
	var p api.Problem
	if err != nil || json.Unmarshal(b, &p) != nil || p.Code == "" {
		return &api.Problem{Status: resp.StatusCode, Code: fmt.Sprintf("status_%d", resp.StatusCode)}
	}
	return &p
}

// open opens a page of its own and navigates it to the URL.
func (c *cdpClient) open(target string) error {
	var r struct {
		TargetID  string
		SessionID string
	}
	if err := c.call("Target.createTarget", map[string]any{"url": "about:blank"}, &r); err != nil {
		return err
	}
	if err := c.call("Target.attachToTarget", map[string]any{"targetId": r.TargetID, "flatten": true}, &r); err != nil {
		return err
	}
	c.page = r.SessionID
	return c.call("Page.navigate", map[string]any{"url": target}, nil)
}

// request makes the page send a request to the witness, and waits for the answer.
func (c *cdpClient) request(method string, query url.Values) error {
	expression := fmt.Sprintf("fetch('/hit?%s',{method:'%s'}).then(() => 1, () => 0)", query.Encode(), method)
	return c.call("Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true}, nil)
}

// errNoValue says that an expression has no value: the page is not one of the web site.
var errNoValue = errors.New("the expression has no value")

// evaluate evaluates an expression in the page, and reads its value.
func (c *cdpClient) evaluate(expression string, value any) error {
	var r struct {
		Result struct{ Value json.RawMessage }
	}
	if err := c.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true}, &r); err != nil {
		return err
	}
	if json.Unmarshal(r.Result.Value, value) != nil {
		return errNoValue
	}
	return nil
}

// kept reads the tokens that an earlier session left in the web site's cookie and in its local
// storage; zero: none.
func (c *cdpClient) kept() (cookie, stored lease.Token, err error) {
	var tokens [2]lease.Token
	err = c.evaluate(`[Number((/(?:^|; )kept=(\d+)/.exec(document.cookie) || [0, 0])[1]), Number(localStorage.getItem('kept') || 0)]`, &tokens)
	return tokens[0], tokens[1], err
}

// keep leaves a token where kept finds it.
func (c *cdpClient) keep(token lease.Token) error {
	var written bool
	return c.evaluate(fmt.Sprintf(`(document.cookie = 'kept=%d; max-age=34560000', localStorage.setItem('kept', '%d'), true)`, token, token), &written)
}

// cdpError is the error in the answer to a command.
type cdpError struct {
	Code    int
	Message string
}

func (e *cdpError) Error() string { return fmt.Sprintf("%d %s", e.Code, e.Message) }

func (c *cdpClient) call(method string, params, result any) error {
	c.id++
	message := map[string]any{"id": c.id, "method": method}
	if params != nil {
		message["params"] = params
	}
	if c.page != "" && !strings.HasPrefix(method, "Browser.") {
		message["sessionId"] = c.page
	}
	b, err := json.Marshal(message)
	if err != nil {
		return err
	}
	if err := c.conn.SetDeadline(time.Now().Add(callTime)); err != nil {
		return err
	}
	if err := wsutil.WriteClientText(c.conn, b); err != nil {
		return err
	}
	for {
		b, err := wsutil.ReadServerText(c.conn)
		if err != nil {
			return err
		}
		var answer struct {
			ID     int
			Result json.RawMessage
			Error  *cdpError
		}
		switch err := json.Unmarshal(b, &answer); {
		case err != nil:
			return err
		case answer.ID != c.id:
		case answer.Error != nil:
			return answer.Error
		case result != nil:
			return json.Unmarshal(answer.Result, result)
		default:
			return nil
		}
	}
}

// leave ends the connection with the websocket's close handshake.
func (c *cdpClient) leave() error {
	_ = c.conn.SetDeadline(time.Now().Add(callTime))
	err := wsutil.WriteClientMessage(c.conn, ws.OpClose, ws.NewCloseFrameBody(ws.StatusNormalClosure, ""))
	for err == nil {
		_, err = wsutil.ReadServerText(c.conn)
	}
	if errors.As(err, new(wsutil.ClosedError)) {
		err = nil
	}
	return errors.Join(err, c.conn.Close())
}

// drop ends the connection without a close handshake.
func (c *cdpClient) drop() { c.conn.Close() }

// closeCode says how the launcher ended a connection, for the table.
func closeCode(err error) string {
	var closed wsutil.ClosedError
	if errors.As(err, &closed) {
		return fmt.Sprint(int(closed.Code))
	}
	var refused *cdpError
	if errors.As(err, &refused) {
		return "command refused"
	}
	var late net.Error
	if errors.As(err, &late) && late.Timeout() {
		return "no answer"
	}
	return "cut"
}
