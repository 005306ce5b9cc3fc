package incidents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
)

// worker drives one page over a websocket of the sidecar, as the usual clients do: it
// opens a tab, clicks with the mouse, types, and reads the page by script.
type worker struct {
	conn         net.Conn
	page         string // the CDP session of its page
	target       string
	ownContextID string // id of the browser context that Apart made
	id           int
	events       []message
}

type message struct {
	ID        int             `json:"id"`
	Method    string          `json:"method"`
	Params    json.RawMessage `json:"params"`
	Result    json.RawMessage `json:"result"`
	Error     *struct{ Message string }
	SessionID string `json:"sessionId"`
}

// connect opens the websocket and a tab.
func connect(ctx context.Context, address string) (*worker, error) {
	conn, buffered, _, err := ws.Dial(ctx, address)
	if err != nil {
		return nil, err
	}
	if buffered != nil { // it is empty, since the client sends first
		ws.PutReader(buffered)
	}
	w := &worker{conn: conn}
	if err := w.tab(ctx); err != nil {
		w.kill()
		return nil, err
	}
	return w, nil
}

// tab opens a tab and goes on in it.
func (w *worker) tab(ctx context.Context) error {
	w.page = ""
	var made struct{ TargetID string }
	params := map[string]any{"url": "about:blank"}
	if w.ownContextID != "" {
		params["browserContextId"] = w.ownContextID
	}
	if err := w.call(ctx, "Target.createTarget", params, &made); err != nil {
		return err
	}
	return w.attach(ctx, made.TargetID)
}

// attach goes on in an existing tab.
func (w *worker) attach(ctx context.Context, target string) error {
	w.page = ""
	var made struct{ SessionID string }
	err := w.call(ctx, "Target.attachToTarget", map[string]any{"targetId": target, "flatten": true}, &made)
	w.target, w.page = target, made.SessionID
	for _, method := range []string{"Page.enable", "Network.enable"} {
		if err == nil {
			err = w.call(ctx, method, nil, nil)
		}
	}
	if err == nil {
		err = w.call(ctx, "Page.setLifecycleEventsEnabled", map[string]any{"enabled": true}, nil)
	}
	return err
}

// switchTo waits for a tab at the address, and goes on in it.
func (w *worker) switchTo(ctx context.Context, address string) error {
	w.page = ""
	for {
		var open struct {
			TargetInfos []struct{ TargetID, Type, URL string }
		}
		if err := w.call(ctx, "Target.getTargets", nil, &open); err != nil {
			return err
		}
		for _, t := range open.TargetInfos {
			if t.Type == "page" && t.URL == address {
				return w.attach(ctx, t.TargetID)
			}
		}
		select {
		case <-time.After(recheck):
		case <-ctx.Done():
			return fmt.Errorf("waiting for a tab at %s: %w", address, ctx.Err())
		}
	}
}

// newContext goes on in a tab of a new browser context.
func (w *worker) newContext(ctx context.Context) error {
	w.page = ""
	var made struct{ BrowserContextID string }
	if err := w.call(ctx, "Target.createBrowserContext", nil, &made); err != nil {
		return err
	}
	w.ownContextID = made.BrowserContextID
	return w.tab(ctx)
}

// dispose closes that context, and goes on in a tab of the profile's own.
func (w *worker) dispose(ctx context.Context) error {
	w.page = ""
	ended := w.ownContextID
	w.ownContextID = ""
	if err := w.call(ctx, "Target.disposeBrowserContext", map[string]any{"browserContextId": ended}, nil); err != nil {
		return err
	}
	return w.tab(ctx)
}

// kill ends the worker like a SIGKILL: its connection ends without a close handshake.
func (w *worker) kill() { _ = w.conn.Close() } // a killed worker sees no error

// send sends a command to the page.
func (w *worker) send(method string, params any) (int, error) {
	w.id++
	m := map[string]any{"id": w.id, "method": method}
	if params != nil {
		m["params"] = params
	}
	if w.page != "" {
		m["sessionId"] = w.page
	}
	b, err := json.Marshal(m)
	if err == nil {
		err = wsutil.WriteClientText(w.conn, b)
	}
	return w.id, err
}

// call sends a command and waits for its result.
func (w *worker) call(ctx context.Context, method string, params, result any) error {
	id, err := w.send(method, params)
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	answer, err := w.next(ctx, method, func(m message) bool { return m.ID == id })
	switch {
	case err != nil:
		return err
	case answer.Error != nil:
		return fmt.Errorf("%s: %s", method, answer.Error.Message)
	case result != nil:
		return json.Unmarshal(answer.Result, result)
	}
	return nil
}

// next returns the first message that fits, of those that were kept and those to come.
func (w *worker) next(ctx context.Context, what string, fits func(message) bool) (message, error) {
	for i, m := range w.events {
		if fits(m) {
			w.events = append(w.events[:i], w.events[i+1:]...)
			return m, nil
		}
	}
	if deadline, ok := ctx.Deadline(); ok {
		if err := w.conn.SetReadDeadline(deadline); err != nil {
			return message{}, err
		}
	}
	for {
		b, err := wsutil.ReadServerText(w.conn)
		if err != nil {
			return message{}, fmt.Errorf("waiting for %s: %w", what, err)
		}
		var m message
		if err := json.Unmarshal(b, &m); err != nil {
			return m, err
		}
		if fits(m) {
			return m, nil
		}
		if m.Method != "" {
			w.events = append(w.events, m)
		}
	}
}

// open navigates to a URL, and with wait returns when it is loaded.
func (w *worker) open(ctx context.Context, address string, wait bool) error {
	if !wait {
		_, err := w.send("Page.navigate", map[string]any{"url": address})
		return err
	}
	var r struct{ LoaderID, ErrorText string }
	if err := w.call(ctx, "Page.navigate", map[string]any{"url": address}, &r); err != nil {
		return err
	}
	if r.ErrorText != "" {
		return fmt.Errorf("%s: %s", address, r.ErrorText)
	}
	_, err := w.next(ctx, "the load of "+address, func(m message) bool {
		var p struct{ LoaderID, Name string }
		return m.Method == "Page.lifecycleEvent" && json.Unmarshal(m.Params, &p) == nil && p.LoaderID == r.LoaderID && p.Name == "load"
	})
	return err
}

// evaluate returns the value of an expression in the page.
func (w *worker) evaluate(ctx context.Context, expression string, value any) error {
	var r struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	if err := w.call(ctx, "Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true}, &r); err != nil {
		return err
	}
	if r.ExceptionDetails != nil {
		return fmt.Errorf("%s: %s", expression, r.ExceptionDetails)
	}
	if len(r.Result.Value) == 0 {
		return nil
	}
	return json.Unmarshal(r.Result.Value, value)
}

// recheck is the time between two checks of a condition.
const recheck = 20 * time.Millisecond

// until evaluates an expression in the page until it is true. A page that is just
// navigating may give an error, which is no failure.
func (w *worker) until(ctx context.Context, what, expression string) error {
	for {
		var yes bool
		err := w.evaluate(ctx, expression, &yes)
		if yes {
			return nil
		}
		select {
		case <-time.After(recheck):
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("waiting for %s: %w", what, ctx.Err()), err)
		}
	}
}

// ctrl is CDP's modifier for the Ctrl key.
const ctrl = 2

// click clicks on the middle of an element. It does not wait for the answer, since a
// dialog, for example, would delay that.
func (w *worker) click(ctx context.Context, selector string, modifiers int) error {
	quoted, err := json.Marshal(selector)
	if err != nil {
		return err
	}
	element := "document.querySelector(" + string(quoted) + ")"
	if err := w.until(ctx, selector, "!!"+element); err != nil {
		return err
	}
	var at struct{ X, Y float64 }
	if err := w.evaluate(ctx, "(() => { const e = "+element+"; e.scrollIntoView({ block: 'center' }); const r = e.getBoundingClientRect(); return { x: r.x + r.width / 2, y: r.y + r.height / 2 } })()", &at); err != nil {
		return err
	}
	for _, event := range []string{"mousePressed", "mouseReleased"} {
		if _, err := w.send("Input.dispatchMouseEvent", map[string]any{"type": event, "x": at.X, "y": at.Y, "button": "left", "clickCount": 1, "modifiers": modifiers}); err != nil {
			return err
		}
	}
	return nil
}

// shows returns an expression that is true if the page shows a text.
func shows(text string) string {
	quoted, _ := json.Marshal(text) // a string can always be marshalled
	return "!!document.body && document.body.innerText.includes(" + string(quoted) + ")"
}

// do performs one action of the script.
func (w *worker) do(ctx context.Context, s *site, a Action) error {
	switch {
	case a.Goto != "":
		return w.open(ctx, s.url(a.Goto), true)
	case a.Open != "":
		return w.open(ctx, s.url(a.Open), false)
	case a.Click != "":
		return w.click(ctx, a.Click, 0)
	case a.Aside != "":
		return w.click(ctx, a.Aside, ctrl)
	case a.Switch != "":
		return w.switchTo(ctx, s.url(a.Switch))
	case a.Apart != "":
		if err := w.newContext(ctx); err != nil {
			return err
		}
		return w.open(ctx, s.url(a.Apart), true)
	case a.Dispose != "":
		if err := w.dispose(ctx); err != nil {
			return err
		}
		return w.open(ctx, s.url(a.Dispose), true)
	case a.Fill != nil:
		if err := w.click(ctx, a.Fill.Field, 0); err != nil {
			return err
		}
		return w.call(ctx, "Input.insertText", map[string]any{"text": a.Fill.Text}, nil)
	case a.Close != "":
		old := w.target
		if err := w.tab(ctx); err != nil {
			return err
		}
		if err := w.open(ctx, s.url(a.Close), true); err != nil {
			return err
		}
		on := w.page
		w.page = ""
		err := w.call(ctx, "Target.closeTarget", map[string]any{"targetId": old}, nil)
		w.page = on
		return err
	case a.Scroll != "":
		for {
			if err := w.call(ctx, "Input.dispatchMouseEvent", map[string]any{"type": "mouseWheel", "x": 200, "y": 200, "deltaX": 0, "deltaY": 900}, nil); err != nil {
				return err
			}
			var yes bool
			if err := w.evaluate(ctx, shows(a.Scroll), &yes); yes || err != nil {
				return err
			}
			time.Sleep(recheck)
		}
	case a.See != "":
		return w.until(ctx, a.See, shows(a.See))
	case a.Dialog != "":
		_, err := w.next(ctx, "the dialog "+a.Dialog, func(m message) bool {
			return m.Method == "Page.javascriptDialogOpening" && strings.Contains(string(m.Params), a.Dialog)
		})
		return err
	case a.Step != nil:
		return w.call(ctx, "Lease.step", a.Step, nil)
	case a.Checkpoint != nil:
		return w.call(ctx, "Lease.checkpoint", a.Checkpoint, nil)
	case a.Hold != "":
		s.hold(a.Hold)
		return nil
	case a.Arrives != "":
		request, times, err := arrival(a.Arrives)
		if err != nil {
			return err
		}
		return s.await(ctx, request, times)
	}
	return errors.New("nothing to do")
}
