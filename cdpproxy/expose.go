package cdpproxy

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/gobwas/ws/wsutil"

	"leasehold/cdpproxy/methods"
)

// exposeCommand gives a page an object by which its script speaks CDP. WebDriver BiDi through
// chromedriver is such a script. Chrome itself would carry the page's messages past the pipe, and so
// past the lease: the launcher carries them instead. They come on a connection of their own, like
// any other of the worker's, which ends with the one on which it was asked for, or with the
// page's document.
const exposeCommand = "Target.exposeDevToolsProtocol"

// maxExposed is how many pages may be exposed on one connection.
const maxExposed = 16

// exposure carries the messages between a document and its connection.
type exposure struct {
	page    *Observer // the launcher's own, on the page
	session string    // its CDP session there
	context int64     // the document's, where its own scripts run
	binding string    // by which the document is heard
	name    string    // of the object, as a literal of JavaScript
	far     net.Conn  // the document's end of its connection
	stop    context.CancelFunc

	ready  chan struct{} // has room for one: something is in queue
	mu     sync.Mutex
	queue  []Event
	queued int // bytes in queue
}

// Exposed are the connections of the pages that this one's client has exposed, also of those that
// have ended.
func (c *Conn) Exposed() []*Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.exposed
}

func (c *Conn) expose(cmd command) {
	c.mu.Lock()
	ctx, many := c.laters.ctx, len(c.exposed) >= maxExposed
	c.session.log.add(cmd.sessionID, cmd.method)
	c.mu.Unlock()
	target, name := "", "cdp"
	if !methods.ReadMembers(cmd.params, map[string]any{"targetId": &target, "bindingName": &name}) || target == "" || many {
		c.deny(cmd, methods.RefuseExposing())
		return
	}
	if err := c.fence.Check(); err != nil {
		c.handler.Refused(string(cmd.method))
		c.reply(cmd, nil, &Error{codeServer, err.Error()})
		return
	}
	err := c.exposeTo(ctx, target, name)
	var chromes *Error
	switch {
	case errors.Is(err, errNotToExpose):
		c.deny(cmd, methods.RefuseExposing())
	case errors.As(err, &chromes):
		c.reply(cmd, nil, chromes)
	case err != nil:
		c.reply(cmd, nil, &Error{codeServer, err.Error()})
	default:
		c.reply(cmd, struct{}{}, nil)
	}
}

// errNotToExpose says that a target is not one that may be exposed.
var errNotToExpose = errors.New("not an empty tab")

// exposeTo exposes a target under a name until ctx ends.
func (c *Conn) exposeTo(ctx context.Context, target, name string) (err error) {
	m := c.session.mux
	var about struct {
		TargetInfo struct {
			TargetID string `json:"targetId"`
			URL      string `json:"url"`
			Opener   string `json:"openerId"`
		} `json:"targetInfo"`
	}
	if err := m.Call(ctx, "Target.getTargetInfo", map[string]string{"targetId": target}, &about); err != nil {
		return err
	}
	// A page of the web, and one that has opened this tab, could drive the account.
	if about.TargetInfo.TargetID != target || about.TargetInfo.URL != "about:blank" || about.TargetInfo.Opener != "" {
		return errNotToExpose
	}
	client := ctx
	ctx, stop := context.WithCancel(client)
	literal, _ := json.Marshal(name) // a string can always be marshalled
	x := &exposure{name: string(literal), stop: stop, ready: make(chan struct{}, 1)}
	undo := stop
	defer func() {
		if err != nil {
			undo()
		}
	}()
	if x.page, err = m.Listen(ctx, x.hear, exposedEvents, eventContext); err != nil {
		return err
	}
	undo = func() { stop(); x.page.session.leave() }
	if err := x.enter(ctx, target); err != nil {
		return err
	}
	conn, err := m.Connect(ctx, "", c.fence, c.handler, true)
	if err != nil {
		return err
	}
	near, far := net.Pipe()
	x.far = far
	if err := x.install(ctx); err != nil {
		return errors.Join(err, near.Close(), far.Close(), conn.session.giveUp(ctx))
	}
	c.mu.Lock()
	c.exposed = append(c.exposed, conn)
	c.mu.Unlock()
	left := c.handler.Opened(conn)
	c.laters.work.Go(func() {
		var carrying sync.WaitGroup
		carrying.Go(func() { conn.Serve(ctx, near, bufio.NewReader(near)) })
		carrying.Go(func() { x.toPage(ctx) })
		carrying.Go(func() { x.fromPage(ctx) })
		<-ctx.Done()
		_ = far.Close()
		carrying.Wait()
		x.page.session.leave()
		if client.Err() == nil && c.fence.Check() == nil { // otherwise it goes with what the client has open
			left(client)
		}
	})
	return nil
}

// CDP's names of the events about documents and what they say.
const (
	eventContext   = "Runtime.executionContextCreated"
	eventDestroyed = "Runtime.executionContextDestroyed"
	eventCleared   = "Runtime.executionContextsCleared"
	eventBinding   = "Runtime.bindingCalled"
	eventLeft      = "Target.detachedFromTarget"
	eventCrashed   = "Inspector.targetCrashed"
)

var exposedEvents = []string{eventDestroyed, eventCleared, eventBinding, eventLeft, eventCrashed}

// enter attaches to the page, and finds its document.
func (x *exposure) enter(ctx context.Context, target string) error {
	var r struct {
		SessionID string `json:"sessionId"`
	}
	if err := x.page.Call(ctx, "", "Target.attachToTarget", map[string]any{"targetId": target, "flatten": true}, &r); err != nil {
		return err
	}
	x.session, x.binding = r.SessionID, "leasehold.cdp."+r.SessionID
	if err := x.page.Call(ctx, x.session, "Runtime.enable", nil, nil); err != nil {
		return err
	}
	if x.page.Queued() == 0 { // Chrome has told of all documents before it answered
		return errNotToExpose
	}
	events, err := x.page.Next(ctx)
	for _, e := range events {
		var p struct {
			Context struct {
				ID  int64 `json:"id"`
				Aux struct {
					Default bool   `json:"isDefault"`
					Frame   string `json:"frameId"`
				} `json:"auxData"`
			} `json:"context"`
		}
		if json.Unmarshal(e.Params, &p) == nil && p.Context.Aux.Default && p.Context.Aux.Frame == target {
			x.context = p.Context.ID
		}
	}
	if err == nil && x.context == 0 {
		err = errNotToExpose
	}
	return err
}

func (x *exposure) install(ctx context.Context) error {
	if err := x.page.Call(ctx, x.session, "Runtime.addBinding", map[string]any{"name": x.binding, "executionContextId": x.context}, nil); err != nil {
		return err
	}
	return x.run(ctx, fmt.Sprintf("{ const send = globalThis[%[1]q]; delete globalThis[%[1]q]; globalThis[%[2]s] = { onmessage: () => {}, send }; }", x.binding, x.name))
}

func (x *exposure) run(ctx context.Context, script string) error {
	return x.page.Call(ctx, x.session, "Runtime.evaluate", map[string]any{"expression": script, "contextId": x.context, "silent": true}, nil)
}

func (x *exposure) toPage(ctx context.Context) {
	defer x.stop()
	for {
		msg, err := wsutil.ReadServerText(x.far)
		if err != nil {
			return
		}
		if x.tell(ctx, msg) != nil {
			return
		}
	}
}

// tell passes a message on to the document.
func (x *exposure) tell(ctx context.Context, msg []byte) error {
	text, err := plainJSON(string(msg))
	if err != nil {
		return err
	}
	return x.run(ctx, fmt.Sprintf("globalThis[%s]?.onmessage?.(%s)", x.name, text))
}

// hear takes one of exposedEvents. The pipe's reader calls it.
func (x *exposure) hear(e Event) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.queued += len(e.Params); x.queued > MaxQueued {
		x.stop()
		return
	}
	x.queue = append(x.queue, e)
	select {
	case x.ready <- struct{}{}:
	default:
	}
}

// fromPage passes on what the document says, until it is gone.
func (x *exposure) fromPage(ctx context.Context) {
	defer x.stop()
	for {
		select {
		case <-x.ready:
		case <-ctx.Done():
			return
		}
		x.mu.Lock()
		events := x.queue
		x.queue, x.queued = nil, 0
		x.mu.Unlock()
		for _, e := range events {
			if !x.passOn(e) {
				return
			}
		}
	}
}

// passOn passes on one event. It returns false once there is nobody to pass it on from, or to.
func (x *exposure) passOn(e Event) bool {
	var p struct {
		SessionID string `json:"sessionId"` // of what was detached
		Name      string `json:"name"`
		Payload   string `json:"payload"`
		Context   int64  `json:"executionContextId"`
	}
	if json.Unmarshal(e.Params, &p) != nil {
		return true
	}
	switch {
	case e.Method == eventLeft:
		return p.SessionID != x.session
	case e.Session != x.session:
	case e.Method == eventCrashed, e.Method == eventCleared, e.Method == eventDestroyed && p.Context == x.context:
		return false
	case e.Method == eventBinding && p.Name == x.binding && p.Context == x.context:
		return wsutil.WriteClientText(x.far, []byte(p.Payload)) == nil
	}
	return true
}
