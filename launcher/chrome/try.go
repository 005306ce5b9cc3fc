package chrome

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Tried is what Try found.
type Tried struct {
	// Product is the browser's name and version, as it says itself.
	Product string
	// TextWidth is how wide a page draws a line of text, in CSS pixels; zero where the host
	// has no font for it.
	TextWidth float64
	// Took is the time from the start to the first answer of a page.
	Took time.Duration
	// Warnings are those of Browser.Warnings.
	Warnings []string
}

// pageToTry loads nothing and is drawn by a renderer.
const pageToTry = "data:text/html,<meta charset=utf-8><p>it works"

// widthOfText is a script that measures a line of text.
const widthOfText = `(() => { const c = document.createElement('canvas').getContext('2d'); c.font = '40px sans-serif'; return c.measureText('Leasehold').width })()`

// Try starts a browser as Start does on an empty profile in the system's temporary directory,
// asks it and a page of it over the pipe, closes it, and removes what it made. Of the options
// it takes Binary, Headless, Confinement and User. An error of a browser that does not work is
// a *StartError.
func Try(ctx context.Context, o Options) (_ Tried, err error) {
	dir, err := os.MkdirTemp("", tempPattern)
	if err != nil {
		return Tried{}, err
	}
	defer func() { err = errors.Join(err, removeSoon(dir)) }()
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return Tried{}, err
	}
	o.ProfileDir, o.OutputFile = filepath.Join(dir, "profile"), filepath.Join(dir, "output")
	if err := os.Mkdir(o.ProfileDir, 0o700); err != nil {
		return Tried{}, err
	}
	if o.User != nil {
		if err := errors.Join(os.Chmod(dir, 0o711), o.User.Own(o.ProfileDir)); err != nil {
			return Tried{}, err
		}
	}
	begun := time.Now()
	b, err := Start(ctx, o)
	if err != nil {
		return Tried{}, err
	}
	c := &caller{to: b.Commands(), from: bufio.NewReader(b.Events())}
	found, err := c.try(ctx, b)
	if err != nil {
		err = b.StartFailure(err)
	}
	found.Took, found.Warnings = time.Since(begun), b.Warnings()
	// It has its own time: a browser that does not answer is not left behind.
	ask := func(ctx context.Context) error { return c.call(ctx, b, "Browser.close", "", nil, &struct{}{}) }
	if _, closeErr := b.Close(context.WithoutCancel(ctx), ask, CloseTimeouts{}); closeErr != nil {
		err = errors.Join(err, closeErr)
	}
	return found, err
}

// caller makes one call after the other on a browser's pipe.
type caller struct {
	to   *os.File
	from *bufio.Reader
	id   int
}

func (c *caller) try(ctx context.Context, b *Browser) (Tried, error) {
	var t Tried
	var version struct{ Product string }
	if err := c.call(ctx, b, "Browser.getVersion", "", nil, &version); err != nil {
		return t, err
	}
	t.Product = version.Product
	var target struct{ TargetID string }
	if err := c.call(ctx, b, "Target.createTarget", "", map[string]any{"url": pageToTry}, &target); err != nil {
		return t, err
	}
	var attached struct{ SessionID string }
	if err := c.call(ctx, b, "Target.attachToTarget", "", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached); err != nil {
		return t, err
	}
	var measured struct {
		Result struct{ Value float64 }
	}
	err := c.call(ctx, b, "Runtime.evaluate", attached.SessionID, map[string]any{"expression": widthOfText, "returnByValue": true}, &measured)
	t.TextWidth = measured.Result.Value
	return t, err
}

// maxTried bounds a message, in bytes.
const maxTried = 1 << 20

// call sends a command, and decodes the result of its answer. Events in between are dropped.
func (c *caller) call(ctx context.Context, b *Browser, method, session string, params, result any) error {
	c.id++
	m := map[string]any{"id": c.id, "method": method}
	if params != nil {
		m["params"] = params
	}
	if session != "" {
		m["sessionId"] = session
	}
	command, err := json.Marshal(m)
	if err != nil {
		return err
	}
	deadline, _ := ctx.Deadline()
	if err := errors.Join(c.to.SetWriteDeadline(deadline), b.Events().SetReadDeadline(deadline)); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = b.Events().SetReadDeadline(time.Unix(1, 0)) })()
	if _, err := c.to.Write(append(command, 0)); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	for {
		raw, err := c.from.ReadBytes(0)
		if err != nil {
			return fmt.Errorf("%s: %w", method, err)
		}
		if len(raw) > maxTried {
			return fmt.Errorf("%s: an answer of %d bytes", method, len(raw))
		}
		var answer struct {
			ID     int
			Result json.RawMessage
			Error  *struct{ Message string }
		}
		switch err := json.Unmarshal(bytes.TrimSuffix(raw, []byte{0}), &answer); {
		case err != nil:
			return fmt.Errorf("%s: the browser sends what is no message: %w", method, err)
		case answer.ID != c.id:
			continue
		case answer.Error != nil:
			return fmt.Errorf("%s: %s", method, answer.Error.Message)
		}
		return json.Unmarshal(answer.Result, result)
	}
}
