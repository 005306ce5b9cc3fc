package httpapi

import (
	"context"
	"net/http"
)

// watchSession shows a living session until either side ends the connection. docs/console.md
// describes the messages.
func watchSession(c *call) error { return c.watch(c.param("session")) }

func (c *call) watch(sessionID string) error {
	ctx, cancel := context.WithTimeout(c.r.Context(), connectTimeout)
	conn, err := c.svc.View(ctx, sessionID)
	cancel()
	if err != nil {
		return err
	}
	if c.gone() {
		conn.Cancel()
		return errGone
	}
	return c.serveOn(conn, http.Header{"Leasehold-Session": {conn.Session().SessionID}})
}
