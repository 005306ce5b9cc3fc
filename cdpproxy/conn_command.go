package cdpproxy

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/gobwas/ws"

	"leasehold/internal/boottime"
)

// refusals are the commands that would break a promise, and why.
var refusals = map[string]string{
	"Browser.crash":                 "would end the browser without its evidence: release the lease instead",
	"Browser.crashGpuProcess":       "would end the browser without its evidence: release the lease instead",
	"Target.exposeDevToolsProtocol": "would let pages drive the browser past the lease",
	"Target.sendMessageToTarget":    "carries commands past the lease: attach with flatten set to true",
}

var leaseDomain = []byte("Lease.")

// command handles one message of the client, which is the connection's own or good
// only until take returns.
func (c *Conn) command(msg []byte, owned bool) {
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
		c.offload(func() { c.handle(msg) })
	}
}

// handled tells which commands the handler is asked about, which may take time.
func needsHandler(method []byte) bool {
	switch string(method) {
	case "Browser.close", "Target.closeTarget", "Page.close":
		return true
	}
	return bytes.HasPrefix(method, leaseDomain)
}

// handle is command for a message that may have to wait.
func (c *Conn) handle(msg []byte) {
	cmd, _ := scan(msg) // it was right before
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
	if w, ok := c.register(cmd); ok {
		head, tail := c.browserParts(cmd, msg)
		// Before, too: what comes of it may be told before the write returns.
		c.session.mux.noteActivity(boottime.Now(), stagedCommand{cmd, w})
		err := c.session.mux.send(c.fence, head, tail)
		if err == nil {
			now := boottime.Now()
			c.session.log.stamp(1, now)
			c.session.mux.noteActivity(now, stagedCommand{cmd, w})
		}
		c.failUnsent(err, stagedCommand{cmd, w})
	}
}

// answer gives the client an answer of ours.
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

// aside runs what may block, in order. The connection is not read in the meantime.
func (c *Conn) offload(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offloaded = append(c.offloaded, f)
	if !c.busy.Swap(true) {
		c.offloading.Go(c.runOffloaded)
	}
}

func (c *Conn) runOffloaded() {
	for {
		c.mu.Lock()
		if len(c.offloaded) == 0 {
			c.busy.Store(false)
			c.mu.Unlock()
			_ = c.session.mux.wake() // fails for joining connections only
			return
		}
		f := c.offloaded[0]
		c.offloaded = c.offloaded[1:]
		c.mu.Unlock()
		f()
	}
}
