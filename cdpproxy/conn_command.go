package cdpproxy

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/gobwas/ws"

	"leasehold/internal/boottime"
)

// refusals are the commands that would break a promise, and the reasons.
var refusals = map[string]string{
	"Browser.crash":                 "would end the browser without its evidence: release the lease instead",
	"Browser.crashGpuProcess":       "would end the browser without its evidence: release the lease instead",
	"Target.exposeDevToolsProtocol": "would let pages drive the browser past the lease",
	"Target.sendMessageToTarget":    "carries commands past the lease: attach with flatten set to true",
}

var leaseDomain = []byte("Lease.")

// dispatch decides what happens to one message of the client: it is refused, handled on
// the goroutine of offload, or staged for the browser. msg is the connection's own if
// owned is set; else it is valid only until handleInput returns.
func (c *Conn) dispatch(msg []byte, owned bool) {
	cmd, bad := scan(msg)
	switch {
	case bad == errBadUTF8:
		c.refuse(errNotUTF8)
	case bad != nil:
		c.reply(cmd, nil, bad)
	case cmd.hasSession && !c.session.mux.owns(c.session, cmd.sessionID):
		c.reply(cmd, nil, errSessionGone)
	case refusals[string(cmd.method)] != "":
		c.reply(cmd, nil, &Error{codeServer, "leasehold refuses " + string(cmd.method) + ": it " + refusals[string(cmd.method)]})
	case needsHandler(cmd.method) || !c.stage(cmd, msg, owned):
		if !owned {
			msg = slices.Clone(msg)
		}
		c.commit()
		c.offload(func() { c.handleOffloaded(msg) })
	}
}

// needsHandler tells whether the handler is called for a command, which may take time.
func needsHandler(method []byte) bool {
	switch string(method) {
	case "Browser.close", "Target.closeTarget", "Page.close":
		return true
	}
	return bytes.HasPrefix(method, leaseDomain)
}

// handleOffloaded handles a message for which the handler is called, or which could not
// be staged because another message was being written. It may block.
func (c *Conn) handleOffloaded(msg []byte) {
	cmd, _ := scan(msg) // dispatch found no error in it
	switch method := string(cmd.method); {
	case bytes.HasPrefix(cmd.method, leaseDomain):
		c.mu.Lock()
		c.leaseSessions[string(cmd.sessionID)] = true
		c.session.log.add(cmd.sessionID, cmd.method)
		c.mu.Unlock()
		c.session.log.stamp(1, boottime.Now())
		result, err := c.handler.Lease(c.ctx, method, cmd.params)
		last, ends := result.(Last)
		if ends {
			result = last.Result
		}
		c.reply(cmd, result, err)
		if ends {
			last.Then()
		}
		return
	case method == "Browser.close":
		c.reply(cmd, struct{}{}, nil)
		c.mu.Lock()
		c.closingBrowser = true
		c.session.log.add(cmd.sessionID, cmd.method)
		c.mu.Unlock()
		c.session.log.stamp(1, boottime.Now())
		c.handler.CloseBrowser()
		return
	case method == "Target.closeTarget" || method == "Page.close":
		c.handler.ClosingPage()
	}
	if u, ok := c.register(cmd); ok {
		head, tail := c.browserParts(cmd, msg)
		// It is noted before the write as well: the browser may report what comes of
		// the command before the write returns.
		c.session.mux.noteActivity(boottime.Now(), stagedCommand{cmd, u})
		err := c.session.mux.send(c.fence, head, tail)
		if err == nil {
			now := boottime.Now()
			c.session.log.stamp(1, now)
			c.session.mux.noteActivity(now, stagedCommand{cmd, u})
		}
		c.failUnsent(err, stagedCommand{cmd, u})
	}
}

// reply queues and flushes a reply of the launcher's own to the client.
func (c *Conn) reply(cmd command, result any, problem *Error) {
	m := map[string]any{}
	if cmd.hasID {
		m["id"] = cmd.id
	}
	if problem != nil {
		m["error"] = problem
	} else {
		m["result"] = result
	}
	if cmd.hasSession && problem != errBadSession {
		m["sessionId"] = string(cmd.sessionID)
	}
	msg, err := json.Marshal(m)
	if err != nil {
		return
	}
	c.push(ws.OpText, msg)
	c.flush()
}

// offload runs work that may block on a goroutine, in order. The client is not read
// before all of it is done.
func (c *Conn) offload(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offloaded = append(c.offloaded, f)
	if !c.busy.Swap(true) {
		c.offloading.Go(c.runOffloaded)
	}
}

// runOffloaded is the goroutine of offload. It ends when nothing is left to do.
func (c *Conn) runOffloaded() {
	for {
		c.mu.Lock()
		if len(c.offloaded) == 0 {
			c.busy.Store(false)
			c.mu.Unlock()
			_ = c.session.mux.wake() // can only fail for a connection that joins
			return
		}
		f := c.offloaded[0]
		c.offloaded = c.offloaded[1:]
		c.mu.Unlock()
		f()
	}
}
