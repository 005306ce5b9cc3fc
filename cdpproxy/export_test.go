package cdpproxy

// Ended tells whether the connection was served and has ended.
func (c *Conn) Ended() bool {
	c.session.mu.Lock()
	defer c.session.mu.Unlock()
	return c.session.conn == nil
}
