package session

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"leasehold/checkpoint"
	"leasehold/launcher/api"
	"leasehold/launcher/principal"
	"leasehold/lease"
)

// ActKind is a kind of action of a person, as the journal names it.
type ActKind string

// The kinds of acts.
const (
	ActMove      ActKind = "move"
	ActClick     ActKind = "click"
	ActKey       ActKind = "key"
	ActText      ActKind = "text"
	ActScroll    ActKind = "scroll"
	ActTouch     ActKind = "touch"
	ActNavigate  ActKind = "navigate"
	ActBack      ActKind = "back"
	ActForward   ActKind = "forward"
	ActReload    ActKind = "reload"
	ActTab       ActKind = "tab"
	ActNewTab    ActKind = "new_tab"
	ActCloseTab  ActKind = "close_tab"
	ActDialog    ActKind = "dialog"
	ActSelect    ActKind = "select"
	ActFile      ActKind = "file"
	ActClipboard ActKind = "clipboard" // they pasted
	ActCopy      ActKind = "copy"      // they copied text of the page
)

// Act is one action of a person in a session: its kind, and where it was done. It never has
// what was typed, or which key.
type Act struct {
	Kind ActKind
	// URL is that of the page. Its query and fragment are not kept.
	URL string
	// Target is Chrome's id of the page; empty for an action on no page yet.
	Target string
	// Characters is how many were copied out of the page; zero for other acts.
	Characters int
	// GoesOn says that the act belongs to the one before it: the pointer moves to the next
	// click, or a click or key ends. It has no entry of its own right after one of that page.
	GoesOn bool
}

// ByPerson carries out something that a principal does as the person who has the session.
// Before that it notes the act in the journal as the person's. do sends the act to the browser,
// each command with CallFenced under the fence that do is given, so that nothing passes after
// the person handed back or the lease was lost. ByPerson is refused to anybody else, as
// PersonIs says, and while the session stands still because its worker was lost.
func (ps *People) ByPerson(p principal.Principal, act Act, do func(fence *lease.Fence) error) error {
	who, fence, err := ps.inHandsOf(p)
	if err != nil {
		return err
	}
	if r := ps.life.ruling(time.Now()); r.verdict != stay {
		return api.Refuse(api.CodeStandsStill, "session %s stands still (%s): nothing is done on its pages unless its worker comes back", ps.id, r.reason).With("session_id", ps.id)
	}
	where, _, _ := strings.Cut(act.URL, "?")
	where, _, _ = strings.Cut(where, "#")
	e := checkpoint.Entry{Kind: checkpoint.KindPerson, Name: string(act.Kind), URL: where, Target: act.Target, Person: who.Name, Principal: who.Principal}
	if act.Characters > 0 {
		e.Text = fmt.Sprintf("%d characters", act.Characters)
	}
	if now := time.Now(); !act.GoesOn || !ps.acts.goesOn(e, now) {
		for _, due := range ps.acts.add(e, now) {
			ps.served.Note(due)
		}
	}
	return do(fence)
}

func (ps *People) noteActs() {
	for _, e := range ps.acts.flush() {
		ps.served.Note(e)
	}
}

// actsTogether is how long acts of one kind in one place are gathered in one entry.
const actsTogether = 10 * time.Second

// acts gathers what a person does. The first of equal acts has an entry at once, so that no
// crash loses that it was done; those right after it have one entry together.
type acts struct {
	mu    sync.Mutex
	run   checkpoint.Entry
	since time.Time // of the run's first act; zero: there is no run
	first time.Time // of those in more
	more  uint64
}

// add takes in an act, and returns the entries that are to be noted now.
func (a *acts) add(e checkpoint.Entry, now time.Time) []checkpoint.Entry {
	a.mu.Lock()
	defer a.mu.Unlock()
	last := a.run
	if !a.since.IsZero() && now.Sub(a.since) < actsTogether &&
		last.Name == e.Name && last.Text == e.Text && last.URL == e.URL && last.Target == e.Target && last.Person == e.Person && last.Principal == e.Principal {
		if a.more++; a.more == 1 {
			a.first = now
		}
		return nil
	}
	due := append(a.flushLocked(), e)
	a.run, a.since = e, now
	return due
}

// goesOn tells whether an act belongs to the run: it is the same person's, on the same page.
func (a *acts) goesOn(e checkpoint.Entry, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.since.IsZero() && now.Sub(a.since) < actsTogether && a.run.URL == e.URL && a.run.Target == e.Target && a.run.Person == e.Person && a.run.Principal == e.Principal
}

// flush ends the run, and returns the entry for those of its acts that are not noted yet, if
// there are any.
func (a *acts) flush() []checkpoint.Entry {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.flushLocked()
}

func (a *acts) flushLocked() []checkpoint.Entry {
	e, more := a.run, a.more
	e.Count, e.First = more, a.first.UTC()
	a.run, a.since, a.more = checkpoint.Entry{}, time.Time{}, 0
	if more == 0 {
		return nil
	}
	if more == 1 {
		e.Count, e.First = 0, time.Time{}
	}
	return []checkpoint.Entry{e}
}
