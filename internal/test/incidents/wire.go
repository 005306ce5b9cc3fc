package incidents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/gobwas/ws"

	"leasehold/internal/test/rawcdp"
)

// wire is a worker that drives one page over a plain websocket, as the usual clients do:
// it opens a tab, clicks with the mouse, types, and reads the page by script.
type wire struct {
	bare         bool // the browser has no Lease domain
	patient      bool // it clicks once nothing lies over an element, since a real application takes its time
	conn         *rawcdp.Conn
	page         string // the CDP session of its page
	target       string
	ownContextID string // id of the browser context that Apart made
}

// connect opens the websocket and a tab.
func connect(ctx context.Context, d door) (*wire, error) {
	conn, err := rawcdp.Dial(ctx, ws.Dialer{}, d.socket)
	if err != nil {
		return nil, err
	}
	w := &wire{conn: conn, bare: d.bare}
	if err := w.tab(ctx); err != nil {
		w.kill()
		return nil, err
	}
	return w, nil
}

// tab opens a tab and goes on in it.
func (w *wire) tab(ctx context.Context) error {
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
func (w *wire) attach(ctx context.Context, target string) error {
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
func (w *wire) switchTo(ctx context.Context, address string) error {
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
func (w *wire) newContext(ctx context.Context) error {
	w.page = ""
	var made struct{ BrowserContextID string }
	if err := w.call(ctx, "Target.createBrowserContext", nil, &made); err != nil {
		return err
	}
	w.ownContextID = made.BrowserContextID
	return w.tab(ctx)
}

// dispose closes that context, and goes on in a tab of the profile's own.
func (w *wire) dispose(ctx context.Context) error {
	w.page = ""
	ended := w.ownContextID
	w.ownContextID = ""
	if err := w.call(ctx, "Target.disposeBrowserContext", map[string]any{"browserContextId": ended}, nil); err != nil {
		return err
	}
	return w.tab(ctx)
}

// kill ends the worker like a SIGKILL: its connection ends without a close handshake.
func (w *wire) kill() { w.conn.Drop() }

// send sends a command to the page.
func (w *wire) send(method string, params any) error {
	_, err := w.conn.Send(w.page, method, params)
	return err
}

// call sends a command and waits for its result.
func (w *wire) call(ctx context.Context, method string, params, result any) error {
	return w.conn.Call(ctx, w.page, method, params, result)
}

// open navigates to a URL, and with wait returns when it is loaded.
func (w *wire) open(ctx context.Context, address string, wait bool) error {
	if !wait {
		return w.send("Page.navigate", map[string]any{"url": address})
	}
	var r struct{ LoaderID, ErrorText string }
	if err := w.call(ctx, "Page.navigate", map[string]any{"url": address}, &r); err != nil {
		return err
	}
	if r.ErrorText != "" {
		return fmt.Errorf("%s: %s", address, r.ErrorText)
	}
	_, err := w.conn.Next(ctx, "the load of "+address, func(m rawcdp.Message) bool {
		var p struct{ LoaderID, Name string }
		return m.Method == "Page.lifecycleEvent" && json.Unmarshal(m.Params, &p) == nil && p.LoaderID == r.LoaderID && p.Name == "load"
	})
	return err
}

// evaluate returns the value of an expression in the page.
func (w *wire) evaluate(ctx context.Context, expression string, value any) error {
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
func (w *wire) until(ctx context.Context, what, expression string) error {
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

// click clicks on the middle of an element that stands still. It does not wait for the answer,
// since a dialog, for example, would delay that.
func (w *wire) click(ctx context.Context, selector string, modifiers int) error {
	quoted, err := json.Marshal(selector)
	if err != nil {
		return err
	}
	element := "document.querySelector(" + string(quoted) + ")"
	if err := w.until(ctx, selector, "!!"+element); err != nil {
		return err
	}
	type point struct {
		X, Y float64
		Hit  bool // a click there hits the element, and not what lies over it
	}
	var at, before point
	for again := true; again; again = at != before || w.patient && !at.Hit {
		before = at
		if err := w.evaluate(ctx, "(() => { const e = "+element+"; e.scrollIntoView({ block: 'center' }); const r = e.getBoundingClientRect(); const x = r.x + r.width / 2, y = r.y + r.height / 2; return { x, y, hit: e.contains(document.elementFromPoint(x, y)) } })()", &at); err != nil {
			return err
		}
		select {
		case <-time.After(recheck):
		case <-ctx.Done():
			return fmt.Errorf("waiting until a click hits %s: %w", selector, ctx.Err())
		}
	}
	for _, event := range []string{"mousePressed", "mouseReleased"} {
		if err := w.send("Input.dispatchMouseEvent", map[string]any{"type": event, "x": at.X, "y": at.Y, "button": "left", "clickCount": 1, "modifiers": modifiers}); err != nil {
			return err
		}
	}
	return nil
}

// dialog waits for a dialog with the text.
func (w *wire) dialog(ctx context.Context, text string) error {
	_, err := w.conn.Next(ctx, "the dialog "+text, func(m rawcdp.Message) bool {
		return m.Method == "Page.javascriptDialogOpening" && strings.Contains(string(m.Params), text)
	})
	return err
}

// key presses a key: one with a name, or that of a letter.
func (w *wire) key(ctx context.Context, name string) error {
	down := map[string]any{"type": "keyDown", "key": name, "text": name}
	switch name {
	case "Enter":
		down["text"], down["code"], down["windowsVirtualKeyCode"] = "\r", "Enter", 13
	case "Tab":
		down["text"], down["code"], down["windowsVirtualKeyCode"] = "", "Tab", 9
	case "Escape":
		down["text"], down["code"], down["windowsVirtualKeyCode"] = "", "Escape", 27
	}
	up := maps.Clone(down)
	up["type"] = "keyUp"
	delete(up, "text")
	if err := w.call(ctx, "Input.dispatchKeyEvent", down, nil); err != nil {
		return err
	}
	return w.call(ctx, "Input.dispatchKeyEvent", up, nil)
}

// attachFile gives a file field a small file.
func (w *wire) attachFile(ctx context.Context, selector string) error {
	path, err := smallFile()
	if err != nil {
		return err
	}
	var document struct{ Root struct{ NodeID int } }
	if err := w.call(ctx, "DOM.getDocument", nil, &document); err != nil {
		return err
	}
	var field struct{ NodeID int }
	if err := w.call(ctx, "DOM.querySelector", map[string]any{"nodeId": document.Root.NodeID, "selector": selector}, &field); err != nil {
		return err
	}
	return w.call(ctx, "DOM.setFileInputFiles", map[string]any{"nodeId": field.NodeID, "files": []string{path}}, nil)
}

// shows returns an expression that is true if the page shows a text.
func shows(text string) string {
	quoted, _ := json.Marshal(text) // a string can always be marshalled
	return "!!document.body && document.body.innerText.includes(" + string(quoted) + ")"
}

// do performs one action of the script.
func (w *wire) do(ctx context.Context, s *site, a Action) error {
	w.patient = s.app != nil
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
		return w.dialog(ctx, a.Dialog)
	case a.Accept != "":
		if err := w.dialog(ctx, a.Accept); err != nil {
			return err
		}
		return w.call(ctx, "Page.handleJavaScriptDialog", map[string]any{"accept": true}, nil)
	case a.Type != "":
		for _, letter := range a.Type {
			if err := w.key(ctx, string(letter)); err != nil {
				return err
			}
		}
		return nil
	case a.Press != "":
		return w.key(ctx, a.Press)
	case a.Attach != "":
		return w.attachFile(ctx, a.Attach)
	case a.Run != "":
		return w.call(ctx, "Runtime.evaluate", map[string]any{"expression": s.ported(a.Run), "userGesture": true}, nil)
	case a.CDP != nil:
		return w.call(ctx, a.CDP.Method, a.CDP.params(s), nil)
	case w.bare && (a.Step != nil || a.Checkpoint != nil):
		return nil
	case a.Step != nil:
		return w.call(ctx, "Lease.step", a.Step, nil)
	case a.Checkpoint != nil:
		return w.call(ctx, "Lease.checkpoint", a.Checkpoint, nil)
	}
	return errors.New("nothing to do")
}
