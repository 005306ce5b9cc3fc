package cdpproxy

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/gobwas/ws"
)

// Later is a result of a command of the Lease domain that is not available yet. Wait returns
// it, or an error. Wait is called on a goroutine of its own, so the connection is read
// meanwhile; its context ends with the connection. A cut answers the command with the reason,
// like those in flight.
type Later struct {
	Wait func(ctx context.Context) (any, *Error)
}

// later are the commands of one connection that wait for such a result.
type later struct {
	ctx  context.Context // ends with the connection
	work sync.WaitGroup
	// waiting is the number of commands with an id on a CDP session. Conn.mu guards it.
	waiting map[inFlight]int
}

// answerLater answers a command when its result is available. It is called on the goroutine of
// offload. Serve waits for the end of that goroutine before it waits for the work of later.
func (c *Conn) answerLater(cmd command, result Later) {
	cmd = cmd.clone()
	key := inFlight{string(cmd.sessionID), cmd.id}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		return
	}
	if c.laters.waiting == nil {
		c.laters.waiting = map[inFlight]int{}
	}
	c.laters.waiting[key]++
	ctx := c.laters.ctx
	c.laters.work.Go(func() {
		value, err := result.Wait(ctx)
		c.mu.Lock()
		due := c.laters.waiting[key] > 0 // otherwise a cut has answered it
		if due {
			if c.laters.waiting[key]--; c.laters.waiting[key] == 0 {
				delete(c.laters.waiting, key)
			}
		}
		c.mu.Unlock()
		if due {
			c.reply(cmd, value, err)
		}
	})
}

// cutLater answers the waiting commands with the reason of a cut. The caller holds c.mu.
func (c *Conn) cutLater(reason string) {
	for key, n := range c.laters.waiting {
		for range n {
			r := ownReply{ID: &key.id, Error: &Error{codeServer, "leasehold: " + reason}, SessionID: key.sessionID}
			if msg, err := json.Marshal(r); err == nil {
				c.out.add(ws.OpText, msg)
			}
		}
	}
	c.laters.waiting = nil
}
