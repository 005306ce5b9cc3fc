package view

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"time"

	"leasehold/cdpproxy"
)

// A cast is Chrome's screencast of one page. While a page moves, Chrome draws a picture for it
// with every frame, 60 times a second, even if it does not send them. So the cast is stopped
// when a picture came that differs from the last one, and is started again when it is time for
// the next picture and a viewer has taken this one. A start brings a picture at once. If that
// is the same as the last, the page stands still, and the cast stays on until something moves:
// that costs nothing.

// Events that a watch's session in the browser gets.
const (
	eventFrame      = "Page.screencastFrame"
	eventVisibility = "Page.screencastVisibilityChanged"
	eventChooser    = "Page.fileChooserOpened"
	eventDetached   = "Target.detachedFromTarget"
)

var castEvents = []string{eventFrame, eventVisibility, eventChooser, eventDetached}

const (
	// rest is how long nothing is drawn for viewers after a picture.
	rest = 40 * time.Millisecond
	// callTimeout bounds an answer of the browser. retryPause is how long a cast waits after a
	// refusal.
	callTimeout = 5 * time.Second
	retryPause  = time.Second
	// maxImage is the size, in bytes, of the largest picture that is shown.
	maxImage = 4 << 20
)

type cast struct {
	watch   *watch
	target  string
	session string // CDP session on the page
	ctx     context.Context
	cancel  context.CancelFunc
	done    chan struct{}
	woken   chan struct{}  // has room for one: the viewers' demand has changed
	came    chan castFrame // has room for a few
	hurried chan struct{}  // has room for one: somebody waits for the next picture
	// byHand says that file choosers are not opened by Chrome, but shown to the person. The
	// watch's mutex guards it.
	byHand bool
}

// castFrame is a picture as Chrome sends it.
type castFrame struct {
	Data     []byte `json:"data"`
	Metadata struct {
		DeviceWidth     float64 `json:"deviceWidth"`
		DeviceHeight    float64 `json:"deviceHeight"`
		PageScaleFactor float64 `json:"pageScaleFactor"`
		ScrollOffsetX   float64 `json:"scrollOffsetX"`
		ScrollOffsetY   float64 `json:"scrollOffsetY"`
		Timestamp       float64 `json:"timestamp"` // seconds since 1970
	} `json:"metadata"`
	SessionID int `json:"sessionId"` // the start that it belongs to
}

func newCast(w *watch, target string) *cast {
	ctx, cancel := context.WithCancel(w.ctx)
	return &cast{watch: w, target: target, ctx: ctx, cancel: cancel, done: make(chan struct{}), woken: make(chan struct{}, 1), hurried: make(chan struct{}, 1), came: make(chan castFrame, 4)}
}

// run shows the page until ctx ends, or the page is closed.
func (c *cast) run() {
	defer close(c.done)
	defer c.cancel()
	if err := c.attach(); err != nil {
		c.failed(err)
		return
	}
	defer c.detach()
	for c.ctx.Err() == nil {
		p, ready := c.demand()
		if !ready {
			c.await()
			continue
		}
		if err := c.call("Page.startScreencast", p); err != nil {
			c.failed(err)
			if !errors.Is(err, context.DeadlineExceeded) {
				return
			}
			continue
		}
		c.untilItMoves(p)
		if err := c.call("Page.stopScreencast", nil); err != nil {
			c.failed(err)
			return
		}
		c.rest()
	}
}

// failed notes why a page is not shown, and waits for a moment: the page may be about to close.
func (c *cast) failed(err error) {
	if c.ctx.Err() == nil && !errors.Is(err, cdpproxy.ErrBrowserGone) {
		c.watch.log.Debug().Err(err).Str("target", c.target).Msg("a page is not shown")
		select {
		case <-time.After(retryPause):
		case <-c.ctx.Done():
		}
	}
}

// untilItMoves takes pictures until a new one has come, or the viewers want another size.
func (c *cast) untilItMoves(p castParams) {
	for {
		select {
		case f := <-c.came:
			if c.publish(f) {
				return
			}
			c.watch.observer.Post(c.session, "Page.screencastFrameAck", map[string]any{"sessionId": f.SessionID})
		case <-c.woken:
			if now, _ := c.demand(); now != p && now != (castParams{}) {
				return
			}
		case <-c.ctx.Done():
			return
		}
	}
}

// publish makes a picture the newest of the page, unless it is the same as the last. A picture
// of another size is new.
func (c *cast) publish(f castFrame) bool {
	if len(f.Data) == 0 || len(f.Data) > maxImage {
		return false
	}
	w, m := c.watch, f.Metadata
	head := frameHead{
		Target: c.target, Width: m.DeviceWidth, Height: m.DeviceHeight, Scale: m.PageScaleFactor, ScrollX: m.ScrollOffsetX, ScrollY: m.ScrollOffsetY, At: m.Timestamp * 1000,
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if last := w.frames[c.target]; last != nil && bytes.Equal(last.image, f.Data) {
		return false
	}
	w.sequence++
	head.Sequence = w.sequence
	w.frames[c.target] = newFrame(head, f.Data)
	w.gallery.frames.Inc()
	w.wakeViewers()
	return true
}

// await returns when the viewers' demand has changed, or ctx ends.
func (c *cast) await() {
	select {
	case <-c.woken:
	case <-c.ctx.Done():
	}
}

// rest returns when it is time for the next picture.
func (c *cast) rest() {
	select {
	case <-c.hurried: // somebody waited before the last picture
	default:
	}
	select {
	case <-time.After(rest):
	case <-c.hurried:
	case <-c.ctx.Done():
	}
}

func (c *cast) hurry() {
	select {
	case c.hurried <- struct{}{}:
	default:
	}
}

func (c *cast) wake() {
	select {
	case c.woken <- struct{}{}:
	default:
	}
}

// attach opens a CDP session on the page.
func (c *cast) attach() error {
	ctx, cancel := context.WithTimeout(c.ctx, callTimeout)
	defer cancel()
	var r struct {
		SessionID string `json:"sessionId"`
	}
	if err := c.watch.observer.Call(ctx, "", "Target.attachToTarget", map[string]any{"targetId": c.target, "flatten": true}, &r); err != nil {
		return err
	}
	c.session = r.SessionID
	c.watch.mu.Lock()
	defer c.watch.mu.Unlock()
	c.watch.bySession[c.session] = c
	c.watch.takeChoosers()
	return nil
}

// detach ends the CDP session, and with it the screencast.
func (c *cast) detach() {
	c.watch.mu.Lock()
	delete(c.watch.bySession, c.session)
	c.watch.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	// A page that was closed has no session any more; the watch's own session is closed later.
	_ = c.watch.observer.Call(ctx, "", "Target.detachFromTarget", map[string]any{"sessionId": c.session}, nil)
}

func (c *cast) call(method string, params any) error {
	ctx, cancel := context.WithTimeout(c.ctx, callTimeout)
	defer cancel()
	return c.watch.observer.Call(ctx, c.session, method, params, nil)
}

// dispatch passes what the browser sends to the casts, until ctx ends.
func (w *watch) dispatch() {
	for {
		events, err := w.observer.Next(w.ctx)
		if err != nil {
			return
		}
		for _, e := range events {
			w.mu.Lock()
			c := w.bySession[e.Session]
			f, ofFrame := w.byFrame[e.Session]
			w.mu.Unlock()
			switch {
			case e.Method == eventDetached:
				w.frameEnded(e.Params)
			case c != nil:
				c.take(e)
			case ofFrame && e.Method == eventChooser:
				w.opened(f, e.Params)
			}
		}
	}
}

// take takes in one event. It does not block.
func (c *cast) take(e cdpproxy.Event) {
	switch e.Method {
	case eventFrame:
		var f castFrame
		if json.Unmarshal(e.Params, &f) != nil {
			return
		}
		select {
		case c.came <- f:
		default: // the page is drawn faster than it is looked at: a later picture will come
		}
	case eventChooser:
		c.watch.opened(pageFrame{page: c.target}, e.Params)
	case eventVisibility:
		var p struct {
			Visible bool `json:"visible"`
		}
		if json.Unmarshal(e.Params, &p) == nil {
			c.watch.mu.Lock()
			c.watch.hidden[c.target] = !p.Visible
			c.watch.mu.Unlock()
		}
	}
}
