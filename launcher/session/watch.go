package session

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"leasehold/cdpproxy"
)

// This file has what viewers of a session need of it. It costs nothing while nobody watches.

// watchers are those who use the browser of a session beside its worker, and who leave it
// before the session's end touches it.
type watchers struct {
	mu    sync.Mutex
	last  int
	stops map[int]func()
	over  bool // the end has begun
}

// Attend lets a watcher use the session's browser until it calls leave, or the session begins
// to end. Then stop is called, once, and the end waits for it. The goroutine that ends the
// session calls stop before anything is captured or closed. Attend is refused if the session is
// already ending.
func (s *Session) Attend(stop func()) (leave func(), err error) {
	if leave = s.watchers.add(stop); leave == nil {
		return nil, s.life.endingProblem()
	}
	return leave, nil
}

// add adds a watcher, and returns nil once the end has begun.
func (w *watchers) add(stop func()) (leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return nil
	}
	w.last++
	key := w.last
	if w.stops == nil {
		w.stops = map[int]func(){}
	}
	w.stops[key] = stop
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.stops, key)
	}
}

// end has all watchers leave, at the same time.
func (w *watchers) end() {
	w.mu.Lock()
	w.over = true
	stops := w.stops
	w.stops = nil
	w.mu.Unlock()
	var leaving sync.WaitGroup
	for _, stop := range stops {
		leaving.Go(stop)
	}
	leaving.Wait()
}

// Done is closed when the session is over.
func (s *Session) Done() <-chan struct{} { return s.life.done }

// Mux is that of the session's browser.
func (s *Session) Mux() *cdpproxy.Mux { return s.browser.Mux() }

// OpenLater has open tried again, which lets clients use the browser after a sign-in, and failed with err.
func (s *Session) OpenLater(err error, open func(ctx context.Context) error) {
	s.browser.OpenLater(err, open, s.log)
}

// Readable returns nil for a file that pages of the session may read.
func (s *Session) Readable(path string) error { return s.files.readable(path) }

// Doing is what the task last said about itself: its step, and its last checkpoint.
func (s *Session) Doing() (step, checkpoint string) {
	return s.pictures.doing()
}

// FollowCommands returns a function that returns the commands which the session's worker sent
// since its last call, or at first since FollowCommands was called; oldest first. One goroutine
// may call it.
func (s *Session) FollowCommands() func() []cdpproxy.Command {
	seen := map[*cdpproxy.Conn]int{}
	for _, c := range s.clients.connected() {
		_, seen[c] = c.ClientSession().CommandsAfter(-1)
	}
	return func() []cdpproxy.Command {
		var all []cdpproxy.Command
		now := map[*cdpproxy.Conn]int{}
		for _, c := range s.clients.connected() {
			commands, sent := c.ClientSession().CommandsAfter(seen[c])
			all, now[c] = append(all, commands...), sent
		}
		seen = now
		slices.SortStableFunc(all, func(a, b cdpproxy.Command) int { return cmp.Compare(a.Passed, b.Passed) })
		return all
	}
}
