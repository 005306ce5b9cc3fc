package cdpproxy

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/gobwas/ws"

	"leasehold/cdpproxy/methods"
	"leasehold/internal/boottime"
)

var leaseDomain = []byte("Lease.")

// dispatch decides what happens to one message of the client: it is staged for the browser, or
// handled on the goroutine of offload. If owned is set, msg belongs to the connection;
// otherwise it is valid only until handleInput returns.
func (c *Conn) dispatch(msg []byte, owned bool) {
	cmd, bad := scan(msg)
	switch {
	case bad == errBadUTF8:
		c.refuse(errNotUTF8)
		return
	case bad != nil:
		c.reply(cmd, nil, bad)
		return
	case c.released.Load():
		c.reply(cmd, nil, errReleased)
		return
	}
	if cmd.emptySession {
		msg, owned = withoutSession(msg), true
		cmd, _ = scan(msg)
	}
	privileged := false
	switch mux := c.session.mux; {
	case cmd.hasSession:
		own := false
		if own, privileged = mux.sessions.owns(c.session, cmd.sessionID); !own {
			c.reply(cmd, nil, errSessionGone)
			return
		}
	case c.session.defaultID != c.session.id: // a connection to one target
		privileged = mux.sessions.get(c.session.defaultID).privileged
	}
	if m := methods.Find(cmd.method); m != nil && m.Class == methods.Passes && !privileged && c.startsListening(cmd) == "" && c.stage(cmd, m, msg, owned) {
		return
	}
	if !owned {
		msg = slices.Clone(msg)
	}
	c.commit()
	c.offload(func() { c.handleOffloaded(msg, privileged) })
}

// withoutSession turns a command whose session is "" into one that names none, because it gets
// the connection's session, and Chrome would otherwise find two.
func withoutSession(msg []byte) []byte {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method json.RawMessage `json:"method"`
		Params json.RawMessage `json:"params,omitempty"`
	}
	// scan has found at most four members, each once, in strict JSON.
	_ = json.Unmarshal(msg, &m)
	short, _ := plainJSON(m)
	return short
}

func (c *Conn) target(cmd command) string {
	if cmd.hasSession {
		return string(cmd.sessionID)
	}
	return c.session.defaultID
}

// sessionOf is target as bytes.
func (c *Conn) sessionOf(cmd command) []byte {
	if cmd.hasSession {
		return cmd.sessionID
	}
	return c.suffix[len(sessionKey) : len(c.suffix)-len(`"}`)]
}

// handleOffloaded handles a message whose method does not simply pass, or which could
// not be staged because another message was being written. It may block.
func (c *Conn) handleOffloaded(msg []byte, privileged bool) {
	cmd, _ := scan(msg) // dispatch has found no error in it
	if bytes.HasPrefix(cmd.method, leaseDomain) {
		c.handleLease(cmd)
		return
	}
	named, denied := c.permit(cmd, privileged)
	if denied != nil {
		c.deny(cmd, denied)
		return
	}
	closes := ""
	switch string(cmd.method) {
	case "Browser.close":
		c.pushReply(cmd, struct{}{}, nil)
		c.mu.Lock()
		c.closingBrowser = true
		c.session.log.add(cmd.sessionID, cmd.method)
		c.mu.Unlock()
		c.session.log.stamp(1, boottime.Now())
		c.handler.CloseBrowser()
		c.flush()
		return
	case exposeCommand:
		c.expose(cmd)
		return
	case "Target.closeTarget", "Page.close":
		closes = c.closes(cmd)
		c.handler.ClosingTarget(closes)
	}
	before, after := c.session.downloadCommands(c.target(cmd), named)
	if before != nil && c.session.mux.send(c.fence, before) != nil {
		after = nil // the command's own error says why
	}
	if sent := c.sendOffloaded(cmd, msg); sent && closes != "" {
		c.session.mux.leave(closes)
	}
	if after != nil {
		_ = c.session.mux.send(c.fence, after) // it fails with the command
	}
}

// closes returns the target that a command closes; empty if the command closes none.
func (c *Conn) closes(cmd command) string {
	switch string(cmd.method) {
	case "Target.closeTarget":
		target := ""
		if methods.ReadMembers(cmd.params, map[string]any{"targetId": &target}) { // Chrome refuses it otherwise
			return target
		}
	case "Page.close":
		target, _ := c.session.mux.sessions.attached(c.sessionOf(cmd))
		return target
	}
	return ""
}

// deny answers a command that the session may not send.
func (c *Conn) deny(cmd command, why *methods.Refusal) {
	c.handler.Denied(string(cmd.method), why)
	if why.Reason == methods.ReasonPerson {
		c.session.letGoOfPerson(c.fence, cmd, c.target(cmd))
	}
	c.reply(cmd, nil, &Error{why.Code, why.Message(string(cmd.method))})
}

// permit returns the files that a command names, or the reason why it is refused.
func (c *Conn) permit(cmd command, privileged bool) (methods.Named, *methods.Refusal) {
	m := methods.Find(cmd.method)
	if privileged && m != nil && !methods.ToPrivileged(cmd.method) {
		return methods.Named{}, methods.RefuseTarget()
	}
	if why := c.against(m, cmd.params); why != nil {
		return methods.Named{}, why
	}
	named, denied := methods.Check(m, string(cmd.method), cmd.params)
	if denied != nil {
		return named, denied
	}
	for _, path := range named.Read {
		if err := c.handler.Readable(path); err != nil {
			return named, methods.RefuseFile(path, err)
		}
	}
	if named.Write != "" {
		if err := c.handler.Writable(named.Write); err != nil {
			return named, methods.RefuseFile(named.Write, err)
		}
	}
	return named, nil
}

func (c *Conn) handleLease(cmd command) {
	c.mu.Lock()
	c.leaseSessions[string(cmd.sessionID)] = true
	c.session.log.add(cmd.sessionID, cmd.method)
	c.mu.Unlock()
	c.session.log.stamp(1, boottime.Now())
	result, err := c.handler.Lease(c.ctx, string(cmd.method), cmd.params)
	if later, waits := result.(Later); waits && err == nil {
		c.answerLater(cmd, later)
		return
	}
	last, ends := result.(Last)
	if ends {
		result = last.Result
		c.released.Store(true) // before its answer: nothing that comes behind it reaches the browser
	}
	c.pushReply(cmd, result, err)
	if ends {
		last.Then()
	}
	c.flush()
}

// sendOffloaded passes a command on, and waits while the pipe is full. sent says that the browser has all of it.
func (c *Conn) sendOffloaded(cmd command, msg []byte) (sent bool) {
	m := methods.Find(cmd.method)
	u, ok := c.register(cmd)
	if !ok {
		return false
	}
	head, tail := c.browserParts(cmd, msg)
	passing := []stagedCommand{{cmd, u, c.sessionOf(cmd), m}}
	if begins := c.startsListening(cmd); begins != "" && begins != ignoreCertificates { // from now on no page is opened
		if err := c.session.mux.endHidden(c.ctx); err != nil {
			c.unsent(passing[0])
			c.reply(cmd, nil, &Error{codeServer, err.Error()})
			return false
		}
	}
	err := c.session.mux.sendIf(func() error {
		err := c.check(m, cmd.params)
		if err == nil { // who sees what it does in the browser finds it in the log
			c.session.log.stamp(1, boottime.Now())
		}
		return err
	}, c.fence, passing, head, tail)
	if err != nil {
		c.session.log.stamp(1, 0)
	}
	c.failUnsent(err, passing...)
	return err == nil
}

// ownReply is a reply of the launcher's own, with its members in Chrome's order. One of
// Result and Error is set.
type ownReply struct {
	ID        *int64 `json:"id,omitempty"`
	Result    *any   `json:"result,omitempty"`
	Error     *Error `json:"error,omitempty"`
	SessionID string `json:"sessionId,omitempty"`
}

// reply queues and flushes a reply of the launcher's own to the client.
func (c *Conn) reply(cmd command, result any, problem *Error) {
	c.pushReply(cmd, result, problem)
	c.flush()
}

// pushReply queues a reply of the launcher's own. flush has to follow.
func (c *Conn) pushReply(cmd command, result any, problem *Error) {
	r := ownReply{Error: problem}
	if cmd.hasID {
		r.ID = &cmd.id
	}
	if problem == nil {
		r.Result = &result
	}
	if cmd.hasSession && problem != errBadSession && problem != errSessionGone {
		r.SessionID = string(cmd.sessionID)
	}
	msg, err := json.Marshal(r)
	if err != nil {
		return
	}
	c.push(ws.OpText, msg)
}

// offload runs work that may block on a goroutine, in order. The client is not read until all
// of it is done.
func (c *Conn) offload(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offloaded = append(c.offloaded, f)
	if !c.busy.Swap(true) {
		c.offloading.Go(c.runOffloaded)
	}
}

// runOffloaded is the goroutine of offload. It ends when nothing is left to do, or with a
// function that ends its goroutine.
func (c *Conn) runOffloaded() {
	idle := false
	defer func() {
		if !idle {
			c.busy.Store(false)
		}
		_ = c.session.mux.wake() // this can only fail for a joining connection
	}()
	for {
		c.mu.Lock()
		if len(c.offloaded) == 0 {
			idle = true
			c.busy.Store(false)
			c.mu.Unlock()
			return
		}
		f := c.offloaded[0]
		c.offloaded = c.offloaded[1:]
		c.mu.Unlock()
		f()
	}
}
