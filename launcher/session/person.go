package session

import (
	"cmp"
	"errors"
	"time"

	"leasehold/cdpproxy/methods"
	"leasehold/checkpoint"
	"leasehold/launcher/api"
	"leasehold/launcher/principal"
	"leasehold/launcher/sessionfile"
	"leasehold/lease"
)

// A person takes a session over while its worker keeps the lease. Until the person hands it
// back, the worker may look at the pages, and not act on them; what the person does stands
// in the journal as theirs.

// takeover is one person's time with a session, from taking over to handing back.
type takeover struct {
	api.Person
	// fence is the one that the person's commands pass: under the session's own, and shut
	// when the person has the session no more.
	fence *lease.Fence
	// seenAt is the last sign of the person. leaving says that the session is about to be
	// handed back in their place. The session's mutex guards both.
	seenAt  time.Time
	leaving bool
}

var errHandedBack = errors.New("the person has handed the session back")

// TakeOver gives the session to a person. One that another person has is refused, unless the
// request names that person. When it returns, nothing more of what the worker did can reach
// the browser.
func (s *Session) TakeOver(p principal.Principal, t api.TakeOver) error {
	if s.ephemeral {
		return notForReaders(s.id, "a person can do nothing in it that is kept")
	}
	s.handing.Lock()
	defer s.handing.Unlock()
	before, who := s.takenBy(), s.person()
	next := &takeover{Person: api.Person{Name: checkpoint.Clip(cmp.Or(t.Person, p.Name)), Principal: p.Name, Since: time.Now().UTC()}}
	switch {
	case who == nil:
	case who.Principal == p.Name && (before == nil || t.Person == "" || who.Name == next.Name):
		s.mu.Lock()
		defer s.mu.Unlock()
		s.seenLocked(p.Name)
		return nil
	case before == nil || t.TakeFrom != who.Name:
		return takenOver(s.id, *who)
	}
	// The next launcher has to know of the person before anything changes for the others.
	if err := s.persistPerson(&next.Person); err != nil {
		return err
	}
	next.fence, next.seenAt = s.Fence().Under(), time.Now()
	s.stopDriving(takenOver(s.id, next.Person))
	s.taken.Begin(s.browser.Mux(), methods.RefusePerson(next.Name, next.Since))
	if before != nil { // its last commands are on their way, or refused
		s.leaves(before, "taken by "+next.Name)
		s.announce(lease.EventHandedBack, before, func(e *lease.Event) { e.Reason = handedToAnother })
	}
	s.setTakeover(next)
	s.life.wake() // for run to look whether the person stays
	s.log.Info().Str("principal", p.Name).Str("person", next.Name).Msg("session taken over")
	s.Note(next.entry(checkpoint.PersonTook, t.Note))
	s.announce(lease.EventTaken, next, func(e *lease.Event) { e.Note = checkpoint.Clip(t.Note) })
	return nil
}

// HandBack lets the worker go on.
func (s *Session) HandBack(p principal.Principal, h api.HandBack) error {
	s.handing.Lock()
	defer s.handing.Unlock()
	t := s.takenBy()
	switch {
	case s.policy.byHand:
		return api.Refuse(api.CodeNotTakenOver, "session %s is a hold, which has no worker: end it instead", s.id)
	case t == nil:
		return nobodyHas(s.id)
	case t.Principal != p.Name:
		return takenOver(s.id, t.Person)
	}
	s.giveBack(t, h.Note)
	answered := s.answer(t.Person, h)
	s.announce(lease.EventHandedBack, t, func(e *lease.Event) { e.Note, e.Answered = checkpoint.Clip(h.Note), answered })
	s.log.Info().Str("principal", p.Name).Str("person", t.Name).Msg("session handed back")
	return nil
}

// giveBack lets the worker act again. The caller holds s.handing.
func (s *Session) giveBack(t *takeover, note string) {
	s.leaves(t, note)
	s.setTakeover(nil)
	if err := s.file.save(); err != nil { // the next launcher would only wait for the person
		s.log.Error().Err(err).Msg("session file not written")
	}
	s.taken.End()
}

// leaves ends what a person can do. When it returns, nothing more of it can reach the browser.
func (s *Session) leaves(t *takeover, note string) {
	t.fence.Shut(errHandedBack)
	s.browser.Mux().Barrier()
	s.noteActs()
	s.Note(t.entry(checkpoint.PersonHandedBack, note))
}

// goesOnWith has the session of an earlier launcher stay with the person who had it.
func (s *Session) goesOnWith(p *api.Person) {
	if p == nil {
		return
	}
	s.taken.Begin(s.browser.Mux(), methods.RefusePerson(p.Name, p.Since))
	s.setTakeover(&takeover{Person: *p, fence: s.Fence().Under(), seenAt: time.Now()})
}

// takenBy is who took the session over; nil: nobody.
func (s *Session) takenBy() *takeover {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.takeover
}

func (s *Session) setTakeover(t *takeover) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.takeover = t
	var who *api.Person
	if t != nil {
		who = &t.Person
	} else {
		s.driving = nil
	}
	s.file.change(func(f *sessionfile.File) { f.Person = who })
}

// persistPerson writes into the session's file who has taken it over. Where that fails, the
// session is as it was.
func (s *Session) persistPerson(p *api.Person) error {
	set := func(p *api.Person) (was *api.Person) {
		s.file.change(func(f *sessionfile.File) { was, f.Person = f.Person, p })
		return was
	}
	was := set(p)
	err := s.file.save()
	if err != nil {
		set(was)
	}
	return err
}

// person is who has the session by hand; nil: nobody.
func (s *Session) person() *api.Person {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.personLocked()
}

// personLocked is person for who holds s.mu.
func (s *Session) personLocked() *api.Person {
	switch {
	case s.takeover != nil:
		return &s.takeover.Person
	case s.manifest.ByHand != nil:
		return &api.Person{Name: s.manifest.ByHand.Holder, Principal: s.manifest.Opener.Name, Since: s.life.known().startedAt.UTC()}
	}
	return nil
}

// Driving is for what the worker does to pages other than through its connections: it is
// refused while a person has taken the session over, and otherwise passes the fence, which
// is shut when a person takes the session over meanwhile. The cause is a *api.Problem then.
func (s *Session) Driving() (*lease.Fence, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.takeover; t != nil {
		return nil, takenOver(s.id, t.Person)
	}
	if s.driving == nil {
		s.driving = s.Fence().Under()
	}
	return s.driving, nil
}

// stopDriving shuts the fence of Driving until nobody has the session by hand.
func (s *Session) stopDriving(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.driving == nil {
		s.driving = s.Fence().Under()
	}
	s.driving.Shut(cause)
}

// PersonIs returns nil while the principal has the session by hand. Otherwise the error, a
// *api.Problem, says who has it, that nobody does, or that the session is ending.
func (s *Session) PersonIs(p principal.Principal) error {
	_, _, err := s.inHandsOf(p)
	return err
}

// inHandsOf is PersonIs, which is a sign of that person, and returns the fence that the person's commands pass.
func (s *Session) inHandsOf(p principal.Principal) (api.Person, *lease.Fence, error) {
	if s.Ending() || s.Fence().Check() != nil {
		return api.Person{}, nil, api.Refuse(api.CodeSessionEnded, "session %s is ending", s.id).With("session_id", s.id)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	who := s.personLocked()
	switch {
	case who == nil:
		return api.Person{}, nil, nobodyHas(s.id)
	case who.Principal != p.Name || p.Name == "":
		return api.Person{}, nil, takenOver(s.id, *who)
	case s.takeover == nil: // a hold
		return *who, s.Fence(), nil
	}
	s.seenLocked(p.Name)
	return *who, s.takeover.fence, nil
}

func nobodyHas(sessionID string) *api.Problem {
	return api.Refuse(api.CodeNotTakenOver, "nobody has session %s by hand: take it over first", sessionID).With("session_id", sessionID)
}

func takenOver(sessionID string, who api.Person) *api.Problem {
	return api.Refuse(api.CodeTakenOver, "%s (%s) has session %s since %s", who.Name, who.Principal, sessionID, who.Since.Format(time.RFC3339)).
		With("session_id", sessionID).With("person", who)
}

// Reasons of a hand-back that the person did not make, as events have them.
const (
	handedToAnother = "taken_by_another"
	handedSinceGone = "person_gone"
)

// announce publishes what happened to a takeover.
func (s *Session) announce(event string, t *takeover, more func(*lease.Event)) {
	e := s.personEvent(event, t.Principal)
	e.Person = t.Name
	more(&e)
	s.h.o.Announcer.Person(s.h.ctx, e)
}

// personEvent is an event about the session that is due to a principal.
func (s *Session) personEvent(event, principal string) lease.Event {
	return lease.Event{
		Event: event, ProfileID: s.profile, Token: s.token, SessionID: s.id,
		OwnerWorkerID: s.manifest.WorkerID, TaskID: s.manifest.TaskID, Principal: principal,
	}
}

// entry is the journal's entry about something that the person did.
func (t *takeover) entry(name, text string) checkpoint.Entry {
	return checkpoint.Entry{Kind: checkpoint.KindPerson, Name: name, Text: text, Person: t.Name, Principal: t.Principal}
}
