package view

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"leasehold/cdpproxy"
	"leasehold/evidence/capture"
	"leasehold/launcher/api"
	"leasehold/launcher/monitor"
	"leasehold/launcher/principal"
)

const (
	// lookEvery is how often a watch looks at the tabs, and at what the worker did.
	lookEvery = 120 * time.Millisecond
	// titleEvery is how often a watch asks for the titles of the tabs, and how long it waits
	// for them.
	titleEvery = 600 * time.Millisecond
	// leaveTimeout bounds how long a watch may take to leave the browser.
	leaveTimeout = 2 * time.Second
	// openTimeout bounds how long the browser may take to open a session for a watch.
	openTimeout = 10 * time.Second
)

// watch shows one session to its viewers.
type watch struct {
	gallery *Gallery
	session Session
	log     zerolog.Logger

	ctx    context.Context // for what it does in the browser
	cancel context.CancelFunc
	left   chan struct{} // closed when it no longer does anything in the browser
	unbind func()        // undoes Attend

	// Only run uses these:
	observer *cdpproxy.Observer
	commands func() []cdpproxy.Command
	order    []string // targets of the pages, in the order in which they were first seen
	casts    map[string]*cast
	titles   map[string]string // of pages, by target
	titled   time.Time         // when they were last asked for

	mu        sync.Mutex
	viewers   map[*viewer]bool // for reading also guarded by the gallery's mutex
	latest    [kinds]latest
	actions   actionLog
	person    api.Person        // who has the session by hand; without a name: nobody
	used      string            // target of the page that the worker used last
	open      map[string]bool   // targets of the pages
	frames    map[string]*frame // the newest picture, by target
	sequence  uint64
	hidden    map[string]bool  // targets that Chrome does not draw
	bySession map[string]*cast // casts, by CDP session
	// byFrame are the frames in other processes whose file choosers are intercepted, by CDP
	// session.
	byFrame map[string]pageFrame
}

// latest is the newest message of a kind. Its version rises with each message; zero: there is
// none.
type latest struct {
	version uint64
	text    []byte
	forLink []byte // for who has a sign-in link
}

func newWatch(g *Gallery, s Session) (*watch, error) {
	ctx, cancel := context.WithCancel(g.ctx)
	w := &watch{
		gallery: g, session: s, ctx: ctx, cancel: cancel, left: make(chan struct{}), casts: map[string]*cast{},
		viewers: map[*viewer]bool{}, open: map[string]bool{}, frames: map[string]*frame{}, hidden: map[string]bool{}, bySession: map[string]*cast{}, byFrame: map[string]pageFrame{},
		log: g.o.Log.With().Str("profile", s.Show().ProfileID).Str("session", s.ID()).Logger(),
	}
	var err error
	if w.unbind, err = s.Attend(func() { cancel(); <-w.left }); err != nil {
		cancel()
		return nil, err
	}
	return w, nil
}

// enter adds a viewer. The caller holds the gallery's mutex.
func (w *watch) enter(v *viewer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.viewers[v] = true
}

// seenBy is how many viewers a principal has. The caller holds the gallery's mutex.
func (w *watch) seenBy(who principal.Principal) (n int) {
	for v := range w.viewers {
		if v.who.Name == who.Name {
			n++
		}
	}
	return n
}

// remove removes a viewer, and tells whether it was there. The caller holds the gallery's
// mutex.
func (w *watch) remove(v *viewer) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.viewers[v]
	delete(w.viewers, v)
	w.wakeCasts()
	return was
}

// run shows the session until its last viewer leaves, or the session ends.
func (w *watch) run() {
	err := w.show()
	w.unbind()
	w.gallery.over(w)
	how := ""
	switch {
	case err != nil:
		w.log.Warn().Err(err).Msg("a session cannot be watched any more")
		how = "it cannot be watched: " + err.Error()
	case w.gallery.ctx.Err() == nil && w.watched():
		how = w.awaitEnd()
	}
	w.tell(kindEnded, endedMessage{"ended", how})
}

func (w *watch) watched() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.viewers) > 0
}

// awaitEnd waits until the session is over, and says how it ended.
func (w *watch) awaitEnd() string {
	w.tellSession()
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-w.session.Done():
			return w.gallery.o.Ended(w.session.ID())
		case <-w.gallery.ctx.Done():
			return "the launcher is shutting down"
		case <-ticker.C:
			if !w.watched() {
				return ""
			}
		}
	}
}

// show works in the browser until ctx ends, the session ends, or the browser is gone. When it
// returns, it has left nothing there.
func (w *watch) show() error {
	defer close(w.left)
	defer w.cancel()
	opening, cancel := context.WithTimeout(w.ctx, openTimeout)
	observer, err := w.session.Mux().Observe(opening, castEvents...)
	cancel()
	switch {
	case w.ctx.Err() != nil || errors.Is(err, cdpproxy.ErrBrowserGone):
		return nil
	case err != nil:
		return err
	}
	w.observer, w.commands = observer, w.session.FollowCommands()
	var parts sync.WaitGroup
	parts.Go(w.dispatch)
	defer parts.Wait()
	defer w.leave()
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		m, err := w.session.Monitor()
		if err != nil {
			return nil // the session ends
		}
		if now := time.Now(); now.Sub(w.titled) >= titleEvery {
			w.titled = now
			w.learnTitles(m)
		}
		w.look(m.Pages(), w.commands())
		select {
		case <-ticker.C:
		case <-w.ctx.Done():
			return nil
		case <-w.session.Mux().Done():
			return nil
		}
	}
}

// learnTitles asks the browser for the titles of the pages. Chrome reports a new document, but
// not the title that the document gives itself later.
func (w *watch) learnTitles(m *monitor.Monitor) {
	ctx, cancel := context.WithTimeout(w.ctx, titleEvery)
	defer cancel()
	targets, err := m.Tabs().Targets(ctx)
	if err != nil {
		return // the titles stay as they are
	}
	w.titles = map[string]string{}
	for _, t := range targets {
		w.titles[string(t.TargetID)] = t.Title
	}
}

// leave ends all casts, and the watch's session in the browser.
func (w *watch) leave() {
	w.cancel()
	for _, c := range w.casts {
		<-c.done
	}
	leaving, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	if err := w.observer.Close(leaving); err != nil && !errors.Is(err, cdpproxy.ErrBrowserGone) {
		w.log.Warn().Err(err).Msg("the browser session of those who watched stays")
	}
}

// look takes in what is open and what the worker did, tells the viewers, and begins and ends
// casts.
func (w *watch) look(pages []capture.Page, commands []cdpproxy.Command) {
	w.tellSession()
	first := w.order == nil
	var opened []string
	w.order = slices.DeleteFunc(w.order, func(target string) bool {
		return !slices.ContainsFunc(pages, func(p capture.Page) bool { return p.TargetID == target })
	})
	for i := range pages {
		if title, known := w.titles[pages[i].TargetID]; known {
			pages[i].Title = title
		}
	}
	for _, p := range slices.Backward(pages) { // the one with the oldest event first
		if !slices.Contains(w.order, p.TargetID) {
			w.order, opened = append(w.order, p.TargetID), append(opened, p.TargetID)
		}
	}
	if first {
		opened = nil
	}
	w.mu.Lock()
	w.used = usedTab(w.used, opened, commands, pages)
	w.open = map[string]bool{}
	for _, target := range w.order {
		w.open[target] = true
	}
	maps.DeleteFunc(w.frames, func(target string, _ *frame) bool { return !w.open[target] })
	maps.DeleteFunc(w.hidden, func(target string, _ bool) bool { return !w.open[target] })
	tabs := tabsMessage{"tabs", tabsOf(w.order, pages, w.used, w.hidden)}
	acted := w.actions.add(commands)
	if acted {
		w.wakeViewers()
	}
	wanted := w.wanted()
	w.mu.Unlock()
	w.tell(kindTabs, tabs)
	w.cast(wanted)
}

// wanted are the targets of the pages that viewers want to see. The caller holds w.mu.
func (w *watch) wanted() map[string]bool {
	wanted := map[string]bool{}
	for v := range w.viewers {
		if target := v.showing(); target != "" && !v.paused {
			wanted[target] = true
		}
	}
	return wanted
}

// cast begins the casts that are wanted, and ends the others.
func (w *watch) cast(wanted map[string]bool) {
	for target, c := range w.casts {
		select {
		case <-c.done: // its page was closed, or could not be cast
			delete(w.casts, target)
		default:
			if !wanted[target] {
				c.cancel()
			}
		}
	}
	for target := range wanted {
		if w.casts[target] == nil {
			c := newCast(w, target)
			w.casts[target] = c
			w.gallery.work.Go(c.run)
		}
	}
}

// tellSession says whose session it is, and what its task said.
func (w *watch) tellSession() {
	s := w.session.Show()
	w.mu.Lock()
	w.person = api.Person{}
	if s.Person != nil {
		w.person = *s.Person
	}
	w.takeChoosers()
	for v := range w.viewers {
		if v.told == nil || v.hands() != *v.told {
			v.wake()
		}
	}
	w.mu.Unlock()
	step, checkpoint := w.session.Doing()
	w.tell(kindSession, sessionMessage{
		Type: "session", SessionID: s.SessionID, ProfileID: s.ProfileID, WorkerID: s.WorkerID, TaskID: s.TaskID, Token: uint64(s.Token), State: s.State, ByHand: w.session.Manifest().ByHand != nil, Step: step, Checkpoint: checkpoint, Ask: s.Ask,
	})
}

// tell makes a message the newest of its kind, if it differs from the present one.
func (w *watch) tell(kind int, message any) {
	text, err := json.Marshal(message)
	forLink := text
	if m, ok := message.(interface{ forLink() any }); ok && err == nil {
		forLink, err = json.Marshal(m.forLink())
	}
	if err != nil {
		w.log.Error().Err(err).Msg("a message to viewers cannot be made")
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	l := &w.latest[kind]
	if bytes.Equal(l.text, text) {
		return
	}
	l.text, l.forLink = text, forLink
	l.version++
	w.wakeViewers()
}

// wakeViewers makes the viewers look for what is new. The caller holds w.mu.
func (w *watch) wakeViewers() {
	for v := range w.viewers {
		v.wake()
	}
}

// wakeCasts makes the casts look at what viewers want. The caller holds w.mu.
func (w *watch) wakeCasts() {
	for _, c := range w.bySession {
		c.wake()
	}
}
