package cdpproxy

import "context"

// What a person who watches a session is shown of it, beside the pages: nothing here is at
// work while nobody watches.

// Close ends the observer's browser session and everything that was opened on it. Nobody
// may use the observer after it.
func (o *Observer) Close(ctx context.Context) error { return o.session.Close(ctx) }

// CommandsAfter returns what the session's client sent after its first n commands, oldest
// first, without those that the log has no room for any more, and the number with which the
// next call returns what comes after them. A negative n asks for that number alone. What
// Commands returns stays as it is.
func (s *ClientSession) CommandsAfter(n int) (commands []Command, next int) {
	s.mu.Lock()
	conn, page := s.conn, s.defaultID
	if page == s.id {
		page = ""
	}
	s.mu.Unlock()
	if conn != nil {
		conn.mu.Lock()
		defer conn.mu.Unlock()
	}
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	if n < 0 {
		return nil, s.log.added
	}
	commands, next = s.log.read(max(n, s.log.added-commandLogLength))
	for i := range commands {
		if page != "" && commands[i].Session == "" { // see Commands
			commands[i].Session, commands[i].Target = page, s.log.targets[page]
		}
	}
	return commands, next
}
