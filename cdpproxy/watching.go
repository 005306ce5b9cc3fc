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
	s.readLog(func() []Command {
		commands, next = s.log.after(n)
		return commands
	})
	return commands, next
}
