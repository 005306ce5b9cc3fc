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

	"leasehold/internal/test/rawcdp"
	"leasehold/launcher/api"
	"leasehold/lease"
)

// cdpClient drives a page over a launcher's websocket, one command at a time.
type cdpClient struct {
	*rawcdp.Conn
	page string // the CDP session of its page
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
	var refused error
	c, err := rawcdp.Dial(ctx, ws.Dialer{
		Header:        ws.HandshakeHeaderHTTP{"Authorization": {"Bearer " + token}},
		OnStatusError: func(_ int, _ []byte, r io.Reader) { refused = refusal(r) },
	}, rawURL)
	switch {
	case refused != nil:
		return nil, refused
	case err != nil:
		return nil, err
	}
	return &cdpClient{Conn: c}, nil
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

// call sends a command to the page, or to the browser until there is one, and waits for the answer.
func (c *cdpClient) call(method string, params, result any) error {
	session := c.page
	if strings.HasPrefix(method, "Browser.") {
		session = ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	c.Forget() // events, at which nobody looks
	err := c.Call(ctx, session, method, params, result)
	if errors.Is(err, net.ErrClosed) { // the close frame came before the command was written
		if code, reason, ended := c.Ended(ctx); ended == nil && code != 0 {
			return wsutil.ClosedError{Code: ws.StatusCode(code), Reason: reason}
		}
	}
	return err
}

// leave ends the connection with the websocket's close handshake.
func (c *cdpClient) leave() {
	defer c.Drop()
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	if c.Close() == nil {
		_, _, _ = c.Ended(ctx) // it may have ended before
	}
}

// closeCode says how the launcher ended a connection, for the table.
func closeCode(err error) string {
	var closed wsutil.ClosedError
	if errors.As(err, &closed) {
		return fmt.Sprint(int(closed.Code))
	}
	var refused *rawcdp.Error
	if errors.As(err, &refused) {
		return "command refused"
	}
	var late net.Error
	if errors.As(err, &late) && late.Timeout() {
		return "no answer"
	}
	return "cut"
}
