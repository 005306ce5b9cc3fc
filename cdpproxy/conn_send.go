package cdpproxy

import (
	"bytes"
	"errors"
	"slices"

	"leasehold/cdpproxy/methods"
)

// stagedCommand is a command that is about to pass the fence.
type stagedCommand struct {
	command
	undo
	session []byte          // the CDP session that it is for
	listed  *methods.Method // its method in the table; nil for the launcher's own
}

// keep returns the command for use after its message was handled. owned says that the message belongs
// to the connection, and lives as long.
func (s stagedCommand) keep(owned bool) stagedCommand {
	params := s.params
	if !owned {
		params = bytes.Clone(params)
	}
	s.command, s.session = s.clone(), bytes.Clone(s.session)
	s.params = params
	return s
}

// undo is what has to be undone if a command does not reach the browser.
type undo struct {
	ids       map[int64]*continuedRequest // the command's id is among these
	continued *continuedRequest           // nil: the command continues none
}

// stage adds the client's command to what the next commit sends. From the first staged command
// until the commit, the connection holds Mux.writing. stage returns false if another message is
// being written or goes first, or if a person has the session and its worker may not use the method
// meanwhile.
func (c *Conn) stage(cmd command, method *methods.Method, msg []byte, owned bool) bool {
	m := c.session.mux
	if len(c.staged) == 0 {
		if !m.writing.TryLock() {
			return false
		}
		if m.nextPost(0) != nil { // it goes first, which may take a while
			m.writing.Unlock()
			return false
		}
		m.scratch = m.scratch[:0]
	}
	if c.against(method, cmd.params) != nil { // with the lock held, see Takeover.Begin
		if len(c.staged) == 0 {
			m.writing.Unlock()
		}
		return false
	}
	u, ok := c.register(cmd)
	if !ok {
		if len(c.staged) == 0 {
			m.writing.Unlock()
		}
		return true
	}
	c.staged = append(c.staged, stagedCommand{cmd, u, c.sessionOf(cmd), method})
	head, tail := c.browserParts(cmd, msg)
	if len(head) > smallMessage {
		c.commitLarge(head, append(tail, 0), owned)
		return true
	}
	m.scratch = append(append(append(m.scratch, head...), tail...), 0)
	if len(m.scratch) > smallMessage {
		c.commit()
	}
	return true
}

// register adds a command to those in flight. It returns false after a cut.
func (c *Conn) register(cmd command) (undo, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		return undo{}, false
	}
	sessionID := c.session.defaultID
	ids := c.pending[""]
	if cmd.hasSession {
		if ids = c.pending[string(cmd.sessionID)]; ids == nil {
			ids = map[int64]*continuedRequest{}
			c.pending[string(cmd.sessionID)] = ids
		}
	}
	u := undo{ids: ids}
	if cmd.tracked() {
		if cmd.hasSession {
			sessionID = string(cmd.sessionID)
		}
		u.continued = c.session.trackCommand(cmd, sessionID)
	}
	_, again := ids[cmd.id]
	if again {
		if c.more == nil {
			c.more = map[inFlight]int{}
		}
		c.more[inFlight{c.target(cmd), cmd.id}]++
	} else {
		c.session.mux.inFlight.Add(1)
	}
	ids[cmd.id] = u.continued
	if string(cmd.method) == captureCommand {
		c.session.mux.pictures.asked(inFlight{c.target(cmd), cmd.id})
	}
	if string(cmd.method) == discoverCommand {
		c.noteDiscovery(cmd)
	}
	c.noteListening(cmd, again)
	c.session.log.add(cmd.sessionID, cmd.method)
	return u, true
}

// browserParts returns the message as the browser has to get it, in two parts. A message that
// names no session gets the connection's.
func (c *Conn) browserParts(cmd command, msg []byte) (head, tail []byte) {
	if cmd.hasSession {
		return msg, nil
	}
	return msg[:cmd.lastBrace], c.suffix
}

// commit sends what is staged, if anything is.
func (c *Conn) commit() { c.commitLarge(nil, nil, true) }

// commitLarge sends what is staged. head and tail are its last message, unless they are empty:
// a large message is not copied to Mux.scratch as the others are.
func (c *Conn) commitLarge(head, tail []byte, owned bool) {
	if len(c.staged) == 0 {
		return
	}
	m := c.session.mux
	rest, err := m.begin(c.fence, c.staged, head, tail)
	if err == nil {
		c.session.log.stamp(len(c.staged), m.passedAt)
	}
	if err != nil || len(rest) == 0 {
		m.writing.Unlock()
	}
	if err == nil && len(rest) == 0 {
		m.commandSent = true
		c.staged = c.staged[:0]
		return
	}
	list := c.staged
	c.staged = nil
	for i := range list {
		list[i] = list[i].keep(owned && len(head) > 0 && i == len(list)-1)
	}
	if err != nil {
		c.offload(func() { c.failUnsent(err, list...) })
		return
	}
	// The pipe is full. The goroutine that waits for it continues to hold Mux.writing, and so
	// may use the content of scratch.
	if !owned {
		for i := range rest {
			rest[i] = slices.Clone(rest[i])
		}
	}
	c.offload(func() {
		unsent, err := m.finish(c.fence, rest, list)
		c.failUnsent(err, list[len(list)-unsent:]...)
	})
}

// failUnsent undoes what was noted of commands that could not be sent, and answers each
// with the error. It does nothing if err is nil.
func (c *Conn) failUnsent(err error, list ...stagedCommand) {
	if err == nil {
		return
	}
	for _, s := range list {
		c.unsent(s)
		if taken, ok := errors.AsType[*takenError](err); ok {
			c.deny(s.command, taken.why)
			continue
		}
		if !errors.Is(err, ErrBrowserGone) {
			c.handler.Refused(string(s.method))
		}
		c.reply(s.command, nil, &Error{codeServer, err.Error()})
	}
}

// unsent undoes what was noted of a command that could not be sent.
func (c *Conn) unsent(s stagedCommand) {
	c.mu.Lock()
	switch _, ok := s.ids[s.id]; {
	case !ok:
	case c.pending == nil:
		delete(s.ids, s.id)
	default:
		c.settled(s.ids, browserMessage{id: s.id, sessionID: []byte(c.target(s.command))})
	}
	c.mu.Unlock()
	c.session.mux.pictures.settled(inFlight{c.target(s.command), s.id})
	c.session.mux.privacy.answered(inFlight{c.target(s.command), s.id}, true)
	c.session.restorePaused(s.continued)
}

// forgetPending forgets the commands in flight. The browser may still refuse them, and nobody
// would see that. So the requests that they continue count as paused again, and Fence fails
// them; for a request that is no longer paused that has no effect. The caller holds c.mu.
func (c *Conn) forgetPending() {
	n := 0
	for _, ids := range c.pending {
		n += len(ids)
		for _, continued := range ids {
			c.session.restorePaused(continued)
		}
	}
	c.pending, c.more = nil, nil
	c.session.mux.inFlight.Add(int32(-n))
}
