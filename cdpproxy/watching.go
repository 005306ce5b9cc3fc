package cdpproxy

import "context"

// This file has what a person who watches a session is shown besides the pages. Nothing here
// runs while nobody watches.

// Close ends the observer's browser session and everything that was opened on it. The observer
// must not be used after that.
func (o *Observer) Close(ctx context.Context) error { return o.session.Close(ctx) }

// CommandsAfter returns what the session's client has sent after its first n commands, oldest
// first, without those that the log no longer has, and the number with which the next call
// continues. A negative n asks only for that number. It does not change what Commands returns.
func (s *ClientSession) CommandsAfter(n int) (commands []Command, next int) {
	s.readLog(func() []Command {
		commands, next = s.log.after(n)
		return commands
	})
	return commands, next
}
